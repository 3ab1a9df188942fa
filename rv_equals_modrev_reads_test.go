// Chapter 1, continued: what lists, reads and watches say.
package modrev

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestRV6_AListsResourceVersionIsTheStoresRevision(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV6", From: "D1 Expect 4",
		Says: "a list that is read without a resourceVersion carries the revision that the store has reached, not the " +
			"number of an item",
		Why: "the number says how far the store had come when the list was true; a watch from an item's number starts too " +
			"early, and tells again what the list has left behind",
		Do:      "Start a watch from the list's resourceVersion, never from an item's.",
		FalseIf: world.EtcdUnderstatesItsRevision.Shows(`the list reports \d+, the last write was at \d+`),
		AlsoFalseIf: []world.World{
			world.ListsReportAnItemsNumber.Shows(`the list reports \d+, its item c has`),
			world.ListsReportTheFuture.Shows(`the list reports 1000000000, the store is at`),
			watchesBeginAtTheList.Shows(`the list of events after the number of item c is ADDED fence$`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*Cacher).GetList"),
		Erratum: "the document says that a list's number is not any object's revision. It can coincide with one: " +
			"when the newest write to the store was a write to an item of the list.",
		Answers: "#58",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		for _, name := range []string{"a", "b", "c"} {
			shelves.Create(name, "color=red")
		}
		shelves.Create("gone", "color=red")
		shelves.Delete("gone")
		last := l.Create("something-else", "a=1")
		var list *lab.List
		sent := l.Record(func() { list = shelves.List() })

		table := l.Table("what", "resourceVersion")
		for _, item := range list.Items {
			table.Row("shelves/"+item.GetName(), item.GetResourceVersion())
		}
		table.Row("configmaps/something-else, written last", last.GetResourceVersion())
		table.Row("the list of shelves", list.GetResourceVersion())
		table.End()
		l.Show("GET shelves: one Range says how far the cache must have come; the answer is the cache's", sent)

		reports := numberOf(list.GetResourceVersion())
		for _, item := range list.Items {
			l.Expect(reports > number(&item), "the list's number is higher than every item's",
				"the list reports %d, its item %s has %s", reports, item.GetName(), item.GetResourceVersion())
		}
		l.Expect(reports >= number(last), "the list's number is not from before the last write",
			"the list reports %d, the last write was at %s", reports, last.GetResourceVersion())
		reached := l.Revision()
		l.Expect(reports <= reached, "the list's number is one that the store has reached",
			"the list reports %d, the store is at %d", reports, reached)

		fence := shelves.Create("fence", "color=red").GetResourceVersion()
		fromItem := described(shelves.Watch(list.Items[2].GetResourceVersion()).Until(fence))
		fromList := described(shelves.Watch(list.GetResourceVersion()).Until(fence))
		table = l.Table("a watch from the number of", "delivers")
		table.Row("item c, the newest", strings.Join(fromItem, ", "))
		table.Row("the list", strings.Join(fromList, ", "))
		table.End()
		l.Equal("the list of events after the number of item c", fromItem,
			[]string{"ADDED gone", "DELETED gone", "ADDED fence"})
		l.Equal("the list of events after the list's number", fromList, []string{"ADDED fence"})
		numbersCoincide(l, shelves)
	})
}

// watchesBeginAtTheList puts the number of the list that a client read last into its watches.
var watchesBeginAtTheList = world.New("a library starts each watch from the number of its last list", func(l *lab.Lab) {
	var listed atomic.Value
	lists := func(c *wire.Call) bool { return c.Verb == http.MethodGet && c.Query.Get("watch") == "" }
	l.Wire.AddHTTP(&wire.HTTPRule{When: lists, Answer: func(_ *http.Response, body []byte) []byte {
		var list lab.List
		if err := list.UnmarshalJSON(body); err == nil && len(list.Items) > 0 {
			listed.Store(list.GetResourceVersion())
		}
		return body
	}})
	watches := func(c *wire.Call) bool { return c.Query.Get("watch") != "" }
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: watches, Note: "started from the last list",
		Request: func(q *http.Request, body []byte) []byte {
			if number, ok := listed.Load().(string); ok {
				query := q.URL.Query()
				query.Set("resourceVersion", number)
				q.URL.RawQuery = query.Encode()
			}
			return body
		},
	})
})

