package lesson

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"go.etcd.io/etcd/api/v3/version"
	"golang.org/x/mod/modfile"

	"modrev/helpers/lab"
	"modrev/helpers/notebook"
	"modrev/helpers/page"
	"modrev/helpers/record"
)

// Book is the chapters in reading order, with the lessons of each.
type Book = record.Book

// Chapter is one chapter of the book.
type Chapter = record.Chapter

// Part is a part of a chapter.
type Part = record.Part

// Main runs the lessons of a test binary in reading order, ends the control plane if one was started, makes the views
// that were asked for, and returns the exit code. What is claimed of the run as a whole is checked here: that no
// transaction of kube-apiserver writes more than one key.
func Main(m *testing.M, book Book) int {
	flag.Parse()
	answers, err := beforehand()
	if err = errors.Join(err, unclaimed(book)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	current.begin(book)
	inReadingOrder(m, book)
	if given("test.v") == "true" && !*claims {
		fmt.Print(page.Legend)
	}
	code := m.Run()
	session := lab.Shared()
	run := finish(current.found(), session)
	if err := errors.Join(session.Stop(), keepRecord(run), keepNotebook(run)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	fmt.Print(page.Closing(run))
	if len(run.MultiKeyTxns) > 0 {
		code = max(code, 1)
	}
	if testing.Verbose() && !*claims {
		fmt.Print(page.Census(run))
	}
	if answers != nil {
		fmt.Print(notebook.Grade(run, answers))
	}
	return code
}

// beforehand reads what the flags name, so that a mistake in it is told before anything runs.
func beforehand() (notebook.Answers, error) {
	if err := errors.Join(readTrace(), openRecord(), drawing()); err != nil {
		return nil, err
	}
	return expected()
}

var idInPattern = regexp.MustCompile(`\b(?:Test)?([A-Z]{2}[0-9]+[a-z]?)_`)

// unclaimed says which claim -run names that the book does not make: go test would run nothing, and call that ok.
func unclaimed(book Book) error {
	for _, m := range idInPattern.FindAllStringSubmatch(given("test.run"), -1) {
		if chapter, _, _ := book.Place(m[1]); chapter == 0 {
			return fmt.Errorf("-run names %s, and the book makes no claim of that id: CLAIMS.md lists those that it makes", m[1])
		}
	}
	return nil
}

// finish adds to a record what is known at the end of the run.
func finish(run record.Run, session *lab.Session) record.Run {
	run.Date = time.Now().UTC().Truncate(time.Second)
	run.Versions = versions(session.Binary().Version)
	run.Topology = record.Topology{EtcdMembers: 1, APIServers: 1}
	run.Shuffle, run.Seed = given("test.shuffle"), given("rapid.seed")
	run.Shapes, run.MultiKeyTxns = session.Wire().Census(), session.Wire().MultiKeyTxns()
	return run
}

// versions are what the run was made with. The folder of the book holds its go.mod; elsewhere the modules are not
// known.
func versions(kubeAPIServer string) record.Versions {
	v := record.Versions{KubeAPIServer: kubeAPIServer, Etcd: version.Version, Go: runtime.Version()}
	text, err := os.ReadFile("go.mod")
	if err != nil {
		return v
	}
	mod, err := modfile.ParseLax("go.mod", text, nil)
	if err != nil {
		return v
	}
	for _, r := range mod.Require {
		switch r.Mod.Path {
		case "k8s.io/client-go":
			v.ClientGo = r.Mod.Version
		case "sigs.k8s.io/controller-runtime":
			v.ControllerRuntime = r.Mod.Version
		}
	}
	return v
}

// inReadingOrder puts the tests in the order of the book. go test takes the files of a
// package in alphabetical order and has no say in it; the list that it made is an unexported field of
// testing.M. Should that field ever change, the tests run in alphabetical order and nothing else happens.
func inReadingOrder(m *testing.M, book Book) {
	field := reflect.ValueOf(m).Elem().FieldByName("tests")
	if !field.IsValid() || field.Type() != reflect.TypeFor[[]testing.InternalTest]() {
		return
	}
	place := func(it testing.InternalTest) int {
		_, _, before := book.Place(record.IDOf(it.Name))
		return before
	}
	tests := *(*[]testing.InternalTest)(unsafe.Pointer(field.UnsafeAddr()))
	slices.SortStableFunc(tests, func(a, b testing.InternalTest) int { return place(a) - place(b) })
}

// drawing sets how lessons draw by chance, where the reader has not: few enough traces that the book is
// read in one go.
func drawing() error {
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"rapid.checks": "10", "rapid.shrinktime": "3s"} {
		if flag.Lookup(name) == nil || given[name] {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			return fmt.Errorf("setting -%s: %w", name, err)
		}
	}
	return nil
}
