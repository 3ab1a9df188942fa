package lesson

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// go test takes files in alphabetical order, in which this one is the last.
func TestTheBookIsReadInTheOrderOfItsChapters(t *testing.T) {
	tests, err := list(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "TestTheBookIsReadInTheOrderOfItsChapters", tests[0], "the first chapter comes first")
	assert.Equal(t, "TestExampleLessons", tests[1], "and then the second, in the order of its file")
	assert.Equal(t, "TestTheLedgerHasARowForEachLesson", tests[len(tests)-3], "what is in no chapter comes last")
}
