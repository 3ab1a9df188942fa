package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// errGoEnded is why a lab ends that was started with go run when somebody has ended the go command.
var errGoEnded = errors.New("the go command that ran this has ended")

// withGoCommand returns a context that ends when the go command does that runs this program, if one does.
//
// Ctrl-C reaches every process of a terminal, but kill reaches only the process that it names, and a script that
// has started "go run ./cmd/forge" knows the go command's process id only. The go command does not pass a SIGTERM
// on, and a SIGKILL it cannot.
func withGoCommand(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := func() { cancel(nil) }
	parent := os.Getppid()
	go func() {
		name, err := exec.CommandContext(ctx, "ps", "-o", "comm=", "-p", strconv.Itoa(parent)).Output()
		if err != nil || filepath.Base(strings.TrimSpace(string(name))) != "go" {
			return
		}
		ticker := time.NewTicker(250 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if os.Getppid() != parent {
					cancel(errGoEnded)
					return
				}
			}
		}
	}()
	return ctx, forget
}
