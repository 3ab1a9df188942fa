// Chapter 4, continued: what a cache knows.
package modrev

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/world"
)

func TestOT16_ATokenFromALaggingCacheConflictsAgainAndAgain(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16", From: "D2 paragraph 4",
		Says: "a cache can lag behind a write that succeeded: to read it again and overwrite from it conflicts again and " +
			"again, however often it is tried; one live read ends that",
		Why: "a retry is no better than what it reads; a loop that reads an informer's cache only repeats itself until " +
			"the cache happens to catch up",
		FalseIf:     world.ClientDropsTheToken.Shows(`was accepted`),
		AlsoFalseIf: []world.World{world.AProxyKeepsAnswers.Shows(`the write from a live read was refused: 409 Conflict`)},
		Read:        source.Decl("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers:     "#24",
	}, func(l *lab.Lab) {
		l.Create("shelf", "count=0")
		l.Get("shelf") // a proxy, if there is one, has seen it now
		controller := l.As("controller")
		cache := controller.Informer()
		l.Wire.HoldWatches("controller")
		l.Say("The cache is that of an informer, in the memory of the controller. From here on its watch is held: events stay " +
			"on the way, and the cache lags.")

		table := l.Table("attempt", "reads", "and writes count=2", "to etcd")
		attempts := 0
		write := func(from string, read func(name string) *lab.Object) error {
			attempts++
			o := read("shelf")
			var err error
			sent := l.Record(func() { _, err = controller.TryReplace(o, "count=2") })
			table.Row(attempts, from+", at "+o.GetResourceVersion(), lab.AnswerLine(err), sent.Summary())
			return err
		}
		_, err := controller.TryReplace(cache.Get("shelf"), "count=1")
		l.Step(err, "the controller's first write")

		err = retry.RetryOnConflict(retry.DefaultRetry, func() error { return write("the cache", cache.Get) })
		fromCache := attempts
		live := write("the server", controller.Get)
		table.End()
		l.Say("The controller conflicts with itself: nobody else has written. retry.DefaultRetry makes %d attempts about "+
			"10 ms apart, and gives up. Each costs a Range because kube-apiserver's own cache is current: it sees the "+
			"conflict itself, and reads the key before it says so (CF2, GU5b). See also OT6c and OT16d, the same with kube-apiserver's cache, and OT16b, how to wait.", fromCache)

		l.Refused(err, "the write from the cache", lab.Refusal{Code: 409, Reason: metav1.StatusReasonConflict})
		l.Expect(fromCache == retry.DefaultRetry.Steps, "every attempt of the loop conflicts",
			"%d attempts were made", fromCache)
		l.Accepted(live, "the write from a live read")
	})
}

func TestOT16b_ACacheThatHasReachedAWriteShowsIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16b", From: "D2 paragraph 4",
		Says: "a cache that has reached the resourceVersion of a write shows that write: wait for that with " +
			"LastStoreSyncResourceVersion, and what is read from the cache can be written",
		Why: "an older number is a reason to wait or to read live, and not an error: an error would only read the same " +
			"cache again",
		FalseIf: world.AnEventIsSwallowed.Shows(`the write from the cache was refused: 409 Conflict`),
		Read:    source.Decl("k8s.io/client-go/tools/cache", "Store.LastStoreSyncResourceVersion"),
		Answers: "#24 #29",
	}, func(l *lab.Lab) {
		controller := l.As("controller")
		l.Create("shelf", "count=0")
		cache := controller.Informer()
		held := l.Wire.HoldWatches("controller")
		wrote := controller.Replace(cache.Get("shelf"), "count=1")
		fence := l.Rival().Create("fence", "color=red")

		l.Say("The cache is that of an informer, in the memory of the controller. Its watch is held from before the controller's " +
			"write until the last row.")
		table := l.Table("the controller has written shelf at "+wrote.GetResourceVersion(), "cache reached", "shelf in the cache", "so")
		row := func(when string) (order int) {
			order, err := l.Order(cache.Reached(), wrote.GetResourceVersion())
			l.Step(err, "comparing what the cache has reached with what was written")
			o := cache.Get("shelf")
			table.Row(when, cache.Reached(), o.GetResourceVersion()+", count="+lab.Field(o, "count"),
				map[bool]string{true: "too old, wait", false: "read it"}[order < 0])
			return order
		}
		for _, when := range []string{"at once", "asked again", "and again"} {
			l.Expect(row(when) < 0, "the cache has not reached the write while its watch is held", "it has reached %s", cache.Reached())
		}
		held.Release()
		cache.WaitFor(fence.GetResourceVersion())
		row("once its watch goes on")
		table.End()

		_, err := controller.TryReplace(cache.Get("shelf"), "count=2")
		l.Accepted(err, "the write from the cache")
		l.Stored(wrote, "count=2")
	})
}

