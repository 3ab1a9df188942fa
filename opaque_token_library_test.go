// Chapter 4, continued: what a library does to your object.
package modrev

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT28_CreateOrUpdateReportsTheRaceItLost(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT28", From: "D2 paragraph 2, 3; +",
		Says: "controllerutil.CreateOrUpdate replaces with the token of its own reading, so it returns the conflict of a " +
			"race that it loses",
		Why: "it writes nothing if nothing has changed, and does not repeat itself: its function has to be one that can " +
			"be run again on the next reading",
		Do:      "Return the conflict of CreateOrUpdate, and let the next reconcile decide again.",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the raced CreateOrUpdate was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the raced CreateOrUpdate was accepted`),
			world.SomebodyIsFasterAt(2, http.MethodPut, "shelf").Shows(`the next was refused: 409 Conflict`),
		},
		Read: source.Decl("sigs.k8s.io/controller-runtime/pkg/controller/controllerutil", "CreateOrUpdate"),
	}, func(l *lab.Lab) {
		api := l.Controller()
		table := l.Table("CreateOrUpdate", "result", "answer", "to etcd", "stored")
		var result controllerutil.OperationResult
		paint := func(color string) (err error) {
			shelf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: "shelf"}}
			result, err = controllerutil.CreateOrUpdate(l.Context(), api, shelf, func() error {
				if shelf.Data == nil {
					shelf.Data = map[string]string{}
				}
				shelf.Data["color"] = color // and leaves what others have put there
				return nil
			})
			return err
		}
		var sent wire.Requests
		row := func(when string, do func() error) (err error) {
			sent = l.Record(func() { err = do() })
			table.Row(when, result, lab.AnswerLine(err), sent.Summary(), lab.Fields(l.Peek("shelf"), "color", "size"))
			return err
		}
		l.Accepted(row("color=red", func() error { return paint("red") }), "the first")
		l.Accepted(row("color=red once more", func() error { return paint("red") }), "the second")
		l.Equal("the result of the second", result, controllerutil.OperationResultNone)
		l.Equal("the number of transactions of the second", sent.Count(wire.Txn), 0)

		shelf := l.Peek("shelf")
		raced := row("color=blue, raced", func() error {
			return l.Race(l.Key(shelf), func() error { return paint("blue") }, func() { l.Rival().Set("shelf", "size=3") })
		})
		l.Refused(raced, "the raced CreateOrUpdate", lab.Stale(shelf))
		l.Stored(shelf, "color=red", "size=3")
		l.Accepted(row("color=blue, the next reconcile", func() error { return paint("blue") }), "the next")
		table.End()
		l.Say("In the raced row one transaction is the rival's, and the other is the one that failed (CF3).")
		l.Stored(shelf, "color=blue", "size=3")
	})
}
