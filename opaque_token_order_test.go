// Chapter 4, continued: what may be read into a token.
package modrev

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/world"
)

func TestOT18_TokensMayBeOrderedWithinOneResource(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT18", From: "D2 paragraph 4, 6",
		Says: "tokens of one object may always be compared for equality, those of two resources not even for that (OT19); since " +
			"Kubernetes 1.35 those of one resource of one server may be ordered, through CompareResourceVersion, which takes them for numbers of any length and refuses what is none",
		Why: "as text 9 comes after 10, so whoever compares strings stops believing in progress each time the numbers grow " +
			"by a digit",
		FalseIf: world.TokensCompareAsText.Shows(`"9" and "10": 1`),
		Read:    source.Decl("k8s.io/apimachinery/pkg/util/resourceversion", "CompareResourceVersion"),
		Erratum: "the document sends its reader to the contract, what the API documents about resourceVersion, before an order is " +
			"inferred. Since Kubernetes 1.35 that promises one, " +
			"within one resource of one server; across resources, servers and restored backups there is none.",
		Answers: "#27 #28 #30",
	}, func(l *lab.Lab) {
		long := "1" + strings.Repeat("0", 30)
		table := l.Table("a", "b", "CompareResourceVersion", "as text")
		show := func(s string) string {
			if len(s) > 12 {
				return s[:4] + "…, " + strconv.Itoa(len(s)) + " digits"
			}
			return strconv.Quote(s)
		}
		const refused = "refused"
		for _, c := range []struct{ a, b, want string }{
			{"9", "10", "-1"}, {"10", "9", "1"}, {"10", "10", "0"}, {long, "9", "1"}, {"99", long, "-1"},
			{"", "1", refused}, {"0", "1", refused}, {"01", "1", refused}, {"-1", "1", refused}, {"abc", "1", refused},
			{"MTA=", "1", refused},
		} {
			order, err := l.Order(c.a, c.b)
			got := strconv.Itoa(order)
			if err != nil {
				got = refused
			}
			table.Row(show(c.a), show(c.b), got, strings.Compare(c.a, c.b))
			l.Expect(got == c.want, fmt.Sprintf("%s and %s: %s", show(c.a), show(c.b), c.want), "%s and %s: %s", show(c.a), show(c.b), got)
		}
		table.End()

		first, second := l.Create("first", "color=red"), l.Create("second", "color=red")
		order, err := l.Order(first.GetResourceVersion(), second.GetResourceVersion())
		l.Step(err, "comparing what the server gave out")
		l.Say("Two ConfigMaps, one after the other: %s and %s, order %d.", first.GetResourceVersion(), second.GetResourceVersion(), order)
		l.Expect(order == -1, "of two objects of one resource, the one written first has the older token", "the order is %d", order)
	})
}

func TestOT19_TokensOfDifferentResourcesDoNotCompare(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT19", From: "D2 paragraph 4, 6",
		Says: "numbers of different resources do not compare, even when they look as if they did: a resource may be kept in a " +
			"store of its own, which counts for itself",
		Why: "on a small cluster one etcd counts everything and the comparison seems to work; on a large one, with events " +
			"kept apart, it tells nonsense",
		FalseIf: world.OneStoreForAll.Shows(`an Event written after ConfigMap \d+ has \d+`),
		Read:    source.Decl("k8s.io/apiserver/pkg/server/options", "EtcdOptions.EtcdServersOverrides"),
		Answers: "#30",
	}, func(l *lab.Lab) {
		client := l.WithEventsApart("writer")
		events := client.Of(lab.CoreEvent)
		table := l.Table("written", "resourceVersion")
		write := func(c *lab.Client, kind, name string, fields ...string) *lab.Object {
			o := c.Create(name, fields...)
			table.Row(kind+" "+name, o.GetResourceVersion())
			return o
		}
		a := write(client, "ConfigMap", "a", "color=red")
		e1 := write(events, "Event", "first", "involvedObject.namespace="+l.Namespace)
		b := write(client, "ConfigMap", "b", "color=red")
		e2 := write(events, "Event", "second", "involvedObject.namespace="+l.Namespace)
		table.End()

		compare := func(x, y *lab.Object) int {
			order, err := l.Order(x.GetResourceVersion(), y.GetResourceVersion())
			l.Step(err, "comparing two tokens")
			return order
		}
		l.Say("Within a resource the order is that of the writes: a, b: %d; first, second: %d. Between them it is not: "+
			"a, first: %d, although first was written after a.", compare(a, b), compare(e1, e2), compare(a, e1))
		l.Expect(compare(a, b) == -1 && compare(e1, e2) == -1, "within a resource, what was written first is older",
			"the orders are %d and %d", compare(a, b), compare(e1, e2))
		l.Expect(compare(a, e1) == 1 && compare(b, e2) == 1, "an Event written after a ConfigMap has the lower number",
			"an Event written after ConfigMap %s has %s", a.GetResourceVersion(), e1.GetResourceVersion())
	})
}

