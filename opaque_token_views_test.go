// Chapter 4, continued: several views of one object.
package modrev

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/world"
)

func TestOT80_EveryVersionOfAnObjectHasTheSameToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT80", From: "+",
		Says: "an object has one key, one uid and one resourceVersion, in whatever version or group it is read",
		Why: "a write through one version makes the tokens of all stale; and two informers of two versions hold one " +
			"object",
		Do:      "Tell objects apart by uid, and send a token through whatever version you write.",
		FalseIf: world.EachVersionHasATokenOfItsOwn.Shows(`a stale replace of the Shelf was accepted`),
		Read:    source.Decl("k8s.io/apiextensions-apiserver/pkg/apiserver", "(*crdHandler).getOrCreateServingInfoFor"),
		Answers: "#97",
	}, func(l *lab.Lab) {
		shelf := l.Define(lab.Version{Name: "v1", Spec: fieldsOfSpec{"a": integer}},
			lab.Version{Name: "v2", Spec: fieldsOfSpec{"a": integer, "b": integer}, Storage: true})
		table := l.Table("object", "read as", "uid", "resourceVersion", "mod_revision", "next write")
		for _, k := range []struct {
			first, second lab.Kind
			fields        string
		}{
			{shelf, shelf.In("v2"), "a=1"},
			{autoscaler.In("v1"), autoscaler, "maxReplicas=3"},
			{coreEvent, eventOfItsOwnGroup, "involvedObject.namespace=" + l.Namespace},
		} {
			first, second := l.Of(k.first), l.Rival().Of(k.second)
			first.Create("shelf", k.fields)
			read := first.Get("shelf")
			stored := l.KV(read).ModRevision
			views := []*lab.Object{read, second.Get("shelf"), metadataOf(first, "shelf")}
			as := []string{k.first.GVK().GroupVersion().String(), k.second.GVK().GroupVersion().String(), "metadata alone"}
			written := second.Patch("shelf", types.MergePatchType, `{"metadata":{"labels":{"room":"12"}}}`)
			events := []string{
				first.Watch(read.GetResourceVersion()).Next().ResourceVersion,
				second.Watch(read.GetResourceVersion()).Next().ResourceVersion, "",
			}
			for i, view := range views {
				table.Row(k.first.Kind, as[i], shortUID(view), view.GetResourceVersion(), stored, events[i])
				l.Equal("the uid of a view", view.GetUID(), read.GetUID())
				l.Equal("the resourceVersion of a view", number(view), stored)
			}
			l.Equal("the event of the first view", events[0], written.GetResourceVersion())
			l.Equal("the event of the second view", events[1], written.GetResourceVersion())
			_, err := first.TryReplace(read)
			l.Refused(err, "a stale replace of the "+k.first.Kind, lab.Stale(read))
		}
		table.End()
		l.Say("The next write went through the second view. A watch of either tells of it under one number. A replace with "+
			"the token that was read through the first is then the ordinary 409. It names no version: that of the Shelf is "+
			"about %s.",
			shelf.GVR().GroupResource())
	})
}

