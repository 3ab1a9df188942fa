package controlplane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	folderPrefix = "modrev-"
	lockName     = "lock"
	newLockName  = "lock.new" // a lock that nobody holds yet
	aliveName    = "alive"    // a kube-apiserver starts only while it exists
	pidsName     = "pids"     // one file for each kube-apiserver, holding its process id

	// socketLimit is the number of bytes that every supported system allows for the path of a unix
	// socket (sun_path: 104 on macOS, 108 on Linux, the final zero included).
	socketLimit = 103
)

// folder is the temporary folder of one control plane. While its lock is held, its owner lives.
type folder struct {
	path string
	lock *os.File
}

// newFolder sweeps what dead control planes have left and makes a folder for a new one.
func newFolder() (*folder, error) {
	parent := parentFolder()
	sweep(parent)
	path, err := os.MkdirTemp(parent, folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("making a temporary folder for the control plane: %w (set TMPDIR to a folder that you can write to)", err)
	}
	f := &folder{path: path}
	if err := f.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the temporary folder of the control plane: %w (set TMPDIR to a folder with free space that you can write to)", err), f.remove())
	}
	return f, nil
}

// parentFolder is the system's temporary folder, or /tmp if the path of a socket in it would be too long.
func parentFolder() string {
	dir := os.TempDir()
	longest := filepath.Join(dir, folderPrefix+"1234567890", second+".apart", second+socketSuffix)
	if abs, err := filepath.Abs(dir); err == nil && len(longest) <= socketLimit {
		return abs
	}
	return "/tmp"
}

func (f *folder) prepare() error {
	// The lock is taken under another name: whoever finds a lock under its own name finds it held, or
	// its holder dead.
	lock, err := os.OpenFile(filepath.Join(f.path, newLockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	f.lock = lock
	if err := flock(lock); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(f.path, aliveName), nil, 0o600); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(f.path, pidsName), 0o700); err != nil {
		return err
	}
	return os.Rename(lock.Name(), filepath.Join(f.path, lockName))
}

func (f *folder) remove() error {
	err := errors.Join(removeLinks(f.path), os.RemoveAll(f.path))
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// abandoned is how old a folder without a lock must be before it counts as left by the dead: a living
// process holds its lock some microseconds after it has made the folder.
const abandoned = time.Minute

// sweep removes the folders in parent that belonged to control planes of this user that are dead, after
// it has killed what they have left running. What it cannot remove it leaves to the next one.
func sweep(parent string) {
	paths, _ := filepath.Glob(filepath.Join(parent, folderPrefix+"*"))
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Getuid() {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			if time.Since(info.ModTime()) > abandoned && onlyNewLock(path) {
				_ = os.RemoveAll(path)
			}
			continue
		}
		if err != nil {
			continue
		}
		if flock(lock) == nil {
			// The guard of the dead process does the same at its end; both may do it at once.
			cmd := exec.Command("/bin/sh", "-c", guardScript, guardName, path)
			_ = cmd.Run()
		}
		_ = lock.Close()
	}
}

// onlyNewLock says whether a folder is one of ours whose maker died before it held its lock.
func onlyNewLock(path string) bool {
	entries, err := os.ReadDir(path)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), newLockName) && e.Name() != aliveName && e.Name() != pidsName {
			return false
		}
	}
	return true
}
