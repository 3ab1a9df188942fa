// Package falsify looks for a case in which a property does not hold, and returns the smallest one that rapid's
// shrinking finds, where rapid itself would fail the test.
//
// It serves properties that are meant to fail: of a world in which a claim is false, the reader sees the
// smallest case that shows it.
package falsify

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// A case that a property fails for would be kept as a file below testdata, in the source of whoever asked. Of a
// failure that is wanted nobody needs it, and of one that is not the seed in the message is enough. Rapid has only a flag for
// this, and reads it without a lock: so it is set before anything runs. The reader can still set it otherwise.
func init() {
	if f := flag.Lookup("rapid.nofailfile"); f != nil {
		f.DefValue = "true"
		_ = f.Value.Set("true")
	}
}

// Counterexample is the smallest case found in which a property does not hold.
type Counterexample struct {
	// Case is what the property drew and logged in that case, an entry each: "m: 2".
	Case []string
	// Err is why the property does not hold in that case.
	Err error
	// Report is what rapid says of the failure, with the seed to see it again.
	Report string
}

// Error is the case and why the property does not hold.
func (c *Counterexample) Error() string {
	return strings.Join(append(slices.Clone(c.Case), c.Err.Error()), "\n")
}

// Unwrap is the error of the property.
func (c *Counterexample) Unwrap() error { return c.Err }

// Property tries a property as often as the flag -rapid.checks says. The property draws its case from rapid.T
// and returns why it does not hold, or nil. If it does not hold once, rapid looks for the smallest such case,
// for as long as -rapid.shrinktime says, and the result is a [*Counterexample].
func Property(name string, property func(*rapid.T) error) error {
	l := &listener{name: name}
	var last error // of the last run; if the property failed, that is the one of the smallest case
	done := make(chan struct{})
	go func() {
		defer close(done) // by way of Goexit, when rapid ends the test
		rapid.Check(l, func(t *rapid.T) {
			last = nil
			if last = property(t); last != nil {
				t.Fatal(last)
			}
		})
	}()
	<-done
	if !l.failed {
		return nil
	}
	c := &Counterexample{Err: last, Report: strings.Join(l.errors, "\n")}
	if c.Err == nil {
		// It panicked, or failed by a method of rapid.T.
		c.Err = errors.New(c.Report)
	}
	for _, line := range l.lines {
		if line = strings.TrimPrefix(line, "[rapid] draw "); line != c.Err.Error() {
			c.Case = append(c.Case, line)
		}
	}
	return c
}

// listener is a test for rapid to report to.
type listener struct {
	name   string
	lines  []string // of the run of the smallest case, once there is one
	errors []string
	failed bool
}

func (l *listener) Name() string { return l.name }
func (l *listener) Helper()      {}

func (l *listener) Logf(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}
func (l *listener) Log(args ...any) {
	l.lines = append(l.lines, strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}

func (l *listener) Errorf(format string, args ...any) {
	l.failed = true
	l.errors = append(l.errors, fmt.Sprintf(format, args...))
	// rapid reports the error, and then runs the smallest case once more with its log open.
	l.lines = nil
}
func (l *listener) Error(args ...any)                 { l.Errorf("%s", fmt.Sprint(args...)) }
func (l *listener) Fatalf(format string, args ...any) { l.Errorf(format, args...); l.FailNow() }
func (l *listener) Fatal(args ...any)                 { l.Error(args...); l.FailNow() }
func (l *listener) Skipf(format string, args ...any)  { l.Logf(format, args...); l.SkipNow() }
func (l *listener) Skip(args ...any)                  { l.Log(args...); l.SkipNow() }
func (l *listener) SkipNow()                          { runtime.Goexit() }
func (l *listener) FailNow()                          { l.failed = true; runtime.Goexit() }
func (l *listener) Fail()                             { l.failed = true }
func (l *listener) Failed() bool                      { return l.failed }
