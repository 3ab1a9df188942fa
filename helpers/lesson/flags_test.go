package lesson

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// To go test itself, -trace names a file to write into.
func TestATraceOfTheReaderIsReadAndNotWrittenOver(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		passes bool
		says   string
	}{
		"a trace":                  {"kind lease\nalice: get shelf -> 404 NotFound\n", true, "The sky is blue."},
		"a trace without its kind": {"alice: get shelf -> 404 NotFound\n", false, "line 1: found \"alice: get shelf -> 404 NotFound\", expected the first line"},
	} {
		path := filepath.Join(t.TempDir(), "reader.trace")
		require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
		page, passes := example(t, "holds", "-test.trace="+path)
		assert.Equal(t, c.passes, passes, name)
		assert.Contains(t, strings.Join(page, "\n"), c.says, name)
		kept, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, c.text, string(kept), name)
	}
}

func TestAnExecutionTraceIsWrittenAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "execution.trace")
	for range 2 {
		_, passes := example(t, "holds", "-test.trace="+path)
		assert.True(t, passes)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Greater(t, len(text), len("go 1.26 trace"))
		assert.True(t, strings.HasPrefix(string(text), "go 1."))
		require.NoError(t, os.WriteFile(path, text[:len("go 1.")], 0o600)) // of which nothing is left if it is written anew
	}
}
