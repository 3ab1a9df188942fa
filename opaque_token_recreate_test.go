// Chapter 4, continued: names that are used again.
package modrev

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT25_AWriteWithoutATokenLandsOnTheNextIncarnation(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT25", From: "D2 paragraph 1, 5",
		Says: "a write without token and uid is done to whatever has the name when it arrives, overtaken by a recreate too",
		Why: "a patch, an unconditional replace and a delete by name are answered with 200, and it is a stranger's object " +
			"that they changed or removed",
		Do:      "Put the uid into every write and delete that means one incarnation.",
		FalseIf: world.ClientsSendTheUID.Shows(`the merge patch was refused`),
		AlsoFalseIf: []world.World{
			world.ClientDropsThePreconditions.Shows(`the delete with the uid, sent again, was accepted`),
			world.ReplacesSendTheUID.Shows(`the replace without a token was refused: 409 Conflict`),
			world.UIDsBelongToNames.Shows(`the merge patch was written to the uid of before`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#13",
	}, func(l *lab.Lab) {
		table := l.Table("write", "answer", "transactions", "uid before", "uid written to")
		var last overtakenWrite
		for _, write := range []struct {
			name  string
			color string // that is stored in the end
			send  func(old *lab.Object) (*lab.Object, error)
		}{
			{"merge patch", "white", func(old *lab.Object) (*lab.Object, error) {
				return l.TrySet(old.GetName(), "size=9")
			}},
			{"replace without a token", "red", func(old *lab.Object) (*lab.Object, error) {
				return l.TryReplace(lab.WithoutUID(lab.WithToken(old, "")), "size=9")
			}},
		} {
			last = overtakeByARecreate(l, strings.ReplaceAll(write.name, " ", "-"), write.send)
			l.Accepted(last.err, "the "+write.name)
			table.Row(write.name, lab.AnswerLine(last.err), last.tries, shortUID(last.old), shortUID(last.written))
			l.Expect(last.written.GetUID() != last.old.GetUID(), "it lands on another incarnation",
				"the %s was written to the uid of before", write.name)
			l.Equal("the uid that the "+write.name+" was written to", last.written.GetUID(), last.next.GetUID())
			l.Equal("the number of tries of the "+write.name, last.tries, 2)
			l.Stored(last.next, "color="+write.color, "size=9")
		}
		table.End()
		l.Show("PUT configmaps/"+last.old.GetName()+", overtaken by a delete and a create", last.sent.Only(wire.Txn))
		deletesSentAgain(l)
	})
}

// overtakenWrite is a write that was overtaken by a delete and a create under the same name.
type overtakenWrite struct {
	old, next, written *lab.Object
	err                error
	sent               wire.Requests
	tries              int // transactions by which the server tried the write
}

// overtakeByARecreate has a rival delete and create an object anew while a write to it is on its way.
func overtakeByARecreate(l *lab.Lab, name string, write func(old *lab.Object) (*lab.Object, error)) overtakenWrite {
	w := overtakenWrite{old: l.Create(name, "color=red")}
	l.Settle(w.old)
	send := func() (err error) {
		w.written, err = write(w.old)
		return err
	}
	w.sent = l.Record(func() {
		w.err = l.Race(l.Key(w.old), send, func() { w.next = l.Rival().Recreate(name, "color=white") })
	})
	for _, r := range w.sent {
		if wire.UpdateOf(l.Key(w.old))(&r) {
			w.tries++
		}
	}
	return w
}

// deletesSentAgain are two deletes that are sent again after a rival took the name.
func deletesSentAgain(l *lab.Lab) {
	table := l.Table("delete, its answer lost, a rival takes the name, sent again", "answer", "the rival's object")
	rivals, err := deleteTwice(l, l.Create("by-name", "color=red"))
	l.Accepted(err, "the delete by name, sent again,")
	l.Expect(!l.Exists(rivals), "it removes the rival's object", "that is there")
	table.Row("by name", lab.AnswerLine(err), "is gone")
	old := l.Create("with-the-uid", "color=red")
	rivals, err = deleteTwice(l, old, lab.UID(old))
	l.Refused(err, "the delete with the uid, sent again,", lab.Refusal{Code: 409, Reason: metav1.StatusReasonConflict})
	l.Expect(l.Exists(rivals), "the uid keeps the delete away from the rival's object", "that is gone")
	table.Row("with the uid", lab.AnswerLine(err), "is there")
	table.End()
}

// deleteTwice deletes an object and loses the answer; a rival takes the name, and the same delete is sent again.
func deleteTwice(l *lab.Lab, old *lab.Object, options ...metav1.DeleteOptions) (rivals *lab.Object, again error) {
	l.LoseAnswer("writer", http.MethodDelete)
	lost := l.TryDelete(old.GetName(), options...)
	require.ErrorIs(l, lost, wire.ErrAnswerLost, "losing the answer to a delete")
	rivals = l.Rival().Create(old.GetName(), "color=white")
	return rivals, l.TryDelete(old.GetName(), options...)
}

// shortUID is the beginning of an object's uid: enough to tell two apart on a page.
func shortUID(o *lab.Object) string { return string(o.GetUID())[:8] }

