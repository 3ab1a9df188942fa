package controlplane

import (
	"bytes"
	"context"
	_ "embed" // for the script
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

//go:embed start.sh
var startScript string

const (
	// pollInterval is how often a condition is looked at that cannot report itself.
	pollInterval = 20 * time.Millisecond

	// startLimit is how long a kube-apiserver may take to accept a write and to become healthy if the
	// caller's context does not end before. It takes about 1 s and 2.5 s on two idle cores.
	startLimit = 3 * time.Minute

	// stopLimit is how long a kube-apiserver that was asked to end may take before it is killed. It takes
	// about 1 s, and much longer while clients still watch.
	stopLimit = 5 * time.Second

	// tailLines is how much of kube-apiserver's output an error carries.
	tailLines = 10
)

// APIServer is a running kube-apiserver. Its methods may be called by several goroutines at once.
type APIServer struct {
	name     string
	folder   string
	graceful bool
	server   *envtest.APIServer
	plane    *envtest.ControlPlane
	admin    *rest.Config
	log      *os.File
	apart    *member
	control  *ControlPlane

	returned chan struct{} // closed when envtest's Start has returned
	startErr error         // what it returned

	mu      sync.Mutex
	stopped bool
	stopErr error
}

// errPortTaken says that another process took the port between our choice and kube-apiserver's listen.
var errPortTaken = errors.New("the port was taken by another process")

// startAPIServer starts a kube-apiserver on the socket of that name and waits until it accepts a write.
func (c *ControlPlane) startAPIServer(ctx context.Context, name string, o APIServerOptions) (_ *APIServer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("it took longer than %v", startLimit))
	defer cancel()
	flags := map[string][]string{
		// The address that it would find for itself is that of a network, and on a machine without one it
		// does not start. Nobody ever connects to this one: RFC 5737 reserves it for documentation. Each
		// kube-apiserver has its own, as it is the key of its lease in the store.
		"advertise-address": {advertised[name]},
	}
	for flag, value := range o.Flags {
		flags[flag] = []string{value}
	}
	var own *member
	if o.Apart != nil {
		if own, err = c.startApart(ctx, name, o.Apart); err != nil {
			return nil, err
		}
		for _, resource := range o.Apart.Resources {
			flags["etcd-servers-overrides"] = append(flags["etcd-servers-overrides"], resource+"#"+own.endpoint(name))
		}
	}
	var a *APIServer
	for range 3 {
		a, err = c.launch(ctx, name, flags, c.member(), own)
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting kube-apiserver: %w", err), own.stop(context.WithoutCancel(ctx)))
	}
	a.apart = own
	return a, nil
}

// advertised are the addresses that kube-apiservers give as theirs, by the name of their socket.
var advertised = map[string]string{first: "192.0.2.1", second: "192.0.2.2", third: "192.0.2.3"}

