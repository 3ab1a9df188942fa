package transcript

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Stage is where a transcript is run. The zero value is a plain bash in the working directory.
type Stage struct {
	// Dir is the working directory of the shell.
	Dir string
	// Env is its environment, as NAME=value; nil means that of this process.
	Env []string
	// Paths replaces texts in what is typed and expected, such as a path of the document's that is taken.
	Paths map[string]string
	// Wire returns the requests that have reached etcd, from the beginning of the transcript, one line each, and is
	// complete for every command that has ended. Without it, a transcript has no wire and no wait.
	Wire func(context.Context) ([]string, error)
	// Settle waits until the commands have had all their effect, before the next ones are typed. It may be nil.
	Settle func(context.Context) error
}

// Run types the commands of a transcript and compares. The error says under which heading, what was typed, what
// was expected and what was seen instead.
func (t *Transcript) Run(ctx context.Context, s Stage) error {
	sh, err := s.open(ctx)
	if err != nil {
		return fmt.Errorf("%s: starting bash: %w", t.name, err)
	}
	defer sh.close()
	r := &run{Stage: s, shell: sh, numbers: numbers{}}
	for _, p := range t.parts {
		p.lines = r.replace(p.lines)
		if err := r.play(ctx, p); err != nil {
			return fmt.Errorf("%s, %s: %w", t.name, p.title, err)
		}
	}
	if rest := sh.screen(); len(rest) > 0 {
		return fmt.Errorf("%s: the screen shows at the end, without a see:\n%s", t.name, indent(rest))
	}
	return nil
}

// run is one run of a transcript.
type run struct {
	Stage
	*shell
	numbers numbers
	typed   []string // last
	before  int      // requests on the wire when it was typed
}

