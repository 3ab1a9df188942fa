package lab

import (
	"os"
	"path/filepath"

	"google.golang.org/grpc"

	"modrev/helpers/controlplane"
)

// Alone is a lab over a control plane of its own, in a namespace of the same name: what the lesson does to its etcd
// disturbs nobody else. Its requests are on the tape of the lesson, with which it ends.
func (l *Lab) Alone() *Lab {
	l.open()
	alone := l.over(controlplane.Options{}, "starting a control plane of the lesson's own")
	defer l.Wire.Tape().Pause()()
	alone.makeNamespace()
	return alone
}

// over is a lab over another control plane, whose wire and namespace are those of the lesson: the keys are the same.
func (l *Lab) over(o controlplane.Options, what string) *Lab {
	s := &Session{binary: l.session.binary}
	o.APIServerPath = s.binary.Path
	o.EtcdServerOptions = append(l.session.wire.ServerOptions(), grpc.ChainUnaryInterceptor(s.hush.pass))
	var err error
	s.control, err = controlplane.Start(l.ctx, o)
	l.Step(err, what)
	s.started = true
	l.Cleanup(func() { _ = s.Stop() }) // the guard ends what is left of it
	return l.at(s)
}

// at is the lab of the same lesson at another control plane that runs.
func (l *Lab) at(s *Session) *Lab {
	other := &Lab{
		Wire: l.Wire, Namespace: l.Namespace, session: s, ctx: l.ctx, cancel: l.cancel, opened: true, host: l, bent: l.bent,
	}
	other.Client = &Client{lab: other, who: "writer", kind: ConfigMap}
	l.Cleanup(func() {
		for i := len(other.cleanup) - 1; i >= 0; i-- {
			other.cleanup[i]()
		}
		other.clients.Wait()
	})
	return other
}

// Backup is what etcd held at one moment, as etcdctl snapshot save writes it. What is written after that, and lost
// when the backup is restored, is the lost history.
type Backup struct {
	lab  *Lab
	path string
}

// Backup makes a backup of etcd.
func (l *Lab) Backup() *Backup {
	l.open()
	dir, err := os.MkdirTemp(l.session.control.Dir(), "backup")
	l.Step(err, "making a folder for a backup")
	l.Cleanup(func() { _ = os.RemoveAll(dir) }) // else it goes with the control plane
	b := &Backup{lab: l, path: filepath.Join(dir, "snapshot")}
	b.take()
	return b
}

func (b *Backup) take() {
	_ = os.Remove(b.path) // there is none the first time
	b.lab.Step(b.lab.session.control.Backup(b.lab.ctx, b.path), "making a backup of etcd")
}

// Restoring is how a backup is restored.
type Restoring struct {
	// Bump raises etcd's revision by a billion and marks what was before as compacted, as --bump-revision and
	// --mark-compacted of etcdutl do.
	Bump bool
	// Newest restores what etcd holds at the moment of the restore: nothing is lost.
	Newest bool
}

// RestoreHook is what a lab makes of the way in which a lesson restores a backup: nothing.
var RestoreHook = Hook[func(Restoring) Restoring]{func(r Restoring) Restoring { return r }}

// bump is more than any lesson writes.
const bump = 1_000_000_000

func (b *Backup) as(r Restoring) *controlplane.Restore {
	r = RestoreHook.in(b.lab)(r)
	if r.Newest {
		b.take()
	}
	restore := &controlplane.Restore{Backup: b.path}
	if r.Bump {
		restore.Bump = bump
	}
	return restore
}

// Restore is a lab over a control plane of its own, whose etcd was restored from the backup: the cluster as it is after
// that. Its namespace is that of the lesson, and so is the tape. It ends with the lesson.
func (b *Backup) Restore(r Restoring) *Lab {
	return b.lab.over(controlplane.Options{Restore: b.as(r)}, "starting a control plane over a restored etcd")
}

// RestoreBelow restores the backup below the kube-apiserver that runs, which is not restarted: its connections to etcd
// break, and are made anew.
func (b *Backup) RestoreBelow(r Restoring) {
	b.lab.Step(b.lab.session.control.Rewind(b.lab.ctx, *b.as(r)), "restoring etcd below a kube-apiserver that runs")
}

// Reach has somebody else write to etcd until the next revision is the given one, and then has do write, while nobody
// else does. If the store is beyond that revision already, do writes at whatever comes next.
func (l *Lab) Reach(revision int64, do func()) {
	defer l.session.hush.shut(l.Namespace)()
	if n := revision - 1 - l.Revision(); n > 0 {
		l.Spend(int(n))
	}
	do()
}

// Spend has somebody else write to etcd n times.
func (l *Lab) Spend(n int) {
	for range n {
		_, err := l.Etcd().Put(l.ctx, "/not-kubernetes/"+l.Namespace, "x")
		l.Step(err, "writing a key of our own into etcd")
	}
}
