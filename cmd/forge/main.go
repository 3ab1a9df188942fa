// Command forge is the live lab of the book: a kube-apiserver over an etcd, up until Ctrl-C, for a reader
// who wants to stop reading and touch it.
//
//	go run ./cmd/forge                start it, and say how to use it
//	go run ./cmd/forge -document      the same, with etcd and the log where the first document has them
//	go run ./cmd/forge shell          a shell with kubectl, etcdctl and jq for it
//	go run ./cmd/forge wire           what reaches etcd, live; -h shows its filters
//	eval "$(go run ./cmd/forge -env)" set up the shell that you have
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, err)
		}
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, errs io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "wire":
			return follow(ctx, args[1:], out, errs)
		case "shell":
			return shell(ctx, args[1:], out, errs)
		}
	}
	set := flag.NewFlagSet("forge", flag.ContinueOnError)
	set.SetOutput(errs)
	env := set.Bool("env", false, "print the shell lines that set up a shell for the lab that runs, and end")
	options := labFlags(set, errs)
	set.Usage = func() {
		fmt.Fprintln(errs, "forge starts the live lab and stays up until Ctrl-C. forge shell and forge wire are commands of their own.")
		set.PrintDefaults()
	}
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("forge does not know %q: it has the commands wire and shell, and the flags that forge -h shows", set.Arg(0))
	}
	if *env {
		s, err := forge.Running()
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

// patience is how long an orderly end may take.
const patience = 15 * time.Second

func end(f *forge.Forge) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return f.Stop(ctx)
}

// labFlags declares the flags of a lab and returns what they say once they are parsed.
func labFlags(set *flag.FlagSet, errs io.Writer) func() forge.Options {
	etcd := set.String("etcd", "", "serve etcd without authentication on this loopback `address` too, such as 127.0.0.1:2379")
	link := set.String("log", "", "have the log of kube-apiserver found at this `path` too")
	data := set.String("data", "", "keep etcd's data in this `folder` for the next start")
	version := set.String("version", "", "minor `version` of Kubernetes, such as 1.37 (default the newest that is pinned)")
	document := set.Bool("document", false, "as the first document has it: -etcd 127.0.0.1:2379 -log /tmp/apiserver.log")
	return func() forge.Options {
		o := forge.Options{EtcdAddress: *etcd, LogLink: *link, DataDir: *data, Version: *version, Progress: errs}
		if *document {
			o.EtcdAddress, o.LogLink = "127.0.0.1:2379", "/tmp/apiserver.log"
		}
		return o
	}
}

func follow(ctx context.Context, args []string, out, errs io.Writer) error {
	set := flag.NewFlagSet("forge wire", flag.ContinueOnError)
	set.SetOutput(errs)
	var f forge.Filter
	set.StringVar(&f.Key, "key", "", "only requests whose key holds this `text`, such as configmaps/default")
	set.BoolVar(&f.Writes, "writes", false, "only what stores something")
	set.BoolVar(&f.All, "all", false, "also what kube-apiserver does for itself all the time")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("forge wire takes no arguments, and got %q: filter with -key", set.Args())
	}
	s, err := forge.Running()
	if err != nil {
		return err
	}
	return forge.Follow(ctx, s, f, out, func() {
		fmt.Fprintln(errs, "What reaches etcd; Ctrl-C ends the view, not the lab.")
	})
}

// exports are the lines that eval takes.
func exports(s forge.State) []string {
	var out []string
	for _, v := range s.Environment("$PATH") {
		name, value, _ := strings.Cut(v, "=")
		if name == "PATH" {
			out = append(out, `export PATH="`+value+`"`)
			continue
		}
		out = append(out, "export "+name+"='"+value+"'")
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
