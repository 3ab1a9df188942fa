package lesson

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"modrev/helpers/lab"
	"modrev/helpers/page"
	"modrev/helpers/record"
	"modrev/helpers/source"
	"modrev/helpers/world"
)

// reading is the run of the book in this process. It is safe for concurrent use.
type reading struct {
	mu      sync.Mutex
	run     record.Run
	printer page.Printer
}

// current is the one run of this process.
var current reading

func (r *reading) begin(book record.Book) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Book = book
	r.printer = page.Printer{Book: book, Unordered: *together || given("test.shuffle") != "off"}
}

func (r *reading) add(l record.Lesson) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Add(l)
}

// found is the record of the run so far.
func (r *reading) found() record.Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.run
}

// print writes the page of a lesson to the output of its test.
func print(t *testing.T, l record.Lesson) {
	current.mu.Lock()
	lines := current.printer.Lesson(l)
	current.mu.Unlock()
	for _, line := range lines {
		fmt.Fprintln(t.Output(), strings.TrimRight(line, " "))
	}
}

// given is the value of a flag; "" when there is no such flag.
func given(name string) string {
	f := flag.Lookup(name)
	if f == nil {
		return ""
	}
	return f.Value.String()
}

// attributes gives the machines that read go test -json what the page gives people. In a page for people
// they would be noise.
func attributes(t *testing.T, l record.Lesson) {
	if given("test.v") != "test2json" {
		return
	}
	for _, a := range [][2]string{
		{"claim", l.ID}, {"says", l.Says}, {"from", l.From}, {"read", l.Read.String()}, {"erratum", l.Erratum},
	} {
		if a[1] != "" {
			t.Attr(a[0], a[1])
		}
	}
}

// keep writes the whole tape of a telling, and the files that the lesson handed over, where go test -artifacts puts
// such files. Without that flag nothing is kept.
func keep(t *testing.T, w *world.World, told record.Telling, files []lab.Kept) {
	if given("test.artifacts") != "true" {
		return
	}
	in, head := "", "As the world is.\n\n"
	if w != nil {
		in = "-" + notInNames.ReplaceAllString(strings.ToLower(w.Where), "-")
		head = "In a world where " + w.Where + ".\n\n"
	}
	tape := lab.Kept{Kept: record.Kept{Name: "tape.txt"}, Write: func(path string) error {
		return os.WriteFile(path, []byte(head+strings.Join(told.Tape.Lines(), "\n")+"\n"), 0o644)
	}}
	for _, k := range append(files, tape) {
		ext := filepath.Ext(k.Name)
		path := filepath.Join(t.ArtifactDir(), strings.TrimSuffix(k.Name, ext)+in+ext)
		if err := k.Write(path); err != nil {
			t.Errorf("keeping %s of a run of the lesson: %v", k.Name, err)
		}
	}
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// locate finds an upstream declaration in the source of the kube-apiserver that runs. Where the source cannot be
// had, only its name is known.
func locate(ctx context.Context, ref source.Ref) record.Upstream {
	named := record.Upstream{Package: ref.Package, Func: ref.Func}
	tree, err := lab.Shared().Source(ctx)
	if err != nil {
		return named
	}
	at, err := tree.Find(ctx, ref)
	if err != nil {
		return named
	}
	return record.Upstream{
		Package: ref.Package, Func: at.Func, Module: at.Module, Version: at.Version, File: at.File, Line: at.Line,
	}
}
