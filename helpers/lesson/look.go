package lesson

import (
	"fmt"
	"testing"

	"modrev/helpers/lab"
	"modrev/helpers/page"
)

// Look runs steps in a lab and prints what they showed, and then the tape: every request of the lab's clients, and
// below
// it what kube-apiserver asked etcd. It is for a question of your own. It claims nothing, so it needs no false world;
// the test fails if a step or an expectation does.
func Look(t *testing.T, steps func(*lab.Lab)) {
	t.Helper()
	if *claims {
		return
	}
	ctx, cancel := deadline(t)
	defer cancel()
	told := proof{t: t, ctx: ctx, claim: Claim{ID: "look"}, steps: steps}.tell(nil)
	for _, line := range append(append(page.Blocks(told.Page), ""), told.Tape.Lines()...) {
		fmt.Fprintln(t.Output(), line)
	}
	if told.Skipped != "" {
		t.Skip(told.Skipped)
	}
	if f := told.Failure; f != nil {
		t.Errorf("EXPECTED %s\nOBSERVED %s", f.Expected, f.Observed)
	}
}
