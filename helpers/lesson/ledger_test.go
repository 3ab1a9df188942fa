package lesson

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"modrev/helpers/record"
)

func TestWhatIsWrongWithTheLessonsAsAWholeIsSaid(t *testing.T) {
	run := record.Run{Book: Book{{Parts: []Part{{Lessons: "RV1 RV2"}}}}, Lessons: []record.Lesson{
		{ID: "RV1", Test: "TestRV1_Other", Read: record.Upstream{Package: "pkg", Func: "G"}},
		{ID: "RV3", Test: "TestThree", Read: record.Upstream{Package: "pkg", Func: "F"}},
	}}
	find := func(r record.Upstream) error {
		if r.Func == "G" {
			return errors.New("there is no G in pkg")
		}
		return nil
	}
	const noClaim = " makes no claim of its own: a test of the book is named TestID_Sentence, and calls lesson.Prove " +
		"with that ID"
	assert.Equal(t, []string{
		"TestRV1_One and TestRV1_Other both claim RV1: give one of them the next number",
		"TestThree" + noClaim,
		"TestMute" + noClaim,
		"RV2 is in the list of the book, and no lesson claims it",
		"RV1 names an upstream function that is not there: there is no G in pkg",
		"RV3 is not in the list of the book: give it a place there",
	}, problems(run, []string{"TestRV1_One", "TestRV1_Other", "TestThree", "TestMute", "TestApart"},
		[]string{"TestApart"}, find))
}

func TestALessonThatIsAskedWhatItClaimsSaysSoAndDoesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "claims.json")
	page, passes := example(t, "broken", "-claims", "-record="+path)
	assert.True(t, passes, strings.Join(page, "\n"))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	run, err := record.Parse(data)
	require.NoError(t, err)
	assert.Equal(t, "SK1", run.Lessons[0].ID)
	assert.Empty(t, run.Lessons[0].Verdict)
	require.Equal(t, "line 2\n  in the file:    b\n  by the lessons: c",
		firstDifference([]byte("a\nb"), []byte("a\nc\nd")))
}
