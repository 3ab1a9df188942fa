// Package world names the ways in which the book bends reality, so that each claim can be seen to fail.
//
// A World changes one thing, for the keys or the clients of one lesson only, and in flight: what a client
// sends, what etcd is asked, what etcd does, or what an answer says. The lesson itself is not edited.
package world

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

// World is one way to bend reality.
type World struct {
	// Where completes the sentence "In a world where …".
	Where string
	// Bend puts the world in force in a lab before the lesson runs there.
	Bend func(*lab.Lab)
	// Sign is a regular expression for what the lesson must have OBSERVED there. It ties the failure to the
	// claim: a lesson that fails in this world for another reason is a defect.
	Sign string
}

// Shows is the same world with the sign by which the lesson's failure is recognised, a regular expression.
func (w World) Shows(sign string) World {
	w.Sign = sign
	return w
}

// IsZero says whether no world was given.
func (w World) IsZero() bool { return w.Bend == nil }

// Custom is a world that only one lesson needs.
func Custom(where string, bend func(*lab.Lab)) World {
	return World{Where: where, Bend: bend}
}

// ClientDropsTheToken is the world in which a client's replace forgets the resourceVersion.
var ClientDropsTheToken = Custom("the client drops the token from what it sends", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When:    func(c *wire.Call) bool { return c.HasToken && c.Token != "" },
		Note:    "the client dropped the token",
		Request: func(_ *http.Request, body []byte) []byte { return editToken(body, "") },
	})
})

// EtcdIgnoresTheCompare is the world in which the compare is taken out of every update on its way to etcd,
// so that the then branch always runs.
var EtcdIgnoresTheCompare = Custom("the compare is taken out of the transaction", func(l *lab.Lab) {
	l.Wire.Add(wire.AlterTxn(hasCompare, "the compare was taken out",
		func(txn *pb.TxnRequest) { txn.Compare = nil }))
})

// EtcdDropsTheElse is the world in which the else branch is taken out of every update on its way to etcd.
var EtcdDropsTheElse = Custom("the else branch is taken out of the transaction", func(l *lab.Lab) {
	l.Wire.Add(wire.AlterTxn(hasCompare, "the else branch was taken out",
		func(txn *pb.TxnRequest) { txn.Failure = nil }))
})

func hasCompare(r *wire.Request) bool {
	return r.Method == wire.Txn && len(r.Compare) == 1 && r.Compare[0].Value != 0
}

// AnswersAreOneTooHigh is the world in which every answer about a single object reports a resourceVersion
// that is one too high.
var AnswersAreOneTooHigh = Custom("an answer's number is one too high", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "the number in the answer was raised by one",
		When: func(c *wire.Call) bool { return c.Query.Get("watch") == "" },
		Answer: func(resp *http.Response, body []byte) []byte {
			if resp.StatusCode >= http.StatusBadRequest {
				return body
			}
			return raiseToken(body)
		},
	})
})

// OthersAreListedOneTooHigh is the world in which a list reports a resourceVersion that is one too high for objects
// outside the lesson's namespace.
var OthersAreListedOneTooHigh = Custom("a list gives the objects of others a number that is one too high", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "the numbers of others were raised by one",
		When: func(c *wire.Call) bool { return c.Verb == http.MethodGet },
		Answer: func(_ *http.Response, body []byte) []byte {
			return edit(body, func(o map[string]any) {
				items, _ := o["items"].([]any)
				for _, item := range items {
					o, _ := item.(map[string]any)
					meta, _ := o["metadata"].(map[string]any)
					if namespace, _ := meta["namespace"].(string); namespace != "" && namespace != l.Namespace {
						meta["resourceVersion"] = strconv.FormatInt(tokenOf(item)+1, 10)
					}
				}
			})
		},
	})
})

// EtcdReportsALaterRevision is the world in which etcd, when it has executed a transaction, reports the
// revision after the one that it wrote.
var EtcdReportsALaterRevision = Custom("etcd's answer to a transaction names the next revision", func(l *lab.Lab) {
	l.Wire.Add(&wire.Rule{
		When: wire.AnyTxn, Note: "the revision in the answer was raised by one",
		Answer: func(m proto.Message) {
			if resp, ok := m.(*pb.TxnResponse); ok && resp.Succeeded {
				resp.Header.Revision++
			}
		},
	})
})

// ServerCountsItself is the world in which the server numbers its own writes, one by one.
var ServerCountsItself = Custom("the apiserver counts its own writes", func(l *lab.Lab) {
	var count atomic.Int64
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "answered with a count of the writes",
		When: func(c *wire.Call) bool { return c.Verb != http.MethodGet },
		Answer: func(_ *http.Response, body []byte) []byte {
			return editToken(body, strconv.FormatInt(1000+count.Add(1), 10))
		},
	})
})

