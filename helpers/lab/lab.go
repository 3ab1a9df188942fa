package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"modrev/helpers/controlplane"
	"modrev/helpers/notebook"
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

	plane   *Plane
	ctx     context.Context
	cancel  context.CancelCauseFunc
	opened  bool
	page    page
	failure *Failure
	host    *Lab   // of a lab within a lab: the one of the lesson
	skipped string // the reason, see Skip
	keeps   int    // see KeepHistory
	cleanup []func()
	clients sync.WaitGroup
	facts   map[string][]string
	kept    []Kept

	bent      map[any]any // what a world has a helper do, by Hook
	registers int         // how many Registers were made
	shelves   *Kind       // the custom resource of the Registers
	customs   int         // how many custom resources the lesson has defined
}

// Failure is why a run of a lesson ended early. Either the claim did not hold, and Expected and Observed
// tell the reader how, or a step on the way there could not be done (Stuck).
type Failure struct {
	Expected, Observed string
	Stuck              bool
}

// New prepares a lab for one run of the lesson with the given id ("rv1"). Nothing is started before the
// lesson first uses a client or etcd.
func New(ctx context.Context, p *Plane, id string) *Lab {
	l := &Lab{plane: p, Namespace: p.owner(id)}
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

// Failure is why the lesson ended early; nil when it did not.
func (l *Lab) Failure() *Failure { return l.failure }

// Context is the context of the run; it ends with it.
func (l *Lab) Context() context.Context { return l.ctx }

// open starts the control plane if need be and makes the namespace of the lesson.
func (l *Lab) open() {
	if l.opened {
		return
	}
	if err := l.plane.Start(l.ctx); err != nil {
		l.Stuck("starting the control plane", err)
	}
	l.opened = true
	var cancel context.CancelFunc
	l.ctx, cancel = context.WithTimeoutCause(l.ctx, lessonLimit,
		fmt.Errorf("the lesson did not get on within %v", lessonLimit))
	l.Cleanup(func() { cancel() })
	// The namespace is a setting of the stage, not a step of the lesson: it is made off the tape.
	cfg := l.plane.control.Admin()
	setup := &Client{lab: l, who: "", kind: Namespace, config: cfg}
	_, err := setup.TryCreate(l.Namespace)
	l.Step(err, "creating the namespace "+l.Namespace)
	l.Wire.Tape().Forget()
}

// Plane is the control plane of the lab, started if it was not yet.
func (l *Lab) Plane() *Plane {
	l.open()
	return l.plane
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
	cfg, err := l.plane.control.AddUser(user, groups...)
	l.Step(err, "adding the user "+user)
	return &Client{lab: l, who: user, kind: ConfigMap, config: cfg}
}

// AsBearer is a client that names itself by a bearer token, and by nothing else.
func (l *Lab) AsBearer(who, token string) *Client {
	l.open()
	cfg := rest.AnonymousClientConfig(l.plane.control.Admin())
	cfg.BearerToken = token
	return &Client{lab: l, who: who, kind: ConfigMap, config: cfg}
}

// AtSecondAPIServer is a client of a second kube-apiserver that works over the same etcd. It is started
// when a lesson first asks for it.
func (l *Lab) AtSecondAPIServer(who string) *Client {
	l.open()
	server, err := l.plane.second.start(l.ctx, l.plane.control, controlplane.APIServerOptions{})
	l.Step(err, "starting a second kube-apiserver over the same etcd")
	return &Client{lab: l, who: who, kind: ConfigMap, config: server.Admin()}
}

// Config is a rest.Config for client libraries that a lesson uses itself: its requests appear on the
// tape under the given name.
func (l *Lab) Config(who string) *rest.Config {
	return l.As(who).Config()
}

// Etcd is a client of etcd itself, behind kube-apiserver's back. It runs inside the process of etcd and
// does not pass the wire.
func (l *Lab) Etcd() *clientv3.Client {
	l.open()
	return l.plane.control.Etcd()
}

// KeyValue is what etcd stores under a key: the revision fields, and the value.
type KeyValue struct {
	CreateRevision, ModRevision, Version int64
	Value                                []byte
}

// KV reads the key of an object from etcd. The lesson ends if the key does not exist.
func (l *Lab) KV(o *Object) KeyValue {
	return l.KVAt(l.Key(o))
}

// KVAt reads a key from etcd. The lesson ends if the key does not exist.
func (l *Lab) KVAt(key string) KeyValue {
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
	return KeyValue{CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Value: kv.Value}, true
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
		l.plane.history.RLock()
	}
	l.keeps++
	var once sync.Once
	release = func() {
		once.Do(func() {
			if l.keeps--; l.keeps == 0 {
				l.plane.history.RUnlock()
			}
		})
	}
	l.Cleanup(release)
	return release
}

// CompactTo has etcd forget the history before a revision, as soon as no lesson needs it.
func (l *Lab) CompactTo(revision int64) {
	etcd := l.Etcd()
	l.plane.history.Lock()
	defer l.plane.history.Unlock()
	_, err := etcd.Compact(l.ctx, revision, clientv3.WithCompactPhysical())
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
	return slices.DeleteFunc(l.Wire.Tape().Since(from), func(r wire.Request) bool { return r.Key == own && r.Method == wire.Range })
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
		Note: notebook.Rivals,
	})
	fast()
	rivals()
	held.Release()
	return pending.Wait()
}

