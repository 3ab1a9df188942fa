package forge

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"modrev/helpers/wire"
)

func created(key string) wire.Request {
	return wire.Request{
		Method: wire.Txn, From: apiserver, Key: key, Answered: true, Succeeded: true, StoreRevision: 7,
		Compare: []wire.Compare{{Key: key, Field: "mod_revision", Operator: "=="}}, Then: []wire.Op{{Kind: "Put", Key: key}},
	}
}

func TestAFilterTakesWhatIsAskedForAndLeavesOutHousekeeping(t *testing.T) {
	const shelf, lease = "/registry/configmaps/default/shelf", "/registry/leases/kube-system/apiserver-x"
	write := created(shelf)
	read := wire.Request{Method: wire.Range, Key: shelf, Answered: true}
	own := created(lease)
	for _, c := range []struct {
		filter Filter
		takes  []bool // write, read, housekeeping
	}{
		{Filter{}, []bool{true, true, false}},
		{Filter{All: true}, []bool{true, true, true}},
		{Filter{Writes: true}, []bool{true, false, false}},
		{Filter{Writes: true, All: true}, []bool{true, false, true}},
		{Filter{Key: "configmaps/default"}, []bool{true, true, false}},
		{Filter{Key: "leases/kube-system"}, []bool{false, false, true}}, // it was asked for
		{Filter{Key: "nothing"}, []bool{false, false, false}},
	} {
		require.Equal(t, c.takes, []bool{c.filter.takes(write), c.filter.takes(read), c.filter.takes(own)}, "%+v", c.filter)
	}
}

// room is a hub that is served on a socket, and the state by which it is found.
func room(t *testing.T) (*hub, State) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "forge")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := State{Wire: filepath.Join(dir, "wire.sock")}
	socket, err := net.Listen("unix", s.Wire)
	require.NoError(t, err)
	h := new(hub)
	h.open(socket)
	t.Cleanup(h.close)
	return h, s
}

// follower is somebody who follows a hub.
type follower struct {
	mu   sync.Mutex
	text bytes.Buffer
	done chan error
}

func (f *follower) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.Write(b)
}

func (f *follower) lines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Split(strings.TrimSpace(f.text.String()), "\n")
}

func follow(ctx context.Context, t *testing.T, s State, filter Filter) *follower {
	t.Helper()
	f := &follower{done: make(chan error, 1)}
	ready := make(chan struct{})
	go func() { f.done <- Follow(ctx, s, filter, f, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-f.done:
		t.Fatalf("following ended at once: %v", err)
	}
	return f
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 20*time.Second, true,
		func(context.Context) (bool, error) {
			return holds(), nil
		})
	require.NoError(t, err, what)
}

func TestWhoFollowsTheWireMissesNothingFromWhenItSaysSo(t *testing.T) {
	h, s := room(t)
	h.tell(created("/registry/configmaps/default/before"))
	ctx, cancel := context.WithCancel(t.Context())
	all := follow(ctx, t, s, Filter{})
	some := follow(ctx, t, s, Filter{Key: "shelf-1"})
	const n = 100
	for i := range n {
		h.tell(created(fmt.Sprintf("/registry/configmaps/default/shelf-%d", i)))
	}
	tool := created("/registry/configmaps/default/shelf-1")
	tool.From = "tools"
	h.tell(tool)
	until(t, "all are told", func() bool { return len(all.lines()) == n+1 && len(some.lines()) == 12 })
	require.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}  Txn if mod_revision\(configmaps/default/shelf-0\) == 0 then Put → `+
		`succeeded, revision 7$`, all.lines()[0])
	require.Contains(t, all.lines()[n], "(not from kube-apiserver)")

	cancel() // Ctrl-C is not an error
	require.NoError(t, <-all.done)
	require.NoError(t, <-some.done)
	until(t, "who has gone is forgotten", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.listeners) == 0
	})
}

func TestWhoFollowsTheWireIsToldWhenTheLabEnds(t *testing.T) {
	h, s := room(t)
	f := follow(t.Context(), t, s, Filter{})
	h.tell(created("/registry/configmaps/default/shelf"))
	h.close()
	require.NoError(t, <-f.done)
	require.Len(t, f.lines(), 1, "what was told before has arrived")
}

// door is a socket inside a bubble of synctest.
type door chan net.Conn

func (d door) Accept() (net.Conn, error) {
	if c, open := <-d; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (d door) Close() error   { close(d); return nil }
func (d door) Addr() net.Addr { return nil }

// knock is a connection that has said nothing yet.
func (d door) knock() net.Conn {
	mine, theirs := net.Pipe()
	d <- theirs
	return mine
}

// ask is a connection that wants to be told everything, and will miss nothing from now on.
func (d door) ask(t *testing.T) net.Conn {
	t.Helper()
	c := d.knock()
	_, err := io.WriteString(c, "{}\n")
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1))
	require.NoError(t, err)
	return c
}

func TestTheWireNeverWaitsForWhoDoesNotListenAndSaysWhatItLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := new(hub), make(door)
		h.open(d)
		defer h.close()
		c := d.ask(t)
		defer c.Close()

		// Nobody reads from here on. A hub that waited would never get through this.
		h.tell(created("/registry/configmaps/default/first"))
		synctest.Wait() // until the first is on its way
		const left = 3
		for range backlog + left {
			h.tell(created("/registry/configmaps/default/shelf"))
		}

		// Once the listener reads again, the next request tells how many are missing.
		lines := bufio.NewScanner(c)
		next := func() string {
			require.True(t, lines.Scan())
			return lines.Text()
		}
		require.Contains(t, next(), "default/first")
		for range backlog {
			require.Contains(t, next(), "default/shelf")
		}
		h.tell(created("/registry/configmaps/default/last"))
		require.Equal(t, fmt.Sprintf("(%d requests left out: they came faster than they could be told)", left), next())
		require.Contains(t, next(), "default/last")
	})
}

// What is left at the end of the bubble is an error.
func TestTheEndOfALabLeavesNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := new(hub), make(door)
		h.open(d)
		silent, deaf, gone := d.knock(), d.ask(t), d.ask(t)
		for range 2 {
			h.tell(created("/registry/configmaps/default/shelf"))
		}
		gone.Close()
		synctest.Wait()
		began := time.Now()
		h.close()
		require.Equal(t, farewell, time.Since(began), "who does not read is waited for, and not for ever")
		for _, c := range []net.Conn{silent, deaf} {
			_, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		}
		mine, late := net.Pipe()
		require.False(t, h.enter(late))
		_, err := mine.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}
