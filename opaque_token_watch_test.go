// Chapter 4, continued: what a watch tells, and what it does not.
package modrev

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT60_AnExpiredWatchIsAnsweredWith200(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT60", From: "D2 paragraph 5; +",
		Says: "a watch from an expired number is answered with 200; the 410 comes as an ERROR event in the stream",
		Why: "a client that looks at the status code alone decodes a Status as its object, or watches again from the same " +
			"number",
		Do:      "Handle ERROR events; on 410, list again, then watch.",
		FalseIf: world.AProxyListsBeforeItWatches.Shows(`a watch from an expired number was refused: 410 Expired`),
		AlsoFalseIf: []world.World{
			world.AProxyStripsTheRevision.Shows(`the first event is ADDED shelf`),
			world.TheStoreIgnoresTheRevision.Shows(`a list at an expired number was accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "newErrWatcher"),
		Answers: "#59",
	}, func(l *lab.Lab) {
		// Before kube-apiserver has a cache of the shelves: only etcd could know of it.
		past := l.Create("past", "color=red").GetResourceVersion()
		shelves := l.Of(l.CustomResource())
		shelves.Create("shelf", "color=red")
		l.CompactTo(l.Revision())
		table := l.Table("request", "answer", "stream")
		get := func(what, query string) (events []string, err error) {
			body, err := l.TryRaw(http.MethodGet, shelves.Path(""), query, nil)
			events = eventsIn(l, body)
			table.Row(what, l.Answered(), strings.Join(events, ", "))
			return events, err
		}

		events, err := get("watch from the past", "watch=true&timeoutSeconds=1&resourceVersion="+past)
		l.Accepted(err, "a watch from an expired number")
		l.Equal("the first event", events[0], "ERROR 410 Expired")
		l.Equal("the number of events", len(events), 1)
		_, err = get("list of the past", "resourceVersionMatch=Exact&resourceVersion="+past)
		l.Refused(err, "a list at an expired number", lab.Refusal{Code: 410, Reason: metav1.StatusReasonExpired})
		_, err = get("watch from abc", "watch=true&resourceVersion=abc")
		l.Refused(err, "a watch from what is no number", lab.Refusal{Code: 500})
		_, err = get("watch with Exact", "watch=true&resourceVersionMatch=Exact&resourceVersion="+past)
		l.Refused(err, "a watch with Exact", lab.Refusal{Code: 422, Reason: metav1.StatusReasonInvalid})
		_, err = get("watch with a field that is not selectable", "watch=true&fieldSelector=spec.color=red")
		l.Refused(err, "a watch with an unknown field "+
			"selector", lab.Refusal{Code: 400, Reason: metav1.StatusReasonBadRequest})
		table.End()
		l.Say("What is wrong with the request itself is said before the stream begins. What kube-apiserver finds out " +
			"about the number comes after that: the answer has begun with 200.")
	})
}

// eventsIn are the events of a stream that has ended, as a table shows them: "ADDED shelf", "ERROR 410 Expired".
func eventsIn(l *lab.Lab, stream []byte) (events []string) {
	decoder := json.NewDecoder(bytes.NewReader(stream))
	for decoder.More() {
		var event struct {
			Type   string
			Object struct {
				Metadata struct{ Name string }
				Code     int
				Reason   string
			}
		}
		require.NoError(l, decoder.Decode(&event), "decoding an event")
		about := event.Object.Metadata.Name
		if event.Type == "ERROR" {
			about = fmt.Sprintf("%d %s", event.Object.Code, event.Object.Reason)
		}
		if event.Type != "" { // a list is no event
			events = append(events, strings.TrimSpace(event.Type+" "+about))
		}
	}
	return events
}

func TestOT61_DELETEDMayMeanThatItLeftTheSelection(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT61", From: "+",
		Says:    "DELETED from a watch with a selector means that the object has left the selection, gone or not",
		Why:     "a controller that cleans up on DELETED does so for what only lost a label; ADDED may be an old object",
		Do:      "Read the object live before you clean up after a DELETED.",
		FalseIf: world.LosingALabelIsTheEnd.Shows(`a read of shelf after DELETED was refused: 404`),
		AlsoFalseIf: []world.World{
			world.AProxyDropsSelectors.Shows(`the event of a change of the label is MODIFIED`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*cacheWatcher).convertToWatchEvent"),
		Answers: "#82",
	}, func(l *lab.Lab) {
		from := l.List().GetResourceVersion()
		watch := watching(l, lab.ConfigMap, metav1.ListOptions{ResourceVersion: from, LabelSelector: "l=1"})
		handler := informed(l, lab.ConfigMap, "l=1")
		table := l.Table("change", "event of a watch for l=1", "its number", "a GET then")
		row := func(change string, event lab.WatchEvent) error {
			_, err := l.TryGet("shelf")
			table.Row(change, event.Type+", l="+event.Object.GetLabels()["l"], event.ResourceVersion, l.Answered())
			return err
		}

		shelf := l.Create("shelf", "color=red", "metadata.labels.l=1")
		require.NoError(l, row("create, l=1", watch.Next()), "reading shelf")
		moved := l.Rival().Set("shelf", "metadata.labels.l=2")
		event := watch.Next()
		err := row("l=2", event)
		l.Equal("the event of a change of the label", event.Type, "DELETED")
		l.Accepted(err, "a read of shelf after DELETED")
		l.Equal("its number", event.ResourceVersion, moved.GetResourceVersion())
		l.Equal("the label in it", event.Object.GetLabels()["l"], "1")
		l.Rival().Set("shelf", "color=blue")
		back := l.Rival().Set("shelf", "metadata.labels.l=1")
		event = watch.Next()
		require.NoError(l, row("color=blue, then l=1", event), "reading shelf")
		l.Equal("the event when it comes back", event.Type, "ADDED")
		l.Equal("its number", event.ResourceVersion, back.GetResourceVersion())
		l.Equal("its uid", event.Object.GetUID(), shelf.GetUID())
		l.Delete("shelf")
		event = watch.Next()
		err = row("delete", event)
		table.End()
		l.Equal("the event of the delete", event.Type, "DELETED")
		l.Refused(err, "a read of shelf after its delete", lab.Refusal{Code: 404, Reason: metav1.StatusReasonNotFound})

		told := fmt.Sprint(handler.until("delete shelf", 2))
		l.Say("An informer with that selector tells its handler: %s.", told)
		l.Equal("what an informer tells", told, "[add shelf delete shelf add shelf delete shelf]")
		named := watching(l, lab.ConfigMap, metav1.ListOptions{ResourceVersion: from, FieldSelector: "metadata.name=shelf"})
		byName := typesOf(named.Until(event.ResourceVersion))
		l.Say("A watch for metadata.name=shelf, which cannot change: %s.", strings.Join(byName, ", "))
		l.Equal("the events by name", byName, []string{"ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"})

		pods := l.Of(lab.Pod)
		pods.Create("pod")
		pending := watching(l, lab.Pod, metav1.ListOptions{FieldSelector: "status.phase=Pending"})
		pending.Next()
		pods.Sub("status").Patch("pod", types.MergePatchType, `{"status":{"phase":"Running"}}`)
		left := pending.Next()
		l.Say("A watch for Pods with status.phase=Pending, when the Pod runs: %s.", left.Type)
		l.Equal("the event when a Pod is no longer pending", left.Type, "DELETED")
	})
}

// typesOf are the types of events.
func typesOf(events []lab.WatchEvent) (types []string) {
	for _, e := range events {
		types = append(types, e.Type)
	}
	return types
}

// watching is a watch on the objects of a kind, with options of the lesson's own.
func watching(l *lab.Lab, kind lab.Kind, o metav1.ListOptions) *lab.Watcher {
	w, err := l.Of(kind).TryWatch(o)
	require.NoError(l, err, "watching "+kind.Resource)
	return w
}

// notice is what the handler of an informer is told once.
type notice struct {
	what      string // "add", "update", "delete", or "delete, last state unknown"
	from, now *lab.Object
}

// String is the notice as a table shows it: "update shelf".
func (n notice) String() string {
	o := n.now
	if o == nil {
		o = n.from
	}
	return n.what + " " + o.GetName()
}

// handler notes what it is told, in order.
type handler struct {
	l    *lab.Lab
	mu   sync.Mutex
	told []notice
}

// informed starts an informer of a client named controller on what a label selector selects, "" for everything, and
// waits until it has read what is there.
func informed(l *lab.Lab, kind lab.Kind, selector string) *handler {
	api, err := dynamic.NewForConfig(l.As("controller").Config())
	require.NoError(l, err, "making a client for the informer")
	informer := dynamicinformer.NewFilteredDynamicInformer(api, kind.GVR(), l.Namespace, 0, cache.Indexers{},
		func(o *metav1.ListOptions) { o.LabelSelector = selector }).Informer()
	h := &handler{l: l}
	_, err = informer.AddEventHandler(h)
	require.NoError(l, err, "adding the handler")
	ctx, cancel := context.WithCancel(l.Context())
	l.Cleanup(cancel)
	l.Go("the informer", func() error { informer.RunWithContext(ctx); return nil })
	l.Until("the informer has read what is there", func() (bool, error) { return informer.HasSynced(), nil })
	return h
}

func (h *handler) OnAdd(o any, _ bool) { h.note(notice{what: "add", now: o.(*lab.Object)}) }

func (h *handler) OnUpdate(old, now any) {
	h.note(notice{what: "update", from: old.(*lab.Object), now: now.(*lab.Object)})
}

func (h *handler) OnDelete(o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		h.note(notice{what: "delete, final state unknown,", from: unknown.Obj.(*lab.Object)})
		return
	}
	h.note(notice{what: "delete", from: o.(*lab.Object)})
}

func (h *handler) note(n notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, n)
}

// until waits until the handler was told something a number of times, and returns all that it was told.
func (h *handler) until(what string, times int) (told []notice) {
	h.l.Until("the informer has told its handler to "+what, func() (bool, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		told = slices.Clone(h.told)
		count := 0
		for _, n := range told {
			if n.String() == what {
				count++
			}
		}
		return count >= times, nil
	})
	return told
}

func TestOT61b_TheObjectOfADELETEDIsOldContentUnderANewNumber(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT61b", From: "+",
		Says: "a DELETED event pairs the old content with the new number: written back, it is accepted and undoes the " +
			"change",
		Why: "its resourceVersion is that of the write that took the object out of the selection, so the token is fresh " +
			"and the content is not",
		Do:      "Never write back the object of a DELETED event.",
		FalseIf: world.BodiesKeepTheirToken.Shows(`the replace with the object of the event was refused: 409`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheTokenOf("create").Shows(`a create with the object of the event was accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*cacheWatcher).convertToWatchEvent"),
		Answers: "#82",
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red", "metadata.labels.l=1")
		shelf := l.Get("shelf")
		watch := watching(l, lab.ConfigMap,
			metav1.ListOptions{ResourceVersion: shelf.GetResourceVersion(), LabelSelector: "l=1"})
		table := l.Table("what", "resourceVersion", "content")
		row := func(what string, o *lab.Object) {
			table.Row(what, o.GetResourceVersion(), "l="+o.GetLabels()["l"]+", color="+lab.Field(o, "color"))
		}
		row("shelf", shelf)
		theirs := l.Rival().Set("shelf", "metadata.labels.l=2", "color=blue")
		row("the rival's patch", theirs)
		left := watch.Next()
		row("the object of the "+left.Type, left.Object)
		l.Equal("the number of the event", left.ResourceVersion, theirs.GetResourceVersion())
		l.Equal("the color in the event", lab.Field(left.Object, "color"), "red")

		written, err := l.TryReplace(left.Object)
		l.Accepted(err, "the replace with the object of the event")
		row("a replace with it is answered with", written)
		table.End()
		l.Stored(shelf, "color=red", "metadata.labels.l=1")

		watch.Next()
		l.Delete("shelf")
		gone := watch.Next().Object
		_, replace := l.TryReplace(gone)
		_, create := l.TryCreateObject(gone)
		l.Say("The rival's blue is lost. After a real delete, the object of the DELETED is no use either: a replace is "+
			"%s, a create %s (CF20).", lab.AnswerLine(replace), lab.AnswerLine(create))
		l.Refused(replace, "a replace of what is deleted", lab.Refusal{Code: 404, Reason: metav1.StatusReasonNotFound})
		l.Refused(create, "a create with the object of the event", lab.Refusal{Code: 500})
	})
}

