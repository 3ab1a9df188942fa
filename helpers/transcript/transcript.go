// Package transcript types the commands of a document into a shell and compares what the screen shows with
// what a transcript says.
//
// A transcript is a txtar archive that a person reads from top to bottom. A section is one of
//
//	type              commands, typed into the one bash of the transcript, in which they run as they stand
//	see               what the screen has shown since the last see
//	see in any order  the same, for what does not happen one after the other
//	wire              the requests that have reached etcd since the last type
//	wait              a pattern; the transcript goes on when a request matches it
//	where             what the numbers are to each other, such as: created < second < third
//
// A section of any other name is a heading, and what stands in it is for the reader.
//
// In see and wire, <name> stands for a number, and each time for the same one; … stands for any text, and for
// any number of lines where a line holds nothing else.
package transcript

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"
)

// Transcript is a transcript that can be run.
type Transcript struct {
	name  string
	text  string
	parts []part
}

// part is one section.
type part struct {
	kind  kind
	lines []string
	title string // the heading that it stands under
}

type kind string

// The sections that mean something.
const (
	typed  kind = "type"
	seen   kind = "see"
	mixed  kind = "see in any order"
	wire   kind = "wire"
	await  kind = "wait"
	where  kind = "where"
	remark kind = "" // for the reader
)

// Parse reads a transcript. name is the name of its file, for messages.
func Parse(name string, text []byte) (*Transcript, error) {
	archive := txtar.Parse(text)
	t := &Transcript{name: name, text: string(text)}
	title := ""
	for _, f := range archive.Files {
		p := part{kind: kind(f.Name), lines: lines(string(f.Data)), title: title}
		switch p.kind {
		case typed, seen, mixed, wire, await, where:
		default:
			title = f.Name
			p.kind, p.title = remark, title
		}
		if p.kind == await {
			if _, err := regexp.Compile(strings.Join(p.lines, "\n")); err != nil {
				return nil, fmt.Errorf("%s, %s: what to wait for is no pattern: %w", name, title, err)
			}
		}
		t.parts = append(t.parts, p)
	}
	if !slices.ContainsFunc(t.parts, func(p part) bool { return p.kind == typed }) {
		return nil, fmt.Errorf(`%s types nothing: give it a section "-- type --"`, name)
	}
	return t, nil
}

// Text is the whole transcript, as it was given to Parse.
func (t *Transcript) Text() string { return t.text }

// Typed are the commands of the transcript, section by section.
func (t *Transcript) Typed() []string {
	var out []string
	for _, p := range t.parts {
		if p.kind == typed {
			out = append(out, strings.Join(p.lines, "\n"))
		}
	}
	return out
}

// lines are those of a text, without empty ones at its ends.
func lines(text string) []string {
	text = strings.Trim(text, "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// numbers are the numbers that a transcript has met, by their names.
type numbers map[string]string

// anything is what stands for any text.
const anything = "…"

var numberName = regexp.MustCompile(`<([a-z][a-z0-9 ]*)>`)

// match compares a line with what is expected and returns the numbers in it that were not known before.
func (n numbers) match(expected, line string) (numbers, bool) {
	var pattern strings.Builder
	var names []string
	rest := expected
	for rest != "" {
		at := numberName.FindStringSubmatchIndex(rest)
		dots := strings.Index(rest, anything)
		switch {
		case at != nil && (dots < 0 || at[0] < dots):
			pattern.WriteString(regexp.QuoteMeta(rest[:at[0]]) + `(\d+)`)
			names = append(names, rest[at[2]:at[3]])
			rest = rest[at[1]:]
		case dots >= 0:
			pattern.WriteString(regexp.QuoteMeta(rest[:dots]) + `.*`)
			rest = rest[dots+len(anything):]
		default:
			pattern.WriteString(regexp.QuoteMeta(rest))
			rest = ""
		}
	}
	found := regexp.MustCompile(`^` + pattern.String() + `$`).FindStringSubmatch(line)
	if found == nil {
		return nil, false
	}
	fresh := numbers{}
	for i, name := range names {
		known, ok := n[name]
		if !ok {
			known, ok = fresh[name]
		}
		if ok && known != found[i+1] {
			return nil, false
		}
		fresh[name] = found[i+1]
	}
	return fresh, true
}

func (n numbers) with(fresh numbers) numbers {
	both := make(numbers, len(n)+len(fresh))
	for _, some := range []numbers{n, fresh} {
		for name, value := range some {
			both[name] = value
		}
	}
	return both
}

// inOrder compares lines with what is expected, one after the other.
func (n numbers) inOrder(expected, got []string) (numbers, bool) {
	if len(expected) == 0 {
		return n, len(got) == 0
	}
	if strings.TrimSpace(expected[0]) == anything {
		for skip := range len(got) + 1 {
			if all, ok := n.inOrder(expected[1:], got[skip:]); ok {
				return all, true
			}
		}
		return nil, false
	}
	if len(got) == 0 {
		return nil, false
	}
	fresh, ok := n.match(expected[0], got[0])
	if !ok {
		return nil, false
	}
	return n.with(fresh).inOrder(expected[1:], got[1:])
}

// inAnyOrder compares lines with what is expected, each with one of the others.
func (n numbers) inAnyOrder(expected, got []string) (numbers, bool) {
	if len(expected) == 0 {
		return n, len(got) == 0
	}
	for i, line := range got {
		fresh, ok := n.match(expected[0], line)
		if !ok {
			continue
		}
		if all, ok := n.with(fresh).inAnyOrder(expected[1:], slices.Delete(slices.Clone(got), i, i+1)); ok {
			return all, true
		}
	}
	return nil, false
}

// chain checks that what a line such as "created < second < third" says is so.
func (n numbers) chain(line string) error {
	var last int64
	for i, name := range strings.Split(line, "<") {
		name = strings.TrimSpace(name)
		text, ok := n[name]
		if !ok {
			return fmt.Errorf("there is no number <%s> in what was seen before", name)
		}
		value, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("<%s> is %s: %w", name, text, err)
		}
		if i > 0 && value <= last {
			return fmt.Errorf("expected %s, and <%s> is %d after %d", line, name, value, last)
		}
		last = value
	}
	return nil
}
