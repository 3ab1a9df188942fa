// Chapter 1, continued: what a write is in etcd.
package modrev

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
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

func TestRV8_AnAcceptedPatchIsOneStorageWriteAndANoOpIsNone(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV8", From: "D1 Observe",
		Says: "a patch that changes something and is not overtaken is one transaction; a no-op, a dry run and a " +
			"refused write store nothing",
		Why: "a new resourceVersion means that something was stored; a request that stores nothing wakes no watcher and " +
			"cannot serve as a heartbeat",
		Do:      "Change a field if you need a heartbeat.",
		FalseIf: world.StoredInAnotherEncoding.Shows(`a patch that changes nothing cost etcd: 1 Range, 1 Txn`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`a replace with a stale token cost etcd: 1 Txn`),
			world.DryRunsAreReal.Shows(`a patch as a dry run cost etcd: 1 Txn`),
			world.EtcdIgnoresTheCompare.Shows(`a patch that is overtaken once cost etcd: 1 Txn`),
			world.EtcdDeletesNothingOf("shelf").Shows(`the list of etcd's events is (PUT, )*PUT$`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#55",
	}, func(l *lab.Lab) {
		defer l.KeepHistory()()
		shelf := l.Create("shelf", "color=red")
		table := l.Table("request", "answer", "to etcd")
		costs := func(cost, request string, send func() error) {
			l.Settle(l.Peek("shelf"))
			var err error
			sent := l.Record(func() { err = send() })
			table.Row(request, lab.AnswerLine(err), sent.Summary())
			l.Sends(sent, request, cost)
		}
		set := func(field string) func() error { return func() error { return errorOf(l.TrySet("shelf", field)) } }

		costs("1 Txn", "a patch that changes color", set("color=blue"))
		costs("1 Range", "a patch that changes nothing", set("color=blue"))
		l.WriteDown(record.NoOpCost, "1 Range")
		costs("1 Range", "a replace with a stale token", func() error { return errorOf(l.TryReplace(shelf, "color=green")) })
		dryRun := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
		costs("1 Range", "a patch as a dry run", func() error {
			return errorOf(l.TryPatchWith("shelf", types.MergePatchType, `{"data":{"color":"black"}}`, dryRun))
		})
		costs("2 Txn", "a patch that is overtaken once", func() error {
			return l.Race(l.Key(shelf), set("color=white"), func() { errorOf(l.TryTouch(l.Key(shelf))) })
		})
		finalizers := func(list string) func() error {
			body := `{"metadata":{"finalizers":` + list + `}}`
			return func() error { return errorOf(l.TryPatch("shelf", types.MergePatchType, body)) }
		}
		costs("1 Txn", "a patch that adds a finalizer", finalizers(`["modrev.example/f"]`))
		costs("1 Range, 1 Txn", "a delete, which waits for the finalizer", func() error { return l.TryDelete("shelf") })
		costs("1 Range, 1 Txn", "a patch that takes the last finalizer", finalizers(`null`))
		table.End()
		fence := l.Create("shelf-fence") // its key begins like the shelf's

		var kinds []string
		for _, ev := range etcdEvents(l, l.Key(shelf), number(shelf), number(fence)) {
			if string(ev.Kv.Key) == l.Key(shelf) {
				kinds = append(kinds, ev.Type.String())
			}
		}
		l.Say("etcd's own watch tells of these writes, one of them the rival's: %s.", strings.Join(kinds, ", "))
		l.Equal("the list of etcd's events", kinds, []string{"PUT", "PUT", "PUT", "PUT", "PUT", "DELETE"})
	})
}

func TestRV8b_APatchThatChangesNothingRewritesWhatIsEncodedOtherwise(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV8b", From: "D1 Observe; +",
		Says: "a patch that changes nothing is still a storage write if the object is stored in another encoding than the " +
			"apiserver would give it",
		Why: "what counts are the bytes before encryption, and the key (OT87); a storage migration rewrites only " +
			"what is stored in an old form",
		Do:      "Send an empty patch to bring an old object into today's form.",
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
		Says: "two keys written in one etcd transaction share a mod_revision, and the apiserver serves both objects with " +
			"that one resourceVersion",
		Why: "within a revision etcd tells keys apart by a sub revision that no API shows; a client that resumes a watch " +
			"after the first of two such events never sees the second",
		Do:      "Put one object into a transaction if you write to etcd yourself.",
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
		l.Equal("the list of transactions in which kube-apiserver wrote two keys, in this run so far,", many, []string(nil))
		l.Say("kube-apiserver itself has put one object per transaction, in this run so far. etcd deletes several at once " +
			"when a lease ends (RV9b).")
	})
}

