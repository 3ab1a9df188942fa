package wire

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// store is as much of an etcd as the tests need: keys with revisions, and transactions with one compare.
type store struct {
	wire *Wire

	mu       sync.Mutex
	revision int64
	keys     map[string]*mvccpb.KeyValue
	asked    []proto.Message
}

func newStore() *store {
	return &store{wire: &Wire{}, revision: 1, keys: make(map[string]*mvccpb.KeyValue)}
}

// ask sends a request through the wire.
func (s *store) ask(ctx context.Context, req proto.Message) (proto.Message, error) {
	resp, err := s.wire.unary(ctx, req, &grpc.UnaryServerInfo{}, s.handle)
	if err != nil {
		return nil, err
	}
	return resp.(proto.Message), nil
}

// txn sends a transaction through the wire, which must not fail.
func (s *store) txn(t *testing.T, q *pb.TxnRequest) *pb.TxnResponse {
	t.Helper()
	resp, err := s.ask(t.Context(), q)
	require.NoError(t, err)
	return resp.(*pb.TxnResponse)
}

// seen are the requests that came through to the store.
func (s *store) seen() []proto.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]proto.Message(nil), s.asked...)
}

func (s *store) handle(_ context.Context, req any) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, proto.Clone(req.(proto.Message)))
	switch q := req.(type) {
	case *pb.RangeRequest:
		return s.read(q), nil
	case *pb.TxnRequest:
		resp := &pb.TxnResponse{Succeeded: true}
		for _, c := range q.Compare {
			kv := s.keys[string(c.Key)]
			if kv == nil {
				kv = &mvccpb.KeyValue{}
			}
			resp.Succeeded = resp.Succeeded && kv.ModRevision == c.GetModRevision()
		}
		ops := q.Failure
		if resp.Succeeded {
			ops = q.Success
		}
		for _, op := range ops {
			switch {
			case op.GetRequestPut() != nil:
				s.put(op.GetRequestPut())
				resp.Responses = append(resp.Responses, &pb.ResponseOp{
					Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}},
				})
			case op.GetRequestRange() != nil:
				resp.Responses = append(resp.Responses, &pb.ResponseOp{
					Response: &pb.ResponseOp_ResponseRange{ResponseRange: s.read(op.GetRequestRange())},
				})
			}
		}
		resp.Header = &pb.ResponseHeader{Revision: s.revision}
		return resp, nil
	case *pb.PutRequest:
		s.put(q)
		return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: s.revision}}, nil
	case *pb.DeleteRangeRequest:
		return &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{Revision: s.revision}}, nil
	case *pb.CompactionRequest:
		return &pb.CompactionResponse{Header: &pb.ResponseHeader{Revision: s.revision}}, nil
	case *pb.LeaseGrantRequest:
		return &pb.LeaseGrantResponse{}, nil
	}
	return nil, fmt.Errorf("the store of the tests knows no %T", req)
}

func (s *store) put(q *pb.PutRequest) {
	s.revision++
	kv := &mvccpb.KeyValue{Key: q.Key, CreateRevision: s.revision, ModRevision: s.revision, Version: 1, Value: q.Value}
	if old := s.keys[string(q.Key)]; old != nil {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
	}
	s.keys[string(q.Key)] = kv
}

func (s *store) read(q *pb.RangeRequest) *pb.RangeResponse {
	resp := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: s.revision}}
	if kv := s.keys[string(q.Key)]; kv != nil {
		resp.Kvs, resp.Count = []*mvccpb.KeyValue{kv}, 1
	}
	return resp
}

// key is the key of an object as kube-apiserver makes it.
func key(namespace, name string) string { return "/registry/configmaps/" + namespace + "/" + name }

func putOp(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key),
		Value: []byte("x")}}}
}

func getOp(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}}
}

func deleteOp(key string) *pb.RequestOp {
	q := &pb.DeleteRangeRequest{Key: []byte(key)}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: q}}
}

func ifModRevision(key string, revision int64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_ModRevision{ModRevision: revision},
	}
}

// create is the transaction of a create.
func create(key string) *pb.TxnRequest {
	return &pb.TxnRequest{Compare: []*pb.Compare{ifModRevision(key, 0)}, Success: []*pb.RequestOp{putOp(key)}}
}

// update is the transaction of an update.
func update(key string, revision int64) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{ifModRevision(key, revision)},
		Success: []*pb.RequestOp{putOp(key)}, Failure: []*pb.RequestOp{getOp(key)},
	}
}

func get(key string) *pb.RangeRequest { return &pb.RangeRequest{Key: []byte(key)} }

// pipe is a stream between a kube-apiserver and etcd: what the one sends comes from in, and what the other
// answers goes to out.
type pipe struct {
	grpc.ServerStream
	ctx context.Context
	in  chan proto.Message
	out chan proto.Message

	sent func(proto.Message) // called with what was sent, if set
}

func newPipe(t *testing.T) *pipe {
	return &pipe{ctx: t.Context(), in: make(chan proto.Message, 16), out: make(chan proto.Message, 64)}
}

func (p *pipe) Context() context.Context { return p.ctx }

func (p *pipe) RecvMsg(m any) error {
	select {
	case next, ok := <-p.in:
		if !ok {
			return io.EOF
		}
		proto.Merge(m.(proto.Message), next)
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *pipe) SendMsg(m any) error {
	p.out <- proto.Clone(m.(proto.Message))
	if p.sent != nil {
		p.sent(m.(proto.Message))
	}
	return nil
}

func newKeyValue() *mvccpb.KeyValue { return &mvccpb.KeyValue{Key: []byte("k"), ModRevision: 1} }