func TestOT81_AWriteThroughAnOlderVersionDropsWhatThatCannotSay(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT81", From: "+",
		Says: "any write through a version of a custom resource stores what that version can say: the other " +
			"fields go, with 200",
		Why: "a label, a finalizer, a status, even an empty patch is a write of the whole object; and generation may not " +
			"tell what was lost",
		Do:      "Give every served version a place for every field.",
		FalseIf: world.AGatewaySends("v1", "v2").Shows(`b after a replace by what was read is 1`),
		AlsoFalseIf: []world.World{
			world.EmptyPatchesAreNotStored.Shows(`b after an empty merge patch is 1`),
		},
		Read:    source.Decl("k8s.io/apiextensions-apiserver/pkg/apiserver", "schemaCoercingConverter.ConvertToVersion"),
		Answers: "#97",
	}, func(l *lab.Lab) {
		subresources := []string{"status", "scale"}
		kind := l.Define(
			lab.Version{Name: "v1", Spec: fieldsOfSpec{"a": integer, "replicas": integer}, Subresources: subresources},
			lab.Version{Name: "v2", Spec: fieldsOfSpec{"a": integer, "replicas": integer, "b": integer},
				Subresources: subresources, Storage: true})
		old, newest := l.As("old").Of(kind), l.As("new").Of(kind.In("v2"))
		replace := func(name string) error { _, err := old.TryReplace(old.Get(name)); return err }
		apply := func(name string) error { _, err := old.TryApply(name, "ann", true, "a=2"); return err }
		remove := func(name string) error { return old.TryDelete(name) }
		merge := func(c *lab.Client, body string) func(name string) error {
			return func(name string) error { _, err := c.TryPatch(name, types.MergePatchType, body); return err }
		}

		table := l.Table("through v1, which has no b", "answer", "generation", "b, through v2")
		for _, w := range []struct {
			name, what string
			write      func(name string) error
			generation int64
		}{
			{"replace", "a replace by what was read", replace, 1},
			{"empty", "an empty merge patch", merge(old, `{}`), 1},
			{"label", "a label", merge(old, `{"metadata":{"labels":{"room":"12"}}}`), 1},
			{"finalizer", "a finalizer", merge(old, `{"metadata":{"finalizers":["modrev.example/more"]}}`), 1},
			{"status", "a status, through /status", merge(old.Sub("status"), `{"status":{"message":"fine"}}`), 1},
			{"scale", "replicas, through /scale", merge(old.Sub("scale"), `{"spec":{"replicas":2}}`), 2},
			{"apply", "an apply of a", apply, 2},
			{"delete", "a delete that a finalizer holds", remove, 2},
		} {
			createHeld(newest, w.name, "a=1", "b=1")
			err := w.write(w.name)
			after := newest.Peek(w.name)
			table.Row(w.what, lab.AnswerLine(err), after.GetGeneration(), lab.Fields(after, "b"))
			l.Accepted(err, w.what)
			l.Equal("b after "+w.what, lab.Field(after, "b"), "")
			l.Equal("the generation after "+w.what, after.GetGeneration(), w.generation)
			newest.Patch(w.name, types.MergePatchType, `{"metadata":{"finalizers":null}}`) // so that it can go
		}
		table.End()

		// The same with a v1 that keeps what it does not know.
		kind = l.Define(lab.Version{Name: "v1"}, lab.Version{Name: "v2", Spec: fieldsOfSpec{"a": integer, "b": integer},
			Storage: true})
		kept := l.Of(kind.In("v2")).Create("kept", "a=1", "b=1")
		l.Of(kind).Set("kept", "a=2")
		l.Stored(kept, "a=2", "b=1")
		l.Say("The token is good in both versions, so none of these is a conflict. A v1 whose schema keeps unknown fields " +
			"(x-kubernetes-preserve-unknown-fields) carries b along; a conversion webhook can, too. See also OT8.")
	})
}

func TestOT81b_ABuiltInVersionCarriesWhatItCannotSayInAnnotations(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT81b", From: "+",
		Says: "a built-in kind carries what an old version cannot say in an annotation: drop that, and the field is gone",
		Why: "a client that resets the annotations of an autoscaling/v1 object takes its metrics away, with 200; the " +
			"server puts a default in their place",
		Do:      "Send back annotations that you do not know, or write the newest version.",
		FalseIf: world.LostAnnotationsAreKept.Shows(`the metric after a replace without annotations is memory 50`),
		AlsoFalseIf: []world.World{
			world.AnnotationsAreNotSentBack.Shows(`the metric after a replace by what was read is cpu 80`),
		},
		Read: source.Decl("k8s.io/kubernetes/pkg/apis/autoscaling/v1",
			"Convert_autoscaling_HorizontalPodAutoscaler_To_v1_HorizontalPodAutoscaler"),
		Answers: "#97",
	}, func(l *lab.Lab) {
		newest, old := l.As("new").Of(autoscaler), l.As("old").Of(autoscaler.In("v1"))
		newest.Create("shelf", "maxReplicas=3")

		table := l.Table("step", "spec.metrics in v2", "annotations in v1")
		look := func(step string) string {
			metric := metricOf(newest.Peek("shelf"))
			table.Row(step, metric, len(old.Peek("shelf").GetAnnotations()))
			return metric
		}
		look("created through v2")
		old.Replace(old.Get("shelf"), "maxReplicas=4")
		kept := look("replaced through v1 by what was read, with maxReplicas=4")
		without := old.Get("shelf")
		without.SetAnnotations(nil)
		old.Replace(without, "maxReplicas=5")
		lost := look("replaced through v1 without annotations")
		table.End()
		l.Say("The annotation is autoscaling.alpha.kubernetes.io/metrics. In v2 it cannot be seen, and it is not stored.")

		l.Equal("the metric after a replace by what was read", kept, "memory 50")
		l.Equal("the metric after a replace without annotations", lost, "cpu 80")
	})
}

