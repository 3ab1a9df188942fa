package transcript

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// play runs a transcript; the requests given appear on the wire with the commands, one each.
func play(t *testing.T, text string, requests ...string) error {
	t.Helper()
	tr, err := Parse("some.txtar", []byte(text))
	require.NoError(t, err)
	n := 0
	return tr.Run(t.Context(), Stage{
		Dir:   t.TempDir(),
		Paths: map[string]string{"/their/path": "/mine"},
		Wire:  func(context.Context) ([]string, error) { n++; return requests[:min(n-1, len(requests))], nil },
	})
}

func TestATranscriptIsTypedIntoOneShellAndCompared(t *testing.T) {
	require.NoError(t, play(t, `What is read before.

-- Do 1: set the stage --
For the reader.
-- type --
a=1
sleep 60 &
echo one; echo two >&2
-- see --
one
two
-- Do 2: variables and jobs are still there --
-- type --
echo "a is $a"
kill %1 && echo killed
printf 'k8s=%s  etcd=%s\n' 17 17 18 18
-- see --
a is <a>
killed
k8s=<first>  etcd=<first>
k8s=<second>  etcd=<second>
-- where --
a < first < second
-- type --
seq 5
echo '{"n":17,"uid":"x"}'
-- see --
1
…
5
{"n":<first>,"uid":"…"}
-- type --
echo b; echo a
-- see in any order --
a
b
-- type --
echo /their/path/x
-- see --
/their/path/x
-- type --
cat
false
-- see --
`))
}

func TestTheWireIsComparedFromWhatWasTypedLast(t *testing.T) {
	const text = `
-- first --
-- type --
true
-- type --
true
-- wait --
Get \w+
-- wire --
Get b at <n>
…
`
	// The stage shows one request more each time that it is looked at.
	require.NoError(t, play(t, text, "Put a", "Get b at 7", "Txn"))
	err := play(t, text, "Put a", "Get c at 7", "Txn")
	require.ErrorContains(t, err, "some.txtar, first: typed\n    true\nexpected on the wire\n    Get b at <n>\n    …\nbut there was\n    Get c at 7\n")
}

func TestAWireThatCannotBeReadIsAnErrorAtOnce(t *testing.T) {
	for _, section := range []string{"wait", "wire"} {
		tr, err := Parse("some.txtar", []byte("-- first --\n-- type --\ntrue\n-- "+section+" --\nPut\n"))
		require.NoError(t, err)
		require.EqualError(t, tr.Run(t.Context(), Stage{}), "some.txtar, first: nobody looks at the wire here")

		looks := 0
		err = tr.Run(t.Context(), Stage{Wire: func(context.Context) ([]string, error) {
			if looks++; looks > 1 { // the first is for what is typed
				return nil, errors.New("no such socket")
			}
			return nil, nil
		}})
		require.EqualError(t, err, "some.txtar, first: reading the wire: no such socket")
		require.Equal(t, 2, looks)
	}
}

func TestWhatIsNotAsTheTranscriptSaysIsAnError(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"another number": {
			"-- type --\necho 17 17; echo 17 18\n-- see --\n<n> <n>\n<n> <n>\n",
			"expected see\n    <n> <n>\n    <n> <n>\nbut there was\n    17 17\n    17 18\n",
		},
		"another number later":   {"-- type --\necho 17\n-- see --\n<n>\n-- type --\necho 18\n-- see --\n<n>\n", "<n> is 17"},
		"no number":              {"-- type --\necho x\n-- see --\n<n>\n", "but there was\n    x"},
		"a line too many":        {"-- type --\nseq 2\n-- see --\n1\n", "but there was\n    1\n    2"},
		"a line too few":         {"-- type --\nseq 2\n-- see --\n1\n2\n3\n", "but there was\n    1\n    2"},
		"nothing":                {"-- type --\ntrue\n-- see --\n1\n", "but there was\n    (nothing)"},
		"never seen":             {"-- type --\necho x\n", "the screen shows at the end, without a see:\n    x"},
		"text is no pattern":     {"-- type --\necho axb\n-- see --\na.b\n", "but there was\n    axb"},
		"the wrong order":        {"-- type --\necho 1 2\n-- see --\n<a> <b>\n-- where --\nb < a\n", "expected b < a, and <a> is 1 after 2"},
		"equal is not less":      {"-- type --\necho 1 1\n-- see --\n<a> <b>\n-- where --\na < b\n", "and <b> is 1 after 1"},
		"a number of no meaning": {"-- type --\ntrue\n-- where --\na < b\n", "there is no number <a> in what was seen before"},
		"the end of the shell":   {"-- Do 9 --\n-- type --\necho bye; exit\n", "some.txtar, Do 9: typing\n    echo bye; exit\nthe shell has ended; it had printed\n    bye"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, play(t, c.text), c.says)
		})
	}
}

func TestLinesInAnyOrderAreEachSeenOnce(t *testing.T) {
	for _, c := range []struct {
		expected, got string
		ok            bool
	}{
		{"a b", "b a", true},
		{"a a b", "a b b", false},
		{"<n> <n>", "1 1", true},
		{"<n> <n>", "1 2", false},
		{"<n> <m>", "1 2", true},
		{"<n>x <n>", "1 2 ", false},
		{"<n> <n>x", "1x 2 1", false},
	} {
		_, ok := numbers{}.inAnyOrder(strings.Fields(c.expected), strings.Fields(c.got))
		require.Equal(t, c.ok, ok, "%q, %q", c.expected, c.got)
	}
}

func TestATranscriptThatCannotBeReadSaysSo(t *testing.T) {
	_, err := Parse("some.txtar", []byte("-- see --\nx\n"))
	require.EqualError(t, err, `some.txtar types nothing: give it a section "-- type --"`)
	_, err = Parse("some.txtar", []byte("-- Do 1 --\n-- type --\nx\n-- wait --\n(\n"))
	require.ErrorContains(t, err, "some.txtar, Do 1: what to wait for is no pattern")
}

func TestATranscriptEndsWithItsContext(t *testing.T) {
	tr, err := Parse("some.txtar", []byte("-- Do 1 --\n-- type --\necho here\nsleep 60\n"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	err = tr.Run(ctx, Stage{Settle: func(context.Context) error { cancel(errors.New("enough")); return nil }})
	require.ErrorContains(t, err, "enough")
}

func TestATranscriptLeavesNothing(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	tr, err := Parse("some.txtar", []byte("-- type --\ntrue\n"))
	require.NoError(t, err)
	require.NoError(t, tr.Run(t.Context(), Stage{}))
	require.ErrorContains(t, tr.Run(t.Context(), Stage{Dir: "/no/such/folder"}), "some.txtar: starting bash: ")
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestWhatWasTypedCanBeReadBack(t *testing.T) {
	tr, err := Parse("some.txtar", []byte("-- type --\n\na\n  b\n\n-- see --\n-- type --\nc\n"))
	require.NoError(t, err)
	require.Equal(t, []string{"a\n  b", "c"}, tr.Typed())
}
