// Chapter 2. Two clients decided on the same version of an object: one of them is refused.
package modrev

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/notebook"
	"modrev/helpers/prediction"
	"modrev/helpers/source"
	"modrev/helpers/token"
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
		AlsoFalseIf: []world.World{
			world.AProxyRewordsRefusals.Shows(`it says: .*please apply the changes`),
			world.AProxyForcesWhatIsRefused.Shows(`color=red is stored`),
			world.RefusalsAreAbout("ConfigMap").Shows(`they name ConfigMap and shelf`),
		},
		Read: source.Func(registryStore, "(*Store).Update"),
	}, func(l *lab.Lab) {
		read := l.Create("shelf", "color=red", "size=small")
		rivals := l.Rival().Set("shelf", "color=blue")
		_, err := l.TryReplace(read, "size=large")
		stored := l.Peek("shelf")

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
		l.WriteDown(notebook.TheRefusal, "%s", l.Refusal(err, "the stale replace").Message)
		l.WriteDown(prediction.StaleReplace, "409 Conflict")
	})
}

func TestATokenMustBeEqualAndNotOnlyNewEnough(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF1b", From: "D2 paragraph 2",
		Says: "the token of a replace is compared for equality: an older one is refused, one from the future just the same; " +
			"and \"0\" is no token but the absence of one",
		Why: "a server that asked for \"new enough\" would let anybody in who names a large number; and a client that sends " +
			"0 for \"unknown\" overwrites without a check",
		FalseIf: world.NewerTokensCount.Shows(`a replace with the next number was accepted`),
		AlsoFalseIf: []world.World{
			world.OlderTokensCount.Shows(`a replace with an older number was accepted`),
			world.TokensAreTheirLastDigits.Shows(`a replace with a number far ahead was accepted`),
			world.WordsAreNoTokens.Shows(`a replace with a word was accepted`),
			world.SomebodyIsAlwaysFaster("shelf").Shows(`a replace with the current number was refused: 409`),
			world.ZeroIsANumber.Shows(`a replace with 0 was refused: 409`),
		},
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
		l.Accepted(send("0, when the object has moved on", "0"), "a replace with 0")
		table.End()
		l.Blank()
		l.Say("The word: %s", l.Describe(err))
	})
}

