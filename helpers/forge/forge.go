// Package forge is the live lab: the control plane of the book, up until it is told to end, with what a
// reader needs at a shell. The documents of the book say "forge" for the cluster of one that they use.
package forge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"modrev/helpers/controlplane"
	"modrev/helpers/kubeapiserver"
	"modrev/helpers/wire"
)

// Options say what to start. The zero value starts the lab with etcd on a unix socket, and keeps nothing.
type Options struct {
	// Version is the minor version of Kubernetes, such as "1.37"; the default is the newest that is pinned.
	Version string
	// EtcdAddress is a TCP address on loopback for etcd, such as "127.0.0.1:2379", in addition to its
	// socket. Whoever can reach it can write the store, so no other address is taken.
	EtcdAddress string
	// LogLink is a path at which the log of kube-apiserver is to be found as well, such as
	// "/tmp/apiserver.log". A link is put there and taken away at the end; a file that is there already is
	// an error.
	LogLink string
	// DataDir is a folder for the data of etcd that is kept for the next start.
	DataDir string
	// NoTools leaves kubectl, etcdctl and jq out: they need not be built then.
	NoTools bool
	// Command is the path of a program that the shell of the reader is to find as "forge", next to kubectl.
	// Empty leaves it out, and so does NoTools.
	Command string
	// Progress is told what is being built and started. Nil discards it.
	Progress io.Writer
}

// State is what another process needs to know of a lab that runs. It is kept in the folder of the control
// plane and goes with it.
type State struct {
	PID        int
	Dir        string // folder of the lab; it goes with the lab
	Version    string // of kube-apiserver, "v1.37.2"
	Server     string // URL of kube-apiserver
	Kubeconfig string // path; its context is called admin
	Etcd       string // endpoint of etcd for etcdctl
	Log        string // path of the log of kube-apiserver
	Wire       string // path of the socket that tells what reaches etcd
	Tools      string // folder with kubectl, etcdctl and jq; "" without them
}

// stateFile is the name of the State in the folder of the control plane.
const stateFile = "forge.json"

// Forge is a live lab.
type Forge struct {
	State State

	control *controlplane.ControlPlane
	wire    wire.Wire
	hub     hub

	mu     sync.Mutex
	writes int
	log    func(line string) // nil until there is a log
	early  []string          // the lines from before
}

// Start starts the lab. When it returns an error, nothing is left running. ctx limits the start alone.
func Start(ctx context.Context, o Options) (_ *Forge, err error) {
	if err := o.check(ctx); err != nil {
		return nil, err
	}
	binary, tools, err := o.build(ctx)
	if err != nil {
		return nil, err
	}
	f := &Forge{}
	f.wire.Origin = controlplane.Peer
	f.wire.Live = f.saw
	options := controlplane.Options{
		APIServerPath:     binary.Path,
		EtcdServerOptions: f.wire.ServerOptions(),
		DataDir:           o.DataDir,
	}
	if o.EtcdAddress != "" {
		options.EtcdListenURLs = []string{"http://" + o.EtcdAddress}
	}
	f.control, err = controlplane.Start(ctx, options)
	if err != nil {
		return nil, o.explain(ctx, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Stop(context.WithoutCancel(ctx)))
		}
	}()
	f.mu.Lock()
	f.log = f.control.Log
	for _, line := range f.early {
		f.log(line)
	}
	f.early = nil
	f.mu.Unlock()
	if o.LogLink != "" {
		if err := f.control.LinkLog(o.LogLink); err != nil {
			return nil, err
		}
	}
	f.State = State{
		PID: os.Getpid(), Dir: f.control.Dir(), Version: binary.Version, Server: f.control.Admin().Host,
		Kubeconfig: filepath.Join(f.control.Dir(), "kubeconfig"),
		Etcd:       f.control.EtcdEndpoint(), Log: f.control.LogFile(), Wire: filepath.Join(f.control.Dir(), "wire.sock"),
	}
	if o.EtcdAddress != "" {
		f.State.Etcd = "http://" + o.EtcdAddress
	}
	if o.LogLink != "" {
		f.State.Log = o.LogLink
	}
	if tools != nil {
		if f.State.Tools, err = linkTools(filepath.Join(f.control.Dir(), "bin"), tools, f.State.Etcd); err != nil {
			return nil, err
		}
	}
	if err := writeKubeconfig(f.State.Kubeconfig, f.control.Admin()); err != nil {
		return nil, err
	}
	socket, err := net.Listen("unix", f.State.Wire)
	if err != nil {
		return nil, fmt.Errorf("opening the socket on which the wire is told: %w", err)
	}
	f.hub.open(socket)
	return f, f.announce()
}

