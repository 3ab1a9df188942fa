package token

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"pgregory.net/rapid"
)

// Draw makes a trace of objects of one kind, for use in a property that rapid checks. Each step is chosen in
// view of what the model holds after the steps before: it may carry the current token, an old one, one of
// another object, one that does not exist yet, or none; the right uid, a wrong one, or none; the content that
// is stored already, or other. What is expected of each step is what the model answers.
//
// The trace has objects of at most names names, and steps steps at most (a rapid flag, -rapid.steps, says how
// many on average). When a property fails, rapid shortens the trace and prints it in the format of a trace.
func Draw(t *rapid.T, kind Kind, names, steps int) Trace {
	return Generator(kind, names, steps).Draw(t, "trace")
}

// Generator is the generator behind [Draw].
func Generator(kind Kind, names, steps int) *rapid.Generator[Trace] {
	return rapid.Custom(func(t *rapid.T) Trace {
		d := drawing{scribe: newScribe(kind), names: objectNames(names)}
		actions := map[string]func(*rapid.T){
			"1 create":                d.create,
			"2 get":                   d.get,
			"3 replace":               d.replace,
			"4 replace, checked":      d.replaceChecked,
			"5 replace by the same":   d.replaceSame,
			"6 patch":                 d.patch,
			"7 patch, checked":        d.patchChecked,
			"8 delete, maybe checked": d.delete,
		}
		for name, action := range actions {
			actions[name] = func(t *rapid.T) {
				if len(d.trace.Steps) < steps {
					action(t)
				}
			}
		}
		t.Repeat(actions)
		return d.trace
	})
}

func objectNames(n int) []string {
	names := []string{"shelf", "note", "lamp"}
	for i := len(names); i < n; i++ {
		names = append(names, fmt.Sprintf("thing%d", i+1))
	}
	return names[:max(n, 1)]
}

// drawing is a trace in the making.
type drawing struct {
	*scribe
	names []string
}

// start draws who acts on what. It sees to it that not too many steps end at "not found" or "already exists":
// the names that would not are more likely, and while nothing exists one failure in a row is enough.
func (d *drawing) start(t *rapid.T, verb Verb) Step {
	names := slices.Clone(d.names)
	exists := false
	for _, name := range d.names {
		here := d.model.Object(name).Exists()
		exists = exists || here
		if here == (verb != Create) {
			names = append(names, name, name, name, name)
		}
	}
	if n := len(d.trace.Steps); n > 0 && !exists && verb != Create &&
		d.trace.Steps[n-1].Expect.Code == http.StatusNotFound {
		t.Skip("nothing exists, and the step before has shown what that means")
	}
	return Step{
		Client: rapid.SampledFrom([]string{"alice", "bob", "carol"}).Draw(t, "client"),
		Verb:   verb,
		Name:   rapid.SampledFrom(names).Draw(t, "name"),
	}
}

func (d *drawing) create(t *rapid.T) {
	s := d.start(t, Create)
	s.Set = drawContent(t)
	d.write(s)
}

func (d *drawing) get(t *rapid.T) { d.write(d.start(t, Get)) }

func (d *drawing) replace(t *rapid.T) {
	s := d.start(t, Replace)
	s.Set = drawContent(t)
	d.write(s)
}

func (d *drawing) replaceChecked(t *rapid.T) {
	s := d.start(t, Replace)
	s.Set = drawContent(t)
	s.Token, s.UID = d.drawCheck(t, s.Name)
	d.write(s)
}

func (d *drawing) replaceSame(t *rapid.T) {
	s := d.start(t, Replace)
	s.Set = maps.Clone(d.model.Object(s.Name).Content)
	s.Token = d.drawToken(t, s.Name)
	d.write(s)
}

func (d *drawing) patch(t *rapid.T) {
	s := d.start(t, Patch)
	s.Set, s.Unset = drawPatch(t)
	d.write(s)
}

func (d *drawing) patchChecked(t *rapid.T) {
	s := d.start(t, Patch)
	s.Set, s.Unset = drawPatch(t)
	s.Token, s.UID = d.drawCheck(t, s.Name)
	d.write(s)
}

func (d *drawing) delete(t *rapid.T) {
	s := d.start(t, Delete)
	s.Token, s.UID = d.drawCheck(t, s.Name)
	d.write(s)
}

// drawToken chooses among the kinds of tokens that there are for the object, and then among the tokens of that
// kind.
func (d *drawing) drawToken(t *rapid.T, name string) string {
	var current, old, others []string
	for _, n := range d.tokens.order {
		switch {
		case n.value == d.model.Object(name).Token:
			current = append(current, n.name)
		case n.object == name:
			old = append(old, n.name)
		default:
			others = append(others, n.name)
		}
	}
	choices := [][]string{{""}, current, current, old, others, {future}}
	choices = slices.DeleteFunc(choices, func(c []string) bool { return len(c) == 0 })
	return rapid.SampledFrom(rapid.SampledFrom(choices).Draw(t, "kind of token")).Draw(t, "token")
}

