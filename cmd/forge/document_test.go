package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"modrev/helpers/forge"
)

// The commands of the first document, typed as they stand. This machine may have something else on the port of etcd or
// at one of the paths.
func TestTheCommandsOfTheFirstDocument(t *testing.T) {
	const etcd, log, stale = "127.0.0.1:2379", "/tmp/apiserver.log", "/tmp/stale.yaml"
	for _, path := range []string{log, stale} {
		if _, err := os.Lstat(path); err == nil {
			t.Skipf("%s is there already: remove it to have the commands typed as they stand", path)
		}
	}
	t.Cleanup(func() { os.Remove(stale) }) // the transcript does, unless it fails before
	perform(t, "d1.txtar", forge.Options{EtcdAddress: etcd, LogLink: log})
}

// What the second document asks for: the modular lab, and the trace of equality tokens.
func TestWhatTheSecondDocumentAsksFor(t *testing.T) {
	perform(t, "d2.txtar", forge.Options{})
}

// perform starts a lab and runs a transcript in a shell that is set up for it. Besides the commands of testscript it
// has
//
//	type FILE                      types the commands in a file at bash, no faster than a person does
//	number NAME... FILE PATTERN    sets $NAME to what the group in a pattern matches, for each match one
//	wire                           shows what has reached etcd since the last type, as forge wire does, without the time
//
// The file wire grows with each request.
func perform(t *testing.T, name string, o forge.Options) {
	t.Helper()
	t.Setenv("TMPDIR", temporary(t))
	o.Progress = os.Stderr
	var err error
	o.Command, err = os.Executable()
	require.NoError(t, err)
	f, err := forge.Start(t.Context(), o)
	if errors.Is(err, syscall.EADDRINUSE) {
		t.Skipf("the commands cannot be typed as they stand: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, end(f)) })
	require.NoError(t, f.Healthy(t.Context()))

	repo, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	variables := append(goVariables(t), "REPO="+repo)
	testscript.Run(t, testscript.Params{
		Files:              []string{filepath.Join("testdata", "transcript", name)},
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			if err := furnish(env, variables); err != nil {
				return err
			}
			env.Vars = append(env.Vars, f.State.Environment(os.Getenv("PATH"))...)
			w, err := newWitness(t.Context(), f.State, filepath.Join(env.WorkDir, "wire"))
			if err != nil {
				return err
			}
			env.Values["witness"] = w
			env.Defer(w.stop)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"type": cmdType, "number": cmdNumber, "wire": cmdWire,
		},
	})
}

func cmdType(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: type FILE")
	}
	ts.Check(ts.Value("witness").(*witness).mark())
	if err := ts.Exec("bash", args[0]); err == nil && neg {
		ts.Fatalf("the last command was to fail")
	} else if !neg {
		ts.Check(err)
	}
}

func cmdNumber(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: number NAME... FILE PATTERN")
	}
	names, file, pattern := args[:len(args)-2], args[len(args)-2], args[len(args)-1]
	found := regexp.MustCompile(`(?m)`+pattern).FindAllStringSubmatch(ts.ReadFile(file), -1)
	if len(found) != len(names) {
		ts.Fatalf("%s is there %d times in %s, expected %d", pattern, len(found), file, len(names))
	}
	for i, name := range names {
		ts.Setenv(name, found[i][1])
	}
}

func cmdWire(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: wire")
	}
	text, err := ts.Value("witness").(*witness).sinceMark()
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), text)
}

// witness follows the wire of a lab.
type witness struct {
	lab    forge.State
	client *kubernetes.Clientset
	file   string // what was seen
	before string // what was seen before the mark
	fences int
	stop   func()
}

// watched is what the transcripts are about.
const watched = "configmaps/default"

func newWitness(ctx context.Context, lab forge.State, path string) (*witness, error) {
	config, err := clientcmd.BuildConfigFromFlags("", lab.Kubeconfig)
	if err != nil {
		return nil, err
	}
	w := &witness{lab: lab, file: path}
	if w.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- forge.Follow(ctx, lab, forge.Filter{Key: watched}, file, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		return nil, errors.Join(err, file.Close())
	}
	w.stop = func() {
		cancel()
		<-done
		file.Close()
	}
	return w, nil
}

// mark waits until kube-apiserver's own cache holds what was written, as it does when a person types on.
func (w *witness) mark() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	maps := w.client.CoreV1().ConfigMaps("default")
	newest, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	_, err = maps.List(ctx, metav1.ListOptions{
		ResourceVersion: newest.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		return err
	}
	w.before, err = w.seen()
	return err
}

// sinceMark is what has reached etcd since the last mark.
func (w *witness) sinceMark() (string, error) {
	all, err := w.seen()
	return strings.TrimPrefix(all, w.before), err
}

var clock = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{3}  `)

// seen is what etcd had answered when it was called, without the time.
func (w *witness) seen() (string, error) {
	const fence = "/fence/" + watched // the key of requests that say how far the wire has been told
	w.fences++
	last := fmt.Sprintf("%s/%d", fence, w.fences)
	if out, err := exec.Command(filepath.Join(w.lab.Tools, "etcdctl"), "get", last).CombinedOutput(); err != nil {
		return "", fmt.Errorf("reading a key of etcd: %w: %s", err, out)
	}
	var seen strings.Builder
	err := until(goneLimit, func() error {
		text, err := os.ReadFile(w.file)
		if err != nil {
			return err
		}
		if !strings.Contains(string(text), last+" ") {
			return errors.New("the wire does not tell of a request that was answered")
		}
		seen.Reset()
		for line := range strings.Lines(clock.ReplaceAllString(string(text), "")) {
			if !strings.Contains(line, fence) {
				seen.WriteString(line)
			}
		}
		return nil
	})
	return seen.String(), err
}

// The lessons that a transcript names can be looked up.
func TestTheLessonsThatTranscriptsNameExist(t *testing.T) {
	ledger, err := os.ReadFile(filepath.Join("..", "..", "CLAIMS.md"))
	require.NoError(t, err)
	rows := map[string]string{}
	for line := range strings.Lines(string(ledger)) {
		if id, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(line, "| ") {
			rows[id] = line
		}
	}
	names := regexp.MustCompile(`(Erratum: )?\b((?:RV|CF|GU|OT|ML)\d+[a-z]?)\b`)
	files, err := filepath.Glob(filepath.Join("testdata", "transcript", "*.txtar"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range names.FindAllStringSubmatch(string(text), -1) {
			row := rows[found[2]]
			require.NotEmpty(t, row, "%s names the lesson %s, which CLAIMS.md does not list", file, found[2])
			if found[1] != "" {
				require.NotRegexp(t, `\|  \|\n$`, row, "%s names an erratum of %s, which has none", file, found[2])
			}
		}
	}
}
