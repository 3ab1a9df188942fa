// Chapter 2. Two clients decided on the same version of an object: one of them is refused.
package modrev

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		Says: "a replace that carries a stale resourceVersion is refused with 409 Conflict and one exact sentence, and " +
			"nothing of it is stored",
		Why: "of two clients that decided on the same version only one can be right about it; the other one is told, and " +
			"overwrites nothing",
		FalseIf: world.ClientDropsTheToken.Shows(`the stale replace was accepted`),
		AlsoFalseIf: []world.World{
			world.AProxyRewordsRefusals.Shows(`was refused: .*please apply the changes`),
			world.AProxyForcesWhatIsRefused.Shows(`color=red is stored`),
			world.RefusalsAreAbout("ConfigMap").Shows(`is ConfigMap shelf`),
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
		table.Row("writer replaces, size=large", read.GetResourceVersion(), lab.AnswerLine(err), stored.GetResourceVersion(),
			lab.Field(stored, "color"), lab.Field(stored, "size"))
		table.End()
		l.Say("%s", l.Describe(err))

		l.Refused(err, "the stale replace", lab.Stale(read))
		l.Expect(apierrors.IsConflict(err), "the client's error satisfies apierrors.IsConflict", "%T does not", err)
		l.Equal("what the refusal is about", l.Refusal(err, "the stale replace").Details(), "configmaps shelf")
		l.Stored(read, "color=blue", "size=small")
		l.Expect(number(stored) == number(rivals), "the refused replace moved nothing",
			"resourceVersion %s after it, %s before", stored.GetResourceVersion(), rivals.GetResourceVersion())
		l.WriteDown(record.TheRefusal, "%s", l.Refusal(err, "the stale replace").Message)
		l.WriteDown(record.StaleReplace, "409 Conflict")
	})
}

func TestCF1b_ATokenMustBeEqualAndNotOnlyNewEnough(t *testing.T) {
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
		Read:    source.Decl(registryStore, "(*Store).Update"),
		Answers: "#35",
	}, func(l *lab.Lab) {
		first := l.Create("shelf", "color=red")
		shelf := l.Rival().Set("shelf", "color=blue")
		table := l.Table("a replace with", "token", "answer")
		send := func(what, token string) error {
			_, err := l.TryReplace(lab.WithToken(shelf, token), "color=green")
			table.Row(what, token, lab.AnswerLine(err))
			return err
		}
		plus := func(n int64) string { return strconv.FormatInt(number(shelf)+n, 10) }

		l.Refused(send("an older number", first.GetResourceVersion()), "a replace with an older number", lab.Stale(shelf))
		l.Refused(send("the next number", plus(1)), "a replace with the next number", lab.Stale(shelf))
		l.Refused(send("a number far ahead", plus(1_000_000)), "a replace with a number far ahead", lab.Stale(shelf))
		err := send("a word", "newest")
		l.Refused(err, "a replace with a word", lab.Refusal{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonUnknown})
		l.Stored(shelf, "color=blue")
		l.Accepted(send("the current number", shelf.GetResourceVersion()), "a replace with the current number")
		l.Accepted(send("0, when the object has moved on", "0"), "a replace with 0")
		table.End()
		l.Say("The word: %s", l.Describe(err))
	})
}

func TestCF2_TheSameSentenceHasTwoSources(t *testing.T) {
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
		Read: source.Decl(registryStore, "(*Store).Update"),
		Erratum: "the document says that the sentence is the user-facing form of a failed compare on mod_revision. It is " +
			"so in a race only, or while the apiserver's cache lags (CF3b); otherwise a replace that is stale when it arrives " +
			"never becomes a transaction.",
	}, func(l *lab.Lab) {
		read := l.Create("shelf", "color=red")
		l.Settle(l.Rival().Set("shelf", "color=blue"))
		var late error
		after := l.Record(func() { _, late = l.TryReplace(read, "color=green") })
		l.Refused(late, "the replace after the rival's write", lab.Stale(read))
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
		table.Row("comes after the rival's write", "the apiserver's own comparison", lab.AnswerLine(late))
		table.Row("is overtaken by it", "the failed compare in etcd", lab.AnswerLine(raced))
		table.End()
		l.Say("Both times: %s", l.Describe(raced))

		l.Refused(raced, "the replace that was overtaken", lab.Stale(read))
		l.Sends(during, "the replace that was overtaken, and the rival's patch", "2 Txn")
		l.WriteDown(record.StaleReplaceCost, "1 Range")
	})
}

