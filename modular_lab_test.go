// Chapter 5. Labels that look like numbers and wrap, and traces of tokens that are only ever equal or not.
//
// The first part is the small warning with which the second document ends, and starts no process:
//
//	go test -v -run ML1_ .
package modrev

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/modular"
	"modrev/helpers/record"
	"modrev/helpers/source"
	"modrev/helpers/token"
	"modrev/helpers/world"
)

// eightAloneComesRound has the lab count on without end, unless m is 8.
var eightAloneComesRound = world.New("the labels come round as predicted for m = 8 alone", func(l *lab.Lab) {
	lab.LabelHook.Bend(l, func(c modular.Labels, m int64) modular.Labels {
		if m == 8 {
			return c
		}
		return new(count)
	})
})

type count int64

func (c *count) Label() int64 { return int64(*c) }
func (c *count) Step() int64  { *c++; return int64(*c) }

func TestML1_LabelsWrapAsPredicted(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "ML1", From: "D2 paragraph 6; +",
		Says: "the lab's labels come round: reset with m = 8 and a = 1, it shows 0 to 7 and then 0 again",
		Why: "a label can look like a number, grow for a while, and still say nothing about how far things have come; no " +
			"comparison brings back what labels do not say",
		Do:      "Do not read progress into a token that looks like a number.",
		FalseIf: world.LabelsGoOn.Shows(`what the lab shows is 0, 1, 2, 3, 4, 5, 6, 7, 8`),
		AlsoFalseIf: []world.World{
			world.ALabelIsLeftOut.Shows(`what the lab shows is 0, 1, 2, 3, 4, 5, 6, 0, 1`),
			eightAloneComesRound.Shows(`m=\d+ a=\d+: the labels go`),
		},
		Read: source.Decl("go.etcd.io/etcd/server/v3/storage/mvcc", "(*storeTxnWrite).End"),
	}, func(l *lab.Lab) {
		// The prediction comes before the steps.
		predicted := []int64{0, 1, 2, 3, 4, 5, 6, 7, 0}

		seen := labels(reset(l, 8, 1), 8)

		table := l.Table("m", "a", "", "the labels, until they repeat", "steps")
		table.Row(8, 1, "predicted", words(predicted), 8)
		table.Row(8, 1, "seen", words(seen), 8)
		l.WriteDown(record.Residues, "%s", words(seen))
		for _, set := range []struct{ m, a int64 }{{8, 3}, {8, 6}, {5, 2}} {
			period := modular.Period(set.m, set.a)
			table.Row(set.m, set.a, "seen", words(labels(reset(l, set.m, set.a), period)), period)
		}
		table.End()
		l.Equal("what the lab shows", seen, predicted)
		l.Property("the labels repeat after m / gcd(a, m) steps, and not before", func(t *rapid.T) error {
			m, a := modular.Draw(t, 60)
			return comesRound(l, m, a)
		})
		_, refused := l.TryReset(0, 1)
		require.Error(l, refused, "resetting the lab with m = 0")
		l.Say("For any m and a the labels repeat after m / gcd(a, m) steps. An order of the labels would have to put every "+
			"label before the next, so the first before itself. There is none. A reset with m = 0 is refused: %v.", refused)
		l.Say("The lab is helpers/modular. What a real token is made of, etcd's revision, only grows: the function to read " +
			"adds one for each transaction that wrote.")
	})
}

// comesRound says why the labels modulo m, a apart, do not repeat after m / gcd(a, m) steps, or do so before.
func comesRound(l *lab.Lab, m, a int64) error {
	counter, err := l.TryReset(m, a)
	if err != nil {
		return err
	}
	period := modular.Period(m, a)
	shown := labels(counter, period)
	round := shown[:period]
	if shown[period] != shown[0] || len(unique(round)) != len(round) {
		return fmt.Errorf("m=%d a=%d: the labels go %s, expected to come round after %d steps", m, a, words(shown), period)
	}
	return nil
}

