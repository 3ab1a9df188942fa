package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// served counts the requests that a server has answered, each with 200 and a Retry-After of 10 seconds.
type served int

func (n *served) RoundTrip(*http.Request) (*http.Response, error) {
	*n++
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Retry-After": {"10"}}, Body: http.NoBody}, nil
}

func TestOneAnswerOfOneClientIsBentOnItsWay(t *testing.T) {
	l := &Lab{Wire: new(wire.Wire).Tap("ot21c-1")}
	l.LoseAnswer("ann", http.MethodPut)
	l.GatewayAnswers("bob", http.StatusServiceUnavailable, 0)
	l.GatewayAnswers("eve", http.StatusServiceUnavailable, 1)
	n := new(served)
	send := func(who, verb string) (string, error) {
		q, err := http.NewRequestWithContext(t.Context(), verb, "http://server/api/v1/namespaces/ot21c-1/configmaps/shelf", nil)
		require.NoError(t, err)
		resp, err := l.Wire.Transport(who)(n).RoundTrip(q)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d %q", resp.StatusCode, resp.Header.Get("Retry-After")), resp.Body.Close()
	}
	for _, c := range []struct {
		who, verb, answer string
		err               error
	}{
		{"ann", http.MethodGet, `200 "10"`, nil},
		{"ann", http.MethodPut, "", wire.ErrAnswerLost},
		{"ann", http.MethodPut, `200 "10"`, nil},
		{"bob", http.MethodPost, `503 ""`, nil},
		{"bob", http.MethodPost, `200 "10"`, nil},
		{"eve", http.MethodPost, `503 "1"`, nil},
	} {
		answer, err := send(c.who, c.verb)
		require.ErrorIs(t, err, c.err)
		assert.Equal(t, c.answer, answer)
	}
	assert.EqualValues(t, 6, *n, "the server has served all of them")
}
