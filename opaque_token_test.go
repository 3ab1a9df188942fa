// Chapter 4. A resourceVersion is an opaque token: what it certifies, what it does not, and what to do
// when it is refused.
package modrev

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedapps "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

// Identity: which object is this, and which of its numbers says what.

func TestOpaqueTokenANameLocatesAndTheUIDTellsIncarnationsApart(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT1", From: "D2 paragraph 1",
		Says: "namespace and name say where an object is; the uid says which: delete it and create it again, and the " +
			"same place holds another object",
		Why:     "what was learned about an object, or decided for it, does not hold for its namesake",
		FalseIf: world.UIDsBelongToNames.Shows(`both have the uid [0-9a-f-]+`),
		Read:    source.Func("k8s.io/apiserver/pkg/registry/rest", "FillObjectMetaSystemFields"),
	}, func(l *lab.Lab) {
		first := l.Create("shelf", "color=red")
		l.Delete("shelf")
		l.Create("shelf", "color=red")
		second := l.Get("shelf")

		table := l.Table("", "first", "second")
		table.Row("name", first.GetName(), second.GetName())
		table.Row("key in etcd", wire.ShortKey(l.Key(first)), wire.ShortKey(l.Key(second)))
		table.Row("data", lab.Field(first, "color"), lab.Field(second, "color"))
		table.Row("uid", first.GetUID(), second.GetUID())
		table.Row("resourceVersion", first.GetResourceVersion(), second.GetResourceVersion())
		table.End()

		l.Expect(l.Key(first) == l.Key(second), "both are stored under one key", "%s and %s", l.Key(first), l.Key(second))
		l.Expect(first.GetUID() != second.GetUID(), "each incarnation has a uid of its own",
			"both have the uid %s", first.GetUID())
	})
}

func TestOpaqueTokenWhatIsRememberedByNameGoesToTheNextIncarnation(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT2", From: "D2 paragraph 1",
		Says: "something outside the cluster that is remembered by name alone is taken for the next incarnation's; " +
			"remembered by uid it is not",
		Why:     "bob must not get ann's disk because his shelf has the name that hers had",
		FalseIf: world.UIDsBelongToNames.Shows(`by its uid bob's shelf is given ann's disk`),
		Read:    source.Func("k8s.io/apimachinery/pkg/apis/meta/v1", "IsControlledBy"),
	}, func(l *lab.Lab) {
		anns := l.Create("shelf", "owner=ann")
		byName := map[string]string{anns.GetNamespace() + "/" + anns.GetName(): "ann's disk"}
		byUID := map[types.UID]string{anns.GetUID(): "ann's disk"}
		books := l.New("books", "title=Emma")
		l.Step(controllerutil.SetControllerReference(anns, books, scheme.Scheme), "making ann's shelf the owner of the books")
		l.CreateObject(books)

		l.Delete("shelf")
		l.Create("shelf", "owner=bob")
		bobs := l.Get("shelf")
		books = l.Get("books")

		or := func(disk string) string {
			if disk == "" {
				return "nothing, so a new one is made"
			}
			return disk
		}
		table := l.Table("the disk was noted down by", "what bob's shelf finds")
		table.Row("namespace and name", or(byName[bobs.GetNamespace()+"/"+bobs.GetName()]))
		table.Row("uid", or(byUID[bobs.GetUID()]))
		table.End()
		table = l.Table("configmaps/books has an owner reference; it is", "ann's shelf's", "bob's shelf's")
		table.Row("by the owner's kind and name", books.GetOwnerReferences()[0].Name == anns.GetName(), books.GetOwnerReferences()[0].Name == bobs.GetName())
		table.Row("by the owner's uid: metav1.IsControlledBy", metav1.IsControlledBy(books, anns), metav1.IsControlledBy(books, bobs))
		table.End()

		l.Expect(byName[bobs.GetNamespace()+"/"+bobs.GetName()] == "ann's disk", "by its name, bob's shelf is given ann's disk",
			"by its name it finds nothing")
		l.Expect(byUID[bobs.GetUID()] == "", "by its uid, bob's shelf finds no disk yet",
			"by its uid bob's shelf is given %s", byUID[bobs.GetUID()])
		l.Expect(metav1.IsControlledBy(books, anns) && !metav1.IsControlledBy(books, bobs),
			"the books belong to ann's shelf only", "IsControlledBy says that they are bob's")
	})
}

func TestOpaqueTokenResourceVersionGenerationAndUIDMoveApart(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT3", From: "D2 paragraph 1",
		Says: "resourceVersion, generation and uid are not interchangeable: the resourceVersion moves with every write to " +
			"storage, generation only with what the kind calls desired state (some kinds have none), the uid never",
		Why: "who takes one for another either misses changes (generation, of a ConfigMap) or acts on changes that mean " +
			"nothing to him (resourceVersion)",
		FalseIf: world.AProxyTouchesTheSpec.Shows(`a label on a Deployment moved: rv gen`),
		Read:    source.Func("k8s.io/apiextensions-apiserver/pkg/registry/customresource", "customResourceStrategy.PrepareForUpdate"),
		Answers: "#44 #45",
	}, func(l *lab.Lab) {
		kinds := []struct {
			lab.Kind
			field string // of its desired state
		}{
			{lab.ConfigMap, "size"}, {lab.Lease, "leaseDurationSeconds"}, {lab.Pod, "activeDeadlineSeconds"},
			{lab.Deployment, "minReadySeconds"}, {l.CustomResource("status", "scale"), "size"}, {l.CustomResource(), "size"},
		}
		status := lab.Merge(`{"status":{"message":"fine","replicas":1}}`)
		edits := []struct {
			edit  string
			do    lab.Edit
			moves [6]string
		}{
			{"desired state: data or spec", lab.Desired("60"), [6]string{"rv", "rv", "rv gen", "rv gen", "rv gen", "rv gen"}},
			{"the same once more", lab.Desired("60"), [6]string{"-", "-", "-", "-", "-", "-"}},
			{"a label", lab.Merge(`{"metadata":{"labels":{"a":"b"}}}`), [6]string{"rv", "rv", "rv", "rv", "rv", "rv"}},
			{"an annotation", lab.Merge(`{"metadata":{"annotations":{"a":"b"}}}`), [6]string{"rv", "rv", "rv", "rv gen", "rv", "rv"}},
			{"a finalizer", lab.Merge(`{"metadata":{"finalizers":["modrev.example/hold"]}}`), [6]string{"rv", "rv", "rv", "rv", "rv", "rv"}},
			{"status, through the object", status, [6]string{"-", "-", "-", "-", "-", "rv gen"}},
			{"status, through /status", status.Through("status"), [6]string{"404", "404", "rv", "rv", "rv", "404"}},
			{"replicas, through /scale", lab.Merge(`{"spec":{"replicas":5}}`).Through("scale"), [6]string{"404", "404", "404", "rv gen", "rv gen", "404"}},
			{"apply, another desired state", lab.Applied("ann", "30"), [6]string{"rv", "rv", "rv gen", "rv gen", "rv gen", "rv gen"}},
			{"apply, the same, another owner", lab.Applied("bob", "30"), [6]string{"rv", "rv", "rv", "rv", "rv", "rv"}},
			{"that apply once more", lab.Applied("bob", "30"), [6]string{"-", "-", "-", "-", "-", "-"}},
			{"delete, held by the finalizer", lab.Deleted, [6]string{"rv", "rv", "rv gen", "rv gen", "rv gen", "rv gen"}},
		}

		table := l.Table("edit", "ConfigMap", "Lease", "Pod", "Deployment", "Shelf+", "Shelf")
		first := []any{"generation of a new object"}
		objects := make([]*lab.Object, len(kinds))
		for i, k := range kinds {
			objects[i] = l.Of(k.Kind).Create("shelf", k.field+"=90")
			first = append(first, objects[i].GetGeneration())
		}
		table.Row(first...)
		for _, e := range edits {
			row := []any{e.edit}
			for i, k := range kinds {
				moved := l.Moved(objects[i], func() error { return e.do(l.Of(k.Kind), k.field) }).String()
				row = append(row, moved)
				l.Expect(moved == e.moves[i], fmt.Sprintf("%s on a %s moves: %s", e.edit, k.Kind.Kind, e.moves[i]),
					"%s on a %s moved: %s", e.edit, k.Kind.Kind, moved)
			}
			table.Row(row...)
		}
		table.End()
		l.Blank()
		l.Say("rv: a new resourceVersion, and one write to storage. gen: generation grew by one. -: answered with 200, " +
			"nothing moved, nothing was written. 404: there is no such subresource. The uid never moved.")
		l.Say("Shelf+ is a custom resource with /status and /scale, Shelf one without. The generation of a ConfigMap and of a " +
			"Lease is 0 for ever. A Deployment counts its annotations among the desired state, and the wish to be deleted " +
			"counts for all kinds that have a generation.")
	})
}

