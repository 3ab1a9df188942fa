// Chapter 4, continued: replace and retry.
package modrev

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/record"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT4_ToRetryIsToReadAgainAndDecideAgain(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT4", From: "D2 paragraph 2",
		Says: "to retry is to read again, decide again, and write: so three writers who overtake each other add one " +
			"each, and nothing is lost",
		Why: "a conflict is no malfunction: with it, writers who know nothing of each other share an object without " +
			"a lock",
		Do:      "After a 409 re-read, decide again, then write.",
		FalseIf: world.ClientTransplantsTheToken.Shows(`three additions is 1`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`three additions is 1`),
			world.SomebodyIsAlwaysFaster("counter").Shows(`each of the three additions was refused: 409 Conflict`),
		},
		Read:    source.Decl("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers: "#74 #77",
	}, func(l *lab.Lab) {
		l.Create("counter", "n=0")
		from := l.Wire.Tape().Now()
		table := l.Table("writer", "reads n", "with token", "writes n", "answer")
		// meanwhile happens between the first reading of a writer and his writing.
		addOne := func(who string, meanwhile func()) {
			configMaps := l.As(who).Typed().CoreV1().ConfigMaps(l.Namespace)
			attempt := 0
			err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				counter, err := configMaps.Get(l.Context(), "counter", metav1.GetOptions{})
				require.NoError(l, err, "reading the counter")
				if attempt++; attempt == 1 {
					meanwhile()
				}
				n := toInt(l, counter.Data["n"])
				counter.Data["n"] = strconv.Itoa(n + 1)
				_, err = configMaps.Update(l.Context(), counter, metav1.UpdateOptions{})
				table.Row(who, n, counter.ResourceVersion, n+1, lab.AnswerLine(err))
				return err
			})
			l.Accepted(err, "each of the three additions")
		}

		addOne("ann", func() {
			addOne("bob", func() {
				addOne("cid", func() {})
			})
		})
		table.End()

		n := lab.Field(l.Peek("counter"), "n")
		l.WriteDown(record.Counter, "%s", n)
		l.Equal("what the counter says after three additions", n, "3")
		refused := wire.Answered(l.Wire.Tape().Calls(from), http.StatusConflict)
		l.Equal("the number of writes that were refused on the way", refused, 2)
		l.Say("Two writes were refused, both with reason: they were decided on a number that was no longer true. " +
			"What becomes of a writer who reads again and does not decide again: see OT5b.")
	})
}

// toInt is a text that the lesson has written as a number.
func toInt(l *lab.Lab, text string) int {
	n, err := strconv.Atoi(text)
	require.NoError(l, err, "reading a number")
	return n
}

func TestOT5_AFreshTokenOnAStaleBodyDefeatsTheCheck(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT5", From: "D2 paragraph 2",
		Says: "a fresh token on a stale body defeats the check: the write is accepted, and what a rival had written " +
			"is gone",
		Why: "the token certifies the reading that it came with; on another body it certifies a state that never " +
			"existed",
		Do:      "Never put the token of one reading onto the body of another.",
		FalseIf: world.BodiesKeepTheirToken.Shows(`the replace with the transplanted token was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the replace with its own token was accepted`),
			world.AProxyMergesReplaces.Shows(`size=3 is stored`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
		Answers: "#1",
	}, func(l *lab.Lab) {
		l.Rival().Create("shelf", "color=red")
		mine := l.Get("shelf")
		l.Rival().Set("shelf", "size=3")

		table := l.Table("what is sent", "with token", "answer", "stored then")
		_, refused := l.TryReplace(mine, "color=green")
		table.Row("what was read, color=green", mine.GetResourceVersion(), lab.AnswerLine(refused),
			lab.Fields(l.Peek("shelf"), "color", "size"))
		transplanted := lab.WithToken(mine, l.Get("shelf").GetResourceVersion())
		var err error
		sent := l.Record(func() { _, err = l.TryReplace(transplanted, "color=green") })
		table.Row("the same with a fresh token", transplanted.GetResourceVersion(), lab.AnswerLine(err),
			lab.Fields(l.Peek("shelf"), "color", "size"))
		table.End()
		l.Show("the second of them", sent)

		l.Refused(refused, "the replace with its own token", lab.Stale(mine))
		l.Accepted(err, "the replace with the transplanted token")
		l.Stored(mine, "color=green", "-size")
	})
}

