package lab

import (
	"context"
	"sync"

	"modrev/helpers/controlplane"
)

// second is the other kube-apiserver over the same etcd, started when a lesson first asks for it.
type second struct {
	once   sync.Once
	server *controlplane.APIServer
	err    error
}

func (s *second) start(ctx context.Context, control *controlplane.ControlPlane) (*controlplane.APIServer, error) {
	s.once.Do(func() {
		s.server, s.err = control.StartAPIServer(ctx, controlplane.APIServerOptions{})
	})
	return s.server, s.err
}

func (s *second) stop(ctx context.Context) error {
	if s.server == nil {
		return nil
	}
	return s.server.Stop(ctx)
}
