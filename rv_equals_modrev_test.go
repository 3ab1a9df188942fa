// Chapter 1. An object's metadata.resourceVersion is the mod_revision of its key in etcd.
//
// The book is read with: go test -v .
package modrev

import (
	"os"
	"slices"
	"strconv"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/record"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

// book is the lessons in reading order.
var book = lesson.Book{
	{
		Title: "resourceVersion is mod_revision",
		Intro: "etcd counts the transactions that change something; the count is called the revision. For every key it keeps the revision of the " +
			"last write to it, the mod_revision. This chapter shows that metadata.resourceVersion is that number, for objects, " +
			"lists and watches, and what follows when a revision is shared, old, or gone.",
		Parts: []lesson.Part{
			{Title: "one object", Lessons: "RV1 RV2 RV3 RV4 RV5"},
			{Title: "what a write is", Lessons: "RV8 RV8b RV9 RV12"},
			{Title: "lists and watches", Lessons: "RV6 RV7 RV10 RV11"},
		},
	},
	{
		Title: "conflict",
		Intro: "A client that replaces an object sends the resourceVersion that it has read. This chapter shows who refuses " +
			"a stale one, where, and with what in hand; which other refusals look like it; and what is not refused at all.",
		Parts: []lesson.Part{
			{Title: "who refuses", Lessons: "CF1 CF1b CF2 CF3 CF3b CF4 CF4b CF5"},
			{Title: "without a token", Lessons: "CF6 CF6b CF15"},
			{Title: "patches", Lessons: "CF7 CF7b CF7c CF7d CF16"},
			{Title: "other refusals", Lessons: "CF8 CF8b CF8c CF8d CF8f CF8g"},
			{Title: "deletes and finalizers", Lessons: "CF8e CF9 CF9b CF12 CF12b"},
			{Title: "options and parameters", Lessons: "CF20 CF21 CF21b CF22 CF23 CF24 CF25"},
			{Title: "many writers", Lessons: "CF10 CF11 CF13 CF14"},
		},
	},
	{
		Title: "the transaction behind it",
		Intro: "What changes an object is one etcd transaction: a compare, a then branch and, except in the create of a POST, " +
			"an else branch. This chapter reads it in the source, watches it on the wire, and takes it apart to see what each " +
			"piece buys.",
		Parts: []lesson.Part{
			{Title: "what etcd is asked", Lessons: "GU1 GU2 GU2b GU3"},
			{Title: "the else branch", Lessons: "GU4 GU4b"},
			{Title: "the cache", Lessons: "GU5 GU5b"},
			{Title: "requests that change nothing", Lessons: "GU6 GU6b GU6c"},
			{Title: "the precondition", Lessons: "GU7 GU7b"},
			{Title: "what the compare buys", Lessons: "GU8 GU8b GU9"},
		},
	},
	{
		Title: "treat the token as opaque",
		Intro: "Advice to people who write controllers, at work and ignored: what identifies an object, how to retry, who owns " +
			"a field, what a cache knows, how to tell one failure from another, and what may be read into a token. Where a " +
			"lesson says bad advice, the loss that it causes is shown. A live read is one that no cache answers: a GET " +
			"without a resourceVersion. managedFields, in an object's metadata, says who set which field; \"ann by Update\" and " +
			"\"ann by Apply\" are two owners: one writes with create, replace or patch, the other with server-side apply.",
		Parts: []lesson.Part{
			{Title: "identity", Lessons: "OT1 OT2 OT3"},
			{Title: "replace and retry", Lessons: "OT4 OT5 OT5b OT6 OT6b OT6c OT6d OT7 OT28"},
			{Title: "patch and ownership", Lessons: "OT8 OT8b OT9 OT9b OT29 OT10 OT10b OT10c OT30 OT31 OT11 OT12 OT12b"},
			{Title: "status", Lessons: "OT13 OT14 OT15"},
			{Title: "caches", Lessons: "OT16 OT16b OT16c OT16d OT40 OT41 OT17"},
			{Title: "what a watch tells", Lessons: "OT60 OT61 OT61b OT62 OT63 OT64 OT65 OT66 OT67 OT67b"},
			{Title: "telling errors apart", Lessons: "OT20 OT21 OT21d OT24"},
			{Title: "answers that get lost", Lessons: "OT21b OT21c OT22 OT23 OT23b OT23c"},
			{Title: "names that are used again", Lessons: "OT25 OT25b OT26"},
			{Title: "decisions", Lessons: "OT27 OT27b"},
			{Title: "order", Lessons: "OT18 OT19 OT43"},
			{Title: "which number an answer carries", Lessons: "OT70 OT71 OT72 OT73 OT74 OT75"},
			{Title: "fakes", Lessons: "OT42"},
		},
	},
	{
		Title: "the modular lab, and equality tokens",
		Intro: "A warning and its counterpart: labels that look like numbers and wrap, and a register whose tokens are only " +
			"ever equal or not, which is all that a client needs.",
		Parts: []lesson.Part{
			{Title: "the modular lab", Lessons: "ML1 ML2 ML3 ML4"},
			{Title: "equality tokens", Lessons: "ML5 ML5b ML5d ML5c"},
		},
	},
}

func TestMain(m *testing.M) { os.Exit(lesson.Main(m, book)) }

// CLAIMS.md says what the lessons say: it is made from them.
func TestTheLedgerIsWhatTheLessonsClaim(t *testing.T) {
	lesson.Ledger(t, "CLAIMS.md", t.Name())
}

func TestRV1_ACreatedObjectsResourceVersionIsTheModRevisionAndTheCreateRevisionOfItsKey(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV1", From: "D1 Claim",
		Says: "a created object's resourceVersion, its key's mod_revision and its create_revision are one number, " +
			"and its version in etcd is 1",
		Why:     "the apiserver makes up no number of its own: it reports the revision of the transaction that wrote the object",
		FalseIf: world.EtcdReportsALaterRevision.Shows(`resourceVersion \d+, mod_revision \d+`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).Create"),
	}, func(l *lab.Lab) {
		var shelf *lab.Object
		sent := l.Record(func() { shelf = l.Create("shelf", "color=red") })
		stored := l.KV(shelf)

		table := l.Table("step", "resourceVersion", "mod_revision", "create_revision", "version")
		table.Row("create color=red", shelf.GetResourceVersion(), stored.ModRevision, stored.CreateRevision, stored.Version)
		table.End()
		l.Show("POST configmaps/shelf", sent)

		l.Expect(number(shelf) == stored.ModRevision && number(shelf) == stored.CreateRevision,
			"resourceVersion, mod_revision and create_revision are one number",
			"resourceVersion %d, mod_revision %d, create_revision %d", number(shelf), stored.ModRevision, stored.CreateRevision)
		l.Expect(stored.Version == 1, "version is 1", "version is %d", stored.Version)
		l.Sends(sent, "a create", "1 Txn")
	})
}

