package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
)

// SampleKinds is one valid object of each of many kinds, as data: what a lesson creates when it wants to say
// "whatever the kind". Fields of the objects are the least that the API accepts.
func SampleKinds() []Kind {
	m := func(kv ...any) map[string]any {
		out := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i].(string)] = kv[i+1]
		}
		return out
	}
	labels := m("app", "shelf")
	selector := m("matchLabels", labels)
	containers := []any{m("name", "c", "image", "registry.example/shelf:1")}
	pod := m("metadata", m("labels", labels), "spec", m("containers", containers))
	job := m("metadata", m("labels", labels), "spec", m("containers", containers, "restartPolicy", "Never"))
	rule := []any{m("apiGroups", []any{""}, "resources", []any{"configmaps"}, "verbs", []any{"get"})}
	storage := m("requests", m("storage", "1Gi"))
	const (
		apps, batch, rbac = "apps", "batch", "rbac.authorization.k8s.io"
		net, sched        = "networking.k8s.io", "scheduling.k8s.io"
	)
	return []Kind{
		ConfigMap,
		{Kind: "Secret", Version: "v1", Resource: "secrets", Base: m("type", "Opaque")},
		// Without an address: in its first second kube-apiserver has none to give ("range is full"), because one
		// of its post-start hooks has still to make the default ServiceCIDR.
		{Kind: "Service", Version: "v1", Resource: "services",
			Base: m("spec", m("clusterIP", "None", "ports", []any{m("port", int64(80))}))},
		{Kind: "ServiceAccount", Version: "v1", Resource: "serviceaccounts"},
		{Kind: "Pod", Version: "v1", Resource: "pods", Base: m("spec", m("containers", containers))},
		{Kind: "PodTemplate", Version: "v1", Resource: "podtemplates", Base: m("template", pod)},
		{Kind: "ReplicationController", Version: "v1", Resource: "replicationcontrollers",
			Base: m("spec", m("selector", labels, "template", pod))},
		{Kind: "LimitRange", Version: "v1", Resource: "limitranges", Base: m("spec", m("limits", []any{}))},
		{Kind: "ResourceQuota", Version: "v1", Resource: "resourcequotas"},
		{Kind: "PersistentVolumeClaim", Version: "v1", Resource: "persistentvolumeclaims",
			Base: m("spec", m("accessModes", []any{"ReadWriteOnce"}, "resources", storage))},
		{Kind: "Node", Version: "v1", Resource: "nodes", Cluster: true},
		{Kind: "PersistentVolume", Version: "v1", Resource: "persistentvolumes", Cluster: true, Base: m("spec", m(
			"accessModes", []any{"ReadWriteOnce"}, "capacity", m("storage", "1Gi"), "hostPath", m("path", "/nowhere")))},
		Deployment,
		{Kind: "ReplicaSet", Group: apps, Version: "v1", Resource: "replicasets", Base: m("spec", m("selector", selector, "template", pod))},
		{Kind: "DaemonSet", Group: apps, Version: "v1", Resource: "daemonsets", Base: m("spec", m("selector", selector, "template", pod))},
		{Kind: "StatefulSet", Group: apps, Version: "v1", Resource: "statefulsets",
			Base: m("spec", m("selector", selector, "template", pod, "serviceName", "shelf"))},
		{Kind: "ControllerRevision", Group: apps, Version: "v1", Resource: "controllerrevisions", Base: m("revision", int64(1), "data", m("a", "b"))},
		{Kind: "Job", Group: batch, Version: "v1", Resource: "jobs", Base: m("spec", m("template", job))},
		{Kind: "CronJob", Group: batch, Version: "v1", Resource: "cronjobs",
			Base: m("spec", m("schedule", "0 0 1 1 *", "jobTemplate", m("spec", m("template", job))))},
		Lease,
		{Kind: "HorizontalPodAutoscaler", Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers",
			Base: m("spec", m("maxReplicas", int64(1), "minReplicas", int64(1), "scaleTargetRef", m("apiVersion", "apps/v1", "kind", "Deployment", "name", "shelf")))},
		{Kind: "PodDisruptionBudget", Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Base: m("spec", m("selector", selector))},
		{Kind: "Role", Group: rbac, Version: "v1", Resource: "roles", Base: m("rules", rule)},
		{Kind: "RoleBinding", Group: rbac, Version: "v1", Resource: "rolebindings",
			Base: m("roleRef", m("apiGroup", rbac, "kind", "Role", "name", "shelf"))},
		{Kind: "ClusterRole", Group: rbac, Version: "v1", Resource: "clusterroles", Cluster: true, Base: m("rules", rule)},
		{Kind: "NetworkPolicy", Group: net, Version: "v1", Resource: "networkpolicies", Base: m("spec", m("podSelector", m()))},
		{Kind: "Ingress", Group: net, Version: "v1", Resource: "ingresses",
			Base: m("spec", m("defaultBackend", m("service", m("name", "shelf", "port", m("number", int64(80))))))},
		{Kind: "EndpointSlice", Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices",
			Base: m("addressType", "IPv4", "endpoints", []any{})},
		{Kind: "StorageClass", Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses", Cluster: true,
			Base: m("provisioner", "shelf.example/none")},
		{Kind: "PriorityClass", Group: sched, Version: "v1", Resource: "priorityclasses", Cluster: true, Base: m("value", int64(1))},
	}
}

