package lab

import "modrev/helpers/controlplane"

// OneStoreHook says whether [Lab.WithEventsApart] keeps events where everything else is kept.
var OneStoreHook Hook[bool]

// WithEventsApart is a client of a kube-apiserver that keeps events in an etcd of their own, as large
// clusters do (--etcd-servers-overrides), and everything else where the others keep it.
func (l *Lab) WithEventsApart(who string) *Client {
	l.open()
	if OneStoreHook.in(l) {
		return l.As(who)
	}
	server, err := l.session.apart.start(l.ctx, l.session.control, controlplane.APIServerOptions{
		Apart: &controlplane.Apart{Resources: []string{"/events"}, EtcdServerOptions: l.session.wire.ServerOptions()},
	})
	l.Step(err, "starting a kube-apiserver that keeps events apart")
	return &Client{lab: l, who: who, kind: ConfigMap, config: server.Admin()}
}
