// Chapter 4, continued: what a webhook's verdict says, and what it does not know.
package modrev

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT53b_AWebhookDeniesUnderAnyCodeItLikes(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT53b", From: "D2 paragraph 5; +",
		Says: "a webhook denies under any code of an error: its 409 Conflict passes IsConflict, its 404 NotFound " +
			"passes IsNotFound",
		Why: "a retry repeats the review in vain, and IgnoreNotFound takes an object that is there for deleted",
		Do:  "Look for \"denied the request\" in the message before you act on the reason.",
		FalseIf: hooksWhere("the webhook denies everything under 403", func(h *lab.Admission) {
			if h.Judge != nil {
				no := deny(http.StatusForbidden, metav1.StatusReasonForbidden, "no")
				h.Judge = func(lab.Review) lab.Verdict { return no }
			}
		}).Shows(`a patch, retried on conflict: 403 Forbidden, IsForbidden, 1 sent`),
		AlsoFalseIf: []world.World{
			hooksWhere("the webhook says nothing but no", saysJustNo).Shows(`a patch, retried on conflict: 400`),
			hooksWhere("the webhook sends no Retry-After", sendsNoRetryAfter).
				Shows(`a replace: 429 TooManyRequests, IsTooManyRequests, 1 sent`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/admission/plugin/webhook/errors", "ToStatusErr"),
		Answers: "#22 #70",
	}, func(l *lab.Lab) {
		busy := deny(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "not now")
		busy.Denied.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		conflict := deny(http.StatusConflict, metav1.StatusReasonConflict, "not now")
		conflict.Denied.Details = &metav1.StatusDetails{Kind: "configmaps", Name: "conflict"}
		verdicts := map[string]lab.Verdict{
			"conflict": conflict,
			"missing":  deny(http.StatusNotFound, metav1.StatusReasonNotFound, "its owner is missing"),
			"busy":     busy,
			"mute":     {Denied: &metav1.Status{}},
		}
		l.Webhook(lab.Admission{
			Name: "judge", Operations: []string{"UPDATE", "DELETE"},
			Judge: func(r lab.Review) lab.Verdict { return verdicts[r.Name] },
		})
		replace := func(name string) error {
			put := l.Typed().CoreV1().RESTClient().Put().AbsPath(l.Path(name)).Body(l.Peek(name))
			return put.BackOffWithContext(&noWait{}).Do(l.Context()).Error()
		}
		patch := func(name string) error { _, err := l.TrySet(name, "color=green"); return err }
		table := l.Table("the webhook", "request", "sent", "answer", "recognized by")
		for _, row := range []struct {
			name, webhook, request, want string
			send                         func(name string) error
		}{
			{"conflict", "says 409 Conflict", "a patch, retried on conflict", "409 Conflict, IsConflict, 5 sent",
				func(name string) error {
					return retry.RetryOnConflict(retry.DefaultRetry, func() error { return patch(name) })
				}},
			{"missing", "says 404 NotFound", "a delete", "404 NotFound, IsNotFound, 1 sent",
				func(name string) error { return l.TryDelete(name) }},
			{"busy", "says 429, Retry-After", "a replace", "429 TooManyRequests, IsTooManyRequests, 11 sent", replace},
			{"mute", "says no", "a patch", "400, IsBadRequest, 1 sent", patch},
		} {
			shelf := l.Create(row.name, "color=red")
			l.Settle(shelf)
			from := l.Wire.Tape().Now()
			err := row.send(row.name)
			sent := len(l.Wire.Tape().Calls(from))
			table.Row(row.webhook, row.request, sent, lab.AnswerLine(err), predicates(err))
			got := fmt.Sprintf("%s, %s, %d sent", lab.AnswerLine(err), predicates(err), sent)
			l.Expect(got == row.want, row.request+": "+row.want, "%s: %s", row.request, got)
			said := l.Refusal(err, row.request)
			l.Expect(strings.HasPrefix(said.Message, `admission webhook "judge.modrev.example" denied the request`),
				"the message names the webhook", "it is: %s", said.Message)
			if row.name == "conflict" {
				l.Equal("details of the refusal", said.Details(), "configmaps conflict")
			}
			l.Stored(shelf, "color=red")
		}
		table.End()
		l.Say("The 409 names the object in its details, as the server's own does, because the webhook put that there. The " +
			"beginning of the message is kube-apiserver's, and names the webhook. client-go repeats by itself what has a " +
			"Retry-After.")
	})
}

