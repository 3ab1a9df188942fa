package token

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
)

// Workload is what concurrent clients do to a store in order to make a history worth checking: they create, read,
// replace, patch and delete the same few objects, with the tokens and uids that they saw last, or without.
type Workload struct {
	// Kind is the kind of the objects.
	Kind Kind
	// Clients is how many clients there are, each with one request at a time.
	Clients int
	// Objects is how many objects they share.
	Objects int
	// Requests is how many requests each client sends.
	Requests int
	// Seed makes the choices of each client the same in every run; how they fall together is up to the run.
	Seed uint64
}

// Run lets the clients work on a store until each has sent its requests or ctx ends, and records it. Requests that
// are under way when ctx ends are lost.
func (w Workload) Run(ctx context.Context, r *Recorder, s Store) {
	names := objectNames(w.Objects)
	var clients sync.WaitGroup
	for client := range w.Clients {
		clients.Go(func() {
			c := worker{
				rand: rand.New(rand.NewPCG(w.Seed, uint64(client))), number: client, names: names,
				last: map[string]Answer{},
			}
			for i := 0; i < w.Requests && ctx.Err() == nil; i++ {
				req := c.next(w.Kind, i)
				a, err := r.Do(ctx, c.number, s, req)
				switch {
				case isLost(a, err):
					c.number += w.Clients // the lost request may still be under way; see Recorder
				case a.Token != "":
					c.last[req.Name] = a
				}
			}
		})
	}
	clients.Wait()
}

// worker is one client of a workload.
type worker struct {
	rand   *rand.Rand
	number int
	names  []string
	last   map[string]Answer // what it saw last of each object
}

func (c *worker) next(kind Kind, i int) Request {
	// Creates and deletes are so frequent that an object has many incarnations, and so rare that it has many
	// versions.
	verbs := []Verb{
		Create, Create, Get, Get, Get, Replace, Replace, Replace, Replace, Replace, Patch, Patch, Patch, Delete,
	}
	req := Request{
		Client: fmt.Sprintf("client%d", c.number),
		Verb:   verbs[c.rand.IntN(len(verbs))],
		Name:   c.names[c.rand.IntN(len(c.names))],
	}
	last := c.last[req.Name]
	mine := Content{"by": req.Client, "request": fmt.Sprint(i)} // no two writes are the same
	switch req.Verb {
	case Create:
		req.Set = mine
	case Replace:
		req.Set = mine
		if c.one(4) {
			req.Set = last.Content
		}
		if kind.NeedsToken() && !c.one(8) || !c.one(3) {
			req.Token = last.Token
		}
		if c.one(8) {
			req.UID = last.UID
		}
	case Patch:
		req.Set = Content{req.Client: fmt.Sprint(i)} // a field of its own
		if c.one(3) {
			req.Set = mine
		}
		if c.one(3) {
			req.Token = last.Token
		}
	case Delete:
		if !c.one(3) {
			req.Token = last.Token
		}
		if c.one(3) {
			req.UID = last.UID
		}
	}
	return req
}

func (c *worker) one(in int) bool { return c.rand.IntN(in) == 0 }
