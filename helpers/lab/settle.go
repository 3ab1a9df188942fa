package lab

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Settle waits until kube-apiserver's own cache holds an object in the version given, or a later one. A
// write starts from that cache; where a lesson counts requests, it says how far the cache has come. (A read
// that is not older than a version waits for it: WaitUntilFreshAndGet in
// k8s.io/apiserver/pkg/storage/cacher.)
func (l *Lab) Settle(o *Object) { l.quiet().settle(o) }

func (c *Client) settle(o *Object) {
	k := kindOf(o)
	_, err := c.Of(k).in(o.GetNamespace()).TryGetAt(o.GetName(), o.GetResourceVersion())
	c.lab.Step(err, fmt.Sprintf("waiting until kube-apiserver's cache holds %s/%s at %s", k.Resource, o.GetName(),
		o.GetResourceVersion()))
}

// rewrite puts other bytes under the key of an object, in etcd itself and behind kube-apiserver's back: what edit
// makes of those that are there. It returns the object as the API then serves it, once kube-apiserver's cache has it.
func (l *Lab) rewrite(o *Object, edit func(stored []byte) ([]byte, error)) *Object {
	value, err := edit(l.KV(o).Value)
	l.Step(err, "changing the stored bytes of "+o.GetName())
	put, err := l.Etcd().Put(l.ctx, l.Key(o), string(value))
	l.Step(err, "putting "+o.GetName()+" into etcd")
	l.Settle(WithToken(o, strconv.FormatInt(put.Header.Revision, 10)))
	return l.Of(kindOf(o)).Peek(o.GetName())
}

// TryTouch puts the bytes that etcd holds under a key once more, behind kube-apiserver's back: nothing but
// the revision changes. It returns the new mod_revision, and may be called from within the wire.
func (l *Lab) TryTouch(key string) (int64, error) {
	stored, err := l.Etcd().Get(l.ctx, key)
	if err != nil {
		return 0, fmt.Errorf("reading %s from etcd: %w", key, err)
	}
	if len(stored.Kvs) == 0 {
		return 0, fmt.Errorf("touching %s: there is no such key in etcd", key)
	}
	put, err := l.Etcd().Put(l.ctx, key, string(stored.Kvs[0].Value))
	if err != nil {
		return 0, fmt.Errorf("putting the same bytes under %s: %w", key, err)
	}
	return put.Header.Revision, nil
}

// Each runs do for 1 to n at once and waits for all of them. It returns how many succeeded, and the errors
// of the others. Inside, use the methods that begin with Try.
func (l *Lab) Each(n int, do func(n int) error) (succeeded int, failed []error) {
	pending := make([]*Pending, n)
	for i := range pending {
		pending[i] = l.Go(fmt.Sprintf("client %d of %d", i+1, n), func() error { return do(i + 1) })
	}
	for _, p := range pending {
		if err := p.Wait(); err != nil {
			failed = append(failed, err)
		}
	}
	return n - len(failed), failed
}

// Until waits until a condition holds, asking again every few milliseconds. what names the condition in the
// message of a failure. An error ends the waiting.
func (l *Lab) Until(what string, holds func() (bool, error)) {
	l.open()
	err := wait.PollUntilContextCancel(l.ctx, 5*time.Millisecond, true,
		func(context.Context) (bool, error) { return holds() })
	l.Step(err, "waiting until "+what)
}
