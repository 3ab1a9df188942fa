// Chapter 1. An object's metadata.resourceVersion is the mod_revision of its key in etcd.
//
// The book is read with: go test -v .
package modrev

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

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
		Intro: "etcd counts the transactions that change something; the count is called the revision. For every key " +
			"it keeps the revision of the last write to it, the mod_revision. This chapter shows that " +
			"metadata.resourceVersion is that number, for objects, lists and watches, and what follows when a revision " +
			"is shared, old, or gone.",
		Parts: []lesson.Part{
			{Title: "one object", Lessons: "RV1 RV2 RV3 RV4 RV5"},
			{Title: "what a write is", Lessons: "RV8 RV8b RV9 RV12"},
			{Title: "lists and watches", Lessons: "RV6 RV7 RV10 RV11"},
		},
	},
	{
		Title: "conflict",
		Intro: "A client that replaces an object sends the resourceVersion that it has read. This chapter shows who " +
			"refuses a stale one, where, and with what in hand; which other refusals look like it; and what is not " +
			"refused at all.",
		Parts: []lesson.Part{
			{Title: "who refuses", Lessons: "CF1 CF1b CF2 CF3 CF3b CF4 CF4b CF5"},
			{Title: "without a token", Lessons: "CF6 CF6b CF15"},
			{Title: "patches", Lessons: "CF7 CF7b CF7c CF7d CF16"},
			{Title: "other refusals", Lessons: "CF8 CF8b CF8c CF8d CF8f CF8g"},
			{Title: "refusals that are not what they seem", Lessons: "CF30 CF31 CF32 CF33 CF35 CF34"},
			{Title: "deletes and finalizers", Lessons: "CF8e CF9 CF9b CF12 CF12b"},
			{Title: "options and parameters", Lessons: "CF20 CF21 CF21b CF22 CF23 CF24 CF25"},
			{Title: "many writers", Lessons: "CF10 CF11 CF13 CF14"},
		},
	},
	{
		Title: "the transaction behind it",
		Intro: "What changes an object is one etcd transaction: a compare, a then branch and, except in the create of a " +
			"POST, an else branch. This chapter reads it in the source, watches it on the wire, and takes it apart to see " +
			"what each piece buys.",
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
		Intro: "Advice to people who write controllers, at work and ignored: what identifies an object, how to retry, who " +
			"owns a field, what a cache knows, how to tell one failure from another, and what may be read into a token. " +
			"Where a lesson says bad advice, the loss that it causes is shown. A live read is one that no cache answers: " +
			"a GET without a resourceVersion. managedFields, in an object's metadata, says who set which field; \"ann by " +
			"Update\" and \"ann by Apply\" are two owners: one writes with create, replace or patch, the other with " +
			"server-side apply.",
		Parts: []lesson.Part{
			{Title: "identity", Lessons: "OT1 OT2 OT3"},
			{Title: "replace and retry", Lessons: "OT4 OT5 OT5b OT6 OT6b OT6c OT6d OT7"},
			{Title: "patch and ownership", Lessons: "OT8 OT8b OT9 OT9b OT29 OT10 OT10b OT10d OT11 OT12 OT12b"},
			{Title: "lists that merge", Lessons: "OT37 OT38 OT38b"},
			{Title: "what a library does to your object", Lessons: "OT32 OT32b OT34 OT36 OT36b OT28 OT35"},
			{Title: "status", Lessons: "OT13 OT14 OT15"},
			{Title: "which door lets through what", Lessons: "OT100 OT101 OT102 OT103"},
			{Title: "status speaks of a decision", Lessons: "OT39 OT39b OT39c"},
			{Title: "caches", Lessons: "OT16 OT16b OT16c OT16d OT40 OT41 OT17"},
			{Title: "what a watch tells", Lessons: "OT60 OT61 OT61b OT62 OT63 OT64 OT65 OT66 OT67"},
			{Title: "telling errors apart", Lessons: "OT20 OT21 OT21d OT24"},
			{Title: "answers that get lost", Lessons: "OT21b OT21c OT22 OT23 OT23b OT23c"},
			{Title: "names that are used again", Lessons: "OT25 OT25b OT26"},
			{Title: "decisions", Lessons: "OT27b"},
			{Title: "admission is part of the attempt", Lessons: "OT50 OT51 OT51b OT52 OT52b OT53 OT53b OT53c OT54"},
			{Title: "several views of one object", Lessons: "OT80 OT81 OT81b OT82 OT82b OT83 OT84 OT85 OT85b OT86 OT86b OT87 " +
				"OT88 OT89"},
			{Title: "order", Lessons: "OT18 OT19 OT43"},
			{Title: "which number an answer carries", Lessons: "OT70 OT71 OT72 OT73 OT74 OT75"},
			{Title: "fakes", Lessons: "OT42"},
		},
	},
	{
		Title: "the modular lab, and equality tokens",
		Intro: "A warning and its counterpart: labels that look like numbers and wrap, and a register whose tokens are " +
			"only ever equal or not, which is all that a client needs.",
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
		Why: "the apiserver makes up no number of its own: it reports the revision of the transaction that wrote " +
			"the object",
		FalseIf: world.EtcdReportsALaterRevision.Shows(`resourceVersion \d+, mod_revision \d+`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).Create"),
	}, func(l *lab.Lab) {
		var shelf *lab.Object
		sent := l.Record(func() { shelf = l.Create("shelf", "color=red") })
		stored := l.KV(shelf)

		table := l.Table("step", "resourceVersion", "mod_revision", "create_revision", "version")
		table.Row("create color=red", shelf.GetResourceVersion(),
			stored.ModRevision, stored.CreateRevision, stored.Version)
		table.End()
		l.Show("POST configmaps/shelf", sent)

		l.Expect(number(shelf) == stored.ModRevision, "resourceVersion and mod_revision are one number",
			"resourceVersion %d, mod_revision %d", number(shelf), stored.ModRevision)
		l.Equal("create_revision", stored.CreateRevision, stored.ModRevision)
		l.Equal("version", stored.Version, 1)
		l.Sends(sent, "a create", "1 Txn")
	})
}

