package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"modrev/helpers/forge"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"forge": main})
}

// TestForge runs the scripts in testdata/script. Besides the commands of testscript they have
//
//	lab NAME [flags]     starts a forge in the background and waits until it is up; sets $NAME to its folder
//	end NAME SIGNAL      ends it, and expects that nothing of it is left
//	port NAME            sets $NAME to a free port of 127.0.0.1
//	taken NAME           sets $NAME to a port of 127.0.0.1 on which something listens
func TestForge(t *testing.T) {
	prepare(t)
	variables := goVariables(t)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			labs := make(map[string]*scriptLab)
			env.Values["labs"] = labs
			env.Defer(func() {
				for _, l := range labs {
					l.process.kill()
				}
			})
			return furnish(env, variables)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"lab": cmdLab, "end": cmdEnd, "port": cmdPort, "taken": cmdTaken,
		},
	})
}

// furnish gives a script a folder for temporary files and a home of its own. What has been built, and what to build it
// from, stays where it is: variables say where.
func furnish(env *testscript.Env, variables []string) error {
	tmp, err := shortTemp()
	if err != nil {
		return err
	}
	env.Defer(func() {
		if err := os.RemoveAll(tmp); err != nil {
			env.T().Log(err)
		}
	})
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"TMPDIR": tmp, "HOME": env.WorkDir, "XDG_CACHE_HOME": cache, "PROMPT_COMMAND": "", forge.LabVariable: "",
		"KUBEBUILDER_ASSETS": os.Getenv("KUBEBUILDER_ASSETS"),
	} {
		env.Setenv(name, value)
	}
	env.Vars = append(env.Vars, variables...)
	if runtime.GOOS == "darwin" {
		library := filepath.Join(env.WorkDir, "Library")
		return errors.Join(os.Mkdir(library, 0o700), os.Symlink(cache, filepath.Join(library, "Caches")))
	}
	return nil
}

// goVariables are the settings of the go command that follow from the home folder, as NAME=value.
func goVariables(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, name := range []string{"GOPATH", "GOMODCACHE", "GOCACHE", "GOPROXY", "GOFLAGS", "GOSUMDB", "GONOSUMDB"} {
		out = append(out, name+"="+goEnv(t, name))
	}
	return out
}

// goEnv is a setting of the go command.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(value))
}

// scriptLab is a lab that a script has started.
type scriptLab struct {
	process *process
	state   forge.State
}

func labs(ts *testscript.TestScript) map[string]*scriptLab {
	return ts.Value("labs").(map[string]*scriptLab)
}

func cmdLab(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: lab NAME [flags]")
	}
	var env []string
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "KUBEBUILDER_ASSETS", "PATH"} {
		env = append(env, name+"="+ts.Getenv(name))
	}
	p, err := launch(ts.Getenv("TMPDIR"), env, "forge", args[1:]...)
	ts.Check(err)
	l := &scriptLab{process: p}
	labs(ts)[args[0]] = l
	l.state, err = p.up()
	ts.Check(err)
	ts.Setenv(args[0], l.state.Dir)
	ts.Logf("%s", p.output())
}

func cmdEnd(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL}
	if neg || len(args) != 2 || labs(ts)[args[0]] == nil || signals[args[1]] == 0 {
		ts.Fatalf("usage: end NAME SIGNAL, of a lab that was started")
	}
	l := labs(ts)[args[0]]
	ts.Check(l.process.cmd.Process.Signal(signals[args[1]]))
	_, err := l.process.ends()
	ts.Check(err)
	ts.Check(left(l.state))
}

func cmdPort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: port NAME")
	}
	port, err := freePort()
	ts.Check(err)
	ts.Setenv(args[0], port)
}

func cmdTaken(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: taken NAME")
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(err)
	ts.Setenv(args[0], port)
}
