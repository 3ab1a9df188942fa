// Chapter 4, continued: names that are used again.
package modrev

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

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
		Says: "a patch and an unconditional replace that are overtaken by delete and recreate are repeated by the server and land " +
			"on the new incarnation: 200, under another uid; a delete by name that is sent again removes it, and with the uid is " +
			"refused: 409",
		Why: "what carries no precondition is done to whatever stands under the name then; whoever means one incarnation has " +
			"to say so",
		FalseIf: world.ClientsSendTheUID.Shows(`the merge patch was refused`),
		AlsoFalseIf: []world.World{
			world.ClientDropsThePreconditions.Shows(`the delete with the uid, sent again, was accepted`),
			world.ReplacesSendTheUID.Shows(`the replace without a token was refused: 409 Conflict`),
			world.UIDsBelongToNames.Shows(`the merge patch was written to [0-9a-f-]+`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#13",
	}, func(l *lab.Lab) {
		table := l.Table("write", "answer", "transactions", "uid before", "uid written to")
		for _, write := range []string{"merge patch", "replace without a token"} {
			name := strings.ReplaceAll(write, " ", "-")
			old := l.Create(name, "color=red")
			l.Settle(old)
			key := l.Key(old)
			var next, written *lab.Object
			var err error
			seen := l.Record(func() {
				err = l.Race(key, func() (err error) {
					if write == "merge patch" {
						written, err = l.TrySet(name, "size=9")
					} else {
						written, err = l.TryReplace(lab.WithoutUID(lab.WithToken(old, "")), "size=9")
					}
					return err
				}, func() { next = l.Rival().Recreate(name, "color=white") })
			})
			l.Accepted(err, "the "+write)
			n := 0
			for _, r := range seen {
				if wire.UpdateOf(key)(&r) {
					n++
				}
			}
			table.Row(write, lab.AnswerLine(err), n, lab.ShortUID(old), lab.ShortUID(written))
			l.Expect(written.GetUID() == next.GetUID() && next.GetUID() != old.GetUID(), "it landed on the new incarnation",
				"the %s was written to %s", write, written.GetUID())
			l.Expect(n == 2, "the server tried it twice", "it was tried %d times", n)
			if write == "merge patch" {
				l.Stored(next, "color=white", "size=9")
			} else {
				l.Stored(next, "color=red", "size=9")
				table.End()
				l.Show("PUT configmaps/"+name+", overtaken by a delete and a create", seen.Only(wire.Txn))
			}
		}

		table = l.Table("delete, its answer lost, a rival takes the name, sent again", "answer", "the rival's object")
		for _, by := range []string{"by name", "with the uid"} {
			name := strings.ReplaceAll(by, " ", "-")
			old, options := l.Create(name, "color=red"), []metav1.DeleteOptions{}
			if by == "with the uid" {
				options = append(options, lab.UID(old))
			}
			l.Wire.AddHTTP(&wire.HTTPRule{Lose: true, Times: 1, When: func(c *wire.Call) bool { return c.Verb == http.MethodDelete }})
			lost := l.TryDelete(name, options...)
			l.Expect(errors.Is(lost, wire.ErrAnswerLost), "the answer to the first delete is lost", "it is: %v", lost)
			rivals := l.Rival().Create(name, "color=white")
			again := l.TryDelete(name, options...)
			there := l.Exists(rivals)
			table.Row(by, lab.AnswerLine(again), map[bool]string{true: "is there", false: "is gone"}[there])
			if by == "by name" {
				l.Accepted(again, "the delete by name, sent again,")
			} else {
				l.Refused(again, "the delete with the uid, sent again,", lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict})
			}
			l.Expect(there == (by == "with the uid"), "the uid keeps the delete away from the rival's object", "%s: there: %t", by, there)
		}
		table.End()
	})
}

