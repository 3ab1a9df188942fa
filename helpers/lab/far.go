package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"modrev/helpers/controlplane"
)

// FarAhead is a lab over a control plane of its own, whose etcd stands at a revision already: nobody has to
// believe in small numbers. It ends with the lesson.
func (l *Lab) FarAhead(revision int64) *Lab {
	l.open()
	dir, err := os.MkdirTemp(l.session.control.Dir(), "far")
	l.Step(err, "making a folder for another etcd")
	l.Step(standAt(l.ctx, dir, revision), fmt.Sprintf("making an etcd that stands at revision %d", revision))
	far := &Session{binary: l.session.binary}
	far.wire.Origin = origin
	far.control, err = controlplane.Start(l.ctx, controlplane.Options{
		APIServerPath: far.binary.Path, EtcdServerOptions: far.wire.ServerOptions(), DataDir: dir,
	})
	l.Step(err, fmt.Sprintf("starting a control plane over an etcd that stands at revision %d", revision))
	far.started = true
	l.Cleanup(func() { _ = far.Stop() }) // the guard ends what is left of it
	other := New(l.ctx, far, "far")
	other.host = l
	l.Cleanup(other.Close)
	return other
}

// standAt makes the data of an etcd whose newest revision is the given one.
func standAt(ctx context.Context, dir string, revision int64) error {
	if err := controlplane.NewData(ctx, dir); err != nil {
		return err
	}
	return appendRevision(filepath.Join(dir, "member", "snap", "db"), revision)
}

// appendRevision writes one key at a revision into etcd's database, as if all revisions before had been
// spent on keys that are gone. On opening it, etcd goes on from the highest revision that it finds
// ((*store).restore in go.etcd.io/etcd/server/v3/storage/mvcc).
func appendRevision(path string, revision int64) (err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, NoSync: true})
	if err != nil {
		return fmt.Errorf("opening the database of etcd: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Update(func(tx *bbolt.Tx) error {
		value, err := proto.Marshal(&mvccpb.KeyValue{
			Key: []byte("/modrev/far"), Value: []byte("x"), CreateRevision: revision, ModRevision: revision, Version: 1,
		})
		if err != nil {
			return fmt.Errorf("encoding a key: %w", err)
		}
		// A revision is the main number, an underscore, and the number of the change within it.
		key := binary.BigEndian.AppendUint64(nil, uint64(revision))
		key = append(key, '_')
		key = binary.BigEndian.AppendUint64(key, 0)
		keys, err := tx.CreateBucketIfNotExists([]byte("key"))
		if err != nil {
			return fmt.Errorf("opening the keys of etcd: %w", err)
		}
		return keys.Put(key, value)
	})
}
