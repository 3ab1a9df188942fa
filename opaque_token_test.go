// Chapter 4. A resourceVersion is an opaque token: what it certifies, what it does not, and what to do
// when it is refused.
package modrev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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

	"modrev/helpers/answer"
	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/prediction"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

// Identity: which object is this, and which of its numbers says what.

func TestOpaqueTokenANameLocatesAndTheUIDTellsIncarnationsApart(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT1", From: "D2 paragraph 1", Part: "identity",
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
		ID: "OT2", From: "D2 paragraph 1", Part: "identity",
		Says: "something outside the cluster that is remembered by name alone is taken for the next incarnation's; " +
			"remembered by uid it is not",
		Why:         "bob must not get ann's disk because his shelf has the name that hers had",
		FalseIf:     world.UIDsBelongToNames.Shows(`by its uid bob's shelf is given ann's disk`),
		AlsoFalseIf: []world.World{world.TheNextOwnerAdopts.Shows(`IsControlledBy says that they are bob's`)},
		Read:        source.Func("k8s.io/apimachinery/pkg/apis/meta/v1", "IsControlledBy"),
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
		table = l.Table("is the owner of configmaps/books", "ann's shelf", "bob's shelf")
		table.Row("by kind and name of its owner reference", books.GetOwnerReferences()[0].Name == anns.GetName(), books.GetOwnerReferences()[0].Name == bobs.GetName())
		table.Row("by its uid: metav1.IsControlledBy", metav1.IsControlledBy(books, anns), metav1.IsControlledBy(books, bobs))
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
		ID: "OT3", From: "D2 paragraph 1", Part: "identity",
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

		l.Say("rv: a new resourceVersion, and one write to storage. gen: generation grew by one. -: answered with 200, " +
			"but nothing moved and nothing was written. 404: there is no such subresource. The last two columns are custom " +
			"resources: a Shelf with the subresources /status and /scale, and a Shelf without them.")
		table := l.Table("edit", "ConfigMap", "Lease", "Pod", "Deployment", "Shelf with", "Shelf without")
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
		l.Say("The uid never moved. The generation of a ConfigMap and of a Lease is 0 for ever. A Deployment counts its annotations among the desired state, and the wish to be deleted " +
			"counts for all kinds that have a generation.")
	})
}

// Replace and retry: what the token certifies, and what to do when it is refused.

func TestOpaqueTokenToRetryIsToReadAgainAndDecideAgain(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT4", From: "D2 paragraph 2", Part: "replace and retry",
		Says: "to retry means to read again, decide again, and write: three writers add one to a counter, each gets in " +
			"between another's reading and writing, and nothing is lost",
		Why: "a conflict is no malfunction: it is how writers who know nothing of each other share an object without a " +
			"lock",
		FalseIf: world.ClientTransplantsTheToken.Shows(`the counter says 1`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the counter says 1`),
			world.SomebodyIsAlwaysFaster("counter").Shows(`each of the three additions was refused: 409 Conflict`),
		},
		Read:    source.Func("k8s.io/client-go/util/retry", "RetryOnConflict"),
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
		l.WriteDown(prediction.Counter, "%s", n)
		l.Expect(n == "3", "the counter says 3 after three additions", "the counter says %s after three additions", n)
		l.Expect(refused == 2, "two writes are refused on the way", "%d were refused", refused)
		l.Blank()
		l.Say("Two writes were refused, both with reason: they were decided on a number that was no longer true. What " +
			"becomes of a writer who reads again and does not decide again: see OT5b and OT27.")
	})
}

func TestOpaqueTokenAFreshTokenOnAStaleBodyDefeatsTheCheck(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT5", From: "D2 paragraph 2", Part: "replace and retry",
		Says: "a fresh token on a stale body keeps the overwrite and defeats the check: the write is accepted, and what " +
			"the rival had written is gone",
		Why: "the token certifies the reading that it came with; on another body it certifies something that never was " +
			"the case",
		FalseIf: world.BodiesKeepTheirToken.Shows(`the replace with the transplanted token was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the replace with its own token was accepted`),
			world.AProxyMergesReplaces.Shows(`size=3 is stored`),
		},
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
		ID: "OT5b", From: "D2 paragraph 2", Part: "replace and retry",
		Says: "a conflict does not say that the token is old but that the decision may be: renew the token alone and a " +
			"\"+1\" that was decided on 1 sets 2 although the number has become 5; decide again and it is 6",
		Why:     "the optimistic lock of a patch protects only the decision that was made on the copy it was taken from",
		FalseIf: world.BodiesKeepTheirToken.Shows(`the patch with the renewed token was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the patch that was decided on 1 was accepted`),
			world.SomebodyIsFasterAt(3, http.MethodPatch, "shelf").Shows(`the patch that was decided anew was refused: 409 Conflict`),
		},
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
		l.Blank()
		l.Say("See also OT4, the loop that decides anew, and OT27, a loop that reads again and still sends its old decision.")
		l.Stored(l.Peek("shelf"), "books=6")
	})
}

func TestOpaqueTokenARetryIsBoundedAndReportsWhatDoesNotGoAway(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6", From: "D2 paragraph 2, 5", Part: "replace and retry",
		Says: "a retry is bounded: RetryOnConflict runs its closure as often as the backoff has Steps, and then returns the " +
			"last conflict, which is to be reported",
		Why: "contention that does not go away means that others keep writing the same object, perhaps other fields of it " +
			"(OT14), or that one's own cache lags (OT16); spinning on it in silence ends neither",
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
		ID: "OT6b", From: "D2 paragraph 2", Part: "replace and retry",
		Says: "RetryOnConflict runs a closure again and does nothing else: with the reading outside of it, one write by " +
			"somebody else makes every attempt fail; with the reading inside, the second succeeds",
		Why:         "a token that was refused once is refused for as long as the object exists: the version that it names does not come back",
		FalseIf:     world.ClientTransplantsTheToken.Shows(`the reading outside: 1; in the end: no error`),
		AlsoFalseIf: []world.World{world.SomebodyIsAlwaysFaster("shelf").Shows(`attempts with the reading inside: 5; in the end: 409 Conflict`)},
		Read:        source.Func("k8s.io/client-go/util/retry", "RetryOnConflict"),
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
		ID: "OT6c", From: "D2 paragraph 2, 4", Part: "replace and retry",
		Says: "reading again inside the retry does not help when it is read from a cache that lags: every attempt conflicts; " +
			"one live reading is enough",
		Why: "all attempts of retry.DefaultRetry are over in about 40 ms, and a cache may lag for longer; " +
			"so read live after a conflict, or come back later",
		FalseIf:     world.AProxyStripsTheRevision.Shows(`readings from the cache: 1; in the end: no error`),
		AlsoFalseIf: []world.World{world.AProxyKeepsAnswers.Shows(`attempts with live readings: 5; in the end: 409 Conflict`)},
		Read:        source.Func("k8s.io/client-go/util/retry", "DefaultRetry"),
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
			table.Row(from, token, sized.GetResourceVersion(), attempts, lab.Brief(err))
			return attempts, err
		}
		attempts, err := paint(`from the cache (resourceVersion "0")`, "0")
		l.Expect(attempts == 5 && apierrors.IsConflict(err), "read from the cache, all 5 attempts conflict",
			"attempts with readings from the cache: %d; in the end: %s", attempts, l.Describe(err))
		attempts, err = paint("live", "")
		table.End()
		l.Blank()
		l.Say("See also OT16, the same with an informer's cache, and OT16d.")
		l.Expect(attempts == 1 && err == nil, "read live, the first attempt succeeds",
			"attempts with live readings: %d; in the end: %s", attempts, l.Describe(err))
		l.Stored(sized, "color=green", "size=3")
	})
}

func TestOpaqueTokenACancelledRetryEndsAndTheContextSaysWhy(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT6d", From: "D2 paragraph 5", Part: "replace and retry",
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
		l.Blank()
		l.Say("RetryOnConflict does not look at a context between two attempts, so it makes one more, and only that attempt's " +
			"request comes back with the cancellation; the loop takes this for its own time being up, and then it returns the " +
			"last conflict that it has seen.")
		l.Expect(runs == 1 && errors.Is(err, context.Canceled), "a loop that knows the context ends at once and returns the cancellation",
			"attempts: %d; returned: %s", runs, l.Describe(err))
	})
}

func TestOpaqueTokenBackoffWithChanceProtectsTheServer(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT7", From: "D2 paragraph 2", Part: "replace and retry",
		Says: "backing off protects the control plane: under the same contention and for the same work far fewer refused " +
			"writes reach the server, provided that chance decides how long each writer waits",
		Why: "every refused write costs the server a request, and etcd a read or a transaction; and those who all wait equally long meet " +
			"again",
		FalseIf: world.SomebodyIsAlwaysFaster("by-chance").Shows(`refused without backoff 28, with backoff by chance 64`),
		AlsoFalseIf: []world.World{
			world.SomebodyIsAlwaysFaster("in-step").Shows(`refused without backoff 28, in step 64`),
			world.ClientDropsTheToken.Shows(`the counter says 1, 0 gave up`),
		},
		Read: source.Func("k8s.io/apimachinery/pkg/util/wait", "Jitter"),
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
		l.Blank()
		l.Say("In client-go the chance is in the Jitter of a wait.Backoff; retry.DefaultRetry has %.1f of its %v.",
			retry.DefaultRetry.Jitter, retry.DefaultRetry.Duration)

		l.Expect(equal.Refused == none.Refused, "backing off in step spares it nothing",
			"refused without backoff %d, in step %d", none.Refused, equal.Refused)
		for _, tally := range []lab.Tally{none, equal, jitter} {
			l.Expect(tally.Counter == writers && tally.GaveUp == 0, "all the work is done", "the counter says %d, %d gave up", tally.Counter, tally.GaveUp)
		}
	})
}

func TestOpaqueTokenCreateOrUpdateReportsTheRaceItLost(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT28", From: "D2 paragraph 2, 3, +", Part: "replace and retry",
		Says: "controllerutil.CreateOrUpdate reads, lets a function change what was read, and replaces it with the token of " +
			"that reading: it writes nothing if nothing changed, and if somebody wrote in between it returns the conflict",
		Why:         "its function must be one that can be run again on the next reading, which is what a reconciler does anyway",
		FalseIf:     world.ClientDropsTheToken.Shows(`the raced CreateOrUpdate was accepted`),
		AlsoFalseIf: []world.World{world.SomebodyIsAlwaysFaster("shelf").Shows(`the next was refused: 409 Conflict`)},
		Read:        source.Func("sigs.k8s.io/controller-runtime/pkg/controller/controllerutil", "CreateOrUpdate"),
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
		l.Conflicts(raced, "the raced CreateOrUpdate", l.Peek("shelf"))
		l.Accepted(paint("color=blue, the next reconcile", "blue"), "the next")
		table.End()
		l.Blank()
		l.Say("In the raced row the transaction is the rival's: the replace was refused after a read, and sent none (CF2).")
		l.Stored(l.Peek("shelf"), "color=blue", "size=3")
	})
}

// Patch and ownership: whose field is it.

func TestOpaqueTokenAReplaceFromAPartialViewDropsWhatItDoesNotKnow(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT8", From: "D2 paragraph 3", Part: "patch and ownership",
		Says: "a read-modify-write that sends back all it has read keeps what others own; a replace of the whole object " +
			"made from a partial view drops it, although its token is current",
		Why: "the token says which version was read and not how much of it was kept: a client built with an older type " +
			"loses the newer fields of everybody else",
		FalseIf: world.AProxyMergesReplaces.Shows(`size=3 is stored`),
		AlsoFalseIf: []world.World{
			world.ClientKnowsNoSize.Shows(`size is not stored`),
			world.APatchIsAState.Shows(`size is not stored`),
		},
		Read: source.Func("k8s.io/apimachinery/pkg/runtime", "DefaultUnstructuredConverter"),
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
		ID: "OT8b", From: "D2 paragraph 3", Part: "patch and ownership",
		Says: "a patch that a library computes holds only my change if it is the difference to the copy that I read; taken " +
			"against a fresh reading, it takes back what others did meanwhile",
		Why:     "to the diff, a field that my old copy lacks is a field that I removed",
		FalseIf: world.AProxyDropsNulls.Shows(`size=3 is stored`),
		AlsoFalseIf: []world.World{
			world.APatchIsAState.Shows(`size is not stored`),
			world.ClientDropsTheToken.Shows(`the patch that is a difference to a fresh reading was accepted`),
		},
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
		l.Say("What is equal in both copies is not in the diff, and what differs is. So it is with the tokens: in the first and " +
			"the third patch both copies had the same one, so the patch carries none, and nothing is checked; in the second they " +
			"differed, so mine is in it, as a precondition. It was by luck that the second was refused.")
	})
}

func TestOpaqueTokenAnUnconditionalPatchOfASharedListLosesAnEntry(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT9", From: "D2 paragraph 3", Part: "patch and ownership",
		Says: "an unconditional patch of a shared field loses an update without a word: two actors each add a condition to " +
			"one list, both are answered with 200, and one of the conditions is gone",
		Why: "a merge patch replaces a list whole; what looks like \"patches do not conflict\" is that nobody notices any " +
			"more that they should have",
		FalseIf: world.EveryPatchCarriesAToken.Shows(`bob's patch without a token was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.AppliesAreMergePatches.Shows(`stored: \[Filled\]`),
			world.APatchMergesConditions.Shows(`stored: Painted, Filled`),
			world.ClientDropsTheToken.Shows(`bob's patch with a token was accepted`),
		},
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

		l.Of(lab.Deployment).Create("shelf", "replicas=1")
		applied := func(who, condition string) {
			_, err := l.As(who).Typed().AppsV1().Deployments(l.Namespace).ApplyStatus(l.Context(),
				lab.ShelfCondition(l.Namespace, condition), metav1.ApplyOptions{FieldManager: who})
			l.Accepted(err, who+"'s apply")
		}
		applied("ann", "Painted")
		applied("bob", "Filled")
		both := lab.Conditions(l.Of(lab.Deployment).Peek("shelf"))
		l.Blank()
		l.Say("Server-side apply merges such a list by the type of the condition where the kind says that its items have a "+
			"key (listType=map): to a Deployment ann and bob each apply their condition, without a token, and stored then: %s.", strings.Join(both, ", "))
		l.Expect(slices.Equal(both, []string{"Painted", "Filled"}), "two applies leave both conditions of a Deployment", "stored: %v", both)
	})
}

