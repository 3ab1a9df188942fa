package world

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

// The worlds of this file bend what kube-apiserver does. Where it is to understand a request in another way, the
// request is rewritten into one that it understands so.

// NewerTokensCount rewrites replaces: a token from the future becomes the current one.
var NewerTokensCount = New("a token is good when it is at least as new as the object", func(l *lab.Lab) {
	takeForCurrent(l, "a newer token was taken for the current one", func(sent, current int64) bool {
		return sent > current
	})
})

// OlderTokensCount rewrites replaces: a token from the past becomes the current one.
var OlderTokensCount = New("a token is good when it is not newer than the object", func(l *lab.Lab) {
	takeForCurrent(l, "an older token was taken for the current one", func(sent, current int64) bool {
		return sent < current
	})
})

// TokensAreTheirLastDigits rewrites replaces: a token with the current one's last six digits becomes the current one.
var TokensAreTheirLastDigits = New("the server looks at the last six digits of a token alone", func(l *lab.Lab) {
	takeForCurrent(l, "its last digits are the current ones", func(sent, current int64) bool {
		return sent%1_000_000 == current%1_000_000
	})
})

// takeForCurrent puts the current token in the place of that of a replace where it is good.
func takeForCurrent(l *lab.Lab, note string, good func(sent, current int64) bool) {
	newest := newestToken(l)
	editRequest(l, replaces, note, func(q *http.Request, o object) {
		current, err := strconv.ParseInt(newest(q), 10, 64)
		if sent := tokenOf(o); err == nil && sent != 0 && good(sent, current) {
			setToken(o, current)
		}
	})
}

// ZeroIsANumber rewrites replaces: the token "0" becomes one that no object has.
var ZeroIsANumber = New(`"0" is a token like any other number`, func(l *lab.Lab) {
	zero := func(c *wire.Call) bool { return replaces(c) && c.Token == "0" }
	editBody(l, zero, "compared as a number that no object has", func(o object) { setToken(o, 1) })
})

// TokensAreText rewrites replaces: a token with leading zeros becomes one that no object has.
var TokensAreText = New("the server compares tokens as text", func(l *lab.Lab) {
	padded := func(c *wire.Call) bool {
		return replaces(c) && len(c.Token) > 1 && strings.HasPrefix(c.Token, "0")
	}
	editBody(l, padded, "taken for another token", func(o object) { setToken(o, 1) })
})

// TokensWrap gives out resourceVersions modulo 8.
var TokensWrap = New("the server's tokens are labels modulo 8", func(l *lab.Lab) {
	editAnswer(l, nil, "tokens modulo 8", func(o object) {
		if n := tokenOf(o); n > 0 {
			setToken(o, n%8)
		}
	})
})

// ServerCountsItself gives out a count of the writes that were answered, instead of resourceVersions.
var ServerCountsItself = New("the apiserver counts its own writes", func(l *lab.Lab) {
	var count atomic.Int64
	writes := func(c *wire.Call) bool { return !reads(c) }
	editAnswer(l, writes, "answered with a count of the writes", func(o object) { setToken(o, 1000+count.Add(1)) })
})

// EveryTextIsATokenInACreate rewrites creates: a token of any text becomes one that is a number.
var EveryTextIsATokenInACreate = New("in a create, any text is a token", func(l *lab.Lab) {
	editBody(l, creates, "its token was made a number", func(o object) {
		if meta(o, "resourceVersion") != "" {
			setToken(o, 1)
		}
	})
})

// TheQueryHoldsTheToken rewrites replaces: a resourceVersion in the query becomes the token.
var TheQueryHoldsTheToken = New("a replace takes its token from the query", func(l *lab.Lab) {
	sendToken(l, replaces, "the token was taken from the query", func(q *http.Request) string {
		return q.URL.Query().Get("resourceVersion")
	})
})

// DeletesAlsoReadTheirQuery rewrites deletes that have a body: dryRun is put into it.
var DeletesAlsoReadTheirQuery = New("a delete with a body also reads its query", func(l *lab.Lab) {
	editRequest(l, deletes, "its query was read, too", func(q *http.Request, o object) {
		if dryRun := q.URL.Query().Get("dryRun"); dryRun != "" {
			o["dryRun"] = []any{dryRun}
		}
	})
})

