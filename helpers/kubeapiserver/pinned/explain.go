package pinned

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// again says how to go on after a build that was cut off.
func (b *builder) again() string {
	if b.Command == "" {
		return "start it again to go on"
	}
	return "run `" + b.Command + "` in the repository's folder, which has no time limit, and then start this again"
}

// otherwise says how to do without the build, to end a sentence with.
func (b *builder) otherwise() string {
	if b.Avoid == "" {
		return ""
	}
	return ", or " + b.Avoid
}

func (b *builder) noGo(err error) error {
	return fmt.Errorf("building %s needs the go command, and it is not in PATH: install Go from https://go.dev/dl and add it to PATH%s (%w)",
		b, b.otherwise(), err)
}

// diskError explains an error of the file system in the cache folder.
func (b *builder) diskError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("building %s: the disk of %s is full: free some space there%s (%w)", b, b.folder, b.otherwise(), err)
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("building %s: its folder %s cannot be written to: make it writable, or set %s to a folder that is%s (%w)",
			b, b.folder, cacheVariable(), b.otherwise(), err)
	}
	return fmt.Errorf("building %s in %s: %w: set %s to a folder that you can write to%s", b, b.folder, err, cacheVariable(), b.otherwise())
}

// explain turns what the go command said into a sentence with a remedy. It knows the go command's
// messages, which are not an interface; a message that it does not know is shown as it is.
func (b *builder) explain(err error, output []string) error {
	all := strings.Join(output, "\n")
	for _, k := range b.troubles() {
		for _, sign := range k.signs {
			if line, ok := lineWith(output, sign); ok {
				return fmt.Errorf("building %s: %s: %s%s (go said: %s)", b, k.cause, k.remedy, b.otherwise(), strings.TrimSpace(line))
			}
		}
	}
	if all == "" {
		return fmt.Errorf("building %s: the go command failed without a word: %w", b, err)
	}
	const last = 20
	if len(output) > last {
		output = output[len(output)-last:]
	}
	return fmt.Errorf("building %s: the go command failed (%w)%s; its last lines:\n\t%s",
		b, err, b.otherwise(), strings.Join(output, "\n\t"))
}

func lineWith(lines []string, sign string) (string, bool) {
	for _, line := range lines {
		if strings.Contains(line, sign) {
			return line, true
		}
	}
	return "", false
}

// trouble is what the go command may say, why, and what to do.
type trouble struct {
	signs         []string // parts of a line that give it away
	cause, remedy string
}

// troubles are those that have a remedy, the more specific first.
func (b *builder) troubles() []trouble {
	space := "some space"
	if b.Space != "" {
		space = "about " + b.Space
	}
	return []trouble{
		{
			[]string{"no space left on device", "disk quota exceeded"},
			"the disk is full",
			"free " + space + " for " + b.folder + " and Go's build and module caches (GOCACHE and GOMODCACHE move them)",
		},
		{
			[]string{"GOTOOLCHAIN=", "toolchain not available", "download go1", "module requires Go", "unknown directive"},
			"the go command is too old for the pinned module and may not get a newer one",
			"install a newer Go from https://go.dev/dl, or unset GOTOOLCHAIN",
		},
		{
			[]string{"checksum mismatch", "SECURITY ERROR"},
			"a downloaded module is not the one that go.sum names",
			"run go clean -modcache to drop a damaged download; if it comes back, GOPROXY names a proxy that alters modules",
		},
		{
			[]string{"missing go.sum entry", "updates to go.mod needed", "updates to go.sum needed", "errors parsing go.mod"},
			"go.mod or go.sum of the pinned module was changed",
			"restore both with git checkout",
		},
		{
			[]string{"GOPROXY=off"},
			"its modules are not in the module cache, and GOPROXY=off forbids to download them",
			"unset GOPROXY",
		},
		{
			[]string{"dial tcp", "no such host", "connection refused", "i/o timeout", "network is unreachable", "TLS handshake",
				"connection reset", "proxyconnect", "x509:", "Service Unavailable", "Bad Gateway", "Gateway Time", "404 Not Found", "410 Gone", "403 Forbidden"},
			"its modules cannot be downloaded",
			"check the network, and that GOPROXY names a module proxy that answers",
		},
		{
			[]string{"signal: killed", "cannot allocate memory", "out of memory"},
			"the machine has too little memory to compile it",
			"start it again with GOMAXPROCS=1 in the environment (what was compiled is kept)",
		},
		{
			[]string{"C compiler"},
			"there is no C compiler",
			"set CGO_ENABLED=0",
		},
		{
			[]string{"permission denied", "read-only file system", "could not create module cache", "failed to initialize build cache", "build cache is required", "module cache not found"},
			"Go's build or module cache cannot be written to",
			"make it writable, or move it with GOCACHE or GOMODCACHE",
		},
	}
}