func TestRV2_ResourceVersionIsTheModRevisionOfItsKey(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV2", From: "D1 Do 3, Expect 1",
		Says: "after every update, an object's resourceVersion is the mod_revision of its key: the same number, not a near one; " +
			"create_revision stays and version counts",
		Why:     "a client can hold etcd's own number in its hands, and that is what a later compare is about",
		FalseIf: world.AnswersAreOneTooHigh.Shows(`resourceVersion \d+, mod_revision \d+ after "create a=1"`),
		AlsoFalseIf: []world.World{
			world.UpdatesStartTheKeyAnew.Shows(`version 1 after "replace a=2"`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage", "APIObjectVersioner.UpdateObject"),
	}, func(l *lab.Lab) {
		table := l.Table("step", "resourceVersion", "mod_revision", "create_revision", "version")
		same := func(step string, rv *lab.Object, version int64) lab.KeyValue {
			stored := l.KV(rv)
			table.Row(step, rv.GetResourceVersion(), stored.ModRevision, stored.CreateRevision, stored.Version)
			l.Expect(number(rv) == stored.ModRevision, "resourceVersion and mod_revision are the same number",
				"resourceVersion %d, mod_revision %d after %q", number(rv), stored.ModRevision, step)
			l.Expect(stored.Version == version, "version counts the writes to the key",
				"version %d after %q", stored.Version, step)
			return stored
		}

		rv := l.Create("rv", "a=1")
		created := same("create a=1", rv, 1)
		var sent wire.Requests
		for i := int64(2); i <= 4; i++ {
			field := "a=" + strconv.FormatInt(i, 10)
			l.Settle(rv)
			sent = l.Record(func() { rv = l.Replace(rv, field) })
			stored := same("replace "+field, rv, i)
			l.WriteDown(record.PairedNumbers, "k8s=%s  etcd=%d", rv.GetResourceVersion(), stored.ModRevision)
			l.Expect(stored.CreateRevision == created.CreateRevision, "create_revision stays what it was",
				"create_revision %d, was %d", stored.CreateRevision, created.CreateRevision)
		}

		table.End()
		l.WriteDown(record.PairsEqual, "equal")
		l.Show("PUT configmaps/rv, with the resourceVersion of the step before", sent)
	})
}

