package world

import (
	"net/http"
	"strconv"

	"modrev/helpers/lab"
	"modrev/helpers/modular"
	"modrev/helpers/wire"
)

// LabelsGoOn is the world in which the labels of the modular lab do not wrap.
var LabelsGoOn = Custom("the labels do not wrap", func(l *lab.Lab) {
	lab.LabelHook.Bend(l, func(modular.Labels, int64) modular.Labels { return new(endless) })
})

// endless counts without end.
type endless struct{ label int64 }

func (e *endless) Label() int64 { return e.label }
func (e *endless) Step() int64  { e.label++; return e.label }

// ALabelIsLeftOut is the world in which the modular lab never shows its last label.
var ALabelIsLeftOut = Custom("the lab never shows its last label", func(l *lab.Lab) {
	lab.LabelHook.Bend(l, func(c modular.Labels, m int64) modular.Labels { return &gap{Labels: c, last: m - 1} })
})

type gap struct {
	modular.Labels
	last int64
}

func (g *gap) Step() int64 {
	label := g.Labels.Step()
	if label == g.last {
		label = g.Labels.Step()
	}
	return label
}

// TokensWrap is the world in which the server gives out its numbers modulo 8, and finds the number that is
// meant by a token that it gets back.
var TokensWrap = Custom("the server's tokens are labels modulo 8", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Query.Get("watch") == "" },
		Note: "tokens modulo 8",
		Answer: func(resp *http.Response, body []byte) []byte {
			if resp.StatusCode >= http.StatusBadRequest {
				return body
			}
			return edit(body, func(o map[string]any) {
				if meta, ok := o["metadata"].(map[string]any); ok {
					if n := tokenOf(o); n > 0 {
						meta["resourceVersion"] = strconv.FormatInt(n%8, 10)
					}
				}
			})
		},
	})
})
