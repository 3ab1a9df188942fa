package lab

import (
	"context"
	"sync"

	"modrev/helpers/controlplane"
)

// further is a kube-apiserver beside the first, over the same etcd. It is started when a lesson first asks for it.
type further struct {
	once   sync.Once
	server *controlplane.APIServer
	err    error
}

func (f *further) start(ctx context.Context, control *controlplane.ControlPlane,
	o controlplane.APIServerOptions) (*controlplane.APIServer, error) {
	f.once.Do(func() { f.server, f.err = control.StartAPIServer(ctx, o) })
	return f.server, f.err
}

func (f *further) stop(ctx context.Context) error {
	if f.server == nil {
		return nil
	}
	return f.server.Stop(ctx)
}
