// Package kubeapiserver finds the kube-apiserver to run: the one in KUBEBUILDER_ASSETS if that is
// set, else the one that it builds from a pinned module.
package kubeapiserver

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
// An error is one sentence that says what went wrong and what to do. A build that takes longer than
// ctx allows is cut off with an error that wraps ctx's; a caller that runs under go test passes a
// context with the test's deadline, because go test would end the process without a word on why.
func Find(ctx context.Context, o Options) (Binary, error) {
	if runtime.GOOS == "windows" {
		return Binary{}, errors.New("the book needs a kube-apiserver and a unix socket, which Windows does not have: use the Windows Subsystem for Linux")
	}
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
	const remedy = "set " + AssetsVariable + " to what `setup-envtest use -p path 1.37.x` prints, or unset it to have kube-apiserver built"
	given := AssetsVariable + "=" + dir
	if !filepath.IsAbs(dir) {
		given += " (a relative path, and go test runs each package in its own folder)"
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Binary{}, fmt.Errorf("%s: there is no such folder: %s", given, remedy)
	case err != nil:
		return Binary{}, fmt.Errorf("%s: the folder cannot be read (%w): %s", given, err, remedy)
	case !info.IsDir():
		return Binary{}, fmt.Errorf("%s: that is not a folder: %s", given, remedy)
	}
	path, err := filepath.Abs(filepath.Join(dir, "kube-apiserver"))
	if err != nil {
		return Binary{}, fmt.Errorf("%s: %w", given, err)
	}
	err = pinned.Runnable(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Binary{}, fmt.Errorf("%s: there is no kube-apiserver in that folder: %s", given, remedy)
	case err != nil:
		return Binary{}, fmt.Errorf("%s: %w: %s", AssetsVariable, err, remedy)
	}
	version, err := reported(ctx, path)
	if err != nil {
		return Binary{}, fmt.Errorf("%s: %w: %s", AssetsVariable, err, remedy)
	}
	return Binary{Path: path, Version: version}, nil
}

// stamp is how a version is linked into a Kubernetes command.
var stamp = regexp.MustCompile(`component-base/version\.gitVersion=(v[^'"\s]+)`)

// reported returns the version that a kube-apiserver says it has: the one that its linker's flags
// stamped on it, if the build information holds them, else what it answers when asked.
func reported(ctx context.Context, path string) (string, error) {
	if info, err := buildinfo.ReadFile(path); err == nil {
		for _, s := range info.Settings {
			if s.Key == "-ldflags" {
				if m := stamp.FindStringSubmatch(s.Value); m != nil {
					return m[1], nil
				}
			}
		}
	}
	const patience = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s --version failed (%w)", path, err)
	}
	version, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "Kubernetes ")
	if !ok {
		return "", fmt.Errorf("%s --version does not answer like a kube-apiserver", path)
	}
	return version, nil
}
