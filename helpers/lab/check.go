package lab

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"modrev/helpers/record"
	"modrev/helpers/wire"
)

// A *Lab is a require.TestingT, so that a lesson writes its steps with testify: a requirement that is not met ends
// the lesson as a step that could not be done, and says nothing about the claim. Claims are for Expect and for what is
// built on it.

// Errorf records that a step could not be done. It is called by testify, with its labeled report of what failed.
func (l *Lab) Errorf(format string, args ...any) {
	report := fmt.Sprintf(format, args...)
	what, why := labeled(report, "Messages"), labeled(report, "Error")
	if what == "" {
		what = "a step on the way"
	}
	if why == "" {
		why = strings.TrimSpace(report)
	}
	why = strings.TrimSpace(strings.TrimPrefix(why, "Received unexpected error:"))
	l.told.Failure = cmp.Or(l.told.Failure, stuck(what, why))
}

// FailNow ends the lesson; see [Lab.Errorf].
func (l *Lab) FailNow() {
	l.fail(cmp.Or(l.told.Failure, stuck("a step on the way", "it failed")))
}

func stuck(what, why string) *record.Failure {
	return &record.Failure{Expected: what + " succeeds", Observed: what + ": " + why, Stuck: true}
}

var label = regexp.MustCompile(`(?m)^\s*(Error Trace|Error|Messages|Test):\s*`)

// labeled is the text under one label of a report of testify, without the columns that it stands in.
func labeled(report, name string) string {
	at := label.FindAllStringSubmatchIndex(report, -1)
	for i, m := range at {
		if report[m[2]:m[3]] != name {
			continue
		}
		end := len(report)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		return strings.Join(strings.Fields(report[m[1]:end]), " ")
	}
	return ""
}

// fail ends the lesson; in a lab within a lab, that of the outer one. Of several failures the first is kept: the
// others follow from it.
func (l *Lab) fail(f *record.Failure) {
	for at := l; at != nil; at = at.host {
		at.told.Failure = cmp.Or(at.told.Failure, f)
	}
	runtime.Goexit()
}

// Step ends the lesson if a step on the way to the claim failed. what says what was being done.
func (l *Lab) Step(err error, what string) {
	if err != nil {
		l.Stuck(what, err)
	}
}

// Stuck ends the lesson because a step on the way to the claim could not be done.
func (l *Lab) Stuck(what string, err error) { l.fail(stuck(what, describe(err))) }

// Expect ends the lesson with the claim refuted unless ok. expected and observed are the two sentences
// that the reader then sees; observed is a format for args.
func (l *Lab) Expect(ok bool, expected, observed string, args ...any) {
	if ok {
		return
	}
	l.fail(&record.Failure{Expected: expected, Observed: fmt.Sprintf(observed, args...)})
}

// Equal expects that something has a value: "version is 1". Numbers of different types are equal when they are the
// same number.
func (l *Lab) Equal(what string, got, want any) {
	l.Expect(assert.ObjectsAreEqualValues(want, got), what+" is "+shown(want), "%s is %s", what, shown(got))
}

// shown is a value as a failure names it.
func shown(v any) string {
	if v == nil {
		return "nothing"
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.String:
		if r.Len() == 0 {
			return "empty"
		}
	case reflect.Slice:
		if r.Len() == 0 {
			return "none"
		}
		words := make([]string, r.Len())
		for i := range words {
			words[i] = shown(r.Index(i).Interface())
		}
		return strings.Join(words, ", ")
	case reflect.Map:
		if r.Len() == 0 {
			return "none"
		}
	}
	return fmt.Sprint(v)
}

// Sends expects that exactly the given requests reached etcd, written as [record.Requests.Summary] writes
// them: "1 Range, 2 Txn", or "no request".
func (l *Lab) Sends(seen wire.Requests, what, summary string) {
	l.Expect(seen.Summary() == summary, what+" costs etcd: "+summary, "%s cost etcd: %s", what, seen.Summary())
}

// Accepted expects that a request was accepted.
func (l *Lab) Accepted(err error, what string) {
	l.Expect(err == nil, what+" is accepted", "%s was refused: %s", what, describe(err))
}

