// Chapter 4, continued: lists that merge, and lists that do not.
package modrev

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT37_AJSONPatchRemovesAnIndexAndNotYourEntry(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT37", From: "+",
		Says: "a JSON Patch removes what stands at an index when it is applied, not the entry that you saw there",
		Why: "another actor's finalizer goes in the place of yours, and the object may go with it; the server's own " +
			"retry does that, too",
		Do:      "Put a test of the value before every remove in a JSON Patch.",
		FalseIf: removesAreTested.Shows(`ann's patch after hers has gone was refused: 422 Invalid`),
		AlsoFalseIf: []world.World{
			testsAreDropped.Shows(`ann's patch with a test was accepted`),
			world.EtcdIgnoresTheCompareOf("raced").Shows(`the finalizers after the race is b$`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "(*jsonPatcher).applyJSPatch"),
		Answers: "#5 #85",
	}, func(l *lab.Lab) {
		const remove = `{"op":"remove","path":"/metadata/finalizers/0"}`
		const test = `{"op":"test","path":"/metadata/finalizers/0","value":"modrev.example/a"}`
		const token = `{"op":"replace","path":"/metadata/resourceVersion","value":"%s"}`
		// shared makes an object with the finalizers a and b; a rival has taken a away if gone.
		shared := func(name string, gone bool) *lab.Object {
			o := l.New(name)
			o.SetFinalizers([]string{"modrev.example/a", "modrev.example/b"})
			o = l.CreateObject(o)
			if gone {
				takeAAway(l, name)
			}
			return o
		}
		table := l.Table("the finalizers were a, b, and a was removed; now", "answer", "finalizers then")
		patch := func(what, name, body string) error {
			_, err := l.TryPatch(name, types.JSONPatchType, "["+body+"]")
			table.Row(what, lab.AnswerLine(err), finalizersOf(l, name))
			return err
		}
		invalid := lab.Refusal{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid}

		shared("index", true)
		l.Accepted(patch("remove /0", "index", remove), "ann's patch after hers has gone")
		l.Equal("the finalizers after it", finalizersOf(l, "index"), "none")

		shared("terminating", true)
		l.Delete("terminating")
		err := patch("remove /0, the object is being deleted", "terminating", remove)
		l.Accepted(err, "ann's patch of a terminating object")
		l.Equal("the finalizers after it", finalizersOf(l, "terminating"), "the object is gone")

		shared("tested", true)
		l.Refused(patch("test /0, remove /0", "tested", test+","+remove), "ann's patch with a test", invalid)
		read := shared("with-token", true)
		l.Refused(patch("resourceVersion, remove /0", "with-token", fmt.Sprintf(token, read.GetResourceVersion())+","+remove),
			"ann's patch with a token", lab.Stale(read))
		shared("outside", true)
		err = patch("remove /1", "outside", strings.Replace(remove, "/0", "/1", 1))
		l.Refused(err, "a patch of an index that is gone", invalid)

		raced := shared("raced", false)
		sent, err := removeOvertaken(l, raced, remove)
		table.Row("remove /0, the removal comes in between", lab.AnswerLine(err), finalizersOf(l, "raced"))

		shared("by-value", true)
		_, byValue := l.TryPatch("by-value", types.StrategicMergePatchType,
			`{"metadata":{"$deleteFromPrimitiveList/finalizers":["modrev.example/a"]}}`)
		table.Row("a strategic merge patch that names a", lab.AnswerLine(byValue), finalizersOf(l, "by-value"))
		table.End()
		l.Accepted(err, "the raced patch")
		l.Equal("the finalizers after the race", finalizersOf(l, "raced"), "none")
		l.Equal("the number of transactions of both", sent.Count(wire.Txn), 3)
		l.Accepted(byValue, "the strategic merge patch")
		l.Equal("the finalizers after the strategic merge patch", finalizersOf(l, "by-value"), "b")
		l.Say("RetryOnConflict does not repeat the 422 of a failed test (CF7). Custom resources know no strategic merge " +
			"patches: there take the test or the token.")
	})
}

// removeOvertaken holds a remove at etcd's door until a rival has taken a away.
func removeOvertaken(l *lab.Lab, o *lab.Object, remove string) (sent wire.Requests, err error) {
	l.Settle(o)
	sent = l.Record(func() {
		err = l.Race(l.Key(o), func() error {
			_, err := l.TryPatch(o.GetName(), types.JSONPatchType, "["+remove+"]")
			return err
		}, func() { takeAAway(l, o.GetName()) })
	})
	return sent, err
}

// takeAAway has a rival leave only the finalizer b.
func takeAAway(l *lab.Lab, name string) {
	l.Rival().Patch(name, types.MergePatchType, `{"metadata":{"finalizers":["modrev.example/b"]}}`)
}

// finalizersOf are the finalizers of a ConfigMap as a table shows them.
func finalizersOf(l *lab.Lab, name string) string {
	defer l.Wire.Tape().Pause()()
	o, err := l.TryGet(name)
	switch {
	case lab.IsNotFound(err):
		return "the object is gone"
	case err != nil || len(o.GetFinalizers()) == 0:
		return "none"
	}
	return strings.ReplaceAll(strings.Join(o.GetFinalizers(), ", "), "modrev.example/", "")
}

