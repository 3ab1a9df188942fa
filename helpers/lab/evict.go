package lab

import (
	"fmt"
	"net/http"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// PodDisruptionBudget is the kind of the budgets that evictions are counted against.
var PodDisruptionBudget = Kind{
	Kind: "PodDisruptionBudget", Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Fields: "spec",
	Base: map[string]any{"spec": map[string]any{
		"minAvailable": int64(1), "selector": map[string]any{"matchLabels": map[string]any{"app": "shelf"}},
	}},
}

// RunningPods makes Pods that run, as their status says, and that budgets select.
func (l *Lab) RunningPods(names ...string) {
	defer l.Wire.Tape().Pause()()
	pods := l.quiet().Of(Pod)
	for _, name := range names {
		pod := pods.New(name)
		pod.SetLabels(map[string]string{"app": "shelf"})
		pods.CreateObject(pod)
		pods.Sub("status").Patch(name, types.MergePatchType, podStatus("True"))
	}
}

// SetReady has the status of a Pod say that it runs and whether it is ready: "True" or "False".
func (c *Client) SetReady(pod, ready string) {
	c.Of(Pod).Sub("status").Patch(pod, types.MergePatchType, podStatus(ready))
}

func podStatus(ready string) string {
	return fmt.Sprintf(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":%q}]}}`, ready)
}

// AllowDisruptions has the status of a PodDisruptionBudget say that so many Pods may be evicted, as its controller
// would. More Pods are healthy than it asks for.
func (l *Lab) AllowDisruptions(budget string, allowed int) {
	defer l.Wire.Tape().Pause()()
	l.quiet().Of(PodDisruptionBudget).Sub("status").Patch(budget, types.MergePatchType, fmt.Sprintf(`{"status":{
		"disruptionsAllowed":%d,"observedGeneration":1,"expectedPods":3,"currentHealthy":3,"desiredHealthy":1}}`, allowed))
}

// TryEvict asks once for the eviction of a Pod. With a token, only that version of the Pod is to go.
func (c *Client) TryEvict(name, token string) error {
	options := ""
	if token != "" {
		options = fmt.Sprintf(`,"deleteOptions":{"preconditions":{"resourceVersion":%q}}`, token)
	}
	body := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q}%s}`, name, options)
	_, err := c.TryRaw(http.MethodPost, c.Of(Pod).Path(name)+"/eviction", "", []byte(body))
	return err
}

// ForbiddenEviction makes a Pod that runs and a PodDisruptionBudget over it whose controller has not looked
// yet, and returns the party's request to evict that Pod: it is refused with 429 and a Retry-After of ten seconds,
// however often it is sent (createTooManyRequestsError in k8s.io/kubernetes/pkg/registry/core/pod/storage).
func (c *Client) ForbiddenEviction() *rest.Request {
	c.lab.RunningPods("pod")
	defer c.lab.Wire.Tape().Pause()()
	c.lab.quiet().Of(PodDisruptionBudget).Create("budget")
	return c.Typed().PolicyV1().RESTClient().Post().AbsPath(c.Of(Pod).Path("pod") + "/eviction").
		Body(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: c.lab.Namespace}})
}