func TestOT5b_ARetryThatDoesNotDecideAgainUndoesWhatCameBetween(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT5b", From: "D2 paragraph 2, 5",
		Says: "a conflict says that your decision may be stale: send it again under a fresh token, and what came in " +
			"between is undone",
		Why: "by hand or by reading again inside the loop: a renewed token protects only a decision that was made " +
			"on that reading",
		Do:      "Compute the desired value inside the retry, from what that attempt has read.",
		FalseIf: world.BodiesKeepTheirToken.Shows(`the patch with the renewed token was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the patch that was decided on 1 was accepted`),
			world.ALibraryRepeatsTheChange.Shows(`after a decision that was made before the loop is 6`),
			world.ClientTransplantsTheToken.Shows(`after a decision in each attempt is 2`),
		},
		Read:    source.Decl("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers: "#2 #26",
	}, func(l *lab.Lab) {
		deployments := l.Of(lab.Deployment)
		table := l.Table("1 replica is read, one more is wanted, a rival sets 5", "attempt", "reads", "sends", "answer")
		patch := func(read *lab.Object, replicas int, what string, attempt int) error {
			locked := client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
			changed := lab.With(read, "replicas="+strconv.Itoa(replicas))
			err := l.Controller().Patch(l.Context(), changed, locked)
			table.Row(what, attempt, lab.Field(read, "replicas"), replicas, lab.AnswerLine(err))
			return err
		}
		deployments.Create("renew", "replicas=1")
		read := deployments.Get("renew")
		l.Rival().Of(lab.Deployment).Set("renew", "replicas=5")
		err := patch(read, 1+1, "patch, then renew the token alone", 1)
		l.Refused(err, "the patch that was decided on 1", lab.Stale(read))
		read.SetResourceVersion(deployments.Get("renew").GetResourceVersion())
		l.Accepted(patch(read, 1+1, "", 2), "the patch with the renewed token")

		scale := func(name, title string, decide func(read int) int) {
			shelf := deployments.Create(name, "replicas=1")
			l.Rival().Of(lab.Deployment).Set(name, "replicas=5")
			attempt := 0
			err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				if attempt++; attempt > 1 {
					shelf = deployments.Get(name)
				}
				read := toInt(l, lab.Field(shelf, "replicas"))
				send := decide(read)
				_, err := deployments.TryReplace(shelf, "replicas="+strconv.Itoa(send))
				table.Row(title, attempt, read, send, lab.AnswerLine(err))
				title = ""
				return err
			})
			require.NoError(l, err, "scaling "+name)
		}
		const decided = 1 + 1 // on the one replica that was read first
		scale("before", "read in each attempt, decide before the loop", func(int) int { return decided })
		scale("inside", "read and decide in each attempt", func(read int) int { return read + 1 })
		table.End()

		stored := func(name string) string { return lab.Field(deployments.Peek(name), "replicas") }
		l.Equal("the number of replicas after a renewed token", stored("renew"), "2")
		l.Equal("the number of replicas after a decision that was made before the loop", stored("before"), "2")
		l.Equal("the number of replicas after a decision in each attempt", stored("inside"), "6")
		l.Say("The rival was answered 200 each time. Only the last loop kept what it did. See also OT4.")
	})
}

// readConfigMap reads a ConfigMap with controller-runtime's client.
func readConfigMap(l *lab.Lab, api client.Client, name string) *corev1.ConfigMap {
	var read corev1.ConfigMap
	err := api.Get(l.Context(), client.ObjectKey{Namespace: l.Namespace, Name: name}, &read)
	require.NoError(l, err, "reading configmaps/"+name)
	return &read
}

