// Chapter 4, continued: answers that get lost.
package modrev

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"modrev/helpers/answer"
	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT21b_AWriteWithoutAnAnswerMayBeStoredOrNot(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21b", From: "D2 paragraph 5",
		Says: "after no answer, a 500 or a 504 without ResourceVersionTooLarge, nobody can say whether the write was " +
			"stored: the same words stand for both",
		Why: "a lost answer is not a refusal; the one next step that is right in both cases is to read back and compare, " +
			"when what was sent can no longer come",
		Do:      "After a write without an answer, read back and compare before you decide.",
		FalseIf: world.UnansweredWritesAreUndone.Shows(`etcd does it, reports a timeout: stored is no`),
		AlsoFalseIf: []world.World{
			world.EtcdIgnoresTheCompareOf("sent-again").Shows(`the first attempt, after the same sent again, was accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/server/filters", "WithTimeoutForNonLongRunningRequests"),
		Answers: "#6 #8 #61 #68",
	}, func(l *lab.Lab) {
		table := l.Table("what happens", "what the client gets", "stored", "known", "next step")
		row := func(o *lab.Object, err error, want unanswered) {
			next, known := answer.Next(err, l.Kind().Resource, l.Kind().Kind)
			want.expect(l, o, err, next, known)
			table.Row(want.what, want.gets, want.stored, want.known, want.next)
		}
		before := func(o *lab.Object) *wire.Held { return l.Wire.HoldNoting(wire.TxnOn(l.Key(o)), "held until given up") }
		after := func(o *lab.Object) *wire.Held { return l.Wire.HoldAnswer(wire.TxnOn(l.Key(o))) }

		// The deadlines pass while the others are tried.
		lateBefore, lateAfter := l.Create("late-before", "color=red"), l.Create("late-after", "color=red")
		endsBefore := pastDeadline(l, before(lateBefore), lateBefore)
		endsAfter := pastDeadline(l, after(lateAfter), lateAfter)

		o := l.Create("etcd-before", "color=red")
		l.Wire.Add(&wire.Rule{When: wire.TxnOn(l.Key(o)), Err: rpctypes.ErrGRPCTimeout})
		err := sendOnce(l.Context(), putGreen(l.Typed(), o))
		row(o, err, unanswered{"etcd refuses, reports a timeout", "500", "no", answer.Unknown, answer.ReadBack})
		o = l.Create("etcd-after", "color=red")
		l.Wire.Add(&wire.Rule{When: wire.TxnOn(l.Key(o)), Lost: rpctypes.ErrGRPCTimeout})
		err = sendOnce(l.Context(), putGreen(l.Typed(), o))
		row(o, err, unanswered{"etcd does it, reports a timeout", "500", "yes", answer.Unknown, answer.ReadBack})

		o = l.Create("cut-before", "color=red")
		err = cutOff(l, before(o), o)
		row(o, err, unanswered{"the connection breaks before", "the connection broke", "no", answer.Unknown, answer.ReadBack})
		o = l.Create("cut-after", "color=red")
		err = cutOff(l, after(o), o)
		row(o, err, unanswered{"the connection breaks after", "the connection broke", "yes", answer.Unknown, answer.ReadBack})
		o = l.Create("cancelled-before", "color=red")
		err = cancelled(l, before(o), o)
		row(o, err, unanswered{"the caller cancels it before", "context canceled", "no", answer.Unknown, answer.Stop})
		o = l.Create("cancelled-after", "color=red")
		err = cancelled(l, after(o), o)
		row(o, err, unanswered{"the caller cancels it after", "context canceled", "yes", answer.Unknown, answer.Stop})

		err = endsBefore.Wait()
		row(lateBefore, err, unanswered{"its deadline ends before", timeIsOver, "no", answer.Unknown, answer.ReadBack})
		err = endsAfter.Wait()
		row(lateAfter, err, unanswered{"its deadline ends after", timeIsOver, "yes", answer.Unknown, answer.ReadBack})
		table.End()

		readWhileItIsOnItsWay(l)
		l.Say("So a reading is final once the token that you sent is used up. Send the same again: 200, or 409 because the " +
			"object has moved (OT22), and after either the first attempt fits no more. What you sent without a token may " +
			"still come.")
		l.Say("At a deadline kube-apiserver answers 504; when that catches it in the middle of another answer, it breaks " +
			"off the stream instead. A 500 is given for a token that cannot be parsed, too, and then nothing was stored " +
			"(OT43): only the message differs, so read back. Stop is for the caller who gave up; to know, read back as well.")
	})
}

func TestOT21e_OnlyWhatWasNeverSentIsANo(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21e", From: "D2 paragraph 5; +",
		Says: "without an answer, only the fact that no connection was ever made for the call proves that nothing " +
			"was stored",
		Why:     "a stored write can end with connection refused, where a gateway's 503 made client-go send it again",
		Do:      "Note by httptrace whether a call got a connection; otherwise read back.",
		FalseIf: gatewaysKeepWhatTheyRefuse.Shows(`a gateway's 503, then nobody listens: stored is no`),
		Read:    source.Decl("k8s.io/client-go/rest", "(*Request).request"),
		Answers: "#8",
	}, func(l *lab.Lab) {
		table := l.Table("what happens", "what the client gets", "stored", "by the error alone", "by the call", "next step")
		row := func(o *lab.Object, call *answer.Call, err error, want unanswered) {
			next, known := call.Next(err, l.Kind().Resource, l.Kind().Kind)
			want.expect(l, o, err, next, known)
			_, alone := answer.Next(err, l.Kind().Resource, l.Kind().Kind)
			l.Equal(want.what+": what the error alone says", alone, answer.Unknown)
			table.Row(want.what, want.gets, want.stored, alone, want.known, want.next)
		}
		o := l.Create("unplugged", "color=red")
		call, err := callPut(l.Context(), l, l.As("unplugged").Unplugged().Config(), o)
		row(o, call, err, unanswered{"nobody listens there", "connection refused", "no", answer.No, answer.WaitAndRepeat})

		o = l.Create("distrusted", "color=red")
		distrustful := l.As("distrustful").Config()
		distrustful.CAData, distrustful.CAFile = nil, ""
		call, err = callPut(l.Context(), l, distrustful, o)
		row(o, call, err, unanswered{"it does not trust the certificate", "a certificate that is not trusted", "no",
			answer.No, answer.WaitAndRepeat})

		o = l.Create("throttled", "color=red")
		throttled := l.As("throttled").Config()
		throttled.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(0.001, 1)
		throttled.RateLimiter.Accept() // the one request that it lets pass at once
		soon, cancel := context.WithTimeout(l.Context(), time.Minute)
		defer cancel()
		call, err = callPut(soon, l, throttled, o)
		row(o, call, err, unanswered{"client-go's own limit of requests", "the rate limiter's refusal", "no", answer.No,
			answer.WaitAndRepeat})

		o = l.Create("repeated", "color=red")
		l.GatewayAnswers("gateway", http.StatusServiceUnavailable, 1)
		unplugFromTheSecondOn(l, "gateway")
		call, err = callPut(l.Context(), l, l.As("gateway").Config(), o)
		row(o, call, err, unanswered{"a gateway's 503, then nobody listens", "connection refused", "yes", answer.Unknown,
			answer.ReadBack})

		timesThatEnd(l, row)
		table.End()
		l.Say("The first and the fourth row end with one error, and only the call knows which is which: of all its " +
			"attempts, one had a connection. The last two end with one error too: the caller's own context tells whose time " +
			"is over. client-go tells the server of its Timeout, so a 504 may come first; that is left out here.")
	})
}

