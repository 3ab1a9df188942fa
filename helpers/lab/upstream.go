package lab

import (
	"context"
	"fmt"
	"os"
	"sync"

	"modrev/helpers/kubeapiserver"
	"modrev/helpers/source"
)

// upstream is the source that was looked up last.
type upstream struct {
	mu      sync.Mutex
	looked  bool
	version string // "" for the pinned one
	tree    *source.Tree
	err     error
}

// Source is the upstream source of exactly the kube-apiserver that runs, or, when none was started, of the
// one that would be: the prebuilt one in KUBEBUILDER_ASSETS, else the pinned one.
func (p *Session) Source(ctx context.Context) (*source.Tree, error) {
	running := p.Binary().Version
	u := &p.upstream
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.looked && (running == "" || running == u.version || u.tree != nil && running == u.tree.Version()) {
		return u.tree, u.err
	}
	u.version = running
	if running == "" && os.Getenv(kubeapiserver.AssetsVariable) != "" {
		// Quick: there is nothing to build. Where no kube-apiserver is, starting it will say so.
		if prebuilt, err := kubeapiserver.Find(ctx, kubeapiserver.Options{}); err == nil {
			u.version = prebuilt.Version
		}
	}
	if u.version != "" {
		u.tree, u.err = source.For(ctx, u.version)
	} else {
		u.tree, u.err = PinnedSource(ctx)
	}
	u.looked = ctx.Err() == nil // what was cut off is tried again
	return u.tree, u.err
}

// PinnedSource is the upstream source of the newest kube-apiserver that is pinned.
func PinnedSource(ctx context.Context) (*source.Tree, error) {
	pinned, err := kubeapiserver.Pinned()
	if err != nil {
		return nil, fmt.Errorf("finding which Kubernetes is pinned: %w", err)
	}
	return source.For(ctx, pinned[0])
}