// removesAreTested puts a test of a's finalizer before the removes of JSON patches.
var removesAreTested = world.New("the library tests each value before it removes it", func(l *lab.Lab) {
	editJSONPatches(l, "with a test of the value", func(ops []map[string]any) []map[string]any {
		test := map[string]any{"op": "test", "path": "/metadata/finalizers/0", "value": "modrev.example/a"}
		return append([]map[string]any{test}, ops...)
	})
})

// testsAreDropped takes the tests out of JSON patches.
var testsAreDropped = world.New("the library leaves the tests out of JSON patches", func(l *lab.Lab) {
	editJSONPatches(l, "without its tests", func(ops []map[string]any) []map[string]any {
		var kept []map[string]any
		for _, op := range ops {
			if op["op"] != "test" {
				kept = append(kept, op)
			}
		}
		return kept
	})
})

// editJSONPatches changes the operations of JSON patches.
func editJSONPatches(l *lab.Lab, note string, change func(ops []map[string]any) []map[string]any) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "JSON patch" }, Note: note,
		Request: func(_ *http.Request, body []byte) []byte {
			var ops []map[string]any
			if json.Unmarshal(body, &ops) != nil {
				return body
			}
			changed, _ := json.Marshal(change(ops)) // it was JSON before
			return changed
		},
	})
}

func TestOT38_AListMergesOnlyWhereTheSchemaNamesItsKey(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT38", From: "+",
		Says: "server-side apply merges a custom resource's list of objects only if its schema says listType=map; " +
			"without that the list has one owner",
		Why: "two controllers that apply their conditions conflict, and force removes the condition of the other; " +
			"patchStrategy tags in Go mean nothing to the server",
		Do:      "Mark conditions with x-kubernetes-list-type: map and their key, type.",
		FalseIf: world.EveryApplyIsForced.Shows(`bob's apply to the atomic list was accepted`),
		AlsoFalseIf: []world.World{
			world.RefusalsLoseTheirCauses.Shows(`bob's apply to the atomic list was refused: 409 Conflict: Apply failed`),
			bobSendsMergePatches.Shows(`after two applies to the keyed list is Filled`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/util/managedfields/internal", "NewConflictError"),
		Answers: "#86",
	}, func(l *lab.Lab) {
		atomic, keyed := shelvesWithConditions(l, nil), shelvesWithConditions(l, map[string]any{
			"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"type"},
		})
		table := l.Table("the list is", "who", "sends", "answer", "conditions then")
		send := func(name string, kind lab.Kind, who string, format types.PatchType, force bool, condition string) error {
			shelf := l.As(who).Of(kind).Sub("status")
			body := fmt.Sprintf(`{"apiVersion":%q,"kind":"Shelf","status":{"conditions":[{"type":%q,"status":"True"}]}}`,
				kind.Group+"/"+kind.Version, condition)
			options := metav1.PatchOptions{FieldManager: who}
			if format == types.ApplyPatchType {
				options.Force = &force
			}
			_, err := shelf.TryPatchWith("shelf", format, body, options)
			what := map[types.PatchType]string{types.ApplyPatchType: "apply", types.MergePatchType: "merge patch",
				types.StrategicMergePatchType: "strategic merge patch"}[format]
			if force {
				what = "forced " + what
			}
			table.Row(name, who, what+" of "+condition, lab.AnswerLine(err), conditions(l.Of(kind).Peek("shelf")))
			return err
		}
		apply := types.ApplyPatchType
		l.Of(atomic).Create("shelf")
		l.Of(keyed).Create("shelf")

		l.Accepted(send("atomic", atomic, "ann", apply, false, "Painted"), "ann's apply to the atomic list")
		l.Refused(send("", atomic, "bob", apply, false, "Filled"), "bob's apply to the atomic list",
			owned(".status.conditions"))
		l.Accepted(send("", atomic, "bob", apply, true, "Filled"), "bob's forced apply")
		l.Equal("what is stored after a forced apply to the atomic list", conditions(l.Of(atomic).Peek("shelf")), "Filled")
		l.Equal("the owners of the atomic list", l.Owners(l.Of(atomic).Peek("shelf")),
			[]string{"bob by Apply of /status: conditions"})

		l.Accepted(send("keyed by type", keyed, "ann", apply, false, "Painted"), "ann's apply to the keyed list")
		l.Accepted(send("", keyed, "bob", apply, false, "Filled"), "bob's apply to the keyed list")
		l.Equal("what is stored after two applies to the keyed list",
			conditions(l.Of(keyed).Peek("shelf")), "Painted, Filled")
		l.Accepted(send("", keyed, "cid", types.MergePatchType, false, "Sold"), "a merge patch of the keyed list")
		l.Equal("what is stored after a merge patch", conditions(l.Of(keyed).Peek("shelf")), "Sold")
		err := send("", keyed, "cid", types.StrategicMergePatchType, false, "Sold")
		table.End()
		l.Refused(err, "a strategic merge patch of a custom resource", lab.Refusal{
			Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType})
		l.Say("The key helps apply alone: a merge patch replaces a keyed list as a whole, and custom resources have no " +
			"strategic merge patch.")
	})
}

