// Chapter 4, continued: which number an answer carries, and what it is worth.
package modrev

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT70_ADryRunAnswersNewContentUnderTheOldNumber(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT70", From: "+",
		Says: "a dry run answers with new content under the old resourceVersion: one token, two contents",
		Why: "a preview looks unchanged if you compare tokens, and a cache that keeps it holds what was never stored, " +
			"under a valid token",
		Do:      "Show the answer to a dry run, and never keep or compare it.",
		FalseIf: world.DryRunsAreReal.Shows(`the resourceVersion of a replace, as a dry run is \d+`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`a dry run of a stale replace was accepted`),
			world.CreatesAreReal.Shows(`the resourceVersion of a create, as a dry run is \d+`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*DryRunnableStorage).GuaranteedUpdate"),
		Answers: "#109",
	}, func(l *lab.Lab) {
		stale := l.Create("shelf", "color=red")
		shelf := l.Rival().Set("shelf", "color=blue")
		dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
		table := l.Table("dry run", "answer", "its resourceVersion", "its content")
		row := func(what string, o *lab.Object) {
			table.Row(what, l.Answered(), cmp.Or(o.GetResourceVersion(), "none"), lab.Fields(o, "color"))
		}

		replaced, err := call{http.MethodPut, l.Path("shelf"), "dryRun=All", text(l, lab.With(shelf, "color=green"))}.send(l)
		require.NoError(l, err, "a replace as a dry run")
		row("replace with color=green", replaced)
		l.Equal("the resourceVersion of a replace, as a dry run", replaced.GetResourceVersion(), shelf.GetResourceVersion())
		l.Equal("the color in the answer", lab.Field(replaced, "color"), "green")
		patched, err := l.TryPatchWith("shelf", types.MergePatchType, `{"data":{"color":"white"}}`, dry)
		require.NoError(l, err, "a patch as a dry run")
		row("merge patch with color=white", patched)
		l.Equal("the resourceVersion of a patch, as a dry run", patched.GetResourceVersion(), shelf.GetResourceVersion())
		_, err = call{http.MethodPut, l.Path("shelf"), "dryRun=All", text(l, stale)}.send(l)
		table.Row("replace with the token before", l.Answered(), "", "")
		l.Refused(err, "a dry run of a stale replace", lab.Stale(shelf))
		l.Stored(shelf, "color=blue")

		deployment := l.Of(lab.Deployment).Create("shelf", "replicas=1")
		scaled, err := l.Of(lab.Deployment).TryPatchWith("shelf", types.MergePatchType, `{"spec":{"replicas":2}}`, dry)
		require.NoError(l, err, "a patch of a Deployment as a dry run")
		table.Row("merge patch of a Deployment", l.Answered(), scaled.GetResourceVersion(),
			fmt.Sprintf("generation %d", scaled.GetGeneration()))
		l.Equal("the generation of a Deployment, patched as a dry "+
			"run,", scaled.GetGeneration(), deployment.GetGeneration()+1)
		l.Equal("its resourceVersion", scaled.GetResourceVersion(), deployment.GetResourceVersion())

		create := call{http.MethodPost, l.Path(""), "dryRun=All",
			`{"metadata":{"generateName":"shelf-"},"data":{"color":"green"}}`}
		created, err := create.send(l)
		require.NoError(l, err, "a create as a dry run")
		row("create "+created.GetName(), created)
		again, err := create.send(l)
		require.NoError(l, err, "the same create once more")
		row("create "+again.GetName(), again)
		table.End()
		l.Say("shelf stays at %s with color=blue. The previewed creates were given the uids %.8s and %.8s, which no "+
			"object has.",
			shelf.GetResourceVersion(), created.GetUID(), again.GetUID())
		l.Equal("the resourceVersion of a create, as a dry run", created.GetResourceVersion(), "")
		l.Expect(created.GetUID() != again.GetUID(), "the same create has another uid each time", "it is %s", again.GetUID())
		_, err = l.TryGet(created.GetName())
		l.Refused(err, "a read of what was previewed", lab.Refusal{Code: 404, Reason: metav1.StatusReasonNotFound})
	})
}

// call is one request to a path of the API.
type call struct{ verb, path, query, body string }

// send sends it, and decodes the answer, whatever its kind.
func (q call) send(l *lab.Lab) (*lab.Object, error) { return q.sendAs(l.Client) }

// sendAs sends it as another client.
func (q call) sendAs(c *lab.Client) (*lab.Object, error) {
	answer, err := c.TryRaw(q.verb, q.path, q.query, inBytes(q.body))
	if err != nil {
		return nil, err
	}
	o := new(lab.Object)
	if err := o.UnmarshalJSON(answer); err != nil {
		return nil, fmt.Errorf("decoding the answer to %s %s: %w", q.verb, q.path, err)
	}
	return o, nil
}

