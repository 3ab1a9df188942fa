package lab

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// TryRaw sends one request to a path of the API, below the host, with the query as it stands, and returns
// the answer's body. It sends it once: client-go otherwise repeats what was answered with 429 or a 5xx
// and a Retry-After by itself, up to ten times (Request.request in k8s.io/client-go/rest/request.go).
func (c *Client) TryRaw(verb, path, query string, body []byte) ([]byte, error) {
	return c.TryRawWithin(c.lab.ctx, verb, path, query, body)
}

// TryRawWithin is TryRaw with a context of the caller's own, to give up with.
func (c *Client) TryRawWithin(ctx context.Context, verb, path, query string, body []byte) ([]byte, error) {
	q, err := c.raw(verb, path, query, body)
	if err != nil {
		return nil, err
	}
	res := q.MaxRetries(0).Do(ctx)
	if err := res.Error(); err != nil {
		return nil, err
	}
	return res.Raw()
}

// TryRawByDefault sends a request as client-go does when nobody tells it otherwise: what it repeats by itself
// it repeats. Only the waits in between are left out.
func (c *Client) TryRawByDefault(verb, path, query string, body []byte) error {
	q, err := c.raw(verb, path, query, body)
	if err != nil {
		return err
	}
	return q.BackOffWithContext(noWait{}).Do(c.lab.ctx).Error()
}

func (c *Client) raw(verb, path, query string, body []byte) (*rest.Request, error) {
	cfg := c.Config()
	cfg.GroupVersion = &schema.GroupVersion{Version: "v1"}
	cfg.APIPath = "/"
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	api, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", c.who, err)
	}
	q := api.Verb(verb).RequestURI(path + "?" + query)
	if body != nil {
		q = q.Body(body).SetHeader("Content-Type", "application/json")
	}
	return q, nil
}

// noWait is a rest.BackoffManagerWithContext that lets no time pass.
type noWait struct{}

func (noWait) UpdateBackoffWithContext(context.Context, *url.URL, error, int) {}
func (noWait) CalculateBackoffWithContext(context.Context, *url.URL) (none time.Duration) {
	return none
}
func (noWait) SleepWithContext(context.Context, time.Duration) {}

// Path is the path of the API for the objects of the party's kind in the lesson's namespace, or for the
// one that is named.
func (c *Client) Path(name string) string {
	p := "/api/" + c.kind.Version
	if c.kind.Group != "" {
		p = "/apis/" + c.kind.Group + "/" + c.kind.Version
	}
	if !c.kind.Cluster {
		p += "/namespaces/" + c.lab.Namespace
	}
	p += "/" + c.kind.Resource
	if name != "" {
		p += "/" + name
	}
	return p
}

// TryGetOnce reads with a query of the caller's own, without the retries of client-go.
func (c *Client) TryGetOnce(name, query string) ([]byte, error) {
	return c.TryRaw(http.MethodGet, c.Path(name), query, nil)
}
