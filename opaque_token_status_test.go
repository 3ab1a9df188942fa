// Chapter 4, continued: status.
package modrev

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	typedapps "k8s.io/client-go/kubernetes/typed/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT13_TheDefinitionSaysWhetherStatusHasADoorOfItsOwn(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT13", From: "D2 paragraph 4",
		Says: "where a custom resource's definition has a status subresource, a replace of the object ignores " +
			"status and one of /status ignores everything else",
		Why: "200 does not mean that all you sent was stored; without the subresource every report moves " +
			"generation, like a new order",
		Do:      "Write spec and metadata through the object, and status through /status.",
		FalseIf: world.StatusGoesToTheObject.Shows(`what a replace of /status moves is rv gen, rv gen`),
		AlsoFalseIf: []world.World{
			world.StoredInAnotherEncoding.Shows(`sent to the object moves is rv, rv gen`),
			world.NoStatusMeansTheObject.Shows(`a replace of /status moves is rv, rv gen`),
			phasesAreMended.Shows(`a phase that the schema does not know moves at /status is rv, 404`),
			metadataRidesAlong.Shows(`what a replace of /status moves is rv \(2 writes\), 404`),
		},
		Read: source.Decl("k8s.io/apiextensions-apiserver/pkg/registry/customresource",
			"statusStrategy.PrepareForUpdate"),
		Answers: "#44 #47",
	}, func(l *lab.Lab) {
		phases := map[string]any{"phase": map[string]any{"type": "string", "enum": []any{"Open", "Full"}}}
		with := l.Define(lab.Version{Name: "v1", Storage: true, Status: phases, Subresources: []string{"status"}})
		without := l.Define(lab.Version{Name: "v1", Storage: true, Status: phases})
		l.Of(with).Create("shelf", "size=1")
		l.Of(without).Create("shelf", "size=1")
		l.Say("Two custom resources, one with the subresource /status and one without it. Their schema knows one field " +
			"of status: phase, which is Open or Full. rv: a new resourceVersion. gen: generation grew by one. -: " +
			"answered with 200, but nothing moved and nothing was written.")
		table := l.Table("replace of", "with /status", "stored then", "without it", "stored then")
		for _, e := range []struct {
			what, subresource string
			fields            []string
			name              string    // in a failure
			moves             [2]string // with /status, and without
		}{
			{"object: size=2, phase=Open", "", []string{"size=2", "status.phase=Open"},
				"a replace of the object moves", [2]string{"rv gen", "rv gen"}},
			{"object: phase=Full", "", []string{"status.phase=Full"},
				"another status sent to the object moves", [2]string{"-", "rv gen"}},
			{"object: phase=Half", "", []string{"status.phase=Half"},
				"a phase that the schema does not know moves at the object", [2]string{"-", "422"}},
			{"/status: size=9, room=hall, phase=Full", "status",
				[]string{"size=9", "metadata.labels.room=hall", "status.phase=Full"},
				"a replace of /status moves", [2]string{"rv", "404"}},
			{"/status: phase=Half", "status", []string{"status.phase=Half"},
				"a phase that the schema does not know moves at /status", [2]string{"422", "404"}},
			{"/status: stock=7", "status", []string{"status.stock=7"},
				"a field that the schema does not know moves at /status", [2]string{"-", "404"}},
		} {
			row, moved := []any{e.what}, []string{}
			for _, kind := range []lab.Kind{with, without} {
				moved = append(moved, moves(l, kind, func(shelves *lab.Client) error {
					_, err := shelves.Sub(e.subresource).TryReplace(shelves.Peek("shelf"), e.fields...)
					return err
				}))
				row = append(row, moved[len(moved)-1], lab.Fields(l.Of(kind).Peek("shelf"), "size", "status.phase"))
			}
			table.Row(row...)
			l.Equal("what "+e.name, moved, e.moves[:])
		}
		table.End()
		l.Stored(l.Of(with).Peek("shelf"), "size=2", "-metadata.labels.room", "status.phase=Full", "-status.stock")
		l.Say("422: the schema validates what comes through the door that counts. What it does not know is pruned; " +
			"only a Warning header says so.")

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

// phasesAreMended has the client's library make a known phase of an unknown one.
var phasesAreMended = world.New("a proxy mends what the schema does not know", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return strings.HasSuffix(c.Path, "/status") }, Note: "the phase was mended",
		Request: func(_ *http.Request, body []byte) []byte {
			return bytes.Replace(body, []byte(`"phase":"Half"`), []byte(`"phase":"Open"`), 1)
		},
	})
})

