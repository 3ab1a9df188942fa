package lesson

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"modrev/helpers/source"
)

func TestTheLedgerHasARowForEachLesson(t *testing.T) {
	text := string(render([]row{
		{ID: "RV10", Says: "ten", Worlds: []string{"a", "b"}, Read: "pkg F", From: "+", Test: "TestRV10_Ten"},
		{ID: "RV2", Says: "two | deux", CannotBend: "it is so", Read: "pkg F", From: "D1", Test: "TestRV2_Two", Answers: "#3"},
		{ID: "RV2b", Says: "two, again", Worlds: []string{"a"}},
	}, Book{{Title: "nothing"}, {Title: "numbers", Parts: []Part{{Lessons: "RV2"}, {Lessons: "RV10 RV2b"}}}}))
	_, table, _ := strings.Cut(text, "\n## ")
	rows := strings.Split(table, "\n")
	assert.Equal(t, []string{
		"Chapter 2 · numbers", "",
		"| id | claim | test | false in a world where | upstream | from | answers | erratum |",
		"|---|---|---|---|---|---|---|---|",
		"| RV2 | two \\| deux | TestRV2_Two | (none is shown: it is so) | `pkg F` | D1 | #3 |  |",
		"| RV10 | ten | TestRV10_Ten | a; or b | `pkg F` | + |  |  |",
		"| RV2b | two, again |  | a | `` |  |  |  |",
	}, rows[:7])
}

func TestWhatIsWrongWithTheLessonsAsAWholeIsSaid(t *testing.T) {
	rows := []row{
		{ID: "RV1", Test: "TestRV1_One", Ref: source.Decl("pkg", "F")},
		{ID: "RV1", Test: "TestRV1_Other", Ref: source.Decl("pkg", "G")},
		{ID: "RV3", Test: "TestThree", Ref: source.Decl("pkg", "F")},
	}
	find := func(r source.Ref) error {
		if r.Func == "G" {
			return errors.New("there is no G in pkg")
		}
		return nil
	}
	book := Book{{Parts: []Part{{Lessons: "RV1 RV2"}}}}
	assert.Equal(t, []string{
		"TestMute makes no claim: a test of the book is a lesson, so call lesson.Prove in it",
		"RV2 is in the list of the book, and no lesson claims it",
		"RV1 names an upstream function that is not there: there is no G in pkg",
		"TestRV1_One and TestRV1_Other both claim RV1: give one of them the next number",
		"RV3 is not in the list of the book: give it a place there",
		"TestThree proves RV3: its name begins with TestRV3_ and goes on with a sentence",
	}, problems(rows, book, []string{"TestRV1_One", "TestRV1_Other", "TestThree", "TestMute", "TestApart"}, []string{"TestApart"}, find))
}

func TestALessonThatIsAskedWhatItClaimsSaysSoAndDoesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	t.Setenv(ledgerVariable, path)
	page, passes := example(t, "broken")
	assert.True(t, passes, strings.Join(page, "\n"))
	assert.FileExists(t, path)
	require.Equal(t, "line 2\n  in the file:    b\n  by the lessons: c", firstDifference([]byte("a\nb"), []byte("a\nc\nd")))
}
