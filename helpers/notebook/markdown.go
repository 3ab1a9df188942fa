package notebook

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Save writes the notebook to a file, and the tapes of its claims into a folder beside it, which has the name of the
// file and "-tapes".
func (n *Notebook) Save(path string) error {
	folder := strings.TrimSuffix(path, filepath.Ext(path)) + "-tapes"
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("keeping the notebook: %w", err)
	}
	for _, p := range n.inOrder() {
		text := p.ID + " " + p.Says + "\n\n" + strings.Join(p.Tape, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(folder, p.ID+".txt"), []byte(text), 0o644); err != nil {
			return fmt.Errorf("keeping the tape of %s: %w", p.ID, err)
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("keeping the notebook: %w", err)
	}
	if err := n.Write(f, filepath.Base(folder)); err != nil {
		f.Close()
		return fmt.Errorf("writing the notebook to %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("writing the notebook to %s: %w", path, err)
	}
	return nil
}

// inOrder are the pages in reading order.
func (n *Notebook) inOrder() []Page {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Values(n.pages), func(a, b Page) int {
		_, _, first := n.Book.Place(a.ID)
		_, _, second := n.Book.Place(b.ID)
		return cmp.Or(cmp.Compare(first, second), cmp.Compare(a.ID, b.ID))
	})
}

// Write writes the notebook as Markdown. The pages link to their tapes in a folder of the given name.
func (n *Notebook) Write(w io.Writer, tapes string) error {
	var b strings.Builder
	b.WriteString(`# Notebook

Written by a run of the book. Another run writes the same, but for its numbers, its uids, and the names that the server
makes up.

## What the first document asks you to write down
`)
	for _, heading := range []string{PairedNumbers, TheRefusal, TheCompare, TheSentence} {
		fmt.Fprintf(&b, "\n### %s\n\n", heading)
		lines, ok := n.Fact(heading)
		switch {
		case !ok:
			b.WriteString("(The lesson that shows it was not part of this run.)\n")
		case heading == PairedNumbers:
			fenced(&b, "", lines)
		default:
			fmt.Fprintf(&b, "> %s\n", plain(strings.Join(lines, " ")))
		}
	}
	chapter := ""
	for _, p := range n.inOrder() {
		if title := n.title(p.ID); title != chapter {
			chapter = title
			fmt.Fprintf(&b, "\n## %s\n", plain(chapter))
		}
		p.write(&b, tapes)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// title is the heading of a chapter.
func (n *Notebook) title(id string) string {
	if chapter, _, _ := n.Book.Place(id); chapter > 0 {
		return fmt.Sprintf("Chapter %d · %s", chapter, n.Book[chapter-1].Title)
	}
	return "Elsewhere"
}

func (p Page) write(b *strings.Builder, tapes string) {
	fmt.Fprintf(b, "\n### %s\n\n%s.\n\n", p.ID, plain(Capital(p.Says)))
	from := "From " + beyond.Replace(p.From)
	if p.From == "+" {
		from = "Beyond the documents"
	}
	fmt.Fprintf(b, "*Why it matters:* %s. *Read:* `%s`. %s. [The whole tape](%s/%s.txt).\n", plain(p.Why), p.Read, plain(from), tapes, p.ID)
	if p.Erratum != "" {
		fmt.Fprintf(b, "\n**Erratum:** %s\n", plain(p.Erratum))
	}
	if len(p.Lines) > 0 {
		b.WriteString("\n")
		fenced(b, "", p.Lines)
	}
	for _, r := range Races(p.Steps) {
		fmt.Fprintf(b, "\nA race: `%s`", r.Of)
		if r.Alike > 0 {
			fmt.Fprintf(b, " (and %d more of this shape)", r.Alike)
		}
		b.WriteString(":\n\n")
		fenced(b, "mermaid", []string{strings.TrimSuffix(r.Diagram, "\n")})
	}
}

// beyond puts the plus sign of a claim's origin into words.
var beyond = strings.NewReplacer(", +", " and beyond", "; +", " and beyond")

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

// Capital begins a sentence with a capital, unless its first word is a name that is written otherwise.
func Capital(s string) string {
	first, _, _ := strings.Cut(s, " ")
	if s == "" || strings.ContainsAny(first, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
