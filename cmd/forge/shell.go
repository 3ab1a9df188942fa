package main

import (
	"context"
	"errors"
	"flag"
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
	set := flag.NewFlagSet("forge shell", flag.ContinueOnError)
	set.SetOutput(errs)
	options := labFlags(set, errs)
	if err := set.Parse(args); err != nil {
		return err
	}
	s, err := forge.Running()
	if errors.Is(err, forge.ErrNoneRuns) {
		var f *forge.Forge
		if f, err = forge.Start(ctx, options()); err != nil {
			return err
		}
		s = f.State
		defer func() {
			if err := end(f); err != nil {
				fmt.Fprintln(errs, err)
			}
		}()
	}
	if err != nil {
		return err
	}
	// The shell has the terminal, so Ctrl-C is for what runs in it; a SIGTERM to forge ends it.
	term, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cmd, err := interactive(term, s)
	if err != nil {
		return err
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGHUP) }
	fmt.Fprintf(out, "kube-apiserver %s; kubectl, etcdctl and jq are on the PATH; exit ends the shell.\n", s.Version)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, errs
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // how the reader's last command ended is not ours to judge
	}
	return err
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
		text := "[ -r ~/.bashrc ] && . ~/.bashrc\n" + lines(s) + "PS1='" + prompt + "\\w \\$ '\n"
		if err := os.WriteFile(rc, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("preparing the shell: %w", err)
		}
		cmd := exec.CommandContext(ctx, program, "--rcfile", rc, "-i")
		cmd.Env = env
		return cmd, nil
	case "zsh":
		text := "[ -r ~/.zshrc ] && . ~/.zshrc\n" + lines(s) + "PROMPT='" + prompt + "%~ %# '\n"
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
