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
		FalseIf: world.LabelsGoOn.Shows(`0 1 2 3 4 5 6 7 8`),
		Read:    source.Decl("go.etcd.io/etcd/server/v3/storage/mvcc", "(*storeTxnWrite).End"),
	}, func(l *lab.Lab) {
		// The prediction comes before the steps.
		predicted := []int64{0, 1, 2, 3, 4, 5, 6, 7, 0}

		counter := l.Reset(8, 1)
		seen := []int64{counter.Label()}
		for range 8 {
			seen = append(seen, counter.Step())
		}

		table := l.Table("", "reset and eight steps")
		table.Row("predicted", words(predicted))
		table.Row("seen", words(seen))
		table.End()
		l.Say("The lab is helpers/modular. What a real token is made of, etcd's revision, only grows: the function to read adds one " +
			"for each transaction that wrote.")
		l.WriteDown(record.Residues, "%s", words(seen))
		l.Expect(slices.Equal(seen, predicted), "the lab shows "+words(predicted), "it shows %s", words(seen))
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
			period := modular.Period(m, a)
			counter, err := l.TryReset(m, a)
			if err != nil {
				return err
			}
			labels := []int64{counter.Label()}
			for range period {
				labels = append(labels, counter.Step())
			}
			round := labels[:period]
			if labels[period] != labels[0] || len(unique(round)) != len(round) {
				return fmt.Errorf("m=%d a=%d: the labels go %s, expected to come round after %d steps", m, a, words(labels), period)
			}
			return nil
		})

		table := l.Table("m", "a", "the labels, until they repeat", "steps")
		for _, s := range [][2]int64{{8, 1}, {8, 3}, {8, 6}, {5, 2}} {
			counter := l.Reset(s[0], s[1])
			labels := []int64{counter.Label()}
			for range modular.Period(s[0], s[1]) {
				labels = append(labels, counter.Step())
			}
			table.Row(s[0], s[1], words(labels), modular.Period(s[0], s[1]))
		}
		table.End()
		l.Say("An order of the labels would have to put every label before the next, so the first before itself. "+
			"There is none. A reset with m = 0 is refused: %s. The lab is helpers/modular; the function to read is what orders real "+
			"tokens, which it can because they do not come round.", refusal(modular.Reset(0, 1)))
	})
}

func TestML3_TokensThatLookLikeNumbersPromiseNothing(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "ML3", From: "D2 paragraph 6",
		Says: "Kubernetes' tokens are not modelled by the lab and do not wrap at eight; but what they look like is no " +
			"contract: compared as text, their order flips where the number of digits changes",
		Why:     "a client that compares tokens as text works for years, and stops on the day on which a digit is added",
		FalseIf: world.TokensWrap.Shows(`the token \d was given out twice`),
		Read:    source.Decl("k8s.io/apimachinery/pkg/util/resourceversion", "CompareResourceVersion"),
		Answers: "#27",
	}, func(l *lab.Lab) {
		tokens := versions(l, 10)
		l.Expect(len(unique(tokens)) == len(tokens), "ten versions of an object have ten different tokens",
			"the token %s was given out twice: %s", twice(tokens), strings.Join(tokens, " "))

		const trillion = 1_000_000_000_000
		far := versions(l.FarAhead(trillion-220), 240)
		flip := slices.IndexFunc(far, func(token string) bool { return len(token) > len(far[0]) })
		l.Expect(flip > 0, "the tokens pass a change in the number of digits", "they go from %s to %s", far[0], far[len(far)-1])

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
		FalseIf:     world.ClientDropsTheToken.Shows(`after \d+ writes the real server answered 200`),
		AlsoFalseIf: []world.World{world.LabelsGoOn.Shows(`after 8 writes it answered 409 Conflict`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
	}, func(l *lab.Lab) {
		table := l.Table("writes while it sleeps", "tokens modulo 8", "the real server")
		for _, writes := range []int{7, 8, 9, 800} {
			trace := token.SleepingWriter(token.ConfigMap, writes)
			wraps := play(l, trace, l.LabelStore(token.ConfigMap, 8, 1))
			server := play(l, trace, l.Register(token.ConfigMap))
			table.Row(writes, brief(wraps), brief(server))
			l.Expect(server.Code == 409, fmt.Sprintf("after %d writes the real server refuses it", writes),
				"after %d writes the real server answered %s", writes, brief(server))
			letIn := writes%8 == 0
			l.Expect((wraps.Code == 200) == letIn, fmt.Sprintf("after %d writes the store of labels lets it in: %v", writes, letIn),
				"after %d writes it answered %s", writes, brief(wraps))
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
		l.Step(err, "reading the document's trace")
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
		l.Step(err, "reading the traces of the book")
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
		l.Step(err, "reading a trace")
		agree(l, trace)
		_, err = token.Parse([]byte(text + "alice: paint shelf\n"))
		l.Say("%v", err)
		l.Expect(err != nil && strings.Contains(err.Error(), "line 6"), "a bad line is named by its number", "%v", err)
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

// play sends a trace to a store and returns the last answer.
func play(l *lab.Lab, trace token.Trace, s token.Store) token.Answer {
	answers, err := token.Replay(l.Context(), s, trace)
	l.Step(err, "playing the trace")
	return answers[len(answers)-1]
}

// agree expects that the model and the server answer a trace alike, and as the trace says.
func agree(l *lab.Lab, trace token.Trace) {
	for _, s := range []token.Store{&token.Model{Kind: trace.Kind}, l.Register(trace.Kind)} {
		answers, err := token.Replay(l.Context(), s, trace)
		l.Step(err, "replaying the trace")
		if err := trace.Check(answers); err != nil {
			l.Expect(false, "every answer is as the trace says", "%v", err)
		}
	}
	err := token.Compare(l.Context(), trace, &token.Model{Kind: trace.Kind}, l.Register(trace.Kind))
	l.Expect(err == nil, "the model and the server agree", "%v", err)
}

func words(labels []int64) string { return strings.Trim(fmt.Sprint(labels), "[]") }

func unique[T cmp.Ordered](all []T) []T { return slices.Compact(slices.Sorted(slices.Values(all))) }

func twice(tokens []string) string {
	for i, token := range tokens {
		if slices.Contains(tokens[:i], token) {
			return token
		}
	}
	return ""
}

func sign(a, b string) string {
	return map[int]string{-1: "smaller", 0: "equal", 1: "greater"}[cmp.Compare(a, b)]
}

func brief(a token.Answer) string { return strings.TrimSpace(fmt.Sprintf("%d %s", a.Code, a.Reason)) }

func refusal(_ *modular.Counter, err error) string { return fmt.Sprint(err) }

func shorten(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}
