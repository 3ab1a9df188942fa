package answer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// expect expects of what is known about an error the given step, and whether the request was executed.
func expect(t *testing.T, what string, next func(err error, resource, kind string) (Step, Stored), err error,
	step Step, stored Stored) {
	t.Helper()
	gotStep, gotStored := next(err, "configmaps", "ConfigMap")
	assert.Equal(t, step, gotStep, "%s: %v", what, err)
	assert.Equal(t, stored, gotStored, "%s: %v", what, err)
}

func TestAnErrorAloneDoesNotSayThatNothingWasSent(t *testing.T) {
	at := func(op string, err error) error {
		return &url.Error{Op: "Put", URL: "https://127.0.0.1:1/api", Err: &net.OpError{Op: op, Net: "tcp", Err: err}}
	}
	for _, c := range []struct {
		err  error
		step Step
	}{
		{&url.Error{Op: "Put", URL: "/", Err: context.Canceled}, Stop},
		{&url.Error{Op: "Put", URL: "/", Err: context.DeadlineExceeded}, ReadBack},
		{at("read", errors.New("connection reset by peer")), ReadBack},
		{at("dial", errors.New("connection refused")), ReadBack}, // of the last attempt
		{&url.Error{Op: "Put", URL: "/", Err: io.EOF}, ReadBack},
		{errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline"), ReadBack},
	} {
		expect(t, "the error alone", Next, c.err, c.step, Unknown)
	}
}

// send makes one request with what Begin gave.
func send(ctx context.Context, client *http.Client, url string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPut, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(q)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

func TestACallKnowsWhetherItGotAConnectionToSendOn(t *testing.T) {
	asked := make(chan struct{}, 9)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		asked <- struct{}{}
		<-q.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	stranger := new(http.Client) // trusts nobody
	soon, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()

	call, ctx := Begin(t.Context())
	err := send(ctx, stranger, server.URL)
	require.Error(t, err, "a certificate that is not trusted")
	expect(t, "a failed check of the certificate", call.Next, err, WaitAndRepeat, No)

	call, ctx = Begin(t.Context())
	err = send(ctx, stranger, "https://127.0.0.1:1")
	require.Error(t, err, "nobody listens")
	expect(t, "nobody listens", call.Next, err, WaitAndRepeat, No)

	call, _ = Begin(soon)
	<-soon.Done()
	expect(t, "the caller's own deadline, before anything is sent", call.Next, soon.Err(), Stop, No)

	impatient := server.Client()
	impatient.Timeout = 100 * time.Millisecond
	call, ctx = Begin(t.Context())
	err = send(ctx, impatient, server.URL)
	require.ErrorIs(t, err, context.DeadlineExceeded, "a limit of the client looks like a deadline")
	expect(t, "a limit of the client", call.Next, err, ReadBack, Unknown)

	impatient.Timeout = 0
	<-asked
	own, cancel := context.WithCancel(t.Context())
	call, ctx = Begin(own)
	go func() { <-asked; cancel() }()
	err = send(ctx, impatient, server.URL)
	expect(t, "the caller gives up", call.Next, err, Stop, Unknown)
	err = send(ctx, stranger, "https://127.0.0.1:1")
	expect(t, "a repetition that cannot connect", call.Next, err, Stop, Unknown)
}

func TestARefusalSpeaksByItsStatusAndItsCauses(t *testing.T) {
	configMaps := schema.GroupResource{Resource: "configmaps"}
	ending := apierrors.NewForbidden(configMaps, "shelf", errors.New("it is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	page := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "put", configMaps, "shelf", "a page", 0, true)
	}
	for _, c := range []struct {
		what   string
		err    error
		step   Step
		stored Stored
	}{
		{"no role, or a quota", apierrors.NewForbidden(configMaps, "shelf", errors.New("no")), SeeWhoForbidsIt, No},
		{"the namespace ends", ending, LeaveTheNamespace, No},
		{"the object is gone", apierrors.NewNotFound(configMaps, "shelf"), LetGo, No},
		{"nothing is served there", page(http.StatusNotFound), SeeWhatIsServed, No},
		{"it names nothing", apierrors.NewNotFound(schema.GroupResource{}, ""), SeeWhatIsServed, No},
		{"a gateway", page(http.StatusBadGateway), ReadBack, Unknown},
		{"a gateway that waited", page(http.StatusRequestTimeout), ReadBack, Unknown},
		{"too old", apierrors.NewResourceExpired("too old"), ListAgain, No},
	} {
		expect(t, c.what, Next, c.err, c.step, c.stored)
	}
}

func TestA404OfASubresourceMayBeAboutTheSubresource(t *testing.T) {
	step, _ := Next(apierrors.NewNotFound(schema.GroupResource{Resource: "shelves"}, "shelf"), "shelves/status", "Shelf")
	assert.Equal(t, ReadIt, step)
}

func TestFoundComparesUIDsAndTokens(t *testing.T) {
	at := func(uid, token string) metav1.Object {
		return &metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: token}
	}
	ending := at("a", "2")
	ending.SetDeletionTimestamp(&metav1.Time{})
	for _, c := range []struct {
		known, now metav1.Object
		step       Step
	}{
		{nil, nil, SendItAgain},
		{nil, at("a", "1"), SeeWhoseItIs},
		{nil, ending, WaitForItsEnd},
		{at("a", "1"), nil, LetGo},
		{at("a", "1"), at("b", "1"), LetGo},
		{at("a", "1"), at("a", "2"), DecideAgain},
		{at("a", "1"), at("a", "1"), FixTheRequest},
	} {
		assert.Equal(t, c.step, Found(c.known, c.now), "known %v, found %v", c.known, c.now)
	}
}
