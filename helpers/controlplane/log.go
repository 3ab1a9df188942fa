package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Log writes a line into the log of kube-apiserver, between its own.
func (c *ControlPlane) Log(line string) {
	_, _ = c.api.log.WriteString(line + "\n") // a line less is no matter
}

// linksName is the file in the folder that lists the links into it.
const linksName = "links"

// LinkLog makes the log of kube-apiserver findable at a path outside the folder, too. The link is taken
// away at the end, however that comes about. A link that points nowhere is replaced; anything else that is
// there already is an error.
func (c *ControlPlane) LinkLog(path string) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("finding the folder of %s: %w", path, err)
	}
	path = absolute
	if strings.ContainsAny(path, "\n\\") {
		return fmt.Errorf("%q cannot be the path of a log: it holds a line break or a backslash", path)
	}
	if _, err := os.Lstat(path); err == nil {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the log of kube-apiserver cannot be linked at %s, something is there already: "+
				"remove it, or give another path", path)
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("removing a link that points nowhere: %w", err)
		}
	}
	list, err := os.OpenFile(filepath.Join(c.folder.path, linksName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("listing the link %s: %w", path, err)
	}
	_, err = list.WriteString(path + "\n")
	if err := errors.Join(err, list.Close()); err != nil {
		return fmt.Errorf("listing the link %s: %w", path, err)
	}
	if err := os.Symlink(c.LogFile(), path); err != nil {
		return fmt.Errorf("the log of kube-apiserver cannot be linked at %s: %w: "+
			"give a path in a folder that is there and that you can write to", path, err)
	}
	return nil
}

// removeLinks takes away the links into a folder that are listed there, as the guard does when this
// process dies.
func removeLinks(folder string) error {
	list, err := os.ReadFile(filepath.Join(folder, linksName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading which links lead to the log: %w", err)
	}
	for link := range strings.Lines(string(list)) {
		link = strings.TrimRight(link, "\n")
		if target, err := os.Readlink(link); err == nil && filepath.Dir(target) == folder {
			if err := os.Remove(link); err != nil {
				return fmt.Errorf("taking away the link to the log: %w", err)
			}
		}
	}
	return nil
}

// tail is the last lines of a log, each indented.
func tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil || len(content) == 0 {
		return "    (it printed nothing)"
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return "    " + strings.Join(all[max(0, len(all)-lines):], "\n    ")
}
