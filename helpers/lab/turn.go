package lab

import "sync"

// reading is where in the book the run has come to.
type reading struct {
	mu            sync.Mutex
	chapter, part int
}

// Turn says whether a lesson begins a chapter, and whether it begins a part of one, given the numbers of
// the chapter and of the part that it stands in.
func (p *Plane) Turn(chapter, part int) (newChapter, newPart bool) {
	p.reading.mu.Lock()
	defer p.reading.mu.Unlock()
	newChapter = p.reading.chapter != chapter
	newPart = newChapter || p.reading.part != part
	p.reading.chapter, p.reading.part = chapter, part
	return newChapter, newPart
}
