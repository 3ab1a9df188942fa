package world

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/source"
	"modrev/helpers/wire"
)

// The worlds of this file break one part of a claim and leave its other parts as they are.

// isA says whether a call is what a lesson names so: a patch by its format ("apply"), or "replace", "create"
// and "delete".
func isA(what string) func(*wire.Call) bool {
	verb := map[string]string{
		"create": http.MethodPost, "replace": http.MethodPut, "delete": http.MethodDelete,
	}[what]
	return func(c *wire.Call) bool {
		if verb != "" {
			return c.Verb == verb
		}
		return c.Format == what
	}
}

// alsoNamed narrows a choice of transactions to those for the objects of one name.
func alsoNamed(name string, when wire.Match) wire.Match {
	return func(r *wire.Request) bool { return when(r) && strings.HasSuffix(r.Key, "/"+name) }
}

func isCreate(r *wire.Request) bool {
	return r.Method == wire.Txn && len(r.Compare) == 1 && r.Compare[0].Value == 0
}

func isUpdate(r *wire.Request) bool {
	return hasCompare(r) && len(r.Then) == 1 && r.Then[0].Kind == "Put"
}

func isDelete(r *wire.Request) bool {
	return hasCompare(r) && len(r.Then) == 1 && r.Then[0].Kind == "Delete"
}

// getOf is a branch that reads the key of a transaction.
func getOf(txn *pb.TxnRequest) []*pb.RequestOp {
	return []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{
		RequestRange: &pb.RangeRequest{Key: txn.Compare[0].Key},
	}}}
}

// OlderTokensCount is the world in which a token from the past is as good as the current one.
var OlderTokensCount = Custom("a token is good when it is not newer than the object", func(l *lab.Lab) {
	takeForCurrent(l, "an older token was taken for the current one", func(sent, current int64) bool { return sent < current })
})

// TokensAreTheirLastDigits is the world in which the server looks at the last six digits of a token.
var TokensAreTheirLastDigits = Custom("the server looks at the last six digits of a token alone", func(l *lab.Lab) {
	takeForCurrent(l, "its last digits are the current ones", func(sent, current int64) bool { return sent%1_000_000 == current%1_000_000 })
})

// takeForCurrent makes the server take the token of a replace for the current one where it is good.
func takeForCurrent(l *lab.Lab, note string, good func(sent, current int64) bool) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: note,
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPut && c.HasToken },
		Request: func(_ *http.Request, body []byte) []byte {
			current, ok := currentToken(l, body)
			n, err := strconv.ParseInt(current, 10, 64)
			if sent := sentToken(body); !ok || err != nil || sent == 0 || !good(sent, n) {
				return body
			}
			return editToken(body, current)
		},
	})
}

// WordsAreNoTokens is the world in which a client leaves out a token that is no number.
var WordsAreNoTokens = Custom("the client leaves out a token that is no number", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note: "the word was left out",
		When: func(c *wire.Call) bool {
			return c.Verb == http.MethodPut && c.Token != "" && !isNumber(c.Token)
		},
		Request: func(_ *http.Request, body []byte) []byte { return editToken(body, "") },
	})
})

// ZeroIsANumber is the world in which "0" is a token like any other, which no object has.
var ZeroIsANumber = Custom(`"0" is a token like any other number`, func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		Note:    "compared as a number that no object has",
		When:    func(c *wire.Call) bool { return c.Verb == http.MethodPut && c.Token == "0" },
		Request: func(_ *http.Request, body []byte) []byte { return editToken(body, "1") },
	})
})

// AProxyForcesWhatIsRefused is the world in which a proxy sends a replace that was refused once more, with the
// newest token, and gives the refusal to the client all the same.
var AProxyForcesWhatIsRefused = Custom("a proxy passes on the refusal and sends the replace again with the newest token", func(l *lab.Lab) {
	afterARefusal(l, "proxy", func(l *lab.Lab, q *http.Request, body []byte) {
		defer l.Wire.Tape().Pause()()
		// An error here shows in what is stored.
		_, _ = l.As("proxy").TryRaw(q.Method, q.URL.Path, "", withCurrentToken(l, body))
	})
})

// ALibraryRepeatsWhatIsRefused is the world in which a client library sends a replace that was refused once
// more as it is, before it tells its caller.
var ALibraryRepeatsWhatIsRefused = Custom("a library repeats a refused replace before it tells its caller", func(l *lab.Lab) {
	afterARefusal(l, "library", func(l *lab.Lab, q *http.Request, body []byte) {
		// Its answer is that of the first.
		_, _ = l.As("library").TryRaw(q.Method, q.URL.Path, "", body)
	})
})