// described are events as a table shows them: "ADDED shelf".
func described(events []lab.WatchEvent) []string {
	texts := make([]string, len(events))
	for i, ev := range events {
		texts[i] = ev.Type + " " + ev.Name
	}
	return texts
}

// numbersCoincide shows a list whose number is that of its newest item. Other lessons write to the store too, so it
// may take some writes until no other comes between.
func numbersCoincide(l *lab.Lab, shelves *lab.Client) {
	shelves.Create("newest", "n=0")
	n := 0
	l.Until("the newest write to the store is the one to shelves/newest", func() (bool, error) {
		n++
		item, err := shelves.TrySet("newest", fmt.Sprintf("n=%d", n))
		if err != nil {
			return false, err
		}
		list, err := shelves.TryList(metav1.ListOptions{})
		if err != nil || list.GetResourceVersion() != item.GetResourceVersion() {
			return false, err
		}
		l.Say("The numbers can coincide, when the newest write to the store was to an item: the list reports %s, "+
			"item newest has %s.", list.GetResourceVersion(), item.GetResourceVersion())
		return true, nil
	})
}

func TestRV7_AListsResourceVersionIsWhereAWatchGoesOn(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV7", From: "D1 Expect 4, Observe",
		Says: "a watch from a list's resourceVersion delivers exactly the later events, each under its mod_revision and in " +
			"etcd's order",
		Why: "list and watch fit together without a gap and without a repetition. (With a selector, what leaves the " +
			"selection is a DELETED, where etcd has a PUT.)",
		Do:      "Resume a watch from the number of its last event.",
		FalseIf: world.AnEventIsSwallowed.Shows(`revisions that the watch delivered is (\d+, ){3}\d+$`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).processEvent"),
		Answers: "#58",
	}, func(l *lab.Lab) {
		defer l.KeepHistory()()
		shelves := l.Of(l.CustomResource())
		shelves.Create("before-the-list", "color=red")
		from := shelves.List().GetResourceVersion()

		shelves.Create("a", "color=red")
		shelves.Set("a", "color=blue")
		shelves.Create("b", "color=red")
		shelves.Delete("a")
		last := shelves.Create("last", "color=red")

		ofAPI := shelves.Watch(from).Until(last.GetResourceVersion())
		below := shelves.Kind().KeyOf(l.Namespace, "")
		ofEtcd := etcdEvents(l, below, numberOf(from), number(last))

		table := l.Table("event of the API", "resourceVersion", "event of etcd", "mod_revision")
		revisions := make([]int64, len(ofEtcd))
		for i, ev := range ofEtcd {
			revisions[i] = ev.Kv.ModRevision
			if i < len(ofAPI) {
				table.Row(ofAPI[i].Type+" "+ofAPI[i].Name, ofAPI[i].ResourceVersion, ev.Type, ev.Kv.ModRevision)
			}
		}
		table.End()

		l.Equal("the number of etcd's events after the list", len(ofEtcd), 5)
		l.Equal("the list of revisions that the watch delivered", revisionsOf(ofAPI), revisions)
		l.Equal("etcd's fourth event", ofEtcd[3].Type, clientv3.EventTypeDelete)
		l.Equal("the API's event under the same revision", ofAPI[3].Type, "DELETED")
	})
}

// allFromTheBeginning has a watch with "0" start from before the first object, or from where the store begins to know.
var allFromTheBeginning = world.New(`a watch with "0" delivers all events from the beginning`, func(l *lab.Lab) {
	watchFrom(l, "0", func(first int64) string { return strconv.FormatInt(first-1, 10) })
})

