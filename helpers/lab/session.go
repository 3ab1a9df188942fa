package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"modrev/helpers/controlplane"
	"modrev/helpers/kubeapiserver"
	"modrev/helpers/wire"
)

// A Session is the control plane that the lessons of one test binary share, with the wire in place.
// The zero value starts it when a lesson first asks for it. It is safe for concurrent use.
type Session struct {
	mu      sync.Mutex
	started bool
	err     error
	control *controlplane.ControlPlane
	binary  kubeapiserver.Binary
	wire    wire.Wire

	numbers  atomic.Int64
	history  sync.RWMutex // see KeepHistory
	second   further      // see AtSecondAPIServer
	apart    further      // see WithEventsApart
	upstream upstream
	future   future
	unseen   sync.Mutex // see RedefineUnseen
	hush     hush       // see Lab.Reach
	vault    vault      // see Lab.Encrypted
}

// shared is the one control plane of the test binary.
var shared Session

// Shared returns the control plane that all lessons of this test binary share. It is not started by this
// call, but by the first lesson that needs it.
func Shared() *Session { return &shared }

// startLimit is how long kube-apiserver may take to accept its first write.
const startLimit = 60 * time.Second

// ensure starts the control plane if it is not running yet. The first call may have to build
// kube-apiserver, which takes minutes; ctx limits that. An error is remembered: a control plane that did
// not start once is not tried again by every lesson of the run.
func (p *Session) ensure(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started || p.err != nil {
		return p.err
	}
	p.err = p.start(ctx)
	p.started = p.err == nil
	return p.err
}

func (p *Session) start(ctx context.Context) error {
	binary, err := kubeapiserver.Find(ctx, kubeapiserver.Options{Progress: os.Stderr})
	if err != nil {
		return err
	}
	p.binary = binary
	p.wire.Origin = origin
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errors.New("kube-apiserver took too long to accept a write"))
	defer cancel()
	p.control, err = controlplane.Start(ctx, controlplane.Options{
		APIServerPath:     binary.Path,
		EtcdServerOptions: p.wire.ServerOptions(),
	})
	if err == nil {
		p.future.begin(p, p.control)
	}
	return err
}

// origin names the kube-apiserver that sent a request; the lab's own tools are not recorded.
func origin(ctx context.Context) string {
	if peer := controlplane.Peer(ctx); peer != "tools" {
		return peer
	}
	return ""
}

// StartError is why the control plane did not start, when it was asked to; nil if it did or was not asked.
func (p *Session) StartError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Wire is the wire of the control plane.
func (p *Session) Wire() *wire.Wire { return &p.wire }

// controlPlane is the control plane itself; nil before it was started.
func (p *Session) controlPlane() *controlplane.ControlPlane {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.control
}

// Binary is the kube-apiserver that runs; the zero value before the control plane was started.
func (p *Session) Binary() kubeapiserver.Binary {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.binary
}

// stopLimit is how long an orderly end may take before what is left is killed.
const stopLimit = 20 * time.Second

// Stop ends what was started: kube-apiserver first, then etcd. It may be called when nothing was started.
func (p *Session) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control == nil {
		return nil
	}
	p.future.stop()
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	err := errors.Join(p.vault.stop(), p.second.stop(ctx), p.apart.stop(ctx), p.control.Stop(ctx))
	p.control, p.started = nil, false
	if err != nil {
		return fmt.Errorf("stopping the control session: %w", err)
	}
	return nil
}

// owner makes a name that no other lesson of the run has: the id of the claim and a number.
func (p *Session) owner(id string) string {
	return fmt.Sprintf("%s-%d", id, p.numbers.Add(1))
}
