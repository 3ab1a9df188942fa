// Chapter 4, continued: which door lets through what.
package modrev

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/world"
)

var (
	node = lab.Kind{
		Kind: "Node", Version: "v1", Resource: "nodes", Prefix: "minions", Cluster: true, Fields: "spec",
	}
	service = lab.Kind{
		Kind: "Service", Version: "v1", Resource: "services", Prefix: "services/specs", Fields: "spec",
		Base: map[string]any{"spec": map[string]any{
			"clusterIP": "None", "ports": []any{map[string]any{"port": int64(80)}},
		}},
	}
	job = lab.Kind{
		Kind: "Job", Group: "batch", Version: "v1", Resource: "jobs", Fields: "spec",
		Base: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"restartPolicy": "Never",
			"containers":    []any{map[string]any{"name": "c", "image": "registry.example/shelf:1"}},
		}}}},
	}
)

// room is a kind behind whose doors the lessons look, with the name of its object and a part of its spec that may
// change, in one way on the first turn and in another on later ones.
type room struct {
	lab.Kind
	name         string
	field        string
	first, later any
}

// rooms makes one object of each of several kinds. Those outside namespaces are named after the lesson.
func rooms(l *lab.Lab) []room {
	all := []room{
		{lab.Deployment, "shelf", "minReadySeconds", int64(30), int64(60)},
		{lab.Pod, "shelf", "activeDeadlineSeconds", int64(60), int64(30)},
		{node, l.Namespace, "unschedulable", true, false},
		{service, "shelf", "publishNotReadyAddresses", true, false},
		{lab.Namespace, l.Namespace, "finalizers", []any{"kubernetes", "modrev.example/a"},
			[]any{"kubernetes", "modrev.example/b"}},
		{job, "shelf", "parallelism", int64(3), int64(4)},
		{l.CustomResource("status", "scale"), "shelf", "size", int64(3), int64(4)},
	}
	for _, r := range all {
		if r.Kind.Kind != "Namespace" { // that of the lesson is there
			l.Of(r.Kind).Create(r.name)
		}
		// The first update of a Job stores the same content in other bytes (RV8b).
		_, err := l.Of(r.Kind).TryReplace(l.Of(r.Kind).Peek(r.name))
		require.NoError(l, err, "replacing a fresh %s by itself", r.Kind.Kind)
	}
	return all
}

// partPaths say where the parts of an object stand that may go through a door.
var partPaths = map[string]string{
	"spec": "spec", "status": "status.conditions", "labels": "metadata.labels",
	"annotations": "metadata.annotations", "finalizers": "metadata.finalizers",
	"owner references": "metadata.ownerReferences",
}

// furnish is what a lesson sends as one part of an object on one turn.
func (r room) furnish(part string, turn int) any {
	switch part {
	case "spec":
		if turn == 0 {
			return r.first
		}
		return r.later
	case "status":
		return []any{map[string]any{
			"type": "Fine", "status": "True", "reason": "Fine", "message": fmt.Sprintf("turn %d", turn),
			"lastTransitionTime": "2020-01-01T00:00:00Z",
		}}
	case "finalizers":
		return []any{"modrev.example/hold"}
	case "owner references":
		return []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "its-uid"}}
	}
	return map[string]any{"modrev.example/a": "b"}
}

// path is where one part of an object stands.
func (r room) path(part string) []string {
	path := strings.Split(partPaths[part], ".")
	if part == "spec" {
		path = append(path, r.field)
	}
	return path
}

// tries sends a replace with other parts to a door of the room, and says in the few letters of a cell what came of it:
// what moved, as moves does, with a star if the part that was sent is not stored, and of several parts those that are
// stored.
func (r room) tries(l *lab.Lab, door string, turn int, sent []string) string {
	shelves, key := l.Of(r.Kind), r.KeyOf(l.Namespace, r.name)
	before, old := shelves.Peek(r.name), keyAt(l, key)
	o := before.DeepCopy()
	for _, part := range sent {
		require.NoError(l, unstructured.SetNestedField(o.Object, r.furnish(part, turn), r.path(part)...), "setting "+part)
	}
	if _, err := shelves.Sub(door).TryReplace(o); err != nil {
		return strconv.Itoa(l.Refusal(err, "the replace").Code)
	}
	after, now := shelves.Peek(r.name), keyAt(l, key)

	moved := movesOf(before, after)
	if written := now.Version - old.Version; written != int64(min(1, len(moved))) {
		moved = append(moved, fmt.Sprintf("(%d writes)", written))
	}
	let := slices.DeleteFunc(slices.Clone(sent), func(part string) bool {
		was, _, _ := unstructured.NestedFieldNoCopy(before.Object, r.path(part)...)
		is, _, _ := unstructured.NestedFieldNoCopy(after.Object, r.path(part)...)
		return reflect.DeepEqual(was, is)
	})
	switch {
	case len(sent) > 1:
		return cmp.Or(strings.Join(let, ", "), "nothing")
	case len(let) == 0 && len(moved) > 0:
		moved = append(moved, "*")
	}
	return cmp.Or(strings.Join(moved, " "), "-")
}

