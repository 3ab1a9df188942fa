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
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

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
		Why: "of two clients that decided on the same version only one can be right about it; the other one is told, " +
			"and overwrites nothing",
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
		table.Row("writer replaces, size=large", read.GetResourceVersion(), lab.AnswerLine(err),
			stored.GetResourceVersion(), lab.Field(stored, "color"), lab.Field(stored, "size"))
		table.End()
		l.Say("%s", l.Describe(err))

		refusal := l.Refused(err, "the stale replace", lab.Stale(read))
		l.Equal("what the refusal is about", refusal.Details(), "configmaps shelf")
		l.Stored(read, "color=blue", "size=small")
		l.Equal("the resourceVersion after it", stored.GetResourceVersion(), rivals.GetResourceVersion())
		l.WriteDown(record.TheRefusal, "%s", refusal.Message)
		l.WriteDown(record.StaleReplace, "%s", refusal.CodeAndReason())
	})
}

func TestCF1b_ATokenMustBeEqualAndNotOnlyNewEnough(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF1b", From: "D2 paragraph 2",
		Says: "the token of a replace is compared for equality: an older one is refused, one from the future just the " +
			"same; and \"0\" is no token but the absence of one",
		Why: "a server that asked for \"new enough\" would let anybody in who names a large number; and a client that " +
			"sends 0 for \"unknown\" overwrites without a check",
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
		now := number(shelf)
		table := l.Table("a replace with", "token", "answer")
		replace := func(with, token string) error {
			_, err := l.TryReplace(lab.WithToken(shelf, token), "color=green")
			table.Row(with, token, lab.AnswerLine(err))
			return err
		}

		err := replace("an older number", first.GetResourceVersion())
		l.Refused(err, "a replace with an older number", lab.Stale(shelf))
		err = replace("the next number", strconv.FormatInt(now+1, 10))
		l.Refused(err, "a replace with the next number", lab.Stale(shelf))
		err = replace("a number far ahead", strconv.FormatInt(now+1_000_000, 10))
		l.Refused(err, "a replace with a number far ahead", lab.Stale(shelf))
		word := replace("a word", "newest")
		l.Refused(word, "a replace with a word",
			lab.Refusal{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonUnknown})
		l.Stored(shelf, "color=blue")

		err = replace("the current number", shelf.GetResourceVersion())
		l.Accepted(err, "a replace with the current number")
		err = replace("0, when the object has moved on", "0")
		l.Accepted(err, "a replace with 0")
		table.End()
		l.Say("The word: %s", l.Describe(word))
	})
}

func TestCF2_TheSameSentenceHasTwoSources(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF2", From: "D1 Expect 2",
		Says: "one after the other, a stale replace is refused by the apiserver's own comparison and etcd sees no " +
			"transaction at all, if the apiserver's cache has seen the rival's write; in a race it is refused by the failed " +
			"compare in etcd; the sentence is the same",
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
		during, raced := overtaken(l, read,
			func() error { _, err := l.TryReplace(read, "color=green"); return err },
			func() { l.Rival().Set("shelf", "color=black") })

		l.Show("one after the other: the rival had written before the replace arrived", after)
		l.Show("in a race: the rival writes while the transaction of the replace is on its way", during)
		table := l.Table("a replace that", "was refused by", "with")
		table.Row("comes after the rival's write", "the apiserver's own comparison", lab.AnswerLine(late))
		table.Row("is overtaken by it", "the failed compare in etcd", lab.AnswerLine(raced))
		table.End()
		l.Say("Both times: %s", l.Describe(raced))

		l.Refused(raced, "the replace that was overtaken", lab.Stale(read))
		l.Sends(during, "the replace that was overtaken, and the rival's patch", "2 Txn")
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
		l.Expect(held.Found[0].ModRevision == number(rivals),
			"its else branch returns the rival's version, "+rivals.GetResourceVersion(), "it is %s", held)
		l.WriteDown(record.RacedReplaceCost, "1 Txn")
	})
}