// text is an object as the body of a request.
func text(l *lab.Lab, o *lab.Object) string {
	body, err := o.MarshalJSON()
	require.NoError(l, err, "encoding "+o.GetName())
	return string(body)
}

func TestOT71_AScaleHasItsParentsNumberAndDemandsNone(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT71", From: "+",
		Says: "a scale has the resourceVersion of its parent, and is replaced without one even where the parent demands a " +
			"token",
		Why: "scale is a side door to the spec: scalers that send no token overwrite each other, and conflict " +
			"with writers of the parent",
		Do:      "Send the token with a scale too: nothing demands it.",
		FalseIf: world.AScaleDemandsAToken.Shows(`a replace of the scale of a Shelf without a token was refused: 409`),
		AlsoFalseIf: []world.World{
			world.LibraryFillsInTheToken.Shows(`a replace of a Shelf without a token was accepted`),
			world.ClientDropsTheToken.Shows(`a stale replace of the scale of a Shelf was accepted`),
		},
		Read: source.Decl("k8s.io/apiextensions-apiserver/pkg/registry/customresource",
			"(*scaleUpdatedObjectInfo).UpdatedObject"),
		Answers: "#115",
	}, func(l *lab.Lab) {
		table := l.Table("kind", "request", "answer", "resourceVersion")
		for _, kind := range []lab.Kind{l.CustomResource("status", "scale"), lab.Deployment} {
			row := func(request string, o *lab.Object) {
				number := ""
				if o != nil {
					number = o.GetResourceVersion()
				}
				table.Row(kind.Kind, request, l.Answered(), number)
			}
			parents, scales := l.Of(kind), l.Of(kind).Sub("scale")
			parent := parents.Create("shelf", "replicas=1")
			row("create", parent)
			if kind.Kind == "Shelf" {
				_, err := parents.TryReplace(lab.WithToken(parent, ""), "replicas=2")
				row("replace without a token", nil)
				l.Refused(err, "a replace of a Shelf without a token", lab.Refusal{Code: 422, Reason: metav1.StatusReasonInvalid})
				_, err = parents.Sub("status").TryReplace(lab.WithToken(parent, ""), "status.replicas=1")
				row("replace of the status without a token", nil)
				l.Refused(err, "a replace of the status without a "+
					"token", lab.Refusal{Code: 422, Reason: metav1.StatusReasonInvalid})
			}

			scale := scales.Get("shelf")
			row("get the scale", scale)
			l.Equal("the resourceVersion of the scale", scale.GetResourceVersion(), parent.GetResourceVersion())
			scaled, err := scales.TryReplace(lab.WithToken(scale, ""), "replicas=3")
			l.Accepted(err, "a replace of the scale of a "+kind.Kind+" without a token")
			row("replace of the scale without a token", scaled)
			l.Equal("the resourceVersion in the answer", scaled.GetResourceVersion(), parents.Peek("shelf").GetResourceVersion())
			_, err = scales.TryReplace(scale, "replicas=4")
			row("replace of the scale, with the token of before", nil)
			l.Refused(err, "a stale replace of the scale of a "+kind.Kind, lab.Stale(parent))
			_, err = parents.TryReplace(parent, "replicas=5")
			row("replace, with the token of before", nil)
			l.Refused(err, "a replace of a "+kind.Kind+" that was scaled", lab.Stale(parent))
		}
		table.End()
		l.Say("Both refusals name the parent, as there is only one object and one number. A replace of a Deployment needs " +
			"no token either way (CF6).")
	})
}

