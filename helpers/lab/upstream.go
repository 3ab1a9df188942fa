package lab

import (
	"context"
	"sync"

	"modrev/helpers/source"
)

// upstream is the source of the kube-apiserver that runs, found once.
type upstream struct {
	once sync.Once
	tree *source.Tree
	err  error
}

// Source is the upstream source of exactly the kube-apiserver that runs (of the pinned one when none was
// started yet).
func (p *Plane) Source(ctx context.Context) (*source.Tree, error) {
	p.upstream.once.Do(func() {
		p.upstream.tree, p.upstream.err = source.Pinned(ctx, p.binary.Version)
	})
	return p.upstream.tree, p.upstream.err
}
