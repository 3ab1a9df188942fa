package token

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const sample = `# Two readers.
# One is refused.
kind configmap

alice: create shelf color=red count=1 -> 201, t1 u1   # the first
bob:   get shelf
alice: patch shelf -color count=2 @t1 %u1 -> 200 t2 wrote count=2
bob: delete shelf @none -> empty
carol: replace note @foreign->
`

func TestParseReadsWhatThePackageDocumentationDescribes(t *testing.T) {
	text, _, _ := strings.Cut(sample, "carol:")
	got, err := Parse([]byte(text))
	require.NoError(t, err)
	require.Equal(t, Trace{
		About: []string{"Two readers.", "One is refused."},
		Kind:  ConfigMap,
		Steps: []Step{
			{
				Line: 5, Client: "alice", Verb: Create, Name: "shelf", Set: Content{"color": "red", "count": "1"},
				Expect: &Expect{Code: 201, Token: "t1", UID: "u1"},
			},
			{Line: 6, Client: "bob", Verb: Get, Name: "shelf"},
			{
				Line: 7, Client: "alice", Verb: Patch, Name: "shelf", Set: Content{"count": "2"},
				Unset: []string{"color"}, Token: "t1", UID: "u1",
				Expect: &Expect{Code: 200, Token: "t2", Write: Wrote, Content: Content{"count": "2"}},
			},
			{Line: 8, Client: "bob", Verb: Delete, Name: "shelf", Expect: &Expect{Content: Content{}}},
		},
	}, got)
	require.Equal(t, `# Two readers.
# One is refused.
kind configmap
alice: create shelf color=red count=1      -> 201, t1 u1
bob:   get shelf
alice: patch shelf count=2 -color @t1 %u1  -> 200, t2 wrote count=2
bob:   delete shelf                        -> empty
`, got.String())
}

func TestTheExampleInThePackageDocumentationIsATrace(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var text strings.Builder
	for line := range strings.Lines(string(doc)) {
		if code, ok := strings.CutPrefix(line, "//\t"); ok && text.Len() >= 0 {
			text.WriteString(code)
		} else if text.Len() > 0 {
			break
		}
	}
	example, err := Parse([]byte(text.String()))
	require.NoError(t, err)
	require.Equal(t, text.String(), example.String())
	answers, err := Replay(t.Context(), &Model{Kind: example.Kind}, example)
	require.NoError(t, err)
	require.NoError(t, example.Check(answers))
}

