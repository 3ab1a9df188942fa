package lab

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"modrev/helpers/record"
	"modrev/helpers/wire"
)

// failure is why a check ends a lesson; nil when it lets the lesson go on.
func failure(check func(*Lab)) *record.Failure {
	l := &Lab{ctx: context.Background()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check(l)
	}()
	<-done
	return l.told.Failure
}

// check is one input of a check. observed is a part of what the lesson then says; "" when the input passes.
type check struct {
	name     string
	run      func(*Lab)
	observed string
}

// try runs checks, each in a lab of its own.
func try(t *testing.T, checks []check) {
	t.Helper()
	for _, c := range checks {
		f := failure(c.run)
		switch {
		case c.observed == "":
			assert.Nil(t, f, "%s must pass", c.name)
		case f == nil:
			assert.Fail(t, "it passed", c.name)
		default:
			assert.False(t, f.Stuck, "%s: the claim is refuted, and no step failed", c.name)
			assert.Contains(t, f.Observed, c.observed, c.name)
			assert.NotEmpty(t, f.Expected, c.name)
		}
	}
}

// shelf is an object as a lesson has read it.
func shelf() *Object {
	return ConfigMap.newObject("cf1-1", "shelf", "color=red", "size=9")
}

// stale is the answer to a stale write of the shelf, with something changed about it.
func stale(change func(*metav1.Status)) error {
	err := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "shelf",
		errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	if change != nil {
		change(&err.ErrStatus)
	}
	return err
}

var errBroken = errors.New("the connection broke")

func TestExpectEndsTheLessonUnlessItIsSo(t *testing.T) {
	wentOn := false
	f := failure(func(l *Lab) {
		l.Expect(true, "never seen", "nor this")
		l.Expect(false, "a is 1", "a is %d", 2)
		wentOn = true
	})
	assert.Equal(t, &record.Failure{Expected: "a is 1", Observed: "a is 2"}, f)
	assert.False(t, wentOn, "the lesson ends there")
}

func TestAStepThatFailsIsNoRefutation(t *testing.T) {
	assert.Nil(t, failure(func(l *Lab) { l.Step(nil, "reading") }))
	f := failure(func(l *Lab) { l.Step(stale(nil), "replacing the shelf") })
	require.NotNil(t, f)
	assert.True(t, f.Stuck)
	assert.Equal(t, "replacing the shelf succeeds", f.Expected)
	assert.Contains(t, f.Observed, "replacing the shelf: 409 Conflict: Operation cannot be fulfilled")
}

func TestAFailureInALabWithinALabEndsTheLesson(t *testing.T) {
	outer := failure(func(l *Lab) { (&Lab{host: &Lab{host: l}}).Expect(false, "a", "b") })
	assert.Equal(t, &record.Failure{Expected: "a", Observed: "b"}, outer)
}

func TestAFailureInTheBackgroundIsTheOneThatIsTold(t *testing.T) {
	f := failure(func(l *Lab) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		l.ctx = ctx
		err := l.Go("the write", func() error {
			l.Expect(false, "a", "b")
			return nil
		}).Wait()
		l.Step(err, "writing")
	})
	assert.Equal(t, &record.Failure{Expected: "a", Observed: "b"}, f)
}

func TestASkipInALabWithinALabSkipsTheLesson(t *testing.T) {
	outer := &Lab{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&Lab{host: &Lab{host: outer}}).Skip("there is no source")
	}()
	<-done
	assert.Equal(t, "there is no source", outer.told.Skipped)
}

func TestAccepted(t *testing.T) {
	try(t, []check{
		{"no error", func(l *Lab) { l.Accepted(nil, "the patch") }, ""},
		{"a refusal", func(l *Lab) { l.Accepted(stale(nil), "the patch") }, "the patch was refused: 409 Conflict: "},
		{"no answer", func(l *Lab) { l.Accepted(errBroken, "the patch") }, "the patch was refused: the connection broke"},
	})
}

func TestRefused(t *testing.T) {
	refused := func(err error) func(*Lab) {
		return func(l *Lab) {
			l.Refused(err, "the write", Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict})
		}
	}
	try(t, []check{
		{"the refusal", refused(stale(nil)), ""},
		{"the refusal, wrapped", refused(errors.Join(errBroken, stale(nil))), ""},
		{"no refusal", refused(nil), "the write was accepted"},
		{"no answer", refused(errBroken), "failed without an answer of the API: the connection broke"},
		{"another code", refused(stale(func(s *metav1.Status) { s.Code = 422 })), "the write was refused: 422 Conflict"},
		{"another reason", refused(stale(func(s *metav1.Status) { s.Reason = "AlreadyExists" })),
			"the write was refused: 409 AlreadyExists"},
	})
}