func TestOT25b_AnApplyBringsADeletedObjectBack(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT25b", From: "D2 paragraph 3, 5",
		Says: "an apply to the object itself brings it back when deleted, under a new uid, whatever its token; " +
			"the uid prevents that",
		Why: "a controller whose cache still shows the finalizer takes it off twice: the first apply ends the object, and " +
			"the second makes a new one, empty and without a finalizer, that nobody asked for",
		Do:      "Put the uid into every apply that must not create.",
		FalseIf: world.ClientsSendTheUID.Shows(`an apply after the delete was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.PaintingBlueComparesNothing.Shows(`the apply that was overtaken was written to the uid of before`),
			world.TheTokenBringsTheUID.Shows(`an apply with the old token after the delete was refused: 409 Conflict`),
			world.ClientDropsTheUID.Shows(`an apply with the uid of what was deleted was accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "(*applyPatcher).createNewObject"),
		Answers: "#9",
	}, func(l *lab.Lab) {
		table := l.Table("apply", "answer", "object", "uid")
		takeTheLastFinalizerOff(l, table)
		overtaken := applyOvertakenByADelete(l, table)
		refused := applyAfterADelete(l, table)
		table.End()
		l.Show("the apply that was overtaken", overtaken)
		l.Say("%s", l.Describe(refused))
		l.Say("Onto the rival's new object: 422, since a uid is immutable. Both times the one that was meant is gone: let " +
			"go. The finalizer is taken off by an apply that leaves it out; the object is then gone, and the same apply, from " +
			"a cache that does not know yet, finds nothing and creates. It takes the right to create; without it the answer " +
			"is 403. A replace of a Lease does the same: see CF6b.")
	})
}

// takeTheLastFinalizerOff has an apply take the last finalizer off what is being deleted, and sends the same again.
func takeTheLastFinalizerOff(l *lab.Lab, table *lab.Table) {
	const with = `{"apiVersion":"v1","kind":"ConfigMap",` +
		`"metadata":{"name":"shelf","finalizers":["modrev.example/cleanup"]}}`
	const without = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf"}}`
	first, err := l.TryPatch("shelf", types.ApplyPatchType, with)
	require.NoError(l, err, "the first apply")
	table.Row("with a finalizer", l.Answered(), "created", shortUID(first))
	l.Rival().Delete("shelf")
	_, err = l.TryPatch("shelf", types.ApplyPatchType, without)
	require.NoError(l, err, "the apply without the finalizer")
	table.Row("without it, after a rival's delete", l.Answered(), "gone with its finalizer", shortUID(first))
	_, err = l.TryGet("shelf")
	l.Expect(lab.IsNotFound(err), "without its finalizer the object goes", "shelf is there")

	second, err := l.TryPatch("shelf", types.ApplyPatchType, without)
	l.Accepted(err, "an apply after the delete")
	l.Equal("the answer to an apply after the delete", l.Answered(), "201")
	l.Expect(second.GetUID() != first.GetUID(), "it creates a new object", "it has the uid of before")
	table.Row("the same, sent again", l.Answered(), "created again", shortUID(second))
}

// applyOvertakenByADelete has a rival delete an object while an apply to it is on its way.
func applyOvertakenByADelete(l *lab.Lab, table *lab.Table) wire.Requests {
	old := l.Create("overtaken", "size=9")
	l.Settle(old)
	var created *lab.Object
	apply := func() (err error) {
		created, err = l.TryApply("overtaken", "writer", false, "color=blue")
		return err
	}
	from := l.Wire.Tape().Now()
	var err error
	sent := l.Record(func() { err = l.Race(l.Key(old), apply, func() { l.Rival().Delete("overtaken") }) }).Only(wire.Txn)
	l.Accepted(err, "an apply overtaken by a delete")
	table.Row("color=blue, overtaken by a delete", l.Wire.Tape().Calls(from)[0].Code, "created again", shortUID(created))
	l.Expect(created.GetUID() != old.GetUID(), "it creates a new object",
		"the apply that was overtaken was written to the uid of before")
	last := sent[len(sent)-1]
	l.Equal("the mod revision that its last transaction compares with", last.Compare[0].Value, 0)
	l.Expect(last.Succeeded, "its last transaction creates", "it is %s", last)
	return sent
}

// applyAfterADelete applies what knows the token, and the uid, of what is gone. It returns the refusal of the uid.
func applyAfterADelete(l *lab.Lab, table *lab.Table) (refused error) {
	gone := l.Create("gone", "color=red")
	l.Rival().Delete("gone")
	again, err := l.TryApply("gone", "writer", false, "color=red", "metadata.resourceVersion="+gone.GetResourceVersion())
	l.Accepted(err, "an apply with the old token after the delete")
	l.Equal("the answer to an apply with the old token", l.Answered(), "201")
	l.Expect(again.GetUID() != gone.GetUID(), "it creates a new object", "it has the uid of before")
	table.Row("after a delete, with the old token", l.Answered(), "created again", shortUID(again))

	l.Rival().Delete("gone")
	uid := "metadata.uid=" + string(again.GetUID())
	_, refused = l.TryApply("gone", "writer", false, "color=red", uid)
	l.Refused(refused, "an apply with the uid of what was deleted", lab.Refusal{
		Code: 409, Reason: metav1.StatusReasonConflict, Says: fmt.Sprintf(
			"uid mismatch: the provided object specified uid %s, and no existing object was found", again.GetUID())})
	table.Row("after a delete, with the uid", l.Answered(), "none is created", "")
	_, err = l.TryGet("gone")
	l.Expect(lab.IsNotFound(err), "nothing was created", "gone is there")

	namesake := l.Rival().Create("gone", "color=white")
	_, err = l.TryApply("gone", "writer", false, "size=9", uid)
	l.Refused(err, "an apply with the uid of what was deleted onto another",
		lab.Refusal{Code: 422, Reason: metav1.StatusReasonInvalid})
	table.Row("the same, onto a rival's new object", l.Answered(), "stays as it is", shortUID(namesake))
	l.Stored(namesake, "color=white", "-size")
	return refused
}
