package answer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dialed is the error with which Go's HTTP client ends when it cannot reach a server in a network where nobody
// answers: it is dialled with ctx and given up after limit.
func dialed(t *testing.T, ctx context.Context, limit time.Duration) error {
	t.Helper()
	dialer := net.Dialer{Timeout: limit}
	_, err := dialer.DialContext(ctx, "tcp", "127.0.0.1:1")
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	return &url.Error{Op: "Get", URL: "https://127.0.0.1:1/api", Err: err}
}

func TestNothingWasSentWhereNoConnectionCameAbout(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer stop()
	for _, c := range []struct {
		name   string
		err    error
		step   Step
		stored Stored
	}{
		{"nobody listens", dialed(t, t.Context(), time.Minute), WaitAndRepeat, No},
		{"the dial takes too long", dialed(t, t.Context(), time.Nanosecond), WaitAndRepeat, No},
		{"the caller's time is over while it dials", dialed(t, late, time.Minute), WaitAndRepeat, No},
		{"the caller gives up while it dials", dialed(t, canceled, time.Minute), Stop, No},
	} {
		step, stored := Next(c.err, "configmaps", "ConfigMap")
		assert.Equal(t, c.step, step, "%s: %v", c.name, c.err)
		assert.Equal(t, c.stored, stored, "%s: %v", c.name, c.err)
	}
	assert.ErrorIs(t, dialed(t, t.Context(), time.Nanosecond), context.DeadlineExceeded,
		"what makes the order of the cases matter")
}

func TestNobodyKnowsWhatBecameOfARequestThatWasSent(t *testing.T) {
	read := func(err error) error {
		return &url.Error{Op: "Put", URL: "https://127.0.0.1:1/api", Err: &net.OpError{Op: "read", Net: "tcp", Err: err}}
	}
	for _, c := range []struct {
		err  error
		step Step
	}{
		{&url.Error{Op: "Put", URL: "/", Err: context.Canceled}, Stop},
		{&url.Error{Op: "Put", URL: "/", Err: context.DeadlineExceeded}, Stop},
		{read(errors.New("connection reset by peer")), ReadBack},
		{&url.Error{Op: "Put", URL: "/", Err: io.EOF}, ReadBack},
	} {
		step, stored := Next(c.err, "configmaps", "ConfigMap")
		assert.Equal(t, c.step, step, "%v", c.err)
		assert.Equal(t, Unknown, stored, "%v", c.err)
	}
}