func TestRV3_ItIsSoForEveryKindAndForEveryStoredObject(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV3", From: "D1 Claim; +",
		Says: "resourceVersion is mod_revision for every kind, whatever its encoding and the layout of its key, " +
			"and the stored bytes hold no resourceVersion at all: it is put in on reading",
		Why:     "the rule belongs to the storage layer that all kinds share, not to a kind",
		FalseIf: world.AnswersAreOneTooHigh.Shows(`ConfigMap .*: resourceVersion \d+, mod_revision \d+`),
		AlsoFalseIf: []world.World{
			world.ObjectsAreStoredWithANumber.Shows(`configmaps/.* holds resourceVersion 1`),
			world.OthersAreListedOneTooHigh.Shows(`/registry/.*: resourceVersion \d+, mod_revision \d+`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*defaultDecoder).Decode"),
	}, func(l *lab.Lab) {
		table := l.Table("key in etcd", "stored as", "resourceVersion", "mod_revision")
		kinds := append(lab.SampleKinds(), l.CustomResource())
		created := map[string]bool{}
		for i, kind := range kinds {
			o, key := l.CreateEvery(kind, i)
			created[key] = true
			stored := l.KVAt(key)
			bytes := l.DecodeStored(stored.Value)
			table.Row(wire.ShortKey(key), bytes.Encoding, o.GetResourceVersion(), stored.ModRevision)
			l.Expect(number(o) == stored.ModRevision, "resourceVersion and mod_revision are the same number",
				"%s %s: resourceVersion %d, mod_revision %d", kind.Kind, o.GetName(), number(o), stored.ModRevision)
			l.Expect(bytes.ResourceVersion == "", "the stored bytes hold no resourceVersion",
				"%s holds resourceVersion %s", key, bytes.ResourceVersion)
		}
		table.End()

		// Store and lists are read at one revision, so nothing can have moved in between.
		defer l.KeepHistory()()
		served := l.Kinds()
		objects, revision := l.Store()
		read := map[string]map[string]*lab.Object{}
		walked, own, internal, tampered := 0, 0, 0, 0
		for _, stored := range objects {
			kind, ok := served[stored.Kind]
			if !ok || stored.Name == "" {
				internal++ // what the apiserver keeps for itself, such as the allocation of service addresses
				continue
			}
			of := stored.Kind.String()
			if read[of] == nil {
				read[of] = l.Everywhere(kind, revision)
			}
			o := read[of][stored.Namespace+"/"+stored.Name]
			if o == nil || number(o) != stored.ModRevision {
				if l.Session().Wire().Tampered(stored.Key) {
					tampered++
					continue
				}
				l.Expect(o != nil, "every stored object is listed", "%s is not", stored.Key)
				l.Expect(false, "resourceVersion is the mod_revision of the key",
					"%s: resourceVersion %d, mod_revision %d", stored.Key, number(o), stored.ModRevision)
			}
			walked++
			if created[stored.Key] {
				own++
			}
		}
		l.Say("%d kinds were created, and then every object of the store was read through the API: %d have the "+
			"mod_revision of their key as resourceVersion. %d more keys are the apiserver's own and not served.",
			len(kinds), walked, internal)
		if tampered > 0 {
			l.Say("Of %d more the apiserver's cache holds another version, because the false world of another lesson has kept "+
				"an event from it.", tampered)
		}
		l.Expect(len(kinds) >= 20 && own == len(kinds) && walked > own,
			"at least 20 kinds are walked, and objects that this lesson has not created",
			"%d kinds were created, %d of their objects walked, and %d others", len(kinds), own, walked-own)
	})
}

