package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/token"
	"modrev/helpers/wire"
)

// Register is the real server as a store of versioned objects, for traces of equality tokens to be played
// against. What a request wrote is read off the wire.
type Register struct {
	lab    *Lab
	kind   Kind
	prefix string
	fields []string // where the content of an object stands
}

// Register is an empty store of one kind on the real server. Every call makes one whose names no other has.
func (l *Lab) Register(k token.Kind) *Register {
	l.open()
	l.registers++
	r := &Register{lab: l, kind: ConfigMap, prefix: fmt.Sprintf("r%d-", l.registers), fields: []string{"data"}}
	switch k {
	case token.Lease:
		r.kind, r.fields = Lease, []string{"metadata", "annotations"}
	case token.CustomResource:
		if l.shelves == nil {
			shelves := l.CustomResource()
			l.shelves = &shelves
		}
		r.kind, r.fields = *l.shelves, []string{"spec"}
	}
	return r
}

// Future returns a number that the store has not reached.
func (r *Register) Future() string {
	resp, err := r.lab.session.control.Etcd().Get(r.lab.ctx, "/")
	if err != nil {
		return "9000000000000000000"
	}
	return strconv.FormatInt(resp.Header.Revision+1_000_000, 10)
}

// Key is the key in etcd of one of its objects.
func (r *Register) Key(name string) string { return r.kind.KeyOf(r.lab.Namespace, r.prefix+name) }

// Do sends one request to the server. Several clients may call it at once, each with one request at a time;
// Answer.Wrote is then of no use, because the wire does not say which of them a transaction belongs to.
func (r *Register) Do(_ context.Context, q token.Request) (token.Answer, error) {
	client := r.lab.As(q.Client).Of(r.kind)
	name := r.prefix + q.Name
	tape := r.lab.Wire.Tape()
	from := tape.Now()
	o, err := r.send(client, name, q)
	if _, answered := statusOf(err); err != nil && !answered {
		return token.Answer{}, err
	}
	calls := slices.DeleteFunc(tape.Calls(from), func(c wire.Call) bool { return c.Who != q.Client })
	if len(calls) != 1 {
		return token.Answer{}, fmt.Errorf("%s became %d HTTP requests", q, len(calls))
	}
	a := token.Answer{Code: calls[0].Code, Wrote: slices.ContainsFunc(tape.Since(from), wire.Request.Wrote)}
	if err != nil {
		s, _ := statusOf(err)
		a.Reason = string(s.Reason)
		return a, nil
	}
	if o != nil {
		a.Token, a.UID, a.Content = o.GetResourceVersion(), string(o.GetUID()), r.content(o)
	}
	return a, nil
}

func (r *Register) send(client *Client, name string, q token.Request) (*Object, error) {
	switch q.Verb {
	case token.Create:
		return client.TryCreateObject(r.object(name, q))
	case token.Get:
		return client.TryGet(name)
	case token.Replace:
		return client.TryReplace(r.object(name, q))
	case token.Patch:
		body, err := json.Marshal(r.patch(q))
		if err != nil {
			return nil, fmt.Errorf("writing the patch of %s: %w", q, err)
		}
		return client.TryPatch(name, types.MergePatchType, string(body))
	case token.Delete:
		var o metav1.DeleteOptions
		if q.Token != "" || q.UID != "" {
			o.Preconditions = &metav1.Preconditions{}
		}
		if q.Token != "" {
			o.Preconditions.ResourceVersion = &q.Token
		}
		if q.UID != "" {
			uid := types.UID(q.UID)
			o.Preconditions.UID = &uid
		}
		return nil, client.TryDelete(name, o)
	}
	return nil, fmt.Errorf("a trace has no verb %q", q.Verb)
}

func (r *Register) object(name string, q token.Request) *Object {
	o := r.kind.newObject(r.lab.Namespace, name)
	if len(q.Set) > 0 {
		r.put(o.Object, q)
	}
	o.SetResourceVersion(q.Token)
	o.SetUID(types.UID(q.UID))
	return o
}

func (r *Register) patch(q token.Request) map[string]any {
	body := map[string]any{}
	if len(q.Set) > 0 || len(q.Unset) > 0 {
		r.put(body, q)
	}
	if q.Token != "" || q.UID != "" {
		meta, ok := body["metadata"].(map[string]any)
		if !ok {
			meta = map[string]any{}
			body["metadata"] = meta
		}
		if q.Token != "" {
			meta["resourceVersion"] = q.Token
		}
		if q.UID != "" {
			meta["uid"] = q.UID
		}
	}
	return body
}

// put writes the content of a request to where objects of the kind have it.
func (r *Register) put(o map[string]any, q token.Request) {
	for _, f := range r.fields {
		next, ok := o[f].(map[string]any)
		if !ok {
			next = map[string]any{}
			o[f] = next
		}
		o = next
	}
	for name, value := range q.Set {
		o[name] = value
	}
	for _, name := range q.Unset {
		o[name] = nil
	}
}

func (r *Register) content(o *Object) token.Content {
	content := token.Content{}
	var at any = o.Object
	for _, f := range r.fields {
		m, ok := at.(map[string]any)
		if !ok {
			return content
		}
		at = m[f]
	}
	m, _ := at.(map[string]any)
	for name, value := range m {
		content[name] = fmt.Sprint(value)
	}
	return content
}

var _ token.Store = (*Register)(nil)
