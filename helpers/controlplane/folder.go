package controlplane

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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

	// nameLength is the number of random letters in a folder's name, 5 bits each.
	nameLength = 10

	// spaceNeeded is the space in bytes that a control plane wants to find: etcd reserves two segments of
	// its write-ahead log, 64 MB each, and two etcds may run.
	spaceNeeded = 300 << 20
)

// folder is the temporary folder of one control plane. While its lock is held, its owner lives.
type folder struct {
	path string
	lock *os.File
}

// newPath sweeps what dead control planes have left and chooses the path of the folder for a new one.
// Nothing is there yet: the guard of a folder starts before the folder is made.
func newPath() (string, error) {
	parent, err := parentFolder(os.TempDir())
	if err != nil {
		return "", err
	}
	sweep(parent)
	for {
		path := filepath.Join(parent, folderPrefix+strings.ToLower(rand.Text()[:nameLength]))
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return path, nil
		} else if err != nil {
			return "", fmt.Errorf("choosing a temporary folder for the control plane: %w; set TMPDIR to a folder that you can "+
				"write to", err)
		}
	}
}

// parentFolder is the folder in which those of control planes are made: the temporary folder given, or
// /tmp if the path of a socket in it would be too long or could not be written in a flag.
func parentFolder(temporary string) (string, error) {
	dir, err := filepath.Abs(temporary)
	if err != nil {
		return "", fmt.Errorf("finding the temporary folder %s: %w; set TMPDIR to an absolute path", temporary, err)
	}
	longest := filepath.Join(dir, folderPrefix+strings.Repeat("x", nameLength), second+apartSuffix, second+socketSuffix)
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+@", r)
	}
	if len(longest) <= socketLimit && strings.IndexFunc(dir, func(r rune) bool { return !plain(r) }) < 0 {
		return dir, nil
	}
	return "/tmp", nil
}

// newFolder makes the folder of a control plane.
func newFolder(path string) (*folder, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, fmt.Errorf("making a temporary folder for the control plane: %w; set TMPDIR to a folder that you can "+
			"write to", err)
	}
	f := &folder{path: path}
	if err := f.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the temporary folder of the control plane: %w; set TMPDIR to a "+
			"folder that you can write to and that has %d MB to spare", err, spaceNeeded>>20), f.remove())
	}
	return f, nil
}

func (f *folder) prepare() error {
	if err := enoughSpace(f.path); err != nil {
		return err
	}
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

// enoughSpace says whether etcd and kube-apiserver can work in a folder. etcd cannot do with less: it
// ends the process when it cannot make its write-ahead log.
func enoughSpace(path string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return nil // a file system that does not say is given a try
	}
	if free := stat.Bavail * uint64(stat.Bsize); free < spaceNeeded {
		return fmt.Errorf("%s has only %d MB of free space", filepath.Dir(path), free>>20)
	}
	return nil
}

// lockDataDir makes a folder for data that is kept, and takes it for this process.
func lockDataDir(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder for etcd's data: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the folder for etcd's data: %w", err)
	}
	if err := flock(lock); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("the folder for etcd's data, %s, is used by another control plane: stop that one, or "+
				"choose another folder", path)
		}
		return nil, fmt.Errorf("locking the folder for etcd's data: %w", err)
	}
	return lock, nil
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
