package wire

import (
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"
)

// Method is the kind of a request to etcd, by etcd's own name for it.
type Method string

// The requests of etcd's API that kube-apiserver sends and the wire records. Event is not a request:
// it is one change that etcd sent on a watch.
const (
	Txn         Method = "Txn"
	Range       Method = "Range"
	RangeStream Method = "RangeStream"
	Put         Method = "Put"
	DeleteRange Method = "DeleteRange"
	Compact     Method = "Compact"
	Watch       Method = "Watch"
	Event       Method = "Event"
)

// Compare is one condition of a transaction: Field(Key) Operator Value, such as
// mod_revision(/registry/configmaps/ns/n) == 217.
type Compare struct {
	Key, Field, Operator string
	Value                int64
}

// Op is one operation in a branch of a transaction. Kind is Put, Get or Delete.
type Op struct {
	Kind, Key string
}

// KeyValue is what etcd said about one key: its three revision fields, and not its value.
// For an Event that deletes, Deleted is true.
type KeyValue struct {
	Key                                  string
	CreateRevision, ModRevision, Version int64
	Deleted                              bool
}

// Request is one request from a kube-apiserver to etcd, and what etcd answered. The bytes of the values
// are not kept.
type Request struct {
	Method Method
	From   string // which kube-apiserver sent it
	Note   string // what the wire did to it: "held", or what a false world altered
	Raced  bool   // something else was made to happen while it waited at etcd's door

	Key, End   string // the key, and for a range its end
	Limit      int64  // of a Range
	Revision   int64  // of a Range or Watch: the revision asked for, 0 for the newest
	CountOnly  bool   // of a Range
	Compare    []Compare
	Then, Else []Op

	Answered      bool
	Err           error      // etcd refused, or the wire did
	Succeeded     bool       // of a Txn: the compare held, so the then branch ran
	StoreRevision int64      // revision of the store in the header of the answer
	Found         []KeyValue // what a Range, an else branch or an Event returned, at most eight
	FoundInAll    int64      // how many there were
}

const keptKeyValues = 8

// Wrote says whether the request changed what is stored: a transaction whose then branch ran and wrote, a put, or a
// delete.
func (r Request) Wrote() bool {
	if !r.Answered || r.Err != nil {
		return false
	}
	switch r.Method {
	case Put, DeleteRange:
		return true
	case Txn:
		return r.Succeeded && r.writes() > 0
	}
	return false
}

// writes counts the keys that the then branch writes.
func (r *Request) writes() int {
	n := 0
	for _, op := range r.Then {
		if op.Kind != "Get" {
			n++
		}
	}
	return n
}

func (r *Request) answer(resp any, err error) {
	r.Answered, r.Err = true, err
	if err != nil {
		return
	}
	switch a := resp.(type) {
	case *pb.TxnResponse:
		r.Succeeded, r.StoreRevision = a.Succeeded, a.GetHeader().GetRevision()
		for _, op := range a.Responses {
			if got := op.GetResponseRange(); got != nil {
				r.found(got)
			}
		}
	case *pb.RangeResponse:
		r.StoreRevision = a.GetHeader().GetRevision()
		r.found(a)
	case *pb.PutResponse:
		r.StoreRevision = a.GetHeader().GetRevision()
	case *pb.DeleteRangeResponse:
		r.StoreRevision = a.GetHeader().GetRevision()
	case *pb.CompactionResponse:
		r.StoreRevision = a.GetHeader().GetRevision()
	}
}

