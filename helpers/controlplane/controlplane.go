package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"k8s.io/client-go/rest"
)

// Options says what to start. Only APIServerPath is required.
type Options struct {
	// APIServerPath is the kube-apiserver to run.
	APIServerPath string

	// EtcdServerOptions are given to the gRPC servers of etcd that kube-apiserver talks to. Interceptors
	// belong here: every request of every kube-apiserver passes through them, none of [ControlPlane.Etcd].
	EtcdServerOptions []grpc.ServerOption

	// EtcdListenURLs are further client URLs for etcd, for example http://127.0.0.1:2379. By default etcd
	// has no TCP port at all: whoever can reach one can write the store without any authentication. So
	// only loopback addresses are accepted.
	EtcdListenURLs []string

	// DataDir is a folder for etcd's data that is kept, so that a later start finds the objects again.
	// By default the data is in the temporary folder and is removed at the end. One control plane can use
	// it at a time. What is kept [Apart] is not in it.
	DataDir string

	// Flags are further flags of kube-apiserver, without the dashes before their names.
	Flags map[string]string

	// Restore makes etcd's data from a backup. DataDir is then empty: what came of the backup is not kept.
	Restore *Restore
}

// Apart says which resources a kube-apiserver keeps in a second etcd. It becomes one
// --etcd-servers-overrides per resource.
type Apart struct {
	// Resources are written as group/resource, for example "/events" for the Events of the core group.
	Resources []string

	// EtcdServerOptions are given to the gRPC servers of the second etcd.
	EtcdServerOptions []grpc.ServerOption
}

// ControlPlane is a running etcd with a running kube-apiserver over it. Its methods may be called by
// several goroutines at once.
type ControlPlane struct {
	options Options
	folder  *folder
	data    *os.File // the lock of Options.DataDir, if there is one
	guard   *guard
	etcd    *member
	api     *APIServer

	life    context.Context // ends when Stop begins
	end     context.CancelCauseFunc
	stop    sync.Once
	stopErr error

	outlived atomic.Bool // an etcd has not ended when it was told to

	mu       sync.Mutex
	stopped  bool
	further  map[string]*APIServer // by the name of their socket; nil while they start
	starting sync.WaitGroup
}

// Start starts etcd and kube-apiserver and returns as soon as kube-apiserver accepts a write of an admin.
// At that time its post-start hooks still run: RBAC's default roles may be missing and the store's
// revision still moves by itself. [ControlPlane.Healthy] waits for the end of that.
//
// ctx limits the start alone. When Start returns an error, nothing is left running.
func Start(ctx context.Context, o Options) (_ *ControlPlane, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	quiet()
	c := &ControlPlane{options: o, further: make(map[string]*APIServer)}
	c.life, c.end = context.WithCancelCause(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
		}
	}()
	path, err := newPath()
	if err != nil {
		return nil, err
	}
	if c.guard, err = startGuard(path); err != nil {
		return nil, err
	}
	if c.folder, err = newFolder(path); err != nil {
		return nil, err
	}
	data := o.DataDir
	if data == "" {
		data = filepath.Join(path, "etcd")
	} else if c.data, err = lockDataDir(data); err != nil {
		return nil, err
	}
	if o.Restore != nil {
		if err = o.Restore.make(data); err != nil {
			return nil, err
		}
	}
	c.etcd, err = startMember(ctx, memberOptions{
		folder:  path,
		sockets: []string{first, second, third, tools},
		urls:    o.EtcdListenURLs,
		data:    data,
		server:  o.EtcdServerOptions,

		outlived: &c.outlived,
	})
	if err != nil {
		return nil, err
	}
	c.api, err = c.startAPIServer(ctx, first, APIServerOptions{Flags: o.Flags})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (o Options) check() error {
	if o.Restore != nil && o.DataDir != "" {
		return errors.New("starting a control plane: Options.Restore and Options.DataDir are both set: what came of a " +
			"backup is not kept, so leave DataDir empty")
	}
	if o.APIServerPath == "" {
		return errors.New("starting a control plane: Options.APIServerPath is empty: set it to the path of a kube-apiserver")
	}
	info, err := os.Stat(o.APIServerPath)
	if err != nil {
		return fmt.Errorf("starting a control plane: there is no kube-apiserver to run: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("starting a control plane: %s is not a program: set Options.APIServerPath to the path of a "+
			"kube-apiserver", o.APIServerPath)
	}
	for _, s := range o.EtcdListenURLs {
		u, err := url.Parse(s)
		if err != nil {
			return fmt.Errorf("starting a control plane: the client URL of etcd cannot be read: %w", err)
		}
		if ip := net.ParseIP(u.Hostname()); u.Scheme != "http" || ip == nil || !ip.IsLoopback() {
			return fmt.Errorf("starting a control plane: %s is no client URL for etcd: it must be http and a loopback "+
				"address, such as http://127.0.0.1:2379, since this etcd asks nobody who they are", s)
		}
	}
	return nil
}