func TestOT72_TheAnswerToADeleteMayHaveAnyNumber(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT72", From: "+",
		Says: "the answer to a delete has no number, that of the deletion, or an older one; the DELETED event has the " +
			"deletion's",
		Why: "whether the answer is a Status or the object depends on the kind and on finalizers: code that works for one " +
			"kind fails elsewhere",
		Do:      "Take the number of a deletion from its event.",
		FalseIf: world.EtcdReportsALaterRevision.Shows(`the number that a delete of a ServiceAccount answers is \d+`),
		AlsoFalseIf: []world.World{
			world.FinalizersAreDropped.Shows(`what a delete of an object with a finalizer answers is Status`),
		},
		Read: source.Decl(registryStore, "(*Store).finalizeDelete"),
	}, func(l *lab.Lab) {
		accounts := l.Of(lab.Kind{Kind: "ServiceAccount", Version: "v1", Resource: "serviceaccounts"})
		table := l.Table("request", "answer", "its number", "event", "its number")
		row := func(request string, answer *lab.Object, event lab.WatchEvent) {
			table.Row(request, cmp.Or(answer.GetKind(), "(an item)"), cmp.Or(answer.GetResourceVersion(), "none"), event.Type,
				event.ResourceVersion)
		}
		l.Create("shelf", "color=red")
		accounts.Create("shelf")
		createHeld(l.Client, "held", "color=red")
		events := l.Watch(l.List().GetResourceVersion())
		ofAccounts := accounts.Watch(accounts.List().GetResourceVersion())

		answer, err := call{verb: http.MethodDelete, path: l.Path("shelf")}.send(l)
		require.NoError(l, err, "deleting a ConfigMap")
		event := events.Next()
		row("delete of a ConfigMap", answer, event)
		l.Equal("what a delete of a ConfigMap answers", answer.GetKind(), "Status")
		l.Equal("the number that a delete of a ConfigMap answers", answer.GetResourceVersion(), "")

		answer, err = call{verb: http.MethodDelete, path: accounts.Path("shelf")}.send(l)
		require.NoError(l, err, "deleting a ServiceAccount")
		event = ofAccounts.Next()
		row("delete of a ServiceAccount", answer, event)
		l.Equal("the number that a delete of a ServiceAccount answers", answer.GetResourceVersion(), event.ResourceVersion)

		marked, err := call{verb: http.MethodDelete, path: l.Path("held")}.send(l)
		require.NoError(l, err, "deleting an object with a finalizer")
		event = events.Next()
		row("delete, with a finalizer", marked, event)
		l.Equal("what a delete of an object with a finalizer answers", marked.GetKind(), "ConfigMap")
		l.Equal("the event of a delete of an object with a finalizer", event.Type, "MODIFIED")
		l.Equal("its number", event.ResourceVersion, marked.GetResourceVersion())
		answer = l.Replace(marked, "-metadata.finalizers")
		event = events.Next()
		row("replace, without the last finalizer", answer, event)
		l.Equal("the event of the replace without the last finalizer", event.Type, "DELETED")
		l.Equal("the number that this replace answers", answer.GetResourceVersion(), marked.GetResourceVersion())

		last := l.Create("last", "color=red")
		events.Next()
		answer, err = call{verb: http.MethodDelete, path: l.Path("")}.send(l)
		require.NoError(l, err, "deleting what is left")
		list, err := answer.ToList()
		require.NoError(l, err, "reading the answer")
		event = events.Next()
		row("deletecollection", &list.Items[0], event)
		table.End()
		l.Equal("the number of the item in the answer", list.Items[0].GetResourceVersion(), last.GetResourceVersion())
		l.Say("Only the second row answers with the number of the deletion. A delete that waits for a finalizer answers " +
			"with that of the mark. What takes the last finalizer answers with the number before.")
	})
}

func TestOT73_AnObjectHasOneNumberInEveryForm(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT73", From: "+",
		Says: "an object has one resourceVersion in every form that you ask for, and a list has its own, even an empty one",
		Why: "a client that keeps metadata only, or reads tables, can compare and send its tokens; an empty list is a " +
			"place to watch from",
		Do:      "Watch from the number of the list, whatever its form and its items.",
		FalseIf: world.ReadsShowTheVersionBefore.Shows(`the number of shelf as ConfigMap is \d+`),
		AlsoFalseIf: []world.World{
			world.ListsReportAnItemsNumber.Shows(`the ConfigMapList is at \d+`),
			world.AProxyStripsTheRevision.Shows(`the first event is ADDED shelf`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/endpoints/handlers", "asTable"),
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red")
		shelf := l.Set("shelf", "color=blue")
		later := l.Of(lab.Secret).Create("later", "color=red")
		table := l.Table("form", "of shelf", "of a list", "of shelf in it")
		for _, form := range []struct {
			kind, listKind string
			item           []string // where the item is in the list
		}{
			{"ConfigMap", "ConfigMapList", []string{"items"}},
			{"PartialObjectMetadata", "PartialObjectMetadataList", []string{"items"}},
			{"Table", "Table", []string{"rows", "object"}},
		} {
			one, err := call{verb: http.MethodGet, path: l.Path("shelf")}.sendAs(asking(l, form.kind))
			require.NoError(l, err, "reading shelf as "+form.kind)
			list, err := call{verb: http.MethodGet, path: l.Path("")}.sendAs(asking(l, form.listKind))
			require.NoError(l, err, "listing as "+form.listKind)
			item := firstOf(list, form.item)
			table.Row(form.kind+", "+form.listKind,
				one.GetResourceVersion(), list.GetResourceVersion(), item.GetResourceVersion())
			l.Equal("the form", one.GetKind(), form.kind)
			l.Equal("the form of the list", list.GetKind(), form.listKind)
			l.Equal("the number of shelf as "+form.kind, one.GetResourceVersion(), shelf.GetResourceVersion())
			l.Equal("the number of shelf in a "+form.listKind, item.GetResourceVersion(), shelf.GetResourceVersion())
			l.Expect(number(list) >= number(later), "the "+form.listKind+" is not older than the last write, "+
				later.GetResourceVersion(), "the %s is at %s", form.listKind, list.GetResourceVersion())
		}
		table.End()

		empty, err := l.TryList(metav1.ListOptions{LabelSelector: "shelf=none"})
		require.NoError(l, err, "listing what is not there")
		next := l.Create("tomorrow", "color=red")
		event := l.Watch(empty.GetResourceVersion()).Next()
		l.Say("A list of nothing has the number %s. The next event after it is %s %s at %s.", empty.GetResourceVersion(),
			event.Type, event.Name, event.ResourceVersion)
		l.Equal("the number of items in the empty list", len(empty.Items), 0)
		l.Expect(event.ResourceVersion == next.GetResourceVersion(), "a watch from the empty list begins with what comes "+
			"next",
			"the first event is %s %s", event.Type, event.Name)
	})
}

