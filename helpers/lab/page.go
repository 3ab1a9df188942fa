package lab

import (
	"fmt"
	"strings"

	"modrev/helpers/record"
	"modrev/helpers/wire"
)

// Told is what the run of the lesson has to tell so far.
func (l *Lab) Told() record.Telling {
	told := l.told
	told.Tape = l.Wire.Tape().Record()
	return told
}

func (l *Lab) tell(b record.Block) { l.told.Page = append(l.told.Page, b) }

// Say writes a paragraph onto the page.
func (l *Lab) Say(format string, args ...any) {
	l.tell(record.Block{Text: fmt.Sprintf(format, args...)})
}

// Quote writes lines onto the page as they stand.
func (l *Lab) Quote(text string) { l.tell(record.Block{Quote: strings.Split(text, "\n")}) }

// Show writes requests to etcd onto the page, under a heading that says what caused them.
func (l *Lab) Show(what string, seen wire.Requests) {
	l.tell(record.Block{Excerpt: &record.Excerpt{Of: what, Requests: seen}})
}

// Table is a table on the page.
type Table struct {
	lab   *Lab
	table record.Table
}

// Table begins a table with the given column heads; End puts it onto the page.
func (l *Lab) Table(head ...string) *Table { return &Table{lab: l, table: record.Table{Head: head}} }

// Row adds a row. Numbers are numbers; everything else is printed as fmt.Sprint does.
func (t *Table) Row(values ...any) {
	row := make([]record.Cell, len(values))
	for i, v := range values {
		row[i].Text = fmt.Sprint(v)
		switch v.(type) {
		case int, int32, int64:
			row[i].Kind = record.Number
		}
	}
	t.table.Rows = append(t.table.Rows, row)
}

// End puts the table onto the page.
func (t *Table) End() { t.lab.tell(record.Block{Table: &t.table}) }

// WriteDown keeps a line that a reader is asked to write down, under the name of a fact (see package record).
func (l *Lab) WriteDown(fact, format string, args ...any) {
	if l.told.Facts == nil {
		l.told.Facts = make(map[string][]string)
	}
	l.told.Facts[fact] = append(l.told.Facts[fact], fmt.Sprintf(format, args...))
}

// Kept is a file that tells more about a run of a lesson than a page can.
type Kept struct {
	record.Kept
	Write func(path string) error // writes it
}

// Keep hands over such a file: its name, such as "history.html", what it shows, in a few words, and how to write it.
// It is written where go test -artifacts puts the files of a test, and nowhere without that flag.
func (l *Lab) Keep(name, what string, write func(path string) error) {
	k := record.Kept{Name: name, What: what}
	l.told.Kept = append(l.told.Kept, k)
	l.kept = append(l.kept, Kept{k, write})
}

// Kept are the files that were handed over.
func (l *Lab) Kept() []Kept { return l.kept }
