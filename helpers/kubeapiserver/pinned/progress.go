package pinned

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// beat is the time between two lines of progress. Ten seconds are promised; the rest is for a
// machine that is busy compiling.
const beat = 8 * time.Second

// width is the longest line of progress.
const width = 100

// meter knows how far a build is. Its Write takes what the go command prints.
type meter struct {
	out   io.Writer
	start time.Time
	state *os.File // gets the last line too, for those who wait; may be nil

	mu         sync.Mutex
	partial    []byte          // an unfinished line of the go command
	tail       []string        // the last lines that are not progress
	packages   map[string]bool // all packages of the tool
	main       string          // the last of them
	stale      int             // how many of them must be compiled
	started    int             // how many the go command has begun to compile
	current    string
	downloaded int
	module     string    // the module being downloaded
	since      time.Time // and since when
}

// slow is when the download of one module takes long enough to wonder about the network. The go
// command itself waits without a limit for a proxy that took the connection.
const slow = time.Minute

// tailLines is how much of the go command's output is kept for an error.
const tailLines = 60

// Write takes the standard error of the go command: with -v a line for each package that is being
// compiled, a line for each module that is being downloaded, and complaints.
func (m *meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.partial = append(m.partial, p...)
	for {
		line, rest, ok := bytes.Cut(m.partial, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		m.take(strings.TrimRight(string(line), "\r"))
		m.partial = rest
	}
}

func (m *meter) take(line string) {
	if mod, ok := strings.CutPrefix(line, "go: downloading "); ok {
		m.downloaded++
		m.module, m.since = mod, time.Now()
		return
	}
	if m.packages[line] {
		m.started++
		m.current = line
		if line == m.main {
			m.print("linking")
		}
		return
	}
	if line != "" {
		m.tail = append(m.tail, line)
		if len(m.tail) > tailLines {
			m.tail = m.tail[1:]
		}
	}
}

// output returns the last lines of the go command that are not progress.
func (m *meter) output() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.partial) > 0 {
		m.take(string(m.partial))
		m.partial = nil
	}
	return m.tail
}

// plan says what there is to compile.
func (m *meter) plan(packages map[string]bool, main string, stale int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.packages, m.main, m.stale = packages, main, stale
}

// now says how far the build is, in a few words.
func (m *meter) now() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.words()
}

func (m *meter) words() string {
	switch {
	case m.packages == nil && m.downloaded == 0:
		return "finding out what there is to compile"
	case m.packages == nil && time.Since(m.since) > slow:
		return fmt.Sprintf("downloading module %d: %s (for %s; does GOPROXY answer?)",
			m.downloaded, m.module, clock(time.Since(m.since)))
	case m.packages == nil:
		return fmt.Sprintf("downloading module %d: %s", m.downloaded, m.module)
	case m.started == 0 && m.stale > 1:
		return "starting to compile"
	case m.current == m.main || m.started == 0:
		return "linking"
	}
	return fmt.Sprintf("compiling package %d of %d: %s", m.started, m.stale, m.current)
}

// beat prints how far the build is until ctx ends.
func (m *meter) beat(ctx context.Context) {
	heartbeat(ctx, func() { m.say("%s", m.now()) })
}

// heartbeat calls tell every beat until ctx ends.
func heartbeat(ctx context.Context, tell func()) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tell()
		}
	}
}

// say prints a line with the time since the start.
func (m *meter) say(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.print(fmt.Sprintf(format, args...))
}

func (m *meter) print(text string) {
	line := fit(fmt.Sprintf("  %5s  %s", clock(time.Since(m.start)), text), width)
	fmt.Fprintln(m.out, line)
	if m.state != nil {
		writeState(m.state, text)
	}
}

// fit shortens a line in its middle: in an import path the end tells more than the start.
func fit(line string, width int) string {
	r := []rune(line)
	if len(r) <= width {
		return line
	}
	const keep = 45
	return string(r[:width-keep-1]) + "…" + string(r[len(r)-keep:])
}

// clock formats a duration as minutes and seconds.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// roughly names a duration the way that a person would.
func roughly(d time.Duration) string {
	switch {
	case d < 25*time.Second:
		return "some seconds"
	case d < 90*time.Second:
		return "about a minute"
	}
	return fmt.Sprintf("about %d minutes", int(d.Round(time.Minute).Minutes()))
}