// Replace and retry: what the token certifies, and what to do when it is refused.

func TestOpaqueTokenToRetryIsToReadAgainAndDecideAgain(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT4", From: "D2 paragraph 2",
		Says: "to retry means to read again, decide again, and write: three writers add one to a counter, each gets in " +
			"between another's reading and writing, and nothing is lost",
		Why: "a conflict is no malfunction: it is how writers who know nothing of each other share an object without a " +
			"lock",
		FalseIf:     world.ClientTransplantsTheToken.Shows(`the counter says 1`),
		AlsoFalseIf: []world.World{world.ClientDropsTheToken.Shows(`the counter says 1`)},
		Read:        source.Func("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers:     "#74 #77",
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
				table.Row(writers[i], read, counter.ResourceVersion, n+1, lab.Brief(err))
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
		l.Expect(n == "3", "the counter says 3 after three additions", "the counter says %s after three additions", n)
		l.Expect(refused == 2, "two writes are refused on the way", "%d were refused", refused)
		l.Blank()
		l.Say("Two writes were refused, both with reason: they were decided on a number that was no longer true.")
	})
}

func TestOpaqueTokenAFreshTokenOnAStaleBodyDefeatsTheCheck(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT5", From: "D2 paragraph 2",
		Says: "a fresh token on a stale body keeps the overwrite and defeats the check: the write is accepted, and what " +
			"the rival had written is gone",
		Why: "the token certifies the reading that it came with; on another body it certifies something that never was " +
			"the case",
		FalseIf: world.BodiesKeepTheirToken.Shows(`the replace with the transplanted token was refused: 409 Conflict`),
		Read:    source.Func("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
		Answers: "#1",
	}, func(l *lab.Lab) {
		l.Rival().Create("shelf", "color=red")
		mine := l.Get("shelf")
		l.Rival().Set("shelf", "size=3")

		table := l.Table("what is sent", "with token", "answer", "stored then")
		row := func(what string, o *lab.Object, err error) {
			table.Row(what, o.GetResourceVersion(), lab.Brief(err), lab.Fields(l.Peek("shelf"), "color", "size"))
		}
		_, refused := l.TryReplace(mine, "color=green")
		row("what was read, color=green", mine, refused)
		transplanted := lab.WithToken(mine, l.Get("shelf").GetResourceVersion())
		var err error
		sent := l.Record(func() { _, err = l.TryReplace(transplanted, "color=green") })
		row("the same with a fresh token", transplanted, err)
		table.End()
		l.Show("the second of them", sent)

		l.Conflicts(refused, "the replace with its own token", mine)
		l.Accepted(err, "the replace with the transplanted token")
		l.Stored(mine, "color=green", "-size")
	})
}

func TestOpaqueTokenARenewedTokenRepeatsAStaleDecision(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT5b", From: "D2 paragraph 2",
		Says: "a conflict does not say that the token is old but that the decision may be: renew the token alone and a " +
			"\"+1\" that was decided on 1 sets 2 although the number has become 5; decide again and it is 6",
		Why:     "the optimistic lock of a patch protects only the decision that was made on the copy it was taken from",
		FalseIf: world.BodiesKeepTheirToken.Shows(`the patch with the renewed token was refused: 409 Conflict`),
		Read:    source.Func("sigs.k8s.io/controller-runtime/pkg/client", "MergeFromWithOptions"),
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
		table.Row("read 1, decide on 2, meanwhile somebody sets 5: patch", lab.Field(l.Peek("shelf"), "books"), lab.Brief(refused))
		l.Refused(refused, "the patch that was decided on 1", http.StatusConflict, metav1.StatusReasonConflict)

		changed = addOne(read)
		read.ResourceVersion = l.ReadConfigMap(api, "shelf").ResourceVersion
		renewed := api.Patch(l.Context(), changed, client.MergeFromWithOptions(read, locked))
		table.Row("renew the token only, and patch again", lab.Field(l.Peek("shelf"), "books"), lab.Brief(renewed))
		l.Accepted(renewed, "the patch with the renewed token")
		l.Stored(l.Peek("shelf"), "books=2")

		l.Rival().Set("shelf", "books=5")
		read = l.ReadConfigMap(api, "shelf")
		l.Accepted(api.Patch(l.Context(), addOne(read), client.MergeFromWithOptions(read, locked)), "the patch that was decided anew")
		table.Row("5 again: read again, decide again, patch", lab.Field(l.Peek("shelf"), "books"), "200")
		table.End()
		l.Stored(l.Peek("shelf"), "books=6")
	})
}

func TestOpaqueTokenARetryIsBoundedAndReportsWhatDoesNotGoAway(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6", From: "D2 paragraph 2, 5",
		Says: "a retry is bounded: RetryOnConflict runs its closure as often as the backoff has Steps, and then returns the " +
			"last conflict, which is to be reported",
		Why: "contention that does not go away means that somebody else is after the same field; spinning on it in " +
			"silence helps neither of the two",
		FalseIf: world.ClientDropsTheToken.Shows(`attempts: 1; returned: no error`),
		Read:    source.Func("k8s.io/client-go/util/retry", "OnError"),
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
			table.Row(name, backoff.Steps, attempts, refused, lab.Brief(err))
			l.Expect(attempts == backoff.Steps && refused == attempts && apierrors.IsConflict(err),
				fmt.Sprintf("%d attempts are made, and then the last conflict is returned", backoff.Steps),
				"attempts: %d; returned: %s", attempts, l.Describe(err))
			return attempts, err
		}
		attempts, err := contend("retry.DefaultRetry", retry.DefaultRetry)
		contend("one of our own", wait.Backoff{Steps: 3})
		table.End()
		l.Blank()
		l.Say("Reported: %v", fmt.Errorf("painting the shelf, %d attempts: %w", attempts, err))
	})
}

func TestOpaqueTokenTheReadingBelongsInsideTheRetry(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6b", From: "D2 paragraph 2",
		Says: "RetryOnConflict runs a closure again and does nothing else: with the reading outside of it, one write by " +
			"somebody else makes every attempt fail; with the reading inside, the second succeeds",
		Why:     "a token that was refused once is refused for ever: the version that it names does not come back",
		FalseIf: world.ClientTransplantsTheToken.Shows(`the reading outside: 1; in the end: no error`),
		Read:    source.Func("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers: "#23",
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
		table.Row("outside", attempts, lab.Brief(outside), lab.Fields(l.Peek("shelf"), "color", "size"))
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
		table.Row("inside", attempts, lab.Brief(inside), lab.Fields(l.Peek("shelf"), "color", "size"))
		table.End()
		l.Expect(attempts == 2 && inside == nil, "with the reading inside, the second attempt succeeds",
			"attempts with the reading inside: %d; in the end: %s", attempts, l.Describe(inside))
		l.Stored(l.Peek("shelf"), "color=green", "size=4")
	})
}

