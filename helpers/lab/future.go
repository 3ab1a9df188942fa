package lab

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"modrev/helpers/controlplane"
)

// FutureRead is what came of a list "not older than" a revision that does not exist yet.
type FutureRead struct {
	ResourceVersion string        // that was asked for
	Err             error         // the answer
	Took            time.Duration // from the request to the answer
}

// future is one such read, sent when the control plane starts: the server takes three seconds over it, and
// by the time a lesson asks they have passed.
type future struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when first is set
	first  FutureRead
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
	begun := time.Now()
	_, f.Err = client.TryGetOnce("", "resourceVersion="+f.ResourceVersion)
	f.Took = time.Since(begun)
	return f
}

// FirstReadFromTheFuture returns what came of a list "not older than" a revision that does not exist yet. It was sent
// when the control plane started, so that no lesson waits for the three seconds that the server takes over it.
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
