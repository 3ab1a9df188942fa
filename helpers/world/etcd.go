package world

import (
	"bytes"
	"path"
	"strings"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

// The worlds of this file bend what etcd does, by what it is asked and by what it answers.

const compareDropped = "the compare was taken out"

// EtcdIgnoresTheCompare takes the compare out of updates and deletes, so that the then branch always runs.
var EtcdIgnoresTheCompare = New("the compare is taken out of the transaction", func(l *lab.Lab) {
	editTxn(l, hasCompare, compareDropped, dropCompare)
})

// EtcdIgnoresTheCompareOf takes the compare out of updates and deletes of the objects of one name.
func EtcdIgnoresTheCompareOf(name string) World {
	return New("the compare is taken out of the transactions on "+name, func(l *lab.Lab) {
		editTxn(l, named(name, hasCompare), compareDropped, dropCompare)
	})
}

// EtcdIgnoresTheCompareOfACreate takes the compare out of creates.
var EtcdIgnoresTheCompareOfACreate = New("the compare is taken out of a create", func(l *lab.Lab) {
	editTxn(l, isCreate, compareDropped, dropCompare)
})

// PaintingBlueComparesNothing takes the compare out of transactions that put something blue.
var PaintingBlueComparesNothing = New("the compare is taken out of the transaction that stores color=blue",
	func(l *lab.Lab) {
		editTxn(l, hasCompare, compareDropped+", if it stores something blue", func(txn *pb.TxnRequest) {
			if bytes.Contains(txn.Success[0].GetRequestPut().GetValue(), []byte("blue")) {
				txn.Compare = nil
			}
		})
	})

// EtcdComparesTheVersion makes the compare of updates and deletes one on version, which counts the writes to a key
// since its creation.
var EtcdComparesTheVersion = New("the transaction compares the version of the key", func(l *lab.Lab) {
	editTxn(l, hasCompare, "made to compare the version", func(txn *pb.TxnRequest) {
		c := txn.Compare[0]
		now := stored(l, string(c.Key))
		if now == nil || now.ModRevision != c.GetModRevision() {
			return // this one would fail by either field
		}
		c.Target = pb.Compare_VERSION
		c.TargetUnion = &pb.Compare_Version{Version: now.Version}
	})
})

// EtcdDropsTheElse takes the else branch out of updates and deletes.
var EtcdDropsTheElse = New("the else branch is taken out of the transaction", func(l *lab.Lab) {
	editTxn(l, hasCompare, elseDropped, dropElse)
})

const elseDropped = "the else branch was taken out"

// EtcdDropsTheElseOfADelete takes the else branch out of deletes.
var EtcdDropsTheElseOfADelete = New("the else branch is taken out of a delete", func(l *lab.Lab) {
	editTxn(l, isDelete, elseDropped, dropElse)
})

// TheElseBranchFindsNothing takes out of the answer what an else branch found.
var TheElseBranchFindsNothing = New("the else branch finds nothing", func(l *lab.Lab) {
	editElse(l, "what the else branch found was taken out", func(found *pb.RangeResponse) {
		found.Kvs, found.Count = nil, 0
	})
})

// editElse changes what the else branches of updates and deletes found.
func editElse(l *lab.Lab, note string, change func(found *pb.RangeResponse)) {
	l.Wire.Add(&wire.Rule{When: hasCompare, Note: note, Answer: func(m proto.Message) {
		resp, ok := m.(*pb.TxnResponse)
		if !ok || resp.Succeeded {
			return
		}
		for _, op := range resp.Responses {
			if found := op.GetResponseRange(); found != nil {
				change(found)
			}
		}
	}})
}

func raiseModRevisions(found *pb.RangeResponse) {
	for _, kv := range found.Kvs {
		kv.ModRevision++
	}
}

// EtcdKeepsTheOldValue has updates put the value that is there.
var EtcdKeepsTheOldValue = New("etcd acknowledges an update and keeps the value that it had", func(l *lab.Lab) {
	editPut(l, isUpdate, "the old value was put", func(put *pb.PutRequest) {
		if now := stored(l, string(put.Key)); now != nil {
			put.Value = now.Value
		}
	})
})

// EtcdKeepsTheOldValueOf has updates of the objects of one name put the value that is there.
func EtcdKeepsTheOldValueOf(name string) World {
	return New("etcd acknowledges an update of "+name+" and keeps the value that it had", func(l *lab.Lab) {
		editPut(l, named(name, isUpdate), "the old value was put", func(put *pb.PutRequest) {
			if now := stored(l, string(put.Key)); now != nil {
				put.Value = now.Value
			}
		})
	})
}

// NamespacesDoNotTerminate has the update that marks the lesson's own namespace as one to be deleted put the value
// that is there.
var NamespacesDoNotTerminate = New("a namespace that is to be deleted stays active", func(l *lab.Lab) {
	EtcdKeepsTheOldValueOf(l.Namespace).Bend(l)
})

// EtcdDeletesNothingOf makes deletes of the objects of one name reads.
func EtcdDeletesNothingOf(name string) World {
	return New("etcd acknowledges the delete of "+name+" and keeps the key", func(l *lab.Lab) {
		editTxn(l, named(name, isDelete), "the delete was made a get", keepKey)
	})
}

// UnansweredWritesAreUndone takes the put out of updates of what is called …-after, whose answers will be lost.
var UnansweredWritesAreUndone = New("etcd leaves undone what it cannot answer", func(l *lab.Lab) {
	lost := func(r *wire.Request) bool { return hasCompare(r) && strings.HasSuffix(r.Key, "-after") }
	editTxn(l, lost, "the put was taken out", func(txn *pb.TxnRequest) { txn.Success = nil })
})

// EtcdReportsALaterRevision raises the revision in the answer to a transaction that wrote by one.
var EtcdReportsALaterRevision = New("etcd's answer to a transaction names the next revision", func(l *lab.Lab) {
	l.Wire.Add(&wire.Rule{
		When: wire.AnyTxn, Note: "the revision in the answer was raised by one",
		Answer: func(m proto.Message) {
			if resp, ok := m.(*pb.TxnResponse); ok && resp.Succeeded {
				resp.Header.Revision++
			}
		},
	})
})

// EtcdUnderstatesItsRevision has a read that finds no key report an old revision. By such a read kube-apiserver asks
// how far the store has come.
var EtcdUnderstatesItsRevision = New("etcd says that the store has not come as far as it has", func(l *lab.Lab) {
	editFound(l, isRead, "understated", func(found *pb.RangeResponse) {
		if len(found.Kvs) == 0 {
			found.Header.Revision = 1
		}
	})
})

// EachKeyHasARevisionOfItsOwn raises the mod_revision of the object b by one, in reads and in watches.
var EachKeyHasARevisionOfItsOwn = New("etcd gives each key of a transaction a revision of its own", func(l *lab.Lab) {
	editFound(l, named("b", isRead), "reported one revision later", raiseModRevisions)
	EachEventHasARevisionOfItsOwn.Bend(l)
})

// EachEventHasARevisionOfItsOwn raises the mod_revision of the object b by one, in watches.
var EachEventHasARevisionOfItsOwn = New("etcd's watch gives each key of a transaction a revision of its own",
	func(l *lab.Lab) {
		l.Wire.Add(&wire.Rule{
			When:    named("b", func(r *wire.Request) bool { return isEvent(r) && r.Found[0].Version > 1 }),
			Note:    "reported one revision later",
			Request: func(m proto.Message) { m.(*mvccpb.Event).Kv.ModRevision++ },
		})
	})

// EachEventHasALeaseOfItsOwn puts each object that has a lease under another one.
var EachEventHasALeaseOfItsOwn = New("each Event has a lease of its own", func(l *lab.Lab) {
	var lease atomic.Int64
	editPut(l, isCreate, "under a lease of its own", func(put *pb.PutRequest) {
		if put.Lease != 0 {
			put.Lease = lease.Add(1)
		}
	})
})

// EachDeletionHasARevisionOfItsOwn raises the mod_revision of each second deletion by one, in watches.
var EachDeletionHasARevisionOfItsOwn = New("etcd's watch gives each deletion of a transaction a revision of its own",
	func(l *lab.Lab) {
		second := func(r *wire.Request) bool {
			return isEvent(r) && r.Found[0].Deleted && strings.HasPrefix(path.Base(r.Key), "b")
		}
		l.Wire.Add(&wire.Rule{
			When: second, Note: "reported one revision later",
			Request: func(m proto.Message) { m.(*mvccpb.Event).Kv.ModRevision++ },
		})
	})

// ReadsAreProtobuf gives what reads find in the encoding that kube-apiserver would give it, whatever is stored.
var ReadsAreProtobuf = New("a read shows the server its own encoding, whatever is stored", func(l *lab.Lab) {
	editFound(l, isRead, "the value was encoded as protobuf", func(found *pb.RangeResponse) {
		for _, kv := range found.Kvs {
			if value, err := lab.AsProtobuf(kv.Value); err == nil {
				kv.Value = value
			}
		}
	})
})

// editFound changes what reads find.
func editFound(l *lab.Lab, when wire.Match, note string, change func(found *pb.RangeResponse)) {
	l.Wire.Add(&wire.Rule{When: when, Note: note, Answer: func(m proto.Message) { change(m.(*pb.RangeResponse)) }})
}

// TheStoreIgnoresTheRevision makes reads of an old revision reads of the newest.
var TheStoreIgnoresTheRevision = New("the store answers a read of an old revision with what is current",
	func(l *lab.Lab) {
		old := func(r *wire.Request) bool {
			return (r.Method == wire.Range || r.Method == wire.RangeStream) && r.Revision > 0
		}
		l.Wire.Add(readAt(old, "the revision was ignored", func(string) int64 { return 0 }))
	})

// ReadsShowTheVersionBefore makes reads of a key reads of the version before the newest: what a follower that lags
// would answer, if the read were not linearizable.
var ReadsShowTheVersionBefore = New("a read of etcd shows the version before the newest", func(l *lab.Lab) {
	l.KeepHistory()
	l.Wire.Add(readAt(isRead, "answered with the version before", func(key string) int64 {
		if now := stored(l, key); now != nil && now.Version > 1 {
			return now.ModRevision - 1
		}
		return 0
	}))
})

// ReadsAreSerializable lets reads be answered by a member of etcd with what that has.
var ReadsAreSerializable = New("kube-apiserver asks any member of etcd, however far it is", func(l *lab.Lab) {
	l.Wire.Add(&wire.Rule{
		When: func(r *wire.Request) bool { return r.Method == wire.Range || r.Method == wire.RangeStream },
		Note: "made serializable", Request: func(m proto.Message) { m.(*pb.RangeRequest).Serializable = true },
	})
})

// ReadsForAPatchShowTheFirstVersion makes reads of a key, from the writer's first patch on, reads of the first
// version of it.
var ReadsForAPatchShowTheFirstVersion = New(
	"what is read from etcd for a patch is the first version of the object",
	func(l *lab.Lab) {
		l.KeepHistory()
		first := readAt(isRead, "answered with the first version", func(key string) int64 {
			if now := stored(l, key); now != nil {
				return now.CreateRevision
			}
			return 0
		})
		l.Wire.AddHTTP(&wire.HTTPRule{
			When:  func(c *wire.Call) bool { return patches(c) && c.Who == "writer" },
			Times: 1,
			Do:    func(int) { l.Wire.Add(first) },
		})
	})

// readAt makes reads ask for another revision of the key; 0 is the newest.
func readAt(when wire.Match, note string, revision func(key string) int64) *wire.Rule {
	return &wire.Rule{When: when, Note: note, Request: func(m proto.Message) {
		q := m.(*pb.RangeRequest)
		q.Revision = revision(string(q.Key))
	}}
}