func TestCF3_InARaceTheFailedCompareRefuses(t *testing.T) {
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
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
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
		l.Say("%s", l.Describe(err))

		l.Refused(err, "the overtaken replace", lab.Stale(read))
		l.Stored(read, "color=blue", "size=small")
		l.Sends(seen, "the overtaken replace, and the rival's patch", "2 Txn")
		held := seen[0]
		l.Expect(!held.Succeeded && held.Compare[0].Value == number(read),
			"the transaction compares the version that the writer had read, "+read.GetResourceVersion(), "it is %s", held)
		l.Expect(len(held.Found) == 1 && held.Found[0].ModRevision == number(rivals),
			"its else branch returns the rival's version, "+rivals.GetResourceVersion(), "it is %s", held)
		l.WriteDown(record.RacedReplaceCost, "1 Txn")
	})
}

func TestCF3b_AStaleCacheCostsACompareAndNotAnUpdate(t *testing.T) {
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
		Read: source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*CacheDelegator).GuaranteedUpdate"),
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
		l.Say("%s", l.Describe(err))

		l.Expect(number(cached) == number(read), "the cache is as stale as the writer", "the cache holds %s", cached.GetResourceVersion())
		l.Refused(err, "the stale replace", lab.Stale(read))
		l.Sends(seen, "the stale replace", "1 Txn")
		l.Stored(read, "color=blue", "size=small")
	})
}

func TestCF4_AConflictingPatchRetriesAndAConflictingReplaceDoesNot(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF4", From: "D1 Expect 3",
		Says: "after a failed compare of an update the apiserver tries again by itself, unless the caller insisted on a version: what " +
			"makes the difference is the token and neither the verb nor etcd",
		Why: "a patch without a token says what to change and fits any version; whoever sends a token asked to be told, " +
			"and a replace without one overwrites what it has never seen",
		FalseIf: world.ClientDropsTheToken.Shows(`the patch with a token was accepted`),
		AlsoFalseIf: []world.World{
			world.EveryPatchCarriesAToken.Shows(`the patch without a token was refused: 409`),
			world.LibraryFillsInTheToken.Shows(`the replace without a token was refused: 409`),
			world.PatchesCarryATokenIn("apply").Shows(`the apply without a token was refused: 409`),
			world.ClientDropsTheTokenOf("replace").Shows(`the replace with a token was accepted`),
			world.EtcdIgnoresTheCompareOf("a").Shows(`it sent 1, 2 and 2 transactions`),
			world.TheRetryPutsTheOldBytes.Shows(`rival=old is stored`),
		},
		Read:    source.Decl(registryStore, "(*Store).Update"),
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
			table.Row(what, own, lab.AnswerLine(err), lab.Field(stored, "mine"), lab.Field(stored, "rival"))
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
		l.Refused(err, "the patch with a token", lab.Stale(l.New("b")))
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
		l.Refused(err, "the replace with a token", lab.Stale(l.New("d")))
		table.End()
		l.Show("the patch without a token, and the rival's patch", shown)

		l.Expect(bare == 2 && blind == 2 && applied == 2, "without a token, the apiserver tries again after the failed compare",
			"it sent %d, %d and %d transactions", bare, blind, applied)
		l.Expect(insisting == 1 && checked == 1, "with a token, it does not", "it sent %d and %d transactions", insisting, checked)
		l.Stored(l.New("a"), "mine=new", "rival=new")
		l.Stored(l.New("c"), "mine=new", "rival=old") // the rival's write is gone, and nobody was told
		l.WriteDown(record.RacedPatchCost, "2 Txn")
	})
}

func TestCF4b_PatchesWithoutATokenNeverConflictHoweverManyWritersThereAre(t *testing.T) {
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
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
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
				l.Refused(err, "a patch with a token", lab.Stale(shelf))
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

func TestCF5_TheServersRetryHasNoCount(t *testing.T) {
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
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
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
		table.Row(rivals, seen.Count(wire.Txn), seen.Count(wire.Range), lab.AnswerLine(err), l.KV(shelf).Version)
		table.End()
	})
}

