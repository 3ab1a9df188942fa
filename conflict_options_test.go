// Chapter 2, continued: options and parameters.
package modrev

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestCF20_ACreateThatCarriesATokenIsA500(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF20", From: "+",
		Says: "a create of an object that carries a resourceVersion is answered with 500 and no reason, and stores nothing",
		Why: "a backup that still carries its token looks like a broken server, and a client that repeats each 5xx " +
			"repeats it forever",
		Do:      "Take the resourceVersion out of an object before you create it.",
		FalseIf: world.CreatesAreApplies.Shows(`a create with "5" was accepted`),
		AlsoFalseIf: []world.World{
			world.EveryTextIsATokenInACreate.Shows(`a create with "0" was refused: 500`),
			world.DryRunsAreReal.Shows(`a dry run of a create with "5" was refused: 500`),
			world.ALibraryCreatesWhatIsMissing("leases").Shows(`a replace that creates was refused: 500`),
			world.ALibraryCreatesWhatIsMissing("configmaps").Shows(`an apply that creates was refused: 500`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).Create"),
		Answers: "#37",
	}, func(l *lab.Lab) {
		carried := lab.Refusal{Code: 500, Message: "resourceVersion should not be set on objects to be created"}
		l.Create("taken", "color=red")
		table := l.Table("request", "resourceVersion", "answer")
		create := func(name, token string) error {
			_, err := l.TryCreateObject(lab.WithToken(l.New(name, "color=red"), token))
			return err
		}

		var err error
		sent := l.Record(func() { err = create("shelf", "5") })
		table.Row("create", "5", l.Answered())
		l.Refused(err, `a create with "5"`, carried)
		l.Sends(sent, `a create with "5"`, "no request")
		err = create("taken", "5")
		table.Row("create, the name is taken", "5", l.Answered())
		l.Refused(err, `a create with "5" under a name that is taken`, carried)
		for _, token := range []string{"0", "abc", "-1"} {
			err = create("ignored"+token, token)
			table.Row("create", token, l.Answered())
			l.Accepted(err, fmt.Sprintf("a create with %q", token))
		}
		backup := l.New("restored")
		backup.SetUID("00000000-0000-0000-0000-000000000001")
		created, err := l.TryCreateObject(backup)
		table.Row("create with a uid", "none", l.Answered())
		l.Accepted(err, "a create with a uid")
		l.Expect(created.GetUID() != backup.GetUID(), "it is given a uid of its own", "it keeps the uid of the backup")
		_, err = l.TryRaw(http.MethodPost, l.Path(""), "dryRun=All",
			[]byte(`{"metadata":{"name":"shelf","resourceVersion":"5"}}`))
		table.Row("create, a dry run", "5", l.Answered())
		l.Accepted(err, `a dry run of a create with "5"`)

		leases := l.Of(lab.Lease)
		_, err = leases.TryReplace(lab.WithToken(leases.New("shelf"), "5"))
		table.Row("replace of a Lease that is missing", "5", l.Answered())
		l.Accepted(err, "a replace that creates")
		_, err = l.TryApply("applied", "writer", false, "color=red", "metadata.resourceVersion=5")
		table.Row("apply of what is missing", "5", l.Answered())
		l.Accepted(err, "an apply that creates")
		table.End()
		l.Say("The storage layer refuses it before it asks etcd: %s.", carried.Message)
		l.Say("So nobody says that the name is taken: code that waits for 409 AlreadyExists waits in vain. A dry run " +
			"skips the storage layer, and promises what will fail. A replace or an apply that creates ignores the token.")
	})
}

