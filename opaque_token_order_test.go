// Chapter 4, continued: what may be read into a token.
package modrev

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
		Says: "since Kubernetes 1.35, tokens of one resource of one server may be ordered with CompareResourceVersion, as " +
			"numbers of any length",
		Why: "as text 9 comes after 10, so if you compare strings you stop believing in progress each time the numbers " +
			"grow by a digit",
		Do: "Order tokens with CompareResourceVersion, within one resource of one server only.",
		// No cause can be bent: the function is what the claim is about.
		FalseIf: world.TokensCompareAsText.Shows(`the order of "9" and "10" is 1`),
		Read:    source.Decl("k8s.io/apimachinery/pkg/util/resourceversion", "CompareResourceVersion"),
		Erratum: "the document sends its reader to the contract, what the API documents about resourceVersion, before an " +
			"order is inferred. Since Kubernetes 1.35 that promises one, within one resource of one server; across resources, " +
			"servers and restored backups there is none.",
		Answers: "#27 #28 #30",
	}, func(l *lab.Lab) {
		long := "1" + strings.Repeat("0", 30)
		const refused = "refused"
		table := l.Table("a", "b", "CompareResourceVersion", "as text")
		for _, pair := range []struct{ a, b, order string }{
			{"9", "10", "-1"},
			{"10", "9", "1"},
			{"10", "10", "0"},
			{long, "9", "1"},
			{"99", long, "-1"},
			{"", "1", refused},
			{"0", "1", refused},
			{"01", "1", refused},
			{"-1", "1", refused},
			{"abc", "1", refused},
			{"MTA=", "1", refused},
		} {
			order, err := l.Order(pair.a, pair.b)
			got := strconv.Itoa(order)
			if err != nil {
				got = refused
			}
			table.Row(abridged(pair.a), abridged(pair.b), got, strings.Compare(pair.a, pair.b))
			l.Equal("the order of "+abridged(pair.a)+" and "+abridged(pair.b), got, pair.order)
		}
		table.End()

		first, second := l.Create("first", "color=red"), l.Create("second", "color=red")
		order, err := l.Order(first.GetResourceVersion(), second.GetResourceVersion())
		require.NoError(l, err, "comparing what the server gave out")
		l.Say("Two ConfigMaps, one after the other: %s and %s, order %d.",
			first.GetResourceVersion(), second.GetResourceVersion(), order)
		l.Say("It refuses anything else than a number. Tokens of one object may be compared for equality without it, " +
			"unless the store was restored: then numbers are given out again, for other content. Those of two resources do " +
			"not even compare for equality (OT19).")
		l.Equal("the order of two objects of one resource, written one after the other,", order, -1)
	})
}

// abridged is a token as a table shows it.
func abridged(token string) string {
	if len(token) > 12 {
		return token[:4] + "…, " + strconv.Itoa(len(token)) + " digits"
	}
	return strconv.Quote(token)
}

func TestOT19_TokensOfDifferentResourcesDoNotCompare(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT19", From: "D2 paragraph 4, 6",
		Says: "tokens of different resources do not compare: a resource may be kept in a store of its own, which counts " +
			"for itself",
		Why: "on a small cluster one etcd counts everything and the comparison seems to work; on a large one, with events " +
			"kept apart, it is meaningless",
		Do:      "Never compare the tokens of two resources.",
		FalseIf: world.OneStoreForAll.Shows(`the order of a ConfigMap and an Event after it is -1`),
		Read:    source.Decl("k8s.io/apiserver/pkg/server/options", "EtcdOptions.EtcdServersOverrides"),
		Answers: "#30",
	}, func(l *lab.Lab) {
		configMaps := l.WithEventsApart("writer")
		events := configMaps.Of(coreEvent)
		a := configMaps.Create("a", "color=red")
		first := events.Create("first", "involvedObject.namespace="+l.Namespace)
		b := configMaps.Create("b", "color=red")
		second := events.Create("second", "involvedObject.namespace="+l.Namespace)

		table := l.Table("written", "resourceVersion")
		for _, o := range []*lab.Object{a, first, b, second} {
			table.Row(o.GetKind()+" "+o.GetName(), o.GetResourceVersion())
		}
		table.End()
		order := func(x, y *lab.Object) int {
			order, err := l.Order(x.GetResourceVersion(), y.GetResourceVersion())
			require.NoError(l, err, "comparing two tokens")
			return order
		}
		l.Say("Within a resource the order is that of the writes: a, b: %d; first, second: %d. Between them it is not: a, "+
			"first: %d, although first was written after a.", order(a, b), order(first, second), order(a, first))
		l.Equal("the order of two ConfigMaps, one after the other,", order(a, b), -1)
		l.Equal("the order of two Events, one after the other,", order(first, second), -1)
		l.Equal("the order of a ConfigMap and an Event after it", order(a, first), 1)
		l.Equal("the order of the other ConfigMap and the Event after it", order(b, second), 1)
	})
}

