package pinned

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// These environment variables tell this test binary to be a process that builds hello and does
// nothing else.
const (
	childModule = "PINNED_TEST_MODULE"
	childCache  = "PINNED_TEST_CACHE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childModule); dir != "" {
		path, err := Build(context.Background(), hello(dir), Options{Progress: os.Stderr, CacheDir: os.Getenv(childCache)})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Print(path)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// hello is a tool that the module in dir pins.
func hello(dir string) Tool {
	return Tool{
		Module:  dir,
		Package: "example.com/hello",
		LDFlags: "-X main.version=v1.2.3",
		Space:   "3 MB",
		Avoid:   "say hello yourself",
		Command: "make hello",
	}
}

const helloMain = `package main

var version string

func main() { print("hello ", version) }
`

// pinnedHello writes a module that pins hello, whose source is a folder beside it, so that it can
// be built without a network.
func pinnedHello(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), `module pin

go 1.21

require example.com/hello v1.2.3

replace example.com/hello => ./hello
`)
	write(t, filepath.Join(dir, "hello/go.mod"), "module example.com/hello\n\ngo 1.21\n")
	write(t, filepath.Join(dir, "hello/main.go"), helloMain)
	return dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

// offline keeps the go command from the network, so that a mistake in a test is seen at once.
func offline(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOTOOLCHAIN", "local")
}

// fakeGo puts a shell script into PATH in the place of the go command.
func fakeGo(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go"), "#!/bin/sh\n"+script)
	require.NoError(t, os.Chmod(filepath.Join(dir, "go"), 0o755))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// slowGo puts a go command into PATH that stays in the middle of a build, with half an executable
// and a child that stands for a compiler, until it is released. It returns the build's log, with a
// line for each build, and a function that waits until the next build is there and returns the
// handle on it.
func slowGo(t *testing.T) (log string, underWay func() *held) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	write(t, log, "")
	fakeGo(t, fmt.Sprintf(`
for a; do case $a in -o=*) out=${a#-o=} ;; esac; done
echo building >>'%s'
printf '#!/bin/sh\n' >"$out"
exec 8<'%s'
cat <&8 &
wait
printf 'echo hello\n' >>"$out"
chmod +x "$out"
`, log, fifo))
	return log, func() *held {
		t.Helper()
		opened := make(chan int, 1)
		go func() { // opening a fifo waits for the other side
			fd, err := unix.Open(fifo, unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				fd = -1
			}
			opened <- fd
		}()
		select {
		case fd := <-opened:
			require.NotEqual(t, -1, fd)
			return &held{t, fd}
		case <-time.After(30 * time.Second):
			require.FailNow(t, "no build was under way within 30 s")
			return nil
		}
	}
}

// held is a build that slowGo holds.
type held struct {
	t  *testing.T
	fd int
}

func (h *held) release() { require.NoError(h.t, unix.Close(h.fd)) }

// gone waits until no process of the build is left.
func (h *held) gone() {
	h.t.Helper()
	defer h.release()
	fds := []unix.PollFd{{Fd: int32(h.fd)}}
	deadline := time.Now().Add(5 * time.Second)
	for {
		_, err := unix.Poll(fds, int(time.Until(deadline).Milliseconds()))
		if err != unix.EINTR {
			require.NoError(h.t, err)
			break
		}
	}
	require.NotZero(h.t, fds[0].Revents&(unix.POLLERR|unix.POLLHUP), "the processes of a build outlive it by 5 s")
}

// files lists all files below dir, relative to it.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			all = append(all, rel)
		}
		return err
	}))
	return all
}

// child starts another process that builds hello.
func child(t *testing.T, module, cache string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childModule+"="+module, childCache+"="+cache)
	return cmd
}

func TestBuildMakesAnExecutableAndThenFindsIt(t *testing.T) {
	offline(t)
	module, cache := pinnedHello(t), t.TempDir()

	var progress bytes.Buffer
	path, err := Build(t.Context(), hello(module), Options{Progress: &progress, CacheDir: cache})
	require.NoError(t, err)

	out, err := exec.Command(path).CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, "hello v1.2.3", string(out))
	assert.Contains(t, progress.String(), "Building hello v1.2.3 from source, once")
	assert.Contains(t, progress.String(), path)
	assert.Contains(t, progress.String(), "say hello yourself")
	folder := filepath.Base(filepath.Dir(path))
	assert.ElementsMatch(t, []string{folder + "/hello", folder + "/lock"}, files(t, cache))

	progress.Reset()
	t.Setenv("PATH", "") // whatever runs now is not the go command
	again, err := Build(t.Context(), hello(module), Options{Progress: &progress, CacheDir: cache})
	require.NoError(t, err)
	assert.Equal(t, path, again)
	assert.Empty(t, progress.String())
}

