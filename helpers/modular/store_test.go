package modular

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"modrev/helpers/token"
)

// asleep returns the answers that a store gives in the trace of a writer who sleeps through some writes.
func asleep(t require.TestingT, s token.Store, writes int) []token.Answer {
	trace := token.SleepingWriter(token.ConfigMap, writes)
	answers, err := token.Replay(context.Background(), s, trace)
	require.NoError(t, err)
	require.Len(t, answers, writes+3)
	return answers
}

func TestAWriterIsLetInAfterExactlyEightWrites(t *testing.T) {
	for writes := range 25 {
		s, err := NewStore(token.ConfigMap, 8, 1)
		require.NoError(t, err)
		answers := asleep(t, s, writes)
		last := answers[len(answers)-1]
		if writes%8 != 0 {
			require.Equal(t, "409 Conflict", last.String(), "after %d writes", writes)
			continue
		}
		require.Equal(t, 200, last.Code, "after %d writes", writes)
		require.Equal(t, "0", s.Object("shelf").Content["writes"], "all %d are gone", writes)
	}
}

func TestAWriterIsLetInAfterThePeriod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.Int64Range(1, 30).Draw(t, "m")
		a := rapid.Int64Range(0, 60).Draw(t, "a")
		writes := rapid.IntRange(1, 60).Draw(t, "writes")
		s, err := NewStore(token.ConfigMap, m, a)
		if err != nil {
			t.Fatal(err)
		}
		answers := asleep(t, s, writes)
		letIn := answers[len(answers)-1].Code == 200
		if again := int64(writes)%Period(m, a) == 0; letIn != again {
			t.Fatalf("let in: %v, although the label of the read is back: %v", letIn, again)
		}
	})
}

func TestTheStoreIsTheModelButForItsTokens(t *testing.T) {
	// As long as no label comes again, and there is a single object, nobody can tell.
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(token.Kinds()).Draw(t, "kind")
		s, err := NewStore(kind, 1000, 7)
		if err != nil {
			t.Fatal(err)
		}
		if err := token.Compare(t.Context(), token.Draw(t, kind, 1, 60), &token.Model{Kind: kind}, s); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAStoreOfBadLabelsIsRefused(t *testing.T) {
	_, err := NewStore(token.Lease, 0, 1)
	require.ErrorContains(t, err, "m must be 1 or more")
	_, err = NewStore(token.Lease, 8, -1)
	require.ErrorContains(t, err, "a must be 0 or more")
}

func TestTheFutureOfAStoreIsNoLabel(t *testing.T) {
	s, err := NewStore(token.ConfigMap, 8, 1)
	require.NoError(t, err)
	require.Equal(t, "8", s.Future())
	ctx := t.Context()
	_, err = s.Do(ctx, token.Request{Verb: token.Create, Name: "shelf"})
	require.NoError(t, err)
	a, err := s.Do(ctx, token.Request{Verb: token.Replace, Name: "shelf", Set: token.Content{"a": "b"}, Token: s.Future()})
	require.NoError(t, err)
	require.Equal(t, "409 Conflict", fmt.Sprint(a))
}
