package lesson

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"modrev/helpers/lab"
	"modrev/helpers/notebook"
	"modrev/helpers/world"
)

// printer writes a lesson to the output of its test.
type printer struct {
	ctx context.Context // ends a little before go test would end the run
	t   *testing.T
}

const (
	inner     = "      " // of what happened in a false world
	shownWire = 6        // lines of the tape in the first false world's message; all of it goes to the artifacts
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

// heading says where in the book one is: the claim, its chapter, and the document behind it. Where a chapter
// or a part of one begins, it says so first.
func (p printer) heading(c Claim) {
	book := lab.Shared().Notebook().Book
	n, m, _ := book.Place(c.ID)
	if n > 0 && inOrder() {
		chapter, part := lab.Shared().Turn(n, m)
		if chapter {
			p.line("━━━ Chapter " + strconv.Itoa(n) + " · " + book[n-1].Title + " ━━━")
			p.line("")
			if intro := book[n-1].Intro; intro != "" {
				p.paragraph(intro)
				p.line("")
			}
		}
		if part {
			p.line("── " + notebook.Capital(book[n-1].Parts[m-1].Title) + " ──")
			p.line("")
		}
	}
	text := c.ID
	if n > 0 {
		text += " · chapter " + strconv.Itoa(n) + ", " + book[n-1].Parts[m-1].Title
	}
	switch c.From {
	case "+":
		text += " · beyond the documents"
	default:
		text += " · " + strings.ReplaceAll(c.From, ", +", ", and beyond the documents")
	}
	p.paragraph(text)
	p.line("")
}

// inOrder says whether this run reads the book in its order.
func inOrder() bool {
	if f := flag.Lookup("test.shuffle"); f != nil && f.Value.String() != "off" {
		return false
	}
	return !*together
}

// legend is what a reader needs to know before the first page.
const legend = `How to read this. Each lesson states a claim and shows it on a real kube-apiserver and a real etcd.
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

func (p printer) page(r run) {
	if len(r.page) > 0 {
		p.line("")
	}
	for _, line := range r.page {
		p.line(line)
	}
	p.line("")
}

func (p printer) counterfactual(c Claim, w world.World, r run, wireLines int) {
	p.paragraph("In a world where " + w.Where + ", the lesson fails:")
	for _, line := range p.message(c, r, inner, wireLines) {
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
	for _, line := range p.message(c, r, "", allWire) {
		p.line(line)
	}
}

func (p printer) defect(c Claim, w world.World, r run, err error) {
	p.field("DEFECT", "This lesson proves nothing. In a world where "+w.Where+", it must fail; "+err.Error()+".")
	if r.failure != nil {
		for _, line := range p.message(c, r, "", allWire) {
			p.line(line)
		}
		return
	}
	for _, line := range field("", "WIRE", tail(r.tape, allWire)) {
		p.line(line)
	}
}

// message is the explanation of a failure, in the fixed shape of the book.
func (p printer) message(c Claim, r run, indent string, wireLines int) []string {
	var out []string
	add := func(name, text string) {
		out = append(out, field(indent, name, lab.Wrap(text, lab.Width-4-10-len(indent)))...)
	}
	if indent == "" { // in a false world the claim stands at the head of the page already
		add("CLAIM", c.ID+" "+c.Says)
	}
	add("EXPECTED", r.failure.Expected)
	add("OBSERVED", r.failure.Observed)
	if wireLines > 0 {
		out = append(out, field(indent, "WIRE", tail(r.tape, wireLines))...)
	}
	for _, line := range r.where {
		add("KEPT", line)
	}
	if indent != "" {
		return out // the rest stands on the page of the lesson already
	}
	add("WHY", c.Why)
	add("READ", p.locate(c))
	if c.Erratum != "" {
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
		return []string{"(nothing had been sent to etcd by then)"}
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
		world, head = "-"+slug.ReplaceAllString(strings.ToLower(r.world.Where), "-"), "In a world where "+r.world.Where+".\n\n"
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

// locate names the upstream function to read, with the file and the version in which it was found, if it was.
func (p printer) locate(c Claim) string {
	tree, err := lab.Shared().Source(p.ctx)
	if err != nil {
		return c.Read.String()
	}
	where, err := tree.Find(p.ctx, c.Read)
	if err != nil {
		return c.Read.String()
	}
	return where.String()
}
