package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/modfile"
)

// ErrNoSource is wrapped by every error that comes of source which is neither in the module cache
// nor to be had from the Go module proxy, be it of [For] or of what a tree is asked for later. A
// lesson that needs the source of a prebuilt kube-apiserver can then say so and skip.
var ErrNoSource = errors.New("the source cannot be had")

// kubernetes is the module that a pin names: the one that holds kube-apiserver's main package.
const kubernetes = "k8s.io/kubernetes"

// fetchTimeout bounds one download of one module; the largest has about 22 MB.
const fetchTimeout = 5 * time.Minute

// Tree is the source of one version of Kubernetes: its modules, and what they require. Packages are
// parsed when they are first asked for, and kept. It is safe for concurrent use.
type Tree struct {
	version string
	sources []moduleSource
	edits   []overlay

	mu       sync.Mutex
	fset     *token.FileSet
	modules  map[string]module   // by module path
	requires map[string]bool     // by module path, see requiresEtcd
	packages map[string]*parsed  // by import path, as the rest
	imports  map[string][]string // import paths
	checked  map[string]*checked // with types
	leads    map[string]bool     // see leadsToEtcd
}

// fileSet is the set that the positions of all packages of the tree refer to.
func (t *Tree) fileSet() *token.FileSet {
	if t.fset == nil {
		t.fset = token.NewFileSet()
	}
	return t.fset
}

// overlay is an edit of one file of one package, made in memory.
type overlay struct {
	pkg, file string
	edit      func(src []byte) []byte
}

// module is one module whose source is on disk.
type module struct {
	path, version, dir, goMod string
}

// moduleSource says which modules there are, and puts one of them on disk.
type moduleSource struct {
	// paths are the module paths that the source knows.
	paths []string
	// goMod is the go.mod file of one of them; its source is not needed for that.
	goMod func(ctx context.Context, path string) (string, error)
	// locate finds one of them on disk, and downloads it first where that is needed.
	locate func(ctx context.Context, path string) (module, error)
}

// Version is the version of Kubernetes, such as "v1.37.2".
func (t *Tree) Version() string { return t.version }

// Pinned is the source of the kube-apiserver that a nested module of this repository pins. Version
// is "v1.37.2", which must then be the very version that is pinned, or "v1.37" for whatever patch
// release is pinned; the leading v may be left out.
//
// Versions come from the nested module helpers/kubeapiserver/v1.37, and from the root module for
// what Kubernetes does not require (controller-runtime, etcd's server). Source that is not in the
// module cache yet is downloaded when it is first needed and checked against go.sum.
func Pinned(version string) (*Tree, error) {
	repo, err := findRepo()
	if err != nil {
		return nil, err
	}
	return pinnedIn(repo, version)
}

// pinnedIn is Pinned for the repository at repo.
func pinnedIn(repo, version string) (*Tree, error) {
	parts := strings.SplitN("v"+strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return nil, fmt.Errorf("%q is not a version of Kubernetes: write it as v1.37 or v1.37.2", version)
	}
	version = strings.Join(parts, ".")
	minor := parts[0] + "." + parts[1]
	dir := filepath.Join(repo, "helpers", "kubeapiserver", minor)
	file, err := readGoMod(filepath.Join(dir, "go.mod"), modfile.Parse)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &notPinnedError{version: version, folder: "helpers/kubeapiserver/" + minor}
	}
	if err != nil {
		return nil, fmt.Errorf("reading which version helpers/kubeapiserver/%s pins: %w", minor, err)
	}
	pin := pinnedVersion(file, kubernetes)
	if pin == "" {
		return nil, fmt.Errorf("helpers/kubeapiserver/%s/go.mod does not require %s: a pin names its version there", minor, kubernetes)
	}
	if len(parts) == 3 && version != pin {
		return nil, &notPinnedError{version: version, folder: "helpers/kubeapiserver/" + minor, pinned: pin}
	}
	root, err := rootModule(repo)
	if err != nil {
		return nil, err
	}
	return &Tree{version: pin, sources: []moduleSource{requirements(dir, file), root}}, nil
}

// notPinnedError says that no nested module pins a version.
type notPinnedError struct{ version, folder, pinned string }

func (e *notPinnedError) Error() string {
	if e.pinned != "" {
		return fmt.Sprintf("%s is not pinned here: %s pins %s; ask for that one, or change its go.mod", e.version, e.folder, e.pinned)
	}
	return fmt.Sprintf("%s is not pinned here: there is no module in %s; add one as its neighbours are", e.version, e.folder)
}

// findRepo is the root of this repository: the nearest folder at or above the working directory
// whose go.mod stands beside helpers/kubeapiserver.
func findRepo() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the root of the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		_, errMod := os.Stat(filepath.Join(dir, "go.mod"))
		_, errPins := os.Stat(filepath.Join(dir, "helpers", "kubeapiserver"))
		if errMod == nil && errPins == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no folder at or above %s holds go.mod and helpers/kubeapiserver: run this inside the repository, which pins the source", start)
		}
	}
}

// rootModule is what the root module of the repository at repo requires.
func rootModule(repo string) (moduleSource, error) {
	file, err := readGoMod(filepath.Join(repo, "go.mod"), modfile.Parse)
	if err != nil {
		return moduleSource{}, fmt.Errorf("reading what this repository requires: %w", err)
	}
	return requirements(repo, file), nil
}