func TestOT6_ARetryIsBoundedAndReportsWhatDoesNotGoAway(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6", From: "D2 paragraph 2, 5",
		Says: "RetryOnConflict runs its closure at most as often as the backoff has Steps, and then returns the last " +
			"conflict",
		Why: "a conflict that stays means that others keep writing (OT14), or that your cache lags (OT16): spinning " +
			"ends neither",
		Do:      "Bound your retry, and report the last conflict.",
		FalseIf: retriesWithoutEnd.Shows(`attempts with retry.DefaultRetry is 20`),
		AlsoFalseIf: []world.World{
			retriesEveryStep.Shows(`attempts with Steps 5, but a Cap that comes earlier is 5`),
			world.ClientDropsTheToken.Shows(`the number of attempts with retry.DefaultRetry is 1`),
			aGatewayAnswersConflicts.Shows(`each attempt with retry.DefaultRetry was refused: 409 Conflict: try later`),
		},
		Read: source.Decl("k8s.io/client-go/util/retry", "OnError"),
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		table := l.Table("backoff", "Steps", "attempts", "refused on the wire", "returned")
		for _, loop := range []struct {
			name     string
			backoff  wait.Backoff
			attempts int
		}{
			{"retry.DefaultRetry", retry.DefaultRetry, 5},
			{"one of our own", wait.Backoff{Steps: 3}, 3},
			{"Steps 5, but a Cap that comes earlier", wait.Backoff{
				Steps: 5, Duration: 10 * time.Millisecond, Factor: 10, Cap: 50 * time.Millisecond}, 1},
			{"no Steps at all", wait.Backoff{Duration: 10 * time.Millisecond}, 0},
		} {
			from, attempts := l.Wire.Tape().Now(), 0
			err := l.RetryOnConflict(loop.backoff, func() error {
				attempts++
				read, err := configMaps.Get(l.Context(), "shelf", metav1.GetOptions{})
				require.NoError(l, err, "reading the shelf")
				l.Rival().Set("shelf", "touched="+strconv.Itoa(attempts)+loop.name) // always in between
				read.Data["color"] = "green"
				_, err = configMaps.Update(l.Context(), read, metav1.UpdateOptions{})
				if err != nil {
					l.Refused(err, "each attempt with "+loop.name, lab.Stale(shelf))
				}
				return err
			})
			refused := wire.Answered(l.Wire.Tape().Calls(from), http.StatusConflict)
			answer := lab.AnswerLine(err)
			if attempts == 0 {
				answer = err.Error()
			}
			table.Row(loop.name, loop.backoff.Steps, attempts, refused, answer)
			l.Equal("the number of attempts with "+loop.name, attempts, loop.attempts)
			l.Equal("the number of them that the server refused", refused, attempts)
			if attempts > 0 {
				l.Refused(err, "what is returned with "+loop.name, lab.Stale(shelf))
				continue
			}
			l.Equal("what is returned without an attempt", err.Error(), "timed out waiting for the condition")
		}
		table.End()
		l.Stored(shelf, "color=red")
		l.Say("DefaultRetry waits 10 ms and a little by chance between two attempts. A wait that would be longer than the " +
			"Cap is the last: the third loop stops after one attempt. Without Steps the closure " +
			"never runs, and the error is no conflict.")
	})
}

// retriesWithoutEnd has RetryOnConflict go far beyond the Steps of its backoff.
var retriesWithoutEnd = world.New("RetryOnConflict does not look at Steps", func(l *lab.Lab) {
	lab.RetryHook.Bend(l, func(_ wait.Backoff, do func() error) error {
		return retry.RetryOnConflict(wait.Backoff{Steps: 20}, do)
	})
})

// retriesEveryStep has RetryOnConflict wait no time, so that no Cap ends it.
var retriesEveryStep = world.New("RetryOnConflict does not look at the Cap of its backoff", func(l *lab.Lab) {
	lab.RetryHook.Bend(l, func(backoff wait.Backoff, do func() error) error {
		return retry.RetryOnConflict(wait.Backoff{Steps: backoff.Steps}, do)
	})
})

// aGatewayAnswersConflicts rewords the refusals of replaces: they remain conflicts, but not of a stale token.
var aGatewayAnswersConflicts = world.New("a gateway refuses writes with a conflict of its own", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPut }, Note: "answered by the gateway",
		Answer: func(resp *http.Response, body []byte) []byte {
			resp.StatusCode = http.StatusConflict
			return []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure",` +
				`"message":"try later","reason":"Conflict","code":409}`)
		},
	})
})

