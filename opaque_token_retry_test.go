// Chapter 4, continued: replace and retry.
package modrev

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

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
		Says: "to retry means to read again, decide again, and write: three writers add one to a counter, each gets in " +
			"between another's reading and writing, and nothing is lost",
		Why: "a conflict is no malfunction: it is how writers who know nothing of each other share an object without a " +
			"lock",
		FalseIf: world.ClientTransplantsTheToken.Shows(`the counter says 1`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the counter says 1`),
			world.SomebodyIsAlwaysFaster("counter").Shows(`each of the three additions was refused: 409 Conflict`),
		},
		Read:    source.Decl("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers: "#74 #77",
	}, func(l *lab.Lab) {
		l.Create("counter", "n=0")
		table := l.Table("writer", "reads n", "with token", "writes n", "answer")
		writers, refused := []string{"ann", "bob", "cid"}, 0
		var add func(i int) error
		add = func(i int) error {
			configMaps := l.As(writers[i]).Typed().CoreV1().ConfigMaps(l.Namespace)
			attempt := 0
			return retry.RetryOnConflict(retry.DefaultRetry, func() error {
				counter, err := configMaps.Get(l.Context(), "counter", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if attempt++; attempt == 1 && i+1 < len(writers) {
					// Here, between his reading and his writing, all of the next writer's work is done.
					if err := add(i + 1); err != nil {
						return err
					}
				}
				read := counter.Data["n"]
				n, err := strconv.Atoi(read)
				if err != nil {
					return err
				}
				counter.Data["n"] = strconv.Itoa(n + 1)
				_, err = configMaps.Update(l.Context(), counter, metav1.UpdateOptions{})
				table.Row(writers[i], read, counter.ResourceVersion, n+1, lab.AnswerLine(err))
				if apierrors.IsConflict(err) {
					refused++
				}
				return err
			})
		}
		err := add(0)
		table.End()

		l.Accepted(err, "each of the three additions")
		n := lab.Field(l.Peek("counter"), "n")
		l.WriteDown(record.Counter, "%s", n)
		l.Expect(n == "3", "the counter says 3 after three additions", "the counter says %s after three additions", n)
		l.Expect(refused == 2, "two writes are refused on the way", "%d were refused", refused)
		l.Say("Two writes were refused, both with reason: they were decided on a number that was no longer true. What " +
			"becomes of a writer who reads again and does not decide again: see OT5b and OT27.")
	})
}

func TestOT5_AFreshTokenOnAStaleBodyDefeatsTheCheck(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT5", From: "D2 paragraph 2",
		Says: "a fresh token on a stale body keeps the overwrite and defeats the check: the write is accepted, and what " +
			"the rival had written is gone",
		Why: "the token certifies the reading that it came with; on another body it certifies something that never was " +
			"the case",
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
		row := func(what string, o *lab.Object, err error) {
			table.Row(what, o.GetResourceVersion(), lab.AnswerLine(err), lab.Fields(l.Peek("shelf"), "color", "size"))
		}
		_, refused := l.TryReplace(mine, "color=green")
		row("what was read, color=green", mine, refused)
		transplanted := lab.WithToken(mine, l.Get("shelf").GetResourceVersion())
		var err error
		sent := l.Record(func() { _, err = l.TryReplace(transplanted, "color=green") })
		row("the same with a fresh token", transplanted, err)
		table.End()
		l.Show("the second of them", sent)

		l.Refused(refused, "the replace with its own token", lab.Stale(mine))
		l.Accepted(err, "the replace with the transplanted token")
		l.Stored(mine, "color=green", "-size")
	})
}

func TestOT5b_ARenewedTokenRepeatsAStaleDecision(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT5b", From: "D2 paragraph 2",
		Says: "a conflict does not say that the token is old but that the decision may be: renew the token alone and a " +
			"\"+1\" that was decided on 1 sets 2 although the number has become 5; decide again and it is 6",
		Why:     "the optimistic lock of a patch protects only the decision that was made on the copy it was taken from",
		FalseIf: world.BodiesKeepTheirToken.Shows(`the patch with the renewed token was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the patch that was decided on 1 was accepted`),
			world.SomebodyIsFasterAt(3, http.MethodPatch, "shelf").Shows(`the patch that was decided anew was refused: 409 Conflict`),
		},
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/client", "MergeFromWithOptions"),
		Answers: "#2 #26",
	}, func(l *lab.Lab) {
		api := l.Controller()
		locked := client.MergeFromWithOptimisticLock{}
		addOne := func(read *corev1.ConfigMap) *corev1.ConfigMap {
			n, err := strconv.Atoi(read.Data["books"])
			l.Step(err, "reading the number of books")
			changed := read.DeepCopy()
			changed.Data["books"] = strconv.Itoa(n + 1)
			return changed
		}
		table := l.Table("step", "books", "answer")
		l.Rival().Create("shelf", "books=1")
		read := l.ReadConfigMap(api, "shelf")
		changed := addOne(read)
		l.Rival().Set("shelf", "books=5")

		refused := api.Patch(l.Context(), changed, client.MergeFromWithOptions(read, locked))
		table.Row("read 1, decide on 2, meanwhile somebody sets 5: patch", lab.Field(l.Peek("shelf"), "books"), lab.AnswerLine(refused))
		l.Refused(refused, "the patch that was decided on 1", lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict})

		changed = addOne(read)
		read.ResourceVersion = l.ReadConfigMap(api, "shelf").ResourceVersion
		renewed := api.Patch(l.Context(), changed, client.MergeFromWithOptions(read, locked))
		table.Row("renew the token only, and patch again", lab.Field(l.Peek("shelf"), "books"), lab.AnswerLine(renewed))
		l.Accepted(renewed, "the patch with the renewed token")
		l.Stored(l.Peek("shelf"), "books=2")

		l.Rival().Set("shelf", "books=5")
		read = l.ReadConfigMap(api, "shelf")
		l.Accepted(api.Patch(l.Context(), addOne(read), client.MergeFromWithOptions(read, locked)), "the patch that was decided anew")
		table.Row("5 again: read again, decide again, patch", lab.Field(l.Peek("shelf"), "books"), "200")
		table.End()
		l.Say("See also OT4, the loop that decides anew, and OT27, a loop that reads again and still sends its old decision.")
		l.Stored(l.Peek("shelf"), "books=6")
	})
}

func TestOT6_ARetryIsBoundedAndReportsWhatDoesNotGoAway(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6", From: "D2 paragraph 2, 5",
		Says: "a retry is bounded: RetryOnConflict runs its closure as often as the backoff has Steps, and then returns the " +
			"last conflict, which is to be reported",
		Why: "contention that does not go away means that others keep writing the same object, perhaps other fields of it " +
			"(OT14), or that one's own cache lags (OT16); spinning on it in silence ends neither",
		FalseIf: world.ClientDropsTheToken.Shows(`attempts: 1; returned: no error`),
		Read:    source.Decl("k8s.io/client-go/util/retry", "OnError"),
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red")
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		table := l.Table("backoff", "Steps", "attempts", "refused on the wire", "returned")
		contend := func(name string, backoff wait.Backoff) (int, error) {
			from, attempts := l.Wire.Tape().Now(), 0
			err := retry.RetryOnConflict(backoff, func() error {
				shelf, err := configMaps.Get(l.Context(), "shelf", metav1.GetOptions{})
				if err != nil {
					return err
				}
				attempts++
				l.Rival().Set("shelf", fmt.Sprintf("touched=%d-%d", backoff.Steps, attempts)) // always in between
				shelf.Data["color"] = "green"
				_, err = configMaps.Update(l.Context(), shelf, metav1.UpdateOptions{})
				return err
			})
			refused := wire.Answered(l.Wire.Tape().Calls(from), http.StatusConflict)
			table.Row(name, backoff.Steps, attempts, refused, lab.AnswerLine(err))
			l.Expect(attempts == backoff.Steps && refused == attempts && apierrors.IsConflict(err),
				fmt.Sprintf("%d attempts are made, and then the last conflict is returned", backoff.Steps),
				"attempts: %d; returned: %s", attempts, l.Describe(err))
			return attempts, err
		}
		attempts, err := contend("retry.DefaultRetry", retry.DefaultRetry)
		contend("one of our own", wait.Backoff{Steps: 3})
		table.End()
		l.Say("Reported: %v", fmt.Errorf("painting the shelf, %d attempts: %w", attempts, err))
	})
}

func TestOT6b_TheReadingBelongsInsideTheRetry(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6b", From: "D2 paragraph 2",
		Says: "RetryOnConflict runs a closure again and does nothing else: with the reading outside of it, one write by " +
			"somebody else makes every attempt fail; with the reading inside, the second succeeds",
		Why:         "a token that was refused once is refused for as long as the object exists: the version that it names does not come back",
		FalseIf:     world.ClientTransplantsTheToken.Shows(`the reading outside: 1; in the end: no error`),
		AlsoFalseIf: []world.World{world.SomebodyIsAlwaysFaster("shelf").Shows(`attempts with the reading inside: 5; in the end: 409 Conflict`)},
		Read:        source.Decl("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers:     "#23",
	}, func(l *lab.Lab) {
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		read := func() (*corev1.ConfigMap, error) {
			return configMaps.Get(l.Context(), "shelf", metav1.GetOptions{})
		}
		paint := func(shelf *corev1.ConfigMap) error {
			shelf = shelf.DeepCopy()
			shelf.Data["color"] = "green"
			_, err := configMaps.Update(l.Context(), shelf, metav1.UpdateOptions{})
			return err
		}
		table := l.Table("the reading is", "attempts", "in the end", "stored")
		attempts := 0

		l.Rival().Create("shelf", "color=red")
		shelf, err := read()
		l.Step(err, "reading the shelf")
		l.Rival().Set("shelf", "size=3") // the only write of the rival
		outside := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			attempts++
			return paint(shelf)
		})
		table.Row("outside", attempts, lab.AnswerLine(outside), lab.Fields(l.Peek("shelf"), "color", "size"))
		l.Expect(attempts == 5 && apierrors.IsConflict(outside), "with the reading outside, all 5 attempts conflict",
			"attempts with the reading outside: %d; in the end: %s", attempts, l.Describe(outside))

		attempts = 0
		inside := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			shelf, err := read()
			if err != nil {
				return err
			}
			if attempts++; attempts == 1 {
				l.Rival().Set("shelf", "size=4") // the only write of the rival
			}
			return paint(shelf)
		})
		table.Row("inside", attempts, lab.AnswerLine(inside), lab.Fields(l.Peek("shelf"), "color", "size"))
		table.End()
		l.Expect(attempts == 2 && inside == nil, "with the reading inside, the second attempt succeeds",
			"attempts with the reading inside: %d; in the end: %s", attempts, l.Describe(inside))
		l.Stored(l.Peek("shelf"), "color=green", "size=4")
	})
}

func TestOT6c_TheReadingOfARetryMustNotComeFromAStaleCache(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6c", From: "D2 paragraph 2, 4",
		Says: "reading again inside the retry does not help when it is read from a cache that lags: every attempt conflicts; " +
			"one live reading is enough",
		Why: "all attempts of retry.DefaultRetry are over in about 40 ms, and a cache may lag for longer; " +
			"so read live after a conflict, or come back later",
		FalseIf:     world.AProxyStripsTheRevision.Shows(`readings from the cache: 1; in the end: no error`),
		AlsoFalseIf: []world.World{world.AProxyKeepsAnswers.Shows(`attempts with live readings: 5; in the end: 409 Conflict`)},
		Read:        source.Decl("k8s.io/client-go/util/retry", "DefaultRetry"),
		Answers:     "#24",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		shelf := shelves.Create("shelf", "color=red")
		_, err := shelves.TryGetAt("shelf", shelf.GetResourceVersion())
		l.Step(err, "waiting until the apiserver's cache has the shelf")
		frozen := l.Wire.Freeze(kind.StoragePrefix())
		sized := l.Rival().Of(kind).Set("shelf", "size=3")
		l.Step(frozen.Holds(l.Context(), number(sized)), "letting the cache lag behind")
		l.Say("The cache is kube-apiserver's own. A rival has set size=3, and what etcd tells the cache about shelves is held " +
			"back, so the cache does not know.")

		table := l.Table("read", "its token", "current token", "attempts", "in the end")
		paint := func(from, resourceVersion string) (int, error) {
			attempts, token := 0, ""
			err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				attempts++
				shelf, err := shelves.TryGetAt("shelf", resourceVersion)
				if err != nil {
					return err
				}
				token = shelf.GetResourceVersion()
				_, err = shelves.TryReplace(shelf, "color=green")
				return err
			})
			table.Row(from, token, sized.GetResourceVersion(), attempts, lab.AnswerLine(err))
			return attempts, err
		}
		attempts, err := paint(`from the cache (resourceVersion "0")`, "0")
		l.Expect(attempts == 5 && apierrors.IsConflict(err), "read from the cache, all 5 attempts conflict",
			"attempts with readings from the cache: %d; in the end: %s", attempts, l.Describe(err))
		attempts, err = paint("live", "")
		table.End()
		l.Say("See also OT16, the same with an informer's cache, and OT16d.")
		l.Expect(attempts == 1 && err == nil, "read live, the first attempt succeeds",
			"attempts with live readings: %d; in the end: %s", attempts, l.Describe(err))
		l.Stored(sized, "color=green", "size=3")
	})
}

func TestOT6d_ACancelledRetryEndsAndTheContextSaysWhy(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6d", From: "D2 paragraph 5",
		Says: "a cancelled context ends a retry; but RetryOnConflict, which knows no context, then returns the conflict that " +
			"came before, so it is the context that has to be asked; wait.ExponentialBackoffWithContext reports it by itself",
		Why:     "who is told of a conflict tries again later; who is told of the cancellation does not",
		FalseIf: world.ClientDropsTheToken.Shows(`attempts: 1; returned: no error`),
		Read:    source.Decl("k8s.io/client-go/util/retry", "OnError"),
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red")
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		stale, err := configMaps.Get(l.Context(), "shelf", metav1.GetOptions{})
		l.Step(err, "reading the shelf")
		l.Rival().Set("shelf", "size=3")
		paint := func(ctx context.Context) error {
			_, err := configMaps.Update(ctx, stale, metav1.UpdateOptions{})
			return err
		}
		table := l.Table("loop", "cancelled", "attempts", "returned")
		try := func(loop, when string, cancelAfter int, retry func(context.Context, func() error) error) (int, error) {
			ctx, cancel := context.WithCancel(l.Context())
			defer cancel()
			runs := 0
			if cancelAfter == 0 {
				cancel()
			}
			err := retry(ctx, func() error {
				runs++
				err := paint(ctx)
				if runs == cancelAfter {
					cancel()
				}
				return err
			})
			table.Row(loop, when, runs, lab.AnswerLine(err))
			return runs, err
		}
		onConflict := func(_ context.Context, attempt func() error) error {
			return retry.RetryOnConflict(retry.DefaultRetry, attempt)
		}
		withContext := func(ctx context.Context, attempt func() error) error {
			return wait.ExponentialBackoffWithContext(ctx, retry.DefaultRetry, func(context.Context) (done bool, _ error) {
				err := attempt()
				if apierrors.IsConflict(err) {
					return false, nil
				}
				return true, err
			})
		}

		_, err = try("RetryOnConflict", "before the first attempt", 0, onConflict)
		l.Expect(errors.Is(err, context.Canceled), "cancelled before any conflict, the loop returns the cancellation",
			"it returned: %s", l.Describe(err))
		runs, err := try("RetryOnConflict", "after the first conflict", 1, onConflict)
		l.Expect(runs == 2 && apierrors.IsConflict(err) && !errors.Is(err, context.Canceled),
			"cancelled after a conflict, RetryOnConflict goes on once more, then ends and returns the conflict",
			"attempts: %d; returned: %s", runs, l.Describe(err))
		runs, err = try("wait.ExponentialBackoffWithContext", "after the first conflict", 1, withContext)
		table.End()
		l.Say("RetryOnConflict does not look at a context between two attempts, so it makes one more, and only that attempt's " +
			"request comes back with the cancellation; the loop takes this for its own time being up, and then it returns the " +
			"last conflict that it has seen.")
		l.Expect(runs == 1 && errors.Is(err, context.Canceled), "a loop that knows the context ends at once and returns the cancellation",
			"attempts: %d; returned: %s", runs, l.Describe(err))
	})
}

func TestOT7_BackoffWithChanceProtectsTheServer(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT7", From: "D2 paragraph 2",
		Says: "backing off protects the control plane: under the same contention and for the same work far fewer refused " +
			"writes reach the server, provided that chance decides how long each writer waits",
		Why: "every refused write costs the server a request, and etcd a read or a transaction; and those who all wait equally long meet " +
			"again",
		FalseIf: world.SomebodyIsAlwaysFaster("by-chance").Shows(`refused without backoff 28, with backoff by chance 64`),
		AlsoFalseIf: []world.World{
			world.SomebodyIsAlwaysFaster("in-step").Shows(`refused without backoff 28, in step 64`),
			world.ClientDropsTheToken.Shows(`the counter says 1, 0 gave up`),
		},
		Read: source.Decl("k8s.io/apimachinery/pkg/util/wait", "Jitter"),
	}, func(l *lab.Lab) {
		const writers = 8
		chance := rand.New(rand.NewPCG(7, 7)) // the same chance in every run
		l.Say("Time is counted in rounds, so that every run is the same: in a round all who are not sitting out read, and "+
			"then all of them write, one after the other; the first of them is accepted, and up to %d are refused. The refused "+
			"writes are 409s counted on the wire, the rounds are those until the last writer was done.", writers-1)
		table := l.Table("8 writers add 1 to a counter; when refused", "refused writes", "rounds", "the counter says")
		contend := func(title, name string, sitOut func(n int) int) lab.Tally {
			tally := l.Contend(name, lab.Contention{Writers: writers, Tries: writers, SitOut: sitOut})
			table.Row(title, tally.Refused, tally.Rounds, tally.Counter)
			return tally
		}
		none := contend("each tries again in the next round", "at-once", nil)
		jitter := contend("each sits out 0 to 3, 7, 15 … rounds, by chance", "by-chance", func(n int) int { return chance.IntN(2 << n) })
		l.Expect(jitter.Refused*2 <= none.Refused, "backing off by chance spares the server more than half of the refused writes",
			"refused without backoff %d, with backoff by chance %d", none.Refused, jitter.Refused)
		equal := contend("each sits out exactly 3, 7, 15 … rounds", "in-step", func(n int) int { return 2<<n - 1 })
		table.End()
		l.Say("In client-go the chance is in the Jitter of a wait.Backoff; retry.DefaultRetry has %.1f of its %v.",
			retry.DefaultRetry.Jitter, retry.DefaultRetry.Duration)

		l.Expect(equal.Refused == none.Refused, "backing off in step spares it nothing",
			"refused without backoff %d, in step %d", none.Refused, equal.Refused)
		for _, tally := range []lab.Tally{none, equal, jitter} {
			l.Expect(tally.Counter == writers && tally.GaveUp == 0, "all the work is done", "the counter says %d, %d gave up", tally.Counter, tally.GaveUp)
		}
	})
}

func TestOT28_CreateOrUpdateReportsTheRaceItLost(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT28", From: "D2 paragraph 2, 3; +",
		Says: "controllerutil.CreateOrUpdate reads, lets a function change what was read, and replaces it with the token of " +
			"that reading: it writes nothing if nothing changed, and if somebody wrote in between it returns the conflict",
		Why:         "its function must be one that can be run again on the next reading, which is what a reconciler does anyway",
		FalseIf:     world.ClientDropsTheToken.Shows(`the raced CreateOrUpdate was accepted`),
		AlsoFalseIf: []world.World{world.SomebodyIsAlwaysFaster("shelf").Shows(`the next was refused: 409 Conflict`)},
		Read:        source.Decl("sigs.k8s.io/controller-runtime/pkg/controller/controllerutil", "CreateOrUpdate"),
	}, func(l *lab.Lab) {
		api := l.Controller()
		table := l.Table("CreateOrUpdate", "result", "answer", "to etcd", "stored")
		var result controllerutil.OperationResult
		var sent wire.Requests
		paint := func(when, color string) (err error) {
			shelf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: "shelf"}}
			sent = l.Record(func() {
				result, err = controllerutil.CreateOrUpdate(l.Context(), api, shelf, func() error {
					if shelf.Data == nil {
						shelf.Data = map[string]string{}
					}
					shelf.Data["color"] = color // and leaves what others have put there
					return nil
				})
			})
			table.Row(when, result, l.Answered(), sent.Summary(), lab.Fields(l.Peek("shelf"), "color", "size"))
			return err
		}
		l.Accepted(paint("color=red", "red"), "the first")
		l.Accepted(paint("color=red once more", "red"), "the second")
		l.Expect(result == controllerutil.OperationResultNone && sent.Count(wire.Txn) == 0, "the second changes nothing, and sends no write",
			"the result is %q, and etcd is asked: %s", result, sent.Summary())
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Who == "writer" && c.Verb == http.MethodPut }, Times: 1,
			Do: func(int) { l.Settle(l.Rival().Set("shelf", "size=3")) },
		})
		raced := paint("color=blue, raced", "blue")
		l.Refused(raced, "the raced CreateOrUpdate", lab.Stale(l.Peek("shelf")))
		l.Accepted(paint("color=blue, the next reconcile", "blue"), "the next")
		table.End()
		l.Say("In the raced row the transaction is the rival's: the replace was refused after a read, and sent none (CF2).")
		l.Stored(l.Peek("shelf"), "color=blue", "size=3")
	})
}
