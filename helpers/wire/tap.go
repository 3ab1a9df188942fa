package wire

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// A Match selects requests. It must not keep or change what it is given.
type Match func(*Request) bool

// TxnOn selects the transactions on one key.
func TxnOn(key string) Match {
	return func(r *Request) bool { return r.Method == Txn && r.Key == key }
}

// UpdateOf selects the transactions on one key that write it if its mod revision is still the expected
// one: what a replace, a patch and an apply become.
func UpdateOf(key string) Match {
	return func(r *Request) bool {
		return r.Method == Txn && r.Key == key && len(r.Compare) == 1 && r.Compare[0].Value != 0 &&
			len(r.Then) == 1 && r.Then[0].Kind == "Put"
	}
}

// ReadOf selects the single-key reads of one key.
func ReadOf(key string) Match {
	return func(r *Request) bool { return r.Method == Range && r.Key == key && r.End == "" }
}

// AnyTxn selects every transaction on the keys that the Tap owns.
func AnyTxn(r *Request) bool { return r.Method == Txn }

// Rule is something that the wire does to requests on their way to etcd, or to the answers on their way
// back. Fields that are not set do nothing. A request to which a rule cannot do all that it says passes it by: an
// Event can only be altered or dropped, and the answer of a RangeStream cannot be lost.
type Rule struct {
	When  Match  // which requests; nil selects all
	Note  string // what is printed behind such a request
	Times int    // how many requests the rule applies to; 0 means all

	// Do runs while the request waits at etcd's door. Requests that come meanwhile, such as those that Do
	// causes, pass this rule by. n counts from 1.
	Do func(n int)
	// Request alters the request; it is given a copy that it may change: a *TxnRequest for a Txn, a
	// *RangeRequest for a Range or RangeStream, and for an Event the *mvccpb.Event itself.
	Request func(proto.Message)
	// Err refuses the request: etcd never sees it.
	Err error
	// Answer alters what etcd answered, before kube-apiserver sees it; of a RangeStream, each part of it, a
	// *RangeStreamResponse.
	Answer func(proto.Message)
	// Lost lets etcd execute the request and puts this error in the place of its answer.
	Lost error
	// Drop, for an Event, swallows it.
	Drop bool

	used   int
	asleep bool
	held   *Held
	after  *Held // holds the answer
}

// AlterTxn makes a Rule that edits transactions.
func AlterTxn(when Match, note string, edit func(*pb.TxnRequest)) *Rule {
	return &Rule{When: when, Note: note, Request: func(m proto.Message) {
		if txn, ok := m.(*pb.TxnRequest); ok {
			edit(txn)
		}
	}}
}

// Tap is one owner's view of the wire: a tape of what was asked for its keys, and the rules that are
// in force for them. It is safe for concurrent use.
type Tap struct {
	wire  *Wire
	owner string
	tape  Tape

	mu        sync.Mutex
	closed    bool
	rules     []*Rule
	httpRules []*HTTPRule
	frozen    map[string]*Frozen
	watches   map[string][]*watchStream

	heldWatches map[string]*HeldWatches // by client
	openWatches map[*gated]bool         // of all clients
}

// Tape is the record of the requests of this owner.
func (t *Tap) Tape() *Tape { return &t.tape }

// Close lets everything go that is held, and ends the view. It may be called more than once.
func (t *Tap) Close() {
	t.wire.mu.Lock()
	if t.wire.taps[t.owner] == t {
		delete(t.wire.taps, t.owner)
	}
	t.wire.mu.Unlock()

	t.mu.Lock()
	t.closed = true
	rules, frozen, watches := t.rules, t.frozen, t.heldWatches
	t.rules, t.httpRules, t.frozen, t.heldWatches = nil, nil, nil, nil
	t.mu.Unlock()
	for _, r := range rules {
		for _, h := range []*Held{r.held, r.after} {
			if h != nil {
				h.Release()
			}
		}
	}
	for _, f := range frozen {
		f.Release()
	}
	for _, h := range watches {
		h.Release()
	}
}

// Add puts a rule in force and returns the function that takes it out of force again.
// Rules apply in the order in which they were added.
func (t *Tap) Add(r *Rule) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rules = append(t.rules, r)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.rules = slices.DeleteFunc(t.rules, func(o *Rule) bool { return o == r })
	}
}

// Held is a request that waits at etcd's door.
type Held struct {
	arrived chan struct{}
	dropped chan struct{} // closed when kube-apiserver has given up waiting
	release chan struct{}
	once    sync.Once
}

func newHeld() *Held {
	return &Held{arrived: make(chan struct{}), dropped: make(chan struct{}), release: make(chan struct{})}
}

// HasArrived says whether the request has reached etcd's door, or, after HoldAnswer, been executed.
func (h *Held) HasArrived() bool {
	select {
	case <-h.arrived:
		return true
	default:
		return false
	}
}

// Dropped waits until kube-apiserver has given up the request that is held: from then on it is certain that
// etcd will not execute it.
func (h *Held) Dropped(ctx context.Context) error {
	select {
	case <-h.dropped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting until kube-apiserver gives up the request that is held: %w", context.Cause(ctx))
	}
}

// Hold makes the next request that matches wait until Release. Only that one: later ones pass.
func (t *Tap) Hold(when Match) *Held {
	return t.HoldNoting(when, "held until the rival had written")
}