// asking is the writer, asking for answers in the form of a kind.
func asking(l *lab.Lab, kind string) *lab.Client {
	if strings.HasPrefix(kind, "ConfigMap") {
		return l.Client
	}
	return l.WithHeader("Accept", "application/json;g=meta.k8s.io;v=v1;as="+kind)
}

// firstOf is the first item of a list, whatever its form.
func firstOf(list *lab.Object, path []string) *lab.Object {
	items, _, _ := unstructured.NestedSlice(list.Object, path[0])
	if len(items) == 0 {
		return new(lab.Object)
	}
	item, _ := items[0].(map[string]any)
	for _, field := range path[1:] {
		item, _ = item[field].(map[string]any)
	}
	return &lab.Object{Object: item}
}

func TestOT74_OfTwoAppliesThatCreateBothAreAccepted(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT74", From: "+",
		Says: "of two applies that race to create one object, the loser becomes an update: accepted, unless both " +
			"set one field differently",
		Why: "an apply has no \"must be missing\": 201 or 200 tells who came first, and a create would have lost with 409 " +
			"AlreadyExists",
		Do:      "Create if you must be the first; apply if you need not.",
		FalseIf: world.EtcdIgnoresTheCompareOfACreate.Shows(`size is not stored`),
		AlsoFalseIf: []world.World{
			world.EveryApplyIsForced.Shows(`an apply of the same field was accepted`),
			world.CreatesAreApplies.Shows(`a create that an apply overtook was accepted`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
	}, func(l *lab.Lab) {
		ann, bob := l.As("ann"), l.As("bob")
		table := l.Table("ann sends", "bob overtakes it with", "ann's answer", "bob's answer", "stored")
		row := func(slow, fast string, o *lab.Object, fields ...string) {
			stored := lab.Fields(l.Peek(o.GetName()), fields...)
			table.Row(slow, fast, answeredTo(l, "ann"), answeredTo(l, "bob"), stored)
		}

		var err error
		shelf := l.New("shelf")
		sent := l.Record(func() {
			err = overtakenApplies(l, shelf, applying(ann, "ann", "shelf", "color=red"), applying(bob, "bob", "shelf", "size=9"))
		})
		row("apply color=red", "apply size=9", shelf, "color", "size")
		l.Accepted(err, "an apply of another field")
		l.Stored(shelf, "color=red", "size=9")
		l.Sends(sent.Only(wire.Txn), "both applies", "3 Txn")

		same := l.New("same")
		err = overtakenApplies(l, same, applying(ann, "ann", "same", "color=red"), applying(bob, "bob", "same", "color=blue"))
		row("apply color=red", "apply color=blue", same, "color")
		l.Refused(err, "an apply of the same field", lab.Refusal{
			Code: 409, Reason: metav1.StatusReasonConflict, Causes: []string{"FieldManagerConflict .data.color"},
		})

		posted := l.New("posted")
		create := func() error { _, err := ann.TryCreate("posted", "color=red"); return err }
		err = overtakenApplies(l, posted, create, applying(bob, "bob", "posted", "size=9"))
		row("create color=red", "apply size=9", posted, "color", "size")
		l.Refused(err, "a create that an apply overtook", lab.Refusal{Code: 409, Reason: metav1.StatusReasonAlreadyExists})
		table.End()
		l.Show("the first row, at etcd", sent.Only(wire.Txn))

		lease := l.Of(lab.Lease).New("shelf", "holderIdentity=ann")
		replace := func() error { _, err := ann.Of(lab.Lease).TryReplace(lease); return err }
		err = overtakenApplies(l, lease, replace, applying(bob.Of(lab.Lease), "bob", "shelf", "holderIdentity=bob"))
		refused := l.Refused(err, "a replace that was to create a Lease", lab.Refusal{
			Code: 422, Reason: metav1.StatusReasonInvalid, Causes: []string{"FieldValueInvalid metadata.resourceVersion"},
		})
		l.Say("A replace creates a Lease, too. Overtaken, it is refused as an update without a token: "+
			"%s.", refused.CodeAndReason())
	})
}

