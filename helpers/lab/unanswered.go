package lab

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"modrev/helpers/wire"
)

// Interrupted sends a write, waits until the wire holds its transaction (or, after
// [wire.Tap.HoldAnswer], the answer to it), and interrupts it there. It returns what the sender sees, once
// kube-apiserver has given the transaction up: what is stored then stays so.
func (l *Lab) Interrupted(held *wire.Held, send func() error, interrupt func()) error {
	pending := l.Go("the write that is interrupted", send)
	l.Step(held.Arrived(l.ctx), "holding the write that is to be interrupted")
	interrupt()
	err := pending.Wait()
	l.Step(held.Dropped(l.ctx), "interrupting a write")
	return err
}

// PastDeadline sends a write with a deadline for the server, in the background, and lets the deadline pass
// while the wire holds the transaction (or the answer to it). A write whose deadline ends before it gets there is
// sent again with twice the time.
func (l *Lab) PastDeadline(held *wire.Held, send func(query string) error) *Pending {
	return l.Go("the write with a deadline", func() error {
		for limit := 500 * time.Millisecond; ; limit *= 2 {
			err := send("timeout=" + limit.String())
			if held.HasArrived() || !RanOut(err) || l.ctx.Err() != nil {
				return err
			}
		}
	})
}

// RanOut says whether kube-apiserver ended a request because its time was over: it answers with 504, or, when it has
// begun to answer, breaks the stream (WithTimeoutForNonLongRunningRequests in k8s.io/apiserver/pkg/server/filters).
// Where a request to etcd ends first, for the same deadline, the answer is a 500.
func RanOut(err error) bool {
	var broken http2.StreamError
	s, answered := statusOf(err)
	if !answered {
		return errors.As(err, &broken)
	}
	return s.Code == http.StatusGatewayTimeout ||
		s.Code == http.StatusInternalServerError && strings.Contains(s.Message, context.DeadlineExceeded.Error())
}
