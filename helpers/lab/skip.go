package lab

import "runtime"

// Skip ends the lesson because something that it needs cannot be had here. The reason is one sentence that
// names what, and how to have it; it is printed, and counted at the end of the run. In a lab within a lab, the lesson
// is that of the outer one.
func (l *Lab) Skip(reason string) {
	for at := l; at != nil; at = at.host {
		at.told.Skipped = reason
	}
	runtime.Goexit()
}