func TestOT16c_ControllerRuntimeWaitsForItsOwnWriteIfAskedTo(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16c", From: "D2 paragraph 4",
		Says: "a client of controller-runtime reads from its cache and may not see its own write; with " +
			"EnableReadYourWritesConsistency it waits until the cache has reached that write",
		Why: "the option is off by default (and experimental in 0.25), so a reconciler that reads back what it wrote " +
			"may decide on the state before its own write",
		FalseIf: world.AnEventIsSwallowed.Shows(`it read count=0`),
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/client", "CacheOptions.EnableReadYourWritesConsistency"),
		Answers: "#24",
	}, func(l *lab.Lab) {
		l.Create("shelf", "count=0")
		plain, consistent := l.As("controller").CachedControllers()
		read := func(ctx context.Context, from client.Client) (*corev1.ConfigMap, error) {
			var shelf corev1.ConfigMap
			err := from.Get(ctx, client.ObjectKey{Namespace: l.Namespace, Name: "shelf"}, &shelf)
			return &shelf, err
		}
		shelf, err := read(l.Context(), plain)
		l.Step(err, "reading from the cache, which fills it")

		held := l.Wire.HoldWatches("controller")
		shelf.Data["count"] = "1"
		l.Step(consistent.Update(l.Context(), shelf), "the controller's write")
		l.Rival().Create("fence", "color=red")

		table := l.Table("Get by the client", "while the watch is held", "when it goes on")
		stale, err := read(l.Context(), plain)
		l.Step(err, "reading with the plain client")
		// The cache cannot catch up, so however long the deadline, the read ends with it.
		short, cancel := context.WithTimeout(l.Context(), 50*time.Millisecond)
		defer cancel()
		_, waited := read(short, consistent)
		held.Release()
		fresh, err := read(l.Context(), consistent)
		l.Step(err, "reading with the client that waits")
		table.Row("as it is by default", "count="+stale.Data["count"], "(count=1 sooner or later)")
		table.Row("EnableReadYourWritesConsistency", "waits until the context ends", "count="+fresh.Data["count"])
		table.End()

		l.Expect(stale.Data["count"] == "0", "the plain client reads what the cache has, count=0", "it read count=%s", stale.Data["count"])
		l.Expect(errors.Is(waited, context.DeadlineExceeded), "the other waits as long as its context allows", "it ended with: %v", waited)
		l.Expect(fresh.Data["count"] == "1", "and reads its own write as soon as the cache has it", "it read count=%s", fresh.Data["count"])
		fresh.Data["count"] = "2"
		l.Accepted(consistent.Update(l.Context(), fresh), "the write from what it read")
	})
}

func TestOT16d_TheApiserversOwnCacheMayBeOldToo(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16d", From: "D2 paragraph 4",
		Says: "a read with resourceVersion 0 is answered from kube-apiserver's own cache, which can lag as well: what it gives " +
			"conflicts again and again, and each time it is etcd that says so; a read without a number is current",
		Why: "a read that goes to the server is not yet a live read: a cheap one may be as old as an informer's",
		FalseIf: world.AProxyStripsTheRevision.Shows(
			`a replace from a read with "0" was accepted`),
		AlsoFalseIf: []world.World{world.AProxyKeepsAnswers.Shows(`a replace from a read without a number was refused: 409 Conflict`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*CacheDelegator).Get"),
		Answers:     "#24 #62",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		created := shelves.Create("shelf", "count=0")
		_, err := shelves.TryGetAt("shelf", created.GetResourceVersion())
		l.Step(err, "waiting until the cache of kube-apiserver has shelf")
		l.Wire.Freeze(kind.StoragePrefix())
		shelves.Replace(created, "count=1")
		l.Say("The cache is kube-apiserver's own; the client has none. From here on kube-apiserver's watch on etcd is held, so its cache " +
			"does not learn of count=1, which is in etcd.")

		table := l.Table("read with", "gets", "replace from it", "to etcd")
		try := func(title, resourceVersion string) error {
			o, err := shelves.TryGetAt("shelf", resourceVersion)
			l.Step(err, "reading shelf with "+title)
			sent := l.Record(func() { _, err = shelves.TryReplace(o, "count=2") })
			table.Row(title, o.GetResourceVersion()+", count="+lab.Field(o, "count"), lab.AnswerLine(err), sent.Summary())
			if err != nil {
				l.Sends(sent, "a replace from "+title, "1 Txn")
			}
			return err
		}
		for range 3 {
			l.Refused(try(`"0"`, "0"), `a replace from a read with "0"`, lab.Stale(created))
		}
		err = try("no number", "")
		table.End()
		l.Say("In OT16 a 409 costs a read, here a transaction: the stale cache lets the replace pass, and the compare in etcd fails " +
			"(CF3b). In the last row the stale cache sees a conflict where there is none, which is not believed before the key was " +
			"read (GU5b). A list with \"0\" is answered from the cache as well (RV10): a client that begins with one after its " +
			"restart may see a state older than the one it knew. See also OT6c, the same in a retry.")
		l.Accepted(err, "a replace from a read without a number")
	})
}

