// Chapter 4, continued: what a cache knows.
package modrev

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT16_ATokenFromALaggingCacheConflictsAgainAndAgain(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16", From: "D2 paragraph 4",
		Says: "while a cache lags behind a write, each retry from it conflicts again; one live read ends that",
		Why: "a retry is no better than what it reads; a loop that reads an informer's cache only repeats itself until the " +
			"cache happens to catch up",
		Do:          "Requeue, or read live; never retry in place from a cache.",
		FalseIf:     world.OlderTokensCount.Shows(`the write from the cache was accepted`),
		AlsoFalseIf: []world.World{world.AProxyKeepsAnswers.Shows(`the write from a live read was refused: 409 Conflict`)},
		Read:        source.Decl("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers:     "#24",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "count=0")
		l.Get("shelf") // a proxy, if there is one, has seen it now
		controller := l.As("controller")
		cache := controller.Informer()
		l.Wire.HoldWatches("controller")
		l.Say("The cache is that of an informer, in the memory of the controller. From here on its watch is held: events " +
			"stay on the way, and the cache lags.")
		controller.Replace(cache.Get("shelf"), "count=1")

		table := l.Table("attempt", "reads", "and writes count=2", "to etcd")
		attempts := 0
		write := func(from string, read *lab.Object) (err error) {
			attempts++
			sent := l.Record(func() { _, err = controller.TryReplace(read, "count=2") })
			table.Row(attempts, from+", at "+read.GetResourceVersion(), lab.AnswerLine(err), sent.Summary())
			return err
		}
		cached := retry.RetryOnConflict(retry.DefaultRetry, func() error { return write("the cache", cache.Get("shelf")) })
		fromCache := attempts
		live := write("the server", controller.Get("shelf"))
		table.End()
		l.Say("The controller conflicts with itself: nobody else has written. retry.DefaultRetry makes %d attempts about "+
			"10 ms apart, and gives up. Each costs a Range because kube-apiserver's own cache is current: it sees the "+
			"conflict itself, and reads the key before it says so (CF2, GU5b). See also OT6c and OT16d, the same with "+
			"kube-apiserver's cache, and OT16b, how to wait.", fromCache)

		l.Refused(cached, "the write from the cache", lab.Stale(shelf))
		l.Equal("the number of attempts from the cache", fromCache, retry.DefaultRetry.Steps)
		l.Accepted(live, "the write from a live read")
	})
}

func TestOT16b_ACacheThatHasReachedAWriteShowsIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16b", From: "D2 paragraph 4",
		Says: "a cache whose LastStoreSyncResourceVersion has reached the number of a write shows that write; until then, " +
			"requeue the key with backoff",
		Why: "a retry in place reads the same cache again; an error that requeues with backoff gives the watch " +
			"time",
		Do:      "Remember your write's number; requeue with backoff until the cache has reached it.",
		FalseIf: aWriteIsSwallowedAndAnotherFollows.Shows(`the write from the cache was refused: 409 Conflict`),
		Read:    source.Decl("k8s.io/client-go/tools/cache", "Store.LastStoreSyncResourceVersion"),
		Answers: "#24 #29",
	}, func(l *lab.Lab) {
		controller := l.As("controller")
		l.Create("shelf", "count=0")
		cache := controller.Informer()
		held := l.Wire.HoldWatches("controller")
		wrote := controller.Replace(cache.Get("shelf"), "count=1").GetResourceVersion()

		table := l.Table("reconcile", "cache reached", "shelf in the cache", "so")
		reconciles, stale := 0, 0
		reconcile := func() error {
			reconciles++
			reached, cached := cache.GetStore().LastStoreSyncResourceVersion(), cache.Get("shelf")
			order, err := l.Order(reached, wrote)
			require.NoError(l, err, "comparing what the cache has reached with what was written")
			is := cached.GetResourceVersion() + ", count=" + lab.Field(cached, "count")
			if order < 0 {
				stale++
				if stale <= 3 {
					table.Row(reconciles, reached, is, "too old: requeue with backoff")
				}
				return errors.New("the cache has not reached the write")
			}
			table.Row(reconciles, reached, is, "read it, and write")
			_, err = controller.TryReplace(cached, "count=2")
			l.Accepted(err, "the write from the cache")
			return nil
		}
		queue := workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, 50*time.Millisecond))
		defer queue.ShutDown()
		queue.Add("shelf")
		for done := false; !done; {
			key, _ := queue.Get()
			require.NoError(l, l.Context().Err(), "waiting until the cache has reached the write")
			if done = reconcile() == nil; !done {
				queue.AddRateLimited(key)
			}
			queue.Done(key)
			if stale == 3 {
				held.Release()
			}
		}
		table.End()
		l.Say("The controller has written shelf at %s, and its watch is held from before that until the third row. Each "+
			"requeue comes later than the one before. Rows in which the cache was still too old after that are left out.",
			wrote)
		l.Expect(stale >= 3, "the cache has not reached the write while its watch is held", "it had after %d looks", stale)
		l.Stored(controller.Get("shelf"), "count=2")
	})
}