// afterARefusal has somebody do something about each replace of the others that is refused with 409.
func afterARefusal(l *lab.Lab, who string, again func(*lab.Lab, *http.Request, []byte)) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPut && c.Who != who },
		Answer: func(resp *http.Response, body []byte) []byte {
			if sent, err := sentIn(resp); err == nil && resp.StatusCode == http.StatusConflict {
				again(l, resp.Request, sent)
			}
			return body
		},
	})
}

// sentIn is the body of the request that got an answer.
func sentIn(resp *http.Response) ([]byte, error) {
	body, err := resp.Request.GetBody()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// TheElseBranchIsOneTooHigh is the world in which an else branch reports a mod_revision that is one too high.
var TheElseBranchIsOneTooHigh = Custom("the else branch reports a mod_revision that is one too high", func(l *lab.Lab) {
	l.Wire.Add(&wire.Rule{
		When: hasCompare, Note: "what the else branch reported was raised by one",
		Answer: func(m proto.Message) {
			for _, got := range elseOf(m) {
				for _, kv := range got.Kvs {
					kv.ModRevision++
				}
			}
		},
	})
})

// EtcdIgnoresTheCompareOf is the world in which the compare is taken out of every update and delete of the
// objects of one name.
func EtcdIgnoresTheCompareOf(name string) World {
	return Custom("the compare is taken out of the transactions on "+name, func(l *lab.Lab) {
		l.Wire.Add(wire.AlterTxn(alsoNamed(name, hasCompare), "the compare was taken out",
			func(txn *pb.TxnRequest) { txn.Compare = nil }))
	})
}

// EtcdKeepsTheOldValue is the world in which etcd acknowledges an update and keeps the value that it had.
var EtcdKeepsTheOldValue = Custom("etcd acknowledges an update and keeps the value that it had", func(l *lab.Lab) {
	l.Wire.Add(wire.AlterTxn(isUpdate, "the old value was put", func(txn *pb.TxnRequest) {
		put := txn.Success[0].GetRequestPut()
		if now, err := l.Etcd().Get(l.Context(), string(put.Key)); err == nil && len(now.Kvs) == 1 {
			put.Value = now.Kvs[0].Value
		}
	}))
})

// TheRetryPutsTheOldBytes is the world in which the third update of a key, which is the retry of a first that was
// overtaken by a second, puts the bytes of the first.
var TheRetryPutsTheOldBytes = Custom("the retry puts the bytes of the first try once more", func(l *lab.Lab) {
	var mu sync.Mutex
	tries := map[string][][]byte{}
	l.Wire.Add(wire.AlterTxn(isUpdate, "a third update puts what the first did", func(txn *pb.TxnRequest) {
		mu.Lock()
		defer mu.Unlock()
		put := txn.Success[0].GetRequestPut()
		of := append(tries[string(put.Key)], put.Value)
		tries[string(put.Key)] = of
		if len(of) == 3 {
			put.Value = of[0]
		}
	}))
})

// EtcdDeletesNothingOf is the world in which the deletes of the objects of one name are made reads on their way
// to etcd.
func EtcdDeletesNothingOf(name string) World {
	return Custom("etcd acknowledges the delete of "+name+" and keeps the key", func(l *lab.Lab) {
		l.Wire.Add(wire.AlterTxn(alsoNamed(name, isDelete), "the delete was made a get",
			func(txn *pb.TxnRequest) { txn.Success = getOf(txn) }))
	})
}

// CreatesHaveAnElse is the world in which the transaction of a create reads the key when its compare fails.
var CreatesHaveAnElse = Custom("a create has an else branch", func(l *lab.Lab) {
	l.Wire.Add(wire.AlterTxn(isCreate, "an else branch was added", func(txn *pb.TxnRequest) { txn.Failure = getOf(txn) }))
})

// ReadsForAPatchShowTheFirstVersion is the world in which, from the writer's first patch on, a read of a key at
// etcd shows the first version of it.
var ReadsForAPatchShowTheFirstVersion = Custom("what is read from etcd for a patch is the first version of the object", func(l *lab.Lab) {
	l.KeepHistory()
	show := &wire.Rule{
		When: func(r *wire.Request) bool { return r.Method == wire.Range && r.End == "" },
		Note: "answered with the first version",
		Request: func(m proto.Message) {
			q := m.(*pb.RangeRequest)
			if now, err := l.Etcd().Get(l.Context(), string(q.Key)); err == nil && len(now.Kvs) == 1 {
				q.Revision = now.Kvs[0].CreateRevision
			}
		},
	}
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Who == "writer" && c.Verb == http.MethodPatch }, Times: 1,
		Do: func(int) { l.Wire.Add(show) },
	})
})

