package controlplane

import (
	"context"
	"errors"
	"sync/atomic"
)

// NewData makes the data of an etcd in a folder that exists and is empty: of one that has been ready once and has
// ended. [Options.DataDir] takes it.
func NewData(ctx context.Context, dir string) error {
	m, err := startMember(ctx, memberOptions{
		folder: dir, sockets: []string{tools}, data: dir, outlived: new(atomic.Bool),
	})
	if err != nil {
		return err
	}
	return errors.Join(m.ready(ctx), m.stop(context.WithoutCancel(ctx)))
}
