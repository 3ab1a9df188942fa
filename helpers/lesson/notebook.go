package lesson

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"modrev/helpers/lab"
	"modrev/helpers/notebook"
	"modrev/helpers/prediction"
)

var notebookFile = flag.String("notebook", "", "write what the documents ask the reader to write down into this `file`")

// writeDown keeps what a lesson showed for the notebook of the run.
func writeDown(test string, c Claim, r run) {
	book := lab.Shared().Notebook()
	book.Add(notebook.Page{
		Test: test, ID: c.ID, Says: c.Says, From: c.From, Read: c.Read.String(), Why: c.Why,
		Erratum: c.Erratum, Lines: r.page, Steps: r.steps, Tape: r.tape,
	})
	for heading, lines := range r.facts {
		book.WriteDown(heading, lines...)
	}
}

var predictions = flag.String("predict", "", "compare what the reader wrote into this `file` with what the run shows")

// expected reads the form that -predict names; nil without it.
func expected() (prediction.Answers, error) {
	if *predictions == "" {
		return nil, nil
	}
	text, err := os.ReadFile(*predictions)
	if err != nil {
		return nil, fmt.Errorf("reading your predictions: %w; the empty form is helpers/prediction/form.txt", err)
	}
	return prediction.Parse(*predictions, string(text))
}

// grade prints how the predictions compare with the run.
func grade(a prediction.Answers) {
	if a == nil {
		return
	}
	book := lab.Shared().Notebook()
	for _, line := range prediction.Grade(a,
		func(name string) (string, bool) {
			lines, ok := book.Fact(name)
			return strings.Join(lines, " "), ok
		},
		func(claim string) (prediction.Lesson, bool) {
			p, ok := book.Page(claim)
			return prediction.Lesson{Test: p.Test, Says: p.Says, Why: p.Why}, ok
		},
	) {
		if len(line) <= lab.Width || strings.Contains(line, "go test") { // a command stays in one piece
			fmt.Println(line)
			continue
		}
		verdict := line[:prediction.Margin]
		for _, part := range lab.Wrap(line[prediction.Margin:], lab.Width-prediction.Margin) {
			fmt.Println(verdict + part)
			verdict = strings.Repeat(" ", prediction.Margin)
		}
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
	if err := book.Save(path); err != nil {
		return err
	}
	fmt.Println("The notebook of this run is in " + path)
	return nil
}
