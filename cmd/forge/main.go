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
//
// The lab itself is the command in the folder lab. It is made of a thousand packages, and the go command
// needs longer to see that none of them has changed than the lab needs to start. So this command, which is
// made of few, has it built when the source of the repository has changed, says how far that is, and then
// becomes it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"modrev/helpers/gocommand"
	"modrev/helpers/kubeapiserver/pinned"
)

func main() {
	if err := become(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// become replaces this process by the lab. It returns only if it could not.
func become(args []string) error {
	if err := gocommand.Remember(); err != nil {
		return fmt.Errorf("noting which go command runs this: %w", err)
	}
	root, err := pinned.Folder(".")
	if err != nil {
		return err
	}
	lab := pinned.Tool{
		Module:  root,
		Package: "modrev/cmd/forge/lab",
		Name:    "forge",
		LDFlags: "-s -w",
		Sources: []string{"cmd/forge/lab", "helpers"},
		Cost:    cost,
		Space:   "1.5 GB",
	}
	path, ok, err := pinned.Built(lab, pinned.Options{})
	if err == nil && !ok {
		err = build(lab)
	}
	if err != nil {
		return err
	}
	if err := syscall.Exec(path, append([]string{"forge"}, args...), os.Environ()); err != nil {
		return fmt.Errorf("starting %s: %w: remove that file, and it is built anew", path, err)
	}
	return nil
}

// cost is the processor time of a first build of the lab: 8 min 23 s on two slow processors, measured with an empty
// build cache, which it filled with 1.2 GB.
const cost = 8 * time.Minute

// build builds the lab, unless it is told to end before that is done.
func build(lab pinned.Tool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, forget := gocommand.Context(ctx)
	defer forget()
	_, err := pinned.Build(ctx, lab, pinned.Options{Progress: os.Stderr})
	if err == nil && ctx.Err() != nil {
		return fmt.Errorf("the live lab was ended before it was up: %w", context.Cause(ctx))
	}
	return err
}
