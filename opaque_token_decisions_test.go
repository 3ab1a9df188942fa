// Chapter 4, continued: a retry that decides anew.
package modrev

import (
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/util/retry"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/world"
)

func TestOT27_ARetryRepeatsADecisionOrMakesItAnew(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT27", From: "D2 paragraph 5",
		Says: "a retry that changes the desired behaviour is a decision: after somebody has set 5, to send \"set to 2\" again " +
			"and to add 1 again are not the same",
		Why: "both loops read again and both succeed; the one that replays what it decided before undoes the other's work " +
			"with a fresh token in its hand",
		FalseIf:     world.ALibraryRepeatsTheChange.Shows(`the replayed decision gives 6`),
		AlsoFalseIf: []world.World{world.ClientTransplantsTheToken.Shows(`adding 1 again gives 2`)},
		Read:        source.Decl("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers:     "#2 #26",
	}, func(l *lab.Lab) {
		deployments := l.Of(lab.Deployment)
		replicas := func(o *lab.Object) int { n, _ := strconv.Atoi(lab.Field(o, "replicas")); return n }
		table := l.Table("1 replica, and one more is wanted", "attempt", "reads", "sends", "answer")
		scale := func(name, title string, decide func(read int) int) int {
			read := deployments.Create(name, "replicas=1")
			decide(replicas(read))
			l.Rival().Of(lab.Deployment).Set(name, "replicas=5")
			attempt := 0
			err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				if attempt++; attempt > 1 {
					read = deployments.Get(name)
				}
				send := decide(replicas(read))
				_, err := deployments.TryReplace(read, "replicas="+strconv.Itoa(send))
				table.Row(title, attempt, replicas(read), send, lab.AnswerLine(err))
				return err
			})
			l.Step(err, "scaling "+name)
			return replicas(deployments.Get(name))
		}
		decided := 0
		replayed := scale("replay", "decide once, send it until it sticks", func(read int) int {
			if decided == 0 {
				decided = read + 1
			}
			return decided
		})
		anew := scale("anew", "decide on what was read each time", func(read int) int { return read + 1 })
		table.End()
		l.Say("The rival set 5 in between, and was answered 200. What is stored: %d, the rival's 5 is undone; and %d. See also "+
			"OT4, and OT5b for a patch.", replayed, anew)
		l.Expect(replayed == 2, "the replayed decision gives 2: the rival's 5 is undone", "the replayed decision gives %d", replayed)
		l.Expect(anew == 6, "to add 1 again gives 6", "adding 1 again gives %d", anew)
	})
}

func TestOT27b_AClaimFencesAnActBeforeItIsDone(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT27b", From: "D2 paragraph 1, 5; +",
		Says: "what is done outside the cluster is claimed first, with a write that carries the token: of two workers one is " +
			"let in and acts; when both act first and record it then, both have acted and one record is lost",
		Why: "a conflict undoes nothing: the server can refuse a write, and never what was already done elsewhere",
		FalseIf: world.ClientDropsTheToken.Shows(
			`2 volumes were made`),
		AlsoFalseIf: []world.World{world.ClientDropsTheTokenFor("act-first").Shows(`2 were made, and bob's is recorded`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
		Answers:     "#75",
	}, func(l *lab.Lab) {
		workers := []string{"ann", "bob"}
		table := l.Table("order of work", "ann", "bob", "volumes made", "recorded")
		work := func(title string, actFirst bool) (made []string, recorded string) {
			name := map[bool]string{true: "act-first", false: "claim-first"}[actFirst]
			l.Create(name, "volume=none")
			var copies []*lab.Object
			for range workers { // both read before either writes
				copies = append(copies, l.Get(name))
			}
			answers := []any{}
			for i, who := range workers {
				if actFirst {
					made = append(made, who+"'s")
				}
				_, err := l.As(who).TryReplace(copies[i], "volume="+who+"'s")
				if err == nil && !actFirst {
					made = append(made, who+"'s")
				}
				answers = append(answers, lab.AnswerLine(err))
			}
			recorded = lab.Field(l.Get(name), "volume")
			table.Row(title, answers[0], answers[1], strings.Join(made, ", "), recorded)
			return made, recorded
		}
		claimed, _ := work("claim with a write, then make", false)
		acted, recorded := work("make, then record with a write", true)
		table.End()
		l.Say("A worker that claims and then dies leaves a claim without a volume, which whoever reads it can see and finish; a " +
			"volume whose record was refused nobody finds.")
		l.Expect(len(claimed) == 1, "whoever claims first makes one volume in all", "%d volumes were made", len(claimed))
		l.Expect(len(acted) == 2 && recorded == "ann's", "both have made one, bob's record is refused, and his volume is recorded nowhere",
			"%d were made, and %s is recorded", len(acted), recorded)
	})
}