func TestCF21_ADeleteReadsItsBodyOrItsQuery(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF21", From: "+",
		Says: "a delete with a body reads its options from the body alone; only a delete without a body reads its query",
		Why: "a trial delete with ?dryRun=All deletes for good, and is answered with 200, once a library adds a body; " +
			"client-go always does",
		Do: "Put every option of a delete into its body.",
		FalseIf: world.DeletesAlsoReadTheirQuery.Shows(
			`what a delete with \?dryRun=All and the body {} leaves is the object`),
		AlsoFalseIf: []world.World{
			world.ClientDropsThePreconditions.Shows(`what a delete with the body {"preconditions".* leaves is nothing`),
			world.AProxyDropsTheQueryOfDeletes.Shows(`what a delete with \?dryRun=All leaves is nothing`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "DeleteResource"),
		Answers: "#81",
	}, func(l *lab.Lab) {
		const (
			kept, marked, gone = "the object", "the object, marked", "nothing"
			refused            = "the object: 409 Conflict"
		)
		bound := lab.Pod // to a node: it has 30 seconds to end, unless the delete says otherwise
		bound.Base = map[string]any{"spec": map[string]any{"nodeName": "n1", "containers": []any{
			map[string]any{"name": "c", "image": "registry.example/shelf:1"},
		}}}
		table := l.Table("option", "in the query", "in the query, with a body {}", "in the body")
		for _, option := range []struct {
			kind             lab.Kind
			query, body      string
			followed, unread string // what is left of the object when the option is followed, and when it is not read
		}{
			{lab.ConfigMap, "dryRun=All", `{"dryRun":["All"]}`, kept, gone},
			{lab.ConfigMap, "propagationPolicy=Orphan", `{"propagationPolicy":"Orphan"}`, marked, gone},
			{lab.ConfigMap, "uid=another", `{"preconditions":{"uid":"another"}}`, refused, gone},
			{lab.ConfigMap, "resourceVersion=1", `{"preconditions":{"resourceVersion":"1"}}`, refused, gone},
			{bound, "gracePeriodSeconds=0", `{"gracePeriodSeconds":0}`, gone, marked},
		} {
			query := deletion{option.kind, option.query, ""}.leaves(l)
			both := deletion{option.kind, option.query, "{}"}.leaves(l)
			body := deletion{option.kind, "", option.body}.leaves(l)
			table.Row(option.query, query, both, body)
			l.Equal("what a delete with ?"+option.query+" leaves", query, option.followed)
			l.Equal("what a delete with ?"+option.query+" and the body {} leaves", both, option.unread)
			l.Equal("what a delete with the body "+option.body+" leaves", body, option.followed)
		}
		table.End()
		l.Say("Each cell says what the delete leaves. In the query, the preconditions are called uid and resourceVersion. " +
			"The last row is about a Pod on a node: it has 30 seconds to end, unless the delete says otherwise.")
	})
}

// deletion is one way to say how an object is to be deleted.
type deletion struct {
	kind        lab.Kind
	query, body string
}

// leaves creates an object, deletes it in that way, and says what is left of it.
func (d deletion) leaves(l *lab.Lab) string {
	o := l.Of(d.kind).New("")
	o.SetGenerateName("shelf-")
	o, err := l.Of(d.kind).TryCreateObject(o)
	require.NoError(l, err, "creating an object to delete")
	_, err = l.TryRaw(http.MethodDelete, l.Of(d.kind).Path(o.GetName()), d.query, inBytes(d.body))
	switch {
	case !l.Exists(o):
		return "nothing"
	case err != nil:
		return "the object: " + lab.AnswerLine(err)
	case l.Of(d.kind).Peek(o.GetName()).GetDeletionTimestamp() != nil:
		return "the object, marked"
	}
	return "the object"
}

// asSent is what a request says beside its path.
func asSent(query, body string) string {
	if query != "" {
		query = "?" + query
	}
	return strings.TrimSpace(query + " " + body)
}

// inBytes is the body of a request, nil for none.
func inBytes(body string) []byte {
	if body == "" {
		return nil
	}
	return []byte(body)
}

