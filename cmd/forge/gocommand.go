package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// withGoCommand returns a context that ends when the go command does that runs this program, if one does. The
// function that it returns ends the watching, and the context.
//
// Ctrl-C reaches every process of a terminal, but kill reaches only the process that it names, and a script that has
// started "go run" knows the go command's process id only. The go command does not pass a SIGTERM on, and a SIGKILL
// it cannot.
func withGoCommand(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if parent := os.Getppid(); program(ctx, parent) == "go" {
		go func() {
			ticker := time.NewTicker(250 * time.Millisecond)
			defer ticker.Stop()
			for os.Getppid() == parent {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
			cancel(errors.New("the go command that ran this has ended"))
		}()
	}
	return ctx, func() { cancel(nil) }
}

// program is the name of the program that a process runs, "" if nobody says it.
func program(ctx context.Context, pid int) string {
	// Linux has it in a file, also where there is no ps.
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		name, err = exec.CommandContext(ctx, "ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
	}
	if err != nil {
		return ""
	}
	return filepath.Base(strings.TrimSpace(string(name)))
}
