package modrev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"modrev/helpers/answer"
	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
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
			table.Row(attempts, from+", at "+o.GetResourceVersion(), lab.Brief(err), sent.Summary())
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

func TestOpaqueTokenFromTheApiserversOwnCacheMayBeOldToo(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16d", From: "D2 paragraph 4",
		Says: "a read with resourceVersion 0 is answered from kube-apiserver's own cache, which can lag as well: what it gives " +
			"conflicts again and again, and each time it is etcd that says so; a read without a number is current",
		Why: "a read that goes to the server is not yet a live read: a cheap one may be as old as an informer's",
		FalseIf: world.AProxyStripsTheRevision.Shows(
			`a replace from a read with "0" was accepted`),
		Read:    source.Func("k8s.io/apiserver/pkg/storage/cacher", "(*CacheDelegator).Get"),
		Answers: "#24 #62",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		created := shelves.Create("shelf", "count=0")
		_, err := shelves.TryGetAt("shelf", created.GetResourceVersion())
		l.Step(err, "waiting until the cache of kube-apiserver has shelf")
		l.Wire.Freeze(kind.StoragePrefix())
		shelves.Replace(created, "count=1")

		table := l.Table("read with", "gets", "replace from it", "to etcd")
		try := func(title, resourceVersion string) error {
			o, err := shelves.TryGetAt("shelf", resourceVersion)
			l.Step(err, "reading shelf with "+title)
			sent := l.Record(func() { _, err = shelves.TryReplace(o, "count=2") })
			table.Row(title, o.GetResourceVersion()+", count="+lab.Field(o, "count"), lab.Brief(err), sent.Summary())
			if err != nil {
				l.Sends(sent, "a replace from "+title, "1 Txn")
			}
			return err
		}
		for range 3 {
			l.Conflicts(try(`"0"`, "0"), `a replace from a read with "0"`, created)
		}
		err = try("no number", "")
		table.End()
		l.Accepted(err, "a replace from a read without a number")
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
			byName := l.Answered()
			o := controller.New("", "color=red")
			o.SetGenerateName("shelf-child-")
			_, free := controller.TryCreateObject(o)
			named, generated = append(named, fixed), append(generated, free)
			table.Row(i, "none", byName, l.Answered())
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

// Telling errors apart.

func TestOpaqueTokenRefusalsNeedDifferentNextSteps(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21", From: "D2 paragraph 5",
		Says: "a conflict is one refusal among many, and each needs another next step; status, reason and causes tell them " +
			"apart, so no message has to be read",
		Why: "to treat every error as a conflict repeats what can never succeed, and to treat every 409 alike retries what " +
			"no retry can settle",
		FalseIf: world.AGatewayHidesTheReason.Shows(`an apply to another manager's field: 409 Conflict, read, decide again`),
		Read:    source.Func("k8s.io/apimachinery/pkg/api/errors", "ReasonForError"),
		Answers: "#22 #32 #61 #70",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		moved := l.Create("moved", "color=red")
		l.Rival().Set("moved", "color=blue")
		gone := l.Create("gone", "color=red")
		l.Delete("gone")
		old := l.Create("again", "color=red")
		l.Recreate("again", "color=white")
		leaving := l.New("leaving", "color=red")
		leaving.SetFinalizers([]string{"modrev.example/wait"})
		_, err := l.TryCreateObject(leaving)
		l.Step(err, "creating an object with a finalizer")
		l.Delete("leaving")
		_, err = l.Rival().TryApply("owned", "rival", false, "color=red")
		l.Step(err, "the rival's apply")
		shelves := l.Of(l.CustomResource())
		custom := shelves.Create("custom", "color=red")
		eviction := l.ForbiddenEviction()

		table := l.Table("request", "answer", "next step")
		used := map[answer.Step]bool{}
		try := func(what, want string, next answer.Step, err error) {
			step, stored := answer.Next(err)
			got := lab.Brief(err)
			for _, c := range []metav1.CauseType{metav1.CauseTypeFieldManagerConflict, metav1.CauseTypeResourceVersionTooLarge} {
				if lab.HasCause(err, c) {
					got += ", " + string(c)
				}
			}
			l.Expect(step == next && got == want && stored == answer.No, what+": "+want+", "+next.String()+", nothing stored",
				"%s: %s, %s, stored: %s", what, got, step, stored)
			table.Row(what, got, step)
			used[step] = true
		}
		replace := func(c *lab.Client, o *lab.Object) error { _, err := c.TryReplace(o, "color=green"); return err }
		ignore := func(_ any, err error) error { return err }

		try("a body that is no JSON", "400 BadRequest", answer.MendTheRequest,
			ignore(l.TryRaw(http.MethodPut, l.Path("shelf"), "", []byte("{"))))
		try("a bearer token that nobody issued", "401 Unauthorized", answer.ProveWhoYouAre,
			replace(l.AsBearer("nobody", "not-issued"), shelf))
		try("a user without a role", "403 Forbidden", answer.GetTheRight, replace(l.AsUser("stranger"), moved))
		try("a replace after a delete", "404 NotFound", answer.CleanUpByUID, replace(l.Client, gone))
		try("a create under a name that is taken", "409 AlreadyExists", answer.SeeWhoseItIs,
			ignore(l.TryCreate("shelf", "color=green")))
		try("the same while it is being deleted", "409 AlreadyExists", answer.SeeWhoseItIs,
			ignore(l.TryCreate("leaving", "color=green")))
		try("a replace with a stale token", "409 Conflict", answer.ReadAndDecideAgain, replace(l.Client, moved))
		try("a replace with the uid of before", "409 Conflict", answer.ReadAndDecideAgain,
			replace(l.Client, lab.WithToken(old, "")))
		try("an apply to another manager's field", "409 Conflict, FieldManagerConflict", answer.SettleTheOwner,
			ignore(l.TryApply("owned", "writer", false, "color=green")))
		watch, err := shelves.TryWatch(metav1.ListOptions{ResourceVersion: "1"})
		l.Step(err, "watching from revision 1")
		try("a watch from revision 1", "410 Expired", answer.ListAgain, ignore(watch.TryNext()))
		try("a patch format that the kind lacks", "415 UnsupportedMediaType", answer.MendTheRequest,
			ignore(shelves.TryPatch("custom", types.StrategicMergePatchType, `{"spec":{"color":"green"}}`)))
		try("no token where the kind wants one", "422 Invalid", answer.MendTheRequest, replace(shelves, lab.WithToken(custom, "")))
		try("a JSON patch whose test fails", "422 Invalid", answer.MendTheRequest,
			ignore(l.TryPatch("shelf", types.JSONPatchType, `[{"op":"test","path":"/data/color","value":"white"}]`)))
		try("a taken name with invalid data", "422 Invalid", answer.MendTheRequest, ignore(l.TryCreate("shelf", "a b=green")))
		try("an eviction that a budget forbids", "429 TooManyRequests", answer.WaitAndRepeat, l.TryEvict(eviction))
		try("a read from the future", "504 Timeout, ResourceVersionTooLarge", answer.WaitAndRepeat, l.FirstReadFromTheFuture().Err)
		table.End()

		l.Blank()
		l.Say("Whoever is given one of these answers knows that nothing was stored.")

		steps := l.Table("next step", "because")
		for step := answer.GoOn; step <= answer.Stop; step++ {
			if used[step] {
				steps.Row(step, step.Because())
			}
		}
		steps.End()
		l.Stored(shelf, "color=red")
		l.Stored(moved, "color=blue")
	})
}

