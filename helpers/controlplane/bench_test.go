package controlplane_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"modrev/helpers/controlplane"
)

// BenchmarkStart compares, in one run, how long it takes until a write is accepted: by this package, by a
// bare kube-apiserver over an etcd that is already up, and by envtest with an etcd of its own. It compares
// the time to stop, too. The figures are medians, in seconds; the ratios are medians of the ratios of each
// round. Give it a number of rounds: -benchtime=9x.
func BenchmarkStart(b *testing.B) {
	apiserver := binary(b)
	etcd := etcdBinary(b)
	keys := newKeys(b)
	var ours, bare, stock []timing
	for b.Loop() {
		ours = append(ours, timeOurs(b, apiserver))
		bare = append(bare, timeBare(b, apiserver, etcd, keys))
		stock = append(stock, timeStock(b, apiserver, etcd))
	}
	start := func(t timing) time.Duration { return t.start }
	stop := func(t timing) time.Duration { return t.stop }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(seconds(ours, start), "ours-start-s")
	b.ReportMetric(seconds(bare, start), "bare-start-s")
	b.ReportMetric(seconds(stock, start), "stock-start-s")
	b.ReportMetric(ratio(ours, bare, start), "start-ours/bare")
	b.ReportMetric(ratio(ours, stock, start), "start-ours/stock")
	b.ReportMetric(seconds(ours, stop), "ours-stop-s")
	b.ReportMetric(seconds(bare, stop), "bare-stop-s")
	b.ReportMetric(ratio(ours, bare, stop), "stop-ours/bare")
}

type timing struct{ start, stop time.Duration }

func seconds(all []timing, part func(timing) time.Duration) float64 {
	var values []float64
	for _, t := range all {
		values = append(values, part(t).Seconds())
	}
	return median(values)
}

func ratio(all, others []timing, part func(timing) time.Duration) float64 {
	var values []float64
	for i := range all {
		values = append(values, part(all[i]).Seconds()/part(others[i]).Seconds())
	}
	return median(values)
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func timeOurs(b *testing.B, apiserver string) timing {
	var t timing
	begin := time.Now()
	c, err := controlplane.Start(within(b, limit), controlplane.Options{APIServerPath: apiserver})
	if err != nil {
		b.Fatal(err)
	}
	firstWrite(b, c.Admin())
	t.start = time.Since(begin)
	// Let the hooks end, so that all are stopped at the same point.
	if err := c.Healthy(within(b, limit)); err != nil {
		b.Fatal(err)
	}
	begin = time.Now()
	if err := c.Stop(within(b, limit)); err != nil {
		b.Fatal(err)
	}
	t.stop = time.Since(begin)
	return t
}

func timeStock(b *testing.B, apiserver, etcd string) timing {
	var t timing
	begin := time.Now()
	c := envtest.ControlPlane{
		Etcd:      &envtest.Etcd{Path: etcd},
		APIServer: &envtest.APIServer{Path: apiserver},
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	user, err := c.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, &rest.Config{QPS: -1})
	if err != nil {
		b.Fatal(err)
	}
	firstWrite(b, user.Config())
	t.start = time.Since(begin)
	begin = time.Now()
	if err := c.Stop(); err != nil {
		b.Fatal(err)
	}
	t.stop = time.Since(begin)
	return t
}

func timeBare(b *testing.B, apiserver, etcd string, k keys) timing {
	dir, err := os.MkdirTemp(k.dir, "bare")
	if err != nil {
		b.Fatal(err)
	}
	client, peer, port := freeAddress(b), freeAddress(b), freeAddress(b)
	store := exec.Command(etcd, "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls=http://"+client, "--advertise-client-urls=http://"+client, "--listen-peer-urls=http://"+peer)
	run(b, store)
	defer end(b, store)
	eventually(b, limit, "etcd is up", func() string {
		resp, err := http.Get("http://" + client + "/health")
		if err != nil {
			return err.Error()
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return ""
	})

	var t timing
	begin := time.Now()
	_, number, _ := strings.Cut(port, ":")
	server := exec.Command(apiserver,
		"--etcd-servers=http://"+client, "--secure-port="+number, "--bind-address=127.0.0.1", "--advertise-address=192.0.2.1",
		"--cert-dir="+dir, "--tls-cert-file="+k.cert, "--tls-private-key-file="+k.key, "--token-auth-file="+k.tokens,
		"--service-account-issuer=https://"+port, "--service-account-key-file="+k.key,
		"--service-account-signing-key-file="+k.key,
		"--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true", "--disable-admission-plugins=ServiceAccount",
		"--authorization-mode=RBAC")
	run(b, server)
	config := &rest.Config{Host: "https://" + port, BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1}
	firstWrite(b, config)
	t.start = time.Since(begin)
	eventually(b, limit, "kube-apiserver is healthy", func() string {
		client, closeClient := clientset(b, config)
		defer closeClient()
		if err := client.RESTClient().Get().AbsPath("/healthz").Do(context.Background()).Error(); err != nil {
			return err.Error()
		}
		return ""
	})
	begin = time.Now()
	end(b, server)
	t.stop = time.Since(begin)
	return t
}

// firstWrite waits until a write is accepted: the one that the package itself waits for.
func firstWrite(b *testing.B, config *rest.Config) {
	client, closeClient := clientset(b, config)
	defer closeClient()
	eventually(b, limit, "a write is accepted", func() string {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		_, err := client.CoreV1().Namespaces().Create(context.Background(), namespace, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err.Error()
		}
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first"}}
		_, err = client.CoreV1().ConfigMaps("default").Create(context.Background(), cm, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err.Error()
		}
		return ""
	})
}

// clientset returns the function that closes its connections, too: an open one would delay a stop.
func clientset(b *testing.B, config *rest.Config) (*kubernetes.Clientset, func()) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		b.Fatal(err)
	}
	set, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		b.Fatal(err)
	}
	return set, client.CloseIdleConnections
}

const token = "secret-of-the-benchmark"

// keys are the files that a bare kube-apiserver needs, made before the clock runs.
type keys struct{ dir, cert, key, tokens string }

func newKeys(b *testing.B) keys {
	dir := shortTemp(b)
	k := keys{dir: dir, cert: filepath.Join(dir, "crt"), key: filepath.Join(dir, "key"),
		tokens: filepath.Join(dir, "tokens")}
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	for path, content := range map[string][]byte{
		k.cert: crt, k.key: key, k.tokens: []byte(token + ",admin,admin,system:masters\n"),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return k
}

// etcdBinary is the etcd beside kube-apiserver in KUBEBUILDER_ASSETS, or one that is built from the version
// in go.mod, in a module of its own: its command needs modules that nothing else here does.
func etcdBinary(b *testing.B) string {
	if path := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "etcd"); filepath.IsAbs(path) {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	const module = "go.etcd.io/etcd/server/v3"
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		b.Fatalf("asking for the version of etcd: %v", err)
	}
	dir := b.TempDir()
	mod := fmt.Sprintf("module etcdbinary\n\ngo 1.26\n\nrequire %s %s\n", module, bytes.TrimSpace(version))
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600); err != nil {
		b.Fatal(err)
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", "etcd", module)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("building etcd: %v\n%s", err, out)
	}
	return filepath.Join(dir, "etcd")
}

func freeAddress(b *testing.B) string {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func run(b *testing.B, cmd *exec.Cmd) {
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill() })
}

func end(b *testing.B, cmd *exec.Cmd) {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Error(err)
	}
	_ = cmd.Wait() // the signal is the error
}