var aWriteIsSwallowedAndAnotherFollows = world.New(
	"an event gets lost between etcd and the apiserver, and that of another object comes", func(l *lab.Lab) {
		world.AnEventIsSwallowed.Bend(l)
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Who == "controller" && c.Verb == http.MethodPut }, Times: 1,
			Answer: func(_ *http.Response, body []byte) []byte {
				_, _ = l.Rival().TryCreate("another", "color=red") // without it the cache would never get so far
				return body
			},
		})
	})

func TestOT16c_ControllerRuntimeWaitsForItsOwnWriteIfAskedTo(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16c", From: "D2 paragraph 4",
		Says: "a cached read through controller-runtime's client waits until the cache has that client's own " +
			"write of that key, in the same representation",
		Why: "the option is off by default (and experimental in 0.25), so a reconciler that reads back what it wrote may " +
			"decide on the state before its own write",
		Do:      "Use one client for writes and reads, switch the option on, and give reads deadlines.",
		FalseIf: world.AnEventIsSwallowed.Shows(`with the option is 0`),
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/client", "CacheOptions.EnableReadYourWritesConsistency"),
		Answers: "#24",
	}, func(l *lab.Lab) {
		l.Create("shelf", "count=0")
		l.Create("other", "count=7")
		client := cachedClients(l, l.As("controller"))
		plain, consistent, another := client(false), client(true), client(true)
		shelf := readConfigMap(l, plain, "shelf") // fills the cache
		readConfigMap(l, another, "shelf")

		held := l.Wire.HoldWatches("controller")
		shelf.Data["count"] = "1"
		require.NoError(l, consistent.Update(l.Context(), shelf), "the controller's write")
		l.Rival().Create("fence", "color=red")

		stale := readConfigMap(l, plain, "shelf").Data["count"]
		// The cache cannot catch up, so however long the deadline, the read ends with it.
		short, cancel := context.WithTimeout(l.Context(), 50*time.Millisecond)
		defer cancel()
		waited := consistent.Get(short, crclient.ObjectKeyFromObject(shelf), new(corev1.ConfigMap))
		otherKey := readConfigMap(l, consistent, "other").Data["count"]
		byAnother := readConfigMap(l, another, "shelf").Data["count"]
		live := l.New("shelf")
		require.NoError(l, plain.Get(l.Context(), crclient.ObjectKeyFromObject(shelf), live), "reading as unstructured")
		held.Release()
		fresh := readConfigMap(l, consistent, "shelf")

		table := l.Table("Get by a client", "while the watch is held", "when it goes on")
		table.Row("as it is by default", "count="+stale, "(count=1 sooner or later)")
		table.Row("with the option, which wrote", "waits until the context ends", "count="+fresh.Data["count"])
		table.Row("the same, of another key", "count="+otherKey, "")
		table.Row("another client with the option", "count="+byAnother, "(count=1 sooner or later)")
		table.Row("as it is by default, as unstructured", "count="+lab.Field(live, "count")+", a live read", "")
		table.End()
		l.Say("The wait ends with an event, at that number or a later one, of any object that the cache selects. So a " +
			"write of an object that its selector leaves out is waited for until some other object changes.")

		l.Equal("the count that is read without the option", stale, "0")
		l.Expect(errors.Is(waited, context.DeadlineExceeded), "with the option, a read waits as long as its context allows",
			"it ended with: %v", waited)
		l.Equal("the count of another key", otherKey, "7")
		l.Equal("the count that another client with the option reads", byAnother, "0")
		l.Equal("the count that is read as unstructured", lab.Field(live, "count"), "1")
		l.Equal("the count that is read with the option", fresh.Data["count"], "1")
		fresh.Data["count"] = "2"
		l.Accepted(consistent.Update(l.Context(), fresh), "the write from what it read")
	})
}

