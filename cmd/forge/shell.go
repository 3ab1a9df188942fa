package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"modrev/helpers/forge"
)

// shell opens a shell for the lab that runs. When none does, it starts one that ends with the shell.
func shell(ctx context.Context, args []string, out, errs io.Writer) error {
	set := flags("forge shell", "forge shell [flags]", `
Opens your shell ($SHELL) with kubectl, etcdctl and jq on the PATH, set up for the lab that runs; its prompt says so.
If no lab runs, it starts one that ends with the shell; the flags are for that one.
`, errs)
	options := labFlags(set, errs)
	if err := parse(set, args); err != nil {
		return err
	}
	s, err := forge.Running(os.Getenv(forge.LabVariable))
	switch {
	case errors.Is(err, forge.ErrNoneRuns):
		f, err := forge.Start(ctx, options())
		if err != nil {
			return err
		}
		s = f.State
		defer func() {
			if err := end(f); err != nil {
				fmt.Fprintln(errs, err)
			}
		}()
	case err != nil:
		return err
	case set.NFlag() > 0:
		return fmt.Errorf("a lab runs already (process %d), and its flags cannot be changed: "+
			"leave yours out, or end it first", s.PID)
	}
	// The shell has the terminal, so Ctrl-C is for what runs in it; a SIGTERM to forge ends it, and so does the
	// end of the go command.
	term, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	term, forget := withGoCommand(term)
	defer forget()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	cmd, err := interactive(term, s)
	if err != nil {
		return err
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGHUP) } // an interactive shell ignores SIGTERM
	cmd.WaitDelay = patience
	fmt.Fprintf(out, "kube-apiserver %s; kubectl, etcdctl and jq are on the PATH; exit ends the shell.\n", s.Version)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, errs
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting your shell: %w: set SHELL to one that is installed", err)
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
		return fmt.Errorf("waiting for your shell: %w", err)
	}
	return nil // how the reader's last command ended is not ours to judge
}

// interactive is the reader's shell, with a prompt that says where one is.
func interactive(ctx context.Context, s forge.State) (*exec.Cmd, error) {
	program := os.Getenv("SHELL")
	if program == "" {
		program = "/bin/sh"
	}
	prompt := "(forge " + s.Version + ") "
	env := append(os.Environ(), s.Environment(os.Getenv("PATH"))...)
	dir := filepath.Dir(s.Kubeconfig)
	switch filepath.Base(program) {
	case "bash":
		rc := filepath.Join(dir, "bashrc")
		text := "[ -r ~/.bashrc ] && . ~/.bashrc\n" + lines(s) + "unset PROMPT_COMMAND\nPS1='" + prompt + "\\w \\$ '\n"
		if err := os.WriteFile(rc, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("preparing the shell: %w", err)
		}
		cmd := exec.CommandContext(ctx, program, "--rcfile", rc, "-i")
		cmd.Env = env
		return cmd, nil
	case "zsh":
		text := "[ -r ~/.zshenv ] && . ~/.zshenv\n[ -r ~/.zshrc ] && . ~/.zshrc\nunset ZDOTDIR\n" +
			lines(s) + "PROMPT='" + prompt + "%~ %# '\n"
		if err := os.WriteFile(filepath.Join(dir, ".zshrc"), []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("preparing the shell: %w", err)
		}
		cmd := exec.CommandContext(ctx, program, "-i")
		cmd.Env = append(env, "ZDOTDIR="+dir)
		return cmd, nil
	}
	cmd := exec.CommandContext(ctx, program, "-i")
	cmd.Env = append(env, "PS1="+prompt+"$ ")
	return cmd, nil
}

// lines sets the lab's variables again, after the reader's own start-up file may have changed them.
func lines(s forge.State) string { return strings.Join(exports(s), "\n") + "\n" }
