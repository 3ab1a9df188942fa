package wire

import (
	"errors"
	"io"
	"sync"
)

// errClosedWatch is what a reader of a watch gets that was closed, or broken, while the gate was shut.
var errClosedWatch = errors.New("the watch was closed while its events were kept back")

// HeldWatches are the watches of one client whose events the wire keeps back until Release: the cache
// which they feed stays as it was, while everything else that the client does goes on.
type HeldWatches struct {
	tap  *Tap
	who  string
	open chan struct{}
	once sync.Once
}

// HoldWatches keeps back what kube-apiserver sends on the watches of the client who, those that run and
// those that begin later. Whatever kube-apiserver sends after HoldWatches has returned does not reach the
// client before Release.
func (t *Tap) HoldWatches(who string) *HeldWatches {
	h := &HeldWatches{tap: t, who: who, open: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		close(h.open)
		return h
	}
	if t.heldWatches == nil {
		t.heldWatches = make(map[string]*HeldWatches)
	}
	t.heldWatches[who] = h
	return h
}

// Release sends on what was kept back, in order. It may be called more than once.
func (h *HeldWatches) Release() {
	h.tap.mu.Lock()
	if h.tap.heldWatches[h.who] == h {
		delete(h.tap.heldWatches, h.who)
	}
	h.tap.mu.Unlock()
	h.once.Do(func() { close(h.open) })
}

// Break loses what was kept back, and breaks the watches that it was kept back from: the client has to watch anew,
// and is not held back then.
func (h *HeldWatches) Break() {
	h.tap.mu.Lock()
	var broken []*gated
	for g := range h.tap.openWatches {
		if g.who == h.who {
			broken = append(broken, g)
		}
	}
	h.tap.mu.Unlock()
	for _, g := range broken {
		// What a client reads from then on is an error, whatever comes of this one.
		_ = g.Close()
	}
	h.Release()
}

// gate returns what holds the watches of a client now, or nil.
func (t *Tap) gate(who string) *HeldWatches {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heldWatches[who]
}

// gated is the body of a watch, with a gate behind it.
type gated struct {
	io.ReadCloser
	tap    *Tap
	who    string
	once   sync.Once
	closed chan struct{}
}

func newGated(t *Tap, who string, body io.ReadCloser) *gated {
	g := &gated{ReadCloser: body, tap: t, who: who, closed: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.openWatches == nil {
		t.openWatches = make(map[*gated]bool)
	}
	t.openWatches[g] = true
	return g
}

// Read reads first and asks the gate then: a gate that is shut while a read waits for the next event must
// keep that event back.
func (g *gated) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	for h := g.tap.gate(g.who); h != nil && !g.isClosed(); h = g.tap.gate(g.who) {
		select {
		case <-h.open:
		case <-g.closed:
		}
	}
	if g.isClosed() {
		return 0, errClosedWatch
	}
	return n, err
}

func (g *gated) isClosed() bool {
	select {
	case <-g.closed:
		return true
	default:
		return false
	}
}

func (g *gated) Close() error {
	g.once.Do(func() {
		close(g.closed)
		g.tap.mu.Lock()
		defer g.tap.mu.Unlock()
		delete(g.tap.openWatches, g)
	})
	return g.ReadCloser.Close()
}
