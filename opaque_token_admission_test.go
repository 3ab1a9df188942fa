// Chapter 4, continued: webhooks, which are asked in every attempt at a write.
package modrev

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

// deny is a verdict that refuses a request.
func deny(code int32, reason metav1.StatusReason, message string) lab.Verdict {
	return lab.Verdict{Denied: &metav1.Status{Code: code, Reason: reason, Message: message}}
}

// forbidden is the refusal of a webhook that says so.
var forbidden = lab.Refusal{
	Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Says: "denied the request",
}

// hooksWhere is a world in which the webhooks of a lesson are made otherwise.
func hooksWhere(where string, bend func(*lab.Admission)) world.World {
	return world.New(where, func(l *lab.Lab) { lab.AdmissionHook.Bend(l, bend) })
}

func TestOT50_EveryAttemptAtAnUpdateIsReviewedAnew(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT50", From: "D2 paragraph 5; +",
		Says: "in every attempt at an update kube-apiserver asks the webhooks anew: a patch that loses two races is " +
			"reviewed three times",
		Why: "a webhook that counts, bills or creates does so once per attempt, and only the last review is about what is " +
			"stored",
		Do: "Make a webhook idempotent, and never by the uid of the review.",
		FalseIf: hooksWhere("the webhook keeps its verdict on an object and gives it again", rememberVerdicts).
			Shows(`3 keys are stored, and the webhook allows 2`),
		AlsoFalseIf: []world.World{
			world.EtcdIgnoresTheCompare.Shows(`the number of mutating reviews is 1`),
			hooksWhere("the webhooks are asked about creates alone",
				func(h *lab.Admission) { h.Operations = []string{"CREATE"} }).
				Shows(`the number of mutating reviews is 0`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/rest", "(*defaultUpdatedObjectInfo).UpdatedObject"),
		Answers: "#100",
	}, func(l *lab.Lab) {
		mutating := l.Webhook(lab.Admission{Name: "mutating", Mutating: true})
		validating := l.Webhook(lab.Admission{Name: "validating", Judge: atMostTwoKeys})
		shelf, box := l.Create("shelf", "color=red"), l.Create("box", "color=red")
		l.Settle(box)
		reviewed(mutating, validating)
		first := l.Wire.Add(&wire.Rule{
			When: wire.UpdateOf(l.Key(shelf)), Times: 2, Note: "a rival was first",
			Do: func(int) { _, _ = l.TryTouch(l.Key(shelf)) }, // an error shows in the number of transactions
		})
		seen := l.Record(func() { l.Set("shelf", "size=9") })
		first()
		m, v := mutating.Reviews(), validating.Reviews()
		l.Equal("the number of mutating reviews", len(m), 3)
		l.Equal("the number of validating reviews", len(v), 3)
		l.Sends(seen, "a patch that loses two races", "3 Txn")

		uids := map[types.UID]bool{}
		table := l.Table("attempt", "old object in the reviews", "compare", "transaction", "uids of the reviews")
		for i, txn := range seen {
			uids[m[i].UID], uids[v[i].UID] = true, true
			table.Row(i+1, m[i].Old.GetResourceVersion(), txn.Compare[0].Value, outcome(txn),
				string(m[i].UID)[:8]+", "+string(v[i].UID)[:8])
			l.Equal("the old object in the mutating review", number(m[i].Old), txn.Compare[0].Value)
			l.Equal("the old object in the validating review", number(v[i].Old), txn.Compare[0].Value)
		}
		table.End()
		l.Equal("the number of uids", len(uids), 6)

		late := l.Race(l.Key(box), func() error { _, err := l.TrySet("box", "size=9"); return err },
			func() { l.Rival().Set("box", "weight=1") })
		n := len(l.Peek("box").Object["data"].(map[string]any))
		l.Expect(n <= 2, "at most 2 keys are stored", "%d keys are stored, and the webhook allows 2", n)
		l.Refused(late, "the patch with the third key", forbidden)
		l.Stored(box, "color=red", "weight=1", "-size")
		l.Say("Each review has a uid of its own. Each is about the object that its attempt would replace, so a rule about "+
			"that object alone holds in a race too. This webhook allows two keys. It admitted a second one, a rival added "+
			"another, and the next review refused: %s", l.Describe(late))
	})
}