func TestRV4_TheApiserverKeepsNoCounterOfItsOwn(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV4", From: "D1 Expect 1",
		Says: "the apiserver keeps no counter: revisions that others spend on etcd are missing from its numbers",
		Why: "resourceVersions have gaps that say nothing about the object; only etcd counts, and it counts " +
			"for everybody who writes to it",
		FalseIf: world.ServerCountsItself.Shows(`jumped by \d+ over 50 foreign writes`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).Create"),
	}, func(l *lab.Lab) {
		before := l.Create("before", "a=1")
		const foreign = 50
		for range foreign {
			_, err := l.Etcd().Put(l.Context(), "/not-kubernetes/"+l.Namespace, "x")
			l.Step(err, "writing a key of our own into etcd")
		}
		after := l.Create("after", "a=1")

		table := l.Table("step", "resourceVersion")
		table.Row("create configmaps/before", before.GetResourceVersion())
		table.Row("50 writes to etcd by somebody else", "(none is given out)")
		table.Row("create configmaps/after", after.GetResourceVersion())
		table.End()

		jump := number(after) - number(before)
		l.Expect(number(before) == l.KV(before).ModRevision && number(after) == l.KV(after).ModRevision,
			"both numbers are etcd's", "the number jumped by %d over %d foreign writes, and is not the mod_revision", jump, foreign)
		l.Expect(jump > foreign, "the next number is more than 50 higher (the apiserver writes objects of its own, too)",
			"the number jumped by %d over %d foreign writes", jump, foreign)
	})
}

func TestRV5_CreateRevisionEqualsModRevisionOnlyUntilTheFirstUpdate(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV5", From: "D1 Expect 4",
		Says: "create_revision equals mod_revision only until the first update; deleted and recreated, an object starts " +
			"again with version 1 and a new create_revision, while mod_revision goes on",
		Why:     "mod_revision never starts again, so a token of an earlier incarnation cannot fit a later one by accident",
		FalseIf: world.KeysOutliveTheirDeletion.Shows(`version 3, create_revision \d+`),
		AlsoFalseIf: []world.World{
			world.UpdatesStartTheKeyAnew.Shows(`create_revision (\d+), mod_revision \d+$`),
		},
		Read: source.Decl("go.etcd.io/etcd/server/v3/storage/mvcc", "(*keyIndex).put"),
	}, func(l *lab.Lab) {
		table := l.Table("step", "mod_revision", "create_revision", "version")
		stored := func(step string, o *lab.Object) lab.KeyValue {
			kv := l.KV(o)
			table.Row(step, kv.ModRevision, kv.CreateRevision, kv.Version)
			return kv
		}
		shelf := l.Create("shelf", "color=red")
		created := stored("create", shelf)
		updated := stored("replace", l.Replace(shelf, "color=blue"))
		recreated := stored("delete and create", l.Recreate("shelf", "color=red"))
		table.End()

		l.Expect(created.CreateRevision == created.ModRevision, "both are one number after the create",
			"create_revision %d, mod_revision %d", created.CreateRevision, created.ModRevision)
		l.Expect(updated.CreateRevision == created.CreateRevision && updated.ModRevision > updated.CreateRevision,
			"after an update only mod_revision has moved",
			"create_revision %d, mod_revision %d", updated.CreateRevision, updated.ModRevision)
		l.WriteDown(record.CreateRevision, "stays")
		l.Expect(recreated.Version == 1 && recreated.CreateRevision == recreated.ModRevision,
			"the new incarnation has version 1 and a create_revision of its own",
			"version %d, create_revision %d, mod_revision %d", recreated.Version, recreated.CreateRevision, recreated.ModRevision)
		l.Expect(recreated.ModRevision > updated.ModRevision, "mod_revision goes on",
			"mod_revision %d after %d", recreated.ModRevision, updated.ModRevision)
	})
}

func TestRV8_AnAcceptedPatchIsOneStorageWriteAndANoOpIsNone(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV8", From: "D1 Observe",
		Says: "an accepted patch is one storage write of the object: one transaction and one PUT event; a refused write, a dry run, " +
			"and a no-op (what it would store is byte for byte what is stored) are none",
		Why: "a new resourceVersion means that something was stored; a request that stores nothing wakes no watcher and " +
			"cannot serve as a heartbeat",
		FalseIf: world.StoredInAnotherEncoding.Shows(`a patch that changes nothing cost etcd: 1 Range, 1 Txn`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`a replace with a stale token cost etcd: 1 Txn`),
			world.DryRunsAreReal.Shows(`a patch as a dry run cost etcd: 1 Txn`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#55",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		key := l.Key(shelf)
		puts := l.WatchEtcd(key, number(shelf))
		table := l.Table("request", "answer", "to etcd", "storage writes", "version")
		try := func(request, cost string, do func() error) {
			l.Settle(l.Peek("shelf"))
			before := l.KV(shelf)
			var err error
			sent := l.Record(func() { err = do() })
			after := l.KV(shelf)
			table.Row(request, lab.AnswerLine(err), sent.Summary(), after.Version-before.Version, after.Version)
			l.Sends(sent, request, cost)
		}
		merge := func(body string, o metav1.PatchOptions) func() error {
			return func() error {
				_, err := l.TryPatchWith("shelf", types.MergePatchType, body, o)
				return err
			}
		}

		try("a patch that changes color", "1 Txn", merge(`{"data":{"color":"blue"}}`, metav1.PatchOptions{}))
		try("a patch that changes nothing", "1 Range", merge(`{"data":{"color":"blue"}}`, metav1.PatchOptions{}))
		l.WriteDown(record.NoOpCost, "1 Range")
		try("a replace with a stale token", "1 Range", func() error {
			_, err := l.TryReplace(shelf, "color=green")
			return err
		})
		try("a patch as a dry run", "1 Range", merge(`{"data":{"color":"black"}}`,
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}))
		try("one more patch that changes color", "1 Txn", merge(`{"data":{"color":"white"}}`, metav1.PatchOptions{}))
		table.End()

		events := puts.Until(l.KV(shelf).ModRevision)
		l.Expect(len(events) == 2, "etcd's own watch saw two PUT events, one for each accepted patch",
			"etcd's watch saw %d events: %v", len(events), events)
	})
}

