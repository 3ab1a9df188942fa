package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

// Tree is the source of one version of Kubernetes. A package is found and parsed when it is first
// asked for, and kept; a module that is not in the module cache is downloaded first. A tree is safe
// for concurrent use.
type Tree struct {
	version string
	modules []*mainModule // the first that requires the module of a package decides on its version

	mu       sync.Mutex
	packages map[string]*parsed // by import path
}

// parsed is one package, or the error that came of it.
type parsed struct {
	module, version string
	fset            *token.FileSet
	files           []file
	declares        []Declaration
	err             error
}

// file is one file of a package; its name is the path below the root of the module.
type file struct{ name, src string }

func newTree(version string, modules ...*mainModule) *Tree {
	return &Tree{version: version, modules: modules, packages: make(map[string]*parsed)}
}

// Version is the version of Kubernetes, such as "v1.37.2".
func (t *Tree) Version() string { return t.version }

// Find is where r is declared in this version. The error for a name that does not exist says what in
// its package is called alike.
func (t *Tree) Find(ctx context.Context, r Ref) (Location, error) {
	d, err := t.Declaration(ctx, r)
	return d.Location, err
}

// Declaration is what r names in this version, as syntax.
func (t *Tree) Declaration(ctx context.Context, r Ref) (Declaration, error) {
	if t.holder(r.Package) == nil {
		return Declaration{}, fmt.Errorf("no module of Kubernetes %s or of this repository holds package %q: "+
			"check the import path", t.version, r.Package)
	}
	t.Load(ctx, r)
	t.mu.Lock()
	p := t.packages[r.Package]
	t.mu.Unlock()
	switch {
	case p == nil:
		return Declaration{}, fmt.Errorf("looking for %s: %w", r, context.Cause(ctx))
	case p.err != nil:
		return Declaration{}, fmt.Errorf("looking for %s in Kubernetes %s: %w", r, t.version, p.err)
	}
	alike := ""
	for _, d := range p.declares {
		if plain(d.Func) == plain(r.Func) {
			return d, nil
		}
		if strings.EqualFold(last(d.Func), last(r.Func)) {
			alike += "; called alike: " + d.Func
		}
	}
	return Declaration{}, fmt.Errorf("package %s of %s %s has no %q: look for where it moved%s",
		r.Package, p.module, p.version, r.Func, alike)
}

// Load finds the packages of many references with one run of the go command for each main module, to
// spare one for each package. What is wrong with a reference, [Tree.Find] says.
func (t *Tree) Load(ctx context.Context, refs ...Ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.modules {
		var wanted []string
		for _, r := range refs {
			if t.holder(r.Package) == m && t.packages[r.Package] == nil {
				wanted = append(wanted, r.Package)
			}
		}
		if len(wanted) > 0 {
			t.load(ctx, m, wanted)
		}
	}
}

// holder is the main module that decides which version of a package there is, nil if none does.
func (t *Tree) holder(pkg string) *mainModule {
	for _, m := range t.modules {
		for module := pkg; module != "." && module != "/"; module = path.Dir(module) {
			if m.requires[module] != "" {
				return m
			}
		}
	}
	return nil
}

// load finds packages from the folder of a main module, and parses them.
func (t *Tree) load(ctx context.Context, m *mainModule, wanted []string) {
	found, err := packages.Load(&packages.Config{
		Context: ctx,
		Mode:    packages.NeedName | packages.NeedFiles | packages.NeedModule,
		Dir:     m.folder,
		// A workspace of the reader would put other versions in the place of the pinned ones.
		Env:        append(os.Environ(), "GOWORK=off", "GOPACKAGESDRIVER=off"),
		BuildFlags: []string{"-mod=readonly"},
	}, wanted...)
	if ctx.Err() != nil {
		return // what was cut off is tried again
	}
	if err != nil {
		err = noSource(err.Error())
	}
	for _, pkg := range wanted {
		t.packages[pkg] = &parsed{fset: token.NewFileSet(), err: err}
	}
	for _, pkg := range found {
		if p := t.packages[pkg.PkgPath]; p != nil {
			p.err = p.read(pkg, m)
		}
	}
}

// read fills p with a package that the go command has looked for.
func (p *parsed) read(pkg *packages.Package, m *mainModule) error {
	for _, err := range pkg.Errors {
		switch why := firstLine(err.Msg); {
		case strings.Contains(why, "import lookup disabled by -mod=readonly"):
			return errors.New("there is no such package: it may have moved")
		case pkg.Module == nil:
			return noSource(why)
		default:
			return fmt.Errorf("reading the package: %s", why)
		}
	}
	// The go command knows no version of a main module.
	p.module, p.version = pkg.Module.Path, cmp.Or(pkg.Module.Version, m.requires[pkg.Module.Path])
	for _, name := range pkg.GoFiles {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("reading the package: %w", err)
		}
		below, err := filepath.Rel(pkg.Module.Dir, name)
		if err != nil {
			return fmt.Errorf("reading the package: %w", err)
		}
		if err := p.parse(filepath.ToSlash(below), string(text)); err != nil {
			return err
		}
	}
	return nil
}

// noSource says why the go command has not found a package that there may well be.
func noSource(why string) error {
	return fmt.Errorf("%w: it is not in the module cache and could not be downloaded: %s; "+
		"run this once where the Go module proxy can be reached", ErrNoSource, firstLine(why))
}

// With is the tree of a world in which the source says something else: each old in a package is a new.
// The edit is made in memory, and t stays as it is.
func (t *Tree) With(ctx context.Context, pkg, old, new string) *Tree {
	t.Load(ctx, Ref{Package: pkg})
	t.mu.Lock()
	defer t.mu.Unlock()
	world := newTree(t.version, t.modules...)
	maps.Copy(world.packages, t.packages)
	if p := t.packages[pkg]; p != nil && p.err == nil {
		edited := &parsed{module: p.module, version: p.version, fset: token.NewFileSet()}
		for _, f := range p.files {
			edited.err = cmp.Or(edited.err, edited.parse(f.name, strings.ReplaceAll(f.src, old, new)))
		}
		world.packages[pkg] = edited
	}
	return world
}
