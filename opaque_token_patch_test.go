// Chapter 4, continued: patches, and replaces from a partial view.
package modrev

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/world"
)

func TestOT8_AReplaceFromAPartialViewDropsWhatItDoesNotKnow(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT8", From: "D2 paragraph 3",
		Says: "a replace of the whole object, made from a partial view, drops what the view lacks, although its token is " +
			"current",
		Why: "the token says which version you read, not how much of it you kept: an older type loses everybody's " +
			"newer fields",
		Do:      "Replace only what you read in full; otherwise patch your fields.",
		FalseIf: world.AProxyMergesReplaces.Shows(`size=3 is stored`),
		AlsoFalseIf: []world.World{
			world.ClientKnowsNoSize.Shows(`size is not stored`),
			world.APatchIsAState.Shows(`size is not stored`),
		},
		Read: source.Decl("k8s.io/apimachinery/pkg/runtime", "DefaultUnstructuredConverter"),
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		table := l.Table("the writer", "answer", "stored then")
		row := func(writer string, err error) {
			table.Row(writer, lab.AnswerLine(err), lab.Fields(shelves.Peek("shelf"), "color", "size"))
		}
		shelf := shelves.Create("shelf", "color=red", "size=3")

		_, err := shelves.TryReplace(shelves.Get("shelf"), "color=green")
		row("replaces all it has read, color=green", err)
		l.Stored(shelf, "color=green", "size=3")

		_, err = shelves.TrySet("shelf", "color=white")
		row("patches the one field it means, color=white", err)
		l.Stored(shelf, "color=white", "size=3")

		convert := runtime.DefaultUnstructuredConverter
		var view oldShelf
		err = convert.FromUnstructured(shelves.Get("shelf").Object, &view)
		require.NoError(l, err, "reading the shelf as an oldShelf")
		view.Spec.Color = "black"
		content, err := convert.ToUnstructured(&view)
		require.NoError(l, err, "making an object of it again")
		_, err = shelves.TryReplace(&lab.Object{Object: content})
		row("replaces its partial view, with the current token, color=black", err)
		table.End()
		l.Accepted(err, "the replace from a partial view")
		l.Stored(shelf, "color=black", "-size")
	})
}

// oldShelf is the type of a client that was built before anybody thought of size.
type oldShelf struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Color string `json:"color"`
	} `json:"spec"`
}

func TestOT8b_ADiffIsMineOnlyAgainstTheCopyThatIRead(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT8b", From: "D2 paragraph 3",
		Says: "a computed patch is your change alone if you diff against the copy that you read; against a fresh " +
			"one it undoes others",
		Why:     "to the diff, a field that your old copy lacks is a field that you removed",
		Do:      "Diff against the copy that you changed, not against a fresh one.",
		FalseIf: world.NullsAreDropped.Shows(`size=3 is stored`),
		AlsoFalseIf: []world.World{
			world.APatchIsAState.Shows(`size is not stored`),
			world.ClientDropsTheToken.Shows(`the patch that is a difference to a fresh reading was accepted`),
		},
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/client", "MergeFrom"),
		Answers: "#17",
	}, func(l *lab.Lab) {
		api := l.Controller()
		read := func() *corev1.ConfigMap {
			shelf := readConfigMap(l, api, "shelf")
			shelf.ManagedFields = nil // for a patch that can be read
			return shelf
		}
		table := l.Table("my copy against", "makes the patch", "answer", "size then")
		patch := func(what string, base, mine *corev1.ConfigMap) error {
			patch := client.MergeFrom(base)
			body, err := patch.Data(mine)
			require.NoError(l, err, "computing the patch")
			err = api.Patch(l.Context(), mine.DeepCopy(), patch)
			table.Row(what, leaves(l, body), lab.AnswerLine(err), lab.Fields(l.Peek("shelf"), "size"))
			l.Equal("whether the patch against "+what+" carries a token",
				strings.Contains(string(body), "resourceVersion"), base.ResourceVersion != mine.ResourceVersion)
			return err
		}
		shelf := l.Rival().Create("shelf", "color=red")
		base := read()
		mine := base.DeepCopy()
		l.Rival().Set("shelf", "size=3")

		mine.Data["color"] = "green"
		l.Accepted(patch("what I read", base, mine), "the patch")
		l.Stored(shelf, "color=green", "size=3")

		mine.Data["color"] = "white"
		err := patch("a fresh reading", read(), mine)
		l.Refused(err, "the patch that is a difference to a fresh reading", lab.Stale(shelf))

		base = read()
		mine.ResourceVersion = base.ResourceVersion
		l.Accepted(patch("that, my token renewed", base, mine), "the patch with a renewed token")
		table.End()
		l.Stored(shelf, "color=white", "-size")
		l.Say("What differs between the copies is in the diff, the token like any other field. In the second patch the " +
			"tokens differ, so my old one goes out as a precondition and is refused. Renew it, and the patch carries " +
			"none: nothing is checked any more.")
	})
}

