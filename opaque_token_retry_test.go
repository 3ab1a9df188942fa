// Chapter 4, continued: replace and retry.
package modrev

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
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
		Says: "to retry means to read again, decide again, and write: three writers add one to a counter, each gets " +
			"in between another's reading and writing, and nothing is lost",
		Why: "a conflict is no malfunction: it is how writers who know nothing of each other share an object without " +
			"a lock",
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
			"What becomes of a writer who reads again and does not decide again: see OT5b and OT27.")
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
		Says: "a fresh token on a stale body keeps the overwrite and defeats the check: the write is accepted, and " +
			"what the rival had written is gone",
		Why: "the token certifies the reading that it came with; on another body it certifies something that never " +
			"was the case",
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

func TestOT5b_ARenewedTokenRepeatsAStaleDecision(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT5b", From: "D2 paragraph 2",
		Says: "a conflict does not say that the token is old but that the decision may be: renew the token alone and " +
			"a \"+1\" that was decided on 1 sets 2 although the number has become 5; decide again and it is 6",
		Why: "the optimistic lock of a patch protects only the decision that was made on the copy it was taken " +
			"from",
		FalseIf: world.BodiesKeepTheirToken.Shows(`the patch with the renewed token was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the patch that was decided on 1 was accepted`),
			world.SomebodyIsFasterAt(3, http.MethodPatch, "shelf").Shows(
				`the patch that was decided anew was refused: 409 Conflict`),
		},
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/client", "MergeFromWithOptions"),
		Answers: "#2 #26",
	}, func(l *lab.Lab) {
		api := l.Controller()
		addOne := func(read *corev1.ConfigMap) *corev1.ConfigMap {
			changed := read.DeepCopy()
			changed.Data["books"] = strconv.Itoa(toInt(l, read.Data["books"]) + 1)
			return changed
		}
		patch := func(read, changed *corev1.ConfigMap) error {
			locked := client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
			return api.Patch(l.Context(), changed, locked)
		}
		table := l.Table("step", "books", "answer")
		row := func(step string, err error) {
			table.Row(step, lab.Field(l.Peek("shelf"), "books"), lab.AnswerLine(err))
		}
		shelf := l.Rival().Create("shelf", "books=1")

		read := readConfigMap(l, api, "shelf")
		changed := addOne(read)
		l.Rival().Set("shelf", "books=5")
		err := patch(read, changed)
		row("read 1, decide on 2, meanwhile somebody sets 5: patch", err)
		l.Refused(err, "the patch that was decided on 1", lab.Stale(shelf))

		changed = addOne(read)
		read.ResourceVersion = readConfigMap(l, api, "shelf").ResourceVersion
		err = patch(read, changed)
		row("renew the token only, and patch again", err)
		l.Accepted(err, "the patch with the renewed token")
		l.Stored(shelf, "books=2")

		l.Rival().Set("shelf", "books=5")
		read = readConfigMap(l, api, "shelf")
		err = patch(read, addOne(read))
		row("5 again: read again, decide again, patch", err)
		table.End()
		l.Say("See also OT4, the loop that decides anew, and OT27, a loop that reads again and still sends its old " +
			"decision.")
		l.Accepted(err, "the patch that was decided anew")
		l.Stored(shelf, "books=6")
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
		Says: "a retry is bounded: RetryOnConflict runs its closure as often as the backoff has Steps, and then " +
			"returns the last conflict, which is to be reported",
		Why: "contention that does not go away means that others keep writing the same object, perhaps other fields " +
			"of it (OT14), or that one's own cache lags (OT16); spinning on it in silence ends neither",
		FalseIf: world.ClientDropsTheToken.Shows(`the number of attempts with retry.DefaultRetry is 1`),
		Read:    source.Decl("k8s.io/client-go/util/retry", "OnError"),
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red")
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		table := l.Table("backoff", "Steps", "attempts", "refused on the wire", "returned")
		paint := func(name string, backoff wait.Backoff) (attempts int, err error) {
			from := l.Wire.Tape().Now()
			err = retry.RetryOnConflict(backoff, func() error {
				attempts++
				shelf, err := configMaps.Get(l.Context(), "shelf", metav1.GetOptions{})
				require.NoError(l, err, "reading the shelf")
				l.Rival().Set("shelf", "touched="+strconv.Itoa(attempts)) // always in between
				shelf.Data["color"] = "green"
				_, err = configMaps.Update(l.Context(), shelf, metav1.UpdateOptions{})
				return err
			})
			refused := wire.Answered(l.Wire.Tape().Calls(from), http.StatusConflict)
			table.Row(name, backoff.Steps, attempts, refused, lab.AnswerLine(err))
			l.Equal("the number of attempts with "+name, attempts, backoff.Steps)
			l.Equal("the number of them that the server refused", refused, attempts)
			l.Refused(err, "the last of them", lab.Stale(l.Peek("shelf")))
			return attempts, err
		}
		attempts, err := paint("retry.DefaultRetry", retry.DefaultRetry)
		paint("one of our own", wait.Backoff{Steps: 3})
		table.End()
		l.Say("Reported: %v", fmt.Errorf("painting the shelf, %d attempts: %w", attempts, err))
	})
}

