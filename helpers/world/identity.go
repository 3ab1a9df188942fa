package world

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

var uid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// UIDsBelongToNames is the world in which a recreated object is stored with the uid that the first object
// of its name had.
var UIDsBelongToNames = Custom("the uid belongs to the name: a recreated object is stored with the old one", func(l *lab.Lab) {
	var mu sync.Mutex
	first := map[string][]byte{}
	l.Wire.Add(wire.AlterTxn(
		isCreate,
		"stored with the uid of the first object of this name",
		func(txn *pb.TxnRequest) {
			put := txn.Success[0].GetRequestPut()
			own := uid.Find(put.GetValue())
			if own == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if first[string(put.Key)] == nil {
				first[string(put.Key)] = bytes.Clone(own)
			}
			put.Value = bytes.ReplaceAll(put.Value, own, first[string(put.Key)])
		}))
})

// AProxyTouchesTheSpec is the world in which a patch that is not about the spec of a Deployment brings along
// a change of it, as a defaulting proxy or a mutating webhook can do it.
var AProxyTouchesTheSpec = Custom("a proxy adds something to the spec whenever a Deployment is patched", func(l *lab.Lab) {
	var count atomic.Int64
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool {
			return c.Verb == http.MethodPatch && strings.HasPrefix(c.Path, "deployments/") && strings.Count(c.Path, "/") == 1
		},
		Note: "through the proxy",
		Request: func(_ *http.Request, body []byte) []byte {
			return edit(body, func(o map[string]any) {
				if _, ok := o["spec"]; !ok {
					o["spec"] = map[string]any{"revisionHistoryLimit": count.Add(1)}
				}
			})
		},
	})
})

// TheNextOwnerAdopts is the world in which the objects of an owner that was deleted are given to the next object
// of its name: whoever reads the books finds that they have just been adopted.
var TheNextOwnerAdopts = Custom("somebody adopts the books for whoever bears the name of their owner", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool {
			return c.Verb == http.MethodGet && c.Who == "writer" && c.Path == "configmaps/books"
		},
		Do: func(int) {
			adopter := l.As("adopter")
			books, err := adopter.TryGet("books")
			if err != nil {
				return // the books keep their owner, and that shows
			}
			shelf, err := adopter.TryGet("shelf")
			if err != nil {
				return
			}
			books.SetOwnerReferences([]metav1.OwnerReference{
				*metav1.NewControllerRef(shelf, corev1.SchemeGroupVersion.WithKind("ConfigMap")),
			})
			_, _ = adopter.TryReplace(books)
		},
	})
})

// AnnotationsAreDropped is the world in which a client creates its objects without the annotations that its
// caller set.
var AnnotationsAreDropped = Custom("the client drops the annotations of what it creates", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When:    func(c *wire.Call) bool { return c.Verb == http.MethodPost },
		Note:    "the client dropped the annotations",
		Request: func(_ *http.Request, body []byte) []byte { return withoutMeta(body, "annotations") },
	})
})
