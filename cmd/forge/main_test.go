package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"forge": main})
}

// TestForge runs the scripts in testdata, with a cache folder in which nothing has been built. What the go command
// has compiled stays where it is.
func TestForge(t *testing.T) {
	var variables []string
	for _, name := range []string{"GOPATH", "GOMODCACHE", "GOCACHE", "GOPROXY", "GOSUMDB", "GONOSUMDB"} {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		require.NoError(t, err)
		variables = append(variables, name+"="+strings.TrimSpace(string(value)))
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Vars = append(env.Vars, variables...)
			if runtime.GOOS == "darwin" {
				return os.MkdirAll(filepath.Join(env.WorkDir, "Library", "Caches"), 0o700)
			}
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			return nil
		},
	})
}
