package world

import (
	"net/http"
	"strings"

	"modrev/helpers/lab"
	"modrev/helpers/wire"
)

// AProxyMergesReplaces is the world in which every replace becomes a merge patch on its way.
var AProxyMergesReplaces = Custom("the server merges a replace into what is there", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPut },
		Note: "made a merge patch",
		Request: func(q *http.Request, body []byte) []byte {
			q.Method = http.MethodPatch
			q.Header.Set("Content-Type", "application/merge-patch+json")
			return body
		},
	})
})

// AProxyDropsNulls is the world in which a patch cannot remove anything, because every null is taken out
// of it.
var AProxyDropsNulls = Custom("a patch cannot remove a field: every null is taken out of it", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPatch },
		Note: "the nulls were taken out",
		Request: func(_ *http.Request, body []byte) []byte {
			return edit(body, dropNulls)
		},
	})
})

func dropNulls(o map[string]any) {
	for k, v := range o {
		switch v := v.(type) {
		case nil:
			delete(o, k)
		case map[string]any:
			dropNulls(v)
		}
	}
}

// EveryApplyIsForced is the world in which every apply takes over what others own.
var EveryApplyIsForced = Custom("every apply is forced", func(l *lab.Lab) {
	l.Wire.AddHTTP(force("forced", "true"))
})

// NoApplyIsForced is the world in which force is taken out of every apply.
var NoApplyIsForced = Custom("nobody is allowed to force an apply", func(l *lab.Lab) {
	l.Wire.AddHTTP(force("force was taken out", ""))
})

func force(note, value string) *wire.HTTPRule {
	return &wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "apply" },
		Note: note,
		Request: func(q *http.Request, body []byte) []byte {
			query := q.URL.Query()
			query.Del("force")
			if value != "" {
				query.Set("force", value)
			}
			q.URL.RawQuery = query.Encode()
			return body
		},
	}
}

// AppliesAreMergePatches is the world in which what was applied is sent as a merge patch.
var AppliesAreMergePatches = Custom("the client sends as a merge patch what it is to apply", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "apply" },
		Note: "made a merge patch",
		Request: func(q *http.Request, body []byte) []byte {
			q.Header.Set("Content-Type", "application/merge-patch+json")
			query := q.URL.Query()
			query.Del("force")
			q.URL.RawQuery = query.Encode()
			return body
		},
	})
})

// CreatesAreApplies is the world in which an object is created by applying it, with the same field manager.
var CreatesAreApplies = Custom("the client applies the object when it creates it", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPost },
		Note: "made an apply",
		Request: func(q *http.Request, body []byte) []byte {
			return edit(body, func(o map[string]any) {
				meta, _ := o["metadata"].(map[string]any)
				name, _ := meta["name"].(string)
				q.Method = http.MethodPatch
				q.URL.Path += "/" + name
				q.Header.Set("Content-Type", "application/apply-patch+yaml")
				query := q.URL.Query()
				query.Set("force", "true")
				q.URL.RawQuery = query.Encode()
			})
		},
	})
})

// ACoOwner is the world in which another manager applies the same fields of an object right before the
// client who applies it a second time.
func ACoOwner(kind lab.Kind, name, who string, fields ...string) World {
	return Custom("another manager owns the field as well", func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Format == "apply" && c.Who == who },
			Do: func(n int) {
				if n == 2 {
					_, err := l.As("co-owner").Of(kind).TryApply(name, "co-owner", false, fields...)
					l.Step(err, "the co-owner's apply")
				}
			},
		})
	})
}

// StatusGoesToTheObject is the world in which what is meant for the status subresource is sent to the
// object itself.
var StatusGoesToTheObject = Custom("what is meant for /status is sent to the object itself", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return strings.HasSuffix(c.Path, "/status") },
		Note: "sent to the object itself",
		Request: func(q *http.Request, body []byte) []byte {
			q.URL.Path = strings.TrimSuffix(q.URL.Path, "/status")
			return body
		},
	})
})
