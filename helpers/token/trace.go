package token

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Content is the fields of an object.
type Content map[string]string

// String lists the fields in alphabetical order, as a trace does: "color=red size=2". No fields are "empty".
func (c Content) String() string {
	if len(c) == 0 {
		return "empty"
	}
	return strings.Join(c.words(), " ")
}

func (c Content) words() []string {
	words := make([]string, 0, len(c))
	for _, field := range slices.Sorted(maps.Keys(c)) {
		words = append(words, field+"="+c[field])
	}
	return words
}

// The names that stand for tokens without having been given to one; see the format of a trace.
const (
	future  = "future"
	foreign = "foreign"
)

// Trace is a list of requests to one [Store], with what their answers should be. The package documentation
// describes its text.
type Trace struct {
	// About is the comment above the first line: what the trace is there to show.
	About []string
	// Kind is the kind of all objects.
	Kind Kind
	// Steps are the requests, in the order in which they are sent; each is answered before the next.
	Steps []Step
}

// Step is one request of a [Trace]. Tokens and uids have the names that the trace gives them.
type Step struct {
	Line   int // the line of the text that it was read from, or 0
	Client string
	Verb   Verb
	Name   string
	Set    Content
	Unset  []string
	Token  string  // "t1" for a token that a step before names, "future", "foreign", "" for none
	UID    string  // "u1" for a uid that a step before names, "" for none
	Expect *Expect // what the answer should be; nil for anything
}

// Expect is what the answer to a [Step] should be. A zero field stands for anything.
type Expect struct {
	Code    int
	Reason  string
	Token   string // the name of the token in the answer
	UID     string // the name of the uid in the answer
	Write   Write
	Content Content // not nil: exactly these fields
}

// Write is whether a storage write is expected. The zero Write stands for either.
type Write string

// The expectations of a storage write.
const (
	Wrote     Write = "wrote"
	Unwritten Write = "unwritten"
)

// String is the step as a line of a trace.
func (s Step) String() string {
	line := s.who() + " " + s.what()
	if s.Expect != nil {
		line += "  -> " + s.Expect.String()
	}
	return line
}

func (s Step) who() string { return s.Client + ":" }

// what is the request without its sender, and without what is expected.
func (s Step) what() string {
	return words(s.Verb, s.Name, s.Set, s.Unset, s.Token, s.UID)
}

func words(verb Verb, name string, set Content, unset []string, token, uid string) string {
	words := append([]string{string(verb), name}, set.words()...)
	for _, field := range unset {
		words = append(words, "-"+field)
	}
	if token != "" {
		words = append(words, "@"+token)
	}
	if uid != "" {
		words = append(words, "%"+uid)
	}
	return strings.Join(words, " ")
}

// String is the request as a line of a trace would have it, with the tokens and uids that are sent.
func (r Request) String() string {
	what := words(r.Verb, r.Name, r.Set, r.Unset, r.Token, r.UID)
	if r.Client == "" {
		return what
	}
	return r.Client + ": " + what
}

// String is what follows the arrow in a trace.
func (e *Expect) String() string {
	var status, object []string
	if e.Code != 0 {
		status = append(status, fmt.Sprint(e.Code))
	}
	if e.Reason != "" {
		status = append(status, e.Reason)
	}
	for _, word := range []string{e.Token, e.UID, string(e.Write)} {
		if word != "" {
			object = append(object, word)
		}
	}
	if e.Content != nil {
		object = append(object, e.Content.String())
	}
	return join(", ", strings.Join(status, " "), strings.Join(object, " "))
}

// String is the trace as text, which [Parse] reads back. It can be kept as a file and replayed.
func (t Trace) String() string {
	var b strings.Builder
	for _, line := range t.About {
		fmt.Fprintln(&b, strings.TrimSpace("# "+line))
	}
	kind := t.Kind
	if kind == "" {
		kind = ConfigMap
	}
	fmt.Fprintf(&b, "kind %s\n", kind)
	var who, what int
	for _, s := range t.Steps {
		who = max(who, len(s.who()))
		what = max(what, len(s.what()))
	}
	for _, s := range t.Steps {
		line := fmt.Sprintf("%-*s %s", who, s.who(), s.what())
		if s.Expect != nil {
			line = fmt.Sprintf("%-*s  -> %s", who+1+what, line, s.Expect)
		}
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	return b.String()
}

// GoString is the trace as text on lines of its own, so that it reads well in the output of rapid.
func (t Trace) GoString() string { return "\n" + t.String() }

// join puts separator between the parts that are not empty.
func join(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), separator)
}
