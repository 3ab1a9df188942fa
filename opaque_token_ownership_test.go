// Chapter 4, continued: patches, and who owns a field.
package modrev

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT8_AReplaceFromAPartialViewDropsWhatItDoesNotKnow(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT8", From: "D2 paragraph 3",
		Says: "a read-modify-write that sends back all it has read keeps what others own; a replace of the whole object " +
			"made from a partial view drops it, although its token is current",
		Why: "the token says which version was read and not how much of it was kept: a client built with an older type " +
			"loses the newer fields of everybody else",
		FalseIf: world.AProxyMergesReplaces.Shows(`size=3 is stored`),
		AlsoFalseIf: []world.World{
			world.ClientKnowsNoSize.Shows(`size is not stored`),
			world.APatchIsAState.Shows(`size is not stored`),
		},
		Read: source.Decl("k8s.io/apimachinery/pkg/runtime", "DefaultUnstructuredConverter"),
	}, func(l *lab.Lab) {
		// oldShelf is the type of a client that was built before anybody thought of size.
		type oldShelf struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Spec              struct {
				Color string `json:"color"`
			} `json:"spec"`
		}
		shelves := l.Of(l.CustomResource())
		convert := runtime.DefaultUnstructuredConverter
		table := l.Table("the writer", "answer", "stored then")
		row := func(writer string, err error) {
			table.Row(writer, lab.AnswerLine(err), lab.Fields(shelves.Peek("shelf"), "color", "size"))
		}
		shelves.Create("shelf", "color=red", "size=3")

		_, err := shelves.TryReplace(shelves.Get("shelf"), "color=green")
		row("replaces all it has read, color=green", err)
		l.Stored(shelves.Peek("shelf"), "color=green", "size=3")

		_, err = shelves.TrySet("shelf", "color=white")
		row("patches the one field it means, color=white", err)
		l.Stored(shelves.Peek("shelf"), "color=white", "size=3")

		var view oldShelf
		l.Step(convert.FromUnstructured(shelves.Get("shelf").Object, &view), "reading the shelf as an oldShelf")
		view.Spec.Color = "black"
		content, err := convert.ToUnstructured(&view)
		l.Step(err, "making an object of it again")
		replaced, err := shelves.TryReplace(&lab.Object{Object: content})
		row("replaces its partial view, with the current token, color=black", err)
		table.End()
		l.Accepted(err, "the replace from a partial view")
		l.Stored(replaced, "color=black", "-size")
	})
}

func TestOT8b_ADiffIsMineOnlyAgainstTheCopyThatIRead(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT8b", From: "D2 paragraph 3",
		Says: "a patch that a library computes holds only my change if it is the difference to the copy that I read; taken " +
			"against a fresh reading, it takes back what others did meanwhile",
		Why:     "to the diff, a field that my old copy lacks is a field that I removed",
		FalseIf: world.NullsAreDropped.Shows(`size=3 is stored`),
		AlsoFalseIf: []world.World{
			world.APatchIsAState.Shows(`size is not stored`),
			world.ClientDropsTheToken.Shows(`the patch that is a difference to a fresh reading was accepted`),
		},
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/client", "MergeFrom"),
		Answers: "#17",
	}, func(l *lab.Lab) {
		api := l.Controller()
		get := func() *corev1.ConfigMap {
			shelf := l.ReadConfigMap(api, "shelf")
			shelf.ManagedFields = nil // for a patch that can be read
			return shelf
		}
		l.Rival().Create("shelf", "color=red")
		read := get()
		l.Rival().Set("shelf", "size=3")
		mine := read.DeepCopy()
		table := l.Table("my copy against", "makes the patch", "answer", "size then")
		patch := func(base string, from *corev1.ConfigMap) error {
			patch := client.MergeFrom(from)
			body, err := patch.Data(mine)
			l.Step(err, "computing the patch")
			err = api.Patch(l.Context(), mine.DeepCopy(), patch)
			table.Row(base, lab.Leaves(body), lab.AnswerLine(err), lab.Fields(l.Peek("shelf"), "size"))
			return err
		}

		mine.Data["color"] = "green"
		l.Accepted(patch("what I read", read), "the patch")
		l.Stored(l.Peek("shelf"), "color=green", "size=3")

		mine.Data["color"] = "white"
		l.Refused(patch("a fresh reading", get()), "the patch that is a difference to a fresh reading", lab.Stale(l.Peek("shelf")))
		fresh := get()
		mine.ResourceVersion = fresh.ResourceVersion
		l.Accepted(patch("that, my token renewed", fresh), "the patch with a renewed token")
		table.End()
		l.Stored(l.Peek("shelf"), "color=white", "-size")
		l.Say("What is equal in both copies is not in the diff, and what differs is. So it is with the tokens: in the first and " +
			"the third patch both copies had the same one, so the patch carries none, and nothing is checked; in the second they " +
			"differed, so mine is in it, as a precondition. It was by luck that the second was refused.")
	})
}