func TestCF21b_ADeletecollectionReadsItsSelectorFromTheQuery(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF21b", From: "+",
		Says: "a deletecollection reads its selector from the query alone: a selector in the body selects everything",
		Why:  "the same request carries two kinds of options, in two places, and what stands in the wrong place is ignored",
		Do:   "Put the selector into the query and everything else into the body.",
		FalseIf: world.ASelectorInTheBodyCounts.Shows(
			`what {"labelSelector":"l=1"} leaves is c`),
		AlsoFalseIf: []world.World{
			world.NamesOfParametersInAnyCase.Shows(`what \?labelselector=l=1 leaves is c`),
			world.DeletesAlsoReadTheirQuery.Shows(`what \?labelSelector=l=1&dryRun=All {} leaves is a, b, c`),
			world.ClientDropsThePreconditions.Shows(`what .*"preconditions".* leaves is c`),
			world.ZeroAsksForTheNewest.Shows(`what \?labelSelector=l=1&resourceVersion=0 leaves is c`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "DeleteCollection"),
		Answers: "#81",
	}, func(l *lab.Lab) {
		all := []string{"a", "b", "c"}
		const selected = "labelSelector=l=1" // a and b
		table := l.Table("query", "body", "answer", "left of a, b, c")
		for _, request := range []struct {
			query, body string
			left        []string
		}{
			{selected, "", []string{"c"}},
			{"", `{"labelSelector":"l=1"}`, nil},
			{"labelselector=l=1", "", nil},
			{selected + "&dryRun=All", "", all},
			{selected + "&dryRun=All", "{}", []string{"c"}},
			{selected, `{"dryRun":["All"]}`, all},
			{selected, `{"preconditions":{"resourceVersion":"1"}}`, all},
			{selected + "&resourceVersion=0", "", all},
			{selected + "&resourceVersion=0", "{}", []string{"c"}},
		} {
			left := afterDeletecollection(l, request.query, request.body)
			table.Row(request.query, request.body, l.Answered(), cmp.Or(strings.Join(left, ", "), "(none)"))
			l.Equal("what "+asSent(request.query, request.body)+" leaves", left, request.left)
		}
		table.End()
		l.Say("a and b have the label l=1, c has l=2. In a list, resourceVersion=0 means any state. Here it is also a " +
			"precondition of each member, and no object has the number 0.")
	})
}

// afterDeletecollection deletes ConfigMaps a, b and c with one request, and says which are left.
func afterDeletecollection(l *lab.Lab, query, body string) (left []string) {
	members := []*lab.Object{
		l.New("a", "metadata.labels.l=1"), l.New("b", "metadata.labels.l=1"), l.New("c", "metadata.labels.l=2"),
	}
	for _, o := range members {
		if !l.Exists(o) {
			created, err := l.TryCreateObject(o)
			require.NoError(l, err, "creating "+o.GetName())
			l.Settle(created) // a list at 0 is the cache's
		}
	}
	_, _ = l.TryRaw(http.MethodDelete, l.Path(""), query, inBytes(body)) // a refusal shows in what is left
	for _, o := range members {
		if l.Exists(o) {
			left = append(left, o.GetName())
		}
	}
	return left
}

