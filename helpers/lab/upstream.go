package lab

import (
	"context"
	"fmt"
	"sync"

	"modrev/helpers/kubeapiserver"
	"modrev/helpers/source"
)

// upstream is the upstream source that was looked up last.
type upstream struct {
	mu      sync.Mutex
	version string
	tree    *source.Tree
	err     error
}

// Source is the upstream source of exactly the kube-apiserver that runs, or of the pinned one when none
// was started.
func (p *Plane) Source(ctx context.Context) (*source.Tree, error) {
	version := p.Binary().Version
	p.upstream.mu.Lock()
	defer p.upstream.mu.Unlock()
	if (p.upstream.tree != nil || p.upstream.err != nil) && p.upstream.version == version {
		return p.upstream.tree, p.upstream.err
	}
	p.upstream.version = version
	if version != "" {
		p.upstream.tree, p.upstream.err = source.For(ctx, version)
		return p.upstream.tree, p.upstream.err
	}
	pinned, err := kubeapiserver.Pinned()
	if err != nil {
		return nil, fmt.Errorf("finding which Kubernetes is pinned: %w", err)
	}
	p.upstream.tree, p.upstream.err = source.Pinned(ctx, pinned[0])
	return p.upstream.tree, p.upstream.err
}
