package lesson

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"modrev/helpers/lab"
	"modrev/helpers/ledger"
	"modrev/helpers/record"
	"modrev/helpers/source"
)

var update = flag.Bool("update", false, "write CLAIMS.md anew instead of comparing it")

// Ledger asks every lesson of this test binary what it claims, makes the ledger from the answers, and
// compares it with the file at path (with -update, writes that file). Tests that claim nothing are an
// error, but for those named in apart. Lessons are asked in a process of their own, which starts no
// control plane.
func Ledger(t *testing.T, path string, apart ...string) {
	t.Helper()
	if *claims {
		return // this process is the one that is being asked
	}
	ctx, cancel := deadline(t)
	defer cancel()
	run, err := ask(ctx, filepath.Join(t.TempDir(), "claims.json"))
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
	refs := make([]source.Ref, len(run.Lessons))
	for i, l := range run.Lessons {
		refs[i] = source.Decl(l.Read.Package, l.Read.Func)
	}
	tree.Load(ctx, refs...)
	find := func(u record.Upstream) error { _, err := tree.Find(ctx, source.Decl(u.Package, u.Func)); return err }
	for _, p := range append(problems(run, tests, apart, find), ledger.Unanswered(run)...) {
		t.Error(p)
	}
	text := ledger.Render(run)
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
		t.Errorf("%s is not what the lessons say. Run: go test -run '^%s$' . -update\n%s", path, t.Name(),
			firstDifference(have, text))
	}
}

// problems says what is wrong with the lessons as a whole. tests are all tests of the binary, and apart those
// of them that need not claim anything.
func problems(run record.Run, tests, apart []string, find func(record.Upstream) error) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	proved := map[string]string{} // the test that proves a claim
	for _, l := range run.Lessons {
		proved[l.ID] = l.Test
	}
	for _, test := range tests {
		id := record.IDOf(test)
		switch {
		case slices.Contains(apart, test) || id != "" && proved[id] == test:
		case id != "" && proved[id] != "":
			add("%s and %s both claim %s: give one of them the next number", test, proved[id], id)
		default:
			add("%s makes no claim of its own: a test of the book is named TestID_Sentence, and calls lesson.Prove with that "+
				"ID", test)
		}
	}
	for _, id := range run.Book.IDs() {
		if proved[id] == "" {
			add("%s is in the list of the book, and no lesson claims it", id)
		}
	}
	for _, l := range run.Lessons {
		if err := find(l.Read); err != nil {
			add("%s names an upstream function that is not there: %v", l.ID, err)
		}
		if chapter, _, _ := run.Book.Place(l.ID); chapter == 0 {
			add("%s is not in the list of the book: give it a place there", l.ID)
		}
	}
	return out
}

// ask has a process of its own say what all lessons claim.
func ask(ctx context.Context, path string) (record.Run, error) {
	out, err := self(ctx, "-test.run=.", "-test.count=1", "-claims", "-record="+path)
	if err != nil {
		return record.Run{}, fmt.Errorf("asking the lessons what they claim: %w\n%s", err, out)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return record.Run{}, fmt.Errorf("asking the lessons what they claim: %w", err)
	}
	return record.Parse(data)
}

func list(ctx context.Context) ([]string, error) {
	out, err := self(ctx, "-test.list=^Test")
	if err != nil {
		return nil, fmt.Errorf("listing the tests: %w\n%s", err, out)
	}
	return strings.Fields(string(out)), nil
}

// self runs this test binary again.
func self(ctx context.Context, args ...string) ([]byte, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the test binary: %w", err)
	}
	return exec.CommandContext(ctx, binary, args...).CombinedOutput()
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