func TestCF3b_AStaleCacheCostsACompareAndNotAnUpdate(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF3b", From: "D1 Claim; +",
		Says: "while the apiserver's cache is stale, its own comparison lets a stale replace pass, and the compare in etcd " +
			"refuses it",
		Why: "the apiserver may start from a copy that is out of date, for speed, because the compare is there to find " +
			"out; a stale cache costs a transaction, and never an update",
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
		require.NoError(l, frozen.Holds(l.Context(), number(rivals)), "keeping the rival's write from the apiserver's cache")
		cached, err := shelves.TryGetAt("shelf", "0")
		require.NoError(l, err, "reading the apiserver's cache")
		var refused error
		seen := l.Record(func() { _, refused = shelves.TryReplace(read, "size=large") })

		table := l.Table("", "resourceVersion", "color")
		table.Row("what the writer read", read.GetResourceVersion(), lab.Field(read, "color"))
		table.Row("what the apiserver's cache holds", cached.GetResourceVersion(), lab.Field(cached, "color"))
		table.Row("what etcd holds", rivals.GetResourceVersion(), lab.Field(rivals, "color"))
		table.End()
		l.Show("PUT shelves/shelf, resourceVersion "+read.GetResourceVersion(), seen)
		l.Say("%s", l.Describe(refused))

		l.Equal("what the cache holds", cached.GetResourceVersion(), read.GetResourceVersion())
		l.Refused(refused, "the stale replace", lab.Stale(read))
		l.Sends(seen, "the stale replace", "1 Txn")
		l.Stored(read, "color=blue", "size=small")
	})
}