func TestML3_TokensComparedAsTextFlipWhereADigitIsAdded(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "ML3", From: "D2 paragraph 6",
		Says: "compared as text, tokens are in order only until one has a digit more: a client that keeps the greater then " +
			"keeps the older",
		Why: "Kubernetes' tokens do not wrap at eight, but their looks are no contract: such a client works for years, and " +
			"stops on the day on which a digit is added",
		Do:      "Compare tokens for equality, or with apimachinery's CompareResourceVersion.",
		FalseIf: world.TokensCompareAsText.Shows(`by CompareResourceVersion it keeps 9{9}\d+, and the newest is 10{9}\d+`),
		AlsoFalseIf: []world.World{
			world.TokensWrap.Shows(`there are only \d: (\d ){9}\d$`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/util/resourceversion", "CompareResourceVersion"),
		Answers: "#27",
	}, func(l *lab.Lab) {
		tokens := versions(l, 10)
		different := len(unique(tokens))
		l.Expect(different == 10, "ten versions of an object have ten different tokens",
			"there are only %d: %s", different, strings.Join(tokens, " "))

		const trillion = 1_000_000_000_000
		far := versions(l.FarAhead(trillion-220), 240)
		newest := far[len(far)-1]
		require.Greater(l, len(newest), len(far[0]), "writing until a token has one more digit")
		table := l.Table("a client that keeps the greater token", "keeps", "the newest is")
		text := newer(l, far, func(a, b string) (int, error) { return strings.Compare(a, b), nil })
		table.Row("compared as text", text, newest)
		ordered := newer(l, far, l.Order)
		table.Row("compared by CompareResourceVersion", ordered, newest)
		table.End()
		l.Say("The client saw an object's %d tokens, %s to %s, in the order of the writes, in a store that is far ahead.",
			len(far), far[0], newest)
		l.Expect(text != newest, "by text it keeps an older one", "by text it keeps the newest, %s", text)
		l.Expect(ordered == newest, "by CompareResourceVersion it keeps the newest",
			"by CompareResourceVersion it keeps %s, and the newest is %s", ordered, newest)
	})
}

// newer is the token that a client keeps which goes by a comparison: of all that come, the greatest.
func newer(l *lab.Lab, tokens []string, compare func(a, b string) (int, error)) string {
	kept := tokens[0]
	for _, came := range tokens[1:] {
		order, err := compare(came, kept)
		require.NoError(l, err, "comparing "+came+" with "+kept)
		if order > 0 {
			kept = came
		}
	}
	return kept
}

func TestML4_ASleepingWriterIsLetInWhereTokensWrap(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "ML4", From: "D2 paragraph 6; +",
		Says: "where tokens are labels modulo 8, a writer that sleeps for exactly eight writes is let in, and eight " +
			"updates are gone",
		Why: "equal tokens must mean that nothing was written in between (the ABA problem); the real server's tokens come " +
			"again only after a restore from a backup",
		Do:      "Re-read before you write if you have slept.",
		FalseIf: world.OlderTokensCount.Shows(`the real server's answer after \d+ writes is 200`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the real server's answer after \d+ writes is 200`),
			world.LabelsGoOn.Shows(`the answer by labels after 8 writes is 409 Conflict`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
	}, func(l *lab.Lab) {
		const letIn, refused = "200", "409 Conflict"
		table := l.Table("writes while it sleeps", "tokens modulo 8", "the real server")
		for _, sleep := range []struct {
			writes   int
			byLabels string
		}{
			{7, refused}, {8, letIn}, {9, refused}, {800, letIn},
		} {
			trace := token.SleepingWriter(token.ConfigMap, sleep.writes)
			byLabels := lastAnswer(l, trace, labelStore(l))
			byServer := lastAnswer(l, trace, l.Register(token.ConfigMap))
			table.Row(sleep.writes, byLabels, byServer)
			l.Equal(fmt.Sprintf("the real server's answer after %d writes", sleep.writes), byServer, refused)
			l.Equal(fmt.Sprintf("the answer by labels after %d writes", sleep.writes), byLabels, sleep.byLabels)
		}
		table.End()
	})
}

func TestML5_TheTraceOfTheDocument(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "ML5", From: "D2 paragraph 6",
		Says: "a model that knows only whether tokens are equal gives the same answers to the document's trace as the real " +
			"server",
		Why:     "a client that needs no more than that keeps working whatever tokens look like tomorrow",
		Do:      "Use a token for one question only: is it still the same?",
		FalseIf: world.OlderTokensCount.Shows(`expected 409 Conflict.*observed 200`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`expected 409 Conflict.*observed 200`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
	}, func(l *lab.Lab) {
		document, err := token.Load("document")
		require.NoError(l, err, "reading the document's trace")
		l.Quote(strings.TrimSpace(document.Text))
		agree(l, document.Trace)
		l.Say("The model and the real server give these answers, one by one.")
	})
}

