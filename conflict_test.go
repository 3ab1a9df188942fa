// Chapter 2. Two clients decided on the same version of an object: one of them is refused.
package modrev

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

// registryStore is where the apiserver decides on creates, updates and deletes, for every kind.
const registryStore = "k8s.io/apiserver/pkg/registry/generic/registry"

func TestAStaleReplaceIsRefusedAndTheRivalsWriteSurvives(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF1", From: "D1 Do 4, Expect 2; D2 paragraph 2",
		Says: "a replace that carries a stale resourceVersion is refused with 409 Conflict and one exact sentence, and " +
			"nothing of it is stored",
		Why: "of two clients that decided on the same version only one can be right about it; the other one is told, and " +
			"overwrites nothing",
		FalseIf: world.ClientDropsTheToken.Shows(`the stale replace was accepted`),
		Read:    source.Func(registryStore, "(*Store).Update"),
	}, func(l *lab.Lab) {
		read := l.Create("shelf", "color=red", "size=small")
		rivals := l.Rival().Set("shelf", "color=blue")
		_, err := l.TryReplace(read, "size=large")
		stored := l.Peek(read)

		table := l.Table("step", "token sent", "answer", "token after it", "color", "size")
		table.Row("writer creates and keeps the answer", "", "201", read.GetResourceVersion(), "red", "small")
		table.Row("rival patches color", "(none)", "200", rivals.GetResourceVersion(), "blue", "small")
		table.Row("writer replaces, size=large", read.GetResourceVersion(), lab.Brief(err), stored.GetResourceVersion(),
			lab.Field(stored, "color"), lab.Field(stored, "size"))
		table.End()
		l.Blank()
		l.Say("%s", l.Describe(err))

		l.Conflicts(err, "the stale replace", read)
		l.Expect(apierrors.IsConflict(err), "the client's error satisfies apierrors.IsConflict", "%T does not", err)
		l.Names(err, "configmaps", "shelf")
		l.Stored(read, "color=blue", "size=small")
		l.Expect(number(stored) == number(rivals), "the refused replace moved nothing",
			"resourceVersion %s after it, %s before", stored.GetResourceVersion(), rivals.GetResourceVersion())
	})
}

func TestATokenMustBeEqualAndNotOnlyNewEnough(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF1b", From: "D2 paragraph 2",
		Says: "a token is compared for equality: an older one is refused, one from the future just the same; and \"0\" is no " +
			"token but the absence of one",
		Why: "a server that asked for \"new enough\" would let anybody in who names a large number; and a client that sends " +
			"0 for \"unknown\" overwrites without a check",
		FalseIf: world.NewerTokensCount.Shows(`a replace with the next number was accepted`),
		Read:    source.Func(registryStore, "(*Store).Update"),
		Answers: "#35",
	}, func(l *lab.Lab) {
		first := l.Create("shelf", "color=red")
		shelf := l.Rival().Set("shelf", "color=blue")
		table := l.Table("a replace with", "token", "answer")
		send := func(what, token string) error {
			_, err := l.TryReplace(lab.WithToken(shelf, token), "color=green")
			table.Row(what, token, lab.Brief(err))
			return err
		}
		plus := func(n int64) string { return strconv.FormatInt(number(shelf)+n, 10) }

		l.Conflicts(send("an older number", first.GetResourceVersion()), "a replace with an older number", shelf)
		l.Conflicts(send("the next number", plus(1)), "a replace with the next number", shelf)
		l.Conflicts(send("a number far ahead", plus(1_000_000)), "a replace with a number far ahead", shelf)
		err := send("a word", "newest")
		l.Refused(err, "a replace with a word", http.StatusInternalServerError, metav1.StatusReasonUnknown)
		l.Stored(shelf, "color=blue")
		l.Accepted(send("the current number", shelf.GetResourceVersion()), "a replace with the current number")
		l.Accepted(send("0, after the version was read", "0"), "a replace with 0")
		table.End()
		l.Blank()
		l.Say("The word: %s", l.Describe(err))
	})
}

