package token

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTallyCountsRequestsByVerbAndAnswer(t *testing.T) {
	var history Recorder
	store := &Model{Kind: Lease}
	for _, req := range []Request{
		{Verb: Get, Name: "shelf"},
		{Verb: Create, Name: "shelf"},
		{Verb: Create, Name: "shelf"},
		{Verb: Replace, Name: "shelf"}, // a Lease needs a token: 422
		{Verb: Replace, Name: "shelf", Token: "another"},
	} {
		_, err := history.Do(context.Background(), 0, store, req)
		require.NoError(t, err)
	}
	history.Begin(0, Request{Verb: Delete, Name: "shelf"}) // never answered

	require.Equal(t, []Count{
		{Verb: Get, NotFound: 1},
		{Verb: Create, Accepted: 1, AlreadyExists: 1},
		{Verb: Replace, Conflict: 1, Other: 1},
		{Verb: Patch},
		{Verb: Delete, Other: 1},
	}, Tally(history.History()))
}
