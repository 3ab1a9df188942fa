// Chapter 2. Two clients decided on the same version of an object: one of them is refused.
package modrev

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/record"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

// registryStore is where the apiserver decides on creates, updates and deletes, for every kind.
const registryStore = "k8s.io/apiserver/pkg/registry/generic/registry"

func TestCF1_AStaleReplaceIsRefusedAndTheRivalsWriteSurvives(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF1", From: "D1 Do 4, Expect 2; D2 paragraph 2",
		Says: "a stale replace of an object that is still there is refused with 409 Conflict and one exact sentence, and " +
			"nothing of it is stored",
		Why: "of two clients that decided on the same version only one can be right about it; the other one is told, " +
			"and overwrites nothing",
		Do:      "Send the resourceVersion that you decided on with every replace.",
		FalseIf: world.OlderTokensCount.Shows(`the stale replace was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the stale replace was accepted`),
			world.AProxyForcesWhatIsRefused.Shows(`color=red is stored`),
			world.KeysOutliveTheirDeletion.Shows(`the replace after its deletion was refused: 409 Conflict`),
			world.ClientDropsTheUID.Shows(`the replace of its namesake was refused: .* has been modified`),
		},
		Read: source.Decl(registryStore, "(*Store).Update"),
	}, func(l *lab.Lab) {
		read := l.Create("shelf", "color=red", "size=small")
		rivals := l.Rival().Set("shelf", "color=blue")
		_, err := l.TryReplace(read, "size=large")
		stored := l.Peek("shelf")

		table := l.Table("step", "token sent", "answer", "token after it", "color", "size")
		table.Row("writer creates and keeps the answer", "", "201", read.GetResourceVersion(), "red", "small")
		table.Row("rival patches color", "(none)", "200", rivals.GetResourceVersion(), "blue", "small")
		table.Row("writer replaces, size=large", read.GetResourceVersion(), lab.AnswerLine(err),
			stored.GetResourceVersion(), lab.Field(stored, "color"), lab.Field(stored, "size"))
		refusal := l.Refused(err, "the stale replace", lab.Stale(read))
		l.Equal("what the refusal is about", refusal.Details(), "configmaps shelf")
		l.Stored(read, "color=blue", "size=small")
		l.Equal("the resourceVersion after it", stored.GetResourceVersion(), rivals.GetResourceVersion())
		l.WriteDown(record.TheRefusal, "%s", refusal.Message)
		l.WriteDown(record.StaleReplace, "%s", refusal.CodeAndReason())

		l.Rival().Delete("shelf")
		_, gone := l.TryReplace(read, "size=large")
		table.Row("the same after its deletion", read.GetResourceVersion(), lab.AnswerLine(gone), "(gone)", "", "")
		l.Refused(gone, "the replace after its deletion",
			lab.Refusal{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
		namesake := l.Rival().Create("shelf", "color=white", "size=tiny")
		_, another := l.TryReplace(read, "size=large")
		table.Row("the same onto its namesake", read.GetResourceVersion(), lab.AnswerLine(another),
			namesake.GetResourceVersion(), "white", "tiny")
		table.End()
		l.Refused(another, "the replace of its namesake", lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Says: "UID in precondition",
		})
		l.Stored(namesake, "color=white", "size=tiny")
		l.Say("While it is there: %s", l.Describe(err))
		l.Say("Once it is gone, the answer is another: 404 here, 201 for a Lease (CF6b), and the uid's own sentence " +
			"where a namesake stands (CF8g).")
	})
}

