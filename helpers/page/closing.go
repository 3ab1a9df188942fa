package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"modrev/helpers/record"
)

// Closing is what the end of a run says: which lessons were skipped, and what was claimed of the run as a whole and
// did not hold.
func Closing(r record.Run) string {
	var b strings.Builder
	if len(r.MultiKeyTxns) > 0 {
		fmt.Fprintf(&b, "CLAIM     kube-apiserver puts one object per transaction, always (RV9)\n"+
			"OBSERVED  in this run it sent a transaction that writes several keys:\n          %s\n",
			strings.Join(r.MultiKeyTxns, "\n          "))
	}
	var skipped []record.Lesson
	for _, l := range r.Lessons {
		if l.Verdict == record.Skipped {
			skipped = append(skipped, l)
		}
	}
	if len(skipped) > 0 {
		fmt.Fprintf(&b, "%s skipped, for want of something that cannot be had here\n", plural(len(skipped), "lesson"))
	}
	for _, l := range skipped {
		for i, line := range Wrap(l.Reality.Skipped, Width-10) {
			id := l.ID
			if i > 0 {
				id = ""
			}
			fmt.Fprintf(&b, "    %-6s%s\n", id, line)
		}
	}
	return b.String()
}

// Census is what kube-apiserver asked etcd in the whole run.
func Census(r record.Run) string {
	if len(r.Shapes) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("What kube-apiserver asked etcd in this run; no transaction wrote more than one key (RV9):\n")
	for _, shape := range slices.Sorted(maps.Keys(r.Shapes)) {
		fmt.Fprintf(&b, "%8d  %s\n", r.Shapes[shape], shape)
	}
	return b.String()
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
