// Package lesson is the form of a lesson: a claim, the steps that show it, the worlds in which it is false, and the
// record of what came of them.
package lesson

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"modrev/helpers/lab"
	"modrev/helpers/record"
	"modrev/helpers/source"
	"modrev/helpers/world"
)

// together makes all lessons run at once; without it they run one after another, as a book is read.
var together = flag.Bool("together", false, "run all lessons of the book at once, in parallel")

// bend shows what a broken lesson looks like.
var bend = flag.Bool("bend", false, "take the first false world of each lesson for reality, to see it fail")

// Claim is what one lesson teaches.
type Claim struct {
	// ID is the number of the claim: a family and a number, "RV1".
	ID string
	// From is the document and the part of it that the claim comes from: "D1 Expect". Beyond the
	// documents it is "+".
	From string
	// Says is the claim, one sentence without a full stop at its end.
	Says string
	// Why says what the claim is good for, or what would follow if it were false. It stands in the message of
	// a failure.
	Why string
	// Do is the rule that follows, in the imperative, at most 15 words: "Re-read, decide again, then write."
	Do string
	// FalseIf is the world in which the claim is false; the lesson must fail there.
	FalseIf world.World
	// AlsoFalseIf are further such worlds.
	AlsoFalseIf []world.World
	// Read is the upstream function to read.
	Read source.Ref
	// Erratum says how the document differs from what is true, if it does.
	Erratum string
	// Answers names the misconceptions that the lesson answers, by their row: "#3".
	Answers string
}

func (c Claim) worlds() []world.World {
	return append([]world.World{c.FalseIf}, c.AlsoFalseIf...)
}

var validFrom = regexp.MustCompile(`^(D[12] [^;+]+(; D2 [^;+]+)?(; \+)?|\+)$`)

var validID = regexp.MustCompile(`^[A-Z]{2}[0-9]+[a-z]?$`)