func TestConflicts(t *testing.T) {
	conflicts := func(err error) func(*Lab) {
		return func(l *Lab) { l.Refused(err, "the replace", Stale(shelf())) }
	}
	changed := func(change func(*metav1.Status)) func(*Lab) { return conflicts(stale(change)) }
	try(t, []check{
		{"a stale write", conflicts(stale(nil)), ""},
		{"no refusal", conflicts(nil), "the replace was accepted"},
		{"no answer", conflicts(errBroken), "without an answer of the API"},
		{"another code", changed(func(s *metav1.Status) { s.Code = 400 }), "400 Conflict"},
		{"another reason", changed(func(s *metav1.Status) { s.Reason = metav1.StatusReasonAlreadyExists }),
			"409 AlreadyExists"},
		{"another word", changed(func(s *metav1.Status) { s.Message += "!" }), "try again!"},
		{"another object", conflicts(apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "box",
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))),
			`on configmaps "box"`},
		{"another resource", conflicts(apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "shelf",
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))),
			`on secrets "shelf"`},
		{"a cause", changed(func(s *metav1.Status) {
			s.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict}}
		}), "FieldManagerConflict"},
		{"no details", changed(func(s *metav1.Status) { s.Details = nil }),
			"the replace was refused: 409 Conflict: Operation"},
	})
}

func TestTheStandardTextNamesTheGroup(t *testing.T) {
	lease := Lease.newObject("cf1-1", "lock")
	assert.Equal(t, `Operation cannot be fulfilled on leases.coordination.k8s.io "lock": the object has been modified; `+
		`please apply your changes to the latest version and try again`, Stale(lease).Message)
}

func TestARefusalIsComparedWhereTheLessonSaysSomething(t *testing.T) {
	refused := func(want Refusal) func(*Lab) {
		want.Code, want.Reason = http.StatusConflict, metav1.StatusReasonConflict
		return func(l *Lab) { l.Refused(stale(nil), "the write", want) }
	}
	try(t, []check{
		{"all", refused(Refusal{Kind: "configmaps", Name: "shelf", Causes: NoCauses, Says: "has been modified"}), ""},
		{"another kind", refused(Refusal{Kind: "secrets"}), "refused: 409 Conflict about configmaps shelf"},
		{"another name", refused(Refusal{Name: "box"}), "refused: 409 Conflict about configmaps shelf"},
		{"a cause", refused(Refusal{Causes: []string{"x"}}), "refused: 409 Conflict about configmaps shelf"},
		{"other words", refused(Refusal{Says: "was deleted"}), "has been modified"},
	})
}

func TestEqual(t *testing.T) {
	equal := func(got, want any) func(*Lab) { return func(l *Lab) { l.Equal("version", got, want) } }
	try(t, []check{
		{"the same", equal(int64(1), 1), ""},
		{"another number", equal(2, 1), "version is 2"},
		{"another word", equal("", "blue"), "version is empty"},
		{"the same list", equal([]string{"a"}, []string{"a"}), ""},
		{"another list", equal([]string{"a", "b"}, []string{"a"}), "version is a, b"},
		{"nothing", equal([]string{}, []string{"a"}), "version is none"},
	})
}

func TestARequirementOfTestifyIsAStep(t *testing.T) {
	assert.Nil(t, failure(func(l *Lab) { require.NoError(l, nil, "reading") }))
	f := failure(func(l *Lab) { require.NoError(l, errBroken, "reading the shelf of %s", "ann") })
	assert.Equal(t, &record.Failure{
		Expected: "reading the shelf of ann succeeds", Observed: "reading the shelf of ann: the connection broke",
		Stuck: true,
	}, f)
	f = failure(func(l *Lab) { require.Len(l, []int{1}, 2) })
	assert.True(t, f.Stuck)
	assert.Contains(t, f.Observed, "should have 2 item(s)")
}

