package token

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Outcome is what a client learned of one of its requests: the output of a [porcupine.Operation] whose input is
// the [Request].
type Outcome struct {
	Answer Answer
	// Lost says that no answer came, or one that leaves it open whether the request was carried out: a status of
	// 500 or more.
	Lost bool
}

// Recorder writes down what concurrent clients send to a store and get from it, with the times at which each
// request began and ended, on a monotonic clock. Its zero value is ready. It may be used by many goroutines at
// once.
//
// A history must be whole: it begins with objects that are absent, and every write of them is recorded. A client
// whose answer was lost had better go on under another number, since the lost request may still be under way.
type Recorder struct {
	mu         sync.Mutex
	start      time.Time
	operations []porcupine.Operation
}

// Do sends a request to a store and writes down both it and the answer. Clients are numbered from 0; each has
// one request at a time.
func (r *Recorder) Do(ctx context.Context, client int, s Store, req Request) (Answer, error) {
	end := r.Begin(client, req)
	a, err := s.Do(ctx, req)
	end(a, err)
	return a, err
}

// Begin writes down that a client is about to send a request. The function it returns must be called as soon as
// there is an answer, or an error that leaves the outcome open. A request that is never ended is one whose answer
// was lost.
func (r *Recorder) Begin(client int, req Request) func(Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.start.IsZero() {
		r.start = time.Now()
	}
	i := len(r.operations)
	r.operations = append(r.operations, porcupine.Operation{
		ClientId: client, Input: req, Output: Outcome{Lost: true}, Call: int64(time.Since(r.start)),
	})
	return func(a Answer, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.operations[i].Return = int64(time.Since(r.start))
		r.operations[i].Output = Outcome{Answer: a, Lost: isLost(a, err)}
	}
}

func isLost(a Answer, err error) bool { return err != nil || a.Code >= http.StatusInternalServerError }

// History returns what has been recorded so far. A request whose answer was lost may have been carried out at any
// later time, so it ends after all others.
func (r *Recorder) History() []porcupine.Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	history := slices.Clone(r.operations)
	var end int64
	for _, op := range history {
		end = max(end, op.Call, op.Return)
	}
	for i := range history {
		if history[i].Output.(Outcome).Lost {
			history[i].Return = end + 1
		}
	}
	return history
}

// Finding is what [Check] finds.
type Finding struct {
	// Result is porcupine's: Ok if some order of the requests explains every answer, Illegal if none does, Unknown
	// if the time was not enough.
	Result porcupine.CheckResult

	model   porcupine.Model
	info    porcupine.LinearizationInfo
	history []porcupine.Operation
	timeout time.Duration
}

// Check looks for an order of the requests of a history that explains every answer: an order in which each request
// stands between its beginning and its end, and in which the model, asked one request after the other, answers
// just so. Each object is looked at by itself. A timeout of 0 means no limit.
//
// Tokens and uids are opaque: the model is that of [Kind.Judge], and a new one must be one that was not seen
// before. Whether a request led to a storage write is not looked at, since clients cannot see it.
func Check(kind Kind, history []porcupine.Operation, timeout time.Duration) Finding {
	f := Finding{model: registers(kind), history: history, timeout: timeout}
	f.Result, f.info = porcupine.CheckOperationsVerbose(f.model, history, timeout)
	return f
}

// Visualize writes porcupine's picture of the history to a file, an HTML page to be opened in a browser: the
// requests of each client in time, and how far each attempt to order them got.
func (f Finding) Visualize(path string) error {
	if err := porcupine.VisualizePath(f.model, f.info, path); err != nil {
		return fmt.Errorf("drawing the history: %w", err)
	}
	return nil
}

