package lab

import (
	"context"

	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// Informer is client-go's cache of the objects of one kind in the namespace of a lesson: a list that a
// watch keeps up to date, in the memory of a controller.
type Informer struct {
	cache.SharedIndexInformer

	client *Client
	lister cache.GenericLister
}

// CacheHook decides what an informer's cache stores when an object comes of which it holds another version. When
// nil, as in reality, that is the object that came.
var CacheHook Hook[func(held, came *Object) *Object]

// Informer starts an informer on the party's kind and waits until it has read the list. Its requests stand
// on the tape under the party's name, so that [wire.Tap.HoldWatches] can make it lag.
func (c *Client) Informer() *Informer {
	api, err := c.dynamic()
	c.lab.Step(err, "starting an informer on "+c.kind.Resource)
	generic := dynamicinformer.NewFilteredDynamicInformer(api, c.kind.GVR(), c.lab.Namespace, 0, cache.Indexers{}, nil)
	i := &Informer{SharedIndexInformer: generic.Informer(), client: c, lister: generic.Lister()}
	if bend := CacheHook.in(c.lab); bend != nil {
		err := i.SetTransform(func(came any) (any, error) {
			if held, there, err := i.GetStore().Get(came); err == nil && there {
				return bend(held.(*Object), came.(*Object)), nil
			}
			return came, nil
		})
		c.lab.Step(err, "bending the informer's cache")
	}
	ctx, cancel := context.WithCancel(c.lab.ctx)
	c.lab.Cleanup(cancel)
	c.lab.Go("the informer", func() error { i.RunWithContext(ctx); return nil })
	c.lab.Until("the informer on "+c.kind.Resource+" has read its first list", func() (bool, error) {
		return i.HasSynced(), nil
	})
	return i
}

// Get reads an object from the cache, without a request.
func (i *Informer) Get(name string) *Object {
	o, err := i.TryGet(name)
	i.client.lab.Step(err, "reading "+name+" from the informer's cache")
	return o
}

// TryGet reads an object from the cache, without a request. That the cache does not have it is an error,
// for which [IsNotFound] says true.
func (i *Informer) TryGet(name string) (*Object, error) {
	found, err := i.lister.ByNamespace(i.client.lab.Namespace).Get(name)
	if err != nil {
		return nil, err
	}
	return found.(*Object).DeepCopy(), nil
}

// CopyHook says whether [Informer.Shared] hands out copies. When false, as in reality, it hands out what the cache
// holds.
var CopyHook Hook[bool]

// Shared reads an object from the cache as client-go's lister hands it out: it is the cache's own, and no copy.
func (i *Informer) Shared(name string) *Object {
	found, err := i.lister.ByNamespace(i.client.lab.Namespace).Get(name)
	i.client.lab.Step(err, "reading "+name+" from the informer's cache")
	if CopyHook.in(i.client.lab) {
		return found.(*Object).DeepCopy()
	}
	return found.(*Object)
}

// WaitFor waits until the cache has reached a resourceVersion, such as that of the answer to a write.
func (i *Informer) WaitFor(resourceVersion string) {
	i.client.lab.Until("the informer has reached "+resourceVersion, func() (bool, error) {
		order, err := i.client.lab.Order(i.GetStore().LastStoreSyncResourceVersion(), resourceVersion)
		return order >= 0, err
	})
}