func TestOpaqueTokenOfAWriteWithoutAnAnswerIsUnknown(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21b", From: "D2 paragraph 5",
		Says: "when the answer does not come, or is a 500 or a 504, nobody can say whether the write was stored: the same " +
			"words are heard when it was and when it was not; only a connection that never came about is a no",
		Why: "a lost answer is not a refusal; the one next step that is right in both cases is to read back and compare",
		FalseIf: world.UnansweredWritesAreUndone.Shows(
			`etcd does it, reports a timeout: 500, stored: no`),
		Read:    source.Func("k8s.io/apiserver/pkg/server/filters", "WithTimeoutForNonLongRunningRequests"),
		Answers: "#6 #8 #61 #68",
	}, func(l *lab.Lab) {
		put := func(ctx context.Context, c *lab.Client, o *lab.Object, query string) error {
			body, err := json.Marshal(lab.With(o, "color=green").Object)
			if err != nil {
				return err
			}
			_, err = c.TryRawWithin(ctx, http.MethodPut, c.Path(o.GetName()), query, body)
			return err
		}
		create := func(name string) (*lab.Object, wire.Match) {
			o := l.Create(name, "color=red")
			return o, wire.TxnOn(l.Key(o))
		}
		table := l.Table("what happens", "what the client gets", "stored", "known", "next step")
		row := func(what string, err error, o *lab.Object, want string, known answer.Stored, next answer.Step) {
			stored := map[bool]string{true: "yes", false: "no"}[lab.Field(l.Get(o.GetName()), "color") == "green"]
			step, knows := answer.Next(err)
			table.Row(what, lab.Root(err), stored, knows, step)
			l.Expect(err != nil && stored == want, what+": no answer, stored: "+want, "%s: %s, stored: %s", what, lab.Root(err), stored)
			l.Expect(step == next && knows == known, what+": "+next.String(), "%s: %s, %s", what, lab.Root(err), step)
		}

		// The deadlines run while the others are tried.
		lateBefore, txn := create("late-before")
		before := l.PastDeadline(l.Wire.Hold(txn), func(q string) error { return put(l.Context(), l.As("late"), lateBefore, q) })
		lateAfter, txn := create("late-after")
		after := l.PastDeadline(l.Wire.HoldAnswer(txn), func(q string) error { return put(l.Context(), l.As("late"), lateAfter, q) })

		o, _ := create("unplugged-before")
		row("nobody listens at the address", put(l.Context(), l.As("unplugged").Unplugged(), o, ""), o, "no", answer.No, answer.WaitAndRepeat)

		o, txn = create("etcd-before")
		l.Wire.Add(&wire.Rule{When: txn, Err: rpctypes.ErrGRPCTimeout})
		no := put(l.Context(), l.Client, o, "")
		row("etcd refuses it, reports a timeout", no, o, "no", answer.Unknown, answer.ReadBack)
		o, txn = create("etcd-after")
		l.Wire.Add(&wire.Rule{When: txn, Lost: rpctypes.ErrGRPCTimeout})
		yes := put(l.Context(), l.Client, o, "")
		row("etcd does it, reports a timeout", yes, o, "yes", answer.Unknown, answer.ReadBack)
		l.Expect(lab.Brief(no) == lab.Brief(yes), "both get the same answer", "they get %s and %s", lab.Brief(no), lab.Brief(yes))

		cut, cable := l.As("cut").OnCable()
		o, txn = create("cut-before")
		err := l.Interrupted(l.Wire.Hold(txn), func() error { return put(l.Context(), cut, o, "") }, cable.Cut)
		row("the connection breaks before", err, o, "no", answer.Unknown, answer.ReadBack)
		o, txn = create("cut-after")
		err = l.Interrupted(l.Wire.HoldAnswer(txn), func() error { return put(l.Context(), cut, o, "") }, cable.Cut)
		row("the connection breaks after", err, o, "yes", answer.Unknown, answer.ReadBack)

		ctx, cancel := context.WithCancel(l.Context())
		o, txn = create("cancelled-before")
		err = l.Interrupted(l.Wire.Hold(txn), func() error { return put(ctx, l.Client, o, "") }, cancel)
		row("the caller cancels it before", err, o, "no", answer.Unknown, answer.Stop)
		ctx, cancel = context.WithCancel(l.Context())
		o, txn = create("cancelled-after")
		err = l.Interrupted(l.Wire.HoldAnswer(txn), func() error { return put(ctx, l.Client, o, "") }, cancel)
		row("the caller cancels it after", err, o, "yes", answer.Unknown, answer.Stop)

		// What words these two get is up to a race within kube-apiserver, so they are not asked to be the same.
		row("its deadline ends before", before.Wait(), lateBefore, "no", answer.Unknown, answer.ReadBack)
		row("its deadline ends after", after.Wait(), lateAfter, "yes", answer.Unknown, answer.ReadBack)
		table.End()
		l.Blank()
		l.Say("At a deadline kube-apiserver answers 504; when that catches it in the middle of another answer, it breaks off " +
			"the stream instead.")
	})
}