// Explain says what was found: for an illegal history the object, how far an order could be found, what it held
// then, and the requests that cannot come next.
func (f Finding) Explain() string {
	switch f.Result {
	case porcupine.Ok:
		return fmt.Sprintf("%d requests, and some order of them explains every answer", len(f.history))
	case porcupine.Unknown:
		return fmt.Sprintf("%d requests: the time was not enough to find an order of them, or to rule one out",
			len(f.history))
	}
	for _, one := range byName(f.history) {
		// The check of all objects ends at the first that cannot be explained and may leave others half done.
		if result, info := porcupine.CheckOperationsVerbose(f.model, one, f.timeout); result == porcupine.Illegal {
			attempts := info.PartialLinearizationsOperations()[0]
			longest := slices.MaxFunc(append(attempts, nil), func(a, b []porcupine.Operation) int {
				// Of two that got as far, the one whose requests ended first.
				earlier := func(x, y porcupine.Operation) int { return cmp.Compare(x.Return, y.Return) }
				return cmp.Or(cmp.Compare(len(a), len(b)), slices.CompareFunc(b, a, earlier))
			})
			return f.explain(one[0].Input.(Request).Name, longest, one)
		}
	}
	return fmt.Sprintf("%d requests, and no order of them explains every answer", len(f.history))
}

func (f Finding) explain(name string, ordered, all []porcupine.Operation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "no order of the %d requests for %s explains every answer. The longest that explains some", len(all),
		name)
	if len(ordered) > 0 {
		b.WriteString(" ends with\n")
	} else {
		b.WriteString(" is empty\n")
	}
	state := f.model.Init()
	for i, op := range ordered {
		_, state = f.model.Step(state, op.Input, op.Output)
		if i >= len(ordered)-4 {
			fmt.Fprintf(&b, "  %s\n", f.describe(op))
		}
	}
	fmt.Fprintf(&b, "and leaves %s. None of these can be next:\n", f.model.DescribeState(state))
	key := func(op porcupine.Operation) string { return fmt.Sprint(op.ClientId, op.Call, op.Return) }
	done := map[string]bool{}
	for _, op := range ordered {
		done[key(op)] = true
	}
	left := slices.DeleteFunc(slices.Clone(all), func(op porcupine.Operation) bool { return done[key(op)] })
	slices.SortFunc(left, func(x, y porcupine.Operation) int { return cmp.Compare(x.Call, y.Call) })
	firstEnd := slices.MinFunc(left, func(x, y porcupine.Operation) int { return cmp.Compare(x.Return, y.Return) }).Return
	for _, op := range left {
		if op.Call <= firstEnd { // the others began when one of these had ended
			fmt.Fprintf(&b, "  %s\n", f.describe(op))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// describe is a request with its times in milliseconds, and its answer.
func (f Finding) describe(op porcupine.Operation) string {
	req := op.Input.(Request)
	if req.Client == "" {
		req.Client = fmt.Sprintf("client%d", op.ClientId)
	}
	return fmt.Sprintf("%.3f to %.3f ms  %s", float64(op.Call)/1e6, float64(op.Return)/1e6,
		f.model.DescribeOperation(req, op.Output))
}

// registers is the model of one object, in the form that porcupine asks for. It is not deterministic, since nobody
// knows the token of a write whose answer was lost.
func registers(kind Kind) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: byName,
		Init:      func() []any { return []any{register{}} },
		Step: func(state, input, output any) []any {
			var next []any
			for _, s := range state.(register).learn(input.(Request), output.(Outcome).Answer) {
				if s, ok := s.step(kind, input.(Request), output.(Outcome)); ok {
					next = append(next, s)
				}
			}
			return next
		},
		Equal:             func(x, y any) bool { return x.(register).equal(y.(register)) },
		DescribeOperation: describeOperation,
		DescribeState:     func(state any) string { return state.(register).String() },
	}
	return m.ToModel()
}

// byName takes a history apart, and leaves out reads whose answer was lost: they say nothing.
func byName(history []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, op := range history {
		req := op.Input.(Request)
		if req.Verb == Get && op.Output.(Outcome).Lost {
			continue
		}
		parts[req.Name] = append(parts[req.Name], op)
	}
	var partitions [][]porcupine.Operation
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		partitions = append(partitions, parts[name])
	}
	return partitions
}

func describeOperation(input, output any) string {
	out := output.(Outcome)
	if out.Lost {
		return fmt.Sprintf("%s -> answer lost", input)
	}
	return fmt.Sprintf("%s -> %s", input, out.Answer)
}

