package kubeapiserver

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"modrev/helpers/kubeapiserver/pinned"
)

// home is the folder of the pinned modules in the repository. Each is called after the minor version
// of Kubernetes that it pins, such as v1.37.
const home = "helpers/kubeapiserver"

// Pinned returns the minor versions of Kubernetes that can be built, such as "1.37", the newest
// first.
func Pinned() ([]string, error) {
	repo, err := pinned.RepoRoot()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(repo, home)
	mods, err := filepath.Glob(filepath.Join(dir, "v1.*", "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("looking for pinned versions of Kubernetes: %w", err)
	}
	var minors []int
	for _, mod := range mods {
		if n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(mod)), "v1.")); err == nil {
			minors = append(minors, n)
		}
	}
	if len(minors) == 0 {
		return nil, fmt.Errorf("no version of Kubernetes is pinned in %s: restore the folder with git checkout", dir)
	}
	slices.Sort(minors)
	slices.Reverse(minors)
	var versions []string
	for _, n := range minors {
		versions = append(versions, fmt.Sprintf("1.%d", n))
	}
	return versions, nil
}

// Command returns a command of the pinned Kubernetes, such as "kube-apiserver" or "kubectl", for
// [pinned.Build]. Version is the minor version, such as "1.37"; empty means the newest of [Pinned].
// The command is stamped with the version, as the binaries of a Kubernetes release are.
func Command(version, name string) (pinned.Tool, error) {
	all, err := Pinned()
	if err != nil {
		return pinned.Tool{}, err
	}
	minor := strings.TrimPrefix(version, "v")
	if minor == "" {
		minor = all[0]
	}
	if !slices.Contains(all, minor) {
		return pinned.Tool{}, fmt.Errorf("no pinned module for Kubernetes %s: choose one of %s, "+
			"or set %s to a folder that holds it", version, strings.Join(all, ", "), AssetsVariable)
	}
	repo, err := pinned.RepoRoot()
	if err != nil {
		return pinned.Tool{}, err
	}
	t := pinned.Tool{
		Module:  filepath.Join(repo, home, "v"+minor),
		Package: "k8s.io/kubernetes/cmd/" + name,
	}
	full, err := pinned.Version(t)
	if err != nil {
		return pinned.Tool{}, err
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(full, "v"), ".")
	second, _, _ := strings.Cut(rest, ".")
	// The variables are those that hack/lib/version.sh of k8s.io/kubernetes stamps.
	const pkg = "k8s.io/component-base/version."
	t.LDFlags = fmt.Sprintf("-s -w -X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s",
		pkg, full, major, second)
	if name == "kube-apiserver" {
		t.Space = space
		t.Avoid = fmt.Sprintf("set %s to what `setup-envtest use %s.x -p path` prints", AssetsVariable, minor)
		t.Command = "go run ./" + home + "/build"
		if minor != all[0] {
			t.Command += " -version " + minor
		}
	}
	return t, nil
}

// space is the disk space of a first build: 2.7 GB in Go's build cache, 0.5 GB of unpacked
// modules and 0.1 GB for the executable were measured for 1.37.2; the rest is unfinished work.
const space = "4 GB"
