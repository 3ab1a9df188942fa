package notebook

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"modrev/helpers/record"
)

var rewrite = flag.Bool("update", false, "write the golden files anew instead of comparing with them")

func TestTheNotebookAndTheGradesOfARecord(t *testing.T) {
	data, err := os.ReadFile("../record/testdata/run.json")
	require.NoError(t, err)
	run, err := record.Parse(data)
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, Write(&b, run, "tapes"))
	markdown(t, b.String())
	answers, err := ParseAnswers("form.txt", Form)
	require.NoError(t, err)
	answers[record.PairsEqual], answers[record.StaleReplaceCost] = "equal", "2 Txn"
	for path, text := range map[string]string{
		"testdata/notebook.golden.md": b.String(), "testdata/grades.golden": Grade(run, answers),
	} {
		if *rewrite {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(want), text, "go test . -update writes the golden files anew")
	}
}
