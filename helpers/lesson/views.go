package lesson

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"modrev/helpers/notebook"
	"modrev/helpers/record"
)

var (
	claims       = flag.Bool("claims", false, "say what the lessons claim, and run none of them")
	recordFile   = flag.String("record", "", "write what the run finds into this `file`, as JSON")
	notebookFile = flag.String("notebook", "", "write what the documents ask the reader to write down into this `file`")
	predictions  = flag.String("predict", "", "compare what the reader wrote into this `file` with what the run shows")
)

// openRecord creates the file that -record names, so that a folder that is not there is told before the run.
func openRecord() error {
	if *recordFile == "" {
		return nil
	}
	f, err := os.OpenFile(*recordFile, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("keeping the record of the run: %w; name a file in a folder that is there, with -record", err)
	}
	return f.Close()
}

// keepRecord writes the record of the run to the file that -record names. No path of this machine goes into it: an
// error that a lesson met may have held one.
func keepRecord(run record.Run) error {
	if *recordFile == "" {
		return nil
	}
	data, err := run.JSON()
	if err != nil {
		return err
	}
	if err := os.WriteFile(*recordFile, []byte(withoutPaths(string(data))), 0o644); err != nil {
		return fmt.Errorf("keeping the record of the run: %w", err)
	}
	return nil
}

// withoutPaths is a text in which the folders of this machine stand under the names that every machine has for them.
func withoutPaths(text string) string {
	here, _ := os.Getwd()
	home, _ := os.UserHomeDir()
	cache, _ := os.UserCacheDir()
	folders := [][2]string{
		{strings.TrimSuffix(os.TempDir(), "/"), "$TMPDIR"}, {here, "."}, {cache, "$CACHE"}, {home, "$HOME"},
	}
	// Of two folders, one of which lies in the other, the longer name is the better.
	slices.SortFunc(folders, func(a, b [2]string) int { return len(b[0]) - len(a[0]) })
	for _, folder := range folders {
		if len(folder[0]) > 1 {
			text = strings.ReplaceAll(text, folder[0]+string(filepath.Separator), folder[1]+"/")
		}
	}
	return text
}

// expected reads the form that -predict names; nil without it.
func expected() (notebook.Answers, error) {
	if *predictions == "" {
		return nil, nil
	}
	text, err := os.ReadFile(*predictions)
	if err != nil {
		return nil, fmt.Errorf("reading your predictions: %w; the empty form is helpers/notebook/form.txt", err)
	}
	return notebook.ParseAnswers(*predictions, string(text))
}

// keepNotebook writes the notebook of the run: to the file that -notebook names, or with -artifacts to
// where go test puts such files. Without either it goes nowhere.
func keepNotebook(run record.Run) error {
	path := *notebookFile
	if path == "" {
		if given("test.artifacts") != "true" {
			return nil
		}
		path = filepath.Join(given("test.outputdir"), "_artifacts", "notebook.md")
	}
	if len(run.Lessons) == 0 {
		return nil
	}
	if err := notebook.Save(path, run); err != nil {
		return err
	}
	fmt.Println("The notebook of this run is in " + path)
	return nil
}