func TestOpaqueTokenALostFinalizerLetsTheObjectGoTooEarly(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT9b", From: "D2 paragraph 3, +", Part: "patch and ownership",
		Says: "finalizers are a list that actors share: added with an unconditional merge patch, the second takes out the " +
			"first, and the object is gone before the first actor has cleaned up",
		Why:     "a finalizer is a promise that the object waits; whoever adds one needs the token, or a patch that merges lists",
		FalseIf: world.EveryPatchCarriesAToken.Shows(`bob's client.MergeFrom was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`bob's patch with the lock was accepted`),
			world.EveryPatchIsAMergePatch.Shows(`they leave \[bob\S+\] and \[bob\S+\]`),
			world.AProxyDropsNulls.Shows(`a get of the object was accepted`),
		},
		Read: source.Func("sigs.k8s.io/controller-runtime/pkg/controller/controllerutil", "AddFinalizer"),
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
		ID: "OT29", From: "D2 paragraph 3, +", Part: "patch and ownership",
		Says: "a patch is a change and not a state: two that were made from the same copy leave a union of both, " +
			"and not what the last of the two meant to have",
		Why: "\"the last one wins\" holds field by field only; who needs his whole state needs the token, or a manager " +
			"who applies all of it",
		FalseIf:     world.EveryPatchCarriesAToken.Shows(`the second patch was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{world.APatchIsAState.Shows(`size is not stored`)},
		Read:        source.Func("k8s.io/apiserver/pkg/endpoints/handlers", "(*jsonPatcher).applyPatchToCurrentObject"),
		Answers:     "#73",
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
		ID: "OT10", From: "D2 paragraph 3", Part: "patch and ownership",
		Says: "server-side apply is another mechanism, ownership by field: two managers of different fields never conflict; " +
			"on the same field with another value they do, with 409 and the cause FieldManagerConflict, and no retry helps",
		Why: "a stale token goes away by reading again, an owner does not: the two faces of 409 need different next steps, " +
			"and the causes tell them apart",
		FalseIf:     world.EveryApplyIsForced.Shows(`bob's apply of ann's fields was accepted`),
		AlsoFalseIf: []world.World{world.RefusalsLoseTheirCauses.Shows(`the causes are \[\]`)},
		Read:        source.Func("k8s.io/apimachinery/pkg/util/managedfields/internal", "NewConflictError"),
		Answers:     "#22",
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
		l.Say("Nothing was written. The details name no object, which those of a stale token do. bob can leave the two fields to " +
			"ann (OT12), or take them over with force, once and by decision (OT11).")

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
		ID: "OT10b", From: "D2 paragraph 3, +", Part: "patch and ownership",
		Says: "an owner is a manager and an operation: what ann created by POST, ann owns by Update; ann's own apply " +
			"conflicts with that, and leaving a field out of it does not remove the field",
		Why: "a tool that moves from create or patch to apply under its old name is two owners until its old entry is moved " +
			"over (csaupgrade in client-go)",
		FalseIf: world.CreatesAreApplies.Shows(`size is not stored`),
		AlsoFalseIf: []world.World{
			world.EveryApplyIsForced.Shows(`ann's apply of another value was accepted`),
			world.RefusalsLoseTheirCauses.Shows(`it is: Apply failed with 1 conflict`),
			world.OwnersAreNotSent.Shows(`ann's apply after the upgrade was refused: 409 Conflict`),
		},
		Read:    source.Func("k8s.io/client-go/util/csaupgrade", "UpgradeManagedFields"),
		Answers: "#50 #51",
	}, func(l *lab.Lab) {
		configMaps := l.As("ann").Typed().CoreV1().ConfigMaps(l.Namespace)
		table := l.Table("ann", "answer", "stored then", "owners then")
		step := func(what string, err error) error {
			answer, now := l.Answered(), l.Peek("shelf")
			for i, owner := range l.Owners(now) {
				if i == 0 {
					table.Row(what, answer, lab.Fields(now, "color", "size"), owner)
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
		ID: "OT10c", From: "D2 paragraph 3", Part: "patch and ownership",
		Says: "a resourceVersion in an applied object is a precondition like any other: while the object exists (OT25b), a stale one is refused with " +
			"the standard conflict and without a cause, forced or not; only a dispute about an owner, which force would settle, is " +
			"reported before it",
		Why:     "force settles who owns a field, the token whether the object is still the one that was read",
		FalseIf: world.ClientDropsTheToken.Shows(`the apply with a stale token was accepted`),
		AlsoFalseIf: []world.World{
			world.ForceOverridesTheToken.Shows(`the forced apply with a stale token was accepted`),
			world.RefusalsLoseTheirCauses.Shows(`the causes are \[\]`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
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
		ID: "OT30", From: "D2 paragraph 3, +", Part: "patch and ownership",
		Says: "an apply without a token that is overtaken by another write is computed again by the server and accepted: " +
			"\"the object has been modified\", about the object itself, cannot come from it",
		Why: "who sees that text after an apply has sent a token with it, from a copy or out of a manifest; or it is about " +
			"another object, such as a quota (CF8d), and then details.kind says so",
		FalseIf:     world.EveryPatchCarriesAToken.Shows(`the overtaken apply was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{world.EtcdIgnoresTheCompare.Shows(`size is not stored`)},
		Read:        source.Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers:     "#20",
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
		ID: "OT31", From: "D2 paragraph 3, +", Part: "patch and ownership",
		Says: "an apply that repeats itself, and would store the same bytes, writes nothing, however long after: a new time in " +
			"managedFields alone is no reason to write",
		Why:     "a controller may apply all it wants in every reconcile; only what differs costs a write and wakes watchers",
		FalseIf: world.StoredInAnotherEncoding.Shows(`the apply, years later, cost etcd: 1 Range, 1 Txn`),
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
		aged := l.BackdateManagedFields(shelf, "2020-01-01T00:00:00Z")
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
		ID: "OT11", From: "D2 paragraph 3", Part: "patch and ownership",
		Says: "force takes a field over: the other manager loses it, and his next apply conflicts; two actors who force " +
			"as their retry fight for ever, with a write each time",
		Why: "force answers \"who shall own this\", once and by decision; as an answer to every conflict it only makes the " +
			"fight silent",
		FalseIf: world.NoApplyIsForced.Shows(`bob's forced apply was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.EveryApplyIsForced.Shows(`it was answered no error`),
			world.TheFightIsOver.Shows(`there were 3 writes`),
			world.StoredInAnotherEncoding.Shows(`there were 9 writes`),
		},
		Read: source.Func("sigs.k8s.io/structured-merge-diff/v6/merge", "(*Updater).Apply"),
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
			answer, now := l.Answered(), l.Peek("shelf")
			table.Row(manager+" "+what, answer, lab.Field(now, "color"), l.OwnersOf(now, "color"), l.KV(now).Version)
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
		ID: "OT12", From: "D2 paragraph 3", Part: "patch and ownership",
		Says: "who owns what is a decision: when a human scales and a controller applies replicas, the controller is " +
			"refused, or undoes the human each time if it forces; leaving replicas out of what it applies ends the fight",
		Why: "no retry can settle whether the human or the controller is right; the manifest of the one who is not " +
			"responsible must not have the field",
		FalseIf: world.EveryApplyIsForced.Shows(`the controller's apply after the human has scaled was accepted`),
		AlsoFalseIf: []world.World{
			world.NoApplyIsForced.Shows(`the controller's forced apply was refused: 409 Conflict`),
			world.ATemplateHasReplicas.Shows(`the controller's apply without replicas was refused: 409 Conflict`),
		},
		Read:    source.Func("k8s.io/kubernetes/pkg/registry/apps/deployment/storage", "(*ScaleREST).Update"),
		Answers: "#52",
	}, func(l *lab.Lab) {
		controller := l.As("controller").Typed().AppsV1().Deployments(l.Namespace)
		human := l.As("human").Typed().AppsV1().Deployments(l.Namespace)
		table := l.Table("who does what", "answer", "replicas", "its owner", "writes")
		step := func(what string, err error) error {
			answer, now := l.Answered(), l.Of(lab.Deployment).Peek("shelf")
			table.Row(what, answer, lab.Field(now, "replicas"), l.OwnersOf(now, "replicas"), l.KV(now).Version)
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
		ID: "OT12b", From: "D2 paragraph 3, +", Part: "patch and ownership",
		Says: "giving a field up is not leaving it alone: when its only owner applies without it, the field goes, and " +
			"replicas falls back to the default of 1; it stays if somebody else owns it by then",
		Why: "so the new owner takes the field first, with its present value, and only then does the old one leave it " +
			"out",
		FalseIf:     world.ACoOwner(lab.Deployment, "alone", "controller", "replicas=3").Shows(`replicas=3 is stored`),
		AlsoFalseIf: []world.World{world.TheScalerAppliesNothing.Shows(`replicas=1 is stored`)},
		Read:        source.Func("k8s.io/apimachinery/pkg/util/managedfields/internal", "(*structuredMergeManager).Apply"),
		Answers:     "#52",
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
			answer, now := l.Answered(), l.Of(lab.Deployment).Peek(name)
			table.Row(name+": "+who+" applies "+what, answer, lab.Field(now, "replicas"), l.OwnersOf(now, "replicas"))
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
		ID: "OT13", From: "D2 paragraph 4", Part: "status",
		Says: "the status subresource separates status from spec, where the resource's definition says so: there a replace of " +
			"the object ignores status and one of /status ignores spec; where it does not, /status is 404 and a change of " +
			"status moves generation",
		Why: "200 does not mean that all was stored that was sent; and without the subresource every report of a controller " +
			"looks like a new order to it (and IsNotFound from /status does not mean that the object is gone)",
		FalseIf: world.StatusGoesToTheObject.Shows(`size=9 is stored`),
		AlsoFalseIf: []world.World{
			world.StoredInAnotherEncoding.Shows(`\["rv" "rv gen"\] moved`),
			world.NoStatusMeansTheObject.Shows(`\["rv" "rv gen"\] moved`),
		},
		Read:    source.Func("k8s.io/apiextensions-apiserver/pkg/registry/customresource", "customResourceStrategy.PrepareForUpdate"),
		Answers: "#44 #47",
	}, func(l *lab.Lab) {
		with, without := l.CustomResource("status"), l.CustomResource()
		api := l.Controller(with, without)
		l.Say("Two custom resources, one with the subresource /status and one without it. rv: a new resourceVersion. gen: " +
			"generation grew by one. -: answered with 200, but nothing moved and nothing was written.")
		table := l.Table("replace of", "with /status", "stored then", "without it", "stored then")
		cells := func(request string, do func(shelf *lab.Object) error) (moves [2]string, errs [2]error) {
			row := []any{request}
			for i, kind := range []lab.Kind{with, without} {
				shelf := l.Of(kind).Peek("shelf")
				moved := l.Moved(shelf, func() error { return do(shelf.DeepCopy()) })
				moves[i], errs[i] = moved.String(), moved.Err
				row = append(row, moved, lab.Fields(l.Of(kind).Peek("shelf"), "size", "status.phase"))
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
		ID: "OT14", From: "D2 paragraph 4", Part: "status",
		Says: "a status write is not free of concurrency: a stale token on /status is refused, and a status write makes a " +
			"pending write of the spec stale: there is one token for the whole object",
		Why: "a conflict on the spec may mean no more than that a controller has reported; and a controller has to read " +
			"again after every change of the spec",
		FalseIf: world.ClientDropsTheToken.Shows(`the human's write of the spec was accepted`),
		AlsoFalseIf: []world.World{
			world.StatusNeedsNoToken.Shows(`the controller's write of the status was accepted`),
			world.EveryPatchCarriesAToken.Shows(`a patch of a field that only the controller writes was refused: 409 Conflict`),
		},
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
		l.Blank()
		l.Say("The last row is advice for this case alone: nobody else writes the field, and its value was not decided on " +
			"anything else that was read. Where either fails, a patch without a token loses what others wrote (OT9).")
	})
}

func TestOpaqueTokenAChangedTokenIsNoChangeOfDesiredState(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT15", From: "D2 paragraph 4", Part: "status",
		Says: "a changed resourceVersion does not mean that the desired state has changed: a label, a status or a new owner " +
			"of a field moves it, too; generation tells, for the kinds that have one (a Deployment counts annotations, too, OT3)",
		Why: "a controller that acts on every new resourceVersion answers its own status writes; one that looks at " +
			"generation sees no change of a ConfigMap, ever: compare what you own",
		FalseIf: world.AProxyTouchesTheSpec.Shows(`a label on the Deployment: .* the predicate passes it`),
		Read:    source.Func("sigs.k8s.io/controller-runtime/pkg/predicate", "TypedGenerationChangedPredicate.Update"),
		Answers: "#45 #56",
	}, func(l *lab.Lab) {
		table := l.Table("change", "resourceVersion", "generation", "spec or data", "predicate")
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
			l.Expect(predicate.ResourceVersionChangedPredicate{}.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}),
				"ResourceVersionChangedPredicate passes "+change, "%s: it drops it", change)
			l.Expect(changed == wantChanged && passed == wantPassed,
				fmt.Sprintf("%s: spec or data is %s; the predicate %s", change, state[wantChanged], verdict[wantPassed]),
				"%s: spec or data is %s; the predicate %s", change, state[changed], verdict[passed])
		}
		const label, annotation = `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"annotations":{"a":"b"}}}`
		see("a label on the Deployment", lab.Deployment, lab.Merge(label), false, false)
		see("its status", lab.Deployment, lab.Merge(`{"status":{"observedGeneration":1}}`).Through("status"), false, false)
		see("another status", lab.Deployment, lab.Merge(`{"status":{"replicas":1}}`).Through("status"), false, false)
		see("a second owner of a field", lab.Deployment, lab.Applied("ann", "30"), false, false)
		see("an annotation", lab.Deployment, lab.Merge(annotation), false, true)
		see("its spec", lab.Deployment, lab.Desired("60"), true, true)
		see("the data of a ConfigMap", lab.ConfigMap, lab.Desired("60"), true, false)
		table.End()
		for _, p := range []predicate.Predicate{predicate.GenerationChangedPredicate{}, predicate.ResourceVersionChangedPredicate{}} {
			o := l.Peek("shelf")
			l.Expect(p.Create(event.CreateEvent{Object: o}) && p.Delete(event.DeleteEvent{Object: o}),
				"the predicates pass every create and every delete", "%T drops one", p)
		}
		l.Blank()
		l.Say("The predicate is GenerationChangedPredicate of controller-runtime. Every status written would wake a " +
			"controller that goes by resourceVersion, and it would write its status again. For a kind without a generation " +
			"the way out is ResourceVersionChangedPredicate, which passes every row of this table, and then in the reconcile " +
			"to compare what one owns with what is there, and to write only if they differ. Both look at updates only: every " +
			"create and every delete passes.")
	})
}

// Caches.

func TestOpaqueTokenFromALaggingCacheConflictsAgainAndAgain(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16", From: "D2 paragraph 4", Part: "caches",
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
			"10 ms apart, and gives up. Each costs a Range because kube-apiserver's own cache is current: it sees the "+
			"conflict itself, and reads the key before it says so (CF2, GU5b). See also OT6c and OT16d, the same with kube-apiserver's cache, and OT16b, how to wait.", fromCache)

		l.Refused(err, "the write from the cache", 409, metav1.StatusReasonConflict)
		l.Expect(fromCache == retry.DefaultRetry.Steps, "every attempt of the loop conflicts",
			"%d attempts were made", fromCache)
		l.Accepted(live, "the write from a live read")
	})
}

