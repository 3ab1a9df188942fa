package record

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestARecordIsTheSameAfterAWayThroughJSON(t *testing.T) {
	data, err := os.ReadFile("testdata/run.json")
	require.NoError(t, err)
	first, err := Parse(data)
	require.NoError(t, err)
	again, err := first.JSON()
	require.NoError(t, err)
	second, err := Parse(again)
	require.NoError(t, err)
	assert.Equal(t, first, second)
}

func TestAnotherFormIsRefusedWithTheRemedy(t *testing.T) {
	_, err := Parse([]byte(`{"format": 99}`))
	assert.EqualError(t, err, "the record has format 99, and this book reads format 1: "+
		"run it again with go test . -record=FILE")
	_, err = Parse([]byte("PASS"))
	assert.ErrorContains(t, err, "this is no record of a run of the book; go test . -record=FILE writes one")
}

func TestLessonsStandInTheOrderOfTheBook(t *testing.T) {
	r := Run{Book: Book{{Parts: []Part{{Lessons: "RV1 RV2"}}}, {Parts: []Part{{Lessons: "CF2"}, {Lessons: "CF1"}}}}}
	for _, id := range []string{"ZZ1", "CF1", "RV2", "CF2", "RV1", "RV2"} {
		r.Add(Lesson{ID: id})
	}
	var ids []string
	for _, l := range r.Lessons {
		ids = append(ids, l.ID)
	}
	assert.Equal(t, []string{"RV1", "RV2", "CF2", "CF1", "ZZ1"}, ids)
	chapter, part, before := r.Book.Place("CF1")
	assert.Equal(t, []int{2, 2, 3}, []int{chapter, part, before})
	chapter, _, _ = r.Book.Place("ZZ1")
	assert.Zero(t, chapter)
}

func TestTheIDOfATestIsInItsName(t *testing.T) {
	for name, id := range map[string]string{
		"TestCF3_ARace": "CF3", "TestOT21b_X": "OT21b", "TestTheLedger": "", "TestCF3": "", "TestCF3_a": "",
	} {
		assert.Equal(t, id, IDOf(name), name)
	}
}

func TestATapeHasTwoOrders(t *testing.T) {
	tape := Tape{
		Calls: []Call{{Who: "writer", Verb: "PUT", Path: "configmaps/shelf", Done: true, Code: 409, Reason: "Conflict"}},
		Requests: []Request{{Method: Txn, Key: "/registry/a", Executed: 2}, {Method: Range, Key: "/registry/a", Executed: 1},
			{}},
		Steps: []Step{
			{Kind: Sent}, {Kind: Asked}, {Kind: Asked, N: 1}, {Kind: Replied, N: 1}, {Kind: Answered},
			{Kind: Remarked, Text: "so"},
		},
		Dropped: 3,
	}
	assert.Equal(t, []string{
		"(3 earlier entries are no longer kept)",
		"writer: PUT configmaps/shelf (no resourceVersion)",
		"    Txn without a compare, on a → (no answer yet)",
		"    Range a → (no answer yet)",
		"writer: ← 409 Conflict",
		"so",
	}, tape.Lines())
	executed := tape.Executed()
	require.Len(t, executed, 2)
	assert.Equal(t, Range, executed[0].Method)
}