// HoldNoting is Hold with a note of the caller's own on the tape.
func (t *Tap) HoldNoting(when Match, note string) *Held {
	h := newHeld()
	t.Add(&Rule{When: when, Note: note, Times: 1, held: h})
	return h
}

// HoldAnswer lets etcd execute the next request that matches, and makes its answer wait until Release.
// [Held.Arrived] then says that it has been executed. If kube-apiserver gives up waiting, the answer is lost
// to it, and what was stored stays.
func (t *Tap) HoldAnswer(when Match) *Held {
	h := newHeld()
	t.Add(&Rule{When: when, Note: "the answer was held", Times: 1, after: h})
	return h
}

// Arrived waits until the request has reached etcd's door.
func (h *Held) Arrived(ctx context.Context) error {
	select {
	case <-h.arrived:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the request that is to be held to reach etcd: %w", context.Cause(ctx))
	}
}

// Release lets the request go on. It may be called more than once, and before the request has arrived.
func (h *Held) Release() { h.once.Do(func() { close(h.release) }) }

// acts says whether a rule can do what it says to a request of this kind. An event does not wait for anybody and
// has no answer, and the answer of a RangeStream comes in parts, so that it is neither held nor lost.
func (rule *Rule) acts(r *Request) bool {
	switch r.Method {
	case Event:
		return rule.held == nil && rule.after == nil && rule.Do == nil && rule.Err == nil && rule.Answer == nil &&
			rule.Lost == nil
	case RangeStream:
		return rule.after == nil && rule.Lost == nil
	}
	return true
}

// wake has the rules that run something act again.
func (t *Tap) wake(rules ...*Rule) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rule := range rules {
		rule.asleep = false
	}
}

// take returns the rules that apply to a request and counts the use of each.
func (t *Tap) take(r *Request) []*Rule {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*Rule
	for _, rule := range t.rules {
		if rule.asleep || (rule.Times > 0 && rule.used >= rule.Times) {
			continue
		}
		if !rule.acts(r) || (rule.When != nil && !rule.When(r)) {
			continue
		}
		rule.used++
		if rule.Do != nil {
			rule.asleep = true
		}
		out = append(out, rule)
	}
	return out
}

// note says on a request what the rules do to it. It is called before the request is on the tape.
func note(r *Request, rules []*Rule) {
	var notes []string
	for _, rule := range rules {
		r.Raced = r.Raced || rule.held != nil || rule.Do != nil
		if rule.Note != "" {
			notes = append(notes, rule.Note)
		}
	}
	r.Note = strings.Join(notes, "; ")
}

// pass takes one request past the rules to etcd, and its answer back.
func (t *Tap) pass(ctx context.Context, r *Request, m proto.Message,
	next func(context.Context, proto.Message) (proto.Message, error),
) (proto.Message, error) {
	rules := t.take(r)
	if len(rules) == 0 {
		entry := t.tape.request(r)
		resp, err := next(ctx, m)
		if err == nil {
			t.tape.executed(entry, resp)
		}
		t.finish(entry, resp, err)
		return resp, err
	}

	note(r, rules)
	entry := t.tape.request(r)
	gone, err := t.enter(ctx, rules, func(rule *Rule) {
		m = proto.Clone(m)
		rule.Request(m)
		t.tape.redescribe(entry, describe(m))
	})
	if err != nil {
		t.finish(entry, nil, err)
		gone.drop()
		return nil, err
	}
	resp, err := next(ctx, m)
	if err == nil {
		t.tape.executed(entry, resp)
		for _, rule := range rules {
			if rule.after != nil {
				close(rule.after.arrived)
				select {
				case <-rule.after.release:
				case <-ctx.Done():
					// Etcd's side of the deadline may end a little before the other: an answer now could still arrive.
					t.finish(entry, resp, nil)
					close(rule.after.dropped)
					return nil, ctx.Err()
				}
			}
			if rule.Answer != nil {
				resp = proto.Clone(resp)
				rule.Answer(resp)
			}
			if rule.Lost != nil {
				err = rule.Lost
			}
		}
	}
	t.finish(entry, resp, err)
	return resp, err
}

// enter has the rules do to a request what they do before etcd executes it; alter applies the Request of one of
// them. When it returns an error, etcd is not to execute the request. If that is because kube-apiserver gave up
// waiting, gone is what held the request, to be dropped once the request is finished.
func (t *Tap) enter(ctx context.Context, rules []*Rule, alter func(*Rule)) (gone *Held, refused error) {
	for i, rule := range rules {
		if rule.held != nil {
			close(rule.held.arrived)
			select {
			case <-rule.held.release:
			case <-ctx.Done():
				t.wake(rules[i:]...)
				return rule.held, ctx.Err()
			}
		}
		if rule.Do != nil {
			rule.Do(rule.used)
			t.wake(rule)
		}
		if rule.Request != nil {
			alter(rule)
		}
		if rule.Err != nil {
			refused = rule.Err
		}
	}
	return nil, refused
}

// drop says that kube-apiserver has given up the request, if it was held.
func (h *Held) drop() {
	if h != nil {
		close(h.dropped)
	}
}

func (t *Tap) finish(entry *Request, resp proto.Message, err error) {
	r := t.tape.answered(entry, resp, err)
	if t.wire.Live != nil {
		t.wire.Live(r)
	}
}