// TheSourceDeletes is the world in which the function that builds the compare of an update lets the then branch
// delete.
var TheSourceDeletes = Custom("the source lets the then branch delete", func(l *lab.Lab) {
	l.BendSource(source.OptimisticPut.Package, "OpPut(", "OpDelete(")
})

// TheSourceAsksForLess is the world in which the function that builds the compare of an update asks for a
// smaller revision instead of an equal one.
var TheSourceAsksForLess = Custom("the source asks for less and not for equality", func(l *lab.Lab) {
	l.BendSource(source.OptimisticPut.Package, `"="`, `"<"`)
})

// ClientDropsTheTokenOf is the world in which a client drops the token from requests of one sort: "replace",
// "apply", "JSON patch".
func ClientDropsTheTokenOf(what string) World {
	return Custom("the client drops the token from every "+what, func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: isA(what), Note: "the client dropped the token",
			Request: func(_ *http.Request, body []byte) []byte {
				var operations []map[string]any // of a JSON patch
				if json.Unmarshal(body, &operations) != nil {
					return editToken(body, "")
				}
				operations = slices.DeleteFunc(operations, func(op map[string]any) bool {
					return op["op"] == "replace" && op["path"] == "/metadata/resourceVersion"
				})
				body, _ = json.Marshal(operations) // it was JSON before: this cannot fail
				return body
			},
		})
	})
}

// PatchesCarryATokenIn is the world in which a client puts the token of the newest version into the patches of
// one format that it sends to a ConfigMap.
func PatchesCarryATokenIn(format string) World {
	return Custom("the client puts the newest token into every "+format, func(l *lab.Lab) {
		putTokenInto(l, func(c *wire.Call) bool { return c.Format == format && !c.HasToken })
	})
}

// LibraryRemembersTheToken is the world in which a client library fills in the token of the object that it
// created first, wherever a replace carries none.
var LibraryRemembersTheToken = Custom("the client's library fills in the token that it was given first", func(l *lab.Lab) {
	var first atomic.Int64
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: isA("create"),
		Answer: func(_ *http.Response, body []byte) []byte {
			first.CompareAndSwap(0, sentToken(body))
			return body
		},
	})
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPut && c.Token == "" },
		Note: "the library filled in a token",
		Request: func(_ *http.Request, body []byte) []byte {
			return editToken(body, strconv.FormatInt(first.Load(), 10))
		},
	})
})

// ReplacesLookFirst is the world in which a client library reads before it replaces, and leaves it at that when
// there is nothing.
var ReplacesLookFirst = Custom("the client's library replaces nothing that it has not found first", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: isA("replace"), Note: "looked for first",
		Request: func(q *http.Request, body []byte) []byte {
			if _, err := l.As("library").TryRaw(http.MethodGet, q.URL.Path, "", nil); !lab.IsNotFound(err) {
				return body
			}
			q.Method, q.Body, q.ContentLength = http.MethodGet, nil, 0
			return nil
		},
	})
})

// ALibraryReadsFirst is the world in which a client library reads the object before every request of one sort:
// "create", "merge patch".
func ALibraryReadsFirst(what string) World {
	return Custom("the client's library reads the object before every "+what, func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: isA(what), Note: "after a read",
			Request: func(q *http.Request, body []byte) []byte {
				at := q.URL.Path
				if o := (&lab.Object{}); q.Method == http.MethodPost && o.UnmarshalJSON(body) == nil {
					at += "/" + o.GetName()
				}
				// That there is no such object is an answer, too.
				_, _ = l.As("library").TryRaw(http.MethodGet, at, "", nil)
				return body
			},
		})
	})
}

// PatchesAreSentAs is the world in which a client sends the patches of one format and one resource in another
// format.
func PatchesAreSentAs(resource, format, other string, as types.PatchType) World {
	return Custom("the client sends every "+format+" of "+resource+" as a "+other, func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Format == format && strings.HasPrefix(c.Path, resource+"/") },
			Note: "sent as a " + other,
			Request: func(q *http.Request, body []byte) []byte {
				q.Header.Set("Content-Type", string(as))
				return body
			},
		})
	})
}

