package notebook

import (
	"testing"

	"github.com/stretchr/testify/require"

	"modrev/helpers/record"
)

func TestTheEmptyFormHasEveryQuestionAndNoAnswer(t *testing.T) {
	answers, err := ParseAnswers("form.txt", Form)
	require.NoError(t, err)
	for _, q := range Questions() {
		answer, ok := answers[q.Name]
		require.True(t, ok, "the form asks %q", q.Name)
		require.Empty(t, answer)
	}
	require.Len(t, answers, len(Questions()))
}

func TestAMalformedFormGetsItsLineNumberAndWhatWasExpected(t *testing.T) {
	for name, c := range map[string]struct{ form, says string }{
		"no colon":         {"# a comment\n\nresidues 0 1 2\n", "my.txt:3: expected a question, a colon and your answer"},
		"unknown question": {"residue: 0\n", `my.txt:1: "residue" is not a question of the form: expected one of "residues"`},
		"answered twice":   {"residues: 0\n\nresidues: 1\n", `my.txt:3: "residues" was answered further up already`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseAnswers("my.txt", c.form)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestAGradeSaysRightOrWrongAndWhyAndWhatToRead(t *testing.T) {
	answers, err := ParseAnswers("my.txt", "residues: 0, 1, 2\nstale replace: 200 OK\npaired numbers:\n")
	require.NoError(t, err)
	run := record.Run{}
	for id, fact := range map[string][2]string{
		"ML1": {record.Residues, "0 1 2"}, "CF1": {record.StaleReplace, "409 Conflict"}, "RV2": {record.PairsEqual, "equal"},
	} {
		run.Add(record.Lesson{
			ID: id, Test: "TestX", Says: "it is so", Why: "a reason",
			Reality: record.Telling{Facts: map[string][]string{fact[0]: {fact[1]}}},
		})
	}
	out := Grade(run, answers)
	require.Contains(t, out, "right   residues: 0 1 2\n")
	require.Contains(t, out, `wrong   stale replace: you expected "200 OK", the run showed "409 Conflict".`)
	require.Contains(t, out, "\n          The claim: it is so.\n          Why it matters: a reason.\n")
	require.Contains(t, out, "Read CF1: go test -v -run CF1_ .")
	require.Contains(t, out, "empty   paired numbers: the run showed \"equal\".\n          Read RV2: go test ")
	require.Contains(t, out, "unseen  compare: the lesson of GU7 was not part of this run")
	require.Contains(t, out, "1 right, 1 wrong, 1 empty.")
}

func TestWhatMeansTheSame(t *testing.T) {
	for _, c := range []struct {
		expected, saw string
		want          bool
	}{
		{"0, 1, 2", "0 1 2", true},
		{"Mod_Revision", "mod revision", true},
		{"409", "409 Conflict", true},
		{"conflict", "409 Conflict", true},
		{"200", "409 Conflict", false},
		{"1 Range", "1 Range, 1 Txn", false},
		{"1", "1 Range", false},
		{"Range", "1 Range", false},
	} {
		require.Equal(t, c.want, same(c.expected, c.saw), "%q and %q", c.expected, c.saw)
	}
}
