package world

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

// StoredInAnotherEncoding is the world in which what is put into etcd arrives there in another encoding, with
// the same content: what kube-apiserver would store is never byte for byte what is stored.
var StoredInAnotherEncoding = Custom("etcd holds objects in another encoding than the server's", func(l *lab.Lab) {
	putsBecome(l, "put in another encoding", lab.OtherEncoding)
})

// ObjectsAreStoredWithANumber is the world in which what is put into etcd holds a resourceVersion.
var ObjectsAreStoredWithANumber = Custom("objects are stored with a resourceVersion in them", func(l *lab.Lab) {
	putsBecome(l, "put with a number in it", func(value []byte) ([]byte, error) { return lab.WithStoredToken(value, "1") })
})

// putsBecome changes what transactions put, where that can be done.
func putsBecome(l *lab.Lab, note string, change func(value []byte) ([]byte, error)) {
	l.Wire.Add(wire.AlterTxn(
		func(r *wire.Request) bool { return r.Method == wire.Txn && len(r.Then) == 1 && r.Then[0].Kind == "Put" },
		note, func(txn *pb.TxnRequest) {
			put := txn.Success[0].GetRequestPut()
			if value, err := change(put.Value); err == nil {
				put.Value = value
			}
		}))
}

// ReadsAreProtobuf is the world in which etcd's answer to a read of a key is in the encoding that the server
// would give it, whatever is stored.
var ReadsAreProtobuf = Custom("a read shows the server its own encoding, whatever is stored", func(l *lab.Lab) {
	l.Wire.Add(&wire.Rule{
		When: func(r *wire.Request) bool { return r.Method == wire.Range && r.End == "" },
		Note: "the value was encoded as protobuf",
		Answer: func(m proto.Message) {
			for _, kv := range m.(*pb.RangeResponse).Kvs {
				if value, err := lab.AsProtobuf(kv.Value); err == nil {
					kv.Value = value
				}
			}
		},
	})
})