func TestOT40_AnAnswerPutIntoACacheByHandDoesNotMakeItCurrent(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT40", From: "D2 paragraph 4; +",
		Says: "to put the answer to one's own write into the cache's store does not make the cache current: it can move it " +
			"backwards, and nothing puts that right before the next event of that object; put in ahead of the watch, it is " +
			"taken out again by an older event that was still on its way",
		Why: "a cache has one writer, its watch; whoever helps it along can freeze it on the past, and every write from " +
			"it then conflicts",
		FalseIf:     world.ClientDropsTheToken.Shows(`was accepted`),
		AlsoFalseIf: []world.World{world.CachesNeverGoBack.Shows(`the rival's event moved the cache from \d+ to \d+`)},
		Read:        source.Decl("k8s.io/client-go/tools/cache", "processDeltas"),
		Answers:     "#66",
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red")
		controller := l.As("controller")
		cache := controller.Informer()
		table := l.Table("step", "stored", "in the cache")
		stored := ""
		row := func(step string) { table.Row(step, stored, cache.Get("shelf").GetResourceVersion()) }

		wrote := controller.Replace(cache.Get("shelf"), "color=blue")
		theirs := l.Rival().Set("shelf", "size=9")
		stored = theirs.GetResourceVersion()
		cache.WaitFor(stored)
		row("the controller has written " + wrote.GetResourceVersion() + ", a rival " + stored + ", and the cache knows")
		l.Step(cache.Store().Update(wrote), "putting the answer into the store")
		row("the controller puts its answer into the store")
		fence := l.Rival().Create("fence", "color=red")
		cache.WaitFor(fence.GetResourceVersion())
		row("the watch goes on, up to " + fence.GetResourceVersion())

		_, first := controller.TryReplace(cache.Get("shelf"), "color=green")
		_, second := controller.TryReplace(cache.Get("shelf"), "color=green")
		last := l.Rival().Set("shelf", "size=10")
		stored = last.GetResourceVersion()
		cache.WaitFor(stored)
		row("a rival writes again")
		_, healed := controller.TryReplace(cache.Get("shelf"), "color=green")
		table.End()
		l.Say("Two replaces from the cache in between: %s, %s. One after the rival's second write: %s.",
			lab.AnswerLine(first), lab.AnswerLine(second), lab.AnswerLine(healed))

		l.Refused(first, "a replace from the cache", lab.Stale(wrote))
		l.Refused(second, "the same once more", lab.Stale(wrote))
		l.Accepted(healed, "a replace after the next event of the object")

		// The other order: the answer is in the store before the watch delivers what is older.
		cache.WaitFor(l.Get("shelf").GetResourceVersion())
		held := l.Wire.HoldWatches("controller")
		older := l.Rival().Set("shelf", "size=11").GetResourceVersion()
		newer := controller.Replace(controller.Get("shelf"), "color=white")
		stored = newer.GetResourceVersion()
		table = l.Table("step, with the watch held at first", "stored", "in the cache")
		row("a rival has written " + older + ", the controller, from a live read, " + stored)
		moves := cache.Moves("shelf")
		l.Step(cache.Store().Update(newer), "putting the answer into the store")
		row("the controller puts its answer into the store")
		held.Release()
		went := moves(2)
		table.Row("the watch goes on: the rival's event", stored, went[0].To)
		table.Row("and the controller's own", stored, went[1].To)
		table.End()
		l.Say("To see one's own write, wait until the cache has reached it (OT16b), or read live.")
		l.Expect(went[0] == lab.Move{From: stored, To: older}, "the older event takes the newer answer out of the cache",
			"the rival's event moved the cache from %s to %s", went[0].From, went[0].To)
		l.Expect(went[1] == lab.Move{From: older, To: stored}, "the event of the controller's own write puts that right",
			"the event of the controller's own write moved it from %s to %s", went[1].From, went[1].To)
	})
}

