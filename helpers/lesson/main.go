package lesson

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"modrev/helpers/lab"
	"modrev/helpers/record"
)

// Main runs the lessons of a test binary in reading order, ends the control plane if one was started, and
// returns the exit code. What is claimed of the run as a whole is checked here: that no transaction of
// kube-apiserver writes more than one key.
func Main(m *testing.M, book Book) int {
	flag.Parse()
	if err := errors.Join(takeTrace(), readTrace(), drawing()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	inReadingOrder(m, book)
	answers, err := expected()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	p := lab.Shared()
	p.Notebook().Book = book
	if f := flag.Lookup("test.v"); f != nil && f.Value.String() == "true" && os.Getenv(ledgerVariable) == "" {
		fmt.Print(legend)
	}
	code := m.Run()
	if err := keepNotebook(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if err := p.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if crowded := p.Wire().Crowded(); len(crowded) > 0 {
		fmt.Printf("CLAIM     kube-apiserver puts one object per transaction, always (RV9)\n"+
			"OBSERVED  in this run it sent a transaction that writes several keys:\n          %s\n",
			strings.Join(crowded, "\n          "))
		code = max(code, 1)
	}
	fmt.Print(summary(p.Remarks()))
	if testing.Verbose() {
		census(p)
	}
	grade(answers)
	return code
}

// census prints what kube-apiserver asked etcd in the whole run.
func census(p *lab.Plane) {
	counts := p.Wire().Census()
	if len(counts) == 0 {
		return
	}
	shapes := make([]string, 0, len(counts))
	for s := range counts {
		shapes = append(shapes, s)
	}
	slices.Sort(shapes)
	fmt.Println("What kube-apiserver asked etcd in this run; no transaction wrote more than one key (RV9):")
	for _, s := range shapes {
		fmt.Printf("%8d  %s\n", counts[s], s)
	}
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
