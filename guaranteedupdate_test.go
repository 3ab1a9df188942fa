// Chapter 3. The transaction behind it: what GuaranteedUpdate asks etcd, and what it does with the answer.
package modrev

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

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

// The shapes of kube-apiserver's transactions on the wire.
const (
	createTxn = "Txn if mod_revision(key) == 0 then Put"
	updateTxn = "Txn if mod_revision(key) == M then Put else Get"
	deleteTxn = "Txn if mod_revision(key) == M then Delete else Get"
)

func TestGU1_TheSourceOfAnUpdateComparesTheModRevisionOfTheKey(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU1", From: "D1 Do 5",
		Says: "by the source, an update becomes an etcd transaction: if the mod_revision of the key is still that of the " +
			"object which the update started from, then put, else get the current value",
		Why: "the rule can be read, and not only be guessed from answers; these are its lines, in the source of the " +
			"kube-apiserver that runs",
		FalseIf: world.TheSourceComparesTheVersion.Shows(`it compares Version`),
		AlsoFalseIf: []world.World{
			world.TheSourceHasNoElse.Shows(`the else branch holds nothing`),
			world.TheSourceAsksForLess.Shows(`by "<"`),
			world.TheSourceDeletes.Shows(`it is OpDelete`),
			world.TheSourceHandsOnNoRevision.Shows(`it is 0$`),
			world.TheSourceReadsAgain.Shows(`it reads again by \[getCurrentState\]`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Erratum: "the document looks in store.go of etcd3 for a clientv3.Compare. It stood there up to Kubernetes 1.31. " +
			"Since 1.32 GuaranteedUpdate calls OptimisticPut, and it is etcd's own client that builds the Compare.",
	}, func(l *lab.Lab) {
		update := l.UpdateTransaction()
		l.Quote(update.String())

		l.Expect(update.Revision == "origState.rev",
			"the expected revision is that of the state which the update started from", "it is %s", update.Revision)
		l.Expect(update.Field == "ModRevision" && update.Operator == "=",
			"it compares ModRevision, for equality", "it compares %s, by %q", update.Field, update.Operator)
		l.Expect(update.Then == "OpPut", "the then branch puts", "it is %s", update.Then)
		l.Expect(update.Else == "OpGet", "the else branch gets", "the else branch holds %s", cmp.Or(update.Else, "nothing"))
		l.Expect(slices.Contains(update.Options, update.ElseIf), "the update asks for the else branch",
			"there is one if %s, and the update sets %v", update.ElseIf, update.Options)
		l.Expect(len(update.Reads) == 0, "a failed compare leads to no further read", "it reads again by %v", update.Reads)
		l.Expect(update.From == "txnResp.KV" && update.State == "origState",
			"what the else branch got is the state that the next try starts from", "%q becomes %q", update.From, update.State)
		l.Expect(update.Again, "the loop begins again", "it does not")

		l.Say("So the Compare is on %s. It stands in %s, %s.", update.FieldName(), update.At.File, update.At.Func)
		l.WriteDown(record.TheCompare, "%s", update.At)
	})
}

