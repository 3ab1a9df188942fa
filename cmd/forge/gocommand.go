package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// withGoCommand returns a context that ends when the go command does that runs this program, if one does. The
// function that it returns ends the watching, and the context.
//
// Ctrl-C reaches every process of a terminal, but kill reaches only the process that it names, and a script that has
// started "go run" knows the go command's process id only. The go command does not pass a SIGTERM on, and a SIGKILL
// it cannot.
func withGoCommand(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	// The go command starts a program by its path; in the shells of the lab forge has a name.
	if filepath.IsAbs(os.Args[0]) {
		go func() {
			ticker := time.NewTicker(250 * time.Millisecond)
			defer ticker.Stop()
			for parent := os.Getppid(); !orphaned(parent); {
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

// orphaned says whether the process that started this one has ended. Somebody else is the parent then: another one
// than before or, if it ended before anybody looked, one that belongs to another session.
func orphaned(parent int) bool {
	own, _ := unix.Getsid(0) // of this process there is always one
	session, err := unix.Getsid(parent)
	return err != nil || session != own || os.Getppid() != parent
}
