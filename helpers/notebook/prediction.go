package notebook

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"modrev/helpers/page"
	"modrev/helpers/record"
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

// Questions are the lines of the form, in its order. A lesson writes down its answer as a fact of the same name.
func Questions() []Question {
	return []Question{
		{record.Residues, "ML1"},
		{record.PairsEqual, "RV2"},
		{record.CreateRevision, "RV5"},
		{record.StaleReplace, "CF1"},
		{record.StaleReplaceCost, "CF2"},
		{record.RacedReplaceCost, "CF3"},
		{record.RacedPatchCost, "CF4"},
		{record.NoOpCost, "RV8"},
		{record.CompareField, "GU7"},
		{record.Counter, "OT4"},
	}
}

// Answers are what a reader wrote into the form, by the name of the question.
type Answers map[string]string

// ParseAnswers reads a form. An error names the file, the line, and what was expected there.
func ParseAnswers(file, text string) (Answers, error) {
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
			return nil, fmt.Errorf("%s:%d: %q is not a question of the form: expected one of %s", file, n, name, questionNames())
		}
		if _, twice := answers[name]; twice {
			return nil, fmt.Errorf("%s:%d: %q was answered further up already: expected each question once", file, n, name)
		}
		answers[name] = strings.TrimSpace(answer)
	}
	return answers, nil
}

func questionNames() string {
	var quoted []string
	for _, q := range Questions() {
		quoted = append(quoted, fmt.Sprintf("%q", q.Name))
	}
	return strings.Join(quoted, ", ")
}

// Grade answers each line of a form with what the run showed, and says which lesson to read.
func Grade(run record.Run, a Answers) string {
	var b strings.Builder
	line := func(verdict, format string, args ...any) {
		for _, part := range page.Wrap(fmt.Sprintf(format, args...), page.Width-margin) {
			fmt.Fprintf(&b, "  %-*s%s\n", margin-2, verdict, part)
			verdict = ""
		}
	}
	b.WriteString("Your predictions:\n")
	right, wrong, empty := 0, 0, 0
	for _, q := range Questions() {
		lines, ok := run.Fact(q.Name)
		taught, there := run.Lesson(q.Claim)
		saw := strings.Join(lines, " ")
		read := fmt.Sprintf("%*sRead %s: go test -v -run %s_ .\n", margin, "", q.Claim, q.Claim)
		switch expected := a[q.Name]; {
		case !ok || !there:
			line("unseen", "%s: the lesson of %s was not part of this run", q.Name, q.Claim)
		case expected == "":
			empty++
			line("empty", "%s: the run showed %q.", q.Name, saw)
			b.WriteString(read)
		case same(expected, saw):
			right++
			line("right", "%s: %s", q.Name, saw)
		default:
			wrong++
			line("wrong", "%s: you expected %q, the run showed %q.", q.Name, expected, saw)
			line("", "The claim: %s.", taught.Says)
			line("", "Why it matters: %s.", taught.Why)
			b.WriteString(read)
		}
	}
	fmt.Fprintf(&b, "%d right, %d wrong", right, wrong)
	if empty > 0 {
		fmt.Fprintf(&b, ", %d empty", empty)
	}
	b.WriteString(".\n")
	return b.String()
}

// margin is the width of the column in which the verdicts stand.
const margin = 10

// same says whether an expectation means what was seen: case, commas, quotes and the amount of space do not
// matter, and of an answer of the API the code or the reason is enough.
func same(expected, saw string) bool {
	expected, saw = bare(expected), bare(saw)
	if expected == saw {
		return true
	}
	answer := codeAndReason.FindStringSubmatch(saw)
	return answer != nil && (expected == answer[1] || expected == answer[2])
}

var codeAndReason = regexp.MustCompile(`^([1-5]\d\d) ([a-z]+)$`)

func bare(s string) string {
	s = strings.NewReplacer(",", " ", `"`, " ", "'", " ", "_", " ").Replace(strings.ToLower(s))
	return strings.Join(strings.Fields(s), " ")
}
