package lab

import (
	"modrev/helpers/modular"
	"modrev/helpers/token"
)

// LabelHook is what the lab makes of each counter that is reset, whose labels are less than m: nothing.
var LabelHook = Hook[func(c modular.Labels, m int64) modular.Labels]{
	func(c modular.Labels, _ int64) modular.Labels { return c },
}

// TryReset resets the modular lab to m and a, as the world of this lab has it.
func (l *Lab) TryReset(m, a int64) (modular.Labels, error) {
	c, err := modular.Reset(m, a)
	if err != nil {
		return nil, err
	}
	return LabelHook.in(l)(c, m), nil
}

// Reset resets the modular lab to m and a.
func (l *Lab) Reset(m, a int64) modular.Labels {
	c, err := l.TryReset(m, a)
	l.Step(err, "resetting the modular lab")
	return c
}

// LabelStore is a store of objects of one kind whose tokens are labels modulo m, a apart.
func (l *Lab) LabelStore(kind token.Kind, m, a int64) *modular.Store {
	s, err := modular.NewStore(kind, m, a)
	l.Step(err, "making a store whose tokens are labels")
	s.Counter = func() modular.Labels { return l.Reset(m, a) }
	return s
}
