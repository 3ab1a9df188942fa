package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"syscall"

	"k8s.io/client-go/rest"
)

// cable is the connection between one party and kube-apiserver, with a hand on it: the lesson can cut it.
// It passes bytes on and does not look at them.
type cable struct {
	server   string // host and port
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	ends  []net.Conn
	ended bool
}

// OnCable is the same party with its connection to kube-apiserver led through a cable of its own, and a function that
// cuts the cable, as when a machine loses power: both ends see a reset. New connections are possible at once.
func (c *Client) OnCable() (party *Client, cut func()) {
	cfg := c.Config()
	server, err := url.Parse(cfg.Host)
	c.lab.Step(err, "reading the address of kube-apiserver")
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	c.lab.Step(err, "laying a cable to kube-apiserver")
	k := &cable{server: server.Host, listener: listener}
	k.running.Go(k.accept)
	c.lab.Cleanup(k.close)
	return c.at(listener.Addr().String()), k.cut
}

// Unplugged is the same party with an address at which nobody listens.
func (c *Client) Unplugged() *Client {
	port, free, err := deafPort()
	c.lab.Step(err, "taking a port at which nobody listens")
	c.lab.Cleanup(free)
	return c.at(fmt.Sprintf("127.0.0.1:%d", port))
}

// at is the same party with another address of kube-apiserver.
func (c *Client) at(address string) *Client {
	d := *c
	d.api = nil
	d.config = rest.CopyConfig(c.base())
	d.config.Host = "https://" + address
	return &d
}

// deafPort takes a port of 127.0.0.1 and does not listen there: it refuses connections until it is freed,
// and nobody else can take it meanwhile.
func deafPort() (port int, free func(), err error) {
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return 0, nil, err
	}
	free = func() { _ = syscall.Close(fd) }
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		free()
		return 0, nil, err
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		free()
		return 0, nil, err
	}
	return name.(*syscall.SockaddrInet4).Port, free, nil
}

// cut breaks what runs over the cable.
func (k *cable) cut() {
	k.mu.Lock()
	ends := k.ends
	k.ends = nil
	k.mu.Unlock()
	for _, c := range ends {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, not an orderly end
		}
		_ = c.Close()
	}
}

func (k *cable) close() {
	k.mu.Lock()
	k.ended = true
	k.mu.Unlock()
	_ = k.listener.Close()
	k.cut()
	k.running.Wait()
}

func (k *cable) accept() {
	for {
		client, err := k.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		server, err := net.Dial("tcp4", k.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !k.hold(client, server) {
			return
		}
		pass := func(to, from net.Conn) {
			_, _ = io.Copy(to, from)
			_ = to.Close()
			_ = from.Close()
		}
		k.running.Go(func() { pass(server, client) })
		k.running.Go(func() { pass(client, server) })
	}
}

func (k *cable) hold(ends ...net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		for _, c := range ends {
			_ = c.Close()
		}
		return false
	}
	k.ends = append(k.ends, ends...)
	return true
}