func TestOpaqueTokenTheReadingOfARetryMustNotComeFromAStaleCache(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6c", From: "D2 paragraph 2, 4",
		Says: "reading again inside the retry does not help when it is read from a cache that lags: every attempt conflicts; " +
			"one live reading is enough",
		Why: "all attempts of retry.DefaultRetry are over in about 40 ms, and a cache may lag for longer; " +
			"so read live after a conflict, or come back later",
		FalseIf: world.AProxyStripsTheRevision.Shows(`readings from the cache: 1; in the end: no error`),
		Read:    source.Func("k8s.io/client-go/util/retry", "DefaultRetry"),
		Answers: "#24",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		shelf := shelves.Create("shelf", "color=red")
		_, err := shelves.TryGetAt("shelf", shelf.GetResourceVersion())
		l.Step(err, "waiting until the apiserver's cache has the shelf")
		frozen := l.Wire.Freeze(kind.StoragePrefix())
		sized := l.Rival().Of(kind).Set("shelf", "size=3")
		l.Step(frozen.Holds(l.Context(), number(sized)), "letting the cache lag behind")

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
			table.Row(from, token, sized.GetResourceVersion(), attempts, lab.Brief(err))
			return attempts, err
		}
		attempts, err := paint(`from the cache (resourceVersion "0")`, "0")
		l.Expect(attempts == 5 && apierrors.IsConflict(err), "read from the cache, all 5 attempts conflict",
			"attempts with readings from the cache: %d; in the end: %s", attempts, l.Describe(err))
		attempts, err = paint("live", "")
		table.End()
		l.Expect(attempts == 1 && err == nil, "read live, the first attempt succeeds",
			"attempts with live readings: %d; in the end: %s", attempts, l.Describe(err))
		l.Stored(sized, "color=green", "size=3")
	})
}

func TestOpaqueTokenACancelledRetryEndsAndTheContextSaysWhy(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6d", From: "D2 paragraph 5",
		Says: "a cancelled context ends a retry; but RetryOnConflict, which knows no context, then returns the conflict that " +
			"came before, so it is the context that has to be asked; wait.ExponentialBackoffWithContext reports it by itself",
		Why:     "who is told of a conflict tries again later; who is told of the cancellation does not",
		FalseIf: world.ClientDropsTheToken.Shows(`attempts: 1; returned: no error`),
		Read:    source.Func("k8s.io/client-go/util/retry", "OnError"),
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
			table.Row(loop, when, runs, lab.Brief(err))
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
		l.Expect(runs == 1 && errors.Is(err, context.Canceled), "a loop that knows the context ends at once and returns the cancellation",
			"attempts: %d; returned: %s", runs, l.Describe(err))
	})
}

func TestOpaqueTokenBackoffWithChanceProtectsTheServer(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT7", From: "D2 paragraph 2",
		Says: "backing off protects the control plane: under the same contention and for the same work far fewer refused " +
			"writes reach the server, provided that chance decides how long each writer waits",
		Why: "every refused write costs the server a request and etcd a read; and those who all wait equally long meet " +
			"again",
		FalseIf: world.SomebodyIsAlwaysFaster("by-chance").Shows(`refused without backoff 28, with backoff by chance 64`),
		Read:    source.Func("k8s.io/apimachinery/pkg/util/wait", "Jitter"),
	}, func(l *lab.Lab) {
		const writers = 8
		chance := rand.New(rand.NewPCG(7, 7)) // the same chance in every run
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
		l.Blank()
		l.Say("Time is counted in rounds, so that every run is the same: in a round all who are not sitting out read, and "+
			"then all of them write. One is accepted, %d to 0 are refused. The refusals are counted on the wire. In client-go the chance is in "+
			"the Jitter of a wait.Backoff; retry.DefaultRetry has %.1f of its %v.", writers-1, retry.DefaultRetry.Jitter, retry.DefaultRetry.Duration)

		l.Expect(equal.Refused == none.Refused, "backing off in step spares it nothing",
			"refused without backoff %d, in step %d", none.Refused, equal.Refused)
		for _, tally := range []lab.Tally{none, equal, jitter} {
			l.Expect(tally.Counter == writers && tally.GaveUp == 0, "all the work is done", "the counter says %d, %d gave up", tally.Counter, tally.GaveUp)
		}
	})
}

func TestOpaqueTokenCreateOrUpdateReportsTheRaceItLost(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT28", From: "D2 paragraph 2, 3, +",
		Says: "controllerutil.CreateOrUpdate reads, lets a function change what was read, and replaces it with the token of " +
			"that reading: it writes nothing if nothing changed, and if somebody wrote in between it returns the conflict",
		Why:     "its function must be one that can be run again on the next reading, which is what a reconciler does anyway",
		FalseIf: world.ClientDropsTheToken.Shows(`the raced CreateOrUpdate was accepted`),
		Read:    source.Func("sigs.k8s.io/controller-runtime/pkg/controller/controllerutil", "CreateOrUpdate"),
	}, func(l *lab.Lab) {
		api := l.Controller()
		table := l.Table("CreateOrUpdate", "result", "answer", "to etcd", "stored")
		paint := func(when, color string) error {
			shelf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: "shelf"}}
			var result controllerutil.OperationResult
			var err error
			sent := l.Record(func() {
				result, err = controllerutil.CreateOrUpdate(l.Context(), api, shelf, func() error {
					if shelf.Data == nil {
						shelf.Data = map[string]string{}
					}
					shelf.Data["color"] = color // and leaves what others have put there
					return nil
				})
			})
			table.Row(when, result, lab.Brief(err), sent.Summary(), lab.Fields(l.Peek("shelf"), "color", "size"))
			return err
		}
		l.Accepted(paint("color=red", "red"), "the first")
		l.Accepted(paint("color=red once more", "red"), "the second")
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Who == "writer" && c.Verb == http.MethodPut }, Times: 1,
			Do: func(int) { l.Rival().Set("shelf", "size=3") },
		})
		raced := paint("color=blue, raced", "blue")
		l.Conflicts(raced, "the raced CreateOrUpdate", l.Peek("shelf"))
		l.Accepted(paint("color=blue, the next reconcile", "blue"), "the next")
		table.End()
		l.Stored(l.Peek("shelf"), "color=blue", "size=3")
	})
}

// Patch and ownership: whose field is it.

func TestOpaqueTokenAReplaceFromAPartialViewDropsWhatItDoesNotKnow(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT8", From: "D2 paragraph 3",
		Says: "a read-modify-write that sends back all it has read keeps what others own; a replace of the whole object " +
			"made from a partial view drops it, although its token is current",
		Why: "the token says which version was read and not how much of it was kept: a client built with an older type " +
			"loses the newer fields of everybody else",
		FalseIf: world.AProxyMergesReplaces.Shows(`size=3 is stored`),
		Read:    source.Func("k8s.io/apimachinery/pkg/runtime", "DefaultUnstructuredConverter"),
	}, func(l *lab.Lab) {
		// oldShelf is the type of a client that was built before anybody thought of size.
		type oldShelf struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Spec              struct {
				Color string `json:"color"`
			} `json:"spec"`
		}
		shelves := l.Of(l.CustomResource())
		convert := runtime.DefaultUnstructuredConverter
		table := l.Table("the writer", "answer", "stored then")
		row := func(writer string, err error) {
			table.Row(writer, lab.Brief(err), lab.Fields(shelves.Peek("shelf"), "color", "size"))
		}
		shelves.Create("shelf", "color=red", "size=3")

		_, err := shelves.TryReplace(shelves.Get("shelf"), "color=green")
		row("replaces all it has read, color=green", err)
		l.Stored(shelves.Peek("shelf"), "color=green", "size=3")

		_, err = shelves.TrySet("shelf", "color=white")
		row("patches the one field it means, color=white", err)
		l.Stored(shelves.Peek("shelf"), "color=white", "size=3")

		var view oldShelf
		l.Step(convert.FromUnstructured(shelves.Get("shelf").Object, &view), "reading the shelf as an oldShelf")
		view.Spec.Color = "black"
		content, err := convert.ToUnstructured(&view)
		l.Step(err, "making an object of it again")
		replaced, err := shelves.TryReplace(&lab.Object{Object: content})
		row("replaces its partial view, with the current token, color=black", err)
		table.End()
		l.Accepted(err, "the replace from a partial view")
		l.Stored(replaced, "color=black", "-size")
	})
}