// leaves is a patch in the form of a JSON object as a table shows it: its fields by their last names, in alphabetical
// order: "color=green, size=null".
func leaves(l *lab.Lab, patch []byte) string {
	var fields []string
	var walk func(o map[string]any)
	walk = func(o map[string]any) {
		for name, v := range o {
			switch v := v.(type) {
			case map[string]any:
				walk(v)
			case nil:
				fields = append(fields, name+"=null")
			default:
				fields = append(fields, fmt.Sprintf("%s=%v", name, v))
			}
		}
	}
	var o map[string]any
	require.NoError(l, json.Unmarshal(patch, &o), "reading the patch")
	walk(o)
	slices.Sort(fields)
	return strings.Join(fields, ", ")
}

func TestOT9_AnUnconditionalPatchOfASharedListLosesAnEntry(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT9", From: "D2 paragraph 3",
		Says: "unconditional merge patches of a shared list lose entries: two actors each add a condition, both get " +
			"200, one condition is left",
		Why:     "a merge patch replaces a list whole: that patches do not conflict means that nobody notices the loss",
		Do:      "Patch a shared list with the token, or apply it where its items have keys.",
		FalseIf: world.APatchMergesConditions.Shows(`without a token is Painted, Filled`),
		AlsoFalseIf: []world.World{
			world.PatchesAreSentAs("deployments", "apply", "merge patch", types.MergePatchType).
				Shows(`after two applies is Filled`),
			world.EveryPatchCarriesAToken.Shows(`bob's patch without a token was refused: 409 Conflict`),
			world.ClientDropsTheToken.Shows(`bob's patch with a token was accepted`),
		},
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/client", "MergeFromWithOptimisticLock"),
		Answers: "#15",
	}, func(l *lab.Lab) {
		kind := l.CustomResource("status")
		locked := client.MergeFromWithOptimisticLock{}
		table := l.Table("two actors report a condition; both have read none", "ann", "bob", "stored then")
		stored := func() string { return conditions(l.Of(kind).Peek("shelf")) }

		l.Of(kind).Create("shelf")
		ann, bob := newReporter(l, "ann", kind), newReporter(l, "bob", kind)
		anns, bobs := ann.report("Painted"), bob.report("Filled")
		table.Row("client.MergeFrom", lab.AnswerLine(anns), lab.AnswerLine(bobs), stored())
		l.Accepted(anns, "ann's patch without a token")
		l.Accepted(bobs, "bob's patch without a token")
		l.Equal("what is stored after two patches without a token", stored(), "Filled")

		l.Of(kind).Recreate("shelf")
		ann, bob = newReporter(l, "ann", kind), newReporter(l, "bob", kind)
		anns, bobs = ann.report("Painted", locked), bob.report("Filled", locked)
		table.Row("client.MergeFromWithOptimisticLock", lab.AnswerLine(anns), lab.AnswerLine(bobs), stored())
		l.Accepted(anns, "ann's patch with a token")
		l.Refused(bobs, "bob's patch with a token", lab.Stale(bob.read))
		bob = newReporter(l, "bob", kind)
		bobs = bob.report("Filled", locked)
		table.Row("… and bob reads again", "", lab.AnswerLine(bobs), stored())
		table.End()
		l.Accepted(bobs, "bob's patch after he has read again")
		l.Equal("what is stored after that", stored(), "Painted, Filled")

		l.Of(lab.Deployment).Create("shelf", "replicas=1")
		l.Accepted(applyCondition(l, "ann", "Painted"), "ann's apply")
		l.Accepted(applyCondition(l, "bob", "Filled"), "bob's apply")
		both := conditions(l.Of(lab.Deployment).Peek("shelf"))
		l.Say("Server-side apply merges such a list by the type of the condition where the kind says that its items "+
			"have a key (listType=map): to a Deployment ann and bob each apply their condition, without a token, and "+
			"stored then: %s. A custom resource has to say so in its schema (OT38).", both)
		l.Equal("what is stored of a Deployment after two applies", both, "Painted, Filled")
	})
}

