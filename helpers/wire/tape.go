package wire

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"modrev/helpers/record"
)

// tapeLength bounds what one Tape keeps, however long a lesson runs.
const tapeLength = 16384

// Tape is what one owner's clients said and what etcd was then asked, in order. It keeps the newest
// entries, a few thousand of them. The zero value is ready; it is safe for concurrent use.
type Tape struct {
	mu      sync.Mutex
	entries []entry
	dropped int
	paused  int // how many pauses there are

	executions []execution
}

// entry is one line of the tape: exactly one field is set.
type entry struct {
	etcd   *Request
	reply  *Request // the answer to a request to etcd; printed with the request
	call   *Call    // an HTTP request
	answer *Call    // the answer to one
	remark string
}

// Record returns what was recorded, as values of its own, without the events of watches.
func (tp *Tape) Record() record.Tape { return tp.since(0) }

func (tp *Tape) since(m Mark) record.Tape {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	ranks := tp.ranks()
	out := record.Tape{Dropped: max(tp.dropped-int(m), 0)}
	calls, requests := map[*Call]int{}, map[*Request]int{}
	call := func(kind record.Kind, c *Call) {
		if _, known := calls[c]; !known {
			calls[c] = len(out.Calls)
			out.Calls = append(out.Calls, *c)
		}
		out.Steps = append(out.Steps, record.Step{Kind: kind, N: calls[c]})
	}
	request := func(kind record.Kind, r *Request) {
		if _, known := requests[r]; !known {
			requests[r] = len(out.Requests)
			out.Requests = append(out.Requests, *r)
			out.Requests[requests[r]].Executed = ranks[r]
		}
		out.Steps = append(out.Steps, record.Step{Kind: kind, N: requests[r]})
	}
	for _, e := range tp.after(m) {
		switch {
		case e.etcd != nil && e.etcd.Method == Event:
		case e.etcd != nil:
			request(record.Asked, e.etcd)
		case e.reply != nil:
			request(record.Replied, e.reply)
		case e.call != nil:
			call(record.Sent, e.call)
		case e.answer != nil:
			call(record.Answered, e.answer)
		default:
			out.Steps = append(out.Steps, record.Step{Kind: record.Remarked, Text: e.remark})
		}
	}
	return out
}

// execution is what tells when etcd executed a request.
type execution struct {
	request  *Request
	revision int64 // that the store had then
	wrote    bool
}

// executed notes that etcd has just executed a request, before any rule alters its answer.
func (tp *Tape) executed(r *Request, resp proto.Message) {
	var now Request
	answered(&now, resp, nil)
	tp.mu.Lock()
	defer tp.mu.Unlock()
	if len(tp.executions) >= tapeLength {
		tp.executions = slices.Clone(tp.executions[tapeLength/2:])
	}
	if tp.paused == 0 {
		wrote := r.Method != Range && r.Method != RangeStream && (r.Method != Txn || now.Succeeded)
		tp.executions = append(tp.executions, execution{r, now.StoreRevision, wrote})
	}
}

// ranks numbers the requests in the order in which etcd executed them, from 1. Of two that were answered side by
// side, the revision of the store tells which came first; a write is the first at its own revision.
func (tp *Tape) ranks() map[*Request]int {
	slices.SortStableFunc(tp.executions, func(a, b execution) int {
		if a.revision != b.revision {
			return cmp.Compare(a.revision, b.revision)
		}
		switch {
		case a.wrote == b.wrote:
			return 0
		case a.wrote:
			return -1
		}
		return 1
	})
	out := make(map[*Request]int, len(tp.executions))
	for i, e := range tp.executions {
		out[e.request] = i + 1
	}
	return out
}

// Mark is a position on a Tape.
type Mark int

// Now is the position behind the newest entry.
func (tp *Tape) Now() Mark {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return Mark(tp.dropped + len(tp.entries))
}

// Since returns the requests to etcd that were recorded after a position, without the events of watches.
func (tp *Tape) Since(m Mark) Requests {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	var out Requests
	for _, e := range tp.after(m) {
		if e.etcd != nil && e.etcd.Method != Event {
			out = append(out, *e.etcd)
		}
	}
	return out
}

// Calls returns the HTTP requests, with their answers, that were recorded after a position.
func (tp *Tape) Calls(m Mark) []Call {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	var out []Call
	for _, e := range tp.after(m) {
		if e.call != nil {
			out = append(out, *e.call)
		}
	}
	return out
}

// Answered counts the calls that were answered with an HTTP status.
func Answered(calls []Call, code int) int {
	n := 0
	for _, c := range calls {
		if c.Done && c.Code == code {
			n++
		}
	}
	return n
}

// Lines is what was recorded after a position, as text (see [record.Tape.Lines]).
func (tp *Tape) Lines(m Mark) []string { return tp.since(m).Lines() }

// Remark writes a line of the caller's own onto the tape.
func (tp *Tape) Remark(format string, args ...any) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.add(entry{remark: fmt.Sprintf(format, args...)})
}

// Pause stops the tape until the returned function is called: for what sets the stage. Pauses may overlap.
func (tp *Tape) Pause() (resume func()) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.paused++
	var once sync.Once
	return func() {
		once.Do(func() {
			tp.mu.Lock()
			defer tp.mu.Unlock()
			tp.paused--
		})
	}
}

// Forget drops what was recorded so far: what set the stage is not part of the play.
func (tp *Tape) Forget() {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.entries, tp.dropped, tp.executions = nil, 0, nil
}

// String prints the whole tape.
func (tp *Tape) String() string { return strings.Join(tp.Lines(0), "\n") }

func (tp *Tape) after(m Mark) []entry {
	from := max(int(m)-tp.dropped, 0)
	return tp.entries[min(from, len(tp.entries)):]
}

func (tp *Tape) add(e entry) {
	if tp.paused > 0 {
		return
	}
	if len(tp.entries) >= tapeLength {
		half := len(tp.entries) / 2
		tp.entries = append(make([]entry, 0, tapeLength), tp.entries[half:]...)
		tp.dropped += half
	}
	tp.entries = append(tp.entries, e)
}

func (tp *Tape) request(r *Request) *Request {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.add(entry{etcd: r})
	return r
}

// redescribe replaces what the tape says of a request by what it became.
func (tp *Tape) redescribe(r, now *Request) {
	if now == nil {
		return
	}
	tp.mu.Lock()
	defer tp.mu.Unlock()
	now.From, now.Note, now.Raced = r.From, r.Note, r.Raced
	if len(now.Compare) == 0 {
		now.Key = r.Key
	}
	*r = *now
}

func (tp *Tape) answered(r *Request, resp proto.Message, err error) Request {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	answered(r, resp, err)
	tp.add(entry{reply: r})
	return *r
}

// update changes what the tape says of something.
func (tp *Tape) update(change func()) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	change()
}

func (tp *Tape) call(c *Call) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.add(entry{call: c})
}

func (tp *Tape) finished(c *Call, fill func(*Call)) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	fill(c)
	tp.add(entry{answer: c})
}