func TestABadTraceGetsItsLineAndWhatWasExpected(t *testing.T) {
	const kind = "kind configmap\n"
	for text, want := range map[string]string{
		"": "line 1: found the end of the text, expected the first line, " +
			"\"kind\" and one of configmap, lease, customresource",
		"# only comments": "line 2: found the end of the text",
		"alice: get shelf\n": "line 1: found \"alice: get shelf\", expected the first line, " +
			"\"kind\"",
		"kind secret\n":     "line 1: found \"kind secret\", expected the first line",
		"kind lease here\n": "line 1: found \"kind lease here\"",
		kind + "get shelf": `line 2: found "get", expected a client and a colon, as in ` +
			`"alice: replace`,
		kind + "\n\nAlice: get shelf": `line 4: found "Alice:", expected a client's name, made of`,
		kind + "alice:":               `line 2: found nothing after "alice:", expected a verb`,
		kind + "alice: get":           `line 2: found nothing after "get", expected an object's name`,
		kind + "alice: replcae shelf": `line 2: found "replcae", expected a verb: create, get, ` +
			`replace, patch or delete`,
		kind + "alice: get Shelf":        `line 2: found "Shelf", expected an object's name, made of`,
		kind + "alice: get shelf- ":      `line 2: found "shelf-", expected an object's name, made of`,
		kind + "alice: get shelf a=b":    `line 2: found "a=b", expected no fields: a get does not take any`,
		kind + "-> 200":                  `line 2: found no request, expected one, as in`,
		kind + "alice: create shelf @t1": `line 2: found "@t1", expected no token: a create does not take one`,
		kind + "alice: get shelf %u1":    `line 2: found "%u1", expected no uid: a get does not take one`,
		kind + "alice: replace shelf @t1": `line 2: found "@t1", expected a token that a line above has ` +
			`after its arrow, and none has t1`,
		kind + "alice: replace shelf @t1 -> t1": `none has t1`,
		kind + "alice: replace shelf @7": `line 2: found "@7", expected @ and a token: t1, t2 and so ` +
			`on, none, future or foreign`,
		kind + "alice: replace shelf @future @foreign": `line 2: found "@foreign" after @future, expected one token at most`,
		kind + "alice: replace shelf %u1":              `none has u1`,
		kind + "alice: replace shelf %seven":           `line 2: found "%seven", expected % and a uid: u1, u2 and so on`,
		kind + "alice: replace shelf -color": `expected no removal of a field: only a patch does that, and ` +
			`this is a replace`,
		kind + "alice: patch shelf color=red -color": `found "-color", expected one mention of the field color at most`,
		kind + "alice: patch shelf -color color=red": `found "color=red", expected one mention of the field color at most`,
		kind + "alice: patch shelf -Color":           `found "-Color", expected - and a field's name`,
		kind + "alice: replace shelf color=": `found "color=", expected letters, digits, dashes, dots and ` +
			`underscores after the =`,
		kind + "alice: replace shelf =red": `found "=red", expected before the = a field's name`,
		kind + "alice: replace shelf red": `found "red", expected a field such as color=red, a token ` +
			`such as @t1, a uid such as %u1, or the arrow ->`,
		kind + "alice: get shelf -> ":                   `found nothing after the arrow, expected a status such as 200`,
		kind + "alice: get shelf -> ok":                 `found "ok", expected after the arrow a status such as 200`,
		kind + "alice: get shelf -> 2000":               `found "2000", expected after the arrow`,
		kind + "alice: get shelf -> 200 201":            `found "201" after "200", expected one of them`,
		kind + "alice: get shelf -> t1, t2":             `found "t2" after "t1", expected one of them`,
		kind + "alice: get shelf -> wrote unwritten":    `found "unwritten" after "wrote", expected one of them`,
		kind + "alice: get shelf -> a=1 a=2":            `found "a=2", expected each field once, or empty`,
		kind + "alice: get shelf -> empty a=2":          `found "a=2", expected each field once, or empty`,
		kind + "alice: get shelf -> a=2 empty":          `found "empty", expected each field once, or empty`,
		kind + "alice: get shelf -> 200 -> 200":         `found "->", expected after the arrow`,
		kind + "alice: get shelf\nbob: get \xff":        `line 3: found bytes that are no text, expected a trace in UTF-8`,
		kind + "alice: get shelf # -> \n bob get shelf": `line 3: found "bob", expected a client and a colon`,
	} {
		_, err := Parse([]byte(text))
		require.ErrorContains(t, err, want, "%q", text)
		var syntax *SyntaxError
		require.ErrorAs(t, err, &syntax)
	}
}

func TestReadFileNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.trace")
	require.NoError(t, os.WriteFile(path, []byte("kind lease\nalice: take shelf\n"), 0o600))
	_, err := ReadFile(path)
	require.EqualError(t, err, path+`, line 2: found "take", expected a verb: create, get, replace, patch or delete`)
	_, err = ReadFile(path + ".missing")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("kind lease\nalice: get shelf\n"), 0o600))
	got, err := ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, Lease, got.Kind)
}

func TestADrawnTraceReadsBackAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := Draw(t, rapid.SampledFrom(Kinds()).Draw(t, "kind"), 3, 40)
		read, err := Parse([]byte(drawn.String()))
		if err != nil {
			t.Fatal(err)
		}
		if again := read.String(); again != drawn.String() {
			t.Fatalf("read back as\n%s", again)
		}
		model := &Model{Kind: read.Kind}
		answers, err := Replay(t.Context(), model, read)
		if err != nil {
			t.Fatal(err)
		}
		if err := read.Check(answers); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzParse(f *testing.F) {
	traces, err := Traces()
	require.NoError(f, err)
	for _, n := range traces {
		f.Add([]byte(n.Text))
	}
	f.Add([]byte(sample))
	f.Fuzz(func(t *testing.T, text []byte) {
		first, err := Parse(text)
		if err != nil {
			if err.Error() == "" || strings.Contains(err.Error(), "expected \n") {
				t.Fatalf("the error says nothing: %v", err)
			}
			return
		}
		printed := first.String()
		second, err := Parse([]byte(printed))
		if err != nil {
			t.Fatalf("%v in what was printed:\n%s", err, printed)
		}
		if again := second.String(); again != printed {
			t.Fatalf("printed:\n%s\nread back and printed again:\n%s", printed, again)
		}
		for i := range second.Steps {
			second.Steps[i].Line = first.Steps[i].Line
		}
		require.Equal(t, first, second)
		// Whatever a trace says, it can be replayed; that a token was never brought is no panic.
		answers, _ := Replay(t.Context(), &Model{Kind: first.Kind}, first)
		_ = first.Check(answers)
	})
}
