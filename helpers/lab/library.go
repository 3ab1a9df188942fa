package lab

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readable is the config of the party with JSON on the wire: for the built-in kinds client-go prefers
// protobuf (PrefersProtobuf in k8s.io/client-go/gentype), which neither the tape nor a false world can read.
func (c *Client) readable() *rest.Config {
	cfg := c.Config()
	cfg.ContentType = runtime.ContentTypeJSON
	return cfg
}

// Typed is client-go's typed client set for the party. Its requests appear on the tape. It has no field
// manager of its own: where a lesson is about owners it says so in the options of a request.
func (c *Client) Typed() kubernetes.Interface {
	api, err := kubernetes.NewForConfig(c.readable())
	c.lab.Step(err, "making a typed client for "+c.who)
	return api
}

// Controller is controller-runtime's client for the party, with the party as its field owner. It reads from
// the apiserver and not from a cache. It knows the built-in kinds that the book uses by their Go types, and
// every kind as unstructured; which resource belongs to a kind it is told, so that it need not ask.
func (c *Client) Controller(custom ...Kind) client.Client {
	api, err := client.New(c.readable(), client.Options{
		Scheme:     scheme.Scheme,
		Mapper:     mapper(append([]Kind{ConfigMap, Secret, Lease, Deployment, Pod}, custom...)),
		FieldOwner: c.who,
	})
	c.lab.Step(err, "making a controller-runtime client for "+c.who)
	return api
}

// mapper knows the resources of some kinds.
func mapper(kinds []Kind) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, k := range kinds {
		scope := meta.RESTScopeNamespace
		if k.Cluster {
			scope = meta.RESTScopeRoot
		}
		m.AddSpecific(k.GVK(), k.GVR(), k.GVR(), scope)
	}
	return m
}

// RetryHook is how [Lab.RetryOnConflict] repeats what it is given: as client-go does.
var RetryHook = Hook[func(wait.Backoff, func() error) error]{retry.RetryOnConflict}

// RetryOnConflict is client-go's retry.RetryOnConflict, as the world of this lab has it.
func (l *Lab) RetryOnConflict(backoff wait.Backoff, do func() error) error {
	return RetryHook.in(l)(backoff, do)
}

// WaitHook is how [Lab.NextWait] asks a backoff: by its Step.
var WaitHook = Hook[func(*wait.Backoff) time.Duration]{(*wait.Backoff).Step}

// NextWait is the next wait of a backoff, as the world of this lab has it.
func (l *Lab) NextWait(backoff *wait.Backoff) time.Duration { return WaitHook.in(l)(backoff) }
