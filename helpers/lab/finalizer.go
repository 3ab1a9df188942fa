package lab

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
