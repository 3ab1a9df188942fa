// Chapter 2, continued: patches, and the token in them.
package modrev

import (
	"bytes"
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
		Says: "a JSON Patch whose test of the resourceVersion fails is answered with 422 Invalid, so RetryOnConflict " +
			"does not retry it",
		Why: "replacing the resourceVersion by a stale one says the same, and is answered with the 409 that your " +
			"retry waits for",
		Do:      "Replace the resourceVersion in a JSON Patch where you would test it.",
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
			table.Row(op+" of the resourceVersion, a stale one", lab.AnswerLine(err), attempts, seen.Summary())
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
		Says: "a resourceVersion in the body of a patch is a precondition in every format, server-side apply included, " +
			"and force does not get past it",
		Why: "a patch can be as strict as a replace; and a token left over from a template makes patches fail for " +
			"no visible reason",
		Do:      "Put the token into a patch that depends on what you read.",
		FalseIf: aStaleReadAndNoCompare.Shows(`a merge patch with a stale token was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`a merge patch with a stale token was accepted`),
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
		l.Stored(shelf, "color=blue", "-size")
		now := l.Peek("shelf").GetResourceVersion()
		_, err := l.TryApply("shelf", "writer", true, "color=green", "metadata.resourceVersion="+now)
		table.Row("an apply with force and the current one", lab.AnswerLine(err), "", "")
		table.End()
		l.Accepted(err, "an apply with force and the current token")
		l.Say("Force settles who owns a field, the token whether the object is still the one that was read. A dispute " +
			"about a field is reported before a stale token (CF8c).")
		l.Stored(shelf, "color=green")
	})
}

// aStaleReadAndNoCompare lets what is stale by one version pass the apiserver and etcd.
var aStaleReadAndNoCompare = world.New(
	"a read of etcd shows the version before the newest, and the compare is taken out",
	func(l *lab.Lab) {
		world.ReadsShowTheVersionBefore.Bend(l)
		world.EtcdIgnoresTheCompare.Bend(l)
	})

func TestCF7c_PatchFormatsDifferInHowTheyMerge(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF7c", From: "D2 paragraph 3",
		Says: "a merge patch replaces a list; a strategic merge patch and an apply merge it where the schema says " +
			"so",
		Why:     "a patch that replaces a list removes what others have put into it, and nobody is told of a conflict",
		Do:      "Look up whether the list is merged by a key before you patch it.",
		FalseIf: world.EveryPatchIsAMergePatch.Shows(`^strategic merge patch: the list is \[new\]`),
		AlsoFalseIf: []world.World{
			world.PatchesAreSentAs("deployments", "merge patch", "strategic merge patch", types.StrategicMergePatchType).
				Shows(`^merge patch: the list is \[new c\]`),
			world.PatchesAreSentAs("deployments", "apply", "merge patch", types.MergePatchType).
				Shows(`^apply: the list is \[new\]`),
			world.PatchesAreSentAs("shelves", "strategic merge patch", "merge patch", types.MergePatchType).
				Shows(`a strategic merge patch of a custom resource was accepted`),
			tolerationsAreMerged.Shows(`^strategic merge patch of tolerations: the list is \[c new\]`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "(*smpPatcher).applyPatchToCurrentObject"),
	}, func(l *lab.Lab) {
		deployments := l.Of(lab.Deployment)
		table := l.Table("add new to [c] by a", "containers after it", "tolerations after it")
		for i, c := range []struct {
			patch                   string
			format                  types.PatchType
			containers, tolerations string
		}{
			{"merge patch", types.MergePatchType, "[new]", "[new]"},
			{"strategic merge patch", types.StrategicMergePatchType, "[new c]", "[new]"},
			{"apply", types.ApplyPatchType, "[c new]", "[new]"},
			{"JSON Patch, add to the end", types.JSONPatchType, "[c new]", "[c new]"},
		} {
			name := fmt.Sprintf("shelf-%d", i)
			deployments.Create(name)
			deployments.Patch(name, types.MergePatchType, addTo("tolerations", `{"key":"c"}`, types.MergePatchType))
			patch := func(field, item string) string {
				options := metav1.PatchOptions{FieldManager: "writer"}
				if c.format == types.ApplyPatchType {
					options.Force = new(true) // the creator of the list is another manager: an update
				}
				patched, err := deployments.TryPatchWith(name, c.format, addTo(field, item, c.format), options)
				require.NoError(l, err, "patching %s by a %s", field, c.patch)
				return itemsOf(patched, field)
			}
			containers := patch("containers", `{"name":"new","image":"registry.example/new:1"}`)
			tolerations := patch("tolerations", `{"key":"new"}`)
			table.Row(c.patch, containers, tolerations)
			l.Equal(c.patch+": the list", containers, c.containers)
			l.Equal(c.patch+" of tolerations: the list", tolerations, c.tolerations)
		}
		table.End()
		l.Say("The key of a container is its name. The schema gives tolerations no key: they are atomic, one value.")

		shelves := l.Of(l.CustomResource())
		shelves.Create("shelf", "color=red")
		_, err := shelves.TryPatch("shelf", types.StrategicMergePatchType, `{"spec":{"color":"blue"}}`)
		l.Say("A strategic merge patch of a custom resource: %s", l.Describe(err))
		l.Refused(err, "a strategic merge patch of a custom resource",
			lab.Refusal{Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType})
	})
}

// addTo is the body of a patch that names one item of a list in a Deployment's template, or adds it, in a JSON Patch.
func addTo(field, item string, format types.PatchType) string {
	if format == types.JSONPatchType {
		return fmt.Sprintf(`[{"op":"add","path":"/spec/template/spec/%s/-","value":%s}]`, field, item)
	}
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"template":{"spec":{%q:[%s]}}}}`, field, item)
}

// itemsOf names the items of a list in a Deployment's template, in order.
func itemsOf(deployment *lab.Object, field string) string {
	list, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", field)
	names := []any{}
	for _, item := range list {
		key := map[string]string{"containers": "name", "tolerations": "key"}[field]
		names = append(names, item.(map[string]any)[key])
	}
	return fmt.Sprint(names)
}

// tolerationsAreMerged puts the toleration that is there into strategic merge patches of others.
var tolerationsAreMerged = world.New("the server merges tolerations as well (the request is rewritten)",
	func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Format == "strategic merge patch" }, Note: "merged",
			Request: func(_ *http.Request, body []byte) []byte {
				return bytes.Replace(body, []byte(`"tolerations":[`), []byte(`"tolerations":[{"key":"c"},`), 1)
			},
		})
	})

func TestCF7d_ANullTokenIsNoToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF7d", From: "+",
		Says: "a merge patch that sets resourceVersion to null takes the token away: a ConfigMap is patched unchecked, a " +
			"custom resource refused with 422",
		Why:     "a client-side apply sends that null when a resourceVersion was once saved in a manifest and later removed",
		Do:      "Keep resourceVersion out of manifests.",
		FalseIf: world.NullMeansTheNewest.Shows(`an overtaken patch of a ConfigMap with null was refused: 409`),
		AlsoFalseIf: []world.World{
			world.EtcdIgnoresTheCompareOf("pinned").Shows(`a ConfigMap with the current one was accepted`),
			world.NullsAreDropped.Shows(`a patch with null of a Shelf was accepted`),
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
