package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Client is one of the parties of a lesson. Its methods act on objects of one kind (ConfigMaps unless Of
// says otherwise) in the namespace of the lesson. Those that begin with Try return the error of the API;
// the others are steps that must succeed, and end the lesson if they do not.
type Client struct {
	lab         *Lab
	who         string
	kind        Kind
	namespace   string // another than the lesson's own
	subresource string
	header      http.Header // sent with every request
	config      *rest.Config
	api         dynamic.Interface
}

// Of is the same party, acting on objects of another kind.
func (c *Client) Of(k Kind) *Client {
	d := *c
	d.kind = k
	return &d
}

// Kind is the kind of the objects that the party acts on.
func (c *Client) Kind() Kind { return c.kind }

// in is the same party, acting in another namespace than the lesson's own.
func (c *Client) in(namespace string) *Client {
	d := *c
	d.namespace = namespace
	return &d
}

// Sub is the same party, acting on a subresource: "status", "scale".
func (c *Client) Sub(resource string) *Client {
	d := *c
	d.subresource = resource
	return &d
}

// Config is the rest.Config of the party, for client libraries: its requests appear on the tape.
func (c *Client) Config() *rest.Config {
	cfg := rest.CopyConfig(c.base())
	cfg.QPS = -1
	if c.who != "" {
		cfg.UserAgent = c.who
		cfg.Wrap(c.lab.Wire.Transport(c.who))
	}
	if c.header != nil {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return withHeader{c.header, next} })
	}
	return cfg
}

// WithHeader is the same party, sending one more HTTP header with every request.
func (c *Client) WithHeader(name, value string) *Client {
	d := *c
	d.api = nil // its requests go another way
	d.header = c.header.Clone()
	if d.header == nil {
		d.header = http.Header{}
	}
	d.header.Set(name, value)
	return &d
}

// withHeader adds headers to requests.
type withHeader struct {
	header http.Header
	next   http.RoundTripper
}

func (w withHeader) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	for name, values := range w.header {
		q.Header[name] = values
	}
	return w.next.RoundTrip(q)
}

// base is the rest.Config of the party without the tape.
func (c *Client) base() *rest.Config {
	c.lab.open()
	if c.config != nil {
		return c.config
	}
	return c.lab.session.control.Admin()
}

func (c *Client) dynamic() (dynamic.Interface, error) {
	if c.api == nil {
		api, err := dynamic.NewForConfig(c.Config())
		if err != nil {
			return nil, fmt.Errorf("making a client for %s: %w", c.who, err)
		}
		c.api = api
	}
	return c.api, nil
}

func (c *Client) resource() (dynamic.ResourceInterface, error) {
	api, err := c.dynamic()
	if err != nil {
		return nil, err
	}
	if c.kind.Cluster {
		return api.Resource(c.kind.GVR()), nil
	}
	if c.namespace != "" {
		return api.Resource(c.kind.GVR()).Namespace(c.namespace), nil
	}
	return api.Resource(c.kind.GVR()).Namespace(c.lab.Namespace), nil
}

func (c *Client) subresources() []string {
	if c.subresource == "" {
		return nil
	}
	return []string{c.subresource}
}

// step is what a party does, as a failure names it.
func (c *Client) step(verb, name string) string {
	what := strings.TrimSpace(fmt.Sprintf("%s's %s of %s/%s", c.who, verb, c.kind.Resource, name))
	if c.subresource != "" {
		what += "/" + c.subresource
	}
	return what
}

// New is an object of the party's kind that exists only here, with fields such as "color=red" set.
func (c *Client) New(name string, fields ...string) *Object {
	return c.kind.newObject(c.lab.Namespace, name, fields...)
}

// TryCreate creates an object with the given fields.
func (c *Client) TryCreate(name string, fields ...string) (*Object, error) {
	return c.TryCreateObject(c.New(name, fields...))
}

// TryCreateObject creates an object as it stands.
func (c *Client) TryCreateObject(o *Object) (*Object, error) {
	r, err := c.resource()
	if err != nil {
		return nil, err
	}
	return r.Create(c.lab.ctx, o, metav1.CreateOptions{FieldManager: c.who}, c.subresources()...)
}