func TestOpaqueTokenADiffIsMineOnlyAgainstTheCopyThatIRead(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT8b", From: "D2 paragraph 3",
		Says: "a patch that a library computes holds only my change if it is the difference to the copy that I read; taken " +
			"against a fresh reading, it takes back what others did meanwhile",
		Why:     "to the diff, a field that my old copy lacks is a field that I removed",
		FalseIf: world.AProxyDropsNulls.Shows(`size=3 is stored`),
		Read:    source.Func("sigs.k8s.io/controller-runtime/pkg/client", "MergeFrom"),
		Answers: "#17",
	}, func(l *lab.Lab) {
		api := l.Controller()
		get := func() *corev1.ConfigMap {
			shelf := l.ReadConfigMap(api, "shelf")
			shelf.ManagedFields = nil // for a patch that can be read
			return shelf
		}
		l.Rival().Create("shelf", "color=red")
		read := get()
		l.Rival().Set("shelf", "size=3")
		mine := read.DeepCopy()
		table := l.Table("my copy against", "makes the patch", "answer", "size then")
		patch := func(base string, from *corev1.ConfigMap) error {
			patch := client.MergeFrom(from)
			body, err := patch.Data(mine)
			l.Step(err, "computing the patch")
			err = api.Patch(l.Context(), mine.DeepCopy(), patch)
			table.Row(base, lab.Leaves(body), lab.Brief(err), lab.Fields(l.Peek("shelf"), "size"))
			return err
		}

		mine.Data["color"] = "green"
		l.Accepted(patch("what I read", read), "the patch")
		l.Stored(l.Peek("shelf"), "color=green", "size=3")

		mine.Data["color"] = "white"
		l.Conflicts(patch("a fresh reading", get()), "the patch that is a difference to a fresh reading", l.Peek("shelf"))
		fresh := get()
		mine.ResourceVersion = fresh.ResourceVersion
		l.Accepted(patch("that, my token renewed", fresh), "the patch with a renewed token")
		table.End()
		l.Stored(l.Peek("shelf"), "color=white", "-size")
		l.Blank()
		l.Say("The second was refused by luck: the two copies differ in their resourceVersion, too, so mine got into the " +
			"patch, where it is a precondition.")
	})
}

func TestOpaqueTokenAnUnconditionalPatchOfASharedListLosesAnEntry(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT9", From: "D2 paragraph 3",
		Says: "an unconditional patch of a shared field loses an update without a word: two actors each add a condition to " +
			"one list, both are answered with 200, and one of the conditions is gone",
		Why: "a merge patch replaces a list whole; what looks like \"patches do not conflict\" is that nobody notices any " +
			"more that they should have",
		FalseIf: world.EveryPatchCarriesAToken.Shows(`bob's patch without a token was refused: 409 Conflict`),
		Read:    source.Func("sigs.k8s.io/controller-runtime/pkg/client", "MergeFromWithOptimisticLock"),
		Answers: "#15",
	}, func(l *lab.Lab) {
		kind := l.CustomResource("status")
		type actor struct {
			api  client.Client
			read *lab.Object
		}
		read := func(who string) *actor {
			a := &actor{api: l.As(who).Controller(kind), read: l.Of(kind).New("shelf")}
			l.Step(a.api.Get(l.Context(), client.ObjectKeyFromObject(a.read), a.read), who+"'s reading")
			return a
		}
		report := func(a *actor, condition string, options ...client.MergeFromOption) error {
			return a.api.Status().Patch(l.Context(), lab.WithCondition(a.read, condition), client.MergeFromWithOptions(a.read, options...))
		}
		locked := client.MergeFromWithOptimisticLock{}
		table := l.Table("two actors report a condition; both have read none", "ann", "bob", "stored then")
		conditions := func() string { return strings.Join(lab.Conditions(l.Of(kind).Peek("shelf")), ", ") }

		l.Of(kind).Create("shelf")
		ann, bob := read("ann"), read("bob")
		anns, bobs := report(ann, "Painted"), report(bob, "Filled")
		table.Row("client.MergeFrom", lab.Brief(anns), lab.Brief(bobs), conditions())
		l.Accepted(anns, "ann's patch without a token")
		l.Accepted(bobs, "bob's patch without a token")
		l.Expect(conditions() == "Filled", "only bob's condition is stored", "stored: %s", conditions())

		l.Of(kind).Recreate("shelf")
		ann, bob = read("ann"), read("bob")
		anns, bobs = report(ann, "Painted", locked), report(bob, "Filled", locked)
		table.Row("client.MergeFromWithOptimisticLock", lab.Brief(anns), lab.Brief(bobs), conditions())
		l.Accepted(anns, "ann's patch with a token")
		l.Conflicts(bobs, "bob's patch with a token", bob.read)
		l.Accepted(report(read("bob"), "Filled", locked), "bob's patch after he has read again")
		table.Row("… and bob reads again", "", "200", conditions())
		table.End()
		l.Expect(conditions() == "Painted, Filled", "both conditions are stored", "stored: %s", conditions())
	})
}

func TestOpaqueTokenALostFinalizerLetsTheObjectGoTooEarly(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT9b", From: "D2 paragraph 3, +",
		Says: "finalizers are a list that actors share: added with an unconditional merge patch, the second takes out the " +
			"first, and the object is gone before the first actor has cleaned up",
		Why:     "a finalizer is a promise that the object waits; whoever adds one needs the token, or a patch that merges lists",
		FalseIf: world.EveryPatchCarriesAToken.Shows(`bob's client.MergeFrom was refused: 409 Conflict`),
		Read:    source.Func("sigs.k8s.io/controller-runtime/pkg/controller/controllerutil", "AddFinalizer"),
	}, func(l *lab.Lab) {
		table := l.Table("ann and bob add a finalizer with", "ann", "bob", "finalizers then")
		finalize := func(with, name string, from func(read client.Object) client.Patch) error {
			l.Create(name)
			read := map[string]*corev1.ConfigMap{}
			for _, who := range []string{"ann", "bob"} {
				read[who] = l.ReadConfigMap(l.As(who).Controller(), name)
			}
			add := func(who string) error {
				changed := read[who].DeepCopy()
				controllerutil.AddFinalizer(changed, who+".modrev.example/cleanup")
				return l.As(who).Controller().Patch(l.Context(), changed, from(read[who]))
			}
			anns, bobs := add("ann"), add("bob")
			table.Row(with, lab.Brief(anns), lab.Brief(bobs),
				strings.ReplaceAll(strings.Join(l.Peek(name).GetFinalizers(), ", "), ".modrev.example/cleanup", ""))
			l.Accepted(anns, "ann's "+with)
			return bobs
		}
		err := finalize("client.MergeFrom", "careless", func(read client.Object) client.Patch { return client.MergeFrom(read) })
		l.Accepted(err, "bob's client.MergeFrom")
		err = finalize("the same, with the lock", "locked", func(read client.Object) client.Patch {
			return client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
		})
		l.Conflicts(err, "bob's patch with the lock", l.Peek("locked"))
		err = finalize("client.StrategicMergeFrom", "strategic", func(read client.Object) client.Patch { return client.StrategicMergeFrom(read) })
		l.Accepted(err, "bob's strategic merge patch")
		table.End()
		l.Expect(len(l.Peek("careless").GetFinalizers()) == 1 && len(l.Peek("strategic").GetFinalizers()) == 2,
			"a merge patch leaves one finalizer, a strategic merge patch both", "they leave %v and %v",
			l.Peek("careless").GetFinalizers(), l.Peek("strategic").GetFinalizers())

		l.Delete("careless")
		l.As("bob").Patch("careless", types.MergePatchType, `{"metadata":{"finalizers":null}}`)
		_, err = l.TryGet("careless")
		l.Blank()
		l.Say("Deleted, and bob has taken his finalizer away: the first object is %s, and ann never got to clean up. The "+
			"strategic merge patch keeps both without a token, but custom resources do not have it.", lab.Brief(err))
		l.Refused(err, "a get of the object", http.StatusNotFound, metav1.StatusReasonNotFound)
	})
}

