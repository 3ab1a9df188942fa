package lab

import "modrev/helpers/wire"

// CreateWithFinalizer creates an object that carries one finalizer: a delete then only marks it, until
// somebody takes the finalizer away. There is no controller here that would.
func (c *Client) CreateWithFinalizer(name, finalizer string, fields ...string) *Object {
	o := c.New(name, fields...)
	o.SetFinalizers([]string{finalizer})
	o, err := c.TryCreateObject(o)
	c.lab.Step(err, c.step("create", name))
	return o
}

// WithoutFinalizers is a copy of an object without its finalizers: sent as a replace, it ends an object that
// is being deleted.
func WithoutFinalizers(o *Object) *Object {
	o = o.DeepCopy()
	o.SetFinalizers(nil)
	return o
}

// Exists says whether an object's key is in etcd.
func (l *Lab) Exists(o *Object) bool {
	_, there := l.TryKVAt(l.Key(o))
	return there
}

// RaceForTheLastFinalizer makes an object that is marked as deleted and held by one finalizer, and removes
// the finalizer with a replace that is overtaken: by a patch, or by the end of the object and a create under
// its name. sent makes what is sent from what was read. It returns the object as it was read, the requests
// for it from the replace on, and the answer to the replace.
func (l *Lab) RaceForTheLastFinalizer(recreate bool, sent func(*Object) *Object) (marked *Object, seen wire.Requests, answer *Object, err error) {
	name := "shelf"
	if recreate {
		name = "lamp" // a lesson that wants both has two objects
	}
	l.CreateWithFinalizer(name, "modrev.example/hold", "color=red")
	l.Delete(name)
	marked = l.Get(name)
	l.Settle(marked)
	seen = l.Record(func() {
		err = l.Race(l.Key(marked), func() error {
			var err error
			answer, err = l.TryReplace(sent(WithoutFinalizers(marked)))
			return err
		}, func() {
			if !recreate {
				l.Rival().Set(name, "color=blue")
				return
			}
			l.Rival().Replace(WithoutFinalizers(marked))
			l.Rival().Create(name, "color=blue")
		})
	})
	return marked, seen, answer, err
}