func TestOT9_AnUnconditionalPatchOfASharedListLosesAnEntry(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT9", From: "D2 paragraph 3",
		Says: "an unconditional patch of a shared field loses an update without a word: two actors each add a condition to " +
			"one list, both are answered with 200, and one of the conditions is gone",
		Why: "a merge patch replaces a list whole; what looks like \"patches do not conflict\" is that nobody notices any " +
			"more that they should have",
		FalseIf: world.EveryPatchCarriesAToken.Shows(`bob's patch without a token was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.PatchesAreSentAs("deployments", "apply", "merge patch", types.MergePatchType).Shows(`stored: \[Filled\]`),
			world.APatchMergesConditions.Shows(`stored: Painted, Filled`),
			world.ClientDropsTheToken.Shows(`bob's patch with a token was accepted`),
		},
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/client", "MergeFromWithOptimisticLock"),
		Answers: "#15",
	}, func(l *lab.Lab) {
		kind := l.CustomResource("status")
		type actor struct {
			api  client.Client
			read *lab.Object
		}
		read := func(who string) *actor {
			a := &actor{api: l.As(who).Controller(kind), read: l.Of(kind).New("shelf")}
			l.Step(a.api.Get(l.Context(), client.ObjectKeyFromObject(a.read), a.read), who+"'s reading")
			return a
		}
		report := func(a *actor, condition string, options ...client.MergeFromOption) error {
			return a.api.Status().Patch(l.Context(), lab.WithCondition(a.read, condition), client.MergeFromWithOptions(a.read, options...))
		}
		locked := client.MergeFromWithOptimisticLock{}
		table := l.Table("two actors report a condition; both have read none", "ann", "bob", "stored then")
		conditions := func() string { return strings.Join(lab.Conditions(l.Of(kind).Peek("shelf")), ", ") }

		l.Of(kind).Create("shelf")
		ann, bob := read("ann"), read("bob")
		anns, bobs := report(ann, "Painted"), report(bob, "Filled")
		table.Row("client.MergeFrom", lab.AnswerLine(anns), lab.AnswerLine(bobs), conditions())
		l.Accepted(anns, "ann's patch without a token")
		l.Accepted(bobs, "bob's patch without a token")
		l.Expect(conditions() == "Filled", "only bob's condition is stored", "stored: %s", conditions())

		l.Of(kind).Recreate("shelf")
		ann, bob = read("ann"), read("bob")
		anns, bobs = report(ann, "Painted", locked), report(bob, "Filled", locked)
		table.Row("client.MergeFromWithOptimisticLock", lab.AnswerLine(anns), lab.AnswerLine(bobs), conditions())
		l.Accepted(anns, "ann's patch with a token")
		l.Refused(bobs, "bob's patch with a token", lab.Stale(bob.read))
		l.Accepted(report(read("bob"), "Filled", locked), "bob's patch after he has read again")
		table.Row("… and bob reads again", "", "200", conditions())
		table.End()
		l.Expect(conditions() == "Painted, Filled", "both conditions are stored", "stored: %s", conditions())

		l.Of(lab.Deployment).Create("shelf", "replicas=1")
		applied := func(who, condition string) {
			_, err := l.As(who).Typed().AppsV1().Deployments(l.Namespace).ApplyStatus(l.Context(),
				lab.ShelfCondition(l.Namespace, condition), metav1.ApplyOptions{FieldManager: who})
			l.Accepted(err, who+"'s apply")
		}
		applied("ann", "Painted")
		applied("bob", "Filled")
		both := lab.Conditions(l.Of(lab.Deployment).Peek("shelf"))
		l.Say("Server-side apply merges such a list by the type of the condition where the kind says that its items have a "+
			"key (listType=map): to a Deployment ann and bob each apply their condition, without a token, and stored then: %s.", strings.Join(both, ", "))
		l.Expect(slices.Equal(both, []string{"Painted", "Filled"}), "two applies leave both conditions of a Deployment", "stored: %v", both)
	})
}

