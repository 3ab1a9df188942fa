package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// For is the source of a kube-apiserver of any version, such as the "v1.34.4" that a prebuilt one
// reports: the pinned source if that version is pinned, else the staging modules that were released
// with it, from the module cache or the Go module proxy. Modules of which that version requires
// none come from the root module of this repository.
//
// The error wraps [ErrNoSource] when the version is not a release of Kubernetes itself or its
// source cannot be had.
func For(ctx context.Context, version string) (*Tree, error) {
	repo, err := findRepo()
	if err != nil {
		return nil, err
	}
	version = "v" + strings.TrimPrefix(version, "v")
	tree, err := pinnedIn(repo, version)
	var notPinned *notPinnedError
	if !errors.As(err, &notPinned) {
		return tree, err
	}
	release := regexp.MustCompile(`^v1(\.\d+\.\d+(?:-(?:alpha|beta|rc)\.\d+)?)$`)
	parts := release.FindStringSubmatch(version)
	if parts == nil {
		return nil, fmt.Errorf("%w: %q does not name a release of Kubernetes, so it does not say which source it was built from: give one with its patch number, such as v1.34.4", ErrNoSource, version)
	}
	released, err := releasedWith(ctx, repo, version, "v0"+parts[1])
	if err != nil {
		return nil, err
	}
	root, err := rootModule(repo)
	if err != nil {
		return nil, err
	}
	return &Tree{version: version, sources: []moduleSource{released, root}}, nil
}

// releasedWith are the modules of a version of Kubernetes that is not pinned: its staging modules
// at the version staging, and what its k8s.io/apiserver requires.
func releasedWith(ctx context.Context, repo, version, staging string) (moduleSource, error) {
	const apiserver = "k8s.io/apiserver"
	// Outside of any module, so that no go.mod has a say and no go.sum is written.
	outside := func(ctx context.Context, ask func(ctx context.Context, dir, query string) (module, error), query string) (module, error) {
		dir, err := os.MkdirTemp("", "source")
		if err != nil {
			return module{}, err
		}
		defer os.RemoveAll(dir)
		return ask(ctx, dir, query)
	}
	m, err := outside(ctx, download, apiserver+"@"+staging)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: kube-apiserver %s is not pinned, and its source could not be downloaded: %w", ErrNoSource, version, err)
	}
	if err != nil {
		return moduleSource{}, err
	}
	file, err := readGoMod(m.goMod, modfile.ParseLax)
	if err != nil {
		return moduleSource{}, fmt.Errorf("reading what %s %s requires: %w", apiserver, staging, err)
	}
	versions := make(map[string]string)
	for _, r := range file.Require {
		versions[r.Mod.Path] = r.Mod.Version
	}
	pins, err := filepath.Glob(filepath.Join(repo, "helpers", "kubeapiserver", "v*", "go.mod"))
	if err != nil {
		return moduleSource{}, fmt.Errorf("looking for the modules that pin a kube-apiserver: %w", err)
	}
	for _, pin := range pins {
		file, err := readGoMod(pin, modfile.Parse)
		if err != nil {
			return moduleSource{}, fmt.Errorf("reading which modules are staging modules: %w", err)
		}
		// The modules that a pin replaces are the staging modules.
		for _, r := range file.Replace {
			versions[r.Old.Path] = staging
		}
	}
	versions[apiserver] = staging
	versions[kubernetes] = version
	s := moduleSource{
		goMod: func(ctx context.Context, path string) (string, error) {
			m, err := outside(ctx, listModule, path+"@"+versions[path])
			return m.goMod, err
		},
		locate: func(ctx context.Context, path string) (module, error) {
			return outside(ctx, download, path+"@"+versions[path])
		},
	}
	for path := range versions {
		s.paths = append(s.paths, path)
	}
	slices.Sort(s.paths)
	return s, nil
}
