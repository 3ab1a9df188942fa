package token

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"sync"
)

// Mutant is the model with one rule changed. It is there to show that a comparison with the model can fail, and
// what a store would be like that got the rule wrong.
type Mutant struct {
	// Says is the changed rule, one sentence without a full stop.
	Says string
	// Kinds are the kinds for which the rule makes a difference.
	Kinds []Kind

	build func(*mutant)
}

// Store returns an empty store that obeys the changed rule.
func (m Mutant) Store(k Kind) Store {
	s := &mutant{Model: Model{Kind: k}}
	m.build(s)
	return s
}

// mutant is a [Model] that is bent from outside, so that the model itself stays readable.
type mutant struct {
	Model
	future string
	// before changes what the model is asked.
	before func(now Object, req Request) Request
	// after changes what the model has answered, and what it holds.
	after func(now Object, req Request, a Answer) Answer

	one sync.Mutex
}

func (m *mutant) Future() string {
	if m.future != "" {
		return m.future
	}
	return m.Model.Future()
}

func (m *mutant) Do(ctx context.Context, req Request) (Answer, error) {
	m.one.Lock()
	defer m.one.Unlock()
	now := m.Object(req.Name)
	asked := req
	if m.before != nil {
		asked = m.before(now, req)
	}
	a, err := m.Model.Do(ctx, asked)
	if err != nil || m.after == nil {
		return a, err
	}
	return m.after(now, req, a), nil
}

// overwrite stores content whatever the rules say, under a new token, and answers as if that were right.
func (m *mutant) overwrite(now Object, name string, content Content) Answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	now.Token, now.Content = m.mint(name), content
	m.put(name, now)
	return Answer{Code: http.StatusOK, Wrote: true, Token: now.Token, UID: now.UID, Content: content}
}

// Mutants returns one mutant for each rule of the model.
func Mutants() []Mutant {
	all := Kinds()
	return []Mutant{
		{
			Says:  "a token is accepted when it is equal to the current one or greater",
			Kinds: all,
			build: func(m *mutant) {
				count := 0
				m.Mint = func(string) string { count++; return strconv.Itoa(count) }
				m.future = "1000000"
				m.before = func(now Object, req Request) Request {
					sent, err := strconv.Atoi(req.Token)
					current, none := strconv.Atoi(now.Token)
					if err == nil && none == nil && sent >= current {
						req.Token = now.Token
					}
					return req
				}
			},
		},
		{
			Says:  "tokens wrap: every third write of a name hands out an old one again",
			Kinds: all,
			build: func(m *mutant) {
				writes := map[string]int{}
				m.Mint = func(name string) string { writes[name]++; return name + strconv.Itoa(writes[name]%3) }
			},
		},
		{
			Says:  "a write leaves the token as it is",
			Kinds: all,
			build: func(m *mutant) { m.Mint = func(name string) string { return "token of " + name } },
		},
		{
			Says:  "each object counts its own tokens, so that two objects can have the same",
			Kinds: all,
			build: func(m *mutant) {
				writes := map[string]int{}
				m.Mint = func(name string) string { writes[name]++; return strconv.Itoa(writes[name]) }
			},
		},
		{
			Says:  "a write that changes nothing is a write all the same",
			Kinds: all,
			build: func(m *mutant) {
				m.after = func(now Object, req Request, a Answer) Answer {
					if a.Code != http.StatusOK || a.Wrote || req.Verb == Get {
						return a
					}
					return m.overwrite(now, req.Name, a.Content)
				}
			},
		},
		{
			Says:  "a replace by the content that is stored already is accepted whatever its token",
			Kinds: all,
			build: func(m *mutant) {
				m.before = func(now Object, req Request) Request {
					if req.Verb == Replace && now.Exists() && req.Token != "" && maps.Equal(req.Set, now.Content) {
						req.Token = now.Token
					}
					return req
				}
			},
		},
		{
			Says:  "a stale token is no reason to refuse a replace",
			Kinds: all,
			build: ignore(Replace, func(req *Request, now Object) {
				if req.Token != "" {
					req.Token = now.Token
				}
			}),
		},
		{
			Says:  "the token in a patch is ignored",
			Kinds: all,
			build: ignore(Patch, func(req *Request, _ Object) { req.Token = "" }),
		},
		{
			Says:  "the token in the preconditions of a delete is ignored",
			Kinds: all,
			build: ignore(Delete, func(req *Request, _ Object) { req.Token = "" }),
		},
		{
			Says:  "the uid in a replace is ignored",
			Kinds: all,
			build: ignore(Replace, func(req *Request, _ Object) { req.UID = "" }),
		},
		{
			Says:  "the uid in the preconditions of a delete is ignored",
			Kinds: all,
			build: ignore(Delete, func(req *Request, _ Object) { req.UID = "" }),
		},
		{
			Says:  "the uid in a patch is ignored",
			Kinds: all,
			build: ignore(Patch, func(req *Request, _ Object) { req.UID = "" }),
		},
		{
			Says:  "a replace without a token is refused",
			Kinds: []Kind{ConfigMap},
			build: func(m *mutant) { m.Kind = CustomResource },
		},
		{
			Says:  "a replace without a token overwrites",
			Kinds: []Kind{CustomResource},
			build: func(m *mutant) { m.Kind = ConfigMap },
		},
		{
			Says:  "a replace of an absent object creates it",
			Kinds: []Kind{CustomResource},
			build: func(m *mutant) { m.Kind = Lease },
		},
		{
			Says:  "a replace of an absent object is refused",
			Kinds: []Kind{Lease},
			build: func(m *mutant) { m.Kind = CustomResource },
		},
		{
			Says:  "a patch without a token is refused as a replace without one is",
			Kinds: []Kind{Lease, CustomResource},
			build: func(m *mutant) {
				m.before = func(now Object, req Request) Request {
					if req.Verb == Patch && req.Token == "" && now.Exists() {
						req.Verb, req.Unset = Replace, nil
					}
					return req
				}
			},
		},
		{
			Says:  "a create of an object that exists overwrites it",
			Kinds: all,
			build: func(m *mutant) {
				m.after = func(now Object, req Request, a Answer) Answer {
					if a.Reason != "AlreadyExists" {
						return a
					}
					return m.overwrite(now, req.Name, req.Set)
				}
			},
		},
		{
			Says:  "an object that is created again gets the uid of the one that had its name",
			Kinds: all,
			build: func(m *mutant) {
				m.after = func(_ Object, req Request, a Answer) Answer {
					if a.Code != http.StatusCreated {
						return a
					}
					m.mu.Lock()
					defer m.mu.Unlock()
					o := m.objects[req.Name]
					o.UID = "uid of " + req.Name
					m.put(req.Name, o)
					a.UID = o.UID
					return a
				}
			},
		},
		{
			Says:  "a replace that is refused for its token is stored all the same",
			Kinds: all,
			build: func(m *mutant) {
				m.after = func(now Object, req Request, a Answer) Answer {
					if req.Verb == Replace && a.Reason == "Conflict" && now.Exists() {
						m.overwrite(now, req.Name, req.Set)
					}
					return a
				}
			},
		},
	}
}

// ignore makes a mutant that takes something out of requests of one verb before it looks at them.
func ignore(verb Verb, what func(req *Request, now Object)) func(*mutant) {
	return func(m *mutant) {
		m.before = func(now Object, req Request) Request {
			if req.Verb == verb {
				what(&req, now)
			}
			return req
		}
	}
}