// ASelectorInTheBodyCounts rewrites deletes: a labelSelector in the body is put into the query.
var ASelectorInTheBodyCounts = New("a deletecollection reads the selector in its body", func(l *lab.Lab) {
	editRequest(l, deletes, "the selector in its body was read", func(q *http.Request, o object) {
		if selector, ok := o["labelSelector"].(string); ok {
			setQuery(q, func(query url.Values) { query.Set("labelSelector", selector) })
		}
	})
})

// NamesOfParametersInAnyCase rewrites the names of parameters: dryRun, fieldManager and labelSelector are known in any
// case.
var NamesOfParametersInAnyCase = New("the server knows parameters whatever the case of their names", func(l *lab.Lab) {
	known := map[string]string{
		"dryrun": "dryRun", "fieldmanager": "fieldManager", "labelselector": "labelSelector",
	}
	misspelled := func(c *wire.Call) bool {
		for name := range c.Query {
			if right, ok := known[strings.ToLower(name)]; ok && right != name {
				return true
			}
		}
		return false
	}
	editQuery(l, misspelled, "names of parameters were read in any case", func(query url.Values) {
		for name, values := range maps.Clone(query) {
			if right, ok := known[strings.ToLower(name)]; ok {
				query.Del(name)
				query[right] = values
			}
		}
	})
})

// NamesOfTokensInAnyCase rewrites bodies: resourceVersion is known in any case.
var NamesOfTokensInAnyCase = New("the server knows resourceVersion whatever its case", func(l *lab.Lab) {
	when := func(c *wire.Call) bool { return replaces(c) || deletes(c) }
	editText(l, when, "resourceVersion was read in any case", `"resourceversion"`, `"resourceVersion"`)
})

// AGetOfThePastIsAList has a GET with resourceVersionMatch=Exact answered from a list at that revision.
var AGetOfThePastIsAList = New("a GET with Exact reads the past", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool {
			return reads(c) && strings.HasPrefix(c.Path, "configmaps/") && c.Query.Get("resourceVersionMatch") == "Exact"
		},
		Note: "answered from a list at that revision",
		Request: func(q *http.Request, body []byte) []byte {
			dir, name := path.Split(q.URL.Path)
			q.URL.Path = strings.TrimSuffix(dir, "/")
			setQuery(q, func(query url.Values) { query.Set("fieldSelector", "metadata.name="+name) })
			return body
		},
		Answer: func(_ *http.Response, body []byte) []byte {
			for _, o := range items(decode(body)) {
				o["apiVersion"], o["kind"] = "v1", "ConfigMap"
				return marshal(o)
			}
			return body
		},
	})
})

// DeletesReadNumbers rewrites deletes: the resourceVersion in their preconditions loses its leading zeros, and "0"
// is none.
var DeletesReadNumbers = New("the version in a delete's preconditions is read as a number", func(l *lab.Lab) {
	editBody(l, deletes, "its version was read as a number", func(o object) {
		required := part(o, "preconditions")
		text, _ := required["resourceVersion"].(string)
		if number := strings.TrimLeft(text, "0"); number != "" {
			required["resourceVersion"] = number
		} else {
			delete(required, "resourceVersion")
		}
	})
})

// StatusNeedsNoToken takes the token out of what is sent to /status.
var StatusNeedsNoToken = New("what is sent to /status is not checked for its token", func(l *lab.Lab) {
	dropToken(l, toStatus, "the token was taken out")
})

// AScaleDemandsAToken rewrites replaces of a scale: without a token they get one that no object has.
var AScaleDemandsAToken = New("a scale without a token is compared as a stale one", func(l *lab.Lab) {
	scales := func(c *wire.Call) bool { return replaces(c) && strings.HasSuffix(c.Path, "/scale") }
	editBody(l, tokenless(scales), "taken for a stale one", func(o object) { setToken(o, 1) })
})

// AnEvictionComparesItsMetadata rewrites evictions: a resourceVersion in their metadata becomes a precondition.
var AnEvictionComparesItsMetadata = New("an eviction compares the resourceVersion in its metadata", func(l *lab.Lab) {
	editBody(l, evictions, "the number in its metadata was compared", func(o object) {
		if token := meta(o, "resourceVersion"); token != "" {
			o["deleteOptions"] = object{"preconditions": object{"resourceVersion": token}}
		}
	})
})

