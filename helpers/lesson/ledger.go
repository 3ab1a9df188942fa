package lesson

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"modrev/helpers/lab"
	"modrev/helpers/record"
	"modrev/helpers/source"
)

// ledgerVariable is set in the environment of a test binary that is to say what its lessons claim, and
// not to run them.
const ledgerVariable = "MODREV_LEDGER"

// row is one line of the ledger.
type row struct {
	ID, Says, Test, File, Read, From, Erratum, Answers, CannotBend string
	Worlds                                                         []string
	Ref                                                            source.Ref
}

// enter writes one lesson to the ledger file of the run.
func enter(path, test, file string, c Claim) error {
	r := row{
		ID: c.ID, Says: c.Says, Test: test, File: file, Read: c.Read.String(), From: c.From,
		Erratum: c.Erratum, Answers: c.Answers, CannotBend: c.CannotBend, Ref: c.Read,
	}
	for _, w := range c.worlds() {
		r.Worlds = append(r.Worlds, w.Where)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

var update = flag.Bool("update", false, "write CLAIMS.md anew instead of comparing it")

// Book is the chapters in reading order, with the lessons of each.
type Book = record.Book

// Chapter is one chapter of the book.
type Chapter = record.Chapter

// Part is a part of a chapter.
type Part = record.Part

// Ledger asks every lesson of this test binary what it claims, makes the ledger from the answers, and
// compares it with the file at path (with -update, writes that file). Tests that claim nothing are an
// error, but for those named in apart. Lessons are asked in a process of their own, which starts no
// control plane.
func Ledger(t *testing.T, path string, book Book, apart ...string) {
	t.Helper()
	if os.Getenv(ledgerVariable) != "" {
		return // this process is the one that is being asked
	}
	ctx, cancel := deadline(t)
	defer cancel()
	rows, err := ask(ctx, filepath.Join(t.TempDir(), "ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	tests, err := list(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Whatever runs, the book names what is in the pinned source.
	tree, err := lab.PinnedSource(ctx)
	if err != nil {
		t.Fatal(err)
	}
	refs := make([]source.Ref, len(rows))
	for i, r := range rows {
		refs[i] = r.Ref
	}
	tree.Load(ctx, refs...)
	find := func(r source.Ref) error { _, err := tree.Find(ctx, r); return err }
	for _, p := range problems(rows, book, tests, apart, find) {
		t.Error(p)
	}
	for _, problem := range unanswered(rows) {
		t.Error(problem)
	}
	text := render(rows, book)
	if *update {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatalf("writing the ledger: %v", err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("reading the ledger: %v", err)
	}
	if !bytes.Equal(have, text) {
		t.Errorf("%s is not what the lessons say. Run: go test -run '^%s$' . -update\n%s", path, t.Name(), firstDifference(have, text))
	}
}

// problems says what is wrong with the lessons as a whole. tests are all tests of the binary, and apart those
// of them that need not claim anything.
func problems(rows []row, book Book, tests, apart []string, find func(source.Ref) error) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, test := range tests {
		if !slices.Contains(apart, test) && !slices.ContainsFunc(rows, func(r row) bool { return r.Test == test }) {
			add("%s makes no claim: a test of the book is a lesson, so call lesson.Prove in it", test)
		}
	}
	for _, id := range book.IDs() {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.ID == id }) {
			add("%s is in the list of the book, and no lesson claims it", id)
		}
	}
	for i, r := range rows {
		if chapter, _, _ := book.Place(r.ID); chapter == 0 {
			add("%s is not in the list of the book: give it a place there", r.ID)
		}
		if record.IDOf(r.Test) != r.ID {
			add("%s proves %s: its name begins with Test%s_ and goes on with a sentence", r.Test, r.ID, r.ID)
		}
		if err := find(r.Ref); err != nil {
			add("%s names an upstream function that is not there: %v", r.ID, err)
		}
		for _, other := range rows[:i] {
			if other.ID == r.ID {
				add("%s and %s both claim %s: give one of them the next number", other.Test, r.Test, r.ID)
			}
		}
	}
	return out
}

func ask(ctx context.Context, path string) ([]row, error) {
	out, err := self(ctx, []string{ledgerVariable + "=" + path}, "-test.run=.", "-test.count=1")
	if err != nil {
		return nil, fmt.Errorf("asking the lessons what they claim: %w\n%s", err, out)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("asking the lessons what they claim: %w", err)
	}
	var rows []row
	for line := range bytes.Lines(data) {
		var r row
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("reading what the lessons claim: %w", err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func list(ctx context.Context) ([]string, error) {
	out, err := self(ctx, nil, "-test.list=^Test")
	if err != nil {
		return nil, fmt.Errorf("listing the tests: %w\n%s", err, out)
	}
	return strings.Fields(string(out)), nil
}

// self runs this test binary again.
func self(ctx context.Context, env []string, args ...string) ([]byte, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the test binary: %w", err)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd.CombinedOutput()
}

func render(rows []row, book Book) []byte {
	var b bytes.Buffer
	b.WriteString("# Claims\n\n" +
		"What this book claims, one lesson a row. The file is made from the lessons and compared by a test:\n" +
		"`go test -run Ledger . -update` writes it anew. D1 is the document \"resourceVersion is etcd's\n" +
		"mod_revision\", D2 is \"treat resourceVersion as an opaque token\", + is beyond the documents. Each\n" +
		"lesson also runs in the worlds of the column *false in a world where*, and must fail there.\n" +
		"The numbers in the column *answers* are the misconceptions below.\n")
	slices.SortStableFunc(rows, func(a, b row) int {
		_, _, first := book.Place(a.ID)
		_, _, second := book.Place(b.ID)
		return cmp.Compare(first, second)
	})
	for i, ch := range book {
		var in []row
		for _, r := range rows {
			if chapter, _, _ := book.Place(r.ID); chapter == i+1 {
				in = append(in, r)
			}
		}
		if len(in) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## Chapter %d · %s\n\n", i+1, ch.Title)
		b.WriteString("| id | claim | test | false in a world where | upstream | from | answers | erratum |\n")
		b.WriteString("|---|---|---|---|---|---|---|---|\n")
		for _, r := range in {
			worlds := strings.Join(r.Worlds, "; or ")
			if worlds == "" {
				worlds = "(none is shown: " + r.CannotBend + ")"
			}
			cells := []string{r.ID, r.Says, r.Test, worlds, "`" + r.Read + "`", r.From, r.Answers, r.Erratum}
			for i := range cells {
				cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
			}
			b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		}
	}
	renderBeliefs(&b, rows)
	return b.Bytes()
}

// renderBeliefs lists the misconceptions and the lessons that answer them.
func renderBeliefs(b *bytes.Buffer, rows []row) {
	b.WriteString("\n## Misconceptions\n\nWhat people in public took for true, and the lessons that answer it.\n\n" +
		"| # | the belief | answered by |\n|---|---|---|\n")
	for _, belief := range beliefs() {
		var by []string
		for _, r := range rows {
			if slices.Contains(strings.Fields(r.Answers), "#"+strconv.Itoa(belief.number)) {
				by = append(by, r.ID)
			}
		}
		answered := strings.Join(by, ", ")
		if answered == "" {
			answered = "(no lesson: " + belief.unanswered + ")"
		}
		fmt.Fprintf(b, "| %d | %s | %s |\n", belief.number, belief.text, answered)
	}
}

// unanswered says what is wrong with the misconceptions that the lessons name.
func unanswered(rows []row) []string {
	var out []string
	named := map[string]bool{}
	for _, r := range rows {
		for _, n := range strings.Fields(r.Answers) {
			named[n] = true
			if !slices.ContainsFunc(beliefs(), func(b belief) bool { return "#"+strconv.Itoa(b.number) == n }) {
				out = append(out, fmt.Sprintf("%s answers %s, which is no misconception of the list", r.ID, n))
			}
		}
	}
	for _, b := range beliefs() {
		if !named["#"+strconv.Itoa(b.number)] && b.unanswered == "" {
			out = append(out, fmt.Sprintf("no lesson answers misconception %d (%s)", b.number, b.text))
		}
	}
	return out
}

func firstDifference(have, want []byte) string {
	a, b := strings.Split(string(have), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return fmt.Sprintf("line %d\n  in the file:    %s\n  by the lessons: %s", i+1, x, y)
		}
	}
	return ""
}