func TestOT81c_WithoutItsConverterAnObjectHasOneVersion(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT81c", From: "+",
		Says: "while a conversion webhook is down, an object can be used in the version that it is stored in, and in no " +
			"other",
		Why: "informers of the other version cannot start, what it has written cannot be applied to; and the message calls " +
			"a sound object corrupt",
		Do:      "Watch and write the storage version; keep a converter up while anybody does not.",
		FalseIf: world.AGatewaySends("v2", "v1").Shows(`a GET through v2 is 200`),
		Read:    source.Decl("k8s.io/apiextensions-apiserver/pkg/apiserver/conversion", "(*webhookConverter).Convert"),
		Answers: "#97",
	}, func(l *lab.Lab) {
		a := fieldsOfSpec{"a": integer}
		kind := l.Define(lab.Version{Name: "v1", Spec: a, Storage: true}, lab.Version{Name: "v2", Spec: a})
		for _, name := range []string{"shelf", "v1", "v2"} {
			l.Of(kind.In("v2")).Create(name, "a=1")
		}
		l.ConvertBy(kind, "https://127.0.0.1:9/nobody-listens-here")
		l.Served(kind)

		table := l.Table("request", "through v1, which is stored", "through v2")
		get := func(c *lab.Client) error { _, err := c.TryGetOnce("shelf", ""); return err }
		list := func(c *lab.Client) error { _, err := c.TryGetOnce("", ""); return err }
		merge := func(c *lab.Client) error { _, err := c.TrySet("shelf", "a=2"); return err }
		apply := func(c *lab.Client) error { _, err := c.TryApply("shelf", "ann", true, "a=3"); return err }
		remove := func(c *lab.Client) error { return c.TryDelete(c.Kind().Version) }
		for _, q := range []struct {
			what   string
			do     func(c *lab.Client) error
			v1, v2 string
		}{
			{"a GET", get, "200", "500 InternalError"},
			{"a list", list, "200", "429 TooManyRequests"},
			{"a merge patch", merge, "200", "500"},
			{"an apply", apply, "500", "500"},
			{"a delete", remove, "200", "500 InternalError"},
		} {
			v1, v2 := lab.AnswerLine(q.do(l.Of(kind))), lab.AnswerLine(q.do(l.Of(kind.In("v2"))))
			table.Row(q.what, v1, v2)
			l.Equal(q.what+" through v2", v2, q.v2)
			l.Equal(q.what+" through v1", v1, q.v1)
		}
		table.End()
		l.Say("The objects were created through v2 and are stored as v1. An apply converts them to v2 in any case, since " +
			"their managedFields name it (OT86b). The 500 of a GET says: corrupt object, not decodable.")
	})
}