// Prepare builds what a lab needs and what is not there yet, which can take minutes, and starts nothing.
func Prepare(ctx context.Context, o Options) error {
	_, _, err := o.build(ctx)
	return err
}

// build finds or builds kube-apiserver and, by the names under which a shell is to find them, the tools; nil
// without them.
func (o Options) build(ctx context.Context) (kubeapiserver.Binary, map[string]string, error) {
	binary, err := kubeapiserver.Find(ctx, kubeapiserver.Options{Progress: o.Progress, Version: o.Version})
	if err != nil {
		return binary, nil, err
	}
	if err := o.agrees(binary); err != nil || o.NoTools {
		return binary, nil, err
	}
	tools, err := buildTools(ctx, binary.Version, o.Progress)
	if err != nil {
		return binary, nil, err
	}
	if o.Command != "" {
		tools["forge"] = o.Command
	}
	return binary, tools, nil
}

// check finds what can be found wrong before anything is started.
func (o Options) check(ctx context.Context) error {
	if o.EtcdAddress != "" {
		host, port, err := net.SplitHostPort(o.EtcdAddress)
		if err != nil {
			return fmt.Errorf("%q is no address for etcd: give one as 127.0.0.1:2379", o.EtcdAddress)
		}
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			return fmt.Errorf("etcd is served without authentication, so only on loopback, and %s is not: give 127.0.0.1:%s",
				host, port)
		}
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", o.EtcdAddress)
		if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("etcd cannot be served on %s: %w: give another address on loopback, such as 127.0.0.1:2379",
				o.EtcdAddress, err)
		}
		if s, none := Running(""); err != nil && none == nil && s.Etcd == "http://"+o.EtcdAddress {
			return fmt.Errorf("a live lab (process %d) serves etcd on %s already: go on with that one, or end it first: %w",
				s.PID, o.EtcdAddress, err)
		}
		if err != nil {
			return fmt.Errorf("etcd cannot be served on %s, something else is there already: end that, or give another port: "+
				"%w", o.EtcdAddress, err)
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("trying the address of etcd: %w", err)
		}
	}
	return nil
}

// agrees says whether a kube-apiserver is of the version that was asked for. The one in KUBEBUILDER_ASSETS is
// of the version that it is.
func (o Options) agrees(b kubeapiserver.Binary) error {
	if minor := "v" + strings.TrimPrefix(o.Version, "v"); o.Version != "" && b.Version != minor &&
		!strings.HasPrefix(b.Version, minor+".") {
		return fmt.Errorf("kube-apiserver %s was asked for, and %s names one of %s: unset %s, or leave out the version",
			o.Version, kubeapiserver.AssetsVariable, b.Version, kubeapiserver.AssetsVariable)
	}
	return nil
}

// explain says why the control plane did not start, in the words of who started the lab.
func (o Options) explain(ctx context.Context, err error) error {
	var path *fs.PathError
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("the live lab was ended before it was up: %w", context.Cause(ctx))
	case o.DataDir != "" && errors.As(err, &path) &&
		(strings.HasPrefix(path.Path, o.DataDir) || strings.HasPrefix(o.DataDir, path.Path)):
		return fmt.Errorf("etcd's data cannot be kept in %s: %w: name a folder that you can write to", o.DataDir, path)
	}
	return fmt.Errorf("starting the live lab: %w", err)
}

// announce writes the state of the lab to where Running finds it.
func (f *Forge) announce() error {
	text, err := json.MarshalIndent(f.State, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the state of the lab: %w", err)
	}
	path := filepath.Join(f.control.Dir(), stateFile)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return fmt.Errorf("writing the state of the lab: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("writing the state of the lab: %w", err)
	}
	return nil
}

