// Chapter 3, continued: the precondition, and what the compare buys.
package modrev

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/record"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestGU7_AResourceVersionPreconditionAddsNoCompareToTheTransaction(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU7", From: "D1 Write down",
		Says: "a resourceVersion precondition adds no compare: an update's transaction has the same one without " +
			"it; a token that is stale in the cache sends none",
		Why: "the apiserver compares the token itself; the transaction only makes sure that nothing came between its look " +
			"and the write",
		Do:      "Do not count transactions to count conflicts.",
		FalseIf: world.ReadsShowTheVersionBefore.Shows(`a replace with a stale token cost etcd: 1 Range, 1 Txn`),
		AlsoFalseIf: []world.World{
			world.EtcdComparesTheVersion.Shows(`a replace with the current token is Txn if version\(key\) == M`),
			world.PaintingBlueComparesNothing.Shows(`a patch without a token is Txn then Put else Get`),
			world.ClientDropsThePreconditions.Shows(`a delete with a stale precondition was accepted`),
		},
		Read: source.Decl("go.etcd.io/etcd/client/v3/kubernetes", "Client.OptimisticPut"),
		Erratum: "the document has its reader complete the sentence \"a resourceVersion precondition is a Txn whose " +
			"compare is on …\". The word is mod_revision; but the compare is there without a precondition as well, and a " +
			"stale precondition sends no Txn.",
	}, func(l *lab.Lab) {
		created := l.Create("shelf", "color=red")
		table := l.Table("request", "answer", "to etcd", "the transaction")
		send := func(what string, do func() error) (wire.Requests, error) {
			l.Settle(l.Peek("shelf"))
			var err error
			sent := l.Record(func() { err = do() })
			txn := "none"
			if txns := sent.Only(wire.Txn); len(txns) > 0 {
				txn = txns[0].Shape()
			}
			table.Row(what, lab.AnswerLine(err), sent.Summary(), txn)
			return sent, err
		}

		const current = "a replace with the current token"
		var old *lab.Object // the version before the newest, once the patch is stored
		replaced, _ := send(current, func() (err error) {
			old, err = l.TryReplace(created, "color=green")
			return err
		})
		patched, _ := send("a patch without a token", func() error { return errorOf(l.TrySet("shelf", "color=blue")) })
		refused, stale := send("a replace with a stale token", func() error { return errorOf(l.TryReplace(old, "size=9")) })
		kept, guarded := send("a delete with a stale precondition", func() error {
			return l.TryDelete("shelf", lab.Token(old))
		})
		table.End()

		l.Sends(replaced, current, "1 Txn")
		l.Equal(current, replaced[0].Shape(), updateTxn)
		l.Sends(patched, "a patch without a token", "1 Txn")
		l.Equal("a patch without a token", patched[0].Shape(), updateTxn)
		l.Refused(stale, "a replace with a stale token", lab.Stale(old))
		l.Sends(refused, "a replace with a stale token", "1 Range")
		l.Refused(guarded, "a delete with a stale precondition", lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Says: "the ResourceVersion in the precondition",
		})
		l.Sends(kept, "a delete with a stale precondition", "1 Range")

		field := replaced[0].Compare[0].Field
		l.Say("So the document's sentence is: a resourceVersion precondition is a Txn whose compare is on %s. But the "+
			"compare is there without a precondition as well, and a stale precondition sends no Txn.", field)
		l.WriteDown(record.CompareField, "%s", field)
		l.WriteDown(record.TheSentence, "a resourceVersion precondition is a Txn whose compare is on %s", field)
	})
}

func TestGU7b_WhatTheServerReadsInAToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU7b", From: "+",
		Says: "the apiserver compares the token of a replace as a number, and the resourceVersion in a delete's " +
			"preconditions as text",
		Why: "nobody tells a client that it makes up tokens, or pads them; \"0\" even turns a checked replace into an " +
			"overwrite where the kind allows that",
		Do:      "Send a token exactly as you read it.",
		FalseIf: world.TokensAreText.Shows(`a replace with the token behind zeros was refused: 409`),
		AlsoFalseIf: []world.World{
			world.DeletesReadNumbers.Shows(`the delete of the newest one behind zeros was accepted`),
			world.ZeroIsANumber.Shows(`a replace with "0" was refused: 409`),
			world.WordsAreNoTokens.Shows(`a replace with no number was accepted`),
			world.DeletesTakeForNone("0").Shows(`the delete of zero was accepted`),
			world.DeletesTakeForNone("abc").Shows(`the delete of no number was accepted`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage", "APIObjectVersioner.ObjectResourceVersion"),
	}, func(l *lab.Lab) {
		table := l.Table("request", "with the token", "answer", "to etcd")
		shelf := l.Create("shelf", "color=red")
		replace := func(what, token, field string) error {
			l.Settle(shelf)
			var err error
			sent := l.Record(func() { _, err = l.TryReplace(lab.WithToken(shelf, token), field) })
			table.Row("replace", fmt.Sprintf("%s: %q", what, token), lab.AnswerLine(err), sent.Summary())
			shelf = l.Peek("shelf")
			return err
		}

		zeros := replace("the newest one behind zeros", "000"+shelf.GetResourceVersion(), "color=blue")
		l.Accepted(zeros, "a replace with the token behind zeros")
		l.Stored(shelf, "color=blue")
		l.Rival().Set("shelf", "size=9")
		l.Accepted(replace("zero", "0", "color=green"), `a replace with "0"`)
		l.Stored(shelf, "color=green", "-size")
		word := replace("no number", "abc", "color=black")
		l.Refused(word, "a replace with no number", lab.Refusal{Code: http.StatusInternalServerError})

		for _, token := range []struct{ what, text string }{
			{"the newest one behind zeros", "000" + shelf.GetResourceVersion()},
			{"zero", "0"},
			{"no number", "abc"},
		} {
			l.Settle(shelf)
			var err error
			sent := l.Record(func() { err = l.TryDelete("shelf", lab.Token(lab.WithToken(shelf, token.text))) })
			table.Row("delete", fmt.Sprintf("%s: %q", token.what, token.text), lab.AnswerLine(err), sent.Summary())
			l.Refused(err, "the delete of "+token.what, lab.Refusal{
				Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
				Says: "the ResourceVersion in the precondition (" + token.text + ")",
			})
		}
		table.End()
		l.Say(`The replace with "0" was unconditional: the rival's size=9, written just before, is gone. To the replace `+
			`with "abc" the server says: %s`, l.Describe(word))
		l.Stored(shelf, "color=green")
	})
}