func TestGU2_TheWireSaysTheSameAsTheSource(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU2", From: "D1 Claim",
		Says: "on the wire an update is one transaction with one compare: that the key's mod_revision equals the " +
			"resourceVersion which the update started from",
		Why:     "what the source says is also what etcd is asked; here the request itself is read",
		FalseIf: world.EtcdComparesTheVersion.Shows(`a replace is Txn if version\(key\) == M then Put else Get`),
		AlsoFalseIf: []world.World{
			world.EtcdIgnoresTheCompare.Shows(`a replace is Txn then Put else Get`),
			world.EtcdDropsTheElse.Shows(`a replace is Txn if mod_revision\(key\) == M then Put$`),
		},
		Read: source.Decl("go.etcd.io/etcd/client/v3/kubernetes", "Client.OptimisticPut"),
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Settle(shelf)
		sent := l.Record(func() { l.Replace(shelf, "color=blue") })

		l.Sends(sent, "a replace", "1 Txn")
		txn := sent[0]
		l.Equal("a replace", txn.Shape(), updateTxn)
		compare := txn.Compare[0]
		table := l.Table("part", "of the transaction, as etcd got it")
		table.Row("if", fmt.Sprintf("%s of %s %s %d",
			compare.Field, wire.ShortKey(compare.Key), compare.Operator, compare.Value))
		table.Row("then", txn.Then[0].Kind+" "+wire.ShortKey(txn.Then[0].Key))
		table.Row("else", txn.Else[0].Kind+" "+wire.ShortKey(txn.Else[0].Key))
		table.End()
		l.Show("PUT configmaps/shelf, resourceVersion "+shelf.GetResourceVersion(), sent)

		l.Equal("the key that it compares", compare.Key, l.Key(shelf))
		l.Equal("the number that it compares", compare.Value, number(shelf))
	})
}

func TestGU2b_TheCompareIsOnModRevisionBecauseAVersionStartsAgain(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU2b", From: "+",
		Says: "because mod_revision never repeats for a key, a transaction that was built for one incarnation of an object " +
			"cannot succeed on the next one",
		Why: "version counts from 1 again for every incarnation: a compare on it would let a write through that was " +
			"decided on another object (the ABA problem)",
		FalseIf: world.EtcdComparesTheVersion.Shows(`the late replace was accepted`),
		AlsoFalseIf: []world.World{
			world.AProxyForcesWhatIsRefused.Shows(`color=green is stored`),
		},
		Read: source.Decl("go.etcd.io/etcd/client/v3/kubernetes", "Client.OptimisticPut"),
	}, func(l *lab.Lab) {
		first := l.Create("shelf", "color=red")
		l.Settle(first)
		was := l.KV(first)

		var second *lab.Object
		var late error
		sent := l.Record(func() {
			late = l.Race(l.Key(first),
				func() error { return errorOf(l.TryReplace(lab.WithoutUID(first), "color=green")) },
				func() { second = l.Rival().Recreate("shelf", "color=blue") })
		})

		is := l.KV(second)
		table := l.Table("incarnation", "mod_revision", "version")
		table.Row("the first, which the replace was decided on", was.ModRevision, was.Version)
		table.Row("the second, which is there when it arrives", is.ModRevision, is.Version)
		table.End()
		l.Show("PUT configmaps/shelf without a uid, held until the rival had deleted and created", sent.Only(wire.Txn))
		l.Refused(late, "the late replace", lab.Stale(second))
		l.Stored(second, "color=blue")
	})
}

func TestGU3_ACreateAndADeleteAreTheSameTransaction(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU3", From: "+",
		Says: "a create by POST is the same transaction with revision 0 and no else branch; a delete is the same with a " +
			"delete in the then branch",
		Why: "0 is the mod_revision of a key that does not exist, so one compare is enough for create, update and delete, " +
			"and whoever comes second is refused",
		FalseIf: world.EtcdIgnoresTheCompareOfACreate.Shows(`a second create of the same name was accepted`),
		AlsoFalseIf: []world.World{
			world.EtcdIgnoresTheCompare.Shows(`a delete is Txn then Delete else Get`),
			world.ALibraryReadsFirst("create").Shows(`a create cost etcd: 1 Range, 1 Txn`),
			world.CreatesHaveAnElse.Shows(`a create is Txn if mod_revision\(key\) == 0 then Put else Get`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).conditionalDelete"),
	}, func(l *lab.Lab) {
		var shelf *lab.Object
		var again error
		created := l.Record(func() { shelf = l.Create("shelf", "color=red") })
		second := l.Record(func() { _, again = l.TryCreate("shelf", "color=blue") })
		l.Settle(shelf)
		deleted := l.Record(func() { l.Delete("shelf") })

		l.Show("POST configmaps/shelf", created)
		l.Show("POST configmaps/shelf once more; the read is for the error: is the old one being deleted?", second)
		l.Show("DELETE configmaps/shelf; the read is for finalizers and grace", deleted)
		l.Refused(again, "a second create of the same name", lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists,
		})
		l.Sends(created, "a create", "1 Txn")
		l.Equal("a create", created[0].Shape(), createTxn)
		l.Sends(deleted, "a delete", "1 Range, 1 Txn")
		txn := deleted.Only(wire.Txn)[0]
		l.Equal("a delete", txn.Shape(), deleteTxn)
		l.Equal("the number that a delete compares", txn.Compare[0].Value, number(shelf))
	})
}