func evictions(c *wire.Call) bool { return creates(c) && strings.HasSuffix(c.Path, "/eviction") }

// ForceOverridesTheToken takes the token out of forced applies.
var ForceOverridesTheToken = New("force also overrides the token", func(l *lab.Lab) {
	forced := func(c *wire.Call) bool { return c.Query.Get("force") == "true" }
	dropToken(l, forced, "the token was taken out")
})

// IfMatchIsTheToken makes what If-Match says the token of a replace.
var IfMatchIsTheToken = New("the server honors If-Match", func(l *lab.Lab) {
	honorIfMatch(l, replaces, func(string) bool { return true })
})

// IfMatchStandsIn makes a number in If-Match the token of a replace that has none.
var IfMatchStandsIn = New("the server honors If-Match where the body has no token", func(l *lab.Lab) {
	honorIfMatch(l, tokenless(replaces), isNumber)
})

// IfMatchComesFirst makes a number in If-Match the token of a replace that has another.
var IfMatchComesFirst = New("the server honors If-Match in the place of the token in the body", func(l *lab.Lab) {
	honorIfMatch(l, func(c *wire.Call) bool { return replaces(c) && withToken(c) }, isNumber)
})

func honorIfMatch(l *lab.Lab, when which, good func(match string) bool) {
	sendToken(l, when, "If-Match was taken for the token", func(q *http.Request) string {
		if match, err := strconv.Unquote(q.Header.Get("If-Match")); err == nil && good(match) {
			return match
		}
		return ""
	})
}

// ServerCreatesWhatIsMissing creates what a replace does not find, of every kind.
var ServerCreatesWhatIsMissing = New("the server creates whatever a replace does not find", func(l *lab.Lab) {
	create := func(q *http.Request, sent []byte) ([]byte, error) {
		// A create must not have a token.
		sent = edit(sent, func(o object) { delete(part(o, "metadata"), "resourceVersion") })
		return l.As("server").TryRaw(http.MethodPost, path.Dir(q.URL.Path), "", sent)
	}
	insteadOf404(l, replaces, "created, if it is missing", create, http.StatusCreated)
})

// NoStatusMeansTheObject stores through the object itself what is sent to a /status that is not there.
var NoStatusMeansTheObject = New(
	"what is meant for a /status that is not there is stored through the object",
	func(l *lab.Lab) {
		replace := func(q *http.Request, sent []byte) ([]byte, error) {
			return l.As("server").TryRaw(http.MethodPut, strings.TrimSuffix(q.URL.Path, "/status"), "", sent)
		}
		insteadOf404(l, toStatus, "sent to the object, if that is missing", replace, http.StatusOK)
	})

// insteadOf404 has something else done with a request that is answered with 404, and answers with what that brings.
func insteadOf404(
	l *lab.Lab, when which, note string, do func(q *http.Request, sent []byte) ([]byte, error), code int,
) {
	l.Wire.AddHTTP(&wire.HTTPRule{When: when, Note: note, Answer: func(resp *http.Response, body []byte) []byte {
		if resp.StatusCode != http.StatusNotFound {
			return body
		}
		answer, err := do(resp.Request, sentIn(resp.Request))
		if err != nil {
			return body
		}
		resp.StatusCode = code
		return answer
	}})
}

// APatchIsAState rewrites merge patches: a size that they do not mention is removed.
var APatchIsAState = New("a patch removes the size where it does not mention it", func(l *lab.Lab) {
	editBody(l, mergePatches, "what it does not mention is removed", func(o object) {
		for _, name := range []string{"data", "spec"} {
			fields := part(o, name)
			if _, mentioned := fields["size"]; fields != nil && !mentioned {
				fields["size"] = nil
			}
		}
	})
})

// APatchMergesConditions rewrites merge patches: the conditions that are there come before their own.
var APatchMergesConditions = New("the server merges the conditions of a patch into those that are there",
	func(l *lab.Lab) {
		editRequest(l, mergePatches, "merged by the server", func(q *http.Request, o object) {
			// When there is an error, there are no conditions.
			now, _ := l.As("server").TryRaw(http.MethodGet, q.URL.Path, "", nil)
			if status := part(o, "status"); status != nil {
				stored, _ := part(decode(now), "status")["conditions"].([]any)
				sent, _ := status["conditions"].([]any)
				status["conditions"] = append(stored, sent...)
			}
		})
	})

