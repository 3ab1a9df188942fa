// Chapter 1, continued: what lists, reads and watches say.
package modrev

import (
	"net/http"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
			world.ListsReportTheFuture.Shows(`the list reports 1000000000, the last write was at`),
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
		l.Expect(numberOf(list.GetResourceVersion()) >= number(last) && numberOf(list.GetResourceVersion()) <= l.Revision(),
			"the list's number is a revision that the store has reached, not before the last write",
			"the list reports %s, the last write was at %s, the store is at %d",
			list.GetResourceVersion(), last.GetResourceVersion(), l.Revision())

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
		FalseIf: world.AnEventIsSwallowed.Shows(`the API delivered .* etcd had .*`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).processEvent"),
		Answers: "#57 #58",
	}, func(l *lab.Lab) {
		defer l.KeepHistory()()
		shelves := l.Of(l.CustomResource())
		shelves.Create("before-the-list", "color=red")
		from := shelves.List().GetResourceVersion()

		a := shelves.Create("a", "color=red")
		shelves.Set("a", "color=blue")
		shelves.Create("b", "color=red")
		shelves.Delete("a")
		last := shelves.Create("last", "color=red")

		ofAPI := shelves.Watch(from).Until(last.GetResourceVersion())
		ofEtcd := l.WatchEtcd(l.Prefix(a), numberOf(from)).Until(number(last))

		table := l.Table("event of the API", "resourceVersion", "event of etcd", "mod_revision")
		for i := range max(len(ofAPI), len(ofEtcd)) {
			var row [4]any
			if i < len(ofAPI) {
				row[0], row[1] = ofAPI[i].Type+" "+ofAPI[i].Name, ofAPI[i].ResourceVersion
			}
			if i < len(ofEtcd) {
				row[2], row[3] = ofEtcd[i].Type, ofEtcd[i].ModRevision
			}
			table.Row(row[:]...)
		}
		table.End()

		api, etcd := []int64{}, []int64{}
		for _, ev := range ofAPI {
			api = append(api, numberOf(ev.ResourceVersion))
		}
		for _, ev := range ofEtcd {
			etcd = append(etcd, ev.ModRevision)
		}
		l.Expect(len(etcd) == 5, "five changes came after the list", "etcd had %v", etcd)
		l.Expect(slices.Equal(api, etcd), "the watch delivers the revisions of etcd's events, all of them, in their order",
			"the API delivered %v, etcd had %v", api, etcd)
		l.Expect(ofAPI[3].Type == "DELETED" && ofEtcd[3].Type == "DELETE",
			"the deletion's event carries the revision of the deletion", "it is %s at %s", ofAPI[3].Type, ofAPI[3].ResourceVersion)
	})
}

