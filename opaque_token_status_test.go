// Chapter 4, continued: status.
package modrev

import (
	"fmt"
	"net/http"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
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
		Says: "the status subresource separates status from spec, where the resource's definition says so: there a " +
			"replace of the object ignores status and one of /status ignores spec; where it does not, /status is 404 " +
			"and a change of status moves generation",
		Why: "200 does not mean that all was stored that was sent; and without the subresource every report of a " +
			"controller looks like a new order to it (and IsNotFound from /status does not mean that the object is " +
			"gone)",
		FalseIf: world.StatusGoesToTheObject.Shows(`size=9 is stored`),
		AlsoFalseIf: []world.World{
			world.StoredInAnotherEncoding.Shows(`sent to the object moves is rv, rv gen`),
			world.NoStatusMeansTheObject.Shows(`a replace of /status moves is rv, rv gen`),
		},
		Read: source.Decl("k8s.io/apiextensions-apiserver/pkg/registry/customresource",
			"customResourceStrategy.PrepareForUpdate"),
		Answers: "#44 #47",
	}, func(l *lab.Lab) {
		with, without := l.CustomResource("status"), l.CustomResource()
		l.Of(with).Create("shelf", "size=1")
		l.Of(without).Create("shelf", "size=1")
		l.Say("Two custom resources, one with the subresource /status and one without it. rv: a new resourceVersion. " +
			"gen: generation grew by one. -: answered with 200, but nothing moved and nothing was written.")
		table := l.Table("replace of", "with /status", "stored then", "without it", "stored then")
		replace := func(what, subresource string, fields ...string) (moved []string) {
			row := []any{what}
			for _, kind := range []lab.Kind{with, without} {
				cell := moves(l, kind, func(shelves *lab.Client) error {
					_, err := shelves.Sub(subresource).TryReplace(shelves.Peek("shelf"), fields...)
					return err
				})
				row = append(row, cell, lab.Fields(l.Of(kind).Peek("shelf"), "size", "status.phase"))
				moved = append(moved, cell)
			}
			table.Row(row...)
			return moved
		}

		moved := replace("object: size=2, phase=Open", "", "size=2", "status.phase=Open")
		l.Equal("what a replace of the object moves, with /status and without,", moved, []string{"rv gen", "rv gen"})
		moved = replace("object: phase=Full", "", "status.phase=Full")
		l.Equal("what another status sent to the object moves", moved, []string{"-", "rv gen"})
		moved = replace("/status: size=9, phase=Full", "status", "size=9", "status.phase=Full")
		table.End()
		l.Stored(l.Of(with).Peek("shelf"), "size=2", "status.phase=Full")
		l.Equal("what a replace of /status moves", moved, []string{"rv", "404"})

		_, err := l.Of(without).Sub("status").TryReplace(l.Of(without).Get("shelf"))
		custom := l.Refused(err, "a replace of the /status that is not there", lab.Refusal{
			Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: fmt.Sprintf("shelves.%s %q not found", without.Group, "shelf"), // the text of a missing object
		})
		_, err = l.Sub("status").TryReplace(l.Create("shelf", "size=1"))
		builtIn := l.Refused(err, "a replace of a ConfigMap's /status", lab.Refusal{
			Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		})
		l.Say("The 404 says: %s. But the shelf is there; what is not there is its /status. On a ConfigMap it says: %s.",
			custom.Message, builtIn.Message)
	})
}

func TestOT14_SpecAndStatusShareOneToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT14", From: "D2 paragraph 4",
		Says: "a status write is not free of concurrency: a stale token on /status is refused, and a status write " +
			"makes a pending write of the spec stale: there is one token for the whole object",
		Why: "a conflict on the spec may mean no more than that a controller has reported; and a controller has to " +
			"read again after every change of the spec",
		FalseIf: world.ClientDropsTheToken.Shows(`the human's write of the spec was accepted`),
		AlsoFalseIf: []world.World{
			world.StatusNeedsNoToken.Shows(`the controller's write of the status was accepted`),
			world.EveryPatchCarriesAToken.Shows(
				`a patch of a field that only the controller writes was refused: 409 Conflict`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/apps/deployment/storage", "(*StatusREST).Update"),
		Answers: "#46",
	}, func(l *lab.Lab) {
		human := l.As("human").Typed().AppsV1().Deployments(l.Namespace)
		controller := l.As("controller").Typed().AppsV1().Deployments(l.Namespace)
		read := func(api typedapps.DeploymentInterface) *appsv1.Deployment {
			shelf, err := api.Get(l.Context(), "shelf", metav1.GetOptions{})
			require.NoError(l, err, "reading the shelf")
			return shelf
		}
		table := l.Table("who", "writes", "with token", "answer", "token then", "generation")
		row := func(who, what, token string) {
			answer, now := l.Answered(), l.Of(lab.Deployment).Peek("shelf")
			table.Row(who, what, token, answer, now.GetResourceVersion(), now.GetGeneration())
		}
		shelf := l.Of(lab.Deployment).Create("shelf", "replicas=1")
		humans, controllers := read(human), read(controller)

		controllers.Status.ObservedGeneration = 1
		reported, err := controller.UpdateStatus(l.Context(), controllers, metav1.UpdateOptions{})
		row("controller", "UpdateStatus: observedGeneration 1", controllers.ResourceVersion)
		l.Accepted(err, "the controller's first report")

		humans.Spec.Replicas = new(int32(2))
		_, err = human.Update(l.Context(), humans, metav1.UpdateOptions{})
		row("human", "Update: replicas 2", humans.ResourceVersion)
		l.Refused(err, "the human's write of the spec", lab.Stale(shelf))

		humans = read(human)
		humans.Spec.Replicas = new(int32(2))
		_, err = human.Update(l.Context(), humans, metav1.UpdateOptions{})
		row("human", "the same after reading again", humans.ResourceVersion)
		l.Accepted(err, "the human's second attempt")

		reported.Status.ObservedGeneration = 2
		_, err = controller.UpdateStatus(l.Context(), reported, metav1.UpdateOptions{})
		row("controller", "UpdateStatus: observedGeneration 2", reported.ResourceVersion)
		l.Refused(err, "the controller's write of the status", lab.Stale(shelf))

		report := []byte(`{"status":{"observedGeneration":2}}`)
		_, err = controller.Patch(l.Context(), "shelf", types.MergePatchType, report, metav1.PatchOptions{}, "status")
		row("controller", "a patch of this one field of it", "none")
		table.End()
		l.Accepted(err, "a patch of a field that only the controller writes")
		l.Say("The last row is advice for this case alone: nobody else writes the field, and its value was not " +
			"decided on anything else that was read. Where either fails, a patch without a token loses what others " +
			"wrote (OT9).")
	})
}