func TestCF1b_ATokenMustBeEqualAndNotOnlyNewEnough(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF1b", From: "D2 paragraph 2",
		Says: "the token of a replace is compared for equality: an older one is refused, and one from the future just " +
			"the same",
		Why:     "a server that asked for \"new enough\" would let in every client that names a large number",
		Do:      "Send the token that you were given, and never one that you computed.",
		FalseIf: world.NewerTokensCount.Shows(`a replace with the next number was accepted`),
		AlsoFalseIf: []world.World{
			world.OlderTokensCount.Shows(`a replace with an older number was accepted`),
			world.TokensAreTheirLastDigits.Shows(`a replace with a number far ahead was accepted`),
			world.SomebodyIsAlwaysFaster("shelf").Shows(`a replace with the current number was refused: 409`),
		},
		Read:    source.Decl(registryStore, "(*Store).Update"),
		Answers: "#35",
	}, func(l *lab.Lab) {
		first := l.Create("shelf", "color=red")
		shelf := l.Rival().Set("shelf", "color=blue")
		now := number(shelf)
		table := l.Table("a replace with", "token", "answer")
		for _, c := range []struct {
			with    string
			token   int64
			refused bool
		}{
			{"an older number", number(first), true},
			{"the next number", now + 1, true},
			{"a number far ahead", now + 1_000_000, true},
			{"the current number", now, false},
		} {
			token := strconv.FormatInt(c.token, 10)
			_, err := l.TryReplace(lab.WithToken(shelf, token), "color=green")
			table.Row(c.with, token, lab.AnswerLine(err))
			if c.refused {
				l.Refused(err, "a replace with "+c.with, lab.Stale(shelf))
				l.Stored(shelf, "color=blue")
			} else {
				l.Accepted(err, "a replace with "+c.with)
			}
		}
		table.End()
	})
}

func TestCF2_AReplaceThatIsStaleOnArrivalNeverBecomesATransaction(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF2", From: "D1 Expect 2",
		Says: "a replace that is stale against the apiserver's copy costs etcd one read, and never becomes a " +
			"transaction: the apiserver itself compares the token",
		Why: "look for a failed transaction behind every 409 and you won't find one: the number of conflicts says " +
			"nothing about the number of failed compares",
		Do:      "Count 409s at the apiserver; etcd's failed compares are another number.",
		FalseIf: world.ReadsShowTheVersionBefore.Shows(`the replace after the rival's write cost etcd: 1 Range, 1 Txn`),
		AlsoFalseIf: []world.World{
			world.OlderTokensCount.Shows(`the replace after the rival's write was accepted`),
			world.ALibraryReadsFirst("replace").Shows(`the replace after the rival's write cost etcd: 2 Range`),
		},
		Read: source.Decl(registryStore, "(*Store).Update"),
		Erratum: "the document says that the sentence is the user-facing form of a failed compare on mod_revision. The " +
			"apiserver's own comparison makes it, every time. A failed compare only brings back the version that is then " +
			"compared (CF3).",
	}, func(l *lab.Lab) {
		read := l.Create("shelf", "color=red")
		l.Settle(l.Rival().Set("shelf", "color=blue"))
		var late error
		after := l.Record(func() { _, late = l.TryReplace(read, "color=green") })

		l.Show("PUT configmaps/shelf: the rival had written before it arrived", after)
		l.Say("%s", l.Describe(late))
		l.Say("The one read makes sure that the apiserver's cache is not behind (CF3b).")
		l.Refused(late, "the replace after the rival's write", lab.Stale(read))
		l.Sends(after, "the replace after the rival's write", "1 Range")
		l.Stored(read, "color=blue")
		l.WriteDown(record.StaleReplaceCost, "%s", after.Summary())
	})
}

// overtaken sends a write of an object and has a rival do something while its transaction is on the way to etcd. It
// returns what both sent to etcd, and the answer to the write.
func overtaken(l *lab.Lab, read *lab.Object, write func() error, rival func()) (wire.Requests, error) {
	l.Settle(read)
	var err error
	seen := l.Record(func() { err = l.Race(l.Key(read), write, rival) })
	return seen, err
}

