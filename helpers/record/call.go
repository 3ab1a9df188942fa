package record

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Call is one HTTP request of a lesson's client and what came back.
type Call struct {
	Who      string     `json:"who"`  // the client: "writer", "rival"
	Verb     string     `json:"verb"` // the HTTP method
	Path     string     `json:"path"` // without the API prefix and the namespace: "configmaps/shelf/status"
	Query    url.Values `json:"query,omitempty"`
	Format   string     `json:"format,omitempty"`   // of a patch: "merge patch", "JSON patch", "apply"
	HasToken bool       `json:"hasToken,omitempty"` // the body has metadata.resourceVersion
	Token    string     `json:"token,omitempty"`    // metadata.resourceVersion of the body
	Note     string     `json:"note,omitempty"`     // what a false world altered

	Done        bool   `json:"done,omitempty"` // kube-apiserver answered
	Code        int    `json:"code,omitempty"`
	Reason      string `json:"reason,omitempty"`      // of a refusal
	Message     string `json:"message,omitempty"`     // of a refusal
	AnswerToken string `json:"answerToken,omitempty"` // metadata.resourceVersion of the answer
	Err         string `json:"error,omitempty"`       // why no answer reached the client
}

// Title is the request as one line.
func (c *Call) Title() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", c.Verb, c.Path)
	if c.Format != "" {
		b.WriteString(", " + c.Format)
	}
	if c.HasToken && c.Token != "" {
		b.WriteString(", resourceVersion " + c.Token)
	} else if c.Verb == http.MethodPut || c.Format == "merge patch" {
		b.WriteString(" (no resourceVersion)")
	}
	for _, k := range []string{
		"resourceVersion", "resourceVersionMatch", "limit", "continue", "watch", "dryRun", "fieldManager", "force",
	} {
		if v := c.Query.Get(k); v != "" && !(k == "fieldManager" && v == c.Who) {
			if len(v) > 24 {
				v = v[:20] + "…"
			}
			fmt.Fprintf(&b, ", ?%s=%s", k, v)
		}
	}
	if c.Note != "" {
		fmt.Fprintf(&b, "  [%s]", c.Note)
	}
	return b.String()
}

// Outcome is the answer as one line.
func (c *Call) Outcome() string {
	var b strings.Builder
	switch {
	case c.Err != "" && c.Done:
		fmt.Fprintf(&b, "(%d, but the answer was lost)", c.Code)
	case c.Err != "":
		fmt.Fprintf(&b, "no answer: %s", c.Err)
	case c.Reason != "":
		fmt.Fprintf(&b, "%d %s", c.Code, c.Reason)
	default:
		fmt.Fprintf(&b, "%d %s", c.Code, http.StatusText(c.Code))
		if c.AnswerToken != "" {
			b.WriteString(", resourceVersion " + c.AnswerToken)
		}
	}
	return b.String()
}