// TryDryCreate is TryCreateObject as a dry run: everything but the storage.
func (c *Client) TryDryCreate(o *Object) (*Object, error) {
	r, err := c.resource()
	if err != nil {
		return nil, err
	}
	return r.Create(c.lab.ctx, o, metav1.CreateOptions{FieldManager: c.who, DryRun: []string{metav1.DryRunAll}})
}

// TryDryReplace is TryReplace as a dry run: everything but the storage.
func (c *Client) TryDryReplace(o *Object, fields ...string) (*Object, error) {
	r, err := c.resource()
	if err != nil {
		return nil, err
	}
	options := metav1.UpdateOptions{FieldManager: c.who, DryRun: []string{metav1.DryRunAll}}
	return r.Update(c.lab.ctx, With(o, fields...), options, c.subresources()...)
}

// CreateObject creates an object as it stands.
func (c *Client) CreateObject(o *Object) *Object {
	out, err := c.TryCreateObject(o)
	c.lab.Step(err, c.step("create", o.GetName()))
	return out
}

// Create creates an object with the given fields.
func (c *Client) Create(name string, fields ...string) *Object {
	o, err := c.TryCreate(name, fields...)
	c.lab.Step(err, c.step("create", name))
	return o
}

// TryGet reads the newest version of an object.
func (c *Client) TryGet(name string) (*Object, error) {
	return c.TryGetAt(name, "")
}

// TryGetAt reads an object with a resourceVersion parameter: "" for the newest, "0" for anything that the
// apiserver has, a number for "not older than".
func (c *Client) TryGetAt(name, resourceVersion string) (*Object, error) {
	r, err := c.resource()
	if err != nil {
		return nil, err
	}
	return r.Get(c.lab.ctx, name, metav1.GetOptions{ResourceVersion: resourceVersion}, c.subresources()...)
}

// Get reads the newest version of an object.
func (c *Client) Get(name string) *Object {
	o, err := c.TryGet(name)
	c.lab.Step(err, c.step("get", name))
	return o
}

// GetCached reads an object as kube-apiserver's cache has it, however old that is.
func (c *Client) GetCached(name string) *Object {
	o, err := c.TryGetAt(name, "0")
	c.lab.Step(err, c.step("get", name))
	return o
}

// TryReplace sends a whole object, with some fields changed, as a PUT. Whether that is conditional is up
// to the object: it carries the resourceVersion that it was read with, or none.
func (c *Client) TryReplace(o *Object, fields ...string) (*Object, error) {
	r, err := c.resource()
	if err != nil {
		return nil, err
	}
	return r.Update(c.lab.ctx, With(o, fields...), metav1.UpdateOptions{FieldManager: c.who}, c.subresources()...)
}

// Replace sends a whole object, with some fields changed, as a PUT.
func (c *Client) Replace(o *Object, fields ...string) *Object {
	out, err := c.TryReplace(o, fields...)
	c.lab.Step(err, c.step("replace", o.GetName()))
	return out
}

// TryPatch sends a patch in one of the four formats.
func (c *Client) TryPatch(name string, format types.PatchType, body string) (*Object, error) {
	return c.TryPatchWith(name, format, body, metav1.PatchOptions{FieldManager: c.who})
}

// TryPatchWith is TryPatch with the options of the caller: field manager, force, dry run.
func (c *Client) TryPatchWith(name string, format types.PatchType, body string, o metav1.PatchOptions) (*Object,
	error) {
	r, err := c.resource()
	if err != nil {
		return nil, err
	}
	return r.Patch(c.lab.ctx, name, format, []byte(body), o, c.subresources()...)
}

// Patch sends a patch in one of the four formats.
func (c *Client) Patch(name string, format types.PatchType, body string) *Object {
	o, err := c.TryPatch(name, format, body)
	c.lab.Step(err, c.step("patch", name))
	return o
}

// TrySet merges fields into an object with a merge patch that carries no resourceVersion.
func (c *Client) TrySet(name string, fields ...string) (*Object, error) {
	body := &Object{Object: map[string]any{}}
	c.kind.set(body, fields...)
	text, err := json.Marshal(body.Object)
	if err != nil {
		return nil, err
	}
	return c.TryPatch(name, types.MergePatchType, string(text))
}

// Set merges fields into an object with a merge patch that carries no resourceVersion: the way in which
// a rival writes here.
func (c *Client) Set(name string, fields ...string) *Object {
	o, err := c.TrySet(name, fields...)
	c.lab.Step(err, c.step("patch", name))
	return o
}

