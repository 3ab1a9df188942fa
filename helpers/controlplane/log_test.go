package controlplane

import (
	"os"
	"strings"
	"testing"
)

func TestALinkThatCannotBePlacedIsNamed(t *testing.T) {
	gone := t.TempDir()
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	err := new(ControlPlane).LinkLog("apiserver.log")
	if err == nil || !strings.Contains(err.Error(), "finding the folder of apiserver.log: ") {
		t.Errorf("%v, want an error that names the link", err)
	}
}