func TestCF3_AFailedCompareStopsTheWriteAndTheApiserverRefuses(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF3", From: "D1 Claim, Expect 2",
		Says: "a failed compare stops an overtaken replace and brings back the rival's version; the apiserver then " +
			"compares the token with that, and refuses",
		Why:     "between the apiserver's comparison and the write there is a gap; only the compare in etcd closes it",
		Do:      "Rely on the compare in etcd, and on no check of yours before the write.",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the overtaken replace was accepted`),
		AlsoFalseIf: []world.World{
			world.AFailedCompareIsTheRefusal.Shows(`the number of its transactions that reach etcd is 1`),
			world.TheElseBranchFindsNothing.Shows(`the overtaken replace was refused: 404 NotFound`),
			world.AProxyForcesWhatIsRefused.Shows(`color=red is stored`),
			world.ALibraryRepeatsWhatIsRefused.Shows(`the rival's patch cost etcd: (1 Range, 2|3) Txn`),
			world.EtcdComparesTheVersion.Shows(`it is Txn if version\(`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
	}, func(l *lab.Lab) {
		read := l.Create("shelf", "color=red", "size=small")
		var rivals *lab.Object
		seen, err := overtaken(l, read,
			func() error { _, err := l.TryReplace(read, "size=large"); return err },
			func() { rivals = l.Rival().Set("shelf", "color=blue") })
		l.Show("PUT configmaps/shelf with the current token, overtaken by a rival's patch", seen)
		l.Say("%s", l.Describe(err))
		l.Refused(err, "the overtaken replace", lab.Stale(read))
		l.Stored(read, "color=blue", "size=small")
		l.Sends(seen, "the overtaken replace, and the rival's patch", "2 Txn")
		held := seen[0]
		l.Expect(held.Compare[0].Value == number(read),
			"the transaction compares the version that the writer had read, "+read.GetResourceVersion(), "it is %s", held)
		l.Expect(!held.Succeeded, "its compare fails", "it is %s", held)
		l.Equal("the number of keys that its else branch returns", len(held.Found), 1)
		l.Equal("the mod_revision that its else branch returns", held.Found[0].ModRevision, number(rivals))
		l.WriteDown(record.RacedReplaceCost, "1 Txn")

		lamp := l.Create("lamp", "color=red", "size=small")
		toldOnceThatItIsUnchanged(l, lamp)
		misled, late := overtaken(l, lamp,
			func() error { _, err := l.TryReplace(lamp, "size=large"); return err },
			func() { l.Rival().Set("lamp", "color=blue") })
		l.Show("the same, but the failed transaction brings back the token that was sent, once", misled)
		l.Say("The apiserver compares the token with what it was told, finds them equal and tries once more. The second " +
			"failed transaction brings back the true number, and only then comes the 409.")
		l.Say("One replace is not refused in such a race: the one that takes away a last finalizer (CF12).")
		l.Refused(late, "the replace that was misled", lab.Stale(lamp))
		own := slices.DeleteFunc(misled.Only(wire.Txn), func(r wire.Request) bool { return r.Succeeded || r.Err != "" })
		l.Equal("the number of its transactions that reach etcd", len(own), 2)
		l.Stored(lamp, "color=blue", "size=small")
	})
}

// toldOnceThatItIsUnchanged has the next update of an object, if its compare fails, report that the key is still at the
// version given.
func toldOnceThatItIsUnchanged(l *lab.Lab, o *lab.Object) {
	l.Wire.Add(&wire.Rule{
		When: wire.UpdateOf(l.Key(o)), Times: 1, Note: "told that it is at " + o.GetResourceVersion(),
		Answer: func(m proto.Message) {
			for _, op := range m.(*pb.TxnResponse).Responses {
				for _, kv := range op.GetResponseRange().GetKvs() {
					kv.ModRevision = number(o)
				}
			}
		},
	})
}