func TestOneSentenceHasTwoSources(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF2", From: "D1 Expect 2",
		Says: "one after the other, a stale replace is refused by the apiserver's own comparison and etcd sees no " +
			"transaction at all, if the apiserver's cache has seen the rival's write; in a race it is refused by the failed compare in etcd; the sentence is the same",
		Why: "who looks for the failed transaction of every 409 does not find it: the number of conflicts says nothing " +
			"about the number of transactions that failed",
		FalseIf: world.ReadsShowTheVersionBefore.Shows(`the replace after the rival's write cost etcd: 1 Range, 1 Txn`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the replace after the rival's write was accepted`),
			world.EtcdIgnoresTheCompare.Shows(`the replace that was overtaken was accepted`),
		},
		Read: source.Func(registryStore, "(*Store).Update"),
		Erratum: "the document says that the sentence is the user-facing form of a failed compare on mod_revision. It is " +
			"so in a race only, or while the apiserver's cache lags (CF3b); otherwise a replace that is stale when it arrives " +
			"never becomes a transaction.",
	}, func(l *lab.Lab) {
		read := l.Create("shelf", "color=red")
		l.Settle(l.Rival().Set("shelf", "color=blue"))
		var late error
		after := l.Record(func() { _, late = l.TryReplace(read, "color=green") })
		l.Conflicts(late, "the replace after the rival's write", read)
		l.Sends(after, "the replace after the rival's write", "1 Range")

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

		l.Conflicts(raced, "the replace that was overtaken", read)
		l.Sends(during, "the replace that was overtaken, and the rival's patch", "2 Txn")
		l.WriteDown(prediction.StaleReplaceCost, "1 Range")
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
		AlsoFalseIf: []world.World{
			world.AProxyForcesWhatIsRefused.Shows(`color=red is stored`),
			world.ALibraryRepeatsWhatIsRefused.Shows(`the rival's patch cost etcd: (1 Range, 2|3) Txn`),
			world.EtcdComparesTheVersion.Shows(`it is Txn if version\(`),
			world.TheElseBranchIsOneTooHigh.Shows(`the else branch returned mod_revision .*raised by one`),
		},
		Read: source.Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
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
		l.WriteDown(prediction.RacedReplaceCost, "1 Txn")
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
		AlsoFalseIf: []world.World{
			world.ALibraryRepeatsWhatIsRefused.Shows(`the stale replace cost etcd: 2 Txn`),
			world.AProxyForcesWhatIsRefused.Shows(`color=red is stored`),
		},
		Read: source.Func("k8s.io/apiserver/pkg/storage/cacher", "(*CacheDelegator).GuaranteedUpdate"),
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
		Says: "after a failed compare of an update the apiserver tries again by itself, unless the caller insisted on a version: what " +
			"makes the difference is the token and neither the verb nor etcd",
		Why: "a patch without a token says what to change and fits any version; whoever sends a token asked to be told, " +
			"and a replace without one overwrites what it has never seen",
		FalseIf: world.ClientDropsTheToken.Shows(`the patch with a token was accepted`),
		AlsoFalseIf: []world.World{
			world.PatchesCarryAToken.Shows(`the patch without a token was refused: 409`),
			world.LibraryFillsInTheToken.Shows(`the replace without a token was refused: 409`),
			world.PatchesCarryATokenIn("apply").Shows(`the apply without a token was refused: 409`),
			world.ClientDropsTheTokenOf("replace").Shows(`the replace with a token was accepted`),
			world.EtcdIgnoresTheCompareOf("a").Shows(`it sent 1, 2 and 2 transactions`),
			world.TheRetryPutsTheOldBytes.Shows(`rival=old is stored`),
		},
		Read:    source.Func(registryStore, "(*Store).Update"),
		Answers: "#20",
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
			stored := l.Peek(name)
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
		applied, err := race("e", "an apply without a token", func(read *lab.Object) (*lab.Object, error) {
			return l.TryPatchWith(read.GetName(), types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"e"},"data":{"mine":"new"}}`,
				metav1.PatchOptions{FieldManager: "applier", Force: new(true)})
		})
		l.Accepted(err, "the apply without a token")
		checked, err := race("d", "a replace with the token that was read", func(read *lab.Object) (*lab.Object, error) { return l.TryReplace(read, "mine=new") })
		l.Conflicts(err, "the replace with a token", l.New("d"))
		table.End()
		l.Show("the patch without a token, and the rival's patch", shown)

		l.Expect(bare == 2 && blind == 2 && applied == 2, "without a token, the apiserver tries again after the failed compare",
			"it sent %d, %d and %d transactions", bare, blind, applied)
		l.Expect(insisting == 1 && checked == 1, "with a token, it does not", "it sent %d and %d transactions", insisting, checked)
		l.Stored(l.New("a"), "mine=new", "rival=new")
		l.Stored(l.New("c"), "mine=new", "rival=old") // the rival's write is gone, and nobody was told
		l.WriteDown(prediction.RacedPatchCost, "2 Txn")
	})
}

func TestPatchesWithoutATokenNeverConflictHoweverManyWritersThereAre(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF4b", From: "D1 Expect 3",
		Says: "many clients may patch one object at once: without a token all are accepted and no field is lost; with the " +
			"token that all of them read, exactly one is",
		Why:     "contention alone makes no conflict: whose patch is refused as stale has sent a token, or has a library that did it",
		FalseIf: world.ClientPinsItsFirstToken.Shows(`1 of 20 patches without a token were accepted`),
		AlsoFalseIf: []world.World{
			world.EtcdKeepsTheOldValue.Shows(`20 were accepted, 0 are stored`),
			world.ClientDropsTheToken.Shows(`20 of 20 patches with the token were accepted`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
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
			fields := len(l.Peek(name).Object["data"].(map[string]any)) - 1
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
		FalseIf: world.ServerGivesUp.Shows(`the patch was refused at transaction 7`),
		AlsoFalseIf: []world.World{
			world.EtcdIgnoresTheCompare.Shows(`overtaken 300 times cost etcd: 1 Txn`),
			world.EtcdKeepsTheOldValue.Shows(`color=red is stored`),
		},
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

		l.Expect(err == nil, "the patch is accepted", "the patch was refused at transaction %d: %s", len(seen), l.Describe(err))
		l.Sends(seen, "a patch that is overtaken 300 times", "301 Txn")
		l.Stored(shelf, "color=blue")

		l.Show("PATCH configmaps/shelf: the first two transactions", seen[:2])
		l.Show("and the last two", seen[len(seen)-2:])
		table := l.Table("rivals in a row", "transactions", "reads", "answer", "version in etcd")
		table.Row(rivals, seen.Count(wire.Txn), seen.Count(wire.Range), lab.Brief(err), l.KV(shelf).Version)
		table.End()
	})
}

func TestAReplaceWithoutATokenOverwritesUnlessTheKindForbidsIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF6", From: "D2 paragraph 2",
		Says: "a replace without a token overwrites whatever is there, where the kind allows it; every custom resource, " +
			"Lease, PodDisruptionBudget, CustomResourceDefinition and others do not allow it: 422 Invalid",
		Why: "that it works is no proof that it is right: what is refused for a custom resource silently loses updates of " +
			"a ConfigMap or a Deployment",
		FalseIf: world.LibraryFillsInTheToken.Shows(`refused are: none`),
		AlsoFalseIf: []world.World{
			world.AProxyMergesReplaces.Shows(`ConfigMap: it is there`),
			world.RefusalsLoseTheirCauses.Shows(`the causes are \[\]`),
			world.EveryRefusalIsAConflict.Shows(`a replace without a token of a Lease was refused: 409 Conflict`),
		},
		Read:    source.Func("k8s.io/kubernetes/pkg/registry/coordination/lease", "leaseStrategy.AllowUnconditionalUpdate"),
		Answers: "#33",
	}, func(l *lab.Lab) {
		custom := l.CustomResource()
		var overwritten, refused []string
		overwrite := func(kind lab.Kind, read *lab.Object) error {
			l.Rival().Of(kind).Set(read.GetName(), "metadata.annotations.rival=yes")
			stored, err := l.Of(kind).TryReplace(lab.WithToken(read, ""), "metadata.labels.mine=yes")
			if err == nil {
				overwritten = append(overwritten, kind.Kind)
				l.Expect(stored.GetAnnotations()["rival"] == "", "what the rival wrote is gone", "%s: it is there", kind.Kind)
				return nil
			}
			refused = append(refused, kind.Kind)
			l.Refused(err, "a replace without a token of a "+kind.Kind, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
			l.Expect(slices.Equal(l.Refusal(err, "the replace").Causes, []string{"FieldValueInvalid metadata.resourceVersion"}),
				"the cause is the field metadata.resourceVersion", "the causes are %v", lab.Causes(err))
			return err
		}
		var lease error
		for i, kind := range append(append(lab.EveryKind(), l.MoreKinds()...), custom) {
			err := overwrite(kind, l.Of(kind).Create(fmt.Sprintf("%s-%d", l.Namespace, i)))
			if kind.Kind == "Lease" {
				lease = err
			}
		}
		definition := l.Of(lab.CustomResourceDefinition).Get(custom.Definition())
		overwrite(lab.CustomResourceDefinition, definition)

		l.Say("200, and what the rival wrote is gone, for %d kinds: %s.", len(overwritten), strings.Join(overwritten, ", "))
		l.Blank()
		l.Say("422 Invalid for %s. Shelf is a custom resource; kinds that are not named here were not tried.", strings.Join(refused, ", "))
		l.Blank()
		l.Say("The Lease: %s", l.Describe(lease))

		want := []string{"Lease", "PodDisruptionBudget", "RuntimeClass", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
			"CSIDriver", "CSINode", "CSIStorageCapacity", "VolumeAttachment", "Shelf", "CustomResourceDefinition"}
		l.Expect(slices.Equal(refused, want), "refused are: "+strings.Join(want, ", "),
			"refused are: %s", cmp.Or(strings.Join(refused, ", "), "none"))
	})
}

func TestAReplaceOfWhatIsMissingIsRefusedUnlessTheKindCreatesIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF6b", From: "D2 paragraph 5",
		Says: "a replace of an object that does not exist is 404 for most kinds, and creates it for a few: Service, " +
			"Endpoints, Event, LimitRange, Lease, RuntimeClass, and roles with their bindings",
		Why: "PUT has no one meaning: a client that relies on 404 to learn of a deletion resurrects a Lease, and one that " +
			"relies on PUT to create fails with a ConfigMap",
		FalseIf: world.ServerCreatesWhatIsMissing.Shows(`created are: .*, ConfigMap, `),
		AlsoFalseIf: []world.World{
			world.EveryRefusalIsAConflict.Shows(`a replace of a missing \w+ was refused: 409 Conflict: .* not found`),
			world.ReplacesLookFirst.Shows(`^created are: $`),
		},
		Read:    source.Func("k8s.io/kubernetes/pkg/registry/coordination/lease", "leaseStrategy.AllowCreateOnUpdate"),
		Answers: "#38",
	}, func(l *lab.Lab) {
		var created, missing []string
		shown := map[string]wire.Requests{}
		// A kind without a create by PUT refuses before it looks at the body, so that any body will do for most.
		for i, kind := range append(l.Replaceable(), l.CustomResource()) {
			client := l.Of(kind)
			var err error
			shown[kind.Kind] = l.Record(func() { _, err = client.TryReplace(client.New(fmt.Sprintf("%s-%d", l.Namespace, i))) })
			if err == nil {
				created = append(created, kind.Kind)
				continue
			}
			missing = append(missing, kind.Kind)
			l.Refused(err, "a replace of a missing "+kind.Kind, http.StatusNotFound, metav1.StatusReasonNotFound)
		}
		l.Say("These are all kinds that kube-apiserver says it serves, and Shelf, a custom resource.")
		l.Blank()
		l.Say("404 NotFound for %d kinds: %s.", len(missing), strings.Join(missing, ", "))
		l.Blank()
		l.Say("201 Created for %d kinds: %s.", len(created), strings.Join(created, ", "))
		l.Show("PUT of a ConfigMap", shown["ConfigMap"])
		l.Show("PUT of a Lease", shown["Lease"])

		want := []string{"ClusterRole", "ClusterRoleBinding", "Endpoints", "Event", "Lease", "LimitRange", "Role", "RoleBinding",
			"RuntimeClass", "Service"}
		l.Expect(slices.Equal(created, want), "created are: "+strings.Join(want, ", "), "created are: %s", strings.Join(created, ", "))
	})
}

func TestAFailedTestOfAJSONPatchIsInvalidAndNotAConflict(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF7", From: "D2 paragraph 3",
		Says: "a JSON Patch whose test of the resourceVersion fails is answered with 422 Invalid and not with a conflict, so " +
			"RetryOnConflict does not retry it; a JSON Patch that replaces the resourceVersion is answered with 409",
		Why: "both patches say \"only if it is still this version\"; but the code around them, which waits for 409, does " +
			"nothing about the first",
		FalseIf: world.ATestBecomesAPrecondition.Shows(`a patch with a failed test was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheTokenOf("JSON patch").Shows(`a patch that replaces the resourceVersion by a stale one was accepted`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/endpoints/handlers", "(*jsonPatcher).applyJSPatch"),
		Answers: "#5",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		stale := shelf.GetResourceVersion()
		l.Settle(l.Rival().Set("shelf", "color=blue"))
		table := l.Table("JSON Patch that begins with", "answer", "closures run", "to etcd")
		try := func(op string) (int, error) {
			attempts := 0
			var err error
			seen := l.Record(func() {
				err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
					attempts++
					_, err := l.TryPatch("shelf", types.JSONPatchType, fmt.Sprintf(
						`[{"op":%q,"path":"/metadata/resourceVersion","value":%q},{"op":"add","path":"/data/color","value":"green"}]`, op, stale))
					return err
				})
			})
			table.Row(op+" /metadata/resourceVersion", lab.Brief(err), attempts, seen.Summary())
			return attempts, err
		}

		attempts, err := try("test")
		failed := l.Describe(err)
		l.Refused(err, "a patch with a failed test", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		l.Expect(l.Refusal(err, "the patch").Message == "the server rejected our request due to an error in our request",
			"the message says nothing of a test or of a version", "it says: %s", failed)
		l.Expect(attempts == 1, "RetryOnConflict runs its closure once", "it ran %d times", attempts)
		attempts, err = try("replace")
		l.Conflicts(err, "a patch that replaces the resourceVersion by a stale one", shelf)
		l.Expect(attempts == retry.DefaultRetry.Steps, "RetryOnConflict runs its closure until its steps are spent",
			"it ran %d times", attempts)
		table.End()
		l.Blank()
		l.Say("The failed test: %s", failed)
		l.Say("The failed replace: %s", l.Describe(err))
		l.Stored(shelf, "color=blue")
	})
}

