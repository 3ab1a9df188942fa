package world

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"k8s.io/apimachinery/pkg/api/equality"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

// AProxyKeepsAnswers is the world in which a proxy gives the first answer to a read to every later one.
var AProxyKeepsAnswers = Custom("a proxy keeps the first answer to a read and gives it again", func(l *lab.Lab) {
	var mu sync.Mutex
	kept := map[string][]byte{}
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "answered by the proxy with what it kept",
		When: func(c *wire.Call) bool { return c.Verb == http.MethodGet && c.Query.Get("watch") == "" },
		Answer: func(resp *http.Response, body []byte) []byte {
			mu.Lock()
			defer mu.Unlock()
			where := resp.Request.URL.Path
			if first, ok := kept[where]; ok {
				return first
			}
			kept[where] = body
			return body
		},
	})
})

// AGatewayHidesTheReason is the world in which a gateway between client and server lets the status of a
// refusal pass and puts a page of its own in the place of what the server said.
var AGatewayHidesTheReason = Custom("a gateway replaces what the server says about a refusal by a page of its own", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "the gateway hid the reason",
		Answer: func(resp *http.Response, body []byte) []byte {
			if resp.StatusCode < http.StatusBadRequest {
				return body
			}
			resp.Header.Set("Content-Type", "text/plain")
			return []byte("That did not work.")
		},
	})
})

// RefusalsLoseTheirCauses is the world in which a refusal reaches the client without the causes that the server
// gave.
var RefusalsLoseTheirCauses = Custom("a proxy takes the causes out of refusals", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "without its causes",
		Answer: func(resp *http.Response, body []byte) []byte {
			if resp.StatusCode < http.StatusBadRequest {
				return body
			}
			return edit(body, func(o map[string]any) {
				if details, ok := o["details"].(map[string]any); ok {
					delete(details, "causes")
				}
			})
		},
	})
})

// TheFirst is the world in which the first request with an HTTP method never reaches the server.
func TheFirst(method string) World {
	return Custom("the first "+method+" never reaches the server", func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			Note: "it never left", Times: 1, Refuse: wire.ErrAnswerLost,
			When: func(c *wire.Call) bool { return c.Verb == method },
		})
	})
}

// ClientDropsTheTokenFor is the world in which a client drops the token from what it sends to one object.
func ClientDropsTheTokenFor(name string) World {
	return Custom("the client drops the token from what it sends to "+name, func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When:    func(c *wire.Call) bool { return strings.HasSuffix(c.Path, "/"+name) },
			Note:    "the client dropped the token",
			Request: func(_ *http.Request, body []byte) []byte { return editToken(body, "") },
		})
	})
}

// UnansweredWritesAreUndone is the world in which etcd does nothing whose answer will be lost.
var UnansweredWritesAreUndone = Custom("etcd leaves undone what it cannot answer", func(l *lab.Lab) {
	l.Wire.Add(wire.AlterTxn(
		func(r *wire.Request) bool { return hasCompare(r) && strings.HasSuffix(r.Key, "-after") },
		"the put was taken out", func(txn *pb.TxnRequest) { txn.Success = nil }))
})

// ClientNamesWhatItCreates is the world in which a client sends a name of its own making where it would have
// asked the server to generate one.
var ClientNamesWhatItCreates = Custom("the client makes the name itself", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "named by the client",
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPost },
		Request: func(_ *http.Request, body []byte) []byte {
			return edit(body, func(o map[string]any) {
				meta, ok := o["metadata"].(map[string]any)
				if prefix, generate := meta["generateName"].(string); ok && generate {
					delete(meta, "generateName")
					meta["name"] = prefix + "1"
				}
			})
		},
	})
})

// ClientDropsTheUID is the world in which a client's replace or apply forgets the uid.
var ClientDropsTheUID = Custom("the client drops the uid from what it sends", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note:    "the client dropped the uid",
		When:    func(c *wire.Call) bool { return c.Verb == http.MethodPut || c.Format == "apply" },
		Request: func(_ *http.Request, body []byte) []byte { return withoutMeta(body, "uid") },
	})
})