func TestOT43_ATokenIsHandedBackAsItWasGiven(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT43", From: "D2 title; +",
		Says: "hand a token back exactly as it was given: a replace takes it for a number, in which leading zeros do not count, " +
			"and takes \"0\" and \"\" for none; a delete compares its text; what is no number is answered with a 500, by a delete " +
			"with 409",
		Why: "a token that was parsed, padded or made up can lose its protection without an error, or meet a 500 that no " +
			"retry will cure",
		FalseIf: world.ClientDropsTheToken.Shows(`a replace, "abc": 200`),
		AlsoFalseIf: []world.World{
			world.ClientDropsThePreconditions.Shows(`a delete, with leading zeros: 200`),
			world.AProxyStripsTheRevision.Shows(`a read, "abc": 200`),
			world.TokensAreText.Shows(`a replace, with leading zeros: 409 Conflict`),
			world.ZeroIsANumber.Shows(`a replace, "0": 409 Conflict`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage", "APIObjectVersioner.ObjectResourceVersion"),
		Answers: "#28 #35",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		custom := l.Of(l.CustomResource())
		special := custom.Create("special", "color=red")
		given := shelf.GetResourceVersion()
		l.Say("The token stands in the body of a replace and of a merge patch, in the query of a GET, where it asks for a state at " +
			"least as new, and in the preconditions of a delete. The token is the current one, also with zeros before it; all writes " +
			"of the table are dry runs, so it stays current.")
		table := l.Table("token", "replace", "merge patch", "GET ?resourceVersion=", "delete", "both, of a Shelf")
		// Dry runs: the token is checked as ever, and shelf stays what it is.
		dry := []string{metav1.DryRunAll}
		var customs, customPatches []string
		for _, row := range []struct{ title, token, special, replace, patch, read, remove string }{
			{"as it was given", given, special.GetResourceVersion(), "200", "200", "200", "200"},
			{"with leading zeros", "00" + given, "00" + special.GetResourceVersion(), "200", "200", "200", "409 Conflict"},
			{`"0"`, "0", "0", "200", "200", "200", "409 Conflict"},
			{`""`, "", "", "200", "200", "200", "409 Conflict"},
			{`"abc"`, "abc", "abc", "500", "500", "500", "409 Conflict"},
		} {
			_, replace := l.TryDryReplace(lab.WithToken(shelf, row.token), "color=blue")
			_, patch := l.TryPatchWith("shelf", types.MergePatchType,
				fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"data":{"color":"blue"}}`, row.token), metav1.PatchOptions{DryRun: dry})
			_, read := l.TryGetOnce("shelf", "resourceVersion="+row.token)
			remove := l.TryDelete("shelf", metav1.DeleteOptions{DryRun: dry, Preconditions: &metav1.Preconditions{ResourceVersion: &row.token}})
			_, replaceCustom := custom.TryDryReplace(lab.WithToken(special, row.special), "color=blue")
			_, patchCustom := custom.TryPatchWith("special", types.MergePatchType,
				fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"color":"blue"}}`, row.special), metav1.PatchOptions{DryRun: dry})
			table.Row(row.title, lab.AnswerLine(replace), lab.AnswerLine(patch), lab.AnswerLine(read), lab.AnswerLine(remove), lab.AnswerLine(replaceCustom))
			for _, c := range []struct {
				what, want string
				err        error
			}{
				{"a replace", row.replace, replace}, {"a merge patch", row.patch, patch},
				{"a read", row.read, read}, {"a delete", row.remove, remove},
			} {
				l.Expect(lab.AnswerLine(c.err) == c.want, c.what+", "+row.title+": "+c.want, "%s, %s: %s", c.what, row.title, lab.AnswerLine(c.err))
			}
			customs, customPatches = append(customs, lab.AnswerLine(replaceCustom)), append(customPatches, lab.AnswerLine(patchCustom))
		}
		table.End()
		l.Expect(slices.Equal(customs, []string{"200", "200", "422 Invalid", "422 Invalid", "500"}) && slices.Equal(customs, customPatches),
			"a replace and a patch of a custom resource are answered 200, 200, 422 Invalid, 422 Invalid, 500",
			"they are answered: %s; %s", strings.Join(customs, ", "), strings.Join(customPatches, ", "))
		l.Say("The last column is that of a replace and of a merge patch of a Shelf, a custom resource: " +
			"a replace of it demands a token (CF6), a patch only must not say that there is none (CF7d), and 0 and \"\" are none. Of a ConfigMap, a replace " +
			"or a patch with either carries no precondition at all: it overwrites whatever is there. The 500 says that the " +
			"token cannot be parsed: nothing was stored, and no repetition helps; other 500s leave open what was stored (OT21b), " +
			"and only the message tells them apart.")
		l.Rival().Set("shelf", "color=white")
		_, err := l.TryReplace(lab.WithToken(shelf, "0"), "color=blue")
		l.Accepted(err, "a replace with 0 of what a rival has changed")
		l.Stored(shelf, "color=blue")
	})
}

