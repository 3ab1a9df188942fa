// Chapter 4, continued: what a watch of Events tells.
package modrev

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT65_EventsAreWatchedInEtcdItself(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT65", From: "+",
		Says: "Events have no watch cache: a watch of them is one on etcd, and expires with etcd's history",
		Why: "a watch from an older number, or a cheap list at 0, works for other kinds; for Events it fails, or costs " +
			"etcd a read",
		Do:      "Expect 410 sooner when you watch Events, and list again.",
		FalseIf: world.AProxyStripsTheRevision.Shows(`the first event of Events is ADDED a`),
		Read:    source.Decl("k8s.io/kubernetes/pkg/kubeapiserver", "DefaultWatchCacheSizes"),
		Answers: "#127",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves, events := l.Of(kind), l.Of(coreEvent)
		about := "involvedObject.namespace=" + l.Namespace
		events.Create("a", about)
		shelves.Create("a", "color=red")
		from := shelves.List().GetResourceVersion()
		events.Create("b", about)
		shelves.Create("b", "color=red")
		l.CompactTo(l.Revision())

		table := l.Table("request", "kind", "stream or answer", "to etcd")
		watch := func(c *lab.Client) (first string, sent wire.Requests) {
			sent = l.Record(func() {
				event, err := watching(l, c.Kind(), metav1.ListOptions{ResourceVersion: from}).TryNext()
				first = strings.TrimSpace(event.Type + " " + event.Name)
				if err != nil {
					first = "ERROR " + lab.AnswerLine(err)
				}
			})
			table.Row("watch from "+from, c.Kind().Kind, first, sent.Summary())
			return first, sent
		}
		first, sent := watch(events)
		l.Equal("the first event of Events", first, "ERROR 410 Expired")
		l.Sends(sent, "a watch of Events", "1 Watch")
		first, sent = watch(shelves)
		l.Equal("the first event of Shelves", first, "ADDED b")
		l.Sends(sent, "a watch of Shelves", "no request")

		for _, c := range []*lab.Client{events, shelves} {
			var list *lab.List
			var err error
			sent := l.Record(func() { list, err = c.TryList(metav1.ListOptions{ResourceVersion: "0"}) })
			require.NoError(l, err, "listing at 0")
			table.Row("list at 0", c.Kind().Kind, fmt.Sprintf("%d items", len(list.Items)), sent.Summary())
			l.Sends(sent, "a list of "+c.Kind().Resource+" at 0", map[string]string{
				"events": "1 RangeStream", "shelves": "no request"}[c.Kind().Resource])
		}
		table.End()
		l.Say("etcd was compacted after b was created. kube-apiserver has the history of the Shelves in its own cache.")
	})
}

func TestOT66_EventsThatExpireShareANumber(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT66", From: "+",
		Says: "Events that expire go with their lease in etcd, many under one number: a watch resumed from it misses the " +
			"rest",
		Why: "no request deletes them, and a client that loses its connection between two events of one number resumes " +
			"after both",
		Do:      "List Events again after a break; do not count on each DELETED.",
		FalseIf: world.EachEventHasALeaseOfItsOwn.Shows(`the leases of a and b differ`),
		AlsoFalseIf: []world.World{
			world.EachDeletionHasARevisionOfItsOwn.Shows(`the number of the second DELETED is \d+`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*leaseManager).GetLease"),
		Answers: "#127",
	}, func(l *lab.Lab) {
		events := l.Of(coreEvent)
		about := "involvedObject.namespace=" + l.Namespace
		stop := putUnderOwnLeases(l)
		var a, b *lab.Object
		for i := range 2 { // kube-apiserver takes a new lease each minute: of two pairs one at most falls onto that turn
			a, b = events.Create(fmt.Sprintf("a%d", i), about), events.Create(fmt.Sprintf("b%d", i), about)
			if leaseOf(l, a) == leaseOf(l, b) {
				break
			}
		}
		l.Expect(leaseOf(l, a) == leaseOf(l, b), "kube-apiserver puts a and b under one lease of etcd",
			"the leases of a and b differ")

		watch := events.Watch(events.List().GetResourceVersion())
		var first, second lab.WatchEvent
		sent := l.Record(func() {
			_, err := l.Etcd().Revoke(l.Context(), leaseOf(l, a))
			require.NoError(l, err, "letting the lease end")
			first, second = watch.Next(), watch.Next()
		})
		table := l.Table("event", "of", "resourceVersion")
		for _, event := range []lab.WatchEvent{first, second} {
			table.Row(event.Type, event.Name, event.ResourceVersion)
			l.Equal("the event of "+event.Name, event.Type, "DELETED")
		}
		l.Equal("the number of the second DELETED", second.ResourceVersion, first.ResourceVersion)
		l.Sends(sent.Only(wire.Txn), "the end of the lease", "no request")

		stop()
		resumed := events.Watch(first.ResourceVersion)
		events.Create("fence", about)
		next := resumed.Next()
		table.Row(next.Type, next.Name, next.ResourceVersion)
		table.End()
		l.Say("The last row is the first event of a watch that is resumed from the first DELETED: the second one is " +
			"missed. Here the leases are the lesson's own, one for each that kube-apiserver chose, so that one can end at " +
			"once.")
		l.Equal("the first event of the resumed watch", next.Name, "fence")
	})
}

// putUnderOwnLeases puts the Events of the lesson under leases of its own, one for each lease that kube-apiserver
// chooses, until stop: under those there are Events of others.
func putUnderOwnLeases(l *lab.Lab) (stop func()) {
	var mu sync.Mutex
	own := map[int64]clientv3.LeaseID{}
	return l.Wire.Add(wire.AlterTxn(wire.AnyTxn, "under a lease of the lesson's own", func(txn *pb.TxnRequest) {
		mu.Lock()
		defer mu.Unlock()
		for _, op := range txn.Success {
			put := op.GetRequestPut()
			if put.GetLease() == 0 {
				continue
			}
			if own[put.Lease] == 0 {
				granted, err := l.Etcd().Grant(l.Context(), 3600)
				if err != nil {
					return // it stays under the lease of others, and the lesson's Revoke fails
				}
				own[put.Lease] = granted.ID
			}
			put.Lease = int64(own[put.Lease])
		}
	}))
}

// leaseOf is the lease of etcd under which an object is stored.
func leaseOf(l *lab.Lab, o *lab.Object) clientv3.LeaseID {
	stored, err := l.Etcd().Get(l.Context(), l.Key(o))
	require.NoError(l, err, "reading "+o.GetName()+" from etcd")
	require.NotEmpty(l, stored.Kvs, "reading "+o.GetName()+" from etcd")
	return clientv3.LeaseID(stored.Kvs[0].Lease)
}