// WriteDown keeps a line that a document asks the reader to write down, for the notebook of the run; the
// headings are those of package notebook.
func (l *Lab) WriteDown(heading, format string, args ...any) {
	if l.facts == nil {
		l.facts = make(map[string][]string)
	}
	l.facts[heading] = append(l.facts[heading], fmt.Sprintf(format, args...))
}

// Facts are the lines that were written down, by heading.
func (l *Lab) Facts() map[string][]string { return l.facts }

// Step ends the lesson if a step on the way to the claim failed. what says what was being done.
func (l *Lab) Step(err error, what string) {
	if err != nil {
		l.Stuck(what, err)
	}
}

// fail ends the lesson; in a lab within a lab, that of the outer one. Of several failures the first is kept: the
// others follow from it.
func (l *Lab) fail(f *Failure) {
	for at := l; at != nil; at = at.host {
		if at.failure == nil {
			at.failure = f
		}
	}
	runtime.Goexit()
}

// Stuck ends the lesson because a step on the way to the claim could not be done.
func (l *Lab) Stuck(what string, err error) {
	l.fail(&Failure{
		Expected: what + " succeeds",
		Observed: fmt.Sprintf("%s: %s", what, describe(err)),
		Stuck:    true,
	})
}

// Expect ends the lesson with the claim refuted unless ok. expected and observed are the two sentences
// that the reader then sees; observed is a format for args.
func (l *Lab) Expect(ok bool, expected, observed string, args ...any) {
	if ok {
		return
	}
	l.fail(&Failure{Expected: expected, Observed: fmt.Sprintf(observed, args...)})
}

// Sends expects that exactly the given requests reached etcd, written as [wire.Requests.Summary] writes
// them: "1 Range, 2 Txn", or "no request".
func (l *Lab) Sends(seen wire.Requests, what, summary string) {
	l.Expect(seen.Summary() == summary, what+" costs etcd: "+summary, "%s cost etcd: %s", what, seen.Summary())
}

// Accepted expects that a write was accepted.
func (l *Lab) Accepted(err error, what string) {
	l.Expect(err == nil, what+" is accepted", "%s was refused: %s", what, describe(err))
}

// Refused expects that a request was refused with an HTTP status and reason.
func (l *Lab) Refused(err error, what string, code int, reason metav1.StatusReason) {
	expected := fmt.Sprintf("%s is refused: %d %s", what, code, reason)
	l.Expect(err != nil, expected, "%s was accepted", what)
	var status apierrors.APIStatus
	l.Expect(errors.As(err, &status), expected, "%s failed without an answer of the API: %v", what, err)
	got := status.Status()
	l.Expect(int(got.Code) == code && got.Reason == reason, expected, "%s was refused: %s", what, describe(err))
}

// Conflicts expects that a write was refused as stale: 409 Conflict with the standard text, and none of
// the causes that tell other conflicts apart.
func (l *Lab) Conflicts(err error, what string, o *Object) {
	l.Refused(err, what, http.StatusConflict, metav1.StatusReasonConflict)
	var status apierrors.APIStatus
	errors.As(err, &status)
	want, got := StaleText(o), status.Status().Message
	l.Expect(got == want, "the refusal says: "+want, "it says: %s", got)
	l.Expect(status.Status().Details != nil && len(status.Status().Details.Causes) == 0,
		"the refusal has details and no causes", "details %+v", status.Status().Details)
}

// StaleText is the message with which kube-apiserver refuses a stale write of an object
// (NewConflict in k8s.io/apimachinery/pkg/api/errors around OptimisticLockErrorMsg in
// k8s.io/apiserver/pkg/registry/generic/registry).
func StaleText(o *Object) string {
	return fmt.Sprintf("Operation cannot be fulfilled on %s %q: the object has been modified; "+
		"please apply your changes to the latest version and try again", kindOf(o).qualified(), o.GetName())
}

// Stored expects that etcd holds an object with the given fields ("color=blue") and without those that
// are written with a minus ("-size").
func (l *Lab) Stored(o *Object, fields ...string) {
	l.holds(l.Of(kindOf(o)).Peek(o.GetName()), fields...)
}

// holds is what Stored expects of what it has read.
func (l *Lab) holds(got *Object, fields ...string) {
	for _, f := range fields {
		if name, absent := strings.CutPrefix(f, "-"); absent {
			v, ok := lookup(got, name)
			l.Expect(!ok, name+" is not stored", "%s=%v is stored", name, v)
			continue
		}
		name, want, _ := strings.Cut(f, "=")
		v, ok := lookup(got, name)
		l.Expect(ok, f+" is stored", "%s is not stored", name)
		l.Expect(fmt.Sprint(v) == want, f+" is stored", "%s=%v is stored", name, v)
	}
}

// quiet is a client whose requests are not on the tape.
func (l *Lab) quiet() *Client {
	l.open()
	return &Client{lab: l, who: "", kind: ConfigMap, config: l.plane.control.Admin()}
}
