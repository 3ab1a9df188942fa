package lab

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
		{Kind: "ReplicaSet", Group: apps, Version: "v1", Resource: "replicasets",
			Base: m("spec", m("selector", selector, "template", pod))},
		{Kind: "DaemonSet", Group: apps, Version: "v1", Resource: "daemonsets",
			Base: m("spec", m("selector", selector, "template", pod))},
		{Kind: "StatefulSet", Group: apps, Version: "v1", Resource: "statefulsets",
			Base: m("spec", m("selector", selector, "template", pod, "serviceName", "shelf"))},
		{Kind: "ControllerRevision", Group: apps, Version: "v1", Resource: "controllerrevisions",
			Base: m("revision", int64(1), "data", m("a", "b"))},
		{Kind: "Job", Group: batch, Version: "v1", Resource: "jobs", Base: m("spec", m("template", job))},
		{Kind: "CronJob", Group: batch, Version: "v1", Resource: "cronjobs",
			Base: m("spec", m("schedule", "0 0 1 1 *", "jobTemplate", m("spec", m("template", job))))},
		Lease,
		{Kind: "HorizontalPodAutoscaler", Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers",
			Base: m("spec", m("maxReplicas", int64(1), "minReplicas", int64(1),
				"scaleTargetRef", m("apiVersion", "apps/v1", "kind", "Deployment", "name", "shelf")))},
		{Kind: "PodDisruptionBudget", Group: "policy", Version: "v1", Resource: "poddisruptionbudgets",
			Base: m("spec", m("selector", selector))},
		{Kind: "Role", Group: rbac, Version: "v1", Resource: "roles", Base: m("rules", rule)},
		{Kind: "RoleBinding", Group: rbac, Version: "v1", Resource: "rolebindings",
			Base: m("roleRef", m("apiGroup", rbac, "kind", "Role", "name", "shelf"))},
		{Kind: "ClusterRole", Group: rbac, Version: "v1", Resource: "clusterroles", Cluster: true, Base: m("rules", rule)},
		{Kind: "NetworkPolicy", Group: net, Version: "v1", Resource: "networkpolicies",
			Base: m("spec", m("podSelector", m()))},
		{Kind: "Ingress", Group: net, Version: "v1", Resource: "ingresses",
			Base: m("spec", m("defaultBackend", m("service", m("name", "shelf", "port", m("number", int64(80))))))},
		{Kind: "EndpointSlice", Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices",
			Base: m("addressType", "IPv4", "endpoints", []any{})},
		{Kind: "StorageClass", Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses", Cluster: true,
			Base: m("provisioner", "shelf.example/none")},
		{Kind: "PriorityClass", Group: sched, Version: "v1", Resource: "priorityclasses", Cluster: true,
			Base: m("value", int64(1))},
	}
}