func TestOpaqueTokenACacheThatHasReachedAWriteShowsIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16b", From: "D2 paragraph 4", Part: "caches",
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

func TestOpaqueTokenIsWaitedForByControllerRuntimeIfAskedTo(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16c", From: "D2 paragraph 4", Part: "caches",
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

func TestOpaqueTokenFromTheApiserversOwnCacheMayBeOldToo(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT16d", From: "D2 paragraph 4", Part: "caches",
		Says: "a read with resourceVersion 0 is answered from kube-apiserver's own cache, which can lag as well: what it gives " +
			"conflicts again and again, and each time it is etcd that says so; a read without a number is current",
		Why: "a read that goes to the server is not yet a live read: a cheap one may be as old as an informer's",
		FalseIf: world.AProxyStripsTheRevision.Shows(
			`a replace from a read with "0" was accepted`),
		AlsoFalseIf: []world.World{world.AProxyKeepsAnswers.Shows(`a replace from a read without a number was refused: 409 Conflict`)},
		Read:        source.Func("k8s.io/apiserver/pkg/storage/cacher", "(*CacheDelegator).Get"),
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
		l.Blank()
		l.Say("In OT16 a 409 costs a read, here a transaction: the stale cache lets the replace pass, and the compare in etcd fails " +
			"(CF3b). In the last row the stale cache sees a conflict where there is none, which is not believed before the key was " +
			"read (GU5b). A list with \"0\" is answered from the cache as well (RV10): a client that begins with one after its " +
			"restart may see a state older than the one it knew. See also OT6c, the same in a retry.")
		l.Accepted(err, "a replace from a read without a number")
	})
}