func TestRV2_ResourceVersionIsTheModRevisionOfItsKey(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV2", From: "D1 Do 3, Expect 1",
		Says: "after every update, an object's resourceVersion is the mod_revision of its key: the same number, not a " +
			"near one; create_revision stays and version counts",
		Why:     "a client can hold etcd's own number in its hands, and that is what a later compare is about",
		FalseIf: world.AnswersAreOneTooHigh.Shows(`resourceVersion \d+, mod_revision \d+ after "create a=1"`),
		AlsoFalseIf: []world.World{
			world.UpdatesStartTheKeyAnew.Shows(`version 1 after "replace a=2"`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage", "APIObjectVersioner.UpdateObject"),
	}, func(l *lab.Lab) {
		table := l.Table("step", "resourceVersion", "mod_revision", "create_revision", "version")
		stored := func(step string, rv *lab.Object, version int64) lab.KeyValue {
			kv := l.KV(rv)
			table.Row(step, rv.GetResourceVersion(), kv.ModRevision, kv.CreateRevision, kv.Version)
			l.Expect(number(rv) == kv.ModRevision, "resourceVersion and mod_revision are the same number",
				"resourceVersion %d, mod_revision %d after %q", number(rv), kv.ModRevision, step)
			l.Expect(kv.Version == version, "version counts the writes to the key", "version %d after %q", kv.Version, step)
			return kv
		}

		rv := l.Create("rv", "a=1")
		created := stored("create a=1", rv, 1)
		var sent wire.Requests
		for version := int64(2); version <= 4; version++ {
			field := fmt.Sprintf("a=%d", version)
			l.Settle(rv)
			sent = l.Record(func() { rv = l.Replace(rv, field) })
			replaced := stored("replace "+field, rv, version)
			l.WriteDown(record.PairedNumbers, "k8s=%s  etcd=%d", rv.GetResourceVersion(), replaced.ModRevision)
			l.Equal("create_revision after the update", replaced.CreateRevision, created.CreateRevision)
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
		shelf := l.CustomResource()
		kinds := append(lab.SampleKinds(), shelf)
		created := map[string]bool{}
		for i, kind := range kinds {
			o := l.Of(kind).Create(fmt.Sprintf("%s-%d", l.Namespace, i))
			kv := storedUnder(l, o.GetName())
			stored, encoding := decoded(l, kv.Value)
			table.Row(wire.ShortKey(string(kv.Key)), encoding, o.GetResourceVersion(), kv.ModRevision)
			l.Expect(number(o) == kv.ModRevision, "resourceVersion and mod_revision are the same number",
				"%s %s: resourceVersion %d, mod_revision %d", kind.Kind, o.GetName(), number(o), kv.ModRevision)
			l.Expect(stored.ResourceVersion == "", "the stored bytes hold no resourceVersion",
				"%s holds resourceVersion %s", kv.Key, stored.ResourceVersion)
			created[string(kv.Key)] = true
		}
		table.End()

		defer l.KeepHistory()()
		seen := readAll(l, shelf, created)
		l.Say("%d kinds were created, and then every object of the store was read through the API: %d have the "+
			"mod_revision of their key as resourceVersion. %d more keys are the apiserver's own and not served.",
			len(kinds), seen.equal, seen.internal)
		if seen.tampered > 0 {
			l.Say("Of %d more the apiserver's cache holds another version, because the false world of another lesson "+
				"has kept an event from it.", seen.tampered)
		}
		l.Equal("the number of this lesson's objects among them", seen.own, len(kinds))
		l.Expect(seen.equal > seen.own, "there are objects among them that this lesson has not created", "there are none")
	})
}

// inStore counts the objects of the store: those whose resourceVersion is their key's mod_revision, those of them
// that the lesson has created, what the apiserver keeps for itself, and what the world of another lesson has changed.
type inStore struct{ equal, own, internal, tampered int }

// readAll reads every object of the store through the API. The store and the lists are read at one revision, so
// nothing can have moved in between.
func readAll(l *lab.Lab, shelf lab.Kind, created map[string]bool) (seen inStore) {
	store, err := l.Etcd().Get(l.Context(), "/registry/", clientv3.WithPrefix())
	require.NoError(l, err, "reading all of etcd")
	api := newSnapshot(l, store.Header.Revision)
	for _, kv := range store.Kvs {
		key := string(kv.Key)
		if strings.Contains(key, ".modrev.example/") && !strings.HasPrefix(key, shelf.StoragePrefix()) {
			continue // of another lesson, which counts what kube-apiserver asks for its keys
		}
		o, served := api.find(kv.Value)
		switch {
		case !served:
			seen.internal++ // such as the allocation of service addresses
		case o != nil && number(o) == kv.ModRevision:
			seen.equal++
			if created[key] {
				seen.own++
			}
		case l.Session().Wire().Tampered(key):
			seen.tampered++
		default:
			l.Expect(o != nil, "every stored object is listed", "%s is not", key)
			l.Expect(number(o) == kv.ModRevision, "resourceVersion is the mod_revision of the key",
				"%s: resourceVersion %d, mod_revision %d", key, number(o), kv.ModRevision)
		}
	}
	return seen
}

// storedUnder is what etcd holds of an object whose name no other has. Its key is found by that name, not by a rule.
func storedUnder(l *lab.Lab, name string) *mvccpb.KeyValue {
	keys, err := l.Etcd().Get(l.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(l, err, "reading the keys of etcd")
	at := slices.IndexFunc(keys.Kvs, func(kv *mvccpb.KeyValue) bool {
		return strings.HasSuffix(string(kv.Key), "/"+name)
	})
	require.GreaterOrEqual(l, at, 0, "finding the key that ends with "+name)
	stored, err := l.Etcd().Get(l.Context(), string(keys.Kvs[at].Key))
	require.NoError(l, err, "reading "+string(keys.Kvs[at].Key))
	require.Len(l, stored.Kvs, 1, "reading "+string(keys.Kvs[at].Key))
	return stored.Kvs[0]
}

// decoded is the metadata of an object as it lies in etcd, and its encoding: "protobuf" or "JSON".
func decoded(l *lab.Lab, stored []byte) (*metav1.PartialObjectMetadata, string) {
	o, encoding, err := lab.DecodeStored(stored)
	require.NoError(l, err, "decoding a stored object")
	return o, encoding
}

// A snapshot is what the API serves at one revision, read kind by kind as it is asked for.
type snapshot struct {
	lab      *lab.Lab
	revision int64
	kinds    meta.RESTMapper
	api      dynamic.Interface
	read     map[schema.GroupVersionResource]map[types.NamespacedName]*lab.Object
}

func newSnapshot(l *lab.Lab, revision int64) *snapshot {
	discover, err := discovery.NewDiscoveryClientForConfig(l.As("").Config()) // off the tape
	require.NoError(l, err, "making a client for discovery")
	groups, err := restmapper.GetAPIGroupResources(discover)
	require.NoError(l, err, "asking kube-apiserver what it serves")
	api, err := dynamic.NewForConfig(l.As("writer").Config())
	require.NoError(l, err, "making a client")
	return &snapshot{
		lab: l, revision: revision, kinds: restmapper.NewDiscoveryRESTMapper(groups), api: api,
		read: map[schema.GroupVersionResource]map[types.NamespacedName]*lab.Object{},
	}
}

// find is a stored object as the API lists it, nil if it does not, and whether its kind is served at all.
func (s *snapshot) find(stored []byte) (o *lab.Object, served bool) {
	is, _ := decoded(s.lab, stored)
	kind := is.GroupVersionKind()
	mapping, err := s.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) || is.Name == "" {
		return nil, false
	}
	require.NoError(s.lab, err, "finding the resource of "+kind.String())
	if s.read[mapping.Resource] == nil {
		s.read[mapping.Resource] = s.list(mapping.Resource)
	}
	return s.read[mapping.Resource][types.NamespacedName{Namespace: is.Namespace, Name: is.Name}], true
}

func (s *snapshot) list(resource schema.GroupVersionResource) map[types.NamespacedName]*lab.Object {
	list, err := s.api.Resource(resource).List(s.lab.Context(), metav1.ListOptions{
		ResourceVersion:      strconv.FormatInt(s.revision, 10),
		ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	require.NoError(s.lab, err, "listing "+resource.Resource)
	found := map[types.NamespacedName]*lab.Object{}
	for _, o := range list.Items {
		found[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}] = &o
	}
	return found
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
			require.NoError(l, err, "writing a key of our own into etcd")
		}
		after := l.Create("after", "a=1")

		table := l.Table("step", "resourceVersion")
		table.Row("create configmaps/before", before.GetResourceVersion())
		table.Row("50 writes to etcd by somebody else", "(none is given out)")
		table.Row("create configmaps/after", after.GetResourceVersion())
		table.End()

		jump := number(after) - number(before)
		for _, o := range []*lab.Object{before, after} {
			l.Expect(number(o) == l.KV(o).ModRevision, "both numbers are etcd's",
				"the number jumped by %d over %d foreign writes, and is not the mod_revision", jump, foreign)
		}
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
		FalseIf: world.KeysOutliveTheirDeletion.Shows(`the new incarnation's version is 3`),
		AlsoFalseIf: []world.World{
			world.UpdatesStartTheKeyAnew.Shows(`create_revision after the update is \d+`),
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

		l.Equal("create_revision after the create", created.CreateRevision, created.ModRevision)
		l.Equal("create_revision after the update", updated.CreateRevision, created.CreateRevision)
		l.Expect(updated.ModRevision > created.ModRevision, "an update moves mod_revision",
			"mod_revision %d after %d", updated.ModRevision, created.ModRevision)
		l.WriteDown(record.CreateRevision, "stays")
		l.Equal("the new incarnation's version", recreated.Version, 1)
		l.Equal("its create_revision", recreated.CreateRevision, recreated.ModRevision)
		l.Expect(recreated.ModRevision > updated.ModRevision, "mod_revision goes on",
			"mod_revision %d after %d", recreated.ModRevision, updated.ModRevision)
	})
}

