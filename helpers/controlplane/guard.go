package controlplane

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

//go:embed guard.sh
var guardScript string

const guardName = "modrev-guard" // what ps shows

// guard is a shell that cleans up when this process is gone. See guard.sh.
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File // closed by the end of this process
}

func startGuard(folder string) (*guard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the guard of the control plane: %w", err)
	}
	defer func() { _ = r.Close() }()
	cmd := exec.Command("/bin/sh", "-c", guardScript, guardName, folder)
	cmd.Stdin = r
	// A session of its own: Ctrl-C and the end of the terminal must not end the guard before its work.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("starting the guard of the control plane: %w", err)
	}
	return &guard{cmd: cmd, pipe: w}, nil
}

// end lets the guard do its work, which finds nothing left to do after an orderly stop, and waits for it.
func (g *guard) end(ctx context.Context) error {
	_ = g.pipe.Close()
	done := make(chan error, 1)
	go func() { done <- g.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("waiting for the guard of the control plane: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the guard of the control plane: %w", context.Cause(ctx))
	}
}
