package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"

	"modrev/helpers/controlplane"
	"modrev/helpers/record"
	"modrev/helpers/wire"
)

// lessonLimit is how long one run of a lesson may take before what it waits for is given up.
const lessonLimit = 60 * time.Second

// Lab is what one run of a lesson works with. The methods of the embedded Client act as the lesson's
// writer on its ConfigMaps. Its methods end the lesson when a step fails or the claim does not hold, so
// they are called from the goroutine of the lesson only; inside [Lab.Go] use the methods that begin
// with Try.
type Lab struct {
	*Client

	// Wire is the lesson's view of the requests between kube-apiserver and etcd.
	Wire *wire.Tap
	// Namespace is the lesson's own; it is also the owner name on the wire.
	Namespace string

	session *Session
	ctx     context.Context
	cancel  context.CancelCauseFunc
	opened  bool
	told    record.Telling
	host    *Lab // of a lab within a lab: the one of the lesson
	keeps   int  // see KeepHistory
	cleanup []func()
	clients sync.WaitGroup
	kept    []Kept

	bent      map[any]any // what a world has a helper do, by Hook
	registers int         // how many Registers were made
	shelves   *Kind       // the custom resource of the Registers
	customs   int         // how many custom resources the lesson has defined
}

// New prepares a lab for one run of the lesson with the given id ("rv1"). Nothing is started before the
// lesson first uses a client or etcd.
func New(ctx context.Context, p *Session, id string) *Lab {
	l := &Lab{session: p, Namespace: p.owner(id)}
	ctx, l.cancel = context.WithCancelCause(ctx)
	l.ctx = ctx
	l.Wire = p.wire.Tap(l.Namespace)
	l.Client = &Client{lab: l, who: "writer", kind: ConfigMap}
	return l
}

// Close ends the run: it releases what is held on the wire and undoes what the lab set up.
// The namespace stays (there is no controller here that would empty it); names are never used twice.
func (l *Lab) Close() {
	l.Wire.Close()
	for i := len(l.cleanup) - 1; i >= 0; i-- {
		l.cleanup[i]()
	}
	l.cancel(errors.New("the lesson has ended"))
	l.clients.Wait()
}

// Cleanup registers a function to run when the lab closes, last one first.
func (l *Lab) Cleanup(f func()) { l.cleanup = append(l.cleanup, f) }

// Context is the context of the run; it ends with it.
func (l *Lab) Context() context.Context { return l.ctx }

// open starts the control plane if need be and makes the namespace of the lesson.
func (l *Lab) open() {
	if l.opened {
		return
	}
	if err := l.session.Start(l.ctx); err != nil {
		l.Stuck("starting the control plane", err)
	}
	l.opened = true
	var cancel context.CancelFunc
	l.ctx, cancel = context.WithTimeoutCause(l.ctx, lessonLimit,
		fmt.Errorf("the lesson did not get on within %v", lessonLimit))
	l.Cleanup(func() { cancel() })
	l.makeNamespace()
	l.Wire.Tape().Forget()
}

// makeNamespace makes the namespace of the lesson. That is a setting of the stage, not a step of the lesson, so it is
// not on the tape.
func (l *Lab) makeNamespace() {
	_, err := l.quiet().Of(Namespace).TryCreate(l.Namespace)
	l.Step(err, "creating the namespace "+l.Namespace)
}

// Session is the control plane of the lab, started if it was not yet.
func (l *Lab) Session() *Session {
	l.open()
	return l.session
}

// Rival is another client with the same rights, whose requests the tape shows as the rival's.
func (l *Lab) Rival() *Client { return l.As("rival") }

// As is another client with the rights of an administrator, under a name of its own on the tape, in the
// User-Agent and as the field manager.
func (l *Lab) As(who string) *Client {
	return &Client{lab: l, who: who, kind: ConfigMap}
}

// AsUser is a client of another user of the cluster. RBAC decides what that user may do: without a role,
// nothing.
func (l *Lab) AsUser(user string, groups ...string) *Client {
	l.open()
	cfg, err := l.session.control.AddUser(user, groups...)
	l.Step(err, "adding the user "+user)
	return &Client{lab: l, who: user, kind: ConfigMap, config: cfg}
}

// Stranger is a client without a certificate: one that sends a bearer token which nobody has given out, or, with an
// empty token, nothing that says who it is.
func (l *Lab) Stranger(token string) *Client {
	l.open()
	cfg := rest.AnonymousClientConfig(l.session.control.Admin())
	cfg.BearerToken = token
	return &Client{lab: l, who: "stranger", kind: ConfigMap, config: cfg}
}

// AtSecondAPIServer is a client of a second kube-apiserver that works over the same etcd. It is started
// when a lesson first asks for it.
func (l *Lab) AtSecondAPIServer(who string) *Client {
	l.open()
	server, err := l.session.second.start(l.ctx, l.session.control, controlplane.APIServerOptions{})
	l.Step(err, "starting a second kube-apiserver over the same etcd")
	return &Client{lab: l, who: who, kind: ConfigMap, config: server.Admin()}
}

// Etcd is a client of etcd itself, behind kube-apiserver's back. It runs inside the process of etcd and
// does not pass the wire.
func (l *Lab) Etcd() *clientv3.Client {
	l.open()
	return l.session.control.Etcd()
}

