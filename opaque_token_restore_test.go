// Chapter 4, continued: what comes back, and what is not cached.
package modrev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/world"
)

// aDay stands for what a cluster writes between a backup and its restore: more than a kube-apiserver writes when it
// starts.
const aDay = 500

func TestOT90_AfterARestoreANumberIsGivenOutTwice(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT90", From: "+",
		Says: "a restore rewinds etcd's revision: a number of the lost history is given out again, and a stale replace is " +
			"let in",
		Why: "equal tokens no longer mean that nothing happened in between; a controller that outlives the restore " +
			"overwrites what it has never seen",
		Do:      "Restore etcd with --bump-revision and --mark-compacted.",
		FalseIf: world.EveryRestoreIsBumped.Shows(`the controller's replace was refused: 409 Conflict`),
		Read:    source.Decl("go.etcd.io/etcd/etcdutl/v3/snapshot", "(*v3Manager).Restore"),
		Answers: "#104",
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red")
		backup := l.Backup()
		l.Spend(aDay)
		lost := l.As("controller").Set("shelf", "color=blue")

		restored := backup.Restore(lab.Restoring{})
		table := l.Table("history", "step", "resourceVersion", "uid", "data")
		row := func(history, step string, o *lab.Object) {
			table.Row(history, step, o.GetResourceVersion(), shortUID(o), lab.Fields(o, "color", "size", "room"))
		}
		row("lost", "the controller sets color=blue, and keeps the answer", lost)
		row("restored", "what the backup has", restored.Peek("shelf"))
		var rival *lab.Object
		restored.Reach(number(lost), func() { rival = restored.Rival().Set("shelf", "size=9") })
		row("restored", "a rival sets size=9", rival)
		checked := restored.As("controller").TryDelete("shelf", both(lost))
		after, err := restored.As("controller").TryReplace(lost, "room=12")
		l.Accepted(err, "the controller's replace")
		row("restored", "the controller replaces what it kept, with room=12", after)
		table.End()
		l.Say("Numbers rarely meet by themselves: here somebody else wrote to the restored store until the next one was " +
			"the controller's. A dry run of a delete with its token and its uid as preconditions was let in as well. In " +
			"another cluster the uid would tell; a restored object has the same.")

		l.Accepted(checked, "a delete with its token and its uid")
		l.Equal("the number of the rival's write", number(rival), number(lost))
		restored.Stored(after, "color=blue", "-size")
	})
}

// both are the preconditions of a dry run of a delete: the incarnation and the version that were read.
func both(o *lab.Object) metav1.DeleteOptions {
	options := lab.UID(o)
	options.Preconditions.ResourceVersion = lab.Token(o).Preconditions.ResourceVersion
	options.DryRun = []string{metav1.DryRunAll}
	return options
}

func TestOT91_ABumpedRestoreRefusesWhatIsFromTheLostHistory(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT91", From: "+",
		Says: "with --bump-revision and --mark-compacted the numbers go on above all that were given out: old replaces are " +
			"409, old watches 410",
		Why: "every client then does what it does after a conflict or an expired watch anyway: it reads again, lists " +
			"again, and drops what it remembered",
		Do:      "Bump by more than was ever written since the backup.",
		FalseIf: world.NoRestoreIsBumped.Shows(`a replace with a token of the lost history is 200`),
		Read:    source.Decl("go.etcd.io/etcd/etcdutl/v3/snapshot", "(*v3Manager).modifyLatestRevision"),
		Answers: "#104",
	}, func(l *lab.Lab) {
		saved := l.Create("shelf", "color=red")
		l.Create("books", "title=Emma")
		backup := l.Backup()
		l.Spend(aDay)
		pages, err := l.TryList(metav1.ListOptions{Limit: 1})
		require.NoError(l, err, "listing the first page")
		lost := l.As("controller").Set("shelf", "color=blue")

		restored := backup.Restore(lab.Restoring{Bump: true})
		var rival *lab.Object
		read := restored.Get("shelf")
		restored.Reach(number(lost), func() { rival = restored.Rival().Set("shelf", "size=9") })
		table := l.Table("request to the restored cluster", "answer")
		row := func(what string, err error, want string) {
			table.Row(what, lab.AnswerLine(err))
			l.Equal(what, lab.AnswerLine(err), want)
		}
		_, err = restored.As("controller").TryReplace(lost, "room=12")
		row("a replace with a token of the lost history", err, "409 Conflict")
		row("a watch from there", firstEvent(restored, lost.GetResourceVersion()), "410 Expired")
		row("a watch from before the backup", firstEvent(restored, saved.GetResourceVersion()), "410 Expired")
		_, err = restored.TryList(metav1.ListOptions{Limit: 1, Continue: pages.GetContinue()})
		row("the next page of a list from there", err, "410 Expired")
		_, err = restored.TryReplace(rival, "room=12")
		row("a replace with a token of the restored one", err, "200")
		table.End()
		l.Say("Objects keep the numbers that the backup has, shelf %s; what is written gets numbers beyond all others, %s.",
			read.GetResourceVersion(), rival.GetResourceVersion())

		l.Equal("the number of shelf after the restore", number(read), number(saved))
		l.Expect(number(rival) > number(lost), "the next number is greater than all of the lost history", "it is %d",
			number(rival))
	})
}

