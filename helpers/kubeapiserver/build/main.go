// Command build builds kube-apiserver without a time limit, so that the tests find it.
//
//	go run ./helpers/kubeapiserver/build [-version 1.37]
//
// It prints the path of the executable, and its progress to the standard error. If
// KUBEBUILDER_ASSETS is set, it builds nothing and prints what the tests would use.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"modrev/helpers/kubeapiserver"
)

func main() {
	version := flag.String("version", "", "minor version of Kubernetes, such as 1.37 (default the newest that is pinned)")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "build takes no arguments, and got %q: give a version as -version 1.37\n", flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bin, err := kubeapiserver.Find(ctx, kubeapiserver.Options{Progress: os.Stderr, Version: *version})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(bin.Path)
}