// shelvesWithConditions defines a custom resource with conditions in its status, whose list has the given markers.
func shelvesWithConditions(l *lab.Lab, markers map[string]any) lab.Kind {
	text := map[string]any{"type": "string"}
	list := map[string]any{"type": "array", "items": map[string]any{
		"type": "object", "properties": map[string]any{"type": text, "status": text}, "required": []any{"type"},
	}}
	for name, value := range markers {
		list[name] = value
	}
	return l.Define(lab.Version{Name: "v1", Storage: true, Status: map[string]any{"conditions": list},
		Subresources: []string{"status"}})
}

// bobSendsMergePatches sends what bob applies to a keyed list as a merge patch: his second request without force.
var bobSendsMergePatches = world.New("bob's applies to keyed lists are sent as merge patches", func(l *lab.Lab) {
	n := 0
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool {
			if c.Who != "bob" || c.Format != "apply" {
				return false
			}
			n++
			return n == 3
		},
		Note: "sent as a merge patch",
		Request: func(q *http.Request, body []byte) []byte {
			q.Header.Set("Content-Type", string(types.MergePatchType))
			q.URL.RawQuery = ""
			return body
		},
	})
})

func TestOT38b_TheKeyOfAListDependsOnThePatch(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT38b", From: "+",
		Says: "a strategic merge patch knows a container's ports by number alone, apply by number and protocol: the same " +
			"entry replaces one or joins it",
		Why: "each way of patching has merge keys of its own: an entry found by less than you think takes another's " +
			"place",
		Do:      "Look up the merge key of a list before you patch it.",
		FalseIf: strategicIsApply.Shows(`the ports after a strategic merge patch is 53/TCP, 53/UDP`),
		AlsoFalseIf: []world.World{
			world.PatchesAreSentAs("deployments", "apply", "strategic merge patch", types.StrategicMergePatchType).
				Shows(`the ports after an apply is 53/UDP`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/util/strategicpatch", "StrategicMergeMapPatch"),
		Answers: "#86",
	}, func(l *lab.Lab) {
		table := l.Table("53/TCP is there, 53/UDP is sent", "answer", "ports then")
		send := func(format types.PatchType, name, what string) string {
			shelf := l.Of(lab.Deployment).New(name)
			setPorts(l, shelf, "TCP")
			l.Of(lab.Deployment).CreateObject(shelf)
			body, options := portsPatch("UDP"), metav1.PatchOptions{FieldManager: "bob"}
			_, err := l.As("bob").Of(lab.Deployment).TryPatchWith(name, format, body, options)
			stored := portsOf(l.Of(lab.Deployment).Peek(name))
			table.Row(what, lab.AnswerLine(err), stored)
			l.Accepted(err, "the "+what)
			return stored
		}
		l.Equal("the ports after a strategic merge patch",
			send(types.StrategicMergePatchType, "strategic", "strategic merge patch"), "53/UDP")
		l.Equal("the ports after an apply", send(types.ApplyPatchType, "applied", "apply"), "53/TCP, 53/UDP")
		table.End()
		l.Say("The keys stand in the API's Go types and in its OpenAPI: patchMergeKey=containerPort for the one, " +
			"listMapKey=containerPort and listMapKey=protocol for the other.")
	})
}

// setPorts gives the container of a Deployment one port.
func setPorts(l *lab.Lab, o *lab.Object, protocol string) {
	var patch lab.Object
	if err := json.Unmarshal([]byte(portsPatch(protocol)), &patch.Object); err != nil {
		l.Stuck("reading the ports", err)
	}
	o.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"] =
		patch.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"]
}

// portsPatch is a patch of a Deployment that names one port of its container.
func portsPatch(protocol string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"template":{"spec":{"containers":[`+
		`{"name":"c","image":"registry.example/shelf:1","ports":[{"containerPort":53,"protocol":%q}]}]}}}}`, protocol)
}

// portsOf are the ports of the container of a Deployment, in order.
func portsOf(o *lab.Object) string {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	ports, _, _ := unstructured.NestedSlice(containers[0].(map[string]any), "ports")
	var out []string
	for _, port := range ports {
		port := port.(map[string]any)
		out = append(out, fmt.Sprintf("%v/%v", port["containerPort"], port["protocol"]))
	}
	return strings.Join(out, ", ")
}

// strategicIsApply sends strategic merge patches as applies.
var strategicIsApply = world.New("bob's strategic merge patches are sent as applies", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "strategic merge patch" }, Note: "sent as an apply",
		Request: func(q *http.Request, body []byte) []byte {
			q.Header.Set("Content-Type", string(types.ApplyPatchType))
			q.URL.RawQuery = "fieldManager=bob"
			return body
		},
	})
})