// coreEvent is the Event of the core group, about something that does not matter.
var coreEvent = lab.Kind{Kind: "Event", Version: "v1", Resource: "events", Base: map[string]any{
	"reason": "Shown", "message": "for a lesson", "type": "Normal", "involvedObject": map[string]any{},
}}

func TestOT43_ATokenIsHandedBackAsItWasGiven(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT43", From: "D2 title; +",
		Says: "a replace reads its token as a number, with \"0\" and \"\" for none; a delete compares it as text",
		Why: "a token that was parsed, padded or made up can lose its protection without an error, or meet a 500 that no " +
			"retry will cure",
		Do:      "Hand a token back exactly as it was given.",
		FalseIf: world.TokensAreText.Shows(`the answer to a replace, with leading zeros, is 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.DeletesReadNumbers.Shows(`the answer to a delete, with leading zeros, is 200`),
			world.DeletesTakeForNone("abc").Shows(`the answer to a delete, "abc", is 200`),
			world.AProxyStripsTheRevision.Shows(`the answer to a read, "abc", is 200`),
			world.WordsAreNoTokens.Shows(`the answer to a replace, "abc", is 200`),
			world.ZeroIsANumber.Shows(`the answer to a replace, "0", is 409 Conflict`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage", "APIObjectVersioner.ObjectResourceVersion"),
		Answers: "#28 #35",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		custom := l.Of(l.CustomResource())
		special := custom.Create("special", "color=red")
		l.Say("The token stands in the body of a replace and of a merge patch, and in the preconditions of a delete. In " +
			"the query of a GET it asks for a state at least as new. It is the current one, also with zeros before it; all " +
			"writes of the table are dry runs, so it stays current.")
		table := l.Table("token", "replace", "merge patch", "GET ?resourceVersion=", "delete", "both, of a Shelf")
		var replaces, patches []string // of the custom resource
		for _, row := range []struct{ title, token, replace, patch, read, remove string }{
			{"as it was given", "N", "200", "200", "200", "200"},
			{"with leading zeros", "00N", "200", "200", "200", "409 Conflict"},
			{`"0"`, "0", "200", "200", "200", "409 Conflict"},
			{`""`, "", "200", "200", "200", "409 Conflict"},
			{`"abc"`, "abc", "500", "500", "500", "409 Conflict"},
		} {
			token := strings.Replace(row.token, "N", shelf.GetResourceVersion(), 1)
			replace, patch := dryReplace(l.Client, shelf, token), dryPatch(l.Client, shelf, token)
			_, err := l.TryRaw(http.MethodGet, l.Path("shelf"), "resourceVersion="+token, nil)
			read, remove := lab.AnswerLine(err), dryDelete(l.Client, shelf, token)
			token = strings.Replace(row.token, "N", special.GetResourceVersion(), 1)
			replaces = append(replaces, dryReplace(custom, special, token))
			patches = append(patches, dryPatch(custom, special, token))
			table.Row(row.title, replace, patch, read, remove, replaces[len(replaces)-1])
			l.Equal("the answer to a replace, "+row.title+",", replace, row.replace)
			l.Equal("the answer to a merge patch, "+row.title+",", patch, row.patch)
			l.Equal("the answer to a read, "+row.title+",", read, row.read)
			l.Equal("the answer to a delete, "+row.title+",", remove, row.remove)
		}
		table.End()
		l.Equal("what a replace of a Shelf is answered", replaces,
			[]string{"200", "200", "422 Invalid", "422 Invalid", "500"})
		l.Equal("what a merge patch of it is answered", patches, replaces)
		l.Say("The last column is that of a replace and of a merge patch of a Shelf, a custom resource: a replace of it " +
			"demands a token (CF6), a patch only must not say that there is none (CF7d), and 0 and \"\" are none. Of a " +
			"ConfigMap, a replace or a patch with either carries no precondition at all: it overwrites whatever is there. The " +
			"500 says that the token cannot be parsed: nothing was stored, and no repetition helps; other 500s leave open " +
			"what was stored (OT21b), and only the message tells them apart.")
		l.Rival().Set("shelf", "color=white")
		_, err := l.TryReplace(lab.WithToken(shelf, "0"), "color=blue")
		l.Accepted(err, "a replace with 0 of what a rival has changed")
		l.Stored(shelf, "color=blue")
	})
}

// dryReplace is the answer to a replace with a token, as a dry run: the token is checked as ever.
func dryReplace(c *lab.Client, o *lab.Object, token string) string {
	body, err := lab.With(lab.WithToken(o, token), "color=blue").MarshalJSON()
	if err == nil {
		_, err = c.TryRaw(http.MethodPut, c.Path(o.GetName()), "dryRun=All", body)
	}
	return lab.AnswerLine(err)
}

// dryPatch is the same of a merge patch.
func dryPatch(c *lab.Client, o *lab.Object, token string) string {
	body := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},%q:{"color":"blue"}}`, token, c.Kind().Fields)
	options := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	_, err := c.TryPatchWith(o.GetName(), types.MergePatchType, body, options)
	return lab.AnswerLine(err)
}

