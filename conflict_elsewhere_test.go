// Chapter 2, continued: refusals that are not what they seem.
package modrev

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

// answers is a table of requests and of what they are answered with.
type answers struct {
	lab   *lab.Lab
	table *lab.Table
}

// expect adds a row, and compares it with what it should be: "201" and the like, or a refusal.
func (a answers) expect(request string, err error, want lab.Refusal, next string) {
	if want.Code < http.StatusBadRequest {
		a.lab.Accepted(err, request)
		a.table.Row(request, a.lab.Answered(), "", next)
		return
	}
	got := a.lab.Refused(err, request, want)
	cause, _, _ := strings.Cut(got.Cause(), " ") // without its field
	details := slices.DeleteFunc([]string{got.Kind, cause}, func(s string) bool { return s == "" })
	a.table.Row(request, got.CodeAndReason(), strings.Join(details, ", "), next)
}

// accepted stands for an answer that is no refusal.
var accepted = lab.Refusal{Code: http.StatusOK}

func TestCF30_AForbiddenRequestMayLackNoRight(t *testing.T) {
	const terminating = string(corev1.NamespaceTerminatingCause) + " metadata.namespace"
	lesson.Prove(t, lesson.Claim{
		ID: "CF30", From: "+",
		Says: "403 is no proof of a missing role: in a namespace that is going away creates are refused with it, " +
			"replaces and deletes are accepted",
		Why: "No role cures it, and no retry. Only the cause NamespaceTerminating tells a program that the namespace is " +
			"going; a quota's refusal has none",
		Do:      "On 403 look for the cause before you look for a role.",
		FalseIf: world.NamespacesDoNotTerminate.Shows(`create in an ending namespace was accepted`),
		AlsoFalseIf: []world.World{
			world.ReplacesAreCreates.Shows(`replace there was refused: 403 Forbidden: .*because it is being terminated`),
			world.RefusalsLoseTheirCauses.Shows(`create in an ending namespace was refused: 403 Forbidden about`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle", "(*Lifecycle).Admit"),
		Answers: "#40 #71",
	}, func(l *lab.Lab) {
		forbidden := lab.Refusal{
			Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Kind: "configmaps", Causes: lab.NoCauses,
		}
		gone := forbidden
		gone.Causes, gone.Kind = []string{terminating}, ""
		unknown := lab.Refusal{Code: http.StatusUnauthorized, Reason: metav1.StatusReasonUnauthorized}
		shelf := l.Create("shelf", "color=red")
		l.Create("other")
		of := answers{l, l.Table("request", "answer", "kind, cause", "next step")}

		_, err := l.AsUser("reader").TryReplace(shelf, "color=blue")
		of.expect("replace by one without a role", err, forbidden, "get the role")
		_, err = l.Stranger("").TryReplace(shelf, "color=blue")
		of.expect("replace without credentials", err, forbidden, "log in")
		_, err = l.Stranger("made-up").TryReplace(shelf, "color=blue")
		of.expect("replace with an unknown token", err, unknown, "renew the token")
		l.LimitConfigMaps(2, 2)
		_, err = l.TryCreate("full")
		of.expect("create over the quota", err, forbidden, "raise the quota")
		err = l.Of(lab.Namespace).TryDelete("default", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		kept := forbidden
		kept.Kind = "namespaces"
		of.expect("delete of namespace default", err, kept, "leave it")

		l.LimitConfigMaps(50, 2)
		l.Of(lab.Namespace).Delete(l.Namespace)
		_, err = l.TryCreate("late")
		of.expect("create in an ending namespace", err, gone, "let go")
		_, err = l.TryApply("late", "ann", false, "color=red")
		of.expect("apply that would create there", err, gone, "let go")
		_, err = l.Of(lab.Lease).TryReplace(l.Of(lab.Lease).New("late"))
		of.expect("replace creating there", err, gone, "let go")
		_, err = l.TryReplace(shelf, "color=green")
		of.expect("replace there", err, accepted, "clean up")
		of.expect("delete there", l.TryDelete("shelf"), accepted, "clean up")
		_, err = l.Of(lab.Namespace).TryCreateObject(l.Of(lab.Namespace).New(l.Namespace))
		of.expect("create of that namespace", err, lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists, Says: "object is being deleted",
		}, "wait")
		of.table.End()
	})
}

func TestCF31_WhatIsNotFoundMayBeMoreThanTheObject(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF31", From: "+",
		Says: "404 can mean the namespace, the subresource or the whole API instead of the object, and 405 a verb that " +
			"nobody may use; details tell",
		Why: "A client that lets go of its object on any 404 cleans up after one that is still there. A missing " +
			"namespace even lists as empty, with 200",
		Do:      "On 404 check that details name your object before you clean up.",
		FalseIf: world.NamespacesAreProvisioned.Shows(`create in a missing namespace was accepted`),
		AlsoFalseIf: []world.World{
			world.GoesToTheObject("status").Shows(`GET of a subresource it lacks was accepted`),
			world.RefusalsAreAbout("configmaps").Shows(
				`create in a missing namespace was refused: 404 NotFound about configmaps`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/api/errors", "NewGenericServerResponse"),
		Answers: "#71",
	}, func(l *lab.Lab) {
		l.Create("shelf")
		missing := l.Namespace + "-none"
		inside := "/api/v1/namespaces/" + l.Namespace
		nowhere := "/api/v1/namespaces/" + missing + "/configmaps"
		notFound := func(kind string, causes []string) lab.Refusal {
			return lab.Refusal{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Kind: kind, Causes: causes}
		}
		wrongVerb := lab.Refusal{
			Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed, Causes: lab.NoCauses,
		}
		noPage := []string{string(metav1.CauseTypeUnexpectedServerResponse)}
		of := answers{l, l.Table("request", "answer", "kind, cause", "lacking")}
		for _, c := range []struct {
			request, verb, path, body string
			want                      lab.Refusal
			lacks                     string
		}{
			{"replace of a missing object", "PUT", inside + "/configmaps/gone", `"gone"`,
				notFound("configmaps", lab.NoCauses), "object"},
			{"create in a missing namespace", "POST", nowhere, `"shelf"`,
				notFound("namespaces", lab.NoCauses), "namespace"},
			{"replace there", "PUT", nowhere + "/shelf", `"shelf"`, notFound("configmaps", lab.NoCauses), "namespace"},
			{"list there", "GET", nowhere, "", accepted, "namespace"},
			{"GET of a subresource it lacks", "GET", inside + "/configmaps/shelf/status", "",
				notFound("", lab.NoCauses), "/status"},
			{"list of an unserved group", "GET", "/apis/none.modrev.example/v1/shelves", "",
				notFound("", noPage), "API"},
			{"delete of all namespaces", "DELETE", "/api/v1/namespaces", "", wrongVerb, "verb"},
			{"delete of a /status", "DELETE", inside + "/pods/shelf/status", "", wrongVerb, "verb"},
			{"replace of an /eviction", "PUT", inside + "/pods/shelf/eviction", `"shelf"`, wrongVerb, "verb"},
		} {
			var body []byte
			if c.body != "" {
				body = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":` + c.body + `}}`)
			}
			_, err := l.TryRaw(c.verb, c.path, "", body)
			of.expect(c.request, err, c.want, c.lacks)
		}
		of.table.End()
		l.Say("The writer may do anything, so no role stands behind a 405. A replace in a missing namespace names the " +
			"object, a create names the namespace.")
	})
}

func TestCF32_ARefusedEvictionMayHaveSpentTheBudget(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF32", From: "+",
		Says: "an eviction that a budget guards is several transactions, the budget's first: a Pod that changes " +
			"afterwards is deleted all the same",
		Why: "a 429 with the cause DisruptionBudget is about a budget; 409 is the caller's own precondition, and " +
			"500 two budgets for one Pod",
		Do:      "On 429 look for the cause DisruptionBudget, and wait for the budget.",
		FalseIf: world.EvictionsSpendNoBudget.Shows(`an eviction beyond the budget was accepted`),
		AlsoFalseIf: []world.World{
			world.EvictionsArePinned.Shows(`an eviction that a label overtakes was refused: 409 Conflict`),
			world.EvictionsAreNotPinned.Shows(`an eviction of a stale version was accepted`),
			world.RefusalsLoseTheirCauses.Shows(`an eviction before the budget was counted was refused: 429`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/core/pod/storage", "(*EvictionREST).Create"),
		Answers: "#103",
	}, func(l *lab.Lab) {
		l.RunningPods("a", "b", "c")
		budget := l.Of(lab.PodDisruptionBudget).Create("budget")
		left := func() any {
			return lab.Field(l.Of(lab.PodDisruptionBudget).Peek("budget"), "status.disruptionsAllowed")
		}
		full := lab.Refusal{
			Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
			Causes: []string{string(policyv1.DisruptionBudgetCause)},
		}
		stale := lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Kind: "Pod"}
		table := l.Table("eviction", "budget", "answer", "budget then", "the Pod then")
		row := func(what, pod string, allowed any, err error, want lab.Refusal) {
			_, gone := l.Of(lab.Pod).TryGet(pod)
			table.Row(what, allowed, lab.AnswerLine(err), left(), map[bool]string{true: "gone", false: "there"}[gone != nil])
			if want.Code == http.StatusOK {
				l.Accepted(err, what)
			} else {
				l.Refused(err, what, want)
			}
			l.Equal("that the Pod is gone after "+what, gone != nil, want.Code == http.StatusOK)
		}

		err := l.TryEvict("a", "")
		row("an eviction before the budget was counted", "a", "not yet", err, full)
		l.Equal("Retry-After of an eviction before the budget was counted", lab.DetailsOf(err).RetryAfterSeconds, 10)
		l.AllowDisruptions("budget", 1)
		seen := l.Record(func() { err = l.TryEvict("a", "") })
		row("an eviction within the budget", "a", 1, err, accepted)
		err = l.TryEvict("b", "")
		row("an eviction beyond the budget", "b", 0, err, full)
		l.Equal("Retry-After of an eviction beyond the budget", lab.DetailsOf(err).RetryAfterSeconds, 0)
		l.AllowDisruptions("budget", 1)
		row("an eviction of a stale version", "b", 1, l.TryEvict("b", "1"), stale)
		l.Equal("what is left of the budget after a refused eviction", left(), "0")
		l.AllowDisruptions("budget", 1)
		err = l.Race(lab.Pod.KeyOf(l.Namespace, "b"), func() error { return l.TryEvict("b", "") }, func() {
			l.Rival().Of(lab.Pod).Patch("b", types.MergePatchType, `{"metadata":{"labels":{"keep":"me"}}}`)
		})
		row("an eviction that a label overtakes", "b", 1, err, accepted)
		l.AllowDisruptions("budget", 1)
		l.Of(lab.PodDisruptionBudget).Create("second")
		row("an eviction under two budgets", "c", 1, l.TryEvict("c", ""), lab.Refusal{
			Code: http.StatusInternalServerError, Says: "more than one PodDisruptionBudget",
		})
		table.End()
		writes := seen.Only(wire.Txn)
		l.Equal("the key of the first transaction of an eviction", writes[0].Key, l.Key(budget))
		l.Show("an eviction within the budget", writes[:2])
	})
}

func TestCF33_ABindingsConflictIsNotAboutTheToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF33", From: "+",
		Says: "without a stale token, /binding answers 409 about pods/binding for a Pod that has a node or is " +
			"being deleted",
		Why: "Nothing was stale, so reading again and repeating never helps. A stale token or a wrong uid is a 409 about " +
			"pods, with the text of a storage error",
		Do:      "On a 409 about pods/binding, read the Pod: node, deletion, or a scheduling gate.",
		FalseIf: world.EtcdKeepsTheOldValueOf("shelf").Shows(`a second binding was accepted`),
		AlsoFalseIf: []world.World{
			world.BindingsLose("uid").Shows(`a binding for another uid was accepted`),
			world.BindingsLose("resourceVersion").Shows(`a binding with a stale token was accepted`),
			world.EtcdKeepsTheOldValueOf("going").Shows(`a binding of a Pod that is going was refused: 404`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/core/pod/storage", "(*BindingREST).assignPod"),
		Answers: "#22 #70",
	}, func(l *lab.Lab) {
		pods := l.Of(lab.Pod)
		pods.Create("shelf")
		pods.Create("free")
		pods.Create("going")
		pods.Patch("going", types.MergePatchType, `{"metadata":{"finalizers":["modrev.example/hold"]}}`)
		pods.Delete("going")
		bind := func(name, meta string) error {
			_, err := l.TryRaw(http.MethodPost, pods.Path(name)+"/binding", "", []byte(fmt.Sprintf(
				`{"apiVersion":"v1","kind":"Binding","metadata":{"name":%q%s},"target":{"kind":"Node","name":"n"}}`, name, meta)))
			return err
		}
		conflict := func(kind, says string) lab.Refusal {
			return lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Kind: kind, Says: says}
		}
		of := answers{l, l.Table("request", "answer", "kind, cause", "next step")}

		of.expect("a binding for another uid", bind("free", `,"uid":"another"`),
			conflict("pods", "UID in precondition: another"), "let go")
		of.expect("a binding with a stale token", bind("free", `,"resourceVersion":"1"`),
			conflict("pods", "ResourceVersion in precondition: 1"), "read, decide again")
		of.expect("a first binding", bind("shelf", ""), accepted, "go on")
		of.expect("a second binding", bind("shelf", ""),
			conflict("pods/binding", `is already assigned to node "n"`), "read its node")
		token := fmt.Sprintf(`,"resourceVersion":%q`, pods.Peek("shelf").GetResourceVersion())
		of.expect("the same with the newest token", bind("shelf", token),
			conflict("pods/binding", `is already assigned to node "n"`), "read its node")
		of.expect("a binding of a Pod that is going", bind("going", ""),
			conflict("pods/binding", "is being deleted"), "let go")
		of.table.End()
	})
}