// overtakenApplies sends ann's write, and lets bob's overtake it on the way to etcd.
func overtakenApplies(l *lab.Lab, o *lab.Object, ann, bob func() error) error {
	return l.Race(l.Key(o), ann, func() { require.NoError(l, bob(), "bob's write of "+o.GetName()) })
}

// applying is an apply that is still to be sent.
func applying(c *lab.Client, manager, name string, fields ...string) func() error {
	return func() error {
		_, err := c.TryApply(name, manager, false, fields...)
		return err
	}
}

func TestOT75_AnEvictionIgnoresTheNumberInItsMetadata(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT75", From: "+",
		Says: "an eviction ignores a resourceVersion in its metadata, a binding compares it, and neither answers with a " +
			"number",
		Why: "the two look alike, but each reads its precondition elsewhere; what was meant as a guard evicts the Pod " +
			"that has changed",
		Do: "Put the precondition of an eviction into its deleteOptions.",
		FalseIf: world.AnEvictionComparesItsMetadata.Shows(
			`an eviction with a stale number in its metadata was refused: 409`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheTokenOf("create").Shows(`a binding with a stale number was accepted`),
			world.EvictionsLoseTheirPreconditions.Shows(`an eviction with a stale precondition was accepted`),
		},
		Read: source.Decl("k8s.io/kubernetes/pkg/registry/core/pod/storage", "(*BindingREST).Create"),
	}, func(l *lab.Lab) {
		pods := l.Of(lab.Pod)
		stale := pods.Create("pod").GetResourceVersion()
		current := l.Rival().Of(lab.Pod).Set("pod", "metadata.labels.seen=yes")
		conflict := lab.Refusal{Code: 409, Reason: metav1.StatusReasonConflict}
		const (
			binding  = `{"metadata":{"name":"pod","resourceVersion":%q},"target":{"kind":"Node","name":"n1"}}`
			inside   = `{"metadata":{"name":"pod"},"deleteOptions":{"preconditions":{"resourceVersion":%q}}}`
			metadata = `{"metadata":{"name":"pod","resourceVersion":%q}}`
		)
		table := l.Table("request", "number it sends", "answer", "the answer's number", "the Pod after it")
		post := func(what, subresource, body, number string) error {
			answer, err := call{http.MethodPost, pods.Path("pod") + "/" + subresource, "", fmt.Sprintf(body, number)}.send(l)
			kind, after := "", "marked as deleted"
			if err == nil {
				l.Equal("the number in the answer to "+what, answer.GetResourceVersion(), "")
				kind = answer.GetKind() + " without one"
			}
			if pod := pods.Peek("pod"); pod.GetDeletionTimestamp() == nil {
				after = "at " + pod.GetResourceVersion()
			}
			table.Row(what, number, l.Answered(), kind, after)
			return err
		}

		l.Refused(post("binding, metadata", "binding", binding, stale), "a binding with a stale number", conflict)
		l.Accepted(post("binding, metadata", "binding", binding, current.GetResourceVersion()), "a binding with the "+
			"current number")
		l.Equal("the node of the Pod", lab.Field(pods.Peek("pod"), "nodeName"), "n1")
		l.Refused(post("eviction, deleteOptions", "eviction", inside, stale), "an eviction with a stale "+
			"precondition", conflict)
		l.Accepted(post("eviction, metadata", "eviction", metadata, stale), "an eviction with a stale number in its "+
			"metadata")
		l.Expect(pods.Peek("pod").GetDeletionTimestamp() != nil, "the Pod is marked as deleted", "it is not")
		table.End()
		l.Say("The Pod was created at %s. A rival gave it a label, and with that the number "+
			"%s.", stale, current.GetResourceVersion())
	})
}
