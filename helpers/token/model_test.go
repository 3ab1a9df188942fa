package token

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTracesThatComeWithThePackageHoldForTheModel(t *testing.T) {
	traces, err := Traces()
	require.NoError(t, err)
	for _, n := range traces {
		t.Run(n.Name, func(t *testing.T) {
			require.NotEmpty(t, n.Trace.About, "a trace says what it is there to show")
			answers, err := Replay(t.Context(), &Model{Kind: n.Trace.Kind}, n.Trace)
			require.NoError(t, err)
			require.NoError(t, n.Trace.Check(answers))
			require.Len(t, answers, len(n.Trace.Steps))
		})
	}
	_, err = Load("unheard-of")
	require.ErrorContains(t, err, `"unheard-of"`)
}

// The traces are no pictures: each tells the model from one that gets the rule wrong that it is there for.
func TestEachRuleIsInATraceThatComesWithThePackage(t *testing.T) {
	traces, err := Traces()
	require.NoError(t, err)
	for _, m := range Mutants() {
		var by []string
		for _, n := range traces {
			if !slices.Contains(m.Kinds, n.Trace.Kind) {
				continue
			}
			err := Compare(t.Context(), n.Trace, &Model{Kind: n.Trace.Kind}, m.Store(n.Trace.Kind))
			if d := new(Disagreement); errors.As(err, &d) {
				by = append(by, n.Name)
			}
		}
		require.NotEmpty(t, by, "no trace shows what is wrong when %s", m.Says)
		t.Logf("%s: %s", m.Says, strings.Join(by, ", "))
	}
}

func TestEachMutantIsCaughtWithin500DrawnSteps(t *testing.T) {
	const limit = 500
	for _, m := range Mutants() {
		for _, kind := range m.Kinds {
			t.Run(fmt.Sprintf("%s/%s", m.Says, kind), func(t *testing.T) {
				draw := Generator(kind, 3, 60)
				steps := 0
				for seed := 1; steps < limit; seed++ {
					trace := draw.Example(seed)
					err := Compare(t.Context(), trace, &Model{Kind: kind}, m.Store(kind))
					var d *Disagreement
					if errors.As(err, &d) {
						steps += d.Step + 1
						require.LessOrEqual(t, steps, limit)
						t.Logf("after %d steps: %v", steps, d)
						return
					}
					require.NoError(t, err)
					steps += len(trace.Steps)
				}
				t.Fatalf("not caught in %d steps", steps)
			})
		}
	}
}

// The model knows tokens as equal or not: whatever they are called, and in whatever order, its answers are the
// same but for the renaming.
func TestTheModelDoesNotLookInsideTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(Kinds()).Draw(t, "kind")
		trace := Draw(t, kind, 3, 60)
		drawn := rapid.SliceOfNDistinct(rapid.StringN(1, 4, -1), len(trace.Steps), len(trace.Steps), rapid.ID).Draw(t,
			"tokens")
		next := 0
		other := &Model{Kind: kind, Mint: func(string) string { next++; return "=" + drawn[next-1] }}
		if err := Compare(context.Background(), trace, &Model{Kind: kind}, other); err != nil {
			t.Fatal(err)
		}
	})
}

func TestADrawnTraceIsOfTheKindAndLengthAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := Draw(t, Lease, 2, 7)
		if trace.Kind != Lease || len(trace.Steps) > 7 {
			t.Fatalf("a %s of %d steps", trace.Kind, len(trace.Steps))
		}
		for _, s := range trace.Steps {
			if s.Name != "shelf" && s.Name != "note" {
				t.Fatalf("the name %q", s.Name)
			}
		}
	})
}

func TestDrawnTracesVisitEveryOutcome(t *testing.T) {
	seen := map[string]int{}
	total := 0
	for seed := range 120 {
		kind := Kinds()[seed%3]
		for _, s := range Generator(kind, 3, 60).Example(seed).Steps {
			seen[fmt.Sprintf("%s %s %d %s%s", kind, s.Verb, s.Expect.Code, s.Expect.Reason, s.Expect.Write)]++
			total++
		}
	}
	for _, kind := range Kinds() {
		want := []string{
			"create 201 ", "create 409 AlreadyExists", "get 200 ", "get 404 NotFound",
			"replace 200 ", "replace 200 unwritten", "replace 409 Conflict",
			"patch 200 ", "patch 200 unwritten", "patch 404 NotFound", "patch 409 Conflict", "patch 422 Invalid",
			"delete 200 ", "delete 404 NotFound", "delete 409 Conflict",
		}
		if kind.NeedsToken() {
			want = append(want, "replace 422 Invalid")
		}
		if kind.CreatesOnReplace() {
			want = append(want, "replace 201 ")
		} else {
			want = append(want, "replace 404 NotFound")
		}
		for _, w := range want {
			require.Positive(t, seen[string(kind)+" "+w], "%s %s never happens", kind, w)
		}
	}
	missing := 0
	for what, n := range seen {
		if strings.Contains(what, "404") {
			missing += n
		}
	}
	require.Less(t, missing*4, total, "more than a quarter of the steps end at not found")
}

func TestASleepingWriterIsRefusedByTheModel(t *testing.T) {
	for _, writes := range []int{1, 8, 800} {
		trace := SleepingWriter(ConfigMap, writes)
		require.Len(t, trace.Steps, writes+3)
		answers, err := Replay(t.Context(), &Model{}, trace)
		require.NoError(t, err)
		require.NoError(t, trace.Check(answers))
		require.Equal(t, "409 Conflict", answers[len(answers)-1].String())
	}
	answers, err := Replay(t.Context(), &Model{}, SleepingWriter(ConfigMap, 0))
	require.NoError(t, err)
	require.Equal(t, 200, answers[len(answers)-1].Code, "nobody wrote, so nothing is stale")
}

func TestTheModelEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := new(Model).Do(ctx, Request{Client: "alice", Verb: Get, Name: "shelf"})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "alice: get shelf")
}

func TestATraceIsCutAfterTheStepThatDisagrees(t *testing.T) {
	trace, err := Parse([]byte("kind configmap\na: create shelf -> 201, t1\na: get shelf -> 404\na: get shelf -> 200\n"))
	require.NoError(t, err)
	answers, err := Replay(t.Context(), &Model{Kind: trace.Kind}, trace)
	require.NoError(t, err)
	require.Len(t, trace.Until(trace.Check(answers)).Steps, 2)
	require.Len(t, trace.Until(nil).Steps, 3)
}