func TestCF34_AServersErrorMayBeYourOwn(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF34", From: "+",
		Says: "500 without a reason can be the client's own mistake, such as a token that is no number or a patch " +
			"outside its schema",
		Why: "A client that repeats every 5xx repeats this one for ever. The same mistake is 400 in a list and 409 in a " +
			"delete",
		Do:      "Give up on a 500 that has no reason and comes back unchanged.",
		FalseIf: world.WhatIsNoNumberIsNoToken.Shows(`replace, token abc was accepted`),
		AlsoFalseIf: []world.World{
			world.EveryPatchIsAMergePatch.Shows(`apply of an unknown field was accepted`),
			world.RefusalsBecome(http.StatusInternalServerError, http.StatusBadRequest, metav1.StatusReasonBadRequest).
				Shows(`replace, token abc was refused: 400 BadRequest`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers/responsewriters", "ErrorToAPIStatus"),
		Answers: "#72",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		deployment := l.Of(lab.Deployment).Create("shelf")
		object := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf"%s},%s}`
		const template = `{"spec":{"template":{"spec":{"containers":[%s]}}}}`
		own := lab.Refusal{Code: http.StatusInternalServerError, Causes: lab.NoCauses}
		bad := lab.Refusal{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest}
		stale := lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict}
		path, all := l.Path("shelf"), l.Path("")
		apply, strategic := string(types.ApplyPatchType), string(types.StrategicMergePatchType)
		of := answers{l, l.Table("request", "answer", "kind, cause", "mistake")}
		const abc = `{"preconditions":{"resourceVersion":"abc"}}`
		for _, c := range []struct {
			request, verb, path, query, format, body string
			want                                     lab.Refusal
			mistake                                  string
		}{
			{"replace, token abc", "PUT", path, "", "",
				fmt.Sprintf(object, `,"resourceVersion":"abc"`, `"data":{}`), own, "token"},
			{"GET, resourceVersion abc", "GET", path, "resourceVersion=abc", "", "", own, "token"},
			{"watch, resourceVersion abc", "GET", all, "watch=true&resourceVersion=abc", "", "", own, "token"},
			{"list, resourceVersion abc", "GET", all, "resourceVersion=abc", "", "", bad, "token"},
			{"delete, token abc", "DELETE", path, "", "", abc, stale, "token"},
			{"apply of an unknown field", "", path, "force=true&fieldManager=ann", apply,
				fmt.Sprintf(object, "", `"datta":{}`), own, "name"},
			{"apply of a wrong type", "", path, "force=true&fieldManager=ann", apply,
				fmt.Sprintf(object, "", `"data":{"size":5}`), own, "type"},
			{"patch with an unknown directive", "", path, "", strategic, `{"$patch":"none"}`, own, "directive"},
			{"patch of a list without its key", "", l.Of(lab.Deployment).Path("shelf"), "", strategic,
				fmt.Sprintf(template, `{"image":"registry.example/shelf:2"}`), own, "key"},
		} {
			var body []byte
			if c.body != "" {
				body = []byte(c.body)
			}
			var err error
			if c.format != "" {
				_, err = l.TryPatchAt(c.path, c.query, types.PatchType(c.format), body)
			} else {
				_, err = l.TryRaw(c.verb, c.path, c.query, body)
			}
			of.expect(c.request, err, c.want, c.mistake)
		}
		of.table.End()
		l.Equal("version of the ConfigMap's key", l.KV(shelf).Version, 1)
		l.Equal("version of the Deployment's key", l.KV(deployment).Version, 1)
	})
}