func TestGU4_TheElseBranchReturnsTheCurrentValueSoARetryReadsNothing(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU4", From: "D1 Do 5, Expect 3",
		Says: "a failed compare brings the current value back in its else branch, and the apiserver goes on from that: " +
			"between the failed transaction and the next there is no read, and the next compares what the else branch returned",
		Why: "losing a race costs one round trip to etcd and not two; and what the else branch says is believed, even that " +
			"the object is gone",
		FalseIf: world.TheElseBranchFindsNothing.Shows(`the raced patch was refused: 404 NotFound`),
		AlsoFalseIf: []world.World{
			world.EtcdIgnoresTheCompare.Shows(`with the rival's own transaction cost etcd: 2 Txn`),
			world.EtcdComparesTheVersion.Shows(`the number that the retry compares is 2$`),
			world.TheRetryPutsTheOldBytes.Shows(`size is not stored`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).getState"),
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Settle(shelf)
		var raced error
		sent := l.Record(func() {
			raced = l.Race(l.Key(shelf),
				func() error { return errorOf(l.TrySet("shelf", "color=green")) },
				func() { l.Rival().Set("shelf", "size=9") })
		})

		l.Accepted(raced, "the raced patch")
		l.Show("PATCH configmaps/shelf: held, then the rival's, then the retry", sent)
		l.Sends(sent, "a patch that loses once, with the rival's own transaction", "3 Txn")
		failed, retry := sent[0], sent[2]
		l.Expect(!failed.Succeeded, "the compare of the held transaction fails", "it holds")
		l.Equal("the number of keys that its else branch returned", len(failed.Found), 1)
		l.Equal("the number that the retry compares", retry.Compare[0].Value, failed.Found[0].ModRevision)
		l.Stored(shelf, "color=green", "size=9")
	})
}

func TestGU4b_APatchWithoutATokenNeverLeaksAConflict(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU4b", From: "+",
		Says: "a patch or an apply that carries no token is never answered with the conflict of a race lost for the " +
			"object itself, in whatever format and however many rivals win before it: each loss is one more transaction",
		Why: "whoever sees that conflict from a patch should look for a token in what was sent, and not for a race in " +
			"the server; the same words about a quota are another matter (CF8d)",
		FalseIf: world.EveryPatchCarriesAToken.Shows(`merge patch was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.PatchesCarryATokenIn("strategic merge patch").Shows(`the strategic merge patch was refused: 409 Conflict`),
			world.PatchesCarryATokenIn("JSON patch").Shows(`the JSON patch was refused: 409 Conflict`),
			world.PatchesCarryATokenIn("apply").Shows(`the apply was refused: 409 Conflict`),
			world.EtcdIgnoresTheCompare.Shows(`the merge patch cost etcd: 1 Txn`),
			world.EtcdKeepsTheOldValue.Shows(`a is not stored`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#19 #20",
	}, func(l *lab.Lab) {
		const rivals = 20
		shelf := l.Create("shelf", "color=red")
		key := l.Key(shelf)
		table := l.Table("format", "rivals that win before it", "answer", "to etcd")
		for _, patch := range []struct {
			name   string
			format types.PatchType
			body   string
		}{
			{"merge patch", types.MergePatchType, `{"data":{"a":"1"}}`},
			{"strategic merge patch", types.StrategicMergePatchType, `{"data":{"b":"1"}}`},
			{"JSON patch", types.JSONPatchType, `[{"op":"add","path":"/data/c","value":"1"}]`},
			{"apply", types.ApplyPatchType,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf"},"data":{"d":"1"}}`},
		} {
			l.Settle(l.Peek("shelf"))
			lost := l.Wire.Add(&wire.Rule{
				When: wire.UpdateOf(key), Times: rivals, Note: "a rival was first",
				Do: func(int) { _, _ = l.TryTouch(key) }, // an error here shows in the number of transactions
			})
			var err error
			sent := l.Record(func() { _, err = l.TryPatch("shelf", patch.format, patch.body) })
			lost() // the rivals stop
			table.Row(patch.name, rivals, lab.AnswerLine(err), sent.Summary())
			l.Accepted(err, "the "+patch.name)
			l.Sends(sent, "the "+patch.name, fmt.Sprintf("%d Txn", rivals+1))
		}
		table.End()
		l.Stored(shelf, "color=red", "a=1", "b=1", "c=1", "d=1")
	})
}

