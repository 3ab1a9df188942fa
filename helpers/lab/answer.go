package lab

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"modrev/helpers/wire"
)

// describe is an error as the book prints it: status, reason and message of the API, or the error's text.
func describe(err error) string {
	if err == nil {
		return "no error"
	}
	if s, ok := statusOf(err); ok {
		return fmt.Sprintf("%s: %s", codeOf(s), s.Message)
	}
	return err.Error()
}

// codeOf is the status code and the reason, where there is one.
func codeOf(s metav1.Status) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", s.Code, s.Reason))
}

// Describe is an error as the book prints it: status, reason and message of the API, or the error's text.
func (l *Lab) Describe(err error) string { return describe(err) }

// AnswerLine is the answer of the API to a write as a table shows it: "200" when err is nil, otherwise status
// and reason.
func AnswerLine(err error) string {
	if err == nil {
		return "200"
	}
	if s, ok := statusOf(err); ok {
		return codeOf(s)
	}
	return err.Error()
}

// Causes are the causes that the API gave for a refusal.
func Causes(err error) []metav1.StatusCause {
	s, ok := statusOf(err)
	if !ok || s.Details == nil {
		return nil
	}
	return s.Details.Causes
}

// HasCause says whether the API gave a cause of the given type for a refusal.
func HasCause(err error, cause metav1.CauseType) bool {
	return apierrors.HasStatusCause(err, cause)
}

// Answered is the answer to the newest request of the lesson's clients as a table shows it, with the code of
// a success: "201".
func (l *Lab) Answered() string {
	calls := l.Wire.Tape().Calls(0)
	if len(calls) == 0 {
		return ""
	}
	return answerOf(calls[len(calls)-1])
}

// AnsweredTo is the same for the newest request of one client.
func (l *Lab) AnsweredTo(who string) string {
	for _, call := range slices.Backward(l.Wire.Tape().Calls(0)) {
		if call.Who == who {
			return answerOf(call)
		}
	}
	return ""
}

func answerOf(c wire.Call) string { return strings.TrimSpace(fmt.Sprintf("%d %s", c.Code, c.Reason)) }

// DetailsOf are the details that the API gave with a refusal; the zero value if it gave none.
func DetailsOf(err error) metav1.StatusDetails {
	s, ok := statusOf(err)
	if !ok || s.Details == nil {
		return metav1.StatusDetails{}
	}
	return *s.Details
}

// RootCause is an error as a table shows it: status and reason if it comes from the API, otherwise the error at
// its root, such as "connection refused", without the way that it took and, of a stream error, its numbers. A
// connection that broke is called so, however far the answer had come: it is left to chance whether the client sees
// a reset or an end.
func RootCause(err error) string {
	if _, ok := statusOf(err); ok || err == nil {
		return AnswerLine(err)
	}
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return "the connection broke"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			text, _, _ := strings.Cut(err.Error(), ": stream ID") // and goes on with numbers
			return text
		}
		err = inner
	}
}