func TestOpaqueTokenTwoPatchesFromOneCopyLeaveWhatNobodyWanted(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT29", From: "D2 paragraph 3, +",
		Says: "a patch is a change and not a state: two that were made from the same copy leave a union of both, " +
			"and not what the last of the two meant to have",
		Why: "\"the last one wins\" holds field by field only; who needs his whole state needs the token, or a manager " +
			"who applies all of it",
		FalseIf: world.EveryPatchCarriesAToken.Shows(`the second patch was refused: 409 Conflict`),
		Read:    source.Func("k8s.io/apiserver/pkg/endpoints/handlers", "(*jsonPatcher).applyPatchToCurrentObject"),
		Answers: "#73",
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red")
		table := l.Table("who", "had read", "wants", "so patches", "stored then")
		ann, bob := l.As("ann"), l.As("bob")
		anns, bobs := ann.Get("shelf"), bob.Get("shelf")
		patch := func(who string, c *lab.Client, read *lab.Object, wants, body string) error {
			_, err := c.TryPatch("shelf", types.MergePatchType, body)
			table.Row(who, lab.Fields(read, "color", "size"), wants, lab.Leaves([]byte(body)), lab.Fields(l.Peek("shelf"), "color", "size"))
			return err
		}
		first := patch("ann", ann, anns, "size=3 alone", `{"data":{"color":null,"size":"3"}}`)
		second := patch("bob", bob, bobs, "color=blue alone", `{"data":{"color":"blue"}}`)
		table.End()
		l.Accepted(first, "the first patch")
		l.Accepted(second, "the second patch")
		l.Stored(l.Peek("shelf"), "color=blue", "size=3")
	})
}

func TestOpaqueTokenApplyKnowsWhoOwnsAFieldAndRetryingDoesNotChangeThat(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT10", From: "D2 paragraph 3",
		Says: "server-side apply is another mechanism, ownership by field: two managers of different fields never conflict; " +
			"on the same field with another value they do, with 409 and the cause FieldManagerConflict, and no retry helps",
		Why: "a stale token goes away by reading again, an owner does not: the two faces of 409 need different next steps, " +
			"and the causes tell them apart",
		FalseIf: world.EveryApplyIsForced.Shows(`bob's apply of ann's fields was accepted`),
		Read:    source.Func("k8s.io/apimachinery/pkg/util/managedfields/internal", "NewConflictError"),
		Answers: "#22",
	}, func(l *lab.Lab) {
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		apply := func(manager string, data map[string]string) error {
			_, err := configMaps.Apply(l.Context(), applycore.ConfigMap("shelf", l.Namespace).WithData(data),
				metav1.ApplyOptions{FieldManager: manager})
			return err
		}
		l.Accepted(apply("ann", map[string]string{"color": "red", "size": "3"}), "ann's apply")
		l.Accepted(apply("bob", map[string]string{"place": "hall"}), "bob's apply of a field of his own")
		before := l.KV(l.Peek("shelf")).Version

		attempts := 0
		var err error
		sent := l.Record(func() {
			err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
				attempts++
				return apply("bob", map[string]string{"place": "hall", "color": "blue", "size": "4"})
			})
		})
		for _, owner := range l.Owners(l.Peek("shelf")) {
			l.Say("%s", owner)
		}
		l.Blank()
		l.Say("bob applies place=hall, color=blue, size=4, in retry.RetryOnConflict:")
		l.Say("%d times: %s", attempts, l.Describe(err))
		for _, cause := range lab.Causes(err) {
			l.Say("cause %s: %s, field %s", cause.Type, cause.Message, cause.Field)
		}
		l.Say("Nothing was written. The details name no object, which those of a stale token do.")

		l.Refused(err, "bob's apply of ann's fields", http.StatusConflict, metav1.StatusReasonConflict)
		l.Expect(apierrors.ReasonForError(err) == metav1.StatusReasonConflict && len(lab.Causes(err)) == 2 &&
			lab.HasCause(err, metav1.CauseTypeFieldManagerConflict), "two causes FieldManagerConflict", "the causes are %v", lab.Causes(err))
		const text = "Apply failed with 2 conflicts: conflicts with \"ann\":\n- .data.color\n- .data.size"
		l.Expect(err.Error() == text, "the refusal says: "+text, "it says: %s", err)
		details := lab.DetailsOf(err)
		l.Expect(details.Name == "" && details.Kind == "", "the details name no object, unlike those of a stale token", "they name %s %s", details.Kind, details.Name)
		l.Expect(attempts == 5 && sent.Count(wire.Txn) == 0 && l.KV(l.Peek("shelf")).Version == before, "five attempts, and nothing is written",
			"%d attempts, to etcd: %s", attempts, sent.Summary())
	})
}

func TestOpaqueTokenOwnersAreToldApartByManagerAndOperation(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT10b", From: "D2 paragraph 3, +",
		Says: "an owner is a manager and an operation: what ann created by POST, ann owns by Update; ann's own apply " +
			"conflicts with that, and leaving a field out of it does not remove the field",
		Why: "a tool that moves from create or patch to apply under its old name is two owners until its old entry is moved " +
			"over (csaupgrade in client-go)",
		FalseIf: world.CreatesAreApplies.Shows(`size is not stored`),
		Read:    source.Func("k8s.io/client-go/util/csaupgrade", "UpgradeManagedFields"),
		Answers: "#50 #51",
	}, func(l *lab.Lab) {
		configMaps := l.As("ann").Typed().CoreV1().ConfigMaps(l.Namespace)
		table := l.Table("ann", "answer", "stored then", "owners then")
		step := func(what string, err error) error {
			now := l.Peek("shelf")
			for i, owner := range l.Owners(now) {
				if i == 0 {
					table.Row(what, lab.Brief(err), lab.Fields(now, "color", "size"), owner)
				} else {
					table.Row("", "", "", owner)
				}
			}
			return err
		}
		apply := func(color string) error {
			_, err := configMaps.Apply(l.Context(), applycore.ConfigMap("shelf", l.Namespace).
				WithData(map[string]string{"color": color}), metav1.ApplyOptions{FieldManager: "ann"})
			return err
		}
		_, err := configMaps.Create(l.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "shelf"}, Data: map[string]string{"color": "red", "size": "3"},
		}, metav1.CreateOptions{FieldManager: "ann"})
		l.Step(step("creates color=red, size=3", err), "ann's create")

		l.Accepted(step("applies color=red, without size", apply("red")), "ann's apply of the value that is there")
		l.Stored(l.Peek("shelf"), "size=3")
		conflict := step("applies color=blue", apply("blue"))
		l.Refused(conflict, "ann's apply of another value", http.StatusConflict, metav1.StatusReasonConflict)
		l.Expect(lab.HasCause(conflict, metav1.CauseTypeFieldManagerConflict) && strings.Contains(conflict.Error(), `conflict with "ann" using v1`),
			`the conflict is with "ann"`, "it is: %s", conflict)

		shelf, err := configMaps.Get(l.Context(), "shelf", metav1.GetOptions{})
		l.Step(err, "reading the shelf")
		l.Step(csaupgrade.UpgradeManagedFields(shelf, sets.New("ann"), "ann"), "moving ann's Update entry over to Apply")
		_, err = configMaps.Update(l.Context(), shelf, metav1.UpdateOptions{FieldManager: "ann"})
		l.Step(step("csaupgrade.UpgradeManagedFields", err), "storing the new owners")
		l.Accepted(step("applies color=blue, without size", apply("blue")), "ann's apply after the upgrade")
		table.End()
		l.Stored(l.Peek("shelf"), "color=blue", "-size")
		l.Blank()
		l.Say("The refusal: %s", conflict)
	})
}

