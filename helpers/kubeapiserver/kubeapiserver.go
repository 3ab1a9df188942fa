// Package kubeapiserver finds the kube-apiserver to run: the one in KUBEBUILDER_ASSETS if that is
// set, else the one that it builds from a pinned module.
package kubeapiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"modrev/helpers/kubeapiserver/pinned"
)

// AssetsVariable is the environment variable that names a folder with a prebuilt kube-apiserver. It
// is the convention of controller-runtime's envtest, whose setup-envtest downloads such folders.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// Binary is a kube-apiserver that can be run.
type Binary struct {
	// Path is the absolute path of the executable.
	Path string
	// Version is the Kubernetes version that the server reports, such as "v1.37.2".
	Version string
	// Built is true if the executable was built from the pinned module, now or earlier, and false if
	// it is the one in KUBEBUILDER_ASSETS.
	Built bool
}

// Options say which kube-apiserver is wanted and whom to tell. The zero value is ready to use.
type Options struct {
	// Progress gets lines of at most 100 columns (a path is never cut) while kube-apiserver is built,
	// one at least every ten seconds. Nil discards them.
	Progress io.Writer
	// CacheDir is the folder for what was built. The default is the folder modrev in
	// [os.UserCacheDir].
	CacheDir string
	// Version is the minor version to build, such as "1.37". The default is the newest of [Pinned].
	// A kube-apiserver in KUBEBUILDER_ASSETS is of the version that it is.
	Version string
}

// Find returns the kube-apiserver to run. If KUBEBUILDER_ASSETS is set, it is the one in that
// folder, which is left as it is. Otherwise it is built from its pinned module the first time, which
// takes some minutes, and found in milliseconds from then on.
//
// An error says what went wrong and what to do. A build that takes longer than
// ctx allows is cut off with an error that wraps ctx's; a caller that runs under go test passes a
// context with the test's deadline, because go test would end the process without a word on why.
func Find(ctx context.Context, o Options) (Binary, error) {
	if dir := os.Getenv(AssetsVariable); dir != "" {
		return prebuilt(ctx, dir)
	}
	tool, err := Command(o.Version, "kube-apiserver")
	if err != nil {
		return Binary{}, err
	}
	version, err := pinned.Version(tool)
	if err != nil {
		return Binary{}, err
	}
	path, err := pinned.Build(ctx, tool, pinned.Options{Progress: o.Progress, CacheDir: o.CacheDir})
	if err != nil {
		return Binary{}, err
	}
	return Binary{Path: path, Version: version, Built: true}, nil
}

// prebuilt returns the kube-apiserver in the folder dir, which KUBEBUILDER_ASSETS names.
func prebuilt(ctx context.Context, dir string) (Binary, error) {
	path, err := filepath.Abs(filepath.Join(dir, "kube-apiserver"))
	if err != nil {
		return Binary{}, fmt.Errorf("%s=%s: %w", AssetsVariable, dir, err)
	}
	version, err := reported(ctx, path)
	if err != nil {
		relative := ""
		if !filepath.IsAbs(dir) {
			relative = " (a relative path, and go test runs each package in its own folder)"
		}
		return Binary{}, fmt.Errorf("%s=%s%s holds no kube-apiserver that runs on this %s/%s machine: %w: set it to what "+
			"`setup-envtest use -p path 1.37.x` prints, or unset it to have kube-apiserver built",
			AssetsVariable, dir, relative, runtime.GOOS, runtime.GOARCH, err)
	}
	return Binary{Path: path, Version: version}, nil
}

// reported returns the version that a kube-apiserver says it has.
func reported(ctx context.Context, path string) (string, error) {
	const patience = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("--version failed (%w)", err)
	}
	version, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "Kubernetes ")
	if !ok {
		return "", errors.New("--version does not answer like a kube-apiserver")
	}
	return version, nil
}