func TestOT6b_TheReadingBelongsInsideTheRetry(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6b", From: "D2 paragraph 2",
		Says: "RetryOnConflict only runs its closure again: if you read outside of it, one write by somebody else makes " +
			"every attempt fail",
		Why: "a token that was refused once is refused again: while the store goes on, the version that it names does not " +
			"come back",
		Do:      "Read inside the closure that you retry.",
		FalseIf: world.ClientTransplantsTheToken.Shows(`attempts with the reading outside is 1`),
		AlsoFalseIf: []world.World{
			world.SomebodyIsAlwaysFaster("shelf").Shows(`attempts with the reading inside is 5`),
		},
		Read:    source.Decl("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers: "#23",
	}, func(l *lab.Lab) {
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		read := func() *corev1.ConfigMap {
			shelf, err := configMaps.Get(l.Context(), "shelf", metav1.GetOptions{})
			require.NoError(l, err, "reading the shelf")
			return shelf
		}
		paint := func(shelf *corev1.ConfigMap) error {
			shelf = shelf.DeepCopy()
			shelf.Data["color"] = "green"
			_, err := configMaps.Update(l.Context(), shelf, metav1.UpdateOptions{})
			return err
		}
		table := l.Table("the reading is", "attempts", "in the end", "stored")
		l.Rival().Create("shelf", "color=red")

		shelf := read()
		l.Rival().Set("shelf", "size=3") // the only write of the rival
		attempts := 0
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			attempts++
			return paint(shelf)
		})
		table.Row("outside", attempts, lab.AnswerLine(err), lab.Fields(l.Peek("shelf"), "color", "size"))
		l.Equal("the number of attempts with the reading outside", attempts, 5)
		l.Refused(err, "the last of them", lab.Stale(l.Peek("shelf")))

		attempts = 0
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			shelf := read()
			if attempts++; attempts == 1 {
				l.Rival().Set("shelf", "size=4") // the only write of the rival
			}
			return paint(shelf)
		})
		table.Row("inside", attempts, lab.AnswerLine(err), lab.Fields(l.Peek("shelf"), "color", "size"))
		table.End()
		l.Equal("the number of attempts with the reading inside", attempts, 2)
		l.Accepted(err, "the second of them")
		l.Stored(l.Peek("shelf"), "color=green", "size=4")
	})
}

func TestOT6c_TheReadingOfARetryMustNotComeFromAStaleCache(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6c", From: "D2 paragraph 2, 4",
		Says: "a retry that reads from a lagging cache conflicts in every attempt, and one that reads live succeeds " +
			"at once",
		Why:         "all attempts of retry.DefaultRetry are over in about 40 ms, and a cache may lag for longer",
		Do:          "After a conflict read live, or requeue and come back later.",
		FalseIf:     world.AProxyStripsTheRevision.Shows(`attempts with readings from the cache is 1`),
		AlsoFalseIf: []world.World{world.AProxyKeepsAnswers.Shows(`attempts with live readings is 5`)},
		Read:        source.Decl("k8s.io/client-go/util/retry", "DefaultRetry"),
		Answers:     "#24",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		shelf := shelves.Create("shelf", "color=red")
		_, err := shelves.TryGetAt("shelf", shelf.GetResourceVersion())
		require.NoError(l, err, "waiting until the apiserver's cache has the shelf")
		frozen := l.Wire.Freeze(kind.StoragePrefix())
		sized := l.Rival().Of(kind).Set("shelf", "size=3")
		require.NoError(l, frozen.Holds(l.Context(), number(sized)), "letting the cache lag behind")
		l.Say("The cache is kube-apiserver's own. A rival has set size=3, and what etcd tells the cache about " +
			"shelves is held back, so the cache does not know.")

		table := l.Table("read", "its token", "current token", "attempts", "in the end")
		paint := func(from, resourceVersion string) (attempts int, err error) {
			token := ""
			err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
				attempts++
				read, err := shelves.TryGetAt("shelf", resourceVersion)
				require.NoError(l, err, "reading the shelf "+from)
				token = read.GetResourceVersion()
				_, err = shelves.TryReplace(read, "color=green")
				return err
			})
			table.Row(from, token, sized.GetResourceVersion(), attempts, lab.AnswerLine(err))
			return attempts, err
		}
		attempts, err := paint(`from the cache (resourceVersion "0")`, "0")
		l.Equal("the number of attempts with readings from the cache", attempts, 5)
		l.Refused(err, "the last of them", lab.Stale(shelf))
		attempts, err = paint("live", "")
		table.End()
		l.Say("See also OT16, the same with an informer's cache, and OT16d.")
		l.Equal("the number of attempts with live readings", attempts, 1)
		l.Accepted(err, "the one attempt")
		l.Stored(shelf, "color=green", "size=3")
	})
}