func TestOT9b_ALostFinalizerLetsTheObjectGoTooEarly(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT9b", From: "D2 paragraph 3; +",
		Says: "finalizers are a list that actors share: added with an unconditional merge patch, the second takes out the " +
			"first, and the object is gone before the first actor has cleaned up",
		Why:     "a finalizer is a promise that the object waits; whoever adds one needs the token, or a patch that merges lists",
		FalseIf: world.EveryPatchCarriesAToken.Shows(`bob's client.MergeFrom was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`bob's patch with the lock was accepted`),
			world.EveryPatchIsAMergePatch.Shows(`they leave \[bob\S+\] and \[bob\S+\]`),
			world.NullsAreDropped.Shows(`a get of the object was accepted`),
		},
		Read: source.Decl("sigs.k8s.io/controller-runtime/pkg/controller/controllerutil", "AddFinalizer"),
	}, func(l *lab.Lab) {
		table := l.Table("ann and bob add a finalizer with", "ann", "bob", "finalizers then")
		finalize := func(with, name string, from func(read client.Object) client.Patch) error {
			l.Create(name)
			read := map[string]*corev1.ConfigMap{}
			for _, who := range []string{"ann", "bob"} {
				read[who] = l.ReadConfigMap(l.As(who).Controller(), name)
			}
			add := func(who string) error {
				changed := read[who].DeepCopy()
				controllerutil.AddFinalizer(changed, who+".modrev.example/cleanup")
				return l.As(who).Controller().Patch(l.Context(), changed, from(read[who]))
			}
			anns, bobs := add("ann"), add("bob")
			table.Row(with, lab.AnswerLine(anns), lab.AnswerLine(bobs),
				strings.ReplaceAll(strings.Join(l.Peek(name).GetFinalizers(), ", "), ".modrev.example/cleanup", ""))
			l.Accepted(anns, "ann's "+with)
			return bobs
		}
		err := finalize("client.MergeFrom", "careless", func(read client.Object) client.Patch { return client.MergeFrom(read) })
		l.Accepted(err, "bob's client.MergeFrom")
		err = finalize("the same, with the lock", "locked", func(read client.Object) client.Patch {
			return client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
		})
		l.Refused(err, "bob's patch with the lock", lab.Stale(l.Peek("locked")))
		err = finalize("client.StrategicMergeFrom", "strategic", func(read client.Object) client.Patch { return client.StrategicMergeFrom(read) })
		l.Accepted(err, "bob's strategic merge patch")
		table.End()
		l.Expect(len(l.Peek("careless").GetFinalizers()) == 1 && len(l.Peek("strategic").GetFinalizers()) == 2,
			"a merge patch leaves one finalizer, a strategic merge patch both", "they leave %v and %v",
			l.Peek("careless").GetFinalizers(), l.Peek("strategic").GetFinalizers())

		l.Delete("careless")
		l.As("bob").Patch("careless", types.MergePatchType, `{"metadata":{"finalizers":null}}`)
		_, err = l.TryGet("careless")
		l.Say("Deleted, and bob has taken his finalizer away: the first object is %s, and ann never got to clean up. The "+
			"strategic merge patch keeps both without a token, but custom resources do not have it.", lab.AnswerLine(err))
		l.Refused(err, "a get of the object", lab.Refusal{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
	})
}