// onlyWhatComes has a watch without a number start from the store's revision.
var onlyWhatComes = world.New("a watch without a number delivers only what comes", func(l *lab.Lab) {
	watchFrom(l, "", func(int64) string { return strconv.FormatInt(l.Revision(), 10) })
})

// watchFrom puts another number into watches that have a given one. It is told the number of the first object.
func watchFrom(l *lab.Lab, given string, number func(first int64) string) {
	var first atomic.Int64
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPost },
		Answer: func(_ *http.Response, body []byte) []byte {
			var o lab.Object
			if err := o.UnmarshalJSON(body); err == nil && o.GetName() == "a" {
				first.Store(numberOf(o.GetResourceVersion()))
			}
			return body
		},
	})
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Query.Get("watch") != "" && c.Query.Get("resourceVersion") == given },
		Note: "started from another number",
		Request: func(q *http.Request, body []byte) []byte {
			query := q.URL.Query()
			query.Set("resourceVersion", number(first.Load()))
			q.URL.RawQuery = query.Encode()
			return body
		},
	})
}

func TestRV7b_AWatchWithoutANumberBeginsWithWhatIsThere(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV7b", From: "+",
		Says: "a watch without a resourceVersion, or with \"0\", begins with an ADDED for each object that is there, and " +
			"has no history",
		Why: "the first ADDED of an object need not be its creation; since client-go 0.35 an informer begins with such a " +
			"watch, and not with a list",
		Do:      "Do not take an ADDED for a creation.",
		FalseIf: allFromTheBeginning.Shows(`the list of events of a watch with "0" is .*DELETED b`),
		AlsoFalseIf: []world.World{
			onlyWhatComes.Shows(`the list of events of a watch without a number is ADDED fence$`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).getAllEventsSinceLocked"),
		Answers: "#57",
	}, func(l *lab.Lab) {
		defer l.KeepHistory()()
		shelves := l.Of(l.CustomResource())
		shelves.Create("a", "color=red")
		shelves.Create("b", "color=red")
		shelves.Delete("b")
		shelves.Create("c", "color=red")
		l.Settle(shelves.Set("a", "color=blue"))

		watches := []struct{ what, number string }{{"without a number", ""}, {`with "0"`, "0"}}
		running := make([]*lab.Watcher, len(watches))
		for i, w := range watches {
			running[i] = shelves.Watch(w.number)
		}
		fence := shelves.Create("fence", "color=red").GetResourceVersion()
		table := l.Table("a watch", "delivers")
		for i, w := range watches {
			events := described(running[i].Until(fence))
			slices.Sort(events[:len(events)-1]) // what is there comes in no order that is promised
			table.Row(w.what, strings.Join(events, ", "))
			l.Equal("the list of events of a watch "+w.what, events, []string{"ADDED a", "ADDED c", "ADDED fence"})
		}
		table.End()
		l.Say("Before the watches, shelf b was created and deleted, and a was painted blue. They do not tell of that.")
	})
}

// aLimitKeepsTheBound says for the client that a list with a limit need only be not older than its number.
var aLimitKeepsTheBound = world.New("a number is a lower bound with a limit, too", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Query.Get("limit") == "5" },
		Note: "read as a lower bound",
		Request: func(q *http.Request, body []byte) []byte {
			query := q.URL.Query()
			query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
			q.URL.RawQuery = query.Encode()
			return body
		},
	})
})