// timesThatEnd are two writes whose time ends on the client's side while the answer of etcd is held.
func timesThatEnd(l *lab.Lab, row func(*lab.Object, *answer.Call, error, unanswered)) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Who == "impatient" }, Note: "without ?timeout=",
		Request: func(q *http.Request, body []byte) []byte {
			q.URL.RawQuery = ""
			return body
		},
	})
	o := l.Create("limited", "color=red")
	call, err := untilHeld(l, o, func(limit time.Duration) (*answer.Call, error) {
		impatient := l.As("impatient").Config()
		impatient.Timeout = limit
		return callPut(l.Context(), l, impatient, o)
	})
	row(o, call, err, unanswered{"the Timeout of rest.Config ends", timeIsUp, "yes", answer.Unknown, answer.ReadBack})
	o = l.Create("given-up", "color=red")
	call, err = untilHeld(l, o, func(limit time.Duration) (*answer.Call, error) {
		own, cancel := context.WithTimeout(l.Context(), limit)
		defer cancel()
		return callPut(own, l, l.As("hurried").Config(), o)
	})
	row(o, call, err, unanswered{"the caller's own deadline ends", timeIsUp, "yes", answer.Unknown, answer.Stop})
}

// callPut replaces an object by the same with color=green, in one call of client-go without waits.
func callPut(ctx context.Context, l *lab.Lab, cfg *rest.Config, o *lab.Object) (*answer.Call, error) {
	api, err := kubernetes.NewForConfig(cfg)
	require.NoError(l, err, "making a client")
	call, ctx := answer.Begin(ctx)
	return call, putGreen(api, o).BackOffWithContext(&noWait{}).Do(ctx).Error()
}