// cachedClients makes clients of controller-runtime for one party, which read from one cache of the lesson's
// namespace and write to the apiserver, and wait for their own writes or do not. By default a manager's does not.
func cachedClients(l *lab.Lab, party *lab.Client) func(waits bool) crclient.Client {
	cfg, mapper := party.Config(), party.Controller().RESTMapper()
	cfg.ContentType = runtime.ContentTypeJSON // as the tape can read it
	reader, err := crcache.New(cfg, crcache.Options{
		Mapper: mapper, DefaultNamespaces: map[string]crcache.Config{l.Namespace: {}},
	})
	require.NoError(l, err, "making a cache of controller-runtime")
	l.Go("the cache", func() error { return reader.Start(l.Context()) })
	require.True(l, reader.WaitForCacheSync(l.Context()), "starting a cache of controller-runtime")

	return func(waits bool) crclient.Client {
		api, err := crclient.New(cfg, crclient.Options{Mapper: mapper, Cache: &crclient.CacheOptions{
			Reader: reader, EnableReadYourWritesConsistency: new(waits),
		}})
		require.NoError(l, err, "making a client of controller-runtime")
		return api
	}
}

func TestOT16d_TheApiserversOwnCacheMayBeOldToo(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16d", From: "D2 paragraph 4",
		Says: "a read with resourceVersion 0 is answered from kube-apiserver's own cache; that can lag, and what it gives " +
			"conflicts again and again",
		Why:     "a read that goes to the server is not yet a live read: a cheap one may be as old as an informer's",
		Do:      "Read without a resourceVersion before you decide after a conflict.",
		FalseIf: world.AProxyStripsTheRevision.Shows(`a replace from a read with "0" was accepted`),
		AlsoFalseIf: []world.World{
			world.AProxyKeepsAnswers.Shows(`a replace from a read without a number was refused: 409 Conflict`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*CacheDelegator).Get"),
		Answers: "#24 #62",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		created := shelves.Create("shelf", "count=0")
		l.Settle(created)
		l.Wire.Freeze(kind.StoragePrefix())
		shelves.Replace(created, "count=1")
		l.Say("The cache is kube-apiserver's own; the client has none. From here on kube-apiserver's watch on etcd is " +
			"held, so its cache does not learn of count=1, which is in etcd.")

		table := l.Table("read with", "gets", "replace from it", "to etcd")
		replace := func(with string, read *lab.Object) (sent wire.Requests, err error) {
			sent = l.Record(func() { _, err = shelves.TryReplace(read, "count=2") })
			table.Row(with, read.GetResourceVersion()+", count="+lab.Field(read, "count"), lab.AnswerLine(err), sent.Summary())
			return sent, err
		}
		for range 3 {
			cached, err := shelves.TryGetAt("shelf", "0")
			require.NoError(l, err, `reading with "0"`)
			sent, err := replace(`"0"`, cached)
			l.Refused(err, `a replace from a read with "0"`, lab.Stale(created))
			l.Sends(sent, `a replace from a read with "0"`, "1 Txn")
		}
		_, live := replace("no number", shelves.Get("shelf"))
		table.End()
		event := l.Of(coreEvent).Create("seen", "involvedObject.namespace="+l.Namespace)
		var err error
		sent := l.Record(func() { _, err = l.Of(coreEvent).TryGetAt("seen", "0") })
		require.NoError(l, err, "reading an Event")
		l.Sends(sent, "a read with \"0\" of an Event", "1 Range")
		l.Say("A kind without a cache is read from etcd all the same: a read with \"0\" of Event %s costs %s. So is any "+
			"kind while its cache is not ready, after a start of the server.", event.GetName(), sent.Summary())
		l.Say("In OT16 a 409 costs a read, here a transaction: the stale cache lets the replace pass, and the compare in " +
			"etcd fails (CF3b). In the last row the stale cache sees a conflict where there is none, which is not believed " +
			"before the key was read (GU5b). A list with \"0\" is answered from the cache as well (RV10): a client that " +
			"begins with one after its restart may see a state older than the one it knew. See also OT6c, the same in a retry.")
		l.Accepted(live, "a replace from a read without a number")
	})
}

