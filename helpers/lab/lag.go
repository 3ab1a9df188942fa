package lab

import (
	"context"
	"errors"

	"modrev/helpers/wire"
)

// CreateUnseen creates an object of which kube-apiserver's cache does not hear before the cache is released:
// the cache is frozen first, and then certain not to know. The kind is a custom resource of the lesson's own.
func (c *Client) CreateUnseen(name string, fields ...string) (*Object, *wire.Frozen) {
	frozen := c.lab.Wire.Freeze(c.kind.StoragePrefix())
	o := c.Create(name, fields...)
	c.lab.Step(frozen.Holds(c.lab.ctx, c.lab.KV(o).ModRevision), "keeping the creation of "+name+" from kube-apiserver's cache")
	return o, frozen
}

// ReadBehind sends a read while a cache is frozen, and releases the cache as soon as the read has either been
// answered or is seen to wait for the cache. It says whether the read waited, and what came of it. Inside, use
// the methods that begin with Try.
func (l *Lab) ReadBehind(frozen *wire.Frozen, what string, read func() error) (waited bool, err error) {
	ctx, cancel := context.WithCancelCause(l.ctx)
	defer cancel(nil)
	pending := l.Go(what, func() error {
		err := read()
		cancel(errors.New("the read has been answered"))
		return err
	})
	waited = frozen.Asked(ctx) == nil
	frozen.Release()
	return waited, pending.Wait()
}
