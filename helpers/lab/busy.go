package lab

import (
	"cmp"
	"sync"

	"modrev/helpers/wire"
)

// Busy has somebody else write a key right before every update of it that reaches etcd, so that none of them
// succeeds. The returned function ends that, and the lesson if a write of the other was not possible.
func (l *Lab) Busy(key string) (stop func()) {
	var mu sync.Mutex
	var failed error
	remove := l.Wire.Add(&wire.Rule{
		When: wire.UpdateOf(key), Note: "overtaken",
		Do: func(int) {
			_, err := l.TryTouch(key)
			mu.Lock()
			defer mu.Unlock()
			failed = cmp.Or(failed, err)
		},
	})
	return func() {
		remove()
		mu.Lock()
		defer mu.Unlock()
		l.Step(failed, "writing "+wire.ShortKey(key))
	}
}
