package world

import (
	"net/http"
	"strconv"
	"strings"
	"sync"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

// ClientTransplantsTheToken is the world in which a client library puts the newest resourceVersion that it
// can find onto whatever a client sends.
var ClientTransplantsTheToken = Custom("a library puts a fresh token onto whatever is sent", func(l *lab.Lab) {
	newest := tokens{}
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPut && c.HasToken },
		Note: "a fresh token was put onto it",
		Request: func(q *http.Request, body []byte) []byte {
			return newest.onto(q, body)
		},
	})
	l.Wire.AddHTTP(&wire.HTTPRule{Answer: func(resp *http.Response, body []byte) []byte {
		newest.note(resp, body, true)
		return body
	}})
})

// BodiesKeepTheirToken is the world in which the token cannot be parted from the body: what a client sends
// goes out with the resourceVersion that this client was first given for the object.
var BodiesKeepTheirToken = Custom("a body goes out with the token that it was read with, and no other", func(l *lab.Lab) {
	first := tokens{}
	own := func(c *wire.Call) bool { return c.Who == "writer" }
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return own(c) && c.HasToken },
		Note: "with the token that the body was read with",
		Request: func(q *http.Request, body []byte) []byte {
			return first.onto(q, body)
		},
	})
	l.Wire.AddHTTP(&wire.HTTPRule{When: own, Answer: func(resp *http.Response, body []byte) []byte {
		first.note(resp, body, false)
		return body
	}})
})

// EveryPatchCarriesAToken is the world in which a client library adds to every patch the resourceVersion
// that the same client was last given for the object.
var EveryPatchCarriesAToken = Custom("a library adds to every patch the token of the copy that it was made from", func(l *lab.Lab) {
	of := map[string]*tokens{}
	var mu sync.Mutex
	mine := func(who string) *tokens {
		mu.Lock()
		defer mu.Unlock()
		if of[who] == nil {
			of[who] = &tokens{}
		}
		return of[who]
	}
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPatch },
		Note: "a token was added",
		Request: func(q *http.Request, body []byte) []byte {
			return mine(q.UserAgent()).onto(q, body)
		},
	})
	l.Wire.AddHTTP(&wire.HTTPRule{Answer: func(resp *http.Response, body []byte) []byte {
		if resp.Request != nil {
			mine(resp.Request.UserAgent()).note(resp, body, true)
		}
		return body
	}})
})

// SomebodyIsAlwaysFaster is the world in which another client writes the named ConfigMap right before every
// replace of it.
func SomebodyIsAlwaysFaster(name string) World {
	return Custom("somebody else writes the object between every reading and every write", func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Verb == http.MethodPut && c.Path == "configmaps/"+name },
			Do: func(n int) {
				// An error here shows in the refusals that are missing.
				_, _ = l.Rival().TrySet(name, "touched="+strconv.Itoa(n))
			},
		})
	})
}

// SomebodyIsFasterAt is the world in which another client writes the named ConfigMap right before the n-th
// request of the writer with an HTTP method.
func SomebodyIsFasterAt(n int, method, name string) World {
	return Custom("somebody else writes the object once more in between", func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Who == "writer" && c.Verb == method && c.Path == "configmaps/"+name },
			Do: func(at int) {
				if at == n {
					// An error here shows in the refusal that is missing.
					_, _ = l.Rival().TrySet(name, "touched="+strconv.Itoa(n))
				}
			},
		})
	})
}

// StatusNeedsNoToken is the world in which the server asks for no token where only the status is written.
var StatusNeedsNoToken = Custom("what is sent to /status is not checked for its token", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When:    func(c *wire.Call) bool { return c.HasToken && strings.HasSuffix(c.Path, "/status") },
		Note:    "the token was taken out",
		Request: func(_ *http.Request, body []byte) []byte { return editToken(body, "") },
	})
})

// tokens are resourceVersions by the path of the object. The zero value is ready.
type tokens struct {
	mu     sync.Mutex
	byPath map[string]string
}

// objectPath is the path of the object that a request is about, whichever part of it.
func objectPath(q *http.Request) string { return strings.TrimSuffix(q.URL.Path, "/status") }

// note keeps the resourceVersion of an answer; an earlier one is replaced only by a newer answer if newest.
func (t *tokens) note(resp *http.Response, body []byte, newest bool) {
	if resp.Request == nil || resp.StatusCode >= http.StatusBadRequest {
		return
	}
	token := ""
	edit(body, func(o map[string]any) {
		meta, _ := o["metadata"].(map[string]any)
		token, _ = meta["resourceVersion"].(string)
	})
	path := objectPath(resp.Request)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byPath == nil {
		t.byPath = map[string]string{}
	}
	if token != "" && (newest || t.byPath[path] == "") {
		t.byPath[path] = token
	}
}

// onto puts the token that is known for the path onto a body.
func (t *tokens) onto(q *http.Request, body []byte) []byte {
	t.mu.Lock()
	token := t.byPath[objectPath(q)]
	t.mu.Unlock()
	if token == "" {
		return body
	}
	return editMeta(body, func(meta map[string]any) {
		meta["resourceVersion"] = token
	})
}
