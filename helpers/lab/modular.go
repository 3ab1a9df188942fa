package lab

import "modrev/helpers/modular"

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