func TestOT82_AChangedSchemaShowsUnderTheSameToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT82", From: "+",
		Says: "a custom resource is read by the schema of now: a changed definition changes what is shown, under the same " +
			"resourceVersion and generation",
		Why: "equal tokens say that nothing was written in between, not that both readings show the same; handlers that " +
			"skip equal tokens never see the change",
		Do:      "Reconcile everything again after its definition has changed.",
		FalseIf: world.ADefinitionRewritesItsObjects.Shows(`the resourceVersion under the new schema is \d+`),
		Read:    source.Decl("k8s.io/apiextensions-apiserver/pkg/apiserver", "unstructuredDefaulter.Default"),
		Answers: "#95",
	}, func(l *lab.Lab) {
		kind := l.Define(lab.Version{Name: "v1", Spec: fieldsOfSpec{"a": integer}, Storage: true})
		shelves := l.Of(kind)
		before := shelves.Create("shelf", "a=1")
		watch := shelves.Watch(before.GetResourceVersion())
		bytes := string(l.KV(before).Value)

		l.Redefine(kind, lab.Version{Name: "v1", Spec: fieldsOfSpec{"a": integer, "b": byDefault(5)}, Storage: true})
		after := shelves.Get("shelf")
		table := l.Table("schema of spec", "GET shelf", "resourceVersion", "generation", "mod_revision")
		table.Row("a", lab.Fields(before, "a", "b"), before.GetResourceVersion(), before.GetGeneration(),
			before.GetResourceVersion())
		table.Row("a, and b by default 5", lab.Fields(after, "a", "b"), after.GetResourceVersion(), after.GetGeneration(),
			l.KV(after).ModRevision)
		table.End()
		l.Equal("the resourceVersion under the new schema", after.GetResourceVersion(), before.GetResourceVersion())
		l.Equal("b under the new schema", lab.Field(after, "b"), "5")
		l.Equal("the generation", after.GetGeneration(), before.GetGeneration())
		l.Expect(string(l.KV(after).Value) == bytes, "etcd holds the same bytes", "etcd holds other bytes")

		_, ended := watch.TryNext()
		l.Expect(ended != nil, "the change ends a watch that ran", "it delivered an event")
		fence := shelves.Watch(shelves.List().GetResourceVersion())
		written := shelves.Create("fence", "a=1")
		l.Equal("the first event of a watch after the change", fence.Next().ResourceVersion, written.GetResourceVersion())
		update := event.UpdateEvent{ObjectOld: before, ObjectNew: after}
		l.Expect(!predicate.ResourceVersionChangedPredicate{}.Update(update),
			"a handler that skips equal tokens skips the change", "it let the change pass")
		l.Expect(!predicate.GenerationChangedPredicate{}.Update(update),
			"a handler that skips equal generations skips it, too", "it let the change pass")
		l.Say("No event tells of the change. It ends the watches of the kind. An informer then lists anew, and hands its " +
			"handlers two objects with one token. ResourceVersionChangedPredicate and GenerationChangedPredicate of " +
			"controller-runtime drop that.")
	})
}

func TestOT82b_ADefaultFollowsTheSchemaUntilItIsWritten(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT82b", From: "+",
		Says: "a default of a custom resource follows the schema until a write of the object stores it; from then on it " +
			"stays",
		Why: "two objects of one manifest differ after a release, by whether anybody has touched them since the last one, " +
			"be it with an empty patch",
		Do:      "Write the value that must last; do not rely on a default.",
		FalseIf: world.EtcdKeepsTheOldValue.Shows(`b of a touched shelf, by default 7, is 7`),
		Read:    source.Decl("k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting", "Default"),
		Answers: "#95",
	}, func(l *lab.Lab) {
		with := func(b any) lab.Version {
			return lab.Version{Name: "v1", Spec: fieldsOfSpec{"a": integer, "b": b}, Storage: true}
		}
		kind := l.Define(lab.Version{Name: "v1", Spec: fieldsOfSpec{"a": integer}, Storage: true})
		shelves := l.Of(kind)
		shelves.Create("left-alone", "a=1")
		shelves.Create("touched", "a=1")

		table := l.Table("b in the schema", "left-alone", "touched")
		look := func(schema string) (leftAlone, touched string) {
			leftAlone, touched = lab.Field(shelves.Get("left-alone"), "b"), lab.Field(shelves.Get("touched"), "b")
			table.Row(schema, "b="+leftAlone, "b="+touched)
			return leftAlone, touched
		}
		l.Redefine(kind, with(byDefault(6)))
		look("default 6")
		shelves.Patch("touched", types.MergePatchType, `{}`)
		look("default 6, and an empty patch of touched")
		l.Redefine(kind, with(byDefault(7)))
		leftAlone, touched := look("default 7")
		table.End()
		l.Equal("b of a shelf that was left alone, by default 7,", leftAlone, "7")
		l.Equal("b of a touched shelf, by default 7,", touched, "6")
		l.Equal("the owner of b", l.OwnersOf(shelves.Get("touched"), "b"), "nobody")
	})
}

