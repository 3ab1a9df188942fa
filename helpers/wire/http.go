package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"
)

// ErrAnswerLost is what a client sees when the wire loses the answer to its request.
var ErrAnswerLost = errors.New("connection lost before the answer arrived")

// HTTPRule is something that the wire does to a client's requests, or to the answers it gets.
// Fields that are not set do nothing.
type HTTPRule struct {
	When  func(*Call) bool // which requests; nil selects all
	Note  string           // what is printed behind such a request
	Times int              // how many requests the rule applies to; 0 means all

	// Do runs before the request is sent; n counts from 1. Requests that Do causes are subject to the rule,
	// too, when they match it.
	Do func(n int)
	// Request alters the request; it returns the body to send.
	Request func(q *http.Request, body []byte) []byte
	// Refuse fails the request before it is sent.
	Refuse error
	// Answer alters the body of the answer.
	Answer func(resp *http.Response, body []byte) []byte
	// Lose lets the server answer, and then loses the answer: the client sees ErrAnswerLost.
	Lose bool

	used int
}

// AddHTTP puts a rule for the owner's HTTP requests in force.
func (t *Tap) AddHTTP(r *HTTPRule) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.httpRules = append(t.httpRules, r)
}

// Transport returns a function for rest.Config.WrapTransport: it records the requests of the client who
// on the tape and lets the owner's HTTP rules act on them.
func (t *Tap) Transport(who string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return &recorder{tap: t, who: who, next: next}
	}
}

type recorder struct {
	tap  *Tap
	who  string
	next http.RoundTripper
}

func (rt *recorder) RoundTrip(q *http.Request) (*http.Response, error) {
	var body []byte
	if q.Body != nil {
		var err error
		body, err = io.ReadAll(q.Body)
		q.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("reading the body of %s %s: %w", q.Method, q.URL.Path, err)
		}
	}
	q = q.Clone(q.Context())
	call := describeCall(rt.who, q, body)
	rules := rt.tap.takeHTTP(call)
	var refuse error
	for _, rule := range rules {
		if rule.Do != nil {
			rule.Do(rule.n)
		}
		if rule.Request != nil {
			body = rule.Request(q, body)
			altered := describeCall(rt.who, q, body)
			altered.Note = call.Note
			call = altered
		}
		if rule.Refuse != nil {
			refuse = rule.Refuse
		}
	}
	rt.tap.tape.call(call)
	if refuse != nil {
		rt.tap.tape.finished(call, func(c *Call) { c.Err = refuse.Error() })
		return nil, refuse
	}
	if q.Body != nil || len(body) > 0 {
		q.Body = io.NopCloser(bytes.NewReader(body))
		q.ContentLength = int64(len(body))
		q.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	resp, err := rt.next.RoundTrip(q)
	if err != nil {
		rt.tap.tape.finished(call, func(c *Call) { c.Err = err.Error() })
		return nil, err
	}
	if q.URL.Query().Get("watch") != "" && resp.StatusCode == http.StatusOK {
		// The body of a watch has no end to wait for.
		rt.tap.tape.finished(call, func(c *Call) { c.Done, c.Code = true, resp.StatusCode })
		resp.Body = newGated(rt.tap, rt.who, resp.Body)
		return resp, nil
	}
	answer, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		rt.tap.tape.finished(call, func(c *Call) { c.Err = err.Error() })
		return nil, err
	}
	lose := false
	for _, rule := range rules {
		if rule.Answer != nil {
			answer = rule.Answer(resp, answer)
		}
		lose = lose || rule.Lose
	}
	rt.tap.tape.finished(call, func(c *Call) {
		filled(c, resp.StatusCode, answer)
		if lose {
			c.Err = ErrAnswerLost.Error()
		}
	})
	if lose {
		return nil, ErrAnswerLost
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	resp.ContentLength = int64(len(answer))
	return resp, nil
}

// counted is a rule in its n-th use.
type counted struct {
	*HTTPRule
	n int
}

func (t *Tap) takeHTTP(c *Call) []counted {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []counted
	var notes []string
	for _, rule := range t.httpRules {
		if rule.Times > 0 && rule.used >= rule.Times {
			continue
		}
		if rule.When != nil && !rule.When(c) {
			continue
		}
		rule.used++
		out = append(out, counted{rule, rule.used})
		if rule.Note != "" {
			notes = append(notes, rule.Note)
		}
	}
	c.Note = strings.Join(notes, "; ")
	return out
}

// head is what the tape reads of a body. Names are read as kube-apiserver does: in exactly this case.
type head struct {
	Kind     string `json:"kind"`
	Metadata struct {
		ResourceVersion *string `json:"resourceVersion"`
	} `json:"metadata"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func describeCall(who string, q *http.Request, body []byte) *Call {
	c := &Call{Who: who, Verb: q.Method, Path: ShortPath(q.URL.Path), Query: q.URL.Query()}
	switch q.Header.Get("Content-Type") {
	case "application/merge-patch+json":
		c.Format = "merge patch"
	case "application/json-patch+json":
		c.Format = "JSON patch"
	case "application/strategic-merge-patch+json":
		c.Format = "strategic merge patch"
	case "application/apply-patch+yaml", "application/apply-patch+cbor":
		c.Format = "apply"
	}
	if q.Method == http.MethodPut || q.Method == http.MethodPatch {
		var h head
		if json.Unmarshal(body, &h) == nil && h.Metadata.ResourceVersion != nil {
			c.HasToken, c.Token = true, *h.Metadata.ResourceVersion
		}
	}
	return c
}

// filled fills in the answer of the API.
func filled(c *Call, code int, body []byte) {
	c.Done, c.Code = true, code
	var h head
	if json.Unmarshal(body, &h) != nil {
		return
	}
	if h.Kind == "Status" && code >= http.StatusBadRequest {
		c.Reason, c.Message = h.Reason, h.Message
	} else if h.Metadata.ResourceVersion != nil {
		c.AnswerToken = *h.Metadata.ResourceVersion
	}
}

// ShortPath is the path of an API request as the book prints it: resource, name and subresource.
func ShortPath(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	return strings.Join(parts, "/")
}
