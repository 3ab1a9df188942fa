package source

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("source.update", false, "write what the chains of testdata are found to be into testdata")

// Every archive of testdata is one shape that the source of a write may have, with the chain that is
// to be found in it under the name "want".
func TestEveryShapeOfATransactionIsRead(t *testing.T) {
	shapes, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	require.NoError(t, err)
	client, err := txtar.ParseFile(filepath.Join("testdata", "etcd.txtar"))
	require.NoError(t, err)
	for _, path := range shapes {
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		if name == "etcd" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			shape, err := txtar.ParseFile(path)
			require.NoError(t, err)
			starts, want := "(*store).Update", ""
			root := t.TempDir()
			for _, f := range append(client.Files, shape.Files...) {
				switch f.Name {
				case "start":
					starts = string(f.Data)
				case "want":
					want = string(f.Data)
				default:
					file := filepath.Join(root, filepath.FromSlash(f.Name))
					require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
					require.NoError(t, os.WriteFile(file, f.Data, 0o600))
				}
			}
			var got strings.Builder
			tree := treeIn(root, "example.org/app", etcdClient)
			for start := range strings.FieldsSeq(starts) {
				chain, err := tree.Transaction(t.Context(), Func("example.org/app", start))
				if err != nil {
					fmt.Fprintln(&got, err)
					continue
				}
				fmt.Fprintln(&got, chain)
				for _, c := range chain.If {
					fmt.Fprintf(&got, "expects %s\n", c.Expects)
				}
				for _, o := range chain.Else {
					fmt.Fprintf(&got, "else sent: %s\n", o.Sent)
				}
			}
			if *update {
				files := shape.Files[:0]
				for _, f := range shape.Files {
					if f.Name != "want" {
						files = append(files, f)
					}
				}
				shape.Files = append(files, txtar.File{Name: "want", Data: []byte(got.String())})
				require.NoError(t, os.WriteFile(path, txtar.Format(shape), 0o644))
				return
			}
			assert.Equal(t, want, got.String())
			assert.Equal(t, strings.HasPrefix(name, "error-"), strings.Contains(got.String(), "compare breaks") || !strings.Contains(got.String(), "  if   "))
		})
	}
}

// treeIn is a tree of modules in folders of the same names.
func treeIn(root string, modules ...string) *Tree {
	dir := func(path string) string { return filepath.Join(root, filepath.FromSlash(path)) }
	return &Tree{version: "v0", sources: []moduleSource{{
		paths: modules,
		goMod: func(_ context.Context, path string) (string, error) { return filepath.Join(dir(path), "go.mod"), nil },
		locate: func(_ context.Context, path string) (module, error) {
			return module{path: path, version: "v1.0.0", dir: dir(path)}, nil
		},
	}}}
}

func TestADeclarationIsFoundWhateverItsForm(t *testing.T) {
	root := t.TempDir()
	src := `package app

type Set[K comparable, V any] map[K]V

func (s *Set[K, V]) Put(k K, v V) {}

func (Set[K, _]) Has(k K) bool { return false }

type Box[T any] struct{ Content, Label T }

func (b (Box[T])) Open() T { return b.Content }

type Opener interface{ Open() }

var First, Second = 1, 2

const Limit = 3
`
	require.NoError(t, os.MkdirAll(filepath.Join(root, "example.org", "app"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "example.org", "app", "app.go"), []byte(src), 0o600))
	tree := treeIn(root, "example.org/app")
	for asked, found := range map[string]Location{
		"Set":             {Func: "Set", Line: 3},
		"(*Set).Put":      {Func: "(*Set).Put", Line: 5},
		"(*Set[K,V]).Put": {Func: "(*Set).Put", Line: 5},
		"Set.Has":         {Func: "Set.Has", Line: 7},
		"Box.Label":       {Func: "Box.Label", Line: 9},
		"(*Box).Open":     {Func: "Box.Open", Line: 11},
		"(Opener).Open":   {Func: "Opener.Open", Line: 13},
		"Second":          {Func: "Second", Line: 15},
		"Limit":           {Func: "Limit", Line: 17},
	} {
		found.Module, found.Version, found.File = "example.org/app", "v1.0.0", "app.go"
		at, err := tree.Find(t.Context(), Func("example.org/app", asked))
		require.NoError(t, err)
		assert.Equal(t, found, at)
	}
}

func TestAFileThatNoBuildCanReadIsNotLeftOut(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "example.org", "app"), 0o700))
	for name, src := range map[string]string{"app.go": "package app\n", "more.go": "//go:build linux &&\n\npackage app\n\nfunc F() {}\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, "example.org", "app", name), []byte(src), 0o600))
	}
	_, err := treeIn(root, "example.org/app").Find(t.Context(), Func("example.org/app", "F"))
	require.ErrorContains(t, err, "reading package example.org/app")
	assert.ErrorContains(t, err, "more.go")
}

// A download that does not come to its end is given up with the context of whoever asked.
func TestADownloadEndsWithTheContextOfWhoAsked(t *testing.T) {
	begun := make(chan struct{})
	tree := &Tree{version: "v0", sources: []moduleSource{{
		paths: []string{"example.org/app"},
		locate: func(ctx context.Context, _ string) (module, error) {
			begun <- struct{}{}
			select {
			case <-ctx.Done():
				return module{}, context.Cause(ctx)
			case <-t.Context().Done():
				return module{}, errors.New("the context of whoever asked did not end the download")
			}
		},
	}}}
	for name, ask := range map[string]func(context.Context) error{
		"Find": func(ctx context.Context) error { _, err := tree.Find(ctx, Func("example.org/app", "F")); return err },
		"Transaction": func(ctx context.Context) error {
			_, err := tree.Transaction(ctx, Func("example.org/app", "F"))
			return err
		},
	} {
		ctx, giveUp := context.WithCancelCause(context.WithoutCancel(t.Context()))
		answer := make(chan error, 1)
		go func() { answer <- ask(ctx) }()
		<-begun
		enough := errors.New("enough of it")
		giveUp(enough)
		select {
		case err := <-answer:
			require.ErrorIs(t, err, enough, name)
			require.NotErrorIs(t, err, ErrNoSource, name)
		case <-time.After(10 * time.Second):
			t.Fatalf("%s waits for a download that nobody waits for any more", name)
		}
	}
}
