package world

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

// This file is what the worlds are made of.

// which selects requests of clients, and is asked about one at a time; nil selects all.
type which = func(*wire.Call) bool

// Requests by their HTTP method, and patches by their format.
var (
	reads        = method(http.MethodGet)
	creates      = method(http.MethodPost)
	replaces     = method(http.MethodPut)
	patches      = method(http.MethodPatch)
	deletes      = method(http.MethodDelete)
	applies      = format("apply")
	mergePatches = format("merge patch")
)

func method(name string) which { return func(c *wire.Call) bool { return c.Verb == name } }

func format(name string) which { return func(c *wire.Call) bool { return c.Format == name } }

// called selects requests by what a lesson calls them: "create", "replace", or the format of a patch.
func called(what string) which {
	switch what {
	case "create":
		return creates
	case "replace":
		return replaces
	}
	return format(what)
}

// withToken selects replaces and patches that carry a token.
func withToken(c *wire.Call) bool { return c.HasToken && c.Token != "" }

// tokenless narrows a choice of requests to those that carry no token.
func tokenless(when which) which { return func(c *wire.Call) bool { return when(c) && c.Token == "" } }

// between narrows a choice of requests to some of them, counted from 1.
func between(first, last int, when which) which {
	n := 0
	return func(c *wire.Call) bool {
		if !when(c) {
			return false
		}
		n++
		return first <= n && n <= last
	}
}

// object is a JSON object: the body of a request or of an answer, or a part of one.
type object = map[string]any

// part is a part of an object that is an object itself, such as its metadata; nil when there is none.
func part(o object, name string) object {
	p, _ := o[name].(object)
	return p
}

// meta is a text in the metadata of an object, such as its name; "" when it has none.
func meta(o object, field string) string {
	text, _ := part(o, "metadata")[field].(string)
	return text
}

// setMeta sets a field of the metadata of an object.
func setMeta(o object, field string, value any) {
	if part(o, "metadata") == nil {
		o["metadata"] = object{}
	}
	part(o, "metadata")[field] = value
}

// tokenOf is the resourceVersion of an object as a number; 0 when it has none, or one that is no number.
func tokenOf(o object) int64 {
	n, _ := strconv.ParseInt(meta(o, "resourceVersion"), 10, 64)
	return n
}

// setToken gives an object another resourceVersion.
func setToken(o object, token int64) {
	setMeta(o, "resourceVersion", strconv.FormatInt(token, 10))
}

// raiseToken makes the resourceVersion of an object one too high.
func raiseToken(o object) {
	if n := tokenOf(o); n > 0 {
		setToken(o, n+1)
	}
}

// decode is the JSON object in a body; nil when there is none.
func decode(body []byte) object {
	var o object
	_ = json.Unmarshal(body, &o) // a body of another sort is no object
	return o
}

// edit changes the JSON object in a body. A body of another sort stays as it is.
func edit(body []byte, change func(o object)) []byte {
	o := decode(body)
	if o == nil {
		return body
	}
	change(o)
	return marshal(o)
}

// editRequest changes the bodies of requests, and the requests themselves.
func editRequest(l *lab.Lab, when which, note string, change func(q *http.Request, o object)) {
	l.Wire.AddHTTP(&wire.HTTPRule{When: when, Note: note, Request: func(q *http.Request, body []byte) []byte {
		return edit(body, func(o object) { change(q, o) })
	}})
}

// editBody changes the bodies of requests.
func editBody(l *lab.Lab, when which, note string, change func(o object)) {
	editRequest(l, when, note, func(_ *http.Request, o object) { change(o) })
}

// editText changes a text in the bodies of requests, where it stands first.
func editText(l *lab.Lab, when which, note, old, other string) {
	l.Wire.AddHTTP(&wire.HTTPRule{When: when, Note: note, Request: func(_ *http.Request, body []byte) []byte {
		return bytes.Replace(body, []byte(old), []byte(other), 1)
	}})
}

// editHead changes the method, the path, the parameters or the headers of requests, and no body.
func editHead(l *lab.Lab, when which, note string, change func(q *http.Request)) {
	l.Wire.AddHTTP(&wire.HTTPRule{When: when, Note: note, Request: func(q *http.Request, body []byte) []byte {
		change(q)
		return body
	}})
}

// editQuery changes the parameters of requests.
func editQuery(l *lab.Lab, when which, note string, change func(query url.Values)) {
	editHead(l, when, note, func(q *http.Request) { setQuery(q, change) })
}

