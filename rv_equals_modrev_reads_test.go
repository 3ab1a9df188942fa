// Chapter 1, continued: what lists, reads and watches say.
package modrev

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

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
		Says: "a list's resourceVersion is the revision that the store has reached, not that of any item in it",
		Why: "the number says how far the store had come when the list was true; whoever takes an item's number for " +
			"it watches from too early",
		FalseIf: world.ListsReportAnItemsNumber.Shows(`the list reports \d+`),
		AlsoFalseIf: []world.World{
			world.ListsReportTheFuture.Shows(`the list reports 1000000000, the store is at`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*Cacher).GetList"),
		Erratum: "the document says that a list's number is not any object's revision. It can coincide with one: " +
			"when the newest write to the store was a write to an item of the list.",
	}, func(l *lab.Lab) {
		shelves := l.CustomResource()
		for _, name := range []string{"a", "b", "c"} {
			l.Of(shelves).Create(name, "color=red")
		}
		last := l.Create("something-else", "a=1")
		var list *lab.List
		sent := l.Record(func() { list = l.Of(shelves).List() })

		table := l.Table("what", "resourceVersion")
		for _, item := range list.Items {
			table.Row("shelves/"+item.GetName(), item.GetResourceVersion())
		}
		table.Row("configmaps/something-else, written last", last.GetResourceVersion())
		table.Row("the list of shelves", list.GetResourceVersion())
		table.End()
		l.Show("GET shelves: one Range says how far the cache must have come; the answer is the cache's", sent)

		for _, item := range list.Items {
			l.Expect(numberOf(list.GetResourceVersion()) > number(&item), "the list's number is higher than every item's",
				"the list reports %s, its item %s has %s", list.GetResourceVersion(), item.GetName(), item.GetResourceVersion())
		}
		l.Expect(numberOf(list.GetResourceVersion()) >= number(last), "the list's number is not from before the last write",
			"the list reports %s, the last write was at %s", list.GetResourceVersion(), last.GetResourceVersion())
		reached := l.Revision()
		l.Expect(numberOf(list.GetResourceVersion()) <= reached, "the list's number is one that the store has reached",
			"the list reports %s, the store is at %d", list.GetResourceVersion(), reached)

		newest := l.Of(shelves).Create("d", "color=red")
		list = l.Of(shelves).List()
		l.Say("When the newest write of the store was to an item, the numbers may coincide: the list reports %s, "+
			"item d has %s.", list.GetResourceVersion(), newest.GetResourceVersion())
	})
}

func TestRV7_AListsResourceVersionIsWhereAWatchGoesOn(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV7", From: "D1 Expect 4, Observe",
		Says: "a watch from a list's resourceVersion delivers exactly the later events, each under the mod_revision of " +
			"etcd's own event and in etcd's order",
		Why:     "list and watch fit together without a gap and without a repetition; informers are built on that",
		FalseIf: world.AnEventIsSwallowed.Shows(`revisions that the watch delivered is (\d+, ){3}\d+$`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).processEvent"),
		Answers: "#57 #58",
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

func TestRV10_AReadSaysHowOldItsAnswerMayBe(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV10", From: "+",
		Says: "reading with a resourceVersion says how old the answer may be: none asks for the newest, \"0\" for anything " +
			"the cache has, a number for not older than that, Exact for that snapshot; a number from the future is refused " +
			"with 504",
		Why: "a read is only as fresh as it was asked to be, and a page of a list stays with the revision of the " +
			"first page",
		FalseIf: world.AProxyStripsTheRevision.Shows(`the list Exact \d+ holds a, b, c$`),
		AlsoFalseIf: []world.World{
			world.ZeroAsksForTheNewest.Shows(`a list with "0" cost etcd: 1 Range`),
			world.NotOlderThanIsIgnored.Shows(`the list not older than \d+ holds a, b, c(, d)?$`),
			world.EtcdUnderstatesItsRevision.Shows(`the list without a number holds a, b, c, d, e$`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).WaitUntilFreshAndGet"),
		Answers: "#61 #62 #65",
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

		_, frozen := r.createUnseen("d")
		cached, sent := r.listBehind(frozen, `"0"`, metav1.ListOptions{ResourceVersion: "0"})
		l.Sends(sent, `a list with "0"`, "no request")
		r.holds(`the list with "0"`, cached, "a", "b", "c")

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

		future := l.FirstReadFromTheFuture()
		l.Say("A read not older than %s, which does not exist yet, waits three seconds for it and is then refused: %s",
			future.ResourceVersion, l.Describe(future.Err))
		l.Refused(future.Err, "a read from the future", lab.Refusal{
			Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout,
			Causes: []string{string(metav1.CauseTypeResourceVersionTooLarge)},
		})
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
		Says: "a revision can be compacted away: once neither etcd nor the apiserver's cache has it, a read at it is " +
			"answered with 410 Expired, and the way back is a fresh list",
		Why:     "a token is no archive: whoever keeps one for long must be ready to start over",
		FalseIf: world.TheStoreIgnoresTheRevision.Shows(`was accepted`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "interpretListError"),
		Answers: "#60 #64 #65",
	}, func(l *lab.Lab) {
		// The apiserver serves old revisions from its own snapshots for as long as it can. So the lesson asks
		// for a revision from before its cache of this resource began, and page 2 after that cache began anew.
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
		l.CompactTo(restartCache(l, kind))

		var gone error
		after := l.Record(func() { gone = listOld() })
		l.Show("GET shelves at revision "+old+", when there was none yet, before the compaction", before)
		l.Show("and after it", after.Only(wire.RangeStream))
		l.Say("%s", l.Describe(gone))
		expired := lab.Refusal{Code: http.StatusGone, Reason: metav1.StatusReasonExpired}
		l.Refused(gone, "a list at a compacted revision", expired)

		_, refused := shelves.TryList(metav1.ListOptions{Limit: 1, Continue: page1.GetContinue()})
		l.Refused(refused, "page 2 of a list whose revision was compacted", expired)
		token := continueOf(refused)
		l.Expect(token != "", "the refusal brings a new continue token", "it brings none: %s", l.Describe(refused))
		page2, err := shelves.TryList(metav1.ListOptions{Limit: 1, Continue: token})
		require.NoError(l, err, "going on with the new token")
		l.Say("Page 2 of a list that was begun before is refused in the same way, with a continue token to go on with, at "+
			"another revision: page 1 was at %s, page 2 is at %s.", page1.GetResourceVersion(), page2.GetResourceVersion())
		l.Equal("the number of items on page 2", len(page2.Items), 1)
		l.Expect(page2.GetResourceVersion() != page1.GetResourceVersion(), "the new token goes on at another revision",
			"page 2 is at %s, as page 1 was", page2.GetResourceVersion())

		fresh := shelves.List().GetResourceVersion()
		last := shelves.Create("c", "color=red")
		events := shelves.Watch(fresh).Until(last.GetResourceVersion())
		l.Equal("the number of events of a watch that goes on from a fresh list", len(events), 1)
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