func TestOT29_TwoPatchesFromOneCopyLeaveWhatNobodyWanted(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT29", From: "D2 paragraph 3; +",
		Says: "a patch is a change and not a state: two that were made from the same copy leave a union of both, " +
			"and not what the last of the two meant to have",
		Why: "\"the last one wins\" holds field by field only; who needs his whole state needs the token, or a manager " +
			"who applies all of it",
		FalseIf:     world.EveryPatchCarriesAToken.Shows(`the second patch was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{world.APatchIsAState.Shows(`size is not stored`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "(*jsonPatcher).applyPatchToCurrentObject"),
		Answers:     "#73",
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red")
		table := l.Table("who", "had read", "wants", "so patches", "stored then")
		ann, bob := l.As("ann"), l.As("bob")
		anns, bobs := ann.Get("shelf"), bob.Get("shelf")
		patch := func(who string, c *lab.Client, read *lab.Object, wants, body string) error {
			_, err := c.TryPatch("shelf", types.MergePatchType, body)
			table.Row(who, lab.Fields(read, "color", "size"), wants, lab.Leaves([]byte(body)), lab.Fields(l.Peek("shelf"), "color", "size"))
			return err
		}
		first := patch("ann", ann, anns, "size=3 alone", `{"data":{"color":null,"size":"3"}}`)
		second := patch("bob", bob, bobs, "color=blue alone", `{"data":{"color":"blue"}}`)
		table.End()
		l.Accepted(first, "the first patch")
		l.Accepted(second, "the second patch")
		l.Stored(l.Peek("shelf"), "color=blue", "size=3")
	})
}

func TestOT10_ApplyKnowsWhoOwnsAFieldAndRetryingDoesNotChangeThat(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT10", From: "D2 paragraph 3",
		Says: "server-side apply is another mechanism, ownership by field: two managers of different fields never conflict; " +
			"on the same field with another value they do, with 409 and the cause FieldManagerConflict, and no retry helps",
		Why: "a stale token goes away by reading again, an owner does not: the two faces of 409 need different next steps, " +
			"and the causes tell them apart",
		FalseIf:     world.EveryApplyIsForced.Shows(`bob's apply of ann's fields was accepted`),
		AlsoFalseIf: []world.World{world.RefusalsLoseTheirCauses.Shows(`the causes are \[\]`)},
		Read:        source.Decl("k8s.io/apimachinery/pkg/util/managedfields/internal", "NewConflictError"),
		Answers:     "#22",
	}, func(l *lab.Lab) {
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		apply := func(manager string, data map[string]string) error {
			_, err := configMaps.Apply(l.Context(), applycore.ConfigMap("shelf", l.Namespace).WithData(data),
				metav1.ApplyOptions{FieldManager: manager})
			return err
		}
		l.Accepted(apply("ann", map[string]string{"color": "red", "size": "3"}), "ann's apply")
		l.Accepted(apply("bob", map[string]string{"place": "hall"}), "bob's apply of a field of his own")
		before := l.KV(l.Peek("shelf")).Version

		attempts := 0
		var err error
		sent := l.Record(func() {
			err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
				attempts++
				return apply("bob", map[string]string{"place": "hall", "color": "blue", "size": "4"})
			})
		})
		for _, owner := range l.Owners(l.Peek("shelf")) {
			l.Say("%s", owner)
		}
		l.Say("bob applies place=hall, color=blue, size=4, in retry.RetryOnConflict:")
		l.Say("%d times: %s", attempts, l.Describe(err))
		for _, cause := range lab.Causes(err) {
			l.Say("cause %s: %s, field %s", cause.Type, cause.Message, cause.Field)
		}
		l.Say("Nothing was written. The details name no object, which those of a stale token do. bob can leave the two fields to " +
			"ann (OT12), or take them over with force, once and by decision (OT11).")

		l.Refused(err, "bob's apply of ann's fields", lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict})
		l.Expect(apierrors.ReasonForError(err) == metav1.StatusReasonConflict && len(lab.Causes(err)) == 2 &&
			lab.HasCause(err, metav1.CauseTypeFieldManagerConflict), "two causes FieldManagerConflict", "the causes are %v", lab.Causes(err))
		const text = "Apply failed with 2 conflicts: conflicts with \"ann\":\n- .data.color\n- .data.size"
		l.Expect(err.Error() == text, "the refusal says: "+text, "it says: %s", err)
		details := lab.DetailsOf(err)
		l.Expect(details.Name == "" && details.Kind == "", "the details name no object, unlike those of a stale token", "they name %s %s", details.Kind, details.Name)
		l.Expect(attempts == 5 && sent.Count(wire.Txn) == 0 && l.KV(l.Peek("shelf")).Version == before, "five attempts, and nothing is written",
			"%d attempts, to etcd: %s", attempts, sent.Summary())
	})
}

func TestOT10b_OwnersAreToldApartByManagerAndOperation(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT10b", From: "D2 paragraph 3; +",
		Says: "an owner is a manager and an operation: what ann created by POST, ann owns by Update; ann's own apply " +
			"conflicts with that, and leaving a field out of it does not remove the field",
		Why: "a tool that moves from create or patch to apply under its old name is two owners until its old entry is moved " +
			"over (csaupgrade in client-go)",
		FalseIf: world.CreatesAreApplies.Shows(`size is not stored`),
		AlsoFalseIf: []world.World{
			world.EveryApplyIsForced.Shows(`ann's apply of another value was accepted`),
			world.RefusalsLoseTheirCauses.Shows(`it is: Apply failed with 1 conflict`),
			world.OwnersAreNotSent.Shows(`ann's apply after the upgrade was refused: 409 Conflict`),
		},
		Read:    source.Decl("k8s.io/client-go/util/csaupgrade", "UpgradeManagedFields"),
		Answers: "#50 #51",
	}, func(l *lab.Lab) {
		configMaps := l.As("ann").Typed().CoreV1().ConfigMaps(l.Namespace)
		table := l.Table("ann", "answer", "stored then", "owners then")
		step := func(what string, err error) error {
			answer, now := l.Answered(), l.Peek("shelf")
			for i, owner := range l.Owners(now) {
				if i == 0 {
					table.Row(what, answer, lab.Fields(now, "color", "size"), owner)
				} else {
					table.Row("", "", "", owner)
				}
			}
			return err
		}
		apply := func(color string) error {
			_, err := configMaps.Apply(l.Context(), applycore.ConfigMap("shelf", l.Namespace).
				WithData(map[string]string{"color": color}), metav1.ApplyOptions{FieldManager: "ann"})
			return err
		}
		_, err := configMaps.Create(l.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "shelf"}, Data: map[string]string{"color": "red", "size": "3"},
		}, metav1.CreateOptions{FieldManager: "ann"})
		l.Step(step("creates color=red, size=3", err), "ann's create")

		l.Accepted(step("applies color=red, without size", apply("red")), "ann's apply of the value that is there")
		l.Stored(l.Peek("shelf"), "size=3")
		conflict := step("applies color=blue", apply("blue"))
		l.Refused(conflict, "ann's apply of another value", lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict})
		l.Expect(lab.HasCause(conflict, metav1.CauseTypeFieldManagerConflict) && strings.Contains(conflict.Error(), `conflict with "ann" using v1`),
			`the conflict is with "ann"`, "it is: %s", conflict)

		shelf, err := configMaps.Get(l.Context(), "shelf", metav1.GetOptions{})
		l.Step(err, "reading the shelf")
		l.Step(csaupgrade.UpgradeManagedFields(shelf, sets.New("ann"), "ann"), "moving ann's Update entry over to Apply")
		_, err = configMaps.Update(l.Context(), shelf, metav1.UpdateOptions{FieldManager: "ann"})
		l.Step(step("csaupgrade.UpgradeManagedFields", err), "storing the new owners")
		l.Accepted(step("applies color=blue, without size", apply("blue")), "ann's apply after the upgrade")
		table.End()
		l.Stored(l.Peek("shelf"), "color=blue", "-size")
		l.Say("The refusal: %s", conflict)
	})
}

