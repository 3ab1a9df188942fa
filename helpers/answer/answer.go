// Package answer says what an answer of the Kubernetes API, or the lack of one, tells about a request and
// what to do next.
package answer

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Step is what to do next about a request.
type Step int

// The steps, from the harmless to the doubtful.
const (
	GoOn Step = iota
	MendTheRequest
	ProveWhoYouAre
	GetTheRight
	ReadIt
	DecideAgain
	LetGo
	SeeWhoseItIs
	WaitForItsEnd
	SettleTheOwner
	SendItAgain
	ListAgain
	WaitAndRepeat
	ReadBack
	Stop
)

var steps = [...]struct{ name, because string }{
	GoOn:           {"go on", "it is done"},
	MendTheRequest: {"mend the request", "the request is wrong as it stands, and will be refused again"},
	ProveWhoYouAre: {"prove who you are", "the server does not know who asks"},
	GetTheRight:    {"get the right", "the server knows who asks and says no, by role, quota or policy"},
	ReadIt:         {"read it live", "what stands there is not what you knew; how it differs says what to do"},
	DecideAgain:    {"decide again", "the same object has moved on: decide on what it says now, and write"},
	LetGo:          {"let go", "what you knew is gone: what belonged to its uid may go with it, nothing else"},
	SeeWhoseItIs:   {"see whose it is", "yours (OT23): go on; a stranger's: take another name, or give up"},
	WaitForItsEnd:  {"wait for its end", "it is being deleted and keeps its name until then"},
	SettleTheOwner: {"settle the owner", "another manager owns the field, and no retry decides who should"},
	SendItAgain:    {"send it again", "another object was overtaken, such as a quota; yours was not stored"},
	ListAgain:      {"list again", "that number is gone for good, and only a fresh list leads on"},
	WaitAndRepeat:  {"wait, then repeat", "nothing was done; the same request may be accepted later"},
	ReadBack:       {"read back", "nobody can say whether it was done: read and compare, then decide"},
	Stop:           {"stop", "the caller gave up; what was sent may be done or not"},
}

// String is the step in a few words, such as "read back".
func (s Step) String() string { return steps[s].name }

// Because says why it is the step to take.
func (s Step) Because() string { return steps[s].because }

// Stored is what an answer tells about the store.
type Stored string

// What an answer can tell about the store. Unknown is a fact as well: the same answer is given when the
// request was executed and when it was not.
const (
	Yes     Stored = "yes"
	No      Stored = "no"
	Unknown Stored = "unknown"
)

// Next says what to do after a request that ended with err, as client-go returned it, and whether the
// request was executed. The request was about an object of the given resource and kind ("configmaps",
// "ConfigMap"): a conflict that names another is about another object. Next looks at status, reason, causes and
// details, and never at a message: messages change.
//
// What it cannot see is the history. A 409 after an attempt without an answer may be that attempt's own
// success, so whoever repeats a write has to read back first.
func Next(err error, resource, kind string) (Step, Stored) {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return GoOn, Yes
	case errors.As(err, &status):
		return ofStatus(err, status.Status(), resource, kind)
	case neverSent(err):
		if errors.Is(err, context.Canceled) {
			return Stop, No
		}
		// A dial that took too long is a context.DeadlineExceeded to errors.Is, whoever set the limit. A caller whose own
		// time is over learns that when he waits.
		return WaitAndRepeat, No
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Stop, Unknown
	}
	return ReadBack, Unknown
}

func ofStatus(err error, s metav1.Status, resource, kind string) (Step, Stored) {
	switch s.Code {
	case http.StatusUnauthorized:
		return ProveWhoYouAre, No
	case http.StatusForbidden:
		return GetTheRight, No
	case http.StatusNotFound:
		if !isAbout(s.Details, resource, kind) {
			return MendTheRequest, No // the namespace, for example
		}
		return LetGo, No
	case http.StatusConflict:
		return ofConflict(err, s, resource, kind), No
	case http.StatusUnprocessableEntity:
		return ofInvalid(s), No
	case http.StatusGone:
		return ListAgain, No
	case http.StatusTooManyRequests:
		return WaitAndRepeat, No
	case http.StatusGatewayTimeout:
		if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			return WaitAndRepeat, No
		}
		return ReadBack, Unknown
	}
	if s.Code >= http.StatusBadRequest && s.Code < http.StatusInternalServerError {
		return MendTheRequest, No
	}
	return ReadBack, Unknown
}

// ofConflict tells the faces of 409 apart, as far as they are told apart without reading a message: a taken
// name, a stale token and another uid all need a live reading first, and [Found] says what it shows.
func ofConflict(err error, s metav1.Status, resource, kind string) Step {
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return SettleTheOwner
	case s.Reason == metav1.StatusReasonConflict && !isAbout(s.Details, resource, kind):
		return SendItAgain
	}
	return ReadIt
}

// ofInvalid tells the faces of 422 apart. A JSON patch whose test fails, or whose path is not there, does not fit
// what stands there, and its refusal names neither an object nor a cause (applyJSPatch in
// k8s.io/apiserver/pkg/endpoints/handlers); a uid other than that of the object is refused as an immutable field.
// Both need a live reading first, and [Found] says what it shows. A JSON patch that is wrong in itself, such as
// one with an unknown op, is answered alike: who finds the object as he knew it has to mend the patch.
func ofInvalid(s metav1.Status) Step {
	if s.Details == nil {
		return MendTheRequest
	}
	if s.Details.Kind == "" && len(s.Details.Causes) == 0 {
		return ReadIt
	}
	for _, cause := range s.Details.Causes {
		if cause.Field == "metadata.uid" {
			return ReadIt
		}
	}
	return MendTheRequest
}

// isAbout says whether the details of a refusal name the given resource or kind, or none at all. They name the
// resource ("configmaps", "pods/binding"), but the kind ("ConfigMap") where the preconditions of a delete were
// not met, unless it was overtaken (BeforeDelete in k8s.io/apiserver/pkg/registry/rest).
func isAbout(d *metav1.StatusDetails, resource, kind string) bool {
	if d == nil || d.Kind == "" {
		return true
	}
	name, _, _ := strings.Cut(d.Kind, "/")
	return name == resource || name == kind
}

// Found says what to do after [ReadIt]: known is the object that the client had in mind, nil if it meant to
// create one, and now is what stands under the name, nil if nothing does.
func Found(known, now metav1.Object) Step {
	switch {
	case now == nil && known == nil:
		return SendItAgain // the name is free by now
	case now == nil:
		return LetGo
	case known == nil && now.GetDeletionTimestamp() != nil:
		return WaitForItsEnd
	case known == nil:
		return SeeWhoseItIs
	case known.GetUID() != now.GetUID():
		return LetGo
	}
	return DecideAgain
}

// neverSent says whether no connection came about, so that no byte of the request can have been read.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