func TestCF22_AMisspelledNameIsIgnored(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF22", From: "+",
		Says: "a parameter with a misspelled name is ignored, and so is a field of the options in a delete's body",
		Why:  "a guard with a typo is no guard: the trial run is real and the precondition is none, and no warning says so",
		Do:   "Try a guard once with a value that must be refused.",
		FalseIf: world.NamesOfParametersInAnyCase.Shows(
			`color=red is stored`),
		AlsoFalseIf: []world.World{
			world.NamesOfTokensInAnyCase.Shows(`what a delete with .*"resourceversion".* leaves is the object: 409`),
		},
		Read: source.Decl("k8s.io/apimachinery/pkg/runtime", "(*parameterCodec).DecodeParameters"),
	}, func(l *lab.Lab) {
		warnings := warningsOf(l)
		patch := l.WithHeader("Content-Type", string(types.MergePatchType))
		shelf := l.Create("shelf", "color=red")
		table := l.Table("request", "answer", "what became of it")

		_, err := patch.TryRaw(http.MethodPatch, l.Path("shelf"), "dryrun=All", []byte(`{"data":{"color":"blue"}}`))
		table.Row("PATCH ?dryrun=All", l.Answered(), "color="+lab.Field(l.Peek("shelf"), "color"))
		l.Accepted(err, "a patch with ?dryrun=All")
		l.Stored(shelf, "color=blue")
		_, err = patch.TryRaw(http.MethodPatch, l.Path("shelf"), "fieldmanager=bob", []byte(`{"data":{"size":"9"}}`))
		owner := l.OwnersOf(l.Peek("shelf"), "size")
		table.Row("PATCH ?fieldmanager=bob", l.Answered(), "the owner of size: "+owner)
		l.Accepted(err, "a patch with ?fieldmanager=bob")
		l.Equal("the owner of size", owner, "writer by Update")

		for _, request := range []struct{ query, body, left string }{
			{"dryrun=All", "", "nothing"},
			{"preconditions.uid=another", "", "nothing"},
			{"", `{"preconditions":{"resourceversion":"1"}}`, "nothing"},
			{"", `{"precondition":{"uid":"another"}}`, "nothing"},
			{"fieldValidation=Strict", `{"precondition":{"uid":"another"}}`, "nothing"},
			{"dryRun=all", "", "the object: 422 Invalid"},
			{"", `{"dryRun":"All"}`, "the object: 400 BadRequest"},
		} {
			left := deletion{lab.ConfigMap, request.query, request.body}.leaves(l)
			what := asSent(request.query, request.body)
			table.Row("DELETE "+what, l.Answered(), "left: "+left)
			l.Equal("what a delete with "+what+" leaves", left, request.left)
		}
		held := createHeld(l.Client, "held")
		_, err = l.TryRaw(http.MethodDelete, l.Path("held"), "fieldManager=bob", nil)
		owner = l.OwnersOf(l.Peek("held"), "deletionTimestamp")
		table.Row("DELETE ?fieldManager=bob, with a finalizer", l.Answered(), "the owner of deletionTimestamp: "+owner)
		l.Accepted(err, "a delete with ?fieldManager=bob of "+held.GetName())
		l.Equal("the owner of deletionTimestamp", owner, "nobody")
		table.End()
		l.Say("Without a fieldManager, the owner is the User-Agent. A delete has no fieldManager and no fieldValidation, " +
			"so Strict does not help. Wrong values are refused, wrong names are not. No answer carried a warning.")
		l.Equal("the number of warnings", len(*warnings), 0)
	})
}

// warningsOf are the warnings that come with answers from now on.
func warningsOf(l *lab.Lab) *[]string {
	warnings := new([]string)
	l.Wire.AddHTTP(&wire.HTTPRule{Answer: func(resp *http.Response, body []byte) []byte {
		*warnings = append(*warnings, resp.Header.Values("Warning")...)
		return body
	}})
	return warnings
}

