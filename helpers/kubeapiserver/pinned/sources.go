package pinned

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
)

// hashSources adds the names and contents of t's own source to a hash, and of what f replaces by a
// folder: go.sum does not pin that. The Go version counts too, since a command of the repository is
// rebuilt as the go command would.
func (t Tool) hashSources(h io.Writer, f *modfile.File) error {
	fmt.Fprintln(h, runtime.Version())
	sources := slices.Clone(t.Sources)
	for _, r := range f.Replace {
		if r.New.Version == "" {
			sources = append(sources, r.New.Path)
		}
	}
	for _, source := range sources {
		if !filepath.IsAbs(source) {
			source = filepath.Join(t.Module, source)
		}
		err := filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := entry.Name()
			// The go command does not look at these either; an editor leaves them.
			if path != source && (name == "testdata" || name[0] == '.' || name[0] == '_' || strings.HasSuffix(name, "~")) {
				if entry.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
			if strings.HasSuffix(name, "_test.go") {
				return nil
			}
			if !entry.Type().IsRegular() { // a folder, or a link that the go command follows
				if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
					return err
				}
			}
			text, err := os.ReadFile(path)
			fmt.Fprintf(h, "%s\n%d\n%s\n", path, len(text), text)
			return err
		})
		if err != nil {
			return fmt.Errorf("reading the source of %s: %w: restore it with git checkout", t.Name, err)
		}
	}
	return nil
}

// kept is how many builds of a command with sources of its own are kept: that of the state at hand,
// and those of states that somebody may go back to, or that still run.
const kept = 4

// forget removes all but the newest builds of a command with sources of its own, and what builds that
// failed have left a day ago. What cannot be removed only costs space.
func (b *builder) forget() {
	type build struct {
		folder string
		at     time.Time
	}
	var all []build
	found, err := filepath.Glob(filepath.Join(filepath.Dir(b.folder), b.folderName("*")))
	if err != nil {
		return
	}
	for _, folder := range found {
		info, err := os.Stat(folder)
		if err != nil {
			continue
		}
		if Runnable(filepath.Join(folder, b.Name)) == nil {
			all = append(all, build{folder, info.ModTime()})
		} else if time.Since(info.ModTime()) > 24*time.Hour { // else somebody may be building into it
			os.RemoveAll(folder)
		}
	}
	slices.SortFunc(all, func(x, y build) int { return y.at.Compare(x.at) })
	for _, old := range all[min(kept, len(all)):] {
		os.RemoveAll(old.folder)
	}
}