func TestOT62_ARelistTellsTheDifferenceOfTwoStates(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT62", From: "+",
		Says: "an informer that lists again tells the difference of two states: a delete and a create of one name become " +
			"one update",
		Why: "what lies between is not told: the cleanup for the old object never runs, intermediate states are skipped, " +
			"and a short life goes unseen",
		Do:      "Compare uids in update handlers; use a finalizer to see every delete.",
		FalseIf: world.UIDsBelongToNames.Shows(`the update of again keeps the uid`),
		Read:    source.Decl("k8s.io/client-go/tools/cache", "processReplacedAllInfo"),
		Answers: "#87",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		for _, name := range []string{"again", "moved", "gone"} {
			shelves.Create(name, "color=red")
		}
		controller := informed(l, kind, "")
		held := l.Wire.HoldWatches("controller")
		shelves.Recreate("again", "color=blue")
		for _, color := range []string{"blue", "green", "white"} {
			shelves.Set("moved", "color="+color)
		}
		shelves.Set("gone", "color=blue")
		shelves.Delete("gone")
		shelves.Create("brief", "color=red")
		shelves.Delete("brief")
		restartCache(l, kind) // kube-apiserver's cache begins anew: what was before it is too old to watch from
		held.Break()
		controller.until("update again", 1)
		shelves.Create("fence", "color=red")
		told := controller.until("add fence", 1)[3:] // the first three are of what was there

		table := l.Table("while the informer is cut off", "its handler is told", "from", "to")
		for _, row := range []struct{ meanwhile, name, told string }{
			{"deleted and created", "again", "update again"},
			{"changed three times", "moved", "update moved"},
			{"changed and deleted", "gone", "delete, final state unknown, gone"},
			{"created and deleted", "brief", ""},
		} {
			var all []string
			var last notice
			for _, n := range told {
				if strings.HasSuffix(n.String(), " "+row.name) {
					all, last = append(all, n.String()), n
				}
			}
			what := strings.Join(all, ", ")
			table.Row(row.name+" is "+row.meanwhile, cmp.Or(what, "nothing"), state(last.from), state(last.now))
			l.Equal("what is told of "+row.name, what, row.told)
			switch row.name {
			case "again":
				l.Expect(last.from.GetUID() != last.now.GetUID(), "the update of again is one to another uid",
					"the update of again keeps the uid %s", last.now.GetUID())
			case "gone":
				l.Equal("the color in the delete of gone", lab.Field(last.from, "color"), "red")
			}
		}
		table.End()
		shelves.Recreate("again", "color=green")
		live := fmt.Sprint(controller.until("add again", 2)[3+len(told):])
		l.Say("The last state of gone that was stored had color=blue. When again is deleted and created while the watch "+
			"holds, the handler is told: %s.", live)
		l.Equal("what is told while the watch holds", live, "[delete again add again]")
	})
}

