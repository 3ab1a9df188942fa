package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"modrev/helpers/forge"
)

const (
	// upLimit is how long a lab may take until it is up, on a machine that is busy with other things.
	upLimit = 90 * time.Second
	// goneLimit is how long after the end of forge something of it may still be there.
	goneLimit = 5 * time.Second
)

// prepare builds what the labs of a test need, once and with progress, so that their own time is that of a start.
func prepare(t testing.TB) {
	t.Helper()
	require.NoError(t, forge.Prepare(t.Context(), forge.Options{Progress: os.Stderr}))
}

// process is a forge that was started for a test.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	grown  chan struct{} // has an element when there is new output
	tmp    string        // its TMPDIR

	mu  sync.Mutex
	out bytes.Buffer // what it printed
}

// launch starts a command. env are further variables for it.
func launch(tmp string, env []string, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), exited: make(chan struct{}), grown: make(chan struct{}, 1), tmp: tmp}
	p.cmd.Env = append(os.Environ(), "TMPDIR="+tmp, forge.LabVariable+"=")
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	// A process group of its own, as at a terminal, where Ctrl-C is for the group.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = goneLimit
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // the state says how it ended
	}()
	return p, nil
}

// Write is where the output of the process goes.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.grown <- struct{}{}:
	default:
	}
	return p.out.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// prints waits until the output matches a pattern.
func (p *process) prints(pattern string) error {
	wanted := regexp.MustCompile(pattern)
	limit := time.After(upLimit)
	why := errors.New("its time is up")
	for ended := false; ; {
		if wanted.MatchString(p.output()) {
			return nil
		}
		if ended {
			return fmt.Errorf("waiting until it prints %q: %w; it printed:\n%s", pattern, why, p.output())
		}
		select {
		case <-p.grown:
		case <-p.exited:
			ended, why = true, errors.New("it has ended")
		case <-limit:
			ended = true
		}
	}
}

// up waits until the lab is up and returns its state.
func (p *process) up() (forge.State, error) {
	if err := p.prints(`(?s)The lab is up.*forge wire\n`); err != nil {
		return forge.State{}, err
	}
	dir := regexp.MustCompile(`FORGE_LAB='(.*)'`).FindStringSubmatch(p.output())
	if dir == nil {
		return forge.State{}, fmt.Errorf("it does not say where its folder is:\n%s", p.output())
	}
	return forge.Running(dir[1])
}

// ends waits until the process has ended and returns its exit status, -1 when a signal ended it.
func (p *process) ends() (int, error) {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(patience + goneLimit):
		return 0, fmt.Errorf("it has not ended; it printed:\n%s", p.output())
	}
}

// kill ends whatever a failed test has left.
func (p *process) kill() {
	select {
	case <-p.exited:
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.exited
	}
}

// until tries until there is no error, or the limit is reached; then it returns the last one.
func until(limit time.Duration, try func() error) error {
	var last error
	tried := func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	}
	err := wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, limit, true, tried)
	if err == nil {
		return nil
	}
	return last
}

// left says what is still there of a lab that had the state given; nil if nothing is, soon enough.
func left(s forge.State) error {
	return until(goneLimit, func() error {
		var all []error
		for _, path := range []string{s.Dir, s.Log} {
			if _, err := os.Lstat(path); path != "" && !errors.Is(err, os.ErrNotExist) {
				all = append(all, fmt.Errorf("%s is still there", path))
			}
		}
		for _, address := range []string{s.Server, s.Etcd} {
			if u, err := url.Parse(address); err == nil && u.Host != "" {
				if c, err := net.Dial("tcp", u.Host); err == nil {
					c.Close()
					all = append(all, fmt.Errorf("something still listens on %s", u.Host))
				}
			}
		}
		return errors.Join(append(all, processes(s.Dir))...)
	})
}

// processes lists those that have a path in their command line.
func processes(path string) error {
	out, err := exec.Command("ps", "-axww", "-o", "pid=,command=").Output()
	if err != nil {
		return fmt.Errorf("listing the processes: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, path) {
			return fmt.Errorf("a process is left: %s", strings.TrimSpace(line))
		}
	}
	return nil
}

// empty says what is left in a folder for temporary files; nil if nothing is, soon enough.
func empty(tmp string) error {
	return until(goneLimit, func() error {
		entries, err := os.ReadDir(tmp)
		if err != nil {
			return err
		}
		for _, e := range entries {
			return fmt.Errorf("%s is left", filepath.Join(tmp, e.Name()))
		}
		return processes(tmp)
	})
}

// shortTemp makes a folder for temporary files whose path leaves room for the sockets in it: the path of a
// unix socket has 103 bytes on macOS.
func shortTemp() (string, error) {
	tmp, err := os.MkdirTemp("/tmp", "forge")
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(tmp)
}

func temporary(t testing.TB) string {
	t.Helper()
	tmp, err := shortTemp()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(tmp)) })
	return tmp
}

// freePort is a port of 127.0.0.1 that nobody listens on.
func freePort() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

