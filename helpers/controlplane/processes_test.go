package controlplane_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// processes lists the processes of this machine whose command line holds the text.
func processes(t testing.TB, text string) map[int]string {
	t.Helper()
	found := make(map[int]string)
	if !hasProc() {
		out, err := exec.Command("ps", "-A", "-ww", "-o", "pid=,command=").Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			number, command, _ := strings.Cut(strings.TrimSpace(line), " ")
			if pid, err := strconv.Atoi(number); err == nil && strings.Contains(command, text) {
				found[pid] = command
			}
		}
		return found
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		command := string(bytes.ReplaceAll(content, []byte{0}, []byte{' '}))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && strings.Contains(command, text) {
			found[pid] = command
		}
	}
	return found
}

func hasProc() bool {
	_, err := os.Stat("/proc/self/cmdline")
	return err == nil
}

// listening lists the TCP addresses on which a process listens.
func listening(t testing.TB, pid int) []string {
	t.Helper()
	if !hasProc() {
		out, err := exec.Command("lsof", "-nP", "-a", "-p", strconv.Itoa(pid), "-iTCP", "-sTCP:LISTEN", "-Fn").Output()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) { // it exits with 1 when there are none
			t.Fatal(err)
		}
		var addresses []string
		for line := range strings.Lines(string(out)) {
			if address, ok := strings.CutPrefix(strings.TrimSpace(line), "n"); ok {
				addresses = append(addresses, address)
			}
		}
		return addresses
	}
	inodes := make(map[string]bool)
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		target, _ := os.Readlink(file)
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	if len(inodes) == 0 {
		t.Fatalf("process %d has no sockets, or does not show them", pid)
	}
	return slices.Concat(listeningOf(t, "/proc/net/tcp", inodes), listeningOf(t, "/proc/net/tcp6", inodes))
}

// listeningOf reads the kernel's table of TCP sockets: proc_net_tcp(5).
func listeningOf(t testing.TB, table string, inodes map[string]bool) []string {
	t.Helper()
	const (
		local, state, inode = 1, 3, 9
		listen              = "0A"
	)
	content, err := os.ReadFile(table)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a kernel without IPv6
	}
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) <= inode || fields[state] != listen || !inodes[fields[inode]] {
			continue
		}
		host, port, _ := strings.Cut(fields[local], ":")
		raw, err := hex.DecodeString(host)
		if err != nil {
			t.Fatal(err)
		}
		for word := range slices.Chunk(raw, 4) {
			slices.Reverse(word)
		}
		address, _ := netip.AddrFromSlice(raw)
		number, err := strconv.ParseUint(port, 16, 16)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, netip.AddrPortFrom(address, uint16(number)).String())
	}
	return addresses
}
