package lesson

import (
	"fmt"
	"slices"
	"strings"

	"modrev/helpers/lab"
)

// What the end of a run says of lessons.
const (
	skipped   = "skipped, for want of something that cannot be had here"
	unbending = "without a world in which the claim is false"
)

// skip ends a lesson that could not be held here. It is counted at the end of the run.
func (p printer) skip(c Claim, reason string) {
	lab.Shared().Remark(lab.Remark{About: skipped, ID: c.ID, Text: reason})
	p.field("SKIPPED", reason)
	p.t.SkipNow()
}

// summary prints the remarks of a run under one heading each, with their number.
func summary(remarks []lab.Remark) string {
	var about []string
	for _, r := range remarks {
		if !slices.Contains(about, r.About) {
			about = append(about, r.About)
		}
	}
	var b strings.Builder
	for _, a := range about {
		var of []lab.Remark
		for _, r := range remarks {
			if r.About == a {
				of = append(of, r)
			}
		}
		lessons := "lessons"
		if len(of) == 1 {
			lessons = "lesson"
		}
		fmt.Fprintf(&b, "%d %s %s\n", len(of), lessons, a)
		for _, r := range of {
			for i, line := range lab.Wrap(r.Text, lab.Width-10) {
				id := r.ID
				if i > 0 {
					id = ""
				}
				fmt.Fprintf(&b, "    %-6s%s\n", id, line)
			}
		}
	}
	return b.String()
}