func TestCF35_AnOvertakenEvictionOfAnUnreadyPodBlamesTheBudget(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF35", From: "+",
		Says: "an eviction of a running, unready Pod spends no budget if enough others are healthy; overtaken by " +
			"a change of the Pod, it gets 429",
		Why: "The cause DisruptionBudget and its text blame a budget that has not moved. It is a conflict: the eviction " +
			"was pinned to the unready version",
		Do:      "Send the eviction again after its Retry-After.",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`an eviction that a Pod's becoming ready overtakes was accepted`),
		AlsoFalseIf: []world.World{
			world.EveryRefusalIsAConflict.Shows(`becoming ready overtakes was refused: 409`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/core/pod/storage", "addConditionAndDeletePod"),
		Answers: "#103",
	}, func(l *lab.Lab) {
		l.RunningPods("shelf", "other")
		l.SetReady("shelf", "False")
		l.SetReady("other", "False")
		budget := l.Of(lab.PodDisruptionBudget).Create("budget")
		l.AllowDisruptions("budget", 0)
		version := l.KV(budget).Version

		raced := l.Race(lab.Pod.KeyOf(l.Namespace, "shelf"), func() error { return l.TryEvict("shelf", "") }, func() {
			l.Rival().SetReady("shelf", "True")
		})
		refusal := l.Refused(raced, "an eviction that a Pod's becoming ready overtakes", lab.Refusal{
			Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
			Causes: []string{string(policyv1.DisruptionBudgetCause)},
		})
		l.Expect(l.Exists(l.Of(lab.Pod).New("shelf")), "the Pod stays", "the Pod is gone")
		alone := l.TryEvict("other", "")
		l.Accepted(alone, "an eviction of an unready Pod that nobody else writes")
		l.Expect(!l.Exists(l.Of(lab.Pod).New("other")), "the Pod goes", "the Pod is still there")
		l.Equal("writes to the budget", l.KV(budget).Version-version, 0)

		table := l.Table("eviction of an unready Pod, budget 0", "answer", "cause", "the Pod")
		table.Row("the Pod becomes ready meanwhile", refusal.CodeAndReason(), refusal.Cause(), "stays")
		table.Row("nobody else writes", lab.AnswerLine(alone), "", "goes")
		table.End()
		l.Say("The refusal's cause says: %s", lab.Causes(raced)[0].Message)
	})
}
