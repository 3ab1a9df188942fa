package kubeapiserver

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"

	"modrev/helpers/kubeapiserver/pinned"
)

// script writes an executable shell script.
func script(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o755))
}

// oneSentence checks that an error is one line and has these words.
func oneSentence(t *testing.T, err error, words ...string) {
	t.Helper()
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "\n")
	for _, w := range words {
		assert.Contains(t, err.Error(), w)
	}
	t.Log(err)
}

func TestFindTakesTheOneInKubebuilderAssets(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kube-apiserver")
	script(t, path, `[ "$*" = --version ] && echo Kubernetes v1.30.5`)
	t.Setenv(AssetsVariable, dir)
	var progress bytes.Buffer
	bin, err := Find(t.Context(), Options{Progress: &progress, CacheDir: t.TempDir()})
	require.NoError(t, err)
	assert.Equal(t, Binary{Path: path, Version: "v1.30.5"}, bin)
	assert.Empty(t, progress.String())

	t.Chdir(filepath.Dir(dir))
	t.Setenv(AssetsVariable, filepath.Base(dir))
	bin, err = Find(t.Context(), Options{})
	require.NoError(t, err)
	assert.Equal(t, path, bin.Path)
}

func TestFindSaysWhatIsWrongWithKubebuilderAssets(t *testing.T) {
	for _, c := range []struct {
		name  string
		make  func(t *testing.T, dir string) string // returns the variable's value
		words string
	}{
		{"missing folder", func(t *testing.T, dir string) string { return dir + "/none" }, "no such file or directory"},
		{"relative folder", func(t *testing.T, dir string) string { return "no/such/folder" },
			"a relative path, and go test runs each package in its own folder"},
		{"empty folder", func(t *testing.T, dir string) string { return dir }, "no such file or directory"},
		{"not executable", func(t *testing.T, dir string) string {
			script(t, dir+"/kube-apiserver", "")
			require.NoError(t, os.Chmod(dir+"/kube-apiserver", 0o644))
			return dir
		}, "permission denied"},
		{"not a program, or one of another platform", func(t *testing.T, dir string) string {
			require.NoError(t, os.WriteFile(dir+"/kube-apiserver", []byte("<html>404</html>"), 0o755))
			return dir
		}, "on this " + runtime.GOOS + "/" + runtime.GOARCH + " machine: --version failed (fork/exec "},
		{"cannot run", func(t *testing.T, dir string) string {
			script(t, dir+"/kube-apiserver", "exit 3")
			return dir
		}, "--version failed (exit status 3)"},
		{"something else", func(t *testing.T, dir string) string {
			script(t, dir+"/kube-apiserver", "echo hello")
			return dir
		}, "does not answer like a kube-apiserver"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(AssetsVariable, c.make(t, t.TempDir()))
			_, err := Find(t.Context(), Options{})
			oneSentence(t, err, AssetsVariable, c.words, "setup-envtest", "unset it")
		})
	}
}

func TestFindBuildsTheNewestPinnedOneIfThereAreNoAssets(t *testing.T) {
	t.Setenv(AssetsVariable, "")
	asked := filepath.Join(t.TempDir(), "asked")
	bin := t.TempDir()
	// This go command builds a kube-apiserver in no time and keeps what it was asked for.
	script(t, filepath.Join(bin, "go"), `
printf '%s\n' "$*" >>'`+asked+`'
pwd >>'`+asked+`'
for a; do case $a in -o=*) printf '#!/bin/sh\n' >"${a#-o=}"; chmod +x "${a#-o=}" ;; esac; done
`)
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	cache := t.TempDir()
	var progress bytes.Buffer

	got, err := Find(t.Context(), Options{Progress: &progress, CacheDir: cache})
	require.NoError(t, err)
	assert.True(t, got.Built)
	assert.Regexp(t, `^v1\.\d+\.\d+$`, got.Version)
	folder := cache + "/kube-apiserver-" + got.Version + "-" + runtime.GOOS + "-" + runtime.GOARCH + "-"
	assert.Regexp(t, "^"+regexp.QuoteMeta(folder)+"[0-9a-f]{8}/kube-apiserver$", got.Path)
	assert.Contains(t, progress.String(), "Building kube-apiserver "+got.Version+" from source, once")
	assert.Contains(t, progress.String(), "set KUBEBUILDER_ASSETS to what `setup-envtest use 1.")
	for line := range strings.Lines(progress.String()) {
		if !strings.Contains(line, cache) {
			assert.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), 100, line)
		}
	}
	was, err := os.ReadFile(asked)
	require.NoError(t, err)
	assert.Contains(t, string(was), "-X k8s.io/component-base/version.gitVersion="+got.Version)
	assert.Contains(t, string(was), "/helpers/kubeapiserver/v1.")

	progress.Reset()
	again, err := Find(t.Context(), Options{Progress: &progress, CacheDir: cache})
	require.NoError(t, err)
	assert.Equal(t, got, again)
	assert.Empty(t, progress.String())
}

func TestFindThatIsCutOffNamesTheCommandThatBuilds(t *testing.T) {
	t.Setenv(AssetsVariable, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Find(ctx, Options{CacheDir: t.TempDir()})
	require.ErrorIs(t, err, context.Canceled)
	oneSentence(t, err, "run `go run ./helpers/kubeapiserver/build` in the repository's folder")
}

func TestAVersionThatIsNotPinned(t *testing.T) {
	t.Setenv(AssetsVariable, "")
	_, err := Find(t.Context(), Options{Version: "1.2"})
	oneSentence(t, err, "no pinned module for Kubernetes 1.2", "choose one of 1.", AssetsVariable)
}

// TestEveryPinnedVersionIsWhatItsFolderSays checks what a person edits when a version is added.
func TestEveryPinnedVersionIsWhatItsFolderSays(t *testing.T) {
	minors, err := Pinned()
	require.NoError(t, err)
	for _, minor := range minors {
		t.Run(minor, func(t *testing.T) {
			tool, err := Command("v"+minor, "kube-apiserver")
			require.NoError(t, err)
			version, err := pinned.Version(tool)
			require.NoError(t, err)
			patch, ok := strings.CutPrefix(version, "v"+minor+".")
			assert.True(t, ok, version)
			assert.Contains(t, tool.LDFlags, "gitVersion="+version+" ")
			assert.Contains(t, tool.LDFlags, "gitMajor=1 ")
			assert.True(t, strings.HasSuffix(tool.LDFlags, "gitMinor="+strings.TrimPrefix(minor, "1.")), tool.LDFlags)

			file := filepath.Join(tool.Module, "go.mod")
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			mod, err := modfile.Parse(file, text, nil)
			require.NoError(t, err)
			require.NotEmpty(t, mod.Tool)
			assert.Equal(t, tool.Package, mod.Tool[0].Path)
			staging := "v0." + strings.TrimPrefix(minor, "1.") + "." + patch
			assert.NotEmpty(t, mod.Replace)
			for _, r := range mod.Replace {
				assert.Equal(t, staging, r.New.Version, r.Old.Path)
				assert.Equal(t, r.Old.Path, r.New.Path)
			}
		})
	}
}
