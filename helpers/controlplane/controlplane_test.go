package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"modrev/helpers/controlplane"
)

// requests notes who wrote which keys through the gRPC server of an etcd.
type requests struct {
	mu   sync.Mutex
	keys map[string][]string // by peer
}

func (r *requests) options() []grpc.ServerOption {
	note := func(ctx context.Context, req any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.keys == nil {
			r.keys = make(map[string][]string)
		}
		peer := controlplane.Peer(ctx)
		switch req := req.(type) {
		case *pb.TxnRequest:
			for _, op := range req.Success {
				r.keys[peer] = append(r.keys[peer], string(op.GetRequestPut().GetKey()))
			}
		case *pb.PutRequest:
			r.keys[peer] = append(r.keys[peer], string(req.Key))
		}
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any,
			error) {
			note(ctx, req)
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
			next grpc.StreamHandler) error {
			note(stream.Context(), nil)
			return next(srv, stream)
		}),
	}
}

// writers are those who wrote a key.
func (r *requests) writers(key string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var peers []string
	for peer, keys := range r.keys {
		if slices.Contains(keys, key) {
			peers = append(peers, peer)
		}
	}
	slices.Sort(peers)
	return peers
}

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	// Connections of one test must not be reused by another.
	config = rest.CopyConfig(config)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	set, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// createConfigMap makes one with a name that no other test, and no earlier run of this one, has used.
func createConfigMap(t *testing.T, config *rest.Config) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "cm-"}}
	created, err := clientFor(t, config).CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func wantWriters(t *testing.T, r *requests, key string, want ...string) {
	t.Helper()
	if got := r.writers(key); !slices.Equal(got, want) {
		t.Errorf("%s was written by %q through etcd's gRPC server, want %q", key, got, want)
	}
}

func TestAWriteOfTheAdminPassesTheInterceptors(t *testing.T) {
	c := shared.get(t)
	created := createConfigMap(t, c.Admin())
	wantWriters(t, &shared.seen, "/registry/configmaps/default/"+created.Name, "apiserver")
}

func TestTheClientInThisProcessDoesNotPassTheInterceptors(t *testing.T) {
	c := shared.get(t)
	if _, err := c.Etcd().Put(t.Context(), "/inside", "x"); err != nil {
		t.Fatal(err)
	}
	wantWriters(t, &shared.seen, "/inside")
}

func TestAnyOtherClientIsCalledTools(t *testing.T) {
	c := shared.get(t)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.EtcdEndpoint()}, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.Put(t.Context(), "/outside", "x"); err != nil {
		t.Fatal(err)
	}
	wantWriters(t, &shared.seen, "/outside", "tools")
}

func TestAUserMayDoWhatRolesAllowAndNothingElse(t *testing.T) {
	c := shared.get(t)
	if err := c.Healthy(within(t, limit)); err != nil {
		t.Fatal(err)
	}
	reader, err := c.AddUser("reader", "readers")
	if err != nil {
		t.Fatal(err)
	}
	configMaps := clientFor(t, reader).CoreV1().ConfigMaps("default")
	if _, err := configMaps.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without a role may list ConfigMaps: %v", err)
	}
	viewer, err := c.AddUser("viewer", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientFor(t, viewer).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a member of system:masters may not list ConfigMaps: %v", err)
	}
}

func TestNothingListensButTheAPIServerOnLoopback(t *testing.T) {
	c := shared.get(t)
	if err := c.Healthy(within(t, limit)); err != nil {
		t.Fatal(err)
	}
	if addresses := listening(t, os.Getpid()); len(addresses) > 0 {
		t.Errorf("this process, with its etcd, listens on %v", addresses)
	}
	host, err := url.Parse(c.Admin().Host)
	if err != nil {
		t.Fatal(err)
	}
	servers := 0
	for pid, command := range processes(t, "--cert-dir="+c.Dir()) {
		if strings.HasPrefix(command, "/bin/sh ") {
			continue
		}
		servers++
		if addresses := listening(t, pid); !slices.Equal(addresses, []string{host.Host}) ||
			!strings.HasPrefix(host.Host, "127.0.0.1:") {
			t.Errorf("kube-apiserver listens on %v, want only %s", addresses, host.Host)
		}
	}
	if servers != 1 {
		t.Errorf("%d kube-apiservers run, want 1", servers)
	}

	// Any other user of this machine who reaches that port has to authenticate.
	stranger := rest.AnonymousClientConfig(c.Admin())
	_, err = clientFor(t, stranger).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("a stranger may list ConfigMaps: %v", err)
	}
	info, err := os.Stat(c.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the folder with etcd's sockets has mode %v, want 0700", info.Mode())
	}
}