// TryDelete deletes an object, with preconditions if the options carry some ([UID], [Token]).
func (c *Client) TryDelete(name string, options ...metav1.DeleteOptions) error {
	r, err := c.resource()
	if err != nil {
		return err
	}
	var o metav1.DeleteOptions
	if len(options) > 0 {
		o = options[0]
	}
	return r.Delete(c.lab.ctx, name, o, c.subresources()...)
}

// Delete deletes an object.
func (c *Client) Delete(name string, options ...metav1.DeleteOptions) {
	c.lab.Step(c.TryDelete(name, options...), c.step("delete", name))
}

// Recreate deletes an object and creates another under the same name: a new incarnation.
func (c *Client) Recreate(name string, fields ...string) *Object {
	c.Delete(name)
	return c.Create(name, fields...)
}

// TryList lists the objects of the party's kind in the lesson's namespace.
func (c *Client) TryList(o metav1.ListOptions) (*List, error) {
	r, err := c.resource()
	if err != nil {
		return nil, err
	}
	return r.List(c.lab.ctx, o)
}

// List lists the newest objects of the party's kind in the lesson's namespace.
func (c *Client) List() *List {
	list, err := c.TryList(metav1.ListOptions{})
	c.lab.Step(err, c.step("list", ""))
	return list
}

// IsNotFound says whether an error of the API means that there is no such object.
func IsNotFound(err error) bool { return apierrors.IsNotFound(err) }

// errWatchEnded is what a Watcher reports when the server ended the watch.
var errWatchEnded = errors.New("the server ended the watch")

// WatchEvent is one event of a watch of the API.
type WatchEvent struct {
	Type            string // ADDED, MODIFIED, DELETED, BOOKMARK
	Name            string
	ResourceVersion string
	Object          *Object
}

// Watcher is a watch of the API that the lesson reads event by event.
type Watcher struct {
	client *Client
	events <-chan WatchEvent
	fault  func() error
}

// TryWatch starts a watch with options of the caller's own.
func (c *Client) TryWatch(o metav1.ListOptions) (*Watcher, error) {
	r, err := c.resource()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(c.lab.ctx)
	w, err := r.Watch(ctx, o)
	if err != nil {
		cancel()
		return nil, err
	}
	c.lab.Cleanup(func() { w.Stop(); cancel() })
	events := make(chan WatchEvent)
	var fault error
	go func() {
		defer close(events)
		for ev := range w.ResultChan() {
			o, ok := ev.Object.(*unstructured.Unstructured)
			if !ok || ev.Type == "ERROR" {
				fault = apierrors.FromObject(ev.Object)
				return
			}
			select {
			case events <- WatchEvent{string(ev.Type), o.GetName(), o.GetResourceVersion(), o}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return &Watcher{client: c, events: events, fault: func() error { return fault }}, nil
}

// Watch starts a watch from a resourceVersion.
func (c *Client) Watch(resourceVersion string) *Watcher {
	w, err := c.TryWatch(metav1.ListOptions{ResourceVersion: resourceVersion})
	c.lab.Step(err, c.step("watch", ""))
	return w
}

// TryNext waits for the next event. The error is that of the API when the watch ended with one.
func (w *Watcher) TryNext() (WatchEvent, error) {
	select {
	case ev, ok := <-w.events:
		if ok {
			return ev, nil
		}
		if err := w.fault(); err != nil {
			return WatchEvent{}, err
		}
		return WatchEvent{}, errWatchEnded
	case <-w.client.lab.ctx.Done():
		return WatchEvent{}, fmt.Errorf("waiting for an event: %w", context.Cause(w.client.lab.ctx))
	}
}

// Next waits for the next event.
func (w *Watcher) Next() WatchEvent {
	ev, err := w.TryNext()
	w.client.lab.Step(err, "waiting for the next event of the watch on "+w.client.kind.Resource)
	return ev
}

// Until waits for events up to and including one of the named object that has the given
// resourceVersion: the fence behind which no event can still be on its way.
func (w *Watcher) Until(resourceVersion string) []WatchEvent {
	var all []WatchEvent
	for {
		ev := w.Next()
		all = append(all, ev)
		if ev.ResourceVersion == resourceVersion {
			return all
		}
	}
}