func TestOT10c_AStaleTokenInAnApplyIsAStaleTokenAndForceDoesNotHelp(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT10c", From: "D2 paragraph 3",
		Says: "a resourceVersion in an applied object is a precondition like any other: while the object exists (OT25b), a stale one is refused with " +
			"the standard conflict and without a cause, forced or not; only a dispute about an owner, which force would settle, is " +
			"reported before it",
		Why:     "force settles who owns a field, the token whether the object is still the one that was read",
		FalseIf: world.ClientDropsTheToken.Shows(`the apply with a stale token was accepted`),
		AlsoFalseIf: []world.World{
			world.ForceOverridesTheToken.Shows(`the forced apply with a stale token was accepted`),
			world.RefusalsLoseTheirCauses.Shows(`the causes are \[\]`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
		Answers: "#21",
	}, func(l *lab.Lab) {
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		stale := l.Create("shelf", "color=red")
		current := l.Rival().Set("shelf", "size=3")
		table := l.Table("ann applies", "with token", "answer", "causes")
		apply := func(field, value, which, token string, force bool) error {
			shelf := applycore.ConfigMap("shelf", l.Namespace).WithData(map[string]string{field: value}).WithResourceVersion(token)
			_, err := configMaps.Apply(l.Context(), shelf, metav1.ApplyOptions{FieldManager: "ann", Force: force})
			what, causes := field+"="+value, "none"
			if force {
				what += ", forced"
			}
			for _, cause := range lab.Causes(err) {
				causes = string(cause.Type)
			}
			table.Row(what, which, lab.AnswerLine(err), causes)
			return err
		}
		old, now := stale.GetResourceVersion(), current.GetResourceVersion()
		l.Refused(apply("place", "hall", "stale", old, false), "the apply with a stale token", lab.Stale(stale))
		owner := apply("color", "green", "stale", old, false)
		l.Expect(lab.HasCause(owner, metav1.CauseTypeFieldManagerConflict), "who owns the field is asked before the token is looked at",
			"the causes are %v", lab.Causes(owner))
		l.Refused(apply("color", "green", "stale", old, true), "the forced apply with a stale token", lab.Stale(stale))
		l.Accepted(apply("color", "green", "current", now, true), "the forced apply with the current token")
		table.End()
		l.Stored(stale, "color=green", "size=3", "-place")
		l.Say("color was the writer's, place nobody's. Who owns the field is asked first, the token after that.")
	})
}

