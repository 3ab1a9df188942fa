package modrev

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

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