func TestOpaqueTokenAnAnswerPutIntoACacheByHandDoesNotMakeItCurrent(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT40", From: "D2 paragraph 4, +", Part: "caches",
		Says: "to put the answer to one's own write into the cache's store does not make the cache current: it can move it " +
			"backwards, and nothing puts that right before the next event of that object; put in ahead of the watch, it is " +
			"taken out again by an older event that was still on its way",
		Why: "a cache has one writer, its watch; whoever helps it along can freeze it on the past, and every write from " +
			"it then conflicts",
		FalseIf:     world.ClientDropsTheToken.Shows(`was accepted`),
		AlsoFalseIf: []world.World{world.CachesNeverGoBack.Shows(`the rival's event moved the cache from \d+ to \d+`)},
		Read:        source.Func("k8s.io/client-go/tools/cache", "processDeltas"),
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
		l.Blank()
		l.Say("Two replaces from the cache in between: %s, %s. One after the rival's second write: %s.",
			lab.Brief(first), lab.Brief(second), lab.Brief(healed))

		l.Conflicts(first, "a replace from the cache", wrote)
		l.Conflicts(second, "the same once more", wrote)
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
		l.Blank()
		l.Say("To see one's own write, wait until the cache has reached it (OT16b), or read live.")
		l.Expect(went[0] == lab.Move{From: stored, To: older}, "the older event takes the newer answer out of the cache",
			"the rival's event moved the cache from %s to %s", went[0].From, went[0].To)
		l.Expect(went[1] == lab.Move{From: older, To: stored}, "the event of the controller's own write puts that right",
			"the event of the controller's own write moved it from %s to %s", went[1].From, went[1].To)
	})
}

func TestOpaqueTokenAbsenceFromACacheIsNotAbsence(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT41", From: "D2 paragraph 4, +", Part: "caches",
		Says: "that an object is not in a cache does not mean that it does not exist: with a name of its own the second " +
			"create is refused, with a generated name every look into the cache makes one more",
		Why: "a deterministic name lets the apiserver decide who was first; a generated name takes that decision away " +
			"from it",
		FalseIf:     world.ClientNamesWhatItCreates.Shows(`three looks made 1 `),
		AlsoFalseIf: []world.World{world.EtcdIgnoresTheCompareOfACreate.Shows(`a later create by name was accepted`)},
		Read:        source.Func("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Create"),
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
		l.Blank()
		l.Say("Stored: shelf-child, once; and %s. Whoever is told AlreadyExists looks whose child it is: see OT23c.", strings.Join(children, ", "))
		l.Accepted(named[0], "the first create by name")
		for _, err := range named[1:] {
			l.Refused(err, "a later create by name", 409, metav1.StatusReasonAlreadyExists)
		}
		l.Expect(len(children) == 3, "with a generated name, three looks make three objects",
			"three looks made %d with a generated name; the creates were answered: %s", len(children), strings.Join(generated, ", "))
	})
}

func TestOpaqueTokenThatMovedIsNotTheConditionYouWaitFor(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT17", From: "D2 paragraph 4", Part: "caches",
		Says: "wait for the condition that you need, and not for a greater resourceVersion: any change moves the number, and " +
			"a write after which the same bytes would be stored does not move it",
		Why: "whoever waits for a number goes on when somebody touches a label, and waits for ever when the work was " +
			"done already",
		FalseIf:     world.EveryWriteDoesTheWork.Shows(`color=blue`),
		AlsoFalseIf: []world.World{world.StoredInAnotherEncoding.Shows(`the watch delivered shelf at`)},
		Read:        source.Func("k8s.io/client-go/tools/watch", "UntilWithSync"),
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
		l.Blank()
		l.Say("The painter paints it blue again: 200, resourceVersion %s as before. The next event of the watch is that of "+
			"another object, at %s: a greater number of shelf does not come. Had shelf been stored in another "+
			"encoding than the server's present one, it would: see RV8b. UntilWithSync in client-go waits for a condition, and "+
			"begins with what is there.", same.GetResourceVersion(), after.ResourceVersion)
		l.Expect(same.GetResourceVersion() == field && after.ResourceVersion == fence.GetResourceVersion(),
			"a write that stores the same bytes brings no number and no event", "it is at %s; the watch delivered %s at %s",
			same.GetResourceVersion(), after.Name, after.ResourceVersion)
	})
}

// Telling errors apart.