func TestOpaqueTokenMayBeSentElevenTimesByOneCall(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21c", From: "D2 paragraph 5, +",
		Says: "one call of client-go can be eleven requests: it repeats by itself what is answered with a 429 or a 5xx and a " +
			"Retry-After, and a GET whose connection broke; a write whose connection broke it sends once",
		Why: "an own loop around such a call multiplies its requests; MaxRetries(0) makes it send one",
		FalseIf: world.TheServerNeverSaysWhenToRepeat.Shows(
			`an eviction, 429 .*: 1 request`),
		Read:    source.Func("k8s.io/client-go/rest", "(*withRetry).IsNextRetry"),
		Answers: "#8 #61",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		body, err := json.Marshal(lab.With(shelf, "color=green").Object)
		l.Step(err, "encoding shelf")
		eviction := l.ForbiddenEviction()
		client, cable := l.As("client").OnCable()
		// The connection breaks once, when the request is at etcd's door.
		cutOnce := func(when wire.Match) {
			l.Wire.Add(&wire.Rule{When: when, Times: 1, Do: func(int) { cable.Cut() }})
		}

		table := l.Table("one call", "requests", "and ends with")
		count := func(what string, want int, do func() error) {
			from := l.Wire.Tape().Now()
			err := do()
			n := len(l.Wire.Tape().Calls(from))
			table.Row(what, n, lab.Root(err))
			l.Expect(n == want, fmt.Sprintf("%s: %d requests", what, want), "%s: %d request(s)", what, n)
		}
		count("an eviction, 429 and Retry-After: 10", 11, func() error {
			return client.TryRawByDefault(http.MethodPost, eviction.Path, "", eviction.Body)
		})
		count("the same with MaxRetries(0)", 1, func() error { return client.TryEvict(eviction) })
		cutOnce(wire.ReadOf(l.Key(shelf)))
		count("a GET whose connection breaks", 2, func() error {
			return client.TryRawByDefault(http.MethodGet, client.Path("shelf"), "", nil)
		})
		cutOnce(wire.TxnOn(l.Key(shelf)))
		count("a PUT whose connection breaks", 1, func() error {
			return client.TryRawByDefault(http.MethodPut, client.Path("shelf"), "", body)
		})
		table.End()
	})
}

func TestOpaqueTokenThatExpiredIsGoneForGood(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21d", From: "D2 paragraph 5, +",
		Says: "410 is not a bad moment: the same resourceVersion is refused each time, and a fresh list, compared with what " +
			"one knew, leads on",
		Why: "a client that watches from a number of yesterday again and again never sees anything; and what was deleted " +
			"meanwhile it learns from the list only",
		FalseIf: world.AProxyStripsTheRevision.Shows(`attempt 1 delivered an event`),
		Read:    source.Func("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).getAllEventsSinceLocked"),
		Answers: "#60",
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		known := map[string]bool{} // what the client knew when it last listened
		for _, name := range []string{"a", "b"} {
			known[shelves.Create(name, "color=red").GetName()] = true
		}
		shelves.Delete("b")

		table := l.Table("request", "answer")
		for i := 1; i <= 3; i++ {
			watch, err := shelves.TryWatch(metav1.ListOptions{ResourceVersion: "1"})
			l.Step(err, "watching from revision 1")
			ev, err := watch.TryNext()
			table.Row(fmt.Sprintf("watch from 1, attempt %d", i), lab.Brief(err))
			l.Expect(err != nil, "a watch from revision 1 is refused", "attempt %d delivered an event: %s %s", i, ev.Type, ev.Name)
			l.Refused(err, "a watch from revision 1", http.StatusGone, metav1.StatusReasonExpired)
		}
		list := shelves.List()
		for _, o := range list.Items {
			delete(known, o.GetName())
		}
		table.Row("list", fmt.Sprintf("200, %d item, resourceVersion %s", len(list.Items), list.GetResourceVersion()))
		last := shelves.Create("c", "color=red")
		seen := shelves.Watch(list.GetResourceVersion()).Until(last.GetResourceVersion())
		table.Row("watch from "+list.GetResourceVersion(), seen[0].Type+" "+seen[0].Name)
		table.End()
		l.Blank()
		l.Say("The client knew of a and b. The list does not have b: so b was deleted, and no event will ever say so.")
		l.Expect(known["b"] && len(known) == 1, "the list tells by what it lacks that b was deleted", "it lacks %v", known)
		l.Expect(len(seen) == 1, "a watch from the list goes on with what comes next", "it delivered %d events", len(seen))
	})
}

func TestOpaqueTokenConflictShowsWhoseProgressItWas(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT20", From: "D2 paragraph 5",
		Says: "a conflict is evidence that somebody made progress: read again, and the object shows what changed and, in " +
			"managedFields, who changed it",
		Why:     "the next decision depends on what the other did; a conflict that is only counted and repeated wastes that",
		FalseIf: world.RivalSignsAsTheWriter.Shows(`color belongs to writer`),
		Read:    source.Func("k8s.io/apimachinery/pkg/util/managedfields", "NewDefaultFieldManager"),
		Answers: "#77",
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red", "size=9")
		mine := l.Get("shelf")
		l.Rival().Set("shelf", "color=blue")

		_, err := l.TryReplace(mine, "size=10")
		l.Conflicts(err, "the writer's replace", mine)
		now := l.Get("shelf")

		table := l.Table("field", "as the writer read it", "as it is now", "managed by")
		changed := []string{}
		for _, field := range []string{"color", "size"} {
			was, is := lab.Field(mine, field), lab.Field(now, field)
			table.Row(field, was, is, l.OwnersOf(now, field))
			if was != is {
				changed = append(changed, field)
			}
		}
		table.Row("resourceVersion", mine.GetResourceVersion(), now.GetResourceVersion(), "")
		table.End()
		l.Expect(slices.Equal(changed, []string{"color"}), "color changed, and nothing else", "%v changed", changed)
		l.Expect(l.OwnersOf(now, "color") == "rival by Update", "managedFields says that the rival changed color",
			"color belongs to %s", l.OwnersOf(now, "color"))

		again := l.Replace(now, "size=10")
		l.Blank()
		l.Say("The writer's change is about size, so it decides the same again, on what is there now: 200, color=%s, size=%s.",
			lab.Field(again, "color"), lab.Field(again, "size"))
		l.Stored(again, "color=blue", "size=10")
	})
}