// state is an object as a handler sees it.
func state(o *lab.Object) string {
	if o == nil {
		return ""
	}
	return fmt.Sprintf("%.8s at %s, %s", o.GetUID(), o.GetResourceVersion(), lab.Fields(o, "color"))
}

func TestOT63_InitialEventsEndWithABookmark(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT63", From: "+",
		Says: "a watch that begins with what is there says where that ends, by a marked bookmark, only if it allows " +
			"bookmarks",
		Why: "informers of client-go begin so since 0.35: a fake, or a proxy, that never sends the bookmark leaves them " +
			"waiting",
		Do:      "Send sendInitialEvents with resourceVersionMatch=NotOlderThan and allowWatchBookmarks=true.",
		FalseIf: world.AProxyDropsBookmarks.Shows(`what a watch tells with .* is ADDED a, ADDED b, ADDED c`),
		AlsoFalseIf: []world.World{
			world.AProxyDropsTheMatchFor("controller").Shows(`how an informer begins is .* list`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/apis/meta/internalversion/validation", "validateWatchOptions"),
		Answers: "#105",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		shelves.Create("a", "color=red")
		shelves.Create("b", "color=red")
		yes, no := true, false
		initial := metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
		marked := initial
		marked.AllowWatchBookmarks = true
		old, none := marked, initial
		old.ResourceVersion, none.SendInitialEvents = "1", &no
		const whole, endless = "ADDED a, ADDED b, BOOKMARK, ADDED c", "ADDED a, ADDED b, ADDED c"
		table := l.Table("watch with", "events")
		for _, row := range []struct {
			what    string
			options metav1.ListOptions
			events  string
		}{
			{"sendInitialEvents, NotOlderThan, bookmarks", marked, whole},
			{"the same, from 1", old, whole},
			{"bookmarks alone", metav1.ListOptions{AllowWatchBookmarks: true}, whole},
			{"sendInitialEvents, NotOlderThan", initial, endless},
			{"nothing", metav1.ListOptions{}, endless},
			{"sendInitialEvents=false, NotOlderThan", none, "ADDED c"},
		} {
			events := aroundACreate(l, kind, row.options)
			table.Row(row.what, events)
			l.Equal("what a watch tells with "+row.what, events, row.events)
		}
		for _, query := range []string{
			"watch=true&sendInitialEvents=true&allowWatchBookmarks=true",
			"watch=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
			"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0",
		} {
			_, err := l.TryRaw(http.MethodGet, shelves.Path(""), query, nil)
			l.Refused(err, query, lab.Refusal{Code: 422, Reason: metav1.StatusReasonInvalid})
		}
		table.End()
		informed(l, kind, "")
		begins := requestsOf(l, "controller")
		l.Say("c is created once a and b have come. A watch from 1 has not expired: NotOlderThan asks for what is there.")
		l.Say("sendInitialEvents without NotOlderThan, NotOlderThan without it, and sendInitialEvents in a list are 422.")
		l.Say("How an informer begins: %s.", begins)
		l.Equal("how an informer begins", begins, "watch with sendInitialEvents")
	})
}

