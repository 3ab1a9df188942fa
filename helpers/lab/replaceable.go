package lab

import (
	"cmp"
	"slices"
	"strings"
)

// MoreKinds are further kinds beside those of [SampleKinds], each with the least that the API accepts: such as it
// is cheap to make, and as nothing in a control plane without controllers acts upon.
func (l *Lab) MoreKinds() []Kind {
	type m = map[string]any
	const (
		admission, rbac  = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"
		storage, network = "storage.k8s.io", "networking.k8s.io"
		driver           = "shelf.example"
	)
	kinds := []Kind{
		{Kind: "Endpoints", Resource: "endpoints"},
		{Kind: "Event", Resource: "events", Base: m{"involvedObject": m{"namespace": l.Namespace}}},
		{Kind: "IngressClass", Group: network, Resource: "ingressclasses", Cluster: true, Base: m{"spec": m{"controller": driver + "/none"}}},
		{Kind: "ClusterRoleBinding", Group: rbac, Resource: "clusterrolebindings", Cluster: true,
			Base: m{"roleRef": m{"apiGroup": rbac, "kind": "ClusterRole", "name": "shelf"}}},
		{Kind: "RuntimeClass", Group: "node.k8s.io", Resource: "runtimeclasses", Cluster: true, Base: m{"handler": "shelf"}},
		{Kind: "MutatingWebhookConfiguration", Group: admission, Resource: "mutatingwebhookconfigurations", Cluster: true},
		{Kind: "ValidatingWebhookConfiguration", Group: admission, Resource: "validatingwebhookconfigurations", Cluster: true},
		{Kind: "CSIDriver", Group: storage, Resource: "csidrivers", Cluster: true, Base: m{"spec": m{}}},
		{Kind: "CSINode", Group: storage, Resource: "csinodes", Cluster: true, Base: m{"spec": m{"drivers": []any{}}}},
		{Kind: "CSIStorageCapacity", Group: storage, Resource: "csistoragecapacities", Base: m{"storageClassName": "shelf"}},
		{Kind: "VolumeAttachment", Group: storage, Resource: "volumeattachments", Cluster: true, Base: m{"spec": m{
			"attacher": driver, "nodeName": "shelf", "source": m{"persistentVolumeName": "shelf"}}}},
		{Kind: "ResourceClaim", Group: "resource.k8s.io", Resource: "resourceclaims", Base: m{"spec": m{}}},
	}
	for i := range kinds {
		kinds[i].Version = "v1"
	}
	return kinds
}

// Replaceable is every kind that kube-apiserver says it serves to be created and replaced, in the version that it
// prefers, without custom resources. Kinds of [SampleKinds] and [Lab.MoreKinds] come with what makes an object valid;
// the others with nothing.
func (l *Lab) Replaceable() []Kind {
	known := append(SampleKinds(), l.MoreKinds()...)
	var out []Kind
	for _, g := range l.discover() {
		if strings.HasSuffix(g.Group.Name, exampleDomain) {
			continue
		}
		version := g.Group.PreferredVersion.Version
		for _, r := range g.VersionedResources[version] {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "create") || !slices.Contains(r.Verbs, "update") {
				continue
			}
			k := Kind{Kind: r.Kind, Group: g.Group.Name, Version: version, Resource: r.Name, Cluster: !r.Namespaced}
			if i := slices.IndexFunc(known, func(o Kind) bool { return o.GVK() == k.GVK() }); i >= 0 {
				k = known[i]
			}
			out = append(out, k)
		}
	}
	slices.SortStableFunc(out, func(a, b Kind) int { return cmp.Compare(a.Kind, b.Kind) })
	// Events are served in two groups and are the same objects; the core group comes first.
	return slices.CompactFunc(out, func(a, b Kind) bool { return a.Kind == b.Kind })
}