// fieldsHaveOneWriter makes the writer's patch to white one that insists on the version before, as a server would that
// protects a field from a second writer.
var fieldsHaveOneWriter = world.New("a patch is refused if a rival has written the field meanwhile", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPatch && c.Who == "writer" },
		Note: "it insists on the version before",
		Request: func(_ *http.Request, body []byte) []byte {
			token := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},`, l.Peek("shelf").GetResourceVersion())
			if bytes.Contains(body, []byte("white")) {
				return bytes.Replace(body, []byte("{"), []byte(token), 1)
			}
			return body
		},
	})
})

func TestGU8_TheCompareSavesTheRivalsWriteToAnotherField(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU8", From: "+",
		Says: "of two patches to different fields that race, neither is lost: the compare stops the one made from an old " +
			"copy, which is made again",
		Why: "take the compare out, and nothing fails: both clients are told 200, no log has a line about it, and the " +
			"rival's write is gone",
		Do: "Patch only your own fields; send a token if others write them too.",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(
			`writer was told 200, rival was told 200, and etcd holds color=green and no size`),
		AlsoFalseIf: []world.World{
			fieldsHaveOneWriter.Shows(`the overtaken patch of the same field was refused: 409 Conflict`),
		},
		Read: source.Decl("go.etcd.io/etcd/client/v3/kubernetes", "Client.OptimisticPut"),
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Settle(shelf)
		var writer, rival error
		sent := l.Record(func() {
			writer = l.Race(l.Key(shelf),
				func() error { return errorOf(l.TrySet("shelf", "color=green")) },
				func() { _, rival = l.Rival().TrySet("shelf", "size=9") })
		})
		now := l.Peek("shelf")
		color, size := lab.Field(now, "color"), lab.Field(now, "size")

		table := l.Table("client", "patches", "is told", "is stored in the end")
		table.Row("writer, whose transaction arrives last", "color=green", lab.AnswerLine(writer), "color="+color)
		table.Row("rival", "size=9", lab.AnswerLine(rival), "size="+size)
		l.Show("the two patches", sent)
		l.Accepted(rival, "the rival's patch")
		l.Expect(size == "9", "both writes are stored",
			"writer was told %s, rival was told %s, and etcd holds color=%s and no size: the lost update",
			lab.AnswerLine(writer), lab.AnswerLine(rival), color)
		l.Stored(shelf, "color=green")

		// On one field, the second patch overwrites the first, and neither client learns of it.
		l.Settle(now)
		writer = l.Race(l.Key(shelf),
			func() error { return errorOf(l.TrySet("shelf", "color=white")) },
			func() { _, rival = l.Rival().TrySet("shelf", "color=black") })
		color = lab.Field(l.Peek("shelf"), "color")
		table.Row("writer, once more the last", "color=white", lab.AnswerLine(writer), "color="+color)
		table.Row("rival, on the same field", "color=black", lab.AnswerLine(rival), "color="+color)
		table.End()
		l.Accepted(rival, "the rival's patch of the same field")
		l.Accepted(writer, "the overtaken patch of the same field")
		l.Stored(shelf, "color=white")
	})
}

func TestGU8b_WithoutTheElseBranchARacedWriteEndsInAnErrorOfTheServer(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU8b", From: "+",
		Says: "a patch or a delete that loses a race goes on with what the else branch brings, and its client never learns " +
			"of it",
		Why: "take the else branch out, and the data is still safe, but the server has nothing to go on with: an update is " +
			"answered with 500, and a delete makes the handler panic, so that its client gets no answer",
		Do:      "Look for a gateway before etcd when such a 500 comes.",
		FalseIf: world.EtcdDropsTheElse.Shows(`the raced patch was refused: 500: invalid OptimisticPut response: \[\]$`),
		AlsoFalseIf: []world.World{
			world.EtcdDropsTheElseOfADelete.Shows(`the raced delete was refused: .*stream error`),
			world.EtcdDeletesNothingOf("shelf").Shows(`it is still there`),
		},
		Read: source.Decl("go.etcd.io/etcd/client/v3/kubernetes", "Client.OptimisticDelete"),
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		race := func(what string, send func() error) {
			l.Settle(l.Peek("shelf"))
			var raced error
			sent := l.Record(func() {
				raced = l.Race(l.Key(shelf), send, func() {
					_, err := l.TryTouch(l.Key(shelf))
					require.NoError(l, err, "moving the revision of the key")
				})
			})
			l.Show(what+": "+lab.AnswerLine(raced), sent)
			l.Accepted(raced, what)
		}
		race("the raced patch", func() error { return errorOf(l.TrySet("shelf", "color=green")) })
		race("the raced delete", func() error { return l.TryDelete("shelf") })
		_, there := l.TryKVAt(l.Key(shelf))
		l.Expect(!there, "the object is deleted", "it is still there")
	})
}

func TestGU9_AfterAFailedCompareTheUpdateIsDecidedAnewOnTheFreshObject(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU9", From: "+",
		Says: "after a failed compare a patch is made and validated anew: what the old object allowed, the fresh one may " +
			"refuse",
		Why: "a retry by the apiserver is a new decision, and no replay of the old bytes: a rule that the rival has just " +
			"put in force cannot be bypassed",
		Do:      "Handle a 422 from a patch that was valid when you made it.",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`a patch of what is immutable by then was accepted`),
		AlsoFalseIf: []world.World{
			world.TheElseBranchFindsNothing.Shows(`was refused: 404 NotFound`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).updateState"),
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Settle(shelf)
		var late error
		sent := l.Record(func() {
			late = l.Race(l.Key(shelf),
				func() error { return errorOf(l.TrySet("shelf", "color=green")) },
				func() { l.Rival().Patch("shelf", types.MergePatchType, `{"immutable":true}`) })
		})

		l.Show("PATCH configmaps/shelf, color=green: held until the rival had set immutable", sent)
		l.Say("%s", l.Describe(late))
		l.Refused(late, "a patch of what is immutable by then", lab.Refusal{
			Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		})
		l.Sends(sent, "the patch that is refused at its second try, with the rival's transaction", "2 Txn")
		l.Stored(shelf, "color=red")
	})
}