func TestATokenInAPatchIsAPreconditionInEveryFormat(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF7b", From: "D2 paragraph 3",
		Says: "a resourceVersion in the body of a patch is a precondition in every format, server-side apply included, and " +
			"force does not get past it",
		Why: "a patch can be as strict as a replace, without If-Match and without a test; and a token that a template has " +
			"brought along makes patches fail for no visible reason",
		FalseIf: world.ClientDropsTheToken.Shows(`a merge patch with a stale token was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheTokenOf("strategic merge patch").Shows(`a strategic merge patch with a stale token was accepted`),
			world.ClientDropsTheTokenOf("JSON patch").Shows(`a JSON Patch with a stale token was accepted`),
			world.ClientDropsTheTokenOf("apply").Shows(`an apply with a stale token was accepted`),
			world.ForceOverridesTheToken.Shows(`an apply with force with a stale token was accepted`),
		},
		Read:    source.Func(registryStore, "(*Store).Update"),
		Answers: "#3 #21",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Settle(l.Rival().Set("shelf", "color=blue"))
		stale := shelf.GetResourceVersion()
		object := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf","resourceVersion":%q},"data":{"size":"large"}}`, stale)
		table := l.Table("with a stale token", "answer", "causes", "to etcd")
		try := func(what string, format types.PatchType, body string, force *bool) {
			var err error
			seen := l.Record(func() {
				_, err = l.TryPatchWith("shelf", format, body, metav1.PatchOptions{FieldManager: "writer", Force: force})
			})
			l.Conflicts(err, what+" with a stale token", shelf)
			table.Row(what, lab.Brief(err), len(lab.Causes(err)), seen.Summary())
			l.Sends(seen, what, "1 Range")
		}
		try("a merge patch", types.MergePatchType, object, nil)
		try("a strategic merge patch", types.StrategicMergePatchType, object, nil)
		try("a JSON Patch", types.JSONPatchType, fmt.Sprintf(`[{"op":"replace","path":"/metadata/resourceVersion","value":%q}]`, stale), nil)
		try("an apply", types.ApplyPatchType, object, nil)
		try("an apply with force", types.ApplyPatchType, object, new(true))
		table.End()
		l.Stored(shelf, "color=blue", "-size")
	})
}