func TestRV10_AReadSaysHowOldItsAnswerMayBe(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV10", From: "+",
		Says: "a list is as fresh as you ask: newest without a resourceVersion, what the cache has with \"0\", not older " +
			"with a number",
		Why: "a read is only as fresh as it was asked to be: Exact, or a number with a limit, asks for a snapshot; a page " +
			"stays with the revision of the first page",
		Do:      "Leave the resourceVersion out if you must see the newest.",
		FalseIf: world.AProxyStripsTheRevision.Shows(`the list Exact \d+ holds a, b, c$`),
		AlsoFalseIf: []world.World{
			world.ZeroAsksForTheNewest.Shows(`a list with "0" cost etcd: 1 Range`),
			world.NotOlderThanIsIgnored.Shows(`the list not older than \d+ holds a, b, c(, d)?$`),
			world.EtcdUnderstatesItsRevision.Shows(`the list without a number holds a, b, c, d, e$`),
			aLimitKeepsTheBound.Shows(`the list at \d+ with a limit holds a, b, c$`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).WaitUntilFreshAndGet"),
		Answers: "#62 #65",
	}, func(l *lab.Lab) {
		defer l.KeepHistory()()
		shelves := l.Of(l.CustomResource())
		shelves.Create("a", "color=red")
		early := shelves.Create("b", "color=red").GetResourceVersion()
		l.Settle(shelves.Create("c", "color=red"))
		r := lister{l, shelves, l.Table("list with", "the cache", "items", "resourceVersion", "to etcd")}

		exact, _ := r.list("Exact "+early, metav1.ListOptions{
			ResourceVersion: early, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		})
		r.holds("the list Exact "+early, exact, "a", "b")
		l.Equal("the resourceVersion of that list", exact.GetResourceVersion(), early)

		limited, _ := r.list(early+", limit 5", metav1.ListOptions{ResourceVersion: early, Limit: 5})
		r.holds("the list at "+early+" with a limit", limited, "a", "b")
		l.Equal("the resourceVersion of the list with a limit", limited.GetResourceVersion(), early)

		d, frozen := r.createUnseen("d")
		cached, sent := r.listBehind(frozen, `"0"`, metav1.ListOptions{ResourceVersion: "0"})
		l.Sends(sent, `a list with "0"`, "no request")
		r.holds(`the list with "0"`, cached, "a", "b", "c")
		l.Expect(numberOf(cached.GetResourceVersion()) < number(d), "its resourceVersion is the cache's, not the store's",
			"its resourceVersion is %s", cached.GetResourceVersion())

		e, frozen := r.createUnseen("e")
		notOlder, _ := r.listBehind(frozen, "NotOlderThan "+e.GetResourceVersion(), metav1.ListOptions{
			ResourceVersion: e.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		r.holds("the list not older than "+e.GetResourceVersion(), notOlder, "a", "b", "c", "d", "e")
		l.Expect(numberOf(notOlder.GetResourceVersion()) >= number(e), "its resourceVersion is not older either",
			"its resourceVersion is %s", notOlder.GetResourceVersion())

		_, frozen = r.createUnseen("f")
		newest, _ := r.listBehind(frozen, "nothing", metav1.ListOptions{})
		r.holds("the list without a number", newest, "a", "b", "c", "d", "e", "f")

		page1, _ := r.list("limit 1, page 1", metav1.ListOptions{Limit: 1})
		shelves.Create("g", "color=red")
		page2, _ := r.list("limit 9, page 2", metav1.ListOptions{Limit: 9, Continue: page1.GetContinue()})
		r.table.End()
		l.Say("The cache is kube-apiserver's own. Where it lags, the news of the last create was kept from it until the " +
			"list had been answered or was seen to wait.")
		l.Equal("the resourceVersion of page 2", page2.GetResourceVersion(), page1.GetResourceVersion())
		r.holds("page 2", page2, "b", "c", "d", "e", "f")

	})
}

func TestRV10b_AReadFromTheFutureWaitsAndIsRefused(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV10b", From: "+",
		Says: "of a kind with a watch cache, a list not older than a future revision waits three seconds for it, " +
			"and is refused with 504",
		Why: "the server is not overloaded: the number is of another store or of a later time, or this apiserver's cache " +
			"lags; within the three seconds the list is answered",
		Do:      "Ask where the number comes from before you retry a 504.",
		FalseIf: world.NotOlderThanIsIgnored.Shows(`the list was answered before the store had come so far`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).waitUntilFreshLocked"),
		Answers: "#61",
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		l.Settle(shelves.Create("a", "color=red"))
		frozen := l.Wire.Freeze(shelves.Kind().StoragePrefix())
		next := strconv.FormatInt(l.Revision()+1, 10)
		answered, cancel := context.WithCancel(l.Context())
		var list *lab.List
		pending := l.Go("the list not older than "+next, func() (err error) {
			defer cancel()
			list, err = shelves.TryList(metav1.ListOptions{
				ResourceVersion: next, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			})
			return err
		})
		l.Expect(frozen.Asked(answered) == nil, "the list waits for the store",
			"the list was answered before the store had come so far")
		shelves.Create("b", "color=red")
		frozen.Release()
		l.Accepted(pending.Wait(), "the list that waits")
		l.Equal("the number of its items", len(list.Items), 2)

		future := l.FirstReadFromTheFuture()
		l.Say("The list not older than %s, one more than the store had come to, waited until b was created at %s.",
			next, list.Items[1].GetResourceVersion())
		l.Say("A list not older than %s was refused after %.1f seconds: %s", future.ResourceVersion,
			future.Took.Seconds(), l.Describe(future.Err))
		l.Refused(future.Err, "a list from the future", lab.Refusal{
			Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout,
			Causes: []string{string(metav1.CauseTypeResourceVersionTooLarge)},
			Says:   "Too large resource version: " + future.ResourceVersion + ", current: ",
		})
		l.Expect(future.Took >= 3*time.Second, "it waits three seconds", "it took %s", future.Took)
	})
}

