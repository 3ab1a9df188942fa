package forge

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"modrev/helpers/kubeapiserver"
	"modrev/helpers/kubeapiserver/pinned"
)

// buildTools builds kubectl, etcdctl and jq, unless they have been built already, and returns their paths by the
// names under which a shell is to find them. kubectl is of the minor version of the kube-apiserver given, if that
// is pinned, else of the newest that is; the others come from a module of their own. jq is gojq.
func buildTools(ctx context.Context, version string, progress io.Writer) (map[string]string, error) {
	minor, err := pinnedMinor(version)
	if err != nil {
		return nil, err
	}
	kubectl, err := kubeapiserver.Command(minor, "kubectl")
	if err != nil {
		return nil, err
	}
	repo, err := pinned.RepoRoot()
	if err != nil {
		return nil, err
	}
	module := filepath.Join(repo, "helpers", "forge", "tools")
	tools := map[string]string{}
	for _, t := range []struct {
		name string
		pinned.Tool
	}{
		{"kubectl", kubectl},
		{"etcdctl", pinned.Tool{Module: module, Package: "go.etcd.io/etcd/etcdctl/v3"}},
		{"jq", pinned.Tool{Module: module, Package: "github.com/itchyny/gojq/cmd/gojq"}},
	} {
		t.Avoid = "start the lab with -tools=false if you have kubectl, etcdctl and jq"
		if tools[t.name], err = pinned.Build(ctx, t.Tool, pinned.Options{Progress: progress}); err != nil {
			return nil, err
		}
	}
	return tools, nil
}

// pinnedMinor is the minor version of a kube-apiserver such as "v1.37.2", "" if it is not pinned.
func pinnedMinor(version string) (string, error) {
	all, err := kubeapiserver.Pinned()
	if err != nil {
		return "", err
	}
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if minor := strings.Join(parts[:min(2, len(parts))], "."); slices.Contains(all, minor) {
		return minor, nil
	}
	return "", nil
}

// linkTools makes a folder in which programs stand under the names given, and returns it. etcd is where etcdctl is
// to look when nobody tells it.
func linkTools(folder string, tools map[string]string, etcd string) (string, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("making the folder for the tools: %w", err)
	}
	for name, path := range tools {
		file := filepath.Join(folder, name)
		var err error
		switch {
		case name == "etcdctl":
			err = os.WriteFile(file, []byte(etcdctl(path, etcd)), 0o700)
		default:
			err = os.Symlink(path, file)
		}
		if err != nil {
			return "", fmt.Errorf("putting %s into the folder for the tools: %w", name, err)
		}
	}
	return folder, nil
}

// etcdctl is a script that runs an etcdctl and tells it where etcd is, unless somebody else does. The variable for
// that cannot simply stand in the reader's shell: etcdctl refuses to work when it is set and the flag is given,
// too, as the first document does (verifyEnv in go.etcd.io/etcd/pkg/v3/flags).
func etcdctl(path, etcd string) string {
	return `#!/bin/sh
case " $* " in
*" --endpoints"*) ;;
*) export ETCDCTL_ENDPOINTS="${ETCDCTL_ENDPOINTS-` + etcd + `}" ;;
esac
exec ` + Quote(path) + ` "$@"
`
}

// Quote quotes a text for a shell.
func Quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