func TestPatchFormatsDifferInHowTheyMerge(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF7c", From: "D2 paragraph 3",
		Says: "a merge patch replaces a list as a whole; a strategic merge patch and an apply merge it by its key; a JSON " +
			"Patch addresses its items; on a custom resource a strategic merge patch is 415",
		Why: "the same body means another change in another format, and a merge patch of a list removes what others have " +
			"put into it, without a conflict",
		FalseIf: world.EveryPatchIsAMergePatch.Shows(`^strategic merge patch: the list becomes \[new\]`),
		AlsoFalseIf: []world.World{
			world.PatchesAreSentAs("deployments", "merge patch", "strategic merge patch", types.StrategicMergePatchType).Shows(`^merge patch: the list becomes \[new c\]`),
			world.PatchesAreSentAs("deployments", "apply", "merge patch", types.MergePatchType).Shows(`^apply: the list becomes \[new\]`),
			world.PatchesAreSentAs("shelves", "strategic merge patch", "merge patch", types.MergePatchType).Shows(`a strategic merge patch of a custom resource was accepted`),
		},
		Read: source.Func("k8s.io/apiserver/pkg/endpoints/handlers", "(*smpPatcher).applyPatchToCurrentObject"),
	}, func(l *lab.Lab) {
		deployments := l.Of(lab.Deployment)
		container := `{"name":"new","image":"registry.example/new:1"}`
		body := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"template":{"spec":{"containers":[%s]}}}}`, container)
		table := l.Table("add new to containers [c] by a", "containers after it")
		for _, patch := range []struct {
			what, body, leaves string
			format             types.PatchType
		}{
			{"merge patch", body, "[new]", types.MergePatchType},
			{"strategic merge patch", body, "[new c]", types.StrategicMergePatchType},
			{"apply", body, "[c new]", types.ApplyPatchType},
			{"JSON Patch, add to the end", `[{"op":"add","path":"/spec/template/spec/containers/-","value":` + container + `}]`, "[c new]", types.JSONPatchType},
		} {
			name := "shelf" + strconv.Itoa(len(patch.what))
			deployments.Create(name)
			names := containers(deployments.Patch(name, patch.format, patch.body))
			table.Row(patch.what, names)
			l.Expect(names == patch.leaves, patch.what+": the list becomes "+patch.leaves, "%s: the list becomes %s", patch.what, names)
		}
		table.End()
		shelves := l.Of(l.CustomResource())
		shelves.Create("shelf", "color=red")
		_, err := shelves.TryPatch("shelf", types.StrategicMergePatchType, `{"spec":{"color":"blue"}}`)
		l.Blank()
		l.Say("A strategic merge patch of a custom resource: %s", l.Describe(err))
		l.Refused(err, "a strategic merge patch of a custom resource", http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType)
	})
}

func TestANullTokenIsNoToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF7d", From: "+",
		Says: "a merge patch that sets resourceVersion to null takes the token away: a ConfigMap is then patched without a " +
			"check, overtaken or not, and a custom resource is refused with 422, although a patch that does not mention it " +
			"is accepted",
		Why: "that is what a client-side apply sends when somebody once saved a resourceVersion in a manifest and later " +
			"removed it",
		FalseIf: world.NullsAreDropped.Shows(`a patch with null of a Shelf was accepted`),
		AlsoFalseIf: []world.World{
			world.NullMeansTheNewest.Shows(`an overtaken patch of a ConfigMap with null was refused: 409`),
			world.ClientDropsTheToken.Shows(`a ConfigMap with the current one was accepted`),
			world.PatchesSayNull.Shows(`a Shelf that does not mention it was refused: 422`),
			world.EtcdKeepsTheOldValue.Shows(`metadata.labels.color is not stored`),
		},
		Read:    source.Func(registryStore, "(*Store).Update"),
		Answers: "#36",
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		plain := l.Create("shelf")
		shelves.Create("shelf")
		table := l.Table("merge patch with resourceVersion", "of a", "overtaken", "transactions", "answer")
		patch := func(c *lab.Client, token, color string) error {
			_, err := c.TryPatch("shelf", types.MergePatchType, fmt.Sprintf(`{"metadata":{%s"labels":{"color":%q}}}`, token, color))
			return err
		}
		const null = `"resourceVersion":null,`
		raced := func(what, token, color string) (err error) {
			l.Settle(l.Peek("shelf"))
			seen := l.Record(func() {
				err = l.Race(l.Key(plain), func() error { return patch(l.Client, token, color) },
					func() { l.Rival().Set("shelf", "rival="+color) })
			})
			table.Row(what, "ConfigMap", "by a rival", seen.Count(wire.Txn)-1, lab.Brief(err)) // one is the rival's
			return err
		}
		once := func(what, token string) (err error) {
			l.Settle(shelves.Peek("shelf"))
			seen := l.Record(func() { err = patch(shelves, token, "blue") })
			table.Row(what, "Shelf", "no", seen.Count(wire.Txn), lab.Brief(err))
			return err
		}
		l.Accepted(raced("not mentioned", "", "red"), "an overtaken patch of a ConfigMap that does not mention it")
		current := fmt.Sprintf(`"resourceVersion":%q,`, l.Peek("shelf").GetResourceVersion())
		l.Conflicts(raced("the current one", current, "green"), "an overtaken patch of a ConfigMap with the current one", plain)
		l.Accepted(raced("null", null, "blue"), "an overtaken patch of a ConfigMap with null")
		l.Stored(plain, "metadata.labels.color=blue", "rival=blue")
		l.Accepted(once("not mentioned", ""), "a patch of a Shelf that does not mention it")
		refused := once("null", null)
		l.Refused(refused, "a patch with null of a Shelf", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		table.End()
		l.Blank()
		l.Say("The Shelf: %s", l.Describe(refused))
	})
}

func TestAConflictHasSeveralFaces(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8", From: "D2 paragraph 5",
		Says: "409 has several faces: by reason, details.kind and causes a program tells a name in use, another manager's field, " +
			"a delete whose precondition fails and a quota's conflict from a stale write; the message alone tells whether the " +
			"name is being set free, and whether it is the token or the uid that is wrong",
		Why: "each face needs another next step; a client that knows only \"409\" repeats what can never succeed, or gives " +
			"up what would",
		FalseIf: world.AGatewayHidesTheReason.Shows(`the create of a name in use: .* AlreadyExists, .* the server reported a conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the replace with a stale token was accepted`),
			world.FinalizersAreDropped.Shows(`the create of a name being set free was accepted`),
			world.RefusalsLoseTheirCauses.Shows(`the apply to another's field: .* cause "":`),
			world.ClientDropsThePreconditions.Shows(`the delete of a stale version was accepted`),
			world.DeletesLose("uid").Shows(`the delete of what is gone, by uid was accepted`),
			world.ClientDropsTheUID.Shows(`the replace of what is gone, with uid: .* has been modified`),
			world.EtcdIgnoresTheCompareOf("quota").Shows(`the create under a quota others write was accepted`),
		},
		Read:    source.Func("k8s.io/apimachinery/pkg/api/errors", "IsConflict"),
		Answers: "#70",
	}, func(l *lab.Lab) {
		says := l.Table("request refused", "409, reason", "details", "cause")
		todo := l.Table("request refused", "its words in the message", "the next step of a client")
		alike := map[string][]string{} // the requests by what a program gets to see besides the message
		face := func(what string, err error, reason metav1.StatusReason, details, cause, words, next string) {
			r := l.Refusal(err, "the "+what)
			says.Row(what, r.Reason, r.Details(), strings.TrimSuffix(r.Cause(), " .data.color"))
			todo.Row(what, strconv.Quote(words), next)
			alike[string(r.Reason)+r.Kind+r.Cause()] = append(alike[string(r.Reason)+r.Kind+r.Cause()], what)
			l.Expect(r.Is(http.StatusConflict, reason, words) && r.Details() == details && r.Cause() == cause,
				fmt.Sprintf("the %s is refused with 409 %s, details %s, cause %q, and says %q", what, reason, details, cause, words),
				"the %s: %s, details %s, cause %q: %s", what, r.CodeAndReason(), r.Details(), r.Cause(), r.Message)
		}
		const exists, conflict, none = metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict, "(none)"
		apply := func(name, meta, data string) error {
			_, err := l.As("applier").TryPatch(name, types.ApplyPatchType,
				fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q%s},"data":{%s}}`, name, meta, data))
			return err
		}
		shelf := l.Create("shelf", "color=red")
		_, err := l.TryCreate("shelf")
		face("create of a name in use", err, exists, "configmaps shelf", "", "already exists", "read it: is it yours?")
		l.CreateWithFinalizer("going", "modrev.example/hold")
		l.Delete("going")
		_, err = l.TryCreate("going")
		face("create of a name being set free", err, exists, "configmaps going", "", "object is being deleted", "wait for its end, then create")
		l.Rival().Set("shelf", "color=blue")
		_, err = l.TryReplace(shelf, "color=green")
		face("replace with a stale token", err, conflict, "configmaps shelf", "", "has been modified", "read, decide again, write")
		err = apply("shelf", "", `"color":"green"`)
		face("apply to another's field", err, conflict, none, "FieldManagerConflict .data.color", "Apply failed with 1 conflict", "leave it, or agree whose")
		err = l.TryDelete("shelf", lab.Token(shelf))
		face("delete of a stale version", err, conflict, "ConfigMap shelf", "", "might have been modified", "read again: still to go?")
		l.Recreate("shelf")
		err = l.TryDelete("shelf", lab.UID(shelf))
		face("delete of what is gone, by uid", err, conflict, "ConfigMap shelf", "", "deleted and then recreated", "nothing: it is gone already")
		_, err = l.TryReplace(shelf, "color=green")
		face("replace of what is gone, with uid", err, conflict, "configmaps shelf", "", "UID in precondition", "let go: what you knew is gone")
		l.Delete("shelf")
		err = apply("shelf", fmt.Sprintf(`,"uid":%q`, shelf.GetUID()), "")
		face("apply to what is gone, with uid", err, conflict, "configmaps shelf", "", "uid mismatch", "let go: what you knew is gone")
		stop := l.Busy(l.LimitConfigMaps(50, 3))
		_, err = l.TryCreate("shelf")
		stop()
		face("create under a quota others write", err, conflict, "resourcequotas quota", "", "has been modified", "send the same create again")
		says.End()
		todo.End()
		l.Blank()
		l.Say("Where only the words differ, read the object rather than the words: its deletionTimestamp tells the first two " +
			"apart, and its uid tells whether it is still the one that you knew. A quota's conflict names another kind than was " +
			"written (CF8d); a delete's names ConfigMap where the others say configmaps, unless it was overtaken (CF9b).")

		got := slices.SortedFunc(maps.Values(alike), slices.Compare)
		want := [][]string{
			{"apply to another's field"},
			{"create of a name in use", "create of a name being set free"},
			{"create under a quota others write"},
			{"delete of a stale version", "delete of what is gone, by uid"},
			{"replace with a stale token", "replace of what is gone, with uid", "apply to what is gone, with uid"},
		}
		l.Expect(fmt.Sprintf("%q", got) == fmt.Sprintf("%q", want), "without the messages there are five kinds of conflict",
			"they fall into %q", got)
	})
}

func TestNotEveryRefusalIsAConflict(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8b", From: "D2 paragraph 5",
		Says: "what is not a conflict says so: no right is 403, no object 404, a bad object 422, a body that cannot be read " +
			"400, a format that is not served 415; IsConflict is false for all of them",
		Why:     "none of these is cured by reading again and trying again; a retry loop around them spins for nothing",
		FalseIf: world.EveryRefusalIsAConflict.Shows(`the replace without the right: 409 Conflict: .* is forbidden`),
		AlsoFalseIf: []world.World{
			world.ClientMendsTheKeys("replace").Shows(`the replace with a bad key was accepted`),
			world.EveryPatchIsAMergePatch.Shows(`the patch, format not served was accepted`),
			world.ServerCreatesWhatIsMissing.Shows(`the replace of what is gone was accepted`),
		},
		Read: source.Func("k8s.io/apimachinery/pkg/api/errors", "ReasonForError"),
	}, func(l *lab.Lab) {
		table := l.Table("refused", "code and reason", "recognised by", "the next step")
		neighbour := func(what string, code int, reason metav1.StatusReason, next string, do func() error) wire.Requests {
			var err error
			seen := l.Record(func() { err = do() })
			r := l.Refusal(err, "the "+what)
			table.Row(what, r.CodeAndReason(), lab.Predicates(err), next)
			l.Expect(r.Code == code && r.Reason == reason && !apierrors.IsConflict(err),
				fmt.Sprintf("the %s is refused with %d %s", what, code, reason), "the %s: %s", what, l.Describe(err))
			return seen
		}
		shelf := l.Create("shelf", "color=red")
		l.Settle(shelf)
		replace := func(c *lab.Client, o *lab.Object, fields ...string) func() error {
			return func() error { _, err := c.TryReplace(o, fields...); return err }
		}
		seen := neighbour("replace without the right", http.StatusForbidden, metav1.StatusReasonForbidden, "ask for the right",
			replace(l.AsUser("stranger"), shelf, "color=blue"))
		neighbour("replace with a bad key", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "correct the object",
			replace(l.Client, shelf, "a/b=c"))
		neighbour("replace with half a body", http.StatusBadRequest, metav1.StatusReasonBadRequest, "correct the program", func() error {
			_, err := l.TryRaw(http.MethodPut, l.Path("shelf"), "", []byte(`{"metadata":`))
			return err
		})
		neighbour("patch, format not served", http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "use another format", func() error {
			_, err := l.TryPatch("shelf", "application/shelf-patch", `{}`)
			return err
		})
		l.Delete("shelf")
		neighbour("replace of what is gone", http.StatusNotFound, metav1.StatusReasonNotFound, "should it exist?",
			replace(l.Client, shelf, "color=blue"))
		table.End()
		l.Sends(seen, "the replace without the right", "no request")
		l.Blank()
		l.Say("The one without the right never got as far as etcd: stale or not, it is 403.")
	})
}

func TestTheChecksHaveAnOrder(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8c", From: "+",
		Says: "a request that is wrong in several ways gets one answer: rights are checked first, then the form of the body, " +
			"in a replace the uid, in an apply field ownership, then the token, and validity last (to which the uid in a " +
			"patch or an apply belongs); only a create is validated before its name is looked up",
		Why: "409 hides that the object is invalid, too, and 403 hides everything; and \"is the name taken?\" cannot be " +
			"found out with an invalid object",
		FalseIf: world.ClientDropsTheToken.Shows(`stale and invalid: 422 Invalid`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheUID.Shows(`of another uid, stale and invalid: 409 Conflict$`),
			world.EveryApplyIsForced.Shows(`an apply to another's field, stale: 409 Conflict$`),
			world.ClientDropsTheTokenOf("apply").Shows(`an apply of another uid, stale: 422 Invalid, uid`),
			world.ClientDropsTheTokenOf("merge patch").Shows(`a patch of another uid, stale: 422 Invalid, uid`),
			world.AppliesLoseTheUID.Shows(`an apply of another uid was accepted`),
			world.ClientMendsTheKeys("create").Shows(`a create, invalid, of a name that is taken: 409 AlreadyExists`),
			world.EtcdIgnoresTheCompareOfACreate.Shows(`a create of a name that is taken was accepted`),
		},
		Read:    source.Func(registryStore, "(*Store).Update"),
		Answers: "#32",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Settle(l.Rival().Set("shelf", "color=blue")) // from here on, shelf is stale
		table := l.Table("a request that is", "is answered", "to etcd")
		first := func(what, answer, cost string, do func() error) {
			var err error
			seen := l.Record(func() { err = do() })
			r := l.Refusal(err, "a request that is "+what)
			got := r.CodeAndReason()
			if c := r.Cause(); strings.HasPrefix(c, string(metav1.CauseTypeFieldManagerConflict)) {
				got += ", field manager"
			} else if strings.Contains(r.Message, "UID") || strings.Contains(c, "metadata.uid") {
				got += ", uid"
			}
			table.Row(what, got, seen.Summary())
			l.Expect(got == answer, what+": "+answer, "%s: %s", what, got)
			l.Sends(seen, "a request that is "+what, cost)
		}
		half := []byte(fmt.Sprintf(`{"metadata":{"name":"shelf","resourceVersion":%q`, shelf.GetResourceVersion()))
		put := func(c *lab.Client) func() error {
			return func() error { _, err := c.TryRaw(http.MethodPut, c.Path("shelf"), "", half); return err }
		}
		const another = "00000000-0000-0000-0000-000000000000"
		stranger := shelf.DeepCopy()
		stranger.SetUID(another)
		uid, stale := fmt.Sprintf(`,"uid":%q`, another), fmt.Sprintf(`,"resourceVersion":%q`, shelf.GetResourceVersion())
		patch := func(format types.PatchType, meta, field string) func() error {
			return func() error {
				_, err := l.As("applier").TryPatch("shelf", format, fmt.Sprintf(
					`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf"%s},"data":{%q:"green"}}`, meta, field))
				return err
			}
		}
		const merge, apply = types.MergePatchType, types.ApplyPatchType

		first("unauthorised, malformed and stale", "403 Forbidden", "no request", put(l.AsUser("stranger")))
		first("malformed and stale", "400 BadRequest", "no request", put(l.Client))
		first("of another uid, stale and invalid", "409 Conflict, uid", "1 Range", func() error { _, err := l.TryReplace(stranger, "a/b=c"); return err })
		first("stale and invalid", "409 Conflict", "1 Range", func() error { _, err := l.TryReplace(shelf, "a/b=c"); return err })
		first("invalid", "422 Invalid", "1 Range", func() error { _, err := l.TryReplace(lab.WithToken(shelf, ""), "a/b=c"); return err })
		first("an apply to another's field, stale", "409 Conflict, field manager", "1 Range", patch(apply, stale, "color"))
		first("an apply to another's field, of another uid", "409 Conflict, field manager", "1 Range", patch(apply, uid, "color"))
		first("an apply of another uid, stale", "409 Conflict", "1 Range", patch(apply, uid+stale, "size"))
		first("a patch of another uid, stale", "409 Conflict", "1 Range", patch(merge, uid+stale, "size"))
		first("an apply of another uid", "422 Invalid, uid", "1 Range", patch(apply, uid, "size"))
		first("a patch of another uid", "422 Invalid, uid", "1 Range", patch(merge, uid, "size"))
		first("a create, invalid, of a name that is taken", "422 Invalid", "no request", func() error { _, err := l.TryCreate("shelf", "a/b=c"); return err })
		first("a create of a name that is taken", "409 AlreadyExists", "1 Range, 1 Txn", func() error { _, err := l.TryCreate("shelf"); return err })
		table.End()
	})
}