func TestOpaqueTokenAStaleTokenInAnApplyIsAStaleTokenAndForceDoesNotHelp(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT10c", From: "D2 paragraph 3",
		Says: "a resourceVersion in an applied object is a precondition like any other: stale, the apply is refused with the " +
			"standard conflict and without a cause, and force does not help",
		Why:     "force settles who owns a field, the token whether the object is still the one that was read",
		FalseIf: world.ClientDropsTheToken.Shows(`the apply with a stale token was accepted`),
		Read:    source.Func("k8s.io/apiserver/pkg/endpoints/handlers", "(*applyPatcher).applyPatchToCurrentObject"),
		Answers: "#21",
	}, func(l *lab.Lab) {
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		stale := l.Create("shelf", "color=red")
		current := l.Rival().Set("shelf", "size=3")
		table := l.Table("ann applies", "with token", "answer", "causes")
		apply := func(field, value, which, token string, force bool) error {
			shelf := applycore.ConfigMap("shelf", l.Namespace).WithData(map[string]string{field: value}).WithResourceVersion(token)
			_, err := configMaps.Apply(l.Context(), shelf, metav1.ApplyOptions{FieldManager: "ann", Force: force})
			what, causes := field+"="+value, "none"
			if force {
				what += ", forced"
			}
			for _, cause := range lab.Causes(err) {
				causes = string(cause.Type)
			}
			table.Row(what, which, lab.Brief(err), causes)
			return err
		}
		old, now := stale.GetResourceVersion(), current.GetResourceVersion()
		l.Conflicts(apply("place", "hall", "stale", old, false), "the apply with a stale token", stale)
		owner := apply("color", "green", "stale", old, false)
		l.Expect(lab.HasCause(owner, metav1.CauseTypeFieldManagerConflict), "who owns the field is asked before the token is looked at",
			"the causes are %v", lab.Causes(owner))
		l.Conflicts(apply("color", "green", "stale", old, true), "the forced apply with a stale token", stale)
		l.Accepted(apply("color", "green", "current", now, true), "the forced apply with the current token")
		table.End()
		l.Stored(stale, "color=green", "size=3", "-place")
		l.Blank()
		l.Say("color was the writer's, place nobody's. Who owns the field is asked first, the token after that.")
	})
}

func TestOpaqueTokenAnApplyWithoutATokenLosesNoRace(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT30", From: "D2 paragraph 3, +",
		Says: "an apply without a token that is overtaken by another write is computed again by the server and accepted: " +
			"\"the object has been modified\" cannot come from it",
		Why:     "who sees that text after an apply has sent a token with it, from a copy or out of a manifest",
		FalseIf: world.EveryPatchCarriesAToken.Shows(`the overtaken apply was refused: 409 Conflict`),
		Read:    source.Func("k8s.io/apiserver/pkg/endpoints/handlers", "(*patcher).patchResource"),
		Answers: "#20",
	}, func(l *lab.Lab) {
		l.Rival().Create("shelf", "color=red")
		shelf := l.Get("shelf")
		var err error
		sent := l.Record(func() {
			err = l.Race(l.Key(shelf), func() error {
				_, err := l.TryApply("shelf", "ann", false, "place=hall")
				return err
			}, func() { l.Rival().Set("shelf", "size=3") })
		})
		l.Show("an apply of place=hall, held until a rival has patched size=3", sent)
		l.Accepted(err, "the overtaken apply")
		l.Stored(shelf, "color=red", "place=hall", "size=3")
		l.Expect(sent.Count(wire.Txn) == 3, "three transactions: the apply's, the rival's, the apply's second", "to etcd: %s", sent.Summary())
	})
}

func TestOpaqueTokenAnApplyThatRepeatsItselfWritesNothing(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT31", From: "D2 paragraph 3, +",
		Says: "an apply that repeats itself writes nothing, however long after: a new time in managedFields alone is no " +
			"reason to write",
		Why:     "a controller may apply all it wants in every reconcile; only what differs costs a write and wakes watchers",
		FalseIf: world.ClientStampsItsWrites.Shows(`the apply, years later, cost etcd: .*1 Txn`),
		Read:    source.Func("k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager", "IgnoreManagedFieldsTimestampsTransformer"),
		Answers: "#54",
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		apply := func() *lab.Object {
			o, err := shelves.TryApply("shelf", "ann", false, "color=red")
			l.Step(err, "applying the shelf")
			return o
		}
		shelf := apply()
		// No waiting: the stored object is made to look as if it had been applied years ago.
		aged := l.Age(shelf)
		var again *lab.Object
		sent := l.Record(func() { again = apply() })

		table := l.Table("step", "resourceVersion", "time in managedFields", "to etcd")
		table.Row("first applied, as if long ago", aged.GetResourceVersion(), aged.GetManagedFields()[0].Time.UTC().Format(time.DateOnly), "")
		table.Row("applied again", again.GetResourceVersion(), again.GetManagedFields()[0].Time.UTC().Format(time.DateOnly), sent.Summary())
		table.End()
		l.Sends(sent, "the apply, years later,", "1 Range")
		l.Expect(again.GetResourceVersion() == aged.GetResourceVersion(), "the resourceVersion stays", "it is %s, was %s",
			again.GetResourceVersion(), aged.GetResourceVersion())
	})
}

func TestOpaqueTokenForceTakesOwnershipAndIsNoRetry(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT11", From: "D2 paragraph 3",
		Says: "force takes a field over: the other manager loses it, and his next apply conflicts; two actors who force " +
			"as their retry fight for ever, with a write each time",
		Why: "force answers \"who shall own this\", once and by decision; as an answer to every conflict it only makes the " +
			"fight silent",
		FalseIf: world.NoApplyIsForced.Shows(`bob's forced apply was refused: 409 Conflict`),
		Read:    source.Func("sigs.k8s.io/structured-merge-diff/v6/merge", "(*Updater).Apply"),
	}, func(l *lab.Lab) {
		configMaps := l.Typed().CoreV1().ConfigMaps(l.Namespace)
		table := l.Table("who does what", "answer", "color", "owner of color", "storage writes")
		apply := func(manager, color string, force bool) error {
			shelf := applycore.ConfigMap("shelf", l.Namespace)
			what := "leaves color out"
			if color != "" {
				shelf.WithData(map[string]string{"color": color})
				what = "applies color=" + color
			}
			if force {
				what += ", forced"
			}
			_, err := configMaps.Apply(l.Context(), shelf, metav1.ApplyOptions{FieldManager: manager, Force: force})
			now := l.Peek("shelf")
			table.Row(manager+" "+what, lab.Brief(err), lab.Field(now, "color"), l.OwnersOf(now, "color"), l.KV(now).Version)
			return err
		}
		l.Accepted(apply("ann", "red", false), "ann's apply")
		l.Accepted(apply("bob", "blue", true), "bob's forced apply")
		l.Expect(l.OwnersOf(l.Peek("shelf"), "color") == "bob by Apply", "bob alone owns color",
			"it is owned by %s", l.OwnersOf(l.Peek("shelf"), "color"))
		theirs := apply("ann", "red", false)
		l.Expect(lab.HasCause(theirs, metav1.CauseTypeFieldManagerConflict), "ann's next apply conflicts with bob", "it was answered %s", l.Describe(theirs))

		for range 2 { // both retry with force
			l.Accepted(apply("ann", "red", true), "ann's forced apply")
			l.Accepted(apply("bob", "blue", true), "bob's forced apply")
		}
		fought := l.KV(l.Peek("shelf")).Version
		l.Expect(fought == 6, "each forced apply of the fight is one more write", "there were %d writes", fought)

		l.Accepted(apply("ann", "", false), "ann's apply without color") // ann decides that the color is bob's
		l.Accepted(apply("bob", "blue", false), "bob's apply, not forced")
		l.Accepted(apply("ann", "", false), "ann's apply without color")
		table.End()
		l.Expect(l.KV(l.Peek("shelf")).Version == fought, "once the color is bob's, nobody writes any more", "there were %d writes", l.KV(l.Peek("shelf")).Version)
		l.Blank()
		l.Say("The fight ends with a decision: ann leaves color out, and from then on nothing is written any more.")
	})
}