// reporter is an actor who has read a shelf and reports conditions in its status.
type reporter struct {
	l    *lab.Lab
	api  client.Client
	read *lab.Object
}

func newReporter(l *lab.Lab, who string, kind lab.Kind) reporter {
	r := reporter{l: l, api: l.As(who).Controller(kind), read: l.Of(kind).New("shelf")}
	require.NoError(l, r.api.Get(l.Context(), client.ObjectKeyFromObject(r.read), r.read), who+"'s reading")
	return r
}

// report sends a patch that is the difference between what was read and the same with one condition more.
func (r reporter) report(condition string, options ...client.MergeFromOption) error {
	changed := r.read.DeepCopy()
	list, _, err := unstructured.NestedSlice(changed.Object, "status", "conditions")
	require.NoError(r.l, err, "reading the conditions")
	list = append(list, map[string]any{"type": condition, "status": "True"})
	require.NoError(r.l, unstructured.SetNestedSlice(changed.Object, list, "status", "conditions"), "adding one")
	return r.api.Status().Patch(r.l.Context(), changed, client.MergeFromWithOptions(r.read, options...))
}

// conditions are the types of the conditions of an object, in order.
func conditions(o *lab.Object) string {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	var types []string
	for _, c := range list {
		types = append(types, fmt.Sprint(c.(map[string]any)["type"]))
	}
	return strings.Join(types, ", ")
}

// applyCondition applies one condition to the status of a Deployment.
func applyCondition(l *lab.Lab, who, condition string) error {
	status := applyapps.DeploymentStatus().WithConditions(applyapps.DeploymentCondition().
		WithType(appsv1.DeploymentConditionType(condition)).WithStatus(corev1.ConditionTrue))
	_, err := l.As(who).Typed().AppsV1().Deployments(l.Namespace).ApplyStatus(l.Context(),
		applyapps.Deployment("shelf", l.Namespace).WithStatus(status), metav1.ApplyOptions{FieldManager: who})
	return err
}

func TestOT9b_ALostFinalizerLetsTheObjectGoTooEarly(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT9b", From: "D2 paragraph 3; +",
		Says: "a finalizer that is added with an unconditional merge patch removes the finalizer that another actor " +
			"has added since",
		Why: "a finalizer is a promise that the object waits: the object is gone before the first actor has cleaned up",
		Do:  "Add and remove finalizers with a patch that carries the token.",
		FalseIf: world.PatchesAreSentAs("configmaps", "merge patch", "strategic merge patch", types.StrategicMergePatchType).
			Shows(`that two merge patches leave is 2`),
		AlsoFalseIf: []world.World{
			world.EveryPatchCarriesAToken.Shows(`bob's client.MergeFrom was refused: 409 Conflict`),
			world.ClientDropsTheToken.Shows(`bob's patch with the lock was accepted`),
			world.EveryPatchIsAMergePatch.Shows(`that two strategic merge patches leave is 1`),
			world.NullsAreDropped.Shows(`a get of the object was accepted`),
		},
		Read: source.Decl("sigs.k8s.io/controller-runtime/pkg/controller/controllerutil", "AddFinalizer"),
	}, func(l *lab.Lab) {
		table := l.Table("ann and bob add a finalizer with", "ann", "bob", "finalizers then")
		// finalize has both add a finalizer to the same version of a new object; ann is the first.
		finalize := func(with, name string, patch func(read client.Object) client.Patch) error {
			l.Create(name)
			annsCopy := readConfigMap(l, l.As("ann").Controller(), name)
			bobsCopy := readConfigMap(l, l.As("bob").Controller(), name)
			anns := addFinalizer(l, "ann", annsCopy, patch)
			bobs := addFinalizer(l, "bob", bobsCopy, patch)
			finalizers := strings.Join(l.Peek(name).GetFinalizers(), ", ")
			table.Row(with, lab.AnswerLine(anns), lab.AnswerLine(bobs), strings.ReplaceAll(finalizers, cleanup, ""))
			l.Accepted(anns, "ann's "+with)
			return bobs
		}

		err := finalize("client.MergeFrom", "careless", client.MergeFrom)
		l.Accepted(err, "bob's client.MergeFrom")
		err = finalize("the same, with the lock", "locked", func(read client.Object) client.Patch {
			return client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
		})
		l.Refused(err, "bob's patch with the lock", lab.Stale(l.Peek("locked")))
		err = finalize("client.StrategicMergeFrom", "strategic", func(read client.Object) client.Patch {
			return client.StrategicMergeFrom(read)
		})
		l.Accepted(err, "bob's strategic merge patch")
		table.End()
		l.Equal("the number of finalizers that two merge patches leave", len(l.Peek("careless").GetFinalizers()), 1)
		l.Equal("the number of finalizers that two strategic merge patches leave",
			len(l.Peek("strategic").GetFinalizers()), 2)

		l.Delete("careless")
		l.As("bob").Patch("careless", types.MergePatchType, `{"metadata":{"finalizers":null}}`)
		_, err = l.TryGet("careless")
		l.Say("Deleted, and bob has taken his finalizer away: the first object is %s, and ann never got to clean up. "+
			"The strategic merge patch keeps both without a token, but custom resources do not have it.",
			lab.AnswerLine(err))
		l.Refused(err, "a get of the object", lab.Refusal{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
	})
}

