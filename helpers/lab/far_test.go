package lab

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnEtcdIsNotWaitedForAnyMoreWhenTheLessonHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, standAt(ctx, t.TempDir(), 1000), context.Canceled)
}
