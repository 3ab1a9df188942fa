// Package notebook is what the documents ask the reader to write down, written down by the run: the paired
// numbers, the exact sentence of a refusal, the place of the compare, and for each claim the requests that
// showed it. It is Markdown that renders on a code host, with a sequence diagram for each forced race.
//
// Two runs of the book make notebooks that differ in their numbers only.
package notebook

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"modrev/helpers/wire"
)

// Page is what one lesson leaves in the notebook.
type Page struct {
	File string // the file of the lesson, one of Notebook.Chapters
	Line int    // and where in it the lesson stands
	Test string // the name of the test
	ID   string // of the claim
	Says string // the claim
	From string // the document it comes from
	Read string // the upstream function
	Why  string

	Erratum string      // how the document differs
	Lines   []string    // what the lesson printed
	Steps   []wire.Step // what was sent
	Tape    []string    // the same as text
}

// Chapter is one file of the book.
type Chapter struct {
	File  string // "conflict_test.go"
	Title string
	Intro string // a few sentences on what the chapter is about
}

// Notebook collects the pages of a run. The zero value is empty and ready; it is safe for concurrent use.
type Notebook struct {
	// Chapters is the book in reading order; pages stand in it. It is set before the first page is added.
	Chapters []Chapter

	mu    sync.Mutex
	pages map[string]Page
	facts map[string][]string
}

// Add puts a page into the notebook, in place of an earlier one of the same claim.
func (n *Notebook) Add(p Page) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pages == nil {
		n.pages = make(map[string]Page)
	}
	n.pages[p.ID] = p
}

// The headings under which the first document asks the reader to write something down.
const (
	PairedNumbers = "The paired numbers"
	TheRefusal    = "The exact 409 sentence"
	TheCompare    = "File and function of the compare"
	TheSentence   = "The sentence, completed"
)

// WriteDown writes the lines that a document asks for under their heading, in place of earlier ones.
func (n *Notebook) WriteDown(heading string, lines ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.facts == nil {
		n.facts = make(map[string][]string)
	}
	n.facts[heading] = slices.Clone(lines)
}

// Fact is what was written down under a heading, and whether anything was.
func (n *Notebook) Fact(heading string) ([]string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines, ok := n.facts[heading]
	return lines, ok
}

// Page is the page of a claim, and whether there is one.
func (n *Notebook) Page(id string) (Page, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.pages[id]
	return p, ok
}

// Chapter is the number of the chapter that a file holds, counted from 1; 0 if it holds none.
func (n *Notebook) Chapter(file string) int {
	return 1 + slices.IndexFunc(n.Chapters, func(c Chapter) bool { return c.File == file })
}

// Empty says whether nothing was written down.
func (n *Notebook) Empty() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.pages) == 0
}

// WriteTo writes the notebook as Markdown.
func (n *Notebook) WriteTo(w io.Writer) (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var b strings.Builder
	b.WriteString("# Notebook\n\nWritten by a run of the book.\n\n## What the first document asks you to write down\n")
	for _, heading := range []string{PairedNumbers, TheRefusal, TheCompare, TheSentence} {
		fmt.Fprintf(&b, "\n### %s\n\n", heading)
		if lines := n.facts[heading]; len(lines) > 0 {
			block(&b, "", lines)
		} else {
			b.WriteString("(The lesson that shows it was not part of this run.)\n")
		}
	}
	b.WriteString("\n## The claims, and the requests that showed them\n")
	pages := slices.SortedFunc(maps.Values(n.pages), func(a, b Page) int {
		return cmp.Or(
			cmp.Compare(n.Chapter(a.File), n.Chapter(b.File)),
			cmp.Compare(a.Line, b.Line), cmp.Compare(a.ID, b.ID))
	})
	for _, p := range pages {
		fmt.Fprintf(&b, "\n### %s · %s\n\n", p.ID, strings.TrimSpace(p.Says))
		fmt.Fprintf(&b, "From %s. Why it matters: %s. Upstream: `%s`.\n", p.From, p.Why, p.Read)
		if p.Erratum != "" {
			fmt.Fprintf(&b, "\n**Erratum:** %s\n", p.Erratum)
		}
		if len(p.Lines) > 0 {
			b.WriteString("\n")
			block(&b, "", p.Lines)
		}
		if d := Diagram(p.Steps); d != "" {
			b.WriteString("\n```mermaid\n" + d + "```\n")
		}
		if len(p.Tape) > 0 {
			b.WriteString("\n<details><summary>The whole tape</summary>\n\n")
			block(&b, "", p.Tape)
			b.WriteString("\n</details>\n")
		}
	}
	m, err := io.WriteString(w, b.String())
	return int64(m), err
}

