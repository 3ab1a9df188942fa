package lab

import (
	"context"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// hush keeps the writes of kube-apiservers waiting, except those to the keys of one owner.
type hush struct {
	writes sync.RWMutex // read by a write that is under way

	mu    sync.Mutex
	owner string
}

// shut returns when no write is under way, and keeps new ones waiting until the returned function is called.
func (h *hush) shut(owner string) (open func()) {
	h.writes.Lock()
	h.except(owner)
	return func() {
		h.except("")
		h.writes.Unlock()
	}
}

func (h *hush) except(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owner = owner
}

func (h *hush) excepts(txn *pb.TxnRequest) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owner != "" && len(txn.Compare) > 0 && strings.Contains(string(txn.Compare[0].Key), "/"+h.owner+"/")
}

// pass is an interceptor of etcd. kube-apiserver writes by transactions alone.
func (h *hush) pass(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if txn, ok := q.(*pb.TxnRequest); ok && !h.excepts(txn) {
		h.writes.RLock()
		defer h.writes.RUnlock()
	}
	return next(ctx, q)
}
