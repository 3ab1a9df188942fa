package notebook

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// markdown expects that a text is the Markdown that a code host renders as it is meant: fences that end, headings
// that do not jump, no markup where text is meant, and diagrams that are well formed. It returns the diagrams.
func markdown(t *testing.T, text string) (diagrams []string) {
	t.Helper()
	const outside = ""
	fence, language := outside, ""
	var block []string
	level := 0
	for i, line := range strings.Split(text, "\n") {
		at := regexp.MustCompile("^(```+)(.*)$").FindStringSubmatch(line)
		switch {
		case fence == outside && at != nil:
			fence, language, block = at[1], at[2], nil
			require.Contains(t, []string{"", "mermaid"}, language, "line %d", i+1)
		case fence != outside && at != nil && at[2] == "" && len(at[1]) >= len(fence):
			if language == "mermaid" {
				diagram := strings.Join(block, "\n") + "\n"
				wellFormed(t, diagram)
				diagrams = append(diagrams, diagram)
			}
			fence = outside
		case fence != outside:
			block = append(block, line)
		case strings.HasPrefix(line, "#"):
			depth := strings.Index(line, " ")
			require.LessOrEqual(t, depth, level+1, "line %d: a heading jumps: %s", i+1, line)
			level = depth
		default:
			prose := regexp.MustCompile("`[^`]+`").ReplaceAllString(strings.ReplaceAll(line, "\\`", ""), "")
			require.NotContains(t, prose, "`", "line %d: a code span does not end: %s", i+1, line)
			require.NotRegexp(t, `<`, prose, "line %d: HTML: %s", i+1, line)
			for _, marks := range []string{"**", "*"} {
				plain := strings.ReplaceAll(prose, `\*`, "")
				if marks == "*" {
					plain = strings.ReplaceAll(plain, "**", "")
				}
				require.Zero(t, strings.Count(plain, marks)%2, "line %d: %s does not end: %s", i+1, marks, line)
			}
		}
	}
	require.Equal(t, outside, fence, "a block does not end")
	return diagrams
}

var (
	declares = regexp.MustCompile(`^    participant ([a-z]+[0-9]*)( as ([^;]|#\w+;)+)?$`)
	sends    = regexp.MustCompile(`^    ([a-z]+[0-9]*)-{1,2}>>([a-z]+[0-9]*): (.+)$`)
	remarks  = regexp.MustCompile(`^    Note (?:over|right of) ([a-z]+[0-9]*): (.+)$`)
	entity   = regexp.MustCompile(`#(\d+|[a-z]+);`)
)

// wellFormed expects that a diagram is of the part of Mermaid's language that the notebook uses.
func wellFormed(t *testing.T, diagram string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(diagram, "\n"), "\n")
	require.Equal(t, "sequenceDiagram", lines[0])
	known := map[string]bool{}
	prose := func(text, line string) {
		text = strings.ReplaceAll(entity.ReplaceAllString(text, ""), "<br/>", "")
		require.NotRegexp(t, `[;#<>]`, text, "Mermaid would take a part of this for something else: %s", line)
	}
	for _, line := range lines[1:] {
		if m := declares.FindStringSubmatch(line); m != nil {
			require.False(t, known[m[1]], "declared twice: %s", line)
			require.NotContains(t, []string{"end", "note", "loop", "alt", "opt", "par"}, m[1])
			known[m[1]] = true
		} else if m := sends.FindStringSubmatch(line); m != nil {
			require.True(t, known[m[1]] && known[m[2]], "not declared: %s", line)
			prose(m[3], line)
		} else if m := remarks.FindStringSubmatch(line); m != nil {
			require.True(t, known[m[1]], "not declared: %s", line)
			prose(m[2], line)
		} else {
			t.Fatalf("not a line of a sequence diagram: %q", line)
		}
	}
}
