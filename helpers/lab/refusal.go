package lab

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Refusal is what kube-apiserver says when it refuses a request, as far as a program can use it.
type Refusal struct {
	Code    int
	Reason  metav1.StatusReason
	Kind    string   // details.kind
	Name    string   // details.name
	Causes  []string // details.causes: the reason and the field of each
	Message string
}

// predicates are the functions of k8s.io/apimachinery/pkg/api/errors by which a client tells refusals apart.
var predicates = []struct {
	name  string
	holds func(error) bool
}{
	{"IsAlreadyExists", apierrors.IsAlreadyExists},
	{"IsConflict", apierrors.IsConflict},
	{"IsForbidden", apierrors.IsForbidden},
	{"IsNotFound", apierrors.IsNotFound},
	{"IsInvalid", apierrors.IsInvalid},
	{"IsBadRequest", apierrors.IsBadRequest},
	{"IsUnsupportedMediaType", apierrors.IsUnsupportedMediaType},
	{"IsMethodNotSupported", apierrors.IsMethodNotSupported},
	{"IsServerTimeout", apierrors.IsServerTimeout},
	{"IsTimeout", apierrors.IsTimeout},
	{"IsResourceExpired", apierrors.IsResourceExpired},
	{"IsInternalError", apierrors.IsInternalError},
	{"IsUnauthorized", apierrors.IsUnauthorized},
	{"IsTooManyRequests", apierrors.IsTooManyRequests},
}

// Predicates names the functions of k8s.io/apimachinery/pkg/api/errors that recognise an error.
func Predicates(err error) string {
	var out []string
	for _, p := range predicates {
		if p.holds(err) {
			out = append(out, p.name)
		}
	}
	return strings.Join(out, ", ")
}

// Refusal expects that a request was refused, and returns what the refusal says.
func (l *Lab) Refusal(err error, what string) Refusal {
	l.Expect(err != nil, what+" is refused", "%s was accepted", what)
	s, ok := statusOf(err)
	l.Expect(ok, what+" is refused by the API", "%s failed without an answer of the API: %v", what, err)
	r := Refusal{Code: int(s.Code), Reason: s.Reason, Message: s.Message}
	if s.Details == nil {
		return r
	}
	r.Kind, r.Name = s.Details.Kind, s.Details.Name
	for _, c := range s.Details.Causes {
		r.Causes = append(r.Causes, strings.TrimSpace(string(c.Type)+" "+c.Field))
	}
	return r
}

// Is says whether the refusal has the given code and reason, and words in its message.
func (r Refusal) Is(code int, reason metav1.StatusReason, words string) bool {
	return r.Code == code && r.Reason == reason && strings.Contains(r.Message, words)
}

// CodeAndReason is the first thing that a client looks at: "409 Conflict".
func (r Refusal) CodeAndReason() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", r.Code, r.Reason))
}

// Details is what the refusal is about, as a table shows it.
func (r Refusal) Details() string {
	if r.Kind == "" && r.Name == "" {
		return "(none)"
	}
	return strings.TrimSpace(r.Kind + " " + r.Name)
}

// Cause is the causes as a table shows them.
func (r Refusal) Cause() string { return strings.Join(slices.Compact(slices.Clone(r.Causes)), ", ") }