// atMostTwoKeys is a rule that a webhook enforces.
func atMostTwoKeys(r lab.Review) lab.Verdict {
	if data, _ := r.Object.Object["data"].(map[string]any); len(data) > 2 {
		return deny(http.StatusForbidden, metav1.StatusReasonForbidden, "two keys are enough")
	}
	return lab.Verdict{}
}

// rememberVerdicts has a webhook give the verdict on what one client does to one object again.
func rememberVerdicts(h *lab.Admission) {
	judge := h.Judge
	if judge == nil {
		return
	}
	var mu sync.Mutex
	made := map[string]lab.Verdict{}
	h.Judge = func(r lab.Review) lab.Verdict {
		mu.Lock()
		defer mu.Unlock()
		key := r.Who + r.Operation + r.Name
		if _, known := made[key]; !known {
			made[key] = judge(r)
		}
		return made[key]
	}
}

// outcome is what came of a transaction, as a table shows it.
func outcome(txn wire.Request) string {
	if txn.Succeeded {
		return "succeeded"
	}
	return "failed"
}

func TestOT51_MutatingWebhooksAreAskedBeforeTheTokenIsLookedAt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT51", From: "D2 paragraph 5; +",
		Says: "before kube-apiserver looks at the token of a replace it asks the mutating webhooks, and after that the " +
			"validating ones",
		Why: "whatever a mutating webhook did elsewhere stays done for a request that was then refused",
		Do:  "Cause no effects in a mutating webhook: the request may yet be refused.",
		FalseIf: world.New("a gateway gives a stale replace a uid that no object has, so that it fails before admission",
			refuseStaleTokensByUID).Shows(`a stale token, the cache current: 0 mutating`),
		AlsoFalseIf: []world.World{
			world.EtcdIgnoresTheCompare.Shows(`the cached token, the cache stale: 1 mutating, 1 validating, 200`),
			world.OlderTokensCount.Shows(`a stale token, the cache current: 1 mutating, 1 validating, 200`),
			world.ClientDropsTheUID.Shows(`another uid, the cache current: 1 mutating, 1 validating, 200`),
			world.ClientDropsThePreconditions.Shows(`a stale delete, the cache current: 1 mutating`),
		},
		Read:    source.Decl(registryStore, "(*Store).Update"),
		Answers: "#100",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		mutating := l.Webhook(lab.Admission{Name: "mutating", Mutating: true, Resources: []string{kind.Resource}})
		validating := l.Webhook(lab.Admission{Name: "validating", Resources: []string{kind.Resource}})
		shelves, rival := l.Of(kind), l.Rival().Of(kind)
		oldest := shelves.Create("shelf", "color=red")
		cached := rival.Set("shelf", "color=blue")
		l.Settle(cached)
		stranger := lab.With(cached)
		stranger.SetUID("00000000-0000-0000-0000-000000000000")
		type request struct {
			what, want, cost string
			do               func() error
		}
		replace := func(o *lab.Object) func() error {
			return func() error { _, err := shelves.TryReplace(o, "color=green"); return err }
		}
		table := l.Table("request", "cache", "mutating", "validating", "old objects", "to etcd", "answer")
		send := func(cache string, requests ...request) {
			for _, r := range requests {
				var err error
				seen := l.Record(func() { err = r.do() })
				m, v := mutating.Reviews(), validating.Reviews()
				table.Row(r.what, cache, len(m), len(v), oldOnes(m), seen.Summary(), lab.AnswerLine(err))
				what := r.what + ", the cache " + cache
				got := fmt.Sprintf("%d mutating, %d validating, %s", len(m), len(v), lab.AnswerLine(err))
				l.Expect(got == r.want, what+": "+r.want, "%s: %s", what, got)
				l.Sends(seen, what, r.cost)
			}
		}
		reviewed(mutating, validating)
		send("current",
			request{"another uid", "0 mutating, 0 validating, 409 Conflict", "1 Range", replace(stranger)},
			request{"a stale delete", "0 mutating, 0 validating, 409 Conflict", "1 Range",
				func() error { return shelves.TryDelete("shelf", lab.Token(oldest)) }},
			request{"a stale token", "1 mutating, 0 validating, 409 Conflict", "1 Range", replace(oldest)})
		l.Wire.Freeze(kind.StoragePrefix())
		newest := rival.Set("shelf", "size=9")
		reviewed(mutating, validating)
		send("stale",
			request{"a stale token", "2 mutating, 0 validating, 409 Conflict", "1 Range", replace(oldest)},
			request{"the cached token", "2 mutating, 1 validating, 409 Conflict", "1 Txn", replace(cached)},
			request{"the newest token", "2 mutating, 1 validating, 200", "1 Range, 1 Txn", replace(newest)})
		table.End()
		l.Say("The cache is kube-apiserver's. While it is stale, a request that succeeds shows its webhooks a stale old " +
			"object first. A uid is compared before admission, and so are the preconditions of a delete.")
	})
}