// unknown stands for a token or uid that exists, but was not seen because the answer was lost.
const unknown = "?"

// register is an object, and the tokens and uids that there have been under its name. A value is never changed.
type register struct {
	Object
	seen *seen
}

// seen is a set; nil is the empty one.
type seen struct {
	value  string
	before *seen
	size   int
}

func (s *seen) and(value string) *seen { return &seen{value, s, s.len() + 1} }

func (s *seen) len() int {
	if s == nil {
		return 0
	}
	return s.size
}

func (s *seen) has(value string) bool {
	for ; s != nil; s = s.before {
		if s.value == value {
			return true
		}
	}
	return false
}

// equal is asked only of states that the same requests have led to, in some order. They have seen the same
// tokens and uids, unless one has learned more than the other of a write whose answer was lost.
func (r register) equal(other register) bool {
	return r.seen.len() == other.seen.len() && r.UID == other.UID && r.Token == other.Token &&
		maps.Equal(r.Content, other.Content)
}

func (r register) String() string {
	if !r.Exists() {
		return "nothing"
	}
	return fmt.Sprintf("token %s, uid %s, %s", r.Token, r.UID, r.Content)
}

// learn returns what the register may be in view of a request and its answer: an unknown token or uid may be one
// that they name.
func (r register) learn(req Request, a Answer) []register {
	all := []register{r}
	if r.Token == unknown {
		for _, value := range distinct(req.Token, a.Token) {
			if !r.seen.has(value) {
				known := r
				known.Token, known.seen = value, r.seen.and(value)
				all = append(all, known)
			}
		}
	}
	if r.UID == unknown {
		for _, r := range all {
			for _, value := range distinct(req.UID, a.UID) {
				if !r.seen.has(value) {
					known := r
					known.UID, known.seen = value, r.seen.and(value)
					all = append(all, known)
				}
			}
		}
	}
	return all
}

func distinct(values ...string) []string {
	slices.Sort(values)
	values = slices.Compact(values)
	return slices.DeleteFunc(values, func(v string) bool { return v == "" })
}

// judged reports whether a status is one of the refusals that the model knows.
func judged(code int) bool {
	return code == http.StatusNotFound || code == http.StatusConflict || code == http.StatusUnprocessableEntity
}

// step is the register after a request, if out can be what came of it.
func (r register) step(kind Kind, req Request, out Outcome) (register, bool) {
	v := kind.Judge(r.Object, req)
	a := out.Answer
	if out.Lost {
		return r.become(v, unknown, unknown), true
	}
	if a.Code >= http.StatusBadRequest && !judged(a.Code) {
		return r, true // refused for something that the model knows nothing of, such as 403 or 429
	}
	if a.Code != v.Code || a.Reason != v.Reason {
		return r, false
	}
	if v.Reason != "" || v.Effect == Removes {
		return r.become(v, "", ""), true
	}
	if !maps.Equal(a.Content, v.Content) {
		return r, false
	}
	switch v.Effect {
	case Creates:
		if a.Token == "" || a.UID == "" || r.seen.has(a.Token) || r.seen.has(a.UID) {
			return r, false
		}
	case Changes:
		if a.Token == "" || r.seen.has(a.Token) || a.UID != r.UID {
			return r, false
		}
	default:
		if a.Token != r.Token || a.UID != r.UID {
			return r, false
		}
	}
	return r.become(v, a.Token, a.UID), true
}

// become is the register after the effect of a request.
func (r register) become(v Verdict, token, uid string) register {
	switch v.Effect {
	case Creates:
		r.Object = Object{UID: uid, Token: token, Content: v.Content}
	case Changes:
		r.Object = Object{UID: r.UID, Token: token, Content: v.Content}
	case Removes:
		r.Object = Object{}
	}
	if v.Effect == Creates || v.Effect == Changes {
		if token != unknown {
			r.seen = r.seen.and(token)
		}
		if uid != unknown && v.Effect == Creates {
			r.seen = r.seen.and(uid)
		}
	}
	return r
}