// A lister lists shelves, and notes in a table what each list took.
type lister struct {
	lab     *lab.Lab
	shelves *lab.Client
	table   *lab.Table
}

// list reads a list, and returns what that cost etcd, too.
func (r lister) list(title string, o metav1.ListOptions) (list *lab.List, sent wire.Requests) {
	var err error
	sent = r.lab.Record(func() { list, err = r.shelves.TryList(o) })
	require.NoError(r.lab, err, "listing with "+title)
	r.table.Row(title, "", len(list.Items), list.GetResourceVersion(), sent.Summary())
	return list, sent
}

// createUnseen creates a shelf of which kube-apiserver's cache does not hear before the cache is released.
func (r lister) createUnseen(name string) (*lab.Object, *wire.Frozen) {
	frozen := r.lab.Wire.Freeze(r.shelves.Kind().StoragePrefix())
	shelf := r.shelves.Create(name, "color=red")
	err := frozen.Holds(r.lab.Context(), number(shelf))
	require.NoError(r.lab, err, "keeping the creation of "+name+" from kube-apiserver's cache")
	return shelf, frozen
}

// listBehind reads a list while kube-apiserver's cache is frozen. It releases the cache as soon as the list has either
// been answered or is seen to wait for the cache.
func (r lister) listBehind(
	frozen *wire.Frozen, title string, o metav1.ListOptions,
) (list *lab.List, sent wire.Requests) {
	cache := "lags"
	var err error
	sent = r.lab.Record(func() {
		answered, cancel := context.WithCancel(r.lab.Context())
		pending := r.lab.Go("the list with "+title, func() (err error) {
			defer cancel()
			list, err = r.shelves.TryList(o)
			return err
		})
		if frozen.Asked(answered) == nil {
			cache = "lags, and is waited for"
		}
		frozen.Release()
		err = pending.Wait()
	})
	require.NoError(r.lab, err, "listing with "+title)
	r.table.Row(title, cache, len(list.Items), list.GetResourceVersion(), sent.Summary())
	return list, sent
}

