package lesson

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"modrev/helpers/lab"
	"modrev/helpers/notebook"
)

var notebookFile = flag.String("notebook", "", "write what the documents ask the reader to write down into this `file`")

// writeDown keeps what a lesson showed for the notebook of the run.
func writeDown(file string, line int, c Claim, r run) {
	book := lab.Shared().Notebook()
	book.Add(notebook.Page{
		File: file, Line: line, ID: c.ID, Says: c.Says, From: c.From, Read: c.Read.String(), Why: c.Why,
		Erratum: c.Erratum, Lines: r.page, Steps: r.steps, Tape: r.tape,
	})
	for heading, lines := range r.facts {
		book.WriteDown(heading, lines...)
	}
}

// keepNotebook writes the notebook of the run: to the file that -notebook names, or with -artifacts to
// where go test puts such files. Without either it goes nowhere.
func keepNotebook() error {
	path := *notebookFile
	if path == "" {
		if f := flag.Lookup("test.artifacts"); f == nil || f.Value.String() != "true" {
			return nil
		}
		path = filepath.Join(flag.Lookup("test.outputdir").Value.String(), "_artifacts", "notebook.md")
	}
	book := lab.Shared().Notebook()
	if book.Empty() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("keeping the notebook: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("keeping the notebook: %w", err)
	}
	if _, err := book.WriteTo(f); err != nil {
		f.Close()
		return fmt.Errorf("writing the notebook to %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("writing the notebook to %s: %w", path, err)
	}
	fmt.Println("The notebook of this run is in " + path)
	return nil
}
