// Package pinned builds a command of a pinned module, once, into the user's cache folder.
//
// A pinned module is a folder with a go.mod and a go.sum and no Go code. Its go.mod says which
// version of a program is wanted, its go.sum which source that is, byte for byte. The go command
// builds from it what a reader would otherwise have to download as a binary.
//
// A command of the repository itself can be built in the same way: then its own source counts as
// well, and it is built once for each state of that.
package pinned

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// Tool is a command of a pinned module.
type Tool struct {
	// Module is the folder of the pinned module: the one that [Folder] finds, or any other.
	Module string
	// Package is the import path of the command, such as "k8s.io/kubernetes/cmd/kubectl".
	Package string
	// Name is the name of the built file. The default is what the go command would call it:
	// the last element of Package that is not a major version.
	Name string
	// LDFlags are handed to the linker, as in go build -ldflags.
	LDFlags string
	// Sources are the files and folders, relative to Module, that hold the source of a command of
	// Module itself; tests and folders called testdata are left out. Empty for a command of a module
	// that Module requires.
	Sources []string
	// Cost is about how much processor time it takes to compile all packages from nothing. It is
	// what a reader is told about the duration, divided by the number of processors; zero says
	// nothing.
	Cost time.Duration
	// Space is about how much disk space a build takes from nothing, Go's caches included, such as
	// "3 GB". It is named to a reader whose disk is full. Empty says nothing.
	Space string
	// Avoid says how the reader can do without this build, as a clause that follows "or", such as
	// "set X to a folder that holds one". Empty if there is no other way.
	Avoid string
	// Command builds this tool from the repository's folder without a time limit. It is named to a
	// reader whose build was cut off. Empty if there is none.
	Command string
}

// Options say where to build and whom to tell. The zero value is ready to use.
type Options struct {
	// Progress gets lines of at most 100 columns (a path is never cut) on what is being done, the
	// first at once and then one at least every ten seconds. Nothing is written if there is nothing
	// to build, and nothing after [Build] has returned. Nil discards them.
	Progress io.Writer
	// CacheDir is the folder for what was built. The default is the folder modrev in
	// [os.UserCacheDir].
	CacheDir string
}

// Build returns the path of t's executable for this machine, and builds it first if need be.
//
// The path holds the version of the module that t's package belongs to, the platform, and a hash of
// go.mod, go.sum, the linker's flags and t's own sources, so that what has changed is built anew. Of a
// command with sources of its own the last few builds are kept, of any other all. The executable appears
// there whole or not at all. Of several processes that want the same tool at the same time one
// builds and the others wait for it. Whatever ends the build, the go command and all that it started
// end with it, at the latest when this process does.
//
// An error is one sentence that says what went wrong and what to do; output of the go command that
// needs to be seen follows it. It wraps ctx's error if ctx ended.
func Build(ctx context.Context, t Tool, o Options) (string, error) {
	for {
		b, err := prepare(t, o)
		if err != nil {
			return "", err
		}
		if b.built() {
			return b.target, nil
		}
		if err := b.build(ctx); err == nil {
			return b.target, nil
		} else if !errors.Is(err, errChanged) {
			return "", err
		}
	}
}

// errChanged says that what was built is neither what was there before the build nor, perhaps, what is
// there after it.
var errChanged = errors.New("the source has changed during the build")

// Built returns the path of t's executable, and whether it is there already: whether [Build] would
// return it at once.
func Built(t Tool, o Options) (path string, ok bool, err error) {
	b, err := prepare(t, o)
	if err != nil {
		return "", false, err
	}
	if ok = b.built(); ok && len(t.Sources) > 0 {
		now := time.Now() // what is used is kept the longest; a failure is no matter
		_ = os.Chtimes(b.folder, now, now)
	}
	return b.target, ok, nil
}

// Version returns the version of the module that provides t's package, as t's go.mod pins it.
func Version(t Tool) (string, error) {
	_, version, err := t.pin()
	return version, err
}

// builder is a Tool that was looked up: what is to be built, and where.
type builder struct {
	Tool
	pinned   string // hash of what is to be built
	version  string
	folder   string // of this version on this platform
	target   string // the executable in folder
	progress io.Writer
}