func TestOT30_AnApplyWithoutATokenLosesNoRace(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT30", From: "D2 paragraph 3; +",
		Says: "an apply without a token that is overtaken by another write is computed again by the server and accepted: " +
			"\"the object has been modified\", about the object itself, cannot come from it",
		Why: "who sees that text after an apply has sent a token with it, from a copy or out of a manifest; or it is about " +
			"another object, such as a quota (CF8d), and then details.kind says so",
		FalseIf:     world.EveryPatchCarriesAToken.Shows(`the overtaken apply was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{world.EtcdIgnoresTheCompare.Shows(`size is not stored`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers:     "#20",
	}, func(l *lab.Lab) {
		l.Rival().Create("shelf", "color=red")
		shelf := l.Get("shelf")
		var err error
		sent := l.Record(func() {
			err = l.Race(l.Key(shelf), func() error {
				_, err := l.TryApply("shelf", "ann", false, "place=hall")
				return err
			}, func() { l.Rival().Set("shelf", "size=3") })
		})
		l.Show("an apply of place=hall, held until a rival has patched size=3", sent)
		l.Accepted(err, "the overtaken apply")
		l.Stored(shelf, "color=red", "place=hall", "size=3")
		l.Expect(sent.Count(wire.Txn) == 3, "three transactions: the apply's, the rival's, the apply's second", "to etcd: %s", sent.Summary())
	})
}

func TestOT31_AnApplyThatRepeatsItselfWritesNothing(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT31", From: "D2 paragraph 3; +",
		Says: "an apply that repeats itself, and would store the same bytes, writes nothing, however long after: a new time in " +
			"managedFields alone is no reason to write",
		Why:     "a controller may apply all it wants in every reconcile; only what differs costs a write and wakes watchers",
		FalseIf: world.StoredInAnotherEncoding.Shows(`the apply, years later, cost etcd: 1 Range, 1 Txn`),
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager", "IgnoreManagedFieldsTimestampsTransformer"),
		Answers: "#54",
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		apply := func() *lab.Object {
			o, err := shelves.TryApply("shelf", "ann", false, "color=red")
			l.Step(err, "applying the shelf")
			return o
		}
		shelf := apply()
		// No waiting: the stored object is made to look as if it had been applied years ago.
		aged := l.BackdateManagedFields(shelf, "2020-01-01T00:00:00Z")
		var again *lab.Object
		sent := l.Record(func() { again = apply() })

		table := l.Table("step", "resourceVersion", "time in managedFields", "to etcd")
		table.Row("first applied, as if long ago", aged.GetResourceVersion(), aged.GetManagedFields()[0].Time.UTC().Format(time.DateOnly), "")
		table.Row("applied again", again.GetResourceVersion(), again.GetManagedFields()[0].Time.UTC().Format(time.DateOnly), sent.Summary())
		table.End()
		l.Sends(sent, "the apply, years later,", "1 Range")
		l.Expect(again.GetResourceVersion() == aged.GetResourceVersion(), "the resourceVersion stays", "it is %s, was %s",
			again.GetResourceVersion(), aged.GetResourceVersion())
	})
}

func TestOT11_ForceTakesOwnershipAndIsNoRetry(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT11", From: "D2 paragraph 3",
		Says: "force takes a field over: the other manager loses it, and his next apply conflicts; two actors who force " +
			"as their retry fight for ever, with a write each time",
		Why: "force answers \"who shall own this\", once and by decision; as an answer to every conflict it only makes the " +
			"fight silent",
		FalseIf: world.NoApplyIsForced.Shows(`bob's forced apply was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.EveryApplyIsForced.Shows(`it was answered no error`),
			world.TheFightIsOver.Shows(`there were 3 writes`),
			world.StoredInAnotherEncoding.Shows(`there were 9 writes`),
		},
		Read: source.Decl("sigs.k8s.io/structured-merge-diff/v6/merge", "(*Updater).Apply"),
	}, func(l *lab.Lab) {
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		table := l.Table("who does what", "answer", "color", "owner of color", "storage writes")
		apply := func(manager, color string, force bool) error {
			shelf := applycore.ConfigMap("shelf", l.Namespace)
			what := "leaves color out"
			if color != "" {
				shelf.WithData(map[string]string{"color": color})
				what = "applies color=" + color
			}
			if force {
				what += ", forced"
			}
			_, err := configMaps.Apply(l.Context(), shelf, metav1.ApplyOptions{FieldManager: manager, Force: force})
			answer, now := l.Answered(), l.Peek("shelf")
			table.Row(manager+" "+what, answer, lab.Field(now, "color"), l.OwnersOf(now, "color"), l.KV(now).Version)
			return err
		}
		l.Accepted(apply("ann", "red", false), "ann's apply")
		l.Accepted(apply("bob", "blue", true), "bob's forced apply")
		l.Expect(l.OwnersOf(l.Peek("shelf"), "color") == "bob by Apply", "bob alone owns color",
			"it is owned by %s", l.OwnersOf(l.Peek("shelf"), "color"))
		theirs := apply("ann", "red", false)
		l.Expect(lab.HasCause(theirs, metav1.CauseTypeFieldManagerConflict), "ann's next apply conflicts with bob", "it was answered %s", l.Describe(theirs))

		for range 2 { // both retry with force
			l.Accepted(apply("ann", "red", true), "ann's forced apply")
			l.Accepted(apply("bob", "blue", true), "bob's forced apply")
		}
		fought := l.KV(l.Peek("shelf")).Version
		l.Expect(fought == 6, "each forced apply of the fight is one more write", "there were %d writes", fought)

		l.Accepted(apply("ann", "", false), "ann's apply without color") // ann decides that the color is bob's
		l.Accepted(apply("bob", "blue", false), "bob's apply, not forced")
		l.Accepted(apply("ann", "", false), "ann's apply without color")
		table.End()
		l.Expect(l.KV(l.Peek("shelf")).Version == fought, "once the color is bob's, nobody writes any more", "there were %d writes", l.KV(l.Peek("shelf")).Version)
		l.Say("The fight ends with a decision: ann leaves color out, and from then on nothing is written any more.")
	})
}