// reviewed forgets the reviews that webhooks have had.
func reviewed(webhooks ...*lab.Webhook) {
	for _, w := range webhooks {
		w.Reviews()
	}
}

// oldOnes are the versions of the old objects in reviews.
func oldOnes(reviews []lab.Review) string {
	versions := make([]string, len(reviews))
	for i, r := range reviews {
		versions[i] = r.Old.GetResourceVersion()
	}
	return strings.Join(versions, ", ")
}

// refuseStaleTokensByUID is a world's bend: who sends a stale token sends another uid too.
func refuseStaleTokensByUID(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPut },
		Note: "given another uid, if its token is stale",
		Request: func(_ *http.Request, body []byte) []byte {
			o := &lab.Object{}
			if o.UnmarshalJSON(body) != nil || l.KV(o).ModRevision == number(o) {
				return body
			}
			o.SetUID("00000000-0000-0000-0000-000000000000")
			body, _ = o.MarshalJSON() // it was JSON before: this cannot fail
			return body
		},
	})
}

func TestOT51b_AWebhookCanOverrideWhatYouSend(t *testing.T) {
	const paint = `[{"op":"add","path":"/data/color","value":"blue"}]`
	lesson.Prove(t, lesson.Claim{
		ID: "OT51b", From: "D2 paragraph 3, 5; +",
		Says: "where a mutating webhook puts back what is stored, the answer is 200 with the old value and " +
			"resourceVersion: nothing was written",
		Why: "a controller that compares its wish with the object finds a difference in every reconcile, and writes forever",
		Do:  "Compare the object with the answer to a dry run, not with your wish.",
		FalseIf: hooksWhere("the webhook paints what is created, and leaves updates alone",
			func(h *lab.Admission) {
				if h.Name == "painter" {
					h.Operations = []string{"CREATE"}
				}
			}).Shows(`color=green is stored`),
		AlsoFalseIf: []world.World{
			hooksWhere("the painter is asked first", func(h *lab.Admission) {
				if h.Name == "painter" {
					h.Name = "a-painter"
				}
			}).Shows(`first saw color=blue`),
			hooksWhere("every webhook is asked again", func(h *lab.Admission) { h.Reinvoke = true }).
				Shows(`first saw color=green, color=blue`),
			hooksWhere("no webhook is asked again", func(h *lab.Admission) { h.Reinvoke = false }).
				Shows(`again saw color=green$`),
			hooksWhere("the painter leaves dry runs alone", spareDryRuns).Shows(`the answer to the dry run is green`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/admission/plugin/webhook/mutating", "(*mutatingDispatcher).Dispatch"),
	}, func(l *lab.Lab) {
		painter := func(lab.Review) lab.Verdict { return lab.Verdict{Patch: paint} }
		hooks := []struct {
			lab.Admission
			kind, saw string
		}{
			{lab.Admission{Name: "first", Mutating: true}, "mutating", "color=green"},
			{lab.Admission{Name: "again", Mutating: true, Reinvoke: true}, "mutating, IfNeeded", "color=green, color=blue"},
			{lab.Admission{Name: "painter", Mutating: true, Judge: painter}, "mutating, sets color=blue", "color=green"},
			{lab.Admission{Name: "judge"}, "validating", "color=blue"},
		}
		var webhooks []*lab.Webhook
		for _, h := range hooks {
			webhooks = append(webhooks, l.Webhook(h.Admission))
		}
		shelf := l.Create("shelf", "color=green")
		l.Settle(shelf)
		table := l.Table("webhook", "", "saw, of one create")
		for i, h := range hooks {
			saw := colors(webhooks[i].Reviews())
			table.Row(h.Name, h.kind, saw)
			l.Expect(saw == h.saw, h.Name+" saw "+h.saw, "%s saw %s", h.Name, saw)
		}
		table.End()

		sent := 0
		seen := l.Record(func() {
			for range 3 { // reconciles
				if now := l.Peek("shelf"); lab.Field(now, "color") != "green" {
					l.Replace(now, "color=green")
					sent++
				}
			}
		})
		l.Stored(shelf, "color=blue")
		l.Sends(seen.Only(wire.Txn), "the replaces", "no request")
		now := l.Peek("shelf")
		l.Equal("the number of replaces in three reconciles", sent, 3)
		l.Equal("the resourceVersion", now.GetResourceVersion(), shelf.GetResourceVersion())
		dry, err := l.TryDryReplace(now, "color=green")
		require.NoError(l, err, "the dry run")
		l.Equal("the color in the answer to the dry run", lab.Field(dry, "color"), "blue")
		box := l.Create("box", "size=9")
		l.Say("IfNeeded is a reinvocationPolicy: such a webhook is asked again when a later one has changed the object. "+
			"Three reconciles sent %d replaces, and each got 200. A dry run passes the webhooks too: its answer is what is "+
			"stored, so nothing is left to do. A field that only a webhook sets is owned by %s.", sent, l.OwnersOf(box, "color"))
		l.Equal("the owner of a field that a webhook added", l.OwnersOf(box, "color"), "nobody")
	})
}

// spareDryRuns has a webhook admit dry runs as they are.
func spareDryRuns(h *lab.Admission) {
	judge := h.Judge
	h.Judge = func(r lab.Review) lab.Verdict {
		if judge == nil || r.DryRun {
			return lab.Verdict{}
		}
		return judge(r)
	}
}

// colors are the colors of the objects in reviews.
func colors(reviews []lab.Review) string {
	seen := make([]string, len(reviews))
	for i, r := range reviews {
		seen[i] = lab.Fields(r.Object, "color")
	}
	return strings.Join(seen, ", ")
}

func TestOT52_AReviewIsNoReceipt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT52", From: "D2 paragraph 1, 5; +",
		Says: "a review does not mean that anything is stored: creates of a taken name, dry runs, no-ops and invalid " +
			"objects are reviewed too",
		Why:     "a webhook that registers what it admits keeps names and uids of objects that never were",
		Do:      "Act on what a watch shows, never on what a webhook was asked.",
		FalseIf: world.EtcdIgnoresTheCompareOfACreate.Shows(`a name in use: 1 mutating, 1 validating, 201`),
		AlsoFalseIf: []world.World{
			world.DryRunsAreReal.Shows(`a dry run cost etcd: 1 Txn`),
			world.ClientMendsTheKeys("create").Shows(`a bad key: 1 mutating, 1 validating, 201`),
		},
		Read:    source.Decl(registryStore, "(*Store).createWithGenerateNameRetry"),
		Answers: "#100",
	}, func(l *lab.Lab) {
		mutating := l.Webhook(lab.Admission{Name: "mutating", Mutating: true})
		var taken sync.Once
		validating := l.Webhook(lab.Admission{Name: "validating", Judge: func(r lab.Review) lab.Verdict {
			if r.Who == "writer" && strings.HasPrefix(r.Name, "g-") {
				taken.Do(func() { _, _ = l.Rival().TryCreate(r.Name) }) // an error shows in the number of reviews
			}
			return lab.Verdict{}
		}})
		shelf := l.Create("shelf", "color=red")
		l.Settle(shelf)
		generated := l.New("")
		generated.SetGenerateName("g-")
		var created *lab.Object
		table := l.Table("request", "mutating", "validating", "shown to the validating", "answer")
		for _, row := range []struct {
			what, want, cost string
			do               func() error
		}{
			{"a name in use", "1 mutating, 1 validating, 409 AlreadyExists", "1 Range, 1 Txn",
				func() error { _, err := l.TryCreate("shelf"); return err }},
			{"a generated name, taken meanwhile", "1 mutating, 2 validating, 201", "1 Range, 3 Txn",
				func() (err error) { created, err = l.TryCreateObject(generated); return err }},
			{"a dry run", "1 mutating, 1 validating, 201", "1 Range",
				func() error { _, err := l.TryDryCreate(l.New("dry")); return err }},
			{"a bad key", "1 mutating, 0 validating, 422 Invalid", "no request",
				func() error { _, err := l.TryCreate("bad", "a/b=c"); return err }},
			{"a replace that changes nothing", "1 mutating, 1 validating, 200", "1 Range",
				func() error { _, err := l.TryReplace(shelf); return err }},
		} {
			reviewed(mutating, validating)
			seen := l.Record(func() { _ = row.do() }) // its answer is on the tape
			m, v := by("writer", mutating.Reviews()), by("writer", validating.Reviews())
			answer := answeredTo(l, "writer")
			table.Row(row.what, len(m), len(v), shown(v), answer)
			got := fmt.Sprintf("%d mutating, %d validating, %s", len(m), len(v), answer)
			l.Expect(got == row.want, row.what+": "+row.want, "%s: %s", row.what, got)
			l.Sends(seen, row.what, row.cost)
			if row.what == "a name in use" {
				l.Expect(m[0].Object.GetUID() == "" && v[0].Object.GetUID() != shelf.GetUID(),
					"no review shows the uid that is stored", "one shows %s", v[0].Object.GetUID())
			}
		}
		table.End()
		l.LimitConfigMaps(50, 0)
		_, err := l.TryCreate("shelf")
		l.Say("Stored are %s and %s. A mutating webhook is shown no uid yet and no generated name. Quotas are admission "+
			"too: one that had counted nothing counts %d after a create that was answered with %s.",
			shownAs(shelf), shownAs(created), l.CountedConfigMaps(), lab.AnswerLine(err))
		l.Equal("what the quota counts after a refused create", l.CountedConfigMaps(), 1)
	})
}