// OneStoreForAll keeps events in the same etcd as everything else.
var OneStoreForAll = New("events are kept in the same etcd as everything else", func(l *lab.Lab) {
	lab.OneStoreHook.Bend(l, true)
})

// AnEventIsSwallowed keeps the first event of an update from the first apiserver. A further one, which may run
// beside it, has watches of its own.
var AnEventIsSwallowed = New("an event gets lost between etcd and the apiserver", func(l *lab.Lab) {
	l.Wire.Add(&wire.Rule{
		When: func(r *wire.Request) bool {
			return isEvent(r) && r.From == "apiserver" && r.Found[0].Version > 1 && !r.Found[0].Deleted
		},
		Note: "swallowed", Times: 1, Drop: true,
	})
})

// ServerGivesUp refuses the transactions of an update from the seventh on.
var ServerGivesUp = New("the server gives up after five retries", func(l *lab.Lab) {
	var count atomic.Int64
	l.Wire.Add(&wire.Rule{
		When: func(r *wire.Request) bool { return hasCompare(r) && count.Add(1) > 6 },
		Note: "given up", Err: status.Error(codes.Aborted, "gave up after five retries"),
	})
})

// AFailedCompareIsTheRefusal lets no update of a key pass to etcd once a compare on it has failed, and answers what
// comes of that with the sentence of a conflict.
var AFailedCompareIsTheRefusal = New("a failed compare is itself the refusal, and the server looks no further",
	func(l *lab.Lab) {
		var failed sync.Map // keys
		l.Wire.Add(&wire.Rule{When: hasCompare, Answer: func(m proto.Message) {
			for _, op := range m.(*pb.TxnResponse).Responses {
				for _, kv := range op.GetResponseRange().GetKvs() {
					failed.Store(string(kv.Key), true)
				}
			}
		}})
		again := func(r *wire.Request) bool {
			_, before := failed.Load(r.Key)
			return before && hasCompare(r)
		}
		l.Wire.Add(&wire.Rule{
			When: again, Note: "a compare has failed before", Err: status.Error(codes.Aborted, "the compare has failed"),
		})
		l.Wire.AddHTTP(&wire.HTTPRule{Answer: func(resp *http.Response, body []byte) []byte {
			if resp.StatusCode != http.StatusInternalServerError {
				return body
			}
			of, name := path.Split(resp.Request.URL.Path)
			conflict := apierrors.NewConflict(schema.GroupResource{Resource: path.Base(of)}, name,
				errors.New("the object has been modified; please apply your changes to the latest version and try again"))
			conflict.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			resp.StatusCode = http.StatusConflict
			return marshal(conflict.ErrStatus)
		}})
	})

// CreatesHaveAnElse gives the transaction of a create an else branch that reads the key.
var CreatesHaveAnElse = New("a create has an else branch", func(l *lab.Lab) {
	editTxn(l, isCreate, "an else branch was added", func(txn *pb.TxnRequest) {
		txn.Failure = get(txn.Compare[0].Key)
	})
})

// UpdatesStartTheKeyAnew deletes the key before an update puts it.
var UpdatesStartTheKeyAnew = New("an update deletes the key and creates it anew", func(l *lab.Lab) {
	editTxn(l, isUpdate, "the key was deleted first", func(txn *pb.TxnRequest) {
		if _, err := l.Etcd().Delete(l.Context(), string(txn.Compare[0].Key)); err == nil {
			txn.Compare = nil // it would no longer hold
		}
	})
})

// KeysOutliveTheirDeletion makes deletes reads, and has creates put what is there already.
var KeysOutliveTheirDeletion = New("a deleted object's key stays in etcd and a create writes over it",
	func(l *lab.Lab) {
		editTxn(l, isDelete, "the delete was made a get", keepKey)
		editTxn(l, isCreate, "the compare was taken out", dropCompare)
	})

