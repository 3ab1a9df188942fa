package lab

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"modrev/helpers/wire"
)

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
		const shelf = "http://server/api/v1/namespaces/ot21c-1/configmaps/shelf"
		q, err := http.NewRequestWithContext(t.Context(), verb, shelf, nil)
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
