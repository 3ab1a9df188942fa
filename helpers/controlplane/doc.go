// Package controlplane starts an etcd inside this process and a real kube-apiserver over it through
// envtest, and ends both whatever happens.
//
// # What runs
//
// The etcd is a member of one, in this process, reached through unix sockets in a folder that only this
// user can open. Every request that kube-apiserver sends to it passes through the interceptors in
// [Options]. kube-apiserver is a child process that listens on one TLS port of 127.0.0.1. Nothing else
// listens anywhere, unless [Options] asks for it. No network is needed.
//
// # How it ends
//
// [ControlPlane.Stop] ends kube-apiserver first and etcd last. When this process dies without calling it,
// by SIGKILL, a panic, os.Exit, the -timeout of go test or Ctrl-C, etcd dies with it, and the guard, a
// small shell that was started before anything else, notices that its standard input has ended, kills
// kube-apiserver and removes the folder. Should the guard be killed too, the next [Start] on this machine
// sweeps what was left. The package installs no signal handler: it needs none, and a handler would
// change what Ctrl-C does to the tests around it.
package controlplane
