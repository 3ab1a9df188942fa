package lab

import (
	"context"

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CachedControllers are two of controller-runtime's clients for one party, which read from one cache of the
// namespace of the lesson and write to the apiserver. The first is as a manager makes it by default; the
// second has [client.CacheOptions.EnableReadYourWritesConsistency] set. The cache is filled when a kind is
// first read; its watches stand on the tape under the party's name.
func (c *Client) CachedControllers() (plain, consistent client.Client) {
	cfg := c.readable()
	kinds := mapper([]Kind{ConfigMap})
	reader, err := cache.New(cfg, cache.Options{
		Scheme: scheme.Scheme, Mapper: kinds,
		DefaultNamespaces: map[string]cache.Config{c.lab.Namespace: {}},
	})
	c.lab.Step(err, "making a controller-runtime cache for "+c.who)
	ctx, cancel := context.WithCancel(c.lab.ctx)
	c.lab.Cleanup(cancel)
	c.lab.Go("the cache", func() error { return reader.Start(ctx) })
	if !reader.WaitForCacheSync(c.lab.ctx) {
		c.lab.Stuck("starting a controller-runtime cache for "+c.who, context.Cause(c.lab.ctx))
	}

	over := func(consistent bool) client.Client {
		api, err := client.New(cfg, client.Options{
			Scheme: scheme.Scheme, Mapper: kinds, FieldOwner: c.who,
			Cache: &client.CacheOptions{Reader: reader, EnableReadYourWritesConsistency: new(consistent)},
		})
		c.lab.Step(err, "making a controller-runtime client for "+c.who)
		return api
	}
	return over(false), over(true)
}
