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

// Caches.

func TestOpaqueTokenFromALaggingCacheConflictsAgainAndAgain(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16", From: "D2 paragraph 4",
		Says: "a cache can lag behind a write that succeeded: to read it again and overwrite from it conflicts again and " +
			"again, however often it is tried; one live read ends that",
		Why: "a retry is no better than what it reads; a loop that reads an informer's cache only repeats itself until " +
			"the cache happens to catch up",
		FalseIf:     world.ClientDropsTheToken.Shows(`was accepted`),
		AlsoFalseIf: []world.World{world.AProxyKeepsAnswers.Shows(`the write from a live read was refused: 409 Conflict`)},
		Read:        source.Func("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers:     "#24",
	}, func(l *lab.Lab) {
		l.Create("shelf", "count=0")
		l.Get("shelf") // a proxy, if there is one, has seen it now
		controller := l.As("controller")
		cache := controller.Informer()
		l.Wire.HoldWatches("controller") // from here on the cache lags

		table := l.Table("attempt", "reads", "and writes count=2", "to etcd")
		attempts := 0
		write := func(from string, read func(name string) *lab.Object) error {
			attempts++
			o := read("shelf")
			var err error
			sent := l.Record(func() { _, err = controller.TryReplace(o, "count=2") })
			table.Row(attempts, from+", "+o.GetResourceVersion(), lab.Brief(err), sent.Summary())
			return err
		}
		_, err := controller.TryReplace(cache.Get("shelf"), "count=1")
		l.Step(err, "the controller's first write")

		err = retry.RetryOnConflict(retry.DefaultRetry, func() error { return write("the cache", cache.Get) })
		fromCache := attempts
		live := write("the server", controller.Get)
		table.End()
		l.Blank()
		l.Say("The controller conflicts with itself: nobody else has written. retry.DefaultRetry makes %d attempts about "+
			"10 ms apart, and gives up.", fromCache)

		l.Refused(err, "the write from the cache", 409, metav1.StatusReasonConflict)
		l.Expect(fromCache == retry.DefaultRetry.Steps, "every attempt of the loop conflicts",
			"%d attempts were made", fromCache)
		l.Accepted(live, "the write from a live read")
	})
}

func TestOpaqueTokenOfAWriteSaysHowFarACacheMustHaveCome(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16b", From: "D2 paragraph 4",
		Says: "a cache that has reached the resourceVersion of a write shows that write: wait for that with " +
			"LastStoreSyncResourceVersion, and what is read from the cache can be written",
		Why: "an older number is a reason to wait or to read live, and not an error: an error would only read the same " +
			"cache again",
		FalseIf: world.AnEventIsSwallowed.Shows(`the write from the cache was refused: 409 Conflict`),
		Read:    source.Func("k8s.io/client-go/tools/cache", "Store.LastStoreSyncResourceVersion"),
		Answers: "#24 #29",
	}, func(l *lab.Lab) {
		controller := l.As("controller")
		l.Create("shelf", "count=0")
		cache := controller.Informer()
		held := l.Wire.HoldWatches("controller")
		wrote := controller.Replace(cache.Get("shelf"), "count=1")
		fence := l.Rival().Create("fence", "color=red")

		table := l.Table("the controller has written shelf at "+wrote.GetResourceVersion(), "cache reached", "shelf in the cache", "")
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

func TestOpaqueTokenIsWaitedForByControllerRuntimeIfAskedTo(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16c", From: "D2 paragraph 4",
		Says: "a client of controller-runtime reads from its cache and may not see its own write; with " +
			"EnableReadYourWritesConsistency it waits until the cache has reached that write",
		Why: "the option is off by default (and experimental in 0.25), so a reconciler that reads back what it wrote " +
			"may decide on the state before its own write",
		FalseIf: world.AnEventIsSwallowed.Shows(`it read count=0`),
		Read:    source.Func("sigs.k8s.io/controller-runtime/pkg/client", "CacheOptions.EnableReadYourWritesConsistency"),
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

func TestOpaqueTokenPutIntoACacheByHandIsNotHealed(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT40", From: "D2 paragraph 4, +",
		Says: "to put the answer to one's own write into the cache's store does not make the cache current: it can move it " +
			"backwards, and nothing puts that right before the next event of that object",
		Why: "a cache has one writer, its watch; whoever helps it along can freeze it on the past, and every write from " +
			"it then conflicts",
		FalseIf: world.ClientDropsTheToken.Shows(`was accepted`),
		Read:    source.Func("k8s.io/client-go/tools/cache", "processDeltas"),
		Answers: "#66",
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
		l.Blank()
		l.Say("Two replaces from the cache in between: %s, %s. One after the rival's second write: %s.",
			lab.Brief(first), lab.Brief(second), lab.Brief(healed))

		l.Conflicts(first, "a replace from the cache", wrote)
		l.Conflicts(second, "the same once more", wrote)
		l.Accepted(healed, "a replace after the next event of the object")
	})
}

