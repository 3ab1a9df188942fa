// Package answer says what an answer of the Kubernetes API, or the lack of one, tells about a request and
// what to do next.
package answer

import (
	"context"
	"errors"
	"net"
	"net/http"

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
	CleanUpByUID
	SeeWhoseItIs
	SettleTheOwner
	ReadAndDecideAgain
	ListAgain
	WaitAndRepeat
	ReadBack
	Stop
)

var steps = [...]struct{ name, because string }{
	GoOn:               {"go on", "it is done"},
	MendTheRequest:     {"mend the request", "the request is wrong as it stands, and will be refused again"},
	ProveWhoYouAre:     {"prove who you are", "the server does not know who asks"},
	GetTheRight:        {"get the right", "the server knows who asks and says no, by role, quota or policy"},
	CleanUpByUID:       {"clean up by uid", "it is gone, and what belonged to its uid may go with it, nothing else"},
	SeeWhoseItIs:       {"see whose it is", "the name is taken: by yourself, a stranger, or what is being deleted"},
	SettleTheOwner:     {"settle the owner", "another manager owns the field, and no retry decides who should"},
	ReadAndDecideAgain: {"read, decide again", "it has moved on: read it live, compare the uid, decide anew, write"},
	ListAgain:          {"list again", "that number is gone for good, and only a fresh list leads on"},
	WaitAndRepeat:      {"wait, then repeat", "nothing was done; the same request may be accepted later"},
	ReadBack:           {"read back", "nobody can say whether it was done: read and compare, then decide"},
	Stop:               {"stop", "the caller gave up; what was sent may be done or not"},
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
// request was executed. It looks at status, reason and causes, never at a message: messages change.
//
// What it cannot see is the history. A 409 after an attempt without an answer may be that attempt's own
// success, so whoever repeats a write has to read back first.
func Next(err error) (Step, Stored) {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return GoOn, Yes
	case errors.As(err, &status):
		return ofStatus(err, status.Status())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Stop, Unknown
	case neverSent(err):
		return WaitAndRepeat, No
	}
	return ReadBack, Unknown
}

func ofStatus(err error, s metav1.Status) (Step, Stored) {
	switch s.Code {
	case http.StatusUnauthorized:
		return ProveWhoYouAre, No
	case http.StatusForbidden:
		return GetTheRight, No
	case http.StatusNotFound:
		return CleanUpByUID, No
	case http.StatusConflict:
		return ofConflict(err, s), No
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

// ofConflict tells the faces of 409 apart. A stale token and a wrong uid look alike here, and need the same
// step, in which the uid is compared.
func ofConflict(err error, s metav1.Status) Step {
	switch {
	case s.Reason == metav1.StatusReasonAlreadyExists:
		return SeeWhoseItIs
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return SettleTheOwner
	}
	return ReadAndDecideAgain
}

// neverSent says whether no connection came about, so that no byte of the request can have been read.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
