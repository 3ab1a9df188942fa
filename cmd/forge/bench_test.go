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

// BenchmarkToAWorkingKubectl compares, within one run, how long it takes from a start of forge until kubectl has
// created an object, with the control plane's own start, which ends when kube-apiserver accepts a write. The
// metrics are medians; all three starts take turns.
//
//	forge/start   the built forge, and then kubectl
//	go-run/start  go run ./cmd/forge, and then kubectl: the go command first makes sure that nothing has changed
//	start-ms      the control plane's own start
func BenchmarkToAWorkingKubectl(b *testing.B) {
	prepare(b)
	binary, err := kubeapiserver.Find(b.Context(), kubeapiserver.Options{})
	require.NoError(b, err)
	forge := filepath.Join(b.TempDir(), "forge")
	out, err := exec.CommandContext(b.Context(), "go", "build", "-o", forge, ".").CombinedOutput()
	require.NoError(b, err, string(out))
	b.Setenv("TMPDIR", temporary(b))
	toKubectl(b, "go", "run", ".") // builds what is not built yet, and keeps it

	var own, built, run []time.Duration
	for b.Loop() {
		own = append(own, ownStart(b, binary.Path))
		built = append(built, toKubectl(b, forge))
		run = append(run, toKubectl(b, "go", "run", "."))
	}
	b.ReportMetric(0, "ns/op") // the whole loop says nothing
	b.ReportMetric(median(own).Seconds()*1000, "start-ms")
	b.ReportMetric(median(built).Seconds()/median(own).Seconds(), "forge/start")
	b.ReportMetric(median(run).Seconds()/median(own).Seconds(), "go-run/start")
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

// toKubectl runs a command that starts a lab, and kubectl as soon as the lab is up, and ends it.
func toKubectl(b *testing.B, name string, args ...string) time.Duration {
	b.Helper()
	began := time.Now()
	p, err := launch(os.TempDir(), nil, name, args...)
	require.NoError(b, err)
	defer p.kill()
	state, err := p.up()
	require.NoError(b, err)
	kubectl := exec.CommandContext(b.Context(), filepath.Join(state.Tools, "kubectl"), "--context=admin", "create", "configmap", "rv", "--from-literal=a=1")
	kubectl.Env = append(os.Environ(), state.Environment(os.Getenv("PATH"))...)
	out, err := kubectl.CombinedOutput()
	took := time.Since(began)
	require.NoError(b, err, string(out))
	require.NoError(b, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT))
	_, err = p.ends()
	require.NoError(b, err)
	require.NoError(b, left(state))
	return took
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