// unplugFromTheSecondOn sends all requests of a client but the first to where nobody listens.
func unplugFromTheSecondOn(l *lab.Lab, who string) {
	deaf, err := url.Parse(l.As(who).Unplugged().Config().Host)
	require.NoError(l, err, "taking an address at which nobody listens")
	requests := 0
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "sent to where nobody listens",
		When: func(c *wire.Call) bool {
			if c.Who == who {
				requests++
			}
			return c.Who == who && requests > 1
		},
		Request: func(q *http.Request, body []byte) []byte {
			q.URL.Host = deaf.Host
			return body
		},
	})
}

// untilHeld sends a write whose time ends while the answer of etcd is held. A write whose time ends before is sent
// again with twice the time.
func untilHeld(
	l *lab.Lab, o *lab.Object, send func(limit time.Duration) (*answer.Call, error),
) (*answer.Call, error) {
	held := l.Wire.HoldAnswer(wire.TxnOn(l.Key(o)))
	for limit := 250 * time.Millisecond; ; limit *= 2 {
		call, err := send(limit)
		if held.HasArrived() || !errors.Is(err, context.DeadlineExceeded) || l.Context().Err() != nil {
			require.NoError(l, held.Dropped(l.Context()), "interrupting a write")
			return call, err
		}
	}
}

var gatewaysKeepWhatTheyRefuse = world.New("a gateway that answers 503 has not passed the write on", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Who == "gateway" }, Times: 1, Note: "not passed on",
		Request: func(q *http.Request, _ []byte) []byte {
			q.Method, q.Body, q.ContentLength = http.MethodGet, nil, 0
			return nil
		},
	})
})

// unanswered is what became of a write without an answer, and what its sender can know.
type unanswered struct {
	what, gets, stored string
	known              answer.Stored
	next               answer.Step
}

// expect expects that of a write of color=green, which ended with err, and of what its sender is told about it.
func (u unanswered) expect(l *lab.Lab, o *lab.Object, err error, next answer.Step, known answer.Stored) {
	stored := map[bool]string{true: "yes", false: "no"}[lab.Field(l.Get(o.GetName()), "color") == "green"]
	l.Equal(u.what+": stored", stored, u.stored)
	l.Equal(u.what+": what the client gets", heard(err), u.gets)
	l.Equal(u.what+": what is known", known, u.known)
	l.Equal(u.what+": the next step", next, u.next)
}

// readWhileItIsOnItsWay reads back while the write is still on its way, without and with the same sent again.
func readWhileItIsOnItsWay(l *lab.Lab) {
	table := l.Table("while the first attempt is on its way, the client", "reads", "then the first is answered")
	var read *lab.Object
	o := l.Create("under-way", "color=red")
	attempt := putGreen(l.As("first").Typed(), o)
	first := l.Race(l.Key(o), func() error { return sendOnce(l.Context(), attempt) }, func() { read = l.Get("under-way") })
	table.Row("reads back", "color="+lab.Field(read, "color"), lab.AnswerLine(first))
	l.Accepted(first, "the first attempt, arriving after the reading")
	l.Equal("the color that was read", lab.Field(read, "color"), "red")
	l.Stored(o, "color=green")

	var second error
	o = l.Create("sent-again", "color=red")
	attempt = putGreen(l.As("first").Typed(), o)
	first = l.Race(l.Key(o), func() error { return sendOnce(l.Context(), attempt) }, func() {
		second = sendOnce(l.Context(), putGreen(l.Typed(), o))
		read = l.Get("sent-again")
	})
	table.Row("sends the same again: "+lab.AnswerLine(second)+"; and reads back",
		"color="+lab.Field(read, "color"), lab.AnswerLine(first))
	l.Accepted(second, "the same sent again")
	l.Refused(first, "the first attempt, after the same sent again,", lab.Stale(o))
	l.Stored(o, "color=green")
	table.End()
}