func TestOpaqueTokenAConflictShowsWhoseProgressItWas(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT20", From: "D2 paragraph 5", Part: "telling errors apart",
		Says: "a conflict is evidence that somebody made progress: read again, and the object shows what changed and, in " +
			"managedFields, who changed it",
		Why:     "the next decision depends on what the other did; a conflict that is only counted and repeated wastes that",
		FalseIf: world.RivalSignsAsTheWriter.Shows(`color belongs to writer`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the writer's replace was accepted`),
			world.AProxyKeepsAnswers.Shows(`\[\] changed`),
		},
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

func TestOpaqueTokenRefusalsNeedDifferentNextSteps(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21", From: "D2 paragraph 5", Part: "telling errors apart",
		Says: "a conflict is one refusal among many, and 409 and 422 have many faces; status, reason, causes and details lead " +
			"to the next step, and where that is a live reading, what it shows leads to the one after",
		Why: "to treat every error as a conflict repeats what can never succeed, and to treat every 409 alike retries what " +
			"no retry can settle, or reads again what was never stored",
		FalseIf: world.AGatewayHidesTheReason.Shows(`a create in a missing namespace: 404 NotFound, let go`),
		AlsoFalseIf: []world.World{
			world.RefusalsLoseTheirCauses.Shows(`apply to another's field: 409 Conflict, read it live`),
			world.ClientDropsThePreconditions.Shows(`delete, stale token: 200, go on`),
			world.EtcdIgnoresTheCompare.Shows(`create under a busy quota: 201, go on`),
		},
		Read:    source.Func("k8s.io/apimachinery/pkg/api/errors", "ReasonForError"),
		Answers: "#22 #31 #32 #61 #70",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		moved := l.Create("moved", "color=red")
		l.Rival().Set("moved", "color=blue")
		gone := l.Create("gone", "color=red")
		l.Delete("gone")
		old := l.Create("again", "color=red")
		l.Settle(l.Recreate("again", "color=white"))
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

		replace := func(c *lab.Client, o *lab.Object) error { _, err := c.TryReplace(o, "color=green"); return err }
		ignore := func(_ any, err error) error { return err }
		next := func(what, want string, next answer.Step, err error) (string, answer.Step) {
			step, stored := answer.Next(err, l.Kind().Resource, l.Kind().Kind)
			got := lab.Brief(err)
			if err == nil {
				got = l.AnsweredTo("writer")
			}
			for _, c := range []metav1.CauseType{metav1.CauseTypeFieldManagerConflict, metav1.CauseTypeResourceVersionTooLarge} {
				if lab.HasCause(err, c) {
					got += ", " + string(c)
				}
			}
			if kind := lab.DetailsOf(err).Kind; apierrors.IsConflict(err) && kind != "" || kind == "namespaces" {
				got += ", " + kind
			}
			l.Expect(step == next && got == want && stored == answer.No, what+": "+want+", "+next.String()+", nothing stored",
				"%s: %s, %s, stored: %s", what, got, step, stored)
			return got, step
		}

		table := l.Table("request", "answer", "next step")
		try := func(what, want string, step answer.Step, err error) {
			got, _ := next(what, want, step, err)
			table.Row(what, got, step)
		}
		try("a body that is no JSON", "400 BadRequest", answer.MendTheRequest,
			ignore(l.TryRaw(http.MethodPut, l.Path("shelf"), "", []byte("{"))))
		try("a bearer token that nobody issued", "401 Unauthorized", answer.ProveWhoYouAre,
			replace(l.AsBearer("nobody", "not-issued"), shelf))
		try("a user without a role", "403 Forbidden", answer.GetTheRight, replace(l.AsUser("stranger"), moved))
		try("a replace after a delete", "404 NotFound", answer.LetGo, replace(l.Client, gone))
		nowhere := strings.ReplaceAll(l.Path(""), l.Namespace, "nowhere")
		try("a create in a missing namespace", "404 NotFound, namespaces", answer.MendTheRequest,
			ignore(l.TryRaw(http.MethodPost, nowhere, "", []byte(`{"metadata":{"name":"shelf"}}`))))
		watch, err := shelves.TryWatch(metav1.ListOptions{ResourceVersion: "1"})
		l.Step(err, "watching from revision 1")
		try("a watch from revision 1", "410 Expired", answer.ListAgain, ignore(watch.TryNext()))
		try("a patch format that the kind lacks", "415 UnsupportedMediaType", answer.MendTheRequest,
			ignore(shelves.TryPatch("custom", types.StrategicMergePatchType, `{"spec":{"color":"green"}}`)))
		try("no token where the kind wants one", "422 Invalid", answer.MendTheRequest, replace(shelves, lab.WithToken(custom, "")))
		try("a taken name with invalid data", "422 Invalid", answer.MendTheRequest, ignore(l.TryCreate("shelf", "a b=green")))
		try("an eviction that a budget forbids", "429 TooManyRequests", answer.WaitAndRepeat, l.TryEvict(eviction))
		try("a read from the future", "504 Timeout, ResourceVersionTooLarge", answer.WaitAndRepeat, l.FirstReadFromTheFuture().Err)
		table.End()

		table = l.Table("409 or 422 for", "reason; cause or details.kind", "next step", "so then")
		meta := func(o *lab.Object) metav1.Object {
			if o == nil {
				return nil
			}
			return o
		}
		face := func(what, want string, step answer.Step, known *lab.Object, name string, found answer.Step, err error) {
			got, step := next(what, want, step, err)
			then := ""
			if step == answer.ReadIt {
				now, err := l.TryGet(name)
				if err != nil && !lab.IsNotFound(err) {
					l.Step(err, "reading "+name)
				}
				reading := answer.Found(meta(known), meta(now))
				l.Expect(reading == found, what+", read live: "+found.String(), "%s, read live: %s", what, reading)
				then = reading.String()
			}
			table.Row(what, strings.TrimPrefix(got, "409 "), step, then)
		}
		face("create of a name in use", "409 AlreadyExists", answer.ReadIt, nil, "shelf", answer.SeeWhoseItIs,
			ignore(l.TryCreate("shelf", "color=green")))
		face("the same, being set free", "409 AlreadyExists", answer.ReadIt, nil, "leaving", answer.WaitForItsEnd,
			ignore(l.TryCreate("leaving", "color=green")))
		face("apply to another's field", "409 Conflict, FieldManagerConflict", answer.SettleTheOwner, nil, "", 0,
			ignore(l.TryApply("owned", "writer", false, "color=green")))
		face("replace, stale token", "409 Conflict, configmaps", answer.ReadIt, moved, "moved", answer.DecideAgain, replace(l.Client, moved))
		face("JSON patch, its test fails", "422 Invalid", answer.ReadIt, moved, "moved", answer.DecideAgain,
			ignore(l.TryPatch("moved", types.JSONPatchType, fmt.Sprintf(
				`[{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"add","path":"/data/color","value":"green"}]`,
				moved.GetResourceVersion()))))
		face("delete, stale token", "409 Conflict, ConfigMap", answer.ReadIt, moved, "moved", answer.DecideAgain,
			l.TryDelete("moved", lab.Token(moved)))
		face("replace, the uid of before", "409 Conflict, configmaps", answer.ReadIt, old, "again", answer.LetGo,
			replace(l.Client, lab.WithToken(old, "")))
		face("delete, the uid of before", "409 Conflict, ConfigMap", answer.ReadIt, old, "again", answer.LetGo,
			l.TryDelete("again", lab.UID(old)))
		face("patch, the uid of before", "422 Invalid", answer.ReadIt, old, "again", answer.LetGo,
			ignore(l.TrySet("again", "size=9", "metadata.uid="+string(old.GetUID()))))
		face("apply, the uid of before", "422 Invalid", answer.ReadIt, old, "again", answer.LetGo,
			ignore(l.TryApply("again", "writer", false, "size=9", "metadata.uid="+string(old.GetUID()))))
		face("apply, uid of what is gone", "409 Conflict, configmaps", answer.ReadIt, gone, "gone", answer.LetGo,
			ignore(l.TryApply("gone", "writer", false, "color=green", "metadata.uid="+string(gone.GetUID()))))
		stop := l.Busy(l.LimitConfigMaps(50, 9))
		_, err = l.TryCreate("counted", "color=green")
		stop()
		face("create under a busy quota", "409 Conflict, resourcequotas", answer.SendItAgain, nil, "", 0, err)
		table.End()

		l.Blank()
		l.Say("Whoever is given one of these answers knows that this request stored nothing; an earlier attempt of it may have done so, " +
			"one of client-go's own included (OT21c, OT22, OT23). It holds for this 504 because of its cause " +
			"ResourceVersionTooLarge: it refuses a read, and a read stores nothing; a 504 without that cause is no answer about " +
			"a write (OT21b). A 500 is not among them: it may be a token that cannot be parsed, and then nothing was stored " +
			"(OT43), or etcd's answer that got lost, and then nobody knows (OT21b); no reason and no cause tells which. A 404 from /status may mean that there is no such subresource (OT13). " +
			"In words, the messages tell the faces of 409 apart (CF8); a program reads the object instead.")

		l.Blank()
		l.Say("The test of a JSON patch is a precondition of the client's own (if the reading shows nothing new, it is the patch " +
			"that is wrong). RetryOnConflict does not repeat a 422 (CF7); the resourceVersion in the body of a patch is a check " +
			"that answers 409 (CF7b). A replace after a delete is 201 where " +
			"updates create (OT26). What is being deleted can still be written, only a new finalizer is refused, 422 (CF8e). And for " +
			"a number of another cluster, or of a time before a backup was restored, the wait may never end: drop it, and list.")

		steps := l.Table("next step", "because")
		for step := answer.GoOn; step <= answer.Stop; step++ {
			steps.Row(step, step.Because())
		}
		steps.End()
		l.Blank()
		l.Say("The last two, read back and stop, are for a write without an answer: see OT21b.")
		l.Stored(shelf, "color=red")
		l.Stored(moved, "color=blue")
	})
}

func TestOpaqueTokenAWriteWithoutAnAnswerMayBeStoredOrNot(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21b", From: "D2 paragraph 5", Part: "telling errors apart",
		Says: "when the answer does not come, or is a 500 or a 504, nobody can say whether the write was stored: the same " +
			"words are heard when it was and when it was not; only a connection that never came about is a no",
		Why: "a lost answer is not a refusal; the one next step that is right in both cases is to read back and compare, when what " +
			"was sent can no longer come",
		FalseIf: world.UnansweredWritesAreUndone.Shows(
			`etcd does it, reports a timeout: 500, stored: no`),
		AlsoFalseIf: []world.World{world.ClientDropsTheToken.Shows(`the first attempt, after the same sent again, was accepted`)},
		Read:        source.Func("k8s.io/apiserver/pkg/server/filters", "WithTimeoutForNonLongRunningRequests"),
		Answers:     "#6 #8 #61 #68",
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
			step, knows := answer.Next(err, l.Kind().Resource, l.Kind().Kind)
			gets := lab.Root(err)
			if strings.HasPrefix(what, "its deadline") { // which of the two is up to a race within kube-apiserver
				gets = "504, or the stream breaks"
			}
			table.Row(what, gets, stored, knows, step)
			l.Expect(err != nil && stored == want, what+": no answer, stored: "+want, "%s: %s, stored: %s", what, lab.Root(err), stored)
			l.Expect(step == next && knows == known, what+": "+next.String(), "%s: %s, %s", what, lab.Root(err), step)
		}

		// The deadlines run while the others are tried.
		lateBefore, txn := create("late-before")
		before := l.PastDeadline(l.Wire.HoldNoting(txn, "held past the deadline"), func(q string) error { return put(l.Context(), l.As("late"), lateBefore, q) })
		lateAfter, txn := create("late-after")
		after := l.PastDeadline(l.Wire.HoldAnswer(txn), func(q string) error { return put(l.Context(), l.As("late"), lateAfter, q) })

		o, _ := create("unplugged-before")
		row("nobody listens there", put(l.Context(), l.As("unplugged").Unplugged(), o, ""), o, "no", answer.No, answer.WaitAndRepeat)

		o, txn = create("etcd-before")
		l.Wire.Add(&wire.Rule{When: txn, Err: rpctypes.ErrGRPCTimeout})
		no := put(l.Context(), l.Client, o, "")
		row("etcd refuses, reports a timeout", no, o, "no", answer.Unknown, answer.ReadBack)
		o, txn = create("etcd-after")
		l.Wire.Add(&wire.Rule{When: txn, Lost: rpctypes.ErrGRPCTimeout})
		yes := put(l.Context(), l.Client, o, "")
		row("etcd does it, reports a timeout", yes, o, "yes", answer.Unknown, answer.ReadBack)
		l.Expect(lab.Brief(no) == lab.Brief(yes), "both get the same answer", "they get %s and %s", lab.Brief(no), lab.Brief(yes))

		cut, cable := l.As("cut").OnCable()
		o, txn = create("cut-before")
		err := l.Interrupted(l.Wire.HoldNoting(txn, "held until the connection was cut"), func() error { return put(l.Context(), cut, o, "") }, cable.Cut)
		row("the connection breaks before", err, o, "no", answer.Unknown, answer.ReadBack)
		o, txn = create("cut-after")
		err = l.Interrupted(l.Wire.HoldAnswer(txn), func() error { return put(l.Context(), cut, o, "") }, cable.Cut)
		row("the connection breaks after", err, o, "yes", answer.Unknown, answer.ReadBack)

		ctx, cancel := context.WithCancel(l.Context())
		o, txn = create("cancelled-before")
		err = l.Interrupted(l.Wire.HoldNoting(txn, "held until its caller had given up"), func() error { return put(ctx, l.Client, o, "") }, cancel)
		row("the caller cancels it before", err, o, "no", answer.Unknown, answer.Stop)
		ctx, cancel = context.WithCancel(l.Context())
		o, txn = create("cancelled-after")
		err = l.Interrupted(l.Wire.HoldAnswer(txn), func() error { return put(ctx, l.Client, o, "") }, cancel)
		row("the caller cancels it after", err, o, "yes", answer.Unknown, answer.Stop)

		row("its deadline ends before", before.Wait(), lateBefore, "no", answer.Unknown, answer.ReadBack)
		row("its deadline ends after", after.Wait(), lateAfter, "yes", answer.Unknown, answer.ReadBack)
		table.End()

		table = l.Table("while the first attempt is on its way, the client", "reads", "then the first is answered")
		for _, again := range []bool{false, true} {
			o := l.Create(fmt.Sprintf("under-way-%t", again), "color=red")
			what, read := "reads back", ""
			var second error
			first := l.Race(l.Key(o), func() error { return put(l.Context(), l.As("first"), o, "") }, func() {
				if again {
					second = put(l.Context(), l.Client, o, "")
					what = "sends the same again: " + lab.Brief(second) + "; and reads back"
				}
				read = "color=" + lab.Field(l.Get(o.GetName()), "color")
			})
			table.Row(what, read, lab.Brief(first))
			if again {
				l.Accepted(second, "the same sent again")
				l.Conflicts(first, "the first attempt, after the same sent again,", o)
			} else {
				l.Accepted(first, "the first attempt, arriving after the reading")
				l.Expect(read == "color=red", "the reading came too early", "it read %s", read)
			}
			l.Stored(o, "color=green")
		}
		table.End()
		l.Blank()
		l.Say("So a reading is final once the token that was sent is used up: the same sent again is answered 200, or 409 because " +
			"the object has moved (OT22), and after either the first attempt fits no more. What was sent without a token may " +
			"still come.")
		l.Blank()
		l.Say("At a deadline kube-apiserver answers 504; when that catches it in the middle of another answer, it breaks off " +
			"the stream instead. The 504 with the cause ResourceVersionTooLarge (OT21) is another: it answers a read, of which " +
			"it is known that nothing was stored. A 500 is given for a token that cannot be parsed, too, and then nothing was " +
			"stored (OT43); as only the message differs, the next step is the same: read back. To stop is the next step of one " +
			"who gave up himself; if he wants to know, he reads back as well.")
	})
}

