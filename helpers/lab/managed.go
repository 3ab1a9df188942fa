package lab

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// BackdateManagedFields sets the times in an object's managedFields to another one, in etcd itself and
// behind kube-apiserver's back, and returns the object as the API then serves it. The object is a custom
// resource: those are stored as JSON.
func (l *Lab) BackdateManagedFields(o *Object, time string) *Object {
	key := l.Key(o)
	what := "setting the times of " + key + " back"
	stored := &Object{}
	l.Step(stored.UnmarshalJSON(l.KVAt(key).Value), what)
	entries, _, err := unstructured.NestedSlice(stored.Object, "metadata", "managedFields")
	l.Step(err, what)
	for _, e := range entries {
		if e, ok := e.(map[string]any); ok {
			e["time"] = time
		}
	}
	l.Step(unstructured.SetNestedSlice(stored.Object, entries, "metadata", "managedFields"), what)
	text, err := stored.MarshalJSON()
	l.Step(err, what)
	put, err := l.Etcd().Put(l.ctx, key, string(text))
	l.Step(err, what)
	moved := WithToken(o, strconv.FormatInt(put.Header.Revision, 10))
	l.Settle(moved)
	return l.Of(kindOf(o)).Peek(o.GetName())
}

// ManagedTimes are the times in an object's managedFields.
func ManagedTimes(o *Object) string {
	var out []string
	for _, e := range o.GetManagedFields() {
		if e.Time != nil {
			out = append(out, e.Time.UTC().Format("2006-01-02T15:04:05Z"))
		}
	}
	return strings.Join(out, ", ")
}
