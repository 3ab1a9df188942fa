// Chapter 4, continued: status.
package modrev

import (
	"fmt"
	"net/http"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedapps "k8s.io/client-go/kubernetes/typed/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/world"
)

func TestOT13_TheDefinitionSaysWhetherStatusHasADoorOfItsOwn(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT13", From: "D2 paragraph 4",
		Says: "the status subresource separates status from spec, where the resource's definition says so: there a replace of " +
			"the object ignores status and one of /status ignores spec; where it does not, /status is 404 and a change of " +
			"status moves generation",
		Why: "200 does not mean that all was stored that was sent; and without the subresource every report of a controller " +
			"looks like a new order to it (and IsNotFound from /status does not mean that the object is gone)",
		FalseIf: world.StatusGoesToTheObject.Shows(`size=9 is stored`),
		AlsoFalseIf: []world.World{
			world.StoredInAnotherEncoding.Shows(`\["rv" "rv gen"\] moved`),
			world.NoStatusMeansTheObject.Shows(`\["rv" "rv gen"\] moved`),
		},
		Read:    source.Decl("k8s.io/apiextensions-apiserver/pkg/registry/customresource", "customResourceStrategy.PrepareForUpdate"),
		Answers: "#44 #47",
	}, func(l *lab.Lab) {
		with, without := l.CustomResource("status"), l.CustomResource()
		api := l.Controller(with, without)
		l.Say("Two custom resources, one with the subresource /status and one without it. rv: a new resourceVersion. gen: " +
			"generation grew by one. -: answered with 200, but nothing moved and nothing was written.")
		table := l.Table("replace of", "with /status", "stored then", "without it", "stored then")
		cells := func(request string, do func(shelf *lab.Object) error) (moves [2]string, errs [2]error) {
			row := []any{request}
			for i, kind := range []lab.Kind{with, without} {
				shelf := l.Of(kind).Peek("shelf")
				moved := l.Moved(shelf, func() error { return do(shelf.DeepCopy()) })
				moves[i], errs[i] = moved.String(), moved.Err
				row = append(row, moved, lab.Fields(l.Of(kind).Peek("shelf"), "size", "status.phase"))
			}
			table.Row(row...)
			return moves, errs
		}
		l.Of(with).Create("shelf", "size=1")
		l.Of(without).Create("shelf", "size=1")

		moves, _ := cells("object: size=2, phase=Open", func(shelf *lab.Object) error {
			return api.Update(l.Context(), lab.With(shelf, "size=2", "status.phase=Open"))
		})
		l.Expect(moves == [2]string{"rv gen", "rv gen"}, "both store the spec, and generation moves", "%q moved", moves)
		moves, _ = cells("object: phase=Full", func(shelf *lab.Object) error {
			return api.Update(l.Context(), lab.With(shelf, "status.phase=Full"))
		})
		l.Expect(moves == [2]string{"-", "rv gen"}, "with the subresource nothing is stored; without it generation moves", "%q moved", moves)
		moves, errs := cells("/status: size=9, phase=Full", func(shelf *lab.Object) error {
			return api.Status().Update(l.Context(), lab.With(shelf, "size=9", "status.phase=Full"))
		})
		table.End()
		l.Stored(l.Of(with).Peek("shelf"), "size=2", "status.phase=Full")
		l.Expect(moves == [2]string{"rv", "404"}, "with the subresource only the status is stored; without it it is not found", "%q moved", moves)

		_, builtIn := l.Sub("status").TryReplace(l.Create("shelf", "size=1"))
		l.Say("The 404 says: %s. But the shelf is there; what is not there is its /status. On a ConfigMap it says: %s.",
			errs[1], builtIn)
		l.Expect(errs[1].Error() == fmt.Sprintf("shelves.%s %q not found", without.Group, "shelf"),
			"the 404 of a custom resource has the text of a missing object", "it says: %s", errs[1])
		l.Refused(builtIn, "a replace of a ConfigMap's /status", lab.Refusal{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
	})
}

func TestOT14_SpecAndStatusShareOneToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT14", From: "D2 paragraph 4",
		Says: "a status write is not free of concurrency: a stale token on /status is refused, and a status write makes a " +
			"pending write of the spec stale: there is one token for the whole object",
		Why: "a conflict on the spec may mean no more than that a controller has reported; and a controller has to read " +
			"again after every change of the spec",
		FalseIf: world.ClientDropsTheToken.Shows(`the human's write of the spec was accepted`),
		AlsoFalseIf: []world.World{
			world.StatusNeedsNoToken.Shows(`the controller's write of the status was accepted`),
			world.EveryPatchCarriesAToken.Shows(`a patch of a field that only the controller writes was refused: 409 Conflict`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/apps/deployment/storage", "(*StatusREST).Update"),
		Answers: "#46",
	}, func(l *lab.Lab) {
		human := l.As("human").Typed().AppsV1().Deployments(l.Namespace)
		controller := l.As("controller").Typed().AppsV1().Deployments(l.Namespace)
		table := l.Table("who", "writes", "with token", "answer", "token then", "generation")
		row := func(who, what, token string, err error) error {
			now := l.Of(lab.Deployment).Peek("shelf")
			table.Row(who, what, token, lab.AnswerLine(err), now.GetResourceVersion(), now.GetGeneration())
			return err
		}
		read := func(api typedapps.DeploymentInterface) *appsv1.Deployment {
			shelf, err := api.Get(l.Context(), "shelf", metav1.GetOptions{})
			l.Step(err, "reading the shelf")
			return shelf
		}
		shelf := l.Of(lab.Deployment).Create("shelf", "replicas=1")
		humans, controllers := read(human), read(controller)

		controllers.Status.ObservedGeneration = 1
		reported, err := controller.UpdateStatus(l.Context(), controllers, metav1.UpdateOptions{})
		l.Accepted(row("controller", "UpdateStatus: observedGeneration 1", controllers.ResourceVersion, err), "the controller's first report")
		humans.Spec.Replicas = new(int32(2))
		_, err = human.Update(l.Context(), humans, metav1.UpdateOptions{})
		l.Refused(row("human", "Update: replicas 2", humans.ResourceVersion, err), "the human's write of the spec", lab.Stale(shelf))

		humans = read(human)
		humans.Spec.Replicas = new(int32(2))
		_, err = human.Update(l.Context(), humans, metav1.UpdateOptions{})
		l.Accepted(row("human", "the same after reading again", humans.ResourceVersion, err), "the human's second attempt")
		reported.Status.ObservedGeneration = 2
		_, err = controller.UpdateStatus(l.Context(), reported, metav1.UpdateOptions{})
		l.Refused(row("controller", "UpdateStatus: observedGeneration 2", reported.ResourceVersion, err), "the controller's write of the status", lab.Stale(shelf))
		_, err = controller.Patch(l.Context(), "shelf", types.MergePatchType, []byte(`{"status":{"observedGeneration":2}}`),
			metav1.PatchOptions{}, "status")
		l.Accepted(row("controller", "a patch of this one field of it", "none", err), "a patch of a field that only the controller writes")
		table.End()
		l.Say("The last row is advice for this case alone: nobody else writes the field, and its value was not decided on " +
			"anything else that was read. Where either fails, a patch without a token loses what others wrote (OT9).")
	})
}

func TestOT15_AChangedTokenIsNoChangeOfDesiredState(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT15", From: "D2 paragraph 4",
		Says: "a changed resourceVersion does not mean that the desired state has changed: a label, a status or a new owner " +
			"of a field moves it, too; generation tells, for the kinds that have one (a Deployment counts annotations, too, OT3)",
		Why: "a controller that acts on every new resourceVersion answers its own status writes; one that looks at " +
			"generation sees no change of a ConfigMap, ever: compare what you own",
		FalseIf: world.AProxyTouchesTheSpec.Shows(`a label on the Deployment: .* the predicate passes it`),
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/predicate", "TypedGenerationChangedPredicate.Update"),
		Answers: "#45 #56",
	}, func(l *lab.Lab) {
		table := l.Table("change", "resourceVersion", "generation", "spec or data", "predicate")
		state := map[bool]string{true: "changed", false: "the same"}
		verdict := map[bool]string{true: "passes it", false: "drops it"}
		l.Of(lab.Deployment).Create("shelf", "minReadySeconds=30")
		l.Create("shelf", "minReadySeconds=30")
		see := func(change string, kind lab.Kind, edit lab.Edit, wantChanged, wantPassed bool) {
			before := l.Of(kind).Peek("shelf")
			l.Step(edit(l.Of(kind), "minReadySeconds"), change)
			after := l.Of(kind).Peek("shelf")
			changed := !reflect.DeepEqual(before.Object[kind.Fields], after.Object[kind.Fields])
			passed := predicate.GenerationChangedPredicate{}.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
			table.Row(change, before.GetResourceVersion()+" → "+after.GetResourceVersion(),
				fmt.Sprintf("%d → %d", before.GetGeneration(), after.GetGeneration()), state[changed], verdict[passed])
			l.Expect(before.GetResourceVersion() != after.GetResourceVersion(), change+" moves the resourceVersion", "%s: it stays", change)
			l.Expect(predicate.ResourceVersionChangedPredicate{}.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}),
				"ResourceVersionChangedPredicate passes "+change, "%s: it drops it", change)
			l.Expect(changed == wantChanged && passed == wantPassed,
				fmt.Sprintf("%s: spec or data is %s; the predicate %s", change, state[wantChanged], verdict[wantPassed]),
				"%s: spec or data is %s; the predicate %s", change, state[changed], verdict[passed])
		}
		const label, annotation = `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"annotations":{"a":"b"}}}`
		see("a label on the Deployment", lab.Deployment, lab.Merge(label), false, false)
		see("its status", lab.Deployment, lab.Merge(`{"status":{"observedGeneration":1}}`).Through("status"), false, false)
		see("another status", lab.Deployment, lab.Merge(`{"status":{"replicas":1}}`).Through("status"), false, false)
		see("a second owner of a field", lab.Deployment, lab.Applied("ann", "30"), false, false)
		see("an annotation", lab.Deployment, lab.Merge(annotation), false, true)
		see("its spec", lab.Deployment, lab.Desired("60"), true, true)
		see("the data of a ConfigMap", lab.ConfigMap, lab.Desired("60"), true, false)
		table.End()
		for _, p := range []predicate.Predicate{predicate.GenerationChangedPredicate{}, predicate.ResourceVersionChangedPredicate{}} {
			o := l.Peek("shelf")
			l.Expect(p.Create(event.CreateEvent{Object: o}) && p.Delete(event.DeleteEvent{Object: o}),
				"the predicates pass every create and every delete", "%T drops one", p)
		}
		l.Say("The predicate is GenerationChangedPredicate of controller-runtime. Every status written would wake a " +
			"controller that goes by resourceVersion, and it would write its status again. For a kind without a generation " +
			"the way out is ResourceVersionChangedPredicate, which passes every row of this table, and then in the reconcile " +
			"to compare what one owns with what is there, and to write only if they differ. Both look at updates only: every " +
			"create and every delete passes.")
	})
}
