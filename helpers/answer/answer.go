// Package answer says what an answer of the Kubernetes API, or the lack of one, tells about a request and
// what to do next.
package answer

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Step is what to do next about a request.
type Step int

// The steps, from the harmless to the doubtful.
const (
	GoOn Step = iota
	FixTheRequest
	SeeWhatIsServed
	ProveWhoYouAre
	SeeWhoForbidsIt
	LeaveTheNamespace
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
	GoOn:          {"go on", "it is done"},
	FixTheRequest: {"fix the request", "the request is wrong as it stands, and will be refused again"},
	SeeWhatIsServed: {"see what is served", "the server has no such resource or version; of the object this says " +
		"nothing"},
	ProveWhoYouAre:    {"prove who you are", "the server does not accept the credentials"},
	SeeWhoForbidsIt:   {"see who forbids it", "a role that is missing, a quota, a policy: only the message says which"},
	LeaveTheNamespace: {"leave the namespace", "it is being deleted, and takes nothing new"},
	ReadIt:            {"read it live", "what stands there is not what you knew; how it differs says what to do"},
	DecideAgain:       {"decide again", "the same object has moved on: decide on what it says now, and write"},
	LetGo:             {"let go", "what you knew is gone: what belonged to its uid may go with it, nothing else"},
	SeeWhoseItIs:      {"see whose it is", "yours (OT23): go on; a stranger's: take another name, or give up"},
	WaitForItsEnd:     {"wait for its end", "it is being deleted and keeps its name until then"},
	SettleTheOwner:    {"settle the owner", "another manager owns the field, and no retry decides who should"},
	SendItAgain:       {"send it again", "another object was overtaken, such as a quota; yours was not stored"},
	ListAgain:         {"list again", "this server no longer has that number; a fresh list works at every server"},
	WaitAndRepeat:     {"wait, then repeat", "nothing was done; the same request may be accepted later"},
	ReadBack:          {"read back", "nobody can say whether it was done: read and compare, then decide"},
	Stop:              {"stop", "you gave up; what you sent may be done or not"},
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
// request was executed. The request was about an object of the given resource and kind ("configmaps" or
// "deployments/status", "ConfigMap"): a conflict that names another is about another object. Next looks at status,
// reason, causes and details, and never at a message: messages change. It takes a read to be live: one with a
// resourceVersion may be answered with 404 by a cache that does not know the object yet.
//
// What it cannot see is the history. A 409 after an attempt without an answer may be that attempt's own
// success, so read back before you repeat a write. And an error without an answer is that of the last attempt: that it
// never left the client says nothing about an earlier one. [Call.Next] knows more.
func Next(err error, resource, kind string) (Step, Stored) {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return GoOn, Yes
	case errors.As(err, &status):
		return ofStatus(err, status.Status(), resource, kind)
	case errors.Is(err, context.Canceled):
		return Stop, Unknown
	}
	// A limit in rest.Config looks like a deadline of the caller's own.
	return ReadBack, Unknown
}

// Call is one call of a client library, with all the requests that it sends. [Begin] makes one.
type Call struct {
	ctx  context.Context
	sent atomic.Bool
}

// Begin returns what notes whether a call sends anything, and the context to make the call with.
func Begin(ctx context.Context) (*Call, context.Context) {
	c := &Call{ctx: ctx}
	return c, httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// From here on, something may be sent. A connection that is not trusted is never handed over.
		GotConn: func(httptrace.GotConnInfo) { c.sent.Store(true) },
	})
}

// Next is the function Next, for one that knows more than the error does: whether the call got a connection to send
// on, in any of its attempts, and whether it was its caller who gave up.
func (c *Call) Next(err error, resource, kind string) (Step, Stored) {
	step, stored := Next(err, resource, kind)
	if stored != Unknown {
		return step, stored
	}
	if !c.sent.Load() {
		step, stored = WaitAndRepeat, No
	}
	var status apierrors.APIStatus
	if c.ctx.Err() != nil && !errors.As(err, &status) {
		step = Stop
	}
	return step, stored
}

func ofStatus(err error, s metav1.Status, resource, kind string) (Step, Stored) {
	switch s.Code {
	case http.StatusUnauthorized:
		return ProveWhoYouAre, No
	case http.StatusForbidden:
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return LeaveTheNamespace, No
		}
		return SeeWhoForbidsIt, No
	case http.StatusNotFound:
		return ofNotFound(err, s, resource, kind), No
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
	case http.StatusRequestTimeout:
		return ReadBack, Unknown
	}
	if s.Code >= http.StatusBadRequest && s.Code < http.StatusInternalServerError {
		return FixTheRequest, No
	}
	return ReadBack, Unknown
}

// ofNotFound tells the faces of 404 apart. Where nothing is served under the path, the answer names no object, or it is
// a page: client-go then makes up a refusal that names the object of the request (NewGenericServerResponse in
// k8s.io/apimachinery/pkg/api/errors).
func ofNotFound(err error, s metav1.Status, resource, kind string) Step {
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse), s.Details == nil, s.Details.Kind == "":
		return SeeWhatIsServed
	case !isAbout(s.Details, resource, kind):
		return FixTheRequest // the namespace, for example
	case strings.Contains(resource, "/"):
		return ReadIt // a custom resource without that subresource is refused in the same words
	}
	return LetGo
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
// Both need a live reading first, and [Found] says what it shows.
func ofInvalid(s metav1.Status) Step {
	if s.Details == nil {
		return FixTheRequest
	}
	if s.Details.Kind == "" && len(s.Details.Causes) == 0 {
		return ReadIt
	}
	for _, cause := range s.Details.Causes {
		if cause.Field == "metadata.uid" {
			return ReadIt
		}
	}
	return FixTheRequest
}

// isAbout says whether the details of a refusal name the given resource or kind, or none at all. They name the
// resource ("configmaps", "pods/binding"), but the kind ("ConfigMap") where the preconditions of a delete were
// not met, unless it was overtaken (BeforeDelete in k8s.io/apiserver/pkg/registry/rest).
func isAbout(d *metav1.StatusDetails, resource, kind string) bool {
	if d == nil || d.Kind == "" {
		return true
	}
	name, _, _ := strings.Cut(d.Kind, "/")
	resource, _, _ = strings.Cut(resource, "/")
	return name == resource || name == kind
}

// Found says what to do after [ReadIt]: known is the object that the client had in mind, nil if it meant to
// create one, and now is what a live reading finds under the name, nil if nothing. Tokens are compared for equality:
// an object that has not moved was not the reason of the refusal, so the request is.
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
	case known.GetResourceVersion() == now.GetResourceVersion():
		return FixTheRequest
	}
	return DecideAgain
}
