package lab

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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