// PatchesSayNull is the world in which a client writes null where a merge patch has no token.
var PatchesSayNull = Custom("the client writes null where a merge patch has no token", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "merge patch" && !c.HasToken },
		Note: "null was written",
		Request: func(_ *http.Request, body []byte) []byte {
			return edit(body, func(o map[string]any) {
				if meta, ok := o["metadata"].(map[string]any); ok {
					meta["resourceVersion"] = nil
				}
			})
		},
	})
})

// PatchesAreStamped is the world in which a client puts a count of its own into the patches of one format.
func PatchesAreStamped(format string) World {
	return Custom("the client stamps every "+format+" with a count", func(l *lab.Lab) {
		var count atomic.Int64
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: isA(format), Note: "stamped",
			Request: func(_ *http.Request, body []byte) []byte {
				stamp := map[string]any{"stamp": strconv.FormatInt(count.Add(1), 10)}
				if bytes.HasPrefix(body, []byte("[")) {
					body, _ = json.Marshal([]any{ // strings alone: this cannot fail
						map[string]any{"op": "add", "path": "/metadata/annotations", "value": stamp},
					})
					return body
				}
				return editMeta(body, func(meta map[string]any) {
					meta["annotations"] = stamp
				})
			},
		})
	})
}

// AppliesLoseTheUID is the world in which a client's apply forgets the uid.
var AppliesLoseTheUID = Custom("the client drops the uid from every apply", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: isA("apply"), Note: "the client dropped the uid",
		Request: func(_ *http.Request, body []byte) []byte { return withoutMeta(body, "uid") },
	})
})

// ClientMendsTheKeys is the world in which a client library mends the keys of a ConfigMap that it sends with a
// request of one sort.
func ClientMendsTheKeys(what string) World {
	return Custom("the client's library mends bad keys before a "+what, func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: isA(what), Note: "its keys were mended",
			Request: func(_ *http.Request, body []byte) []byte {
				return bytes.ReplaceAll(body, []byte(`"a/b"`), []byte(`"a.b"`))
			},
		})
	})
}

// RefusalsBecome is the world in which the server answers what it refuses with one code by another code and
// reason.
func RefusalsBecome(code, other int, reason metav1.StatusReason) World {
	return Custom("the server says "+string(reason)+" in the place of "+strconv.Itoa(code), func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			Note: "a refusal gets another code and reason",
			Answer: func(resp *http.Response, body []byte) []byte {
				if resp.StatusCode != code {
					return body
				}
				resp.StatusCode = other
				resp.Header.Del("Retry-After") // with a 5xx, client-go would wait and repeat
				return edit(body, func(o map[string]any) { o["code"], o["reason"] = other, reason })
			},
		})
	})
}

// RefusalsAreAbout is the world in which every refusal names one kind in its details.
func RefusalsAreAbout(kind string) World {
	return Custom("every refusal names "+kind+" in its details", func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			Note: "details.kind is " + kind,
			Answer: func(_ *http.Response, body []byte) []byte {
				return edit(body, func(o map[string]any) {
					if details, ok := o["details"].(map[string]any); ok {
						details["kind"] = kind
					}
				})
			},
		})
	})
}

// DeletesLose is the world in which a client drops one of the preconditions of its deletes: "uid",
// "resourceVersion".
func DeletesLose(precondition string) World {
	return Custom("the client drops the "+precondition+" from the preconditions of its deletes", func(l *lab.Lab) {
		editDeletes(l, "the client dropped the "+precondition, func(o, preconditions map[string]any) {
			delete(preconditions, precondition)
		})
	})
}

// DeletesTakeForNone is the world in which a client leaves out the resourceVersion of a delete that is the given
// text.
func DeletesTakeForNone(text string) World {
	return Custom("the client leaves "+strconv.Quote(text)+" out of the preconditions of its deletes", func(l *lab.Lab) {
		editDeletes(l, strconv.Quote(text)+" is left out", func(o, preconditions map[string]any) {
			if preconditions["resourceVersion"] == text {
				delete(preconditions, "resourceVersion")
			}
		})
	})
}

// DeletesAreDryRuns is the world in which a client's deletes are dry runs.
var DeletesAreDryRuns = Custom("the client's deletes are dry runs", func(l *lab.Lab) {
	editDeletes(l, "a dry run", func(o, _ map[string]any) { o["dryRun"] = []any{metav1.DryRunAll} })
})

