package forge

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"modrev/helpers/wire"
)

// Filter says which of the requests that reach etcd are told.
type Filter struct {
	// Key is a part of the key; empty takes all.
	Key string
	// Writes leaves out what stores nothing.
	Writes bool
	// Reads and watches that kube-apiserver does for itself all the time, such as its leases, are left out
	// unless All is set.
	All bool
}

func (f Filter) takes(r wire.Request) bool {
	if f.Writes && !r.Wrote() {
		return false
	}
	if !f.All && f.Key == "" && housekeeping(r.Key) {
		return false
	}
	return strings.Contains(r.Key, f.Key)
}

// housekeeping says whether a key is one that kube-apiserver reads and writes by itself, without anybody
// asking for it.
func housekeeping(key string) bool {
	for _, own := range []string{
		"/registry/leases/kube-system/", "/registry/masterleases/", "/registry/ranges/", "/registry/health",
		"compact_rev_key", "/registry/services/endpoints/default/kubernetes", "/registry/endpointslices/default/kubernetes",
		"/registry/services/specs/default/kubernetes", "/registry/flowschemas", "/registry/prioritylevelconfigurations",
	} {
		if strings.HasPrefix(key, own) {
			return true
		}
	}
	return false
}

// backlog is how many lines a listener may lag behind before some are left out.
const backlog = 1024

// hub tells what reaches etcd to whoever listens. It never waits for a listener.
type hub struct {
	mu        sync.Mutex
	closed    bool
	listeners map[*listener]struct{}
}

type listener struct {
	filter  Filter
	lines   chan string
	dropped int
}

func (h *hub) tell(r wire.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.listeners) == 0 {
		return
	}
	line := fmt.Sprintf("%s  %s", time.Now().Format("15:04:05.000"), r.String())
	if r.From != apiserver {
		line += "  (not from kube-apiserver)"
	}
	for l := range h.listeners {
		if !l.filter.takes(r) {
			continue
		}
		if l.dropped > 0 {
			select {
			case l.lines <- fmt.Sprintf("(%d requests left out: they came faster than they could be told)", l.dropped):
				l.dropped = 0
			default:
			}
		}
		select {
		case l.lines <- line:
		default:
			l.dropped++
		}
	}
}

func (h *hub) serve(socket net.Listener) {
	for {
		c, err := socket.Accept()
		if err != nil {
			return // the lab ends
		}
		go h.talk(c)
	}
}

// talk tells one listener, who first sends a Filter as one line of JSON, until it goes.
func (h *hub) talk(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return // somebody only looked whether the lab runs
	}
	l := &listener{lines: make(chan string, backlog)}
	if json.Unmarshal(line, &l.filter) != nil {
		return
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return
	}
	if h.listeners == nil {
		h.listeners = make(map[*listener]struct{})
	}
	h.listeners[l] = struct{}{}
	h.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = in.ReadByte() // ends when the listener goes
	}()
	defer func() {
		h.mu.Lock()
		delete(h.listeners, l)
		h.mu.Unlock()
	}()
	if _, err := io.WriteString(c, "\n"); err != nil { // from here on nothing is missed
		return
	}
	for {
		select {
		case line, ok := <-l.lines:
			if !ok {
				return
			}
			if _, err := io.WriteString(c, line+"\n"); err != nil {
				return
			}
		case <-gone:
			return
		}
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for l := range h.listeners {
		close(l.lines)
		delete(h.listeners, l)
	}
}

// Follow writes what reaches etcd of a running lab, one line a request, until ctx or the lab ends.
// ready, if not nil, is called as soon as no further request can be missed.
func Follow(ctx context.Context, s State, f Filter, w io.Writer, ready func()) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", s.Wire)
	if err != nil {
		return fmt.Errorf("listening to the lab: %w", err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	ask, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("listening to the lab: %w", err)
	}
	if _, err := c.Write(append(ask, '\n')); err != nil {
		return fmt.Errorf("listening to the lab: %w", err)
	}
	in := bufio.NewReader(c)
	if _, err := in.ReadByte(); err != nil {
		return fmt.Errorf("listening to the lab: %w", err)
	}
	if ready != nil {
		ready()
	}
	_, err = io.Copy(w, in)
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
