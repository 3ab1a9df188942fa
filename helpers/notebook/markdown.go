// Package notebook renders a record as the notebook that the first document asks its reader to keep: the paired
// numbers, the exact sentence of a refusal, the place of the compare, and for each claim the requests that
// showed it. It also compares what a reader predicted with what a run showed.
//
// The notebook is Markdown that renders on a code host, with a sequence diagram for each forced race. Two runs of the
// book make notebooks that differ in their numbers only, uids and the names that the server makes up included. The
// tapes, which are kept beside the notebook, tell of every request, and in some of them the order of what was under
// way at once is left to chance.
package notebook

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"modrev/helpers/page"
	"modrev/helpers/record"
)

// Save writes the notebook of a run to a file, and the tapes of its claims into a folder beside it, which has the name
// of the file and "-tapes".
func Save(path string, run record.Run) error {
	folder := strings.TrimSuffix(path, filepath.Ext(path)) + "-tapes"
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("keeping the notebook: %w", err)
	}
	for _, l := range shown(run) {
		text := l.ID + " " + l.Says + "\n\n" + strings.Join(l.Reality.Tape.Lines(), "\n") + "\n"
		if err := os.WriteFile(filepath.Join(folder, l.ID+".txt"), []byte(text), 0o644); err != nil {
			return fmt.Errorf("keeping the tape of %s: %w", l.ID, err)
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("keeping the notebook: %w", err)
	}
	if err := Write(f, run, filepath.Base(folder)); err != nil {
		f.Close()
		return fmt.Errorf("writing the notebook to %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("writing the notebook to %s: %w", path, err)
	}
	return nil
}

// shown are the lessons that have something to write down: their claims held as the world is.
func shown(run record.Run) []record.Lesson {
	var out []record.Lesson
	for _, l := range run.Lessons {
		if l.Bent == "" && (l.Verdict == record.Holds || l.Verdict == record.Unproved) {
			out = append(out, l)
		}
	}
	return out
}

// Write writes the notebook of a run as Markdown. The pages link to their tapes in a folder of the given name.
func Write(w io.Writer, run record.Run, tapes string) error {
	var b strings.Builder
	b.WriteString(`# Notebook

Written by a run of the book. Another run writes the same, but for its numbers, its uids, and the names that the server
makes up.

## What the first document asks you to write down
`)
	for _, heading := range []string{record.PairedNumbers, record.TheRefusal, record.TheCompare, record.TheSentence} {
		fmt.Fprintf(&b, "\n### %s\n\n", heading)
		lines, ok := run.Fact(heading)
		switch {
		case !ok:
			b.WriteString("(The lesson that shows it was not part of this run.)\n")
		case heading == record.PairedNumbers:
			fenced(&b, "", lines)
		default:
			fmt.Fprintf(&b, "> %s\n", plain(strings.Join(lines, " ")))
		}
	}
	last := ""
	for _, l := range shown(run) {
		title := "Elsewhere"
		if chapter, _, _ := run.Book.Place(l.ID); chapter > 0 {
			title = fmt.Sprintf("Chapter %d · %s", chapter, run.Book[chapter-1].Title)
		}
		if title != last {
			last = title
			fmt.Fprintf(&b, "\n## %s\n", plain(title))
		}
		write(&b, l, tapes)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// write writes the page of one lesson.
func write(b *strings.Builder, l record.Lesson, tapes string) {
	fmt.Fprintf(b, "\n### %s\n\n%s.\n\n", l.ID, plain(page.Capital(l.Says)))
	from := page.From(l.From)
	if l.From != "+" {
		from = "From " + from
	}
	fmt.Fprintf(b, "*Why it matters:* %s. *Read:* `%s`. %s. [The whole tape](%s/%s.txt).\n",
		plain(l.Why), l.Read, plain(page.Capital(from)), tapes, l.ID)
	if l.Erratum != "" {
		fmt.Fprintf(b, "\n**Erratum:** %s\n", plain(l.Erratum))
	}
	if lines := page.Blocks(l.Reality.Page); len(lines) > 0 {
		b.WriteString("\n")
		fenced(b, "", lines)
	}
	for _, r := range Races(l.Reality.Tape) {
		fmt.Fprintf(b, "\nA race: `%s`", r.Of)
		if r.Alike > 0 {
			fmt.Fprintf(b, " (and %d more of this shape)", r.Alike)
		}
		b.WriteString(":\n\n")
		fenced(b, "mermaid", []string{strings.TrimSuffix(r.Diagram, "\n")})
	}
}

// fenced writes a block of text as it stands. Its fence is longer than any row of backticks in the text.
func fenced(b *strings.Builder, language string, lines []string) {
	fence := "```"
	for _, line := range lines {
		for strings.Contains(line, fence) {
			fence += "`"
		}
	}
	b.WriteString(fence + language + "\n" + strings.Join(lines, "\n") + "\n" + fence + "\n")
}

// plain is a text that Markdown takes for nothing but text. An underscore within a word is one already.
func plain(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "`", "\\`", "<", "&lt;", "[", `\[`, "|", `\|`).Replace(s)
}