// KeysOutliveTheirDeletion is the world in which a delete leaves the key where it is, and a create writes
// over it.
var KeysOutliveTheirDeletion = Custom("a deleted object's key stays in etcd and a create writes over it", func(l *lab.Lab) {
	l.Wire.Add(wire.AlterTxn(isDelete, "the delete was made a get", func(txn *pb.TxnRequest) { txn.Success = getOf(txn) }))
	EtcdIgnoresTheCompareOfACreate.Bend(l)
})

// ListsReportAnItemsNumber is the world in which a list reports the highest number among its items.
var ListsReportAnItemsNumber = Custom("a list reports the number of its newest item", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "answered with the highest number of an item",
		When: func(c *wire.Call) bool { return c.Verb == http.MethodGet },
		Answer: func(_ *http.Response, body []byte) []byte {
			return edit(body, func(o map[string]any) {
				highest := int64(0)
				items, _ := o["items"].([]any)
				for _, item := range items {
					highest = max(highest, tokenOf(item))
				}
				if meta, ok := o["metadata"].(map[string]any); ok && highest > 0 {
					meta["resourceVersion"] = strconv.FormatInt(highest, 10)
				}
			})
		},
	})
})

// AnEventIsSwallowed is the world in which the first event of an update never reaches the first apiserver: a
// further one, which may run beside it, has watches of its own.
var AnEventIsSwallowed = Custom("an event gets lost between etcd and the apiserver", func(l *lab.Lab) {
	l.Wire.Add(&wire.Rule{
		When: func(r *wire.Request) bool {
			return r.Method == wire.Event && r.From == "apiserver" && r.Found[0].Version > 1 && !r.Found[0].Deleted
		},
		Note: "swallowed", Times: 1, Drop: true,
	})
})

// EachKeyHasARevisionOfItsOwn is the world in which etcd gives the second key of a transaction the next
// revision.
var EachKeyHasARevisionOfItsOwn = Custom("etcd gives each key of a transaction a revision of its own", func(l *lab.Lab) {
	l.Wire.Add(&wire.Rule{
		When: func(r *wire.Request) bool { return r.Method == wire.Range && isSecond(r) },
		Note: "reported one revision later",
		Answer: func(m proto.Message) {
			for _, kv := range m.(*pb.RangeResponse).Kvs {
				kv.ModRevision++
			}
		},
	})
	EachEventHasARevisionOfItsOwn.Bend(l)
})

// EachEventHasARevisionOfItsOwn is the world in which a watch of etcd's tells the second key of a transaction
// under the next revision.
var EachEventHasARevisionOfItsOwn = Custom("etcd's watch gives each key of a transaction a revision of its own", func(l *lab.Lab) {
	l.Wire.Add(&wire.Rule{
		When: func(r *wire.Request) bool { return r.Method == wire.Event && isSecond(r) && r.Found[0].Version > 1 },
		Note: "reported one revision later",
		Request: func(m proto.Message) {
			m.(*mvccpb.Event).Kv.ModRevision++
		},
	})
})

// isSecond says whether a request is for the object that a lesson calls b.
func isSecond(r *wire.Request) bool { return strings.HasSuffix(r.Key, "/b") }

// UpdatesStartTheKeyAnew is the world in which an update deletes the key first.
var UpdatesStartTheKeyAnew = Custom("an update deletes the key and creates it anew", func(l *lab.Lab) {
	l.Wire.Add(wire.AlterTxn(isUpdate, "the key was deleted first", func(txn *pb.TxnRequest) {
		if _, err := l.Etcd().Delete(l.Context(), string(txn.Compare[0].Key)); err == nil {
			txn.Compare = nil // it would no longer hold
		}
	}))
})

// ListsReportTheFuture is the world in which a list reports a revision that the store has not reached.
var ListsReportTheFuture = Custom("a list reports a revision that the store has not reached", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "answered with a number from the future",
		When: func(c *wire.Call) bool { return c.Verb == http.MethodGet },
		Answer: func(_ *http.Response, body []byte) []byte {
			return edit(body, func(o map[string]any) {
				if _, list := o["items"]; list {
					o["metadata"].(map[string]any)["resourceVersion"] = "1000000000"
				}
			})
		},
	})
})

// DryRunsAreReal is the world in which writes lose their dryRun parameter on the way.
var DryRunsAreReal = Custom("a proxy strips the dryRun parameter from writes", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "no longer a dry run",
		When: func(c *wire.Call) bool { return c.Query.Get("dryRun") != "" },
		Request: editQuery(func(query url.Values) {
			query.Del("dryRun")
		}),
	})
})

