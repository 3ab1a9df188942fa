// Chapter 4. A resourceVersion is an opaque token: what it certifies, what it does not, and what to do
// when it is refused.
package modrev

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
		Says:    "a name says where an object is, its uid says which: created again at the same place, it is another object",
		Why:     "what you learned about an object, or decided for it, does not hold for its namesake",
		Do:      "Compare uids before you act on what you remember about an object.",
		FalseIf: world.UIDsBelongToNames.Shows(`both have the uid [0-9a-f-]+`),
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/rest", "FillObjectMetaSystemFields"),
	}, func(l *lab.Lab) {
		var first *lab.Object
		putFirst := l.Record(func() { first = l.Create("shelf", "color=red") })
		l.Delete("shelf")
		putSecond := l.Record(func() { l.Create("shelf", "color=red") })
		second := l.Get("shelf")
		placeOfFirst, placeOfSecond := keyPut(l, putFirst), keyPut(l, putSecond)

		table := l.Table("", "first", "second")
		table.Row("name", first.GetName(), second.GetName())
		table.Row("key in etcd", wire.ShortKey(placeOfFirst), wire.ShortKey(placeOfSecond))
		table.Row("data", lab.Field(first, "color"), lab.Field(second, "color"))
		table.Row("uid", first.GetUID(), second.GetUID())
		table.Row("resourceVersion", first.GetResourceVersion(), second.GetResourceVersion())
		table.End()

		l.Equal("the key that the second create puts", placeOfSecond, placeOfFirst)
		l.Expect(first.GetUID() != second.GetUID(), "each incarnation has a uid of its own",
			"both have the uid %s", first.GetUID())
	})
}

// keyPut is the key that the one transaction of a create puts.
func keyPut(l *lab.Lab, sent wire.Requests) string {
	l.Sends(sent, "the create", "1 Txn")
	return sent.Only(wire.Txn)[0].Then[0].Key
}

func TestOT2_WhatIsRememberedByNameGoesToTheNextIncarnation(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT2", From: "D2 paragraph 1",
		Says: "what is remembered by name alone passes for the next incarnation's, inside the cluster or outside; " +
			"remembered by uid it is not",
		Why:         "bob must not get ann's disk because his shelf has the name that hers had",
		Do:          "Label what you make outside the cluster with the uid, not with the name.",
		FalseIf:     world.UIDsBelongToNames.Shows(`by its uid bob's shelf is given ann's disk`),
		AlsoFalseIf: []world.World{world.TheNextOwnerAdopts.Shows(`IsControlledBy says that they are bob's`)},
		Read:        source.Decl("k8s.io/apimachinery/pkg/apis/meta/v1", "IsControlledBy"),
	}, func(l *lab.Lab) {
		anns := l.Create("shelf", "owner=ann")
		byName := map[types.NamespacedName]string{client.ObjectKeyFromObject(anns): "ann's disk"}
		byUID := map[types.UID]string{anns.GetUID(): "ann's disk"}
		books := l.New("books", "title=Emma")
		err := controllerutil.SetControllerReference(anns, books, scheme.Scheme)
		require.NoError(l, err, "making ann's shelf the owner of the books")
		_, err = l.TryCreateObject(books)
		require.NoError(l, err, "creating the books")

		l.Delete("shelf")
		l.Create("shelf", "owner=bob")
		bobs := l.Get("shelf")
		books = l.Get("books")
		found := byUID[bobs.GetUID()]

		table := l.Table("the disk was noted down by", "what bob's shelf finds")
		table.Row("namespace and name", byName[client.ObjectKeyFromObject(bobs)])
		table.Row("uid", cmp.Or(found, "nothing, so a new one is made"))
		table.End()
		owner := books.GetOwnerReferences()[0]
		table = l.Table("is the owner of configmaps/books", "ann's shelf", "bob's shelf")
		table.Row("by kind and name of its owner reference", owner.Name == anns.GetName(), owner.Name == bobs.GetName())
		table.Row("by its uid: metav1.IsControlledBy",
			metav1.IsControlledBy(books, anns), metav1.IsControlledBy(books, bobs))
		table.End()

		l.Expect(found == "", "by its uid, bob's shelf finds no disk yet", "by its uid bob's shelf is given %s", found)
		l.Expect(!metav1.IsControlledBy(books, bobs), "the books are not bob's",
			"IsControlledBy says that they are bob's")
		l.Expect(metav1.IsControlledBy(books, anns), "the books are ann's",
			"IsControlledBy says that they are not ann's")
	})
}

