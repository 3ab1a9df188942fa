package lab

// Kept is a file that tells more about a run of a lesson than a page can.
type Kept struct {
	Name    string // of the file: "history.html"
	What    string // what it shows, in a few words: "porcupine's picture of the history"
	Content []byte
}

// Keep hands over such a file. It is written where go test -artifacts puts the files of a test, and nowhere
// without that flag.
func (l *Lab) Keep(name, what string, content []byte) {
	l.kept = append(l.kept, Kept{Name: name, What: what, Content: content})
}

// Kept are the files that were handed over.
func (l *Lab) Kept() []Kept { return l.kept }
