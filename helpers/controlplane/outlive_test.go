package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// TestTheFolderStaysUnderAnEtcdThatOutlivesItsLimit has a request wait inside etcd, which waits for its
// requests before it ends.
func TestTheFolderStaysUnderAnEtcdThatOutlivesItsLimit(t *testing.T) {
	c, arrived, release := heldControlPlane(t)
	<-arrived

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := c.Stop(ctx)
	if err == nil || !strings.Contains(err.Error(), "waiting for etcd to end: context deadline exceeded") {
		t.Errorf("Stop says %v, want that etcd has not ended", err)
	}
	for _, file := range []string{"lock", "etcd/member/wal", "etcd/member/snap/db"} {
		if _, err := os.Stat(filepath.Join(c.Dir(), file)); err != nil {
			t.Errorf("a file was taken away under the etcd that still works on it: %v", err)
		}
	}
	sweep(filepath.Dir(c.Dir()))
	if _, err := os.Stat(c.Dir()); err != nil {
		t.Errorf("the next start would sweep the folder of an etcd that still works there: %v", err)
	}

	// From here on the process ends: etcd, and then the guard, which finds the folder and removes it.
	release()
	select {
	case <-c.etcd.etcd.Server.StopNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd did not end when nothing held it any more")
	}
	if err := c.guard.end(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the guard has left the folder: %v", err)
	}
}

// heldControlPlane is a control plane without a kube-apiserver, with one request in its etcd that does not
// end before release.
func heldControlPlane(t *testing.T) (c *ControlPlane, arrived <-chan struct{}, release func()) {
	t.Helper()
	here, free := make(chan struct{}), make(chan struct{})
	arrive := sync.OnceFunc(func() { close(here) })
	release = sync.OnceFunc(func() { close(free) })
	path, err := newPath()
	if err != nil {
		t.Fatal(err)
	}
	c = &ControlPlane{}
	c.life, c.end = context.WithCancelCause(context.Background())
	t.Cleanup(func() { release(); _ = c.Stop(context.Background()) })
	if c.guard, err = startGuard(path); err != nil {
		t.Fatal(err)
	}
	if c.folder, err = newFolder(path); err != nil {
		t.Fatal(err)
	}
	c.etcd, err = startMember(t.Context(), memberOptions{
		folder: path, sockets: []string{tools}, data: filepath.Join(path, "etcd"), outlived: &c.outlived,
		server: []grpc.ServerOption{grpc.ChainUnaryInterceptor(
			func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				arrive()
				<-free
				return next(ctx, q)
			})},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.etcd.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.EtcdEndpoint()}, Context: t.Context(),
		Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	var asked sync.WaitGroup
	asked.Go(func() { _, _ = client.Get(t.Context(), "held") }) // etcd ends before it can answer
	t.Cleanup(func() { release(); _ = client.Close(); asked.Wait() })
	return c, here, release
}

// TestAFatalErrorOfAnEndingEtcdLeavesTheProcess would not come to its end if it did not hold.
func TestAFatalErrorOfAnEndingEtcdLeavesTheProcess(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "etcd.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	stderr := os.Stderr
	os.Stderr = file // what it prints there is meant for people
	var ending atomic.Bool
	log := etcdLogger(file, &ending)
	os.Stderr = stderr

	ending.Store(true)
	wentOn := false
	var part sync.WaitGroup
	part.Go(func() {
		log.Fatal("failed to purge wal file", zap.Error(os.ErrNotExist))
		wentOn = true
	})
	part.Wait()
	if wentOn {
		t.Error("the part of etcd with the fatal error went on")
	}
	content, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(content), "failed to purge wal file"); n != 2 {
		t.Errorf("the error was written %d times, want it in the log and on standard error:\n%s", n, content)
	}
}
