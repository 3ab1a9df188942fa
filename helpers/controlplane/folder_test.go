package controlplane

import (
	"strings"
	"testing"
)

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
