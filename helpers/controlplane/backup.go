package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Restore says what etcd's data is made from, as etcdutl snapshot restore does it.
type Restore struct {
	// Backup is a file that [ControlPlane.Backup] or etcdctl snapshot save has written.
	Backup string

	// Bump is by how much etcd's revision is raised, and everything before it marked as compacted: --bump-revision
	// and --mark-compacted. 0 is neither, which is the default there, too.
	Bump uint64
}

// Backup writes what etcd holds into a file, as etcdctl snapshot save does.
func (c *ControlPlane) Backup(ctx context.Context, path string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("making a backup of etcd: %w", err)
		}
	}()
	from, err := c.Etcd().Snapshot(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// make makes the data of an etcd in a folder that is not there yet.
func (r Restore) make(data string) error {
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath:        r.Backup,
		OutputDataDir:       data,
		Name:                memberName,
		PeerURLs:            []string{memberURL.String()},
		InitialCluster:      memberName + "=" + memberURL.String(),
		InitialClusterToken: "etcd-cluster",
		RevisionBump:        r.Bump,
		MarkCompacted:       r.Bump > 0,
	})
	if err != nil {
		return fmt.Errorf("restoring etcd from the backup %s: %w", r.Backup, err)
	}
	return nil
}

// Rewind ends etcd and starts another in its place, on the same sockets, with what a backup holds. The kube-apiservers
// go on: their connections break, and are made anew. [ControlPlane.Etcd] is another client from then on.
func (c *ControlPlane) Rewind(ctx context.Context, r Restore) error {
	data := filepath.Join(c.folder.path, "etcd-"+filepath.Base(r.Backup))
	if err := r.make(data); err != nil {
		return err
	}
	o := c.etcd.options
	if err := c.etcd.stopAtOnce(ctx); err != nil {
		return err
	}
	o.data = data
	var err error
	if c.etcd, err = startMember(ctx, o); err != nil {
		return err
	}
	return c.etcd.ready(ctx)
}
