package wire

// Watched says how many watches kube-apiserver has on a key through this Tap.
func (t *Tap) Watched(key string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.watches[key])
}

// Events returns the events of etcd's watches that were recorded after a position.
func (tp *Tape) Events(m Mark) Requests {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	var out Requests
	for _, e := range tp.after(m) {
		if e.etcd != nil && e.etcd.Method == Event {
			out = append(out, *e.etcd)
		}
	}
	return out
}