// requirements are the modules that file, the go.mod in dir, requires, replacements applied.
func requirements(dir string, file *modfile.File) moduleSource {
	return moduleSource{
		paths: required(file),
		goMod: func(ctx context.Context, path string) (string, error) {
			m, err := listModule(ctx, dir, path)
			return m.goMod, err
		},
		locate: func(ctx context.Context, path string) (module, error) {
			m, err := listModule(ctx, dir, path)
			if err != nil || m.dir != "" {
				return m, err
			}
			got, err := download(ctx, dir, path)
			if err != nil {
				return module{}, err
			}
			m.dir, m.goMod = got.dir, got.goMod
			return m, nil
		},
	}
}

// readGoMod reads a go.mod file: by modfile.Parse one of this repository, whose replacements count, and by
// modfile.ParseLax one of a dependency, of which the requirements are all that counts.
func readGoMod(path string, parse func(string, []byte, modfile.VersionFixer) (*modfile.File, error)) (*modfile.File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(path, text, nil)
}

// pinnedVersion is the version of a module that a go.mod file requires, replaced or not; empty if it requires none.
func pinnedVersion(f *modfile.File, path string) string {
	version := ""
	for _, r := range f.Require {
		if r.Mod.Path == path {
			version = r.Mod.Version
		}
	}
	for _, r := range f.Replace {
		if r.Old.Path == path && version != "" && r.New.Version != "" {
			version = r.New.Version
		}
	}
	return version
}

// required lists the module paths that a go.mod file requires.
func required(f *modfile.File) []string {
	paths := make([]string, len(f.Require))
	for i, r := range f.Require {
		paths[i] = r.Mod.Path
	}
	return paths
}

// listModule asks the go command for a module of the build list of the module in dir. The folder is
// empty when the module cache lacks it.
func listModule(ctx context.Context, dir, modulePath string) (module, error) {
	var m struct {
		Path, Version, Dir, GoMod string
		Replace                   *struct{ Path, Version, Dir, GoMod string }
	}
	if err := goJSON(ctx, dir, &m, "list", "-mod=readonly", "-m", "-json", modulePath); err != nil {
		return module{}, err
	}
	found := module{path: m.Path, version: m.Version, dir: m.Dir, goMod: m.GoMod}
	if r := m.Replace; r != nil && r.Version != "" {
		found.version = r.Version
	}
	return found, nil
}

// download puts a module into the module cache; query is a path of the build list of the module in
// dir, or path@version.
func download(ctx context.Context, dir, query string) (module, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, fmt.Errorf("it took longer than %v", fetchTimeout))
	defer cancel()
	var m struct{ Path, Version, Dir, GoMod, Error string }
	err := goJSON(ctx, dir, &m, "mod", "download", "-json", query)
	if m.Error != "" && ctx.Err() == nil {
		return module{}, errors.New(firstLine(m.Error))
	}
	if err != nil {
		return module{}, err
	}
	return module{path: m.Path, version: m.Version, dir: m.Dir, goMod: m.GoMod}, nil
}

// goJSON runs the go command in dir and decodes what it prints into v, also when it fails, because
// some of its commands report their error there.
func goJSON(ctx context.Context, dir string, v any, args ...string) error {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// A workspace of the reader would put other versions in the place of the pinned ones.
	cmd.Env = append(os.Environ(), "GOWORK=off", "PWD="+dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	errRun := cmd.Run()
	errJSON := json.Unmarshal(stdout.Bytes(), v)
	what := "go " + strings.Join(args, " ")
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	case errRun != nil && stderr.Len() > 0:
		return fmt.Errorf("%s: %s", what, firstLine(stderr.String()))
	case errRun != nil:
		return fmt.Errorf("%s: %w", what, errRun)
	case errJSON != nil:
		return fmt.Errorf("%s printed no JSON: %w", what, errJSON)
	}
	return nil
}

// firstLine is the first line of what the go command says, its notes of progress aside.
func firstLine(s string) string {
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "go: downloading ") && !strings.HasPrefix(line, "go: finding ") {
			return line
		}
	}
	return strings.TrimSpace(s)
}

// sourceOf is the path of the module that holds the package pkg, and where that module comes from;
// the path is empty if there is none.
func (t *Tree) sourceOf(pkg string) (from moduleSource, path string) {
	for _, s := range t.sources {
		for _, p := range s.paths {
			if (pkg == p || strings.HasPrefix(pkg, p+"/")) && len(p) > len(path) {
				from, path = s, p
			}
		}
		if path != "" {
			return from, path
		}
	}
	return moduleSource{}, ""
}

// moduleOf is the module that holds the package pkg, on disk.
func (t *Tree) moduleOf(ctx context.Context, pkg string) (module, error) {
	s, path := t.sourceOf(pkg)
	if path == "" {
		return module{}, fmt.Errorf("no module of Kubernetes %s or of this repository holds package %s: check the import path", t.version, pkg)
	}
	if m, ok := t.modules[path]; ok {
		return m, nil
	}
	m, err := s.locate(ctx, path)
	if err != nil {
		return module{}, t.noSource(ctx, path, err)
	}
	if t.modules == nil {
		t.modules = make(map[string]module)
	}
	t.modules[path] = m
	return m, nil
}

// noSource says that a module cannot be had. That the caller gave up is no such error.
func (t *Tree) noSource(ctx context.Context, path string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("finding the source of %s: %w", path, err)
	}
	return fmt.Errorf("%w: %s of Kubernetes %s is not in the module cache and could not be downloaded: %w", ErrNoSource, path, t.version, err)
}

// dirOf is the folder of the package pkg and the path of that folder below its module.
func (t *Tree) dirOf(ctx context.Context, pkg string) (m module, dir, below string, err error) {
	m, err = t.moduleOf(ctx, pkg)
	if err != nil {
		return m, "", "", err
	}
	below = strings.TrimPrefix(strings.TrimPrefix(pkg, m.path), "/")
	return m, filepath.Join(m.dir, filepath.FromSlash(below)), path.Clean(below), nil
}