// check says what a claim lacks.
func (c Claim) check() error {
	var missing []string
	if !validID.MatchString(c.ID) {
		missing = append(missing, fmt.Sprintf("an ID of two capitals and a number (it has %q)", c.ID))
	}
	if !validFrom.MatchString(c.From) {
		missing = append(missing, fmt.Sprintf(
			`From, such as "D1 Expect 2, 3; D2 paragraph 1; +", where + is beyond the documents (it has %q)`, c.From))
	}
	if c.Says == "" || strings.HasSuffix(c.Says, ".") {
		missing = append(missing, "Says, one sentence without a full stop")
	}
	if c.Why == "" {
		missing = append(missing, "Why")
	}
	if c.Read.IsZero() {
		missing = append(missing, "Read, the upstream function to read")
	}
	if c.FalseIf.IsZero() {
		missing = append(missing, "FalseIf, the world in which it is false")
	}
	for _, w := range c.worlds() {
		if w.IsZero() {
			continue
		}
		if w.Sign == "" {
			missing = append(missing, fmt.Sprintf("Shows, the sign of failure in the world where %s", w.Where))
		} else if _, err := regexp.Compile(w.Sign); err != nil {
			missing = append(missing, fmt.Sprintf("a sign that is a regular expression: %v", err))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return errors.New("this claim is not complete, so there is no lesson: it needs " + strings.Join(missing, "; "))
}

// Prove runs a lesson as the world is, where every step must succeed and the claim must hold, and once in each
// world where the claim is false, where the lesson must fail with an explanation that carries the sign of that
// world. What came of it goes into the record of the run, and its page to the output of the test.
func Prove(t *testing.T, c Claim, steps func(*lab.Lab)) {
	t.Helper()
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	if chapter, _, _ := current.found().Book.Place(c.ID); chapter == 0 {
		t.Fatalf("%s has no place in the book: add it to a part of the list that lesson.Main is given", c.ID)
	}
	if test := t.Name(); record.IDOf(test) != c.ID && !strings.Contains(test, "/") {
		t.Fatalf("%s proves %s: its name begins with Test%s_ and goes on with a sentence", test, c.ID, c.ID)
	}
	_, file, line, _ := runtime.Caller(1)
	lesson := c.record()
	lesson.Test, lesson.File, lesson.Line = t.Name(), filepath.Base(file), line
	if *claims {
		current.add(lesson)
		return
	}
	if *together {
		t.Parallel()
	}
	ctx, cancel := deadline(t)
	defer cancel()
	attributes(t, lesson)
	lesson.Read = locate(ctx, c.Read)
	begun := time.Now()
	p := proof{t: t, ctx: ctx, claim: c, steps: steps, lesson: &lesson}
	p.run()
	lesson.Seconds = time.Since(begun).Seconds()
	current.add(lesson)
	print(t, lesson)
	switch lesson.Verdict {
	case record.Holds:
	case record.Skipped:
		t.SkipNow()
	default:
		t.Fail()
	}
}

// record is the claim as the record has it, before anything was run.
func (c Claim) record() record.Lesson {
	l := record.Lesson{
		ID: c.ID, Says: c.Says, Why: c.Why, Do: c.Do, From: c.From, Erratum: c.Erratum, Answers: strings.Fields(c.Answers),
		Read: record.Upstream{Package: c.Read.Package, Func: c.Read.Func},
	}
	for _, w := range c.worlds() {
		l.Worlds = append(l.Worlds, record.Telling{World: w.Where})
	}
	return l
}

// proof is one lesson at work.
type proof struct {
	t      *testing.T
	ctx    context.Context
	claim  Claim
	steps  func(*lab.Lab)
	lesson *record.Lesson
}

// run tells the lesson in reality and in its worlds, up to the first telling that is not as it should be, and gives
// the verdict.
func (p proof) run() {
	l := p.lesson
	worlds := p.claim.worlds()
	l.Worlds = nil
	if p.ctx.Err() != nil {
		l.Verdict, l.Problem = record.Unread, l.ID+" was not read: "+context.Cause(p.ctx).Error()
		return
	}
	var reality *world.World
	if *bend {
		reality = &worlds[0]
		l.Bent = reality.Where
	}
	known := lab.Shared().StartError() // an earlier lesson has said why
	l.Reality = p.tell(reality)
	if l.Verdict = verdict(l.Reality); l.Verdict == record.Stuck {
		if known != nil {
			l.Verdict = record.Unread
			l.Problem = l.ID + " was not read: the control plane did not start, and the first lesson that needed it says why"
		} else if err := lab.Shared().StartError(); err != nil {
			l.Verdict = record.Unread
			l.Problem = "This lesson needs a control plane, and there is none:\n" + err.Error()
		}
	}
	if l.Verdict != record.Holds {
		return
	}
	for _, w := range worlds {
		told := p.tell(&w)
		told.World = w.Where
		l.Worlds = append(l.Worlds, told)
		if err := unproved(w, told); err != nil {
			l.Verdict, l.Problem = record.Unproved, err.Error()
			return
		}
	}
}

// tell runs the steps of the lesson in a lab of their own, in its own goroutine because a lesson ends by
// runtime.Goexit when its claim does not hold.
func (p proof) tell(w *world.World) record.Telling {
	begun := time.Now()
	l := lab.New(p.ctx, lab.Shared(), strings.ToLower(p.claim.ID))
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if w != nil {
			w.Bend(l)
		}
		p.steps(l)
	}()
	<-done
	told := l.Told()
	told.Seconds = time.Since(begun).Seconds()
	keep(p.t, w, told, l.Kept())
	return told
}

// verdict is what came of a lesson in reality.
func verdict(told record.Telling) record.Verdict {
	switch {
	case told.Skipped != "":
		return record.Skipped
	case told.Failure == nil:
		return record.Holds
	case told.Failure.Stuck:
		return record.Stuck
	}
	return record.Broken
}

// unproved says why a run in a false world does not prove that the claim can fail; nil when it does.
func unproved(w world.World, told record.Telling) error {
	switch {
	case told.Skipped != "":
		return fmt.Errorf("it was skipped there (%s)", told.Skipped)
	case told.Failure == nil:
		return errors.New("nothing failed there: either the lesson does not notice when its claim is false, or this world " +
			"does not make it false")
	case told.Failure.Stuck:
		return errors.New("a step failed there, before the claim could be put to the test")
	case !regexp.MustCompile(w.Sign).MatchString(told.Failure.Observed):
		return fmt.Errorf("it failed there for another reason than the claim's own: OBSERVED does not match %q", w.Sign)
	}
	return nil
}

// deadline is the context of a test: it ends a little before go test would kill the binary, so that there
// is still time to say what was being waited for.
func deadline(t *testing.T) (context.Context, context.CancelFunc) {
	const spare = 5 * time.Second
	end, ok := t.Deadline()
	if !ok {
		return context.WithCancel(t.Context())
	}
	return context.WithDeadlineCause(t.Context(), end.Add(-spare), fmt.Errorf(
		"go test's -timeout, %v, is about to end the run: give a longer one, such as -timeout 1h",
		flag.Lookup("test.timeout").Value))
}