// holds expects that a list holds the shelves of the given names.
func (r lister) holds(what string, list *lab.List, names ...string) {
	var got []string
	for _, item := range list.Items {
		got = append(got, item.GetName())
	}
	r.lab.Expect(slices.Equal(got, names), what+" holds "+strings.Join(names, ", "),
		"%s holds %s", what, strings.Join(got, ", "))
}

func TestRV11_ACompactedRevisionIsGoneAndTheWayBackIsAFreshList(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV11", From: "+",
		Says: "a revision that neither etcd nor the apiserver's cache has any more is answered with 410 Expired; a fresh " +
			"list or watch leads on",
		Why:     "a token is no archive: if you keep one for long, be ready to start over",
		Do:      "List again after a 410, or watch without a number.",
		FalseIf: world.TheStoreIgnoresTheRevision.Shows(`a list at a compacted revision was accepted`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "interpretListError"),
		Answers: "#60 #64 #65",
	}, func(l *lab.Lab) {
		// The apiserver serves old revisions from its own snapshots for as long as it can. So the lesson asks
		// for a revision from before its cache of this resource began, and page 2 after that cache began anew.
		release := l.KeepHistory()
		old := l.Create("old", "a=1").GetResourceVersion()
		kind := l.CustomResource()
		shelves := l.Of(kind)
		listOld := func() error {
			return errorOf(shelves.TryList(metav1.ListOptions{
				ResourceVersion: old, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
			}))
		}
		before := l.Record(func() { l.Accepted(listOld(), "a list at revision "+old) })
		shelves.Create("a", "color=red")
		shelves.Create("b", "color=red")
		page1, err := shelves.TryList(metav1.ListOptions{Limit: 1})
		require.NoError(l, err, "listing page 1")
		young := restartCache(l, kind)
		release()
		l.CompactTo(young)

		var gone error
		after := l.Record(func() { gone = listOld() })
		l.Show("GET shelves at revision "+old+", when there was none yet, before the compaction", before)
		l.Show("and after it", after.Only(wire.RangeStream))
		l.Say("%s", l.Describe(gone))
		expired := lab.Refusal{Code: http.StatusGone, Reason: metav1.StatusReasonExpired}
		l.Refused(gone, "a list at a compacted revision", expired)

		_, err = shelves.Watch(old).TryNext()
		l.Refused(err, "a watch from a compacted revision", expired)
		stream, err := shelves.TryRaw(http.MethodGet, shelves.Path(""), "watch=1&resourceVersion="+old, nil)
		l.Accepted(err, "the request of that watch")
		l.Say("A watch from there is answered with HTTP 200, and its first event is the refusal: %s", stream)
		l.Expect(strings.HasPrefix(string(stream), `{"type":"ERROR"`), "the first event is an ERROR", "it is %s", stream)

		_, refused := shelves.TryList(metav1.ListOptions{Limit: 1, Continue: page1.GetContinue()})
		l.Refused(refused, "page 2 of a list whose revision was compacted", expired)
		token := continueOf(refused)
		l.Expect(token != "", "the refusal brings a new continue token", "it brings none: %s", l.Describe(refused))
		page2, err := shelves.TryList(metav1.ListOptions{Limit: 1, Continue: token})
		require.NoError(l, err, "going on with the new token")
		l.Say("Page 2 of a list that was begun before is refused in the same way. The refusal brings a continue token for "+
			"another revision: page 1 was at %s, page 2 is at %s.", page1.GetResourceVersion(), page2.GetResourceVersion())
		l.Equal("the number of items on page 2", len(page2.Items), 1)
		l.Expect(page2.GetResourceVersion() != page1.GetResourceVersion(), "the new token goes on at another revision",
			"page 2 is at %s, as page 1 was", page2.GetResourceVersion())

		fresh := shelves.List().GetResourceVersion()
		last := shelves.Create("c", "color=red")
		events := shelves.Watch(fresh).Until(last.GetResourceVersion())
		l.Equal("the number of events of a watch that goes on from a fresh list", len(events), 1)
		begins := shelves.Watch("").Until(last.GetResourceVersion())
		l.Equal("the number of events of a watch that begins without a number", len(begins), 3)
	})
}

