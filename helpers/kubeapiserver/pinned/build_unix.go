//go:build unix

package pinned

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// temporary starts the names of the folders that hold unfinished work. Whoever holds the lock may
// remove all of them: they belong to builders that are dead.
const temporary = "unfinished-"

func executable(path string) error { return unix.Access(path, unix.X_OK) }

// build makes the target, or waits for another process that is doing so.
func (b *builder) build(ctx context.Context) (err error) {
	start := time.Now()
	if err := os.MkdirAll(b.folder, 0o755); err != nil {
		return b.diskError(err)
	}
	lock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.unlock()
	if b.built() {
		return nil
	}
	b.sweep()
	goCmd, err := exec.LookPath("go")
	if err != nil {
		return b.noGo(err)
	}
	work, err := os.MkdirTemp(b.folder, temporary)
	if err != nil {
		return b.diskError(err)
	}
	defer os.RemoveAll(work)
	m := &meter{out: b.progress, start: start, state: lock.file}
	b.announce(m)

	// Print nothing after the return.
	beating, stop := context.WithCancel(ctx)
	var beats sync.WaitGroup
	beats.Go(func() { m.beat(beating) })
	defer beats.Wait()
	defer stop()

	g, err := startGroup(lock.file)
	if err != nil {
		return fmt.Errorf("building %s: %w", b, err)
	}
	defer g.end() // before the work folder is removed
	run := goRunner{group: g, cmd: goCmd, dir: b.Module, env: environment(os.Environ(), b.Module, work), meter: m}

	if err := b.compile(ctx, run, filepath.Join(work, b.Name)); err != nil {
		if ctx.Err() != nil {
			return b.cutOff(ctx, m)
		}
		return b.explain(err, m.output())
	}
	if now, _, err := b.pin(); err == nil && now != b.pinned {
		m.say("the source has changed meanwhile")
		return errChanged
	}
	if err := publish(filepath.Join(work, b.Name), b.target); err != nil {
		return b.diskError(err)
	}
	m.say("built %s", b)
	if len(b.Sources) > 0 {
		b.forget()
	}
	return nil
}

// announce says what is about to happen.
func (b *builder) announce(m *meter) {
	took := ""
	if b.Cost > 0 {
		took = fmt.Sprintf(": %s on %s,\nless if Go's build cache has parts of it", b.estimate(1), cores())
	}
	fmt.Fprintf(b.progress, "Building %s from source, once%s.\n", b, took)
	fmt.Fprintf(b.progress, "   into  %s\n", b.target)
	if b.Avoid != "" {
		fmt.Fprintf(b.progress, "     or  %s\n", b.Avoid)
	}
	writeState(m.state, "starting")
}

// estimate says how long it takes to compile a share of all packages.
func (b *builder) estimate(share float64) string {
	return roughly(time.Duration(share * float64(b.Cost) / float64(runtime.GOMAXPROCS(0))))
}

func cores() string {
	if n := runtime.GOMAXPROCS(0); n > 1 {
		return fmt.Sprintf("%d processors", n)
	}
	return "one processor"
}

// compile runs the go command: once to learn what there is to do, once to do it.
func (b *builder) compile(ctx context.Context, run goRunner, out string) error {
	flags := []string{"-ldflags=" + b.LDFlags}
	var list bytes.Buffer
	err := run.run(ctx, &list, append([]string{"list", "-deps", "-f={{.Stale}} {{.ImportPath}}"}, append(flags, b.Package)...)...)
	if err != nil {
		return err
	}
	packages, stale := map[string]bool{}, 0
	for lines := bufio.NewScanner(&list); lines.Scan(); {
		old, pkg, _ := strings.Cut(lines.Text(), " ")
		packages[pkg] = true
		if old == "true" {
			stale++
		}
	}
	run.meter.plan(packages, b.Package, stale)
	if b.Cost > 0 {
		run.meter.say("%d of %d packages to compile: %s", stale, len(packages),
			b.estimate(float64(stale)/float64(max(1, len(packages)))))
	}
	return run.run(ctx, io.Discard, append([]string{"build", "-v", "-o=" + out}, append(flags, b.Package)...)...)
}

// publish moves a finished executable to its place. It is on the disk before its name is.
func publish(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() { // nobody's, and no file can take its place
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
	return os.Rename(from, to)
}

// sweep removes what dead builders have left. What cannot be removed only costs space.
func (b *builder) sweep() {
	left, err := filepath.Glob(filepath.Join(b.folder, temporary+"*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		os.RemoveAll(dir)
	}
}

// goRunner runs the go command in the pinned module.
type goRunner struct {
	group *group
	cmd   string
	dir   string
	env   []string
	meter *meter
}

func (r goRunner) run(ctx context.Context, stdout io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, r.cmd, args...)
	cmd.Dir = r.dir
	cmd.Env = r.env
	cmd.Stdout = stdout
	cmd.Stderr = r.meter
	r.group.join(cmd)
	return cmd.Run()
}

// environment is the environment of the go command: the user's, without what makes it build for
// another platform, in another way, or from other source. A variable that is set here also beats
// what go env -w has stored; an empty one would not. What says where to get and keep modules
// (GOPROXY, GOMODCACHE, GOCACHE, …) stays, and so does CGO_ENABLED: the packages that this program
// was compiled from are then found in the build cache.
func environment(user []string, dir, work string) []string {
	set := []string{
		// What a version control system says of the repository decides nothing, and git may refuse to say it.
		"GOFLAGS=-mod=readonly -buildvcs=false",
		"GOWORK=off",
		"GO111MODULE=on",
		"GOOS=" + runtime.GOOS,
		"GOARCH=" + runtime.GOARCH,
		"PWD=" + dir,
		// Unfinished work of the go command and of a C compiler is swept with ours.
		"GOTMPDIR=" + work,
		"TMPDIR=" + work,
	}
	ours := map[string]bool{"GOEXPERIMENT": true, "GODEBUG": true}
	for _, kv := range set {
		name, _, _ := strings.Cut(kv, "=")
		ours[name] = true
	}
	var env []string
	for _, kv := range user {
		if name, _, _ := strings.Cut(kv, "="); !ours[name] {
			env = append(env, kv)
		}
	}
	return append(env, set...)
}

// cutOff says that ctx ended during the build.
func (b *builder) cutOff(ctx context.Context, m *meter) error {
	what := "the build of %s was interrupted"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		what = "the time for building %s was up"
	}
	return fmt.Errorf(what+" after %s (%s); Go's build cache keeps what was compiled: %s (%w)",
		b, clock(time.Since(m.start)), m.now(), b.again(), context.Cause(ctx))
}
