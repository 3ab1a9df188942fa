package pinned

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/mod/modfile"
)

// root is the module that holds this package and, nested in it, the pinned modules.
const root = "modrev"

// RepoRoot returns the folder of this repository: the checkout that this package was compiled from or, if the
// compiler was told not to say where that is (-trimpath), the one around the working directory.
//
// The files of a nested module can be found only that way: go:embed does not cross into another module.
func RepoRoot() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if dir, ok := above(filepath.Dir(file)); ok {
			return dir, nil
		}
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	dir, ok := above(wd)
	if !ok {
		return "", fmt.Errorf("the repository, which says what to build, was not found from %s: "+
			"run this in a checkout of it", wd)
	}
	return dir, nil
}

// above returns the folder of the module root that dir is in.
func above(dir string) (string, bool) {
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && modfile.ModulePath(mod) == root {
			return dir, true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", false
		}
		dir = up
	}
}