func TestRV8b_APatchThatChangesNothingRewritesWhatIsEncodedOtherwise(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV8b", From: "D1 Observe; +",
		Says: "what counts is the bytes: a patch that changes nothing is a storage write after all when the object is stored in " +
			"another encoding than the server would give it",
		Why: "this is how a storage migration works: every object is written once more as it is, and only those that are " +
			"stored in the old way are stored anew",
		FalseIf: world.ReadsAreProtobuf.Shows(`an empty patch, stored as JSON, cost etcd: 1 Range$`),
		AlsoFalseIf: []world.World{
			world.StoredInAnotherEncoding.Shows(`stored as JSON$`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#55",
	}, func(l *lab.Lab) {
		shelf := l.Reencode(l.Create("shelf", "color=red")) // put into etcd as JSON, by its own API
		table := l.Table("step", "to etcd", "resourceVersion", "stored as")
		row := func(step, cost string) {
			table.Row(step, cost, l.Peek("shelf").GetResourceVersion(), l.DecodeStored(l.KV(shelf).Value).Encoding)
		}
		row("the object, put into etcd as JSON", "")
		empty := func() { l.Settle(l.Patch("shelf", types.MergePatchType, `{}`)) }

		first := l.Record(empty)
		row("an empty patch", first.Summary())
		moved, stored := l.Peek("shelf"), l.DecodeStored(l.KV(shelf).Value)
		second := l.Record(empty)
		row("the same patch again", second.Summary())
		table.End()
		l.Sends(first, "an empty patch, stored as JSON,", "1 Range, 1 Txn")
		l.Expect(number(moved) > number(shelf) && stored.Encoding == "protobuf", "the number moves, and the bytes are protobuf again",
			"it is %s, was %s, stored as %s", moved.GetResourceVersion(), shelf.GetResourceVersion(), stored.Encoding)
		l.Sends(second, "the same patch, stored as protobuf,", "1 Range")
	})
}

