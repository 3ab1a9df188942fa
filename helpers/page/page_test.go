package page

import (
	"flag"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"modrev/helpers/record"
)

var update = flag.Bool("update", false, "write the golden files anew instead of comparing with them")

func sample(t *testing.T) record.Run {
	t.Helper()
	data, err := os.ReadFile("../record/testdata/run.json")
	require.NoError(t, err)
	run, err := record.Parse(data)
	require.NoError(t, err)
	return run
}

func TestThePagesOfARecord(t *testing.T) {
	run := sample(t)
	printer := Printer{Book: run.Book}
	var b strings.Builder
	for _, l := range run.Lessons {
		for _, line := range printer.Lesson(l) {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), inner, line)
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		b.WriteString("\n")
	}
	b.WriteString(Closing(run) + Census(run))
	golden(t, "testdata/pages.golden", b.String())
}

func golden(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), text, "go test . -update writes the golden file anew")
}

func TestAShuffledRunHasNoChapterHeadings(t *testing.T) {
	run := sample(t)
	page := (&Printer{Book: run.Book, Unordered: true}).Lesson(run.Lessons[0])
	assert.Equal(t, "RV2 · chapter 1, one object · D1 Do 3, Expect 1", page[0])
}

func TestWhatIsClaimedOfTheRunAsAWhole(t *testing.T) {
	assert.Empty(t, Closing(record.Run{}))
	assert.Contains(t, Closing(record.Run{MultiKeyTxns: []string{"Txn a", "Txn b"}}),
		"OBSERVED  in this run it sent a transaction "+
			"that writes several keys:\n          Txn a\n          Txn b\n")
}

func TestAnExcerptSaysWhichAPIServerAsksWhereThereAreSeveral(t *testing.T) {
	lines := Blocks([]record.Block{{Text: "a"}, {Text: "b"},
		{Excerpt: &record.Excerpt{Of: "two", Requests: record.Requests{
			{Method: record.Range, From: "apiserver", Key: "/registry/a"},
			{Method: record.Range, From: "second", Key: "/registry/a"},
		}}}, {Excerpt: &record.Excerpt{Of: "none"}}})
	assert.Equal(t, []string{
		"a", "b", "", "wire  two", "      apiserver: Range a → (no answer yet)", "      second: Range a → (no answer yet)",
		"wire  none", "      (no request reaches etcd)",
	}, lines)
}

func TestALongLineOfAQuoteGoesOnDeeper(t *testing.T) {
	lines := Blocks([]record.Block{{Quote: []string{"  a  b", "  " + strings.Repeat("word ", 30)}}})
	assert.Equal(t, "  a  b", lines[0])
	assert.True(t, strings.HasPrefix(lines[1], "  word word"))
	assert.True(t, strings.HasPrefix(lines[2], "      word"))
}

func TestASentenceBeginsWithACapitalUnlessItsFirstWordIsAName(t *testing.T) {
	assert.Equal(t, []string{"A b", "resourceVersion is", "mod_revision is", ""},
		[]string{Capital("a b"), Capital("resourceVersion is"), Capital("mod_revision is"), Capital("")})
}