func TestTheUsersEnvironmentDoesNotChangeWhatIsBuilt(t *testing.T) {
	offline(t)
	module, cache := pinnedHello(t), t.TempDir()
	t.Setenv("GOFLAGS", "-mod=vendor -race -tags=x -trimpath -buildmode=pie")
	t.Setenv("GOOS", "plan9")
	t.Setenv("GOARCH", "arm")
	t.Setenv("GOWORK", "/nonexistent/go.work")
	t.Setenv("GO111MODULE", "off")
	t.Setenv("TMPDIR", "/nonexistent")
	t.Setenv("GOTMPDIR", "/nonexistent")
	path, err := Build(t.Context(), hello(module), Options{CacheDir: cache})
	require.NoError(t, err)
	assert.NoError(t, exec.Command(path).Run())
}

func TestAChangedPinHasAnotherPlace(t *testing.T) {
	tool := hello(pinnedHello(t))
	targets := map[string]bool{}
	place := func() {
		t.Helper()
		b, err := prepare(tool, Options{})
		require.NoError(t, err)
		targets[b.target] = true
	}
	place()
	tool.LDFlags = "-s"
	place()
	write(t, filepath.Join(tool.Module, "go.sum"), "")
	place() // an empty go.sum says no more than none
	assert.Len(t, targets, 2)
	mod, err := os.ReadFile(filepath.Join(tool.Module, "go.mod"))
	require.NoError(t, err)
	write(t, filepath.Join(tool.Module, "go.mod"), string(mod)+"\n// changed\n")
	place()
	assert.Len(t, targets, 3)
}

func TestTwoThatBuildAtOnceBuildOnce(t *testing.T) {
	log, underWay := slowGo(t)
	module, cache := pinnedHello(t), t.TempDir()
	first := child(t, module, cache)
	var firstOut bytes.Buffer
	first.Stdout = &firstOut
	require.NoError(t, first.Start())
	build := underWay()

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Build(ctx, hello(module), Options{CacheDir: cache})
	require.ErrorIs(t, err, context.DeadlineExceeded, "it waits, and can stop waiting")
	oneSentence(t, err, "building hello v1.2.3 was cut off", "run `make hello`")

	second := make(chan string, 1)
	go func() {
		path, err := Build(t.Context(), hello(module), Options{CacheDir: cache})
		assert.NoError(t, err)
		second <- path
	}()
	build.release()
	require.NoError(t, first.Wait())
	assert.Equal(t, firstOut.String(), <-second)
	builds, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Equal(t, "building\n", string(builds))
}

func TestAKilledBuilderLeavesNothing(t *testing.T) {
	_, underWay := slowGo(t)
	module, cache := pinnedHello(t), t.TempDir()
	victim := child(t, module, cache)
	require.NoError(t, victim.Start())
	build := underWay()

	require.NoError(t, victim.Process.Kill())
	require.Error(t, victim.Wait())
	build.gone()
	left := files(t, cache)
	require.Len(t, left, 2, "the victim was to be killed with half an executable on the disk: %q", left)

	built := make(chan string, 1)
	go func() {
		path, err := Build(t.Context(), hello(module), Options{CacheDir: cache})
		assert.NoError(t, err)
		built <- path
	}()
	underWay().release()
	path := <-built
	out, err := exec.Command(path).Output()
	require.NoError(t, err)
	assert.Equal(t, "hello\n", string(out))
	folder := filepath.Base(filepath.Dir(path))
	assert.ElementsMatch(t, []string{folder + "/hello", folder + "/lock"}, files(t, cache))
}

func TestABuildThatIsCutOffLeavesNothingAndSaysHowToGoOn(t *testing.T) {
	_, underWay := slowGo(t)
	module, cache := pinnedHello(t), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := Build(ctx, hello(module), Options{CacheDir: cache})
		done <- err
	}()
	build := underWay()
	cancel()
	err := <-done
	require.ErrorIs(t, err, context.Canceled)
	oneSentence(t, err, "Go's build cache keeps what was compiled", "run `make hello`", "no time limit")
	build.gone()
	left := files(t, cache)
	require.Len(t, left, 1)
	assert.Equal(t, "lock", filepath.Base(left[0]))
}

// oneSentence checks that an error is one line and has these words.
func oneSentence(t *testing.T, err error, words ...string) {
	t.Helper()
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "\n")
	for _, w := range words {
		assert.Contains(t, err.Error(), w)
	}
	t.Log(err)
}