func TestOT12_GivingAFieldUpEndsTheFight(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT12", From: "D2 paragraph 3",
		Says: "who owns what is a decision: when a human scales and a controller applies replicas, the controller is " +
			"refused, or undoes the human each time if it forces; leaving replicas out of what it applies ends the fight",
		Why: "no retry can settle whether the human or the controller is right; the manifest of the one who is not " +
			"responsible must not have the field",
		FalseIf: world.EveryApplyIsForced.Shows(`the controller's apply after the human has scaled was accepted`),
		AlsoFalseIf: []world.World{
			world.NoApplyIsForced.Shows(`the controller's forced apply was refused: 409 Conflict`),
			world.ATemplateHasReplicas.Shows(`the controller's apply without replicas was refused: 409 Conflict`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/apps/deployment/storage", "(*ScaleREST).Update"),
		Answers: "#52",
	}, func(l *lab.Lab) {
		controller := l.As("controller").Typed().AppsV1().Deployments(l.Namespace)
		human := l.As("human").Typed().AppsV1().Deployments(l.Namespace)
		table := l.Table("who does what", "answer", "replicas", "its owner", "writes")
		step := func(what string, err error) error {
			answer, now := l.Answered(), l.Of(lab.Deployment).Peek("shelf")
			table.Row(what, answer, lab.Field(now, "replicas"), l.OwnersOf(now, "replicas"), l.KV(now).Version)
			return err
		}
		apply := func(what string, replicas int32, force bool) error {
			shelf := lab.ShelfDeployment(l.Namespace)
			if replicas > 0 {
				shelf.Spec.WithReplicas(replicas)
			}
			_, err := controller.Apply(l.Context(), shelf, metav1.ApplyOptions{FieldManager: "controller", Force: force})
			return step("controller applies "+what, err)
		}
		scale := func() error {
			scale, err := human.GetScale(l.Context(), "shelf", metav1.GetOptions{})
			l.Step(err, "reading the scale")
			scale.Spec.Replicas = 5
			_, err = human.UpdateScale(l.Context(), "shelf", scale, metav1.UpdateOptions{FieldManager: "human"})
			return step("human scales to 5", err)
		}
		replicas := func(want string) { l.Stored(l.Of(lab.Deployment).Peek("shelf"), "replicas="+want) }

		l.Accepted(apply("3", 3, false), "the controller's first apply")
		l.Accepted(scale(), "the human's scaling")
		refused := apply("3", 3, false)
		l.Refused(refused, "the controller's apply after the human has scaled", lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict})
		l.Accepted(apply("3, forced", 3, true), "the controller's forced apply")
		replicas("3")
		l.Accepted(scale(), "the human's second scaling")
		l.Accepted(apply("no replicas", 0, false), "the controller's apply without replicas")
		l.Accepted(apply("no replicas", 0, false), "and once more")
		table.End()
		replicas("5")
		l.Say("The refusal: %s", refused)
	})
}