func TestStartLeavesNothingInTheStoreThatWouldNotBeThereAnyway(t *testing.T) {
	c := shared.get(t)
	resp, err := c.Etcd().Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		if strings.Contains(string(kv.Key), "modrev") {
			t.Errorf("the store holds %s", kv.Key)
		}
	}
}

func TestAFurtherAPIServerOverTheSameStore(t *testing.T) {
	var main, apart requests
	c, err := controlplane.Start(within(t, limit), controlplane.Options{
		APIServerPath: binary(t), EtcdServerOptions: main.options(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	var servers [2]*controlplane.APIServer
	var wg sync.WaitGroup
	for i := range servers {
		wg.Go(func() {
			var err error
			servers[i], err = c.StartAPIServer(within(t, limit), controlplane.APIServerOptions{
				Apart: &controlplane.Apart{Resources: []string{"/events"}, EtcdServerOptions: apart.options()},
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	if _, err := c.StartAPIServer(t.Context(), controlplane.APIServerOptions{}); err == nil ||
		!strings.Contains(err.Error(), "stop one of them") {
		t.Errorf("a fourth kube-apiserver: %v, want an error that says to stop one", err)
	}

	created := createConfigMap(t, servers[0].Admin())
	key := "/registry/configmaps/default/" + created.Name
	writers := main.writers(key)
	if len(writers) != 1 || writers[0] != "second" && writers[0] != "third" {
		t.Errorf("%s was written by %q, want a further kube-apiserver", key, writers)
	}
	resp, err := c.Etcd().Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) != 1 || fmt.Sprint(resp.Kvs[0].ModRevision) != created.ResourceVersion {
		t.Errorf("etcd has %v, want mod_revision %s", resp.Kvs, created.ResourceVersion)
	}
	if user, err := servers[0].AddUser("somebody"); err != nil {
		t.Error(err)
	} else if _, err := clientFor(t, user).CoreV1().ConfigMaps("default").List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without a role may list ConfigMaps: %v", err)
	}

	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "an-event"},
		InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Name: created.Name, Namespace: "default"},
	}
	if _, err := clientFor(t, servers[0].Admin()).CoreV1().Events("default").Create(t.Context(), event,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	key = "/registry/events/default/an-event"
	wantWriters(t, &main, key)
	wantWriters(t, &apart, key, writers...)
	if err := servers[0].Healthy(within(t, limit)); err != nil {
		t.Error(err)
	}

	// One that was stopped makes place for the next.
	for range 2 {
		if err := servers[0].Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := servers[0].Healthy(within(t, limit)); err == nil ||
		!strings.Contains(err.Error(), "it was ended by signal 9") {
		t.Errorf("a kube-apiserver that was stopped: %v, want an error that says how it ended", err)
	}
	if _, err := c.StartAPIServer(within(t, limit), controlplane.APIServerOptions{}); err != nil {
		t.Error(err)
	}
}

func TestDataThatIsKept(t *testing.T) {
	options := controlplane.Options{APIServerPath: binary(t), DataDir: t.TempDir()}
	c, err := controlplane.Start(within(t, limit), options)
	if err != nil {
		t.Fatal(err)
	}
	created := createConfigMap(t, c.Admin())
	if other, err := controlplane.Start(within(t, limit), options); err == nil {
		_ = other.Stop(context.Background())
		t.Error("two control planes use the same data")
	} else if !strings.Contains(err.Error(), "is used by another control plane") {
		t.Errorf("two control planes with the same data: %v", err)
	}
	if err := c.Stop(within(t, limit)); err != nil {
		t.Fatal(err)
	}

	c, err = controlplane.Start(within(t, limit), options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	again, err := clientFor(t, c.Admin()).CoreV1().ConfigMaps("default").Get(t.Context(), created.Name,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if again.ResourceVersion != created.ResourceVersion || again.UID != created.UID {
		t.Errorf("after a start over the same data it is %v, want %v", again, created)
	}
}

func TestStopWhileClientsWatch(t *testing.T) {
	c, err := controlplane.Start(within(t, limit), controlplane.Options{APIServerPath: binary(t)})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := clientFor(t, c.Admin()).CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		_ = c.Stop(context.Background())
		t.Fatal(err)
	}
	defer watch.Stop()
	etcdWatch := c.Etcd().Watch(t.Context(), "/registry/", clientv3.WithPrefix())

	begin := time.Now()
	var wg sync.WaitGroup
	for range 3 { // it may be called more than once
		wg.Go(func() {
			if err := c.Stop(within(t, limit)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("stopping took %v", took)
	}
	for range watch.ResultChan() {
	}
	for range etcdWatch {
	}
	if _, err := c.StartAPIServer(t.Context(), controlplane.APIServerOptions{}); err == nil ||
		!strings.Contains(err.Error(), "has been stopped") {
		t.Errorf("a kube-apiserver after the end: %v", err)
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestAnEtcdOnTCPWhenAsked(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + l.Addr().String()
	_ = l.Close()
	var seen requests
	c, err := controlplane.Start(within(t, limit), controlplane.Options{
		APIServerPath: binary(t), EtcdListenURLs: []string{endpoint}, EtcdServerOptions: seen.options(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.Put(t.Context(), "/over-tcp", "x"); err != nil {
		t.Fatal(err)
	}
	wantWriters(t, &seen, "/over-tcp", "tools")
}

// program writes a shell script to run in place of kube-apiserver.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kube-apiserver")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAStartThatFailsSaysWhy(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, takenPort, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	notAProgram := filepath.Join(t.TempDir(), "kube-apiserver")
	if err := os.WriteFile(notAProgram, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}

	withFlag := func(flag string) string { return program(t, fmt.Sprintf(`exec '%s' "$@" %s`, binary(t), flag)) }
	for name, c := range map[string]struct {
		options controlplane.Options
		within  time.Duration
		want    []string
	}{
		"no path": {
			want: []string{"APIServerPath is empty"},
		},
		"no such file": {
			options: controlplane.Options{APIServerPath: "/nonexistent/kube-apiserver"},
			want:    []string{"there is no kube-apiserver to run", "/nonexistent/kube-apiserver"},
		},
		"not a program": {
			options: controlplane.Options{APIServerPath: notAProgram},
			want:    []string{notAProgram + " is not a program"},
		},
		"a flag that it does not know": {
			options: controlplane.Options{APIServerPath: withFlag("--no-such-flag=1")},
			want:    []string{"ended with exit status 1; its last lines:", "unknown flag: --no-such-flag"},
		},
		"a port that is taken": {
			options: controlplane.Options{APIServerPath: withFlag("--secure-port=" + takenPort)},
			want:    []string{"the port was taken by another process", "address already in use"},
		},
		"an end by a signal": {
			options: controlplane.Options{APIServerPath: program(t, "echo I have no memory left; kill -9 $$")},
			want:    []string{"it was ended by signal 9 (killed)", "I have no memory left"},
		},
		"a silent end": {
			options: controlplane.Options{APIServerPath: program(t, "exit 7")},
			want:    []string{"exit status 7", "it printed nothing"},
		},
		"no answer in time": {
			options: controlplane.Options{APIServerPath: program(t, "echo I am slow; exec sleep 100")},
			within:  2 * time.Second,
			want:    []string{"it did not accept a write", "deadline exceeded", "connection refused", "I am slow"},
		},
		"no time at all": {
			options: controlplane.Options{APIServerPath: binary(t)},
			within:  time.Nanosecond,
			want:    []string{"deadline exceeded"},
		},
		"etcd for everybody": {
			options: controlplane.Options{APIServerPath: binary(t), EtcdListenURLs: []string{"http://0.0.0.0:2379"}},
			want:    []string{"http://0.0.0.0:2379 is no client URL for etcd", "loopback"},
		},
		"an address of etcd that is taken": {
			options: controlplane.Options{APIServerPath: binary(t), EtcdListenURLs: []string{"http://" + taken.Addr().String()}},
			want:    []string{"starting etcd", "address already in use"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.within == 0 {
				c.within = limit
			}
			control, err := controlplane.Start(within(t, c.within), c.options)
			if err == nil {
				_ = control.Stop(context.Background())
				t.Fatal("it started")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestTheLogIsKept(t *testing.T) {
	c := shared.get(t)
	content, err := os.ReadFile(c.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), "Serving securely on 127.0.0.1") {
		t.Errorf("the log of kube-apiserver does not say where it serves:\n%s", content)
	}
}

func TestTheAdminHasNoRateLimitOfItsOwn(t *testing.T) {
	config := shared.get(t).Admin()
	if config.QPS >= 0 || config.WrapTransport != nil {
		t.Errorf("QPS %v, WrapTransport set: %v; want none of both", config.QPS, config.WrapTransport != nil)
	}
	config.Host = "changed"
	if shared.get(t).Admin().Host == "changed" {
		t.Error("a change to one configuration changes the next")
	}
}
