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

// farewell is how long the end of a lab waits for its listeners to take what they were told.
const farewell = time.Second

// hub tells what reaches etcd to whoever listens. It never waits for a listener, until it is closed.
type hub struct {
	socket  net.Listener   // nil until it is open
	running sync.WaitGroup // what runs for the socket and its connections

	mu        sync.Mutex
	closed    bool
	conns     map[net.Conn]struct{}
	listeners map[*listener]struct{} // those that have said what they want
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

// open lets listeners in through a socket, which is closed with the hub.
func (h *hub) open(socket net.Listener) {
	h.socket = socket
	h.running.Go(h.serve)
}

func (h *hub) serve() {
	for {
		c, err := h.socket.Accept()
		if err != nil {
			return // the lab ends
		}
		if h.enter(c) {
			h.running.Go(func() { h.talk(c) })
		}
	}
}

// enter keeps a connection until it leaves, and closes it if the hub is closed.
func (h *hub) enter(c net.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		c.Close()
		return false
	}
	if h.conns == nil {
		h.conns = make(map[net.Conn]struct{})
	}
	h.conns[c] = struct{}{}
	return true
}

func (h *hub) leave(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.Close()
	delete(h.conns, c)
}

// listen has a listener told from now on, unless the hub is closed.
func (h *hub) listen(l *listener) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	if h.listeners == nil {
		h.listeners = make(map[*listener]struct{})
	}
	h.listeners[l] = struct{}{}
	return true
}

// hush has a listener told nothing more; what it was told is still in its lines.
func (h *hub) hush(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, listens := h.listeners[l]; listens {
		delete(h.listeners, l)
		close(l.lines)
	}
}

// talk tells one listener, who first sends a Filter as one line of JSON, until it goes.
func (h *hub) talk(c net.Conn) {
	defer h.leave(c)
	in := bufio.NewReader(c)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return // somebody only looked whether the lab runs
	}
	l := &listener{lines: make(chan string, backlog)}
	if json.Unmarshal(line, &l.filter) != nil || !h.listen(l) {
		return
	}
	h.running.Go(func() {
		_, _ = in.ReadByte() // ends with the connection
		h.hush(l)
	})
	if _, err := io.WriteString(c, "\n"); err != nil { // from here on nothing is missed
		return
	}
	for line := range l.lines {
		if _, err := io.WriteString(c, line+"\n"); err != nil {
			return
		}
	}
}

// close ends the hub and all its connections. Who still reads gets what it was told.
func (h *hub) close() {
	if h.socket != nil {
		h.socket.Close()
	}
	h.mu.Lock()
	h.closed = true
	for l := range h.listeners {
		delete(h.listeners, l)
		close(l.lines)
	}
	now := time.Now()
	for c := range h.conns {
		_ = c.SetReadDeadline(now) // a connection that fails here has ended
		_ = c.SetWriteDeadline(now.Add(farewell))
	}
	h.mu.Unlock()
	h.running.Wait()
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