func TestOT40_AnAnswerPutIntoACacheByHandDoesNotMakeItCurrent(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT40", From: "D2 paragraph 4; +",
		Says: "an answer put into an informer's store by hand can move the cache backwards; only the next event of that " +
			"object puts it right",
		Why: "a cache has one writer, its watch; write to it yourself and you can leave it stale, and every write from it " +
			"then conflicts",
		Do:          "Never write to an informer's store; wait for your write, or overlay it.",
		FalseIf:     world.CachesNeverGoBack.Shows(`the rival's event moved the cache from \d+ to \d+`),
		AlsoFalseIf: []world.World{world.OlderTokensCount.Shows(`a replace from the cache was accepted`)},
		Read:        source.Decl("k8s.io/client-go/tools/cache", "processDeltas"),
		Answers:     "#66",
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red")
		controller := l.As("controller")
		cache := controller.Informer()
		table := l.Table("step", "stored", "in the cache")
		row := func(step, stored string) { table.Row(step, stored, cache.Get("shelf").GetResourceVersion()) }

		answer := controller.Replace(cache.Get("shelf"), "color=blue")
		theirs := l.Rival().Set("shelf", "size=9").GetResourceVersion()
		cache.WaitFor(theirs)
		row("the controller has written "+answer.GetResourceVersion()+", a rival "+theirs+", and the cache knows", theirs)
		require.NoError(l, cache.GetStore().Update(answer), "putting the answer into the store")
		row("the controller puts its answer into the store", theirs)
		fence := l.Rival().Create("fence", "color=red").GetResourceVersion()
		cache.WaitFor(fence)
		row("the watch goes on, up to "+fence, theirs)

		_, first := controller.TryReplace(cache.Get("shelf"), "color=green")
		_, second := controller.TryReplace(cache.Get("shelf"), "color=green")
		last := l.Rival().Set("shelf", "size=10").GetResourceVersion()
		cache.WaitFor(last)
		row("a rival writes again", last)
		_, healed := controller.TryReplace(cache.Get("shelf"), "color=green")
		table.End()
		l.Say("Two replaces from the cache in between: %s, %s. One after the rival's second write: %s.",
			lab.AnswerLine(first), lab.AnswerLine(second), lab.AnswerLine(healed))

		l.Refused(first, "a replace from the cache", lab.Stale(answer))
		l.Refused(second, "the same once more", lab.Stale(answer))
		l.Accepted(healed, "a replace after the next event of the object")
		putAheadOfTheWatch(l, controller, cache)
		l.Say("To see your own write, wait until the cache has reached it (OT16b), or read live.")
	})
}

