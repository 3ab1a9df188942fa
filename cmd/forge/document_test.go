package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"modrev/helpers/forge"
	"modrev/helpers/transcript"
)

// Where the first document has things.
const (
	documentEtcd  = "127.0.0.1:2379"
	documentLog   = "/tmp/apiserver.log"
	documentStale = "/tmp/stale.yaml"
)

// The commands of the first document, typed as they stand. Where this machine has something else on the port of
// etcd or at one of the paths, they run against another port and other paths, and the test says so.
func TestTheCommandsOfTheFirstDocument(t *testing.T) {
	d1 := readTranscript(t, "d1.txtar")
	tmp := temporary(t)
	t.Setenv("TMPDIR", tmp)
	t.Setenv(forge.LabVariable, "")

	paths := map[string]string{}
	f, err := document(t, documentEtcd, documentLog)
	if err == nil {
		if _, stale := os.Lstat(documentStale); stale == nil {
			paths[documentStale] = filepath.Join(tmp, "stale.yaml")
			t.Logf("%s is there already: the commands use %s instead; remove it to have them typed as they stand", documentStale, paths[documentStale])
		} else {
			t.Cleanup(func() { os.Remove(documentStale) }) // the transcript does, unless it fails before
		}
	} else {
		require.True(t, errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, fs.ErrExist), err)
		port, portErr := freePort()
		require.NoError(t, portErr)
		paths[documentEtcd] = "127.0.0.1:" + port
		paths[documentLog] = filepath.Join(tmp, "apiserver.log")
		paths[documentStale] = filepath.Join(tmp, "stale.yaml")
		t.Logf("the commands run against other paths here, because %v", err)
		f, err = document(t, paths[documentEtcd], paths[documentLog])
		require.NoError(t, err)
	}
	perform(t, f, d1, paths)
}

// What the second document asks for: the modular lab, and the trace of equality tokens.
func TestWhatTheSecondDocumentAsksFor(t *testing.T) {
	d2 := readTranscript(t, "d2.txtar")
	t.Setenv("TMPDIR", temporary(t))
	t.Setenv(forge.LabVariable, "")
	f, err := document(t, "", "")
	require.NoError(t, err)
	perform(t, f, d2, nil)
}

// document starts a lab as the first document has it.
func document(t *testing.T, etcd, log string) (*forge.Forge, error) {
	self, err := os.Executable()
	require.NoError(t, err)
	f, err := forge.Start(t.Context(), forge.Options{EtcdAddress: etcd, LogLink: log, Command: self, Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, f.Stop(ctx))
	})
	return f, nil
}

func readTranscript(t *testing.T, name string) *transcript.Transcript {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "transcript", name))
	require.NoError(t, err)
	tr, err := transcript.Parse(name, text)
	require.NoError(t, err)
	return tr
}

// perform types a transcript into a shell that is set up for a lab.
func perform(t *testing.T, f *forge.Forge, tr *transcript.Transcript, paths map[string]string) {
	t.Helper()
	w := newWitness(t, f.State)
	require.NoError(t, f.Healthy(t.Context()))
	require.NoError(t, tr.Run(t.Context(), transcript.Stage{
		Dir:    filepath.Join("..", ".."),
		Env:    append(os.Environ(), f.State.Environment(os.Getenv("PATH"))...),
		Paths:  paths,
		Wire:   w.wire,
		Settle: w.settle,
	}))
}

// witness follows the wire of a lab for a transcript.
type witness struct {
	etcd   *clientv3.Client
	client *kubernetes.Clientset

	mu     sync.Mutex
	text   strings.Builder
	fences int
}

// watched is what the transcripts are about.
const watched = "configmaps/default"

func newWitness(t *testing.T, s forge.State) *witness {
	t.Helper()
	w := &witness{}
	var err error
	w.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{s.Etcd}})
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	require.NoError(t, err)
	w.client, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	ready, done := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- forge.Follow(ctx, s, forge.Filter{Key: watched}, w, func() { close(ready) }) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, w.etcd.Close())
	})
	select {
	case <-ready:
	case err := <-done:
		done <- err
		require.NoError(t, err)
	}
	return w
}

// Write takes what [forge.Follow] tells.
func (w *witness) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

var clock = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{3}  `)

// fence is the key of requests that say how far the wire has been told.
const fence = "/fence/" + watched

// wire returns all requests that have been answered when it is called, without the time.
func (w *witness) wire(ctx context.Context) ([]string, error) {
	w.fences++
	last := fmt.Sprintf("%s/%d ", fence, w.fences)
	if _, err := w.etcd.Get(ctx, strings.TrimSpace(last)); err != nil {
		return nil, err
	}
	var all []string
	err := until(goneLimit, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !strings.Contains(w.text.String(), last) {
			return errors.New("the wire does not tell of a request that was answered")
		}
		all = nil
		for line := range strings.Lines(clock.ReplaceAllString(w.text.String(), "")) {
			if !strings.Contains(line, fence) {
				all = append(all, strings.TrimSuffix(line, "\n"))
			}
		}
		return nil
	})
	return all, err
}

// settle waits until kube-apiserver's own cache holds what was written: who types is slower than a machine.
func (w *witness) settle(ctx context.Context) error {
	maps := w.client.CoreV1().ConfigMaps("default")
	newest, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err = maps.List(ctx, metav1.ListOptions{
		ResourceVersion: newest.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	return err
}

// Who reads a transcript may look up the lessons that it names.
func TestTheLessonsThatTranscriptsNameExist(t *testing.T) {
	ledger, err := os.ReadFile(filepath.Join("..", "..", "CLAIMS.md"))
	require.NoError(t, err)
	rows := map[string]string{}
	for line := range strings.Lines(string(ledger)) {
		if id, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(line, "| ") {
			rows[id] = line
		}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "transcript", "*.txtar"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`(Erratum: )?\b((?:RV|CF|GU|OT|ML)\d+[a-z]?)\b`).FindAllStringSubmatch(string(text), -1) {
			row := rows[found[2]]
			require.NotEmpty(t, row, "%s names the lesson %s, which CLAIMS.md does not list", file, found[2])
			if found[1] != "" {
				require.NotRegexp(t, `\|  \|\n$`, row, "%s names an erratum of %s, which has none", file, found[2])
			}
		}
	}
}
