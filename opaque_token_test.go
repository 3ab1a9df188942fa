// Chapter 4. A resourceVersion is an opaque token: what it certifies, what it does not, and what to do
// when it is refused.
package modrev

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT1_ANameLocatesAndTheUIDTellsIncarnationsApart(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT1", From: "D2 paragraph 1",
		Says: "namespace and name say where an object is; the uid says which: delete it and create it again, and the " +
			"same place holds another object",
		Why:     "what was learned about an object, or decided for it, does not hold for its namesake",
		FalseIf: world.UIDsBelongToNames.Shows(`both have the uid [0-9a-f-]+`),
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/rest", "FillObjectMetaSystemFields"),
	}, func(l *lab.Lab) {
		first := l.Create("shelf", "color=red")
		l.Delete("shelf")
		l.Create("shelf", "color=red")
		second := l.Get("shelf")

		table := l.Table("", "first", "second")
		table.Row("name", first.GetName(), second.GetName())
		table.Row("key in etcd", wire.ShortKey(l.Key(first)), wire.ShortKey(l.Key(second)))
		table.Row("data", lab.Field(first, "color"), lab.Field(second, "color"))
		table.Row("uid", first.GetUID(), second.GetUID())
		table.Row("resourceVersion", first.GetResourceVersion(), second.GetResourceVersion())
		table.End()

		l.Expect(l.Key(first) == l.Key(second), "both are stored under one key", "%s and %s", l.Key(first), l.Key(second))
		l.Expect(first.GetUID() != second.GetUID(), "each incarnation has a uid of its own",
			"both have the uid %s", first.GetUID())
	})
}

func TestOT2_WhatIsRememberedByNameGoesToTheNextIncarnation(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT2", From: "D2 paragraph 1",
		Says: "something outside the cluster that is remembered by name alone is taken for the next incarnation's; " +
			"remembered by uid it is not",
		Why:         "bob must not get ann's disk because his shelf has the name that hers had",
		FalseIf:     world.UIDsBelongToNames.Shows(`by its uid bob's shelf is given ann's disk`),
		AlsoFalseIf: []world.World{world.TheNextOwnerAdopts.Shows(`IsControlledBy says that they are bob's`)},
		Read:        source.Decl("k8s.io/apimachinery/pkg/apis/meta/v1", "IsControlledBy"),
	}, func(l *lab.Lab) {
		anns := l.Create("shelf", "owner=ann")
		byName := map[string]string{anns.GetNamespace() + "/" + anns.GetName(): "ann's disk"}
		byUID := map[types.UID]string{anns.GetUID(): "ann's disk"}
		books := l.New("books", "title=Emma")
		l.Step(controllerutil.SetControllerReference(anns, books, scheme.Scheme), "making ann's shelf the owner of the books")
		l.CreateObject(books)

		l.Delete("shelf")
		l.Create("shelf", "owner=bob")
		bobs := l.Get("shelf")
		books = l.Get("books")

		or := func(disk string) string {
			if disk == "" {
				return "nothing, so a new one is made"
			}
			return disk
		}
		table := l.Table("the disk was noted down by", "what bob's shelf finds")
		table.Row("namespace and name", or(byName[bobs.GetNamespace()+"/"+bobs.GetName()]))
		table.Row("uid", or(byUID[bobs.GetUID()]))
		table.End()
		table = l.Table("is the owner of configmaps/books", "ann's shelf", "bob's shelf")
		table.Row("by kind and name of its owner reference", books.GetOwnerReferences()[0].Name == anns.GetName(), books.GetOwnerReferences()[0].Name == bobs.GetName())
		table.Row("by its uid: metav1.IsControlledBy", metav1.IsControlledBy(books, anns), metav1.IsControlledBy(books, bobs))
		table.End()

		l.Expect(byName[bobs.GetNamespace()+"/"+bobs.GetName()] == "ann's disk", "by its name, bob's shelf is given ann's disk",
			"by its name it finds nothing")
		l.Expect(byUID[bobs.GetUID()] == "", "by its uid, bob's shelf finds no disk yet",
			"by its uid bob's shelf is given %s", byUID[bobs.GetUID()])
		l.Expect(metav1.IsControlledBy(books, anns) && !metav1.IsControlledBy(books, bobs),
			"the books belong to ann's shelf only", "IsControlledBy says that they are bob's")
	})
}