func TestOT12b_WhatItsOnlyOwnerLeavesOutFallsBackToTheDefault(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT12b", From: "D2 paragraph 3; +",
		Says: "giving a field up is not leaving it alone: when its only owner applies without it, the field goes, and " +
			"replicas falls back to the default of 1; it stays if somebody else owns it by then",
		Why: "so the new owner takes the field first, with its present value, and only then does the old one leave it " +
			"out",
		FalseIf:     world.ACoOwner(lab.Deployment, "alone", "controller", "replicas=3").Shows(`replicas=3 is stored`),
		AlsoFalseIf: []world.World{world.TheScalerAppliesNothing.Shows(`replicas=1 is stored`)},
		Read:        source.Decl("k8s.io/apimachinery/pkg/util/managedfields/internal", "(*structuredMergeManager).Apply"),
		Answers:     "#52",
	}, func(l *lab.Lab) {
		table := l.Table("who applies what", "answer", "replicas", "owners of replicas")
		apply := func(name, who string, replicas int32) {
			shelf := lab.ShelfDeployment(l.Namespace)
			shelf.WithName(name)
			what := "no replicas"
			if replicas > 0 {
				shelf.Spec.WithReplicas(replicas)
				what = fmt.Sprintf("replicas: %d", replicas)
			}
			_, err := l.As(who).Typed().AppsV1().Deployments(l.Namespace).Apply(l.Context(), shelf, metav1.ApplyOptions{FieldManager: who})
			answer, now := l.Answered(), l.Of(lab.Deployment).Peek(name)
			table.Row(name+": "+who+" applies "+what, answer, lab.Field(now, "replicas"), l.OwnersOf(now, "replicas"))
			l.Accepted(err, who+"'s apply "+what)
		}
		apply("alone", "controller", 3)
		apply("alone", "controller", 0)
		apply("shared", "controller", 3)
		apply("shared", "scaler", 3)
		apply("shared", "controller", 0)
		table.End()
		l.Stored(l.Of(lab.Deployment).Peek("alone"), "replicas=1")
		l.Stored(l.Of(lab.Deployment).Peek("shared"), "replicas=3")
	})
}