func TestOT6d_ACancelledRetryEndsAndTheContextSaysWhy(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6d", From: "D2 paragraph 5",
		Says: "RetryOnConflict knows no context: cancelled after a conflict, it makes one more attempt and returns the " +
			"conflict, not the cancellation",
		Why: "told of a conflict, a caller tries again later; told of the cancellation, it stops: so ask the context, or " +
			"use wait.ExponentialBackoffWithContext",
		Do:      "After a failed retry ask ctx.Err() before you requeue.",
		FalseIf: retriesKnowTheContext.Shows(`cancelled in its first one is 1`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`cancelled in its first one is 1`),
		},
		Read: source.Decl("k8s.io/client-go/util/retry", "OnError"),
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		stale, err := configMaps.Get(l.Context(), "shelf", metav1.GetOptions{})
		require.NoError(l, err, "reading the shelf")
		l.Rival().Set("shelf", "size=3")
		attempts := 0
		paint := func(ctx context.Context) error {
			attempts++
			_, err := configMaps.Update(ctx, stale, metav1.UpdateOptions{})
			return err
		}
		table := l.Table("loop", "cancelled", "attempts", "returned")

		ctx, cancel := context.WithCancel(l.Context())
		cancel()
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error { return paint(ctx) })
		table.Row("RetryOnConflict", "before the first attempt", attempts, lab.AnswerLine(err))
		l.Expect(errors.Is(err, context.Canceled), "cancelled before any conflict, the loop returns the cancellation",
			"it returned: %s", l.Describe(err))

		ctx, cancel = context.WithCancel(l.Context())
		attempts = 0
		err = l.RetryOnConflict(retry.DefaultRetry, func() error {
			defer cancel()
			return paint(ctx)
		})
		table.Row("RetryOnConflict", "after the first conflict", attempts, lab.AnswerLine(err))
		l.Equal("the number of attempts of a RetryOnConflict that is cancelled in its first one", attempts, 2)
		l.Refused(err, "what RetryOnConflict reports", lab.Stale(shelf))

		ctx, cancel = context.WithCancel(l.Context())
		attempts = 0
		err = wait.ExponentialBackoffWithContext(ctx, retry.DefaultRetry, func(ctx context.Context) (done bool, _ error) {
			defer cancel()
			if err := paint(ctx); !apierrors.IsConflict(err) {
				return true, err
			}
			return false, nil // once more
		})
		table.Row("wait.ExponentialBackoffWithContext", "after the first conflict", attempts, lab.AnswerLine(err))
		table.End()
		l.Say("RetryOnConflict does not look at a context between two attempts, so it makes one more. That attempt's " +
			"request comes back with the cancellation. The loop takes it for its own time being up, and returns the last " +
			"conflict that it has seen.")
		l.Equal("the number of attempts of a loop that knows the context", attempts, 1)
		l.Expect(errors.Is(err, context.Canceled), "a loop that knows the context returns the cancellation",
			"it returned: %s", l.Describe(err))
	})
}

// retriesKnowTheContext has RetryOnConflict stop after its first attempt: in OT6d that is when its context ends.
var retriesKnowTheContext = world.New("RetryOnConflict asks the context after each attempt", func(l *lab.Lab) {
	lab.RetryHook.Bend(l, func(_ wait.Backoff, do func() error) error {
		if err := do(); !apierrors.IsConflict(err) {
			return err
		}
		return context.Canceled
	})
})

