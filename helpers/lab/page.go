package lab

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"modrev/helpers/wire"
)

// Width is how many columns a line of the book has.
const Width = 100

// page is what a run of a lesson has to tell.
type page struct {
	lines []string
}

// Page is what the lesson has said so far, line by line.
func (l *Lab) Page() []string { return l.page.lines }

// Say writes a paragraph onto the page.
func (l *Lab) Say(format string, args ...any) {
	l.page.lines = append(l.page.lines, Wrap(fmt.Sprintf(format, args...), Width-4)...)
}

// Quote writes a text onto the page line by line as it stands; what is too wide goes on, deeper, in the next
// line.
func (l *Lab) Quote(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		depth := len(line) - len(strings.TrimLeft(line, " "))
		l.page.lines = append(l.page.lines, hang(line[:depth], line)...)
	}
}

// Line writes one line onto the page as it stands.
func (l *Lab) Line(format string, args ...any) {
	l.page.lines = append(l.page.lines, fmt.Sprintf(format, args...))
}

// Blank writes an empty line onto the page.
func (l *Lab) Blank() { l.page.lines = append(l.page.lines, "") }

// Show writes requests to etcd onto the page, under a heading that says what caused them.
func (l *Lab) Show(what string, seen wire.Requests) {
	if n := len(l.page.lines); n > 0 && l.page.lines[n-1] != "" && !strings.HasPrefix(l.page.lines[n-1], "      ") {
		l.Blank()
	}
	l.page.lines = append(l.page.lines, "wire  "+what)
	if len(seen) == 0 {
		l.page.lines = append(l.page.lines, "      (no request reaches etcd)")
	}
	several := slices.ContainsFunc(seen, func(r wire.Request) bool { return r.From != seen[0].From })
	for _, r := range seen {
		from := ""
		if several { // with more than one apiserver, it matters which one asks
			from = r.From + ": "
		}
		l.page.lines = append(l.page.lines, hang("      ", from+r.String())...)
	}
}

// Table is a table on the page: numbers stand right, words left.
type Table struct {
	lab  *Lab
	head []string
	rows [][]string
}

// Table begins a table with the given column heads; End puts it onto the page.
func (l *Lab) Table(head ...string) *Table { return &Table{lab: l, head: head} }

// Row adds a row; values are printed as fmt.Sprint does.
func (t *Table) Row(values ...any) {
	row := make([]string, len(values))
	for i, v := range values {
		row[i] = fmt.Sprint(v)
	}
	t.rows = append(t.rows, row)
}

// End puts the table onto the page.
func (t *Table) End() {
	if len(t.lab.page.lines) > 0 {
		t.lab.Blank()
	}
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(t.head, "\t"))
	for _, row := range t.rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	tw.Flush() // a strings.Builder does not fail
	for line := range strings.Lines(b.String()) {
		t.lab.page.lines = append(t.lab.page.lines, strings.TrimRight(line, " \n"))
	}
}

// Wrap breaks a text into lines of at most width columns.
func Wrap(text string, width int) []string {
	var out []string
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := ""
		for word := range strings.FieldsSeq(paragraph) {
			switch {
			case line == "":
				line = word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
				line += " " + word
			default:
				out = append(out, line)
				line = word
			}
		}
		out = append(out, line)
	}
	return out
}

// hang breaks a text so that later lines stand deeper than the first.
func hang(indent, text string) []string {
	lines := Wrap(text, Width-4-len(indent)-4)
	for i := range lines {
		if i == 0 {
			lines[i] = indent + lines[i]
		} else {
			lines[i] = indent + "    " + lines[i]
		}
	}
	return lines
}