func TestOT6b_TheReadingBelongsInsideTheRetry(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6b", From: "D2 paragraph 2",
		Says: "RetryOnConflict runs a closure again and does nothing else: with the reading outside of it, one write " +
			"by somebody else makes every attempt fail; with the reading inside, the second succeeds",
		Why: "a token that was refused once is refused for as long as the object exists: the version that it names " +
			"does not come back",
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
		Says: "reading again inside the retry does not help when it is read from a cache that lags: every attempt " +
			"conflicts; one live reading is enough",
		Why: "all attempts of retry.DefaultRetry are over in about 40 ms, and a cache may lag for longer; " +
			"so read live after a conflict, or come back later",
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
		Says: "a cancelled context ends a retry; but RetryOnConflict, which knows no context, then returns the " +
			"conflict that came before, so it is the context that has to be asked; " +
			"wait.ExponentialBackoffWithContext reports it by itself",
		Why:     "who is told of a conflict tries again later; who is told of the cancellation does not",
		FalseIf: world.ClientDropsTheToken.Shows(`cancelled in its first one is 1`),
		Read:    source.Decl("k8s.io/client-go/util/retry", "OnError"),
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
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
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
		l.Say("RetryOnConflict does not look at a context between two attempts, so it makes one more, and only that " +
			"attempt's request comes back with the cancellation; the loop takes this for its own time being up, and " +
			"then it returns the last conflict that it has seen.")
		l.Equal("the number of attempts of a loop that knows the context", attempts, 1)
		l.Expect(errors.Is(err, context.Canceled), "a loop that knows the context returns the cancellation",
			"it returned: %s", l.Describe(err))
	})
}

func TestOT7_BackoffWithChanceProtectsTheServer(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT7", From: "D2 paragraph 2",
		Says: "backing off protects the control plane: under the same contention and for the same work far fewer " +
			"refused writes reach the server, provided that chance decides how long each writer waits",
		Why: "every refused write costs the server a request, and etcd a read or a transaction; and those who all " +
			"wait equally long meet again",
		FalseIf: world.SomebodyIsAlwaysFaster("by-chance").Shows(`refused without backoff 28, with backoff by chance 64`),
		AlsoFalseIf: []world.World{
			world.SomebodyIsAlwaysFaster("in-step").Shows(`refused writes with backoff in step is 64`),
			world.ClientDropsTheToken.Shows(`the counter at-once is 1`),
		},
		Read: source.Decl("k8s.io/apimachinery/pkg/util/wait", "Jitter"),
	}, func(l *lab.Lab) {
		chance := rand.New(rand.NewPCG(7, 7)) // the same chance in every run
		l.Say("Time is counted in rounds, so that every run is the same: in a round all who are not sitting out "+
			"read, and then all of them write, one after the other; the first of them is accepted, and up to %d are "+
			"refused. The refused writes are 409s counted on the wire, the rounds are those until the last writer "+
			"was done.", contenders-1)
		none := contend(l, "at-once", func(int) int { return 0 })
		byChance := contend(l, "by-chance", func(refusals int) int { return chance.IntN(2 << refusals) })
		l.Expect(byChance.refused*2 <= none.refused,
			"backing off by chance spares the server more than half of the refused writes",
			"refused without backoff %d, with backoff by chance %d", none.refused, byChance.refused)
		inStep := contend(l, "in-step", func(refusals int) int { return 2<<refusals - 1 })
		l.Equal("the number of refused writes with backoff in step", inStep.refused, none.refused)

		table := l.Table("8 writers add 1 to a counter; when refused", "refused writes", "rounds", "the counter says")
		table.Row("each tries again in the next round", none.refused, none.rounds, none.counter)
		table.Row("each sits out 0 to 3, 7, 15 … rounds, by chance", byChance.refused, byChance.rounds, byChance.counter)
		table.Row("each sits out exactly 3, 7, 15 … rounds", inStep.refused, inStep.rounds, inStep.counter)
		table.End()
		l.Say("In client-go the chance is in the Jitter of a wait.Backoff; retry.DefaultRetry has %.1f of its %v.",
			retry.DefaultRetry.Jitter, retry.DefaultRetry.Duration)

		l.Equal("the counter at-once", none.counter, contenders)
		l.Equal("the counter by-chance", byChance.counter, contenders)
		l.Equal("the counter in-step", inStep.counter, contenders)
	})
}