func TestOT25b_AnApplyBringsADeletedObjectBack(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT25b", From: "D2 paragraph 3, 5",
		Says: "an apply creates what is not there: after a delete, even one that overtakes it, it brings the object back under a " +
			"new uid; so does an apply that took the last finalizer off and is sent again. The old token in what is applied does " +
			"not prevent that; the uid does: 409 where nothing stands, 422 where a namesake does",
		Why: "a controller whose cache still shows the finalizer takes it off twice: the first apply ends the object, and the " +
			"second makes a new one, empty and without a finalizer, that nobody asked for",
		FalseIf: world.ClientsSendTheUID.Shows(`an apply after the delete was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.PaintingBlueComparesNothing.Shows(`it is written to [0-9a-f-]+`),
			world.TheTokenBringsTheUID.Shows(`an apply with the old token after the delete was refused: 409 Conflict`),
			world.ClientDropsTheUID.Shows(`an apply with the uid of what was deleted was accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "(*applyPatcher).createNewObject"),
		Answers: "#9",
	}, func(l *lab.Lab) {
		table := l.Table("apply", "answer", "object", "uid")
		finalizer := func(metadata string) (*lab.Object, error) {
			return l.TryPatchWith("shelf", types.ApplyPatchType,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf"`+metadata+`}}`, metav1.PatchOptions{FieldManager: "writer"})
		}
		first, err := finalizer(`,"finalizers":["modrev.example/cleanup"]`)
		l.Step(err, "the first apply")
		table.Row("with a finalizer", l.Answered(), "created", lab.ShortUID(first))
		l.Rival().Delete("shelf")
		_, err = finalizer("")
		l.Step(err, "the apply without the finalizer")
		table.Row("without it, after a rival's delete", l.Answered(), "gone with its finalizer", lab.ShortUID(first))
		_, err = l.TryGet("shelf")
		l.Expect(lab.IsNotFound(err), "without its finalizer the object goes", "shelf is there")
		second, err := finalizer("")
		l.Accepted(err, "an apply after the delete")
		table.Row("the same, sent again", l.Answered(), "created again", lab.ShortUID(second))
		l.Expect(l.Answered() == "201" && second.GetUID() != first.GetUID(), "an apply after the delete creates: 201",
			"it answered %s", l.Answered())

		var third *lab.Object
		l.Settle(second)
		key := l.Key(second)
		seen := l.Record(func() {
			err = l.Race(key, func() (err error) {
				third, err = l.TryApply("shelf", "writer", false, "color=blue")
				return err
			}, func() { l.Rival().Delete("shelf") })
		})
		l.Accepted(err, "an apply overtaken by a delete")
		table.Row("color=blue, overtaken by a delete", l.AnsweredTo("writer"), "created again", lab.ShortUID(third))
		l.Expect(third.GetUID() != second.GetUID(), "it creates a new object", "it is written to %s", third.GetUID())
		txns := seen.Only(wire.Txn)
		last := txns[len(txns)-1]
		l.Expect(last.Compare[0].Value == 0 && last.Succeeded, "its last transaction is that of a create", "it is %s", last)

		l.Rival().Delete("shelf")
		fourth, err := l.TryApply("shelf", "writer", false, "color=red", "metadata.resourceVersion="+third.GetResourceVersion())
		l.Accepted(err, "an apply with the old token after the delete")
		table.Row("after a delete, with the old token", l.Answered(), "created again", lab.ShortUID(fourth))
		l.Expect(l.Answered() == "201" && fourth.GetUID() != third.GetUID(), "the old token alone protects nothing: 201",
			"it answered %s", l.Answered())
		l.Rival().Delete("shelf")
		_, err = l.TryApply("shelf", "writer", false, "color=red", "metadata.uid="+string(fourth.GetUID()))
		table.Row("after a delete, with the uid", l.Answered(), "none is created", "")
		l.Refused(err, "an apply with the uid of what was deleted", lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict})
		_, none := l.TryGet("shelf")
		namesake := l.Rival().Create("shelf", "color=white")
		_, mismatch := l.TryApply("shelf", "writer", false, "size=9", "metadata.uid="+string(fourth.GetUID()))
		table.Row("the same, onto a rival's new object", l.Answered(), "stays as it is", lab.ShortUID(namesake))
		table.End()
		l.Show("the apply that was overtaken", txns)
		l.Say("%s", l.Describe(err))
		l.Say("Onto the rival's new object: 422, since a uid is immutable. Both times the one that was meant is gone: let go. The " +
			"finalizer is taken off by an apply that leaves it out; the object is then gone, and the same apply, from a " +
			"cache that does not know yet, finds nothing and creates. A replace of a Lease does the same: see OT26.")
		want := fmt.Sprintf("uid mismatch: the provided object specified uid %s, and no existing object was found", fourth.GetUID())
		l.Expect(strings.HasSuffix(l.Describe(err), want), "the refusal ends with: "+want, "it says: %s", l.Describe(err))
		l.Expect(lab.IsNotFound(none), "nothing was created", "shelf is there")
		l.Refused(mismatch, "an apply with the uid of what was deleted onto another", lab.Refusal{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
		l.Stored(namesake, "color=white", "-size")
	})
}

func TestOT26_AReplaceBringsADeletedObjectBackWhereUpdatesCreate(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT26", From: "D2 paragraph 5; +",
		Says: "some kinds are created by a replace of what is not there: a deleted Lease, Role or Service comes back with 201, " +
			"whatever old token the replace carries; with the uid it is refused, and other kinds answer 404",
		Why: "for these kinds the token protects nothing once the object is gone; a lease holder that renews late raises a " +
			"lease that was taken away",
		FalseIf: world.ClientsSendTheUID.Shows(`Lease: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheUID.Shows(`Lease with the uid: 201`),
			world.ServerCreatesWhatIsMissing.Shows(`ConfigMap: 201`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/rest", "RESTUpdateStrategy.AllowCreateOnUpdate"),
		Answers: "#38",
	}, func(l *lab.Lab) {
		kinds := map[string]lab.Kind{"custom resource": l.CustomResource()}
		for _, k := range lab.SampleKinds() {
			kinds[k.Kind] = k
		}
		table := l.Table("replace after a delete", "with the old token", "with the uid as well")
		replace := func(c *lab.Client, o *lab.Object) string {
			_, _ = c.TryReplace(o) // what came of it, success or refusal, is the answer
			return l.Answered()
		}
		for _, row := range []struct{ kind, token, uid string }{
			{"ConfigMap", "404 NotFound", "404 NotFound"},
			{"Deployment", "404 NotFound", "404 NotFound"},
			{"custom resource", "404 NotFound", "404 NotFound"},
			{"Lease", "201", "409 Conflict"},
			{"Role", "201", "409 Conflict"},
			{"Service", "201", "409 Conflict"},
		} {
			c := l.Of(kinds[row.kind])
			o := c.Create("shelf")
			c.Delete("shelf")
			token := replace(c, lab.WithoutUID(o))
			if token == "201" {
				c.Delete("shelf")
			}
			uid := replace(c, o)
			table.Row(row.kind, token, uid)
			l.Expect(token == row.token, row.kind+": "+row.token, "%s: %s", row.kind, token)
			l.Expect(uid == row.uid, row.kind+" with the uid: "+row.uid, "%s with the uid: %s", row.kind, uid)
		}
		table.End()
		l.Say("An apply creates for every kind: see OT25b.")
	})
}