func block(b *strings.Builder, language string, lines []string) {
	b.WriteString("```" + language + "\n" + strings.Join(lines, "\n") + "\n```\n")
}

// longest is how many steps a diagram has at the most; a longer one is cut in the middle.
const longest = 40

// Diagram draws the steps of a forced race as a Mermaid sequence diagram; "" if they hold none.
func Diagram(steps []wire.Step) string {
	if !slices.ContainsFunc(steps, func(s wire.Step) bool { return s.Ask != nil && s.Ask.Raced }) {
		return ""
	}
	var who, servers []string
	for _, s := range steps {
		switch {
		case s.Call != nil && !slices.Contains(who, s.Call.Who):
			who = append(who, s.Call.Who)
		case s.Ask != nil && !slices.Contains(servers, s.Ask.From):
			servers = append(servers, s.Ask.From)
		}
	}
	if len(who) == 0 {
		return ""
	}
	if len(servers) == 0 {
		servers = []string{"apiserver"}
	}
	var b strings.Builder
	b.WriteString("sequenceDiagram\n")
	for _, w := range who {
		fmt.Fprintf(&b, "    participant %s\n", id(w))
	}
	for _, s := range servers {
		fmt.Fprintf(&b, "    participant %s as kube-apiserver%s\n", id(s), map[bool]string{true: "", false: " (" + s + ")"}[s == "apiserver"])
	}
	b.WriteString("    participant etcd\n")
	skip := len(steps) - longest
	for i, s := range steps {
		if skip > 0 && i >= longest/2 && i < longest/2+skip {
			if i == longest/2 {
				fmt.Fprintf(&b, "    Note over etcd: %d steps like these\n", skip)
			}
			continue
		}
		switch {
		case s.Call != nil:
			fmt.Fprintf(&b, "    %s->>%s: %s\n", id(s.Call.Who), id(servers[0]), text(s.Call.Title()))
		case s.Ask != nil:
			fmt.Fprintf(&b, "    %s->>etcd: %s\n", id(s.Ask.From), text(s.Ask.Question()))
			if s.Ask.Note != "" {
				fmt.Fprintf(&b, "    Note over etcd: %s\n", text(s.Ask.Note))
			}
		case s.Reply != nil:
			fmt.Fprintf(&b, "    etcd-->>%s: %s\n", id(s.Reply.From), text(s.Reply.Outcome()))
		case s.Answer != nil:
			fmt.Fprintf(&b, "    %s-->>%s: %s\n", id(servers[0]), id(s.Answer.Who), text(s.Answer.Outcome()))
		default:
			fmt.Fprintf(&b, "    Note over etcd: %s\n", text(s.Remark))
		}
	}
	return b.String()
}

// id makes a name that Mermaid takes for a participant.
func id(name string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' || r == ':' || r == ';' {
			return '_'
		}
		return r
	}, name)
}

// text makes a text that Mermaid does not take for more than text.
func text(s string) string {
	return strings.NewReplacer(";", ",", "#", "no. ", "\n", " ", "{", "(", "}", ")").Replace(s)
}