func TestRV8_AnAcceptedPatchIsOneStorageWriteAndANoOpIsNone(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV8", From: "D1 Observe",
		Says: "an accepted patch is one storage write of the object: one transaction and one PUT event; a refused write, " +
			"a dry run, and a no-op (what it would store is byte for byte what is stored) are none",
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
		defer l.KeepHistory()()
		shelf := l.Create("shelf", "color=red")
		table := l.Table("request", "answer", "to etcd", "storage writes", "version")
		costs := func(cost, request string, send func() error) {
			l.Settle(l.Peek("shelf"))
			before := l.KV(shelf).Version
			var err error
			sent := l.Record(func() { err = send() })
			after := l.KV(shelf).Version
			table.Row(request, lab.AnswerLine(err), sent.Summary(), after-before, after)
			l.Sends(sent, request, cost)
		}

		costs("1 Txn", "a patch that changes color", func() error { return errorOf(l.TrySet("shelf", "color=blue")) })
		costs("1 Range", "a patch that changes nothing", func() error { return errorOf(l.TrySet("shelf", "color=blue")) })
		l.WriteDown(record.NoOpCost, "1 Range")
		costs("1 Range", "a replace with a stale token", func() error { return errorOf(l.TryReplace(shelf, "color=green")) })
		dryRun := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
		costs("1 Range", "a patch as a dry run", func() error {
			return errorOf(l.TryPatchWith("shelf", types.MergePatchType, `{"data":{"color":"black"}}`, dryRun))
		})
		costs("1 Txn", "one more patch that changes color", func() error {
			return errorOf(l.TrySet("shelf", "color=white"))
		})
		table.End()

		events := etcdEvents(l, l.Key(shelf), number(shelf), l.KV(shelf).ModRevision)
		l.Equal("the number of events that etcd's own watch saw", len(events), 2) // one for each accepted patch
	})
}