func TestGU5_AnUpdateStartsFromTheCacheAndTheCompareCatchesAStaleCopy(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU5", From: "+",
		Says: "in the good case an update does not read etcd at all: it starts from the copy in the apiserver's watch " +
			"cache, and if that copy is stale, the compare finds it out",
		Why: "an update costs etcd one round trip, and a cache that lags makes it slower, never wrong: only the compare " +
			"makes it safe to start from a copy",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`size is not stored`),
		AlsoFalseIf: []world.World{
			world.ALibraryReadsFirst("merge patch").Shows(`a cache that is up to date cost etcd: 1 Range, 1 Txn`),
			world.EtcdComparesTheVersion.Shows(`the number that the second transaction compares is 3$`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*CacheDelegator).GuaranteedUpdate"),
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves, rivals := l.Of(kind), l.Rival().Of(kind)
		shelf := shelves.Create("shelf", "color=red")
		l.Settle(shelf)
		fresh := l.Record(func() { shelf = shelves.Set("shelf", "color=blue") })
		l.Settle(shelf)

		l.Wire.Freeze(kind.StoragePrefix())
		rival := rivals.Set("shelf", "size=9")
		stale := l.Record(func() { shelves.Set("shelf", "color=green") })

		l.Show("PATCH shelves/shelf, the cache is up to date", fresh)
		l.Show("PATCH shelves/shelf, the cache does not know of the rival's write at "+rival.GetResourceVersion(), stale)
		l.Stored(rival, "size=9")
		l.Sends(fresh, "a patch with a cache that is up to date", "1 Txn")
		l.Sends(stale, "a patch with a stale cache", "2 Txn")
		l.Equal("the number that the first transaction compares", stale[0].Compare[0].Value, number(shelf))
		l.Equal("the number that the second transaction compares", stale[1].Compare[0].Value, number(rival))
	})
}