// editDeletes changes the options of deletes.
func editDeletes(l *lab.Lab, note string, change func(options, preconditions map[string]any)) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: isA("delete"), Note: note,
		Request: func(_ *http.Request, body []byte) []byte {
			return edit(body, func(o map[string]any) {
				preconditions, _ := o["preconditions"].(map[string]any)
				change(o, preconditions)
			})
		},
	})
}

// DeletesCarryTheUID is the world in which a client puts the uid that a name had first into a delete without
// preconditions.
var DeletesCarryTheUID = Custom("the client puts the uid that a name had first into every delete", func(l *lab.Lab) {
	fromCreateToDelete(l, "with the uid", func(o, created map[string]any) {
		if o["preconditions"] == nil {
			o["preconditions"] = map[string]any{"uid": created["uid"]}
		}
	})
})

// DeletesCarryTheVersion is the world in which a client adds to a delete by uid the version that a name had
// first.
var DeletesCarryTheVersion = Custom("the client adds the version that it was given first to every delete by uid", func(l *lab.Lab) {
	fromCreateToDelete(l, "with the version", func(o, created map[string]any) {
		if preconditions, ok := o["preconditions"].(map[string]any); ok && preconditions["uid"] != nil {
			preconditions["resourceVersion"] = created["resourceVersion"]
		}
	})
})

// fromCreateToDelete changes the options of a delete by the metadata that the first create of its name was
// answered with.
func fromCreateToDelete(l *lab.Lab, note string, change func(options, created map[string]any)) {
	var first sync.Map // metadata by name
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: isA("create"),
		Answer: func(_ *http.Response, body []byte) []byte {
			if o := (&lab.Object{}); o.UnmarshalJSON(body) == nil {
				first.LoadOrStore(o.GetName(), o.Object["metadata"])
			}
			return body
		},
	})
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: isA("delete"), Note: note,
		Request: func(q *http.Request, body []byte) []byte {
			created, _ := first.Load(path.Base(q.URL.Path))
			return edit(body, func(o map[string]any) {
				if created, ok := created.(map[string]any); ok {
					change(o, created)
				}
			})
		},
	})
}

// ReplacesAnswerOneTooHigh is the world in which the answer to a replace reports a resourceVersion that is one
// too high.
var ReplacesAnswerOneTooHigh = Custom("the answer to a replace reports the next number", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: isA("replace"), Note: "the number in the answer was raised by one",
		Answer: func(_ *http.Response, body []byte) []byte { return raiseToken(body) },
	})
})

// SomebodyElseWrites is the world in which a client whom nobody has counted writes the named ConfigMap right
// before each of the first replaces of it.
func SomebodyElseWrites(name string, times int) World {
	return Custom("one more client, whom nobody has counted, writes before most replaces", func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When:  func(c *wire.Call) bool { return c.Verb == http.MethodPut && c.Path == "configmaps/"+name },
			Times: times,
			Do: func(n int) {
				// An error here shows in the refusals that are missing.
				_, _ = l.As("stranger").TrySet(name, "touched="+strconv.Itoa(n))
			},
		})
	})
}

// IfMatchStandsIn is the world in which the server honours If-Match where the body has no token.
var IfMatchStandsIn = Custom("the server honours If-Match where the body has no token", func(l *lab.Lab) {
	honourIfMatch(l, func(c *wire.Call) bool { return c.Token == "" }, isNumber)
})

// IfMatchComesFirst is the world in which the server honours an If-Match with a number in it before the token of
// the body, where there is one.
var IfMatchComesFirst = Custom("the server honours If-Match in the place of the token in the body", func(l *lab.Lab) {
	honourIfMatch(l, func(c *wire.Call) bool { return c.Token != "" }, isNumber)
})

// honourIfMatch has the server take what If-Match says for the token of a replace, where that is good.
func honourIfMatch(l *lab.Lab, when func(*wire.Call) bool, good func(match string) bool) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPut && when(c) },
		Note: "If-Match was taken for the token",
		Request: func(q *http.Request, body []byte) []byte {
			match, err := strconv.Unquote(q.Header.Get("If-Match"))
			if err != nil || !good(match) {
				return body
			}
			return editToken(body, match)
		},
	})
}

func isNumber(text string) bool {
	_, err := strconv.ParseInt(text, 10, 64)
	return err == nil
}