func TestRV8b_APatchThatChangesNothingRewritesWhatIsEncodedOtherwise(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV8b", From: "D1 Observe; +",
		Says: "what counts is the bytes: a patch that changes nothing is a storage write after all when the object is " +
			"stored in another encoding than the server would give it",
		Why: "this is how a storage migration works: every object is written once more as it is, and only those that are " +
			"stored in the old way are stored anew",
		FalseIf: world.ReadsAreProtobuf.Shows(`an empty patch, stored as JSON, cost etcd: 1 Range$`),
		AlsoFalseIf: []world.World{
			world.StoredInAnotherEncoding.Shows(`the stored encoding after it is JSON`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#55",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		asJSON, err := lab.OtherEncoding(l.KV(shelf).Value)
		require.NoError(l, err, "encoding the shelf as JSON")
		put, err := l.Etcd().Put(l.Context(), l.Key(shelf), string(asJSON))
		require.NoError(l, err, "putting the shelf into etcd as JSON")
		shelf.SetResourceVersion(strconv.FormatInt(put.Header.Revision, 10))
		l.Settle(shelf)

		table := l.Table("step", "to etcd", "resourceVersion", "stored as")
		row := func(step, cost string) (stored string) {
			_, stored = decoded(l, l.KV(shelf).Value)
			table.Row(step, cost, l.Peek("shelf").GetResourceVersion(), stored)
			return stored
		}
		empty := func() { l.Settle(l.Patch("shelf", types.MergePatchType, `{}`)) }
		row("the object, put into etcd as JSON", "")
		first := l.Record(empty)
		stored := row("an empty patch", first.Summary())
		moved := l.Peek("shelf")
		second := l.Record(empty)
		row("the same patch again", second.Summary())
		table.End()

		l.Sends(first, "an empty patch, stored as JSON,", "1 Range, 1 Txn")
		l.Expect(number(moved) > number(shelf), "it moves the number",
			"the number is %s, it was %s", moved.GetResourceVersion(), shelf.GetResourceVersion())
		l.Equal("the stored encoding after it", stored, "protobuf")
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
		FalseIf: world.EachKeyHasARevisionOfItsOwn.Shows(`the resourceVersion of [ab] by get is \d+`),
		AlsoFalseIf: []world.World{
			world.EachEventHasARevisionOfItsOwn.Shows(`the resourceVersion of [ab] by list is \d+`),
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
		require.NoError(l, err, "writing both keys in one transaction, behind the apiserver's back")
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
		for _, o := range []*lab.Object{a, b} {
			l.Equal("the resourceVersion of "+o.GetName()+" by get", o.GetResourceVersion(), shared)
		}
		for _, o := range list.Items[:2] {
			l.Equal("the resourceVersion of "+o.GetName()+" by list", o.GetResourceVersion(), shared)
		}

		watch := shelves.Watch(from)
		first, second := watch.Next(), watch.Next()
		table.Row("resourceVersion by watch", first.ResourceVersion, second.ResourceVersion)
		table.End()
		l.Equal("the resourceVersion of "+first.Name+" by watch", first.ResourceVersion, shared)
		l.Equal("the resourceVersion of "+second.Name+" by watch", second.ResourceVersion, shared)

		// A client that has seen only the first of the two, and resumes from its number:
		next := shelves.Watch(first.ResourceVersion).Next()
		l.Say("A watch that is resumed from %s, after the event of %s, next delivers %s at %s: the event of %s is never "+
			"seen.", first.ResourceVersion, first.Name, next.Name, next.ResourceVersion, second.Name)
		l.Equal("the next event of a watch that is resumed between the two", next.Name, fence.GetName())

		many := l.Session().Wire().MultiKeyTxns()
		l.Expect(len(many) == 0, "kube-apiserver puts one object per transaction", "it sent %v", many)
	})
}

func TestRV12_AWriteBehindTheApiserversBackCounts(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV12", From: "+",
		Says: "a write behind the apiserver's back counts: put the same bytes into etcd, and the resourceVersion moves, a " +
			"MODIFIED event is delivered, and the old token conflicts",
		Why:     "the number is a fact about the key in etcd, and not about what the apiserver did or what the object says",
		FalseIf: world.AnEventIsSwallowed.Shows(`revisions that the watch delivered is \d+$`),
		AlsoFalseIf: []world.World{
			world.ClientTransplantsTheToken.Shows(`a replace with the token from before the put was accepted`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*watchChan).transform"),
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		shelf := shelves.Create("shelf", "color=red")
		watch := shelves.Watch(shelf.GetResourceVersion())

		put, err := l.Etcd().Put(l.Context(), l.Key(shelf), string(l.KV(shelf).Value))
		require.NoError(l, err, "putting the same bytes into etcd")
		moved := shelves.Get("shelf")
		fence := shelves.Create("fence", "color=red")
		_, stale := shelves.TryReplace(shelf, "color=blue")

		table := l.Table("step", "resourceVersion")
		table.Row("create", shelf.GetResourceVersion())
		table.Row("the same bytes again, by etcd's own API", moved.GetResourceVersion())
		table.End()
		l.Equal("the resourceVersion after that put", number(moved), put.Header.Revision)
		// The watch delivers the put as an event, and then the next create.
		delivered := watch.Until(fence.GetResourceVersion())
		l.Equal("the list of revisions that the watch delivered",
			revisionsOf(delivered), []int64{number(moved), number(fence)})
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

// revisionsOf are the resourceVersions of events, as numbers.
func revisionsOf(events []lab.WatchEvent) []int64 {
	numbers := make([]int64, len(events))
	for i, ev := range events {
		numbers[i] = numberOf(ev.ResourceVersion)
	}
	return numbers
}

// etcdEvents are the changes below a prefix as etcd's own watch tells them: those after one revision, up to the one at
// another, which must come.
func etcdEvents(l *lab.Lab, prefix string, after, last int64) []*clientv3.Event {
	ctx, cancel := context.WithCancel(l.Context())
	defer cancel()
	var events []*clientv3.Event
	for answer := range l.Etcd().Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1)) {
		require.NoError(l, answer.Err(), "watching etcd for changes below "+prefix)
		for _, ev := range answer.Events {
			events = append(events, ev)
			if ev.Kv.ModRevision == last {
				return events
			}
		}
	}
	require.Fail(l, "the watch ended", "waiting for etcd's event at revision %d", last)
	return nil
}

// errorOf is the error of a call that also returns something else.
func errorOf[T any](_ T, err error) error { return err }