func TestOpaqueTokenOneCallMayBeElevenRequests(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21c", From: "D2 paragraph 5, +", Part: "telling errors apart",
		Says: "one call of client-go can be eleven requests: it repeats by itself what is answered with a 429 or a 5xx that " +
			"carries a Retry-After, and a GET whose connection broke; a write whose connection broke it sends once",
		Why: "an own loop around such a call multiplies its requests, and a create can be refused because of itself; " +
			"MaxRetries(0) makes it send one",
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
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Who == "client" }, Times: 1, Note: "a gateway took out the Retry-After",
			Answer: func(resp *http.Response, body []byte) []byte { resp.Header.Del("Retry-After"); return body },
		})
		count("the same without Retry-After", 1, func() error {
			return client.TryRawByDefault(http.MethodPost, eviction.Path, "", eviction.Body)
		})
		count("the same with MaxRetries(0)", 1, func() error { return client.TryEvict(eviction) })
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Who == "client" && c.Path == "configmaps" }, Times: 1, Note: "a gateway's answer",
			Answer: func(resp *http.Response, body []byte) []byte {
				resp.StatusCode = http.StatusServiceUnavailable
				resp.Header.Set("Retry-After", "1")
				return body
			},
		})
		another, err := json.Marshal(l.New("another", "color=red").Object)
		l.Step(err, "encoding another")
		count("a create, once 503 and Retry-After: 1", 2, func() error {
			return client.TryRawByDefault(http.MethodPost, client.Path(""), "", another)
		})
		cutOnce(wire.ReadOf(l.Key(shelf)))
		count("a GET whose connection breaks", 2, func() error {
			return client.TryRawByDefault(http.MethodGet, client.Path("shelf"), "", nil)
		})
		cutOnce(wire.TxnOn(l.Key(shelf)))
		count("a PUT whose connection breaks", 1, func() error {
			return client.TryRawByDefault(http.MethodPut, client.Path("shelf"), "", body)
		})
		table.End()
		l.Blank()
		l.Say("Retry-After is in seconds, and client-go waits that long before each repetition: the first call would have taken " +
			"10 times 10 s, had the waits not been left out here. The 503 is that of a gateway, which had passed the create on; client-go " +
			"then meets its own object, and its caller is told AlreadyExists by the only call that he made (OT23).")
	})
}

func TestOpaqueTokenThatExpiredIsGoneForGood(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21d", From: "D2 paragraph 5, +", Part: "telling errors apart",
		Says: "410 is not a bad moment: the same resourceVersion is refused each time, and a fresh list, compared with what " +
			"one knew, leads on; a number from the future is not refused by a watch, which leaves out all events up to it",
		Why: "a client that watches from a number of yesterday again and again never sees anything; and what was deleted " +
			"meanwhile it learns from the list only",
		FalseIf: world.AProxyStripsTheRevision.Shows(`attempt 1 delivered an event`),
		AlsoFalseIf: []world.World{
			world.KeysOutliveTheirDeletion.Shows(`it lacks map\[\]`),
			world.ListsReportAnItemsNumber.Shows(`it delivered 3 events`),
		},
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

		const ahead = 300 // further than other writers to this etcd come while d is created
		future := numberOf(last.GetResourceVersion()) + ahead
		early := shelves.Watch(strconv.FormatInt(future, 10))
		missed := shelves.Create("d", "color=red")
		for reached := int64(0); reached < future; {
			put, err := l.Etcd().Put(l.Context(), "/not-kubernetes/"+l.Namespace, "x")
			l.Step(err, "writing a key of our own into etcd")
			reached = put.Header.Revision
		}
		late := early.Until(shelves.Create("e", "color=red").GetResourceVersion())
		table.Row(fmt.Sprintf("watch from %d, %d ahead", future, ahead), fmt.Sprintf("%s %s at %s; not d, created at %s before it",
			late[0].Type, late[0].Name, late[0].ResourceVersion, missed.GetResourceVersion()))
		table.End()
		l.Blank()
		l.Say("The client knew of a and b. The list does not have b: so b was deleted, and no event will ever say so. The watch " +
			"from the future, as with a number of another cluster, is silent until the store gets there, and has missed d. Watch " +
			"from the list's own number; the largest of its items may be older, and the watch then repeats what the list has taken in (RV6). A 410 " +
			"in the middle of a list in pages brings a token to go on with, at another revision than the pages before (RV11).")
		l.Expect(len(late) == 1 && number(missed) < future, "a watch from the future leaves out what comes up to its number",
			"it delivered %d events; d is at %s", len(late), missed.GetResourceVersion())
		l.Expect(known["b"] && len(known) == 1, "the list tells by what it lacks that b was deleted", "it lacks %v", known)
		l.Expect(len(seen) == 1, "a watch from the list goes on with what comes next", "it delivered %d events", len(seen))
	})
}