func TestAConflictMayBeAboutAnotherObjectThanYours(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8d", From: "D2 paragraph 5, +",
		Says: "a create can be refused with a conflict over another object, the quota that it is counted in: details.kind " +
			"says resourcequotas; a quota that is used up is not a conflict but 403",
		Why: "nothing of the object was created, so the same create may be sent again; a client that takes every conflict " +
			"for its own object's reads again what was never there",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the create under a quota that others write was accepted`),
		AlsoFalseIf: []world.World{
			world.RefusalsBecome(http.StatusForbidden, http.StatusConflict, metav1.StatusReasonConflict).Shows(`a quota that is used up was refused: 409`),
			world.RefusalsAreAbout("configmaps").Shows(`they name configmaps and quota`),
			world.ALibraryReadsFirst("create").Shows(`others are \[Range configmaps/`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/admission/plugin/resourcequota", "(*quotaEvaluator).checkQuotas"),
		Answers: "#31",
	}, func(l *lab.Lab) {
		l.LimitConfigMaps(3, 3)
		_, usedUp := l.TryCreate("shelf")
		quota := l.LimitConfigMaps(50, 3)
		stop := l.Busy(quota)
		var err error
		seen := l.Record(func() { _, err = l.TryCreate("shelf") })
		stop()

		table := l.Table("create of configmaps/shelf", "answer", "details", "recognised by")
		for _, c := range []struct {
			under string
			err   error
		}{{"a quota that is used up", usedUp}, {"a quota that others write", err}} {
			r := l.Refusal(c.err, "the create under "+c.under)
			table.Row("under "+c.under, r.CodeAndReason(), r.Details(), lab.Predicates(c.err))
		}
		table.End()
		// How many there are, and what is read between them, depends on how far kube-apiserver's cache has come.
		txns := seen.Only(wire.Txn)
		l.Show("a create under a quota that somebody else writes each time: the first of its transactions", txns[:min(1, len(txns))])
		l.Blank()
		l.Say("%s", l.Describe(err))

		l.Refused(usedUp, "the create under a quota that is used up", http.StatusForbidden, metav1.StatusReasonForbidden)
		l.Refused(err, "the create under a quota that others write", http.StatusConflict, metav1.StatusReasonConflict)
		l.Names(err, "resourcequotas", "quota")
		others := slices.DeleteFunc(seen, func(r wire.Request) bool { return r.Key == quota })
		l.Expect(len(others) == 0, "every request is about the quota, and none about the object", "others are %v", others)
	})
}

func TestADeleteOfAnObjectWithAFinalizerIsAnUpdate(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8e", From: "+",
		Says: "a delete of an object with a finalizer is an update that is answered with 200: the name stays taken, a create " +
			"is 409 AlreadyExists, the object can still be written, and only new finalizers are refused, with 422",
		Why: "200 for a delete does not mean gone; and \"Forbidden\" in the text of that 422 is about a field and has nothing " +
			"to do with rights",
		FalseIf: world.FinalizersAreDropped.Shows(`a create under the name was accepted`),
		AlsoFalseIf: []world.World{
			world.DeletesAreDryRuns.Shows(`one more finalizer was accepted`),
			world.EtcdKeepsTheOldValue.Shows(`color=red is stored`),
			world.EtcdDeletesNothingOf("shelf").Shows(`its key is still in etcd`),
		},
		Read:    source.Func(registryStore, "markAsDeleting"),
		Answers: "#39 #40 #41",
	}, func(l *lab.Lab) {
		const hold = "modrev.example/hold"
		shelf := l.CreateWithFinalizer("shelf", hold, "color=red")
		table := l.Table("step", "answer", "version in etcd after it")
		step := func(what string, do func() error) error {
			err := do()
			version := "(gone)"
			if kv, there := l.TryKVAt(l.Key(shelf)); there {
				version = strconv.FormatInt(kv.Version, 10)
			}
			table.Row(what, l.Answered(), version)
			return err
		}
		finalizers := func(list string) func() error {
			return func() error {
				_, err := l.TryPatch("shelf", types.MergePatchType, `{"metadata":{"finalizers":[`+list+`]}}`)
				return err
			}
		}
		l.Accepted(step("delete", func() error { return l.TryDelete("shelf") }), "the delete")
		create := func() error { _, err := l.TryCreate("shelf", "color=green"); return err }
		taken := step("create another under the name", create)
		l.Refused(taken, "a create under the name", http.StatusConflict, metav1.StatusReasonAlreadyExists)
		l.Accepted(step("patch color", func() error { _, err := l.TrySet("shelf", "color=blue"); return err }), "a patch")
		l.Stored(shelf, "color=blue")
		added := step("add a finalizer", finalizers(strconv.Quote(hold)+`,"modrev.example/more"`))
		l.Refused(added, "one more finalizer", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		l.Expect(!apierrors.IsForbidden(added), "IsForbidden is false for it", "it is true")
		l.Accepted(step("take the finalizer away", finalizers("")), "taking the finalizer away")
		_, there := l.TryKVAt(l.Key(shelf))
		l.Expect(!there, "without its last finalizer the object is gone", "its key is still in etcd")
		l.Accepted(step("create another under the name", create), "a create after the end")
		table.End()
		l.Blank()
		l.Say("The create: %s", l.Describe(taken))
		l.Say("The finalizer: %s", l.Describe(added))
	})
}

func TestANameOfOnesOwnAndAGeneratedOneCanClash(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8f", From: "+",
		Says: "a create that carries a name and a generateName uses the name, and when it is taken, it is 409 AlreadyExists; " +
			"the text about a unique name does not make it a timeout",
		Why:     "older servers said ServerTimeout here, and clients that trust it send the same create for ever",
		FalseIf: world.ClientDropsTheName.Shows(`the create with a name that is taken was accepted`),
		AlsoFalseIf: []world.World{
			world.RefusalsBecome(http.StatusConflict, http.StatusInternalServerError, metav1.StatusReasonServerTimeout).Shows(`it was refused: 500 ServerTimeout`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/registry/rest", "CheckGeneratedNameError"),
		Answers: "#72",
	}, func(l *lab.Lab) {
		l.Create("shelf")
		both := l.New("shelf")
		both.SetGenerateName("shelf-")
		_, err := l.TryCreateObject(both)
		r := l.Refusal(err, "the create with a name that is taken")
		l.Expect(r.Is(http.StatusConflict, metav1.StatusReasonAlreadyExists, "was not able to generate a unique name"),
			"the create is refused: 409 AlreadyExists", "it was refused: %s", l.Describe(err))
		generated := l.New("")
		generated.SetGenerateName("shelf-")
		first, err := l.TryCreateObject(generated)
		l.Step(err, "creating under a generated name")
		second, err := l.TryCreateObject(generated)
		l.Step(err, "creating under a generated name")

		table := l.Table("create with", "answer", "name")
		table.Row("name and generateName, the name taken", r.CodeAndReason(), "")
		table.Row("generateName alone", "201", first.GetName())
		table.Row("generateName alone, again", "201", second.GetName())
		table.End()
		l.Blank()
		l.Say("%s: %s", r.CodeAndReason(), r.Message)
		l.Expect(first.GetName() != second.GetName(), "a generated name is new each time",
			"both are %s", first.GetName())
	})
}

func TestAnotherUIDIsAConflictThatLooksLikeAStorageError(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8g", From: "D2 paragraph 1, paragraph 5",
		Says: "a replace that carries the uid of an earlier incarnation is refused with 409 and the words StorageError: " +
			"invalid object, Code: 4; without the uid the old token is refused as stale; without either it is let in",
		Why: "the text looks like a damaged store and is an ordinary conflict: the object that you knew was deleted, and " +
			"another one stands under its name",
		FalseIf: world.ClientDropsTheUID.Shows(`the object has been modified`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the replace with the old token was accepted`),
			world.LibraryRemembersTheToken.Shows(`the replace with neither was refused: 409`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/storage", "(*Preconditions).Check"),
		Answers: "#11",
	}, func(l *lab.Lab) {
		old := l.Create("shelf", "color=red")
		stranger := l.Rival().Recreate("shelf", "color=blue")
		l.Settle(stranger)
		table := l.Table("a replace made from the object that is gone", "answer", "to etcd")
		try := func(what string, o *lab.Object) error {
			var err error
			seen := l.Record(func() { _, err = l.TryReplace(o, "color=green") })
			table.Row(what, lab.Brief(err), seen.Summary())
			return err
		}
		err := try("with uid and token", old)
		l.Expect(l.Refusal(err, "the replace with the old uid").Is(http.StatusConflict, metav1.StatusReasonConflict, fmt.Sprintf(
			"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: "+
				"Precondition failed: UID in precondition: %s, UID in object meta: %s", l.Key(old), old.GetUID(), stranger.GetUID())),
			"the refusal speaks of a StorageError and names both uids", "the refusal says: %s", l.Describe(err))
		l.Conflicts(try("with the token alone", lab.WithoutUID(old)), "the replace with the old token", old)
		l.Stored(stranger, "color=blue")
		l.Accepted(try("with neither", lab.WithoutUID(lab.WithToken(old, ""))), "the replace with neither")
		table.End()
		l.Blank()
		l.Say("With the uid: %s", l.Describe(err))
		l.Stored(stranger, "color=green")
	})
}

