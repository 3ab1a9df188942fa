package forge

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"modrev/helpers/kubeapiserver"
)

func TestAShellIsToldWhatItNeeds(t *testing.T) {
	s := State{Dir: "/tmp/modrev-x", Kubeconfig: "/tmp/modrev-x/kubeconfig", Log: "/tmp/apiserver.log",
		Etcd: "http://127.0.0.1:2379", Tools: "/tmp/modrev-x/bin"}
	common := []string{
		"KUBECONFIG=/tmp/modrev-x/kubeconfig", "FORGE_LAB=/tmp/modrev-x", "FORGE_LOG=/tmp/apiserver.log",
		"FORGE_ETCD=http://127.0.0.1:2379",
	}
	require.Equal(t, append(common, "PATH=/tmp/modrev-x/bin:/usr/bin"), s.Environment("/usr/bin"))

	// The reader's own etcdctl finds etcd by itself at its usual port, and is told of it at another.
	s.Tools = ""
	require.Equal(t, common, s.Environment("/usr/bin"))
	s.Etcd = "unix:///tmp/modrev-x/tools.sock"
	require.Equal(t, append(common[:3:3], "FORGE_ETCD=unix:///tmp/modrev-x/tools.sock",
		"ETCDCTL_ENDPOINTS=unix:///tmp/modrev-x/tools.sock"), s.Environment("/usr/bin"))
}

func TestEtcdctlIsToldWhereEtcdIsUnlessSomebodyElseSaysSo(t *testing.T) {
	real := filepath.Join(t.TempDir(), "it's etcdctl") // a path that has to be quoted
	require.NoError(t, os.WriteFile(real, []byte("#!/bin/sh\necho \"at ${ETCDCTL_ENDPOINTS-nowhere}: $*\"\n"), 0o700))
	folder, err := linkTools(filepath.Join(t.TempDir(), "bin"), map[string]string{"etcdctl": real, "jq": "/usr/bin/jq"},
		"unix:///x/tools.sock")
	require.NoError(t, err)
	target, err := os.Readlink(filepath.Join(folder, "jq"))
	require.NoError(t, err)
	require.Equal(t, "/usr/bin/jq", target)
	for _, c := range []struct {
		env  string
		args []string
		says string
	}{
		{"", []string{"get", "a b"}, "at unix:///x/tools.sock: get a b\n"},
		{"", []string{"--endpoints=http://127.0.0.1:2379", "get", "x"},
			"at nowhere: --endpoints=http://127.0.0.1:2379 get x\n"},
		{"", []string{"get", "x", "--endpoints", "http://127.0.0.1:2379"},
			"at nowhere: get x --endpoints http://127.0.0.1:2379\n"},
		{"ETCDCTL_ENDPOINTS=http://other:1", []string{"get", "x"}, "at http://other:1: get x\n"},
	} {
		cmd := exec.Command(filepath.Join(folder, "etcdctl"), c.args...)
		cmd.Env = []string{"PATH=/bin:/usr/bin"}
		if c.env != "" {
			cmd.Env = append(cmd.Env, c.env)
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, c.says, string(out))
	}
}

// labFolder makes a folder as a lab has it, with somebody who answers on its socket, and returns its path.
func labFolder(t *testing.T, parent, name string, started time.Time) string {
	t.Helper()
	dir := filepath.Join(parent, "modrev-"+name)
	require.NoError(t, os.Mkdir(dir, 0o700))
	s := State{Dir: dir, Version: name, Wire: filepath.Join(dir, "wire.sock")}
	socket, err := net.Listen("unix", s.Wire)
	require.NoError(t, err)
	t.Cleanup(func() { socket.Close() })
	text, err := json.Marshal(s)
	require.NoError(t, err)
	path := filepath.Join(dir, stateFile)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	require.NoError(t, os.Chtimes(path, started, started))
	return dir
}

func TestTheLabThatWasStartedLastIsFoundUnlessOneIsNamed(t *testing.T) {
	tmp, err := os.MkdirTemp("/tmp", "forge") // the path of a socket is short
	require.NoError(t, err)
	defer os.RemoveAll(tmp)
	t.Setenv("TMPDIR", tmp)
	// It would be found as well if it were in /tmp itself; that it is started later than any real one hides those.
	future := time.Now().Add(time.Hour)
	first := labFolder(t, tmp, "first", future)
	second := labFolder(t, tmp, "second", future.Add(time.Minute))
	dead := filepath.Join(tmp, "modrev-dead")
	require.NoError(t, os.Mkdir(dead, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dead, stateFile), []byte(`{"Wire":"/nowhere"}`), 0o600))
	broken := labFolder(t, tmp, "broken", future.Add(time.Hour))
	require.NoError(t, os.WriteFile(filepath.Join(broken, stateFile), []byte(`{`), 0o600))

	for named, found := range map[string]string{"": second, first: first, second: second, dead: second, broken: second,
		"/nowhere": second} {
		s, err := Running(named)
		require.NoError(t, err)
		require.Equal(t, found, s.Dir, "asked for %q", named)
	}
}

// A folder of somebody else could put anything into the shell of who evaluates forge -env.
func TestAFolderOfSomebodyElseIsNoLab(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a folder of somebody else")
	}
	tmp, err := os.MkdirTemp("/tmp", "forge")
	require.NoError(t, err)
	defer os.RemoveAll(tmp)
	dir := labFolder(t, tmp, "foreign", time.Now())
	_, _, ok := read(dir)
	require.True(t, ok)
	require.NoError(t, os.Chown(dir, 65534, 65534))
	_, _, ok = read(dir)
	require.False(t, ok)
	link := filepath.Join(tmp, "modrev-link")
	require.NoError(t, os.Symlink(labFolder(t, tmp, "mine", time.Now()), link))
	_, _, ok = read(link)
	require.False(t, ok, "a link may lead anywhere")
}

func TestAVersionIsAskedForOnlyOfWhatIsBuilt(t *testing.T) {
	b := kubeapiserver.Binary{Version: "v1.37.2"}
	for _, fine := range []string{"", "1.37", "v1.37", "1.37.2", "v1.37.2"} {
		require.NoError(t, Options{Version: fine}.agrees(b), fine)
	}
	for _, other := range []string{"1.36", "1.3", "1.37.1", "v1.38"} {
		require.ErrorContains(t, Options{Version: other}.agrees(b),
			"kube-apiserver "+other+" was asked for, and KUBEBUILDER_ASSETS names one of v1.37.2")
	}
}

func TestKubectlIsOfTheVersionOfTheServerWhereThatIsPinned(t *testing.T) {
	all, err := kubeapiserver.Pinned()
	require.NoError(t, err)
	for version, want := range map[string]string{"v" + all[0] + ".9": all[0], "v1.2.3": "", "what": "", "": ""} {
		minor, err := pinnedMinor(version)
		require.NoError(t, err)
		require.Equal(t, want, minor, version)
	}
}
