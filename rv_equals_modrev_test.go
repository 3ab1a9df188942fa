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
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
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
			"it keeps the revision of the last write to it, the mod_revision. This chapter shows that an object's " +
			"metadata.resourceVersion is that number, in every answer and every event. A list's is another: it says how far " +
			"the store had come. Then it shows what follows when a revision is shared, old, or gone.",
		Parts: []lesson.Part{
			{Title: "one object", Lessons: "RV1 RV2 RV3 RV4 RV5"},
			{Title: "what a write is", Lessons: "RV8 RV8b RV9 RV9b RV12"},
			{Title: "lists and watches", Lessons: "RV6 RV7 RV7b RV10 RV10b RV11 RV11b"},
		},
	},
	{
		Title: "conflict",
		Intro: "A client that replaces an object sends the resourceVersion that it has read. This chapter shows who " +
			"refuses a stale one, where, and with what in hand; which other refusals look like it; and what is not " +
			"refused at all.",
		Parts: []lesson.Part{
			{Title: "who refuses", Lessons: "CF1 CF1b CF2 CF3 CF3b CF4 CF4b CF5"},
			{Title: "without a token", Lessons: "CF6 CF6b CF6c CF15"},
			{Title: "patches", Lessons: "CF7 CF7b CF7c CF7d"},
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
			{Title: "telling errors apart", Lessons: "OT20 OT21 OT21f OT24 OT21d OT21g"},
			{Title: "answers that get lost", Lessons: "OT21b OT21e OT21c OT22 OT23 OT23b OT23c"},
			{Title: "names that are used again", Lessons: "OT25 OT25b"},
			{Title: "decisions", Lessons: "OT27b"},
			{Title: "a token certifies one object", Lessons: "OT44 OT45 OT46 OT47 OT48"},
			{Title: "admission is part of the attempt", Lessons: "OT50 OT51 OT51b OT52 OT52b OT53 OT53b OT53c OT54"},
			{Title: "several views of one object", Lessons: "OT80 OT81 OT81b OT81c OT82 OT82b OT83 OT84 OT85 OT85b OT86 " +
				"OT86b OT87 OT88 OT89"},
			{Title: "what comes back", Lessons: "OT90 OT91 OT92 OT93 OT94 OT99 OT95 OT98 OT97 OT96"},
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
			{Title: "the modular lab", Lessons: "ML1 ML3 ML4"},
			{Title: "equality tokens", Lessons: "ML5 ML5b ML5c"},
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
		Says: "a created object's resourceVersion, its key's mod_revision and its create_revision are one number",
		Why: "the apiserver makes up no number of its own: it reports the revision of the transaction that wrote " +
			"the object",
		Do:      "Look a resourceVersion up in etcd when you wonder what it counts.",
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
			"near one",
		Why: "your client holds etcd's own number in its hands, and the next conditional write is compared with it: one " +
			"too high, and the write is refused",
		Do:      "Send back the resourceVersion that the last answer brought.",
		FalseIf: world.EtcdReportsALaterRevision.Shows(`replace a=2, with the number of the step before, was refused: 409`),
		AlsoFalseIf: []world.World{
			world.ReplacesAnswerOneTooHigh.Shows(`resourceVersion \d+, mod_revision \d+ after "replace a=2"`),
			world.UpdatesStartTheKeyAnew.Shows(`version after "replace a=2" is 1$`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage", "APIObjectVersioner.UpdateObject"),
	}, func(l *lab.Lab) {
		rv := l.Create("rv", "a=1")
		created := l.KV(rv)
		table := l.Table("step", "resourceVersion", "mod_revision", "create_revision", "version")
		table.Row("create a=1", rv.GetResourceVersion(), created.ModRevision, created.CreateRevision, created.Version)
		var sent wire.Requests
		for version := int64(2); version <= 4; version++ {
			field := fmt.Sprintf("a=%d", version)
			step := "replace " + field
			l.Settle(l.Peek("rv"))
			var err error
			sent = l.Record(func() { rv, err = l.TryReplace(rv, field) })
			l.Accepted(err, step+", with the number of the step before,")
			kv := l.KV(rv)
			table.Row(step, rv.GetResourceVersion(), kv.ModRevision, kv.CreateRevision, kv.Version)
			l.WriteDown(record.PairedNumbers, "k8s=%s  etcd=%d", rv.GetResourceVersion(), kv.ModRevision)
			l.Expect(number(rv) == kv.ModRevision, "resourceVersion and mod_revision are the same number",
				"resourceVersion %d, mod_revision %d after %q", number(rv), kv.ModRevision, step)
			l.Equal(fmt.Sprintf("version after %q", step), kv.Version, version)
			l.Equal("create_revision after the update", kv.CreateRevision, created.CreateRevision)
		}
		table.End()
		l.WriteDown(record.PairsEqual, "equal")
		l.Show("PUT configmaps/rv, with the resourceVersion of the step before", sent)
	})
}

func TestRV3_ResourceVersionIsModRevisionForEveryKindAndPutInOnReading(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV3", From: "D1 Claim; +",
		Says: "resourceVersion is mod_revision for every kind: the stored bytes hold none, and the apiserver puts it in " +
			"when it reads them",
		Why:     "the rule belongs to the storage layer that all kinds share, whatever their encoding and their keys",
		Do:      "Expect no kind to have tokens of its own.",
		FalseIf: world.EtcdReportsALaterRevision.Shows(`ConfigMap .*: resourceVersion \d+, mod_revision \d+`),
		AlsoFalseIf: []world.World{
			world.ObjectsAreStoredWithANumber.Shows(`configmaps/.* holds resourceVersion 1`),
			world.OthersAreListedOneTooHigh.Shows(`/registry/.*: resourceVersion \d+, mod_revision \d+`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*defaultDecoder).Decode"),
	}, func(l *lab.Lab) {
		shelf := l.CustomResource()
		kinds := append(lab.SampleKinds(), shelf)
		created := map[string]bool{}
		var forms kindForms
		for i, kind := range kinds {
			o := l.Of(kind).Create(fmt.Sprintf("%s-%d", l.Namespace, i))
			kv := storedUnder(l, o.GetName())
			stored, encoding := decoded(l, kv.Value)
			l.Expect(number(o) == kv.ModRevision, "resourceVersion and mod_revision are the same number",
				"%s %s: resourceVersion %d, mod_revision %d", kind.Kind, o.GetName(), number(o), kv.ModRevision)
			l.Expect(stored.ResourceVersion == "", "the stored bytes hold no resourceVersion",
				"%s holds resourceVersion %s", kv.Key, stored.ResourceVersion)
			created[string(kv.Key)] = true
			forms.add(kindForm{encoding, wire.ShortKey(string(kv.Key)), o.GetResourceVersion(), kv.ModRevision, 1})
		}
		table := l.Table("stored as", "kinds", "the key of one of them", "its resourceVersion", "its mod_revision")
		for _, f := range forms {
			table.Row(f.encoding, f.kinds, f.key, f.resourceVersion, f.modRevision)
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

// kindForms are the forms in which etcd holds objects: an encoding, and how many parts the key has.
type kindForms []kindForm

// kindForm is one of them, with an object that shows it.
type kindForm struct {
	encoding, key, resourceVersion string
	modRevision                    int64
	kinds                          int
}

// add counts one more kind.
func (forms *kindForms) add(kind kindForm) {
	parts := func(f kindForm) int { return strings.Count(f.key, "/") }
	at := slices.IndexFunc(*forms, func(f kindForm) bool {
		return f.encoding == kind.encoding && parts(f) == parts(kind)
	})
	if at < 0 {
		*forms = append(*forms, kind)
		return
	}
	(*forms)[at].kinds++
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
	return rawKV(l, string(keys.Kvs[at].Key))
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

// theAPIServerNumbersTransactions gives kube-apiserver a number of its own for each transaction of the lesson, in the
// place of etcd's revision.
var theAPIServerNumbersTransactions = world.New("the apiserver numbers its own transactions", func(l *lab.Lab) {
	var count atomic.Int64
	l.Wire.Add(&wire.Rule{When: wire.AnyTxn, Note: "numbered by the apiserver", Answer: func(m proto.Message) {
		if resp, ok := m.(*pb.TxnResponse); ok && resp.Succeeded {
			resp.Header.Revision = count.Add(1) // lower than what 50 foreign writes make it
		}
	}})
})

func TestRV4_TheApiserverKeepsNoCounterOfItsOwn(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV4", From: "D1 Expect 1",
		Says: "the apiserver keeps no counter: revisions that others spend on etcd are missing from its numbers",
		Why: "gaps between resourceVersions say nothing about the object; only etcd counts, and it counts for everybody " +
			"who writes to it",
		Do:      "Do not subtract resourceVersions to count writes.",
		FalseIf: theAPIServerNumbersTransactions.Shows(`jumped by \d+ over 50 .* was refused: 409`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).Create"),
	}, func(l *lab.Lab) {
		before := l.Create("before", "a=1")
		const foreign = 50
		for range foreign {
			_, err := l.Etcd().Put(l.Context(), "/not-kubernetes/"+l.Namespace, "x")
			require.NoError(l, err, "writing a key of our own into etcd")
		}
		after := l.Create("after", "a=1")
		_, err := l.TryReplace(after, "a=2")

		table := l.Table("step", "resourceVersion", "answer")
		table.Row("create configmaps/before", before.GetResourceVersion(), "201")
		table.Row("50 writes to etcd by somebody else", "(none is given out)", "")
		table.Row("create configmaps/after", after.GetResourceVersion(), "201")
		table.Row("replace configmaps/after, with that number", "", lab.AnswerLine(err))
		table.End()

		jump := number(after) - number(before)
		l.Expect(jump > foreign, "the next number is more than 50 higher (the apiserver writes objects of its own, too)",
			"the number jumped by %d over %d foreign writes, and a replace that sent it was refused: %s",
			jump, foreign, lab.AnswerLine(err))
		l.Accepted(err, "a replace with the number after the gap")
		l.Equal("the number before the gap", number(before), l.KV(before).ModRevision)
	})
}

func TestRV5_CreateRevisionEqualsModRevisionOnlyUntilTheFirstUpdate(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV5", From: "D1 Expect 4",
		Says: "create_revision equals mod_revision only until the first update; a recreated object has version 1 and a new " +
			"create_revision again",
		Why: "mod_revision goes on, so a token of an earlier incarnation does not fit a later one; only a store that is " +
			"restored from a backup goes back",
		Do:      "Tell incarnations apart by their uid.",
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
