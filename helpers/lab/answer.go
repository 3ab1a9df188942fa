package lab

import (
	"fmt"
	"strings"

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

// AnswerLine is the answer of the API to a request as a table shows it: status and reason, or "200" when err is nil.
// An error does not know the code of a success: for what may have created, which is 201, see [Lab.Answered].
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

func answerOf(c wire.Call) string { return strings.TrimSpace(fmt.Sprintf("%d %s", c.Code, c.Reason)) }

// DetailsOf are the details that the API gave with a refusal; the zero value if it gave none.
func DetailsOf(err error) metav1.StatusDetails {
	s, ok := statusOf(err)
	if !ok || s.Details == nil {
		return metav1.StatusDetails{}
	}
	return *s.Details
}