func TestABuildThatFailsShowsTheGoCommandsLastLinesAndWhatItNeeds(t *testing.T) {
	offline(t)
	module, cache := pinnedHello(t), t.TempDir()
	write(t, filepath.Join(module, "hello/main.go"), "package main\n\nfunc main() { nonsense }\n")
	_, err := Build(t.Context(), hello(module), Options{CacheDir: cache})
	for _, words := range []string{
		"building hello v1.2.3: the go command failed (exit status 1); its last lines:\n", "undefined: nonsense\n",
		"It needs 3 MB of free space for Go's caches (GOCACHE", "GOPROXY", ", or say hello yourself",
	} {
		assert.ErrorContains(t, err, words)
	}
	left := files(t, cache)
	require.Len(t, left, 1)
	assert.Equal(t, "lock", filepath.Base(left[0]))

	t.Setenv("PATH", t.TempDir())
	_, err = Build(t.Context(), hello(module), Options{CacheDir: cache})
	oneSentence(t, err, "needs the go command, and it is not in PATH", "https://go.dev/dl", "say hello yourself")
}

func TestACacheFolderThatCannotBeUsed(t *testing.T) {
	_, err := Build(t.Context(), hello(pinnedHello(t)), Options{CacheDir: "/dev/null/modrev"})
	oneSentence(t, err, "/dev/null/modrev", "not a directory", "free some space", cacheVariable(), "say hello yourself")

	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	_, err = Build(t.Context(), hello(pinnedHello(t)), Options{})
	oneSentence(t, err, "no cache folder", "set HOME")
}

func TestThereIsALineAtLeastEveryTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := &builder{name: "hello", version: "v1.2.3", progress: &out, start: time.Now()}
		doing := strings.Repeat("long/", 40)
		stop := b.heartbeat(func() string { return doing })
		<-time.After(2*time.Minute + time.Second) // by the test's own clock, which does not wait
		stop()
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		assert.GreaterOrEqual(t, len(lines), 12)
		for _, line := range lines {
			assert.Regexp(t, `^   \d:\d\d  long/`, line)
			assert.Len(t, line, 100)
		}
	})
}

func TestTheEndOfTheGoCommandsOutputIsKept(t *testing.T) {
	var end tail
	for i := range 10_000 {
		fmt.Fprintf(&end, "line %d\n", i)
	}
	assert.Equal(t, []string{"line 9998", "line 9999"}, end.lines(2))
	assert.Equal(t, "line 9999", end.last())
	assert.Less(t, len(end.text), 20_000)
	assert.Empty(t, new(tail).last())
}

func TestAModuleThatPinsNothing(t *testing.T) {
	tool := hello(t.TempDir())
	_, err := Version(tool)
	oneSentence(t, err, "there is no "+filepath.Join(tool.Module, "go.mod"), "checkout of the repository")
	write(t, filepath.Join(tool.Module, "go.mod"), "module pin\n")
	_, err = Version(tool)
	oneSentence(t, err, "no required module provides example.com/hello", "go get -tool")
	write(t, filepath.Join(tool.Module, "go.mod"), "nonsense nonsense\n")
	_, err = Version(tool)
	require.Error(t, err)
}

func TestTheVersionIsThatOfTheModuleOfThePackage(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), `module pin

require (
	example.com/a v1.0.0
	example.com/a/tool/v3 v3.1.0
	example.com/ab v1.1.0
	example.com/c v0.0.0
)

replace example.com/c => example.com/c v0.37.2
`)
	for pkg, want := range map[string]string{
		"example.com/a":               "v1.0.0",
		"example.com/a/cmd/x":         "v1.0.0",
		"example.com/a/tool/v3":       "v3.1.0",
		"example.com/a/tool/v3/cmd/y": "v3.1.0",
		"example.com/ab/z":            "v1.1.0",
		"example.com/c/cmd":           "v0.37.2",
	} {
		got, err := Version(Tool{Module: dir, Package: pkg})
		require.NoError(t, err)
		assert.Equal(t, want, got, pkg)
	}
}

func TestCommandName(t *testing.T) {
	for pkg, want := range map[string]string{
		"k8s.io/kubernetes/cmd/kube-apiserver": "kube-apiserver",
		"go.etcd.io/etcd/etcdctl/v3":           "etcdctl",
		"github.com/itchyny/gojq/cmd/gojq":     "gojq",
	} {
		assert.Equal(t, want, commandName(pkg))
	}
}

func TestTheRepositoryIsFoundFromThisPackageAndFromBelowTheRoot(t *testing.T) {
	wd, err := os.Getwd()
	require.NoError(t, err)
	repo, err := RepoRoot()
	require.NoError(t, err)
	assert.Equal(t, wd, filepath.Join(repo, "helpers/kubeapiserver/pinned"))

	dir, ok := above(filepath.Join(repo, "helpers/kubeapiserver/v1.37")) // a nested module is not the root
	require.True(t, ok)
	assert.Equal(t, repo, dir)
	_, ok = above(t.TempDir())
	assert.False(t, ok)
}