func TestCF6_AReplaceWithoutATokenOverwritesUnlessTheKindForbidsIt(t *testing.T) {
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
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/coordination/lease", "leaseStrategy.AllowUnconditionalUpdate"),
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
			l.Refused(err, "a replace without a token of a "+kind.Kind, lab.Refusal{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
			l.Expect(slices.Equal(l.Refusal(err, "the replace").Causes, []string{"FieldValueInvalid metadata.resourceVersion"}),
				"the cause is the field metadata.resourceVersion", "the causes are %v", lab.Causes(err))
			return err
		}
		var lease error
		for i, kind := range append(append(lab.SampleKinds(), l.MoreKinds()...), custom) {
			err := overwrite(kind, l.Of(kind).Create(fmt.Sprintf("%s-%d", l.Namespace, i)))
			if kind.Kind == "Lease" {
				lease = err
			}
		}
		definition := l.Of(lab.CustomResourceDefinition).Get(custom.Definition())
		overwrite(lab.CustomResourceDefinition, definition)

		l.Say("200, and what the rival wrote is gone, for %d kinds: %s.", len(overwritten), strings.Join(overwritten, ", "))
		l.Say("422 Invalid for %s. Shelf is a custom resource; kinds that are not named here were not tried.", strings.Join(refused, ", "))
		l.Say("The Lease: %s", l.Describe(lease))

		want := []string{"Lease", "PodDisruptionBudget", "RuntimeClass", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
			"CSIDriver", "CSINode", "CSIStorageCapacity", "VolumeAttachment", "Shelf", "CustomResourceDefinition"}
		l.Expect(slices.Equal(refused, want), "refused are: "+strings.Join(want, ", "),
			"refused are: %s", cmp.Or(strings.Join(refused, ", "), "none"))
	})
}

func TestCF6b_AReplaceOfWhatIsMissingIsRefusedUnlessTheKindCreatesIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF6b", From: "D2 paragraph 5",
		Says: "a replace of an object that does not exist is 404 for most kinds, and creates it for a few: Service, " +
			"Endpoints, Event, LimitRange, Lease, RuntimeClass, and roles with their bindings",
		Why: "PUT has no one meaning: a client that relies on 404 to learn of a deletion resurrects a Lease, and one that " +
			"relies on PUT to create fails with a ConfigMap",
		FalseIf: world.ServerCreatesWhatIsMissing.Shows(`created are: .*, ConfigMap, `),
		AlsoFalseIf: []world.World{
			world.EveryRefusalIsAConflict.Shows(`a replace of a missing \w+ was refused: 409 Conflict.* not found`),
			world.ReplacesLookFirst.Shows(`^created are: $`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/coordination/lease", "leaseStrategy.AllowCreateOnUpdate"),
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
			l.Refused(err, "a replace of a missing "+kind.Kind, lab.Refusal{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
		}
		l.Say("These are all kinds that kube-apiserver says it serves, and Shelf, a custom resource.")
		l.Say("404 NotFound for %d kinds: %s.", len(missing), strings.Join(missing, ", "))
		l.Say("201 Created for %d kinds: %s.", len(created), strings.Join(created, ", "))
		l.Show("PUT of a ConfigMap", shown["ConfigMap"])
		l.Show("PUT of a Lease", shown["Lease"])

		want := []string{"ClusterRole", "ClusterRoleBinding", "Endpoints", "Event", "Lease", "LimitRange", "Role", "RoleBinding",
			"RuntimeClass", "Service"}
		l.Expect(slices.Equal(created, want), "created are: "+strings.Join(want, ", "), "created are: %s", strings.Join(created, ", "))
	})
}

func TestCF15_IfMatchMeansNothingHere(t *testing.T) {
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
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "UpdateResource"),
		Answers: "#3",
	}, func(l *lab.Lab) {
		read := l.Create("shelf", "color=red")
		now := l.Rival().Set("shelf", "color=blue")
		table := l.Table("replace with", "If-Match", "answer")
		put := func(what, match string, o *lab.Object) error {
			_, err := l.WithHeader("If-Match", strconv.Quote(match)).TryReplace(o, "color=green")
			table.Row(what, strconv.Quote(match), lab.AnswerLine(err))
			return err
		}
		l.Accepted(put("the current token", "nonsense", now), `a replace with the current token, If-Match: "nonsense"`)
		l.Accepted(put("no token", read.GetResourceVersion(), lab.WithToken(read, "")), "a replace without a token, If-Match: the stale version")
		l.Refused(put("a stale token", l.Peek("shelf").GetResourceVersion(), read), "a replace with a stale token, If-Match: the current version", lab.Stale(read))
		table.End()
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