func TestCF23_ALimitChangesWhatANumberMeans(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF23", From: "+",
		Says: "a limit changes what the resourceVersion of a list means: without one it is a lower bound, with one it is " +
			"exact",
		Why: "a client that adds a limit to save memory, or a number to be sure of a fresh list, is given the past, with " +
			"200",
		Do:      "Say resourceVersionMatch whenever you list with a resourceVersion.",
		FalseIf: world.ALibrarySaysNotOlderThan.Shows(`a list at b's number with a limit is a, b, c; newest`),
		AlsoFalseIf: []world.World{
			world.AProxyStripsTheRevision.Shows(`a list at 0, Exact is a, b, c; newest`),
			world.ZeroAsksForTheNewest.Shows(`a list at 0, NotOlderThan is 422 Invalid`),
			world.ALimitCountsForTheCacheToo.Shows(`a list at 0 with a limit of 1 is a; newest`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage", "ValidateListOptions"),
		Answers: "#63",
	}, func(l *lab.Lab) {
		defer l.KeepHistory()()
		l.Create("a", "color=red")
		m := moments{l: l, past: l.Create("b", "color=red").GetResourceVersion()}
		c := l.Create("c", "color=red")
		m.newest = c.GetResourceVersion()
		l.Settle(c)

		const all, exact, invalid = "a, b, c; newest", "a, b; at b's number", "422 Invalid"
		table := l.Table("resourceVersion", "resourceVersionMatch", "without a limit", "with limit=10")
		for _, row := range []struct{ version, number, match, unlimited, limited string }{
			{"", "none", "", all, all},
			{"", "none", "Exact", invalid, invalid},
			{"", "none", "NotOlderThan", invalid, invalid},
			{"0", "0", "", all, all},
			{"0", "0", "Exact", invalid, invalid},
			{"0", "0", "NotOlderThan", all, all},
			{m.past, "b's number", "", all, exact},
			{m.past, "b's number", "Exact", exact, exact},
			{m.past, "b's number", "NotOlderThan", all, all},
			{m.past, "b's number", "exact", invalid, invalid},
			{"abc", "abc", "", "400 BadRequest", "400 BadRequest"},
		} {
			match := metav1.ResourceVersionMatch(row.match)
			o := metav1.ListOptions{ResourceVersion: row.version, ResourceVersionMatch: match}
			unlimited := m.list(o)
			o.Limit = 10
			limited := m.list(o)
			table.Row(row.number, row.match, unlimited, limited)
			what := strings.TrimSuffix("a list at "+row.number+", "+row.match, ", ")
			l.Equal(what, unlimited, row.unlimited)
			l.Equal(what+" with a limit", limited, row.limited)
		}
		table.End()
		watch, err := l.TryWatch(metav1.ListOptions{Limit: 1})
		require.NoError(l, err, "watching with a limit")
		first, second := watch.Next(), watch.Next()
		l.Say("With 0, the limit itself is ignored: limit=1 is answered with all three. A watch ignores it, too.")
		l.Equal("the events of a watch with a limit of 1", first.Name+", "+second.Name, "a, b")
		l.Equal("a list at 0 with a limit of 1", m.list(metav1.ListOptions{ResourceVersion: "0", Limit: 1}), all)

		page, err := l.TryList(metav1.ListOptions{Limit: 1})
		require.NoError(l, err, "listing page 1")
		table = l.Table("page 2, with continue and", "answer")
		for _, row := range []struct{ version, match, answer string }{
			{"", "", "b, c; newest"},
			{"0", "", "b, c; newest"},
			{m.past, "", "400 BadRequest"},
			{m.past, "Exact", invalid},
		} {
			match := metav1.ResourceVersionMatch(row.match)
			answer := m.list(metav1.ListOptions{
				Continue: page.GetContinue(), ResourceVersion: row.version, ResourceVersionMatch: match,
			})
			table.Row(strings.TrimSpace("resourceVersion="+row.version+" "+row.match), answer)
			l.Equal("page 2 with resourceVersion="+row.version+" and match "+row.match, answer, row.answer)
		}
		table.End()
	})
}

// moments are two moments in the life of a list of a, b and c: c was created at the newest.
type moments struct {
	l            *lab.Lab
	past, newest string
}

