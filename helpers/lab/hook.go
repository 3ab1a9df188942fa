package lab

// Hook is what a helper of the lab does in one way in reality, and in another in a world that says so. It is for
// what does not pass the wire.
type Hook[F any] struct{ real F }

// Bend has the helper do it in another way in one lab. A world calls it before the lesson runs.
func (h *Hook[F]) Bend(l *Lab, other F) {
	if l.bent == nil {
		l.bent = make(map[any]any)
	}
	l.bent[h] = other
}

// in is the way in which it is done in a lab.
func (h *Hook[F]) in(l *Lab) F {
	if other, ok := l.bent[h].(F); ok {
		return other
	}
	return h.real
}