func TestOT7_BackoffWithJitterSparesTheServer(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT7", From: "D2 paragraph 2",
		Says: "under the same contention, a growing backoff with jitter sends the server fewer writes that it refuses; " +
			"without jitter it spares none",
		Why: "every refused write costs the server a request, and etcd a read or a transaction; and writers who all wait " +
			"equally long meet again",
		Do:      "Back off with a Factor and a Jitter.",
		FalseIf: backoffsIgnoreTheirJitter.Shows(`refused without backoff 28, with jitter 28`),
		AlsoFalseIf: []world.World{
			world.SomebodyIsAlwaysFaster("in-step").Shows(`number of writers who gave up on in-step is 8`),
			world.ClientDropsTheToken.Shows(`the counter at-once is 1`),
		},
		Read: source.Decl("k8s.io/apimachinery/pkg/util/wait", "Jitter"),
	}, func(l *lab.Lab) {
		l.Say("The waits are those of wait.Backoff, the clock is simulated: its Duration is one round. In a round all "+
			"writers that are not waiting read, and then all of them write, one after the other. The first is accepted, "+
			"and up to %d are refused. The refused writes are 409s counted on the wire.", contenders-1)
		none := contend(l, "at-once", wait.Backoff{})
		jitter := contend(l, "jitter", wait.Backoff{Duration: round, Factor: 2, Jitter: 2, Steps: contenders})
		inStep := contend(l, "in-step", wait.Backoff{Duration: round, Factor: 2, Steps: contenders})

		table := l.Table("8 writers add 1 to a counter; a refused one", "refused writes", "rounds", "the counter says")
		table.Row("tries again in the next round", none.refused, none.rounds, none.counter)
		table.Row("waits by Factor 2 and Jitter 2", jitter.refused, jitter.rounds, jitter.counter)
		table.Row("waits by Factor 2 alone", inStep.refused, inStep.rounds, inStep.counter)
		table.End()
		l.Say("retry.DefaultRetry has a Factor of %.0f and a Jitter of %.1f: it is made for few writers.",
			retry.DefaultRetry.Factor, retry.DefaultRetry.Jitter)

		l.Equal("the counter at-once", none.counter, contenders)
		l.Equal("the counter jitter", jitter.counter, contenders)
		l.Equal("the counter in-step", inStep.counter, contenders)
		l.Expect(jitter.refused < none.refused, "backing off with jitter spares the server refused writes",
			"refused without backoff %d, with jitter %d", none.refused, jitter.refused)
		l.Equal("the number of refused writes with backoff in step", inStep.refused, none.refused)
	})
}

// backoffsIgnoreTheirJitter has a backoff give out its waits without chance.
var backoffsIgnoreTheirJitter = world.New("wait.Backoff ignores its Jitter", func(l *lab.Lab) {
	lab.WaitHook.Bend(l, func(backoff *wait.Backoff) time.Duration {
		backoff.Jitter = 0
		return backoff.Step()
	})
})

// round is the time that a round of contend stands for.
const round = time.Second

// contenders is how many writers contend for a counter.
const contenders = 8

// contention is what it came to when they did.
type contention struct {
	refused int // writes that the server refused with 409 Conflict, counted on the wire
	rounds  int // until the last writer was done
	counter int // what the counter says in the end
}

// contend has the writers contend for a new counter: each wants to add one to it, by reading it and replacing it with
// the token of that reading. Time is counted in rounds: in a round, all writers that are not waiting read first, and
// then all of them write, one after the other. How long a refused one waits is up to its backoff; after eight refusals
// it gives up, and nobody should.
func contend(l *lab.Lab, name string, backoff wait.Backoff) contention {
	type writer struct {
		*lab.Client
		backoff  wait.Backoff
		read     *lab.Object
		due      int // the round in which it reads again
		refusals int
		done     bool
	}
	l.Create(name, "n=0")
	from := l.Wire.Tape().Now()
	var writers []*writer
	for i := range contenders {
		writers = append(writers, &writer{Client: l.As("writer-" + strconv.Itoa(i+1)), backoff: backoff})
	}
	now, gaveUp := 0, 0
	for ; len(writers) > 0; now++ {
		var here []*writer
		for _, w := range writers {
			if w.due <= now {
				w.read = w.Get(name)
				here = append(here, w)
			}
		}
		for _, w := range here {
			n := toInt(l, lab.Field(w.read, "n"))
			_, err := w.TryReplace(w.read, "n="+strconv.Itoa(n+1))
			if !apierrors.IsConflict(err) {
				require.NoError(l, err, "adding one to "+name)
				w.done = true
				continue
			}
			w.refusals++
			w.due = now + 1 + int(l.NextWait(&w.backoff)/round)
			if w.refusals == contenders {
				w.done = true
				gaveUp++
			}
		}
		writers = slices.DeleteFunc(writers, func(w *writer) bool { return w.done })
	}
	l.Equal("the number of writers who gave up on "+name, gaveUp, 0)
	return contention{
		refused: wire.Answered(l.Wire.Tape().Calls(from), http.StatusConflict),
		rounds:  now,
		counter: toInt(l, lab.Field(l.Get(name), "n")),
	}
}
