package token

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// SyntaxError is a line of a trace that cannot be read.
type SyntaxError struct {
	File     string // as it was opened; "" if the text came from elsewhere
	Line     int    // counts from 1
	Found    string // what is there
	Expected string // what should be there
}

// Error is one sentence: where, what is there, and what was expected.
func (e *SyntaxError) Error() string {
	where := fmt.Sprintf("line %d", e.Line)
	if e.File != "" {
		where = fmt.Sprintf("%s, line %d", e.File, e.Line)
	}
	return fmt.Sprintf("%s: found %s, expected %s", where, e.Found, e.Expected)
}

func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// ReadFile reads a trace from a file.
func ReadFile(path string) (Trace, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Trace{}, fmt.Errorf("reading a trace: %w: name a file such as those in helpers/token/traces", err)
	}
	return parseFile(path, text)
}

func parseFile(path string, text []byte) (Trace, error) {
	t, err := Parse(text)
	var syntax *SyntaxError
	if errors.As(err, &syntax) {
		syntax.File = path
	}
	return t, err
}

// Parse reads a trace from its text. The error of a text that is not a trace is a [SyntaxError].
func Parse(text []byte) (Trace, error) {
	p := parser{trace: Trace{}, named: map[string]bool{}}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if err := p.line(number, line); err != nil {
			return Trace{}, err
		}
	}
	if p.trace.Kind == "" {
		return Trace{}, &SyntaxError{Line: number + 1, Found: "the end of the text", Expected: expectKind}
	}
	return p.trace, nil
}

const (
	expectKind  = `the first line, "kind" and one of configmap, lease, customresource`
	example     = `"alice: replace shelf color=blue @t1 -> 200, t2"`
	expectVerb  = "a verb: create, get, replace, patch or delete"
	expectAfter = "a status such as 200, a reason such as Conflict, a token such as t1, a uid such as u1, wrote, " +
		"unwritten, empty or a field such as color=red"
	expectName  = "made of lower-case letters, digits and dashes, with a letter first"
	expectValue = "letters, digits, dashes, dots and underscores after the ="
)

var (
	aName     = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	aValue    = regexp.MustCompile(`^[-._A-Za-z0-9]+$`)
	aCode     = regexp.MustCompile(`^[1-5][0-9][0-9]$`)
	aReason   = regexp.MustCompile(`^[A-Z][A-Za-z]*$`)
	aTokenRef = regexp.MustCompile(`^t[1-9][0-9]*$`)
	aUIDRef   = regexp.MustCompile(`^u[1-9][0-9]*$`)
)

type parser struct {
	trace Trace
	named map[string]bool // the names that tokens and uids have been given so far
}

func uncomment(line string) string {
	line, _, _ = strings.Cut(line, "#")
	return line
}

func (p *parser) line(number int, line string) error {
	if !isText([]byte(line)) {
		return &SyntaxError{Line: number, Found: "bytes that are no text", Expected: "a trace in UTF-8"}
	}
	if trimmed := strings.TrimSpace(line); p.trace.Kind == "" && strings.HasPrefix(trimmed, "#") {
		p.trace.About = append(p.trace.About, strings.TrimSpace(trimmed[1:]))
		return nil
	}
	words := strings.Fields(uncomment(line))
	if len(words) == 0 {
		return nil
	}
	failed := func(found, expected string) error {
		return &SyntaxError{Line: number, Found: found, Expected: expected}
	}
	if p.trace.Kind == "" {
		if len(words) != 2 || words[0] != "kind" || !slices.Contains(Kinds(), Kind(words[1])) {
			return failed(strconv.Quote(strings.Join(words, " ")), expectKind)
		}
		p.trace.Kind = Kind(words[1])
		return nil
	}
	request, expected := words, []string(nil)
	arrow := slices.Index(words, "->")
	if arrow >= 0 {
		request, expected = words[:arrow], words[arrow+1:]
	}
	step, found, want := p.request(request)
	if want != "" {
		return failed(found, want)
	}
	step.Line = number
	if arrow >= 0 {
		if step.Expect, found, want = p.expect(expected); want != "" {
			return failed(found, want)
		}
	}
	p.trace.Steps = append(p.trace.Steps, step)
	return nil
}

// request reads what stands before the arrow. If it cannot, it returns what it found and what it wanted.
func (p *parser) request(words []string) (step Step, found, want string) {
	for i, word := range words {
		switch i {
		case 0:
			client, isClient := strings.CutSuffix(word, ":")
			if !isClient {
				return step, strconv.Quote(word), "a client and a colon, as in " + example
			}
			if !aName.MatchString(client) {
				return step, strconv.Quote(word), "a client's name, " + expectName
			}
			step.Client = client
		case 1:
			step.Verb = Verb(word)
			if !slices.Contains([]Verb{Create, Get, Replace, Patch, Delete}, step.Verb) {
				return step, strconv.Quote(word), expectVerb
			}
		case 2:
			if !aName.MatchString(word) {
				return step, strconv.Quote(word), "an object's name, " + expectName
			}
			step.Name = word
		default:
			if found, want = p.argument(&step, word); want != "" {
				return step, found, want
			}
		}
	}
	switch len(words) {
	case 0:
		return step, "no request", "one, as in " + example
	case 1:
		return step, "nothing after " + strconv.Quote(words[0]), expectVerb
	case 2:
		return step, "nothing after " + strconv.Quote(words[1]), "an object's name"
	}
	slices.Sort(step.Unset)
	return step, "", ""
}