// ClientsSendTheUID is the world in which clients remember the uid that a name had first, and put it into
// every replace and every patch.
var ClientsSendTheUID = Custom("clients put the uid that they know into every write", func(l *lab.Lab) {
	sendTheUID(l, func(c *wire.Call) bool { return c.Verb == http.MethodPut || c.Verb == http.MethodPatch })
})

// ReplacesSendTheUID is the world in which clients do so in a replace only.
var ReplacesSendTheUID = Custom("clients put the uid that they know into every replace", func(l *lab.Lab) {
	sendTheUID(l, func(c *wire.Call) bool { return c.Verb == http.MethodPut })
})

// TheTokenBringsTheUID is the world in which clients do so wherever they send a token.
var TheTokenBringsTheUID = Custom("clients send the uid wherever they send a token", func(l *lab.Lab) {
	sendTheUID(l, func(c *wire.Call) bool { return c.HasToken && c.Token != "" })
})

// sendTheUID puts the uid that a name had first into the selected requests.
func sendTheUID(l *lab.Lab, when func(*wire.Call) bool) {
	var mu sync.Mutex
	known := map[string]string{}
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPost || c.Format == "apply" },
		Answer: func(_ *http.Response, body []byte) []byte {
			var o struct{ Metadata struct{ Name, UID string } }
			if json.Unmarshal(body, &o) == nil && o.Metadata.UID != "" {
				mu.Lock()
				defer mu.Unlock()
				if known[o.Metadata.Name] == "" {
					known[o.Metadata.Name] = o.Metadata.UID
				}
			}
			return body
		},
	})
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "with the uid",
		When: when,
		Request: func(q *http.Request, body []byte) []byte {
			mu.Lock()
			uid := known[path.Base(q.URL.Path)]
			mu.Unlock()
			if uid == "" {
				return body
			}
			return editMeta(body, func(meta map[string]any) {
				meta["uid"] = uid
			})
		},
	})
}

// PaintingBlueComparesNothing is the world in which the compare is taken out of the transactions that store
// something blue.
var PaintingBlueComparesNothing = Custom("the compare is taken out of the transaction that stores color=blue", func(l *lab.Lab) {
	l.Wire.Add(wire.AlterTxn(hasCompare, "the compare was taken out, if it stores something blue", func(txn *pb.TxnRequest) {
		if bytes.Contains(txn.Success[0].GetRequestPut().GetValue(), []byte("blue")) {
			txn.Compare = nil
		}
	}))
})

// RivalSignsAsTheWriter is the world in which the rival writes under the writer's name.
var RivalSignsAsTheWriter = Custom("the rival writes under the writer's name", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "signed as the writer",
		When: func(c *wire.Call) bool { return c.Who == "rival" && c.Verb != http.MethodGet },
		Request: editQuery(func(query url.Values) {
			query.Set("fieldManager", "writer")
		}),
	})
})

// ALibraryRepeatsTheChange is the world in which a client library understands a number of replicas that is sent
// again after a conflict as a change that is wanted again: it adds to what is there now what the refused
// number would have added.
var ALibraryRepeatsTheChange = Custom("a library that is told \"2\" again after a conflict sends the \"+1\" again that this was", func(l *lab.Lab) {
	var mu sync.Mutex
	current := map[string]float64{}                     // replicas, as last read, by path
	pending := map[string]struct{ sent, add float64 }{} // of the last replace, by path
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "through the library",
		When: func(c *wire.Call) bool { return c.Who == "writer" && c.Verb == http.MethodPut },
		Request: func(q *http.Request, body []byte) []byte {
			mu.Lock()
			defer mu.Unlock()
			return edit(body, func(o map[string]any) {
				spec, _ := o["spec"].(map[string]any)
				n, _ := spec["replicas"].(float64)
				was := current[q.URL.Path]
				if last, again := pending[q.URL.Path]; again && last.sent == n {
					spec["replicas"] = was + last.add
					return
				}
				pending[q.URL.Path] = struct{ sent, add float64 }{n, n - was}
			})
		},
	})
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Who == "writer" && c.Verb != http.MethodPut },
		Answer: func(resp *http.Response, body []byte) []byte {
			var o struct {
				Metadata struct{ Name string }
				Spec     struct{ Replicas float64 }
			}
			if json.Unmarshal(body, &o) == nil && resp.Request != nil {
				mu.Lock()
				defer mu.Unlock()
				current[strings.TrimSuffix(resp.Request.URL.Path, "/"+o.Metadata.Name)+"/"+o.Metadata.Name] = o.Spec.Replicas
			}
			return body
		},
	})
})

