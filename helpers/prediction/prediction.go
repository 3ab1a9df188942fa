// Package prediction compares what a reader expected with what a run of the book showed.
package prediction

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Form is the empty form, ready to be filled in.
//
//go:embed form.txt
var Form string

// Question is one line of the form.
type Question struct {
	Name  string // as the form has it
	Claim string // the id of the claim whose lesson answers it
}

// Questions are the lines of the form, in its order.
func Questions() []Question {
	return []Question{
		{Residues, "ML1"},
		{PairedNumbers, "RV2"},
		{CreateRevision, "RV5"},
		{StaleReplace, "CF1"},
		{StaleReplaceCost, "CF2"},
		{RacedReplaceCost, "CF3"},
		{RacedPatchCost, "CF4"},
		{NoOpCost, "RV8"},
		{CompareField, "GU7"},
		{Counter, "OT4"},
	}
}

// The names of the questions; a lesson writes down its answer under the name.
const (
	Residues         = "residues"
	PairedNumbers    = "paired numbers"
	CreateRevision   = "create_revision"
	StaleReplace     = "stale replace"
	StaleReplaceCost = "stale replace, to etcd"
	RacedReplaceCost = "raced replace, to etcd"
	RacedPatchCost   = "raced patch, to etcd"
	NoOpCost         = "no-op, to etcd"
	CompareField     = "compare"
	Counter          = "counter"
)

// Answers are what a reader wrote into the form, by the name of the question.
type Answers map[string]string

// Parse reads a form. An error names the file, the line, and what was expected there.
func Parse(file, text string) (Answers, error) {
	answers := Answers{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, answer, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("%s:%d: expected a question, a colon and your answer, such as %q, and found %q",
				file, n, "paired numbers: equal", line)
		}
		name = strings.TrimSpace(name)
		if !slices.ContainsFunc(Questions(), func(q Question) bool { return q.Name == name }) {
			return nil, fmt.Errorf("%s:%d: %q is not a question of the form: expected one of %s", file, n, name, names())
		}
		if _, twice := answers[name]; twice {
			return nil, fmt.Errorf("%s:%d: %q was answered further up already: expected each question once", file, n, name)
		}
		answers[name] = strings.TrimSpace(answer)
	}
	return answers, nil
}

func names() string {
	var quoted []string
	for _, q := range Questions() {
		quoted = append(quoted, fmt.Sprintf("%q", q.Name))
	}
	return strings.Join(quoted, ", ")
}

// Lesson is what a grade says about the lesson that answers a question.
type Lesson struct {
	Test string // name of the test
	Says string // the claim
	Why  string
}

// Margin is the width of the column in which the verdicts of [Grade] stand.
const Margin = len(margin)

// Grade answers each line of a form. shown returns what the run showed under the name of a question, and
// lesson the lesson of a claim; both report false for what was not part of the run.
func Grade(a Answers, shown func(name string) (string, bool), lesson func(claim string) (Lesson, bool)) []string {
	out := []string{"Your predictions:"}
	right, wrong, empty := 0, 0, 0
	for _, q := range Questions() {
		saw, ok := shown(q.Name)
		taught, there := lesson(q.Claim)
		switch expected := a[q.Name]; {
		case !ok || !there:
			out = append(out, fmt.Sprintf("  unseen  %s: the lesson of %s was not part of this run", q.Name, q.Claim))
		case expected == "":
			empty++
			out = append(out,
				fmt.Sprintf("  empty   %s: the run showed %q.", q.Name, saw),
				read(q, taught))
		case same(expected, saw):
			right++
			out = append(out, fmt.Sprintf("  right   %s: %s", q.Name, saw))
		default:
			wrong++
			out = append(out,
				fmt.Sprintf("  wrong   %s: you expected %q, the run showed %q.", q.Name, expected, saw),
				fmt.Sprintf("%sThe claim: %s.", margin, taught.Says),
				fmt.Sprintf("%sWhy it matters: %s.", margin, taught.Why),
				read(q, taught))
		}
	}
	total := fmt.Sprintf("%d right, %d wrong", right, wrong)
	if empty > 0 {
		total += fmt.Sprintf(", %d empty", empty)
	}
	return append(out, total+".")
}

// margin is what stands before a line that belongs to the one above it; the verdicts are as wide.
const margin = "          "

func read(q Question, l Lesson) string {
	return fmt.Sprintf("%sRead %s: go test -v -run '^%s$' .", margin, q.Claim, l.Test)
}

// same says whether an expectation means what was seen: case, commas, quotes and the amount of space do not
// matter, and of an answer of the API the code or the reason is enough.
func same(expected, saw string) bool {
	expected, saw = plain(expected), plain(saw)
	if expected == saw {
		return true
	}
	answer := codeAndReason.FindStringSubmatch(saw)
	return answer != nil && (expected == answer[1] || expected == answer[2])
}

var codeAndReason = regexp.MustCompile(`^([1-5]\d\d) ([a-z]+)$`)

func plain(s string) string {
	s = strings.NewReplacer(",", " ", `"`, " ", "'", " ", "_", " ").Replace(strings.ToLower(s))
	return strings.Join(strings.Fields(s), " ")
}