func TestOT3_ResourceVersionGenerationAndUIDMoveApart(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT3", From: "D2 paragraph 1",
		Says: "every write moves the resourceVersion, only a change of what the kind calls desired state moves " +
			"generation, and nothing moves the uid",
		Why: "take generation for resourceVersion and you miss every change of a ConfigMap; the other way round you " +
			"act on noise",
		Do:      "Compare resourceVersion for \"written\", generation for \"wanted otherwise\", uid for \"the same object\".",
		FalseIf: world.AProxyTouchesTheSpec.Shows(`what a label moves on a Deployment is rv gen`),
		AlsoFalseIf: []world.World{
			world.StoredInAnotherEncoding.Shows(`what the same once more moves on a ConfigMap is rv`),
			world.GenerationsAreDropped.Shows(`of a ConfigMap that was created with 7 is 0`),
		},
		Read: source.Decl("k8s.io/apiextensions-apiserver/pkg/registry/customresource",
			"customResourceStrategy.PrepareForUpdate"),
		Answers: "#44 #45",
	}, func(l *lab.Lab) {
		kinds := []struct {
			lab.Kind
			field string // a part of its desired state
		}{
			{lab.ConfigMap, "size"}, {lab.Lease, "leaseDurationSeconds"}, {lab.Pod, "activeDeadlineSeconds"},
			{lab.Deployment, "minReadySeconds"},
			{l.CustomResource("status", "scale"), "size"}, {l.CustomResource(), "size"},
		}
		label, annotation := `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"annotations":{"a":"b"}}}`
		finalizer := `{"metadata":{"finalizers":["modrev.example/hold"]}}`
		status, replicas := `{"status":{"message":"fine","replicas":1}}`, `{"spec":{"replicas":5}}`
		const no, rv, gen, n404 = "-", "rv", "rv gen", "404"
		edits := []struct {
			what  string
			do    shelfEdit
			moves [6]string // of each kind
		}{
			{"desired state: data or spec", setField("60"), [6]string{rv, rv, gen, gen, gen, gen}},
			{"the same once more", setField("60"), [6]string{no, no, no, no, no, no}},
			{"a label", sendMerge(label), [6]string{rv, rv, rv, rv, rv, rv}},
			{"an annotation", sendMerge(annotation), [6]string{rv, rv, rv, gen, rv, rv}},
			{"a finalizer", sendMerge(finalizer), [6]string{rv, rv, rv, rv, rv, rv}},
			{"status, through the object", sendMerge(status), [6]string{no, no, no, no, no, gen}},
			{"status, through /status", sendMerge(status).to("status"), [6]string{n404, n404, rv, rv, rv, n404}},
			{"replicas, through /scale", sendMerge(replicas).to("scale"), [6]string{n404, n404, n404, gen, gen, n404}},
			{"apply, another desired state", applyField("ann", "30"), [6]string{rv, rv, gen, gen, gen, gen}},
			{"apply, the same, another owner", applyField("bob", "30"), [6]string{rv, rv, rv, rv, rv, rv}},
			{"that apply once more", applyField("bob", "30"), [6]string{no, no, no, no, no, no}},
			{"delete, held by the finalizer", deleteShelf, [6]string{rv, rv, gen, gen, gen, gen}},
		}

		l.Say("rv: a new resourceVersion, and one write to storage. gen: generation grew by one. -: answered with " +
			"200, but nothing moved and nothing was written. 404: there is no such subresource. The last two columns " +
			"are custom resources: a Shelf with the subresources /status and /scale, and a Shelf without them.")
		table := l.Table("edit", "ConfigMap", "Lease", "Pod", "Deployment", "Shelf with", "Shelf without")
		first := []any{"generation of a new object"}
		for _, k := range kinds {
			first = append(first, l.Of(k.Kind).Create("shelf", k.field+"=90").GetGeneration())
		}
		table.Row(first...)
		for _, e := range edits {
			row := []any{e.what}
			for i, k := range kinds {
				moved := moves(l, k.Kind, func(shelves *lab.Client) error { return e.do(shelves, k.field) })
				row = append(row, moved)
				l.Equal(fmt.Sprintf("what %s moves on a %s", e.what, k.Kind.Kind), moved, e.moves[i])
			}
			table.Row(row...)
		}
		table.End()
		l.Say("The uid never moved. A Deployment counts its annotations among the desired state. A deletion that waits " +
			"for a finalizer counts, too, unless the generation is 0. ConfigMaps and Leases never count by themselves, " +
			"but a create keeps the generation that it says:")
		showKeptGenerations(l)
	})
}

