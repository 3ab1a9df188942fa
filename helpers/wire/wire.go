// Package wire sees, holds and rewrites the requests that kube-apiserver sends to etcd, for the keys
// of one lesson.
//
// A [Wire] sits inside the embedded etcd as a pair of gRPC interceptors, so what it records is what
// etcd was asked, typed, and not a guess from a log. A lesson sees it through a [Tap], which is given
// only the requests whose keys the lesson owns; lessons therefore do not disturb each other even when
// all of them run at once.
//
// The HTTP side of a lesson's clients goes through the same Tap (see [Tap.Transport]), so that one
// tape tells in order what the client said and what the apiserver then asked etcd.
package wire

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Wire is the place through which every request from kube-apiserver to etcd passes.
// The zero value is ready to use. It is safe for concurrent use.
type Wire struct {
	// Origin names the kube-apiserver behind a request from the context of its gRPC call, "" when it
	// is not to be recorded. When nil, every request is recorded as coming from "apiserver".
	Origin func(context.Context) string
	// Live, when set, is given every request that reaches etcd once it has been answered, whoever
	// owns its key. It must not block.
	Live func(Request)

	mu       sync.RWMutex
	taps     map[string]*Tap
	common   map[string]*Tap // see commonOf
	censusMu sync.Mutex
	census   map[string]int64
	multiKey []string

	tamperedMu sync.Mutex
	tampered   map[string]bool // by key
}

// ServerOptions returns the gRPC options that put the wire between kube-apiserver and etcd; they go
// into embed.Config.GRPCAdditionalServerOptions.
func (w *Wire) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(w.unary),
		grpc.ChainStreamInterceptor(w.stream),
	}
}

// Tap opens the view of one owner onto the wire. An owner is a lower-case word, a hyphen and a number,
// such as "rv1-12"; it owns every key that has a path segment equal to its name, or one that begins with
// its name and a hyphen or a dot: its namespace, objects named after it, API groups named after it. (The
// definition of a custom resource in such a group is not among them.) Close the Tap when the owner is
// done.
func (w *Wire) Tap(owner string) *Tap {
	t := &Tap{wire: w, owner: owner}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.taps == nil {
		w.taps = make(map[string]*Tap)
	}
	w.taps[owner] = t
	return t
}

// Census counts the requests of the whole run by their shape, such as
// "Txn if mod_revision(key) == M then Put else Get". Its size depends on how many shapes there are, not
// on how long the run is.
func (w *Wire) Census() map[string]int64 {
	w.censusMu.Lock()
	defer w.censusMu.Unlock()
	return maps.Clone(w.census)
}

// MultiKeyTxns lists the transactions of kube-apiserver, in the whole run, that would have written more than
// one key (at most the first ten). None is known to exist.
func (w *Wire) MultiKeyTxns() []string {
	w.censusMu.Lock()
	defer w.censusMu.Unlock()
	return append([]string(nil), w.multiKey...)
}

// Tampered says whether a rule has dropped or altered an event about a key: what kube-apiserver's caches hold
// under it may then be something else than what etcd holds, also after the Tap was closed.
func (w *Wire) Tampered(key string) bool {
	w.tamperedMu.Lock()
	defer w.tamperedMu.Unlock()
	return w.tampered[key]
}

func (w *Wire) tamper(key string) {
	w.tamperedMu.Lock()
	defer w.tamperedMu.Unlock()
	if w.tampered == nil {
		w.tampered = make(map[string]bool)
	}
	w.tampered[key] = true
}

func (w *Wire) count(r *Request) {
	shape := r.Shape()
	w.censusMu.Lock()
	defer w.censusMu.Unlock()
	if w.census == nil {
		w.census = make(map[string]int64)
	}
	w.census[shape]++
	if r.Method == Txn && r.Writes() > 1 && len(w.multiKey) < 10 {
		w.multiKey = append(w.multiKey, r.String())
	}
}

// ownerOf returns the name of the owner that a path segment carries, or "".
func ownerOf(segment string) string {
	word, rest, ok := strings.Cut(segment, "-")
	if !ok || word == "" || strings.Contains(word, ".") {
		return ""
	}
	n := 0
	for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	if n == 0 || (n < len(rest) && rest[n] != '-' && rest[n] != '.') {
		return ""
	}
	return segment[:len(word)+1+n]
}

// tapOf returns the Tap that owns a key, or nil.
func (w *Wire) tapOf(key string) *Tap {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if len(w.taps) == 0 {
		return nil
	}
	for segment := range strings.SplitSeq(key, "/") {
		if owner := ownerOf(segment); owner != "" {
			if t := w.taps[owner]; t != nil {
				return t
			}
		}
	}
	return nil
}