func TestGU5b_WhatACachedCopyWouldRefuseIsReadOnceMoreBeforeItIsRefused(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU5b", From: "+",
		Says: "an error that follows from a cached copy, and a change that is none to it, are not believed before the key " +
			"was read from etcd",
		Why: "a compare protects what is written; a refusal and a no-op write nothing, so they are checked by a read: a " +
			"cache that lags cannot turn a good request away",
		FalseIf: world.ReadsShowTheVersionBefore.Shows(`the replace with the newest token was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ReadsForAPatchShowTheFirstVersion.Shows(`the patch to color=red cost etcd: 1 Range$`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		l.Settle(shelves.Create("shelf", "color=red"))
		l.Wire.Freeze(kind.StoragePrefix())
		shelf := l.Rival().Of(kind).Set("shelf", "color=blue")

		table := l.Table("request, while the cache still says color=red", "by the cached copy", "answer", "to etcd")
		try := func(what, cached string, do func() error) {
			var err error
			sent := l.Record(func() { err = do() })
			table.Row(what, cached, lab.AnswerLine(err), sent.Summary())
			l.Accepted(err, what)
			l.Sends(sent, what, "1 Range, 1 Txn")
		}
		try("the replace with the newest token", "a conflict", func() error {
			return errorOf(shelves.TryReplace(shelf, "color=green"))
		})
		l.Stored(shelf, "color=green")
		try("the patch to color=red", "no change", func() error { return errorOf(shelves.TrySet("shelf", "color=red")) })
		table.End()
		l.Stored(shelf, "color=red")
	})
}

func TestGU6_ANoOpNeverBecomesATransaction(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU6", From: "+",
		Says: "a request that changes no stored byte never becomes a transaction: one read to be sure, and the answer is " +
			"200 with the number that the object already has",
		Why: "a 200 does not mean that something was stored; to change a field and to change it back, however, are two " +
			"writes",
		FalseIf: world.StoredInAnotherEncoding.Shows(`an identical replace cost etcd: 1 Range, 1 Txn`),
		AlsoFalseIf: []world.World{
			world.PatchesAreStamped("JSON patch").Shows(`an empty JSON patch cost etcd: 1 Txn`),
			world.PatchesAreStamped("apply").Shows(`the same apply again cost etcd: 1 Txn`),
			world.EveryWriteDoesTheWork.Shows(`a patch to color=blue cost etcd: 1 Range`),
			world.ReplacesAnswerOneTooHigh.Shows(`the resourceVersion after an identical replace is \d+`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#55",
	}, func(l *lab.Lab) {
		red := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf"},"data":{"color":"red"}}`
		table := l.Table("request", "answer", "to etcd", "resourceVersion")
		shelf := l.Patch("shelf", types.ApplyPatchType, red)
		table.Row("apply color=red, which creates it", l.Answered(), "", shelf.GetResourceVersion())

		for _, noOp := range []struct {
			name string
			send func() *lab.Object
		}{
			{"an identical replace", func() *lab.Object { return l.Replace(shelf) }},
			{"an empty merge patch", func() *lab.Object { return l.Patch("shelf", types.MergePatchType, `{}`) }},
			{"an empty JSON patch", func() *lab.Object { return l.Patch("shelf", types.JSONPatchType, `[]`) }},
			{"the same apply again", func() *lab.Object { return l.Patch("shelf", types.ApplyPatchType, red) }},
		} {
			l.Settle(l.Peek("shelf"))
			var now *lab.Object
			sent := l.Record(func() { now = noOp.send() })
			table.Row(noOp.name, l.Answered(), sent.Summary(), now.GetResourceVersion())
			l.Sends(sent, noOp.name, "1 Range")
			l.Equal("the resourceVersion after "+noOp.name, now.GetResourceVersion(), shelf.GetResourceVersion())
		}

		before := shelf
		for _, change := range []struct{ name, field string }{
			{"a patch to color=blue", "color=blue"},
			{"and back to color=red", "color=red"},
		} {
			l.Settle(before)
			var now *lab.Object
			sent := l.Record(func() { now = l.Set("shelf", change.field) })
			table.Row(change.name, l.Answered(), sent.Summary(), now.GetResourceVersion())
			l.Sends(sent, change.name, "1 Txn")
			l.Expect(number(now) > number(before), "the number moves with a write", "it was %s, it is %s after %s",
				before.GetResourceVersion(), now.GetResourceVersion(), change.name)
			before = now
		}
		table.End()
	})
}

