package ledger

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"modrev/helpers/record"
)

var update = flag.Bool("update", false, "write the golden file anew instead of comparing with it")

func TestTheLedgerOfARecord(t *testing.T) {
	data, err := os.ReadFile("../record/testdata/run.json")
	require.NoError(t, err)
	run, err := record.Parse(data)
	require.NoError(t, err)
	run.Add(record.Lesson{ID: "ZZ1", Says: "it stands | nowhere"})
	text := Render(run)
	if *update {
		require.NoError(t, os.WriteFile("testdata/claims.golden.md", text, 0o644))
	}
	want, err := os.ReadFile("testdata/claims.golden.md")
	require.NoError(t, err)
	assert.Equal(t, string(want), string(text), "go test . -update writes the golden file anew")
}

func TestEveryMisconceptionIsAnsweredOrSaysWhyNot(t *testing.T) {
	problems := Unanswered(record.Run{Lessons: []record.Lesson{{ID: "RV1", Answers: []string{"#1", "#4"}}}})
	assert.Contains(t, problems, "RV1 answers #4, which is no misconception of the list")
	assert.Contains(t, problems, "no lesson answers misconception 2 (a conflict means that the token is stale, so renew "+
		"the token)")
	for _, p := range problems {
		assert.NotContains(t, p, "misconception 1 ")
		assert.NotContains(t, p, "misconception 78 ")
	}
}
