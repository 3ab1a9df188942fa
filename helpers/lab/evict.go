package lab

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

var podDisruptionBudget = Kind{
	Kind: "PodDisruptionBudget", Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Fields: "spec",
	Base: map[string]any{"spec": map[string]any{
		"minAvailable": int64(1), "selector": map[string]any{"matchLabels": map[string]any{"app": "shelf"}},
	}},
}

// ForbiddenEviction makes a Pod that runs and a PodDisruptionBudget over it whose controller has not looked
// yet, and returns the party's request to evict that Pod: it is refused with 429 and a Retry-After of ten seconds,
// however often it is sent (createTooManyRequestsError in k8s.io/kubernetes/pkg/registry/core/pod/storage).
func (c *Client) ForbiddenEviction() *rest.Request {
	quiet := c.lab.quiet()
	defer c.lab.Wire.Tape().Pause()()
	pods := quiet.Of(Pod)
	pod := pods.New("pod")
	pod.SetLabels(map[string]string{"app": "shelf"})
	pods.CreateObject(pod)
	pods.Sub("status").Patch("pod", types.MergePatchType,
		`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	quiet.Of(podDisruptionBudget).Create("budget")
	return c.Typed().PolicyV1().RESTClient().Post().AbsPath(pods.Path("pod") + "/eviction").
		Body(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: c.lab.Namespace}})
}
