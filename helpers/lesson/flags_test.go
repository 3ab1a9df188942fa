package lesson

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"modrev/helpers/record"
)

func TestATraceOfTheReaderIsReadBeforeAnythingRuns(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		passes bool
		says   string
	}{
		"a trace": {"kind lease\nalice: get shelf -> 404 NotFound\n", true, "The sky is blue."},
		"a trace without its kind": {"alice: get shelf -> 404 NotFound\n", false,
			"line 1: found \"alice: get shelf -> 404 NotFound\", expected the first line"},
	} {
		path := filepath.Join(t.TempDir(), "reader.trace")
		require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
		page, passes := example(t, "holds", "-replay="+path)
		assert.Equal(t, c.passes, passes, name)
		assert.Contains(t, strings.Join(page, "\n"), c.says, name)
	}
}

func TestTheRecordHoldsWhatTheRunFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json")
	_, passes := example(t, "holds", "-record="+path)
	require.True(t, passes)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	run, err := record.Parse(data)
	require.NoError(t, err)
	l := run.Lessons[0]
	assert.Equal(t, record.Holds, l.Verdict)
	assert.Equal(t, "prove_test.go", l.File)
	assert.Equal(t, []record.Block{{Text: "The sky is blue."}}, l.Reality.Page)
	assert.Equal(t, "it is green", l.Worlds[0].Failure.Observed)
	assert.Equal(t, []string{"the sky was painted"}, l.Worlds[0].Tape.Lines())

	page, passes := example(t, "holds", "-record="+filepath.Join(path, "run.json"))
	assert.False(t, passes)
	assert.Contains(t, strings.Join(page, "\n"), "name a file in a folder that is there, with -record")
}

func TestARecordNamesNoFolderOfThisMachine(t *testing.T) {
	here, err := os.Getwd()
	require.NoError(t, err)
	assert.Equal(t, "./x and $TMPDIR/modrev-1/etcd",
		withoutPaths(here+"/x and "+filepath.Join(os.TempDir(), "modrev-1/etcd")))
}
