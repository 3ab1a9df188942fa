package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"modrev/helpers/forge"
	"modrev/helpers/kubeapiserver"
	"modrev/helpers/source"
)

// read answers what the first document asks its reader to find out from the source.
func read(ctx context.Context, args []string, out, errs io.Writer) error {
	set := flags("forge source", "forge source [-version 1.37]", `
Prints the lines of the source that kube-apiserver is built from by which an update is compared in etcd: the revision
that GuaranteedUpdate hands on, the transaction that it becomes, and what comes after a failed compare. It is the source
of the lab that runs, or of the newest version that is pinned.
`, errs)
	version := set.String("version", "",
		"`version` of Kubernetes, such as 1.37 or v1.34.4 (one that is not pinned is downloaded)")
	if err := parse(set, args); err != nil {
		return err
	}
	tree, err := sourceOf(ctx, *version)
	if err != nil {
		return err
	}
	update, err := tree.UpdateTransaction(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, update)
	return nil
}

// sourceOf is the source of a version, or of the lab that runs, or of the newest version that is pinned.
func sourceOf(ctx context.Context, version string) (*source.Tree, error) {
	if version == "" {
		if s, err := forge.Running(os.Getenv(forge.LabVariable)); err == nil {
			version = s.Version
		}
	}
	if version == "" {
		all, err := kubeapiserver.Pinned()
		if err != nil {
			return nil, err
		}
		version = all[0]
	}
	return source.For(ctx, version)
}
