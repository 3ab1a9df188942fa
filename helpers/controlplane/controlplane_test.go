package controlplane_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"modrev/helpers/controlplane"
)

func TestStart(t *testing.T) {
	path := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-apiserver")
	t0 := time.Now()
	c, err := controlplane.Start(context.Background(), controlplane.Options{APIServerPath: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("write", time.Since(t0))
	if err := c.Healthy(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Log("healthy", time.Since(t0))
	b, _ := os.ReadFile(c.LogFile())
	os.WriteFile("/tmp/w/kas.log", b, 0o600)
	b, _ = os.ReadFile(c.Dir() + "/etcd.log")
	os.WriteFile("/tmp/w/etcd.log", b, 0o600)
	t0 = time.Now()
	s, err := c.StartAPIServer(context.Background(), controlplane.APIServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("second", time.Since(t0))
	t0 = time.Now()
	t.Log(s.Stop(context.Background()), time.Since(t0))
	t0 = time.Now()
	if err := c.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Log("stop", time.Since(t0))
}
