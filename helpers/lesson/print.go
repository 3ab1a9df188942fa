package lesson

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"modrev/helpers/lab"
	"modrev/helpers/world"
)

// printer writes a lesson to the output of its test.
type printer struct {
	t *testing.T
}

const (
	inner     = "      " // of what happened in a false world
	shownWire = 6        // lines of the tape in a false world's message; all of it goes to the artifacts
	allWire   = 60       // lines of the tape when a lesson fails in earnest
)

func (p printer) line(s string) { fmt.Fprintln(p.t.Output(), strings.TrimRight(s, " ")) }

func (p printer) paragraph(text string) {
	for _, line := range lab.Wrap(text, lab.Width-4) {
		p.line(line)
	}
}

func (p printer) field(name, text string) {
	for _, line := range field("", name, lab.Wrap(text, lab.Width-4-10)) {
		p.line(line)
	}
}

// heading says where in the book one is: the claim, the chapter and its part, and the document behind it.
func (p printer) heading(c Claim, file string) {
	book := lab.Shared().Notebook()
	text := c.ID
	if n := book.Chapter(file); n > 0 {
		text += fmt.Sprintf(" · chapter %d, %s", n, book.Chapters[n-1].Title)
	}
	if c.Part != "" {
		text += ": " + c.Part
	}
	if c.From == "+" {
		text += " · beyond the documents"
	} else {
		text += " · " + c.From
	}
	p.paragraph(text)
	p.line("")
}

func (p printer) page(r run) {
	if len(r.page) > 0 {
		p.line("")
	}
	for _, line := range r.page {
		p.line(line)
	}
	p.line("")
}

func (p printer) counterfactual(c Claim, w world.World, r run) {
	p.paragraph("In a world where " + w.Where + ", the lesson fails:")
	for _, line := range message(c, r, inner, shownWire) {
		p.line(line)
	}
	p.line("")
}

func (p printer) failure(c Claim, r run) {
	if r.failure.Stuck {
		p.line("A step on the way to the claim could not be done. That says nothing about the claim yet.")
	} else {
		p.line("The claim does not hold here.")
		p.line("")
	}
	for _, line := range message(c, r, "", allWire) {
		p.line(line)
	}
}

func (p printer) defect(c Claim, w world.World, r run, err error) {
	p.field("DEFECT", "This lesson proves nothing. In a world where "+w.Where+", it must fail; "+err.Error()+".")
	if r.failure != nil {
		for _, line := range message(c, r, "", allWire) {
			p.line(line)
		}
		return
	}
	for _, line := range field("", "WIRE", tail(r.tape, allWire)) {
		p.line(line)
	}
}

// message is the explanation of a failure, in the fixed shape of the book.
func message(c Claim, r run, indent string, wireLines int) []string {
	var out []string
	add := func(name, text string) {
		out = append(out, field(indent, name, lab.Wrap(text, lab.Width-4-10-len(indent)))...)
	}
	if indent == "" { // in a false world the claim stands at the head of the page already
		add("CLAIM", c.ID+" "+c.Says)
	}
	add("EXPECTED", r.failure.Expected)
	add("OBSERVED", r.failure.Observed)
	out = append(out, field(indent, "WIRE", tail(r.tape, wireLines))...)
	for _, line := range r.where {
		add("KEPT", line)
	}
	add("WHY", c.Why)
	add("READ", locate(c))
	if c.Erratum != "" && indent == "" {
		add("ERRATUM", c.Erratum)
	}
	return out
}

// field is a name and its text, the text in a column of its own.
func field(indent, name string, lines []string) []string {
	out := make([]string, 0, len(lines))
	for i, line := range lines {
		head := ""
		if i == 0 {
			head = name
		}
		out = append(out, fmt.Sprintf("%s%-10s%s", indent, head, line))
	}
	return out
}

// tail is the end of a tape, n lines at most, broken to the width of the page.
func tail(tape []string, n int) []string {
	if len(tape) == 0 {
		return []string{"(nothing was sent to etcd for this lesson)"}
	}
	if len(tape) > n {
		tape = append([]string{fmt.Sprintf("… (%d lines before)", len(tape)-n)}, tape[len(tape)-n:]...)
	}
	var out []string
	for _, line := range tape {
		depth := len(line) - len(strings.TrimLeft(line, " "))
		for i, part := range lab.Wrap(line, lab.Width-4-10-6-depth-4) {
			pad := strings.Repeat(" ", depth)
			if i > 0 {
				pad += "    "
			}
			out = append(out, pad+part)
		}
	}
	return out
}

// attributes gives the machines that read go test -json what the page gives people. In a page for people
// they would be noise.
func (p printer) attributes(c Claim) {
	if f := flag.Lookup("test.v"); f == nil || f.Value.String() != "test2json" {
		return
	}
	for _, a := range [][2]string{
		{"claim", c.ID}, {"says", c.Says}, {"from", c.From}, {"read", c.Read.String()}, {"erratum", c.Erratum},
	} {
		if a[1] != "" {
			p.t.Attr(a[0], a[1])
		}
	}
}

// artifacts keeps the whole tape of a run, and the files that the lesson handed over, where go test -artifacts
// puts such files. Without that flag nothing is kept, and the run says how to get the files.
func artifacts(t *testing.T, r *run) {
	keep := false
	if f := flag.Lookup("test.artifacts"); f != nil {
		keep = f.Value.String() == "true"
	}
	world, head := "", "As the world is.\n\n"
	if r.world != nil {
		world, head = "-"+slug.ReplaceAllString(r.world.Where, "-"), "In a world where "+r.world.Where+".\n\n"
	}
	tape := lab.Kept{Name: "tape.txt", Write: func(path string) error {
		return os.WriteFile(path, []byte(head+strings.Join(r.tape, "\n")+"\n"), 0o644)
	}}
	for _, k := range append(r.kept, tape) {
		if !keep {
			if k.What != "" {
				r.where = append(r.where, k.What+": not kept; to get it, run the lesson with -artifacts")
			}
			continue
		}
		ext := filepath.Ext(k.Name)
		path := filepath.Join(t.ArtifactDir(), strings.TrimSuffix(k.Name, ext)+world+ext)
		if err := k.Write(path); err != nil {
			t.Errorf("keeping %s of a run of the lesson: %v", k.Name, err)
		}
		if k.What != "" {
			r.where = append(r.where, k.What+": "+path)
		}
	}
}

var slug = regexp.MustCompile(`[^a-z0-9]+`)

// locate names the upstream function to read, with the file and the version in which it was found.
func locate(c Claim) string {
	tree, err := lab.Shared().Source(context.Background())
	if err != nil {
		return c.Read.String()
	}
	where, err := tree.Find(c.Read)
	if err != nil {
		return c.Read.String()
	}
	return where.String()
}

// capital begins a sentence with a capital, unless its first word is a name that is written otherwise.
func capital(s string) string {
	first, _, _ := strings.Cut(s, " ")
	if s == "" || strings.ContainsAny(first, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
