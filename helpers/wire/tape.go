package wire

import (
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
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
}

// entry is one line of the tape: exactly one field is set.
type entry struct {
	etcd   *Request
	reply  *Request // the answer to a request to etcd; printed with the request
	call   *Call    // an HTTP request
	answer *Call    // the answer to one
	remark string
}

// Step is one thing that happened on the way between a client, kube-apiserver and etcd. Exactly one field
// is set. A Call and its Answer are one pointer, and so are an Ask and its Reply: each carries both sides, and
// stands where it was sent and where it was answered.
type Step struct {
	Call   *Call    // a client sent an HTTP request
	Ask    *Request // kube-apiserver asked etcd
	Reply  *Request // etcd answered
	Answer *Call    // kube-apiserver answered
	Remark string   // something that the lesson wrote onto the tape
}

// Steps returns copies of what was recorded, in order and without the events of watches.
func (tp *Tape) Steps() []Step {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	requests, calls := map[*Request]*Request{}, map[*Call]*Call{}
	var out []Step
	for _, e := range tp.entries {
		switch {
		case e.etcd != nil && e.etcd.Method == Event:
		case e.etcd != nil:
			out = append(out, Step{Ask: copied(requests, e.etcd)})
		case e.reply != nil:
			out = append(out, Step{Reply: copied(requests, e.reply)})
		case e.call != nil:
			out = append(out, Step{Call: copied(calls, e.call)})
		case e.answer != nil:
			out = append(out, Step{Answer: copied(calls, e.answer)})
		default:
			out = append(out, Step{Remark: e.remark})
		}
	}
	return out
}

// copied is a copy of what p points to, the same one each time.
func copied[T any](known map[*T]*T, p *T) *T {
	if known[p] == nil {
		v := *p
		known[p] = &v
	}
	return known[p]
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

// Lines prints what was recorded after a position: each HTTP request, indented below it the requests to
// etcd that arrived until the next, and the answer. Events of watches are left out.
func (tp *Tape) Lines(m Mark) []string {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	var out []string
	if int(m) < tp.dropped {
		out = append(out, fmt.Sprintf("(%d earlier entries are no longer kept)", tp.dropped-int(m)))
	}
	for _, e := range tp.after(m) {
		switch {
		case e.reply != nil, e.etcd != nil && e.etcd.Method == Event:
		case e.etcd != nil:
			out = append(out, "    "+e.etcd.String())
		case e.call != nil:
			out = append(out, e.call.request())
		case e.answer != nil:
			out = append(out, e.answer.answer())
		default:
			out = append(out, e.remark)
		}
	}
	return out
}

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
	tp.entries, tp.dropped = nil, 0
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
	r.answer(resp, err)
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