func TestCF3b_AStaleCacheCostsACompareAndNotAnUpdate(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF3b", From: "D1 Claim; +",
		Says: "where the apiserver's cache is stale at the very version that was read, its comparison lets the replace " +
			"pass; the compare in etcd stops it",
		Why: "the apiserver may start from an old copy, for speed, because the compare finds out: it costs a " +
			"transaction, never an update",
		Do:      "Don't fear the apiserver's cache in a write: etcd compares the version again.",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the stale replace was accepted`),
		AlsoFalseIf: []world.World{
			world.ALibraryRepeatsWhatIsRefused.Shows(`the stale replace cost etcd: 2 Txn`),
			world.AProxyForcesWhatIsRefused.Shows(`color=red is stored`),
			theCacheMissesASecondVersion.Shows(`the stale replace cost etcd: 1 Range`),
			world.ReadsForAPatchShowTheFirstVersion.Shows(`older than the cache cost etcd: 1 Range, 1 Txn`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*CacheDelegator).GuaranteedUpdate"),
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		rival := l.Rival().Of(shelves.Kind())
		older := shelves.Create("shelf", "color=red", "size=tiny")
		read := shelves.Set("shelf", "size=small")
		l.Settle(read)
		frozen := l.Wire.Freeze(shelves.Kind().StoragePrefix())
		rivals := rival.Set("shelf", "color=blue")
		require.NoError(l, frozen.Holds(l.Context(), number(rivals)), "keeping the rival's write from the apiserver's cache")
		cached, err := shelves.TryGetAt("shelf", "0")
		require.NoError(l, err, "reading the apiserver's cache")
		var refused, refusedToo error
		seen := l.Record(func() { _, refused = shelves.TryReplace(read, "size=large") })
		ahead := l.Record(func() { _, refusedToo = shelves.TryReplace(older, "size=large") })

		table := l.Table("", "resourceVersion", "color", "size", "a replace with it", "to etcd")
		table.Row("an older version", older.GetResourceVersion(), "red", "tiny", lab.AnswerLine(refusedToo), ahead.Summary())
		table.Row("what the writer read", read.GetResourceVersion(), "red", "small", lab.AnswerLine(refused), seen.Summary())
		table.Row("what the apiserver's cache holds", cached.GetResourceVersion(), lab.Field(cached, "color"),
			lab.Field(cached, "size"), "", "")
		table.Row("what etcd holds", rivals.GetResourceVersion(), "blue", "small", "", "")
		table.End()
		l.Show("PUT shelves/shelf, resourceVersion "+read.GetResourceVersion(), seen)
		l.Say("%s", l.Describe(refused))
		l.Say("A cache that is ahead of the writer refuses by itself, after one read that makes sure.")

		l.Refused(refused, "the stale replace", lab.Stale(read))
		l.Sends(seen, "the stale replace", "1 Txn")
		l.Refused(refusedToo, "the replace that is older than the cache", lab.Stale(read))
		l.Sends(ahead, "the replace that is older than the cache", "1 Range")
		l.Equal("what the cache holds", cached.GetResourceVersion(), read.GetResourceVersion())
		l.Stored(read, "color=blue", "size=small")
	})
}

// theCacheMissesASecondVersion keeps the second version of every object from the cache, which stays stale at the first.
var theCacheMissesASecondVersion = world.New("the apiserver's cache misses an object's second version",
	func(l *lab.Lab) {
		second := func(r *wire.Request) bool { return r.Method == wire.Event && r.Found[0].Version == 2 }
		l.Wire.Add(&wire.Rule{When: second, Note: "swallowed", Drop: true})
	})

func TestCF4_TheTokenAndNotTheVerbDecidesWhetherAnOvertakenWriteIsRefused(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF4", From: "D1 Expect 3",
		Says: "after a failed compare the apiserver decides an update anew, with or without a token: a token that " +
			"was sent makes it refuse",
		Why:     "a patch without a token fits any version; a replace without one overwrites what it has never seen",
		Do:      "Send a token where the change depends on what you read; otherwise patch without one.",
		FalseIf: world.AFailedCompareIsTheRefusal.Shows(`a patch without a token was refused: 409`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`a patch with the token that was read was accepted`),
			world.EveryPatchCarriesAToken.Shows(`a patch without a token was refused: 409`),
			world.LibraryFillsInTheToken.Shows(`a replace without a token was refused: 409`),
			world.PatchesCarryATokenIn("apply").Shows(`an apply without a token was refused: 409`),
			world.ClientDropsTheTokenOf("replace").Shows(`a replace with the token that was read was accepted`),
			world.EtcdIgnoresTheCompareOf("a").Shows(`the number of transactions of a patch without a token is 1`),
			world.TheRetryPutsTheOldBytes.Shows(`rival=old is stored`),
		},
		Read:    source.Decl(registryStore, "(*Store).Update"),
		Answers: "#20",
	}, func(l *lab.Lab) {
		table := l.Table("overtaken by a rival's patch", "transactions", "answer", "mine", "rival")
		var shown []wire.Requests
		for _, c := range []struct {
			name, what   string
			write        func(*lab.Lab, *lab.Object) error
			insists      bool // on the version that was read
			misled       bool // by the failed transaction: nothing seems to have changed
			transactions int
			mine, rival  string // in the end
		}{
			{"a", "a patch without a token", patchMine, false, false, 2, "new", "new"},
			{"b", "a patch with the token that was read", patchMine, true, false, 1, "old", "new"},
			{"c", "a replace without a token", replaceMine, false, false, 2, "new", "old"}, // the rival's write is gone
			{"d", "an apply without a token", applyMine, false, false, 2, "new", "new"},
			{"e", "a replace with the token that was read", replaceMine, true, false, 1, "old", "new"},
			{"f", "a patch with the token, told once that nothing has changed", patchMine, true, true, 2, "old", "new"},
		} {
			read := l.Create(c.name, "mine=old", "rival=old")
			sent := lab.WithToken(read, "")
			if c.insists {
				sent = read
			}
			if c.misled {
				toldOnceThatItIsUnchanged(l, read)
			}
			seen, err := overtaken(l, read,
				func() error { return c.write(l, sent) },
				func() { l.Rival().Set(c.name, "rival=new") })
			own := seen.Count(wire.Txn) - 1 // one is the rival's
			stored := l.Peek(c.name)
			table.Row(c.what, own, lab.AnswerLine(err), lab.Field(stored, "mine"), lab.Field(stored, "rival"))
			shown = append(shown, seen)

			if c.insists {
				l.Refused(err, c.what, lab.Stale(read))
			} else {
				l.Accepted(err, c.what)
			}
			l.Equal("the number of transactions of "+c.what, own, c.transactions)
			l.Stored(read, "mine="+c.mine, "rival="+c.rival)
		}
		table.End()
		l.Say("With a token, too, the apiserver goes round again. What it finds there is another version than the " +
			"token's, unless the failed transaction tells it otherwise (the last row, CF3).")
		l.Show("the patch without a token, and the rival's patch", shown[0])
		l.WriteDown(record.RacedPatchCost, "2 Txn")
	})
}

// replaceMine, patchMine and applyMine are three ways to write mine=new. Each sends the token that the object carries,
// if it carries one.
func replaceMine(l *lab.Lab, o *lab.Object) error {
	_, err := l.TryReplace(o, "mine=new")
	return err
}

func patchMine(l *lab.Lab, o *lab.Object) error {
	_, err := l.TryPatch(o.GetName(), types.MergePatchType, onlyMine(o))
	return err
}

func applyMine(l *lab.Lab, o *lab.Object) error {
	_, err := l.TryPatchWith(o.GetName(), types.ApplyPatchType, onlyMine(o),
		metav1.PatchOptions{FieldManager: "applier", Force: new(true)})
	return err
}

// onlyMine is the body of a patch of an object that says mine=new and nothing of other fields.
func onlyMine(o *lab.Object) string {
	token := ""
	if o.GetResourceVersion() != "" {
		token = fmt.Sprintf(`,"resourceVersion":%q`, o.GetResourceVersion())
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q%s},"data":{"mine":"new"}}`,
		o.GetName(), token)
}

