//go:build unix

package pinned

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// own is a module with a command of its own, and that command.
func own(t *testing.T) (dir string, tool Tool) {
	t.Helper()
	dir = t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), `module own

go 1.21

require example.com/hello v1.2.3

replace example.com/hello => ./elsewhere/hello
`)
	write(t, filepath.Join(dir, "elsewhere/hello/go.mod"), "module example.com/hello\n\ngo 1.21\n")
	write(t, filepath.Join(dir, "elsewhere/hello/hello.go"), "package hello\n\nconst Word = \"hello\"\n")
	write(t, filepath.Join(dir, "cmd/main.go"), `package main

import (
	"example.com/hello"
	"own/helpers/name"
)

func main() { print(hello.Word, " ", name.Name) }
`)
	write(t, filepath.Join(dir, "helpers/name/name.go"), "package name\n\nconst Name = \"reader\"\n")
	return dir, Tool{Module: dir, Package: "own/cmd", Name: "greet", Sources: []string{"cmd", "helpers"}}
}

func TestACommandOfTheRepositoryIsBuiltOnceForEachStateOfItsSource(t *testing.T) {
	offline(t)
	dir, tool := own(t)
	cache := t.TempDir()
	says := func(want string) (path string) {
		t.Helper()
		path, err := Build(t.Context(), tool, Options{CacheDir: cache})
		require.NoError(t, err)
		out, err := exec.Command(path).CombinedOutput()
		require.NoError(t, err)
		assert.Equal(t, want, string(out))
		found, ok, err := Built(tool, Options{CacheDir: cache})
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, path, found)
		return path
	}
	change := func(file, old, new string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		write(t, filepath.Join(dir, file), strings.Replace(string(text), old, new, 1))
		_, ok, err := Built(tool, Options{CacheDir: cache})
		require.NoError(t, err)
		assert.False(t, ok, "%s was changed", file)
	}
	first := says("hello reader")

	write(t, filepath.Join(dir, "helpers/name/name_test.go"), "package name\n")
	write(t, filepath.Join(dir, "cmd/testdata/notes"), "of a test\n")
	write(t, filepath.Join(dir, "cmd/.main.go.swp"), "of an editor\n")
	write(t, filepath.Join(dir, "cmd/main.go~"), "of another\n")
	write(t, filepath.Join(dir, "helpers/_old/old.go"), "package old\n")
	assert.Equal(t, first, says("hello reader"), "none of that is a part of it")

	change("cmd/main.go", `" "`, `", "`)
	says("hello, reader")
	target := filepath.Join(dir, "name.go")
	require.NoError(t, os.Rename(filepath.Join(dir, "helpers/name/name.go"), target))
	require.NoError(t, os.Symlink(target, filepath.Join(dir, "helpers/name/name.go")))
	change("name.go", "reader", "teacher")
	says("hello, teacher")
	change("elsewhere/hello/hello.go", `"hello"`, `"welcome"`) // go.sum does not pin what is replaced by a folder
	says("welcome, teacher")
	change("go.mod", "go 1.21", "go 1.22")
	says("welcome, teacher")
	assert.NoFileExists(t, first, "the oldest of five")
	assert.Len(t, files(t, cache), 4*2, "the last four, each with its lock")

	_, other := own(t) // a command may remember where it was built
	_, ok, err := Built(other, Options{CacheDir: cache})
	require.NoError(t, err)
	assert.False(t, ok)
}

func TestWhatChangedDuringABuildIsBuiltAgain(t *testing.T) {
	log, underWay := slowGo(t)
	dir, tool := own(t)
	cache := t.TempDir()
	before, _, err := Built(tool, Options{CacheDir: cache})
	require.NoError(t, err)
	built := make(chan string, 1)
	go func() {
		path, err := Build(t.Context(), tool, Options{CacheDir: cache})
		assert.NoError(t, err)
		built <- path
	}()
	first := underWay()
	write(t, filepath.Join(dir, "helpers/name/name.go"), "package name\n\nconst Name = \"teacher\"\n")
	first.release()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(log)
		return err == nil && string(text) == "building\nbuilding\n"
	}, 30*time.Second, 10*time.Millisecond, "it is built again")
	underWay().release()

	after := <-built
	assert.NotEqual(t, before, after)
	assert.NoFileExists(t, before, "what was built is not what was there before")
	assert.FileExists(t, after)
}