// firstEvent is how a watch from a number ends that is refused, or nil when it delivers an event.
func firstEvent(l *lab.Lab, resourceVersion string) error {
	watch, err := l.TryWatch(metav1.ListOptions{ResourceVersion: resourceVersion})
	if err != nil {
		return err
	}
	_, err = watch.TryNext()
	return err
}

func TestOT92_AWatchFromTheLostHistoryMissesWhatComes(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT92", From: "+",
		Says: "after a restore, a watch from a number of the lost history is silent until the store has passed that number",
		Why: "an informer that resumes there misses what is written meanwhile, and keeps for good what only the lost " +
			"history had",
		Do:      "Restart every controller after a restore that was not bumped.",
		FalseIf: world.EveryRestoreIsBumped.Shows(`the watch from the lost history was refused: 410 Expired`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).getAllEventsSinceLocked"),
		Answers: "#104",
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red")
		backup := l.Backup()
		l.Spend(aDay)
		l.Create("born", "color=red")
		cache := l.As("controller").Informer()
		known := cache.GetStore().LastStoreSyncResourceVersion()

		restored := backup.Restore(lab.Restoring{})
		var read error
		reading := l.Go("a read from the future", func() error {
			_, read = restored.TryGetOnce("shelf", "resourceVersion="+known)
			return nil
		})
		watch := restored.As("controller").Watch(known)
		missed := restored.Rival().Create("missed", "color=red")
		require.NoError(l, reading.Wait(), "reading") // it takes three seconds
		var next *lab.Object
		restored.Reach(numberOf(known)+1, func() { next = restored.Rival().Create("next", "color=red") })
		first, err := watch.TryNext()
		l.Accepted(err, "the watch from the lost history")

		table := l.Table("the controller's cache has reached "+known, "restored cluster", "the controller")
		_, gone := restored.TryGet("born")
		table.Row("born, written in the lost history", lab.AnswerLine(gone),
			"has it in its cache: "+cache.Get("born").GetName())
		event := map[string]string{first.Name: first.Type}
		table.Row("missed, written after the restore", "at "+missed.GetResourceVersion(), cmp.Or(event["missed"], "no event"))
		table.Row("next, at the first number beyond", "at "+next.GetResourceVersion(), cmp.Or(event["next"], "no event"))
		table.Row("a read not older than "+known, lab.AnswerLine(read), "")
		table.End()

		l.Equal("the first event of the watch", first.Name, "next")
		l.Expect(lab.IsNotFound(gone), "born is not in the restored cluster", "it is")
		l.Refused(read, "a read not older than the lost history", lab.Refusal{
			Code: 504, Reason: metav1.StatusReasonTimeout, Says: "Too large resource version",
		})
	})
}