func TestOpaqueTokenConflictMayBeYourOwnLostSuccess(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT22", From: "D2 paragraph 5",
		Says: "when a write was stored and its answer was lost, the same write sent again conflicts with its own success: 409, " +
			"although nobody else wrote; reading back and comparing shows that the work is done",
		Why:         "who takes the lost answer for a failure, or that 409 for somebody else's work, does the work twice",
		FalseIf:     world.TheFirst(http.MethodPut).Shows(`the same write sent again was accepted`),
		AlsoFalseIf: []world.World{world.ClientDropsTheToken.Shows(`the same write sent again was accepted`)},
		Read:        source.Func("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
		Answers:     "#6",
	}, func(l *lab.Lab) {
		const attempt = "metadata.annotations.attempt"
		table := l.Table("add 1 to count=0", "careful", "hasty")
		lost, again := map[string]error{}, map[string]error{}
		for _, who := range []string{"careful", "hasty"} {
			l.Wire.AddHTTP(&wire.HTTPRule{Lose: true, Times: 1, When: func(c *wire.Call) bool {
				return c.Who == who && c.Verb == http.MethodPut
			}})
			o := l.As(who).New(who, "count=0")
			o, err := l.As(who).TryCreateObject(o)
			l.Step(err, "creating "+who)
			mine := lab.With(o, "count=1", attempt+"="+who+"-1")
			_, lost[who] = l.As(who).TryReplace(mine)
			_, again[who] = l.As(who).TryReplace(mine)
			l.Expect(again[who] != nil, "the same write sent again is refused", "the same write sent again was accepted")
			l.Conflicts(again[who], "the same write sent again", o)
		}
		short := func(err error) string {
			if errors.Is(err, wire.ErrAnswerLost) {
				return "(no answer)"
			}
			return lab.Brief(err)
		}
		table.Row("replace, count=1, marked as attempt 1", short(lost["careful"]), short(lost["hasty"]))
		table.Row("the same again", short(again["careful"]), short(again["hasty"]))

		careful, hasty := l.As("careful").Get("careful"), l.As("hasty").Get("hasty")
		read := func(o *lab.Object) string { return "count=" + lab.Field(o, "count") + ", " + lab.Field(o, attempt) }
		table.Row("read back", read(careful), read(hasty))
		l.Expect(lab.Field(careful, attempt) == "careful-1", "what is stored carries the mark of the lost attempt",
			"it carries %q", lab.Field(careful, attempt))
		hasty = l.As("hasty").Replace(hasty, "count=2", attempt+"=hasty-2") // adds 1 to what it read
		table.Row("decides", "it is mine, so it is done", "somebody wrote, so add 1 again")
		table.Row("stored in the end", "count="+lab.Field(careful, "count"), "count="+lab.Field(hasty, "count"))
		table.Row("writes to storage since the create", l.KV(careful).Version-1, l.KV(hasty).Version-1)
		table.End()

		l.Expect(l.KV(careful).Version == 2, "the lost write was one storage write, and the conflict none",
			"the key has been written %d times", l.KV(careful).Version)
		l.Stored(careful, "count=1")
		l.Stored(hasty, "count=2") // although it was asked to add 1 once
	})
}

func TestOpaqueTokenAlreadyExistsMayBeYourself(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT23", From: "D2 paragraph 5",
		Says: "when the answer to a create is lost, the same create again is refused with AlreadyExists, in the same words as " +
			"when a stranger took the name; only what is stored there tells them apart",
		Why: "AlreadyExists after a retry is neither a success nor a failure; it is a reason to look, and there must be " +
			"something to look for, such as a mark of the attempt",
		FalseIf: world.TheFirst(http.MethodPost).Shows(`the create sent again was accepted`),
		Read:    source.Func("k8s.io/apiserver/pkg/storage/errors", "InterpretCreateError"),
		Answers: "#7",
	}, func(l *lab.Lab) {
		const attempt = "metadata.annotations.attempt"
		l.Wire.AddHTTP(&wire.HTTPRule{Lose: true, Times: 1, When: func(c *wire.Call) bool {
			return c.Who == "writer" && c.Verb == http.MethodPost
		}})
		_, lost := l.TryCreate("mine", "color=red", attempt+"=writer-1")
		_, mine := l.TryCreate("mine", "color=red", attempt+"=writer-1")
		l.Expect(mine != nil, "the create sent again is refused", "the create sent again was accepted")
		l.Rival().Create("theirs", "color=red", attempt+"=rival-7")
		_, theirs := l.TryCreate("theirs", "color=red", attempt+"=writer-2")

		table := l.Table("", "configmaps/mine", "configmaps/theirs")
		table.Row("the writer's create", map[bool]string{true: "(no answer)"}[errors.Is(lost, wire.ErrAnswerLost)], "")
		table.Row("the same again", lab.Brief(mine), lab.Brief(theirs))
		a, b := lab.Field(l.Get("mine"), attempt), lab.Field(l.Get("theirs"), attempt)
		table.Row("attempt that made it", a, b)
		table.Row("so it is", "mine: go on", "a stranger's: another name, or give up")
		table.End()
		l.Blank()
		l.Say("%s", l.Describe(mine))
		l.Say("%s", l.Describe(theirs))

		l.Refused(mine, "the create sent again", http.StatusConflict, metav1.StatusReasonAlreadyExists)
		l.Refused(theirs, "the create of a name that is taken", http.StatusConflict, metav1.StatusReasonAlreadyExists)
		l.Expect(strings.ReplaceAll(mine.Error(), "mine", "N") == strings.ReplaceAll(theirs.Error(), "theirs", "N"),
			"the words are the same but for the name", "they are %q and %q", mine, theirs)
		l.Expect(a == "writer-1" && b == "rival-7", "the mark tells whose each is", "the marks are %q and %q", a, b)
	})
}

func TestOpaqueTokenOfALostCreateWithAGeneratedNameMakesTwoObjects(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT23b", From: "D2 paragraph 5",
		Says: "when the answer to a create with generateName is lost and it is sent again, there are two objects, and no error " +
			"says so; with a name of the client's own there is one",
		Why: "nothing collides when the server makes the name, so nothing warns; the first object is an orphan of which " +
			"nobody knows",
		FalseIf: world.ClientNamesWhatItCreates.Shows(`the create sent again was refused: 409 AlreadyExists`),
		Read:    source.Func("k8s.io/apiserver/pkg/registry/rest", "BeforeCreate"),
		Answers: "#8 #68",
	}, func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{Lose: true, Times: 1, When: func(c *wire.Call) bool { return c.Verb == http.MethodPost }})
		o := l.New("", "color=red")
		o.SetGenerateName("shelf-")
		var second *lab.Object
		var first, err error
		sent := l.Record(func() {
			_, first = l.TryCreateObject(o)
			second, err = l.TryCreateObject(o)
		})
		l.Expect(errors.Is(first, wire.ErrAnswerLost), "the first answer is lost", "it is: %v", first)
		l.Accepted(err, "the create sent again")

		table := l.Table("create generateName: shelf-", "answer")
		table.Row("first", "(no answer)")
		table.Row("again", "201, "+second.GetName())
		table.End()
		l.Show("POST configmaps, twice", sent)
		list := l.List().Items
		names := make([]string, len(list))
		for i, o := range list {
			names[i] = o.GetName()
		}
		l.Blank()
		l.Say("Stored: %s. The client knows of %s.", strings.Join(names, ", "), second.GetName())
		l.Expect(len(list) == 2, "two objects are stored", "%d are: %v", len(list), names)
	})
}

