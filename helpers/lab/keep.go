package lab

// Kept is a file that tells more about a run of a lesson than a page can.
type Kept struct {
	Name  string                  // of the file: "history.html"
	What  string                  // what it shows, in a few words: "porcupine's picture of the history"
	Write func(path string) error // writes it
}

// Keep hands over such a file. It is written where go test -artifacts puts the files of a test, and nowhere
// without that flag.
func (l *Lab) Keep(name, what string, write func(path string) error) {
	l.kept = append(l.kept, Kept{Name: name, What: what, Write: write})
}

// Kept are the files that were handed over.
func (l *Lab) Kept() []Kept { return l.kept }