func setQuery(q *http.Request, change func(query url.Values)) {
	query := q.URL.Query()
	change(query)
	q.URL.RawQuery = query.Encode()
}

// sendAs sends requests as patches of a format.
func sendAs(l *lab.Lab, when which, note string, format types.PatchType) {
	editHead(l, when, note, func(q *http.Request) {
		q.Method = http.MethodPatch
		q.Header.Set("Content-Type", string(format))
		setQuery(q, func(query url.Values) { query.Del("force") }) // only an apply may have it
	})
}

// dropMeta takes a field of the metadata out of requests, and out of JSON patches what sets it.
func dropMeta(l *lab.Lab, when which, note, field string) {
	l.Wire.AddHTTP(&wire.HTTPRule{When: when, Note: note, Request: func(_ *http.Request, body []byte) []byte {
		if operations, ok := jsonPatch(body); ok {
			return marshal(slices.DeleteFunc(operations, func(op object) bool {
				return op["op"] != "test" && op["path"] == "/metadata/"+field
			}))
		}
		return edit(body, func(o object) { delete(part(o, "metadata"), field) })
	}})
}

// dropToken takes the resourceVersion out of requests, as dropMeta does.
func dropToken(l *lab.Lab, when which, note string) { dropMeta(l, when, note, "resourceVersion") }

// sendMeta puts a field of the metadata into requests, JSON patches included. value finds out what; "" sends
// nothing.
func sendMeta(l *lab.Lab, when which, note, field string, value func(q *http.Request) string) {
	l.Wire.AddHTTP(&wire.HTTPRule{When: when, Note: note, Request: func(q *http.Request, body []byte) []byte {
		if value := value(q); value != "" {
			return withMeta(body, field, value)
		}
		return body
	}})
}

// sendToken puts a resourceVersion into requests, as sendMeta does.
func sendToken(l *lab.Lab, when which, note string, value func(q *http.Request) string) {
	sendMeta(l, when, note, "resourceVersion", value)
}

// withMeta is the body of a replace, or of a patch of any format, that also sets a field of the metadata.
func withMeta(body []byte, field string, value any) []byte {
	if operations, ok := jsonPatch(body); ok {
		return marshal(append(operations, object{"op": "add", "path": "/metadata/" + field, "value": value}))
	}
	return edit(body, func(o object) { setMeta(o, field, value) })
}

// jsonPatch are the operations of a JSON patch.
func jsonPatch(body []byte) (operations []object, ok bool) {
	err := json.Unmarshal(body, &operations)
	return operations, err == nil
}

// marshal encodes again what was JSON before.
func marshal(v any) []byte {
	body, _ := json.Marshal(v) // so this cannot fail
	return body
}

// before has something done before requests are sent; n counts them from 1.
func before(l *lab.Lab, when which, do func(n int)) {
	l.Wire.AddHTTP(&wire.HTTPRule{When: when, Do: do})
}

// editAnswer changes what the answers to requests say, except refusals and watches.
func editAnswer(l *lab.Lab, when which, note string, change func(o object)) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: note,
		When: func(c *wire.Call) bool { return c.Query.Get("watch") == "" && (when == nil || when(c)) },
		Answer: func(resp *http.Response, body []byte) []byte {
			if resp.StatusCode >= http.StatusBadRequest {
				return body
			}
			return edit(body, change)
		},
	})
}

// editRefusal changes refusals.
func editRefusal(l *lab.Lab, note string, change func(resp *http.Response, o object)) {
	l.Wire.AddHTTP(&wire.HTTPRule{Note: note, Answer: func(resp *http.Response, body []byte) []byte {
		if resp.StatusCode < http.StatusBadRequest {
			return body
		}
		return edit(body, func(o object) { change(resp, o) })
	}})
}

// afterAConflict has something done when a replace is refused with 409, before that is said; who does it is
// excepted.
func afterAConflict(l *lab.Lab, who string, do func(q *http.Request, sent []byte)) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return replaces(c) && c.Who != who },
		Answer: func(resp *http.Response, body []byte) []byte {
			if resp.StatusCode == http.StatusConflict {
				do(resp.Request, sentIn(resp.Request))
			}
			return body
		},
	})
}

// sentIn is the body that a request was sent with.
func sentIn(q *http.Request) []byte {
	body, err := q.GetBody()
	if err != nil {
		return nil
	}
	defer body.Close()
	sent, _ := io.ReadAll(body) // it is in memory
	return sent
}

