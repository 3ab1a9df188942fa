// Chapter 4, continued: a retry that decides anew.
package modrev

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/retry"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/world"
)

func TestOT27_ARetryRepeatsADecisionOrMakesItAnew(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT27", From: "D2 paragraph 5",
		Says: "a retry that changes the desired behaviour is a decision: after somebody has set 5, to send \"set to " +
			"2\" again and to add 1 again are not the same",
		Why: "both loops read again and both succeed; the one that replays what it decided before undoes the other's " +
			"work with a fresh token in its hand",
		FalseIf:     world.ALibraryRepeatsTheChange.Shows(`after the replayed decision is 6`),
		AlsoFalseIf: []world.World{world.ClientTransplantsTheToken.Shows(`after adding 1 again is 2`)},
		Read:        source.Decl("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers:     "#2 #26",
	}, func(l *lab.Lab) {
		deployments := l.Of(lab.Deployment)
		table := l.Table("1 replica, and one more is wanted", "attempt", "reads", "sends", "answer")
		scale := func(name, title string, decide func(read int) int) (stored int) {
			shelf := deployments.Create(name, "replicas=1")
			l.Rival().Of(lab.Deployment).Set(name, "replicas=5")
			attempt := 0
			err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				if attempt++; attempt > 1 {
					shelf = deployments.Get(name)
				}
				read := toInt(l, lab.Field(shelf, "replicas"))
				send := decide(read)
				_, err := deployments.TryReplace(shelf, "replicas="+strconv.Itoa(send))
				table.Row(title, attempt, read, send, lab.AnswerLine(err))
				return err
			})
			require.NoError(l, err, "scaling "+name)
			return toInt(l, lab.Field(deployments.Get(name), "replicas"))
		}

		const decided = 1 + 1 // on the one replica that was read first
		replayed := scale("replay", "decide once, send it until it sticks", func(int) int { return decided })
		anew := scale("anew", "decide on what was read each time", func(read int) int { return read + 1 })
		table.End()
		l.Say("The rival set 5 in between, and was answered 200. What is stored: %d, the rival's 5 is undone; and "+
			"%d. See also OT4, and OT5b for a patch.", replayed, anew)
		l.Equal("the number of replicas after the replayed decision", replayed, 2)
		l.Equal("the number of replicas after adding 1 again", anew, 6)
	})
}

func TestOT27b_AClaimFencesAnActBeforeItIsDone(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT27b", From: "D2 paragraph 1, 5; +",
		Says: "what is done outside the cluster is claimed first, with a write that carries the token: of two " +
			"workers one is let in and acts; when both act first and record it then, both have acted and one record " +
			"is lost",
		Why: "a conflict undoes nothing: the server can refuse a write, and never what was already done " +
			"elsewhere",
		FalseIf:     world.ClientDropsTheToken.Shows(`made after a claim is 2`),
		AlsoFalseIf: []world.World{world.ClientDropsTheTokenFor("act-first").Shows(`both have acted is bob's`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
		Answers:     "#75",
	}, func(l *lab.Lab) {
		ann, bob := l.As("ann"), l.As("bob")
		table := l.Table("order of work", "ann", "bob", "volumes made", "recorded")

		l.Create("claim-first", "volume=none")
		annsCopy, bobsCopy := l.Get("claim-first"), l.Get("claim-first") // both read before either writes
		var made []string
		_, first := ann.TryReplace(annsCopy, "volume=ann's")
		if first == nil {
			made = append(made, "ann's")
		}
		_, second := bob.TryReplace(bobsCopy, "volume=bob's")
		if second == nil {
			made = append(made, "bob's")
		}
		table.Row("claim with a write, then make", lab.AnswerLine(first), lab.AnswerLine(second),
			strings.Join(made, ", "), lab.Field(l.Get("claim-first"), "volume"))

		l.Create("act-first", "volume=none")
		annsCopy, bobsCopy = l.Get("act-first"), l.Get("act-first") // and now both make a volume
		_, first = ann.TryReplace(annsCopy, "volume=ann's")
		_, second = bob.TryReplace(bobsCopy, "volume=bob's")
		recorded := lab.Field(l.Get("act-first"), "volume")
		table.Row("make, then record with a write", lab.AnswerLine(first), lab.AnswerLine(second),
			"ann's, bob's", recorded)
		table.End()
		l.Say("A worker that claims and then dies leaves a claim without a volume, which whoever reads it can see " +
			"and finish; a volume whose record was refused nobody finds.")
		l.Equal("the number of volumes made after a claim", len(made), 1)
		l.Equal("the volume that is recorded when both have acted", recorded, "ann's")
	})
}
