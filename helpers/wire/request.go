package wire

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"

	"modrev/helpers/record"
)

// What the wire records are values of package record, under the names that etcd's API has for them.
type (
	// Request is one request from a kube-apiserver to etcd, and what etcd answered.
	Request = record.Request
	// Requests is a run of requests in the order in which they reached etcd.
	Requests = record.Requests
	// Method is the kind of a request to etcd.
	Method = record.Method
	// Compare is one condition of a transaction.
	Compare = record.Compare
	// Op is one operation in a branch of a transaction.
	Op = record.Op
	// KeyValue is what etcd said about one key.
	KeyValue = record.KeyValue
	// Call is one HTTP request of a lesson's client and what came back.
	Call = record.Call
)

// The methods of etcd's API that the wire tells apart.
const (
	Txn         = record.Txn
	Range       = record.Range
	RangeStream = record.RangeStream
	Put         = record.Put
	DeleteRange = record.DeleteRange
	Compact     = record.Compact
	Watch       = record.Watch
	Event       = record.Event
)

// ShortKey is a key as the book prints it: without the leading /registry/.
func ShortKey(key string) string { return record.ShortKey(key) }

const keptKeyValues = 8

// answered fills in what etcd answered.
func answered(r *Request, resp any, err error) {
	r.Answered = true
	if err != nil {
		r.Err = status.Convert(err).Message()
		return
	}
	switch a := resp.(type) {
	case *pb.TxnResponse:
		r.Succeeded, r.StoreRevision = a.Succeeded, a.GetHeader().GetRevision()
		for _, op := range a.Responses {
			if got := op.GetResponseRange(); got != nil {
				found(r, got)
			}
		}
	case *pb.RangeResponse:
		r.StoreRevision = a.GetHeader().GetRevision()
		found(r, a)
	case *pb.PutResponse:
		r.StoreRevision = a.GetHeader().GetRevision()
	case *pb.DeleteRangeResponse:
		r.StoreRevision = a.GetHeader().GetRevision()
	case *pb.CompactionResponse:
		r.StoreRevision = a.GetHeader().GetRevision()
	}
}

func found(r *Request, a *pb.RangeResponse) {
	r.FoundInAll += a.Count
	for _, kv := range a.Kvs {
		if len(r.Found) == keptKeyValues {
			return
		}
		r.Found = append(r.Found, KeyValue{
			Key: string(kv.Key), CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version,
		})
	}
}
