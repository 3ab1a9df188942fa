package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

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

	// Flags are further flags of kube-apiserver, without the dashes. A flag given here replaces envtest's
	// default for it.
	Flags map[string][]string

	// EtcdListenURLs are further client URLs for etcd, for example http://127.0.0.1:2379. By default etcd
	// has no TCP port at all: whoever can reach one can write the store without any authentication.
	EtcdListenURLs []string

	// DataDir is a folder for etcd's data that is kept, so that a later start finds the objects again.
	// By default the data is in the temporary folder and is removed at the end.
	DataDir string

	// Apart keeps some resources in an etcd of their own.
	Apart *Apart
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
	guard   *guard
	etcd    *member
	api     *APIServer

	mu      sync.Mutex
	further map[string]*APIServer // by the name of their socket
	stopped bool
	stopErr error
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
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
		}
	}()
	if c.folder, err = newFolder(); err != nil {
		return nil, err
	}
	if c.guard, err = startGuard(c.folder.path); err != nil {
		return nil, err
	}
	data := o.DataDir
	if data == "" {
		data = filepath.Join(c.folder.path, "etcd")
	}
	c.etcd, err = startMember(ctx, memberOptions{
		folder:  c.folder.path,
		sockets: []string{first, second, third, tools},
		urls:    o.EtcdListenURLs,
		data:    data,
		server:  o.EtcdServerOptions,
	})
	if err != nil {
		return nil, err
	}
	c.api, err = c.startAPIServer(ctx, first, o.Flags, o.Apart)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (o Options) check() error {
	if o.APIServerPath == "" {
		return errors.New("starting a control plane: Options.APIServerPath is empty: set it to the path of a kube-apiserver")
	}
	info, err := os.Stat(o.APIServerPath)
	if err != nil {
		return fmt.Errorf("starting a control plane: there is no kube-apiserver to run: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("starting a control plane: %s is not a program: set Options.APIServerPath to the path of a kube-apiserver", o.APIServerPath)
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
func (c *ControlPlane) Etcd() *clientv3.Client { return c.etcd.client }

// EtcdApart is such a client of the second etcd; nil if [Options] asked for none.
func (c *ControlPlane) EtcdApart() *clientv3.Client { return c.api.EtcdApart() }

// EtcdEndpoint is the URL of a unix socket of etcd for any other client, such as etcdctl. Its requests
// pass the interceptors; [Peer] calls them "tools".
func (c *ControlPlane) EtcdEndpoint() string { return c.etcd.endpoint(tools) }

// Dir is the folder of this control plane: sockets, certificates, logs. It is gone after Stop.
func (c *ControlPlane) Dir() string { return c.folder.path }

// Stop ends every kube-apiserver, then etcd, and removes the folder. It may be called more than once.
// When ctx ends, what still runs is killed.
func (c *ControlPlane) Stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return c.stopErr
	}
	c.stopped = true
	var errs []error
	for _, a := range c.further {
		errs = append(errs, a.stop(ctx))
	}
	if c.api != nil {
		errs = append(errs, c.api.stop(ctx))
	}
	if c.etcd != nil {
		errs = append(errs, c.etcd.stop(ctx))
	}
	if c.folder != nil {
		errs = append(errs, c.folder.remove())
	}
	if c.guard != nil {
		errs = append(errs, c.guard.end(ctx))
	}
	c.stopErr = errors.Join(errs...)
	return c.stopErr
}

// APIServerOptions says how a further kube-apiserver differs from the first.
type APIServerOptions struct {
	// Flags are further flags of kube-apiserver, without the dashes.
	Flags map[string][]string

	// Apart keeps some resources in an etcd of their own, started for this kube-apiserver.
	Apart *Apart
}

// StartAPIServer starts a further kube-apiserver over the same etcd. At most two may run besides the
// first. It is stopped by its own Stop, or with the control plane.
func (c *ControlPlane) StartAPIServer(ctx context.Context, o APIServerOptions) (*APIServer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, errors.New("starting a further kube-apiserver: the control plane has been stopped")
	}
	for _, name := range []string{second, third} {
		if c.further[name] != nil {
			continue
		}
		a, err := c.startAPIServer(ctx, name, o.Flags, o.Apart)
		if err != nil {
			return nil, err
		}
		c.further[name] = a
		return a, nil
	}
	return nil, errors.New("starting a further kube-apiserver: two already run besides the first: stop one of them")
}