// saysJustNo has a webhook deny without a code, a reason or a message.
func saysJustNo(h *lab.Admission) {
	h.Judge = func(lab.Review) lab.Verdict { return lab.Verdict{Denied: &metav1.Status{}} }
}

// sendsNoRetryAfter has a webhook leave out when to come again.
func sendsNoRetryAfter(h *lab.Admission) {
	judge := h.Judge
	h.Judge = func(r lab.Review) lab.Verdict {
		v := judge(r)
		if v.Denied.Details != nil {
			v.Denied.Details.RetryAfterSeconds = 0
		}
		return v
	}
}

func TestOT53c_WhenAWebhookIsDownItsFailurePolicyDecides(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT53c", From: "D2 paragraph 5; +",
		Says: "when a webhook cannot be asked, its failurePolicy decides: Fail makes what it would have judged a 500 " +
			"InternalError, Ignore lets it pass",
		Why: "an outage under Fail stops no-ops and the removal of finalizers too, so that deletions hang",
		Do:  "Repeat one object's request: a 500 that says \"failed calling webhook\" stored nothing.",
		FalseIf: hooksWhere("webhooks fail open", func(h *lab.Admission) { h.FailsOpen = true }).
			Shows(`a replace: 200, and color=green is stored`),
		AlsoFalseIf: []world.World{
			hooksWhere("no webhook fails open", func(h *lab.Admission) { h.FailsOpen = false }).
				Shows(`the create under Ignore was refused: 500 InternalError`),
			hooksWhere("the webhook is asked before the token is looked at", func(h *lab.Admission) { h.Mutating = true }).
				Shows(`a stale replace: 500 InternalError`),
			world.OlderTokensCount.Shows(`a stale replace: 500 InternalError`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/admission/plugin/webhook/validating", "(*validatingDispatcher).Dispatch"),
	}, func(l *lab.Lab) {
		no := func(lab.Review) lab.Verdict { return deny(http.StatusForbidden, metav1.StatusReasonForbidden, "no") }
		strict := l.Webhook(lab.Admission{Name: "strict", Operations: []string{"UPDATE"}, Judge: no})
		lenient := l.Webhook(lab.Admission{Name: "lenient", Resources: []string{"secrets"}, FailsOpen: true, Judge: no})
		slow := l.Webhook(lab.Admission{Name: "slow", Resources: []string{"leases"}, Seconds: 1})
		stale := createHeld(l.Client, "shelf", "color=red")
		l.Delete("shelf") // it waits for the finalizer
		shelf := l.Peek("shelf")
		l.Settle(shelf)
		freed := shelf.DeepCopy()
		freed.SetFinalizers(nil)
		strict.Down()
		const failed = "500 InternalError"
		table := l.Table("request, while the webhook is down", "failurePolicy", "answer")
		for _, row := range []struct {
			what, want string
			do         func() error
		}{
			{"a replace", failed, func() error { _, err := l.TryReplace(shelf, "color=green"); return err }},
			{"a stale replace", "409 Conflict", func() error { _, err := l.TryReplace(stale, "color=green"); return err }},
			{"a dry run", failed, func() error { _, err := l.TryDryReplace(shelf, "color=green"); return err }},
			{"a patch that changes nothing", failed, func() error { _, err := l.TrySet("shelf", "color=red"); return err }},
			{"removal of the last finalizer", failed,
				func() error { _, err := l.TryReplace(freed); return err }},
		} {
			answer := lab.AnswerLine(row.do())
			table.Row(row.what, "Fail", answer)
			l.Expect(answer == row.want, row.what+": "+row.want, "%s: %s, and %s is stored",
				row.what, answer, lab.Fields(l.Peek("shelf"), "color"))
		}
		l.Stored(shelf, "color=red")
		lenient.Down()
		_, open := l.Of(lab.Secret).TryCreate("open")
		table.Row("a create", "Ignore", l.Answered())
		l.Accepted(open, "the create under Ignore")
		slow.Hold(func(lab.Review) bool { return true })
		_, late := l.Of(lab.Lease).TryCreate("late")
		table.Row("a create, the verdict comes after timeoutSeconds", "Fail", lab.AnswerLine(late))
		table.End()
		l.Refused(late, "the create with a slow webhook", lab.Refusal{
			Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Says: "failed calling webhook",
		})
		l.Say("Each 500 says that calling the webhook failed, and names it. A stale replace is refused before a validating " +
			"webhook is asked (OT51). What a slow webhook does meanwhile stays done, though the request has failed.")
	})
}

