//go:build unix

package pinned

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lock is held by the one process that builds into a folder. The kernel takes it from a process
// that dies. The file says who holds it and how far that process is.
type lock struct{ file *os.File }

// lock waits until no other process builds b. It says for whom it waits.
func (b *builder) lock(ctx context.Context) (*lock, error) {
	file, err := os.OpenFile(filepath.Join(b.folder, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, b.diskError(err)
	}
	err = flock(file, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return b.wait(ctx, file)
	}
	if err != nil {
		file.Close()
		return nil, b.lockError(err)
	}
	return &lock{file}, nil
}

func (b *builder) lockError(err error) error {
	return fmt.Errorf("the file system of %s cannot lock files (%w): set %s to a folder on a local disk", b.folder, err, cacheVariable())
}

// wait waits for a lock that another process holds.
func (b *builder) wait(ctx context.Context, file *os.File) (*lock, error) {
	start := time.Now()
	who, _ := readState(file)
	fmt.Fprintf(b.progress, "Waiting for %s, which is building %s.\n", who, b)
	locked := make(chan error, 1)
	go func() { locked <- flock(file, unix.LOCK_EX) }()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case err := <-locked:
			if err != nil {
				file.Close()
				return nil, b.lockError(err)
			}
			return &lock{file}, nil
		case <-tick.C:
			who, state := readState(file)
			fmt.Fprintln(b.progress, fit(fmt.Sprintf("  %5s  waiting for %s: %s", clock(time.Since(start)), who, state), width))
		case <-ctx.Done():
			who, state := readState(file)
			go func() { // a lock that comes too late is given back
				<-locked
				file.Close()
			}()
			return nil, fmt.Errorf("waiting for %s, which is building %s (%s), ended after %s: %s (%w)",
				who, b, state, clock(time.Since(start)), b.again(), context.Cause(ctx))
		}
	}
}

// unlock lets the next one in, also if a process that inherited the file is still alive.
func (l *lock) unlock() {
	l.file.Truncate(0)
	flock(l.file, unix.LOCK_UN)
	l.file.Close()
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// stateSize is the length of what a builder writes into its lock file. It is always the same, so
// that one write replaces the one before.
const stateSize = 256

// writeState writes who is building and what it is doing. It only informs; a failure is no matter.
func writeState(f *os.File, doing string) {
	text := fmt.Sprintf("process %d\t%s", os.Getpid(), doing)
	if len(text) > stateSize {
		text = text[:stateSize]
	}
	f.WriteAt([]byte(text+strings.Repeat(" ", stateSize-len(text))), 0)
}

// readState returns who is building and what it is doing.
func readState(f *os.File) (who, doing string) {
	buf := make([]byte, stateSize)
	n, _ := f.ReadAt(buf, 0)
	who, doing, ok := strings.Cut(strings.TrimRight(string(buf[:n]), " "), "\t")
	if !ok {
		return "another process", "starting"
	}
	return who, doing
}