// showKeptGenerations shows what becomes of a generation that a client sends.
func showKeptGenerations(l *lab.Lab) {
	table := l.Table("generation of a", "ConfigMap", "Deployment")
	created, relabeled := []any{"create that says 7"}, []any{"replace that says 9"}
	deleted := []any{"delete, held by a finalizer"}
	for _, restored := range []struct {
		kind  lab.Kind
		grows [3]int64
	}{{lab.ConfigMap, [3]int64{7, 7, 8}}, {lab.Deployment, [3]int64{1, 1, 2}}} {
		shelves, of := l.Of(restored.kind), "the generation of a "+restored.kind.Kind
		o := shelves.New("restored")
		o.SetGeneration(7)
		o.SetFinalizers([]string{"modrev.example/hold"})
		o = shelves.CreateObject(o)
		created = append(created, o.GetGeneration())
		l.Equal(of+" that was created with 7", o.GetGeneration(), restored.grows[0])
		o.SetGeneration(9)
		o = shelves.Replace(o, "metadata.labels.a=b")
		relabeled = append(relabeled, o.GetGeneration())
		l.Equal(of+" that was replaced with 9", o.GetGeneration(), restored.grows[1])
		shelves.Delete("restored")
		o = shelves.Peek("restored")
		deleted = append(deleted, o.GetGeneration())
		l.Equal(of+" with 7 that is being deleted", o.GetGeneration(), restored.grows[2])
	}
	table.Row(created...)
	table.Row(relabeled...)
	table.Row(deleted...)
	table.End()
}

// shelfEdit is one way to change an object named shelf. field is a part of what its kind calls desired state.
type shelfEdit func(shelves *lab.Client, field string) error

// setField sets the field with a merge patch.
func setField(value string) shelfEdit {
	return func(shelves *lab.Client, field string) error {
		_, err := shelves.TrySet("shelf", field+"="+value)
		return err
	}
}

// sendMerge sends a merge patch, whatever the kind.
func sendMerge(body string) shelfEdit {
	return func(shelves *lab.Client, _ string) error {
		_, err := shelves.TryPatch("shelf", types.MergePatchType, body)
		return err
	}
}

// applyField applies the field as a manager who takes over what others own.
func applyField(manager, value string) shelfEdit {
	return func(shelves *lab.Client, field string) error {
		_, err := shelves.TryApply("shelf", manager, true, field+"="+value)
		return err
	}
}

// deleteShelf deletes the object.
func deleteShelf(shelves *lab.Client, _ string) error { return shelves.TryDelete("shelf") }

// to is the edit sent to a subresource.
func (e shelfEdit) to(subresource string) shelfEdit {
	return func(shelves *lab.Client, field string) error { return e(shelves.Sub(subresource), field) }
}

// moves says what an edit of the object named shelf moved, in the few letters of a table's cell: "rv", "gen", "-" for
// nothing although the edit was accepted, or the code of a refusal. "rv" stands for one write to storage, too, and all
// else for none; if that is not so, the cell says how many there were.
func moves(l *lab.Lab, kind lab.Kind, edit func(shelves *lab.Client) error) string {
	before := l.Of(kind).Peek("shelf")
	stored := l.KV(before)
	if err := edit(l.Of(kind)); err != nil {
		return strconv.Itoa(l.Refusal(err, "the edit").Code)
	}
	after := l.Of(kind).Peek("shelf")
	var moved []string
	if after.GetUID() != before.GetUID() {
		moved = append(moved, "uid")
	}
	writes := int64(0)
	if after.GetResourceVersion() != before.GetResourceVersion() {
		moved = append(moved, "rv")
		writes = 1
	}
	switch grown := after.GetGeneration() - before.GetGeneration(); grown {
	case 0:
	case 1:
		moved = append(moved, "gen")
	default:
		moved = append(moved, fmt.Sprintf("gen%+d", grown))
	}
	if written := l.KV(after).Version - stored.Version; written != writes {
		moved = append(moved, fmt.Sprintf("(%d writes)", written))
	}
	return cmp.Or(strings.Join(moved, " "), "-")
}