func TestRV10_AReadSaysHowOldItsAnswerMayBe(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "RV10", From: "+",
		Says: "reading with a resourceVersion says how old the answer may be: none asks for the newest, \"0\" for anything " +
			"the cache has, a number for not older than that, Exact for that snapshot; a number from the future is refused " +
			"with 504",
		Why: "a read is only as fresh as it was asked to be, and a page of a list stays with the revision of the first page",
		FalseIf: world.AProxyStripsTheRevision.Shows(
			`the list holds 3 items`),
		AlsoFalseIf: []world.World{
			world.ZeroAsksForTheNewest.Shows(`a list with "0" cost etcd: 1 Range`),
			world.NotOlderThanIsIgnored.Shows(`the list not older than \d+ holds [34] items`),
			world.EtcdUnderstatesItsRevision.Shows(`the list without a number holds 5 items`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).WaitUntilFreshAndGet"),
		Answers: "#61 #62 #65",
	}, func(l *lab.Lab) {
		defer l.KeepHistory()()
		shelves := l.Of(l.CustomResource())
		shelves.Create("a", "color=red")
		early := shelves.Create("b", "color=red").GetResourceVersion()
		l.Settle(shelves.Create("c", "color=red"))

		table := l.Table("list with", "the cache", "items", "resourceVersion", "to etcd")
		// list reads; if the cache is frozen, until the read is answered or waits for it.
		list := func(title string, frozen *wire.Frozen, o metav1.ListOptions) *lab.List {
			var list *lab.List
			cache := ""
			sent := l.Record(func() {
				read := func() (err error) { list, err = shelves.TryList(o); return err }
				if frozen == nil {
					l.Step(read(), "listing with "+title)
					return
				}
				waited, err := l.ReadBehind(frozen, "the list with "+title, read)
				l.Step(err, "listing with "+title)
				cache = map[bool]string{true: "lags, and is waited for", false: "lags"}[waited]
			})
			table.Row(title, cache, len(list.Items), list.GetResourceVersion(), sent.Summary())
			return list
		}
		exact := list("Exact "+early, nil, metav1.ListOptions{ResourceVersion: early, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		l.Expect(len(exact.Items) == 2 && exact.GetResourceVersion() == early, "the snapshot at "+early+" holds a and b",
			"the list holds %d items at %s", len(exact.Items), exact.GetResourceVersion())

		_, frozen := shelves.CreateUnseen("d", "color=red")
		var cached *lab.List
		sent := l.Record(func() { cached = list(`"0"`, frozen, metav1.ListOptions{ResourceVersion: "0"}) })
		l.Sends(sent, `a list with "0"`, "no request")
		l.Expect(len(cached.Items) == 3, `"0" is answered with what the cache has, which is not d`,
			`the list with "0" holds %d items`, len(cached.Items))
		e, frozen := shelves.CreateUnseen("e", "color=red")
		notOlder := list("NotOlderThan "+e.GetResourceVersion(), frozen, metav1.ListOptions{
			ResourceVersion: e.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		l.Expect(len(notOlder.Items) == 5 && numberOf(notOlder.GetResourceVersion()) >= number(e),
			"the list not older than "+e.GetResourceVersion()+" holds e", "the list not older than %s holds %d items at %s",
			e.GetResourceVersion(), len(notOlder.Items), notOlder.GetResourceVersion())
		_, frozen = shelves.CreateUnseen("f", "color=red")
		newest := list("nothing", frozen, metav1.ListOptions{})
		l.Expect(len(newest.Items) == 6, "a list without a number is current",
			"the list without a number holds %d items", len(newest.Items))

		first := list("limit 1, page 1", nil, metav1.ListOptions{Limit: 1})
		shelves.Create("g", "color=red")
		second := list("limit 9, page 2", nil, metav1.ListOptions{Limit: 9, Continue: first.GetContinue()})
		table.End()
		l.Say("The cache is kube-apiserver's own. Where it lags, the news of the last create was kept from it until the list had " +
			"been answered or was seen to wait.")
		l.Expect(second.GetResourceVersion() == first.GetResourceVersion() && len(second.Items) == 5,
			"page 2 stays with the revision of page 1, and does not know g",
			"page 2 holds %d items at %s", len(second.Items), second.GetResourceVersion())

		future := l.ReadFromTheFuture()
		err := future.Err
		l.Say("A read not older than %s, which does not exist yet, waits three seconds for it and is then refused: %s",
			future.ResourceVersion, l.Describe(err))
		l.Refused(err, "a read from the future", lab.Refusal{Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout})
		l.Expect(lab.HasCause(err, metav1.CauseTypeResourceVersionTooLarge), "the cause is ResourceVersionTooLarge",
			"the causes are %v", lab.Causes(err))
	})
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
		old := l.Create("old", "a=1")
		kind := l.CustomResource()
		shelves := l.Of(kind)
		exact := func() error {
			_, err := shelves.TryList(metav1.ListOptions{
				ResourceVersion: old.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
			})
			return err
		}
		before := l.Record(func() { l.Accepted(exact(), "a list at revision "+old.GetResourceVersion()) })
		shelves.Create("a", "color=red")
		shelves.Create("b", "color=red")
		page1, err := shelves.TryList(metav1.ListOptions{Limit: 1})
		l.Step(err, "listing page 1")
		now := l.RestartCache(kind)

		l.CompactTo(now)
		after := l.Record(func() { err = exact() })
		l.Show("GET shelves at revision "+old.GetResourceVersion()+", when there was none yet, before the compaction", before)
		l.Show("and after it", after.Only(wire.RangeStream))
		l.Say("%s", l.Describe(err))
		l.Refused(err, "a list at a compacted revision", lab.Refusal{Code: http.StatusGone, Reason: metav1.StatusReasonExpired})

		_, err = shelves.TryList(metav1.ListOptions{Limit: 1, Continue: page1.GetContinue()})
		l.Refused(err, "page 2 of a list whose revision was compacted", lab.Refusal{Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
		token := lab.ContinueOf(err)
		l.Expect(token != "", "the refusal brings a new continue token", "it brings none: %s", l.Describe(err))
		page2, err := shelves.TryList(metav1.ListOptions{Limit: 1, Continue: token})
		l.Step(err, "going on with the new token")
		l.Say("Page 2 of a list that was begun before is refused in the same way, with a continue token to go on with, at another "+
			"revision: page 1 was at %s, page 2 is at %s.",
			page1.GetResourceVersion(), page2.GetResourceVersion())
		l.Expect(page2.GetResourceVersion() != page1.GetResourceVersion() && len(page2.Items) == 1,
			"the new token goes on at another revision", "page 2 is at %s", page2.GetResourceVersion())

		fresh := shelves.List()
		last := shelves.Create("c", "color=red")
		l.Expect(len(shelves.Watch(fresh.GetResourceVersion()).Until(last.GetResourceVersion())) == 1,
			"from a fresh list, a watch goes on", "it does not")
	})
}
