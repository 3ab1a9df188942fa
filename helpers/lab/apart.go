package lab

import (
	"context"
	"sync"

	"modrev/helpers/controlplane"
)

// apart is a kube-apiserver over the same etcd that keeps the events of the core group in another one. It is
// started when a lesson first asks for it.
type apart struct {
	once   sync.Once
	server *controlplane.APIServer
	err    error
}

func (a *apart) start(ctx context.Context, p *Plane) (*controlplane.APIServer, error) {
	a.once.Do(func() {
		a.server, a.err = p.control.StartAPIServer(ctx, controlplane.APIServerOptions{
			Apart: &controlplane.Apart{Resources: []string{"/events"}, EtcdServerOptions: p.wire.ServerOptions()},
		})
	})
	return a.server, a.err
}

func (a *apart) stop(ctx context.Context) error {
	if a.server == nil {
		return nil
	}
	return a.server.Stop(ctx)
}

// CoreEvent is the Event of the core group, about something that does not matter.
var CoreEvent = Kind{Kind: "Event", Version: "v1", Resource: "events", Base: map[string]any{
	"reason": "Shown", "message": "for a lesson", "type": "Normal", "involvedObject": map[string]any{},
}}

// WithEventsApart is a client of a kube-apiserver that keeps events in an etcd of their own, as large
// clusters do (--etcd-servers-overrides), and everything else where the others keep it.
func (l *Lab) WithEventsApart(who string) *Client {
	l.open()
	if l.oneStore {
		return l.As(who)
	}
	server, err := l.plane.apart.start(l.ctx, l.plane)
	l.Step(err, "starting a kube-apiserver that keeps events apart")
	return &Client{lab: l, who: who, kind: ConfigMap, config: server.Admin()}
}

// KeepAllInOneStore makes WithEventsApart answer with the kube-apiserver that keeps everything in one etcd.
func (l *Lab) KeepAllInOneStore() { l.oneStore = true }
