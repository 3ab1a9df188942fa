package lab

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"modrev/helpers/controlplane"
)

// FutureRead is what came of a read "not older than" a revision that does not exist yet.
type FutureRead struct {
	ResourceVersion string // that was asked for
	Err             error  // the answer
}

// future is one such read, sent when the control plane starts: the server takes three seconds over it, and
// by the time a lesson asks they have passed.
type future struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when first is set
	first  FutureRead
	taken  atomic.Bool
}

// begin sends the read as soon as the server has all its caches: before, it would be refused at once.
func (f *future) begin(p *Session, control *controlplane.ControlPlane) {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel, f.done = cancel, make(chan struct{})
	go func() {
		defer close(f.done)
		if err := control.Healthy(ctx); err != nil {
			f.first = FutureRead{Err: err}
			return
		}
		f.first = readFromTheFuture(ctx, p, control)
	}()
}

// stop ends the read if it is still under way.
func (f *future) stop() {
	if f.cancel == nil {
		return
	}
	f.cancel()
	<-f.done
}

func readFromTheFuture(ctx context.Context, p *Session, control *controlplane.ControlPlane) FutureRead {
	l := New(ctx, p, "future")
	defer l.Close()
	resp, err := control.Etcd().Get(ctx, "/")
	if err != nil {
		return FutureRead{Err: fmt.Errorf("asking etcd for its revision: %w", err)}
	}
	f := FutureRead{ResourceVersion: strconv.FormatInt(resp.Header.Revision+1_000_000, 10)}
	client := &Client{lab: l, kind: Namespace, config: control.Admin()}
	l.opened = true // the namespace of this lab is of no use
	f.Err = client.getOnce("kube-system", "resourceVersion="+f.ResourceVersion)
	return f
}

// ReadFromTheFuture reads an object "not older than" a revision that does not exist yet, and returns what
// came of it. The first such read of a run was sent when the control plane started.
func (l *Lab) ReadFromTheFuture() FutureRead {
	l.open()
	if l.session.future.taken.Swap(true) {
		return readFromTheFuture(l.ctx, l.session, l.session.control)
	}
	return l.FirstReadFromTheFuture()
}

// FirstReadFromTheFuture returns what came of the read that was sent when the control plane started: for a
// lesson that needs such an answer among others, and not the three seconds that it takes.
func (l *Lab) FirstReadFromTheFuture() FutureRead {
	l.open()
	f := &l.session.future
	select {
	case <-f.done:
		return f.first
	case <-l.ctx.Done():
		l.Stuck("waiting for the answer to the read from the future", context.Cause(l.ctx))
		return FutureRead{}
	}
}