func TestADeleteCanSayWhatItMeans(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF9", From: "D2 paragraph 1, paragraph 5",
		Says: "a delete can carry preconditions: by uid it means this incarnation, by resourceVersion the version that was " +
			"decided on; without them it deletes whatever stands there now",
		Why: "a delete by name that is repeated, or late, hits the object that has taken the name since; and a uid alone " +
			"does not see that somebody has changed the object to keep it",
		FalseIf: world.ClientDropsThePreconditions.Shows(`the delete by the uid of the one before was accepted`),
		AlsoFalseIf: []world.World{
			world.DeletesCarryTheUID.Shows(`the delete without preconditions was refused: 409`),
			world.DeletesLose("resourceVersion").Shows(`the delete of the version that was read was accepted`),
			world.DeletesCarryTheVersion.Shows(`the delete by uid was refused: 409`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/registry/rest", "BeforeDelete"),
		Answers: "#13 #14",
	}, func(l *lab.Lab) {
		table := l.Table("delete of", "precondition", "answer", "object after it")
		try := func(name, what, precondition string, o metav1.DeleteOptions) error {
			err := l.TryDelete(name, o)
			after := "gone"
			if _, there := l.TryKVAt(lab.ConfigMap.KeyOf(l.Namespace, name)); there {
				after = "stands"
			}
			table.Row(what, precondition, lab.Brief(err), after)
			return err
		}
		before := l.Create("again", "color=red")
		now := l.Rival().Recreate("again", "color=blue")
		err := try("again", "a name that was taken anew", "uid of the one before", lab.UID(before))
		l.Expect(l.Refusal(err, "the delete by the uid of the one before").Is(http.StatusConflict, metav1.StatusReasonConflict,
			fmt.Sprintf("the UID in the precondition (%s) does not match the UID in record (%s). "+
				"The object might have been deleted and then recreated", before.GetUID(), now.GetUID())),
			"the refusal names both uids", "it is: %s", l.Describe(err))
		l.Accepted(try("again", "the same", "none", metav1.DeleteOptions{}), "the delete without preconditions")

		read := l.Create("veto", "color=red")
		kept := l.Rival().Set("veto", "keep=true")
		stale := try("veto", "an object that was changed to keep it", "version that was read", lab.Token(read))
		l.Expect(l.Refusal(stale, "the delete of the version that was read").Is(http.StatusConflict, metav1.StatusReasonConflict,
			fmt.Sprintf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
				"The object might have been modified", read.GetResourceVersion(), kept.GetResourceVersion())),
			"the refusal names both versions", "it is: %s", l.Describe(stale))
		l.Stored(read, "keep=true")
		l.Accepted(try("veto", "the same", "uid of what was read", lab.UID(read)), "the delete by uid")
		table.End()
		l.Blank()
		l.Say("By uid: %s", l.Describe(err))
		l.Say("By version: %s", l.Describe(stale))
	})
}

