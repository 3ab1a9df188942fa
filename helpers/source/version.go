package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"modrev/helpers/kubeapiserver/pinned"
)

// ErrNoSource is wrapped by every error that comes of source which is neither in the module cache
// nor to be had from the Go module proxy, be it of [For] or of what a tree is asked for later. A
// lesson that needs the source of a prebuilt kube-apiserver can then say so and skip.
var ErrNoSource = errors.New("the source cannot be had")

// mainModule is a module in whose folder the go command looks for packages.
type mainModule struct {
	folder   string
	requires map[string]string // versions by module path
}

var release = regexp.MustCompile(`^v1(\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?)$`)

// For is the source of a kube-apiserver of any version: "1.37" is whatever patch release of it is
// pinned, and "v1.34.4", as a prebuilt one reports it, is just that.
//
// The nested module that pins Kubernetes says which source that is. A release that is not pinned is
// represented by the k8s.io/apiextensions-apiserver that was released with it, which requires all
// modules of that release but k8s.io/kubernetes itself. What Kubernetes does not require
// (controller-runtime, etcd's server) is what the root module of this repository requires.
//
// The error wraps [ErrNoSource] when the version is not a release of Kubernetes itself or its
// source cannot be had.
func For(ctx context.Context, version string) (*Tree, error) {
	version = "v" + strings.TrimPrefix(version, "v")
	repository, err := pinned.RepoRoot()
	if err != nil {
		return nil, fmt.Errorf("finding the source of Kubernetes %s: %w", version, err)
	}
	root, err := readModule(repository)
	if err != nil {
		return nil, fmt.Errorf("reading what this repository requires: %w", err)
	}
	minor := semver.MajorMinor(version)
	pin, err := readModule(filepath.Join(repository, "helpers", "kubeapiserver", minor))
	switch {
	case errors.Is(err, fs.ErrNotExist): // it is not pinned
	case err != nil:
		return nil, fmt.Errorf("reading which Kubernetes %s is pinned: %w", minor, err)
	case version == minor || version == pin.requires["k8s.io/kubernetes"]:
		return newTree(pin.requires["k8s.io/kubernetes"], pin, root), nil
	}
	parts := release.FindStringSubmatch(version)
	if parts == nil {
		return nil, fmt.Errorf("%w: %q does not name a release of Kubernetes, so it does not say which source "+
			"it was built from: give one with its patch number, such as v1.34.4", ErrNoSource, version)
	}
	released, err := download(ctx, "k8s.io/apiextensions-apiserver", "v0"+parts[1])
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("finding the source of Kubernetes %s: %w", version, context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("%w: kube-apiserver %s is not pinned, and its source could not be downloaded: %w; "+
			"run this once where the Go module proxy can be reached", ErrNoSource, version, err)
	}
	return newTree(version, released, root), nil
}

// readModule reads what the go.mod in a folder requires.
func readModule(folder string) (*mainModule, error) {
	name := filepath.Join(folder, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	mod, err := modfile.ParseLax(name, text, nil)
	if err != nil {
		return nil, err
	}
	m := &mainModule{folder: folder, requires: make(map[string]string)}
	for _, r := range mod.Require {
		m.requires[r.Mod.Path] = r.Mod.Version
	}
	return m, nil
}

// download puts a module into the module cache, where the go command takes its folder for a main module's.
func download(ctx context.Context, module, version string) (*mainModule, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module+"@"+version)
	cmd.Dir = os.TempDir() // the go command heeds no go.mod there, so that no go.sum is written
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, errRun := cmd.Output()
	var got struct{ Dir, Error string }
	errJSON := json.Unmarshal(out, &got)
	if got.Error != "" {
		return nil, errors.New(firstLine(got.Error))
	}
	if err := cmp.Or(errRun, errJSON); err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	m, err := readModule(got.Dir)
	if err != nil {
		return nil, err
	}
	m.requires[module] = version
	return m, nil
}

// firstLine is the first line of what the go command says.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