// contenders is how many writers contend for a counter.
const contenders = 8

// contention is what it came to when they did.
type contention struct {
	refused int // writes that the server refused with 409 Conflict, counted on the wire
	rounds  int // until the last writer was done
	counter int // what the counter says in the end
}

// contend has the writers contend for a new counter: each wants to add one to it, by reading it and replacing it with
// the token of that reading. Time is counted in rounds and not in seconds: in a round, all writers who are not sitting
// out read first, and then all of them write, one after the other. sitOut says how many rounds a writer lets pass after
// so many refusals; after eight the writer gives up.
func contend(l *lab.Lab, name string, sitOut func(refusals int) int) contention {
	type writer struct {
		*lab.Client
		read     *lab.Object
		due      int // the round in which it reads again
		refusals int
		done     bool
	}
	l.Create(name, "n=0")
	from := l.Wire.Tape().Now()
	var writers []*writer
	for i := range contenders {
		writers = append(writers, &writer{Client: l.As("writer-" + strconv.Itoa(i+1))})
	}
	round := 0
	for ; len(writers) > 0; round++ {
		var here []*writer
		for _, w := range writers {
			if w.due <= round {
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
			w.due = round + 1 + sitOut(w.refusals)
			w.done = w.refusals == contenders
		}
		writers = slices.DeleteFunc(writers, func(w *writer) bool { return w.done })
	}
	return contention{
		refused: wire.Answered(l.Wire.Tape().Calls(from), http.StatusConflict),
		rounds:  round,
		counter: toInt(l, lab.Field(l.Get(name), "n")),
	}
}

func TestOT28_CreateOrUpdateReportsTheRaceItLost(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT28", From: "D2 paragraph 2, 3; +",
		Says: "controllerutil.CreateOrUpdate reads, lets a function change what was read, and replaces it with the " +
			"token of that reading: it writes nothing if nothing changed, and if somebody wrote in between it " +
			"returns the conflict",
		Why: "its function must be one that can be run again on the next reading, which is what a reconciler " +
			"does anyway",
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
		l.Equal("the result of the second", result, controllerutil.OperationResultNone)
		l.Equal("the number of transactions of the second", sent.Count(wire.Txn), 0)

		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Who == "writer" && c.Verb == http.MethodPut }, Times: 1,
			Do: func(int) { l.Settle(l.Rival().Set("shelf", "size=3")) },
		})
		raced := paint("color=blue, raced", "blue")
		l.Refused(raced, "the raced CreateOrUpdate", lab.Stale(l.Peek("shelf")))
		l.Accepted(paint("color=blue, the next reconcile", "blue"), "the next")
		table.End()
		l.Say("In the raced row the transaction is the rival's: the replace was refused after a read, and sent none " +
			"(CF2).")
		l.Stored(l.Peek("shelf"), "color=blue", "size=3")
	})
}