func TestOpaqueTokenAlreadyExistsIsSettledByTheUIDOfTheOwner(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT23c", From: "D2 paragraphs 1, 5",
		Says: "whether a child that already exists is one's own says the uid in its controller's owner reference, not its name " +
			"and not the owner's name",
		Why:     "to fail for ever on one's own child is as wrong as to adopt the child of a past owner of the same name",
		FalseIf: world.UIDsBelongToNames.Shows(`the child of the past owner looks like ours`),
		Read:    source.Func("k8s.io/apimachinery/pkg/apis/meta/v1", "IsControlledBy"),
		Answers: "#69",
	}, func(l *lab.Lab) {
		childOf := func(owner *lab.Object, name string) *lab.Object {
			o := l.New(name, "color=red")
			o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
			return o
		}
		l.Create("owner", "a=1")
		past := l.Get("owner")
		_, err := l.TryCreateObject(childOf(past, "left-over"))
		l.Step(err, "creating a child of the past owner")
		l.Recreate("owner", "a=1")
		owner := l.Get("owner")
		_, err = l.TryCreateObject(childOf(owner, "child"))
		l.Step(err, "creating a child")

		table := l.Table("create again", "answer", "owner by name", "owner by uid", "so")
		ours := map[string]bool{}
		for _, name := range []string{"child", "left-over"} {
			_, err := l.TryCreateObject(childOf(owner, name))
			l.Refused(err, "the create of "+name, http.StatusConflict, metav1.StatusReasonAlreadyExists)
			there := l.Get(name)
			ours[name] = metav1.IsControlledBy(there, owner)
			table.Row(name, lab.Brief(err), there.GetOwnerReferences()[0].Name,
				map[bool]string{true: "the one that is", false: "one that was"}[ours[name]],
				map[bool]string{true: "adopt it", false: "not ours: fail"}[ours[name]])
		}
		table.End()
		l.Expect(ours["child"], "the child is ours", "the child looks like a stranger's")
		l.Expect(!ours["left-over"], "the child of the past owner is not ours", "the child of the past owner looks like ours")
	})
}

func TestOpaqueTokenNotFoundOrAnotherIncarnation(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT24", From: "D2 paragraph 5",
		Says: "a replace of what was deleted is 404; once the name is taken again, a replace with the uid is 409 and names both " +
			"uids, with the old token alone the ordinary 409, and with neither 200, onto a stranger",
		Why: "404 means that what belonged to the uid may be cleaned up; the uid in the next write is what keeps that " +
			"cleaning, and every retry, away from the new object",
		FalseIf: world.ClientDropsTheUID.Shows(`a replace with the uid alone was accepted`),
		Read:    source.Func("k8s.io/apiserver/pkg/storage", "(*Preconditions).Check"),
		Answers: "#11",
	}, func(l *lab.Lab) {
		old := l.Create("shelf", "color=red")
		sends := []struct {
			what string
			o    *lab.Object
		}{
			{"the uid alone", lab.WithToken(old, "")},
			{"the uid and the old token", old},
			{"the old token alone", lab.WithoutUID(old)},
			{"neither", lab.WithoutUID(lab.WithToken(old, ""))},
		}
		l.Delete("shelf")
		var gone []error
		for _, s := range sends {
			_, err := l.TryReplace(s.o, "color=green")
			gone = append(gone, err)
		}
		stranger := l.Rival().Create("shelf", "color=white")

		table := l.Table("a replace with", "while it is gone", "after a rival took the name", "words")
		words := map[string]string{}
		for i, s := range sends {
			_, err := l.TryReplace(s.o, "color=green")
			words[s.what] = l.Describe(err)
			table.Row(s.what, lab.Brief(gone[i]), lab.Brief(err), map[bool]string{
				true: "name both uids", false: map[bool]string{true: "the ordinary ones", false: ""}[err != nil],
			}[strings.Contains(words[s.what], string(stranger.GetUID()))])
			l.Refused(gone[i], "a replace of what is gone", http.StatusNotFound, metav1.StatusReasonNotFound)
			what := "a replace with " + s.what
			switch s.what {
			case "neither":
				l.Accepted(err, what)
			case "the old token alone":
				l.Conflicts(err, what, old)
			default:
				l.Refused(err, what, http.StatusConflict, metav1.StatusReasonConflict)
				want := fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", old.GetUID(), stranger.GetUID())
				l.Expect(strings.HasSuffix(words[s.what], want), "the refusal ends with: "+want, "it says: %s", words[s.what])
			}
		}
		table.End()
		l.Blank()
		l.Say("%s", words["the uid alone"])
		l.Blank()
		l.Say("The stranger's color=white is overwritten by the last of them.")
		l.Stored(stranger, "color=green")
		l.Expect(l.Get("shelf").GetUID() == stranger.GetUID(), "what was written is the stranger's object", "it is another")
	})
}

func TestOpaqueTokenlessWritesLandOnTheNextIncarnation(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT25", From: "D2 paragraphs 1, 5",
		Says: "a patch and an unconditional replace that are overtaken by delete and recreate are repeated by the server and land " +
			"on the new incarnation: 200, under another uid",
		Why: "the server repeats what carries no precondition on whatever stands under the name then; whoever means one " +
			"incarnation has to say so",
		FalseIf: world.ClientsSendTheUID.Shows(`the merge patch was refused`),
		Read:    source.Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#13",
	}, func(l *lab.Lab) {
		table := l.Table("write", "answer", "transactions", "uid before", "uid written to")
		for _, write := range []string{"merge patch", "replace without a token"} {
			name := strings.ReplaceAll(write, " ", "-")
			old := l.Create(name, "color=red")
			key := l.Key(old)
			var next, written *lab.Object
			var err error
			seen := l.Record(func() {
				err = l.Race(key, func() (err error) {
					if write == "merge patch" {
						written, err = l.TrySet(name, "size=9")
					} else {
						written, err = l.TryReplace(lab.WithoutUID(lab.WithToken(old, "")), "size=9")
					}
					return err
				}, func() { next = l.Rival().Recreate(name, "color=white") })
			})
			l.Accepted(err, "the "+write)
			n := 0
			for _, r := range seen {
				if wire.UpdateOf(key)(&r) {
					n++
				}
			}
			table.Row(write, lab.Brief(err), n, lab.ShortUID(old), lab.ShortUID(written))
			l.Expect(written.GetUID() == next.GetUID() && next.GetUID() != old.GetUID(), "it landed on the new incarnation",
				"the %s was written to %s", write, written.GetUID())
			l.Expect(n == 2, "the server tried it twice", "it was tried %d times", n)
			if write == "merge patch" {
				l.Stored(next, "color=white", "size=9")
			} else {
				l.Stored(next, "color=red", "size=9")
				table.End()
				l.Show("PUT configmaps/"+name+", overtaken by a delete and a create", seen.Only(wire.Txn))
			}
		}
	})
}