// commonOf returns the Tap of the watches of one kube-apiserver whose keys belong to no owner.
func (w *Wire) commonOf(from string) *Tap {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.common == nil {
		w.common = make(map[string]*Tap)
	}
	if w.common[from] == nil {
		w.common[from] = &Tap{wire: w}
	}
	return w.common[from]
}

// FreezeCommon stops the events of a watch that one kube-apiserver keeps on a key which belongs to no owner, for all
// lessons: who does so releases it soon, and does not do it twice at a time.
func (w *Wire) FreezeCommon(from, key string) *Frozen { return w.commonOf(from).Freeze(key) }

func (w *Wire) origin(ctx context.Context) string {
	if w.Origin == nil {
		return "apiserver"
	}
	return w.Origin(ctx)
}

func (w *Wire) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	from := w.origin(ctx)
	if from == "" {
		return handler(ctx, req)
	}
	r := describe(req)
	if r == nil {
		return handler(ctx, req)
	}
	r.From = from
	w.count(r)
	t := w.tapOf(r.Key)
	if t == nil {
		resp, err := handler(ctx, req)
		w.live(r, resp, err)
		return resp, err
	}
	return t.pass(ctx, r, req.(proto.Message), func(ctx context.Context, m proto.Message) (proto.Message, error) {
		resp, err := handler(ctx, m)
		if err != nil {
			return nil, err
		}
		return resp.(proto.Message), nil
	})
}

func (w *Wire) live(r *Request, resp any, err error) {
	if w.Live == nil {
		return
	}
	answered(r, resp, err)
	w.Live(*r)
}

// describe turns a gRPC message into a Request; nil for what the book does not look at (leases of etcd,
// membership, maintenance).
func describe(req any) *Request {
	switch q := req.(type) {
	case *pb.TxnRequest:
		r := &Request{Method: Txn}
		for _, c := range q.Compare {
			r.Compare = append(r.Compare, compareOf(c))
		}
		r.Then, r.Else = opsOf(q.Success), opsOf(q.Failure)
		switch {
		case len(r.Compare) > 0:
			r.Key = r.Compare[0].Key
		case len(r.Then) > 0:
			r.Key = r.Then[0].Key
		case len(r.Else) > 0:
			r.Key = r.Else[0].Key
		}
		return r
	case *pb.RangeRequest:
		return rangeOf(Range, q)
	case *pb.PutRequest:
		return &Request{Method: Put, Key: string(q.Key)}
	case *pb.DeleteRangeRequest:
		return &Request{Method: DeleteRange, Key: string(q.Key), End: string(q.RangeEnd)}
	case *pb.CompactionRequest:
		return &Request{Method: Compact, Key: "compact_rev_key", Revision: q.Revision}
	}
	return nil
}

func rangeOf(m Method, q *pb.RangeRequest) *Request {
	return &Request{
		Method: m, Key: string(q.Key), End: string(q.RangeEnd),
		Limit: q.Limit, Revision: q.Revision, CountOnly: q.CountOnly, Serializable: q.Serializable,
	}
}

func compareOf(c *pb.Compare) Compare {
	out := Compare{Key: string(c.Key)}
	switch c.Result {
	case pb.Compare_EQUAL:
		out.Operator = "=="
	case pb.Compare_GREATER:
		out.Operator = ">"
	case pb.Compare_LESS:
		out.Operator = "<"
	default:
		out.Operator = "!="
	}
	switch c.Target {
	case pb.Compare_MOD:
		out.Field, out.Value = "mod_revision", c.GetModRevision()
	case pb.Compare_CREATE:
		out.Field, out.Value = "create_revision", c.GetCreateRevision()
	case pb.Compare_VERSION:
		out.Field, out.Value = "version", c.GetVersion()
	case pb.Compare_LEASE:
		out.Field, out.Value = "lease", c.GetLease()
	default:
		out.Field = "value"
	}
	return out
}

func opsOf(ops []*pb.RequestOp) []Op {
	var out []Op
	for _, op := range ops {
		switch q := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			out = append(out, Op{Kind: "Put", Key: string(q.RequestPut.Key)})
		case *pb.RequestOp_RequestRange:
			out = append(out, Op{Kind: "Get", Key: string(q.RequestRange.Key)})
		case *pb.RequestOp_RequestDeleteRange:
			out = append(out, Op{Kind: "Delete", Key: string(q.RequestDeleteRange.Key)})
		case *pb.RequestOp_RequestTxn:
			out = append(out, Op{Kind: "Txn"})
		default:
			out = append(out, Op{Kind: fmt.Sprintf("%T", q)})
		}
	}
	return out
}
