package token

import (
	"embed"
	"fmt"
	"path"
	"strings"
)

//go:embed traces/*.trace
var files embed.FS

// Named is a trace that comes with the package.
type Named struct {
	Name  string // "document" for the trace of the document
	Text  string // as it is written, with its comments
	Trace Trace
}

// Traces returns the traces that come with the package, by name: the document's own and some that show one
// rule each.
func Traces() ([]Named, error) {
	entries, err := files.ReadDir("traces")
	if err != nil {
		return nil, fmt.Errorf("listing the traces: %w", err)
	}
	var traces []Named
	for _, e := range entries {
		n, err := Load(strings.TrimSuffix(e.Name(), ".trace"))
		if err != nil {
			return nil, err
		}
		traces = append(traces, n)
	}
	return traces, nil
}

// Load returns one of the traces that come with the package: Load("document").
func Load(name string) (Named, error) {
	file := path.Join("traces", name+".trace")
	text, err := files.ReadFile(file)
	if err != nil {
		return Named{}, fmt.Errorf("reading the trace %q: %w", name, err)
	}
	t, err := parseFile(file, text)
	if err != nil {
		return Named{}, err
	}
	return Named{Name: name, Text: string(text), Trace: t}, nil
}
