package lab

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
)

var podDisruptionBudget = Kind{
	Kind: "PodDisruptionBudget", Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Fields: "spec",
	Base: map[string]any{"spec": map[string]any{
		"minAvailable": int64(1), "selector": map[string]any{"matchLabels": map[string]any{"app": "shelf"}},
	}},
}

// Eviction is a request that the API answers with 429.
type Eviction struct {
	Path string
	Body []byte
}

// ForbiddenEviction makes a Pod that runs and a PodDisruptionBudget over it whose controller has not looked
// yet, and returns the request to evict that Pod: it is refused with 429 and a Retry-After of ten seconds,
// however often it is sent (createTooManyRequestsError in k8s.io/kubernetes/pkg/registry/core/pod/storage).
func (l *Lab) ForbiddenEviction() Eviction {
	l.open()
	defer l.Wire.Tape().Pause()()
	pods := l.quiet().Of(Pod)
	pod := pods.New("pod")
	pod.SetLabels(map[string]string{"app": "shelf"})
	_, err := pods.TryCreateObject(pod)
	l.Step(err, "creating a pod")
	_, err = pods.Sub("status").TryPatch("pod", types.MergePatchType,
		`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	l.Step(err, "saying that the pod runs")
	_, err = l.quiet().Of(podDisruptionBudget).TryCreate("budget")
	l.Step(err, "creating a budget for disruptions")
	return Eviction{
		Path: pods.Path("pod") + "/eviction",
		Body: fmt.Appendf(nil, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"pod","namespace":%q}}`, l.Namespace),
	}
}

// TryEvict sends an eviction, once.
func (c *Client) TryEvict(e Eviction) error {
	_, err := c.TryRaw(http.MethodPost, e.Path, "", e.Body)
	return err
}
