package lab

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"modrev/helpers/wire"
)

func TestAWriteIsSentAgainOnlyWhenItsTimeWasOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := &Lab{ctx: ctx}
	held := new(wire.Wire).Tap("ot21b-1").Hold(nil)
	slow := apierrors.NewTimeoutError("request did not complete within the allotted duration", 0)
	broken := fmt.Errorf("reading the answer: %w", http2.StreamError{StreamID: 5, Code: http2.ErrCodeInternal})
	behind := apierrors.NewInternalError(context.DeadlineExceeded)
	for _, last := range []error{nil, errBroken, stale(nil), apierrors.NewInternalError(errBroken)} {
		answers := []error{slow, broken, behind, last, errors.New("it was sent once too often")}
		var sent []string
		err := l.PastDeadline(held, func(query string) error {
			sent = append(sent, query)
			return answers[len(sent)-1]
		}).Wait()
		assert.Equal(t, last, err)
		assert.Equal(t, []string{"timeout=500ms", "timeout=1s", "timeout=2s", "timeout=4s"}, sent)
	}
}