func TestGU6b_AStaleTokenIsRefusedEvenIfNothingWouldChange(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU6b", From: "+",
		Says: "a stale token is refused even when the content is that which is stored: the token is looked at before the " +
			"content is",
		Why:     "that nothing would change is no answer to the question whether the sender has seen the newest version",
		FalseIf: world.ClientDropsTheToken.Shows(`a replace with a stale token and the stored content was accepted`),
		AlsoFalseIf: []world.World{
			world.SomebodyIsAlwaysFaster("shelf").Shows(`the same replace with the newest token was refused: 409`),
			world.ALibraryRepeatsWhatIsRefused.Shows(`the refusal cost etcd: 2 Range`),
			world.StoredInAnotherEncoding.Shows(`the no-op cost etcd: 1 Range, 1 Txn`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
		Answers: "#6",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Rival().Set("shelf", "color=blue")
		l.Settle(l.Rival().Set("shelf", "color=red")) // by content it is again what it was
		stored := l.Peek("shelf")

		var stale, current error
		refused := l.Record(func() { _, stale = l.TryReplace(lab.WithToken(stored, shelf.GetResourceVersion())) })
		accepted := l.Record(func() { _, current = l.TryReplace(stored) })

		l.Show(fmt.Sprintf("PUT configmaps/shelf, as it is stored, resourceVersion %s: %s",
			shelf.GetResourceVersion(), lab.AnswerLine(stale)), refused)
		l.Show(fmt.Sprintf("PUT configmaps/shelf, as it is stored, resourceVersion %s: %s",
			stored.GetResourceVersion(), lab.AnswerLine(current)), accepted)
		l.Refused(stale, "a replace with a stale token and the stored content", lab.Stale(shelf))
		l.Accepted(current, "the same replace with the newest token")
		l.Sends(refused, "the refusal", "1 Range")
		l.Sends(accepted, "the no-op", "1 Range")
	})
}

func TestGU6c_ARepeatedApplyDoesNotEvenRenewItsTime(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU6c", From: "+",
		Says: "an apply that is repeated years later writes nothing: the time in managedFields is not brought up to date " +
			"unless something else is",
		Why: "a controller may apply what it wants as often as it likes; and the time says when a manager last changed " +
			"something, not when it was last there",
		FalseIf: world.StoredInAnotherEncoding.Shows(`the same apply again cost etcd: 1 Range, 1 Txn`),
		Read: source.Decl("k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager",
			"IgnoreManagedFieldsTimestampsTransformer"),
		Answers: "#54",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		apply := func(color string) (applied *lab.Object, sent wire.Requests) {
			body := fmt.Sprintf(`{"apiVersion":%q,"kind":"Shelf","metadata":{"name":"shelf"},"spec":{"color":%q}}`,
				kind.Group+"/"+kind.Version, color)
			sent = l.Record(func() { applied = shelves.Patch("shelf", types.ApplyPatchType, body) })
			l.Settle(applied)
			return applied, sent
		}
		applied, _ := apply("red")
		// Custom resources are stored as JSON: the time is set back in etcd itself, so that nobody waits.
		old := l.BackdateManagedFields(applied, "2020-01-01T00:00:00Z")
		again, sent := apply("red")
		changed, write := apply("blue")

		table := l.Table("step", "to etcd", "resourceVersion", "time in managedFields")
		table.Row("apply color=red, its time set back in etcd", "", old.GetResourceVersion(), managedTimes(old))
		table.Row("the same apply again", sent.Summary(), again.GetResourceVersion(), managedTimes(again))
		table.Row("apply color=blue", write.Summary(), changed.GetResourceVersion(), "(now)")
		table.End()
		l.Sends(sent, "the same apply again", "1 Range")
		l.Equal("the time after the same apply", managedTimes(again), managedTimes(old))
		l.Equal("the resourceVersion after the same apply", again.GetResourceVersion(), old.GetResourceVersion())
		l.Sends(write, "an apply that changes color", "1 Txn")
		l.Expect(managedTimes(changed) != managedTimes(old), "a change renews the time", "it is %s", managedTimes(changed))
	})
}

// managedTimes are the times in an object's managedFields.
func managedTimes(o *lab.Object) string {
	var times []string
	for _, entry := range o.GetManagedFields() {
		if entry.Time != nil {
			times = append(times, entry.Time.UTC().Format(time.RFC3339))
		}
	}
	return strings.Join(times, ", ")
}