func TestRV9_TwoKeysOfOneEtcdTransactionShareAResourceVersion(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV9", From: "D1 Rests on",
		Says: "two keys that are written in one etcd transaction share a mod_revision, and the apiserver serves both " +
			"objects with that one resourceVersion; kube-apiserver itself puts one object per transaction, always",
		Why: "within a revision etcd tells keys apart by a sub revision that no API shows; a client which resumes a watch " +
			"after the first of two such events never sees the second",
		FalseIf: world.EachKeyHasARevisionOfItsOwn.Shows(`a has \d+, b has \d+`),
		AlsoFalseIf: []world.World{
			world.EachEventHasARevisionOfItsOwn.Shows(`in the list a has \d+, b has \d+`),
		},
		Read: source.Decl("go.etcd.io/etcd/server/v3/storage/mvcc", "Revision"),
	}, func(l *lab.Lab) {
		defer l.KeepHistory()()
		shelves := l.Of(l.CustomResource())
		a, b := shelves.Create("a", "color=red"), shelves.Create("b", "color=red")
		from := shelves.List().GetResourceVersion()

		resp, err := l.Etcd().Txn(l.Context()).Then(
			clientv3.OpPut(l.Key(a), string(l.KV(a).Value)),
			clientv3.OpPut(l.Key(b), string(l.KV(b).Value)),
		).Commit()
		l.Step(err, "writing both keys in one transaction, behind the apiserver's back")
		shared := strconv.FormatInt(resp.Header.Revision, 10)

		l.Create("gap", "a=1") // so that the fence is not at the next revision, which a false world uses
		fence := shelves.Create("fence", "color=red")
		l.Settle(fence) // the cache takes in one event after the other

		a, b = shelves.Get("a"), shelves.Get("b")
		list := shelves.List()
		table := l.Table("", "a", "b")
		table.Row("mod_revision in etcd", l.KV(a).ModRevision, l.KV(b).ModRevision)
		table.Row("resourceVersion by get", a.GetResourceVersion(), b.GetResourceVersion())
		table.Row("resourceVersion by list", list.Items[0].GetResourceVersion(), list.Items[1].GetResourceVersion())
		l.Expect(a.GetResourceVersion() == shared && b.GetResourceVersion() == shared,
			"both are served with the revision of the transaction, "+shared,
			"a has %s, b has %s", a.GetResourceVersion(), b.GetResourceVersion())
		l.Expect(list.Items[0].GetResourceVersion() == shared && list.Items[1].GetResourceVersion() == shared,
			"a list says the same", "in the list a has %s, b has %s",
			list.Items[0].GetResourceVersion(), list.Items[1].GetResourceVersion())

		watch := shelves.Watch(from)
		first, second := watch.Next(), watch.Next()
		table.Row("resourceVersion by watch", first.ResourceVersion, second.ResourceVersion)
		table.End()
		l.Expect(first.ResourceVersion == shared && second.ResourceVersion == shared, "so does a watch",
			"the watch delivered %s and %s", first.ResourceVersion, second.ResourceVersion)

		// A client that has seen only the first of the two, and resumes from its number:
		resumed := shelves.Watch(first.ResourceVersion)
		next := resumed.Next()
		l.Say("A watch that is resumed from %s, after the event of %s, next delivers %s at %s: the event of %s is never "+
			"seen.", first.ResourceVersion, first.Name, next.Name, next.ResourceVersion, second.Name)
		l.Expect(next.ResourceVersion == fence.GetResourceVersion(),
			"a watch resumed between the two events does not deliver the second", "it delivered %s at %s", next.Name, next.ResourceVersion)

		l.Expect(len(l.Session().Wire().MultiKeyTxns()) == 0, "kube-apiserver puts one object per transaction",
			"it sent %v", l.Session().Wire().MultiKeyTxns())
	})
}

func TestRV12_AWriteBehindTheApiserversBackCounts(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV12", From: "+",
		Says: "a write behind the apiserver's back counts: put the same bytes into etcd, and the resourceVersion moves, a " +
			"MODIFIED event is delivered, and the old token conflicts",
		Why:     "the number is a fact about the key in etcd, and not about what the apiserver did or what the object says",
		FalseIf: world.AnEventIsSwallowed.Shows(`the watch delivered \[\d+\]`),
		AlsoFalseIf: []world.World{
			world.ClientTransplantsTheToken.Shows(`a replace with the token from before the put was accepted`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*watchChan).transform"),
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		shelf := shelves.Create("shelf", "color=red")
		watch := shelves.Watch(shelf.GetResourceVersion())

		put, err := l.Etcd().Put(l.Context(), l.Key(shelf), string(l.KV(shelf).Value))
		l.Step(err, "putting the same bytes into etcd")
		moved := shelves.Get("shelf")
		fence := shelves.Create("fence", "color=red")
		_, stale := shelves.TryReplace(shelf, "color=blue")

		table := l.Table("step", "resourceVersion")
		table.Row("create", shelf.GetResourceVersion())
		table.Row("the same bytes again, by etcd's own API", moved.GetResourceVersion())
		table.End()
		l.Expect(number(moved) == put.Header.Revision, "the resourceVersion is the revision of that put",
			"it is %s, the put was %d", moved.GetResourceVersion(), put.Header.Revision)
		var seen []int64
		for _, ev := range watch.Until(fence.GetResourceVersion()) {
			seen = append(seen, numberOf(ev.ResourceVersion))
		}
		l.Expect(slices.Equal(seen, []int64{number(moved), number(fence)}),
			"a watch delivers the put as an event, and then the next create", "the watch delivered %v", seen)
		l.Refused(stale, "a replace with the token from before the put", lab.Stale(shelf))
		l.Say("A replace with the token from before it: %s", l.Describe(stale))
	})
}

// number is an object's resourceVersion as a number, to compare it with etcd's.
func number(o *lab.Object) int64 { return numberOf(o.GetResourceVersion()) }

func numberOf(resourceVersion string) int64 {
	n, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