func TestOT42_TheRulesAreNotThoseOfEveryFake(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT42", From: "+",
		Says: "a fake client is not the server: client-go's dynamic fake knows no tokens and takes a stale replace; " +
			"controller-runtime's refuses it, but moves the token when nothing has changed",
		Why: "a test against a fake says nothing about conflicts: the one never has any, the other has some that the server " +
			"would not have",
		FalseIf: world.ClientDropsTheToken.Shows(`kube-apiserver: a stale replace: 200`),
		AlsoFalseIf: []world.World{
			world.TheDynamicFakeKnowsTokens.Shows(`client-go's dynamic fake: a create gives a token`),
			world.TheOtherFakeNoticesNoChange.Shows(`controller-runtime's fake: a replace by the same: the same token`),
		},
		Read:    source.Decl("k8s.io/client-go/testing", "ObjectReaction"),
		Answers: "#76",
	}, func(l *lab.Lab) {
		table := l.Table("", "create", "the same again", "a stale replace", "without a token")
		doubles := l.Doubles()
		for i, want := range []struct{ created, same, stale string }{
			{"a token", "the same token", "409 Conflict"},
			{"no token", "no token", "200"},
			{"a token", "another token", "409 Conflict"},
		} {
			double := doubles[i]
			created, err := double.Create(l.New("shelf", "color=red"))
			l.Step(err, "creating shelf at "+double.Name)
			token := func(o *lab.Object) string {
				switch o.GetResourceVersion() {
				case "":
					return "no token"
				case created.GetResourceVersion():
					return "the same token"
				}
				return "another token"
			}
			same, err := double.Replace(created)
			l.Step(err, "replacing shelf by itself at "+double.Name)
			_, err = double.Replace(lab.With(same, "color=blue"))
			l.Step(err, "replacing shelf at "+double.Name)
			_, stale := double.Replace(lab.With(same, "color=green"))
			_, blind := double.Replace(lab.WithToken(lab.With(same, "color=white"), ""))
			first := map[bool]string{true: "no token", false: "a token"}[created.GetResourceVersion() == ""]
			table.Row(double.Name, first, token(same), lab.AnswerLine(stale), lab.AnswerLine(blind))
			l.Expect(first == want.created, double.Name+": a create gives "+want.created, "%s: a create gives %s", double.Name, first)
			l.Expect(token(same) == want.same, double.Name+": a replace by the same: "+want.same, "%s: a replace by the same: %s", double.Name, token(same))
			l.Expect(lab.AnswerLine(stale) == want.stale, double.Name+": a stale replace: "+want.stale, "%s: a stale replace: %s", double.Name, lab.AnswerLine(stale))
		}
		table.End()
		l.Say("What a test says about conflicts it has to say against a real kube-apiserver.")
	})
}