// cleanup is the end of the finalizers of all actors.
const cleanup = ".modrev.example/cleanup"

// addFinalizer adds an actor's finalizer to a copy that was read, and sends the patch that is made from both.
func addFinalizer(l *lab.Lab, who string, read *corev1.ConfigMap, patch func(client.Object) client.Patch) error {
	changed := read.DeepCopy()
	controllerutil.AddFinalizer(changed, who+cleanup)
	return l.As(who).Controller().Patch(l.Context(), changed, patch(read))
}

func TestOT29_TwoPatchesFromOneCopyLeaveWhatNobodyWanted(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT29", From: "D2 paragraph 3; +",
		Says: "a patch is a change and not a state: two from one copy leave a mixture of fields that neither of them " +
			"meant to have",
		Why: "the last patch wins field by field: on one field the first is lost, with 200 for both; client-side " +
			"apply is such a patch",
		Do:      "If you need the state as a whole, replace it with the token.",
		FalseIf: world.APatchIsAState.Shows(`size is not stored`),
		AlsoFalseIf: []world.World{
			world.EveryPatchCarriesAToken.Shows(`bob's patch was refused: 409 Conflict`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "(*jsonPatcher).applyPatchToCurrentObject"),
		Answers: "#15 #73",
	}, func(l *lab.Lab) {
		table := l.Table("who", "had read", "wants", "so patches", "answer", "stored then")
		patch := func(who, wants string, read *lab.Object, body []byte) {
			_, err := l.As(who).TryPatch(read.GetName(), types.MergePatchType, string(body))
			table.Row(who, lab.Fields(read, "color", "size"), wants, leaves(l, body), lab.AnswerLine(err),
				lab.Fields(l.Peek(read.GetName()), "color", "size"))
			l.Accepted(err, who+"'s patch")
		}
		// read has both read a new object before either writes.
		read := func(name string) (anns, bobs *lab.Object) {
			l.Create(name, "color=red")
			return l.As("ann").Get(name), l.As("bob").Get(name)
		}

		anns, bobs := read("fields")
		patch("ann", "size=3 alone", anns, []byte(`{"data":{"color":null,"size":"3"}}`))
		patch("bob", "color=blue alone", bobs, []byte(`{"data":{"color":"blue"}}`))
		l.Stored(bobs, "color=blue", "size=3")

		anns, bobs = read("one-field")
		patch("ann", "color=green", anns, []byte(`{"data":{"color":"green"}}`))
		patch("bob", "color=blue", bobs, []byte(`{"data":{"color":"blue"}}`))
		l.Stored(bobs, "color=blue")

		anns, bobs = read("manifests")
		patch("ann", "manifest: size=3", anns, clientSideApply(l, anns, "size=3"))
		patch("bob", "manifest: color=blue", bobs, clientSideApply(l, bobs, "color=blue"))
		table.End()
		l.Stored(bobs, "color=blue", "size=3")
		l.Say("The last two rows are kubectl apply without --server-side: a diff between the manifest that was applied " +
			"last, the new one and the copy that was read. Each of the two manifests has one field.")
	})
}

// clientSideApply is the patch that kubectl apply computes for a manifest, from what it applied last and what it has
// read: here both are the same object.
func clientSideApply(l *lab.Lab, read *lab.Object, manifest string) []byte {
	last, err := json.Marshal(map[string]any{"data": read.Object["data"]})
	require.NoError(l, err, "encoding what was applied last")
	wanted, err := json.Marshal(map[string]any{"data": l.New("manifest", manifest).Object["data"]})
	require.NoError(l, err, "encoding the manifest")
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(last, wanted, last)
	require.NoError(l, err, "computing the patch")
	return patch
}