// putGreen is a replace by the same with color=green, to be sent.
func putGreen(api kubernetes.Interface, o *lab.Object) *rest.Request {
	return api.CoreV1().RESTClient().Put().Namespace(o.GetNamespace()).Resource("configmaps").Name(o.GetName()).
		Body(lab.With(o, "color=green"))
}

// sendOnce sends a request one time, whatever client-go would repeat by itself (OT21c).
func sendOnce(ctx context.Context, q *rest.Request) error { return q.MaxRetries(0).Do(ctx).Error() }

// cutOff sends a write over a connection that breaks while the write is held.
func cutOff(l *lab.Lab, held *wire.Held, o *lab.Object) error {
	client, cut := l.As("cut").OnCable()
	q := putGreen(client.Typed(), o)
	return interrupted(l, held, func() error { return sendOnce(l.Context(), q) }, cut)
}

// cancelled sends a write that its caller cancels while it is held.
func cancelled(l *lab.Lab, held *wire.Held, o *lab.Object) error {
	ctx, cancel := context.WithCancel(l.Context())
	q := putGreen(l.Typed(), o)
	return interrupted(l, held, func() error { return sendOnce(ctx, q) }, cancel)
}

// interrupted interrupts a write while its transaction, or the answer to that, is held. It returns what the sender
// gets, once kube-apiserver has given the transaction up: what is stored then stays so.
func interrupted(l *lab.Lab, held *wire.Held, send func() error, interrupt func()) error {
	pending := l.Go("the write that is interrupted", send)
	require.NoError(l, held.Arrived(l.Context()), "holding the write that is to be interrupted")
	interrupt()
	err := pending.Wait()
	require.NoError(l, held.Dropped(l.Context()), "interrupting a write")
	return err
}

// pastDeadline sends a write with a deadline for the server, which passes while the write is held. A write whose
// deadline ends before it is held is sent again with twice the time.
func pastDeadline(l *lab.Lab, held *wire.Held, o *lab.Object) *lab.Pending {
	api := l.As("late").Typed()
	return l.Go("the write with a deadline", func() error {
		for limit := 500 * time.Millisecond; ; limit *= 2 {
			err := sendOnce(l.Context(), putGreen(api, o).Param("timeout", limit.String()))
			if held.HasArrived() || heard(err) != timeIsOver || l.Context().Err() != nil {
				return err
			}
		}
	})
}

// timeIsOver is what the sender gets of a write when the time that the server has for it is over. Which of the two is
// up to a race within kube-apiserver.
const timeIsOver = "504, or the stream breaks"

// timeIsUp is what the sender gets of a write when the time that its own side has for it is over.
const timeIsUp = "context deadline exceeded"

// heard is what the sender of a request gets to hear.
func heard(err error) string {
	var broken http2.StreamError
	var status apierrors.APIStatus
	var distrusted *tls.CertificateVerificationError
	switch {
	case err == nil:
		return lab.AnswerLine(nil)
	case errors.As(err, &status):
		// Where kube-apiserver's request to etcd ends first, for the same deadline, the answer is a 500.
		if apierrors.IsTimeout(err) || strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
			return timeIsOver
		}
		return lab.AnswerLine(err)
	case errors.As(err, &broken):
		return timeIsOver
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the connection broke" // whether as a reset or an end is left to chance
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, context.Canceled):
		return context.Canceled.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return timeIsUp
	case errors.As(err, &distrusted):
		return "a certificate that is not trusted"
	case strings.HasPrefix(err.Error(), "client rate limiter Wait returned an error"):
		return "the rate limiter's refusal"
	}
	return lab.AnswerLine(err)
}