// putAheadOfTheWatch puts the answer to a write into the store before the watch delivers an older event.
func putAheadOfTheWatch(l *lab.Lab, controller *lab.Client, cache *lab.Informer) {
	table := l.Table("step, with the watch held at first", "stored", "in the cache")
	cache.WaitFor(l.Get("shelf").GetResourceVersion())
	held := l.Wire.HoldWatches("controller")
	older := l.Rival().Set("shelf", "size=11").GetResourceVersion()
	answer := controller.Replace(controller.Get("shelf"), "color=white")
	newer := answer.GetResourceVersion()
	table.Row("a rival has written "+older+", the controller, from a live read, "+newer, newer,
		cache.Get("shelf").GetResourceVersion())
	next := movesIn(l, cache)
	require.NoError(l, cache.GetStore().Update(answer), "putting the answer into the store")
	table.Row("the controller puts its answer into the store", newer, cache.Get("shelf").GetResourceVersion())

	held.Release()
	rivals, own := next(), next()
	table.Row("the watch goes on: the rival's event", newer, rivals.to)
	table.Row("and the controller's own", newer, own.to)
	table.End()
	l.Expect(rivals == cacheMove{from: newer, to: older}, "the older event takes the newer answer out of the cache",
		"the rival's event moved the cache from %s to %s", rivals.from, rivals.to)
	l.Expect(own == cacheMove{from: older, to: newer}, "the event of the controller's own write puts that right",
		"the event of the controller's own write moved it from %s to %s", own.from, own.to)
}

// cacheMove is how an event moved an object in a cache: from one resourceVersion to another.
type cacheMove struct{ from, to string }

// movesIn begins to note how events move objects in a cache; next waits for the next such move.
func movesIn(l *lab.Lab, cache *lab.Informer) (next func() cacheMove) {
	moves := make(chan cacheMove, 16)
	_, err := cache.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(old, now any) {
		moves <- cacheMove{old.(*lab.Object).GetResourceVersion(), now.(*lab.Object).GetResourceVersion()}
	}})
	require.NoError(l, err, "listening to the informer")
	return func() (m cacheMove) {
		select {
		case m = <-moves:
		case <-l.Context().Done():
			l.Stuck("waiting until an event moves shelf in the cache", context.Cause(l.Context()))
		}
		return m
	}
}

func TestOT41_AbsenceFromACacheIsNotAbsence(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT41", From: "D2 paragraph 4; +",
		Says: "an object that a cache lacks may exist: a fixed name has the second create refused, a generated one makes " +
			"another each time",
		Why: "a deterministic name lets the apiserver decide who was first; a generated name takes that decision away from " +
			"it",
		Do:          "Name children from their owner, and let the apiserver decide who was first.",
		FalseIf:     world.ClientNamesWhatItCreates.Shows(`with a generated name is 1`),
		AlsoFalseIf: []world.World{world.EtcdIgnoresTheCompareOfACreate.Shows(`a later create by name was accepted`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Create"),
		Answers:     "#67 #68 #111",
	}, func(l *lab.Lab) {
		controller := l.As("controller")
		cache := controller.Informer()
		l.Wire.HoldWatches("controller")
		l.Say("The cache is that of an informer, in the memory of the controller, and its watch is held.")

		table := l.Table("look", "child in the cache", "create shelf-child", "create generateName: shelf-child-")
		var byName []error
		for look := 1; look <= 3; look++ {
			_, err := cache.TryGet("shelf-child")
			l.Expect(lab.IsNotFound(err), "the cache does not know the child", "it answered: %v", err)
			_, err = controller.TryCreate("shelf-child", "color=red")
			byName = append(byName, err)
			named := l.Answered()
			o := controller.New("", "color=red")
			o.SetGenerateName("shelf-child-")
			_, _ = controller.TryCreateObject(o) // what came of it is the answer
			table.Row(look, "none", named, l.Answered())
		}
		table.End()

		var children []string
		for _, o := range controller.List().Items {
			if strings.HasPrefix(o.GetName(), "shelf-child-") {
				children = append(children, o.GetName())
			}
		}
		l.Say("Stored: shelf-child, once; and %s. On AlreadyExists, look whose child it is: see OT23c.",
			strings.Join(children, ", "))
		other := l.As("another informer").Informer()
		_, here := cache.TryGet("shelf-child")
		l.Equal("what the other cache says of the child", other.Get("shelf-child").GetName(), "shelf-child")
		l.Expect(lab.IsNotFound(here), "the cache whose watch is held does not know the child", "it answered: %v", here)
		l.Say("A second informer of the same process knows the child, the first still does not: each cache is a watch of " +
			"its own, and nothing orders two of them.")
		l.Accepted(byName[0], "the first create by name")
		for _, err := range byName[1:] {
			l.Refused(err, "a later create by name", lab.Refusal{Code: 409, Reason: metav1.StatusReasonAlreadyExists})
		}
		l.Equal("the number of objects that three looks made with a generated name", len(children), 3)
	})
}

