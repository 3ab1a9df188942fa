// Package page renders a record as the pages that go test -v prints: plain text of at most [Width] columns.
package page

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"modrev/helpers/record"
)

// Width is how many columns a line of the book has. go test puts four of them before what a test prints.
const Width = 100

const (
	inner     = Width - 4 // what is left of a line within a test
	fieldName = 10        // the column of EXPECTED, OBSERVED and their like
	indented  = "      "  // before what happened in a false world
	shownWire = 6         // lines of the tape in the first false world
	allWire   = 60        // lines of the tape when a lesson fails in earnest
)

// Legend is what a reader needs to know before the first page.
const Legend = `How to read this. Each lesson states a claim and shows it on a real kube-apiserver and a real etcd.
D1 and D2 are the two documents behind the book: "resourceVersion is etcd's mod_revision" and
"treat resourceVersion as an opaque token".

  token             a resourceVersion, as a client holds and sends it
  writer, rival     two clients with the same rights; others have names that say who they are
  shelf, Shelf      the object of most lessons: a ConfigMap, or a custom resource of its own
  fence             an object written last: once its event has come, no earlier one is on its way
  wire              what kube-apiserver asked etcd, and what etcd answered:
    Range KEY         reads one key (KEY*: all keys with that prefix; RangeStream: in pieces)
    Txn if … then …   writes only if the compare holds; "else Get" returns the value if it does not
    no Txn            nothing was stored, also when the answer was 200

After its steps each lesson runs once more "in a world where" one thing is falsified on purpose, on
its way between client, apiserver and etcd. There the claim must break: EXPECTED and OBSERVED show
how.
`

// Printer prints the lessons of one run, one after another. Where a chapter or a part of one begins, it says so.
type Printer struct {
	Book record.Book
	// Unordered says that lessons do not come in reading order, so that nothing begins with any of them.
	Unordered bool

	chapter, part int
}

// Lesson is the page of a lesson, line by line.
func (p *Printer) Lesson(l record.Lesson) []string {
	var s sheet
	p.heading(&s, l)
	s.paragraph(Capital(l.Says) + ".")
	s.paragraph("Why it matters: " + l.Why + ".")
	if l.Erratum != "" {
		s.paragraph("Erratum: " + l.Erratum)
	}
	if l.Bent != "" {
		s.paragraph("(-bend: this run takes a world for real where " + l.Bent + ".)")
	}
	if blocks := Blocks(l.Reality.Page); len(blocks) > 0 {
		s.add("")
		s.add(blocks...)
	}
	s.add("")
	switch l.Verdict {
	case record.Skipped:
		s.field("", "SKIPPED", l.Reality.Skipped)
	case record.Unread:
		s.paragraph(l.Problem)
	case record.Stuck:
		s.add("A step on the way to the claim could not be done. That says nothing about the claim yet.")
		s.failure(l, l.Reality)
	case record.Broken:
		s.add("The claim does not hold here.", "")
		s.failure(l, l.Reality)
	default:
		s.worlds(l)
	}
	return s.lines
}

// heading says where in the book one is: the claim, its chapter, and the document behind it.
func (p *Printer) heading(s *sheet, l record.Lesson) {
	chapter, part, _ := p.Book.Place(l.ID)
	title := l.ID
	if chapter > 0 {
		c := p.Book[chapter-1]
		title += " · chapter " + strconv.Itoa(chapter) + ", " + c.Parts[part-1].Title
		newChapter := chapter != p.chapter
		if !p.Unordered && newChapter {
			s.add("━━━ Chapter "+strconv.Itoa(chapter)+" · "+c.Title+" ━━━", "")
			if c.Intro != "" {
				s.paragraph(c.Intro)
				s.add("")
			}
		}
		if !p.Unordered && (newChapter || part != p.part) {
			s.add("── "+Capital(c.Parts[part-1].Title)+" ──", "")
		}
	}
	p.chapter, p.part = chapter, part
	s.paragraph(title + " · " + From(l.From))
	s.add("")
}

// From puts into words where a claim comes from: "D1 Expect 2, and beyond the documents".
func From(from string) string {
	if from == "+" {
		return "beyond the documents"
	}
	return strings.NewReplacer(", +", ", and beyond the documents", "; +", ", and beyond the documents").Replace(from)
}

// Blocks are the lines of what a lesson showed.
func Blocks(blocks []record.Block) []string {
	var s sheet
	for i, b := range blocks {
		if i > 0 && (b.Text == "" || blocks[i-1].Text == "") && (b.Excerpt == nil || blocks[i-1].Excerpt == nil) {
			s.add("")
		}
		switch {
		case b.Table != nil:
			s.table(*b.Table)
		case b.Excerpt != nil:
			s.excerpt(*b.Excerpt)
		case b.Quote != nil:
			for _, line := range b.Quote {
				if utf8.RuneCountInString(line) <= inner {
					s.add(line)
					continue
				}
				s.hang(line[:len(line)-len(strings.TrimLeft(line, " "))], line)
			}
		default:
			s.paragraph(b.Text)
		}
	}
	return s.lines
}

