package world

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

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
		Request: editQuery(func(query url.Values) {
			query.Del("force")
			if value != "" {
				query.Set("force", value)
			}
		}),
	}
}

// ForceOverridesTheToken is the world in which whoever forces an apply need not have the current token either.
var ForceOverridesTheToken = Custom("force also overrides the token", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When:    func(c *wire.Call) bool { return c.HasToken && c.Query.Get("force") == "true" },
		Note:    "the token was taken out",
		Request: func(_ *http.Request, body []byte) []byte { return editToken(body, "") },
	})
})

// AppliesAreMergePatches is the world in which what was applied is sent as a merge patch.
var AppliesAreMergePatches = Custom("the client sends as a merge patch what it is to apply", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "apply" },
		Note: "made a merge patch",
		Request: func(q *http.Request, body []byte) []byte {
			q.Header.Set("Content-Type", "application/merge-patch+json")
			return editQuery(func(query url.Values) { query.Del("force") })(q, body)
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
					// An error here shows in the fields that are missing.
					_, _ = l.As("co-owner").Of(kind).TryApply(name, "co-owner", false, fields...)
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

// NoStatusMeansTheObject is the world in which what is sent to a /status that is not there is stored through the
// object itself.
var NoStatusMeansTheObject = Custom("where there is no /status, what is meant for it is stored through the object", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return strings.HasSuffix(c.Path, "/status") },
		Note: "sent to the object, if that is missing",
		Answer: func(resp *http.Response, body []byte) []byte {
			if resp.StatusCode != http.StatusNotFound {
				return body
			}
			stored, err := sendAgain(l, http.MethodPut, resp, strings.TrimSuffix(resp.Request.URL.Path, "/status"))
			if err != nil {
				return body
			}
			resp.StatusCode = http.StatusOK
			return stored
		},
	})
})

// ClientKnowsNoSize is the world in which a client's library is built with types that have no size, and so sends
// no replace that has one.
var ClientKnowsNoSize = Custom("the client's library knows no field of the name size", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPut },
		Note: "sent without size",
		Request: func(_ *http.Request, body []byte) []byte {
			return editFields(body, func(fields map[string]any) { delete(fields, "size") })
		},
	})
})

// APatchIsAState is the world in which a patch is taken for all that the object shall hold: a size that it does
// not mention is removed.
var APatchIsAState = Custom("a patch removes the size where it does not mention it", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "merge patch" },
		Note: "what it does not mention is removed",
		Request: func(_ *http.Request, body []byte) []byte {
			return editFields(body, func(fields map[string]any) {
				if _, ok := fields["size"]; !ok {
					fields["size"] = nil
				}
			})
		},
	})
})

// editFields lets f change the data or the spec of an object, or of a patch.
func editFields(body []byte, f func(fields map[string]any)) []byte {
	return edit(body, func(o map[string]any) {
		for _, part := range []string{"data", "spec"} {
			if fields, ok := o[part].(map[string]any); ok {
				f(fields)
			}
		}
	})
}

// APatchMergesConditions is the world in which a merge patch adds its conditions to those that are there.
var APatchMergesConditions = Custom("the server merges the conditions of a patch into those that are there", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "merge patch" },
		Note: "merged by the server",
		Request: func(q *http.Request, body []byte) []byte {
			var there map[string]any
			if now, err := l.As("server").TryRaw(http.MethodGet, q.URL.Path, "", nil); err != nil || json.Unmarshal(now, &there) != nil {
				return body
			}
			return edit(body, func(o map[string]any) {
				status, _ := o["status"].(map[string]any)
				stored, _ := there["status"].(map[string]any)
				mine, _ := status["conditions"].([]any)
				theirs, _ := stored["conditions"].([]any)
				if status != nil {
					status["conditions"] = append(theirs, mine...)
				}
			})
		},
	})
})

// OwnersAreNotSent is the world in which a client's replace leaves managedFields out, and so changes no owner.
var OwnersAreNotSent = Custom("the client leaves managedFields out of what it sends", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When:    func(c *wire.Call) bool { return c.Verb == http.MethodPut },
		Note:    "without managedFields",
		Request: func(_ *http.Request, body []byte) []byte { return withoutMeta(body, "managedFields") },
	})
})

// ATemplateHasReplicas is the world in which a template fills in 3 replicas whenever the controller applies none.
var ATemplateHasReplicas = Custom("the controller's template says 3 replicas whenever the controller says none", func(l *lab.Lab) {
	l.Wire.AddHTTP(applyOf("controller", "the template's replicas", func(spec map[string]any) {
		if spec["replicas"] == nil {
			spec["replicas"] = 3
		}
	}))
})

// TheScalerAppliesNothing is the world in which the one who is to take the replicas over leaves them out, too.
var TheScalerAppliesNothing = Custom("the scaler leaves replicas out as well", func(l *lab.Lab) {
	l.Wire.AddHTTP(applyOf("scaler", "without replicas", func(spec map[string]any) { delete(spec, "replicas") }))
})

// applyOf changes the spec that a client applies.
func applyOf(who, note string, change func(spec map[string]any)) *wire.HTTPRule {
	return &wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "apply" && c.Who == who },
		Note: note,
		Request: func(_ *http.Request, body []byte) []byte {
			return edit(body, func(o map[string]any) {
				if spec, ok := o["spec"].(map[string]any); ok {
					change(spec)
				}
			})
		},
	}
}

// TheFightIsOver is the world in which ann gives in: from her third apply on, she too wants the color that bob has.
var TheFightIsOver = Custom("ann gives in and applies bob's color, from her third apply on", func(l *lab.Lab) {
	var n atomic.Int64
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool {
			return c.Format == "apply" && c.Query.Get("fieldManager") == "ann" && n.Add(1) > 2
		},
		Note: "blue as well",
		Request: func(_ *http.Request, body []byte) []byte {
			return editFields(body, func(fields map[string]any) { fields["color"] = "blue" })
		},
	})
})
