package lab

import "sync"

// reading is where in the book the run has come to.
type reading struct {
	mu         sync.Mutex
	file, part string
}

// Turn says whether a lesson begins a chapter, and whether it begins a part of one, given the file and the
// part that it stands in.
func (p *Plane) Turn(file, part string) (newChapter, newPart bool) {
	p.reading.mu.Lock()
	defer p.reading.mu.Unlock()
	newChapter = p.reading.file != file
	newPart = newChapter || p.reading.part != part
	p.reading.file, p.reading.part = file, part
	return newChapter, newPart
}