// aroundACreate are the events of a watch up to that of c, which is created when all that is there has come, and is
// deleted then. Bookmarks that mark no end may come at any time, and are left out.
func aroundACreate(l *lab.Lab, kind lab.Kind, o metav1.ListOptions) string {
	l.Of(kind).List() // waits until kube-apiserver's cache has seen the last c go
	watch := watching(l, kind, o)
	create := func() { l.Of(kind).Create("c", "color=red") }
	if o.SendInitialEvents != nil && !*o.SendInitialEvents {
		create()
	}
	var events []string
	for {
		event := watch.Next()
		switch {
		case event.Type != "BOOKMARK":
			events = append(events, event.Type+" "+event.Name)
		case event.Object.GetAnnotations()["k8s.io/initial-events-end"] == "true":
			events = append(events, event.Type)
		}
		switch event.Name {
		case "b":
			create()
		case "c":
			l.Of(kind).Delete("c")
			return strings.Join(events, ", ")
		}
	}
}

// requestsOf are the lists and watches that a client has sent, with what a watch asks for.
func requestsOf(l *lab.Lab, who string) string {
	var all []string
	for _, c := range l.Wire.Tape().Calls(0) {
		if c.Who != who {
			continue
		}
		request := "list"
		if c.Query.Get("watch") != "" {
			request = "watch"
		}
		if c.Query.Get("sendInitialEvents") == "true" {
			request += " with sendInitialEvents"
		}
		all = append(all, request)
	}
	return strings.Join(all, ", ")
}