// startApart starts an etcd for some resources of one kube-apiserver.
func (c *ControlPlane) startApart(ctx context.Context, name string, apart *Apart) (*member, error) {
	folder := filepath.Join(c.folder.path, name+apartSuffix)
	if err := os.RemoveAll(folder); err != nil {
		return nil, fmt.Errorf("removing what an earlier etcd has left: %w", err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of a second etcd: %w", err)
	}
	return startMember(ctx, memberOptions{
		folder:  folder,
		sockets: []string{name},
		data:    filepath.Join(folder, "etcd"),
		server:  apart.EtcdServerOptions,

		outlived: &c.outlived,
	})
}

// launch starts a kube-apiserver over etcds that may not be ready yet: it has other things to do first.
func (c *ControlPlane) launch(
	ctx context.Context, name string, flags map[string][]string, etcds ...*member,
) (_ *APIServer, err error) {
	a := &APIServer{
		name:     name,
		folder:   c.folder.path,
		graceful: c.options.DataDir != "",
		control:  c,
		returned: make(chan struct{}),
	}
	certs := filepath.Join(a.folder, name)
	if err := errors.Join(os.RemoveAll(certs), os.RemoveAll(a.exitFile()), os.RemoveAll(a.pidFile())); err != nil {
		return nil, fmt.Errorf("removing what an earlier one has left: %w", err)
	}
	if err := os.Mkdir(certs, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of its certificates: %w", err)
	}
	script := filepath.Join(certs, "kube-apiserver")
	if err := a.writeScript(script, c.options.APIServerPath); err != nil {
		return nil, fmt.Errorf("writing the script that starts it: %w", err)
	}
	// It writes there itself, without a pipe in between: all that it has said is there when it has ended.
	a.log, err = os.OpenFile(a.LogFile(), os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the log file of kube-apiserver: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, errors.Join(err, a.log.Close())
	}
	auth, err := newAuthn()
	if err != nil {
		return nil, errors.Join(err, a.log.Close())
	}
	a.server = &envtest.APIServer{
		Path:         script,
		CertDir:      certs,
		EtcdURL:      &url.URL{Scheme: "unix", Path: c.member().socket(name)},
		Out:          a.log,
		Err:          a.log,
		StartTimeout: startLimit,
		StopTimeout:  2 * stopLimit, // end does not wait that long
	}
	a.server.SecureServing.Address = "127.0.0.1"
	a.server.SecureServing.Port = port
	a.server.SecureServing.Authn = auth
	args := a.server.Configure()
	for flag, values := range flags {
		args.Set(flag, values...)
	}
	a.plane = &envtest.ControlPlane{APIServer: a.server}
	go func() {
		defer close(a.returned)
		a.startErr = a.server.Start()
	}()
	for _, m := range etcds {
		err = errors.Join(err, m.ready(ctx))
	}
	if err == nil {
		err = a.accepting(ctx, auth)
	}
	if err != nil {
		// The reason for the failure is more telling than what went wrong in cleaning up.
		_ = a.stop(context.WithoutCancel(ctx))
		return nil, err
	}
	return a, nil
}

// writeScript writes the program that envtest runs instead of kube-apiserver.
func (a *APIServer) writeScript(path, program string) error {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	script := strings.NewReplacer(
		"@FOLDER@", quote(a.folder),
		"@NAME@", quote(a.name),
		"@PROGRAM@", quote(program),
	).Replace(startScript)
	// No child may be forked while the file is open for writing: it would inherit that, and a program
	// that somebody may write to cannot be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(script), 0o700)
}

// freePort finds a port of 127.0.0.1 that nobody listens on.
func freePort() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port on 127.0.0.1: %w", err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// accepting waits until kube-apiserver accepts a write.
func (a *APIServer) accepting(ctx context.Context, auth *authn) error {
	select {
	case <-auth.complete:
	case <-a.returned:
		if !isClosed(auth.complete) {
			return a.startErr
		}
		// It was started, and has ended already: poll says why.
	case <-ctx.Done():
		return fmt.Errorf("waiting until envtest has prepared it: %w", context.Cause(ctx))
	}
	admin, err := a.AddUser("modrev-admin", "system:masters")
	if err != nil {
		return err
	}
	a.admin = admin
	client, err := rest.HTTPClientFor(admin)
	if err != nil {
		return fmt.Errorf("making a client for its admin: %w", err)
	}
	defer client.CloseIdleConnections()
	err = a.poll(ctx, func() error { return acceptsWrites(ctx, client, admin.Host) })
	if err != nil {
		return fmt.Errorf("it did not accept a write: %w", err)
	}
	return nil
}

// acceptsWrites makes the namespace "default", which kube-apiserver makes itself a second later if it is
// not there, so that nothing is left in the store that would not be there anyway; and it sends a
// ConfigMap as a dry run, which passes all of admission and writes nothing.
func acceptsWrites(ctx context.Context, client *http.Client, host string) error {
	const (
		namespace = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"default"}}`
		configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"modrev-start"}}`
	)
	host = strings.TrimSuffix(host, "/")
	if err := post(ctx, client, host+"/api/v1/namespaces", namespace); err != nil {
		return err
	}
	return post(ctx, client, host+"/api/v1/namespaces/default/configmaps?dryRun=All", configMap)
}

// post creates an object. That it exists already is fine.
func post(ctx context.Context, client *http.Client, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<12))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusConflict {
		return fmt.Errorf("%s %s: %s: %s", req.Method, req.URL.Path, resp.Status, bytes.TrimSpace(answer))
	}
	return nil
}

// poll tries until there is no error, kube-apiserver ends, or ctx does.
func (a *APIServer) poll(ctx context.Context, try func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	returned := a.returned
	var last error
	for {
		err := try()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // an attempt that the deadline cut short says less than the one before it
			last = err
		}
		if exited, why := a.exited(); exited {
			return a.withTail(why)
		}
		select {
		case <-returned:
			if a.startErr != nil {
				exited, why := a.exited()
				if !exited {
					why = a.startErr
				}
				return a.withTail(why)
			}
			returned = nil
		case <-ticker.C:
		case <-ctx.Done():
			return a.withTail(fmt.Errorf("%w (the last attempt: %w)", context.Cause(ctx), last))
		}
	}
}