// eachEventHasALease has the transaction that creates an object take a lease of its own.
var eachEventHasALease = world.New("the apiserver takes a lease for each Event", func(l *lab.Lab) {
	leased := func(r *wire.Request) bool {
		return r.Method == wire.Txn && strings.HasPrefix(r.Key, "/registry/events/")
	}
	l.Wire.Add(wire.AlterTxn(leased, "with a lease of its own", func(txn *pb.TxnRequest) {
		if lease, err := l.Etcd().Grant(l.Context(), 3600); err == nil && len(txn.Success) == 1 {
			txn.Success[0].GetRequestPut().Lease = int64(lease.ID)
		}
	}))
})

// leasesEndKeyByKey has etcd's watch tell of the second deletion one revision later.
var leasesEndKeyByKey = world.New("etcd deletes the keys of a lease one after the other", func(l *lab.Lab) {
	l.Wire.Add(&wire.Rule{
		When: func(r *wire.Request) bool {
			return r.Method == wire.Event && r.Found[0].Deleted && strings.HasSuffix(r.Key, "/b")
		},
		Note:    "deleted one revision later",
		Request: func(m proto.Message) { m.(*mvccpb.Event).Kv.ModRevision++ },
	})
})

func TestRV9b_EventsThatExpireTogetherShareTheNumberOfTheirDeletion(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV9b", From: "+",
		Says: "Events share leases, and when a lease ends etcd deletes all its keys in one transaction, under one number",
		Why: "so two objects can have one resourceVersion without anybody writing to etcd: a watch that resumes after the " +
			"first of them misses the others",
		Do:      "Do not take a resourceVersion for the name of one event.",
		FalseIf: leasesEndKeyByKey.Shows(`the resourceVersion of the second deletion is \d+`),
		AlsoFalseIf: []world.World{
			eachEventHasALease.Shows(`three Events have 3 leases`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*leaseManager).GetLease"),
	}, func(l *lab.Lab) {
		events := l.Of(lab.Kind{Kind: "Event", Version: "v1", Resource: "events", Base: map[string]any{
			"involvedObject": map[string]any{"kind": "ConfigMap", "name": "shelf", "namespace": l.Namespace},
		}})
		leases := map[int64]bool{}
		table := l.Table("Event", "its lease in etcd")
		for _, name := range []string{"a", "b", "c"} {
			events.Create(name)
			lease := rawKV(l, events.Kind().KeyOf(l.Namespace, name)).Lease
			leases[lease] = true
			table.Row(name, fmt.Sprintf("%x", lease))
		}
		table.End()
		// A lease serves for a minute, so one of the three may have begun the next.
		l.Expect(len(leases) < 3, "three Events share a lease, or two of them do", "three Events have %d leases", len(leases))

		// Other lessons' Events have that lease, too. So a and b are given one that ends at once.
		own, err := l.Etcd().Grant(l.Context(), 3600)
		require.NoError(l, err, "asking etcd for a lease")
		for _, name := range []string{"a", "b"} {
			kv := rawKV(l, events.Kind().KeyOf(l.Namespace, name))
			_, err := l.Etcd().Put(l.Context(), string(kv.Key), string(kv.Value), clientv3.WithLease(own.ID))
			require.NoError(l, err, "putting Event "+name+" under a lease of its own")
		}
		watch := events.Watch(events.List().GetResourceVersion())
		_, err = l.Etcd().Revoke(l.Context(), own.ID)
		require.NoError(l, err, "ending the lease")
		first, second := watch.Next(), watch.Next()

		table = l.Table("event of the API", "resourceVersion")
		table.Row(first.Type+" "+first.Name, first.ResourceVersion)
		table.Row(second.Type+" "+second.Name, second.ResourceVersion)
		table.End()
		l.Equal("the first event", first.Type, "DELETED")
		l.Equal("the second event", second.Type, "DELETED")
		l.Equal("the resourceVersion of the second deletion", second.ResourceVersion, first.ResourceVersion)
	})
}

// rawKV is what etcd holds under a key, with its lease.
func rawKV(l *lab.Lab, key string) *mvccpb.KeyValue {
	got, err := l.Etcd().Get(l.Context(), key)
	require.NoError(l, err, "reading "+key)
	require.Len(l, got.Kvs, 1, "reading "+key)
	return got.Kvs[0]
}

func TestRV12_AWriteBehindTheApiserversBackCounts(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV12", From: "+",
		Says: "a write behind the apiserver's back counts: put the same bytes into etcd, and the resourceVersion moves",
		Why: "the number is a fact about the key in etcd, not about what the apiserver did or what the object says: " +
			"watchers see a MODIFIED, and old tokens conflict",
		Do:      "Do not conclude from a new resourceVersion that the content changed.",
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
		l.Equal("the type of the first event", delivered[0].Type, "MODIFIED")
		l.Refused(stale, "a replace with the token from before the put", lab.Stale(shelf))
		l.Say("A replace with the token from before it: %s", l.Describe(stale))
	})
}