func TestOpaqueTokenCannotBeHadOfWhatACacheDoesNotKnow(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT41", From: "D2 paragraph 4, +",
		Says: "that an object is not in a cache does not mean that it does not exist: with a name of its own the second " +
			"create is refused, with a generated name every look into the cache makes one more",
		Why: "a deterministic name lets the apiserver decide who was first; a generated name takes that decision away " +
			"from it",
		FalseIf: world.ClientNamesWhatItCreates.Shows(`three looks made 1 `),
		Read:    source.Func("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Create"),
		Answers: "#67 #68",
	}, func(l *lab.Lab) {
		controller := l.As("controller")
		cache := controller.Informer()
		l.Wire.HoldWatches("controller")

		table := l.Table("look", "child in the cache", "create shelf-child", "create generateName: shelf-child-")
		var named, generated []error
		for i := 1; i <= 3; i++ {
			_, err := cache.TryGet("shelf-child")
			l.Expect(lab.IsNotFound(err), "the cache does not know the child", "it answered: %v", err)
			_, fixed := controller.TryCreate("shelf-child", "color=red")
			o := controller.New("", "color=red")
			o.SetGenerateName("shelf-child-")
			_, free := controller.TryCreateObject(o)
			named, generated = append(named, fixed), append(generated, free)
			table.Row(i, "none", strings.Replace(lab.Brief(fixed), "200", "201", 1), strings.Replace(lab.Brief(free), "200", "201", 1))
		}
		table.End()

		var children []string
		for _, o := range controller.List().Items {
			if strings.HasPrefix(o.GetName(), "shelf-child-") {
				children = append(children, o.GetName())
			}
		}
		l.Blank()
		l.Say("Stored: shelf-child, once; and %s.", strings.Join(children, ", "))
		l.Accepted(named[0], "the first create by name")
		for _, err := range named[1:] {
			l.Refused(err, "a later create by name", 409, metav1.StatusReasonAlreadyExists)
		}
		l.Expect(len(children) == 3, "with a generated name, three looks make three objects",
			"three looks made %d object with a generated name: %v", len(children), generated)
	})
}

func TestOpaqueTokenThatMovedIsNotTheConditionYouWaitFor(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT17", From: "D2 paragraph 4",
		Says: "wait for the condition that you need, and not for a greater resourceVersion: any write moves the number, and " +
			"a write that changes nothing does not move it",
		Why: "whoever waits for a number goes on when somebody touches a label, and waits for ever when the work was " +
			"done already",
		FalseIf: world.EveryWriteDoesTheWork.Shows(`color=blue`),
		Read:    source.Func("k8s.io/client-go/tools/watch", "UntilWithoutRetry"),
		Answers: "#56",
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
		l.Blank()
		l.Say("The painter paints it blue again: 200, resourceVersion %s as before. The next event of the watch is that of "+
			"another object, at %s: a greater number of shelf does not come.", same.GetResourceVersion(), after.ResourceVersion)
		l.Expect(same.GetResourceVersion() == field && after.ResourceVersion == fence.GetResourceVersion(),
			"a write that changes nothing brings no number and no event", "it is at %s; the watch delivered %s at %s",
			same.GetResourceVersion(), after.Name, after.ResourceVersion)
	})
}
