// Package lesson is the form of a lesson: a claim, the steps that show it, the world in which it is
// false, and the message when it breaks.
package lesson

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"modrev/helpers/lab"
	"modrev/helpers/notebook"
	"modrev/helpers/source"
	"modrev/helpers/wire"
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
	// FalseIf is the world in which the claim is false; the lesson must fail there.
	FalseIf world.World
	// AlsoFalseIf are further such worlds.
	AlsoFalseIf []world.World
	// CannotBend says, in one line, why there is no world in which the claim is false; it takes the place of
	// FalseIf, and is listed at the end of the run.
	CannotBend string
	// Read is the upstream function to read.
	Read source.Ref
	// Erratum says how the document differs from what is true, if it does.
	Erratum string
	// Answers names the misconceptions that the lesson answers, by their row: "#3".
	Answers string
}

func (c Claim) worlds() []world.World {
	if c.FalseIf.IsZero() {
		return c.AlsoFalseIf
	}
	return append([]world.World{c.FalseIf}, c.AlsoFalseIf...)
}

var validID = regexp.MustCompile(`^[A-Z]{2}[0-9]+[a-z]?$`)

// check says what a claim lacks.
func (c Claim) check() error {
	var missing []string
	if !validID.MatchString(c.ID) {
		missing = append(missing, fmt.Sprintf("an ID of two capitals and a number (it has %q)", c.ID))
	}
	if c.From == "" {
		missing = append(missing, `From, the document it comes from ("+" when it is beyond the documents)`)
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
	if len(c.worlds()) == 0 && c.CannotBend == "" {
		missing = append(missing, "FalseIf, the world in which it is false (or CannotBend, why there is none)")
	}
	if len(c.worlds()) > 0 && c.CannotBend != "" {
		missing = append(missing, "a decision: it has both FalseIf and CannotBend")
	}
	for _, w := range c.worlds() {
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

// Prove runs a lesson twice: once as the world is, where every step must succeed and the claim must hold,
// and once in each world where the claim is false, where the lesson must fail with an explanation that
// carries the sign of that world. What the lesson has to tell goes to the output of the test.
func Prove(t *testing.T, c Claim, steps func(*lab.Lab)) {
	t.Helper()
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	_, file, _, _ := runtime.Caller(1)
	if path := os.Getenv(ledgerVariable); path != "" {
		if err := enter(path, t.Name(), filepath.Base(file), c); err != nil {
			t.Fatal(err)
		}
		return
	}
	if *together {
		t.Parallel()
	}
	ctx, cancel := deadline(t)
	defer cancel()
	p := printer{ctx: ctx, t: t}
	p.attributes(c)
	if err := unreadable(ctx, c, steps); err != nil {
		t.Fatalf("%s was not read: %v", c.ID, err)
	}

	p.heading(c)
	p.paragraph(notebook.Capital(c.Says) + ".")
	p.paragraph("Why it matters: " + c.Why + ".")
	if c.Erratum != "" {
		p.paragraph("Erratum: " + c.Erratum)
	}
	var reality *world.World
	if *bend && len(c.worlds()) > 0 {
		reality = &c.worlds()[0]
		p.paragraph("(-bend: this run takes a world for real where " + reality.Where + ".)")
	}
	holds := try(ctx, c, reality, steps)
	p.page(holds)
	artifacts(t, &holds)
	if holds.skipped != "" {
		p.skip(c, holds.skipped)
	}
	if err := lab.Shared().StartError(); err != nil && holds.stuck() {
		p.line("This lesson needs a control plane, and there is none:")
		p.paragraph(err.Error())
		t.Fail()
		return
	}
	if holds.failure != nil {
		p.failure(c, holds)
		t.Fail()
		return
	}
	if reality == nil {
		writeDown(t.Name(), c, holds)
	}
	for i, w := range c.worlds() {
		bent := try(ctx, c, &w, steps)
		artifacts(t, &bent)
		if err := defect(w, bent); err != nil {
			p.defect(c, w, bent, err)
			t.Fail()
			return
		}
		wireLines := shownWire
		if i > 0 { // one tape on a page shows how a world is bent
			wireLines = 0
		}
		p.counterfactual(c, w, bent, wireLines)
	}
	p.paragraph("Read: " + p.locate(c))
	if c.CannotBend != "" {
		lab.Shared().Remark(lab.Remark{About: unbending, ID: c.ID, Text: c.CannotBend})
		p.paragraph("No world is shown in which this is false: " + c.CannotBend + ".")
	}
}

// run is one run of a lesson and what came of it.
type run struct {
	world   *world.World
	page    []string
	tape    []string
	steps   []wire.Step
	facts   map[string][]string
	kept    []lab.Kept
	where   []string // where each of the kept files is
	failure *lab.Failure
	skipped string // the reason
}

// stuck says whether a step on the way to the claim could not be done.
func (r run) stuck() bool { return r.failure != nil && r.failure.Stuck }

// unreadable says why a lesson need not begin: the time of the run is over, or it needs the control plane that an
// earlier lesson could not start. That lesson has said why, and one line is enough for each that follows.
func unreadable(ctx context.Context, c Claim, steps func(*lab.Lab)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if lab.Shared().StartError() == nil || !try(ctx, c, nil, steps).stuck() {
		return nil
	}
	return errors.New("the control plane did not start, and the first lesson that needed it says why")
}

// try runs the steps of a lesson in a lab of their own, in its own goroutine because a lesson ends by
// runtime.Goexit when its claim does not hold.
func try(ctx context.Context, c Claim, w *world.World, steps func(*lab.Lab)) run {
	l := lab.New(ctx, lab.Shared(), strings.ToLower(c.ID))
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if w != nil {
			w.Bend(l)
		}
		steps(l)
	}()
	<-done
	return run{
		world: w, page: l.Page(), tape: l.Wire.Tape().Lines(0), steps: l.Wire.Tape().Steps(), facts: l.Facts(), failure: l.Failure(),
		kept: l.Kept(), skipped: l.Skipped(),
	}
}

// defect says why a run in a false world does not prove that the claim can fail; nil when it does.
func defect(w world.World, r run) error {
	switch {
	case r.skipped != "":
		return fmt.Errorf("it was skipped there (%s)", r.skipped)
	case r.failure == nil:
		return errors.New("nothing failed there: either the lesson does not notice when its claim is false, or this world does not make it false")
	case r.failure.Stuck:
		return errors.New("a step failed there, before the claim could be put to the test")
	case !regexp.MustCompile(w.Sign).MatchString(r.failure.Observed):
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
		"go test's -timeout, %v, is about to end the run: give a longer one, such as -timeout 1h", flag.Lookup("test.timeout").Value))
}