func TestOT64_ABookmarkIsANumberAndNoObject(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT64", From: "+",
		Says: "a bookmark is a number and no object: it tells a watch that sees nothing how far the resource has come",
		Why: "its object has a kind and a resourceVersion, and no name; it comes about every minute and before " +
			"the end, and none is promised",
		Do:      "Keep the number of a bookmark, and use nothing else of it.",
		FalseIf: world.AProxyDropsSelectors.Shows(`the first event is ADDED other`),
		AlsoFalseIf: []world.World{
			world.AProxyStripsTheRevision.Shows(`the first event is ADDED mine`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*cacheWatcher).nextBookmarkTime"),
		Answers: "#106",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		shelves.Create("mine", "color=red", "metadata.labels.l=1")
		from := shelves.List().GetResourceVersion()
		seconds := int64(3)
		watch := watching(l, kind, metav1.ListOptions{
			ResourceVersion: from, LabelSelector: "l=1", AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
		})
		other := shelves.Create("other", "color=red", "metadata.labels.l=2")
		var short []byte
		second := l.Go("the watch of one second", func() (err error) {
			short, err = l.TryRaw(http.MethodGet, shelves.Path(""),
				"watch=true&labelSelector=l=1&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion="+from, nil)
			return err
		})

		bookmark := watch.Next()
		table := l.Table("event", "kind", "resourceVersion", "name", "uid")
		table.Row(bookmark.Type, bookmark.Object.GetKind(), bookmark.ResourceVersion, bookmark.Name, bookmark.Object.GetUID())
		table.End()
		l.Equal("the first event", strings.TrimSpace(bookmark.Type+" "+bookmark.Name), "BOOKMARK")
		l.Equal("the kind", bookmark.Object.GetKind(), "Shelf")
		l.Equal("the uid", bookmark.Object.GetUID(), "")
		l.Expect(numberOf(bookmark.ResourceVersion) >= number(other), "the bookmark is not older than "+
			other.GetResourceVersion()+", the write that the watch does not see", "it is at %s", bookmark.ResourceVersion)

		again := shelves.Watch(bookmark.ResourceVersion)
		fence := shelves.Create("fence", "color=red")
		first := again.Next()
		l.Equal("the first event from the bookmark on", first.ResourceVersion, fence.GetResourceVersion())
		require.NoError(l, second.Wait(), "watching for a second")
		l.Say("The watch is for l=1, and began at %s. other, without that label, was created at %s. A watch from the "+
			"bookmark begins with %s. A watch of one second ended without a bookmark, and without an error.",
			from, other.GetResourceVersion(), first.Name)
		l.Equal("the events of a watch of one second", eventsIn(l, short), []string(nil))
	})
}