func TestSends(t *testing.T) {
	sends := func(summary string, methods ...wire.Method) func(*Lab) {
		var seen wire.Requests
		for _, m := range methods {
			seen = append(seen, wire.Request{Method: m})
		}
		return func(l *Lab) { l.Sends(seen, "a no-op", summary) }
	}
	try(t, []check{
		{"exactly these", sends("1 Range, 1 Txn", wire.Txn, wire.Range), ""},
		{"none", sends("no request"), ""},
		{"one more", sends("1 Range", wire.Range, wire.Range), "a no-op cost etcd: 2 Range"},
		{"one of another sort, too", sends("1 Range", wire.Range, wire.Txn), "a no-op cost etcd: 1 Range, 1 Txn"},
		{"one less", sends("2 Txn", wire.Txn), "a no-op cost etcd: 1 Txn"},
		{"another", sends("1 Txn", wire.Range), "a no-op cost etcd: 1 Range"},
		{"one, where none was expected", sends("no request", wire.Range), "a no-op cost etcd: 1 Range"},
		{"none, where one was expected", sends("1 Range"), "a no-op cost etcd: no request"},
	})
}

func TestStored(t *testing.T) {
	stored := func(fields ...string) func(*Lab) { return func(l *Lab) { l.holds(shelf(), fields...) } }
	try(t, []check{
		{"what is there", stored("color=red", "size=9", "-place"), ""},
		{"another value", stored("color=blue"), "color=red is stored"},
		{"another value behind a right one", stored("color=red", "size=3"), "size=9 is stored"},
		{"a field that is absent", stored("place=hall"), "place is not stored"},
		{"an absent field, asked for as empty", stored("place="), "place is not stored"},
		{"a field that is to be absent", stored("-size"), "size=9 is stored"},
		{"the same behind a right one", stored("-place", "-color"), "color=red is stored"},
	})
}

func TestRefusal(t *testing.T) {
	var r Refusal
	read := func(err error) func(*Lab) { return func(l *Lab) { r = l.Refusal(err, "the write") } }
	try(t, []check{
		{"no refusal", read(nil), "the write was accepted"},
		{"no answer", read(errBroken), "without an answer of the API"},
		{"one without details", read(stale(func(s *metav1.Status) { s.Details = nil })), ""},
	})
	assert.Equal(t, "(none)", r.Details())
	try(t, []check{{"a refusal", read(stale(func(s *metav1.Status) {
		s.Details.Causes = []metav1.StatusCause{{Type: "A", Field: "f"}, {Type: "A", Field: "f"}, {Type: "B"}}
	})), ""}})
	assert.Equal(t, "409 Conflict", r.CodeAndReason())
	assert.Equal(t, "configmaps shelf", r.Details())
	assert.Equal(t, "A f, B", r.Cause())
	assert.True(t, r.Is(409, metav1.StatusReasonConflict, "has been modified"))
	assert.False(t, r.Is(400, metav1.StatusReasonConflict, "has been modified"), "another code")
	assert.False(t, r.Is(409, metav1.StatusReasonInvalid, "has been modified"), "another reason")
	assert.False(t, r.Is(409, metav1.StatusReasonConflict, "has been deleted"), "other words")
}

func TestWhatAnErrorOfTheAPISays(t *testing.T) {
	caused := stale(func(s *metav1.Status) {
		s.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict}}
	})
	assert.True(t, HasCause(caused, metav1.CauseTypeFieldManagerConflict))
	assert.False(t, HasCause(caused, metav1.CauseTypeResourceVersionTooLarge))
	assert.False(t, HasCause(stale(nil), metav1.CauseTypeFieldManagerConflict))
	assert.False(t, HasCause(nil, metav1.CauseTypeFieldManagerConflict))
	assert.Len(t, Causes(caused), 1)
	assert.Empty(t, Causes(stale(nil)))
	assert.Equal(t, []string{"200", "409 Conflict", "the connection broke"},
		[]string{AnswerLine(nil), AnswerLine(caused), AnswerLine(errBroken)})
}

func TestSettleReadsTheObjectNotOlderThanItsVersion(t *testing.T) {
	asked, code := "", http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked = q.Method + " " + q.URL.String()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf"}}`)
	}))
	defer server.Close()
	settle := func(l *Lab) {
		l.opened = true
		c := &Client{lab: l, config: &rest.Config{Host: server.URL}}
		c.settle(WithToken(shelf(), "217"))
	}
	assert.Nil(t, failure(settle))
	assert.Equal(t, "GET /api/v1/namespaces/cf1-1/configmaps/shelf?resourceVersion=217", asked)

	code = http.StatusGone
	f := failure(settle)
	require.NotNil(t, f)
	assert.True(t, f.Stuck)
	assert.Equal(t, "waiting until kube-apiserver's cache holds configmaps/shelf at 217 succeeds", f.Expected)
}