// sheet collects the lines of a page.
type sheet struct {
	lines []string
}

func (s *sheet) add(lines ...string) { s.lines = append(s.lines, lines...) }

func (s *sheet) paragraph(text string) { s.add(Wrap(text, inner)...) }

// hang adds a text whose later lines stand deeper than its first.
func (s *sheet) hang(indent, text string) {
	for i, line := range Wrap(text, inner-len(indent)-4) {
		if i > 0 {
			line = "    " + line
		}
		s.add(indent + line)
	}
}

func (s *sheet) table(t record.Table) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(t.Head, "\t"))
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = c.Text
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	w.Flush() // a strings.Builder does not fail
	for line := range strings.Lines(b.String()) {
		s.add(strings.TrimRight(line, " \n"))
	}
}

func (s *sheet) excerpt(e record.Excerpt) {
	s.add("wire  " + e.Of)
	if len(e.Requests) == 0 {
		s.add("      (no request reaches etcd)")
	}
	several := false
	for _, r := range e.Requests {
		several = several || r.From != e.Requests[0].From
	}
	for _, r := range e.Requests {
		text := r.String()
		if several { // with more than one apiserver, it matters which one asks
			text = r.From + ": " + text
		}
		s.hang("      ", text)
	}
}

// worlds tells how the lesson failed in each of its worlds, or that it did not.
func (s *sheet) worlds(l record.Lesson) {
	for i, w := range l.Worlds {
		if l.Verdict == record.Unproved && i == len(l.Worlds)-1 {
			s.field("", "DEFECT", "This lesson proves nothing. In a world where "+w.World+", it must fail; "+l.Problem+".")
			if w.Failure != nil {
				s.failure(l, w)
			} else {
				s.fieldLines("", "WIRE", tail(w.Tape.Lines(), allWire))
			}
			return
		}
		s.paragraph("In a world where " + w.World + ", the lesson fails:")
		s.field(indented, "EXPECTED", w.Failure.Expected)
		s.field(indented, "OBSERVED", w.Failure.Observed)
		if i == 0 { // one tape on a page shows how a world is bent
			s.fieldLines(indented, "WIRE", tail(w.Tape.Lines(), shownWire))
		}
		s.kept(indented, w)
		s.add("")
	}
	if l.Do != "" {
		s.paragraph("Do: " + l.Do)
	}
	s.paragraph("Read: " + l.Read.String())
}

// failure is the explanation of a failure, in the fixed shape of the book.
func (s *sheet) failure(l record.Lesson, told record.Telling) {
	s.field("", "CLAIM", l.ID+" "+l.Says)
	s.field("", "EXPECTED", told.Failure.Expected)
	s.field("", "OBSERVED", told.Failure.Observed)
	s.fieldLines("", "WIRE", tail(told.Tape.Lines(), allWire))
	s.kept("", told)
	s.field("", "WHY", l.Why)
	s.field("", "READ", l.Read.String())
	if l.Erratum != "" {
		s.field("", "ERRATUM", l.Erratum)
	}
}

// kept names the files that tell more.
func (s *sheet) kept(indent string, told record.Telling) {
	for _, k := range told.Kept {
		s.field(indent, "KEPT", k.What+": "+k.Name+", with -artifacts")
	}
}

func (s *sheet) field(indent, name, text string) {
	s.fieldLines(indent, name, Wrap(text, inner-fieldName-len(indent)))
}

// fieldLines adds a name and its text, the text in a column of its own.
func (s *sheet) fieldLines(indent, name string, lines []string) {
	for i, line := range lines {
		if i > 0 {
			name = ""
		}
		s.add(strings.TrimRight(fmt.Sprintf("%s%-*s%s", indent, fieldName, name, line), " "))
	}
}

// tail is the end of a tape, n lines at most, broken to the width of the page.
func tail(tape []string, n int) []string {
	if len(tape) == 0 {
		return []string{"(nothing had been sent to etcd by then)"}
	}
	if len(tape) > n {
		tape = append([]string{fmt.Sprintf("… (%d lines before)", len(tape)-n)}, tape[len(tape)-n:]...)
	}
	var s sheet
	for _, line := range tape {
		depth := len(line) - len(strings.TrimLeft(line, " "))
		for i, part := range Wrap(line, inner-fieldName-len(indented)-depth-4) {
			if i > 0 {
				part = "    " + part
			}
			s.add(line[:depth] + part)
		}
	}
	return s.lines
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

// Capital begins a sentence with a capital, unless its first word is a name that is written otherwise.
func Capital(s string) string {
	first, _, _ := strings.Cut(s, " ")
	if s == "" || strings.ContainsAny(first, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
