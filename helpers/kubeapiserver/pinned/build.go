package pinned

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// builder is a Tool that was looked up: what is to be built, and where.
type builder struct {
	Tool
	name     string
	version  string
	target   string // the executable
	progress io.Writer

	start  time.Time
	output tail // of the go command
}

// String names the tool and its version.
func (b *builder) String() string { return b.name + " " + b.version }

// built tells whether there is an executable. It came there by a rename, so it is whole.
func (b *builder) built() bool {
	info, err := os.Stat(b.target)
	return err == nil && info.Mode().IsRegular()
}

// unfinished starts the names of the folders that hold unfinished work. If you hold the lock, you may remove all of
// them: they belong to builders that are dead.
const unfinished = "unfinished-"

// build makes the target, or waits for another process that is doing so.
func (b *builder) build(ctx context.Context) error {
	b.start = time.Now()
	folder := filepath.Dir(b.target)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return b.folderError(err)
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if b.built() {
		return nil
	}
	left, _ := filepath.Glob(filepath.Join(folder, unfinished+"*")) // the pattern is a good one
	for _, dir := range left {
		os.RemoveAll(dir) // what stays only costs space
	}
	work, err := os.MkdirTemp(folder, unfinished)
	if err != nil {
		return b.folderError(err)
	}
	defer os.RemoveAll(work)

	fmt.Fprintf(b.progress, "Building %s from source, once; this can take some minutes.\n", b)
	fmt.Fprintf(b.progress, "   into  %s\n", b.target)
	if b.Avoid != "" {
		fmt.Fprintf(b.progress, "     or  %s\n", b.Avoid)
	}
	made := filepath.Join(work, b.name)
	if err := b.compile(ctx, made); err != nil {
		return err
	}
	if err := publish(made, b.target); err != nil {
		return b.folderError(err)
	}
	b.say("built " + b.String())
	return nil
}

// lock waits until no other process builds the target. The kernel takes the lock from a process that dies.
func (b *builder) lock(ctx context.Context) (unlock func(), err error) {
	defer b.heartbeat(func() string { return "waiting for another process, which is building " + b.String() })()
	type result struct {
		unlock func()
		err    error
	}
	locked := make(chan result, 1)
	go func() {
		unlock, err := lockedfile.MutexAt(filepath.Join(filepath.Dir(b.target), "lock")).Lock()
		locked <- result{unlock, err}
	}()
	select {
	case r := <-locked:
		if r.err != nil {
			return nil, b.folderError(r.err)
		}
		return r.unlock, nil
	case <-ctx.Done():
		go func() {
			if r := <-locked; r.err == nil { // too late: it is given back
				r.unlock()
			}
		}()
		return nil, b.cutOff(ctx)
	}
}

// compile has the go command build the tool into a file.
func (b *builder) compile(ctx context.Context, file string) error {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("building %s needs the go command, and it is not in PATH: "+
			"install Go from https://go.dev/dl and add it to PATH%s (%w)", b, b.otherwise(), err)
	}
	cmd := exec.CommandContext(ctx, goCommand, "build", "-v", "-o="+file, "-ldflags="+b.LDFlags, b.Package)
	cmd.Dir = b.Module
	// What makes the go command build for another platform, in another way or from other source is the user's for
	// other programs. What says where to get and to keep modules (GOPROXY, GOMODCACHE, GOCACHE, …) stays, and so
	// does CGO_ENABLED: the packages that this program was compiled from are then found in the build cache.
	cmd.Env = append(cmd.Environ(),
		"GOFLAGS=-mod=readonly -buildvcs=false", "GOWORK=off", "GO111MODULE=on",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH,
		// Unfinished work of the go command and of a C compiler is swept with ours.
		"GOTMPDIR="+filepath.Dir(file), "TMPDIR="+filepath.Dir(file),
	)
	cmd.Stderr = &b.output
	stop := b.heartbeat(func() string { return "building " + b.String() + ": " + b.output.last() })
	err = runInGroup(cmd)
	stop()
	if err != nil && ctx.Err() != nil {
		return b.cutOff(ctx)
	}
	if err != nil {
		return b.failed(err)
	}
	return nil
}

