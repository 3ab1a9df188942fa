package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestALogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := newLogFile(path)
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", 1<<20-1) + "\n"
	for range 3 * logLimit / len(line) {
		if _, err := log.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		if _, err := fmt.Fprintf(log, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 2 {
		t.Errorf("there are %v, want the log and one older one", files)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > logLimit {
			t.Errorf("%s has %d bytes, want at most %d", file, info.Size(), logLimit)
		}
	}
	if got, want := log.tail(2), "    line 18\n    line 19"; got != want {
		t.Errorf("the last two lines are %q, want %q", got, want)
	}
	if err := log.close(); err != nil {
		t.Error(err)
	}
}

func TestTheParentFolderSuitsSocketsAndFlags(t *testing.T) {
	for temporary, want := range map[string]string{
		"/tmp": "/tmp",
		"/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T/": "/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T",
		"/var/folders/zz/" + strings.Repeat("deep/", 12):    "/tmp",
		"/home/me/my files": "/tmp",
		"/home/me/a,b":      "/tmp",
	} {
		got, err := parentFolder(temporary)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("parentFolder(%q) = %q, want %q", temporary, got, want)
		}
	}
}