// saw is told every request that reached etcd. Storage writes of kube-apiserver are numbered and marked in its
// log, where the first document looks for them.
func (f *Forge) saw(r wire.Request) {
	if r.Wrote() && r.From == apiserver {
		f.mu.Lock()
		f.writes++
		line := fmt.Sprintf("%s %s n=%d revision=%d key=%s", StorageWrite,
			time.Now().Format("15:04:05.000000"), f.writes, r.StoreRevision, r.Key)
		if f.log != nil {
			f.log(line)
		} else {
			f.early = append(f.early, line)
		}
		f.mu.Unlock()
	}
	f.hub.tell(r)
}

// apiserver is how the wire calls kube-apiserver; everything else is a tool, such as etcdctl.
const apiserver = "apiserver"

// StorageWrite marks a storage write in the log of kube-apiserver; the first document counts these lines.
const StorageWrite = "ACADEMY 5-storage-write"

// Healthy waits until kube-apiserver is healthy: all its own objects are there.
func (f *Forge) Healthy(ctx context.Context) error { return f.control.Healthy(ctx) }

// Stop ends the lab. What ctx limits is its patience; when it ends, the rest is killed.
func (f *Forge) Stop(ctx context.Context) error {
	f.hub.close()
	return f.control.Stop(ctx)
}

// contextName is the context that the documents give to kubectl.
const contextName = "admin"

func writeKubeconfig(path string, c *rest.Config) error {
	k := clientcmdapi.NewConfig()
	k.Clusters["forge"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	k.AuthInfos[contextName] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	k.Contexts[contextName] = &clientcmdapi.Context{Cluster: "forge", AuthInfo: contextName, Namespace: "default"}
	k.CurrentContext = contextName
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

// ErrNoneRuns is what Running reports when there is no live lab on this machine.
var ErrNoneRuns = errors.New("no live lab is running: start one with: go run ./cmd/forge")

// Running finds a live lab of this user: the one whose folder is named, if it still runs, else the one that was
// started last.
func Running(dir string) (State, error) {
	if dir != "" {
		if s, _, ok := read(dir); ok {
			return s, nil
		}
	}
	var newest State
	var at time.Time
	for _, parent := range parents() {
		found, err := filepath.Glob(filepath.Join(parent, "modrev-*"))
		if err != nil {
			return State{}, fmt.Errorf("looking for a live lab: %w", err)
		}
		for _, dir := range found {
			if s, began, ok := read(dir); ok && began.After(at) {
				newest, at = s, began
			}
		}
	}
	if at.IsZero() {
		return State{}, ErrNoneRuns
	}
	return newest, nil
}

// parents are where the folder of a control plane may be: in /tmp, too, where the path of a socket is short.
func parents() []string {
	const short = "/tmp"
	if dir := os.TempDir(); dir != short {
		return []string{dir, short}
	}
	return []string{short}
}

// read reads the state of a lab from its folder, and since when it has been there. It reports false for a lab
// that is starting or ending, and for a folder of somebody else: what it says would be put into a shell.
func read(dir string) (_ State, began time.Time, ok bool) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return State{}, began, false
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Getuid() {
		return State{}, began, false
	}
	path := filepath.Join(dir, stateFile)
	file, err := os.Stat(path)
	if err != nil {
		return State{}, began, false
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return State{}, began, false
	}
	var s State
	if json.Unmarshal(text, &s) != nil || !alive(s) {
		return State{}, began, false
	}
	return s, file.ModTime(), true
}

// alive says whether somebody still answers on the socket of a lab.
func alive(s State) bool {
	c, err := net.Dial("unix", s.Wire)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// LabVariable is the variable that says which lab a shell was set up for.
const LabVariable = "FORGE_LAB"

// defaultEtcd is where etcdctl looks for etcd when nobody tells it.
const defaultEtcd = "http://127.0.0.1:2379"

// Environment is what a shell needs to work with the lab, as NAME=value, given the PATH that it has.
func (s State) Environment(path string) []string {
	env := []string{"KUBECONFIG=" + s.Kubeconfig, LabVariable + "=" + s.Dir, "FORGE_LOG=" + s.Log, "FORGE_ETCD=" + s.Etcd}
	switch {
	case s.Tools != "": // its etcdctl knows where etcd is
		env = append(env, "PATH="+s.Tools+string(os.PathListSeparator)+path)
	case s.Etcd != defaultEtcd:
		env = append(env, "ETCDCTL_ENDPOINTS="+s.Etcd)
	}
	return env
}