// bothKeepTheResource has the second apiserver begin its cache of the resource before the lesson first asks for it.
var bothKeepTheResource = world.New("both apiservers have kept the resource in their caches from the start",
	func(l *lab.Lab) {
		second := l.AtSecondAPIServer("early")
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Who == "writer" }, Times: 1,
			Request: func(q *http.Request, body []byte) []byte {
				l.Until("the second apiserver serves the resource", func() (bool, error) {
					_, err := second.TryRaw(http.MethodGet, q.URL.Path, "", nil)
					return err == nil, nil
				})
				return body
			},
		})
	})

func TestRV11b_WhatIsTooOldForOneAPIServerAnotherMayStillServe(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV11b", From: "+",
		Says: "what is too old for one apiserver another may still serve: each has a window of its own, which " +
			"begins with its cache or later",
		Why: "a 410 says what this apiserver has, not what happened; behind a load balancer the same number may be served " +
			"and refused in turn",
		Do:      "List again after a 410; do not try the next replica.",
		FalseIf: bothKeepTheResource.Shows(`the watch at the second apiserver was accepted`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).getAllEventsSinceLocked"),
		Answers: "#60",
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		from := shelves.List().GetResourceVersion() // here the first apiserver's cache begins
		shelves.Create("a", "color=red")
		last := shelves.Set("a", "color=blue").GetResourceVersion()
		l.CompactTo(l.Revision())

		second := l.AtSecondAPIServer("reader").Of(shelves.Kind())
		l.Until("the second apiserver serves the resource, so that its cache begins", func() (bool, error) {
			_, err := second.TryList(metav1.ListOptions{})
			return err == nil, nil // until then an error is nothing but a reason to ask again
		})
		events := described(shelves.Watch(from).Until(last))
		_, refused := second.Watch(from).TryNext()

		table := l.Table("a watch from "+from+", which etcd has compacted", "is told")
		table.Row("at the first apiserver", strings.Join(events, ", "))
		table.Row("at the second, whose cache is younger", lab.AnswerLine(refused))
		table.End()
		l.Equal("the list of events at the first", events, []string{"ADDED a", "MODIFIED a"})
		l.Refused(refused, "the watch at the second apiserver", lab.Refusal{
			Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
		})
	})
}

// restartCache changes the definition of a custom resource in a way that does not matter, so that kube-apiserver gives
// it a new storage with a new, younger cache. It returns the revision that the store has then reached: what happened
// before that, the apiserver can only find out from etcd.
func restartCache(l *lab.Lab, kind lab.Kind) int64 {
	offTape := l.As("")
	from := l.Wire.Tape().Now()
	_, err := offTape.Of(lab.CustomResourceDefinition).TryPatch(kind.Definition(), types.JSONPatchType, fmt.Sprintf(
		`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/description","value":"as of %d"}]`, l.Revision()))
	require.NoError(l, err, "changing the definition of "+kind.Definition())
	l.Until("kube-apiserver watches etcd for "+kind.Definition()+" anew", func() (bool, error) {
		_, err := offTape.Of(kind).TryGetOnce("", "")
		anew := slices.ContainsFunc(l.Wire.Tape().Since(from), func(r wire.Request) bool {
			return r.Method == wire.Watch && r.Key == kind.StoragePrefix()
		})
		return anew && err == nil, nil // until then an error is nothing but a reason to ask again
	})
	return l.Revision()
}

// continueOf is the continue token that a refusal brings along, "" if none.
func continueOf(refusal error) string {
	var status apierrors.APIStatus
	if !errors.As(refusal, &status) {
		return ""
	}
	return status.Status().Continue
}
