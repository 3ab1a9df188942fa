package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"modrev/helpers/controlplane"
	"modrev/helpers/kubeapiserver"
)

// BenchmarkToAWorkingKubectl compares, within one run, how long it takes from a start of forge until kubectl works,
// with the control plane's own start, which ends when kube-apiserver accepts a write. The metrics are medians; all
// starts take turns.
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
		own = append(own, ownStart(b, binary.Path))
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

// ownStart starts a control plane in this process, and ends it.
func ownStart(b *testing.B, kubeAPIServer string) time.Duration {
	b.Helper()
	began := time.Now()
	c, err := controlplane.Start(b.Context(), controlplane.Options{APIServerPath: kubeAPIServer})
	took := time.Since(began)
	require.NoError(b, err)
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	require.NoError(b, c.Stop(ctx))
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
