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
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
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
		Says: "in the source, an update is a transaction: if the key's mod_revision is that of the object it started from, " +
			"put, else get",
		Why: "you can read the rule instead of guessing it from answers; these are its lines, in the source of the " +
			"kube-apiserver that runs",
		Do:      "Read OptimisticPut before you explain a conflict.",
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
		Says: "on the wire an update is one transaction with one compare: the key's mod_revision is the resourceVersion " +
			"that the update started from",
		Why:     "etcd is asked what the source says; here you read the request itself",
		Do:      "Look at the transactions, not at the log, to see what a write compared.",
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
		Says: "a transaction that was built for one incarnation of an object fails on the next: mod_revision goes on, " +
			"while version starts again",
		Why: "a compare on version would let through a write that was decided on another object (the ABA problem); only a " +
			"store restored from a backup gives a mod_revision out again",
		Do:      "Send the uid too, so that the refusal names the other object.",
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
		Says: "create, update and delete are one kind of transaction: a create by POST compares mod_revision with 0, and " +
			"has no else branch",
		Why: "0 is the mod_revision of a key that does not exist: one compare serves all three, and the second of two " +
			"creates is refused",
		Do:      "Let the second create fail; do not look first whether the name is free.",
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
		Says: "after a failed compare the apiserver goes on from the value that the else branch returned, without another " +
			"read",
		Why: "losing a race costs one round trip to etcd and not two; the apiserver believes the else branch, even that " +
			"the object is gone",
		Do:      "Let the apiserver retry a patch without a token; it is cheaper than yours.",
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