// prepare finds out where t belongs. It reads t's module and own sources, and runs nothing.
func prepare(t Tool, o Options) (*builder, error) {
	if t.Name == "" {
		t.Name = commandName(t.Package)
	}
	pin, version, err := t.pin()
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir(o.CacheDir)
	if err != nil {
		return nil, fmt.Errorf("finding the folder for %s: %w", t.Name, err)
	}
	b := &builder{Tool: t, pinned: pin, version: version, progress: o.Progress}
	b.folder = filepath.Join(cache, b.folderName(pin))
	b.target = filepath.Join(b.folder, t.Name)
	if b.progress == nil {
		b.progress = io.Discard
	}
	return b, nil
}

// built tells whether there is an executable to use. It came there by a rename, so it is whole
// unless the disk has lost a part of it; a look at its header costs next to nothing.
func (b *builder) built() bool {
	return Runnable(b.target) == nil
}

// folderName is the name of the folder for what is built from the state that the hash pin stands for.
func (b *builder) folderName(pin string) string {
	name := b.Name
	if b.version != "" {
		name += "-" + b.version
	}
	return fmt.Sprintf("%s-%s-%s-%s", name, runtime.GOOS, runtime.GOARCH, pin)
}

// String names the tool and its version, if it has one.
func (b *builder) String() string { return strings.TrimSpace(b.Name + " " + b.version) }

// pin returns a hash of all that decides what gets built, and the version of the tool's module, ""
// for a tool with sources of its own.
func (t Tool) pin() (hash, version string, err error) {
	goMod := filepath.Join(t.Module, "go.mod")
	mod, err := os.ReadFile(goMod)
	if err != nil {
		return "", "", pinError(goMod, err)
	}
	goSum := filepath.Join(t.Module, "go.sum")
	sum, err := os.ReadFile(goSum)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a module that needs no other has no go.sum
		return "", "", pinError(goSum, err)
	}
	f, err := modfile.Parse(goMod, mod, nil)
	if err != nil {
		return "", "", fmt.Errorf("reading the pinned module: %w; restore it with git checkout -- %s", err, goMod)
	}
	h := sha256.New()
	for _, part := range [][]byte{[]byte(t.Package), []byte(t.LDFlags), mod, sum} {
		fmt.Fprintf(h, "%d\n%s\n", len(part), part)
	}
	if len(t.Sources) > 0 {
		err = t.hashSources(h, f)
	} else if version, err = provides(f, t.Package); err != nil {
		err = fmt.Errorf("reading %s: %w", goMod, err)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:4]), version, err
}

func pinError(file string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no %s, which pins the version to build: run this in a checkout of the repository", file)
	}
	return fmt.Errorf("reading the pinned module: %w", err)
}

// provides returns the version of f's requirement that provides the package pkg.
func provides(f *modfile.File, pkg string) (string, error) {
	var best module.Version
	for _, r := range f.Require {
		if (pkg == r.Mod.Path || strings.HasPrefix(pkg, r.Mod.Path+"/")) && len(r.Mod.Path) > len(best.Path) {
			best = r.Mod
		}
	}
	if best.Path == "" {
		return "", fmt.Errorf("no required module provides %s: add it with go get -tool %s@VERSION in that folder", pkg, pkg)
	}
	for _, r := range f.Replace {
		if r.Old.Path == best.Path && (r.Old.Version == "" || r.Old.Version == best.Version) && r.New.Version != "" {
			return r.New.Version, nil
		}
	}
	return best.Version, nil
}

// commandName is the file name that go build gives to a command.
func commandName(pkg string) string {
	prefix, _, ok := module.SplitPathVersion(pkg)
	if ok && prefix != "" {
		return path.Base(prefix)
	}
	return path.Base(pkg)
}

func cacheDir(dir string) (string, error) {
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("this user has no cache folder (%w): set HOME or %s to an absolute path", err, cacheVariable())
		}
		dir = filepath.Join(user, "modrev")
	}
	abs, err := filepath.Abs(dir) // the go command runs in another folder
	if err != nil {
		return "", err
	}
	return abs, nil
}

// cacheVariable is the environment variable that moves the user's cache folder.
func cacheVariable() string {
	if runtime.GOOS == "darwin" {
		return "HOME"
	}
	return "XDG_CACHE_HOME"
}