func TestOpaqueTokenGivingAFieldUpEndsTheFight(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT12", From: "D2 paragraph 3",
		Says: "who owns what is a decision: when a human scales and a controller applies replicas, the controller is " +
			"refused, or undoes the human each time if it forces; leaving replicas out of what it applies ends the fight",
		Why: "no retry can settle whether the human or the controller is right; the manifest of the one who is not " +
			"responsible must not have the field",
		FalseIf: world.EveryApplyIsForced.Shows(`the controller's apply after the human has scaled was accepted`),
		Read:    source.Func("k8s.io/kubernetes/pkg/registry/apps/deployment/storage", "(*ScaleREST).Update"),
		Answers: "#52",
	}, func(l *lab.Lab) {
		controller := l.As("controller").Typed().AppsV1().Deployments(l.Namespace)
		human := l.As("human").Typed().AppsV1().Deployments(l.Namespace)
		table := l.Table("who does what", "answer", "replicas", "its owner", "writes")
		step := func(what string, err error) error {
			now := l.Of(lab.Deployment).Peek("shelf")
			table.Row(what, lab.Brief(err), lab.Field(now, "replicas"), l.OwnersOf(now, "replicas"), l.KV(now).Version)
			return err
		}
		apply := func(what string, replicas int32, force bool) error {
			shelf := lab.ShelfDeployment(l.Namespace)
			if replicas > 0 {
				shelf.Spec.WithReplicas(replicas)
			}
			_, err := controller.Apply(l.Context(), shelf, metav1.ApplyOptions{FieldManager: "controller", Force: force})
			return step("controller applies "+what, err)
		}
		scale := func() error {
			scale, err := human.GetScale(l.Context(), "shelf", metav1.GetOptions{})
			l.Step(err, "reading the scale")
			scale.Spec.Replicas = 5
			_, err = human.UpdateScale(l.Context(), "shelf", scale, metav1.UpdateOptions{FieldManager: "human"})
			return step("human scales to 5", err)
		}
		replicas := func(want string) { l.Stored(l.Of(lab.Deployment).Peek("shelf"), "replicas="+want) }

		l.Accepted(apply("3", 3, false), "the controller's first apply")
		l.Accepted(scale(), "the human's scaling")
		refused := apply("3", 3, false)
		l.Refused(refused, "the controller's apply after the human has scaled", http.StatusConflict, metav1.StatusReasonConflict)
		l.Accepted(apply("3, forced", 3, true), "the controller's forced apply")
		replicas("3")
		l.Accepted(scale(), "the human's second scaling")
		l.Accepted(apply("no replicas", 0, false), "the controller's apply without replicas")
		l.Accepted(apply("no replicas", 0, false), "and once more")
		table.End()
		replicas("5")
		l.Blank()
		l.Say("The refusal: %s", refused)
	})
}

func TestOpaqueTokenWhatItsOnlyOwnerLeavesOutFallsBackToTheDefault(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT12b", From: "D2 paragraph 3, +",
		Says: "giving a field up is not leaving it alone: when its only owner applies without it, the field goes, and " +
			"replicas falls back to the default of 1; it stays if somebody else owns it by then",
		Why: "so the new owner takes the field first, with its present value, and only then does the old one leave it " +
			"out",
		FalseIf: world.ACoOwner(lab.Deployment, "alone", "controller", "replicas=3").Shows(`replicas=3 is stored`),
		Read:    source.Func("k8s.io/apimachinery/pkg/util/managedfields/internal", "(*structuredMergeManager).Apply"),
		Answers: "#52",
	}, func(l *lab.Lab) {
		table := l.Table("who applies what", "answer", "replicas", "owners of replicas")
		apply := func(name, who string, replicas int32) {
			shelf := lab.ShelfDeployment(l.Namespace)
			shelf.WithName(name)
			what := "no replicas"
			if replicas > 0 {
				shelf.Spec.WithReplicas(replicas)
				what = fmt.Sprintf("replicas: %d", replicas)
			}
			_, err := l.As(who).Typed().AppsV1().Deployments(l.Namespace).Apply(l.Context(), shelf, metav1.ApplyOptions{FieldManager: who})
			now := l.Of(lab.Deployment).Peek(name)
			table.Row(name+": "+who+" applies "+what, lab.Brief(err), lab.Field(now, "replicas"), l.OwnersOf(now, "replicas"))
			l.Accepted(err, who+"'s apply "+what)
		}
		apply("alone", "controller", 3)
		apply("alone", "controller", 0)
		apply("shared", "controller", 3)
		apply("shared", "scaler", 3)
		apply("shared", "controller", 0)
		table.End()
		l.Stored(l.Of(lab.Deployment).Peek("alone"), "replicas=1")
		l.Stored(l.Of(lab.Deployment).Peek("shared"), "replicas=3")
	})
}

// Status: a part of the object with a door of its own, and the same token.

func TestOpaqueTokenTheDefinitionSaysWhetherStatusHasADoorOfItsOwn(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT13", From: "D2 paragraph 4",
		Says: "the status subresource separates status from spec, where the resource's definition says so: there a replace of " +
			"the object ignores status and one of /status ignores spec; where it does not, /status is 404 and a change of " +
			"status moves generation",
		Why: "200 does not mean that all was stored that was sent; and without the subresource every report of a controller " +
			"looks like a new order to it (and IsNotFound from /status does not mean that the object is gone)",
		FalseIf: world.StatusGoesToTheObject.Shows(`size=9 is stored`),
		Read:    source.Func("k8s.io/apiextensions-apiserver/pkg/registry/customresource", "customResourceStrategy.PrepareForUpdate"),
		Answers: "#44 #47",
	}, func(l *lab.Lab) {
		with, without := l.CustomResource("status"), l.CustomResource()
		api := l.Controller(with, without)
		table := l.Table("replace of", "Shelf with /status", "Shelf without it")
		cells := func(request string, do func(shelf *lab.Object) error) (moves [2]string, errs [2]error) {
			row := []any{request}
			for i, kind := range []lab.Kind{with, without} {
				shelf := l.Of(kind).Peek("shelf")
				moved := l.Moved(shelf, func() error { return do(shelf.DeepCopy()) })
				moves[i], errs[i] = moved.String(), moved.Err
				row = append(row, fmt.Sprintf("%-6s  %s", moved, lab.Fields(l.Of(kind).Peek("shelf"), "size", "status.phase")))
			}
			table.Row(row...)
			return moves, errs
		}
		l.Of(with).Create("shelf", "size=1")
		l.Of(without).Create("shelf", "size=1")

		moves, _ := cells("object: size=2, phase=Open", func(shelf *lab.Object) error {
			return api.Update(l.Context(), lab.With(shelf, "size=2", "status.phase=Open"))
		})
		l.Expect(moves == [2]string{"rv gen", "rv gen"}, "both store the spec, and generation moves", "%q moved", moves)
		moves, _ = cells("object: phase=Full", func(shelf *lab.Object) error {
			return api.Update(l.Context(), lab.With(shelf, "status.phase=Full"))
		})
		l.Expect(moves == [2]string{"-", "rv gen"}, "with the subresource nothing is stored; without it generation moves", "%q moved", moves)
		moves, errs := cells("/status: size=9, phase=Full", func(shelf *lab.Object) error {
			return api.Status().Update(l.Context(), lab.With(shelf, "size=9", "status.phase=Full"))
		})
		table.End()
		l.Stored(l.Of(with).Peek("shelf"), "size=2", "status.phase=Full")
		l.Expect(moves == [2]string{"rv", "404"}, "with the subresource only the status is stored; without it it is not found", "%q moved", moves)

		_, builtIn := l.Sub("status").TryReplace(l.Create("shelf", "size=1"))
		l.Blank()
		l.Say("The 404 says: %s. But the shelf is there; what is not there is its /status. On a ConfigMap it says: %s.",
			errs[1], builtIn)
		l.Expect(errs[1].Error() == fmt.Sprintf("shelves.%s %q not found", without.Group, "shelf"),
			"the 404 of a custom resource has the text of a missing object", "it says: %s", errs[1])
		l.Refused(builtIn, "a replace of a ConfigMap's /status", http.StatusNotFound, metav1.StatusReasonNotFound)
	})
}

