package lab

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// TryRaw sends one request to a path of the API, below the host, with the query as it stands, and returns
// the answer's body. It sends it once: client-go otherwise repeats what was answered with 429 or a 5xx
// and a Retry-After by itself, up to ten times (Request.request in k8s.io/client-go/rest/request.go).
func (c *Client) TryRaw(verb, path, query string, body []byte) ([]byte, error) {
	return c.send(verb, path, query, "application/json", body)
}

// TryPatchAt sends a patch to a path of the API, as [Client.TryRaw] does.
func (c *Client) TryPatchAt(path, query string, format types.PatchType, body []byte) ([]byte, error) {
	return c.send(http.MethodPatch, path, query, string(format), body)
}

func (c *Client) send(verb, path, query, format string, body []byte) ([]byte, error) {
	cfg := c.Config()
	cfg.GroupVersion = &schema.GroupVersion{Version: "v1"}
	cfg.APIPath = "/"
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	api, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", c.who, err)
	}
	q := api.Verb(verb).RequestURI(path + "?" + query).MaxRetries(0)
	if body != nil {
		q = q.Body(body).SetHeader("Content-Type", format)
	}
	res := q.Do(c.lab.ctx)
	if err := res.Error(); err != nil {
		return nil, err
	}
	return res.Raw()
}

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