func TestOT54_WhatAWebhookListedMayBeOldWhenTheWriteIsStored(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT54", From: "+",
		Says: "a webhook that lists before it admits keeps nothing unique: of two creates reviewed at once both are " +
			"stored; only names are unique",
		Why:     "each transaction compares one key; what a review has read elsewhere is in no compare (write skew)",
		Do:      "Claim a unique value by creating an object that is named after it.",
		FalseIf: world.EtcdIgnoresTheCompareOfACreate.Shows(`the claim of the host by b was accepted: a holds it too`),
		AlsoFalseIf: []world.World{
			world.New("a create compares all keys that the webhook has listed", compareTheList).
				Shows(`the create of b was refused: 409 AlreadyExists`),
			hooksWhere("the webhook does not list", func(h *lab.Admission) { h.Judge = nil }).
				Shows(`the create of c was accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).Create"),
		Answers: "#84",
	}, func(l *lab.Lab) {
		judge := func(r lab.Review) lab.Verdict {
			all, err := l.As("webhook").TryList(metav1.ListOptions{})
			if err != nil {
				return deny(http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
			}
			for _, o := range all.Items {
				if host := lab.Field(&o, "host"); host != "" && host == lab.Field(r.Object, "host") {
					return deny(http.StatusForbidden, metav1.StatusReasonForbidden, o.GetName()+" has that host")
				}
			}
			return lab.Verdict{}
		}
		unique := l.Webhook(lab.Admission{Name: "unique", Operations: []string{"CREATE"}, Judge: judge})
		create := func(name string) error { _, err := l.As(name).TryCreate(name, "host=h"); return err }
		names := []string{"a", "b"}
		var held []*lab.HeldReview
		var pending []*lab.Pending
		for _, name := range names {
			held = append(held, unique.Hold(func(r lab.Review) bool { return r.Name == name }))
			pending = append(pending, l.Go("the create of "+name, func() error { return create(name) }))
		}
		for _, h := range held {
			h.Made()
		}
		table := l.Table("request", "answer")
		for i, name := range names {
			held[i].Release()
			err := pending[i].Wait()
			table.Row("create of "+name+", host=h", answeredTo(l, name))
			l.Accepted(err, "the create of "+name)
		}
		err := create("c")
		table.Row("create of c, host=h", answeredTo(l, "c"))
		l.Refused(err, "the create of c", forbidden)

		claim := func(name string) error { _, err := l.As(name).TryCreate("host-h2", "by="+name); return err }
		var winner error
		late := l.Race(lab.ConfigMap.KeyOf(l.Namespace, "host-h2"),
			func() error { return claim("b") }, func() { winner = claim("a") })
		require.NoError(l, winner, "claiming the host for a")
		table.Row("create of host-h2 by a", answeredTo(l, "a"))
		table.Row("create of host-h2 by b", answeredTo(l, "b"))
		table.End()
		l.Say("The webhook lists, and denies a host that it finds. The verdicts on a and b were both made before either " +
			"was stored; c came later. The transactions of the last two compare one key, so the second of them fails.")
		l.Expect(late != nil, "the claim of the host by b is refused",
			"the claim of the host by b was accepted: a holds it too")
		l.Refused(late, "the claim by b", lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists})
	})
}

// compareTheList is a world's bend: a create in the lesson's namespace compares that nothing has been created there.
func compareTheList(l *lab.Lab) {
	prefix := l.Kind().KeyOf(l.Namespace, "")
	since := l.Revision()
	l.Wire.Add(wire.AlterTxn(func(r *wire.Request) bool {
		return r.Method == wire.Txn && len(r.Compare) == 1 && r.Compare[0].Value == 0
	}, "the list was added to the compare", func(txn *pb.TxnRequest) {
		txn.Compare = append(txn.Compare, &pb.Compare{
			Target: pb.Compare_MOD, Result: pb.Compare_LESS,
			Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)),
			TargetUnion: &pb.Compare_ModRevision{ModRevision: since + 1},
		})
	}))
}
