package record

import (
	"fmt"
	"slices"
)

// Tape is what the clients of one telling said, what kube-apiserver then asked etcd, and what came back, in the order
// in which it was sent. Events of watches are left out.
type Tape struct {
	Calls    []Call    `json:"calls,omitempty"`
	Requests []Request `json:"requests,omitempty"`
	Steps    []Step    `json:"steps,omitempty"`
	Dropped  int       `json:"dropped,omitempty"` // earlier steps that are no longer kept
}

// Kind is what a step of a tape is.
type Kind string

// The steps of a tape. A call is answered, and a request to etcd replied to, by a later step of the same number.
const (
	Sent     Kind = "call"   // a client sent Calls[N]
	Answered Kind = "answer" // kube-apiserver answered Calls[N]
	Asked    Kind = "ask"    // kube-apiserver sent Requests[N] to etcd
	Replied  Kind = "reply"  // kube-apiserver got etcd's answer to Requests[N]
	Remarked Kind = "remark" // the lesson said Text
)

// Step is one thing that happened between a client, kube-apiserver and etcd.
type Step struct {
	Kind Kind   `json:"kind"`
	N    int    `json:"n,omitempty"`
	Text string `json:"text,omitempty"`
}

// Rivals is the note on the requests of the rival in a race that the lesson forced.
const Rivals = "the rival's"

// Lines is the tape as text: each call of a client, indented below it the requests to etcd that were sent until the
// next call, and the answers.
func (t Tape) Lines() []string {
	var out []string
	if t.Dropped > 0 {
		out = append(out, fmt.Sprintf("(%d earlier entries are no longer kept)", t.Dropped))
	}
	for _, s := range t.Steps {
		switch s.Kind {
		case Sent:
			out = append(out, t.Calls[s.N].Who+": "+t.Calls[s.N].Title())
		case Answered:
			out = append(out, t.Calls[s.N].Who+": ← "+t.Calls[s.N].Outcome())
		case Asked:
			out = append(out, "    "+t.Requests[s.N].String())
		case Remarked:
			out = append(out, s.Text)
		}
	}
	return out
}

// Executed is the requests that etcd executed, in the order in which it did.
func (t Tape) Executed() Requests {
	var out Requests
	for _, r := range t.Requests {
		if r.Executed > 0 {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Request) int { return a.Executed - b.Executed })
	return out
}
