// Chapter 5. Labels that look like numbers and wrap, and traces of tokens that are only ever equal or not.
//
// The first part is the small warning with which the second document ends, and starts no process:
//
//	go test -v -run ModularLab .
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

func TestML1_LabelsWrapAsPredicted(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "ML1", From: "D2 paragraph 6",
		Says:    "reset with m = 8 and a = 1, the lab shows 0 to 7 and then 0 again",
		Why:     "a label can look like a number, grow for a while, and still say nothing about how far things have come",
		FalseIf: world.LabelsGoOn.Shows(`0, 1, 2, 3, 4, 5, 6, 7, 8`),
		Read:    source.Decl("go.etcd.io/etcd/server/v3/storage/mvcc", "(*storeTxnWrite).End"),
	}, func(l *lab.Lab) {
		// The prediction comes before the steps.
		predicted := []int64{0, 1, 2, 3, 4, 5, 6, 7, 0}

		seen := labels(reset(l, 8, 1), 8)

		table := l.Table("", "reset and eight steps")
		table.Row("predicted", words(predicted))
		table.Row("seen", words(seen))
		table.End()
		l.Say("The lab is helpers/modular. What a real token is made of, etcd's revision, only grows: the function to read " +
			"adds one for each transaction that wrote.")
		l.WriteDown(record.Residues, "%s", words(seen))
		l.Equal("what the lab shows", seen, predicted)
	})
}

func TestML2_LabelsRepeatWhateverTheModulus(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "ML2", From: "D2 paragraph 6; +",
		Says: "for any m and a the labels repeat after m / gcd(a, m) steps, and no order of labels agrees with the order " +
			"of the steps",
		Why:     "no cleverness in comparing labels brings back what the labels do not say",
		FalseIf: world.ALabelIsLeftOut.Shows(`m=\d+ a=\d+: the labels go`),
		Read:    source.Decl("k8s.io/apimachinery/pkg/util/resourceversion", "CompareResourceVersion"),
	}, func(l *lab.Lab) {
		l.Property("the labels repeat after m / gcd(a, m) steps, and not before", func(t *rapid.T) error {
			m, a := modular.Draw(t, 60)
			return comesRound(l, m, a)
		})

		table := l.Table("m", "a", "the labels, until they repeat", "steps")
		for _, set := range []struct{ m, a int64 }{{8, 1}, {8, 3}, {8, 6}, {5, 2}} {
			period := modular.Period(set.m, set.a)
			table.Row(set.m, set.a, words(labels(reset(l, set.m, set.a), period)), period)
		}
		table.End()
		_, refused := l.TryReset(0, 1)
		require.Error(l, refused, "resetting the lab with m = 0")
		l.Say("An order of the labels would have to put every label before the next, so the first before itself. "+
			"There is none. A reset with m = 0 is refused: %v. The lab is helpers/modular; the function to read is what "+
			"orders real tokens, which it can because they do not come round.", refused)
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

func TestML3_TokensThatLookLikeNumbersPromiseNothing(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "ML3", From: "D2 paragraph 6",
		Says: "Kubernetes' tokens are not modelled by the lab and do not wrap at eight; but what they look like is no " +
			"contract: compared as text, their order flips where the number of digits changes",
		Why:     "a client that compares tokens as text works for years, and stops on the day on which a digit is added",
		FalseIf: world.TokensWrap.Shows(`there are only \d: (\d ){9}\d$`),
		Read:    source.Decl("k8s.io/apimachinery/pkg/util/resourceversion", "CompareResourceVersion"),
		Answers: "#27",
	}, func(l *lab.Lab) {
		tokens := versions(l, 10)
		different := len(unique(tokens))
		l.Expect(different == 10, "ten versions of an object have ten different tokens",
			"there are only %d: %s", different, strings.Join(tokens, " "))

		const trillion = 1_000_000_000_000
		far := versions(l.FarAhead(trillion-220), 240)
		flip := slices.IndexFunc(far, func(token string) bool { return len(token) > len(far[0]) })
		require.Positive(l, flip, "writing until a token has one more digit")

		table := l.Table("an object's tokens", "before", "after", "as text")
		table.Row("ten writes of this lesson", tokens[0], tokens[9], sign(tokens[0], tokens[9]))
		table.Row("in a store that is far ahead", far[0], far[1], sign(far[0], far[1]))
		table.Row("and where a digit is added", far[flip-1], far[flip], sign(far[flip-1], far[flip]))
		table.End()
		l.Expect(far[flip-1] > far[flip], "as text the later token comes before the earlier one",
			"%s is %s %s", far[flip-1], sign(far[flip-1], far[flip]), far[flip])
	})
}

