package lab

import (
	"slices"
	"sync"
)

// Remark is what the end of a run has to tell about one lesson.
type Remark struct {
	About string // what remarks of this sort say: "skipped"
	ID    string // the claim of the lesson
	Text  string
}

// remarks collects the remarks of a run.
type remarks struct {
	mu  sync.Mutex
	all []Remark
}

// Remark keeps a remark for the end of the run. One that was made already is not kept twice.
func (p *Plane) Remark(r Remark) {
	p.remarks.mu.Lock()
	defer p.remarks.mu.Unlock()
	if !slices.Contains(p.remarks.all, r) {
		p.remarks.all = append(p.remarks.all, r)
	}
}

// Remarks returns the remarks of the run so far, in the order in which they were made.
func (p *Plane) Remarks() []Remark {
	p.remarks.mu.Lock()
	defer p.remarks.mu.Unlock()
	return slices.Clone(p.remarks.all)
}
