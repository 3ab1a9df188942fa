package lab

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"pgregory.net/rapid"
)

// Property puts a property to the test with values that rapid draws. check returns "" when it holds, and a
// counterexample otherwise; the smallest that rapid finds is what the reader sees. check runs outside of the
// lesson's goroutine, so it uses methods that begin with Try.
func (l *Lab) Property(expected string, check func(*rapid.T) string) {
	var smallest string
	tb := &captive{name: l.Namespace}
	done := make(chan struct{})
	go func() {
		defer close(done)
		rapid.Check(tb, func(t *rapid.T) {
			if counterexample := check(t); counterexample != "" {
				smallest = counterexample
				t.Fatalf("%s", counterexample)
			}
		})
	}()
	<-done
	if tb.failed && smallest == "" {
		l.Stuck("testing a property", errors.New(strings.Join(tb.log, "; ")))
	}
	l.Expect(!tb.failed, expected, "%s", smallest)
}

// captive is a rapid.TB whose failure does not end a test: it ends the goroutine that rapid runs in.
type captive struct {
	name   string
	failed bool
	log    []string
}

func (c *captive) Helper()      {}
func (c *captive) Name() string { return c.name }

func (c *captive) Logf(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}
func (c *captive) Log(args ...any) { c.log = append(c.log, fmt.Sprint(args...)) }

func (c *captive) Skipf(format string, args ...any) { c.Logf(format, args...); c.SkipNow() }
func (c *captive) Skip(args ...any)                 { c.Log(args...); c.SkipNow() }
func (c *captive) SkipNow()                         { runtime.Goexit() }

func (c *captive) Errorf(format string, args ...any) { c.Logf(format, args...); c.Fail() }
func (c *captive) Error(args ...any)                 { c.Log(args...); c.Fail() }
func (c *captive) Fatalf(format string, args ...any) { c.Logf(format, args...); c.FailNow() }
func (c *captive) Fatal(args ...any)                 { c.Log(args...); c.FailNow() }
func (c *captive) Fail()                             { c.failed = true }
func (c *captive) FailNow()                          { c.failed = true; runtime.Goexit() }
func (c *captive) Failed() bool                      { return c.failed }