func TestOT93_ARestoreBringsBackTheSameObjects(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT93", From: "+",
		Says: "a restore brings deleted objects back under the same uid, takes away new ones, and gives generations out " +
			"again",
		Why: "what was torn down outside is gone, though its object is back; and the generation 2 that was handled may be " +
			"another than the present one",
		Do:      "After a restore, compare what exists outside with the objects, both ways.",
		FalseIf: world.NothingIsLost.Shows(`a read of what was deleted was refused: 404 NotFound`),
		Read:    source.Decl("go.etcd.io/etcd/etcdutl/v3/snapshot", "(*v3Manager).copyAndVerifyDB"),
		Answers: "#104",
	}, func(l *lab.Lab) {
		deployments := l.Of(lab.Deployment)
		deployments.Create("changed", "replicas=1")
		deleted := deployments.Create("deleted", "replicas=1")
		backup := l.Backup()
		lost := deployments.Set("changed", "replicas=2")
		deployments.Delete("deleted")
		created := deployments.Create("created", "replicas=1")

		restored := backup.Restore(lab.Restoring{}).Of(lab.Deployment)
		again := restored.Set("changed", "replicas=5")
		back, err := restored.TryGet("deleted")
		l.Accepted(err, "a read of what was deleted")
		_, gone := restored.TryGet("created")
		table := l.Table("Deployment", "in the lost history", "after the restore")
		describe := func(o *lab.Object) string {
			return fmt.Sprintf("uid %s, generation %d: %s", shortUID(o), o.GetGeneration(), lab.Fields(o, "replicas"))
		}
		table.Row("changed, and changed again", describe(lost), describe(again))
		table.Row("deleted", "404 NotFound", describe(back))
		table.Row("created", describe(created), lab.AnswerLine(gone))
		table.End()

		l.Equal("the uid of what was deleted", back.GetUID(), deleted.GetUID())
		l.Expect(back.GetDeletionTimestamp() == nil, "nothing says that it was deleted", "it has a deletionTimestamp")
		l.Expect(lab.IsNotFound(gone), "what was created is gone", "it is there")
		l.Equal("the uid of what was changed", again.GetUID(), lost.GetUID())
		l.Equal("its generation after another change", again.GetGeneration(), lost.GetGeneration())
		l.Say("Nothing tells a controller: the restored objects look as if the lost history had never been.")
	})
}

func TestOT94_ARestoredLeaseNamesAHolderOfThePast(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT94", From: "+",
		Says: "a restored Lease names its holder at the backup: that one leads at once, while the last holder still thinks " +
			"it does",
		Why: "two lead until the renew deadline of the deposed one has passed, ten seconds by default; no lease had to run " +
			"out for that",
		Do:      "Stop controllers before a restore; give each start an identity of its own.",
		FalseIf: world.NothingIsLost.Shows(`ann looked twice, and does not lead: the Lease names bob`),
		Read:    source.Decl("k8s.io/client-go/tools/leaderelection", "(*LeaderElector).tryAcquireOrRenew"),
		Answers: "#104",
	}, func(l *lab.Lab) {
		now := time.Now().UTC().Format(metav1.RFC3339Micro)
		held := []string{"leaseDurationSeconds=15", "acquireTime=" + now, "renewTime=" + now, "leaseTransitions=1"}
		l.As("ann").Of(lab.Lease).Create("leader", append(held, "holderIdentity=ann")...)
		backup := l.Backup()
		bobs := l.As("bob").Of(lab.Lease).Set("leader", "holderIdentity=bob", "leaseTransitions=2")

		restored := backup.Restore(lab.Restoring{})
		found := restored.Of(lab.Lease).Peek("leader")
		leads := elect(restored, "ann")
		_, err := restored.As("bob").Of(lab.Lease).TryReplace(bobs, "renewTime="+now)
		next := restored.Of(lab.Lease).Peek("leader")
		table := l.Table("step", "holderIdentity", "so")
		table.Row("ann has handed over to bob, after the backup", lab.Field(bobs, "holderIdentity"), "")
		table.Row("the Lease after the restore", lab.Field(found, "holderIdentity"), "")
		table.Row("ann's elector looks", lab.Field(next, "holderIdentity"), map[bool]string{true: "ann leads"}[leads])
		table.Row("bob, who leads, renews with his token", lab.Field(next, "holderIdentity"), lab.AnswerLine(err))
		table.End()

		l.Expect(leads, "ann leads as soon as her elector has looked",
			"ann looked twice, and does not lead: the Lease names %s", lab.Field(found, "holderIdentity"))
		l.Refused(err, "bob's renewal", lab.Stale(bobs))
		l.Say("An elector that finds its own identity in the Lease does not wait for its end. bob's goes on until its " +
			"renew deadline. If the number of his Lease has been given out again, his renewal is let in (OT90).")
	})
}

