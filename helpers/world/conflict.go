package world

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path"
	"strconv"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

// ReadsShowTheVersionBefore is the world in which a read of a key at etcd shows not the newest version of
// it but the one before: what a follower that lags would answer, if the read were not linearizable.
var ReadsShowTheVersionBefore = Custom("a read of etcd shows the version before the newest", func(l *lab.Lab) {
	l.KeepHistory()
	l.Wire.Add(&wire.Rule{
		When: func(r *wire.Request) bool { return r.Method == wire.Range && r.End == "" },
		Note: "answered with the version before",
		Request: func(m proto.Message) {
			q := m.(*pb.RangeRequest)
			now, err := l.Etcd().Get(l.Context(), string(q.Key))
			if err == nil && len(now.Kvs) == 1 && now.Kvs[0].Version > 1 {
				q.Revision = now.Kvs[0].ModRevision - 1
			}
		},
	})
})

// NewerTokensCount is the world in which a token from the future is as good as the current one: in which
// the server asks whether a token is at least as new, and not whether it is equal.
var NewerTokensCount = Custom("a token is good when it is at least as new as the object", func(l *lab.Lab) {
	takeForCurrent(l, "a newer token was taken for the current one", func(sent, current int64) bool { return sent > current })
})

// currentToken is the newest token of the object that a client sends, read from etcd behind everybody's back.
func currentToken(l *lab.Lab, body []byte) (string, bool) {
	o := &lab.Object{}
	if o.UnmarshalJSON(body) != nil {
		return "", false
	}
	now, err := l.Etcd().Get(l.Context(), l.Key(o))
	if err != nil || len(now.Kvs) == 0 {
		return "", false
	}
	return strconv.FormatInt(now.Kvs[0].ModRevision, 10), true
}

func sentToken(body []byte) int64 {
	var o map[string]any
	if json.Unmarshal(body, &o) != nil {
		return 0
	}
	return tokenOf(o)
}

// ServerGivesUp is the world in which the fifth retry of an update is the last: the server gives up after
// six transactions.
var ServerGivesUp = Custom("the server gives up after five retries", func(l *lab.Lab) {
	var count atomic.Int64
	l.Wire.Add(&wire.Rule{
		When: func(r *wire.Request) bool { return hasCompare(r) && count.Add(1) > 6 },
		Note: "given up", Err: status.Error(codes.Aborted, "gave up after five retries"),
	})
})

// ClientPinsItsFirstToken is the world in which a client puts the token of its first read of an object into
// every patch that it sends.
var ClientPinsItsFirstToken = Custom("the client puts the token that it read first into every patch", func(l *lab.Lab) {
	var first atomic.Int64
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPost },
		Answer: func(_ *http.Response, body []byte) []byte {
			first.CompareAndSwap(0, sentToken(body))
			return body
		},
	})
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPatch && !c.HasToken },
		Note: "the client pinned a token",
		Request: func(_ *http.Request, body []byte) []byte {
			return edit(body, func(o map[string]any) {
				o["metadata"] = map[string]any{"resourceVersion": strconv.FormatInt(first.Load(), 10)}
			})
		},
	})
})

// LibraryFillsInTheToken is the world in which a client library fetches the newest token and fills it in
// wherever the caller has sent none.
var LibraryFillsInTheToken = Custom("the client's library fills in the newest token where there is none", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When:    func(c *wire.Call) bool { return c.Verb == http.MethodPut && c.Token == "" },
		Note:    "the library filled in a token",
		Request: func(q *http.Request, body []byte) []byte { return withNewestToken(l, q, body) },
	})
})

// withNewestToken is a body with the token that the object has at the server, as a library would find it out.
func withNewestToken(l *lab.Lab, q *http.Request, body []byte) []byte {
	now, err := l.As("library").TryRaw(http.MethodGet, q.URL.Path, "", nil)
	if err != nil {
		return body
	}
	return editToken(body, strconv.FormatInt(sentToken(now), 10))
}

// LibraryRefreshesTheToken is the world in which a client library replaces the caller's token by the newest
// one before it sends a replace.
var LibraryRefreshesTheToken = Custom("the client's library renews the token before it sends", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When:    func(c *wire.Call) bool { return c.Verb == http.MethodPut && c.Token != "" },
		Note:    "the library renewed the token",
		Request: func(_ *http.Request, body []byte) []byte { return withCurrentToken(l, body) },
	})
})

func withCurrentToken(l *lab.Lab, body []byte) []byte {
	token, ok := currentToken(l, body)
	if !ok {
		return body
	}
	return editToken(body, token)
}