// AProxyStripsTheRevision is the world in which reads lose their resourceVersion parameters on the way.
var AProxyStripsTheRevision = Custom("a proxy strips the resourceVersion parameter from reads", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "the parameter was stripped",
		When: func(c *wire.Call) bool { return c.Verb == http.MethodGet && c.Query.Get("resourceVersion") != "" },
		Request: editQuery(func(query url.Values) {
			query.Del("resourceVersion")
			query.Del("resourceVersionMatch")
		}),
	})
})

// ZeroAsksForTheNewest is the world in which a read that takes anything the cache has asks for the newest.
var ZeroAsksForTheNewest = Custom(`a read with "0" is taken for one without a number`, func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: `"0" was taken out`,
		When: func(c *wire.Call) bool { return c.Query.Get("resourceVersion") == "0" },
		Request: editQuery(func(query url.Values) {
			query.Del("resourceVersion")
		}),
	})
})

// NotOlderThanIsIgnored is the world in which a read "not older than" a revision gets whatever the cache has.
var NotOlderThanIsIgnored = Custom("a read not older than a revision is answered with what the cache has", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: `"0" was put in the place of the revision`,
		When: func(c *wire.Call) bool { return c.Query.Get("resourceVersionMatch") == "NotOlderThan" },
		Request: editQuery(func(query url.Values) {
			query.Set("resourceVersion", "0")
		}),
	})
})

// EtcdUnderstatesItsRevision is the world in which etcd, when a read finds no key, reports a revision that it
// had long ago. This is how kube-apiserver asks how far the store has come.
var EtcdUnderstatesItsRevision = Custom("etcd says that the store has not come as far as it has", func(l *lab.Lab) {
	l.Wire.Add(&wire.Rule{
		When: func(r *wire.Request) bool { return r.Method == wire.Range && r.End == "" },
		Note: "understated",
		Answer: func(m proto.Message) {
			if resp := m.(*pb.RangeResponse); len(resp.Kvs) == 0 {
				resp.Header.Revision = 1
			}
		},
	})
})

// TheStoreIgnoresTheRevision is the world in which the store answers every read with what is current.
var TheStoreIgnoresTheRevision = Custom("the store answers a read of an old revision with what is current", func(l *lab.Lab) {
	l.Wire.Add(&wire.Rule{
		When: func(r *wire.Request) bool {
			return (r.Method == wire.Range || r.Method == wire.RangeStream) && r.Revision > 0
		},
		Note: "the revision was ignored",
		Request: func(m proto.Message) {
			m.(*pb.RangeRequest).Revision = 0
		},
	})
})

// AProxyRewordsRefusals is the world in which a refusal reaches the client in other words.
var AProxyRewordsRefusals = Custom("a proxy changes the words of a refusal", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "reworded",
		Answer: func(_ *http.Response, body []byte) []byte {
			return bytes.ReplaceAll(body, []byte("please apply your changes"), []byte("please apply the changes"))
		},
	})
})

// edit decodes a JSON body, lets f change it, and encodes it again; what is no JSON object stays as it is.
func edit(body []byte, f func(object map[string]any)) []byte {
	var o map[string]any
	if json.Unmarshal(body, &o) != nil {
		return body
	}
	f(o)
	out, err := json.Marshal(o)
	if err != nil {
		return body
	}
	return out
}

// editQuery is a change of the parameters of a request that leaves its body alone.
func editQuery(f func(query url.Values)) func(*http.Request, []byte) []byte {
	return func(q *http.Request, body []byte) []byte {
		query := q.URL.Query()
		f(query)
		q.URL.RawQuery = query.Encode()
		return body
	}
}

// editMeta edits the metadata of an object, of which there is some afterwards.
func editMeta(body []byte, f func(meta map[string]any)) []byte {
	return edit(body, func(o map[string]any) {
		meta, ok := o["metadata"].(map[string]any)
		if !ok {
			meta = map[string]any{}
			o["metadata"] = meta
		}
		f(meta)
	})
}

func editToken(body []byte, token string) []byte {
	return edit(body, func(o map[string]any) {
		meta, ok := o["metadata"].(map[string]any)
		if !ok {
			return
		}
		if token == "" {
			delete(meta, "resourceVersion")
			return
		}
		meta["resourceVersion"] = token
	})
}

func raiseToken(body []byte) []byte {
	return edit(body, func(o map[string]any) {
		meta, ok := o["metadata"].(map[string]any)
		if !ok {
			return
		}
		text, _ := meta["resourceVersion"].(string)
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			meta["resourceVersion"] = strconv.FormatInt(n+1, 10)
		}
	})
}

func tokenOf(object any) int64 {
	o, _ := object.(map[string]any)
	meta, _ := o["metadata"].(map[string]any)
	text, _ := meta["resourceVersion"].(string)
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
