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
		{ID: "RV10", Says: "ten", File: "rv_test.go", Worlds: []string{"a", "b"}, Read: "pkg F", From: "+", Test: "TestTen"},
		{ID: "RV2", Says: "two | deux", File: "rv_test.go", CannotBend: "it is so", Read: "pkg F", From: "D1", Test: "TestTwo", Answers: "#3"},
		{ID: "RV2b", Says: "two, again", File: "rv_test.go", Worlds: []string{"a"}},
		{ID: "CF1", Says: "one", File: "astray_test.go", Worlds: []string{"a"}},
	}, []Chapter{{File: "empty_test.go", Title: "nothing"}, {File: "rv_test.go", Title: "numbers"}}))
	_, table, _ := strings.Cut(text, "\n## ")
	rows := strings.Split(table, "\n")
	assert.Equal(t, []string{
		"Chapter 2 · numbers (`rv_test.go`)", "",
		"| id | claim | test | false in a world where | upstream | from | answers | erratum |",
		"|---|---|---|---|---|---|---|---|",
		"| RV2 | two \\| deux | TestTwo | (none is shown: it is so) | `pkg F` | D1 | #3 |  |",
		"| RV2b | two, again |  | a | `` |  |  |  |",
		"| RV10 | ten | TestTen | a; or b | `pkg F` | + |  |  |",
		"",
		"## Chapter 3 · (this file is not among the chapters of the book) (`astray_test.go`)",
	}, rows[:9])
	assert.Contains(t, table, "| CF1 | one |")
}

func TestWhatIsWrongWithTheLessonsAsAWholeIsSaid(t *testing.T) {
	rows := []row{
		{ID: "RV1", Test: "TestOne", Ref: source.Func("pkg", "F")},
		{ID: "RV1", Test: "TestOther", Ref: source.Func("pkg", "G")},
	}
	find := func(r source.Ref) error {
		if r.Func == "G" {
			return errors.New("there is no G in pkg")
		}
		return nil
	}
	assert.Equal(t, []string{
		"TestMute makes no claim: a test of the book is a lesson, so call lesson.Prove in it",
		"RV1 names an upstream function that is not there: there is no G in pkg",
		"TestOne and TestOther both claim RV1: give one of them the next number",
	}, problems(rows, []string{"TestOne", "TestOther", "TestMute", "TestApart"}, []string{"TestApart"}, find))
}

func TestALessonThatIsAskedWhatItClaimsSaysSoAndDoesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	t.Setenv(ledgerVariable, path)
	page, passes := example(t, "broken")
	assert.True(t, passes, strings.Join(page, "\n"))
	assert.FileExists(t, path)
	require.Equal(t, "line 2\n  in the file:    b\n  by the lessons: c", firstDifference([]byte("a\nb"), []byte("a\nc\nd")))
}
