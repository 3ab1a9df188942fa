// Chapter 2, continued: patches, and the token in them.
package modrev

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestCF7_AFailedTestOfAJSONPatchIsInvalidAndNotAConflict(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF7", From: "D2 paragraph 3",
		Says: "a JSON Patch whose test of the resourceVersion fails is answered with 422 Invalid and not with a conflict, so " +
			"RetryOnConflict does not retry it; a JSON Patch that replaces the resourceVersion is answered with 409",
		Why: "both patches say \"only if it is still this version\"; but the code around them, which waits for 409, does " +
			"nothing about the first",
		FalseIf: world.ATestBecomesAPrecondition.Shows(`a patch with a failed test was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheTokenOf("JSON patch").Shows(`a patch that replaces the resourceVersion by a stale one was accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "(*jsonPatcher).applyJSPatch"),
		Answers: "#5",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		stale := shelf.GetResourceVersion()
		l.Settle(l.Rival().Set("shelf", "color=blue"))
		table := l.Table("JSON Patch that begins with", "answer", "closures run", "to etcd")
		try := func(op string) (int, error) {
			attempts := 0
			var err error
			seen := l.Record(func() {
				err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
					attempts++
					_, err := l.TryPatch("shelf", types.JSONPatchType, fmt.Sprintf(
						`[{"op":%q,"path":"/metadata/resourceVersion","value":%q},{"op":"add","path":"/data/color","value":"green"}]`, op, stale))
					return err
				})
			})
			table.Row(op+" /metadata/resourceVersion", lab.AnswerLine(err), attempts, seen.Summary())
			return attempts, err
		}

		attempts, err := try("test")
		failed := l.Describe(err)
		l.Refused(err, "a patch with a failed test", lab.Refusal{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
		l.Expect(l.Refusal(err, "the patch").Message == "the server rejected our request due to an error in our request",
			"the message says nothing of a test or of a version", "it says: %s", failed)
		l.Expect(attempts == 1, "RetryOnConflict runs its closure once", "it ran %d times", attempts)
		attempts, err = try("replace")
		l.Refused(err, "a patch that replaces the resourceVersion by a stale one", lab.Stale(shelf))
		l.Expect(attempts == retry.DefaultRetry.Steps, "RetryOnConflict runs its closure until its steps are spent",
			"it ran %d times", attempts)
		table.End()
		l.Say("The failed test: %s", failed)
		l.Say("The failed replace: %s", l.Describe(err))
		l.Stored(shelf, "color=blue")
	})
}

func TestCF7b_ATokenInAPatchIsAPreconditionInEveryFormat(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF7b", From: "D2 paragraph 3",
		Says: "a resourceVersion in the body of a patch is a precondition in every format, server-side apply included, and " +
			"force does not get past it",
		Why: "a patch can be as strict as a replace, without If-Match and without a test; and a token that a template has " +
			"brought along makes patches fail for no visible reason",
		FalseIf: world.ClientDropsTheToken.Shows(`a merge patch with a stale token was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheTokenOf("strategic merge patch").Shows(`a strategic merge patch with a stale token was accepted`),
			world.ClientDropsTheTokenOf("JSON patch").Shows(`a JSON Patch with a stale token was accepted`),
			world.ClientDropsTheTokenOf("apply").Shows(`an apply with a stale token was accepted`),
			world.ForceOverridesTheToken.Shows(`an apply with force with a stale token was accepted`),
		},
		Read:    source.Decl(registryStore, "(*Store).Update"),
		Answers: "#3 #21",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Settle(l.Rival().Set("shelf", "color=blue"))
		stale := shelf.GetResourceVersion()
		object := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf","resourceVersion":%q},"data":{"size":"large"}}`, stale)
		table := l.Table("with a stale token", "answer", "causes", "to etcd")
		try := func(what string, format types.PatchType, body string, force *bool) {
			var err error
			seen := l.Record(func() {
				_, err = l.TryPatchWith("shelf", format, body, metav1.PatchOptions{FieldManager: "writer", Force: force})
			})
			l.Refused(err, what+" with a stale token", lab.Stale(shelf))
			table.Row(what, lab.AnswerLine(err), len(lab.Causes(err)), seen.Summary())
			l.Sends(seen, what, "1 Range")
		}
		try("a merge patch", types.MergePatchType, object, nil)
		try("a strategic merge patch", types.StrategicMergePatchType, object, nil)
		try("a JSON Patch", types.JSONPatchType, fmt.Sprintf(`[{"op":"replace","path":"/metadata/resourceVersion","value":%q}]`, stale), nil)
		try("an apply", types.ApplyPatchType, object, nil)
		try("an apply with force", types.ApplyPatchType, object, new(true))
		table.End()
		l.Stored(shelf, "color=blue", "-size")
	})
}