// TheRetryPutsTheOldBytes has the third update of a key, which is the retry of a first that was overtaken by a
// second, put the bytes of the first.
var TheRetryPutsTheOldBytes = New("the retry puts the bytes of the first try once more", func(l *lab.Lab) {
	var mu sync.Mutex
	tries := map[string][][]byte{}
	editPut(l, isUpdate, "a third update puts what the first did", func(put *pb.PutRequest) {
		mu.Lock()
		defer mu.Unlock()
		key := string(put.Key)
		tries[key] = append(tries[key], put.Value)
		if len(tries[key]) == 3 {
			put.Value = tries[key][0]
		}
	})
})

// UIDsBelongToNames puts a recreated object with the uid of the first object of its name.
var UIDsBelongToNames = New("the uid belongs to the name: a recreated object is stored with the old one",
	func(l *lab.Lab) {
		var first sync.Map // uids by key
		editPut(l, isCreate, "stored with the uid of the first object of this name", func(put *pb.PutRequest) {
			if own := uid.Find(put.Value); own != nil {
				old, _ := first.LoadOrStore(string(put.Key), own)
				put.Value = bytes.ReplaceAll(put.Value, own, old.([]byte))
			}
		})
	})

var uid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// StoredInAnotherEncoding puts objects in another encoding, with the same content: what kube-apiserver would store
// is never byte for byte what is stored.
var StoredInAnotherEncoding = New("etcd holds objects in another encoding than the server's", func(l *lab.Lab) {
	editPut(l, isPut, "put in another encoding", func(put *pb.PutRequest) {
		if value, err := lab.OtherEncoding(put.Value); err == nil {
			put.Value = value
		}
	})
})

// ObjectsAreStoredWithANumber puts objects with a resourceVersion in them.
var ObjectsAreStoredWithANumber = New("objects are stored with a resourceVersion in them", func(l *lab.Lab) {
	editPut(l, isPut, "put with a number in it", func(put *pb.PutRequest) {
		if value, err := lab.WithStoredToken(put.Value, "1"); err == nil {
			put.Value = value
		}
	})
})

// EveryUpdateRaisesTheGeneration puts objects of Kubernetes' own kinds with a generation that has grown by one.
var EveryUpdateRaisesTheGeneration = New("every update raises the generation, whatever it changes", func(l *lab.Lab) {
	editPut(l, isUpdate, "the generation was raised", func(put *pb.PutRequest) {
		value, err := lab.EditStored(put.Value, func(o object) {
			if n, ok := part(o, "metadata")["generation"].(int64); ok {
				now := stored(l, string(put.Key))
				old, _, err := lab.DecodeStored(now.Value)
				if err == nil && old.Generation == n {
					setMeta(o, "generation", n+1)
				}
			}
		})
		if err == nil {
			put.Value = value
		}
	})
})

// StatusPutsTheSpec has what a replace of the /status of a Deployment puts into etcd carry the spec that was sent.
var StatusPutsTheSpec = New("the transaction of a Deployment's /status puts the spec that was sent, too",
	func(l *lab.Lab) {
		var sent sync.Map // a spec by the name of its object
		about := func(c *wire.Call) bool { return strings.HasPrefix(c.Path, "deployments/") && toStatus(c) }
		editBody(l, about, "its spec will be stored", func(o object) { sent.Store(meta(o, "name"), o["spec"]) })
		deployments := func(r *wire.Request) bool { return isUpdate(r) && strings.Contains(r.Key, "/deployments/") }
		editPut(l, deployments, "put with the spec that was sent", func(put *pb.PutRequest) {
			spec, ok := sent.LoadAndDelete(path.Base(string(put.Key)))
			if !ok {
				return
			}
			if value, err := lab.EditStored(put.Value, func(o object) { o["spec"] = spec }); err == nil {
				put.Value = value
			}
		})
	})

// EvictionsSpendNoBudget puts a budget that an eviction counts down with as many disruptions as before.
var EvictionsSpendNoBudget = New("an eviction does not count its budget down", func(l *lab.Lab) {
	counted := func(r *wire.Request) bool { return isUpdate(r) && strings.Contains(r.Key, "/poddisruptionbudgets/") }
	editPut(l, counted, "not counted down", func(put *pb.PutRequest) {
		value, err := lab.EditStored(put.Value, func(o object) {
			status := part(o, "status")
			allowed, _ := status["disruptionsAllowed"].(int64)
			if len(part(status, "disruptedPods")) > 0 {
				status["disruptionsAllowed"] = allowed + 1
			}
		})
		if err == nil {
			put.Value = value
		}
	})
})