func (r *Request) found(a *pb.RangeResponse) {
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

// Shape is the request without its names and numbers: requests of one shape ask the same question.
func (r *Request) Shape() string {
	switch r.Method {
	case Txn:
		var b strings.Builder
		b.WriteString("Txn")
		for i, c := range r.Compare {
			b.WriteString(map[bool]string{true: " if ", false: " and "}[i == 0])
			value := "M"
			if c.Value == 0 {
				value = "0"
			}
			fmt.Fprintf(&b, "%s(key) %s %s", c.Field, c.Operator, value)
		}
		b.WriteString(branch(" then ", r.Then) + branch(" else ", r.Else))
		return b.String()
	case Range, RangeStream:
		switch {
		case r.CountOnly:
			return string(r.Method) + " of a prefix, count only"
		case r.End != "" && r.Limit == 1:
			return string(r.Method) + " of a prefix, limit 1"
		case r.End != "":
			return string(r.Method) + " of a prefix"
		}
		return string(r.Method) + " of a key"
	}
	return string(r.Method)
}

func branch(word string, ops []Op) string {
	if len(ops) == 0 {
		return ""
	}
	kinds := make([]string, len(ops))
	for i, op := range ops {
		kinds[i] = op.Kind
	}
	return word + strings.Join(kinds, " and ")
}

// ShortKey is a key as the book prints it: without the leading /registry/.
func ShortKey(key string) string {
	return strings.TrimPrefix(key, "/registry/")
}

// String is the request and its answer as one line that a person reads.
func (r Request) String() string {
	s := r.Question()
	if answer := r.Outcome(); answer != "" {
		s += " → " + answer
	}
	if r.Note != "" {
		s += "  [" + r.Note + "]"
	}
	return s
}

// Question is the request without its answer.
func (r Request) Question() string {
	var b strings.Builder
	switch r.Method {
	case Txn:
		b.WriteString("Txn")
		if len(r.Compare) == 0 {
			b.WriteString(" without a compare, on " + ShortKey(r.Key))
		}
		for i, c := range r.Compare {
			b.WriteString(map[bool]string{true: " if ", false: " and "}[i == 0])
			fmt.Fprintf(&b, "%s(%s) %s %d", c.Field, ShortKey(c.Key), c.Operator, c.Value)
		}
		b.WriteString(branch(" then ", r.Then) + branch(" else ", r.Else))
	case Range, RangeStream:
		fmt.Fprintf(&b, "%s %s", r.Method, ShortKey(r.Key))
		if r.End != "" {
			b.WriteString("*")
		}
		if r.Limit > 0 && r.End != "" {
			fmt.Fprintf(&b, " limit %d", r.Limit)
		}
		if r.CountOnly {
			b.WriteString(" count only")
		}
		if r.Revision > 0 {
			fmt.Fprintf(&b, " at revision %d", r.Revision)
		}
	case Compact:
		fmt.Fprintf(&b, "Compact up to revision %d", r.Revision)
	case Watch:
		fmt.Fprintf(&b, "Watch %s from revision %d", ShortKey(r.Key), r.Revision)
	case Event:
		kind := "PUT"
		if len(r.Found) > 0 && r.Found[0].Deleted {
			kind = "DELETE"
		}
		fmt.Fprintf(&b, "event %s %s at mod_revision %d", kind, ShortKey(r.Key), r.Revision)
	default:
		fmt.Fprintf(&b, "%s %s", r.Method, ShortKey(r.Key))
	}
	return b.String()
}

// Outcome is what etcd answered, "" for what has no answer.
func (r Request) Outcome() string {
	switch {
	case r.Method == Watch || r.Method == Event:
		return ""
	case !r.Answered:
		return "(no answer yet)"
	case r.Err != nil:
		return "refused: " + status.Convert(r.Err).Message()
	case r.Method == Txn && r.Succeeded:
		return fmt.Sprintf("succeeded, revision %d", r.StoreRevision)
	case r.Method == Txn && len(r.Else) == 0:
		return "failed"
	case r.Method == Txn && len(r.Found) == 0:
		return "failed, the else branch found nothing"
	case r.Method == Txn:
		return fmt.Sprintf("failed, the else branch returned mod_revision %d", r.Found[0].ModRevision)
	case r.Method == Range && r.CountOnly:
		return fmt.Sprintf("%d keys", r.FoundInAll)
	case r.Method == Range && r.End == "" && len(r.Found) == 1:
		return fmt.Sprintf("mod_revision %d", r.Found[0].ModRevision)
	case r.Method == Range && r.End == "":
		return fmt.Sprintf("nothing, store revision %d", r.StoreRevision)
	case r.Method == Range || r.Method == RangeStream:
		return fmt.Sprintf("%d of %d keys, store revision %d", len(r.Found), r.FoundInAll, r.StoreRevision)
	}
	return fmt.Sprintf("revision %d", r.StoreRevision)
}

// Requests is a run of requests in the order in which they reached etcd.
type Requests []Request

// Count says how many requests of one method there are.
func (rs Requests) Count(m Method) int {
	n := 0
	for _, r := range rs {
		if r.Method == m {
			n++
		}
	}
	return n
}

// Only returns the requests of the given methods, in order.
func (rs Requests) Only(methods ...Method) Requests {
	var out Requests
	for _, r := range rs {
		for _, m := range methods {
			if r.Method == m {
				out = append(out, r)
			}
		}
	}
	return out
}

// Summary is the count by method, such as "1 Range, 2 Txn", or "no request".
func (rs Requests) Summary() string {
	var parts []string
	for _, m := range []Method{Range, RangeStream, Txn, Put, DeleteRange, Compact, Watch} {
		if n := rs.Count(m); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, m))
		}
	}
	if len(parts) == 0 {
		return "no request"
	}
	return strings.Join(parts, ", ")
}