func TestGU7_AResourceVersionPreconditionIsATransactionThatComparesModRevision(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU7", From: "D1 Write down",
		Says: "a resourceVersion precondition is a Txn whose compare is on mod_revision",
		Why: "this is the sentence that the document asks its reader to complete; the source and the wire complete it " +
			"with the same word",
		FalseIf:     world.TheSourceComparesTheVersion.Shows(`by the source it is on version`),
		AlsoFalseIf: []world.World{world.EtcdComparesTheVersion.Shows(`on the wire it is on version`)},
		Read:        source.Decl("go.etcd.io/etcd/client/v3/kubernetes", "Client.OptimisticPut"),
	}, func(l *lab.Lab) {
		const field = "mod_revision"
		compare := l.UpdateTransaction()
		l.Expect(compare.FieldName() == field, "by the source the compare is on "+field,
			"by the source it is on %s", compare.FieldName())

		shelf := l.Create("shelf", "color=red")
		l.Settle(shelf)
		sent := l.Record(func() { l.Replace(shelf, "color=blue") }).Only(wire.Txn)
		l.Sends(sent, "a replace", "1 Txn")
		l.Equal("the number of its compares", len(sent[0].Compare), 1)
		l.Expect(sent[0].Compare[0].Field == field, "on the wire the compare is on "+field,
			"on the wire it is on %s", sent[0].Compare[0].Field)

		table := l.Table("where to look", "the compare")
		table.Row(compare.At.File+", "+compare.At.Func, compare.Compare)
		table.Row("the request that etcd got", fmt.Sprintf("if %s(key) %s %d",
			sent[0].Compare[0].Field, sent[0].Compare[0].Operator, sent[0].Compare[0].Value))
		table.End()
		l.Say("So the sentence is: a resourceVersion precondition is a Txn whose compare is on %s.", compare.FieldName())
		l.WriteDown(record.CompareField, "%s", compare.FieldName())
		l.WriteDown(record.TheSentence, "a resourceVersion precondition is a Txn whose compare is on %s", compare.FieldName())
	})
}

func TestGU7b_WhatTheServerReadsInAToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU7b", From: "+",
		Says: "what the server reads in the token of a replace is a number to be equal to: leading zeros make no " +
			"difference, \"0\" is no token at all, and what is no number is answered with 500; the precondition of a " +
			"delete is compared as text, and each of these is 409",
		Why: "a client that makes up tokens, or pads them, is not told so; \"0\" even turns a checked replace into an " +
			"overwrite where the kind allows that",
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

func TestGU8_TheCompareIsWhatSavesTheRivalsWrite(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU8", From: "+",
		Says: "of two patches of one object that race, neither is lost: the compare finds out that the second was made " +
			"from an old copy, and it is made again",
		Why: "take the compare out, and nothing fails: both clients are told 200, no log has a line about it, and the " +
			"rival's write is gone",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(
			`writer was told 200, rival was told 200, and etcd holds color=green and no size`),
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
		table.End()
		l.Show("the two patches", sent)
		l.Accepted(rival, "the rival's patch")
		l.Expect(size == "9", "both writes are stored",
			"writer was told %s, rival was told %s, and etcd holds color=%s and no size: the lost update",
			lab.AnswerLine(writer), lab.AnswerLine(rival), color)
		l.Stored(shelf, "color=green")
	})
}

func TestGU8b_WithoutTheElseBranchARacedWriteEndsInAnErrorOfTheServer(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU8b", From: "+",
		Says: "a patch and a delete that lose a race go on with what the else branch brings, and their clients never learn " +
			"of it",
		Why: "take the else branch out, and the data is still safe, but the server has nothing to go on with: an update is " +
			"answered with 500, and a delete makes the handler panic, so that its client gets no answer at all",
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
		Says: "after a failed compare a patch is made and validated anew, on the fresh object: what was allowed on the old " +
			"one may now be refused",
		Why: "a retry by the server is a new decision, and no replay of the old bytes: a rule that the rival has just put " +
			"in force is not slipped past",
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
