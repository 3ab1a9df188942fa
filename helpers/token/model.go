package token

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
)

// Verb is what a request does.
type Verb string

// The verbs. A patch is a JSON merge patch.
const (
	Create  Verb = "create"
	Get     Verb = "get"
	Replace Verb = "replace"
	Patch   Verb = "patch"
	Delete  Verb = "delete"
)

// Request is one request to a [Store].
type Request struct {
	Client string // who sends it
	Verb   Verb
	Name   string   // the object
	Set    Content  // all fields of the object that a create or replace sends; the fields that a patch sets
	Unset  []string // the fields that a patch removes
	Token  string   // the resourceVersion in the body or, of a delete, in its preconditions; "" for none
	UID    string   // the uid in the body or, of a delete, in its preconditions; "" for none
}

// Answer is what a [Store] answers to a [Request].
type Answer struct {
	Code    int     // HTTP status
	Reason  string  // the metav1.StatusReason of a refusal, "" otherwise
	Wrote   bool    // the request led to a storage write
	Token   string  // the resourceVersion of the object in the answer; "" for a refusal and a delete
	UID     string  // the uid of that object; "" for a refusal and a delete
	Content Content // its fields
}

// Store is a system that holds versioned objects: the model, a real server.
type Store interface {
	// Do sends one request. A refusal is an Answer; an error means that the outcome is not known.
	Do(ctx context.Context, req Request) (Answer, error)
	// Future returns a token that the store has not given out yet, of a form that it can read.
	Future() string
}

// Object is what a [Store] holds under one name. The zero Object is an absent one.
type Object struct {
	UID     string  // tells this incarnation from those that had the name before
	Token   string  // the current token
	Content Content // the fields
}

// Exists reports whether there is an object.
func (o Object) Exists() bool { return o.UID != "" }

// Effect is what a request does to an object.
type Effect int

// The effects. All but Nothing are one storage write.
const (
	Nothing Effect = iota // it stays as it is, and so does its token
	Creates               // there is a new incarnation: a new uid and a new token
	Changes               // it gets new content and a new token
	Removes               // it is absent from now on
)

// Verdict is how a request to one object ends.
type Verdict struct {
	Code    int     // HTTP status
	Reason  string  // the metav1.StatusReason of a refusal
	Effect  Effect  // what happens to the object
	Content Content // its fields afterwards
}

func refuse(code int, reason string) Verdict { return Verdict{Code: code, Reason: reason} }

// Judge is the model of a versioned register: what is answered to a request when now is what stands under the
// name, and what comes of it. The order of the checks is part of the model.
//
// Upstream: (*Store).Create, Update and Delete of k8s.io/apiserver/pkg/registry/generic/registry, with
// rest.BeforeUpdate and rest.BeforeDelete, over (*store).GuaranteedUpdate of k8s.io/apiserver/pkg/storage/etcd3.
func (k Kind) Judge(now Object, req Request) Verdict {
	var (
		notFound      = refuse(http.StatusNotFound, "NotFound")
		alreadyExists = refuse(http.StatusConflict, "AlreadyExists")
		conflict      = refuse(http.StatusConflict, "Conflict")
		invalid       = refuse(http.StatusUnprocessableEntity, "Invalid")

		otherToken = req.Token != "" && req.Token != now.Token
		otherUID   = req.UID != "" && req.UID != now.UID
	)
	switch req.Verb {
	case Create:
		if now.Exists() {
			return alreadyExists
		}
		return Verdict{Code: http.StatusCreated, Effect: Creates, Content: req.Set}

	case Replace:
		switch {
		case !now.Exists() && !k.CreatesOnReplace():
			return notFound
		case otherUID: // an absent object has no uid, so any uid is another
			return conflict
		case !now.Exists(): // whatever the token: nothing is there that it could be compared with
			return Verdict{Code: http.StatusCreated, Effect: Creates, Content: req.Set}
		case req.Token == "" && k.NeedsToken():
			return invalid
		case otherToken:
			return conflict
		}
		return store(now, req.Set)

	case Patch:
		switch {
		case !now.Exists():
			return notFound
		case otherToken:
			return conflict
		case otherUID: // the uid of a patch is no precondition but a change, of a field that cannot change
			return invalid
		}
		return store(now, merge(now.Content, req))

	case Delete:
		switch {
		case !now.Exists():
			return notFound
		case otherUID, otherToken:
			return conflict
		}
		return Verdict{Code: http.StatusOK, Effect: Removes}

	default: // Get
		if !now.Exists() {
			return notFound
		}
		return Verdict{Code: http.StatusOK, Content: now.Content}
	}
}

// store accepts content. If that is what is stored already, nothing is written and the token stays.
func store(now Object, content Content) Verdict {
	if maps.Equal(now.Content, content) {
		return Verdict{Code: http.StatusOK, Content: now.Content}
	}
	return Verdict{Code: http.StatusOK, Effect: Changes, Content: content}
}

// merge applies a merge patch.
func merge(content Content, patch Request) Content {
	merged := maps.Clone(content)
	if merged == nil {
		merged = Content{}
	}
	maps.Copy(merged, patch.Set)
	for _, field := range patch.Unset {
		delete(merged, field)
	}
	return merged
}

// Model is a [Store] that does what [Kind.Judge] says. Its zero value is an empty store of ConfigMaps. It may
// be used by many goroutines at once.
type Model struct {
	// Kind is the kind of its objects.
	Kind Kind
	// Mint makes the token of a new version of the named object. When it is nil, every token is one that was
	// never seen before, as the model demands.
	Mint func(name string) string

	mu      sync.Mutex
	objects map[string]Object
	minted  int
}

// Do answers a request.
func (m *Model) Do(ctx context.Context, req Request) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, fmt.Errorf("asking the model for %s: %w", req, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.objects[req.Name]
	v := m.Kind.Judge(now, req)
	switch v.Effect {
	case Creates:
		now = Object{UID: m.fresh("uid"), Token: m.mint(req.Name), Content: v.Content}
	case Changes:
		now = Object{UID: now.UID, Token: m.mint(req.Name), Content: v.Content}
	case Removes:
		now = Object{}
	}
	m.put(req.Name, now)
	answer := Answer{Code: v.Code, Reason: v.Reason, Wrote: v.Effect != Nothing}
	if v.Reason == "" && v.Effect != Removes {
		answer.Token, answer.UID, answer.Content = now.Token, now.UID, now.Content
	}
	return answer, nil
}

// Future returns a token that no Model makes by itself.
func (m *Model) Future() string { return "future" }

// Object returns what stands under a name.
func (m *Model) Object(name string) Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[name]
}

func (m *Model) put(name string, o Object) {
	if m.objects == nil {
		m.objects = map[string]Object{}
	}
	m.objects[name] = o
}

func (m *Model) mint(name string) string {
	if m.Mint != nil {
		return m.Mint(name)
	}
	return m.fresh("token")
}

func (m *Model) fresh(what string) string {
	m.minted++
	return fmt.Sprintf("%s-%d", what, m.minted)
}