// exited says whether kube-apiserver has ended, and how.
func (a *APIServer) exited() (bool, error) {
	content, err := os.ReadFile(a.exitFile())
	status, convErr := strconv.Atoi(strings.TrimSpace(string(content)))
	switch {
	case err != nil || convErr != nil:
		return false, nil
	case status > 128:
		// The shell's way to say that a signal ended the program.
		signal := syscall.Signal(status - 128)
		return true, fmt.Errorf("it was ended by signal %d (%v)", int(signal), signal)
	default:
		return true, fmt.Errorf("it ended with exit status %d", status)
	}
}

func (a *APIServer) withTail(err error) error {
	last := tail(a.LogFile(), tailLines)
	if strings.Contains(last, "address already in use") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return fmt.Errorf("%w; its last lines:\n%s", err, last)
}

func (a *APIServer) pidFile() string  { return filepath.Join(a.folder, pidsName, a.name) }
func (a *APIServer) exitFile() string { return filepath.Join(a.folder, a.name+".exit") }

// Admin is a configuration for a client that may do everything: a member of system:masters, without a
// rate limit on the client's side. Each call returns a new copy.
func (a *APIServer) Admin() *rest.Config { return rest.CopyConfig(a.admin) }

// AddUser makes a client certificate for a user and returns a configuration that uses it. RBAC is on, so
// the user may do what roles allow, and nothing else.
func (a *APIServer) AddUser(name string, groups ...string) (*rest.Config, error) {
	user, err := a.plane.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: -1})
	if err != nil {
		return nil, fmt.Errorf("adding the user %q: %w", name, err)
	}
	return user.Config(), nil
}

// Healthy waits until kube-apiserver reports itself healthy on /healthz, that is until all its post-start
// hooks are done.
func (a *APIServer) Healthy(ctx context.Context) error {
	client, err := rest.HTTPClientFor(a.admin)
	if err != nil {
		return fmt.Errorf("making a client for the admin of kube-apiserver: %w", err)
	}
	defer client.CloseIdleConnections()
	err = a.poll(ctx, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(a.admin.Host, "/")+"/healthz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<14))
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("GET /healthz: %s: %s", resp.Status, bytes.TrimSpace(body))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("waiting until kube-apiserver is healthy: %w", err)
	}
	return nil
}

// LogFile is the file that holds the newest output of this kube-apiserver, until the control plane stops.
func (a *APIServer) LogFile() string { return filepath.Join(a.folder, a.name+".log") }

// Stop ends this kube-apiserver. It may be called more than once. When ctx ends, it is killed.
func (a *APIServer) Stop(ctx context.Context) error {
	err := a.stop(ctx)
	a.control.release(a)
	return err
}

func (a *APIServer) stop(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return a.stopErr
	}
	a.stopped = true
	a.stopErr = errors.Join(a.end(ctx), a.apart.stop(ctx), a.log.Close())
	return a.stopErr
}

// end ends the process and waits for that.
func (a *APIServer) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	pid := a.pid(ctx)
	if !a.graceful {
		// Nobody will read this store again, so there is nothing for kube-apiserver to put in order.
		kill(pid, syscall.SIGKILL)
	} else if !isClosed(a.returned) {
		// envtest cannot stop what it is still starting.
		kill(pid, syscall.SIGTERM)
	}
	ended := make(chan error, 1)
	go func() {
		<-a.returned
		err := a.server.Stop()
		if errors.Is(err, syscall.ESRCH) || errors.Is(err, os.ErrProcessDone) {
			err = nil // it ended by itself in between
		}
		ended <- err
	}()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		kill(pid, syscall.SIGKILL)
		err = <-ended
	}
	if err != nil {
		return fmt.Errorf("stopping kube-apiserver: %w", err)
	}
	return nil
}

// pid waits until kube-apiserver has a process id, and returns 0 if it never will.
func (a *APIServer) pid(ctx context.Context) int {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		content, _ := os.ReadFile(a.pidFile())
		pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
		exited, _ := a.exited()
		switch {
		case exited:
			return 0
		case err == nil:
			return pid
		}
		select {
		case <-a.returned:
			return 0
		case <-ctx.Done():
			return 0
		case <-ticker.C:
		}
	}
}

// kill sends a signal to a process that may have ended.
func kill(pid int, signal syscall.Signal) {
	if pid > 0 {
		_ = syscall.Kill(pid, signal)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