func (r *run) play(ctx context.Context, p part) error {
	switch p.kind {
	case typed:
		if r.Settle != nil {
			if err := r.Settle(ctx); err != nil {
				return fmt.Errorf("waiting until the commands before have had their effect: %w", err)
			}
		}
		if r.Wire != nil {
			all, err := r.Wire(ctx)
			if err != nil {
				return fmt.Errorf("reading the wire: %w", err)
			}
			r.before = len(all)
		}
		r.typed = p.lines
		if err := r.run(ctx, strings.Join(p.lines, "\n")+"\n"); err != nil {
			return fmt.Errorf("typing\n%s\n%w", indent(p.lines), err)
		}
	case seen, mixed:
		compare := r.numbers.inOrder
		if p.kind == mixed {
			compare = r.numbers.inAnyOrder
		}
		// What a command in the background has printed may arrive a little later.
		var got []string
		all, err := r.eventually(ctx, func() (numbers, bool) {
			got = append(got, r.screen()...)
			return compare(p.lines, got)
		}, p.kind == mixed)
		if err != nil {
			return r.differs(string(p.kind), p.lines, got)
		}
		r.numbers = all
	case wire:
		got, err := r.sent(ctx)
		if err != nil {
			return err
		}
		all, ok := r.numbers.inOrder(p.lines, got)
		if !ok {
			return r.differs("on the wire", p.lines, got)
		}
		r.numbers = all
	case await:
		pattern := regexp.MustCompile(strings.Join(p.lines, "\n"))
		var got []string
		var failed error // of the wire: there is nothing to wait for
		_, err := r.eventually(ctx, func() (numbers, bool) {
			got, failed = r.sent(ctx)
			return nil, failed != nil || slices.ContainsFunc(got, pattern.MatchString)
		}, true)
		switch {
		case failed != nil:
			return failed
		case err != nil:
			return r.differs("to wait for", p.lines, got)
		}
	case where:
		for _, line := range p.lines {
			if err := r.numbers.chain(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// patience is how long a transcript waits for what comes by itself.
const patience = 30 * time.Second

// eventually tries until it works; once, if it need not wait.
func (r *run) eventually(ctx context.Context, try func() (numbers, bool), waits bool) (numbers, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		if all, ok := try(); ok {
			return all, nil
		}
		if !waits {
			return nil, context.DeadlineExceeded
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// sent are the requests since something was typed.
func (r *run) sent(ctx context.Context) ([]string, error) {
	if r.Wire == nil {
		return nil, errors.New("nobody looks at the wire here")
	}
	all, err := r.Wire(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the wire: %w", err)
	}
	return all[min(r.before, len(all)):], nil
}

func (r *run) differs(what string, expected, got []string) error {
	known := ""
	for _, name := range slices.Sorted(maps.Keys(r.numbers)) {
		known += fmt.Sprintf("  <%s> is %s", name, r.numbers[name])
	}
	return fmt.Errorf("typed\n%s\nexpected %s\n%s\nbut there was\n%s\n%s", indent(r.typed), what, indent(expected), indent(got), known)
}

// replace puts the paths of this stage into lines.
func (s Stage) replace(all []string) []string {
	var pairs []string
	for _, path := range slices.Sorted(maps.Keys(s.Paths)) {
		pairs = append(pairs, path, s.Paths[path])
	}
	r := strings.NewReplacer(pairs...)
	out := make([]string, len(all))
	for i, line := range all {
		out[i] = r.Replace(line)
	}
	return out
}

func indent(all []string) string {
	if len(all) == 0 {
		return "    (nothing)"
	}
	return "    " + strings.Join(all, "\n    ")
}

// shell is a bash into which commands are typed one after the other, as at a terminal: jobs and variables of one
// are there for the next.
type shell struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	folder  string // of what is typed
	mark    string // ends what a command prints
	ended   chan struct{}
	reading chan struct{}

	mu   sync.Mutex
	text []string
}

func (s Stage) open(ctx context.Context) (_ *shell, err error) {
	folder, err := os.MkdirTemp("", "transcript")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(folder)
		}
	}()
	sh := &shell{
		cmd: exec.CommandContext(ctx, "bash", "--norc", "--noprofile"), folder: folder, mark: "end-" + rand.Text(),
		ended: make(chan struct{}, 1), reading: make(chan struct{}),
	}
	sh.cmd.Dir, sh.cmd.Env = s.Dir, s.Env
	screen, printer := io.Pipe()
	sh.cmd.Stdout, sh.cmd.Stderr = printer, printer
	if sh.stdin, err = sh.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// What the shell has started ends with it.
	sh.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	sh.cmd.Cancel = func() error { return syscall.Kill(-sh.cmd.Process.Pid, syscall.SIGKILL) }
	sh.cmd.WaitDelay = patience
	if err := sh.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(sh.reading)
		lines := bufio.NewScanner(screen)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			sh.read(lines.Text())
		}
		_, _ = io.Copy(io.Discard, screen) // after a line that is too long
	}()
	go func() {
		_ = sh.cmd.Wait() // how the last command ended is nobody's business
		printer.Close()
	}()
	return sh, nil
}

func (sh *shell) read(line string) {
	before, found := strings.CutSuffix(line, sh.mark)
	sh.mu.Lock()
	if before != "" || !found {
		sh.text = append(sh.text, before)
	}
	sh.mu.Unlock()
	if found {
		sh.ended <- struct{}{}
	}
}

// run types commands and waits until they have ended.
func (sh *shell) run(ctx context.Context, commands string) error {
	file := filepath.Join(sh.folder, "typed")
	if err := os.WriteFile(file, []byte(commands), 0o600); err != nil {
		return err
	}
	// The commands get an empty standard input; that of the shell holds what is typed next.
	if _, err := fmt.Fprintf(sh.stdin, ". '%s' </dev/null; echo %s\n", file, sh.mark); err != nil {
		if ctx.Err() != nil { // the shell ends with its context, and its standard input with the shell
			err = context.Cause(ctx)
		}
		return fmt.Errorf("typing into the shell: %w", err)
	}
	select {
	case <-sh.ended:
		return nil
	case <-sh.reading:
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for the end of the commands: %w", context.Cause(ctx))
		}
		return fmt.Errorf("the shell has ended; it had printed\n%s", indent(sh.screen()))
	case <-ctx.Done():
		return fmt.Errorf("waiting for the end of the commands: %w; they had printed\n%s", context.Cause(ctx), indent(sh.screen()))
	}
}

// screen takes what the shell has printed since the last call.
func (sh *shell) screen() []string {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	text := sh.text
	sh.text = nil
	return text
}

// close ends the shell and its jobs.
func (sh *shell) close() {
	_, _ = io.WriteString(sh.stdin, "kill $(jobs -p) 2>/dev/null\n") // there may be none, and the shell may have ended
	sh.stdin.Close()
	<-sh.reading
	os.RemoveAll(sh.folder)
}