func TestOT17_ATokenThatMovedIsNotTheConditionYouWaitFor(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT17", From: "D2 paragraph 4",
		Says: "a greater resourceVersion is not the condition that you wait for: any change moves the number, and an " +
			"apparent no-op does not",
		Why: "if you wait for a number, you go on when somebody touches a label, and wait for ever when the work was done " +
			"already",
		Do:          "Wait for the condition that you need, and begin with what is there.",
		FalseIf:     world.EveryWriteDoesTheWork.Shows(`the first greater number is blue`),
		AlsoFalseIf: []world.World{world.StoredInAnotherEncoding.Shows(`the watch delivered shelf at`)},
		Read:        source.Decl("k8s.io/client-go/tools/watch", "UntilWithSync"),
		Answers:     "#56",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		read := shelf.GetResourceVersion()
		watch := l.Watch(read)
		l.As("labeller").Set("shelf", "metadata.labels.room=12")
		l.As("annotator").Set("shelf", "metadata.annotations.seen=today")
		painted := l.As("painter").Set("shelf", "color=blue")

		table := l.Table("event", "resourceVersion", "greater than "+read+"?", "color=blue?")
		events := watch.Until(painted.GetResourceVersion())
		for _, ev := range events {
			order, err := l.Order(ev.ResourceVersion, read)
			require.NoError(l, err, "comparing "+ev.ResourceVersion)
			color := lab.Field(ev.Object, "color")
			table.Row(ev.Type, ev.ResourceVersion, map[bool]string{true: "yes, go on", false: "no"}[order > 0],
				map[bool]string{true: "yes, go on", false: "no, color=" + color}[color == "blue"])
			l.Equal("the order of "+ev.ResourceVersion+" and "+read, order, 1)
		}
		table.End()
		l.Equal("the color that comes with the first greater number", lab.Field(events[0].Object, "color"), "red")

		same := l.As("painter").Set("shelf", "color=blue")
		fence := l.Create("fence", "color=red")
		after := watch.Next()
		l.Say("The painter paints it blue again: 200, resourceVersion %s as before. The next event of the watch is that of "+
			"another object, at %s: a greater number of shelf does not come. Had shelf been stored in another encoding than "+
			"the server's present one, it would: see RV8b. UntilWithSync in client-go waits for a condition, and begins with "+
			"what is there.", same.GetResourceVersion(), after.ResourceVersion)
		l.Expect(after.ResourceVersion == fence.GetResourceVersion(), "a write that stores the same bytes brings no event",
			"the watch delivered %s at %s", after.Name, after.ResourceVersion)
		l.Equal("shelf's resourceVersion after it", same.GetResourceVersion(), painted.GetResourceVersion())
	})
}