func TestCF7c_PatchFormatsDifferInHowTheyMerge(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF7c", From: "D2 paragraph 3",
		Says: "a merge patch replaces a list as a whole; a strategic merge patch and an apply merge it by its key; a JSON " +
			"Patch addresses its items; on a custom resource a strategic merge patch is 415",
		Why: "the same body means another change in another format, and a merge patch of a list removes what others have " +
			"put into it, without a conflict",
		FalseIf: world.EveryPatchIsAMergePatch.Shows(`^strategic merge patch: the list becomes \[new\]`),
		AlsoFalseIf: []world.World{
			world.PatchesAreSentAs("deployments", "merge patch", "strategic merge patch", types.StrategicMergePatchType).Shows(`^merge patch: the list becomes \[new c\]`),
			world.PatchesAreSentAs("deployments", "apply", "merge patch", types.MergePatchType).Shows(`^apply: the list becomes \[new\]`),
			world.PatchesAreSentAs("shelves", "strategic merge patch", "merge patch", types.MergePatchType).Shows(`a strategic merge patch of a custom resource was accepted`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "(*smpPatcher).applyPatchToCurrentObject"),
	}, func(l *lab.Lab) {
		deployments := l.Of(lab.Deployment)
		container := `{"name":"new","image":"registry.example/new:1"}`
		body := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"template":{"spec":{"containers":[%s]}}}}`, container)
		table := l.Table("add new to containers [c] by a", "containers after it")
		for _, patch := range []struct {
			what, body, leaves string
			format             types.PatchType
		}{
			{"merge patch", body, "[new]", types.MergePatchType},
			{"strategic merge patch", body, "[new c]", types.StrategicMergePatchType},
			{"apply", body, "[c new]", types.ApplyPatchType},
			{"JSON Patch, add to the end", `[{"op":"add","path":"/spec/template/spec/containers/-","value":` + container + `}]`, "[c new]", types.JSONPatchType},
		} {
			name := "shelf" + strconv.Itoa(len(patch.what))
			deployments.Create(name)
			names := containers(deployments.Patch(name, patch.format, patch.body))
			table.Row(patch.what, names)
			l.Expect(names == patch.leaves, patch.what+": the list becomes "+patch.leaves, "%s: the list becomes %s", patch.what, names)
		}
		table.End()
		shelves := l.Of(l.CustomResource())
		shelves.Create("shelf", "color=red")
		_, err := shelves.TryPatch("shelf", types.StrategicMergePatchType, `{"spec":{"color":"blue"}}`)
		l.Say("A strategic merge patch of a custom resource: %s", l.Describe(err))
		l.Refused(err, "a strategic merge patch of a custom resource", lab.Refusal{Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType})
	})
}

func TestCF7d_ANullTokenIsNoToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF7d", From: "+",
		Says: "a merge patch that sets resourceVersion to null takes the token away: a ConfigMap is then patched without a " +
			"check, overtaken or not, and a custom resource is refused with 422, although a patch that does not mention it " +
			"is accepted",
		Why: "that is what a client-side apply sends when somebody once saved a resourceVersion in a manifest and later " +
			"removed it",
		FalseIf: world.NullsAreDropped.Shows(`a patch with null of a Shelf was accepted`),
		AlsoFalseIf: []world.World{
			world.NullMeansTheNewest.Shows(`an overtaken patch of a ConfigMap with null was refused: 409`),
			world.ClientDropsTheToken.Shows(`a ConfigMap with the current one was accepted`),
			world.PatchesSayNull.Shows(`a Shelf that does not mention it was refused: 422`),
			world.EtcdKeepsTheOldValue.Shows(`metadata.labels.color is not stored`),
		},
		Read:    source.Decl(registryStore, "(*Store).Update"),
		Answers: "#36",
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		plain := l.Create("shelf")
		shelves.Create("shelf")
		table := l.Table("merge patch with resourceVersion", "of a", "overtaken", "transactions", "answer")
		patch := func(c *lab.Client, token, color string) error {
			_, err := c.TryPatch("shelf", types.MergePatchType, fmt.Sprintf(`{"metadata":{%s"labels":{"color":%q}}}`, token, color))
			return err
		}
		const null = `"resourceVersion":null,`
		raced := func(what, token, color string) (err error) {
			l.Settle(l.Peek("shelf"))
			seen := l.Record(func() {
				err = l.Race(l.Key(plain), func() error { return patch(l.Client, token, color) },
					func() { l.Rival().Set("shelf", "rival="+color) })
			})
			table.Row(what, "ConfigMap", "by a rival", seen.Count(wire.Txn)-1, lab.AnswerLine(err)) // one is the rival's
			return err
		}
		once := func(what, token string) (err error) {
			l.Settle(shelves.Peek("shelf"))
			seen := l.Record(func() { err = patch(shelves, token, "blue") })
			table.Row(what, "Shelf", "no", seen.Count(wire.Txn), lab.AnswerLine(err))
			return err
		}
		l.Accepted(raced("not mentioned", "", "red"), "an overtaken patch of a ConfigMap that does not mention it")
		current := fmt.Sprintf(`"resourceVersion":%q,`, l.Peek("shelf").GetResourceVersion())
		l.Refused(raced("the current one", current, "green"), "an overtaken patch of a ConfigMap with the current one", lab.Stale(plain))
		l.Accepted(raced("null", null, "blue"), "an overtaken patch of a ConfigMap with null")
		l.Stored(plain, "metadata.labels.color=blue", "rival=blue")
		l.Accepted(once("not mentioned", ""), "a patch of a Shelf that does not mention it")
		refused := once("null", null)
		l.Refused(refused, "a patch with null of a Shelf", lab.Refusal{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
		table.End()
		l.Say("The Shelf: %s", l.Describe(refused))
	})
}

func TestCF16_AnApplyCreatesWhatIsGoneUnlessItNamesTheUID(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF16", From: "D2 paragraph 3, 5",
		Says: "an apply creates what is missing: the one that takes the last finalizer away, sent twice, brings the object " +
			"back; with the uid in it, it is refused with 409",
		Why: "a controller that acts on an old event resurrects what it has just cleaned up; a uid says that only this " +
			"incarnation was meant",
		FalseIf: world.ClientDropsTheUID.Shows(`the apply with the uid of the object that is gone was accepted`),
		AlsoFalseIf: []world.World{
			world.RefusalsBecome(http.StatusConflict, http.StatusNotFound, metav1.StatusReasonNotFound).Shows(`it is: 404 NotFound: .*uid mismatch`),
			world.ClientsSendTheUID.Shows(`the same apply without the uid was refused: 409`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "(*applyPatcher).createNewObject"),
		Answers: "#9",
	}, func(l *lab.Lab) {
		apply := func(meta string) (*lab.Object, error) {
			return l.TryPatch("shelf", types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf"`+meta+`}}`)
		}
		table := l.Table("step", "answer", "uid after it")
		step := func(what, meta string) (*lab.Object, error) {
			o, err := apply(meta)
			uid := ""
			if err == nil && l.Exists(o) {
				uid = string(o.GetUID())
			}
			table.Row(what, l.Answered(), cmp.Or(uid, "(no object)"))
			return o, err
		}
		shelf, err := step("apply with a finalizer", `,"finalizers":["modrev.example/hold"]`)
		l.Step(err, "applying")
		l.Delete("shelf")
		_, err = step("delete; apply without the finalizer", "")
		l.Step(err, "applying without the finalizer")
		_, refused := step("the same, with the uid", fmt.Sprintf(`,"uid":%q`, shelf.GetUID()))
		r := l.Refusal(refused, "the apply with the uid of the object that is gone")
		again, err := step("the same, without the uid", "")
		l.Accepted(err, "the same apply without the uid")
		table.End()
		l.Say("With the uid: %s", l.Describe(refused))

		l.Expect(r.Is(http.StatusConflict, metav1.StatusReasonConflict, "uid mismatch: the provided object specified uid "+
			string(shelf.GetUID())+", and no existing object was found"), "it is refused: 409 Conflict, uid mismatch", "it is: %s", l.Describe(refused))
		l.Expect(again.GetUID() != shelf.GetUID(), "what comes back is another object", "it has the same uid %s", again.GetUID())
	})
}