// runInGroup runs a command, and ends all processes that the command has started when it ends or this process does.
// They are a process group, led by a shell that waits on a pipe to which nobody writes. When this process dies, the
// kernel closes the pipe, and the shell kills the group. Only that reaches the compilers of the go command.
func runInGroup(cmd *exec.Cmd) error {
	leader := exec.Command("/bin/sh", "-c", "read -r never; kill -KILL 0")
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := leader.StdinPipe(); err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	if err := leader.Start(); err != nil {
		return fmt.Errorf("starting a shell that watches over the go command: %w", err)
	}
	kill := func() error { return syscall.Kill(-leader.Process.Pid, syscall.SIGKILL) }
	defer func() {
		_ = kill() // the shell is there: nobody has waited for it
		_ = leader.Wait()
	}()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: leader.Process.Pid}
	cmd.Cancel = kill
	const patience = 5 * time.Second
	cmd.WaitDelay = patience
	return cmd.Run()
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
	return os.Rename(from, to)
}

// beat is the time between two lines of progress. Ten seconds are promised; the rest is for a machine that is busy.
const beat = 8 * time.Second

// heartbeat says every beat what is being done, until it is told to stop.
func (b *builder) heartbeat(doing func() string) (stop func()) {
	done := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				b.say(doing())
			}
		}
	})
	return func() {
		close(done)
		telling.Wait()
	}
}

// say prints a line with the time since the start.
func (b *builder) say(text string) {
	const width = 100
	line := []rune(fmt.Sprintf("  %5s  %s", b.clock(), text))
	fmt.Fprintln(b.progress, string(line[:min(width, len(line))]))
}

// clock is the time since the start, as minutes and seconds.
func (b *builder) clock() string {
	s := int(time.Since(b.start).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text string
}

// Write keeps some lines more than anybody asks for.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const enough = 16 << 10
	t.text += string(p)
	t.text = t.text[max(0, len(t.text)-enough):]
	return len(p), nil
}

// lines are the last lines, at most n.
func (t *tail) lines(n int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := strings.Split(strings.TrimSpace(t.text), "\n")
	return all[max(0, len(all)-n):]
}

// last is the last line: what the go command is doing.
func (t *tail) last() string { return t.lines(1)[0] }

// otherwise says how to do without the build, to end a sentence with.
func (b *builder) otherwise() string {
	if b.Avoid == "" {
		return ""
	}
	return ", or " + b.Avoid
}

// folderError explains an error of the file system in the folder of the target.
func (b *builder) folderError(err error) error {
	return fmt.Errorf("building %s in %s: %w: free some space there and make it writable, or set %s to a folder "+
		"on a local disk that you can write to%s", b, filepath.Dir(b.target), err, cacheVariable(), b.otherwise())
}

// cutOff says that ctx ended before the tool was built, and how to go on.
func (b *builder) cutOff(ctx context.Context) error {
	again := "start it again to go on"
	if b.Command != "" {
		again = "run `" + b.Command + "` in the repository's folder, which has no time limit, and then start this again"
	}
	return fmt.Errorf("building %s was cut off after %s (%w); Go's build cache keeps what was compiled: %s",
		b, b.clock(), context.Cause(ctx), again)
}

// failed shows what the go command said last, and what it needs.
func (b *builder) failed(err error) error {
	const last = 20
	space := "free space on the disk"
	if b.Space != "" {
		space = b.Space + " of free space"
	}
	return fmt.Errorf("building %s: the go command failed (%w); its last lines:\n\t%s\n"+
		"It needs %s for Go's caches (GOCACHE and GOMODCACHE move them), memory (less with GOMAXPROCS=1), "+
		"a module proxy that answers (GOPROXY), the Go version that %s names, and that file and go.sum "+
		"as they were (git checkout)%s",
		b, err, strings.Join(b.output.lines(last), "\n\t"), space, filepath.Join(b.Module, "go.mod"), b.otherwise())
}