// dryDelete is the same of a delete.
func dryDelete(c *lab.Client, o *lab.Object, token string) string {
	return lab.AnswerLine(c.TryDelete(o.GetName(), metav1.DeleteOptions{
		DryRun: []string{metav1.DryRunAll}, Preconditions: &metav1.Preconditions{ResourceVersion: &token},
	}))
}

func TestOT42_TheRulesAreNotThoseOfEveryFake(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT42", From: "+",
		Says: "fake clients have other tokens than the server: client-go's dynamic fake has none, controller-runtime's " +
			"moves them when nothing has changed",
		Why: "against the one a test never meets a conflict; against the other it meets refusals, and some that the server " +
			"would not give",
		Do:      "Test what you do about conflicts against a real kube-apiserver.",
		FalseIf: world.TheDynamicFakeKnowsTokens.Shows(`client-go's dynamic fake: what a create gives is a token`),
		AlsoFalseIf: []world.World{
			world.TheOtherFakeNoticesNoChange.Shows(`controller-runtime's fake: what the same again gives is the same token`),
			world.OlderTokensCount.Shows(`kube-apiserver: the answer to a stale replace is 200`),
		},
		Read:    source.Decl("k8s.io/client-go/testing", "ObjectReaction"),
		Answers: "#76",
	}, func(l *lab.Lab) {
		table := l.Table("", "create", "the same again", "a stale replace", "without a token")
		doubles := l.Doubles()
		for i, want := range []struct{ create, same, stale, blind string }{
			{"a token", "the same token", "409 Conflict", "200"},
			{"no token", "no token", "200", "200"},
			{"a token", "another token", "409 Conflict", "200"},
		} {
			double := doubles[i]
			created, err := double.Create(l.New("shelf", "color=red"))
			require.NoError(l, err, "creating shelf at "+double.Name)
			same, err := double.Replace(created)
			require.NoError(l, err, "replacing shelf by itself at "+double.Name)
			_, err = double.Replace(lab.With(same, "color=blue"))
			require.NoError(l, err, "replacing shelf at "+double.Name)
			_, stale := double.Replace(lab.With(same, "color=green"))
			_, blind := double.Replace(lab.WithToken(lab.With(same, "color=white"), ""))

			first, second := tokensOf(created, same)
			table.Row(double.Name, first, second, lab.AnswerLine(stale), lab.AnswerLine(blind))
			l.Equal(double.Name+": what a create gives", first, want.create)
			l.Equal(double.Name+": what the same again gives", second, want.same)
			l.Equal(double.Name+": the answer to a stale replace", lab.AnswerLine(stale), want.stale)
			l.Equal(double.Name+": the answer to a replace without a token", lab.AnswerLine(blind), want.blind)
		}
		table.End()
	})
}

// tokensOf says what token an object was created with, and which one it has after a replace by the same.
func tokensOf(created, same *lab.Object) (first, second string) {
	if created.GetResourceVersion() == "" {
		first = "no token"
	} else {
		first = "a token"
	}
	switch same.GetResourceVersion() {
	case "":
		second = "no token"
	case created.GetResourceVersion():
		second = "the same token"
	default:
		second = "another token"
	}
	return first, second
}