func TestOT41_AbsenceFromACacheIsNotAbsence(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT41", From: "D2 paragraph 4; +",
		Says: "that an object is not in a cache does not mean that it does not exist: with a name of its own the second " +
			"create is refused, with a generated name every look into the cache makes one more",
		Why: "a deterministic name lets the apiserver decide who was first; a generated name takes that decision away " +
			"from it",
		FalseIf:     world.ClientNamesWhatItCreates.Shows(`three looks made 1 `),
		AlsoFalseIf: []world.World{world.EtcdIgnoresTheCompareOfACreate.Shows(`a later create by name was accepted`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Create"),
		Answers:     "#67 #68",
	}, func(l *lab.Lab) {
		controller := l.As("controller")
		cache := controller.Informer()
		l.Wire.HoldWatches("controller")
		l.Say("The cache is that of an informer, in the memory of the controller, and its watch is held.")

		table := l.Table("look", "child in the cache", "create shelf-child", "create generateName: shelf-child-")
		var named []error
		var generated []string
		for i := 1; i <= 3; i++ {
			_, err := cache.TryGet("shelf-child")
			l.Expect(lab.IsNotFound(err), "the cache does not know the child", "it answered: %v", err)
			_, fixed := controller.TryCreate("shelf-child", "color=red")
			byName := l.Answered()
			o := controller.New("", "color=red")
			o.SetGenerateName("shelf-child-")
			_, _ = controller.TryCreateObject(o) // what came of it is the answer
			named, generated = append(named, fixed), append(generated, l.Answered())
			table.Row(i, "none", byName, l.Answered())
		}
		table.End()

		var children []string
		for _, o := range controller.List().Items {
			if strings.HasPrefix(o.GetName(), "shelf-child-") {
				children = append(children, o.GetName())
			}
		}
		l.Say("Stored: shelf-child, once; and %s. Whoever is told AlreadyExists looks whose child it is: see OT23c.", strings.Join(children, ", "))
		l.Accepted(named[0], "the first create by name")
		for _, err := range named[1:] {
			l.Refused(err, "a later create by name", lab.Refusal{Code: 409, Reason: metav1.StatusReasonAlreadyExists})
		}
		l.Expect(len(children) == 3, "with a generated name, three looks make three objects",
			"three looks made %d with a generated name; the creates were answered: %s", len(children), strings.Join(generated, ", "))
	})
}

func TestOT17_ATokenThatMovedIsNotTheConditionYouWaitFor(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT17", From: "D2 paragraph 4",
		Says: "wait for the condition that you need, and not for a greater resourceVersion: any change moves the number, and " +
			"a write after which the same bytes would be stored does not move it",
		Why: "whoever waits for a number goes on when somebody touches a label, and waits for ever when the work was " +
			"done already",
		FalseIf:     world.EveryWriteDoesTheWork.Shows(`color=blue`),
		AlsoFalseIf: []world.World{world.StoredInAnotherEncoding.Shows(`the watch delivered shelf at`)},
		Read:        source.Decl("k8s.io/client-go/tools/watch", "UntilWithSync"),
		Answers:     "#56",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		watch := l.Watch(shelf.GetResourceVersion())
		l.As("labeller").Set("shelf", "metadata.labels.room=12")
		l.As("annotator").Set("shelf", "metadata.annotations.seen=today")
		l.As("painter").Set("shelf", "color=blue")

		table := l.Table("event", "resourceVersion", "greater than "+shelf.GetResourceVersion()+"?", "color=blue?")
		number, field := "", ""
		for field == "" {
			ev := watch.Next()
			order, err := l.Order(ev.ResourceVersion, shelf.GetResourceVersion())
			l.Step(err, "comparing "+ev.ResourceVersion)
			color := lab.Field(ev.Object, "color")
			if number == "" && order > 0 {
				number = color
			}
			if color == "blue" {
				field = ev.ResourceVersion
			}
			table.Row(ev.Type, ev.ResourceVersion, map[bool]string{true: "yes, go on", false: "no"}[order > 0],
				map[bool]string{true: "yes, go on", false: "no, color=" + color}[color == "blue"])
		}
		table.End()
		l.Expect(number == "red", "the first greater number comes with color=red: the work is not done",
			"the first greater number came with color=%s", number)

		same := l.As("painter").Set("shelf", "color=blue")
		fence := l.Create("fence", "color=red")
		after := watch.Next()
		l.Say("The painter paints it blue again: 200, resourceVersion %s as before. The next event of the watch is that of "+
			"another object, at %s: a greater number of shelf does not come. Had shelf been stored in another "+
			"encoding than the server's present one, it would: see RV8b. UntilWithSync in client-go waits for a condition, and "+
			"begins with what is there.", same.GetResourceVersion(), after.ResourceVersion)
		l.Expect(same.GetResourceVersion() == field && after.ResourceVersion == fence.GetResourceVersion(),
			"a write that stores the same bytes brings no number and no event", "it is at %s; the watch delivered %s at %s",
			same.GetResourceVersion(), after.Name, after.ResourceVersion)
	})
}
