package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// EtcdEvent is one change as etcd itself tells it.
type EtcdEvent struct {
	Type        string // PUT or DELETE
	Key         string
	ModRevision int64
}

// EtcdWatch is a watch of etcd itself, behind kube-apiserver's back.
type EtcdWatch struct {
	lab    *Lab
	prefix string
	events clientv3.WatchChan
	ready  []EtcdEvent
}

// WatchEtcd starts a watch of etcd on a prefix, for the changes after a revision.
func (l *Lab) WatchEtcd(prefix string, after int64) *EtcdWatch {
	ctx, cancel := context.WithCancel(l.ctx)
	l.Cleanup(cancel)
	return &EtcdWatch{lab: l, prefix: prefix, events: l.Etcd().Watch(ctx, prefix,
		clientv3.WithPrefix(), clientv3.WithRev(after+1))}
}

// Until returns the changes up to and including the one at the given revision, which must come.
func (w *EtcdWatch) Until(revision int64) []EtcdEvent {
	var all []EtcdEvent
	for {
		for i, ev := range w.ready {
			if ev.ModRevision > revision {
				w.ready = w.ready[i:]
				return all
			}
			all = append(all, ev)
		}
		w.ready = nil
		if n := len(all); n > 0 && all[n-1].ModRevision == revision {
			return all
		}
		select {
		case resp, ok := <-w.events:
			if !ok || resp.Err() != nil {
				why := cmp.Or(resp.Err(), context.Cause(w.lab.ctx), errors.New("its channel was closed"))
				w.lab.Stuck("watching etcd for changes below "+w.prefix, fmt.Errorf("the watch ended: %w", why))
			}
			for _, ev := range resp.Events {
				w.ready = append(w.ready, EtcdEvent{Type: ev.Type.String(), Key: string(ev.Kv.Key), ModRevision: ev.Kv.ModRevision})
			}
		case <-w.lab.ctx.Done():
			w.lab.Stuck(fmt.Sprintf("waiting for revision %d below %s", revision, w.prefix), context.Cause(w.lab.ctx))
		}
	}
}
