package record

import (
	"fmt"
	"strings"
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
	Key      string `json:"key"`
	Field    string `json:"field"`
	Operator string `json:"operator"`
	Value    int64  `json:"value"`
}

// Op is one operation in a branch of a transaction. Kind is Put, Get or Delete.
type Op struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

// KeyValue is what etcd said about one key: its three revision fields, and not its value.
// For an Event that deletes, Deleted is true.
type KeyValue struct {
	Key            string `json:"key"`
	CreateRevision int64  `json:"createRevision"`
	ModRevision    int64  `json:"modRevision"`
	Version        int64  `json:"version"`
	Deleted        bool   `json:"deleted,omitempty"`
}

// Request is one request from a kube-apiserver to etcd, and what etcd answered. The bytes of the values
// are not kept.
type Request struct {
	Method Method `json:"method"`
	From   string `json:"from"`           // which kube-apiserver sent it
	Note   string `json:"note,omitempty"` // what the wire did to it: "held", or what a false world altered
	// Raced says that something else was made to happen while the request waited at etcd's door.
	Raced bool `json:"raced,omitempty"`

	Key       string `json:"key"`
	End       string `json:"end,omitempty"`       // of a range of keys
	Limit     int64  `json:"limit,omitempty"`     // of a Range
	Revision  int64  `json:"revision,omitempty"`  // that a Range or Watch asks for, 0 for the newest
	CountOnly bool   `json:"countOnly,omitempty"` // of a Range
	// Serializable says that a member of etcd may answer a Range with what it has, however old.
	Serializable bool `json:"serializable,omitempty"`

	Compare []Compare `json:"compare,omitempty"`
	Then    []Op      `json:"then,omitempty"`
	Else    []Op      `json:"else,omitempty"`

	// Executed counts from 1 in the order in which etcd executed the requests of the tape; 0 when it did not.
	Executed      int        `json:"executed,omitempty"`
	Answered      bool       `json:"answered,omitempty"`
	Err           string     `json:"error,omitempty"`         // why etcd refused, or the wire did
	Succeeded     bool       `json:"succeeded,omitempty"`     // of a Txn: the compare held, so the then branch ran
	StoreRevision int64      `json:"storeRevision,omitempty"` // in the header of the answer
	Found         []KeyValue `json:"found,omitempty"`         // by a Range, an else branch or an Event, at most eight
	FoundInAll    int64      `json:"foundInAll,omitempty"`    // how many there were
}

// Wrote says whether the request changed what is stored: a transaction whose then branch ran and wrote, a put, or a
// delete.
func (r Request) Wrote() bool {
	if !r.Answered || r.Err != "" {
		return false
	}
	switch r.Method {
	case Put, DeleteRange:
		return true
	case Txn:
		return r.Succeeded && r.Writes() > 0
	}
	return false
}

// Writes counts the keys that the then branch writes.
func (r Request) Writes() int {
	n := 0
	for _, op := range r.Then {
		if op.Kind != "Get" {
			n++
		}
	}
	return n
}

// Shape is the request without its names and numbers: requests of one shape ask the same question.
func (r Request) Shape() string {
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
		if r.Serializable {
			return r.rangeShape() + ", serializable"
		}
		return r.rangeShape()
	}
	return string(r.Method)
}

func (r Request) rangeShape() string {
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
	case r.Err != "":
		return "refused: " + r.Err
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