func TestCF4_AConflictingPatchRetriesAndAConflictingReplaceDoesNot(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF4", From: "D1 Expect 3",
		Says: "after a failed compare of an update the apiserver tries again by itself, unless the caller insisted on a " +
			"version: what makes the difference is the token and neither the verb nor etcd",
		Why: "a patch without a token says what to change and fits any version; whoever sends a token asked to be told, " +
			"and a replace without one overwrites what it has never seen",
		FalseIf: world.ClientDropsTheToken.Shows(`a patch with the token that was read was accepted`),
		AlsoFalseIf: []world.World{
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
			transactions int
			mine, rival  string // in the end
		}{
			{"a", "a patch without a token", patchMine, false, 2, "new", "new"},
			{"b", "a patch with the token that was read", patchMine, true, 1, "old", "new"},
			{"c", "a replace without a token", replaceMine, false, 2, "new", "old"}, // the rival's write is gone
			{"d", "an apply without a token", applyMine, false, 2, "new", "new"},
			{"e", "a replace with the token that was read", replaceMine, true, 1, "old", "new"},
		} {
			read := l.Create(c.name, "mine=old", "rival=old")
			sent := lab.WithToken(read, "")
			if c.insists {
				sent = read
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
		Says: "many clients may patch one object at once: without a token all are accepted and no field is lost; with the " +
			"token that all of them read, exactly one is",
		Why: "contention alone makes no conflict: whose patch is refused as stale has sent a token, or has a library that " +
			"did it",
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
		Why: "the often repeated \"five retries\" is not true of the server: what ends the retry is success, or the " +
			"deadline of the request (half a minute), which is answered with 504",
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
		FalseIf: world.LibraryFillsInTheToken.Shows(`what is refused is none`),
		AlsoFalseIf: []world.World{
			world.AProxyMergesReplaces.Shows(`the rival's annotation of the ConfigMap is yes`),
			world.RefusalsLoseTheirCauses.Shows(`of a Lease was refused: 422 Invalid about \S+ \S+: `),
			world.EveryRefusalIsAConflict.Shows(`a replace without a token of a Lease was refused: 409 Conflict`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/coordination/lease", "leaseStrategy.AllowUnconditionalUpdate"),
		Answers: "#33",
	}, func(l *lab.Lab) {
		custom := l.CustomResource()
		kinds := append(validKinds(l), custom)
		var objects []*lab.Object
		for i, kind := range kinds {
			objects = append(objects, l.Of(kind).Create(fmt.Sprintf("%s-%d", l.Namespace, i)))
		}
		definition := l.Of(lab.CustomResourceDefinition).Get(custom.Definition())
		kinds, objects = append(kinds, lab.CustomResourceDefinition), append(objects, definition)

		var overwritten, refused []string
		answers := map[string]error{}
		for i, kind := range kinds {
			l.Rival().Of(kind).Set(objects[i].GetName(), "metadata.annotations.rival=yes")
			stored, err := l.Of(kind).TryReplace(lab.WithToken(objects[i], ""), "metadata.labels.mine=yes")
			if err == nil {
				overwritten = append(overwritten, kind.Kind)
				l.Equal("the rival's annotation of the "+kind.Kind, stored.GetAnnotations()["rival"], "")
				continue
			}
			refused = append(refused, kind.Kind)
			answers[kind.Kind] = err
			l.Refused(err, "a replace without a token of a "+kind.Kind, lab.Refusal{
				Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
				Causes: []string{"FieldValueInvalid metadata.resourceVersion"},
			})
		}

		l.Say("200, and what the rival wrote is gone, for %d kinds: %s.", len(overwritten), strings.Join(overwritten, ", "))
		l.Say("422 Invalid for %s. Shelf is a custom resource; kinds that are not named here were not tried.",
			strings.Join(refused, ", "))
		l.Say("The Lease: %s", l.Describe(answers["Lease"]))

		l.Equal("what is refused", refused, []string{
			"Lease", "PodDisruptionBudget", "RuntimeClass", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
			"CSIDriver", "CSINode", "CSIStorageCapacity", "VolumeAttachment", "Shelf", "CustomResourceDefinition",
		})
	})
}

func TestCF6b_AReplaceOfWhatIsMissingIsRefusedUnlessTheKindCreatesIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF6b", From: "D2 paragraph 5",
		Says: "a replace of an object that does not exist is 404 for most kinds, and creates it for a few: Service, " +
			"Endpoints, Event, LimitRange, Lease, RuntimeClass, and roles with their bindings",
		Why: "PUT has no one meaning: a client that relies on 404 to learn of a deletion resurrects a Lease, and one that " +
			"relies on PUT to create fails with a ConfigMap",
		FalseIf: world.ServerCreatesWhatIsMissing.Shows(`what is created is .*, ConfigMap, `),
		AlsoFalseIf: []world.World{
			world.EveryRefusalIsAConflict.Shows(`a replace of a missing \w+ was refused: 409 Conflict.* not found`),
			world.ReplacesLookFirst.Shows(`^what is created is none$`),
		},
		Read:    source.Decl("k8s.io/kubernetes/pkg/registry/coordination/lease", "leaseStrategy.AllowCreateOnUpdate"),
		Answers: "#38",
	}, func(l *lab.Lab) {
		var created, missing []string
		shown := map[string]wire.Requests{}
		// A kind without a create by PUT refuses before it looks at the body, so that any body will do for most.
		for i, kind := range append(replaceableKinds(l), l.CustomResource()) {
			client := l.Of(kind)
			var err error
			shown[kind.Kind] = l.Record(func() {
				_, err = client.TryReplace(client.New(fmt.Sprintf("%s-%d", l.Namespace, i)))
			})
			if err == nil {
				created = append(created, kind.Kind)
				continue
			}
			missing = append(missing, kind.Kind)
			l.Refused(err, "a replace of a missing "+kind.Kind,
				lab.Refusal{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
		}
		l.Say("These are all kinds that kube-apiserver says it serves, and Shelf, a custom resource.")
		l.Say("404 NotFound for %d kinds: %s.", len(missing), strings.Join(missing, ", "))
		l.Say("201 Created for %d kinds: %s.", len(created), strings.Join(created, ", "))
		l.Show("PUT of a ConfigMap", shown["ConfigMap"])
		l.Show("PUT of a Lease", shown["Lease"])

		l.Equal("what is created", created, []string{
			"ClusterRole", "ClusterRoleBinding", "Endpoints", "Event", "Lease", "LimitRange", "Role", "RoleBinding",
			"RuntimeClass", "Service",
		})
	})
}

// validKinds are the kinds of [lab.SampleKinds] and more, each with the least that the API accepts. Nothing in a
// control plane without controllers acts upon them.
func validKinds(l *lab.Lab) []lab.Kind {
	type m = map[string]any
	const (
		admission, rbac  = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"
		storage, network = "storage.k8s.io", "networking.k8s.io"
		driver           = "shelf.example"
	)
	more := []lab.Kind{
		{Kind: "Endpoints", Resource: "endpoints"},
		{Kind: "Event", Resource: "events", Base: m{"involvedObject": m{"namespace": l.Namespace}}},
		{Kind: "IngressClass", Group: network, Resource: "ingressclasses", Cluster: true,
			Base: m{"spec": m{"controller": driver + "/none"}}},
		{Kind: "ClusterRoleBinding", Group: rbac, Resource: "clusterrolebindings", Cluster: true,
			Base: m{"roleRef": m{"apiGroup": rbac, "kind": "ClusterRole", "name": "shelf"}}},
		{Kind: "RuntimeClass", Group: "node.k8s.io", Resource: "runtimeclasses", Cluster: true, Base: m{"handler": "shelf"}},
		{Kind: "MutatingWebhookConfiguration", Group: admission, Resource: "mutatingwebhookconfigurations", Cluster: true},
		{Kind: "ValidatingWebhookConfiguration", Group: admission, Resource: "validatingwebhookconfigurations",
			Cluster: true},
		{Kind: "CSIDriver", Group: storage, Resource: "csidrivers", Cluster: true, Base: m{"spec": m{}}},
		{Kind: "CSINode", Group: storage, Resource: "csinodes", Cluster: true, Base: m{"spec": m{"drivers": []any{}}}},
		{Kind: "CSIStorageCapacity", Group: storage, Resource: "csistoragecapacities",
			Base: m{"storageClassName": "shelf"}},
		{Kind: "VolumeAttachment", Group: storage, Resource: "volumeattachments", Cluster: true, Base: m{"spec": m{
			"attacher": driver, "nodeName": "shelf", "source": m{"persistentVolumeName": "shelf"}}}},
		{Kind: "ResourceClaim", Group: "resource.k8s.io", Resource: "resourceclaims", Base: m{"spec": m{}}},
	}
	for i := range more {
		more[i].Version = "v1"
	}
	return append(lab.SampleKinds(), more...)
}

// replaceableKinds are the kinds that kube-apiserver says it serves to be created and replaced, in the version that it
// prefers, without custom resources. Those of validKinds come with what makes an object valid, the others with nothing.
func replaceableKinds(l *lab.Lab) []lab.Kind {
	valid := map[schema.GroupVersionKind]lab.Kind{}
	for _, kind := range validKinds(l) {
		valid[kind.GVK()] = kind
	}
	api, err := discovery.NewDiscoveryClientForConfig(l.As("").Config()) // off the tape
	require.NoError(l, err, "making a client for discovery")
	served, err := api.ServerPreferredResourcesWithContext(l.Context())
	if !discovery.IsGroupDiscoveryFailedError(err) { // the custom resources of other lessons may go at any time
		require.NoError(l, err, "asking kube-apiserver what it serves")
	}
	kinds := map[string]lab.Kind{} // by name: events are served in two groups and are the same objects
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"create", "update"}}, served) {
		of, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(l, err, "reading what kube-apiserver serves")
		for _, r := range list.APIResources {
			kind := lab.Kind{Kind: r.Kind, Group: of.Group, Version: of.Version, Resource: r.Name, Cluster: !r.Namespaced}
			_, known := kinds[r.Kind]
			if known || strings.HasSuffix(of.Group, ".modrev.example") {
				continue
			}
			if with, ok := valid[kind.GVK()]; ok {
				kind = with
			}
			kinds[r.Kind] = kind
		}
	}
	return slices.SortedFunc(maps.Values(kinds), func(a, b lab.Kind) int { return cmp.Compare(a.Kind, b.Kind) })
}

func TestCF15_IfMatchMeansNothingHere(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF15", From: "+",
		Says: "the header If-Match means nothing to the apiserver: it neither refuses a fresh replace nor protects one " +
			"without a token; the precondition goes into the body",
		Why:     "what every HTTP handbook teaches compiles, answers 200, and checks nothing",
		FalseIf: world.IfMatchIsTheToken.Shows(`a replace with the current token, If-Match: "nonsense" was refused`),
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
		replace := func(with, match string, o *lab.Object) error {
			_, err := l.WithHeader("If-Match", strconv.Quote(match)).TryReplace(o, "color=green")
			table.Row(with, strconv.Quote(match), lab.AnswerLine(err))
			return err
		}

		err := replace("the current token", "nonsense", now)
		l.Accepted(err, `a replace with the current token, If-Match: "nonsense"`)
		err = replace("no token", read.GetResourceVersion(), lab.WithToken(read, ""))
		l.Accepted(err, "a replace without a token, If-Match: the stale version")
		err = replace("a stale token", l.Peek("shelf").GetResourceVersion(), read)
		l.Refused(err, "a replace with a stale token, If-Match: the current version", lab.Stale(read))
		table.End()
	})
}