func TestOneSentenceHasTwoSources(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF2", From: "D1 Expect 2",
		Says: "one after the other, a stale replace is refused by the apiserver's own comparison and etcd sees no " +
			"transaction at all; in a race it is refused by the failed compare in etcd; the sentence is the same",
		Why: "who looks for the failed transaction of every 409 does not find it: the number of conflicts says nothing " +
			"about the number of transactions that failed",
		FalseIf: world.ReadsShowTheVersionBefore.Shows(`the replace after the rival's write cost etcd: 1 Range, 1 Txn`),
		Read:    source.Func(registryStore, "(*Store).Update"),
		Erratum: "the document says that the sentence is the user-facing form of a failed compare on mod_revision. It is " +
			"so in a race only; a replace that is stale when it arrives never becomes a transaction.",
	}, func(l *lab.Lab) {
		read := l.Create("shelf", "color=red")
		l.Settle(l.Rival().Set("shelf", "color=blue"))
		var late error
		after := l.Record(func() { _, late = l.TryReplace(read, "color=green") })

		read = l.Get("shelf")
		var raced error
		during := l.Record(func() {
			raced = l.Race(l.Key(read), func() error {
				_, err := l.TryReplace(read, "color=green")
				return err
			}, func() { l.Rival().Set("shelf", "color=black") })
		})

		l.Show("one after the other: the rival had written before the replace arrived", after)
		l.Show("in a race: the rival writes while the transaction of the replace is on its way", during)
		table := l.Table("a replace that", "was refused by", "with")
		table.Row("comes after the rival's write", "the apiserver's own comparison", lab.Brief(late))
		table.Row("is overtaken by it", "the failed compare in etcd", lab.Brief(raced))
		table.End()
		l.Blank()
		l.Say("Both times: %s", l.Describe(raced))

		l.Conflicts(late, "the replace after the rival's write", read)
		l.Conflicts(raced, "the replace that was overtaken", read)
		l.Sends(after, "the replace after the rival's write", "1 Range")
		l.Sends(during, "the replace that was overtaken, and the rival's patch", "2 Txn")
	})
}

func TestInARaceTheFailedCompareRefuses(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF3", From: "D1 Claim, Expect 2",
		Says: "a replace that was fresh when the apiserver checked it, and is overtaken before its transaction arrives, is " +
			"refused by the failed compare; the else branch brings the rival's version, so nothing is read again",
		Why: "between the apiserver's own comparison and the write there is always a gap; only the compare, which etcd " +
			"executes together with the write, leaves none",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the overtaken replace was accepted`),
		Read:    source.Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
	}, func(l *lab.Lab) {
		read := l.Create("shelf", "color=red", "size=small")
		l.Settle(read)
		var rivals *lab.Object
		var err error
		seen := l.Record(func() {
			err = l.Race(l.Key(read), func() error {
				_, err := l.TryReplace(read, "size=large")
				return err
			}, func() { rivals = l.Rival().Set("shelf", "color=blue") })
		})

		l.Show("PUT configmaps/shelf with the current token, overtaken by a rival's patch", seen)
		l.Blank()
		l.Say("%s", l.Describe(err))

		l.Conflicts(err, "the overtaken replace", read)
		l.Stored(read, "color=blue", "size=small")
		l.Sends(seen, "the overtaken replace, and the rival's patch", "2 Txn")
		held := seen[0]
		l.Expect(!held.Succeeded && held.Compare[0].Value == number(read),
			"the transaction compares the version that the writer had read, "+read.GetResourceVersion(), "it is %s", held)
		l.Expect(len(held.Found) == 1 && held.Found[0].ModRevision == number(rivals),
			"its else branch returns the rival's version, "+rivals.GetResourceVersion(), "it is %s", held)
	})
}

func TestAStaleCacheCostsACompareAndNotAnUpdate(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF3b", From: "D1 Claim; +",
		Says: "while the apiserver's cache is stale, its own comparison lets a stale replace pass, and the compare in etcd " +
			"refuses it",
		Why: "the apiserver may start from a copy that is out of date, for speed, because the compare is there to find out; " +
			"a stale cache costs a transaction, and never an update",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the stale replace was accepted`),
		Read:    source.Func("k8s.io/apiserver/pkg/storage/cacher", "(*CacheDelegator).GuaranteedUpdate"),
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		read := shelves.Create("shelf", "color=red", "size=small")
		l.Settle(read)
		frozen := l.Wire.Freeze(shelves.Kind().StoragePrefix())
		rivals := l.Rival().Of(shelves.Kind()).Set("shelf", "color=blue")
		l.Step(frozen.Holds(l.Context(), number(rivals)), "keeping the rival's write from the apiserver's cache")
		cached := shelves.GetCached("shelf")
		var err error
		seen := l.Record(func() { _, err = shelves.TryReplace(read, "size=large") })

		table := l.Table("", "resourceVersion", "color")
		table.Row("what the writer read", read.GetResourceVersion(), lab.Field(read, "color"))
		table.Row("what the apiserver's cache holds", cached.GetResourceVersion(), lab.Field(cached, "color"))
		table.Row("what etcd holds", rivals.GetResourceVersion(), lab.Field(rivals, "color"))
		table.End()
		l.Show("PUT shelves/shelf, resourceVersion "+read.GetResourceVersion(), seen)
		l.Blank()
		l.Say("%s", l.Describe(err))

		l.Expect(number(cached) == number(read), "the cache is as stale as the writer", "the cache holds %s", cached.GetResourceVersion())
		l.Conflicts(err, "the stale replace", read)
		l.Sends(seen, "the stale replace", "1 Txn")
		l.Stored(read, "color=blue", "size=small")
	})
}

