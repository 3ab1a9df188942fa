package notebook

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"modrev/helpers/record"
)

// asked are claims whose lessons write down what the first document asks for, answer the questions of the form, or
// force a race; and some whose tables hold uids and names that the server makes up.
var asked = []string{
	"RV2", "RV5", "RV8", "CF1", "CF2", "CF3", "CF4", "CF5", "CF8f", "CF10", "GU1", "GU7", "OT4", "OT25", "ML1",
}

// read is what a run of the book leaves behind.
type read struct {
	notebook, folder, output string
	record                   record.Run
}

// bookBinary compiles the book.
func bookBinary(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "book.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, "modrev").CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}

// run reads some lessons of the book.
func run(t *testing.T, binary string, args ...string) read {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "notebook.md")
	args = append([]string{"-test.run", "^Test(" + strings.Join(asked, "|") + ")_", "-test.v", "-notebook", path,
		"-record", filepath.Join(dir, "run.json")}, args...)
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir = filepath.Join("..", "..") // as go test runs it
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	for _, name := range asked {
		require.True(t, strings.Contains(string(out), "--- PASS: Test"+name+"_"), "the run did not prove %s", name)
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(dir, "run.json"))
	require.NoError(t, err)
	found, err := record.Parse(data)
	require.NoError(t, err)
	return read{string(text), dir, string(out), found}
}

// pagesOf takes a notebook apart at its headings.
func pagesOf(notebook string) []string { return strings.Split(notebook, "\n### ")[1:] }

var (
	uids      = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{8}\b`)
	generated = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}\b`) // k8s.io/apimachinery/pkg/util/rand
	// a longer number moves a column, or breaks a line elsewhere
	spaces = regexp.MustCompile(`\s+`)
)

// withoutNumbers is a notebook without what may differ from run to run.
func withoutNumbers(text string) string {
	for _, r := range []*regexp.Regexp{uids, generated, digits} {
		text = r.ReplaceAllString(text, "0")
	}
	return spaces.ReplaceAllString(text, " ")
}

// apart shows where two texts part, word by word; "" if they do not.
func apart(a, b string) string {
	one, two := strings.Fields(a), strings.Fields(b)
	for i := range max(len(one), len(two)) {
		if i < len(one) && i < len(two) && one[i] == two[i] {
			continue
		}
		around := func(words []string) string {
			return strings.Join(words[min(max(0, i-12), len(words)):min(i+12, len(words))], " ")
		}
		return "one says:     … " + around(one) + " …\nanother says: … " + around(two) + " …"
	}
	return ""
}

func TestTwoRunsOfTheBookMakeNotebooksThatDifferInTheirNumbersOnly(t *testing.T) {
	binary := bookBinary(t)
	form := filepath.Join(t.TempDir(), "my.txt")
	require.NoError(t, os.WriteFile(form, []byte(filledIn(t)), 0o600))
	first, second := run(t, binary), run(t, binary, "-predict", form)
	require.False(t, first.notebook == second.notebook, "the numbers of one run are not those of another")
	pages, again := pagesOf(first.notebook), pagesOf(second.notebook)
	require.Len(t, again, len(pages))
	for i := range pages {
		require.Empty(t, apart(withoutNumbers(pages[i]), withoutNumbers(again[i])), "two runs differ in %s",
			strings.Fields(pages[i])[0])
	}

	// The tapes are left out: how far a cache has come decides whether the apiserver reads before it writes.
	told := func(l record.Lesson) string {
		var out []any
		for _, told := range append([]record.Telling{l.Reality}, l.Worlds...) {
			out = append(out, told.World, told.Page, told.Facts, told.Failure)
		}
		text, err := json.Marshal(out)
		require.NoError(t, err)
		return withoutNumbers(string(text))
	}
	require.Len(t, second.record.Lessons, len(asked))
	for i, l := range first.record.Lessons {
		require.Empty(t, apart(told(l), told(second.record.Lessons[i])), "two records differ in %s", l.ID)
	}

	diagrams := markdown(t, first.notebook)
	require.NotEmpty(t, diagrams)
	for i, written := range []string{
		"The paired numbers\n\n```\n(k8s=(\\d+)  etcd=\\d+\n){3}```\n",
		"The exact 409 sentence\n\n> Operation cannot be fulfilled on configmaps \"shelf\": " +
			"the object has been modified; please apply your changes to the latest version and try again\n",
		`File and function of the compare\n\n> ` +
			`go\.etcd\.io/etcd/client/v3 v\S+ kubernetes/client\.go Client\.OptimisticPut\n`,
		"The sentence, completed\n\n> a resourceVersion precondition is a Txn whose compare is on mod_revision\n",
	} {
		require.Regexp(t, "^"+written, pages[i])
	}
	for _, pair := range regexp.MustCompile(`k8s=(\d+)  etcd=(\d+)`).FindAllStringSubmatch(pages[0], -1) {
		require.Equal(t, pair[1], pair[2])
	}

	// Each claim has its tape, and each lesson whose tape says that a rival was let in has a picture of it.
	raced := 0
	for _, page := range pages {
		link := regexp.MustCompile(`\[The whole tape\]\(([^)]+)\)`).FindStringSubmatch(page)
		if link == nil {
			continue // a heading of what was written down
		}
		tape, err := os.ReadFile(filepath.Join(first.folder, link[1]))
		require.NoError(t, err)
		if strings.Contains(string(tape), "held until the rival had written") || strings.Contains(string(tape), "overtaken") {
			raced++
			require.Contains(t, page, "```mermaid\nsequenceDiagram\n", "there is no picture of the race")
		}
	}
	require.GreaterOrEqual(t, raced, 5)

	graded(t, second.output)
}

// filledIn is the form as a reader might fill it in: one line wrong, one left empty, the others right.
func filledIn(t *testing.T) string {
	t.Helper()
	text := Form
	for name, answer := range map[string]string{
		record.Residues:         "0, 1, 2, 3, 4, 5, 6, 7, 0",
		record.PairsEqual:       "Equal",
		record.CreateRevision:   "stays",
		record.StaleReplace:     "409 Conflict",
		record.StaleReplaceCost: "1 Range, 1 Txn", // as who has read the first document would expect
		record.RacedReplaceCost: "1 Txn",
		record.RacedPatchCost:   "2 Txn",
		record.CompareField:     "mod_revision",
		record.Counter:          "3",
	} {
		require.Contains(t, text, "\n"+name+":\n")
		text = strings.Replace(text, "\n"+name+":\n", "\n"+name+": "+answer+"\n", 1)
	}
	return text
}

// graded expects the answers to the form above at the end of a run.
func graded(t *testing.T, output string) {
	t.Helper()
	_, answers, ok := strings.Cut(output, "Your predictions:\n")
	require.True(t, ok, output)
	require.Contains(t, answers, "  right   residues: 0 1 2 3 4 5 6 7 0\n")
	require.Contains(t, answers, "  right   paired numbers: equal\n")
	require.Contains(t, answers,
		`  wrong   stale replace, to etcd: you expected "1 Range, 1 Txn", the run showed "1 Range".`)
	require.Regexp(t, `Read CF2: go test -v -run CF2_ \.`, answers)
	require.Contains(t, answers,
		"  empty   no-op, to etcd: the run showed \"1 Range\".\n          Read RV8: go test -v -run ")
	require.Contains(t, answers, "8 right, 1 wrong, 1 empty.\n")
	for line := range strings.Lines(answers) {
		if !strings.Contains(line, "go test") {
			require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 100)
		}
	}
}