func TestML4_ASleepingWriterIsLetInWhereTokensWrap(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "ML4", From: "D2 paragraph 6; +",
		Says: "where tokens are labels modulo 8, a writer that sleeps for exactly eight writes is let in and eight updates " +
			"are gone; the real server refuses it, after eight writes and after eight hundred",
		Why: "equal tokens must mean that nothing happened in between; a token that comes again means it no more (this is " +
			"called the ABA problem)",
		FalseIf: world.ClientDropsTheToken.Shows(`the real server's answer after \d+ writes is 200`),
		AlsoFalseIf: []world.World{
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
		Says: "the document's trace (read, read, write, refused write, read again, recompute, write) has the same answers " +
			"from the model, which knows of tokens only whether they are equal, and from the real server",
		Why:     "a client that needs no more than that keeps working whatever tokens look like tomorrow",
		FalseIf: world.ClientDropsTheToken.Shows(`expected 409 Conflict.*observed 200`),
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
	}, func(l *lab.Lab) {
		document, err := token.Load("document")
		require.NoError(l, err, "reading the document's trace")
		l.Quote(strings.TrimSpace(document.Text))
		agree(l, document.Trace)
		l.Say("The model and the real server give these answers, one by one.")
	})
}

func TestML5b_TheTracesOfTheBook(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "ML5b", From: "+",
		Says: "every trace that comes with the book has the same answers from the model and from the real server: status, " +
			"reason, whether something was stored, and which tokens are equal",
		Why:     "what the chapters show one at a time holds in any combination of them",
		FalseIf: world.ClientDropsTheToken.Shows(`expected 409 Conflict.*observed 200`),
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Delete"),
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
	})
}

// A trace of your own: go test -v -run EqualityTokenTrace . -replay=FILE
func TestML5d_TheTraceOfTheReader(t *testing.T) {
	if lesson.Replays(t) {
		return
	}
	lesson.Prove(t, lesson.Claim{
		ID: "ML5d", From: "+",
		Says: "a trace is text: whatever a reader writes into a file is played against the model and the real server, and " +
			"a line that cannot be read is named by its number",
		Why:     "who doubts an answer can ask",
		FalseIf: world.ClientDropsTheToken.Shows(`line 5.*expected 409 Conflict.*observed 200`),
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
	}, func(l *lab.Lab) {
		text := "# one line too many\nkind configmap\nalice: create shelf color=red -> 201, t1\n" +
			"bob: replace shelf color=blue @t1 -> 200\nalice: replace shelf color=green @t1 -> 409 Conflict\n"
		trace, err := token.Parse([]byte(text))
		require.NoError(l, err, "reading a trace")
		agree(l, trace)
		_, err = token.Parse([]byte(text + "alice: paint shelf\n"))
		l.Say("%v", err)
		l.Expect(strings.Contains(fmt.Sprint(err), "line 6"), "a bad line is named by its number", "the error is %v", err)
	})
}

func TestML5c_TracesThatNobodyWrote(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "ML5c", From: "+",
		Says: "traces that are drawn by chance (create, get, replace, patch, delete; with the current, an old, a future, " +
			"another object's and no token; with and without uid) have the same answers from the model and the real server",
		Why: "a rule that was forgotten shows itself sooner or later, and then a trace that shows it, as short as a few " +
			"seconds can make it, is the message",
		FalseIf: world.ClientDropsTheToken.Shows(`(?s)kind \w+.*observed`),
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
		l.Say("More of them: go test -v -run ThatNobodyWrote . -rapid.checks=200")
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

// sign is how a token compares with another as text.
func sign(a, b string) string {
	return map[int]string{-1: "smaller", 0: "equal", 1: "greater"}[cmp.Compare(a, b)]
}

func shorten(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}