// movesOf says which of the numbers of an object an edit moved.
func movesOf(before, after *lab.Object) (moved []string) {
	if after.GetResourceVersion() != before.GetResourceVersion() {
		moved = append(moved, "rv")
	}
	switch grown := after.GetGeneration() - before.GetGeneration(); grown {
	case 0:
	case 1:
		moved = append(moved, "gen")
	default:
		moved = append(moved, fmt.Sprintf("gen%+d", grown))
	}
	return moved
}

func keyAt(l *lab.Lab, key string) lab.KeyValue {
	kv, there := l.TryKVAt(key)
	l.Expect(there, key+" is in etcd", "there is no key %s", key)
	return kv
}

const doorLegend = "rv: a new resourceVersion, and one write to storage. gen: generation grew by one. -: answered " +
	"with 200, but nothing moved and nothing was written. *: written, but the part sent is not stored."

// matrix tries each part of each of the rooms at one door, and compares the cells with those of a table.
func matrix(l *lab.Lab, door string, rows []doorRow) {
	all := rooms(l)
	names := []string{"part sent"}
	for _, r := range all {
		names = append(names, r.Kind.Kind)
	}
	table := l.Table(names...)
	for turn, want := range rows {
		cells := []any{want.sent}
		for i, r := range all {
			cell := r.tries(l, door, turn, strings.Split(want.sent, " and "))
			cells = append(cells, cell)
			l.Equal(fmt.Sprintf("what %s sent to %s moves on a %s", want.sent, doorName(door), r.Kind.Kind),
				cell, want.moves[i])
		}
		table.Row(cells...)
	}
	table.End()
}

// doorRow is one row of a matrix: the parts sent, and what that moves on each of the rooms.
type doorRow struct {
	sent  string
	moves [7]string
}

func doorName(door string) string {
	if door == "" {
		return "the object"
	}
	return "/" + door
}