// memory is what each client was told about each object: an object by its subject.
type memory struct{ sync.Map }

// remember keeps the objects in the answers to requests, of each object either the newest or the first.
func remember(l *lab.Lab, when which, newest bool) *memory {
	m := new(memory)
	l.Wire.AddHTTP(&wire.HTTPRule{When: when, Answer: func(resp *http.Response, body []byte) []byte {
		if resp.StatusCode >= http.StatusBadRequest {
			return body
		}
		o, about := decode(body), subject(resp.Request)
		if resp.Request.Method == http.MethodPost {
			about += "/" + meta(o, "name")
		}
		if newest {
			m.Store(about, o)
		} else {
			m.LoadOrStore(about, o)
		}
		return body
	}})
	return m
}

// about is the object that a request is for, as its sender was told; nil when it was told nothing.
func (m *memory) about(q *http.Request) object {
	o, _ := m.Load(subject(q))
	told, _ := o.(object)
	return told
}

func (m *memory) token(q *http.Request) string { return meta(m.about(q), "resourceVersion") }

func (m *memory) uid(q *http.Request) string { return meta(m.about(q), "uid") }

// subject is who sends a request, and what for.
func subject(q *http.Request) string {
	return q.UserAgent() + " " + strings.TrimSuffix(q.URL.Path, "/status")
}

// stored is what etcd holds under a key, asked behind everybody's back; nil when it holds nothing.
func stored(l *lab.Lab, key string) *mvccpb.KeyValue {
	got, err := l.Etcd().Get(l.Context(), key)
	if err != nil || len(got.Kvs) == 0 {
		return nil
	}
	return got.Kvs[0]
}

// newestToken finds out the newest resourceVersion of the object that a request is for, off the tape; "" when there
// is no such object.
func newestToken(l *lab.Lab) func(q *http.Request) string {
	return func(q *http.Request) string {
		defer l.Wire.Tape().Pause()()
		// When there is an error, there is no object.
		now, _ := l.As("library").TryRaw(http.MethodGet, q.URL.Path, "", nil)
		return meta(decode(now), "resourceVersion")
	}
}

// editTxn changes transactions on their way to etcd.
func editTxn(l *lab.Lab, when wire.Match, note string, change func(txn *pb.TxnRequest)) {
	l.Wire.Add(wire.AlterTxn(when, note, change))
}

// editPut changes what transactions put.
func editPut(l *lab.Lab, when wire.Match, note string, change func(put *pb.PutRequest)) {
	editTxn(l, when, note, func(txn *pb.TxnRequest) { change(txn.Success[0].GetRequestPut()) })
}

func comparesOne(r *wire.Request) bool { return r.Method == wire.Txn && len(r.Compare) == 1 }

func does(r *wire.Request, kind string) bool { return len(r.Then) == 1 && r.Then[0].Kind == kind }

func isPut(r *wire.Request) bool { return r.Method == wire.Txn && does(r, "Put") }

func isCreate(r *wire.Request) bool {
	return comparesOne(r) && r.Compare[0].Value == 0 && does(r, "Put")
}

// hasCompare selects updates and deletes.
func hasCompare(r *wire.Request) bool { return comparesOne(r) && r.Compare[0].Value != 0 }

func isUpdate(r *wire.Request) bool { return hasCompare(r) && does(r, "Put") }

func isDelete(r *wire.Request) bool { return hasCompare(r) && does(r, "Delete") }

// isRead selects reads of one key.
func isRead(r *wire.Request) bool { return r.Method == wire.Range && r.End == "" }

func isEvent(r *wire.Request) bool { return r.Method == wire.Event }

// named narrows a choice of requests to etcd to those for the objects of one name.
func named(name string, when wire.Match) wire.Match {
	return func(r *wire.Request) bool { return when(r) && strings.HasSuffix(r.Key, "/"+name) }
}

func dropCompare(txn *pb.TxnRequest) { txn.Compare = nil }

func dropElse(txn *pb.TxnRequest) { txn.Failure = nil }

// keepKey makes the then branch of a delete read the key.
func keepKey(txn *pb.TxnRequest) { txn.Success = get(txn.Compare[0].Key) }

// get is a branch that reads a key.
func get(key []byte) []*pb.RequestOp {
	return []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}}
}

func isNumber(text string) bool {
	_, err := strconv.ParseInt(text, 10, 64)
	return err == nil
}