func TestOT83_WhatASchemaHidesIsLostWithTheNextWrite(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT83", From: "+",
		Says: "a field that the schema no longer has is hidden, and not gone, until the next write of the object, an empty " +
			"one too",
		Why: "until then the old schema brings it back; after a rollback that comes later than the first write, it is gone " +
			"for good",
		Do:      "Keep a field in the schema for as long as objects hold it.",
		FalseIf: world.EtcdKeepsTheOldValue.Shows(`b in etcd after an empty patch is 7`),
		AlsoFalseIf: []world.World{
			world.ADefinitionRewritesItsObjects.Shows(`b in etcd, hidden by the schema, is empty`),
		},
		Read:    source.Decl("k8s.io/apiextensions-apiserver/pkg/apiserver", "(*unstructuredSchemaCoercer).apply"),
		Answers: "#95",
	}, func(l *lab.Lab) {
		a := lab.Version{Name: "v1", Spec: fieldsOfSpec{"a": integer}, Storage: true}
		ab := lab.Version{Name: "v1", Spec: fieldsOfSpec{"a": integer, "b": integer}, Storage: true}
		kind := l.Define(ab)
		shelves := l.Of(kind)
		shelf := shelves.Create("shelf", "a=1", "b=7")

		table := l.Table("step", "GET shelf", "in etcd", "resourceVersion", "generation")
		look := func(step string) (shown, stored string) {
			read, bytes := shelves.Get("shelf"), storedForm(l, shelf)
			table.Row(step, lab.Fields(read, "a", "b"), lab.Fields(bytes, "a", "b"), read.GetResourceVersion(),
				read.GetGeneration())
			return lab.Field(read, "b"), lab.Field(bytes, "b")
		}
		look("created with b=7")
		l.Redefine(kind, a)
		hidden, stored := look("b is taken out of the schema")
		l.Equal("b, hidden by the schema,", hidden, "")
		l.Equal("b in etcd, hidden by the schema,", stored, "7")
		l.Redefine(kind, ab)
		back, _ := look("and put back")
		l.Equal("b, put back into the schema,", back, "7")
		l.Redefine(kind, a)
		shelves.Patch("shelf", types.MergePatchType, `{}`)
		_, stored = look("taken out again, and an empty patch")
		l.Equal("b in etcd after an empty patch", stored, "")
		l.Redefine(kind, ab)
		gone, _ := look("and put back")
		table.End()
		l.Equal("b, put back after a write,", gone, "")
		l.Say("The empty patch moves the resourceVersion, since other bytes are stored, and not the generation: what it is " +
			"compared with has been pruned, too.")
	})
}

func TestOT84_AnAcceptedDefinitionIsNotYetInForce(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT84", From: "+",
		Says: "a changed definition that was answered with 200 is not yet in force: until then the old schema drops a new " +
			"field, with 201",
		Why: "if you create objects right after a release of the definition, they lose the new fields; only a warning " +
			"tells, and Established stays true",
		Do:          "Write with fieldValidation=Strict, and try a 400 again after a release.",
		FalseIf:     world.ADefinitionIsInForceAtOnce.Shows(`b of a shelf that was created at once is 1`),
		AlsoFalseIf: []world.World{world.NothingIsStrict.Shows(`a create with fieldValidation=Strict was accepted`)},
		Read: source.Decl("k8s.io/apiextensions-apiserver/pkg/apiserver",
			"(*crdHandler).updateCustomResourceDefinition"),
		Answers: "#96",
	}, func(l *lab.Lab) {
		ab := lab.Version{Name: "v1", Spec: fieldsOfSpec{"a": integer, "b": integer}, Storage: true}
		kind := l.Define(lab.Version{Name: "v1", Spec: fieldsOfSpec{"a": integer}, Storage: true})
		table := l.Table("POST a Shelf {a: 1, b: 1}", "answer", "stored", "warning")
		post := func(name, fieldValidation string) error {
			warning, err := createWarned(l.Of(kind), name, fieldValidation, "a=1", "b=1")
			stored := "nothing"
			if err == nil {
				stored = lab.Fields(l.Of(kind).Peek(name), "a", "b")
			}
			table.Row(name, l.Answered(), stored, warning)
			return err
		}

		seen := l.RedefineUnseen(kind, ab)
		require.NoError(l, post("at-once", ""), "creating a shelf at once")
		strict := post("strict", "Strict")
		established := conditions(l.Of(lab.CustomResourceDefinition).Peek(kind.Definition()))
		seen()
		require.NoError(l, post("later", ""), "creating a shelf later")
		table.End()
		l.Say("The API has accepted a definition with b before the first row. kube-apiserver's handler learns of it from a " +
			"watch, which is held until the last; each of several apiservers learns by itself. Established is about the first " +
			"version.")

		l.Equal("b of a shelf that was created at once", lab.Field(l.Of(kind).Peek("at-once"), "b"), "")
		l.Refused(strict, "a create with fieldValidation=Strict", lab.Refusal{
			Code: 400, Reason: metav1.StatusReasonBadRequest, Says: `strict decoding error: unknown field "spec.b"`,
		})
		l.Expect(strings.Contains(established, "Established"), "the definition is Established meanwhile", "it is %v",
			established)
		l.Equal("b of a shelf that was created later", lab.Field(l.Of(kind).Peek("later"), "b"), "1")
	})
}