// Refusal is what kube-apiserver says when it refuses a request, as far as a program can use it.
type Refusal struct {
	Code    int                 // the HTTP status
	Reason  metav1.StatusReason // "" for a 500 without a reason
	Kind    string              // details.kind
	Name    string              // details.name
	Causes  []string            // details.causes: the reason and the field of each
	Message string              // the whole message
	Says    string              // words of the message, of a refusal that is expected
}

// NoCauses are the causes of a refusal that has none.
var NoCauses = []string{}

// Stale is the refusal of a write that carries the token of an earlier version of o
// (NewConflict in k8s.io/apimachinery/pkg/api/errors around OptimisticLockErrorMsg in
// k8s.io/apiserver/pkg/registry/generic/registry).
func Stale(o *Object) Refusal {
	kind := kindOf(o).qualified()
	return Refusal{
		Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Name: o.GetName(), Causes: NoCauses,
		Message: fmt.Sprintf("Operation cannot be fulfilled on %s %q: the object has been modified; "+
			"please apply your changes to the latest version and try again", kind, o.GetName()),
	}
}

// Refused expects that the API refused a request, with the code and the reason of want and with what else want
// says: details.kind, details.name, causes, and the message. It returns the refusal as it was.
func (l *Lab) Refused(err error, what string, want Refusal) Refusal {
	expected := fmt.Sprintf("%s is refused: %s", what, want)
	l.Expect(err != nil, expected, "%s was accepted", what)
	s, ok := statusOf(err)
	l.Expect(ok, expected, "%s failed without an answer of the API: %v", what, err)
	got := refusalOf(s)
	l.Expect(want.matches(got), expected, "%s was refused: %s", what, got)
	return got
}

// Refusal is the refusal of a request of which a lesson only shows what it says. The lesson is refuted if it was
// not refused.
func (l *Lab) Refusal(err error, what string) Refusal {
	l.Expect(err != nil, what+" is refused", "%s was accepted", what)
	s, ok := statusOf(err)
	l.Expect(ok, what+" is refused by the API", "%s failed without an answer of the API: %v", what, err)
	return refusalOf(s)
}

func refusalOf(s metav1.Status) Refusal {
	r := Refusal{Code: int(s.Code), Reason: s.Reason, Message: s.Message, Causes: NoCauses}
	if s.Details == nil {
		return r
	}
	r.Kind, r.Name = s.Details.Kind, s.Details.Name
	for _, c := range s.Details.Causes {
		r.Causes = append(r.Causes, strings.TrimSpace(string(c.Type)+" "+c.Field))
	}
	return r
}

// matches says whether a refusal is as r says, where r says something.
func (r Refusal) matches(got Refusal) bool {
	return got.Code == r.Code && got.Reason == r.Reason &&
		(r.Kind == "" || got.Kind == r.Kind) && (r.Name == "" || got.Name == r.Name) &&
		(r.Causes == nil || slices.Equal(r.Causes, got.Causes)) && (r.Message == "" || got.Message == r.Message) &&
		strings.Contains(got.Message, r.Says)
}

// String is the refusal as a failure names it.
func (r Refusal) String() string {
	s := r.CodeAndReason()
	if r.Kind != "" || r.Name != "" {
		s += " about " + r.Details()
	}
	if len(r.Causes) > 0 {
		s += ", caused by " + r.Cause()
	}
	if r.Message != "" || r.Says != "" {
		s += ": " + cmp.Or(r.Message, r.Says)
	}
	return s
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

// Stored expects that etcd holds an object with the given fields ("color=blue") and without those that
// are written with a minus ("-size").
func (l *Lab) Stored(o *Object, fields ...string) {
	l.holds(l.Of(kindOf(o)).Peek(o.GetName()), fields...)
}

// holds is what Stored expects of what it has read.
func (l *Lab) holds(got *Object, fields ...string) {
	for _, f := range fields {
		if name, absent := strings.CutPrefix(f, "-"); absent {
			v, ok := lookup(got, name)
			l.Expect(!ok, name+" is not stored", "%s=%v is stored", name, v)
			continue
		}
		name, want, _ := strings.Cut(f, "=")
		v, ok := lookup(got, name)
		l.Expect(ok, f+" is stored", "%s is not stored", name)
		l.Expect(fmt.Sprint(v) == want, f+" is stored", "%s=%v is stored", name, v)
	}
}

// statusOf is the API's own description of an error, if it comes from the API.
func statusOf(err error) (metav1.Status, bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return metav1.Status{}, false
	}
	return status.Status(), true
}