// list is what a list holds, and of which moment it is; or how it is refused.
func (m moments) list(o metav1.ListOptions) string {
	list, err := m.l.TryList(o)
	if err != nil {
		return lab.AnswerLine(err)
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	at := list.GetResourceVersion()
	if at == m.past {
		at = "at b's number"
	} else if order, err := m.l.Order(at, m.newest); err == nil && order >= 0 {
		at = "newest"
	}
	return strings.Join(names, ", ") + "; " + at
}

func TestCF24_ATokenInTheQueryOfAWriteIsNone(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF24", From: "+",
		Says: "a replace, a patch and a create ignore a resourceVersion in their query; a delete takes it for a " +
			"precondition",
		Why: "one parameter has three meanings: in a read, how old the answer may be; in a delete, a precondition; in " +
			"another write, none",
		Do:      "Put the token of a write into its body, in metadata.resourceVersion.",
		FalseIf: world.TheQueryHoldsTheToken.Shows(`a replace with a stale token in its query was refused: 409`),
		AlsoFalseIf: []world.World{
			world.AProxyDropsTheQueryOfDeletes.Shows(`a delete with a stale token in its query was accepted`),
			world.AGetOfThePastIsAList.Shows(`the color that a GET with Exact reads is red`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/apis/meta/v1", "Convert_url_Values_To_v1_DeleteOptions"),
		Answers: "#81",
	}, func(l *lab.Lab) {
		defer l.KeepHistory()()
		stale := l.Create("shelf", "color=red")
		l.Rival().Set("shelf", "color=blue")
		query := "resourceVersion=" + stale.GetResourceVersion()
		patch := l.WithHeader("Content-Type", string(types.MergePatchType))
		table := l.Table("request", "answer", "stored after it")
		row := func(request string) {
			table.Row(request, l.Answered(), lab.Fields(l.Peek("shelf"), "color", "size"))
		}

		_, err := l.TryRaw(http.MethodPut, l.Path("shelf"), query,
			[]byte(`{"metadata":{"name":"shelf"},"data":{"color":"green"}}`))
		row("PUT ?resourceVersion=stale")
		l.Accepted(err, "a replace with a stale token in its query")
		l.Stored(stale, "color=green")
		_, err = patch.TryRaw(http.MethodPatch, l.Path("shelf"), query, []byte(`{"data":{"size":"9"}}`))
		row("PATCH ?resourceVersion=stale")
		l.Accepted(err, "a patch with a stale token in its query")
		_, err = l.TryRaw(http.MethodPost, l.Path(""), query, []byte(`{"metadata":{"name":"other"}}`))
		row("POST ?resourceVersion=stale, of another")
		l.Accepted(err, "a create with a token in its query")

		l.Settle(l.Peek("shelf")) // the cache may answer, and is to have what is stored
		read, err := call{http.MethodGet, l.Path("shelf"), query + "&resourceVersionMatch=Exact", ""}.send(l)
		require.NoError(l, err, "reading shelf with Exact")
		row("GET ?resourceVersion=stale&resourceVersionMatch=Exact")
		l.Equal("the color that a GET with Exact reads", lab.Field(read, "color"), "green")
		read, err = call{http.MethodGet, l.Path("shelf"), "watch=true&labelSelector=l=none&timeoutSeconds=1", ""}.send(l)
		require.NoError(l, err, "reading shelf with watch=true")
		row("GET ?watch=true&labelSelector=l=none")
		l.Equal("what a GET of one object with watch=true is answered with", read.GetKind(), "ConfigMap")

		_, err = l.TryRaw(http.MethodDelete, l.Path("shelf"), query, nil)
		l.Refused(err, "a delete with a stale token in its query", lab.Refusal{
			Code: 409, Reason: metav1.StatusReasonConflict, Says: "the ResourceVersion in the precondition",
		})
		row("DELETE ?resourceVersion=stale")
		_, err = l.TryRaw(http.MethodDelete, l.Path("shelf"), "uid=another", nil)
		l.Refused(err, "a delete with another uid in its query", lab.Refusal{
			Code: 409, Reason: metav1.StatusReasonConflict, Says: "the UID in the precondition",
		})
		row("DELETE ?uid=another")
		table.End()
		l.Say("A GET of one object knows its number, as a lower bound, and no other parameter: it does not match, select " +
			"or watch. A list with Exact reads the past (CF23). A delete reads its query only if it has no body (CF21).")
	})
}

func TestCF25_AMisspelledTokenIsNoToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF25", From: "+",
		Says: "a misspelled resourceVersion in a body is no token: the stale write is accepted, with a Warning header",
		Why: "the write overwrites what it was to be compared with, and few programs look at the header; with " +
			"fieldValidation=Strict it is refused",
		Do:      "Write with fieldValidation=Strict.",
		FalseIf: world.NamesOfTokensInAnyCase.Shows(`a replace with metadata.resourceversion was refused: 409`),
		AlsoFalseIf: []world.World{
			world.WritesAreValidated("Strict").Shows(`a replace with metadata.resourceversion was refused: 400`),
			world.WritesAreValidated("Ignore").Shows(`the number of warnings for a replace .* is 0`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "UpdateResource"),
	}, func(l *lab.Lab) {
		token := l.Create("shelf", "color=red").GetResourceVersion()
		l.Rival().Set("shelf", "color=blue")
		warnings := warningsOf(l)
		table := l.Table("where a stale replace has its token", "fieldValidation", "answer", "warning")
		for _, place := range []struct{ what, metadata string }{
			{"metadata.resourceversion", `"metadata":{"name":"shelf","resourceversion":%q}`},
			{"resourceVersion, outside of metadata", `"metadata":{"name":"shelf"},"resourceVersion":%q`},
			{"metadata.resourceVersion, twice", `"metadata":{"name":"shelf","resourceVersion":%q,"resourceVersion":""}`},
		} {
			what := "a replace with " + place.what
			for _, mode := range []string{"", "Warn", "Ignore", "Strict"} {
				*warnings = nil
				body := fmt.Sprintf(`{`+place.metadata+`,"data":{"color":%q}}`, token, "green"+mode)
				_, err := l.TryRaw(http.MethodPut, l.Path("shelf"), "fieldValidation="+mode, []byte(body))
				table.Row(place.what, mode, l.Answered(), strings.Join(*warnings, "; "))
				if mode == "Strict" {
					l.Refused(err, what+" and Strict", lab.Refusal{Code: 400, Reason: metav1.StatusReasonBadRequest})
					continue
				}
				l.Accepted(err, what)
				warned := map[string]int{"": 1, "Warn": 1, "Ignore": 0}[mode]
				l.Equal("the number of warnings for "+what+", fieldValidation="+mode, len(*warnings), warned)
			}
		}
		table.End()

		shelves := l.Of(l.CustomResource())
		shelf := shelves.Create("shelf", "color=red")
		shelf.Object["metadata"].(map[string]any)["resourceversion"] = shelf.GetResourceVersion()
		misspelled := lab.WithToken(shelf, "")
		table = l.Table("metadata.resourceversion in", "answer")
		_, err := shelves.TryReplace(misspelled, "color=green")
		table.Row("a replace of a custom resource", l.Answered())
		l.Refused(err, "a replace of a Shelf", lab.Refusal{Code: 422, Reason: metav1.StatusReasonInvalid})
		_, err = shelves.TryPatch("shelf", types.MergePatchType,
			`{"metadata":{"resourceversion":"1"},"spec":{"color":"blue"}}`)
		table.Row("a merge patch of a custom resource", l.Answered())
		l.Accepted(err, "a merge patch of a Shelf")
		_, err = l.TryApply("shelf", "writer", true, "color=white", "metadata.resourceversion=1")
		table.Row("an apply", l.Answered())
		l.Refused(err, "an apply", lab.Refusal{Code: 500, Says: "field not declared in schema"})
		table.End()
		l.Say("If the token stands there twice, the last one counts: here it is empty. A custom resource demands a token " +
			"in a replace, but not in a patch. An apply refuses each field that the schema does not have.")
	})
}