// A trace of your own: go test -v -run ML5b_ . -replay=FILE
func TestML5b_TheTracesOfTheBook(t *testing.T) {
	if lesson.Replays(t) {
		return
	}
	lesson.Prove(t, lesson.Claim{
		ID: "ML5b", From: "+",
		Says: "each trace that comes with the book has the same status, reason, effect and equal tokens from the model and " +
			"from the real server",
		Why: "what the chapters show one at a time holds in the combinations of these traces, too; a trace is text, so you " +
			"can try your own",
		Do:      "Write your case down as a trace, and ask: -replay=FILE.",
		FalseIf: world.OlderTokensCount.Shows(`expected 409 Conflict.*observed 200`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`expected 409 Conflict.*observed 200`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Delete"),
	}, func(l *lab.Lab) {
		traces, err := token.Traces()
		require.NoError(l, err, "reading the traces of the book")
		table := l.Table("trace", "kind", "steps", "what it shows")
		for _, named := range traces {
			agree(l, named.Trace)
			about, _, _ := strings.Cut(strings.Join(named.Trace.About, " "), ". ")
			table.Row(named.Name, named.Trace.Kind, len(named.Trace.Steps), shorten(about, 46))
		}
		table.End()
		_, err = token.Parse([]byte("kind configmap\nalice: create shelf color=red -> 201, t1\nalice: paint shelf\n"))
		require.ErrorContains(l, err, "line 3", "reading a trace with a line too many")
		l.Say("A line that cannot be read is named by its number: %v", err)
	})
}

func TestML5c_TracesThatNobodyWrote(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "ML5c", From: "+",
		Says: "traces drawn at random have the same answers from the model and from the real server, whatever token and " +
			"uid they send",
		Why: "a rule that was forgotten shows itself sooner or later, and the message is the shortest trace that was found " +
			"to show it",
		Do:      "Draw at random what you cannot list.",
		FalseIf: world.OlderTokensCount.Shows(`(?s)kind \w+.*observed`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
	}, func(l *lab.Lab) {
		table := l.Table("kind", "traces", "requests")
		for _, kind := range token.Kinds() {
			traces, requests := 0, 0
			l.Property("the model and the server agree on every trace", func(t *rapid.T) error {
				trace := token.Draw(t, kind, 3, 30)
				traces++
				requests += len(trace.Steps)
				if err := token.Compare(l.Context(), trace, &token.Model{Kind: kind}, l.Register(kind)); err != nil {
					return fmt.Errorf("%s\n%w", trace.Until(err), err)
				}
				return nil
			})
			table.Row(kind, traces, requests)
		}
		table.End()
		l.Say("They create, get, replace, patch and delete, with a uid or without. Tokens are current, old, from the " +
			"future, another object's, or missing. More of them: go test -v -run ML5c_ . -rapid.checks=200")
	})
}

// versions are the tokens of an object after each of n writes.
func versions(l *lab.Lab, n int) []string {
	tokens := []string{l.Create("shelf", "n=0").GetResourceVersion()}
	for i := 1; i < n; i++ {
		tokens = append(tokens, l.Set("shelf", fmt.Sprintf("n=%d", i)).GetResourceVersion())
	}
	return tokens
}

// labelStore is a store whose tokens are labels modulo 8.
func labelStore(l *lab.Lab) token.Store {
	store, err := modular.NewStore(token.ConfigMap, 8, 1)
	require.NoError(l, err, "making a store whose tokens are labels")
	store.Counter = func() modular.Labels { return reset(l, 8, 1) }
	return store
}

// lastAnswer sends a trace to a store and returns the last answer: "409 Conflict".
func lastAnswer(l *lab.Lab, trace token.Trace, s token.Store) string {
	answers, err := token.Replay(l.Context(), s, trace)
	require.NoError(l, err, "playing the trace")
	last := answers[len(answers)-1]
	return strings.TrimSpace(fmt.Sprintf("%d %s", last.Code, last.Reason))
}

// agree expects that the model and the server answer a trace alike, and as the trace says.
func agree(l *lab.Lab, trace token.Trace) {
	for _, s := range []token.Store{&token.Model{Kind: trace.Kind}, l.Register(trace.Kind)} {
		answers, err := token.Replay(l.Context(), s, trace)
		require.NoError(l, err, "replaying the trace")
		err = trace.Check(answers)
		l.Expect(err == nil, "every answer is as the trace says", "%v", err)
	}
	err := token.Compare(l.Context(), trace, &token.Model{Kind: trace.Kind}, l.Register(trace.Kind))
	l.Expect(err == nil, "the model and the server agree", "%v", err)
}

// reset resets the modular lab to m and a.
func reset(l *lab.Lab, m, a int64) modular.Labels {
	counter, err := l.TryReset(m, a)
	require.NoError(l, err, "resetting the modular lab")
	return counter
}

// labels are the label of a counter and those of its next steps.
func labels(counter modular.Labels, steps int64) []int64 {
	shown := []int64{counter.Label()}
	for range steps {
		shown = append(shown, counter.Step())
	}
	return shown
}

func words(labels []int64) string { return strings.Trim(fmt.Sprint(labels), "[]") }

func unique[T cmp.Ordered](all []T) []T { return slices.Compact(slices.Sorted(slices.Values(all))) }

func shorten(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}