func TestOT67_ADDEDDoesNotMeanCreated(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT67", From: "+",
		Says: "a watch without a number, or from 0, begins with an ADDED for each object that is there, in no order of " +
			"numbers",
		Why: "ADDED does not mean created; and the last of these numbers is no place to resume from, as old events come " +
			"again",
		Do:      "Watch from the number of a list if you want only what comes.",
		FalseIf: world.WatchesSendNoInitialEvents.Shows(`what a watch without a number tells is empty`),
		AlsoFalseIf: []world.World{
			world.AProxyStripsTheRevision.Shows(`what a watch from the number of the list tells is ADDED a, ADDED b`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/apis/meta/internalversion", "SetListOptionsDefaults"),
		Answers: "#57 #58",
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		b := shelves.Create("b", "color=red")
		shelves.Create("brief", "color=red")
		a := shelves.Create("a", "color=red")
		shelves.Delete("brief")
		list := shelves.List()
		starts := []struct{ what, number, tells string }{
			{"without a number", "", "ADDED a, ADDED b"},
			{"from 0", "0", "ADDED a, ADDED b"},
			{"from the number of the list", list.GetResourceVersion(), ""},
			{"from the number of b", b.GetResourceVersion(), "ADDED brief, ADDED a, DELETED brief"},
		}
		var watches []*lab.Watcher
		for _, start := range starts {
			watches = append(watches, shelves.Watch(start.number))
		}
		fence := shelves.Create("fence", "color=red").GetResourceVersion()

		table := l.Table("watch", "events", "their numbers")
		for i, start := range starts {
			var events, numbers []string
			for _, event := range watches[i].Until(fence) {
				if event.Name != "fence" {
					events = append(events, event.Type+" "+event.Name)
					numbers = append(numbers, event.ResourceVersion)
				}
			}
			tells := strings.Join(events, ", ")
			table.Row(start.what, tells, strings.Join(numbers, ", "))
			l.Equal("what a watch "+start.what+" tells", tells, start.tells)
		}
		table.End()
		l.Say("b was created first, then brief, then a; brief is deleted. The list is at %s. a, at %s, comes before b, at "+
			"%s: names are in order, numbers are not. b is the last that the first two watches begin with.",
			list.GetResourceVersion(), a.GetResourceVersion(), b.GetResourceVersion())
	})
}