// by are the reviews of requests of one client.
func by(who string, reviews []lab.Review) []lab.Review {
	return slices.DeleteFunc(reviews, func(r lab.Review) bool { return r.Who != who })
}

// shown are the objects in reviews, as a table shows them.
func shown(reviews []lab.Review) string {
	all := make([]string, len(reviews))
	for i, r := range reviews {
		all[i] = shownAs(r.Object)
	}
	return strings.Join(all, ", ")
}

// shownAs is an object by its name and uid.
func shownAs(o *lab.Object) string { return o.GetName() + " " + shortUID(o) }

func TestOT52b_AWebhookGuardsDoorsAndNotTheObject(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT52b", From: "+",
		Says: "a webhook on an object is not asked about what comes through a subresource: /scale changes the spec, and an " +
			"eviction deletes, past it",
		Why: "a rule that holds for the main endpoint alone does not hold for the object",
		Do:  "Name every subresource in the rules, and expect a DELETE without a name.",
		FalseIf: hooksWhere("the webhook's rules name all subresources",
			func(h *lab.Admission) { h.Resources = []string{"*/*"} }).
			Shows(`replicas through /scale: UPDATE shelves/scale/shelf`),
		AlsoFalseIf: []world.World{
			hooksWhere("the webhook is not asked about deletes", func(h *lab.Admission) { h.Operations = []string{"UPDATE"} }).
				Shows(`delete, held by a finalizer: no review`),
			world.FinalizersAreDropped.Shows(`removal of the last finalizer was refused: 404`),
			world.EtcdDeletesNothingOf("pod").Shows(`pods/pod is there`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/core/pod/storage", "addConditionAndDeletePod"),
		Answers: "#100",
	}, func(l *lab.Lab) {
		kind := l.CustomResource("status", "scale")
		guard := l.Webhook(lab.Admission{
			Name: "guard", Resources: []string{"shelves", "pods"}, Operations: []string{"UPDATE", "DELETE"},
		})
		shelves, pods := l.Of(kind), l.Of(lab.Pod)
		merge := func(c *lab.Client, body string) func() error {
			return func() error { _, err := c.TryPatch("shelf", types.MergePatchType, body); return err }
		}
		shelf := createHeld(shelves, "shelf", "replicas=1")
		shelves.Create("other")
		pods.Create("pod")
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: l.Namespace}}
		evict := func() error { return l.Typed().PolicyV1().Evictions(l.Namespace).Evict(l.Context(), eviction) }
		table := l.Table("request", "the webhook is asked about", "answer")
		for _, row := range []struct {
			what, asked string
			do          func() error
		}{
			{"replicas through the main endpoint", "UPDATE shelves/shelf", merge(shelves, `{"spec":{"replicas":2}}`)},
			{"replicas through /scale", "no review", merge(shelves.Sub("scale"), `{"spec":{"replicas":3}}`)},
			{"status through /status", "no review", merge(shelves.Sub("status"), `{"status":{"replicas":3}}`)},
			{"delete, held by a finalizer", "DELETE shelves/shelf", func() error { return shelves.TryDelete("shelf") }},
			{"removal of the last finalizer", "UPDATE shelves/shelf", merge(shelves, `{"metadata":{"finalizers":null}}`)},
			{"delete of the collection", "DELETE shelves", func() error {
				_, err := shelves.TryRaw(http.MethodDelete, shelves.Path(""), "", nil)
				return err
			}},
			{"eviction of a pod", "no review", evict},
		} {
			err := row.do()
			asked := "no review"
			for _, r := range guard.Reviews() {
				asked, _, _ = strings.Cut(r.String(), ",")
			}
			table.Row(row.what, asked, l.Answered())
			l.Accepted(err, row.what)
			l.Expect(asked == row.asked, row.what+": "+row.asked, "%s: %s", row.what, asked)
			if row.what == "replicas through /scale" {
				l.Stored(shelf, "replicas=3")
			}
		}
		table.End()
		_, err := pods.TryGet("pod")
		l.Expect(lab.IsNotFound(err), "pods/pod is gone", "pods/pod is there")
		l.Say("The pod is gone without a DELETE that a webhook could have refused: the rule for it is CREATE of " +
			"pods/eviction. The end of the shelf came as an UPDATE. And a delete of a collection is reviewed once per object, " +
			"under no name: the name stands in the old object.")
	})
}