// CreateEvery creates an object of a kind under a name that no other object in the store has, and returns
// it with the key under which etcd stores it. The key is found by that name, not by a rule; n tells the
// names apart.
func (l *Lab) CreateEvery(k Kind, n int) (*Object, string) {
	name := fmt.Sprintf("%s-%d", l.Namespace, n)
	o := l.Of(k).Create(name)
	resp, err := l.Etcd().Get(l.ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	l.Step(err, "looking for the key of "+name)
	for _, kv := range resp.Kvs {
		if strings.HasSuffix(string(kv.Key), "/"+name) {
			return o, string(kv.Key)
		}
	}
	l.Stuck("looking for the key of "+name, errors.New("no key in etcd ends with that name"))
	return nil, ""
}

// StoredObject is an object as it lies in etcd.
type StoredObject struct {
	Key         string
	ModRevision int64
	Encoding    string // "protobuf" or "JSON"
	Kind        schema.GroupVersionKind
	Namespace   string
	Name        string
	// ResourceVersion is metadata.resourceVersion as the stored bytes have it.
	ResourceVersion string
}

// Store returns every object below /registry/, decoded as far as type and metadata, and the revision at which
// they were read.
//
// Custom resources of other lessons are left out. Whoever lists them makes kube-apiserver ask etcd for keys of
// those lessons, who count what it asks; and their definitions may go at any time.
func (l *Lab) Store() ([]StoredObject, int64) {
	resp, err := l.Etcd().Get(l.ctx, "/registry/", clientv3.WithPrefix())
	l.Step(err, "reading all of etcd")
	out := make([]StoredObject, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		o, err := decodeStored(kv.Value)
		l.Step(err, "decoding what is stored under "+string(kv.Key))
		if group := o.Kind.Group; strings.HasSuffix(group, exampleDomain) && !l.defined(group) {
			continue
		}
		o.Key, o.ModRevision = string(kv.Key), kv.ModRevision
		out = append(out, o)
	}
	return out, resp.Header.Revision
}

// defined says whether a custom resource of an API group is one of the lesson's own.
func (l *Lab) defined(group string) bool {
	return group == l.Namespace+exampleDomain || strings.HasPrefix(group, l.Namespace+"-")
}

// Everywhere are the objects of a kind in all namespaces as the API lists them at a revision, by "namespace/name".
func (l *Lab) Everywhere(kind Kind, revision int64) map[string]*Object {
	api, err := l.dynamic()
	l.Step(err, "listing "+kind.Resource)
	list, err := api.Resource(kind.GVR()).List(l.ctx, metav1.ListOptions{
		ResourceVersion: strconv.FormatInt(revision, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	l.Step(err, "listing "+kind.Resource)
	out := make(map[string]*Object, len(list.Items))
	for i, o := range list.Items {
		out[o.GetNamespace()+"/"+o.GetName()] = &list.Items[i]
	}
	return out
}

// DecodeStored decodes type and metadata of an object as it lies in etcd.
func (l *Lab) DecodeStored(value []byte) StoredObject {
	o, err := decodeStored(value)
	l.Step(err, "decoding a stored object")
	return o
}

// protobufMagic is what precedes an object that is stored as protobuf
// (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
var protobufMagic = []byte("k8s\x00")

func decodeStored(value []byte) (StoredObject, error) {
	var o metav1.PartialObjectMetadata
	encoding := "JSON"
	if raw, ok := bytes.CutPrefix(value, protobufMagic); ok {
		encoding = "protobuf"
		var typed runtime.Unknown
		if err := typed.Unmarshal(raw); err != nil {
			return StoredObject{}, fmt.Errorf("reading the type: %w", err)
		}
		// Whatever the kind, the metadata is the first field.
		if err := o.Unmarshal(typed.Raw); err != nil {
			return StoredObject{}, fmt.Errorf("reading the metadata: %w", err)
		}
		o.APIVersion, o.Kind = typed.APIVersion, typed.Kind
	} else if err := json.Unmarshal(value, &o); err != nil {
		return StoredObject{}, fmt.Errorf("it is neither protobuf nor JSON: %w", err)
	}
	return StoredObject{
		Encoding: encoding, Kind: o.GroupVersionKind(),
		Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion,
	}, nil
}

// Kinds maps the kinds that kube-apiserver serves to what a Client needs to know of them.
func (l *Lab) Kinds() map[schema.GroupVersionKind]Kind {
	out := map[schema.GroupVersionKind]Kind{}
	for _, g := range l.discover() {
		for version, resources := range g.VersionedResources {
			for _, r := range resources {
				if strings.Contains(r.Name, "/") {
					continue
				}
				k := Kind{Kind: r.Kind, Group: g.Group.Name, Version: version, Resource: r.Name, Cluster: !r.Namespaced}
				out[k.GVK()] = k
			}
		}
	}
	return out
}

// discover asks kube-apiserver what it serves.
func (l *Lab) discover() []*restmapper.APIGroupResources {
	api, err := discovery.NewDiscoveryClientForConfig(l.quiet().Config())
	l.Step(err, "making a client for discovery")
	groups, err := restmapper.GetAPIGroupResources(api)
	l.Step(err, "asking kube-apiserver what it serves")
	return groups
}