func TestAConflictingPatchRetriesAndAConflictingReplaceDoesNot(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF4", From: "D1 Expect 3",
		Says: "after a failed compare the apiserver tries again by itself, unless the caller insisted on a version: what " +
			"makes the difference is the token and neither the verb nor etcd",
		Why: "a patch without a token says what to change and fits any version; whoever sends a token asked to be told, " +
			"and a replace without one overwrites what it has never seen",
		FalseIf: world.ClientDropsTheToken.Shows(`the patch with a token was accepted`),
		Read:    source.Func(registryStore, "(*Store).Update"),
	}, func(l *lab.Lab) {
		table := l.Table("overtaken by a rival's patch", "transactions", "answer", "mine", "rival")
		var shown wire.Requests
		race := func(name, what string, write func(read *lab.Object) (*lab.Object, error)) (int, error) {
			read := l.Create(name, "mine=old", "rival=old")
			l.Settle(read)
			var err error
			seen := l.Record(func() {
				err = l.Race(l.Key(read), func() error { _, err := write(read); return err },
					func() { l.Rival().Set(name, "rival=new") })
			})
			if shown == nil {
				shown = seen
			}
			own := seen.Count(wire.Txn) - 1 // one is the rival's
			stored := l.Peek(read)
			table.Row(what, own, lab.Brief(err), lab.Field(stored, "mine"), lab.Field(stored, "rival"))
			return own, err
		}
		merge := func(body string) func(*lab.Object) (*lab.Object, error) {
			return func(read *lab.Object) (*lab.Object, error) {
				return l.TryPatch(read.GetName(), types.MergePatchType, strings.ReplaceAll(body, "TOKEN", read.GetResourceVersion()))
			}
		}
		bare, err := race("a", "a patch without a token", merge(`{"data":{"mine":"new"}}`))
		l.Accepted(err, "the patch without a token")
		insisting, err := race("b", "a patch with the token that was read", merge(`{"metadata":{"resourceVersion":"TOKEN"},"data":{"mine":"new"}}`))
		l.Conflicts(err, "the patch with a token", l.New("b"))
		blind, err := race("c", "a replace without a token", func(read *lab.Object) (*lab.Object, error) {
			return l.TryReplace(lab.WithToken(read, ""), "mine=new")
		})
		l.Accepted(err, "the replace without a token")
		checked, err := race("d", "a replace with the token that was read", func(read *lab.Object) (*lab.Object, error) { return l.TryReplace(read, "mine=new") })
		l.Conflicts(err, "the replace with a token", l.New("d"))
		table.End()
		l.Show("the patch without a token, and the rival's patch", shown)

		l.Expect(bare == 2 && blind == 2, "without a token, the apiserver tries again after the failed compare",
			"it sent %d and %d transactions", bare, blind)
		l.Expect(insisting == 1 && checked == 1, "with a token, it does not", "it sent %d and %d transactions", insisting, checked)
		l.Stored(l.New("a"), "mine=new", "rival=new")
		l.Stored(l.New("c"), "mine=new", "rival=old") // the rival's write is gone, and nobody was told
	})
}