// elect runs an elector of client-go until it leads, or has looked at the Lease twice.
func elect(l *lab.Lab, who string) (leads bool) {
	client := l.As(who)
	led := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: "leader"},
			Client:     client.Typed().CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: who},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 100 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(led) }, OnStoppedLeading: func() {},
		},
	})
	require.NoError(l, err, "making an elector for "+who)
	ctx, cancel := context.WithCancel(l.Context())
	l.Cleanup(cancel)
	from := l.Wire.Tape().Now()
	l.Go(who+"'s elector", func() error { elector.Run(ctx); return nil })
	l.Until(who+" leads, or has looked twice", func() (bool, error) {
		select {
		case <-led:
			leads = true
		default:
		}
		looks := 0
		for _, c := range l.Wire.Tape().Calls(from) {
			if c.Who == who && c.Verb == "GET" && c.Done {
				looks++
			}
		}
		return leads || looks > 1, nil
	})
	return leads
}

func TestOT95_MaintenanceOfEtcdLeavesTheNumbersAlone(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT95", From: "+",
		Says: "compaction and defragmentation of etcd change no resourceVersion: a token that was read before is good after",
		Why: "only a restore rewinds; what compaction takes are old versions, and with them the numbers to watch from, not " +
			"the numbers to write with",
		Do:      "Keep your tokens; expect 410 for watches, Exact lists and continue tokens of older revisions.",
		FalseIf: world.MaintenanceWritesKeysAnew.Shows(`the resourceVersion after a compaction is \d+`),
		Read:    source.Decl("go.etcd.io/etcd/server/v3/storage/mvcc", "(*store).Compact"),
		Answers: "#104",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Set("shelf", "color=blue")
		before := l.Peek("shelf")
		table := l.Table("after", "resourceVersion", "mod_revision", "version", "uid")
		row := func(step string) *lab.Object {
			now := l.Get("shelf")
			stored := l.KV(now)
			table.Row(step, now.GetResourceVersion(), stored.ModRevision, stored.Version, shortUID(now))
			l.Equal("the resourceVersion after "+step, now.GetResourceVersion(), before.GetResourceVersion())
			return now
		}
		l.CompactTo(l.Revision())
		row("a compaction")
		_, err := l.Etcd().Get(l.Context(), l.Key(shelf), clientv3.WithRev(number(shelf)))
		l.Defragment()
		row("a defragmentation")
		table.End()
		l.Expect(errors.Is(err, rpctypes.ErrCompacted), "the version before is gone", "etcd answered: %v", err)
		_, err = l.TryReplace(before, "color=green")
		l.Accepted(err, "a replace with the token from before")
	})
}

func TestOT96_KubeApiserverKeepsNoCacheOfEvents(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT96", From: "+",
		Says: "kube-apiserver keeps no cache of Events: each read, with \"0\" too, each watch and each update asks etcd",
		Why: "\"0\" brings the newest Event and is no cheaper; an update of one starts from what etcd has, and not from a " +
			"cache that lags",
		Do:      "Do not count on \"0\" to spare etcd: list Events in pages, or watch them.",
		FalseIf: world.ReadsShowTheVersionBefore.Shows(`an Event, read with "0", has room 12`),
		Read:    source.Decl("k8s.io/kubernetes/pkg/kubeapiserver", "DefaultWatchCacheSizes"),
	}, func(l *lab.Lab) {
		shelves, events := l.Of(l.CustomResource()), l.Of(coreEvent)
		shelf := shelves.Create("it", "n=1")
		event := events.Create("it", "involvedObject.namespace="+l.Namespace)
		l.Settle(shelf)
		table := l.Table("request", "a Shelf", "an Event")
		label := `{"metadata":{"labels":{"room":"12"}}}`
		cached := l.Record(func() { shelves.Patch("it", types.MergePatchType, label) })
		asked := l.Record(func() { events.Patch("it", types.MergePatchType, label) })
		table.Row("merge patch", cached.Summary(), asked.Summary())
		l.Sends(asked, "a patch of an Event", "1 Range, 1 Txn")
		for _, q := range []struct {
			what string
			do   func(c *lab.Client, o *lab.Object)
		}{
			{`GET with "0"`, func(c *lab.Client, _ *lab.Object) { c.GetCached("it") }},
			{`list with "0"`, func(c *lab.Client, _ *lab.Object) {
				_, err := c.TryList(metav1.ListOptions{ResourceVersion: "0"})
				require.NoError(l, err, "listing")
			}},
			{"watch", func(c *lab.Client, o *lab.Object) { c.Watch(o.GetResourceVersion()).Next() }},
		} {
			cached := l.Record(func() { q.do(shelves, shelf) })
			asked := l.Record(func() { q.do(events, event) })
			table.Row(q.what, cached.Summary(), asked.Summary())
			l.Expect(len(cached) == 0, q.what+" of Shelves asks etcd for nothing", "it asked for: %s", cached.Summary())
			l.Expect(len(asked) > 0, q.what+" of Events asks etcd", "it asked for nothing")
		}
		table.End()

		frozen := l.Wire.Freeze(shelves.Kind().StoragePrefix())
		label = `{"metadata":{"labels":{"room":"13"}}}`
		shelves.Patch("it", types.MergePatchType, label)
		events.Patch("it", types.MergePatchType, label)
		room := func(c *lab.Client) string { return c.GetCached("it").GetLabels()["room"] }
		oldShelf, newEvent := room(shelves), room(events)
		frozen.Release()
		l.Expect(newEvent == "13", `an Event, read with "0", has room 13`, `an Event, read with "0", has room %s`, newEvent)
		l.Expect(oldShelf != "13", `a Shelf, read with "0" while its cache is frozen, is older`, "it has room %s", oldShelf)
		l.Say("By default no other kind is without a cache. While the cache of Shelves was frozen, \"0\" brought the old " +
			"Shelf, and the new Event.")
	})
}

