package lab

import (
	"flag"
	"fmt"
	"runtime"

	"pgregory.net/rapid"
)

// Property puts a property to the test with values that rapid draws. check returns nil when it holds, and
// otherwise why it does not; what it says of the smallest such case is what the reader sees. check runs
// outside of the lesson's goroutine, so it uses methods that begin with Try.
func (l *Lab) Property(expected string, check func(*rapid.T) error) {
	err := falsify(l.Namespace, check)
	l.Expect(err == nil, expected, "%v", err)
}

// A case that a property fails for would be kept as a file below testdata. Of a failure that is wanted nobody needs
// it, and of one that is not the seed in the message is enough. Rapid has only a flag for this, and reads it without
// a lock: so it is set before anything runs. The reader can still set it otherwise.
func init() {
	if f := flag.Lookup("rapid.nofailfile"); f != nil {
		f.DefValue = "true"
		_ = f.Value.Set("true")
	}
}

// falsify returns why a property does not hold in the smallest case that rapid finds, where rapid itself would fail
// the test; nil if the property holds.
func falsify(name string, property func(*rapid.T) error) error {
	v := &verdict{name: name}
	var last error // of the last run; if the property failed, that is the one of the smallest case
	done := make(chan struct{})
	go func() {
		defer close(done) // by way of Goexit, when rapid ends the test
		rapid.Check(v, func(t *rapid.T) {
			last = nil
			if last = property(t); last != nil {
				t.Fatal(last)
			}
		})
	}()
	<-done
	if v.failed != nil && last == nil { // it panicked, or failed by a method of rapid.T
		return v.failed
	}
	return last
}

// verdict is a test that rapid reports to. It has the methods of one that rapid calls.
type verdict struct {
	rapid.TB
	name   string
	failed error
}

func (v *verdict) Name() string        { return v.name }
func (v *verdict) Helper()             {}
func (v *verdict) Log(...any)          {}
func (v *verdict) Logf(string, ...any) {}
func (v *verdict) Failed() bool        { return v.failed != nil }
func (v *verdict) FailNow()            { runtime.Goexit() }

func (v *verdict) Errorf(format string, args ...any) { v.failed = fmt.Errorf(format, args...) }
