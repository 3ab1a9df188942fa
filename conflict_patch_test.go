// Chapter 2, continued: patches, and the token in them.
package modrev

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		Says: "a JSON Patch whose test of the resourceVersion fails is answered with 422 Invalid and not with a conflict, " +
			"so RetryOnConflict does not retry it; a JSON Patch that replaces the resourceVersion is answered with 409",
		Why: "both patches say \"only if it is still this version\"; but the code around them, which waits for 409, does " +
			"nothing about the first",
		FalseIf: world.ATestBecomesAPrecondition.Shows(`a patch with a failed test was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheTokenOf("JSON patch").Shows(
				`a patch that replaces the resourceVersion by a stale one was accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "(*jsonPatcher).applyJSPatch"),
		Answers: "#5",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Settle(l.Rival().Set("shelf", "color=blue"))
		table := l.Table("JSON Patch that begins with", "answer", "closures run", "to etcd")
		try := func(op string) (attempts int, err error) {
			body := fmt.Sprintf(`[{"op":%q,"path":"/metadata/resourceVersion","value":%q},`+
				`{"op":"add","path":"/data/color","value":"green"}]`, op, shelf.GetResourceVersion())
			seen := l.Record(func() {
				err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
					attempts++
					_, err := l.TryPatch("shelf", types.JSONPatchType, body)
					return err
				})
			})
			table.Row(op+" /metadata/resourceVersion", lab.AnswerLine(err), attempts, seen.Summary())
			return attempts, err
		}

		attempts, failed := try("test")
		l.Refused(failed, "a patch with a failed test", lab.Refusal{
			Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Message: "the server rejected our request due to an error in our request", // and nothing of a version
		})
		l.Equal("the number of times that RetryOnConflict ran its closure", attempts, 1)
		attempts, stale := try("replace")
		l.Refused(stale, "a patch that replaces the resourceVersion by a stale one", lab.Stale(shelf))
		l.Equal("the number of times that RetryOnConflict ran its closure", attempts, retry.DefaultRetry.Steps)
		table.End()
		l.Say("The failed test: %s", l.Describe(failed))
		l.Say("The failed replace: %s", l.Describe(stale))
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
			world.ClientDropsTheTokenOf("strategic merge patch").Shows(
				`a strategic merge patch with a stale token was accepted`),
			world.ClientDropsTheTokenOf("JSON patch").Shows(`a JSON Patch with a stale token was accepted`),
			world.ClientDropsTheTokenOf("apply").Shows(`an apply with a stale token was accepted`),
			world.ForceOverridesTheToken.Shows(`an apply with force with a stale token was accepted`),
		},
		Read:    source.Decl(registryStore, "(*Store).Update"),
		Answers: "#3 #21",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Settle(l.Rival().Set("shelf", "color=blue"))
		token := shelf.GetResourceVersion()
		object := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf","resourceVersion":%q},`+
			`"data":{"size":"large"}}`, token)
		operation := fmt.Sprintf(`[{"op":"replace","path":"/metadata/resourceVersion","value":%q}]`, token)

		table := l.Table("with a stale token", "answer", "causes", "to etcd")
		for _, c := range []struct {
			patch  string
			format types.PatchType
			body   string
			force  *bool
		}{
			{"a merge patch", types.MergePatchType, object, nil},
			{"a strategic merge patch", types.StrategicMergePatchType, object, nil},
			{"a JSON Patch", types.JSONPatchType, operation, nil},
			{"an apply", types.ApplyPatchType, object, nil},
			{"an apply with force", types.ApplyPatchType, object, new(true)},
		} {
			var err error
			seen := l.Record(func() {
				_, err = l.TryPatchWith("shelf", c.format, c.body, metav1.PatchOptions{FieldManager: "writer", Force: c.force})
			})
			refusal := l.Refused(err, c.patch+" with a stale token", lab.Stale(shelf))
			table.Row(c.patch, refusal.CodeAndReason(), len(refusal.Causes), seen.Summary())
			l.Sends(seen, c.patch, "1 Range")
		}
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
		FalseIf: world.EveryPatchIsAMergePatch.Shows(`^strategic merge patch: the list is \[new\]`),
		AlsoFalseIf: []world.World{
			world.PatchesAreSentAs("deployments", "merge patch", "strategic merge patch", types.StrategicMergePatchType).
				Shows(`^merge patch: the list is \[new c\]`),
			world.PatchesAreSentAs("deployments", "apply", "merge patch", types.MergePatchType).
				Shows(`^apply: the list is \[new\]`),
			world.PatchesAreSentAs("shelves", "strategic merge patch", "merge patch", types.MergePatchType).
				Shows(`a strategic merge patch of a custom resource was accepted`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "(*smpPatcher).applyPatchToCurrentObject"),
	}, func(l *lab.Lab) {
		deployments := l.Of(lab.Deployment)
		container := `{"name":"new","image":"registry.example/new:1"}`
		template := `{"apiVersion":"apps/v1","kind":"Deployment",` +
			`"spec":{"template":{"spec":{"containers":[` + container + `]}}}}`
		operation := `[{"op":"add","path":"/spec/template/spec/containers/-","value":` + container + `}]`
		table := l.Table("add new to containers [c] by a", "containers after it")
		for i, c := range []struct {
			patch  string
			format types.PatchType
			body   string
			leaves string
		}{
			{"merge patch", types.MergePatchType, template, "[new]"},
			{"strategic merge patch", types.StrategicMergePatchType, template, "[new c]"},
			{"apply", types.ApplyPatchType, template, "[c new]"},
			{"JSON Patch, add to the end", types.JSONPatchType, operation, "[c new]"},
		} {
			name := fmt.Sprintf("shelf-%d", i)
			deployments.Create(name)
			names := containers(deployments.Patch(name, c.format, c.body))
			table.Row(c.patch, names)
			l.Equal(c.patch+": the list", names, c.leaves)
		}
		table.End()

		shelves := l.Of(l.CustomResource())
		shelves.Create("shelf", "color=red")
		_, err := shelves.TryPatch("shelf", types.StrategicMergePatchType, `{"spec":{"color":"blue"}}`)
		l.Say("A strategic merge patch of a custom resource: %s", l.Describe(err))
		l.Refused(err, "a strategic merge patch of a custom resource",
			lab.Refusal{Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType})
	})
}