func TestOT21c_OneCallMayBeElevenRequests(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21c", From: "D2 paragraph 5; +",
		Says: "one call of client-go can be eleven requests: it repeats a 429 or 5xx with a Retry-After, and a " +
			"GET whose connection broke",
		Why: "your own loop around such a call multiplies its requests, and a create can be refused because of itself; " +
			"only rest.Request has MaxRetries(0), and typed, dynamic and controller-runtime clients cannot set it",
		Do:      "Count requests and not calls, and expect a call to meet its own success.",
		FalseIf: world.TheServerNeverSaysWhenToRepeat.Shows(`an eviction, 429 .*: the number of requests is 1`),
		Read:    source.Decl("k8s.io/client-go/rest", "(*withRetry).IsNextRetry"),
		Answers: "#8 #61",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		client, cut := l.As("client").OnCable()
		api, eviction := client.Typed(), client.ForbiddenEviction()
		configMaps := func(q *rest.Request) *rest.Request { return q.Namespace(l.Namespace).Resource("configmaps") }
		table := l.Table("one call", "requests", "and ends with")
		call := func(what string, q *rest.Request, requests int) {
			from := l.Wire.Tape().Now()
			err := q.BackOffWithContext(&noWait{}).Do(l.Context()).Error()
			n := len(l.Wire.Tape().Calls(from))
			table.Row(what, n, heard(err))
			l.Equal(what+": the number of requests", n, requests)
		}

		call("an eviction, 429 and Retry-After: 10", eviction, 11)
		l.GatewayAnswers("client", http.StatusTooManyRequests, 0)
		call("the same without Retry-After", eviction, 1)
		call("the same with MaxRetries(0)", eviction.MaxRetries(0), 1)

		l.GatewayAnswers("client", http.StatusServiceUnavailable, 1)
		create := configMaps(api.CoreV1().RESTClient().Post()).Body(l.New("another", "color=red"))
		call("a create, once 503 and Retry-After: 1", create, 2)

		// The connection breaks once, when the request is at etcd's door.
		l.Wire.Add(&wire.Rule{When: wire.ReadOf(l.Key(shelf)), Times: 1, Do: func(int) { cut() }})
		call("a GET whose connection breaks", configMaps(api.CoreV1().RESTClient().Get()).Name("shelf"), 2)
		l.Wire.Add(&wire.Rule{When: wire.TxnOn(l.Key(shelf)), Times: 1, Do: func(int) { cut() }})
		call("a PUT whose connection breaks", putGreen(api, shelf), 1)
		table.End()
		l.Say("Retry-After is in seconds, and client-go waits that long before each repetition: the first call would have " +
			"taken 10 times 10 s, had the waits not been left out here. The 503 is that of a gateway, which had passed the " +
			"create on. Then client-go meets its own object, and you are told AlreadyExists by the only call that you made " +
			"(OT23).")
	})
}

// noWait is a backoff manager that lets no time pass between the requests of a call.
type noWait struct{ rest.NoBackoff }

func (*noWait) SleepWithContext(context.Context, time.Duration) {}

func TestOT22_AConflictMayBeYourOwnLostSuccess(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT22", From: "D2 paragraph 5",
		Says: "a write that was stored, whose answer was lost, conflicts with itself when you send it again: 409, although " +
			"nobody else wrote",
		Why:     "take the lost answer for a failure, or that 409 for somebody else's work, and you do the work twice",
		Do:      "Mark what you write; on 409 after a lost answer, look for your mark.",
		FalseIf: world.TheFirst(http.MethodPut).Shows(`the same write sent again was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the same write sent again was accepted`),
			world.SomebodyIsAlwaysFaster("careful").Shows(`the mark of what is stored is empty`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
		Answers: "#6",
	}, func(l *lab.Lab) {
		againCareful, againHasty := addOneTwice(l, "careful"), addOneTwice(l, "hasty")
		careful, hasty := l.As("careful").Get("careful"), l.As("hasty").Get("hasty")
		table := l.Table("add 1 to count=0", "careful", "hasty")
		table.Row("replace, count=1, marked as attempt 1", "(no answer)", "(no answer)")
		table.Row("the same again", lab.AnswerLine(againCareful), lab.AnswerLine(againHasty))
		table.Row("read back", "count="+lab.Field(careful, "count")+", "+lab.Field(careful, attemptField),
			"count="+lab.Field(hasty, "count")+", "+lab.Field(hasty, attemptField))
		l.Equal("the mark of what is stored", lab.Field(careful, attemptField), "careful-1")

		read, err := strconv.Atoi(lab.Field(hasty, "count"))
		require.NoError(l, err, "reading what hasty read back")
		hasty = l.As("hasty").Replace(hasty, fmt.Sprintf("count=%d", read+1), attemptField+"=hasty-2")
		table.Row("decides", "it is mine, so it is done", "somebody wrote, so add 1 again")
		table.Row("stored in the end", "count="+lab.Field(careful, "count"), "count="+lab.Field(hasty, "count"))
		table.Row("writes to storage since the create", l.KV(careful).Version-1, l.KV(hasty).Version-1)
		table.End()

		l.Equal("the number of storage writes of careful since the create", l.KV(careful).Version-1, 1)
		l.Stored(careful, "count=1")
		l.Stored(hasty, "count=2") // although it was asked to add 1 once
	})
}