func TestOT97_ANumberIsGivenAtTheCommit(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT97", From: "+",
		Says: "etcd gives a number at the commit: of two writes, the one that arrives later has the greater, though it was " +
			"sent first",
		Why: "if you have seen a number, you have seen all before it; a store that draws it earlier (SQL under kine) hides " +
			"the slower write",
		Do:      "Trust the order of numbers with etcd; ask what your store does.",
		FalseIf: world.NumbersAreDrawnBeforeTheCommit.Shows(`the watch delivered fast, fence`),
		Read:    source.Decl("go.etcd.io/etcd/server/v3/storage/mvcc", "(*storeTxnWrite).End"),
		Answers: "#121",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves, rival := l.Of(kind), l.Rival().Of(kind)
		watch := shelves.Watch(shelves.List().GetResourceVersion())
		var slow, fast *lab.Object
		err := l.Race(kind.KeyOf(l.Namespace, "slow"), func() (err error) {
			slow, err = shelves.TryCreate("slow", "n=1")
			return err
		}, func() { fast = rival.Create("fast", "n=1") })
		require.NoError(l, err, "creating slow")
		fence := shelves.Create("fence", "n=1")

		var delivered []string
		for _, ev := range watch.Until(fence.GetResourceVersion()) {
			delivered = append(delivered, ev.Name)
		}
		cached := "200"
		if _, err := shelves.TryGetAt("slow", "0"); err != nil {
			cached = lab.AnswerLine(err)
		}
		table := l.Table("object", "sent", "committed", "resourceVersion", "delivered by a watch", `GET with "0"`)
		place := func(name string) int { return slices.Index(delivered, name) + 1 }
		table.Row("slow", "first", "second", slow.GetResourceVersion(), place("slow"), cached)
		table.Row("fast", "second", "first", fast.GetResourceVersion(), place("fast"), "")
		table.End()

		l.Expect(slices.Equal(delivered, []string{"fast", "slow", "fence"}), "the watch delivers fast, slow and fence",
			"the watch delivered %s; GET of slow: 200, with \"0\": %s", strings.Join(delivered, ", "), cached)
		l.Expect(number(slow) > number(fast), "slow has the greater number", "slow has %d, fast %d", number(slow),
			number(fast))
	})
}

