// Chapter 4, continued: what a decision claims, and does not fence.
package modrev

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT27b_AClaimLetsOneActAndFencesNobody(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT27b", From: "D2 paragraph 1, 5; +",
		Says: "a claim that is written with the token lets one of two workers act, but it does not stop one who pauses " +
			"after claiming",
		Why: "the server can neither refuse nor undo what is done elsewhere, so the act itself has to be safe to " +
			"repeat",
		Do:      "Claim with the token, then act so that doing it twice changes nothing.",
		FalseIf: world.OlderTokensCount.Shows(`of volumes made after a claim is 2`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheTokenFor("act-first").Shows(`recorded when both have acted is bob's`),
			onlyTheHolderActs("paused").Shows(`of volumes made after a pause is 1`),
			volumesGetANameOfTheirOwn.Shows(`named after the uid, is 2`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
		Answers: "#75",
	}, func(l *lab.Lab) {
		l.Say("A volume stands for what is done outside the cluster: a Secret that the claim knows nothing about.")
		table := l.Table("order of work", "first", "second", "volumes made", "recorded")

		l.Create("claim-first", "volume=none")
		anns, bobs := l.Get("claim-first"), l.Get("claim-first") // both read before either writes
		first := claim(l, "ann", anns)
		if first == nil {
			makeVolume(l, "ann", "claim-first-ann")
		}
		second := claim(l, "bob", bobs)
		if second == nil {
			makeVolume(l, "bob", "claim-first-bob")
		}
		made := volumes(l, "claim-first")
		table.Row("ann and bob claim, then make", lab.AnswerLine(first), lab.AnswerLine(second),
			strings.Join(made, ", "), lab.Field(l.Peek("claim-first"), "volume"))
		l.Equal("the number of volumes made after a claim", len(made), 1)

		l.Create("act-first", "volume=none")
		anns, bobs = l.Get("act-first"), l.Get("act-first")
		makeVolume(l, "ann", "act-first-ann")
		makeVolume(l, "bob", "act-first-bob")
		first, second = claim(l, "ann", anns), claim(l, "bob", bobs)
		recorded := lab.Field(l.Peek("act-first"), "volume")
		table.Row("ann and bob make, then record", lab.AnswerLine(first), lab.AnswerLine(second),
			strings.Join(volumes(l, "act-first"), ", "), recorded)
		l.Equal("the volume that is recorded when both have acted", recorded, "ann's")
		l.Equal("the number of volumes made before any claim", len(volumes(l, "act-first")), 2)

		first, second = handOver(l, "paused", "paused-ann", "paused-cid")
		made = volumes(l, "paused")
		table.Row("ann claims and pauses, cid takes over and makes, ann wakes", lab.AnswerLine(first),
			lab.AnswerLine(second), strings.Join(made, ", "), lab.Field(l.Peek("paused"), "volume"))
		l.Equal("the number of volumes made after a pause", len(made), 2)

		uid := string(l.Create("safe", "volume=none").GetUID())
		first, second = handOver(l, "safe", "safe-"+uid, "safe-"+uid)
		made = volumes(l, "safe")
		table.Row("the same, the volume named after the uid", lab.AnswerLine(first), lab.AnswerLine(second),
			strings.ReplaceAll(strings.Join(made, ", "), uid, "UID"), lab.Field(l.Peek("safe"), "volume"))
		table.End()
		l.Equal("the number of volumes made after a pause, named after the uid,", len(made), 1)
		l.Say("A worker that claims and dies leaves a claim without a volume, which the next reader sees and finishes. " +
			"A volume whose record was refused nobody finds.")
	})
}

// claim records with a replace that a worker makes the volume.
func claim(l *lab.Lab, who string, read *lab.Object) error {
	_, err := l.As(who).TryReplace(read, "volume="+who+"'s")
	return err
}

// handOver has ann claim and pause, cid claim over her and make a volume, and then ann make hers. It returns how the
// two claims were answered.
func handOver(l *lab.Lab, name, anns, cids string) (first, second error) {
	if _, err := l.TryGet(name); lab.IsNotFound(err) {
		l.Create(name, "volume=none")
	}
	first = claim(l, "ann", l.Get(name))
	second = claim(l, "cid", l.Get(name)) // ann has been silent for too long
	makeVolume(l, "cid", cids)
	makeVolume(l, "ann", anns)
	return first, second
}

// makeVolume makes a volume, unless there is one of that name.
func makeVolume(l *lab.Lab, who, name string) {
	_, err := l.As(who).Of(lab.Secret).TryCreate(name)
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) { // 404: only where the outside asks for the holder
		return
	}
	require.NoError(l, err, who+" makes a volume")
}

// volumes are those that were made for a claim, by what their names say after its name.
func volumes(l *lab.Lab, claim string) []string {
	defer l.Wire.Tape().Pause()()
	var names []string
	for _, volume := range l.Of(lab.Secret).List().Items {
		if rest, ok := strings.CutPrefix(volume.GetName(), claim+"-"); ok {
			names = append(names, rest)
		}
	}
	slices.Sort(names)
	return names
}

// onlyTheHolderActs sends a create of a volume astray unless its maker holds the claim by then.
func onlyTheHolderActs(claim string) world.World {
	return world.New("the outside asks who holds the claim before it makes a volume", func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Verb == http.MethodPost && strings.HasPrefix(c.Path, "secrets") },
			Note: "asked for the holder first",
			Request: func(q *http.Request, body []byte) []byte {
				if !strings.Contains(string(body), `"`+claim+"-") {
					return body
				}
				if lab.Field(l.Peek(claim), "volume") != q.UserAgent()+"'s" {
					q.URL.Path += "-of-nobody" // is answered with 404
				}
				return body
			},
		})
	})
}

// volumesGetANameOfTheirOwn adds to the name of a volume who made it.
var volumesGetANameOfTheirOwn = world.New("the outside gives each volume a name of its own", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPost && strings.HasPrefix(c.Path, "secrets") },
		Note: "named by the outside",
		Request: func(q *http.Request, body []byte) []byte {
			return []byte(strings.Replace(string(body), `"name":"safe-`, `"name":"safe-`+q.UserAgent()+"-", 1))
		},
	})
})
