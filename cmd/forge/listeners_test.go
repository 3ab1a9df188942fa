package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"modrev/helpers/forge"
)

// listeners are the TCP addresses, as Linux writes them, on which a lab listens: forge itself, which holds etcd,
// and every process that has the folder of the lab in its command line. They are read from /proc.
func listeners(s forge.State) ([]string, error) {
	out, err := exec.Command("ps", "-axww", "-o", "pid=,command=").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the processes: %w", err)
	}
	sockets := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		pid, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pid != strconv.Itoa(s.PID) && !strings.Contains(command, s.Dir) {
			continue
		}
		files, err := filepath.Glob(filepath.Join("/proc", pid, "fd", "*"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			target, err := os.Readlink(file)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // the file may have been closed meanwhile
				return nil, err
			}
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				sockets[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	var found []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			return nil, err
		}
		const address, state, inode, listen = 1, 3, 9, "0A"
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > inode && f[state] == listen && sockets[f[inode]] {
				found = append(found, f[address])
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