// Admin is a configuration for a client that may do everything: a member of system:masters, without a
// rate limit on the client's side. Each call returns a new copy.
func (c *ControlPlane) Admin() *rest.Config { return c.api.Admin() }

// AddUser makes a client certificate for a user and returns a configuration that uses it. RBAC is on, so
// the user may do what roles allow, and nothing else.
func (c *ControlPlane) AddUser(name string, groups ...string) (*rest.Config, error) {
	return c.api.AddUser(name, groups...)
}

// Healthy waits until kube-apiserver reports itself healthy on /healthz, that is until all its post-start
// hooks are done.
func (c *ControlPlane) Healthy(ctx context.Context) error { return c.api.Healthy(ctx) }

// LogFile is the file that holds the newest output of kube-apiserver, until Stop.
func (c *ControlPlane) LogFile() string { return c.api.LogFile() }

// Etcd is a client of etcd that calls it directly, in this process. Its requests do not pass the
// interceptors in [Options], and it closes when the control plane stops.
func (c *ControlPlane) Etcd() *clientv3.Client { return c.member().client }

// EtcdEndpoint is the URL of a unix socket of etcd for any other client, such as etcdctl. Its requests
// pass the interceptors; [Peer] calls them "tools".
func (c *ControlPlane) EtcdEndpoint() string { return c.member().endpoint(tools) }

// Dir is the folder of this control plane: sockets, certificates, logs. It is gone after Stop.
func (c *ControlPlane) Dir() string { return c.folder.path }

// errStopped is why a start is given up when the control plane is stopped meanwhile.
var errStopped = errors.New("the control plane has been stopped")

// Stop ends every kube-apiserver, then etcd, and removes the folder. It may be called more than once.
// When ctx ends, what still runs is killed. etcd, which is part of this process, cannot be: if it has not
// ended by then, the folder stays for as long as this process does.
//
// A kube-apiserver over a store that is thrown away is killed at once: it has nothing to put in order,
// and asking it to end takes a second or, while clients still watch, a minute. Over a store that is kept
// it is asked to end first.
func (c *ControlPlane) Stop(ctx context.Context) error {
	c.stop.Do(func() { c.stopErr = c.stopAll(ctx) })
	return c.stopErr
}

func (c *ControlPlane) stopAll(ctx context.Context) error {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.end(errStopped)
	c.starting.Wait()

	var errs []error
	for _, a := range c.further {
		errs = append(errs, a.stop(ctx))
	}
	if c.api != nil {
		errs = append(errs, c.api.stop(ctx))
	}
	errs = append(errs, c.member().stop(ctx))
	if c.outlived.Load() {
		// etcd still works on its files. The guard removes them when this process is gone, and until then the
		// locks keep everybody else away from them.
		return errors.Join(errs...)
	}
	if c.data != nil {
		errs = append(errs, c.data.Close())
	}
	if c.folder != nil {
		errs = append(errs, c.folder.remove())
	}
	if c.guard != nil {
		errs = append(errs, c.guard.end(ctx))
	}
	return errors.Join(errs...)
}

// APIServerOptions says how a further kube-apiserver differs from the first.
type APIServerOptions struct {
	// Apart keeps some resources in an etcd of their own, started for this kube-apiserver.
	Apart *Apart

	// Flags are further flags of this kube-apiserver, without the dashes before their names.
	Flags map[string]string
}

// StartAPIServer starts a further kube-apiserver over the same etcd and returns as soon as it accepts a
// write. At most two may run besides the first. It is stopped by its own Stop, or with the control plane.
func (c *ControlPlane) StartAPIServer(ctx context.Context, o APIServerOptions) (*APIServer, error) {
	name, err := c.reserve()
	if err != nil {
		return nil, fmt.Errorf("starting a further kube-apiserver: %w", err)
	}
	defer c.starting.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })()

	a, err := c.startAPIServer(ctx, name, o)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		delete(c.further, name)
		return nil, err
	}
	c.further[name] = a
	return a, nil
}

// reserve finds a socket that no other kube-apiserver uses.
func (c *ControlPlane) reserve() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return "", errStopped
	}
	for _, name := range []string{second, third} {
		if _, taken := c.further[name]; !taken {
			c.further[name] = nil
			c.starting.Add(1)
			return name, nil
		}
	}
	return "", errors.New("two already run besides the first: stop one of them")
}

// release gives the socket of a kube-apiserver that has been stopped to the next one, unless an etcd may
// still be at work behind it.
func (c *ControlPlane) release(a *APIServer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.further[a.name] == a && !c.stopped && !c.outlived.Load() {
		delete(c.further, a.name)
	}
}