func TestADeleteIsComparedAndRetriedLikeAnUpdate(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF9b", From: "D1 Expect 3; D2 paragraph 5",
		Says: "a delete is a transaction with the same compare: overtaken, it is tried again on whatever stands there then, " +
			"unless its preconditions forbid that",
		Why: "even a delete that was right when the apiserver looked can hit a version, or an object, that nobody decided " +
			"on; the precondition is checked anew after each failed compare",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the overtaken delete of one version was accepted`),
		AlsoFalseIf: []world.World{
			world.DeletesLose("uid").Shows(`the overtaken delete of one incarnation was accepted`),
			world.EtcdIgnoresTheCompareOf("e").Shows(`^it took 1$`),
			world.DeletesCarryTheUID.Shows(`the overtaken delete of this name was refused: 409`),
			world.DeletesCarryTheVersion.Shows(`the overtaken delete of this uid was refused: 409`),
		},
		Read: source.Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).conditionalDelete"),
	}, func(l *lab.Lab) {
		table := l.Table("a delete of", "is overtaken by", "transactions", "answer", "object after it")
		var shown wire.Requests
		race := func(name, what string, o func(*lab.Object) metav1.DeleteOptions, recreate bool) (int, error) {
			read := l.Create(name, "color=red")
			rival := func() { l.Rival().Set(name, "color=blue") }
			by, rivals := "a patch", 1
			if recreate {
				rival = func() { l.Rival().Recreate(name, "color=blue") }
				by, rivals = "delete and create", 2
			}
			var err error
			seen := l.Record(func() {
				err = l.Race(l.Key(read), func() error { return l.TryDelete(name, o(read)) }, rival)
			})
			after := "stands"
			if _, there := l.TryKVAt(l.Key(read)); !there {
				after = "gone"
			}
			own := seen.Count(wire.Txn) - rivals
			table.Row(what, by, own, lab.Brief(err), after)
			if recreate && shown == nil {
				shown = seen.Only(wire.Txn)
			}
			return own, err
		}
		none := func(*lab.Object) metav1.DeleteOptions { return metav1.DeleteOptions{} }

		n, err := race("c", "this version", lab.Token, false)
		l.Expect(l.Refusal(err, "the overtaken delete of one version").Is(http.StatusConflict, metav1.StatusReasonConflict,
			"Precondition failed: ResourceVersion in precondition") && n == 1, "it is refused after one transaction",
			"%d transactions: %s", n, l.Describe(err))
		n, err = race("d", "this uid", lab.UID, true)
		l.Expect(l.Refusal(err, "the overtaken delete of one incarnation").Is(http.StatusConflict, metav1.StatusReasonConflict,
			"Precondition failed: UID in precondition") && n == 1, "it is refused after one transaction",
			"%d transactions: %s", n, l.Describe(err))
		l.Names(err, "configmaps", "d") // where a delete that was not overtaken says ConfigMap, see CF8
		for _, c := range []struct {
			name, what string
			options    func(*lab.Object) metav1.DeleteOptions
			recreate   bool
		}{{"e", "this uid", lab.UID, false}, {"a", "this name", none, false}, {"b", "this name", none, true}} {
			n, err := race(c.name, c.what, c.options, c.recreate)
			l.Accepted(err, "the overtaken delete of "+c.what)
			l.Expect(n == 2, "it takes two transactions", "it took %d", n)
		}
		table.End()
		l.Show("the delete by uid, overtaken by delete and create", shown)
	})
}

func TestTwoApiserversCannotOverwriteEachOther(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF10", From: "D1 Rests on",
		Says: "two apiservers over one etcd keep the same number: what is read at one is a token at the other, and neither " +
			"can overwrite what the other has written",
		Why: "the apiservers need not talk to each other; they agree because each write is compared where all of them " +
			"write",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the overtaken replace was accepted`),
		AlsoFalseIf: []world.World{
			world.AnswersAreOneTooHigh.Shows(`a replace with the token of the first was refused: 409`),
			world.ClientDropsTheToken.Shows(`at the first apiserver, a replace with the old token was accepted`),
		},
		Read: source.Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
	}, func(l *lab.Lab) {
		other := l.AtSecondAPIServer("other")
		shelf := l.Create("shelf", "color=red")
		there := other.Get("shelf")
		moved, err := other.TryReplace(there, "color=blue")
		l.Accepted(err, "at the second apiserver, a replace with the token of the first")
		l.Settle(moved)
		_, stale := l.TryReplace(shelf, "color=green")
		l.Conflicts(stale, "at the first apiserver, a replace with the old token", shelf)
		fresh := l.Get("shelf")
		var overtaken error
		seen := l.Record(func() {
			overtaken = l.Race(l.Key(shelf), func() error { _, err := l.TryReplace(fresh, "color=green"); return err },
				func() { other.Set("shelf", "color=black") })
		})

		table := l.Table("step", "at apiserver", "answer", "resourceVersion")
		table.Row("create", "first", "201", shelf.GetResourceVersion())
		table.Row("read", "second", "200", there.GetResourceVersion())
		table.Row("replace with that token", "second", "200", moved.GetResourceVersion())
		table.Row("replace with the old token", "first", lab.Brief(stale), "")
		table.Row("read", "first", "200", fresh.GetResourceVersion())
		table.Row("replace with that token, overtaken", "first", lab.Brief(overtaken), "")
		table.End()
		l.Show("the last replace, and the patch at the second apiserver that overtook it", seen.Only(wire.Txn))
		l.Expect(number(there) == number(shelf), "both report one number", "the first %s, the second %s",
			shelf.GetResourceVersion(), there.GetResourceVersion())
		l.Conflicts(overtaken, "the overtaken replace", shelf)
		l.Stored(shelf, "color=black")
	})
}

func TestNoInterleavingOfConcurrentClientsBreaksIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF11", From: "D2 paragraph 2",
		Says: "however concurrent clients read, replace, patch, delete and create, some order of their requests explains " +
			"every answer: each object behaves like one versioned register",
		Why: "so a client may reason as if requests came one after the other; without the compare, no order explains what " +
			"the clients were told",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`no order of the \d+ requests for a explains every answer`),
		Read:    source.Func("go.etcd.io/etcd/client/v3/kubernetes", "Client.OptimisticPut"),
	}, func(l *lab.Lab) {
		store := l.Register(token.ConfigMap)
		var history token.Recorder

		// One race is forced: two clients replace a with the same token, and the first is held until the second is done.
		send := func(client int, q token.Request) (token.Answer, error) {
			q.Client, q.Name = fmt.Sprintf("client%d", client), "a"
			return history.Do(l.Context(), client, store, q)
		}
		created, err := send(0, token.Request{Verb: token.Create})
		l.Step(err, "creating a")
		replace := func(client int) error {
			_, err := send(client, token.Request{Verb: token.Replace, Token: created.Token, Set: token.Content{"by": strconv.Itoa(client)}})
			return err
		}
		var overtook error
		err = l.Race(store.Key("a"), func() error { return replace(0) }, func() { overtook = replace(1) })
		l.Step(errors.Join(err, overtook), "racing for a")
		// The rest is left to chance.
		token.Workload{Kind: token.ConfigMap, Clients: 6, Objects: 3, Requests: 25}.Run(l.Context(), &history, store)

		whole := history.History()
		found := token.Check(token.ConfigMap, whole, 20*time.Second)
		table := l.Table("requests of 6 clients", "200, 201", "409 Conflict", "409 AlreadyExists", "404", "other")
		for _, row := range token.Tally(whole) {
			table.Row(row.Verb, row.Accepted, row.Conflict, row.AlreadyExists, row.NotFound, row.Other)
		}
		table.End()
		l.Blank()
		l.Say("%s.", found.Explain())
		l.Keep("history.html", "porcupine's picture of the history, for a browser", found.Visualize)
		l.Expect(found.Result == porcupine.Ok, "some order of the requests explains every answer", "%s", found.Explain())
	})
}

func TestRemovingTheLastFinalizerDoesNotHonourTheToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF12", From: "+",
		Says: "warning: removing the last finalizer of an object that is being deleted is a delete, and it does not honour the " +
			"token: a replace with the current token, overtaken by another write, is answered with 200 and the write is gone; " +
			"overtaken by delete and create, a replace without a uid deletes the new object",
		Why: "the token is compared once, and then the apiserver deletes with the uid as its only precondition, as often as " +
			"it takes; a finalizer's last word is not protected as every other replace is",
		FalseIf: world.ClientsSendTheUID.Shows(`overtaken by delete and create: 409 Conflict: .*UID in precondition`),
		AlsoFalseIf: []world.World{
			world.EtcdDeletesNothingOf("shelf").Shows(`overtaken by a patch: it stands`),
			world.ServerCountsItself.Shows(`the answer shows 10\d\d`),
		},
		Read: source.Func(registryStore, "(*Store).deleteWithoutFinalizers"),
	}, func(l *lab.Lab) {
		table := l.Table("the last finalizer is removed, overtaken by", "answer", "its token", "the token sent", "object after it")
		var shown wire.Requests
		for _, by := range []string{"a patch", "delete and create"} {
			marked, seen, answer, err := l.RaceForTheLastFinalizer(by == "delete and create", lab.WithoutUID)
			l.Expect(err == nil, "overtaken by "+by+": 200", "overtaken by %s: %s", by, l.Describe(err))
			_, there := l.TryKVAt(l.Key(marked))
			table.Row(by, lab.Brief(err), answer.GetResourceVersion(), marked.GetResourceVersion(), map[bool]string{true: "stands", false: "gone"}[there])
			l.Expect(!there, "what the rival wrote is gone", "overtaken by %s: it stands", by)
			l.Expect(answer.GetResourceVersion() == marked.GetResourceVersion(), "the answer shows the version that was sent",
				"the answer shows %s", answer.GetResourceVersion())
			shown = seen
		}
		table.End()
		l.Show("PUT without finalizers and without a uid, overtaken by delete and create", shown)
		l.Blank()
		l.Say("So it is on kube-apiserver %s: deleteWithoutFinalizers passes on the uid that the replace carries, and no "+
			"version. The safer way is to send the object as it was read, uid included.", l.Plane().Binary().Version)
	})
}

func TestTheUIDProtectsTheNextIncarnationFromALateFinalizer(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF12b", From: "+",
		Says: "with the uid in the replace, removing the last finalizer cannot delete the next incarnation: 409; a write to " +
			"the same incarnation is lost all the same",
		Why: "to send the object as it was read, uid included, is the safer way, and no safe one: let nothing depend on a " +
			"last write to an object that is being deleted",
		FalseIf: world.ClientDropsTheUID.Shows(`removing the last finalizer of an earlier incarnation was accepted`),
		AlsoFalseIf: []world.World{
			world.EtcdDeletesNothingOf("shelf").Shows(`^it stands$`),
		},
		Read: source.Func("k8s.io/apiserver/pkg/registry/rest", "(*defaultUpdatedObjectInfo).Preconditions"),
	}, func(l *lab.Lab) {
		asRead := func(o *lab.Object) *lab.Object { return o }
		marked, seen, _, err := l.RaceForTheLastFinalizer(true, asRead)
		l.Expect(l.Refusal(err, "removing the last finalizer of an earlier incarnation").Is(http.StatusConflict,
			metav1.StatusReasonConflict, "Precondition failed: UID in precondition: "+string(marked.GetUID())),
			"it is refused: 409 Conflict over the uid", "it is: %s", l.Describe(err))
		_, stands := l.TryKVAt(l.Key(marked))
		l.Expect(stands, "the next incarnation stands", "it is gone")
		other, _, _, patched := l.RaceForTheLastFinalizer(false, asRead)
		_, still := l.TryKVAt(l.Key(other))

		table := l.Table("the last finalizer is removed, uid sent, overtaken by", "answer", "object after it")
		table.Row("delete and create", lab.Brief(err), "stands")
		table.Row("a patch", lab.Brief(patched), map[bool]string{true: "stands", false: "gone"}[still])
		table.End()
		l.Show("PUT without finalizers, with the uid, overtaken by delete and create", seen)
		l.Accepted(patched, "removing the last finalizer, overtaken by a patch")
		l.Expect(!still, "overtaken by a patch, the object is gone with it", "it stands")
	})
}