func TestOpaqueTokenSpecAndStatusShareOneToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT14", From: "D2 paragraph 4",
		Says: "a status write is not free of concurrency: a stale token on /status is refused, and a status write makes a " +
			"pending write of the spec stale: there is one token for the whole object",
		Why: "a conflict on the spec may mean no more than that a controller has reported; and a controller has to read " +
			"again after every change of the spec",
		FalseIf: world.ClientDropsTheToken.Shows(`the human's write of the spec was accepted`),
		Read:    source.Func("k8s.io/kubernetes/pkg/registry/apps/deployment/storage", "(*StatusREST).Update"),
		Answers: "#46",
	}, func(l *lab.Lab) {
		human := l.As("human").Typed().AppsV1().Deployments(l.Namespace)
		controller := l.As("controller").Typed().AppsV1().Deployments(l.Namespace)
		table := l.Table("who", "writes", "with token", "answer", "token then", "generation")
		row := func(who, what, token string, err error) error {
			now := l.Of(lab.Deployment).Peek("shelf")
			table.Row(who, what, token, lab.Brief(err), now.GetResourceVersion(), now.GetGeneration())
			return err
		}
		read := func(api typedapps.DeploymentInterface) *appsv1.Deployment {
			shelf, err := api.Get(l.Context(), "shelf", metav1.GetOptions{})
			l.Step(err, "reading the shelf")
			return shelf
		}
		shelf := l.Of(lab.Deployment).Create("shelf", "replicas=1")
		humans, controllers := read(human), read(controller)

		controllers.Status.ObservedGeneration = 1
		reported, err := controller.UpdateStatus(l.Context(), controllers, metav1.UpdateOptions{})
		l.Accepted(row("controller", "UpdateStatus: observedGeneration 1", controllers.ResourceVersion, err), "the controller's first report")
		humans.Spec.Replicas = new(int32(2))
		_, err = human.Update(l.Context(), humans, metav1.UpdateOptions{})
		l.Conflicts(row("human", "Update: replicas 2", humans.ResourceVersion, err), "the human's write of the spec", shelf)

		humans = read(human)
		humans.Spec.Replicas = new(int32(2))
		_, err = human.Update(l.Context(), humans, metav1.UpdateOptions{})
		l.Accepted(row("human", "the same after reading again", humans.ResourceVersion, err), "the human's second attempt")
		reported.Status.ObservedGeneration = 2
		_, err = controller.UpdateStatus(l.Context(), reported, metav1.UpdateOptions{})
		l.Conflicts(row("controller", "UpdateStatus: observedGeneration 2", reported.ResourceVersion, err), "the controller's write of the status", shelf)
		_, err = controller.Patch(l.Context(), "shelf", types.MergePatchType, []byte(`{"status":{"observedGeneration":2}}`),
			metav1.PatchOptions{}, "status")
		l.Accepted(row("controller", "a patch of this one field of it", "none", err), "a patch of a field that only the controller writes")
		table.End()
	})
}

func TestOpaqueTokenAChangedTokenIsNoChangeOfDesiredState(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT15", From: "D2 paragraph 4",
		Says: "a changed resourceVersion does not mean that the desired state has changed: a label, a status or a new owner " +
			"of a field moves it, too; generation tells, for the kinds that have one",
		Why: "a controller that acts on every new resourceVersion answers its own status writes; one that looks at " +
			"generation sees no change of a ConfigMap, ever: compare what you own",
		FalseIf: world.AProxyTouchesTheSpec.Shows(`a label on the Deployment: .* the predicate passes it`),
		Read:    source.Func("sigs.k8s.io/controller-runtime/pkg/predicate", "TypedGenerationChangedPredicate.Update"),
		Answers: "#45 #56",
	}, func(l *lab.Lab) {
		table := l.Table("change", "resourceVersion", "generation", "desired state", "predicate")
		state := map[bool]string{true: "changed", false: "the same"}
		verdict := map[bool]string{true: "passes it", false: "drops it"}
		l.Of(lab.Deployment).Create("shelf", "minReadySeconds=30")
		l.Create("shelf", "minReadySeconds=30")
		see := func(change string, kind lab.Kind, edit lab.Edit, wantChanged, wantPassed bool) {
			before := l.Of(kind).Peek("shelf")
			l.Step(edit(l.Of(kind), "minReadySeconds"), change)
			after := l.Of(kind).Peek("shelf")
			changed := !reflect.DeepEqual(before.Object[kind.Fields], after.Object[kind.Fields])
			passed := predicate.GenerationChangedPredicate{}.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
			table.Row(change, before.GetResourceVersion()+" → "+after.GetResourceVersion(),
				fmt.Sprintf("%d → %d", before.GetGeneration(), after.GetGeneration()), state[changed], verdict[passed])
			l.Expect(before.GetResourceVersion() != after.GetResourceVersion(), change+" moves the resourceVersion", "%s: it stays", change)
			l.Expect(changed == wantChanged && passed == wantPassed,
				fmt.Sprintf("%s: the desired state is %s; the predicate %s", change, state[wantChanged], verdict[wantPassed]),
				"%s: the desired state is %s; the predicate %s", change, state[changed], verdict[passed])
		}
		const label, annotation = `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"annotations":{"a":"b"}}}`
		see("a label on the Deployment", lab.Deployment, lab.Merge(label), false, false)
		see("its status", lab.Deployment, lab.Merge(`{"status":{"observedGeneration":1}}`).Through("status"), false, false)
		see("its status, once more", lab.Deployment, lab.Merge(`{"status":{"replicas":1}}`).Through("status"), false, false)
		see("a second owner of a field", lab.Deployment, lab.Applied("ann", "30"), false, false)
		see("an annotation", lab.Deployment, lab.Merge(annotation), false, true)
		see("its spec", lab.Deployment, lab.Desired("60"), true, true)
		see("the data of a ConfigMap", lab.ConfigMap, lab.Desired("60"), true, false)
		table.End()
		l.Blank()
		l.Say("The predicate is GenerationChangedPredicate of controller-runtime. Every status written would wake a " +
			"controller that goes by resourceVersion, and it would write its status again.")
	})
}
