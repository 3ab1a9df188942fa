package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// exampleDomain is the end of the API group of every custom resource in the book.
const exampleDomain = ".modrev.example"

var CustomResourceDefinition = Kind{
	Kind: "CustomResourceDefinition", Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions", Cluster: true, Prefix: "apiextensions.k8s.io/customresourcedefinitions",
}

// Version is one version of a custom resource, as its definition says.
type Version struct {
	Name     string         // "v1"
	Storage  bool           // what is written is stored in this version
	Unserved bool           // the API does not serve it
	Spec     map[string]any // the schema of each field of spec; nil takes any fields
	Status   map[string]any // the schema of each field of status; nil takes any fields
	Required []string       // the fields of spec that an object must have
	// Subresources are those that are switched on: "status", "scale" (of spec.replicas).
	Subresources []string
}

// CustomResource defines a custom resource that only this lesson has: a Shelf, in an API group named
// after the lesson, whose spec and status take any fields. Its cache in kube-apiserver, and the watch
// that feeds it, are the lesson's own too, so both may be frozen. subresources names what is switched on:
// "status", "scale" (of spec.replicas), both or nothing. A lesson that calls it again gets another resource,
// in another group.
func (l *Lab) CustomResource(subresources ...string) Kind {
	return l.Define(Version{Name: "v1", Storage: true, Subresources: subresources})
}

// Define is [Lab.CustomResource] with the versions that the lesson gives it. The kind that it returns is that of the
// first; [Kind.In] gives the others. An object that is stored in one version and read in another differs in its
// apiVersion, and in what the schemas leave out and put in: nothing else converts it.
func (l *Lab) Define(versions ...Version) Kind {
	l.open()
	defer l.Wire.Tape().Pause()()
	group := l.Namespace
	if l.customs > 0 {
		group = fmt.Sprintf("%s-%d", group, l.customs)
	}
	l.customs++
	k := Kind{
		Kind: "Shelf", Group: group + exampleDomain, Version: versions[0].Name, Resource: "shelves", Fields: "spec",
	}
	client := l.quiet().Of(CustomResourceDefinition)
	made, err := client.TryCreateObject(k.defined(versions))
	l.Step(err, "defining the custom resource "+k.Definition())
	l.Cleanup(func() {
		// A definition that stays costs kube-apiserver time with every other one that comes. An error here
		// means that the run is being cut off, and the store goes with it.
		_ = client.TryDelete(k.Definition())
	})
	l.backdate(client, l.established(client, made))
	l.Served(k)
	return k
}

// defined is the definition of a custom resource with the given versions.
func (k Kind) defined(versions []Version) *Object {
	def := CustomResourceDefinition.newObject("", k.Definition())
	list := make([]any, len(versions))
	for i, v := range versions {
		list[i] = v.defined()
	}
	def.Object["spec"] = map[string]any{
		"group": k.Group, "scope": "Namespaced",
		"names":    map[string]any{"plural": "shelves", "singular": "shelf", "kind": "Shelf"},
		"versions": list,
	}
	return def
}

func (v Version) defined() map[string]any {
	spec := fieldsOf(v.Spec)
	if len(v.Required) > 0 {
		spec["required"] = anySlice(v.Required)
	}
	out := map[string]any{
		"name": v.Name, "served": !v.Unserved, "storage": v.Storage,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "properties": map[string]any{"spec": spec, "status": fieldsOf(v.Status)},
		}},
	}
	if len(v.Subresources) == 0 {
		return out
	}
	on := map[string]any{}
	for _, s := range v.Subresources {
		on[s] = map[string]any{}
		if s == "scale" {
			on[s] = map[string]any{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
		}
	}
	out["subresources"] = on
	return out
}

// fieldsOf is the schema of an object with the given fields, or with any.
func fieldsOf(properties map[string]any) map[string]any {
	if properties == nil {
		return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	}
	return map[string]any{"type": "object", "properties": properties}
}

func anySlice(words []string) []any {
	out := make([]any, len(words))
	for i, w := range words {
		out[i] = w
	}
	return out
}

// established waits until kube-apiserver says that it serves a custom resource.
func (l *Lab) established(client *Client, def *Object) *Object {
	w, err := client.TryWatch(metav1.ListOptions{
		ResourceVersion: "0", FieldSelector: "metadata.name=" + def.GetName(),
	})
	l.Step(err, "watching "+def.GetName())
	for {
		ev, err := w.TryNext()
		l.Step(err, "waiting until "+def.GetName()+" is established")
		for _, c := range conditionsOf(ev.Object) {
			if c["type"] == "Established" && c["status"] == "True" {
				return ev.Object
			}
		}
	}
}

func conditionsOf(o *Object) []map[string]any {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	out := make([]map[string]any, 0, len(list))
	for _, c := range list {
		if c, ok := c.(map[string]any); ok {
			out = append(out, c)
		}
	}
	return out
}

// backdate makes a custom resource look as if it had been served for long. In its first two seconds
// kube-apiserver makes every create of one wait for two seconds, for the sake of other apiservers that may
// not know of it yet (crdHandler.ServeHTTP in k8s.io/apiextensions-apiserver/pkg/apiserver). Here a wait
// would only make the book slow.
func (l *Lab) backdate(client *Client, def *Object) {
	conditions := conditionsOf(def)
	for _, c := range conditions {
		c["lastTransitionTime"] = "2020-01-01T00:00:00Z"
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	l.Step(err, "encoding the status of "+def.GetName())
	_, err = client.Sub("status").TryPatch(def.GetName(), types.MergePatchType, string(body))
	l.Step(err, "backdating "+def.GetName())
}

// Served waits until kube-apiserver answers a list of a kind, and has its cache of it ready.
func (l *Lab) Served(k Kind) {
	client := l.quiet().Of(k)
	var last error
	err := wait.PollUntilContextCancel(l.ctx, 5*time.Millisecond, true, func(context.Context) (bool, error) {
		// Sent once: client-go would wait a second after each 429 by itself.
		_, last = client.TryGetOnce("", "")
		if last == nil || IsNotFound(last) || apierrors.IsTooManyRequests(last) {
			return last == nil, nil
		}
		return false, last
	})
	l.Step(err, fmt.Sprintf("waiting until %s is served (last answer: %v)", k.qualified(), last))
}
