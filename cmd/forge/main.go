// Command forge is the live lab of the book: a kube-apiserver over an etcd, up until Ctrl-C, for a reader
// who wants to stop reading and touch it.
//
//	go run ./cmd/forge                start it, and say how to use it
//	go run ./cmd/forge -document      the same, with etcd and the log where the first document has them
//	go run ./cmd/forge shell          a shell with kubectl, etcdctl and jq for it
//	go run ./cmd/forge wire           what reaches etcd, live
//	go run ./cmd/forge source         the way from an update to etcd's compare, in the upstream source
//	eval "$(go run ./cmd/forge -env)" set up the shell that you have
//
// Each of them explains itself with -h.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"modrev/helpers/forge"
)

func main() {
	os.Exit(status())
}

// status runs the command and returns the exit code.
func status() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second Ctrl-C does not wait for an orderly end; what is left is cleaned up all the same.
	defer context.AfterFunc(ctx, stop)()
	ctx, forget := withGoCommand(ctx)
	defer forget()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, new(usageError)): // package flag has said it, and how it should be
		return 2
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// usageError is a command line that is none.
type usageError struct{ error }

func run(ctx context.Context, args []string, out, errs io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "help":
			return start(ctx, []string{"-h"}, out, errs)
		case "wire":
			return follow(ctx, args[1:], out, errs)
		case "shell":
			return shell(ctx, args[1:], out, errs)
		case "source":
			return read(ctx, args[1:], out, errs)
		}
	}
	return start(ctx, args, out, errs)
}

// start runs a lab until ctx ends, or says how to use the one that runs.
func start(ctx context.Context, args []string, out, errs io.Writer) error {
	set := flags("forge", "forge [-document] [flags]", `
Starts the live lab, a kube-apiserver over an etcd, and stays up until Ctrl-C. Nothing is left of it then.
Its other commands are forge shell, forge wire and forge source; -h explains each.
`, errs)
	env := set.Bool("env", false, "print the lines that set up a shell for the lab that runs, for eval, and end")
	options := labFlags(set, errs)
	if err := parse(set, args); err != nil {
		return err
	}
	if *env {
		if set.NFlag() > 1 {
			return errors.New("forge -env only says how to use the lab that runs: give it no other flag")
		}
		s, err := forge.Running("")
		if err != nil {
			return err
		}
		for _, line := range exports(s) {
			fmt.Fprintln(out, line)
		}
		return nil
	}
	f, err := forge.Start(ctx, options())
	if err != nil {
		return err
	}
	welcome(out, f.State)
	<-ctx.Done()
	fmt.Fprintln(out, "\nEnding the lab.")
	return end(f)
}

// flags are those of a command, with a text that says what it is for.
func flags(name, usage, about string, errs io.Writer) *flag.FlagSet {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(errs)
	set.Usage = func() {
		fmt.Fprintf(errs, "usage: %s\n%s\n", usage, about)
		set.PrintDefaults()
	}
	return set
}

// parse reads a command line that has flags and nothing else.
func parse(set *flag.FlagSet, args []string) error {
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	if set.NArg() > 0 {
		return fmt.Errorf("%s does not know %q: see %s -h", set.Name(), set.Arg(0), set.Name())
	}
	return nil
}

// patience is how long an orderly end may take.
const patience = 15 * time.Second

func end(f *forge.Forge) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return f.Stop(ctx)
}

// labFlags declares the flags of a lab and returns what they say once they are parsed.
func labFlags(set *flag.FlagSet, errs io.Writer) func() forge.Options {
	etcd := set.String("etcd", "", "serve etcd on this loopback `address` too, such as 127.0.0.1:2379; "+
		"whoever can reach it\ncan write the store (default: on a unix socket that only you can open)")
	link := set.String("log", "", "have the log of kube-apiserver found at this `path` too")
	data := set.String("data", "", "keep etcd's data in this `folder` for the next start (default: nothing is kept)")
	version := set.String("version", "",
		"minor `version` of Kubernetes, such as 1.37 (default: the newest that is pinned)")
	tools := set.Bool("tools", true, "provide kubectl, etcdctl and jq, built when first needed")
	document := set.Bool("document", false,
		"have things where the first document has them: -etcd 127.0.0.1:2379 -log /tmp/apiserver.log")
	return func() forge.Options {
		o := forge.Options{
			EtcdAddress: *etcd, LogLink: *link, DataDir: *data, Version: *version, NoTools: !*tools, Progress: errs,
		}
		if *document {
			o.EtcdAddress, o.LogLink = "127.0.0.1:2379", "/tmp/apiserver.log"
		}
		if self, err := os.Executable(); err == nil {
			o.Command = self
		}
		return o
	}
}

// follow shows what reaches etcd until ctx or the lab ends.
func follow(ctx context.Context, args []string, out, errs io.Writer) error {
	set := flags("forge wire", "forge wire [flags]", `
Shows what reaches etcd, one line a request, as soon as etcd has answered it: while you type kubectl in another
terminal, or in the background. Ctrl-C ends the view, not the lab.
`, errs)
	var f forge.Filter
	set.StringVar(&f.Key, "key", "", "only requests whose key holds this `text`, such as configmaps/default")
	set.BoolVar(&f.Writes, "writes", false, "only what stores something")
	set.BoolVar(&f.All, "all", false, "also what kube-apiserver does for itself all the time")
	if err := parse(set, args); err != nil {
		return err
	}
	s, err := forge.Running(os.Getenv(forge.LabVariable))
	if err != nil {
		return err
	}
	err = forge.Follow(ctx, s, f, out, func() {
		fmt.Fprintln(errs, "What reaches etcd; Ctrl-C ends the view, not the lab.")
	})
	if err == nil && ctx.Err() == nil {
		fmt.Fprintln(errs, "The lab has ended.")
	}
	return err
}

// exports are the lines that eval takes.
func exports(s forge.State) []string {
	var out []string
	for _, v := range s.Environment("") {
		name, value, _ := strings.Cut(v, "=")
		quoted := forge.Quote(value)
		if name == "PATH" {
			quoted += `"$PATH"`
		}
		out = append(out, "export "+name+"="+quoted)
	}
	return out
}

func welcome(out io.Writer, s forge.State) {
	fmt.Fprintf(out, `The lab is up: kube-apiserver %s over one etcd. Ctrl-C ends it.

  kube-apiserver  %s
  its log         %s
  kubeconfig      %s   (context admin)
  etcd            %s

In another terminal, set up a shell for it by one of

  go run ./cmd/forge shell
  eval "$(go run ./cmd/forge -env)"

which is to say

`, s.Version, s.Server, s.Log, s.Kubeconfig, s.Etcd)
	for _, line := range exports(s) {
		fmt.Fprintln(out, "  "+line)
	}
	fmt.Fprint(out, `
and try

  kubectl --context=admin create configmap rv --from-literal=a=1
  etcdctl get /registry/configmaps/default/rv -w json | jq '.kvs[0] | {create_revision, mod_revision, version}'

To see what reaches etcd while you type:

  go run ./cmd/forge wire
`)
}