func TestGU4b_APatchWithoutATokenIsDecidedAnewWhenItIsOvertaken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU4b", From: "D2 paragraph 3; +",
		Says: "a patch or an apply without a token that is overtaken is decided anew: accepted, unless the rival took its " +
			"field or made it invalid",
		Why: "\"the object has been modified\" then means that a token was sent, from a copy or a manifest; or it is about " +
			"another object, such as a quota (CF8d)",
		Do:      "Look for a token in what was sent when a patch meets that conflict.",
		FalseIf: world.ServerGivesUp.Shows(`the merge patch was refused: 500`),
		AlsoFalseIf: []world.World{
			world.EveryPatchCarriesAToken.Shows(`merge patch was refused: 409 Conflict`),
			world.PatchesCarryATokenIn("strategic merge patch").Shows(`the strategic merge patch was refused: 409 Conflict`),
			world.PatchesCarryATokenIn("JSON patch").Shows(`the JSON patch was refused: 409 Conflict`),
			world.PatchesCarryATokenIn("apply").Shows(`the apply was refused: 409 Conflict`),
			world.EtcdIgnoresTheCompare.Shows(`the merge patch cost etcd: 1 Txn`),
			world.EtcdKeepsTheOldValue.Shows(`a is not stored`),
			world.EveryApplyIsForced.Shows(`the apply of a field that the rival took was accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#19 #20",
	}, func(l *lab.Lab) {
		const rivals = 20
		shelf := l.Create("shelf", "color=red")
		key := l.Key(shelf)
		table := l.Table("format", "overtaken by", "answer", "to etcd")
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
			table.Row(patch.name, fmt.Sprintf("%d rivals, one after the other", rivals), lab.AnswerLine(err), sent.Summary())
			l.Accepted(err, "the "+patch.name)
			l.Sends(sent, "the "+patch.name, fmt.Sprintf("%d Txn", rivals+1))
		}
		l.Stored(shelf, "color=red", "a=1", "b=1", "c=1", "d=1")

		sent, other := overtakenApply(l, "place=hall", "size=3")
		table.Row("apply of place, by ann", "an apply of size, by bob", lab.AnswerLine(other), sent.Summary())
		l.Accepted(other, "the apply of a field that the rival left alone")
		l.Stored(shelf, "place=hall", "size=3")

		sent, same := overtakenApply(l, "lamp=on", "lamp=off")
		table.Row("apply of lamp, by ann", "an apply of lamp, by bob", lab.AnswerLine(same), sent.Summary())
		table.End()
		l.Refused(same, "the apply of a field that the rival took", lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
			Causes: []string{"FieldManagerConflict .data.lamp"},
		})
		l.Stored(shelf, "lamp=off")
		l.Say("The refused apply says: %s. GU9 shows a patch that the rival made invalid.", l.Describe(same))
	})
}

// overtakenApply applies a field of the shelf as ann, held until bob has applied one. It returns what that cost etcd,
// and the answer to ann.
func overtakenApply(l *lab.Lab, ann, bob string) (sent wire.Requests, answer error) {
	apply := func(manager, field string) error {
		return errorOf(l.TryApply("shelf", manager, false, field))
	}
	l.Settle(l.Peek("shelf"))
	sent = l.Record(func() {
		answer = l.Race(l.Key(l.Peek("shelf")), func() error { return apply("ann", ann) }, func() {
			require.NoError(l, apply("bob", bob), "applying "+bob+" as bob")
		})
	})
	return sent, answer
}

func TestGU5_AnUpdateStartsFromTheCacheAndTheCompareCatchesAStaleCopy(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU5", From: "+",
		Says: "an accepted update of a cached object reads nothing from etcd first: it starts from the " +
			"apiserver's copy, and the compare catches a stale one",
		Why:     "a cache that lags makes an update slower, never wrong: only the compare makes it safe to start from a copy",
		Do:      "Expect one round trip to etcd for an update, two if the apiserver's cache lags.",
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

		// kube-apiserver keeps no watch cache of Events.
		event := lab.Kind{Kind: "Event", Version: "v1", Resource: "events", Base: map[string]any{
			"involvedObject": map[string]any{"kind": "ConfigMap", "name": "shelf", "namespace": l.Namespace},
		}}
		l.Of(event).Create("moved")
		uncached := l.Record(func() {
			l.Of(event).Patch("moved", types.MergePatchType, `{"message":"again"}`)
		})

		l.Show("PATCH shelves/shelf, the cache is up to date", fresh)
		l.Show("PATCH shelves/shelf, the cache does not know of the rival's write at "+rival.GetResourceVersion(), stale)
		l.Show("PATCH events/moved: Events have no watch cache", uncached)
		l.Stored(rival, "size=9")
		l.Sends(fresh, "a patch with a cache that is up to date", "1 Txn")
		l.Sends(stale, "a patch with a stale cache", "2 Txn")
		l.Equal("the number that the first transaction compares", stale[0].Compare[0].Value, number(shelf))
		l.Equal("the number that the second transaction compares", stale[1].Compare[0].Value, number(rival))
		l.Sends(uncached, "a patch of an Event", "1 Range, 1 Txn")
	})
}

func TestGU5b_WhatACachedCopyWouldRefuseIsReadOnceMoreBeforeItIsRefused(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU5b", From: "+",
		Says: "before the apiserver refuses a write, or treats it as a no-op, because of a cached copy, it reads the key " +
			"from etcd",
		Why: "a compare protects what is written, but a refusal and a no-op write nothing: the read keeps a cache that " +
			"lags from turning a good request away",
		Do:      "Trust a 409: it was decided on the newest version.",
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

// readsAreInAnotherEncoding leaves alone what is stored: only the read that is to make sure shows other bytes.
var readsAreInAnotherEncoding = world.New("a read of etcd returns the object in another encoding than the stored one",
	func(l *lab.Lab) {
		l.Wire.Add(&wire.Rule{
			When: func(r *wire.Request) bool { return r.Method == wire.Range && r.End == "" },
			Note: "the value was encoded in another way",
			Answer: func(m proto.Message) {
				for _, kv := range m.(*pb.RangeResponse).Kvs {
					if value, err := lab.OtherEncoding(kv.Value); err == nil {
						kv.Value = value
					}
				}
			},
		})
	})

func TestGU6_ANoOpBecomesNoTransaction(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "GU6", From: "+",
		Says: "a request that changes no stored byte becomes no transaction: the apiserver reads once, and answers 200 " +
			"with the old resourceVersion",
		Why: "a 200 does not mean that something was stored; changing a field and changing it back, however, are two " +
			"writes",
		Do:      "Compare the resourceVersion before and after to learn whether something was stored.",
		FalseIf: readsAreInAnotherEncoding.Shows(`an identical replace cost etcd: 1 Range, 1 Txn`),
		AlsoFalseIf: []world.World{
			world.StoredInAnotherEncoding.Shows(`an identical replace cost etcd: 1 Range, 1 Txn`),
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
		Says: "a stale token is refused even if the content is the stored one: the apiserver looks at the token before the " +
			"content",
		Why: "even if nothing would change, the sender has not seen the newest version; the 409 says that, and not that a " +
			"rival wanted something else",
		Do:      "Re-read after a 409; what you want may be stored already.",
		FalseIf: world.OlderTokensCount.Shows(`a replace with a stale token and the stored content was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`a replace with a stale token and the stored content was accepted`),
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
		Says: "an apply that would change nothing but the time in managedFields writes nothing, however long after the " +
			"last one",
		Why: "a repeated apply costs a request, a read and the webhooks, but no write; the time says when a manager last " +
			"changed something, not when it was last there",
		Do:      "Apply in every reconcile if you like; take the time for no heartbeat.",
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
