package gocommand

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// soon is how long the end of a context may take on a busy machine.
const soon = 30 * time.Second

func TestAnEndOfTheGoCommandBeforeTheWatchingIsSeen(t *testing.T) {
	gone := os.Getppid() + 1 // whoever that is, it does not run this test
	t.Setenv(variable, fmt.Sprint(os.Getpid(), gone))
	ctx, forget := Context(t.Context())
	defer forget()
	select {
	case <-ctx.Done():
		require.ErrorIs(t, context.Cause(ctx), ErrEnded)
	case <-time.After(soon):
		t.Fatal("the context goes on")
	}
}

func TestWhatAnotherProcessHasRememberedIsNothingToThisOne(t *testing.T) {
	for _, value := range []string{"", "1", "words", fmt.Sprint(os.Getpid()+1, 1)} {
		t.Setenv(variable, value)
		_, ok := remembered()
		require.False(t, ok, value)
	}
	t.Setenv(variable, fmt.Sprint(os.Getpid(), 1))
	parent, ok := remembered()
	require.True(t, ok)
	require.Equal(t, 1, parent)
}

func TestTheTestRunsUnderTheGoCommandAndGoesOn(t *testing.T) {
	t.Setenv(variable, "")
	require.NoError(t, Remember())
	parent, ok := remembered()
	if !ok { // a debugger runs this test, or somebody who has built it before
		require.NotEqual(t, "go", name(t.Context(), os.Getppid()))
		return
	}
	require.Equal(t, os.Getppid(), parent)
	ctx, forget := Context(t.Context())
	require.NoError(t, ctx.Err())
	forget()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}
