package world

import (
	"modrev/helpers/lab"
	"modrev/helpers/modular"
)

// The worlds of this file bend the labels of the modular lab.

// LabelsGoOn counts without end.
var LabelsGoOn = New("the labels do not wrap", func(l *lab.Lab) {
	lab.LabelHook.Bend(l, func(modular.Labels, int64) modular.Labels { return new(endless) })
})

type endless struct{ label int64 }

func (e *endless) Label() int64 { return e.label }
func (e *endless) Step() int64  { e.label++; return e.label }

// ALabelIsLeftOut steps over the highest label.
var ALabelIsLeftOut = New("the lab never shows its last label", func(l *lab.Lab) {
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