// drawCheck chooses what a request asks for: a token, a uid, or both. A wrong uid is best seen beside a right
// token, so that this comes up often enough.
func (d *drawing) drawCheck(t *rapid.T, name string) (token, uid string) {
	switch rapid.SampledFrom([]string{"token", "token", "uid", "both", "current token and uid"}).Draw(t, "check by") {
	case "token":
		return d.drawToken(t, name), ""
	case "uid":
		return "", d.drawUID(t, name)
	case "both":
		return d.drawToken(t, name), d.drawUID(t, name)
	default:
		return d.tokens.known(d.model.Object(name).Token), d.drawUID(t, name)
	}
}

// drawUID chooses the uid of the object, of one that had its name, or of another, if there is any.
func (d *drawing) drawUID(t *rapid.T, name string) string {
	var current, wrong []string
	for _, n := range d.uids.order {
		if n.value == d.model.Object(name).UID {
			current = append(current, n.name)
		} else {
			wrong = append(wrong, n.name)
		}
	}
	choices := slices.DeleteFunc([][]string{current, wrong}, func(c []string) bool { return len(c) == 0 })
	if len(choices) == 0 {
		return ""
	}
	return rapid.SampledFrom(rapid.SampledFrom(choices).Draw(t, "kind of uid")).Draw(t, "uid")
}

func drawContent(t *rapid.T) Content {
	c := Content{"color": rapid.SampledFrom([]string{"red", "blue", "green"}).Draw(t, "color")}
	if size := rapid.SampledFrom([]string{"", "", "1", "2"}).Draw(t, "size"); size != "" {
		c["size"] = size
	}
	return c
}

func drawPatch(t *rapid.T) (set Content, unset []string) {
	if color := rapid.SampledFrom([]string{"", "red", "blue"}).Draw(t, "color"); color != "" {
		set = Content{"color": color}
	}
	switch size := rapid.SampledFrom([]string{"", "1", "2", "-"}).Draw(t, "size"); size {
	case "":
	case "-":
		unset = []string{"size"}
	default:
		if set == nil {
			set = Content{}
		}
		set["size"] = size
	}
	return set, unset
}

// SleepingWriter is the trace of a writer that reads an object, sleeps while another writes it that many
// times, and then writes with the token that it has read.
func SleepingWriter(kind Kind, writes int) Trace {
	s := newScribe(kind)
	s.trace.About = []string{fmt.Sprintf("Alice reads, and sleeps through %d writes of Bob. Then she writes with the "+
		"token that she has.", writes)}
	s.write(Step{Client: "bob", Verb: Create, Name: "shelf", Set: Content{"writes": "0"}})
	s.write(Step{Client: "alice", Verb: Get, Name: "shelf"})
	for i := range writes {
		current := s.tokens.order[len(s.tokens.order)-1].name
		s.write(Step{
			Client: "bob", Verb: Replace, Name: "shelf", Token: current,
			Set: Content{"writes": fmt.Sprint(i + 1)},
		})
	}
	s.write(Step{
		Client: "alice", Verb: Replace, Name: "shelf", Token: s.tokens.order[0].name,
		Set: Content{"writes": "0", "alice": "was-here"},
	})
	return s.trace
}

// scribe writes a trace: it asks the model for the answer to each step and writes it down as what is expected,
// with names for the tokens and uids.
type scribe struct {
	model        *Model
	replay       replay
	trace        Trace
	tokens, uids naming
}

func newScribe(kind Kind) *scribe {
	model := &Model{Kind: kind}
	return &scribe{
		model: model, replay: replay{store: model}, trace: Trace{Kind: kind},
		tokens: naming{prefix: "t"}, uids: naming{prefix: "u"},
	}
}

func (s *scribe) write(step Step) {
	req, err := s.replay.request(step)
	if err == nil {
		var a Answer
		if a, err = s.model.Do(context.Background(), req); err == nil {
			e := &Expect{Code: a.Code, Reason: a.Reason, Token: s.tokens.name(step.Name, a.Token)}
			if a.Code == http.StatusCreated {
				e.UID = s.uids.name(step.Name, a.UID)
			}
			if a.Code == http.StatusOK && (step.Verb == Get || step.Verb == Patch) {
				e.Content = Content{}
				maps.Copy(e.Content, a.Content)
			}
			if a.Reason == "" && step.Verb != Get && !a.Wrote {
				e.Write = Unwritten
			}
			step.Expect = e
			s.replay.learn(step, a)
		}
	}
	if err != nil {
		// The steps of this package name only what they have been told.
		panic(fmt.Sprintf("writing the step %q: %v", step, err))
	}
	s.trace.Steps = append(s.trace.Steps, step)
}

// naming gives the names t1, t2 … to tokens, or u1, u2 … to uids.
type naming struct {
	prefix string
	order  []named
}

type named struct{ name, value, object string }

func (n *naming) name(object, value string) string {
	if name := n.known(value); name != "" || value == "" {
		return name
	}
	name := fmt.Sprintf("%s%d", n.prefix, len(n.order)+1)
	n.order = append(n.order, named{name, value, object})
	return name
}

func (n *naming) known(value string) string {
	for _, known := range n.order {
		if known.value == value {
			return known.name
		}
	}
	return ""
}
