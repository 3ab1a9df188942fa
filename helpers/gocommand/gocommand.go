// Package gocommand ties a program to the go command that runs it.
//
// Ctrl-C reaches every process of a terminal, but kill reaches only the process that it names, and a script that
// has started "go run" knows the go command's process id only. The go command does not pass a SIGTERM on, and a
// SIGKILL it cannot.
package gocommand

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

// ErrEnded is the cause of a context that ended because somebody has ended the go command.
var ErrEnded = errors.New("the go command that ran this has ended")

// variable holds the ids of a process and of the go command that runs it. The first stays when the process becomes
// another program, and tells that program from all that it starts.
const variable = "MODREV_GO_COMMAND"

// Remember notes which go command runs this program, if one does, for the program that it is about to become.
// Whoever calls it first thing loses no end of the go command: [Context] sees one that came before it was called.
func Remember() error {
	parent := os.Getppid()
	if name(context.Background(), parent) != "go" {
		return nil
	}
	return os.Setenv(variable, fmt.Sprint(os.Getpid(), parent))
}

// Context returns a context that ends, with [ErrEnded] as its cause, when the go command does that runs this
// program, if one does. The function that it returns ends the watching, and the context.
func Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	parent, remembered := remembered()
	if !remembered {
		parent = os.Getppid()
	}
	go func() {
		if !remembered && name(ctx, parent) != "go" {
			return
		}
		ticker := time.NewTicker(250 * time.Millisecond)
		defer ticker.Stop()
		for {
			if os.Getppid() != parent {
				cancel(ErrEnded)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// remembered is the go command that this process has noted before it became this program.
func remembered() (parent int, ok bool) {
	var self int
	n, err := fmt.Sscan(os.Getenv(variable), &self, &parent)
	return parent, err == nil && n == 2 && self == os.Getpid()
}

// name is the name of a process, "" if nobody says it.
func name(ctx context.Context, pid int) string {
	// Linux has it in a file, which costs less than to start ps.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		text, err = exec.CommandContext(ctx, "ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
	}
	if err != nil {
		return ""
	}
	return filepath.Base(strings.TrimSpace(string(text)))
}
