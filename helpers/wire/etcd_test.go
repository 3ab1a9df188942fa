package wire_test

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"modrev/helpers/wire"
)

// startEtcd starts an etcd with the wire in it, and a client like kube-apiserver's.
func startEtcd(t *testing.T, w *wire.Wire) *kubernetes.Client {
	dir, err := os.MkdirTemp("", "wire") // a socket's path must be short, which that of t.TempDir is not
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	socket := url.URL{Scheme: "unix", Path: filepath.Join(dir, "s")}
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "data")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.TickMs, cfg.ElectionMs, cfg.UnsafeNoFsync, cfg.EnableGRPCGateway = 10, 100, true, false
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = nil, []url.URL{{Scheme: "unix", Host: "nobody"}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	cfg.GRPCAdditionalServerOptions = w.ServerOptions()
	e, err := embed.StartEtcd(cfg)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	client, err := kubernetes.New(clientv3.Config{Endpoints: []string{socket.String()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

func TestTheWireInARealEtcd(t *testing.T) {
	w := &wire.Wire{}
	client := startEtcd(t, w)
	tap := w.Tap("cf3-1")
	defer tap.Close()
	const prefix = "/registry/cf3-1.modrev.example/shelves/"
	const key = prefix + "cf3-1/shelf"
	ctx := t.Context()

	made, err := client.Kubernetes.OptimisticPut(ctx, key, []byte("red"), 0, kubernetes.PutOptions{})
	require.NoError(t, err)
	require.True(t, made.Succeeded)

	held := tap.Hold(wire.UpdateOf(key))
	slow := make(chan kubernetes.PutResponse)
	go func() {
		resp, err := client.Kubernetes.OptimisticPut(ctx, key, []byte("green"), made.Revision,
			kubernetes.PutOptions{GetOnFailure: true})
		assert.NoError(t, err)
		slow <- resp
	}()
	require.NoError(t, held.Arrived(ctx))
	fast, err := client.Kubernetes.OptimisticPut(ctx, key, []byte("blue"), made.Revision,
		kubernetes.PutOptions{GetOnFailure: true})
	require.NoError(t, err)
	require.True(t, fast.Succeeded)
	held.Release()
	late := <-slow
	assert.False(t, late.Succeeded)
	assert.Equal(t, "blue", string(late.KV.Value))

	// A frozen watch and another one share a stream, as the watches of kube-apiserver may.
	frozen := tap.Freeze(prefix)
	mine := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	other := client.Watch(ctx, "/registry/others/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	require.True(t, (<-mine).Created)
	require.True(t, (<-other).Created)
	assert.Equal(t, 1, tap.Watched(prefix))
	put, err := client.Put(ctx, key, "white")
	require.NoError(t, err)
	require.NoError(t, frozen.Holds(ctx, put.Header.Revision))

	require.NoError(t, client.RequestProgress(ctx))
	told := <-other
	assert.True(t, told.IsProgressNotify())
	assert.GreaterOrEqual(t, told.Header.Revision, put.Header.Revision)
	frozen.Release()
	first := <-mine
	require.Len(t, first.Events, 1, "not the progress, which would have said that there was no event before it")
	assert.Equal(t, put.Header.Revision, first.Events[0].Kv.ModRevision)
	require.NoError(t, client.RequestProgress(ctx))
	told = <-mine
	assert.True(t, told.IsProgressNotify())

	assert.Equal(t, "3 Txn, 1 Put, 1 Watch", tap.Tape().Since(0).Summary())
	assert.EqualValues(t, 2, w.Census()["Txn if mod_revision(key) == M then Put else Get"])
}
