package controlplane_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"modrev/helpers/controlplane"
	"modrev/helpers/kubeapiserver"
)

var kills = flag.Int("kills", 5, "how often TestAKillAtAnyMomentLeavesNothing kills a process")

// limit is how long anything may take that these tests wait for.
const limit = 2 * time.Minute

// plane is the control plane that the tests share which only look at it. TestMain ends it.
type plane struct {
	once    sync.Once
	control *controlplane.ControlPlane
	seen    requests
	err     error
}

var shared plane

func (p *plane) get(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	p.once.Do(func() {
		p.control, p.err = controlplane.Start(context.Background(), controlplane.Options{
			APIServerPath:     binary(t),
			EtcdServerOptions: p.seen.options(),
		})
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.control
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.control != nil {
		if err := shared.control.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// binary is the kube-apiserver that the tests run. A victim is told by the test that made it.
func binary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(victimBinary); path != "" {
		return path
	}
	b, err := kubeapiserver.Find(t.Context(), kubeapiserver.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	return b.Path
}

// within is a context for one wait.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually looks every 20 ms whether the condition holds, which says what is still missing if it does
// not.
func eventually(t testing.TB, d time.Duration, condition string, missing func() string) {
	t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		what := missing()
		if what == "" {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("after %v it is still not so that %s: %s", d, condition, what)
		}
	}
}

// shortTemp is a temporary folder whose path is short enough for the sockets in it. It must be empty at
// the end.
func shortTemp(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "cp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
