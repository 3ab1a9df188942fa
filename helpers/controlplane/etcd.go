package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// The sockets of etcd. Each kube-apiserver has one of its own, so that an interceptor can tell whose
// request it sees.
const (
	first  = "apiserver"
	second = "second"
	third  = "third"
	tools  = "tools"
)

const (
	socketSuffix = ".sock"
	apartSuffix  = ".apart" // of the folder of a second etcd
)

// Peer says who sent the request that a gRPC interceptor of etcd is given: "apiserver" for the first
// kube-apiserver, "second" and "third" for further ones, "tools" for everything else.
func Peer(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return tools
	}
	addr, ok := p.LocalAddr.(*net.UnixAddr)
	if !ok {
		return tools
	}
	return strings.TrimSuffix(filepath.Base(addr.Name), socketSuffix)
}

// What the member of an etcd is called, and where its peers would find it: no peer will ever call.
const memberName = "modrev"

var memberURL = url.URL{Scheme: "unix", Host: "nobody"}

// member is an etcd of one member inside this process.
type member struct {
	options memberOptions
	folder  string
	etcd    *embed.Etcd
	client  *clientv3.Client
	log     *os.File

	mu      sync.Mutex
	servers []*grpc.Server // one for each client URL

	ending   atomic.Bool
	outlived *atomic.Bool
}

type memberOptions struct {
	folder  string   // where its sockets and its log are
	sockets []string // their names, without the suffix
	urls    []string // further client URLs
	data    string   // where its data is
	server  []grpc.ServerOption

	outlived *atomic.Bool // set when it has not ended in time
}

// startMember starts an etcd. When it returns, etcd accepts connections, and it answers as soon as it is
// ready.
func startMember(ctx context.Context, o memberOptions) (_ *member, err error) {
	m := &member{options: o, folder: o.folder, outlived: o.outlived}
	defer func() {
		if err != nil {
			err = fmt.Errorf("starting etcd: %w", errors.Join(err, m.stop(ctx)))
		}
	}()
	m.log, err = os.OpenFile(filepath.Join(o.folder, "etcd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Name = memberName
	cfg.Dir = o.data
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcdLogger(m.log, &m.ending))
	// A member of one has nobody to wait for, and its data need not survive the machine.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true
	cfg.EnableGRPCGateway = false
	cfg.GRPCAdditionalServerOptions = o.server

	// It does not listen for peers; the address is only its name in the cluster.
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{memberURL}
	cfg.ServiceRegister = m.serves
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ListenClientUrls = nil
	for _, name := range o.sockets {
		cfg.ListenClientUrls = append(cfg.ListenClientUrls, url.URL{Scheme: "unix", Path: m.socket(name)})
	}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls[:1:1]
	for _, s := range o.urls {
		u, err := url.Parse(s)
		if err != nil {
			return nil, fmt.Errorf("the client URL %q cannot be read: %w", s, err)
		}
		cfg.ListenClientUrls = append(cfg.ListenClientUrls, *u)
	}
	if m.etcd, err = startEtcd(cfg); err != nil {
		return nil, err
	}
	m.client = v3client.New(m.etcd.Server)
	return m, nil
}

// serves keeps a server that etcd has made for a client URL.
func (m *member) serves(s *grpc.Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.servers = append(m.servers, s)
}

// ready waits until etcd has elected itself.
func (m *member) ready(ctx context.Context) error {
	if m == nil {
		return nil
	}
	var err error
	select {
	case <-m.etcd.Server.ReadyNotify():
		return nil
	case err = <-m.etcd.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return fmt.Errorf("waiting until etcd is ready: %w", err)
}

// startEtcd makes an error of the panics by which etcd answers a disk or data that it cannot use.
func startEtcd(cfg *embed.Config) (_ *embed.Etcd, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it gave up: %v", r)
		}
	}()
	return embed.StartEtcd(cfg)
}

func (m *member) socket(name string) string {
	return filepath.Join(m.folder, name+socketSuffix)
}

func (m *member) endpoint(name string) string {
	return (&url.URL{Scheme: "unix", Path: m.socket(name)}).String()
}

// stop ends etcd. Its clients must have ended before: it waits for them.
func (m *member) stop(ctx context.Context) error {
	if m == nil {
		return nil
	}
	if m.client != nil {
		_ = m.client.Close() // it holds no connection; etcd's end is what counts
	}
	if m.etcd != nil {
		m.ending.Store(true)
		ctx, cancel := context.WithTimeout(ctx, stopLimit)
		defer cancel()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			if !isClosed(m.etcd.Server.ReadyNotify()) {
				m.etcd.Server.Stop() // or Close waits for ever until it is ready
			}
			m.etcd.Close()
		}()
		select {
		case <-closed:
		case <-ctx.Done():
			m.outlived.Store(true)
			return fmt.Errorf("waiting for etcd to end: %w", context.Cause(ctx))
		}
	}
	if m.log != nil {
		return m.log.Close()
	}
	return nil
}

// stopAtOnce ends etcd although its clients go on: it does not wait for what they have asked.
func (m *member) stopAtOnce(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- m.stop(ctx) }()
	m.mu.Lock()
	servers := slices.Clone(m.servers)
	m.mu.Unlock()
	for _, s := range servers {
		s.Stop()
	}
	return <-ended
}

// etcdLogger keeps warnings and errors in a file. An error for which etcd ends the process is written to
// standard error too: there is no other place left where anybody would look.
//
// While etcd is ending, such an error takes only the part of etcd away that has it: whoever asked for the
// end waits for it no longer than he wants, and has still to say what he has found.
func etcdLogger(file *os.File, ending *atomic.Bool) *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewTee(
		zapcore.NewCore(encoder, zapcore.AddSync(file), zapcore.WarnLevel),
		zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), zapcore.FatalLevel),
	), zap.WithFatalHook(afterFatal{ending}))
}

// afterFatal decides what becomes of the process after an error of etcd's that is fatal to it.
type afterFatal struct{ ending *atomic.Bool }

func (a afterFatal) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	action := zapcore.WriteThenFatal
	if a.ending.Load() {
		action = zapcore.WriteThenGoexit
	}
	action.OnWrite(entry, fields)
}