func TestOT53_AWebhookThatWritesWhatItJudgesMakesTheRequestFail(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT53", From: "D2 paragraph 5; +",
		Says: "a webhook that writes what it judges overtakes the request: with a token that is refused, without one it " +
			"ends at its deadline",
		Why:     "each attempt fails by the write that its own review made, and the next attempt begins with the next review",
		Do:      "Return the change as a patch; write other objects from a controller.",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`a replace with its token: 200, color=green, not seen`),
		AlsoFalseIf: []world.World{
			hooksWhere("the webhook writes everything once", func(h *lab.Admission) { h.Judge = onlyOnce(h.Judge) }).
				Shows(`a replace without one: 200, color=green`),
			hooksWhere("the webhook drops its patches", dropPatches).Shows(`another patch: 200, color=green, not seen`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#101",
	}, func(l *lab.Lab) {
		judge := func(r lab.Review) lab.Verdict {
			switch {
			case r.Who == "webhook": // its own write
			case r.Name == "patch":
				return lab.Verdict{Patch: `[{"op":"add","path":"/data/seen","value":"yes"}]`}
			case r.Name != "once" || lab.Field(r.Old, "seen") == "":
				_, _ = l.As("webhook").TrySet(r.Name, "seen="+string(r.UID)) // an error shows in the answer
			}
			return lab.Verdict{}
		}
		hook := l.Webhook(lab.Admission{Name: "judge", Mutating: true, Operations: []string{"UPDATE"}, Judge: judge})
		replace := func(o *lab.Object) error { _, err := l.TryReplace(o, "color=green"); return err }
		patch := func(o *lab.Object) error { _, err := l.TrySet(o.GetName(), "color=green"); return err }
		limited := func(o *lab.Object) error {
			body, err := lab.With(lab.WithToken(o, ""), "color=green").MarshalJSON()
			require.NoError(l, err, "encoding the replace")
			_, err = l.TryRaw(http.MethodPut, l.Path(o.GetName()), "timeout=500ms&fieldManager=writer", body)
			return err
		}
		table := l.Table("the webhook", "request", "reviews", "answer", "stored")
		for _, row := range []struct {
			name, webhook, request, want string
			send                         func(*lab.Object) error
		}{
			{"token", "writes each time", "a replace with its token", "409 Conflict, color=red, seen", replace},
			{"no-token", "writes each time", "a replace without one", "its time is over, color=red, seen", limited},
			{"once", "writes once", "a patch", "200, color=green, seen", patch},
			{"patch", "returns a patch", "another patch", "200, color=green, seen", patch},
		} {
			shelf := l.Create(row.name, "color=red")
			l.Settle(shelf)
			hook.Reviews()
			answer := answerInTime(row.send(shelf))
			reviews := by("writer", hook.Reviews())
			now := l.Peek(row.name)
			seen := map[bool]string{true: "seen", false: "not seen"}[lab.Field(now, "seen") != ""]
			stored := lab.Fields(now, "color") + ", " + seen
			table.Row(row.webhook, row.request, len(reviews), answer, stored)
			l.Expect(answer+", "+stored == row.want, row.request+": "+row.want, "%s: %s, %s", row.request, answer, stored)
			if row.name == "once" {
				l.Equal("the number of reviews", len(reviews), 2)
			}
		}
		table.End()
		l.Say("The replace without a token had 500 milliseconds; by default a request has 34 seconds. The webhook admits " +
			"its own writes: each of them is reviewed too.")
	})
}

