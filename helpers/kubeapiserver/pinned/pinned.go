// Package pinned builds a command of a pinned module, once, into the user's cache folder.
//
// A pinned module is a folder with a go.mod and a go.sum and no Go code. Its go.mod says which version of a program
// is wanted, its go.sum which source that is, byte for byte. The go command builds from it what a reader would
// otherwise have to download as a binary.
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

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// Tool is a command of a pinned module.
type Tool struct {
	// Module is the folder of the pinned module.
	Module string
	// Package is the import path of the command, such as "k8s.io/kubernetes/cmd/kubectl". The built file has the
	// name that the go command would give it.
	Package string
	// LDFlags are handed to the linker, as in go build -ldflags.
	LDFlags string
	// Space is about how much disk space a build takes from nothing, Go's caches included, such as "3 GB". Empty
	// says nothing.
	Space string
	// Avoid says how the reader can do without this build, as a clause that follows "or", such as "set X to a
	// folder that holds one". Empty if there is no other way.
	Avoid string
	// Command builds this tool from the repository's folder without a time limit. It is named to a reader whose
	// build was cut off. Empty if there is none.
	Command string
}

// Options say where to build and whom to tell. The zero value is ready to use.
type Options struct {
	// Progress gets lines of at most 100 columns (a path is never cut) on what is being built, one at least every
	// ten seconds. Nothing is written if there is nothing to build, and nothing after [Build] has returned. Nil
	// discards them.
	Progress io.Writer
	// CacheDir is the folder for what was built. The default is the folder modrev in [os.UserCacheDir].
	CacheDir string
}

// Build returns the path of t's executable for this machine, and builds it first if need be.
//
// The path holds the version of the module that t's package belongs to, the platform, and a hash of go.mod, go.sum
// and the linker's flags, so that what has changed is built anew. The executable appears there whole or not at all.
// Of several processes that want the same tool at the same time one builds and the others wait for it. Whatever ends
// the build, the go command and all that it started end with it, at the latest when this process does.
//
// An error says what went wrong and what to do, and holds the last lines of the go command if that has failed. It
// wraps ctx's error if ctx ended.
func Build(ctx context.Context, t Tool, o Options) (string, error) {
	b, err := prepare(t, o)
	if err != nil {
		return "", err
	}
	if !b.built() {
		if err := b.build(ctx); err != nil {
			return "", err
		}
	}
	return b.target, nil
}

// Version returns the version of the module that provides t's package, as t's go.mod pins it.
func Version(t Tool) (string, error) {
	_, version, err := t.pin()
	return version, err
}

// prepare finds out where t belongs. It reads t's module, and runs nothing.
func prepare(t Tool, o Options) (*builder, error) {
	pin, version, err := t.pin()
	if err != nil {
		return nil, err
	}
	b := &builder{Tool: t, name: commandName(t.Package), version: version, progress: o.Progress}
	cache, err := cacheDir(o.CacheDir)
	if err != nil {
		return nil, fmt.Errorf("finding the folder for %s: %w", b, err)
	}
	folder := fmt.Sprintf("%s-%s-%s-%s-%s", b.name, version, runtime.GOOS, runtime.GOARCH, pin)
	b.target = filepath.Join(cache, folder, b.name)
	if b.progress == nil {
		b.progress = io.Discard
	}
	return b, nil
}

// pin returns a hash of all that decides what gets built, and the version of the tool's module.
func (t Tool) pin() (hash, version string, err error) {
	goMod := filepath.Join(t.Module, "go.mod")
	mod, err := os.ReadFile(goMod)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("there is no %s, which pins the version to build: "+
			"run this in a checkout of the repository", goMod)
	}
	if err != nil {
		return "", "", fmt.Errorf("reading the pinned module: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(t.Module, "go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a module that needs no other has no go.sum
		return "", "", fmt.Errorf("reading the pinned module: %w", err)
	}
	f, err := modfile.Parse(goMod, mod, nil)
	if err != nil {
		return "", "", fmt.Errorf("reading the pinned module: %w; restore it with git checkout -- %s", err, goMod)
	}
	if version, err = provides(f, t.Package); err != nil {
		return "", "", fmt.Errorf("reading %s: %w", goMod, err)
	}
	h := sha256.New()
	for _, part := range [][]byte{[]byte(t.Package), []byte(t.LDFlags), mod, sum} {
		fmt.Fprintf(h, "%d\n%s\n", len(part), part)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:4]), version, nil
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
		return "", fmt.Errorf("no required module provides %s: add it with go get -tool %s@VERSION in that folder",
			pkg, pkg)
	}
	for _, r := range f.Replace {
		if r.Old.Path == best.Path && (r.Old.Version == "" || r.Old.Version == best.Version) && r.New.Version != "" {
			return r.New.Version, nil
		}
	}
	return best.Version, nil
}

// commandName is the file name that go build gives to a command: the last element of its path that is not a major
// version.
func commandName(pkg string) string {
	if prefix, _, ok := module.SplitPathVersion(pkg); ok && prefix != "" {
		return path.Base(prefix)
	}
	return path.Base(pkg)
}

func cacheDir(dir string) (string, error) {
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("this user has no cache folder (%w): set HOME or %s to an absolute path",
				err, cacheVariable())
		}
		dir = filepath.Join(user, "modrev")
	}
	return filepath.Abs(dir) // the go command runs in another folder
}

// cacheVariable is the environment variable that moves the user's cache folder.
func cacheVariable() string {
	if runtime.GOOS == "darwin" {
		return "HOME"
	}
	return "XDG_CACHE_HOME"
}
