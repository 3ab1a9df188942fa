package world

import (
	"encoding/json"
	"net/http"
	"path"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"modrev/helpers/lab"
	"modrev/helpers/source"
	"modrev/helpers/wire"
)

// TheSourceComparesTheVersion is the world in which the function that builds the compare of an update asks
// for the version of the key.
var TheSourceComparesTheVersion = Custom("the source compares the version of the key", func(l *lab.Lab) {
	l.BendSource(source.OptimisticPut.Package, "ModRevision(", "Version(")
})

// TheSourceHasNoElse is the world in which the function that builds the compare of an update gives the
// transaction no else branch.
var TheSourceHasNoElse = Custom("the source gives the transaction no else branch", func(l *lab.Lab) {
	l.BendSource(source.OptimisticPut.Package, "txn = txn.Else(clientv3.OpGet(key))", "")
})

// TheSourceHandsOnNoRevision is the world in which GuaranteedUpdate hands on 0 as the expected revision.
var TheSourceHandsOnNoRevision = Custom("the source hands on no revision", func(l *lab.Lab) {
	l.BendSource(source.GuaranteedUpdate.Package, "newData, origState.rev,", "newData, 0,")
})

// TheSourceReadsAgain is the world in which GuaranteedUpdate reads the object again after a failed compare.
var TheSourceReadsAgain = Custom("the source reads again after a failed compare", func(l *lab.Lab) {
	l.BendSource(source.GuaranteedUpdate.Package,
		`span.AddEvent("Retry value restored")`, "origState, err = getCurrentState()")
})

// EtcdComparesTheVersion is the world in which an update asks etcd to compare the version of the key, which
// counts the writes to it since its creation.
var EtcdComparesTheVersion = Custom("the transaction compares the version of the key", func(l *lab.Lab) {
	l.Wire.Add(wire.AlterTxn(hasCompare, "made to compare the version", func(txn *pb.TxnRequest) {
		c := txn.Compare[0]
		now, err := l.Etcd().Get(l.Context(), string(c.Key))
		if err != nil || len(now.Kvs) == 0 || now.Kvs[0].ModRevision != c.GetModRevision() {
			return // this one would fail by either field
		}
		c.Target = pb.Compare_VERSION
		c.TargetUnion = &pb.Compare_Version{Version: now.Kvs[0].Version}
	}))
})

// EtcdIgnoresTheCompareOfACreate is the world in which the compare is taken out of every create.
var EtcdIgnoresTheCompareOfACreate = Custom("the compare is taken out of a create", func(l *lab.Lab) {
	l.Wire.Add(wire.AlterTxn(isCreate, "the compare was taken out", func(txn *pb.TxnRequest) { txn.Compare = nil }))
})

// EtcdDropsTheElseOfADelete is the world in which the else branch is taken out of every delete on its way to
// etcd.
var EtcdDropsTheElseOfADelete = Custom("the else branch is taken out of a delete", func(l *lab.Lab) {
	l.Wire.Add(wire.AlterTxn(isDelete, "the else branch was taken out", func(txn *pb.TxnRequest) { txn.Failure = nil }))
})

// TheElseBranchFindsNothing is the world in which an else branch that ran answers that there is no such key.
var TheElseBranchFindsNothing = Custom("the else branch finds nothing", func(l *lab.Lab) {
	l.Wire.Add(&wire.Rule{
		When: hasCompare, Note: "what the else branch found was taken out",
		Answer: func(m proto.Message) {
			for _, got := range elseOf(m) {
				got.Kvs, got.Count = nil, 0
			}
		},
	})
})

// elseOf are the reads of the else branch, when it ran.
func elseOf(m proto.Message) []*pb.RangeResponse {
	resp, ok := m.(*pb.TxnResponse)
	if !ok || resp.Succeeded {
		return nil
	}
	var out []*pb.RangeResponse
	for _, op := range resp.Responses {
		if got := op.GetResponseRange(); got != nil {
			out = append(out, got)
		}
	}
	return out
}

// PatchesCarryAToken is the world in which a client puts the token of the newest version into every patch
// that it sends to a ConfigMap.
var PatchesCarryAToken = Custom("the client puts the newest token into its patches", func(l *lab.Lab) {
	putTokenInto(l, func(c *wire.Call) bool { return c.Verb == http.MethodPatch && !c.HasToken })
})

// putTokenInto puts the token of the newest version of a ConfigMap into patches of it.
func putTokenInto(l *lab.Lab, when func(*wire.Call) bool) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: when,
		Note: "the client put the token in",
		Request: func(q *http.Request, body []byte) []byte {
			now, err := l.Etcd().Get(l.Context(), lab.ConfigMap.KeyOf(l.Namespace, path.Base(q.URL.Path)))
			if err != nil || len(now.Kvs) == 0 {
				return body
			}
			token := strconv.FormatInt(now.Kvs[0].ModRevision, 10)
			var operations []any // of a JSON patch
			if json.Unmarshal(body, &operations) == nil {
				body, _ = json.Marshal(append(operations, map[string]any{ // strings alone: this cannot fail
					"op": "replace", "path": "/metadata/resourceVersion", "value": token,
				}))
				return body
			}
			return editMeta(body, func(meta map[string]any) {
				meta["resourceVersion"] = token
			})
		},
	})
}

// TokensAreText is the world in which the server compares tokens as text, so that a leading zero makes
// another token.
var TokensAreText = Custom("the server compares tokens as text", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool {
			return c.Verb == http.MethodPut && len(c.Token) > 1 && strings.HasPrefix(c.Token, "0")
		},
		Note:    "taken for another token",
		Request: func(_ *http.Request, body []byte) []byte { return editToken(body, "1") },
	})
})

// DeletesReadNumbers is the world in which the resourceVersion in a delete's preconditions is read as it is in a
// replace: as a number, of which 0 is none.
var DeletesReadNumbers = Custom("the version in a delete's preconditions is read as a number", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodDelete },
		Note: "its version was read as a number",
		Request: func(_ *http.Request, body []byte) []byte {
			return edit(body, func(o map[string]any) {
				preconditions, _ := o["preconditions"].(map[string]any)
				text, _ := preconditions["resourceVersion"].(string)
				number := strings.TrimLeft(text, "0")
				if number == "" {
					delete(preconditions, "resourceVersion")
					return
				}
				preconditions["resourceVersion"] = number
			})
		},
	})
})