func TestOT67b_AWatchFromZeroMayBeginWithThePast(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT67b", From: "+",
		Says: "a watch from 0 begins with what kube-apiserver's cache has, deleted objects included; one without a number " +
			"waits for the cache",
		Why: "after a reconnect to another kube-apiserver, 0 can take a client back in time: what it knew as deleted is " +
			"added again",
		Do:      "Begin a watch without a number, or from that of a fresh list.",
		FalseIf: world.ZeroAsksForTheNewest.Shows(`a watch from 0 waits for the cache`),
		AlsoFalseIf: []world.World{
			world.WatchesBeginAnywhere.Shows(`a watch without a number does not wait`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*Cacher).getWatchCacheResourceVersion"),
		Answers: "#57 #62",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		shelves.Create("kept", "color=red")
		gone := shelves.Create("gone", "color=red")
		l.Settle(gone)
		frozen := l.Wire.Freeze(kind.StoragePrefix())
		shelves.Delete("gone")
		require.NoError(l, frozen.Holds(l.Context(), numberOf(gone.GetResourceVersion())+1), "keeping the deletion back")

		watch, waited := watchBehind(l, shelves, frozen, "0")
		l.Expect(!waited, "a watch from 0 is answered at once", "a watch from 0 waits for the cache")
		first, second := watch.Next(), watch.Next()
		_, err := shelves.TryGet("gone")
		l.Refused(err, "a read of gone", lab.Refusal{Code: 404, Reason: metav1.StatusReasonNotFound})
		current, waited := watchBehind(l, shelves, frozen, "")
		l.Expect(waited, "a watch without a number waits for the cache", "a watch without a number does not wait")
		third, only := watch.Next(), current.Next()
		fence := shelves.Create("fence", "color=red")
		more := current.Next()

		table := l.Table("watch", "while the cache lags", "when it has caught up")
		begins := first.Type + " " + first.Name + ", " + second.Type + " " + second.Name
		table.Row("from 0", begins, third.Type+" "+third.Name)
		table.Row("without a number", "waits", only.Type+" "+only.Name)
		table.End()
		l.Say("The cache is kube-apiserver's own. gone was deleted before either watch began, and a GET of it was %s.",
			lab.AnswerLine(err))
		l.Equal("what a watch from 0 begins with", begins, "ADDED gone, ADDED kept")
		l.Equal("what it tells then", third.Type+" "+third.Name, "DELETED gone")
		l.Equal("what a watch without a number begins with", only.Type+" "+only.Name, "ADDED kept")
		l.Equal("the number of the next event", more.ResourceVersion, fence.GetResourceVersion())
	})
}

// watchBehind starts a watch while a cache is frozen, and releases the cache if the watch is seen to wait for it.
func watchBehind(l *lab.Lab, c *lab.Client, frozen *wire.Frozen, number string) (w *lab.Watcher, waited bool) {
	ctx, cancel := context.WithCancel(l.Context())
	pending := l.Go("the watch from "+number, func() (err error) {
		defer cancel()
		w, err = c.TryWatch(metav1.ListOptions{ResourceVersion: number})
		return err
	})
	if waited = frozen.Asked(ctx) == nil; waited {
		frozen.Release()
	}
	require.NoError(l, pending.Wait(), "starting a watch from "+number)
	return w, waited
}