func TestOT100_StatusKeepsTheSpecAndMostlyTakesMetadata(t *testing.T) {
	const no, rv, status = "-", "rv", "status"
	lesson.Prove(t, lesson.Claim{
		ID: "OT100", From: "D2 paragraph 4; +",
		Says: "/status keeps the stored spec of every kind here; whether it takes labels, annotations, finalizers and " +
			"owner references depends on the kind",
		Why: "A built-in kind's UpdateStatus can change an annotation or remove a finalizer. The same call on a custom " +
			"resource drops both and still answers 200",
		Do:      "Write metadata and spec through the object, and only status through /status.",
		FalseIf: world.StatusPutsTheSpec.Shows(`what spec and status sent to /status moves on a Deployment is spec, status$`),
		AlsoFalseIf: []world.World{
			world.StatusAlsoWrites("spec").Shows(`what spec sent to /status moves on a Deployment is rv gen`),
			world.StatusGoesToTheObject.Shows(`what spec sent to /status moves on a Deployment is rv gen`),
			world.StatusAlsoWrites("metadata").Shows(`what labels sent to /status moves on a Deployment is rv`),
			world.EveryUpdateRaisesTheGeneration.Shows(`what status sent to /status moves on a Deployment is rv gen`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/apps/deployment", "deploymentStatusStrategy.PrepareForUpdate"),
		Answers: "#49",
	}, func(l *lab.Lab) {
		l.Say("%s Each cell is one PUT to /status of an object that was just read, with one part changed.", doorLegend)
		matrix(l, "status", []doorRow{
			// Deployment, Pod, Node, Service, Namespace, Job, Shelf
			{"spec", [7]string{no, no, no, no, no, no, no}},
			{"status", [7]string{rv, rv, rv, rv, rv, rv, rv}},
			{"spec and status", [7]string{status, status, status, status, status, status, status}},
			{"labels", [7]string{no, rv, rv, rv, rv, rv, no}},
			{"annotations", [7]string{rv, rv, rv, rv, rv, rv, no}},
			{"finalizers", [7]string{rv, rv, rv, rv, rv, rv, no}},
			{"owner references", [7]string{rv, no, rv, rv, rv, rv, no}},
		})
		l.Say("Of two parts sent at once the cell names those that are stored, by one write. A Shelf is a custom " +
			"resource. Generation never moves here. A Deployment's status door keeps the labels, a Pod's the owner " +
			"references.")
	})
}

func TestOT101_TheObjectKeepsTheStatus(t *testing.T) {
	const no, rv, gen, spec = "-", "rv", "rv gen", "spec"
	lesson.Prove(t, lesson.Claim{
		ID: "OT101", From: "D2 paragraph 4; +",
		Says: "of the kinds here, a replace of the object keeps the stored status, and takes spec and metadata, " +
			"except a Namespace's spec.finalizers",
		Why: "Generation is no witness: a Node, a Service and a Namespace have none, and on the others only spec and a " +
			"Deployment's annotations move it",
		Do:      "After a 200 compare what came back with what you sent.",
		FalseIf: world.TheObjectGoesToStatus.Shows(`what spec sent to the object moves on a Deployment is -`),
		AlsoFalseIf: []world.World{
			world.TheObjectAlsoWritesStatus.Shows(`what status sent to the object moves on a Deployment is rv`),
			world.EtcdKeepsTheOldValue.Shows(`what spec sent to the object moves on a Deployment is rv \*`),
			world.EveryUpdateRaisesTheGeneration.Shows(`what labels sent to the object moves on a Deployment is rv gen`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/apps/deployment", "deploymentStrategy.PrepareForUpdate"),
		Answers: "#44 #45 #47",
	}, func(l *lab.Lab) {
		l.Say("%s Each cell is one PUT of an object that was just read, with one part changed.", doorLegend)
		matrix(l, "", []doorRow{
			// Deployment, Pod, Node, Service, Namespace, Job, Shelf
			{"spec", [7]string{gen, gen, rv, rv, rv + " *", gen, gen}},
			{"status", [7]string{no, no, no, no, no, no, no}},
			{"spec and status", [7]string{spec, spec, spec, spec, "nothing", spec, spec}},
			{"labels", [7]string{rv, rv, rv, rv, rv, rv, rv}},
			{"annotations", [7]string{gen, rv, rv, rv, rv, rv, rv}},
			{"finalizers", [7]string{rv, rv, rv, rv, rv, rv, rv}},
			{"owner references", [7]string{rv, rv, rv, rv, rv, rv, rv}},
		})
		l.Say("The star: who sent spec.finalizers of a Namespace is noted in managedFields as their owner, and they are " +
			"not stored. /finalize stores them (OT103).")
	})
}

// scalable are kinds with a /scale, a custom resource among them.
func scalable(l *lab.Lab) []lab.Kind {
	template := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "shelf"}},
		"spec":     lab.Pod.Base["spec"],
	}
	labels := map[string]any{"app": "shelf"}
	return []lab.Kind{
		lab.Deployment,
		{
			Kind: "StatefulSet", Group: "apps", Version: "v1", Resource: "statefulsets", Fields: "spec",
			Base: map[string]any{"spec": map[string]any{
				"selector": map[string]any{"matchLabels": labels}, "template": template,
			}},
		},
		{
			Kind: "ReplicaSet", Group: "apps", Version: "v1", Resource: "replicasets", Fields: "spec",
			Base: map[string]any{"spec": map[string]any{
				"selector": map[string]any{"matchLabels": labels}, "template": template,
			}},
		},
		l.CustomResource("status", "scale"),
	}
}

func TestOT102_ScaleTakesReplicasAndNothingElse(t *testing.T) {
	const no, noted, gen, stale = "-", "rv *", "rv gen", "409"
	lesson.Prove(t, lesson.Claim{
		ID: "OT102", From: "D2 paragraph 4; +",
		Says: "/scale lets spec.replicas through and nothing else; it needs no token, and refuses a stale one",
		Why: "Labels and status sent there are dropped with 200. And 200 for the number that is there already may still " +
			"be a write: managedFields notes another owner",
		Do:      "Scale through /scale with the token that you decided on.",
		FalseIf: world.GoesToTheObject("scale").Shows(`the label sent to /scale is stored on a Deployment`),
		AlsoFalseIf: []world.World{
			world.ScaleNeedsNoToken.Shows(`what other replicas, stale token sent to /scale moves on a Deployment is rv gen`),
			world.EveryUpdateRaisesTheGeneration.Shows(`what labels sent to /scale moves on a Deployment is rv gen`),
			world.EtcdKeepsTheOldValue.Shows(`what other replicas sent to /scale moves on a Deployment is rv \*`),
		},
		Read: source.Decl("k8s.io/kubernetes/pkg/registry/apps/deployment/storage", "(*ScaleREST).Update"),
	}, func(l *lab.Lab) {
		kinds := scalable(l)
		tokens := map[string]string{}
		for _, k := range kinds {
			tokens[k.Kind] = l.Of(k).Create("shelf", "replicas=1").GetResourceVersion()
		}
		l.Say("%s Each cell is one merge patch of /scale.", doorLegend)
		table := l.Table("part sent", "Deployment", "StatefulSet", "ReplicaSet", "Shelf")
		for _, c := range []struct {
			sent, body string
			moves      [4]string
		}{
			{"labels", `{"metadata":{"labels":{"a":"b"}}}`, [4]string{noted, noted, noted, noted}},
			{"the same replicas", `{"spec":{"replicas":1}}`, [4]string{noted, noted, noted, noted}},
			{"other replicas", `{"spec":{"replicas":2}}`, [4]string{gen, gen, gen, gen}},
			{"the same once more", `{"spec":{"replicas":2}}`, [4]string{no, no, no, no}},
			{"status.replicas", `{"status":{"replicas":9}}`, [4]string{no, no, no, no}},
			{"other replicas, stale token", `{"metadata":{"resourceVersion":%q},"spec":{"replicas":3}}`,
				[4]string{stale, stale, stale, stale}},
		} {
			row := []any{c.sent}
			for i, k := range kinds {
				body := c.body
				if strings.Contains(body, "%q") {
					body = fmt.Sprintf(body, tokens[k.Kind])
				}
				before := l.Of(k).Peek("shelf")
				cell := moves(l, k, func(shelves *lab.Client) error { return sendMerge(body).to("scale")(shelves, "") })
				after := l.Of(k).Peek("shelf")
				if cell == "rv" && lab.Field(before, "replicas") == lab.Field(after, "replicas") {
					cell += " *"
				}
				row = append(row, cell)
				l.Expect(after.GetLabels()["a"] == "", "no label goes through /scale",
					"the label sent to /scale is stored on a %s", k.Kind)
				l.Equal(fmt.Sprintf("what %s sent to /scale moves on a %s", c.sent, k.Kind), cell, c.moves[i])
			}
			table.Row(row...)
		}
		table.End()
		l.Say("The star: each of the first two patches rewrote managedFields, where the owner of replicas is noted, and " +
			"nothing else. A third that changes nothing writes nothing.")
	})
}

func TestOT103_ADoorOfItsOwnWritesWhatTheObjectRefuses(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT103", From: "+",
		Says: "/binding, /ephemeralcontainers, /resize and /finalize each write a part of spec that a write of the " +
			"object itself refuses or drops",
		Why: "What goes along differs by door: /binding takes labels and leaves generation alone, though spec changed, " +
			"and /finalize takes labels, too",
		Do:      "Look up a field's own subresource before you call it immutable.",
		FalseIf: world.GoesToTheObject("ephemeralcontainers").Shows(`/ephemeralcontainers moves is 422`),
		AlsoFalseIf: []world.World{
			world.GoesToTheObject("resize").Shows(`/resize moves is 422`),
			world.GoesToTheObject("finalize").Shows(`/finalize stores is label`),
			world.EveryUpdateRaisesTheGeneration.Shows(`/binding moves is rv gen`),
		},
		Read: source.Decl("k8s.io/kubernetes/pkg/registry/core/pod/storage", "(*BindingREST).setPodNodeAndMetadata"),
	}, func(l *lab.Lab) {
		pod := l.Of(lab.Pod).New("shelf")
		require.NoError(l, unstructured.SetNestedSlice(pod.Object, []any{map[string]any{
			"name": "c", "image": "registry.example/shelf:1",
			"resources": map[string]any{"requests": map[string]any{"cpu": "1"}},
		}}, "spec", "containers"), "setting a request for cpu")
		l.Of(lab.Pod).CreateObject(pod)

		table := l.Table("door", "field", "moves", "stored of what was sent", "sent to the object")
		for _, d := range furtherDoors {
			objects, name := l.Of(d.kind), "shelf"
			if d.kind.Cluster {
				name = l.Namespace
			}
			before := objects.Peek(name)
			_, err := objects.TryPatch(name, types.StrategicMergePatchType, `{"spec":`+d.spec+`}`)
			direct, after := lab.AnswerLine(err), objects.Peek(name)
			l.Expect(d.value(before) == d.value(after), d.field+" is not stored through the object",
				"%s is stored through the object", d.field)

			moved := d.pass(l, objects, name)
			stored := d.stored(after, objects.Peek(name))
			table.Row("/"+d.door, d.field, moved, stored, direct)
			l.Equal("what /"+d.door+" moves", moved, d.moves)
			l.Equal("what /"+d.door+" stores", stored, d.stores)
			l.Equal("the answer of the object to "+d.field, direct, d.direct)
		}
		table.End()
		l.Say("Each door was sent the field, a label and a finalizer. A Namespace has no generation.")
	})
}