func TestOT98_WhatIsPutBackThroughTheAPIIsAnotherObject(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT98", From: "+",
		Says: "an object that is put back from YAML has a new uid and a new number; a Shelf also gets generation " +
			"1 and no status",
		Why: "what was remembered by uid belongs to nobody now: owner references, disks, claims; a restore of etcd (OT93) " +
			"brings the same object back",
		Do:      "Put back owners before children, and set references to the new uids.",
		FalseIf: world.UIDsBelongToNames.Shows(`it has the old uid`),
		AlsoFalseIf: []world.World{
			world.ManifestsAreSavedWithoutTheirNumber.Shows(`a create by the manifest as it was saved was accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/rest", "BeforeCreate"),
		Answers: "#104",
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource("status"))
		shelf := shelves.Create("shelf", "n=1")
		shelves.Set("shelf", "n=2")
		saved := shelves.Sub("status").Set("shelf", "status.message=fine")
		books := l.New("books", "title=Emma")
		books.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(shelf, shelf.GroupVersionKind())})
		books = l.CreateObject(books)
		shelves.Delete("shelf")

		_, err := shelves.TryCreateObject(saved)
		l.Refused(err, "a create by the manifest as it was saved",
			lab.Refusal{Code: 500, Says: "resourceVersion should not be set"})
		shelves.CreateObject(lab.WithToken(saved, ""))
		back := shelves.Get("shelf")
		table := l.Table("shelf", "uid", "resourceVersion", "generation", "status.message", "owns books")
		row := func(what string, o *lab.Object) {
			table.Row(what, shortUID(o), o.GetResourceVersion(), o.GetGeneration(), lab.Field(o, "status.message"),
				metav1.IsControlledBy(books, o))
		}
		row("saved", saved)
		row("put back", back)
		table.End()
		l.Say("As it was saved, with its resourceVersion, the create is a 500. The uid that the manifest names is not " +
			"looked at.")
		l.Expect(back.GetUID() != saved.GetUID(), "it has a uid of its own", "it has the old uid")
		l.Equal("its generation", back.GetGeneration(), 1)
		l.Equal("its status", lab.Field(back, "status.message"), "")
		l.Expect(!metav1.IsControlledBy(books, back), "the books are not its own", "they are")
	})
}

func TestOT99_AnApiserverThatOutlivesARestoreListsTheLostHistory(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT99", From: "+",
		Says: "after a restore, a kube-apiserver that was not restarted reads the restored objects, and lists the lost ones",
		Why: "its caches wait for events beyond the numbers that they know; a controller that writes by its lists " +
			"conflicts again and again, restarted or not",
		Do:      "After a restore of etcd, restart every kube-apiserver first.",
		FalseIf: world.EveryRestoreIsBumped.Shows(`shelf in a list is color=red`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*CacheDelegator).GetList"),
		Answers: "#80 #104",
	}, func(l *lab.Lab) {
		own := l.Alone()
		own.Create("shelf", "color=red")
		own.Create("deleted", "color=red")
		backup := own.Backup()
		own.Spend(aDay)
		own.Set("shelf", "color=blue")
		own.Delete("deleted")
		own.Settle(own.Create("born", "color=red"))

		backup.RestoreBelow(lab.Restoring{})
		own.Rival().Create("new", "color=red")
		table := l.Table("read", "shelf", "deleted", "born", "new")
		row := func(read string, get func(name string) string) (shelf string) {
			table.Row(read, get("shelf"), get("deleted"), get("born"), get("new"))
			return get("shelf")
		}
		live := row("GET", func(name string) string { return found(own.TryGet(name)) })
		row(`GET with "0"`, func(name string) string { return found(own.TryGetAt(name, "0")) })
		list := own.List()
		listed := row("list", func(name string) string { return inList(list, name) })
		table.End()
		l.Equal("shelf in a GET", live, "color=red")
		l.Equal("shelf in a list", listed, "color=blue")

		cached := own.GetCached("shelf")
		_, err := own.TryReplace(cached, "size=9")
		l.Refused(err, "a replace of what the cache has", lab.Stale(cached))
		_, err = own.TrySet("shelf", "size=9")
		l.Accepted(err, "a patch without a token")
		l.Equal("shelf in a list after that", inList(own.List(), "shelf"), "color=blue")
		l.Say("Writes go by etcd, and so does a GET without a number. A list without a number is answered from the cache " +
			"once that is as new as etcd, and it is newer. With the bump, the watch behind the cache is told that its number " +
			"was compacted, and begins anew.")
	})
}

// found is what a read has found: the color, or the refusal.
func found(o *lab.Object, err error) string {
	if err != nil {
		return lab.AnswerLine(err)
	}
	return lab.Fields(o, "color")
}

// inList is what a list has of an object.
func inList(list *lab.List, name string) string {
	for i := range list.Items {
		if list.Items[i].GetName() == name {
			return lab.Fields(&list.Items[i], "color")
		}
	}
	return "not there"
}