func TestPatchesWithoutATokenNeverConflictHoweverManyWritersThereAre(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF4b", From: "D1 Expect 3",
		Says: "many clients may patch one object at once: without a token all are accepted and no field is lost; with the " +
			"token that all of them read, exactly one is",
		Why:     "contention alone makes no conflict: who sees a patch refused has sent a token, or has a library that did it",
		FalseIf: world.ClientPinsItsFirstToken.Shows(`1 of 20 patches without a token were accepted`),
		Read:    source.Func("k8s.io/apiserver/pkg/endpoints/handlers", "(*patcher).patchResource"),
		Answers: "#19",
	}, func(l *lab.Lab) {
		const writers = 20
		table := l.Table("20 writers patch at once", "accepted", "refused as stale", "storage writes", "fields stored")
		patch := func(what, name, token string) int {
			shelf := l.Create(name, "color=red")
			if token == "as read" {
				token = shelf.GetResourceVersion()
			}
			accepted, refused := l.Each(writers, func(n int) error {
				body := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"data":{"field%d":"x"}}`, token, n)
				if token == "" {
					body = fmt.Sprintf(`{"data":{"field%d":"x"}}`, n)
				}
				_, err := l.TryPatch(name, types.MergePatchType, body)
				return err
			})
			for _, err := range refused {
				l.Conflicts(err, "a patch with a token", shelf)
			}
			fields := len(l.Peek(shelf).Object["data"].(map[string]any)) - 1
			table.Row(what, accepted, len(refused), l.KV(shelf).Version-1, fields)
			l.Expect(accepted == fields, "every accepted patch is stored", "%d were accepted, %d are stored", accepted, fields)
			return accepted
		}
		n := patch("without a token", "a", "")
		l.Expect(n == writers, "all patches without a token are accepted", "%d of %d patches without a token were accepted", n, writers)
		n = patch("with the token that all of them read", "b", "as read")
		l.Expect(n == 1, "exactly one patch with the token is accepted", "%d of %d patches with the token were accepted", n, writers)
		table.End()
	})
}

func TestTheServersRetryHasNoCount(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF5", From: "+",
		Says: "the apiserver's own retry has no count: overtaken 300 times, a patch is tried 301 times and accepted",
		Why: "the often repeated \"five retries\" is not true of the server: what ends the retry is success, or the deadline of " +
			"the request (half a minute), which is answered with 504",
		FalseIf: world.ServerGivesUp.Shows(`the patch was refused after 7 transactions`),
		Read:    source.Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#19",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Settle(shelf)
		const rivals = 300
		key := l.Key(shelf)
		var touch error
		l.Wire.Add(&wire.Rule{
			When: wire.UpdateOf(key), Times: rivals, Note: "overtaken",
			Do: func(int) {
				if _, err := l.TryTouch(key); err != nil {
					touch = err
				}
			},
		})
		var err error
		seen := l.Record(func() { _, err = l.TrySet("shelf", "color=blue") })
		l.Step(touch, "overtaking the patch")

		l.Show("PATCH configmaps/shelf: the first two transactions", seen[:2])
		l.Show("and the last two", seen[len(seen)-2:])
		table := l.Table("rivals in a row", "transactions", "reads", "answer", "version in etcd")
		table.Row(rivals, seen.Count(wire.Txn), seen.Count(wire.Range), lab.Brief(err), l.KV(shelf).Version)
		table.End()

		l.Expect(err == nil, "the patch is accepted", "the patch was refused after %d transactions: %s", len(seen), l.Describe(err))
		l.Sends(seen, "a patch that is overtaken 300 times", "301 Txn")
		l.Stored(shelf, "color=blue")
	})
}
