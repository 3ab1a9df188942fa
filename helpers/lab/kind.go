package lab

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an object of the API as the lessons handle it, whatever its kind.
type Object = unstructured.Unstructured

// List is a list of objects of one kind.
type List = unstructured.UnstructuredList

// Kind is what a Client needs to know of a resource.
type Kind struct {
	Kind     string // "ConfigMap"
	Group    string // "" for the core group
	Version  string // "v1"
	Resource string // plural, as in the path of the API: "configmaps"
	Cluster  bool   // objects of this kind live outside namespaces
	// Prefix is the path below /registry/ in etcd, when it is not the one that the group and resource
	// make. (Most built-in kinds are stored under their resource alone.)
	Prefix string
	// Fields is where the short field names of a lesson ("color=red") go: "data", "spec".
	Fields string
	// Base is what every object of the kind needs in order to be valid, as JSON-like data; it is copied.
	Base map[string]any
}

// The kinds that several lessons use.
var (
	ConfigMap = Kind{Kind: "ConfigMap", Version: "v1", Resource: "configmaps", Fields: "data"}
	Secret    = Kind{Kind: "Secret", Version: "v1", Resource: "secrets", Fields: "stringData"}
	Namespace = Kind{Kind: "Namespace", Version: "v1", Resource: "namespaces", Cluster: true}
	Lease     = Kind{Kind: "Lease", Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Fields: "spec"}
	Pod       = Kind{
		Kind: "Pod", Version: "v1", Resource: "pods", Fields: "spec",
		Base: map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": "c", "image": "registry.example/shelf:1"},
		}}},
	}
	Deployment = Kind{
		Kind: "Deployment", Group: "apps", Version: "v1", Resource: "deployments", Fields: "spec",
		Base: map[string]any{"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "shelf"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "shelf"}},
				"spec": map[string]any{"containers": []any{
					map[string]any{"name": "c", "image": "registry.example/shelf:1"},
				}},
			},
		}},
	}
)

// GVR is the group, version and resource of the kind.
func (k Kind) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// GVK is the group, version and kind of the kind.
func (k Kind) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
}

// In is the kind in another version.
func (k Kind) In(version string) Kind {
	k.Version = version
	return k
}

// qualified is the resource as error messages name it: "configmaps", "leases.coordination.k8s.io".
func (k Kind) qualified() string {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}.String()
}

// Definition is the name of the definition of a custom resource.
func (k Kind) Definition() string { return k.Resource + "." + k.Group }

// custom says whether the kind comes from a CustomResourceDefinition: then its group has a domain that is
// not Kubernetes' own.
func (k Kind) custom() bool {
	return strings.HasSuffix(k.Group, exampleDomain)
}

// StoragePrefix is the prefix of the keys of this kind in etcd, with a slash at the end
// (resourcePrefix of the storage factory in k8s.io/apiserver/pkg/server/storage).
func (k Kind) StoragePrefix() string {
	switch {
	case k.Prefix != "":
		return "/registry/" + k.Prefix + "/"
	case k.custom():
		return "/registry/" + k.Group + "/" + k.Resource + "/"
	}
	return "/registry/" + k.Resource + "/"
}

// KeyOf is the key in etcd of an object of the kind.
func (k Kind) KeyOf(namespace, name string) string {
	if k.Cluster {
		return k.StoragePrefix() + name
	}
	return k.StoragePrefix() + namespace + "/" + name
}

// kindOf finds the kind of an object that a Client returned.
func kindOf(o *Object) Kind {
	gvk := o.GroupVersionKind()
	for _, k := range []Kind{ConfigMap, Secret, Namespace, Lease, Pod, Deployment, CustomResourceDefinition} {
		if k.GVK() == gvk {
			return k
		}
	}
	k := Kind{Kind: gvk.Kind, Group: gvk.Group, Version: gvk.Version, Resource: strings.ToLower(gvk.Kind) + "s",
		Fields: "spec"}
	if plural, ok := strings.CutSuffix(k.Resource, "fs"); ok && k.custom() {
		k.Resource = plural + "ves"
	}
	return k
}

// Key is the key of an object in etcd.
func (l *Lab) Key(o *Object) string {
	return kindOf(o).KeyOf(o.GetNamespace(), o.GetName())
}

// newObject makes an object of the kind with fields set.
func (k Kind) newObject(namespace, name string, fields ...string) *Object {
	o := &Object{Object: map[string]any{}}
	if k.Base != nil {
		o = (&Object{Object: k.Base}).DeepCopy()
	}
	o.SetGroupVersionKind(k.GVK())
	o.SetName(name)
	if !k.Cluster {
		o.SetNamespace(namespace)
	}
	k.set(o, fields...)
	return o
}

// path turns a field as a lesson writes it into the path in the object: "color" is data.color in a
// ConfigMap; names that begin with metadata., spec., status. or data. are meant as they stand.
func (k Kind) path(field string) []string {
	parts := strings.Split(field, ".")
	switch parts[0] {
	case "metadata", "spec", "status", "data":
		return parts
	}
	if k.Fields == "" {
		return parts
	}
	return append([]string{k.Fields}, parts...)
}

// set sets fields written as "name=value", and removes those written as "-name".
func (k Kind) set(o *Object, fields ...string) {
	for _, f := range fields {
		if name, remove := strings.CutPrefix(f, "-"); remove {
			unstructured.RemoveNestedField(o.Object, k.path(name)...)
			continue
		}
		name, value, _ := strings.Cut(f, "=")
		path := k.path(name)
		if err := unstructured.SetNestedField(o.Object, k.value(path, value), path...); err != nil {
			panic(fmt.Sprintf("field %q of a %s: %v", name, k.Kind, err))
		}
	}
}

// value is a field's value as the API wants it: in spec and status, what looks like a number or a truth
// value is one; in data, metadata and everywhere else it is text.
func (k Kind) value(path []string, text string) any {
	if path[0] != "spec" && path[0] != "status" {
		return text
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if b, err := strconv.ParseBool(text); err == nil {
		return b
	}
	return text
}

// lookup reads a field of an object as a lesson writes it.
func lookup(o *Object, field string) (any, bool) {
	v, ok, err := unstructured.NestedFieldNoCopy(o.Object, kindOf(o).path(field)...)
	return v, ok && err == nil
}

// Field is the value of a field of an object as text, by the short name that lessons use; "" if absent.
func Field(o *Object, field string) string {
	v, ok := lookup(o, field)
	if !ok {
		return ""
	}
	return fmt.Sprint(v)
}

// With is a copy of an object with some fields changed: what a client does to the copy it has read.
func With(o *Object, fields ...string) *Object {
	o = o.DeepCopy()
	kindOf(o).set(o, fields...)
	return o
}

// WithToken is a copy of an object that carries another resourceVersion, "" for none.
func WithToken(o *Object, token string) *Object {
	o = o.DeepCopy()
	o.SetResourceVersion(token)
	if token == "" {
		unstructured.RemoveNestedField(o.Object, "metadata", "resourceVersion")
	}
	return o
}

// WithoutUID is a copy of an object without its uid.
func WithoutUID(o *Object) *Object {
	o = o.DeepCopy()
	unstructured.RemoveNestedField(o.Object, "metadata", "uid")
	return o
}

// UID is a delete precondition: only the incarnation with this uid.
func UID(o *Object) metav1.DeleteOptions {
	uid := o.GetUID()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
}

// Token is a delete precondition: only if the object is still the version that was read.
func Token(o *Object) metav1.DeleteOptions {
	rv := o.GetResourceVersion()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &rv}}
}