func TestOpaqueTokenlessApplyBringsADeletedObjectBack(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT25b", From: "D2 paragraphs 3, 5",
		Says: "an apply creates what is not there: after a delete, and even when the delete overtakes it, it brings the object " +
			"back under a new uid; with the uid in what is applied it is refused and nothing is created",
		Why: "a controller that applies on an event of yesterday raises the dead: a finalizer taken off twice makes a new " +
			"object without one",
		FalseIf: world.ClientsSendTheUID.Shows(`an apply after the delete was refused: 409 Conflict`),
		Read:    source.Func("k8s.io/apiserver/pkg/endpoints/handlers", "(*applyPatcher).createNewObject"),
		Answers: "#9",
	}, func(l *lab.Lab) {
		table := l.Table("apply", "answer", "object", "uid")
		first, err := l.TryApply("shelf", "writer", false, "color=red")
		l.Step(err, "the first apply")
		table.Row("the first", l.Answered(), "created", lab.ShortUID(first))
		l.Rival().Delete("shelf")
		second, err := l.TryApply("shelf", "writer", false, "color=red")
		l.Accepted(err, "an apply after the delete")
		table.Row("the same after a delete", l.Answered(), "created again", lab.ShortUID(second))
		l.Expect(l.Answered() == "201" && second.GetUID() != first.GetUID(), "an apply after the delete creates: 201",
			"it answered %s", l.Answered())

		var third *lab.Object
		key := l.Key(second)
		seen := l.Record(func() {
			err = l.Race(key, func() (err error) {
				third, err = l.TryApply("shelf", "writer", false, "color=blue")
				return err
			}, func() { l.Rival().Delete("shelf") })
		})
		l.Accepted(err, "an apply overtaken by a delete")
		table.Row("with a change, overtaken by a delete", "201", "created again", lab.ShortUID(third))
		l.Expect(third.GetUID() != second.GetUID(), "it creates a new object", "it is written to %s", third.GetUID())
		txns := seen.Only(wire.Txn)
		last := txns[len(txns)-1]
		l.Expect(last.Compare[0].Value == 0 && last.Succeeded, "its last transaction is that of a create", "it is %s", last)

		l.Rival().Delete("shelf")
		_, err = l.TryApply("shelf", "writer", false, "color=red", "metadata.uid="+string(third.GetUID()))
		table.Row("after a delete, with the uid", lab.Brief(err), "none", "")
		table.End()
		l.Show("the apply that was overtaken", txns)
		l.Blank()
		l.Say("%s", l.Describe(err))
		l.Refused(err, "an apply with the uid of what was deleted", http.StatusConflict, metav1.StatusReasonConflict)
		want := fmt.Sprintf("uid mismatch: the provided object specified uid %s, and no existing object was found", third.GetUID())
		l.Expect(strings.HasSuffix(l.Describe(err), want), "the refusal ends with: "+want, "it says: %s", l.Describe(err))
		_, err = l.TryGet("shelf")
		l.Expect(lab.IsNotFound(err), "nothing was created", "shelf is there")
	})
}

// Creating by updating.

func TestOpaqueTokenOfADeletedObjectRaisesItWhereAnUpdateCreates(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT26", From: "D2 paragraph 5, +",
		Says: "some kinds are created by a replace of what is not there: a deleted Lease, Role or Service comes back with 201, " +
			"whatever old token the replace carries; with the uid it is refused, and other kinds answer 404",
		Why: "for these kinds the token protects nothing once the object is gone; a lease holder that renews late raises a " +
			"lease that was taken away",
		FalseIf: world.ClientsSendTheUID.Shows(`Lease: 409 Conflict`),
		Read:    source.Func("k8s.io/apiserver/pkg/registry/rest", "RESTUpdateStrategy.AllowCreateOnUpdate"),
		Answers: "#38",
	}, func(l *lab.Lab) {
		kinds := map[string]lab.Kind{"custom resource": l.CustomResource()}
		for _, k := range lab.EveryKind() {
			kinds[k.Kind] = k
		}
		table := l.Table("replace after a delete", "with the old token", "with the uid as well")
		replace := func(c *lab.Client, o *lab.Object) string {
			_, _ = c.TryReplace(o) // what came of it, success or refusal, is the answer
			return l.Answered()
		}
		for _, row := range []struct{ kind, token, uid string }{
			{"ConfigMap", "404 NotFound", "404 NotFound"},
			{"Deployment", "404 NotFound", "404 NotFound"},
			{"custom resource", "404 NotFound", "404 NotFound"},
			{"Lease", "201", "409 Conflict"},
			{"Role", "201", "409 Conflict"},
			{"Service", "201", "409 Conflict"},
		} {
			c := l.Of(kinds[row.kind])
			o := c.Create("shelf")
			c.Delete("shelf")
			token := replace(c, lab.WithoutUID(o))
			if token == "201" {
				c.Delete("shelf")
			}
			uid := replace(c, o)
			table.Row(row.kind, token, uid)
			l.Expect(token == row.token, row.kind+": "+row.token, "%s: %s", row.kind, token)
			l.Expect(uid == row.uid, row.kind+" with the uid: "+row.uid, "%s with the uid: %s", row.kind, uid)
		}
		table.End()
	})
}

// Decisions.