// containers names the containers of a Deployment's template, in order.
func containers(deployment *lab.Object) string {
	list, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	names := []any{}
	for _, c := range list {
		names = append(names, c.(map[string]any)["name"])
	}
	return fmt.Sprint(names)
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
		const null = `"resourceVersion":null,`
		table := l.Table("merge patch with resourceVersion", "of a", "overtaken", "transactions", "answer")

		txns, err := labelOvertaken(l, l.Create("free"), "")
		table.Row("not mentioned", "ConfigMap", "by a rival", txns, lab.AnswerLine(err))
		l.Accepted(err, "an overtaken patch of a ConfigMap that does not mention it")
		pinned := l.Create("pinned")
		txns, err = labelOvertaken(l, pinned, fmt.Sprintf(`"resourceVersion":%q,`, pinned.GetResourceVersion()))
		table.Row("the current one", "ConfigMap", "by a rival", txns, lab.AnswerLine(err))
		l.Refused(err, "an overtaken patch of a ConfigMap with the current one", lab.Stale(pinned))
		loose := l.Create("loose")
		txns, err = labelOvertaken(l, loose, null)
		table.Row("null", "ConfigMap", "by a rival", txns, lab.AnswerLine(err))
		l.Accepted(err, "an overtaken patch of a ConfigMap with null")
		l.Stored(loose, "metadata.labels.color=blue", "rival=yes")

		shelves := l.Of(l.CustomResource())
		l.Settle(shelves.Create("shelf"))
		seen := l.Record(func() { err = label(shelves, "shelf", "") })
		table.Row("not mentioned", "Shelf", "no", seen.Count(wire.Txn), lab.AnswerLine(err))
		l.Accepted(err, "a patch of a Shelf that does not mention it")
		seen = l.Record(func() { err = label(shelves, "shelf", null) })
		table.Row("null", "Shelf", "no", seen.Count(wire.Txn), lab.AnswerLine(err))
		table.End()
		l.Say("The Shelf: %s", l.Describe(err))
		l.Refused(err, "a patch with null of a Shelf",
			lab.Refusal{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
	})
}

// label sends a merge patch that sets a label, with what is said of the token before it.
func label(c *lab.Client, name, token string) error {
	_, err := c.TryPatch(name, types.MergePatchType, `{"metadata":{`+token+`"labels":{"color":"blue"}}}`)
	return err
}

// labelOvertaken sends such a patch while a rival patches the object. It returns how many transactions it took.
func labelOvertaken(l *lab.Lab, o *lab.Object, token string) (int, error) {
	seen, err := overtaken(l, o,
		func() error { return label(l.Client, o.GetName(), token) },
		func() { l.Rival().Set(o.GetName(), "rival=yes") })
	return seen.Count(wire.Txn) - 1, err // one is the rival's
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
			world.RefusalsBecome(http.StatusConflict, http.StatusNotFound, metav1.StatusReasonNotFound).
				Shows(`was refused: 404 NotFound about configmaps shelf: .*uid mismatch`),
			world.ClientsSendTheUID.Shows(`the same apply without the uid was refused: 409`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "(*applyPatcher).createNewObject"),
		Answers: "#9",
	}, func(l *lab.Lab) {
		table := l.Table("step", "answer", "uid after it")
		apply := func(step, meta string) (*lab.Object, error) {
			o, err := l.TryPatch("shelf", types.ApplyPatchType,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf"`+meta+`}}`)
			uid := "(no object)"
			if err == nil && l.Exists(o) {
				uid = string(o.GetUID())
			}
			table.Row(step, l.Answered(), uid)
			return o, err
		}

		shelf, err := apply("apply with a finalizer", `,"finalizers":["modrev.example/hold"]`)
		require.NoError(l, err, "applying")
		l.Delete("shelf")
		_, err = apply("delete; apply without the finalizer", "")
		require.NoError(l, err, "applying without the finalizer")
		_, refused := apply("the same, with the uid", fmt.Sprintf(`,"uid":%q`, shelf.GetUID()))
		l.Refused(refused, "the apply with the uid of the object that is gone", lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
			Says: "uid mismatch: the provided object specified uid " + string(shelf.GetUID()) +
				", and no existing object was found",
		})
		again, err := apply("the same, without the uid", "")
		l.Accepted(err, "the same apply without the uid")
		table.End()
		l.Say("With the uid: %s", l.Describe(refused))

		l.Expect(again.GetUID() != shelf.GetUID(), "what comes back is another object",
			"it has the same uid %s", again.GetUID())
	})
}