func TestOT15_AChangedTokenIsNoChangeOfDesiredState(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT15", From: "D2 paragraph 4",
		Says: "a changed resourceVersion does not mean that the desired state has changed: a label, a status or a " +
			"new owner of a field moves it, too; generation tells, for the kinds that have one (a Deployment counts " +
			"annotations, too, OT3)",
		Why: "a controller that acts on every new resourceVersion answers its own status writes; one that looks at " +
			"generation sees no change of a ConfigMap, ever: compare what you own",
		FalseIf: world.AProxyTouchesTheSpec.Shows(`the desired state after a label on the Deployment is changed`),
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/predicate", "TypedGenerationChangedPredicate.Update"),
		Answers: "#45 #56",
	}, func(l *lab.Lab) {
		const label, annotation = `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"annotations":{"a":"b"}}}`
		const observed, counted = `{"status":{"observedGeneration":1}}`, `{"status":{"replicas":1}}`
		changes := []struct {
			what            string
			kind            lab.Kind
			edit            shelfEdit
			changed, passes bool
		}{
			{"a label on the Deployment", lab.Deployment, sendMerge(label), false, false},
			{"its status", lab.Deployment, sendMerge(observed).to("status"), false, false},
			{"another status", lab.Deployment, sendMerge(counted).to("status"), false, false},
			{"a second owner of a field", lab.Deployment, applyField("ann", "30"), false, false},
			{"an annotation", lab.Deployment, sendMerge(annotation), false, true},
			{"its spec", lab.Deployment, setField("60"), true, true},
			{"the data of a ConfigMap", lab.ConfigMap, setField("60"), true, false},
		}
		state := map[bool]string{true: "changed", false: "the same"}
		verdict := map[bool]string{true: "passes it", false: "drops it"}
		byGeneration, byVersion := predicate.GenerationChangedPredicate{}, predicate.ResourceVersionChangedPredicate{}

		l.Of(lab.Deployment).Create("shelf", "minReadySeconds=30")
		l.Create("shelf", "minReadySeconds=30")
		table := l.Table("change", "resourceVersion", "generation", "spec or data", "predicate")
		for _, c := range changes {
			shelves := l.Of(c.kind)
			before := shelves.Peek("shelf")
			require.NoError(l, c.edit(shelves, "minReadySeconds"), c.what)
			after := shelves.Peek("shelf")
			changed := !reflect.DeepEqual(before.Object[c.kind.Fields], after.Object[c.kind.Fields])
			update := event.UpdateEvent{ObjectOld: before, ObjectNew: after}
			passes := byGeneration.Update(update)
			table.Row(c.what, before.GetResourceVersion()+" → "+after.GetResourceVersion(),
				fmt.Sprintf("%d → %d", before.GetGeneration(), after.GetGeneration()), state[changed], verdict[passes])
			l.Expect(before.GetResourceVersion() != after.GetResourceVersion(), c.what+" moves the resourceVersion",
				"%s: it stays", c.what)
			l.Equal("the desired state after "+c.what, state[changed], state[c.changed])
			l.Equal("whether GenerationChangedPredicate passes "+c.what, passes, c.passes)
			l.Expect(byVersion.Update(update), "ResourceVersionChangedPredicate passes "+c.what, "%s: it drops it", c.what)
		}
		table.End()
		shelf := l.Peek("shelf")
		for _, p := range []predicate.Predicate{byGeneration, byVersion} {
			l.Expect(p.Create(event.CreateEvent{Object: shelf}), "a create passes", "%T drops it", p)
			l.Expect(p.Delete(event.DeleteEvent{Object: shelf}), "a delete passes", "%T drops it", p)
		}
		l.Say("The predicate is GenerationChangedPredicate of controller-runtime. Every status written would wake a " +
			"controller that goes by resourceVersion, and it would write its status again. For a kind without a " +
			"generation the way out is ResourceVersionChangedPredicate, which passes every row of this table, and " +
			"then in the reconcile to compare what one owns with what is there, and to write only if they differ. " +
			"Both look at updates only: every create and every delete passes.")
	})
}