// CachesNeverGoBack is the world in which the cache of an informer keeps what it has when something older comes.
var CachesNeverGoBack = Custom("an informer's cache keeps what it has when an older event comes", func(l *lab.Lab) {
	lab.CacheHook.Bend(l, func(held, came *lab.Object) *lab.Object {
		if order, err := l.Order(came.GetResourceVersion(), held.GetResourceVersion()); err == nil && order < 0 {
			return held
		}
		return came
	})
})

// TheDynamicFakeKnowsTokens is the world in which client-go's dynamic fake does what controller-runtime's does.
var TheDynamicFakeKnowsTokens = Custom("client-go's dynamic fake gives out tokens and checks them", func(l *lab.Lab) {
	lab.DoublesHook.Bend(l, func(doubles []lab.Double) {
		doubles[lab.DynamicFake].Create, doubles[lab.DynamicFake].Replace = doubles[lab.ControllerFake].Create, doubles[lab.ControllerFake].Replace
	})
})

// TheOtherFakeNoticesNoChange is the world in which controller-runtime's fake stores nothing when it is given
// what it has.
var TheOtherFakeNoticesNoChange = Custom("controller-runtime's fake stores nothing when nothing has changed", func(l *lab.Lab) {
	lab.DoublesHook.Bend(l, func(doubles []lab.Double) {
		double := &doubles[lab.ControllerFake]
		create, replace := double.Create, double.Replace
		var stored *lab.Object
		keep := func(o *lab.Object, err error) (*lab.Object, error) {
			if err == nil {
				stored = o.DeepCopy()
			}
			return o, err
		}
		double.Create = func(o *lab.Object) (*lab.Object, error) { return keep(create(o)) }
		double.Replace = func(o *lab.Object) (*lab.Object, error) {
			if equality.Semantic.DeepEqual(o, stored) {
				return o, nil
			}
			return keep(replace(o))
		}
	})
})

// EveryWriteDoesTheWork is the world in which whoever writes sets what the others wait for, too.
var EveryWriteDoesTheWork = Custom("whoever writes to a shelf also paints it blue", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "and painted it blue",
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPatch },
		Request: func(_ *http.Request, body []byte) []byte {
			return edit(body, func(o map[string]any) { o["data"] = map[string]any{"color": "blue"} })
		},
	})
})

// TheServerNeverSaysWhenToRepeat is the world in which no refusal carries a Retry-After.
var TheServerNeverSaysWhenToRepeat = Custom("no refusal says when to try again", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "without Retry-After",
		Answer: func(resp *http.Response, body []byte) []byte {
			resp.Header.Del("Retry-After")
			return body
		},
	})
})

// TokensCompareAsText is the world in which resourceVersions are compared as strings.
var TokensCompareAsText = Custom("tokens are compared as text", func(l *lab.Lab) {
	lab.OrderHook.Bend(l, func(a, b string) (int, error) { return strings.Compare(a, b), nil })
})

// OneStoreForAll is the world in which events are kept in the same etcd as everything else.
var OneStoreForAll = Custom("events are kept in the same etcd as everything else", func(l *lab.Lab) { lab.OneStoreHook.Bend(l, true) })