// KeyValue is what etcd stores under a key: the revision fields, and the value.
type KeyValue struct {
	CreateRevision, ModRevision, Version int64
	Value                                []byte
}

// KV reads the key of an object from etcd. The lesson ends if the key does not exist.
func (l *Lab) KV(o *Object) KeyValue {
	key := l.Key(o)
	kv, ok := l.TryKVAt(key)
	if !ok {
		l.Stuck("reading "+key+" from etcd", errors.New("there is no such key"))
	}
	return kv
}

// TryKVAt reads a key from etcd and says whether it exists.
func (l *Lab) TryKVAt(key string) (KeyValue, bool) {
	resp, err := l.Etcd().Get(l.ctx, key)
	l.Step(err, "reading "+key+" from etcd")
	if len(resp.Kvs) == 0 {
		return KeyValue{}, false
	}
	kv := resp.Kvs[0]
	return KeyValue{CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Value: kv.Value},
		true
}

// Exists says whether an object's key is in etcd.
func (l *Lab) Exists(o *Object) bool {
	_, there := l.TryKVAt(l.Key(o))
	return there
}

// Revision is the revision that etcd's store has reached.
func (l *Lab) Revision() int64 {
	resp, err := l.Etcd().Get(l.ctx, "/", clientv3.WithCountOnly())
	l.Step(err, "asking etcd for its revision")
	return resp.Header.Revision
}

// KeepHistory promises that no lesson compacts etcd until the returned function is called: for lessons
// that read old revisions.
func (l *Lab) KeepHistory() (release func()) {
	// A second lock by the same lab would wait behind a lesson that waits to compact, which waits for the first.
	if l.keeps == 0 {
		l.session.history.RLock()
	}
	l.keeps++
	var once sync.Once
	release = func() {
		once.Do(func() {
			if l.keeps--; l.keeps == 0 {
				l.session.history.RUnlock()
			}
		})
	}
	l.Cleanup(release)
	return release
}

// CompactTo has etcd forget the history before a revision, as soon as no lesson needs it. Another lesson may have had
// it forget more.
func (l *Lab) CompactTo(revision int64) {
	etcd := l.Etcd()
	l.session.history.Lock()
	defer l.session.history.Unlock()
	_, err := etcd.Compact(l.ctx, revision, clientv3.WithCompactPhysical())
	if errors.Is(err, rpctypes.ErrCompacted) {
		return
	}
	l.Step(err, fmt.Sprintf("compacting etcd up to revision %d", revision))
}

// Record runs do and returns the requests for the lesson's keys that reached etcd meanwhile.
//
// Reads of the lesson's namespace itself are left out. On a busy machine the admission of a create asks etcd for a
// namespace that is younger than its cache (the plugin in k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle),
// and that says nothing about the lesson.
func (l *Lab) Record(do func()) wire.Requests {
	l.open()
	from := l.Wire.Tape().Now()
	do()
	own := Namespace.KeyOf("", l.Namespace)
	return slices.DeleteFunc(l.Wire.Tape().Since(from),
		func(r wire.Request) bool { return r.Key == own && r.Method == wire.Range })
}

// Pending is something that the lesson does in the background.
type Pending struct {
	lab  *Lab
	what string
	done chan error
}

// Go starts something that will wait, such as a write whose transaction is held. Inside, use the methods
// that begin with Try.
func (l *Lab) Go(what string, do func() error) *Pending {
	p := &Pending{lab: l, what: what, done: make(chan error, 1)}
	l.clients.Add(1)
	go func() {
		defer l.clients.Done()
		err := fmt.Errorf("%s ended the lesson", what)
		defer func() { p.done <- err }() // also when do ends this goroutine
		err = do()
	}()
	return p
}

// Wait waits for the end and returns the error of what was done.
func (p *Pending) Wait() error {
	select {
	case err := <-p.done:
		return err
	case <-p.lab.ctx.Done():
		p.lab.Stuck("waiting for "+p.what, context.Cause(p.lab.ctx))
		return nil
	}
}

// Race forces the order of a race. It holds the next transaction of slow at etcd's door, lets fast run to
// its end, releases the transaction, and returns the error of slow. Nothing is left to chance: the
// transaction was built before fast began, and is executed after fast is done.
func (l *Lab) Race(key string, slow func() error, fast func()) error {
	held := l.Wire.Hold(wire.TxnOn(key))
	ctx, cancel := context.WithCancelCause(l.ctx)
	pending := l.Go("the write that is held", func() error {
		err := slow()
		cancel(fmt.Errorf("the write ended without sending one: %s", describe(err)))
		return err
	})
	if err := held.Arrived(ctx); err != nil {
		l.Stuck("holding the transaction on "+wire.ShortKey(key), err)
	}
	rivals := l.Wire.Add(&wire.Rule{
		When: func(r *wire.Request) bool { return r.Key == key && r.Method != wire.Event },
		Note: record.Rivals,
	})
	fast()
	rivals()
	held.Release()
	return pending.Wait()
}

// quiet is a client whose requests are not on the tape.
func (l *Lab) quiet() *Client {
	l.open()
	return &Client{lab: l, who: "", kind: ConfigMap, config: l.session.control.Admin()}
}