func TestOpaqueTokenRetryRepeatsADecisionOrMakesItAnew(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT27", From: "D2 paragraph 5",
		Says: "a retry that changes the desired behaviour is a decision: after somebody has set 5, to send \"set to 2\" again " +
			"and to add 1 again are not the same",
		Why: "both loops read again and both succeed; the one that replays what it decided before undoes the other's work " +
			"with a fresh token in its hand",
		FalseIf: world.TheRivalChangesNothing.Shows(`adding 1 again gives 2`),
		Read:    source.Func("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers: "#2 #26",
	}, func(l *lab.Lab) {
		deployments := l.Of(lab.Deployment)
		replicas := func(o *lab.Object) int { n, _ := strconv.Atoi(lab.Field(o, "replicas")); return n }
		table := l.Table("1 replica, and one more is wanted", "attempt", "reads", "sends", "answer")
		scale := func(name, title string, decide func(read int) int) int {
			read := deployments.Create(name, "replicas=1")
			decide(replicas(read))
			l.Rival().Of(lab.Deployment).Set(name, "replicas=5")
			attempt := 0
			err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				if attempt++; attempt > 1 {
					read = deployments.Get(name)
				}
				send := decide(replicas(read))
				_, err := deployments.TryReplace(read, "replicas="+strconv.Itoa(send))
				table.Row(title, attempt, replicas(read), send, lab.Brief(err))
				return err
			})
			l.Step(err, "scaling "+name)
			return replicas(deployments.Get(name))
		}
		decided := 0
		replayed := scale("replay", "decide once, send it until it sticks", func(read int) int {
			if decided == 0 {
				decided = read + 1
			}
			return decided
		})
		anew := scale("anew", "decide on what was read each time", func(read int) int { return read + 1 })
		table.End()
		l.Blank()
		l.Say("The rival set 5 in between, and was answered 200. What is stored: %d, the rival's 5 is undone; and %d.", replayed, anew)
		l.Expect(replayed == 2, "the replayed decision gives 2: the rival's 5 is undone", "it gives %d", replayed)
		l.Expect(anew == 6, "to add 1 again gives 6", "adding 1 again gives %d", anew)
	})
}

func TestOpaqueTokenFencesAnActBeforeItIsDone(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT27b", From: "D2 paragraphs 1, 5, +",
		Says: "what is done outside the cluster is claimed first, with a write that carries the token: of two workers one is " +
			"let in and acts; when both act first and record it then, both have acted and one record is lost",
		Why: "a conflict undoes nothing: the server can refuse a write, and never what was already done elsewhere",
		FalseIf: world.ClientDropsTheToken.Shows(
			`2 volumes were made`),
		Read:    source.Func("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
		Answers: "#75",
	}, func(l *lab.Lab) {
		workers := []string{"ann", "bob"}
		table := l.Table("order of work", "ann", "bob", "volumes made", "recorded")
		work := func(title string, actFirst bool) []string {
			name := map[bool]string{true: "act-first", false: "claim-first"}[actFirst]
			l.Create(name, "volume=none")
			var copies []*lab.Object
			for range workers { // both read before either writes
				copies = append(copies, l.Get(name))
			}
			made, answers := []string{}, []any{}
			for i, who := range workers {
				if actFirst {
					made = append(made, who+"'s")
				}
				_, err := l.As(who).TryReplace(copies[i], "volume="+who+"'s")
				if err == nil && !actFirst {
					made = append(made, who+"'s")
				}
				answers = append(answers, lab.Brief(err))
			}
			table.Row(title, answers[0], answers[1], strings.Join(made, ", "), lab.Field(l.Get(name), "volume"))
			return made
		}
		claimed := work("claim with a write, then make", false)
		acted := work("make, then record with a write", true)
		table.End()
		l.Expect(len(claimed) == 1, "whoever claims first makes one volume in all", "%d volumes were made", len(claimed))
		l.Expect(len(acted) == 2, "whoever acts first makes two, and one is forgotten", "%d were made", len(acted))
	})
}

// Order.

func TestOpaqueTokensMayBeOrderedWithinOneResource(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT18", From: "D2 paragraphs 4, 6",
		Says: "tokens may always be compared for equality; since Kubernetes 1.35 those of one resource of one server may be " +
			"ordered, through CompareResourceVersion, which takes them for numbers of any length and refuses what is none",
		Why: "as text 9 comes after 10, so whoever compares strings stops believing in progress each time the numbers grow " +
			"by a digit",
		FalseIf: world.TokensCompareAsText.Shows(`"9" and "10": 1`),
		Read:    source.Func("k8s.io/apimachinery/pkg/util/resourceversion", "CompareResourceVersion"),
		Erratum: "the document warns against reading an order out of tokens at all. Since Kubernetes 1.35 the API promises one, " +
			"within one resource of one server; across resources, servers and restored backups there is none.",
		Answers: "#27 #28 #30",
	}, func(l *lab.Lab) {
		long := "1" + strings.Repeat("0", 30)
		table := l.Table("a", "b", "CompareResourceVersion", "as text")
		show := func(s string) string {
			if len(s) > 12 {
				return s[:4] + "…, " + strconv.Itoa(len(s)) + " digits"
			}
			return strconv.Quote(s)
		}
		const refused = "refused"
		for _, c := range []struct{ a, b, want string }{
			{"9", "10", "-1"}, {"10", "9", "1"}, {"10", "10", "0"}, {long, "9", "1"}, {"99", long, "-1"},
			{"", "1", refused}, {"0", "1", refused}, {"01", "1", refused}, {"-1", "1", refused}, {"abc", "1", refused},
			{"MTA=", "1", refused},
		} {
			order, err := l.Order(c.a, c.b)
			got := strconv.Itoa(order)
			if err != nil {
				got = refused
			}
			table.Row(show(c.a), show(c.b), got, strings.Compare(c.a, c.b))
			l.Expect(got == c.want, fmt.Sprintf("%s and %s: %s", show(c.a), show(c.b), c.want), "%s and %s: %s", show(c.a), show(c.b), got)
		}
		table.End()

		first, second := l.Create("first", "color=red"), l.Create("second", "color=red")
		order, err := l.Order(first.GetResourceVersion(), second.GetResourceVersion())
		l.Step(err, "comparing what the server gave out")
		l.Blank()
		l.Say("Two ConfigMaps, one after the other: %s and %s, order %d.", first.GetResourceVersion(), second.GetResourceVersion(), order)
		l.Expect(order == -1, "of two objects of one resource, the one written first has the older token", "the order is %d", order)
	})
}

