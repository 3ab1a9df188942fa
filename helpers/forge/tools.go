package forge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"modrev/helpers/kubeapiserver"
	"modrev/helpers/kubeapiserver/pinned"
)

// Tools makes a folder in which kubectl, etcdctl and jq stand under these names, and returns it. What has
// not been built yet is built: kubectl from the module that pins kube-apiserver, the others from one of
// their own. jq is gojq.
func Tools(ctx context.Context, dir string, o Options) (string, error) {
	kubectl, err := kubeapiserver.Command(o.Version, "kubectl")
	if err != nil {
		return "", err
	}
	module, err := pinned.Folder("helpers/forge/tools")
	if err != nil {
		return "", err
	}
	kubectl.Cost = 90 * time.Second
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return "", fmt.Errorf("making the folder for the tools: %w", err)
	}
	for _, tool := range []struct {
		name string
		pinned.Tool
	}{
		{"kubectl", kubectl},
		{"etcdctl", pinned.Tool{Module: module, Package: "go.etcd.io/etcd/etcdctl/v3", Cost: 30 * time.Second}},
		{"jq", pinned.Tool{Module: module, Package: "github.com/itchyny/gojq/cmd/gojq", Cost: 10 * time.Second}},
	} {
		path, err := pinned.Build(ctx, tool.Tool, pinned.Options{Progress: o.Progress})
		if err != nil {
			return "", err
		}
		if err := os.Symlink(path, filepath.Join(bin, tool.name)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("putting %s into the folder for the tools: %w", tool.name, err)
		}
	}
	return bin, nil
}