// createWarned creates an object and returns what the answer warns of.
func createWarned(c *lab.Client, name, fieldValidation string, fields ...string) (warning string, err error) {
	cfg := c.Config()
	cfg.WarningHandlerWithContext = warnings(func(text string) { warning = text })
	api, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return "", err
	}
	o := c.New(name, fields...)
	_, err = api.Resource(c.Kind().GVR()).Namespace(o.GetNamespace()).Create(context.Background(), o,
		metav1.CreateOptions{FieldValidation: fieldValidation})
	return warning, err
}

// warnings is told what the answers to requests warn of.
type warnings func(text string)

func (w warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) { w(text) }

// storedForm is an object of a custom resource as its bytes in etcd have it.
func storedForm(l *lab.Lab, o *lab.Object) *lab.Object {
	var stored lab.Object
	require.NoError(l, json.Unmarshal(l.KV(o).Value, &stored.Object), "decoding the stored bytes of "+o.GetName())
	return &stored
}

// metadataOf reads the metadata of an object alone, as metadata informers do.
func metadataOf(c *lab.Client, name string) *lab.Object {
	const partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	var o lab.Object
	body, err := c.WithHeader("Accept", partial).TryGetOnce(name, "")
	if err == nil {
		err = json.Unmarshal(body, &o.Object)
	}
	if err != nil {
		return &lab.Object{Object: map[string]any{"kind": err.Error()}}
	}
	return &o
}

// fieldsOfSpec is the fields of a spec, with the schema of each.
type fieldsOfSpec = map[string]any

var integer = fieldsOfSpec{"type": "integer"}

// byDefault is the schema of an integer with a default.
func byDefault(n int64) fieldsOfSpec { return fieldsOfSpec{"type": "integer", "default": n} }

// autoscaler is the HorizontalPodAutoscaler in its newest version, with a metric that autoscaling/v1 cannot say.
var autoscaler = lab.Kind{
	Kind: "HorizontalPodAutoscaler", Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers",
	Fields: "spec", Base: map[string]any{"spec": map[string]any{
		"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "shelf"},
		"metrics": []any{map[string]any{"type": "Resource", "resource": map[string]any{
			"name": "memory", "target": map[string]any{"type": "Utilization", "averageUtilization": int64(50)},
		}}},
	}},
}

// eventOfItsOwnGroup is the Event of the group events.k8s.io.
var eventOfItsOwnGroup = lab.Kind{Kind: "Event", Group: "events.k8s.io", Version: "v1", Resource: "events"}

// metricOf is the metric of an autoscaler: "memory 50".
func metricOf(o *lab.Object) string {
	metrics, _, _ := unstructured.NestedSlice(o.Object, "spec", "metrics")
	if len(metrics) != 1 {
		return "none"
	}
	name, _, _ := unstructured.NestedString(metrics[0].(map[string]any), "resource", "name")
	goal, _, _ := unstructured.NestedInt64(metrics[0].(map[string]any), "resource", "target", "averageUtilization")
	return fmt.Sprint(name, " ", goal)
}