func TestAReplaceIsACompareAndSwapOnlyWithTheCallersOwnToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF13", From: "D2 paragraph 2",
		Says: "of all clients that saw the lock free and replace it with the token that they read, exactly one gets it",
		Why: "a replace is compare-and-swap, and a lock needs nothing else; a library that renews the token by itself hands " +
			"the lock to everybody, one after the other",
		FalseIf: world.LibraryRefreshesTheToken.Shows(`4 of 4 clients got the lock`),
		Read:    source.Func(registryStore, "(*Store).Update"),
		Answers: "#18",
	}, func(l *lab.Lab) {
		const clients = 4
		free := l.Of(lab.Lease).Create("lock")
		table := l.Table("client", "token read", "answer", "holder after it")
		got := 0
		for n := range clients {
			client := l.As(fmt.Sprintf("client-%d", n+1)).Of(lab.Lease)
			_, err := client.TryReplace(free, fmt.Sprintf("holderIdentity=client-%d", n+1))
			if err == nil {
				got++
			} else {
				l.Conflicts(err, "the replace by one that came late", free)
			}
			table.Row(n+1, free.GetResourceVersion(), lab.Brief(err), lab.Field(l.Of(lab.Lease).Peek("lock"), "holderIdentity"))
		}
		table.End()
		l.Expect(got == 1, "one client gets the lock", "%d of %d clients got the lock", got, clients)
	})
}

func TestWritersNeedNoLockToWriteOneObject(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF14", From: "D2 paragraph 2",
		Says: "writers that read, add their entry and replace, and do it again when refused, need no lock: every entry is " +
			"there in the end, and each refusal of one is the success of another",
		Why: "so nobody is refused more often than there are other writers; a lock would only make them wait for the same " +
			"order",
		FalseIf: world.ClientDropsTheToken.Shows(`1 of 8 entries are there`),
		AlsoFalseIf: []world.World{
			world.SomebodyElseWrites("shelf", 64).Shows(`refusals: \[`),
		},
		Read:    source.Func(registryStore, "(*Store).Update"),
		Answers: "#74",
	}, func(l *lab.Lab) {
		const writers = 8
		shelf := l.Create("shelf", "entries=")
		var allRead sync.WaitGroup
		allRead.Add(writers)
		refusals := make([]int, writers)
		done, failed := l.Each(writers, func(n int) error {
			for first := true; ; first = false {
				read, err := l.TryGet("shelf")
				if first {
					allRead.Done()
					allRead.Wait() // all have read the same version before the first one writes
				}
				if err == nil {
					_, err = l.TryReplace(read, fmt.Sprintf("entries=%s %d", lab.Field(read, "entries"), n))
				}
				if !apierrors.IsConflict(err) {
					return err
				}
				refusals[n-1]++
			}
		})
		l.Step(errors.Join(failed...), "adding an entry")
		entries := strings.Fields(lab.Field(l.Peek("shelf"), "entries"))
		table := l.Table("writers", "entries stored", "storage writes", "refusals in all", "most of one writer")
		total := 0
		for _, n := range refusals {
			total += n
		}
		table.Row(done, len(entries), l.KV(shelf).Version-1, total, slices.Max(refusals))
		table.End()
		l.Blank()
		l.Say("The entries, in the order in which the writers got through: %s.", strings.Join(entries, " "))

		l.Expect(len(entries) == writers, "all entries are there", "%d of %d entries are there: %v", len(entries), writers, entries)
		l.Expect(slices.Max(refusals) < writers, "nobody is refused more often than there are others", "refusals: %v", refusals)
	})
}

func TestIfMatchMeansNothingHere(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF15", From: "+",
		Says: "the header If-Match means nothing to the apiserver: it neither refuses a fresh replace nor protects one " +
			"without a token; the precondition goes into the body",
		Why:     "what every HTTP handbook teaches compiles, answers 200, and checks nothing",
		FalseIf: world.IfMatchIsTheToken.Shows(`current token, If-Match: "nonsense" was refused`),
		AlsoFalseIf: []world.World{
			world.IfMatchStandsIn.Shows(`a replace without a token, If-Match: the stale version was refused`),
			world.IfMatchComesFirst.Shows(`a replace with a stale token, If-Match: the current version was accepted`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/endpoints/handlers", "UpdateResource"),
		Answers: "#3",
	}, func(l *lab.Lab) {
		read := l.Create("shelf", "color=red")
		now := l.Rival().Set("shelf", "color=blue")
		table := l.Table("replace with", "If-Match", "answer")
		put := func(what, match string, o *lab.Object) error {
			_, err := l.WithHeader("If-Match", strconv.Quote(match)).TryReplace(o, "color=green")
			table.Row(what, strconv.Quote(match), lab.Brief(err))
			return err
		}
		l.Accepted(put("the current token", "nonsense", now), `a replace with the current token, If-Match: "nonsense"`)
		l.Accepted(put("no token", read.GetResourceVersion(), lab.WithToken(read, "")), "a replace without a token, If-Match: the stale version")
		l.Conflicts(put("a stale token", l.Peek("shelf").GetResourceVersion(), read), "a replace with a stale token, If-Match: the current version", read)
		table.End()
	})
}

func TestAnApplyCreatesWhatIsGoneUnlessItNamesTheUID(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF16", From: "D2 paragraph 3, paragraph 5",
		Says: "an apply creates what is missing: the one that takes the last finalizer away, sent twice, brings the object " +
			"back; with the uid in it, it is refused with 409",
		Why: "a controller that acts on an old event resurrects what it has just cleaned up; a uid says that only this " +
			"incarnation was meant",
		FalseIf: world.ClientDropsTheUID.Shows(`the apply with the uid of the object that is gone was accepted`),
		AlsoFalseIf: []world.World{
			world.RefusalsBecome(http.StatusConflict, http.StatusNotFound, metav1.StatusReasonNotFound).Shows(`it is: 404 NotFound: .*uid mismatch`),
			world.ClientsSendTheUID.Shows(`the same apply without the uid was refused: 409`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/endpoints/handlers", "(*applyPatcher).createNewObject"),
		Answers: "#9",
	}, func(l *lab.Lab) {
		apply := func(meta string) (*lab.Object, error) {
			return l.TryPatch("shelf", types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf"`+meta+`}}`)
		}
		table := l.Table("step", "answer", "uid after it")
		step := func(what, meta string) (*lab.Object, error) {
			o, err := apply(meta)
			uid := ""
			if err == nil && l.Exists(o) {
				uid = string(o.GetUID())
			}
			table.Row(what, l.Answered(), cmp.Or(uid, "(no object)"))
			return o, err
		}
		shelf, err := step("apply with a finalizer", `,"finalizers":["modrev.example/hold"]`)
		l.Step(err, "applying")
		l.Delete("shelf")
		_, err = step("delete; apply without the finalizer", "")
		l.Step(err, "applying without the finalizer")
		_, refused := step("the same, with the uid", fmt.Sprintf(`,"uid":%q`, shelf.GetUID()))
		r := l.Refusal(refused, "the apply with the uid of the object that is gone")
		again, err := step("the same, without the uid", "")
		l.Accepted(err, "the same apply without the uid")
		table.End()
		l.Blank()
		l.Say("With the uid: %s", l.Describe(refused))

		l.Expect(r.Is(http.StatusConflict, metav1.StatusReasonConflict, "uid mismatch: the provided object specified uid "+
			string(shelf.GetUID())+", and no existing object was found"), "it is refused: 409 Conflict, uid mismatch", "it is: %s", l.Describe(refused))
		l.Expect(again.GetUID() != shelf.GetUID(), "what comes back is another object", "it has the same uid %s", again.GetUID())
	})
}

// containers names the containers of a Deployment's template, in order.
func containers(deployment *lab.Object) string {
	list, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	names := []any{}
	for _, c := range list {
		names = append(names, c.(map[string]any)["name"])
	}
	return fmt.Sprint(names)
}