func TestOpaqueTokenAConflictMayBeYourOwnLostSuccess(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT22", From: "D2 paragraph 5", Part: "telling errors apart",
		Says: "when a write was stored and its answer was lost, the same write sent again conflicts with its own success: 409, " +
			"although nobody else wrote; reading back and comparing shows that the work is done",
		Why:     "who takes the lost answer for a failure, or that 409 for somebody else's work, does the work twice",
		FalseIf: world.TheFirst(http.MethodPut).Shows(`the same write sent again was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the same write sent again was accepted`),
			world.SomebodyIsAlwaysFaster("careful").Shows(`it carries ""`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
		Answers: "#6",
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
		ID: "OT23", From: "D2 paragraph 5", Part: "telling errors apart",
		Says: "when the answer to a create is lost, the same create again is refused with AlreadyExists, in the same words as " +
			"when a stranger took the name; only what is stored there tells them apart",
		Why: "AlreadyExists after a retry is neither a success nor a failure; it is a reason to look, and there must be " +
			"something to look for, such as a mark of the attempt",
		FalseIf:     world.TheFirst(http.MethodPost).Shows(`the create sent again was accepted`),
		AlsoFalseIf: []world.World{world.AnnotationsAreDropped.Shows(`the marks are "" and ""`)},
		Read:        source.Func("k8s.io/apiserver/pkg/storage/errors", "InterpretCreateError"),
		Answers:     "#7",
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

func TestOpaqueTokenALostCreateWithAGeneratedNameMakesTwoObjects(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT23b", From: "D2 paragraph 5", Part: "telling errors apart",
		Says: "when the answer to a create with generateName is lost and it is sent again, there are two objects, and no error " +
			"says so; with a name of the client's own there is one",
		Why: "nothing collides when the server makes the name, so nothing warns; the first object is an orphan of which " +
			"nobody knows",
		FalseIf:     world.ClientNamesWhatItCreates.Shows(`the create sent again was refused: 409 AlreadyExists`),
		AlsoFalseIf: []world.World{world.TheFirst(http.MethodPost).Shows(`1 are: \[shelf-\w+\]`)},
		Read:        source.Func("k8s.io/apiserver/pkg/registry/rest", "BeforeCreate"),
		Answers:     "#8 #68",
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
		ID: "OT23c", From: "D2 paragraphs 1, 5", Part: "telling errors apart",
		Says: "whether a child that already exists is one's own says the uid in its controller's owner reference, not its name " +
			"and not the owner's name",
		Why:         "to fail for ever on one's own child is as wrong as to adopt the child of a past owner of the same name",
		FalseIf:     world.UIDsBelongToNames.Shows(`the child of the past owner looks like ours`),
		AlsoFalseIf: []world.World{world.EtcdIgnoresTheCompareOfACreate.Shows(`the create of child was accepted`)},
		Read:        source.Func("k8s.io/apimachinery/pkg/apis/meta/v1", "IsControlledBy"),
		Answers:     "#69",
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
		ID: "OT24", From: "D2 paragraph 5", Part: "telling errors apart",
		Says: "where updates do not create (OT26), a replace of what was deleted is 404; once the name is taken again, a replace with the uid is 409 and names both " +
			"uids, with the old token alone the ordinary 409, and with neither 200, onto a stranger",
		Why: "404 means that what belonged to the uid may be cleaned up; the uid in the next write is what keeps that " +
			"cleaning, and every retry, away from the new object",
		FalseIf:     world.ClientDropsTheUID.Shows(`a replace with the uid alone was accepted`),
		AlsoFalseIf: []world.World{world.ClientDropsTheToken.Shows(`a replace with the old token alone was accepted`)},
		Read:        source.Func("k8s.io/apiserver/pkg/storage", "(*Preconditions).Check"),
		Answers:     "#11",
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

		table := l.Table("a replace with", "while it is gone", "after a rival took the name", "the refusal then")
		words := map[string]string{}
		for i, s := range sends {
			_, err := l.TryReplace(s.o, "color=green")
			words[s.what] = l.Describe(err)
			table.Row(s.what, lab.Brief(gone[i]), lab.Brief(err), map[bool]string{
				true: "names both uids", false: map[bool]string{true: "an ordinary conflict", false: "none"}[err != nil],
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

func TestOpaqueTokenAWriteWithoutATokenLandsOnTheNextIncarnation(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT25", From: "D2 paragraphs 1, 5", Part: "telling errors apart",
		Says: "a patch and an unconditional replace that are overtaken by delete and recreate are repeated by the server and land " +
			"on the new incarnation: 200, under another uid; a delete by name that is sent again removes it, and with the uid is " +
			"refused: 409",
		Why: "what carries no precondition is done to whatever stands under the name then; whoever means one incarnation has " +
			"to say so",
		FalseIf: world.ClientsSendTheUID.Shows(`the merge patch was refused`),
		AlsoFalseIf: []world.World{
			world.ClientDropsThePreconditions.Shows(`the delete with the uid, sent again, was accepted`),
			world.ReplacesSendTheUID.Shows(`the replace without a token was refused: 409 Conflict`),
			world.UIDsBelongToNames.Shows(`the merge patch was written to [0-9a-f-]+`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#13",
	}, func(l *lab.Lab) {
		table := l.Table("write", "answer", "transactions", "uid before", "uid written to")
		for _, write := range []string{"merge patch", "replace without a token"} {
			name := strings.ReplaceAll(write, " ", "-")
			old := l.Create(name, "color=red")
			l.Settle(old)
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

		table = l.Table("delete, its answer lost, a rival takes the name, sent again", "answer", "the rival's object")
		for _, by := range []string{"by name", "with the uid"} {
			name := strings.ReplaceAll(by, " ", "-")
			old, options := l.Create(name, "color=red"), []metav1.DeleteOptions{}
			if by == "with the uid" {
				options = append(options, lab.UID(old))
			}
			l.Wire.AddHTTP(&wire.HTTPRule{Lose: true, Times: 1, When: func(c *wire.Call) bool { return c.Verb == http.MethodDelete }})
			lost := l.TryDelete(name, options...)
			l.Expect(errors.Is(lost, wire.ErrAnswerLost), "the answer to the first delete is lost", "it is: %v", lost)
			rivals := l.Rival().Create(name, "color=white")
			again := l.TryDelete(name, options...)
			there := l.Exists(rivals)
			table.Row(by, lab.Brief(again), map[bool]string{true: "is there", false: "is gone"}[there])
			if by == "by name" {
				l.Accepted(again, "the delete by name, sent again,")
			} else {
				l.Refused(again, "the delete with the uid, sent again,", http.StatusConflict, metav1.StatusReasonConflict)
			}
			l.Expect(there == (by == "with the uid"), "the uid keeps the delete away from the rival's object", "%s: there: %t", by, there)
		}
		table.End()
	})
}

// Creating by updating.

func TestOpaqueTokenAnApplyBringsADeletedObjectBack(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT25b", From: "D2 paragraphs 3, 5", Part: "creating by updating",
		Says: "an apply creates what is not there: after a delete, even one that overtakes it, it brings the object back under a " +
			"new uid; so does an apply that took the last finalizer off and is sent again. The old token in what is applied does " +
			"not prevent that; the uid does: 409 where nothing stands, 422 where a namesake does",
		Why: "a controller whose cache still shows the finalizer takes it off twice: the first apply ends the object, and the " +
			"second makes a new one, empty and without a finalizer, that nobody asked for",
		FalseIf: world.ClientsSendTheUID.Shows(`an apply after the delete was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.PaintingBlueComparesNothing.Shows(`it is written to [0-9a-f-]+`),
			world.TheTokenBringsTheUID.Shows(`an apply with the old token after the delete was refused: 409 Conflict`),
			world.ClientDropsTheUID.Shows(`an apply with the uid of what was deleted was accepted`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/endpoints/handlers", "(*applyPatcher).createNewObject"),
		Answers: "#9",
	}, func(l *lab.Lab) {
		table := l.Table("apply", "answer", "object", "uid")
		finalizer := func(metadata string) (*lab.Object, error) {
			return l.TryPatchWith("shelf", types.ApplyPatchType,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf"`+metadata+`}}`, metav1.PatchOptions{FieldManager: "writer"})
		}
		first, err := finalizer(`,"finalizers":["modrev.example/cleanup"]`)
		l.Step(err, "the first apply")
		table.Row("with a finalizer", l.Answered(), "created", lab.ShortUID(first))
		l.Rival().Delete("shelf")
		_, err = finalizer("")
		l.Step(err, "the apply without the finalizer")
		table.Row("without it, after a rival's delete", l.Answered(), "gone with its finalizer", lab.ShortUID(first))
		_, err = l.TryGet("shelf")
		l.Expect(lab.IsNotFound(err), "without its finalizer the object goes", "shelf is there")
		second, err := finalizer("")
		l.Accepted(err, "an apply after the delete")
		table.Row("the same, sent again", l.Answered(), "created again", lab.ShortUID(second))
		l.Expect(l.Answered() == "201" && second.GetUID() != first.GetUID(), "an apply after the delete creates: 201",
			"it answered %s", l.Answered())

		var third *lab.Object
		l.Settle(second)
		key := l.Key(second)
		seen := l.Record(func() {
			err = l.Race(key, func() (err error) {
				third, err = l.TryApply("shelf", "writer", false, "color=blue")
				return err
			}, func() { l.Rival().Delete("shelf") })
		})
		l.Accepted(err, "an apply overtaken by a delete")
		table.Row("color=blue, overtaken by a delete", l.AnsweredTo("writer"), "created again", lab.ShortUID(third))
		l.Expect(third.GetUID() != second.GetUID(), "it creates a new object", "it is written to %s", third.GetUID())
		txns := seen.Only(wire.Txn)
		last := txns[len(txns)-1]
		l.Expect(last.Compare[0].Value == 0 && last.Succeeded, "its last transaction is that of a create", "it is %s", last)

		l.Rival().Delete("shelf")
		fourth, err := l.TryApply("shelf", "writer", false, "color=red", "metadata.resourceVersion="+third.GetResourceVersion())
		l.Accepted(err, "an apply with the old token after the delete")
		table.Row("after a delete, with the old token", l.Answered(), "created again", lab.ShortUID(fourth))
		l.Expect(l.Answered() == "201" && fourth.GetUID() != third.GetUID(), "the old token alone protects nothing: 201",
			"it answered %s", l.Answered())
		l.Rival().Delete("shelf")
		_, err = l.TryApply("shelf", "writer", false, "color=red", "metadata.uid="+string(fourth.GetUID()))
		table.Row("after a delete, with the uid", l.Answered(), "none is created", "")
		l.Refused(err, "an apply with the uid of what was deleted", http.StatusConflict, metav1.StatusReasonConflict)
		_, none := l.TryGet("shelf")
		namesake := l.Rival().Create("shelf", "color=white")
		_, mismatch := l.TryApply("shelf", "writer", false, "size=9", "metadata.uid="+string(fourth.GetUID()))
		table.Row("the same, onto a rival's new object", l.Answered(), "stays as it is", lab.ShortUID(namesake))
		table.End()
		l.Show("the apply that was overtaken", txns)
		l.Blank()
		l.Say("%s", l.Describe(err))
		l.Blank()
		l.Say("Onto the rival's new object: 422, since a uid is immutable. Both times the one that was meant is gone: let go. The " +
			"finalizer is taken off by an apply that leaves it out; the object is then gone, and the same apply, from a " +
			"cache that does not know yet, finds nothing and creates. A replace of a Lease does the same: see OT26.")
		want := fmt.Sprintf("uid mismatch: the provided object specified uid %s, and no existing object was found", fourth.GetUID())
		l.Expect(strings.HasSuffix(l.Describe(err), want), "the refusal ends with: "+want, "it says: %s", l.Describe(err))
		l.Expect(lab.IsNotFound(none), "nothing was created", "shelf is there")
		l.Refused(mismatch, "an apply with the uid of what was deleted onto another", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		l.Stored(namesake, "color=white", "-size")
	})
}

func TestOpaqueTokenAReplaceBringsADeletedObjectBackWhereUpdatesCreate(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT26", From: "D2 paragraph 5, +", Part: "creating by updating",
		Says: "some kinds are created by a replace of what is not there: a deleted Lease, Role or Service comes back with 201, " +
			"whatever old token the replace carries; with the uid it is refused, and other kinds answer 404",
		Why: "for these kinds the token protects nothing once the object is gone; a lease holder that renews late raises a " +
			"lease that was taken away",
		FalseIf: world.ClientsSendTheUID.Shows(`Lease: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheUID.Shows(`Lease with the uid: 201`),
			world.ServerCreatesWhatIsMissing.Shows(`ConfigMap: 201`),
		},
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
		l.Blank()
		l.Say("An apply creates for every kind: see OT25b.")
	})
}

// Decisions.

func TestOpaqueTokenARetryRepeatsADecisionOrMakesItAnew(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT27", From: "D2 paragraph 5", Part: "decisions",
		Says: "a retry that changes the desired behaviour is a decision: after somebody has set 5, to send \"set to 2\" again " +
			"and to add 1 again are not the same",
		Why: "both loops read again and both succeed; the one that replays what it decided before undoes the other's work " +
			"with a fresh token in its hand",
		FalseIf:     world.ALibraryRepeatsTheChange.Shows(`the replayed decision gives 6`),
		AlsoFalseIf: []world.World{world.ClientTransplantsTheToken.Shows(`adding 1 again gives 2`)},
		Read:        source.Func("k8s.io/client-go/util/retry", "RetryOnConflict"),
		Answers:     "#2 #26",
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
		l.Say("The rival set 5 in between, and was answered 200. What is stored: %d, the rival's 5 is undone; and %d. See also "+
			"OT4, and OT5b for a patch.", replayed, anew)
		l.Expect(replayed == 2, "the replayed decision gives 2: the rival's 5 is undone", "the replayed decision gives %d", replayed)
		l.Expect(anew == 6, "to add 1 again gives 6", "adding 1 again gives %d", anew)
	})
}

func TestOpaqueTokenFencesAnActBeforeItIsDone(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT27b", From: "D2 paragraphs 1, 5, +", Part: "decisions",
		Says: "what is done outside the cluster is claimed first, with a write that carries the token: of two workers one is " +
			"let in and acts; when both act first and record it then, both have acted and one record is lost",
		Why: "a conflict undoes nothing: the server can refuse a write, and never what was already done elsewhere",
		FalseIf: world.ClientDropsTheToken.Shows(
			`2 volumes were made`),
		AlsoFalseIf: []world.World{world.ClientDropsTheTokenFor("act-first").Shows(`2 were made, and bob's is recorded`)},
		Read:        source.Func("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
		Answers:     "#75",
	}, func(l *lab.Lab) {
		workers := []string{"ann", "bob"}
		table := l.Table("order of work", "ann", "bob", "volumes made", "recorded")
		work := func(title string, actFirst bool) (made []string, recorded string) {
			name := map[bool]string{true: "act-first", false: "claim-first"}[actFirst]
			l.Create(name, "volume=none")
			var copies []*lab.Object
			for range workers { // both read before either writes
				copies = append(copies, l.Get(name))
			}
			answers := []any{}
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
			recorded = lab.Field(l.Get(name), "volume")
			table.Row(title, answers[0], answers[1], strings.Join(made, ", "), recorded)
			return made, recorded
		}
		claimed, _ := work("claim with a write, then make", false)
		acted, recorded := work("make, then record with a write", true)
		table.End()
		l.Blank()
		l.Say("A worker that claims and then dies leaves a claim without a volume, which whoever reads it can see and finish; a " +
			"volume whose record was refused nobody finds.")
		l.Expect(len(claimed) == 1, "whoever claims first makes one volume in all", "%d volumes were made", len(claimed))
		l.Expect(len(acted) == 2 && recorded == "ann's", "both have made one, bob's record is refused, and his volume is recorded nowhere",
			"%d were made, and %s is recorded", len(acted), recorded)
	})
}

// Order.

func TestOpaqueTokensMayBeOrderedWithinOneResource(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT18", From: "D2 paragraphs 4, 6", Part: "order",
		Says: "tokens of one object may always be compared for equality, those of two resources not even for that (OT19); since " +
			"Kubernetes 1.35 those of one resource of one server may be ordered, through CompareResourceVersion, which takes them for numbers of any length and refuses what is none",
		Why: "as text 9 comes after 10, so whoever compares strings stops believing in progress each time the numbers grow " +
			"by a digit",
		FalseIf: world.TokensCompareAsText.Shows(`"9" and "10": 1`),
		Read:    source.Func("k8s.io/apimachinery/pkg/util/resourceversion", "CompareResourceVersion"),
		Erratum: "the document sends its reader to the contract, what the API documents about resourceVersion, before an order is " +
			"inferred. Since Kubernetes 1.35 that promises one, " +
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

func TestOpaqueTokensOfDifferentResourcesDoNotCompare(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT19", From: "D2 paragraphs 4, 6", Part: "order",
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

func TestOpaqueTokenIsHandedBackAsItWasGiven(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT43", From: "D2 title, +", Part: "order",
		Says: "hand a token back exactly as it was given: a replace takes it for a number, in which leading zeros do not count, " +
			"and takes \"0\" and \"\" for none; a delete compares its text; what is no number is answered with a 500, by a delete " +
			"with 409",
		Why: "a token that was parsed, padded or made up can lose its protection without an error, or meet a 500 that no " +
			"retry will cure",
		FalseIf: world.ClientDropsTheToken.Shows(`a replace, "abc": 200`),
		AlsoFalseIf: []world.World{
			world.ClientDropsThePreconditions.Shows(`a delete, with leading zeros: 200`),
			world.AProxyStripsTheRevision.Shows(`a read, "abc": 200`),
			world.TokensAreText.Shows(`a replace, with leading zeros: 409 Conflict`),
			world.ZeroIsANumber.Shows(`a replace, "0": 409 Conflict`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/storage", "APIObjectVersioner.ObjectResourceVersion"),
		Answers: "#28 #35",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		custom := l.Of(l.CustomResource())
		special := custom.Create("special", "color=red")
		given := shelf.GetResourceVersion()
		l.Say("The token stands in the body of a replace and of a merge patch, in the query of a GET, where it asks for a state at " +
			"least as new, and in the preconditions of a delete. The token is the current one, also with zeros before it; all writes " +
			"of the table are dry runs, so it stays current.")
		table := l.Table("token", "replace", "merge patch", "GET ?resourceVersion=", "delete", "both, of a Shelf")
		// Dry runs: the token is checked as ever, and shelf stays what it is.
		dry := []string{metav1.DryRunAll}
		var customs, customPatches []string
		for _, row := range []struct{ title, token, special, replace, patch, read, remove string }{
			{"as it was given", given, special.GetResourceVersion(), "200", "200", "200", "200"},
			{"with leading zeros", "00" + given, "00" + special.GetResourceVersion(), "200", "200", "200", "409 Conflict"},
			{`"0"`, "0", "0", "200", "200", "200", "409 Conflict"},
			{`""`, "", "", "200", "200", "200", "409 Conflict"},
			{`"abc"`, "abc", "abc", "500", "500", "500", "409 Conflict"},
		} {
			_, replace := l.TryDryReplace(lab.WithToken(shelf, row.token), "color=blue")
			_, patch := l.TryPatchWith("shelf", types.MergePatchType,
				fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"data":{"color":"blue"}}`, row.token), metav1.PatchOptions{DryRun: dry})
			_, read := l.TryGetOnce("shelf", "resourceVersion="+row.token)
			remove := l.TryDelete("shelf", metav1.DeleteOptions{DryRun: dry, Preconditions: &metav1.Preconditions{ResourceVersion: &row.token}})
			_, replaceCustom := custom.TryDryReplace(lab.WithToken(special, row.special), "color=blue")
			_, patchCustom := custom.TryPatchWith("special", types.MergePatchType,
				fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"color":"blue"}}`, row.special), metav1.PatchOptions{DryRun: dry})
			table.Row(row.title, lab.Brief(replace), lab.Brief(patch), lab.Brief(read), lab.Brief(remove), lab.Brief(replaceCustom))
			for _, c := range []struct {
				what, want string
				err        error
			}{
				{"a replace", row.replace, replace}, {"a merge patch", row.patch, patch},
				{"a read", row.read, read}, {"a delete", row.remove, remove},
			} {
				l.Expect(lab.Brief(c.err) == c.want, c.what+", "+row.title+": "+c.want, "%s, %s: %s", c.what, row.title, lab.Brief(c.err))
			}
			customs, customPatches = append(customs, lab.Brief(replaceCustom)), append(customPatches, lab.Brief(patchCustom))
		}
		table.End()
		l.Expect(slices.Equal(customs, []string{"200", "200", "422 Invalid", "422 Invalid", "500"}) && slices.Equal(customs, customPatches),
			"a replace and a patch of a custom resource are answered 200, 200, 422 Invalid, 422 Invalid, 500",
			"they are answered: %s; %s", strings.Join(customs, ", "), strings.Join(customPatches, ", "))
		l.Blank()
		l.Say("The last column is that of a replace and of a merge patch of a Shelf, a custom resource: " +
			"a replace of it demands a token (CF6), a patch only must not say that there is none (CF7d), and 0 and \"\" are none. Of a ConfigMap, a replace " +
			"or a patch with either carries no precondition at all: it overwrites whatever is there. The 500 says that the " +
			"token cannot be parsed: nothing was stored, and no repetition helps; other 500s leave open what was stored (OT21b), " +
			"and only the message tells them apart.")
		l.Rival().Set("shelf", "color=white")
		_, err := l.TryReplace(lab.WithToken(shelf, "0"), "color=blue")
		l.Accepted(err, "a replace with 0 of what a rival has changed")
		l.Stored(shelf, "color=blue")
	})
}

// Fakes.

func TestOpaqueTokenRulesAreNotThoseOfEveryFake(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT42", From: "+", Part: "fakes",
		Says: "a fake client is not the server: client-go's dynamic fake knows no tokens and takes a stale replace; " +
			"controller-runtime's refuses it, but moves the token when nothing has changed",
		Why: "a test against a fake says nothing about conflicts: the one never has any, the other has some that the server " +
			"would not have",
		FalseIf: world.ClientDropsTheToken.Shows(`kube-apiserver: a stale replace: 200`),
		AlsoFalseIf: []world.World{
			world.TheDynamicFakeKnowsTokens.Shows(`client-go's dynamic fake: a create gives a token`),
			world.TheOtherFakeNoticesNoChange.Shows(`controller-runtime's fake: a replace by the same: the same token`),
		},
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
		l.Blank()
		l.Say("What a test says about conflicts it has to say against a real kube-apiserver.")
	})
}
