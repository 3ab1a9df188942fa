// Package ledger renders a record as the list of all claims, CLAIMS.md.
package ledger

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"modrev/helpers/record"
)

// Render is the ledger of the lessons of a run: one row a lesson, in reading order, and the misconceptions that they
// answer.
func Render(r record.Run) []byte {
	var b bytes.Buffer
	b.WriteString("# Claims\n\n" +
		"What this book claims, one lesson a row. The file is made from the lessons and compared by a test:\n" +
		"`go test -run Ledger . -update` writes it anew. D1 is the document \"resourceVersion is etcd's\n" +
		"mod_revision\", D2 is \"treat resourceVersion as an opaque token\", + is beyond the documents. Each\n" +
		"lesson also runs in the worlds of the column *false in a world where*, and must fail there.\n" +
		"The numbers in the column *answers* are the misconceptions below.\n")
	chapter := 0
	for _, l := range r.Lessons {
		if c, _, _ := r.Book.Place(l.ID); c != chapter {
			chapter = c
			title := "(not in the list of the book)"
			if c > 0 {
				title = fmt.Sprintf("Chapter %d · %s", c, r.Book[c-1].Title)
			}
			fmt.Fprintf(&b, "\n## %s\n\n", title)
			b.WriteString("| id | claim | test | false in a world where | upstream | from | answers | erratum |\n")
			b.WriteString("|---|---|---|---|---|---|---|---|\n")
		}
		var worlds []string
		for _, w := range l.Worlds {
			worlds = append(worlds, w.World)
		}
		cells := []string{
			l.ID, l.Says, l.Test, strings.Join(worlds, "; or "), "`" + l.Read.String() + "`", l.From,
			strings.Join(l.Answers, " "), l.Erratum,
		}
		for i := range cells {
			cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	b.WriteString("\n## Misconceptions\n\nWhat people in public took for true, and the lessons that answer it.\n\n" +
		"| # | the belief | answered by |\n|---|---|---|\n")
	for _, m := range misconceptions() {
		answered := strings.Join(answeredBy(r, m), ", ")
		if answered == "" {
			answered = "(no lesson: " + m.unanswered + ")"
		}
		fmt.Fprintf(&b, "| %d | %s | %s |\n", m.number, m.text, answered)
	}
	b.WriteString("\n## Ids that went\n\nLessons that were merged, and where their claims stand now.\n\n" +
		"| id | now in | what it claimed |\n|---|---|---|\n")
	for _, g := range gone {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", g.id, g.to, g.why)
	}
	return b.Bytes()
}

// answeredBy are the lessons that answer a misconception.
func answeredBy(r record.Run, m misconception) []string {
	var out []string
	for _, l := range r.Lessons {
		if slices.Contains(l.Answers, "#"+strconv.Itoa(m.number)) {
			out = append(out, l.ID)
		}
	}
	return out
}

// Unanswered says what is wrong with the misconceptions that the lessons of a whole book name.
func Unanswered(r record.Run) []string {
	var out []string
	for _, l := range r.Lessons {
		for _, n := range l.Answers {
			known := func(m misconception) bool { return "#"+strconv.Itoa(m.number) == n }
			if !slices.ContainsFunc(misconceptions(), known) {
				out = append(out, fmt.Sprintf("%s answers %s, which is no misconception of the list", l.ID, n))
			}
		}
	}
	for _, m := range misconceptions() {
		if m.unanswered == "" && len(answeredBy(r, m)) == 0 {
			out = append(out, fmt.Sprintf("no lesson answers misconception %d (%s)", m.number, m.text))
		}
	}
	return out
}