func TestCF4b_PatchesWithoutATokenNeverConflictHoweverManyWritersThereAre(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF4b", From: "D1 Expect 3",
		Says: "many clients may patch one object at once, each a field of its own: without a token all are accepted and " +
			"no field is lost",
		Why: "contention alone makes no conflict: if your patch is refused as stale, you or a library of yours sent a " +
			"token in it",
		Do:      "Patch without a token what others may write beside you.",
		FalseIf: world.ClientPinsItsFirstToken.Shows(`1 of 20 patches without a token were accepted`),
		AlsoFalseIf: []world.World{
			world.EtcdKeepsTheOldValue.Shows(`20 were accepted, 0 are stored`),
			world.ClientDropsTheToken.Shows(`20 of 20 patches with the token that all of them read were accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#19",
	}, func(l *lab.Lab) {
		const writers = 20
		free, pinned := l.Create("free", "color=red"), l.Create("pinned", "color=red")
		table := l.Table("20 writers patch at once", "accepted", "refused as stale", "storage writes", "fields stored")
		for _, c := range []struct {
			patches  string
			shelf    *lab.Object
			meta     string // of what is sent
			accepted int
		}{
			{"without a token", free, `{}`, writers},
			{"with the token that all of them read", pinned,
				fmt.Sprintf(`{"resourceVersion":%q}`, pinned.GetResourceVersion()), 1},
		} {
			accepted, refused := l.Each(writers, func(n int) error {
				body := fmt.Sprintf(`{"metadata":%s,"data":{"field%d":"x"}}`, c.meta, n)
				_, err := l.TryPatch(c.shelf.GetName(), types.MergePatchType, body)
				return err
			})
			for _, err := range refused {
				l.Refused(err, "a patch "+c.patches, lab.Stale(c.shelf))
			}
			fields := len(l.Peek(c.shelf.GetName()).Object["data"].(map[string]any)) - 1 // one is the color
			table.Row(c.patches, accepted, len(refused), l.KV(c.shelf).Version-1, fields)
			l.Expect(fields == accepted, "every accepted patch is stored", "%d were accepted, %d are stored", accepted, fields)
			l.Expect(accepted == c.accepted, fmt.Sprintf("%d of %d patches %s are accepted", c.accepted, writers, c.patches),
				"%d of %d patches %s were accepted", accepted, writers, c.patches)
		}
		table.End()
	})
}

func TestCF5_TheServersRetryHasNoCount(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF5", From: "+",
		Says: "the apiserver's own retry has no count: overtaken 300 times, a patch is tried 301 times and accepted",
		Why: "the server has no \"five retries\": success ends it, a deadline, a deletion, a validation that now " +
			"fails, or an error of etcd",
		Do:      "Leave retries of a patch to the server, and give the request a deadline.",
		FalseIf: world.ServerGivesUp.Shows(`the patch was refused at transaction 7`),
		AlsoFalseIf: []world.World{
			world.EtcdIgnoresTheCompareOf("shelf").Shows(`overtaken 300 times cost etcd: 1 Txn`),
			world.EtcdKeepsTheOldValue.Shows(`color=red is stored`),
			world.EtcdIgnoresTheCompareOf("gone").Shows(`the patch overtaken by a delete was accepted`),
			world.EtcdIgnoresTheCompareOf("busy").Shows(`what ends the patch with a deadline is 200`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#19",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Settle(shelf)
		const rivals = 300
		key := l.Key(shelf)
		var touched error
		l.Wire.Add(&wire.Rule{
			When: wire.UpdateOf(key), Times: rivals, Note: "overtaken",
			Do: func(int) {
				_, err := l.TryTouch(key)
				touched = errors.Join(touched, err)
			},
		})
		var err error
		seen := l.Record(func() { _, err = l.TrySet("shelf", "color=blue") })
		require.NoError(l, touched, "overtaking the patch")
		l.Expect(err == nil, "the patch is accepted",
			"the patch was refused at transaction %d: %s", len(seen), l.Describe(err))
		l.Sends(seen, "a patch that is overtaken 300 times", "301 Txn")
		l.Stored(shelf, "color=blue")

		gone := l.Create("gone", "color=red")
		raced, deleted := overtaken(l, gone,
			func() error { _, err := l.TrySet("gone", "color=blue"); return err },
			func() { l.Rival().Delete("gone") })
		l.Refused(deleted, "the patch overtaken by a delete",
			lab.Refusal{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})

		busy := l.Create("busy", "color=red")
		stop := l.Busy(l.Key(busy))
		var late error
		many := l.Record(func() {
			_, late = l.WithHeader("Content-Type", string(types.MergePatchType)).
				TryRaw(http.MethodPatch, l.Path("busy"), "timeout=1s", []byte(`{"data":{"color":"blue"}}`))
		})
		l.Equal("what ends the patch with a deadline", endedBy(late), deadlineEnded)
		l.Expect(many.Count(wire.Txn) > 1, "it is tried again until then", "it is tried %d times", many.Count(wire.Txn))
		l.Stored(busy, "color=red")
		stop() // not before: a last try may still be on its way

		table := l.Table("a patch that is overtaken", "transactions", "answer")
		table.Row("300 times", seen.Count(wire.Txn), lab.AnswerLine(err))
		table.Row("by a delete", raced.Count(wire.Txn)-1, lab.AnswerLine(deleted))
		table.Row("again and again, with ?timeout=1s", "more than 1", deadlineEnded)
		table.End()
		l.Show("PATCH configmaps/shelf: the first two transactions", seen[:2])
		l.Show("and the last two", seen[len(seen)-2:])
		l.Say("Without a deadline of the caller's own, kube-apiserver ends it after 34 seconds, with 504 " +
			"(requestTimeoutUpperBound). At a deadline of the caller's, two timers of the server race: the 504 is sent, or " +
			"cut off on its way. Another end is a rule that the rival has put in force: see GU9.")
	})
}

// deadlineEnded is how a request ends at the deadline that its caller set.
const deadlineEnded = "504 Timeout, or none"

// endedBy says how a request ended that may run into its deadline.
func endedBy(err error) string {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) && !apierrors.IsTimeout(err) {
		return lab.AnswerLine(err)
	}
	return deadlineEnded
}