func TestOT3_ResourceVersionGenerationAndUIDMoveApart(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT3", From: "D2 paragraph 1",
		Says: "resourceVersion, generation and uid are not interchangeable: the resourceVersion moves with every write to " +
			"storage, generation only with what the kind calls desired state (some kinds have none), the uid never",
		Why: "who takes one for another either misses changes (generation, of a ConfigMap) or acts on changes that mean " +
			"nothing to him (resourceVersion)",
		FalseIf: world.AProxyTouchesTheSpec.Shows(`a label on a Deployment moved: rv gen`),
		Read:    source.Decl("k8s.io/apiextensions-apiserver/pkg/registry/customresource", "customResourceStrategy.PrepareForUpdate"),
		Answers: "#44 #45",
	}, func(l *lab.Lab) {
		kinds := []struct {
			lab.Kind
			field string // of its desired state
		}{
			{lab.ConfigMap, "size"}, {lab.Lease, "leaseDurationSeconds"}, {lab.Pod, "activeDeadlineSeconds"},
			{lab.Deployment, "minReadySeconds"}, {l.CustomResource("status", "scale"), "size"}, {l.CustomResource(), "size"},
		}
		status := lab.Merge(`{"status":{"message":"fine","replicas":1}}`)
		edits := []struct {
			edit  string
			do    lab.Edit
			moves [6]string
		}{
			{"desired state: data or spec", lab.Desired("60"), [6]string{"rv", "rv", "rv gen", "rv gen", "rv gen", "rv gen"}},
			{"the same once more", lab.Desired("60"), [6]string{"-", "-", "-", "-", "-", "-"}},
			{"a label", lab.Merge(`{"metadata":{"labels":{"a":"b"}}}`), [6]string{"rv", "rv", "rv", "rv", "rv", "rv"}},
			{"an annotation", lab.Merge(`{"metadata":{"annotations":{"a":"b"}}}`), [6]string{"rv", "rv", "rv", "rv gen", "rv", "rv"}},
			{"a finalizer", lab.Merge(`{"metadata":{"finalizers":["modrev.example/hold"]}}`), [6]string{"rv", "rv", "rv", "rv", "rv", "rv"}},
			{"status, through the object", status, [6]string{"-", "-", "-", "-", "-", "rv gen"}},
			{"status, through /status", status.Through("status"), [6]string{"404", "404", "rv", "rv", "rv", "404"}},
			{"replicas, through /scale", lab.Merge(`{"spec":{"replicas":5}}`).Through("scale"), [6]string{"404", "404", "404", "rv gen", "rv gen", "404"}},
			{"apply, another desired state", lab.Applied("ann", "30"), [6]string{"rv", "rv", "rv gen", "rv gen", "rv gen", "rv gen"}},
			{"apply, the same, another owner", lab.Applied("bob", "30"), [6]string{"rv", "rv", "rv", "rv", "rv", "rv"}},
			{"that apply once more", lab.Applied("bob", "30"), [6]string{"-", "-", "-", "-", "-", "-"}},
			{"delete, held by the finalizer", lab.Deleted, [6]string{"rv", "rv", "rv gen", "rv gen", "rv gen", "rv gen"}},
		}

		l.Say("rv: a new resourceVersion, and one write to storage. gen: generation grew by one. -: answered with 200, " +
			"but nothing moved and nothing was written. 404: there is no such subresource. The last two columns are custom " +
			"resources: a Shelf with the subresources /status and /scale, and a Shelf without them.")
		table := l.Table("edit", "ConfigMap", "Lease", "Pod", "Deployment", "Shelf with", "Shelf without")
		first := []any{"generation of a new object"}
		objects := make([]*lab.Object, len(kinds))
		for i, k := range kinds {
			objects[i] = l.Of(k.Kind).Create("shelf", k.field+"=90")
			first = append(first, objects[i].GetGeneration())
		}
		table.Row(first...)
		for _, e := range edits {
			row := []any{e.edit}
			for i, k := range kinds {
				moved := l.Moved(objects[i], func() error { return e.do(l.Of(k.Kind), k.field) }).String()
				row = append(row, moved)
				l.Expect(moved == e.moves[i], fmt.Sprintf("%s on a %s moves: %s", e.edit, k.Kind.Kind, e.moves[i]),
					"%s on a %s moved: %s", e.edit, k.Kind.Kind, moved)
			}
			table.Row(row...)
		}
		table.End()
		l.Say("The uid never moved. The generation of a ConfigMap and of a Lease is 0 for ever. A Deployment counts its annotations among the desired state, and the wish to be deleted " +
			"counts for all kinds that have a generation.")
	})
}
