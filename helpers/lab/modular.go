package lab

import (
	"modrev/helpers/modular"
	"modrev/helpers/token"
)

// Labels is a counter as the modular lab has it.
type Labels interface {
	Label() int64
	Step() int64
}

// TryReset resets the modular lab to m and a, as the world of this lab has it.
func (l *Lab) TryReset(m, a int64) (Labels, error) {
	c, err := modular.Reset(m, a)
	if err != nil {
		return nil, err
	}
	if l.bentLabels != nil {
		return l.bentLabels(c, m), nil
	}
	return c, nil
}

// BendLabels has the modular lab count in another way: the world in which its labels are something else.
func (l *Lab) BendLabels(bend func(c Labels, m int64) Labels) { l.bentLabels = bend }

// LabelStore is a store of objects of one kind whose tokens are labels modulo m, a apart.
func (l *Lab) LabelStore(kind token.Kind, m, a int64) *modular.Store {
	s, err := modular.NewStore(kind, m, a)
	l.Step(err, "making a store whose tokens are labels")
	if l.bentStores != nil {
		l.bentStores(s)
	}
	return s
}

// BendLabelStores has each LabelStore changed when it is made.
func (l *Lab) BendLabelStores(bend func(*modular.Store)) { l.bentStores = bend }