// ServerCreatesWhatIsMissing is the world in which a replace of what does not exist is answered, for every
// kind, by creating it.
var ServerCreatesWhatIsMissing = Custom("the server creates whatever a replace does not find", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPut },
		Note: "created, if it is missing",
		Answer: func(resp *http.Response, body []byte) []byte {
			if resp.StatusCode != http.StatusNotFound {
				return body
			}
			created, err := sendAgain(l, http.MethodPost, resp, path.Dir(resp.Request.URL.Path))
			if err != nil {
				return body
			}
			resp.StatusCode = http.StatusCreated
			return created
		},
	})
})

// sendAgain sends what was answered by resp with another method to another path; a create without a token, which
// it must not have.
func sendAgain(l *lab.Lab, method string, resp *http.Response, path string) ([]byte, error) {
	object, err := sentIn(resp)
	if err != nil {
		return nil, err
	}
	if method == http.MethodPost {
		object = editToken(object, "")
	}
	return l.As("server").TryRaw(method, path, "", object)
}

// EveryRefusalIsAConflict is the world in which the server has one code and one reason for everything that
// it refuses.
var EveryRefusalIsAConflict = Custom("the server answers every refusal with 409 Conflict", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "every refusal is a conflict",
		Answer: func(resp *http.Response, body []byte) []byte {
			if resp.StatusCode < http.StatusBadRequest {
				return body
			}
			resp.StatusCode = http.StatusConflict
			return edit(body, func(o map[string]any) {
				o["code"], o["reason"] = http.StatusConflict, metav1.StatusReasonConflict
			})
		},
	})
})

// ClientDropsThePreconditions is the world in which a client's deletes lose their preconditions.
var ClientDropsThePreconditions = Custom("the client drops the preconditions of its deletes", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodDelete },
		Note: "the client dropped the preconditions",
		Request: func(_ *http.Request, body []byte) []byte {
			return edit(body, func(o map[string]any) { delete(o, "preconditions") })
		},
	})
})

// ATestBecomesAPrecondition is the world in which a test of the resourceVersion in a JSON Patch is sent as a
// replacement of it, which the server takes for a precondition.
var ATestBecomesAPrecondition = Custom("the client's library sends a test of the version as a precondition", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "JSON patch" },
		Note: "the test was sent as a replace",
		Request: func(_ *http.Request, body []byte) []byte {
			return bytes.Replace(body, []byte(`"op":"test"`), []byte(`"op":"replace"`), 1)
		},
	})
})

// EveryPatchIsAMergePatch is the world in which a client sends a merge patch whatever format its caller
// asked for.
var EveryPatchIsAMergePatch = Custom("the client sends every patch as a merge patch", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPatch },
		Note: "sent as a merge patch",
		Request: func(q *http.Request, body []byte) []byte {
			q.Header.Set("Content-Type", string(types.MergePatchType))
			return body
		},
	})
})

// NullsAreDropped is the world in which a client's encoder leaves out what is null.
var NullsAreDropped = Custom("the client's encoder leaves out what is null", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "merge patch" },
		Note: "null was left out",
		Request: func(_ *http.Request, body []byte) []byte {
			return edit(body, func(o map[string]any) {
				if meta, ok := o["metadata"].(map[string]any); ok && meta["resourceVersion"] == nil {
					delete(meta, "resourceVersion")
				}
			})
		},
	})
})

// NullMeansTheNewest is the world in which a client library takes a null for a wish to have the newest token
// filled in.
var NullMeansTheNewest = Custom("the client's library fills in the newest token for null", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "merge patch" },
		Note: "null became a token",
		Request: func(q *http.Request, body []byte) []byte {
			if !bytes.Contains(body, []byte(`"resourceVersion":null`)) {
				return body
			}
			return withNewestToken(l, q, body)
		},
	})
})

// FinalizersAreDropped is the world in which a client creates its objects without the finalizers that its
// caller set.
var FinalizersAreDropped = Custom("the client drops the finalizers of what it creates", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When:    func(c *wire.Call) bool { return c.Verb == http.MethodPost },
		Note:    "the client dropped the finalizers",
		Request: func(_ *http.Request, body []byte) []byte { return withoutMeta(body, "finalizers") },
	})
})

// ClientDropsTheName is the world in which a client leaves out the name where there is a generateName.
var ClientDropsTheName = Custom("the client drops the name where there is a generateName", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPost },
		Note: "the client dropped the name",
		Request: func(_ *http.Request, body []byte) []byte {
			if !bytes.Contains(body, []byte(`"generateName"`)) {
				return body
			}
			return withoutMeta(body, "name")
		},
	})
})

func withoutMeta(body []byte, field string) []byte {
	return edit(body, func(o map[string]any) {
		if meta, ok := o["metadata"].(map[string]any); ok {
			delete(meta, field)
		}
	})
}

// IfMatchIsTheToken is the world in which the header If-Match is honoured: what it says takes the place of
// the token in the body.
var IfMatchIsTheToken = Custom("the server honours If-Match", func(l *lab.Lab) {
	honourIfMatch(l, func(*wire.Call) bool { return true }, func(string) bool { return true })
})
