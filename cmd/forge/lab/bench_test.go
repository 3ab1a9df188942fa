package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"modrev/helpers/controlplane"
	"modrev/helpers/kubeapiserver"
)

// BenchmarkToAWorkingKubectl compares, within one run, how long it takes from a start of forge until kubectl works,
// with the control plane's own start, which ends when kube-apiserver accepts a write. Each start has a process of its
// own, and all take turns. The metrics are medians.
//
//	go-run/start      go run ./cmd/forge, until the lab is up: from then on kubectl works
//	+kubectl/start    the same, until a kubectl that is started then has created an object and ended
//	lab/start         the lab without the go command and without forge, until it is up
//	kubectl/start     that kubectl alone
//	start-ms          the control plane's own start
func BenchmarkToAWorkingKubectl(b *testing.B) {
	prepareGoRun(b)
	binary, err := kubeapiserver.Find(b.Context(), kubeapiserver.Options{})
	require.NoError(b, err)
	lab := filepath.Join(b.TempDir(), "forge")
	out, err := exec.CommandContext(b.Context(), "go", "build", "-ldflags=-s -w", "-o", lab, ".").CombinedOutput()
	require.NoError(b, err, string(out))
	b.Setenv("TMPDIR", temporary(b))

	var own, labUp, runUp, runDone, kubectl []time.Duration
	for b.Loop() {
		own = append(own, toOwnStart(b, binary.Path))
		up, _ := toKubectl(b, lab)
		labUp = append(labUp, up)
		up, done := toKubectl(b, "go", goRun...)
		runUp, runDone, kubectl = append(runUp, up), append(runDone, done), append(kubectl, done-up)
	}
	b.ReportMetric(0, "ns/op") // the whole loop says nothing
	start := median(own).Seconds()
	b.ReportMetric(start*1000, "start-ms")
	for unit, all := range map[string][]time.Duration{
		"go-run/start": runUp, "+kubectl/start": runDone, "lab/start": labUp, "kubectl/start": kubectl,
	} {
		b.ReportMetric(median(all).Seconds()/start, unit)
	}
}

// ownStart is a process that starts a control plane, prints how long that took, and ends it.
func ownStart() {
	ctx := context.Background()
	began := time.Now()
	c, err := controlplane.Start(ctx, controlplane.Options{APIServerPath: os.Args[1]})
	took := time.Since(began)
	if err == nil {
		err = c.Stop(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(took)
}

// toOwnStart runs such a process.
func toOwnStart(b *testing.B, kubeAPIServer string) time.Duration {
	b.Helper()
	out, err := exec.CommandContext(b.Context(), "control-plane", kubeAPIServer).Output()
	require.NoError(b, err)
	took, err := time.ParseDuration(strings.TrimSpace(string(out)))
	require.NoError(b, err)
	return took
}

// toKubectl runs a command that starts a lab, and kubectl as soon as the lab is up, and ends it. It returns when the
// lab was up, and when kubectl was done.
func toKubectl(b *testing.B, name string, args ...string) (up, done time.Duration) {
	b.Helper()
	began := time.Now()
	p, err := launch(os.TempDir(), nil, name, args...)
	require.NoError(b, err)
	defer p.kill()
	state, err := p.up()
	up = time.Since(began)
	require.NoError(b, err)
	kubectl := exec.CommandContext(b.Context(), filepath.Join(state.Tools, "kubectl"), "--context=admin", "create", "configmap", "rv", "--from-literal=a=1")
	kubectl.Env = append(os.Environ(), state.Environment(os.Getenv("PATH"))...)
	out, err := kubectl.CombinedOutput()
	done = time.Since(began)
	require.NoError(b, err, string(out))
	require.NoError(b, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT))
	_, err = p.ends()
	require.NoError(b, err)
	require.NoError(b, left(state))
	return up, done
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