// metadataRidesAlong sends the metadata of what /status has accepted to the object as well.
var metadataRidesAlong = world.New("the server takes metadata through /status, whatever the kind", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return strings.HasSuffix(c.Path, "/status") && c.Who != "server" },
		Note: "its metadata rode along",
		Answer: func(resp *http.Response, body []byte) []byte {
			sent, err := resp.Request.GetBody()
			if err != nil || resp.StatusCode != http.StatusOK {
				return body
			}
			var o lab.Object
			if err := json.NewDecoder(sent).Decode(&o.Object); err != nil {
				return body
			}
			rides := map[string]any{}
			for _, name := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
				if value, ok, _ := unstructured.NestedFieldNoCopy(o.Object, "metadata", name); ok {
					rides[name] = value
				}
			}
			patch, _ := json.Marshal(map[string]any{"metadata": rides}) // it was JSON before
			kind, name := servedAt(strings.TrimSuffix(resp.Request.URL.Path, "/status"))
			// An error here shows in what is stored.
			_, _ = l.As("server").Of(kind).TryPatch(name, types.MergePatchType, string(patch))
			return body
		},
	})
})

// servedAt is the kind and the name of the object that is served at a path.
func servedAt(path string) (kind lab.Kind, name string) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	kind.Version, kind.Cluster = parts[1], true
	if parts = parts[2:]; strings.HasPrefix(path, "/apis/") {
		kind.Group, kind.Version, parts = kind.Version, parts[0], parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		kind.Cluster, parts = false, parts[2:]
	}
	kind.Resource = parts[0]
	return kind, parts[1]
}

func TestOT14_SpecAndStatusShareOneToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT14", From: "D2 paragraph 4",
		Says: "spec and status share one token: /status refuses a stale one, too, and each status write makes " +
			"pending spec writes stale",
		Why: "a conflict on the spec may only mean that a controller has reported; and a controller re-reads after " +
			"every change of the spec",
		Do:      "Expect a conflict from each door after a write through the other.",
		FalseIf: world.StatusNeedsNoToken.Shows(`the controller's write of the status was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the human's write of the spec was accepted`),
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
		Says: "a changed resourceVersion does not mean a changed desired state: a label, another status or a new " +
			"owner moves it as well",
		Why: "a controller that acts on every new resourceVersion answers its own reports; one that looks at " +
			"generation misses every change of a ConfigMap",
		Do:      "Compare what you own with what is there, and write only the difference.",
		FalseIf: world.AProxyTouchesTheSpec.Shows(`the desired state after a label on the Deployment is changed`),
		AlsoFalseIf: []world.World{
			world.StoredInAnotherEncoding.Shows(`whether the same status once more moves the resourceVersion is true`),
		},
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/predicate", "TypedGenerationChangedPredicate.Update"),
		Answers: "#45 #56",
	}, func(l *lab.Lab) {
		const label, annotation = `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"annotations":{"a":"b"}}}`
		const observed, counted = `{"status":{"observedGeneration":1}}`, `{"status":{"replicas":1}}`
		changes := []struct {
			what            string
			kind            lab.Kind
			edit            shelfEdit
			moves           bool // the resourceVersion
			changed, passes bool
		}{
			{"a label on the Deployment", lab.Deployment, sendMerge(label), true, false, false},
			{"its status", lab.Deployment, sendMerge(observed).to("status"), true, false, false},
			{"the same status once more", lab.Deployment, sendMerge(observed).to("status"), false, false, false},
			{"another status", lab.Deployment, sendMerge(counted).to("status"), true, false, false},
			{"a second owner of a field", lab.Deployment, applyField("ann", "30"), true, false, false},
			{"an annotation", lab.Deployment, sendMerge(annotation), true, false, true},
			{"its spec", lab.Deployment, setField("60"), true, true, true},
			{"the data of a ConfigMap", lab.ConfigMap, setField("60"), true, true, false},
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
			l.Equal("whether "+c.what+" moves the resourceVersion",
				after.GetResourceVersion() != before.GetResourceVersion(), c.moves)
			l.Equal("the desired state after "+c.what, state[changed], state[c.changed])
			l.Equal("whether GenerationChangedPredicate passes "+c.what, passes, c.passes)
			l.Equal("whether ResourceVersionChangedPredicate passes "+c.what, byVersion.Update(update), c.moves)
		}
		table.End()
		shelf := l.Peek("shelf")
		for _, p := range []predicate.Predicate{byGeneration, byVersion} {
			l.Expect(p.Create(event.CreateEvent{Object: shelf}), "a create passes", "%T drops it", p)
			l.Expect(p.Delete(event.DeleteEvent{Object: shelf}), "a delete passes", "%T drops it", p)
		}
		l.Say("The predicate is GenerationChangedPredicate of controller-runtime. A controller that goes by " +
			"resourceVersion is woken by each status that it writes, if that differs from the last: a time or a counter in " +
			"it, and it never rests. The same status once more moves nothing. For a kind without a generation take " +
			"ResourceVersionChangedPredicate, and compare in the reconcile. Both look at updates only: every create and " +
			"every delete passes.")
	})
}