func TestHoweverForgeEndsNothingIsLeftButTheFolderThatWasAskedFor(t *testing.T) {
	prepare(t)
	for name, c := range map[string]struct {
		signal syscall.Signal
		group  bool // at a terminal the signal goes to the whole process group
		status int
	}{
		"Ctrl-C":  {syscall.SIGINT, true, 0},
		"SIGTERM": {syscall.SIGTERM, false, 0},
		"SIGHUP":  {syscall.SIGHUP, true, -1},
		"SIGKILL": {syscall.SIGKILL, false, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tmp, data, link := temporary(t), filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "apiserver.log")
			port, err := freePort()
			require.NoError(t, err)
			p, err := launch(tmp, nil, "forge", "-etcd", "127.0.0.1:"+port, "-log", link, "-data", data)
			require.NoError(t, err)
			defer p.kill()
			state, err := p.up()
			require.NoError(t, err)
			require.FileExists(t, link)
			require.Equal(t, "http://127.0.0.1:"+port, state.Etcd)

			pid := p.cmd.Process.Pid
			if c.group {
				pid = -pid
			}
			require.NoError(t, syscall.Kill(pid, c.signal))
			status, err := p.ends()
			require.NoError(t, err)
			require.Equal(t, c.status, status, p.output())
			require.NoError(t, left(state))
			require.NoError(t, empty(tmp))
			require.DirExists(t, filepath.Join(data, "member"), "the data was asked for")
		})
	}
}

func TestEndedWhileItStartsForgeLeavesNothing(t *testing.T) {
	prepare(t)
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGKILL} {
		after := time.Duration(rand.N(int64(1500 * time.Millisecond)))
		tmp := temporary(t)
		p, err := launch(tmp, nil, "forge")
		require.NoError(t, err)
		defer p.kill()
		select {
		case <-time.After(after):
		case <-p.exited:
			t.Fatalf("it has ended by itself:\n%s", p.output())
		}
		require.NoError(t, p.cmd.Process.Signal(signal))
		status, err := p.ends()
		require.NoError(t, err)
		require.NoError(t, empty(tmp), "%v after %v", signal, after)
		// In its first milliseconds a process has no say in what a signal does.
		if status != -1 && !strings.Contains(p.output(), "The lab is up") {
			require.Contains(t, p.output(), "the live lab was ended before it was up", "%v after %v", signal, after)
			require.Len(t, strings.Split(strings.TrimSpace(p.output()), "\n"), 1, "one sentence says so")
		}
	}
}

// goRun is what a reader types, "go run ./cmd/forge", from this folder.
var goRun = []string{"run", "."}

// prepareGoRun has what a reader types find everything built.
func prepareGoRun(t testing.TB) {
	t.Helper()
	prepare(t)
	help := exec.CommandContext(t.Context(), "go", append(goRun, "help")...)
	out, err := help.CombinedOutput()
	require.NoError(t, err, string(out))
}

// Nobody who types "go run ./cmd/forge &" knows the process id of forge.
func TestForgeEndsWithTheGoCommandThatRunsIt(t *testing.T) {
	prepareGoRun(t)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			tmp, work := temporary(t), t.TempDir()
			// What the go command itself leaves behind when it is killed is not forge's: it has a folder of its own.
			p, err := launch(tmp, []string{"GOTMPDIR=" + work}, "go", goRun...)
			require.NoError(t, err)
			defer p.kill()
			state, err := p.up()
			require.NoError(t, err)
			require.NotEqual(t, p.cmd.Process.Pid, state.PID)
			defer func() {
				if t.Failed() { // nobody else would end it
					_ = syscall.Kill(state.PID, syscall.SIGKILL)
				}
			}()
			require.NoError(t, p.cmd.Process.Signal(signal))
			_, err = p.ends()
			require.NoError(t, err)
			require.NoError(t, left(state))
			require.NoError(t, empty(tmp))
		})
	}
}

// With an empty cache folder, forge builds kube-apiserver first.
func TestABuildEndsWithTheGoCommandThatRunsForge(t *testing.T) {
	prepareGoRun(t)
	cache := t.TempDir()
	env := []string{
		"XDG_CACHE_HOME=" + cache, "HOME=" + cache, "KUBEBUILDER_ASSETS=", "GOTMPDIR=" + t.TempDir(),
		"GOCACHE=" + goEnv(t, "GOCACHE"), "GOMODCACHE=" + goEnv(t, "GOMODCACHE"),
	}
	p, err := launch(temporary(t), env, "go", goRun...)
	require.NoError(t, err)
	defer p.kill()
	require.NoError(t, p.prints(`into  `+cache))
	require.NoError(t, p.cmd.Process.Kill())
	_, err = p.ends()
	require.NoError(t, err)
	require.NoError(t, until(goneLimit, func() error { return processes(cache) }))
	built, err := filepath.Glob(filepath.Join(cache, "*", "*", "kube-apiserver"))
	require.NoError(t, err)
	require.Empty(t, built)
}