// attemptField is where a client marks what it writes, so that it knows it again.
const attemptField = "metadata.annotations.attempt"

// addOneTwice has a client add one to a counter of its own, lose the answer, and send the same again.
func addOneTwice(l *lab.Lab, who string) (again error) {
	client := l.As(who)
	one := lab.With(client.Create(who, "count=0"), "count=1", attemptField+"="+who+"-1")
	l.LoseAnswer(who, http.MethodPut)
	_, lost := client.TryReplace(one)
	require.ErrorIs(l, lost, wire.ErrAnswerLost, "losing the answer to a replace")
	_, again = client.TryReplace(one)
	l.Refused(again, "the same write sent again", lab.Stale(one))
	return again
}

func TestOT23_AlreadyExistsMayBeYourself(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT23", From: "D2 paragraph 5",
		Says: "after a lost answer the same create is refused with AlreadyExists, in the words of a taken name; only what " +
			"is stored tells them apart",
		Why: "AlreadyExists after a retry is neither a success nor a failure; it is a reason to look, and there must be " +
			"something to look for, such as a mark of the attempt",
		Do:          "On AlreadyExists read the object and look for your mark.",
		FalseIf:     world.TheFirst(http.MethodPost).Shows(`the create sent again was accepted`),
		AlsoFalseIf: []world.World{world.AnnotationsAreDropped.Shows(`the mark of mine is empty`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/storage/errors", "InterpretCreateError"),
		Answers:     "#7",
	}, func(l *lab.Lab) {
		l.LoseAnswer("writer", http.MethodPost)
		_, lost := l.TryCreate("mine", "color=red", attemptField+"=writer-1")
		require.ErrorIs(l, lost, wire.ErrAnswerLost, "losing the answer to a create")
		_, mine := l.TryCreate("mine", "color=red", attemptField+"=writer-1")
		exists := lab.Refusal{Code: 409, Reason: metav1.StatusReasonAlreadyExists}
		l.Refused(mine, "the create sent again", exists)
		l.Rival().Create("theirs", "color=red", attemptField+"=rival-7")
		_, theirs := l.TryCreate("theirs", "color=red", attemptField+"=writer-2")
		l.Refused(theirs, "the create of a name that is taken", exists)
		markOfMine, markOfTheirs := lab.Field(l.Get("mine"), attemptField), lab.Field(l.Get("theirs"), attemptField)

		table := l.Table("", "configmaps/mine", "configmaps/theirs")
		table.Row("the writer's create", "(no answer)", "")
		table.Row("the same again", lab.AnswerLine(mine), lab.AnswerLine(theirs))
		table.Row("attempt that made it", markOfMine, markOfTheirs)
		table.Row("so it is", "mine: go on", "a stranger's: another name, or give up")
		table.End()
		l.Say("%s", l.Describe(mine))
		l.Say("%s", l.Describe(theirs))

		l.Equal("what is said of mine, but for the name,", strings.ReplaceAll(mine.Error(), "mine", "theirs"), theirs.Error())
		l.Equal("the mark of mine", markOfMine, "writer-1")
		l.Equal("the mark of theirs", markOfTheirs, "rival-7")
	})
}

