package token

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Disagreement is the first step of a trace at which an answer is not what it should be.
type Disagreement struct {
	Step     int    // index into [Trace.Steps]
	Request  string // the step, as a line of a trace
	Line     int    // its line in the text, or 0
	Expected string
	Observed string
}

// Error is the step, what was expected and what was observed, in one sentence.
func (d *Disagreement) Error() string {
	return fmt.Sprintf("%s, %q: expected %s; observed %s", where(d.Step, d.Line), d.Request, d.Expected, d.Observed)
}

// Until is a trace as far as the step in which an error of [Compare] or [Trace.Check] lies: what comes after it
// says nothing about the error.
func (t Trace) Until(err error) Trace {
	if d := (*Disagreement)(nil); errors.As(err, &d) && d.Step < len(t.Steps) {
		t.Steps = t.Steps[:d.Step+1]
	}
	return t
}

func where(step, line int) string {
	if line == 0 {
		return fmt.Sprintf("step %d", step+1)
	}
	return fmt.Sprintf("step %d (line %d)", step+1, line)
}

// Replay sends the steps of a trace to a store, one after the other, and returns the answers. It stops at the
// first step that cannot be sent, because it needs a token or uid that no answer has brought, or whose outcome
// is not known, and then returns the answers so far and why.
func Replay(ctx context.Context, s Store, t Trace) ([]Answer, error) {
	r := replay{store: s}
	var answers []Answer
	for i, step := range t.Steps {
		a, err := r.do(ctx, step)
		if err != nil {
			return answers, fmt.Errorf("%s, %q: %w", where(i, step.Line), step.who()+" "+step.what(), err)
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// replay turns the names of a trace into the tokens and uids of one store.
type replay struct {
	store  Store
	values map[string]string // what the names "t1" and "u1" stand for
	newest []held            // the newest token of each object, in the order in which they were seen
}

type held struct{ name, token string }

func (r *replay) do(ctx context.Context, step Step) (Answer, error) {
	req, err := r.request(step)
	if err != nil {
		return Answer{}, err
	}
	a, err := r.store.Do(ctx, req)
	if err != nil {
		return Answer{}, err
	}
	r.learn(step, a)
	return a, nil
}

// request is the step with the tokens and uids of the store.
func (r *replay) request(step Step) (Request, error) {
	req := Request{Client: step.Client, Verb: step.Verb, Name: step.Name, Set: step.Set, Unset: step.Unset}
	var err error
	if req.Token, err = r.token(step); err != nil {
		return Request{}, err
	}
	if step.UID != "" {
		if req.UID, err = r.value(step.UID); err != nil {
			return Request{}, err
		}
	}
	return req, nil
}

// learn keeps the tokens and uids that an answer brought.
func (r *replay) learn(step Step, a Answer) {
	if step.Expect != nil {
		r.bind(step.Expect.Token, a.Token)
		r.bind(step.Expect.UID, a.UID)
	}
	if a.Token != "" {
		r.newest = slices.DeleteFunc(r.newest, func(h held) bool { return h.name == step.Name })
		r.newest = append(r.newest, held{step.Name, a.Token})
	}
}

func (r *replay) token(step Step) (string, error) {
	switch step.Token {
	case "":
		return "", nil
	case future:
		return r.store.Future(), nil
	case foreign:
		for _, h := range slices.Backward(r.newest) {
			if h.name != step.Name {
				return h.token, nil
			}
		}
		return "", fmt.Errorf("@foreign needs a token of an object other than %s, and no answer so far had one: create or "+
			"get another object in a step before", step.Name)
	default:
		return r.value(step.Token)
	}
}

func (r *replay) value(name string) (string, error) {
	value, ok := r.values[name]
	if !ok {
		return "", fmt.Errorf("%s is not known, because the step that should have brought it was answered otherwise", name)
	}
	return value, nil
}

func (r *replay) bind(name, value string) {
	if _, bound := r.values[name]; name == "" || value == "" || bound {
		return
	}
	if r.values == nil {
		r.values = map[string]string{}
	}
	r.values[name] = value
}

// Check compares answers with what the trace expects, as far as there are answers. The first difference is
// returned as a [*Disagreement].
func (t Trace) Check(answers []Answer) error {
	tokens, uids := names{what: "token"}, names{what: "uid"}
	for i, step := range t.Steps[:min(len(t.Steps), len(answers))] {
		e, a := step.Expect, answers[i]
		if e == nil {
			continue
		}
		d := &Disagreement{Step: i, Line: step.Line, Request: step.who() + " " + step.what()}
		switch {
		case e.Code != 0 && e.Code != a.Code, e.Reason != "" && e.Reason != a.Reason:
			d.Expected, d.Observed = e.status(), a.status()
		case e.Write == Wrote && !a.Wrote:
			d.Expected, d.Observed = "a storage write", "none"
		case e.Write == Unwritten && a.Wrote:
			d.Expected, d.Observed = "no storage write", "one"
		case e.Token != "" && !tokens.same(e.Token, a.Token):
			d.Expected, d.Observed = tokens.differ(e.Token, a.Token)
		case e.UID != "" && !uids.same(e.UID, a.UID):
			d.Expected, d.Observed = uids.differ(e.UID, a.UID)
		case e.Content != nil && !maps.Equal(e.Content, a.Content):
			d.Expected, d.Observed = "an object with "+e.Content.String(), "one with "+a.Content.String()
		default:
			continue
		}
		return d
	}
	return nil
}

// Agree compares the answers of two stores to the same trace: codes, reasons, storage writes, contents, and
// which tokens and uids equal which. What the tokens are does not matter; there must be a one-to-one renaming
// of one store's to the other's. Answers beyond the end of the shorter list are not compared. The first
// difference is returned as a [*Disagreement].
func Agree(t Trace, expected, observed []Answer) error {
	var a agreement
	for i := range min(len(t.Steps), len(expected), len(observed)) {
		if d := a.step(i, t.Steps[i], expected[i], observed[i]); d != nil {
			return d
		}
	}
	return nil
}

// Compare sends a trace to two stores, step by step, until their answers differ in what [Agree] looks at, and
// then returns a [*Disagreement]. Any other error says which step could not be sent or was lost.
func Compare(ctx context.Context, t Trace, expected, observed Store) error {
	var a agreement
	left, right := replay{store: expected}, replay{store: observed}
	for i, step := range t.Steps {
		var answers [2]Answer
		for j, r := range []*replay{&left, &right} {
			var err error
			if answers[j], err = r.do(ctx, step); err != nil {
				return fmt.Errorf("%s, %q: %w", where(i, step.Line), step.who()+" "+step.what(), err)
			}
		}
		if d := a.step(i, step, answers[0], answers[1]); d != nil {
			return d
		}
	}
	return nil
}

// agreement is what is known of the renaming between the tokens and uids of two stores. As names it uses the
// number of the step that first brought one of them.
type agreement struct {
	tokens, uids renaming
}

func (g *agreement) step(i int, step Step, expected, observed Answer) *Disagreement {
	d := &Disagreement{Step: i, Line: step.Line, Request: step.who() + " " + step.what()}
	switch {
	case expected.Code != observed.Code || expected.Reason != observed.Reason || expected.Wrote != observed.Wrote:
		d.Expected, d.Observed = expected.outcome(), observed.outcome()
	case !g.tokens.pair(i, expected.Token, observed.Token):
		d.Expected, d.Observed = g.tokens.describe("token", expected.Token, observed.Token)
	case !g.uids.pair(i, expected.UID, observed.UID):
		d.Expected, d.Observed = g.uids.describe("uid", expected.UID, observed.UID)
	case !maps.Equal(expected.Content, observed.Content):
		d.Expected, d.Observed = "an object with "+expected.Content.String(), "one with "+observed.Content.String()
	default:
		return nil
	}
	return d
}

// renaming is a one-to-one relation between the values of two stores. Each value is known by the step that
// brought it first.
type renaming struct {
	expected, observed map[string]int
}

// pair relates two values of the same step, and reports whether that fits what was related before.
func (r *renaming) pair(step int, expected, observed string) bool {
	if expected == "" || observed == "" {
		return expected == observed
	}
	if r.expected == nil {
		r.expected, r.observed = map[string]int{}, map[string]int{}
	}
	e, knownE := r.expected[expected]
	o, knownO := r.observed[observed]
	if knownE || knownO {
		return knownE && knownO && e == o
	}
	r.expected[expected], r.observed[observed] = step, step
	return true
}

func (r *renaming) describe(what, expected, observed string) (string, string) {
	one := func(known map[string]int, value string) string {
		if value == "" {
			return "no " + what
		}
		if step, ok := known[value]; ok {
			return fmt.Sprintf("the %s that step %d brought", what, step+1)
		}
		return fmt.Sprintf("a %s that was not seen before", what)
	}
	return one(r.expected, expected), one(r.observed, observed)
}

// names are the names that a trace has given, and what they were given to.
type names struct {
	what   string
	values map[string]string // by name
	of     map[string]string // names by value
}

// same gives the name to the value, or reports that one of them is taken.
func (n *names) same(name, value string) bool {
	if value == "" {
		return false
	}
	if n.values == nil {
		n.values, n.of = map[string]string{}, map[string]string{}
	}
	_, named := n.values[name]
	_, taken := n.of[value]
	if named || taken {
		return n.values[name] == value
	}
	n.values[name], n.of[value] = value, name
	return true
}

func (n *names) differ(name, value string) (expected, observed string) {
	expected = fmt.Sprintf("a new %s, to be called %s", n.what, name)
	if known, ok := n.values[name]; ok {
		expected = fmt.Sprintf("the %s %s, which is %s", n.what, name, known)
	}
	switch other, ok := n.of[value]; {
	case value == "":
		observed = "no " + n.what
	case ok:
		observed = fmt.Sprintf("%s, which is %s", value, other)
	default:
		observed = value
	}
	return expected, observed
}

func (e *Expect) status() string {
	return status(e.Code, e.Reason)
}

func (a Answer) status() string { return status(a.Code, a.Reason) }

func (a Answer) outcome() string {
	if a.Wrote {
		return a.status() + " and a storage write"
	}
	return a.status() + " and no storage write"
}

// String is the answer as a trace would have it after its arrow, with the token as it is.
func (a Answer) String() string {
	var content string
	if a.Token != "" {
		content = a.Content.String()
	}
	return join(", ", a.status(), a.Token, content)
}

func status(code int, reason string) string {
	if code == 0 {
		return reason
	}
	return join(" ", strconv.Itoa(code), reason)
}