func (p *parser) argument(step *Step, word string) (found, want string) {
	quoted := strconv.Quote(word)
	if name, isToken := strings.CutPrefix(word, "@"); isToken {
		switch {
		case step.Verb == Create || step.Verb == Get:
			return quoted, fmt.Sprintf("no token: a %s does not take one", step.Verb)
		case step.Token != "":
			return quoted + " after @" + step.Token, "one token at most"
		case name == "none":
		case name == future || name == foreign || p.named[name] && aTokenRef.MatchString(name):
			step.Token = name
		case aTokenRef.MatchString(name):
			return quoted, fmt.Sprintf("a token that a line above has after its arrow, and none has %s", name)
		default:
			return quoted, "@ and a token: t1, t2 and so on, none, future or foreign"
		}
		return "", ""
	}
	if name, isUID := strings.CutPrefix(word, "%"); isUID {
		switch {
		case step.Verb == Create || step.Verb == Get:
			return quoted, fmt.Sprintf("no uid: a %s does not take one", step.Verb)
		case step.UID != "":
			return quoted + " after %" + step.UID, "one uid at most"
		case !aUIDRef.MatchString(name):
			return quoted, "% and a uid: u1, u2 and so on"
		case !p.named[name]:
			return quoted, fmt.Sprintf("a uid that a line above has after its arrow, and none has %s", name)
		}
		step.UID = name
		return "", ""
	}
	removed, isRemoval := strings.CutPrefix(word, "-")
	field, value, isField := strings.Cut(word, "=")
	if !isField && isRemoval {
		switch {
		case step.Verb != Patch:
			return quoted, fmt.Sprintf("no removal of a field: only a patch does that, and this is a %s", step.Verb)
		case !aName.MatchString(removed):
			return quoted, "- and a field's name, " + expectName
		case mentions(*step, removed):
			return quoted, fmt.Sprintf("one mention of the field %s at most", removed)
		}
		step.Unset = append(step.Unset, removed)
		return "", ""
	}
	switch {
	case !isField:
		return quoted, "a field such as color=red, a token such as @t1, a uid such as %u1, or the arrow ->"
	case step.Verb == Get || step.Verb == Delete:
		return quoted, fmt.Sprintf("no fields: a %s does not take any", step.Verb)
	case mentions(*step, field):
		return quoted, fmt.Sprintf("one mention of the field %s at most", field)
	}
	return put(&step.Set, field, value)
}

func mentions(s Step, field string) bool {
	_, set := s.Set[field]
	return set || slices.Contains(s.Unset, field)
}

func put(c *Content, field, value string) (found, want string) {
	switch {
	case !aName.MatchString(field):
		return strconv.Quote(field + "=" + value), "before the = a field's name, " + expectName
	case !aValue.MatchString(value):
		return strconv.Quote(field + "=" + value), expectValue
	}
	if *c == nil {
		*c = Content{}
	}
	(*c)[field] = value
	return "", ""
}

// expect reads what follows the arrow.
func (p *parser) expect(words []string) (e *Expect, found, want string) {
	e = &Expect{}
	separated := strings.FieldsFunc(strings.Join(words, " "), func(r rune) bool { return r == ' ' || r == ',' })
	if len(separated) == 0 {
		return nil, "nothing after the arrow", expectAfter
	}
	empty := false
	for _, word := range separated {
		quoted := strconv.Quote(word)
		var before string // what the trace has said of the same thing already
		switch field, value, isField := strings.Cut(word, "="); {
		case isField:
			if _, twice := e.Content[field]; twice || empty {
				return nil, quoted, "each field once, or empty"
			}
			if found, want = put(&e.Content, field, value); want != "" {
				return nil, found, want
			}
		case word == "empty":
			if e.Content != nil {
				return nil, quoted, "each field once, or empty"
			}
			empty, e.Content = true, Content{}
		case word == string(Wrote) || word == string(Unwritten):
			before, e.Write = string(e.Write), Write(word)
		case aCode.MatchString(word):
			if e.Code != 0 {
				before = strconv.Itoa(e.Code)
			}
			e.Code, _ = strconv.Atoi(word)
		case aReason.MatchString(word):
			before, e.Reason = e.Reason, word
		case aTokenRef.MatchString(word):
			before, e.Token = e.Token, word
			p.named[word] = true
		case aUIDRef.MatchString(word):
			before, e.UID = e.UID, word
			p.named[word] = true
		default:
			return nil, quoted, "after the arrow " + expectAfter
		}
		if before != "" {
			return nil, quoted + " after " + strconv.Quote(before), "one of them"
		}
	}
	return e, "", ""
}