// furtherDoor is a subresource that writes one field of spec, and what becomes of it. In the body, NAME and DOOR stand
// for the name of the object and the subresource.
type furtherDoor struct {
	kind                  lab.Kind
	door, field           string
	verb, body            string
	spec                  string // the field alone, as a patch of the object has it
	moves, stores, direct string
}

const tagged = `"labels":{"modrev.example/door":"DOOR"},"finalizers":["modrev.example/door"]`

var furtherDoors = []furtherDoor{
	{
		lab.Pod, "ephemeralcontainers", "spec.ephemeralContainers", http.MethodPatch,
		`{"metadata":{"name":"NAME",` + tagged + `},` +
			`"spec":{"ephemeralContainers":[{"name":"debug","image":"registry.example/shelf:1"}]}}`,
		`{"ephemeralContainers":[{"name":"debug","image":"registry.example/shelf:1"}]}`,
		"rv gen", "field", "422 Invalid",
	},
	{
		lab.Pod, "resize", "spec.containers", http.MethodPatch,
		`{"metadata":{"name":"NAME",` + tagged + `},` +
			`"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}`,
		`{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}`, "rv gen", "field", "422 Invalid",
	},
	{
		lab.Pod, "binding", "spec.nodeName", http.MethodPost,
		`{"apiVersion":"v1","kind":"Binding","metadata":{"name":"NAME",` + tagged + `},"target":{"kind":"Node","name":"n1"}}`,
		`{"nodeName":"n1"}`, "rv", "field, label", "422 Invalid",
	},
	{
		lab.Namespace, "finalize", "spec.finalizers", http.MethodPut,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"NAME",` + tagged + `},` +
			`"spec":{"finalizers":["kubernetes","modrev.example/a"]}}`,
		`{"finalizers":["kubernetes","modrev.example/a"]}`, "rv", "field, label, finalizer", "200",
	},
}

// pass sends to the door what it is for, and says what that moved, or the code of the refusal.
func (d furtherDoor) pass(l *lab.Lab, objects *lab.Client, name string) string {
	before, body := objects.Peek(name), strings.NewReplacer("NAME", name, "DOOR", d.door).Replace(d.body)
	var err error
	if path := objects.Path(name) + "/" + d.door; d.verb == http.MethodPatch {
		_, err = objects.TryPatchAt(path, "", types.StrategicMergePatchType, []byte(body))
	} else {
		_, err = objects.TryRaw(d.verb, path, "", []byte(body))
	}
	if err != nil {
		return strconv.Itoa(l.Refusal(err, "the write of "+d.field).Code)
	}
	return cmp.Or(strings.Join(movesOf(before, objects.Peek(name)), " "), "-")
}

// value is the field as text.
func (d furtherDoor) value(o *lab.Object) string {
	return fmt.Sprint(unstructured.NestedFieldNoCopy(o.Object, strings.Split(d.field, ".")...))
}

// stored says which of the things that the door was sent are stored.
func (d furtherDoor) stored(before, after *lab.Object) string {
	var all []string
	if d.value(before) != d.value(after) {
		all = append(all, "field")
	}
	if after.GetLabels()["modrev.example/door"] == d.door {
		all = append(all, "label")
	}
	if len(after.GetFinalizers()) > 0 {
		all = append(all, "finalizer")
	}
	return cmp.Or(strings.Join(all, ", "), "nothing")
}
