//go:build !unix

package pinned

import (
	"context"
	"fmt"
	"os"
	"runtime"
)

func executable(string) error { return nil }

func writeState(*os.File, string) {}

func (b *builder) build(context.Context) error {
	return fmt.Errorf("%s cannot be built on %s: use Linux or macOS, on Windows the Windows Subsystem for Linux", b, runtime.GOOS)
}