// answerInTime is the answer to a write with a deadline at the server, which tells in one of several ways that the time
// is over.
func answerInTime(err error) string {
	if ranOut(err) {
		return "its time is over"
	}
	return lab.AnswerLine(err)
}

// onlyOnce has a webhook judge each object once, and admit it from then on.
func onlyOnce(judge func(lab.Review) lab.Verdict) func(lab.Review) lab.Verdict {
	var seen sync.Map
	return func(r lab.Review) lab.Verdict {
		if _, again := seen.LoadOrStore(r.Name, true); again {
			return lab.Verdict{}
		}
		return judge(r)
	}
}

// dropPatches has a webhook admit everything as it is.
func dropPatches(h *lab.Admission) {
	judge := h.Judge
	h.Judge = func(r lab.Review) lab.Verdict { return lab.Verdict{Denied: judge(r).Denied} }
}

// ranOut says whether kube-apiserver ended a request because its time was over: it answers with 504, or, when it has
// begun to answer, breaks the stream (WithTimeoutForNonLongRunningRequests in k8s.io/apiserver/pkg/server/filters).
// Where a request to etcd ends first, for the same deadline, the answer is a 500.
func ranOut(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		var broken http2.StreamError
		return errors.As(err, &broken)
	}
	s := status.Status()
	return s.Code == http.StatusGatewayTimeout ||
		s.Code == http.StatusInternalServerError && strings.Contains(s.Message, context.DeadlineExceeded.Error())
}

// answeredTo is the answer to the newest request of a client.
func answeredTo(l *lab.Lab, who string) string {
	for _, call := range slices.Backward(l.Wire.Tape().Calls(0)) {
		if call.Who == who {
			return strings.TrimSpace(fmt.Sprintf("%d %s", call.Code, call.Reason))
		}
	}
	return ""
}