func TestOpaqueTokenIsHandedBackAsItWasGiven(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT43", From: "D2 title, +",
		Says: "hand a token back exactly as it was given: a replace takes it for a number, in which leading zeros do not count " +
			"and 0 means none, a delete compares its text, and what is no number is answered with a 500",
		Why: "a token that was parsed, padded or made up can lose its protection without an error, or meet a 500 that no " +
			"retry will cure",
		FalseIf: world.ClientDropsTheToken.Shows(`a replace with "abc": 200`),
		Read:    source.Func("k8s.io/apiserver/pkg/storage", "APIObjectVersioner.ObjectResourceVersion"),
		Answers: "#28 #35",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		given := shelf.GetResourceVersion()
		table := l.Table("token", "replace", "merge patch", "read not older than", "delete")
		// Dry runs: the token is checked as ever, and shelf stays what it is.
		dry := []string{metav1.DryRunAll}
		for _, row := range []struct{ title, token, replace, patch, read, remove string }{
			{"as it was given", given, "200", "200", "200", "200"},
			{"with leading zeros", "00" + given, "200", "200", "200", "409 Conflict"},
			{`"0"`, "0", "200", "200", "200", "409 Conflict"},
			{`"abc"`, "abc", "500", "500", "500", "409 Conflict"},
		} {
			_, replace := l.TryDryReplace(lab.WithToken(shelf, row.token), "color=blue")
			_, patch := l.TryPatchWith("shelf", types.MergePatchType,
				fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"data":{"color":"blue"}}`, row.token), metav1.PatchOptions{DryRun: dry})
			_, read := l.TryGetOnce("shelf", "resourceVersion="+row.token)
			remove := l.TryDelete("shelf", metav1.DeleteOptions{DryRun: dry, Preconditions: &metav1.Preconditions{ResourceVersion: &row.token}})
			table.Row(row.title, lab.Brief(replace), lab.Brief(patch), lab.Brief(read), lab.Brief(remove))
			for _, c := range []struct {
				what, want string
				err        error
			}{
				{"a replace", row.replace, replace}, {"a merge patch", row.patch, patch},
				{"a read", row.read, read}, {"a delete", row.remove, remove},
			} {
				l.Expect(lab.Brief(c.err) == c.want, c.what+" with "+row.title+": "+c.want, "%s with %s: %s", c.what, row.title, lab.Brief(c.err))
			}
		}
		table.End()
		l.Blank()
		l.Say("A replace or a patch with 0 carries no precondition at all: it overwrites whatever is there.")
		l.Rival().Set("shelf", "color=white")
		_, err := l.TryReplace(lab.WithToken(shelf, "0"), "color=blue")
		l.Accepted(err, "a replace with 0 of what a rival has changed")
		l.Stored(shelf, "color=blue")
	})
}

func TestOpaqueTokensOfDifferentResourcesDoNotCompare(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT19", From: "D2 paragraphs 4, 6",
		Says: "numbers of different resources do not compare, even when they look as if they did: a resource may be kept in a " +
			"store of its own, which counts for itself",
		Why: "on a small cluster one etcd counts everything and the comparison seems to work; on a large one, with events " +
			"kept apart, it tells nonsense",
		FalseIf: world.OneStoreForAll.Shows(`an Event written after ConfigMap \d+ has \d+`),
		Read:    source.Func("k8s.io/apiserver/pkg/server/options", "EtcdOptions.EtcdServersOverrides"),
		Answers: "#30",
	}, func(l *lab.Lab) {
		client := l.WithEventsApart("writer")
		events := client.Of(lab.CoreEvent)
		table := l.Table("written", "resourceVersion")
		write := func(c *lab.Client, kind, name string, fields ...string) *lab.Object {
			o := c.Create(name, fields...)
			table.Row(kind+" "+name, o.GetResourceVersion())
			return o
		}
		a := write(client, "ConfigMap", "a", "color=red")
		e1 := write(events, "Event", "first", "involvedObject.namespace="+l.Namespace)
		b := write(client, "ConfigMap", "b", "color=red")
		e2 := write(events, "Event", "second", "involvedObject.namespace="+l.Namespace)
		table.End()

		compare := func(x, y *lab.Object) int {
			order, err := l.Order(x.GetResourceVersion(), y.GetResourceVersion())
			l.Step(err, "comparing two tokens")
			return order
		}
		l.Blank()
		l.Say("Within a resource the order is that of the writes: a, b: %d; first, second: %d. Between them it is not: "+
			"a, first: %d, although first was written after a.", compare(a, b), compare(e1, e2), compare(a, e1))
		l.Expect(compare(a, b) == -1 && compare(e1, e2) == -1, "within a resource, what was written first is older",
			"the orders are %d and %d", compare(a, b), compare(e1, e2))
		l.Expect(compare(a, e1) == 1 && compare(b, e2) == 1, "an Event written after a ConfigMap has the lower number",
			"an Event written after ConfigMap %s has %s", a.GetResourceVersion(), e1.GetResourceVersion())
	})
}

func TestOpaqueTokenRulesAreNotThoseOfEveryFake(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT42", From: "+",
		Says: "a fake client is not the server: client-go's dynamic fake knows no tokens and takes a stale replace; " +
			"controller-runtime's refuses it, but moves the token when nothing has changed",
		Why: "a test against a fake says nothing about conflicts: the one never has any, the other has some that the server " +
			"would not have",
		FalseIf: world.ClientDropsTheToken.Shows(`kube-apiserver: a stale replace: 200`),
		Read:    source.Func("k8s.io/client-go/testing", "ObjectReaction"),
		Answers: "#76",
	}, func(l *lab.Lab) {
		table := l.Table("", "create", "the same again", "a stale replace", "without a token")
		doubles := l.Doubles()
		for i, want := range []struct{ created, same, stale string }{
			{"a token", "the same token", "409 Conflict"},
			{"no token", "no token", "200"},
			{"a token", "another token", "409 Conflict"},
		} {
			double := doubles[i]
			created, err := double.Create(l.New("shelf", "color=red"))
			l.Step(err, "creating shelf at "+double.Name)
			token := func(o *lab.Object) string {
				switch o.GetResourceVersion() {
				case "":
					return "no token"
				case created.GetResourceVersion():
					return "the same token"
				}
				return "another token"
			}
			same, err := double.Replace(created)
			l.Step(err, "replacing shelf by itself at "+double.Name)
			_, err = double.Replace(lab.With(same, "color=blue"))
			l.Step(err, "replacing shelf at "+double.Name)
			_, stale := double.Replace(lab.With(same, "color=green"))
			_, blind := double.Replace(lab.WithToken(lab.With(same, "color=white"), ""))
			first := map[bool]string{true: "no token", false: "a token"}[created.GetResourceVersion() == ""]
			table.Row(double.Name, first, token(same), lab.Brief(stale), lab.Brief(blind))
			l.Expect(first == want.created, double.Name+": a create gives "+want.created, "%s: a create gives %s", double.Name, first)
			l.Expect(token(same) == want.same, double.Name+": a replace by the same: "+want.same, "%s: a replace by the same: %s", double.Name, token(same))
			l.Expect(lab.Brief(stale) == want.stale, double.Name+": a stale replace: "+want.stale, "%s: a stale replace: %s", double.Name, lab.Brief(stale))
		}
		table.End()
	})
}