func TestOT23b_ALostCreateWithAGeneratedNameMakesTwoObjects(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT23b", From: "D2 paragraph 5",
		Says: "a create with generateName that is sent again after a lost answer makes a second object, and no error says so",
		Why: "nothing collides when the server makes the name, so nothing warns; the first object is an orphan of which " +
			"nobody knows",
		Do:          "Name what you create yourself, from what it is for.",
		FalseIf:     world.ClientNamesWhatItCreates.Shows(`the create sent again was refused: 409 AlreadyExists`),
		AlsoFalseIf: []world.World{world.TheFirst(http.MethodPost).Shows(`the number of stored objects is 1`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/registry/rest", "BeforeCreate"),
		Answers:     "#8 #68",
	}, func(l *lab.Lab) {
		l.LoseAnswer("writer", http.MethodPost)
		o := l.New("", "color=red")
		o.SetGenerateName("shelf-")
		var second *lab.Object
		var lost, err error
		sent := l.Record(func() {
			_, lost = l.TryCreateObject(o)
			second, err = l.TryCreateObject(o)
		})
		require.ErrorIs(l, lost, wire.ErrAnswerLost, "losing the answer to a create")
		l.Accepted(err, "the create sent again")

		table := l.Table("create generateName: shelf-", "answer")
		table.Row("first", "(no answer)")
		table.Row("again", "201, "+second.GetName())
		table.End()
		l.Show("POST configmaps, twice", sent)
		var names []string
		for _, o := range l.List().Items {
			names = append(names, o.GetName())
		}
		l.Say("Stored: %s. The client knows of %s.", strings.Join(names, ", "), second.GetName())
		l.Equal("the number of stored objects", len(names), 2)
	})
}

func TestOT23c_AlreadyExistsIsSettledByTheUIDOfTheOwner(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT23c", From: "D2 paragraph 1, 5",
		Says: "the uid in a child's controller reference tells whether an existing child is yours; neither its name nor " +
			"the owner's name does",
		Why:         "to fail for ever on your own child is as wrong as to adopt the child of a past owner of the same name",
		Do:          "On AlreadyExists compare the controller reference's uid with your owner's.",
		FalseIf:     world.UIDsBelongToNames.Shows(`the child of the past owner looks like ours`),
		AlsoFalseIf: []world.World{world.EtcdIgnoresTheCompareOfACreate.Shows(`the create of child was accepted`)},
		Read:        source.Decl("k8s.io/apimachinery/pkg/apis/meta/v1", "IsControlledBy"),
		Answers:     "#69",
	}, func(l *lab.Lab) {
		childOf := func(owner *lab.Object, name string) *lab.Object {
			o := l.New(name, "color=red")
			o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
			return o
		}
		l.Create("owner", "a=1")
		l.CreateObject(childOf(l.Get("owner"), "left-over"))
		l.Recreate("owner", "a=1")
		owner := l.Get("owner")
		l.CreateObject(childOf(owner, "child"))

		byUID := func(o *lab.Object) string {
			return map[bool]string{true: "the one that is", false: "one that was"}[metav1.IsControlledBy(o, owner)]
		}
		table := l.Table("create again", "answer", "owner by name", "owner by uid", "so")
		exists := lab.Refusal{Code: 409, Reason: metav1.StatusReasonAlreadyExists}
		_, err := l.TryCreateObject(childOf(owner, "child"))
		l.Refused(err, "the create of child", exists)
		child := l.Get("child")
		table.Row("child", lab.AnswerLine(err), child.GetOwnerReferences()[0].Name, byUID(child), "adopt it")
		_, err = l.TryCreateObject(childOf(owner, "left-over"))
		l.Refused(err, "the create of left-over", exists)
		leftOver := l.Get("left-over")
		table.Row("left-over", lab.AnswerLine(err), leftOver.GetOwnerReferences()[0].Name, byUID(leftOver), "not ours: fail")
		table.End()
		l.Expect(metav1.IsControlledBy(child, owner), "the child is ours", "the child looks like a stranger's")
		l.Expect(!metav1.IsControlledBy(leftOver, owner), "the child of the past owner is not ours",
			"the child of the past owner looks like ours")
	})
}
