// Chapter 4, continued: in which form an object is stored, and what becomes of a form that is out of use.
package modrev

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT85_AnObjectMovesToANewStorageVersionWhenItIsWritten(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT85", From: "+",
		Says: "a new storage version rewrites nothing: an object stays as it is stored until a write, and then an empty " +
			"one moves its token",
		Why: "a migration is a write of every object: it wakes every watcher and makes every token stale, and changes no " +
			"content and no generation",
		Do:      "Rewrite every object before you cut status.storedVersions.",
		FalseIf: world.ADefinitionRewritesItsObjects.Shows(`the resourceVersion under the new storage version is \d+`),
		AlsoFalseIf: []world.World{
			world.EtcdKeepsTheOldValue.Shows(`the stored version after an empty patch is v1`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#118",
	}, func(l *lab.Lab) {
		a := fieldsOfSpec{"a": integer}
		kind := l.Define(lab.Version{Name: "v1", Spec: a, Storage: true}, lab.Version{Name: "v2", Spec: a}).In("v2")
		shelves := l.Of(kind)
		created := shelves.Create("shelf", "a=1")

		table := l.Table("step", "to etcd", "resourceVersion", "generation", "stored as", "status.storedVersions")
		look := func(step string, sent wire.Requests) *lab.Object {
			read := shelves.Get("shelf")
			table.Row(step, sent.Summary(), read.GetResourceVersion(), read.GetGeneration(), storedVersion(l, read),
				storedVersions(l, kind))
			return read
		}
		look("created through v2, v1 is stored", nil)
		l.Redefine(kind, lab.Version{Name: "v1", Spec: a}, lab.Version{Name: "v2", Spec: a, Storage: true})
		switched := look("v2 is stored from now on", nil)
		l.Equal("the resourceVersion under the new storage version", switched.GetResourceVersion(),
			created.GetResourceVersion())
		l.Equal("the stored version then", storedVersion(l, switched), "v1")

		empty := func() { l.Settle(shelves.Patch("shelf", types.MergePatchType, `{}`)) }
		first := l.Record(empty)
		migrated := look("an empty patch", first)
		second := l.Record(empty)
		again := look("the same again", second)
		table.End()
		l.Equal("the stored version after an empty patch", storedVersion(l, migrated), "v2")
		l.Expect(number(migrated) > number(created), "the empty patch moves the number", "it is %d", number(migrated))
		l.Equal("the generation after it", migrated.GetGeneration(), created.GetGeneration())
		l.Equal("the number after the same again", number(again), number(migrated))
		l.Equal("status.storedVersions", storedVersions(l, kind), "v1 v2")

		_, err := shelves.TryReplace(created)
		l.Refused(err, "a replace with the token from before the migration", lab.Stale(created))
		l.Say("The token from before the migration is stale, though no content has changed. In a migration a 409 says that " +
			"somebody has just written the object: if after the switch, it is done. storedVersions lists each version that " +
			"was ever stored; kube-apiserver only adds to it.")
	})
}

func TestOT85b_ObjectsLeftInARemovedVersionBreakEveryList(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT85b", From: "+",
		Says: "an object that is stored in a version which its definition no longer has answers 500, and breaks every list " +
			"of its kind",
		Why: "it can be neither read nor changed; the unsafe delete of a corrupt object removes it, past its " +
			"finalizers and preconditions",
		Do:      "Put the version back, unserved; rewrite every object; then remove it.",
		FalseIf: everyObjectIsRewrittenFirst.Shows(`GET of the one left in v1 is 200`),
		Read:    source.Decl("k8s.io/apiextensions-apiserver/pkg/apiserver/conversion", "(*crConverter).ConvertToVersion"),
		Answers: "#118",
	}, func(l *lab.Lab) {
		a := fieldsOfSpec{"a": integer}
		v2 := lab.Version{Name: "v2", Spec: a, Storage: true}
		kind := l.Define(lab.Version{Name: "v1", Spec: a, Storage: true}, lab.Version{Name: "v2", Spec: a}).In("v2")
		shelves := l.Of(kind)
		shelves.Create("left", "a=1")
		l.Redefine(kind, lab.Version{Name: "v1", Spec: a}, v2)
		shelves.Create("new", "a=1")
		definitions := l.Of(lab.CustomResourceDefinition)
		_, err := definitions.TryPatch(kind.Definition(), types.JSONPatchType, `[{"op":"remove","path":"/spec/versions/0"}]`)
		l.Refused(err, "the removal of a stored version", lab.Refusal{
			Code: 422, Reason: metav1.StatusReasonInvalid, Causes: []string{"FieldValueInvalid status.storedVersions[0]"},
		})

		definitions.Sub("status").
			Patch(kind.Definition(), types.MergePatchType, `{"status":{"storedVersions":["v2"]}}`)
		l.TryRedefine(kind, v2)
		table := l.Table("definition", "request, through v2", "answer")
		for _, q := range []struct{ what, verb, name, body, answer string }{
			{"GET of the one left in v1", http.MethodGet, "left", "", "500 InternalError"},
			{"a replace of it", http.MethodPut, "left", shelfIn(l, kind, "left"), "500"},
			{"a delete of it", http.MethodDelete, "left", "", "500 InternalError"},
			{"a create of its name", http.MethodPost, "", shelfIn(l, kind, "left"), "409 AlreadyExists"},
			{"GET of one that is stored in v2", http.MethodGet, "new", "", "200"},
			{"a list", http.MethodGet, "", "", "429 TooManyRequests"},
		} {
			var body []byte
			if q.body != "" {
				body = []byte(q.body)
			}
			_, err := shelves.TryRaw(q.verb, shelves.Path(q.name), "", body)
			table.Row("v2 alone", q.what, lab.AnswerLine(err))
			l.Equal(q.what, lab.AnswerLine(err), q.answer)
		}

		l.Redefine(kind, lab.Version{Name: "v1", Spec: a, Unserved: true}, v2)
		_, err = shelves.TryGet("left")
		table.Row("v1 is back, unserved", "GET of the one left in v1", lab.AnswerLine(err))
		l.Accepted(err, "GET of it once v1 is back")
		_, err = shelves.TryList(metav1.ListOptions{})
		table.Row("", "a list", lab.AnswerLine(err))
		l.Accepted(err, "a list once v1 is back")
		table.End()
		l.Say("The API refuses to remove a version that status.storedVersions lists, with 422. Here it was cut by hand " +
			"before the object was rewritten (OT85). The 429 says that the storage is initializing and carries a Retry-After, " +
			"so client-go repeats the list ten times before it says so.")
	})
}

// shelfIn is a Shelf in one version, as a body.
func shelfIn(l *lab.Lab, k lab.Kind, name string) string {
	body, err := l.Of(k).New(name, "a=2").MarshalJSON()
	require.NoError(l, err, "encoding a shelf")
	return string(body)
}

// everyObjectIsRewrittenFirst replaces the shelf that is left by itself before its version is cut.
var everyObjectIsRewrittenFirst = world.New("every object is rewritten before the list of versions is cut",
	func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return strings.HasPrefix(c.Path, "customresourcedefinitions/") },
			Do: func(int) {
				kind := lab.Kind{Group: l.Namespace + ".modrev.example", Version: "v2", Resource: "shelves"}
				migrator := l.As("migrator").Of(kind)
				// An error shows in what cannot be read.
				left, _ := migrator.TryRaw(http.MethodGet, migrator.Path("left"), "", nil)
				_, _ = migrator.TryRaw(http.MethodPut, migrator.Path("left"), "", left)
			},
		})
	})

func TestOT86_AVersionThatIsNotServedAnswers404(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT86", From: "+",
		Says: "a version that is no longer served answers 404, like an object that is gone, while the object is still in " +
			"etcd",
		Why: "a controller that takes it for a deletion tears down what the object stands for; one that creates what is " +
			"missing gets the next 404",
		Do:      "On 404, look for the cause UnexpectedServerResponse before you clean up.",
		FalseIf: world.AGatewaySends("v1", "v2").Shows(`a read through v1 was accepted`),
		Read:    source.Decl("k8s.io/apiextensions-apiserver/pkg/apiserver", "(*crdHandler).ServeHTTP"),
		Answers: "#97",
	}, func(l *lab.Lab) {
		a := fieldsOfSpec{"a": integer}
		kind := l.Define(lab.Version{Name: "v1", Spec: a}, lab.Version{Name: "v2", Spec: a, Storage: true})
		old, newest := l.As("old").Of(kind), l.As("new").Of(kind.In("v2"))
		shelf := old.Create("shelf", "a=1")
		l.Redefine(kind.In("v2"), lab.Version{Name: "v1", Spec: a, Unserved: true},
			lab.Version{Name: "v2", Spec: a, Storage: true})

		table := l.Table("request", "answer", "details", "cause", "shelf in etcd")
		row := func(what string, err error) lab.Refusal {
			refusal := l.Refusal(err, what)
			table.Row(what, refusal.CodeAndReason(), refusal.Details(), refusal.Cause(), l.Exists(newest.Peek("shelf")))
			return refusal
		}
		_, err := old.TryGet("shelf")
		unserved := row("a read through v1", err)
		row("the same by controller-runtime's client",
			old.Controller(kind).Get(l.Context(), client.ObjectKeyFromObject(shelf), shelf.DeepCopy()))
		_, err = old.TryReplace(shelf, "a=2")
		row("a replace through v1", err)
		row("a delete through v1", old.TryDelete("shelf"))
		_, err = newest.TryGet("books")
		missing := row("a read through v2 of what is not there", err)
		table.End()
		l.Equal("the cause of a 404 about the version", unserved.Cause(), string(metav1.CauseTypeUnexpectedServerResponse))
		l.Equal("the cause of a 404 about the object", missing.Cause(), "")
		l.Accepted(func() error { _, err := newest.TryGet("shelf"); return err }(), "a read of shelf through v2")
		l.Say("IsNotFound is true for all of them. But for the last they are no answer about an object: nothing serves the " +
			"path, and client-go makes a Status of a bare page. Its typed clients, and controller-runtime's, put what you " +
			"asked for into the details. See also OT24.")
	})
}

func TestOT86b_AnApplyReadsTheObjectInEveryVersionThatAnOwnerUsed(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT86b", From: "+",
		Says: "an apply converts the object to every version in its managedFields: where one lacks a field, or is gone, it " +
			"answers 500",
		Why: "one write through the old version, years ago, and no apply of the new field gets in; replaces and patches of " +
			"the same object do",
		Do:      "Reset managedFields, or write them anew, before a version goes.",
		FalseIf: world.AGatewaySends("v1", "v2").Shows(`an apply of b to what v1 has touched is 200`),
		Read:    source.Decl("k8s.io/apimachinery/pkg/util/managedfields/internal", "(*versionConverter).Convert"),
		Answers: "#97",
	}, func(l *lab.Lab) {
		a, ab := fieldsOfSpec{"a": integer}, fieldsOfSpec{"a": integer, "b": integer}
		v2 := lab.Version{Name: "v2", Spec: ab, Storage: true}
		kind := l.Define(lab.Version{Name: "v1", Spec: a}, v2)
		old, newest := l.As("old").Of(kind), l.As("new").Of(kind.In("v2"))
		for _, name := range []string{"touched", "reset", "clean"} {
			newest.Create(name, "a=1")
		}
		old.Patch("touched", types.MergePatchType, `{"metadata":{"labels":{"room":"12"}}}`)
		old.Patch("reset", types.MergePatchType, `{"metadata":{"labels":{"room":"12"}}}`)
		forget := `{"metadata":{"managedFields":[{}]}}`

		table := l.Table("v1", "request, through v2", "answer", "message")
		row := func(v1, what, want string, err error) {
			said := ""
			if err != nil {
				said = strings.ReplaceAll(l.Refusal(err, what).Message, kind.Group, "…")
			}
			table.Row(v1, what, lab.AnswerLine(err), said)
			l.Equal(what, lab.AnswerLine(err), want)
		}
		apply := func(name string) error { _, err := newest.TryApply(name, "ann", true, "b=2"); return err }
		_, err := newest.TrySet("touched", "b=1")
		row("has no b", "a merge patch of b to what v1 has touched", "200", err)
		row("has no b", "an apply of b to what v1 has touched", "500", apply("touched"))
		row("has no b", "an apply of b to what it has not touched", "200", apply("clean"))
		newest.Patch("reset", types.MergePatchType, forget)
		row("has no b", "an apply of b once managedFields are reset", "200", apply("reset"))

		l.Redefine(kind.In("v2"), v2)
		row("is gone", "an apply of b to what v1 touched", "500", apply("touched"))
		_, err = newest.TryReplace(newest.Get("touched"), "b=3")
		row("is gone", "a replace of it", "200", err)
		newest.Patch("touched", types.MergePatchType, forget)
		row("is gone", "an apply of b to it, reset", "200", apply("touched"))
		table.End()
		l.Say("v1 was touched by a label alone. The 500 has no reason, and no retry cures it. The reset is the merge patch "+
			"%s.", forget)
	})
}

func TestOT87_ARotatedKeyReachesAnObjectWithItsNextWrite(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT87", From: "+",
		Says: "a new encryption key re-encrypts nothing: a replace by the same content does, once, and moves the " +
			"resourceVersion",
		Why: "until each object was written, dropping the old key loses it; and the rewriting moves every number at once, " +
			"though no content has changed",
		Do:      "After a rotation, replace every object by itself, then drop the old key.",
		FalseIf: world.ReplacesAreNotStored.Shows(`the key after a replace by the same is key1`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/value", "(*prefixTransformers).TransformFromStorage"),
		Answers: "#119",
	}, func(l *lab.Lab) {
		before, rotated := l.Encrypted()
		created := before.Of(lab.Secret).Create("shelf", "color=red")
		table := l.Table("step", "to etcd", "resourceVersion", "encrypted with")
		look := func(step string, sent wire.Requests, o *lab.Object) (key string) {
			key = keyOf(before.KV(o))
			table.Row(step, sent.Summary(), o.GetResourceVersion(), key)
			return key
		}
		look("created with key1", nil, created)
		read := rotated.Get("shelf")
		l.Equal("the key after the rotation", look("read with key2 before key1", nil, read), "key1")

		var same *lab.Object
		sent := l.Record(func() { same = rotated.Replace(read) })
		l.Equal("the key after a replace by the same", look("replaced by the same", sent, same), "key2")
		l.Expect(number(same) > number(created), "its number moves", "it is %d", number(same))
		var again *lab.Object
		sent = l.Record(func() { again = rotated.Patch("shelf", types.MergePatchType, `{}`) })
		look("an empty patch", sent, again)
		l.Equal("the number after one more", number(again), number(same))
		table.End()

		_, err := before.Of(lab.Secret).TryGetOnce("shelf", "")
		l.Refused(err, "a read by an apiserver that does not know key2", lab.Refusal{
			Code: 500, Reason: metav1.StatusReasonInternalError, Says: "no matching key was found",
		})
		_, err = rotated.TryGetOnce(copied(before, created), "")
		l.Refused(err, "a read of the value under another key", lab.Refusal{
			Code: 500, Reason: metav1.StatusReasonInternalError, Says: "message authentication failed",
		})
		quotas := rotated.Of(lab.Kind{Kind: "ResourceQuota", Version: "v1", Resource: "resourcequotas", Fields: "spec"})
		taken, err := quotas.TryGet(copied(before, quotas.Create("quota")))
		require.NoError(l, err, "reading the copy of a quota")
		l.Equal("the name of what is read under another key, with aescbc,", taken.GetName(), "quota")
		l.Say("An apiserver that does not know key2 yet answers 500: let all of them know it before the first encrypts " +
			"with it. And the value, copied to another key in etcd, cannot be read: with aesgcm, as here, it is bound to its " +
			"key. With aescbc it is not: a GET by the second name answers the first object.")
	})
}

// copied copies what etcd holds of an object to the key of another name, which it returns. It goes with the lesson:
// a value that cannot be read breaks every list of its kind.
func copied(l *lab.Lab, o *lab.Object) (name string) {
	key := l.Key(o) + "-copy"
	_, err := l.Etcd().Put(l.Context(), key, string(l.KV(o).Value))
	require.NoError(l, err, "copying a value to another key")
	l.Cleanup(func() { _, _ = l.Etcd().Delete(context.Background(), key) })
	return o.GetName() + "-copy"
}

// keyOf is the name of the key that a stored value was encrypted with.
func keyOf(kv lab.KeyValue) string {
	parts := strings.SplitN(string(kv.Value), ":", 6) // k8s:enc:aesgcm:v1:key1:…
	if len(parts) < 6 {
		return "none"
	}
	return parts[4]
}

func TestOT88_OneReadToBeSureIsSure(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT88", From: "+",
		Says: "every read that kube-apiserver sends to etcd is linearizable: it finds what was written before it was sent",
		Why: "the one read before a refusal may be believed (CF2, GU5b); a serializable read is answered by any member of " +
			"etcd with what that has",
		Do:      "Where a decision needs the newest state, read without a resourceVersion.",
		FalseIf: world.ReadsShowTheVersionBefore.Shows(`a replace with the newest token was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.ReadsAreSerializable.Shows(`a GET sent a serializable read`),
		},
		Read: source.Decl("go.etcd.io/etcd/client/v3/kubernetes", "Client.Get"),
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		created := shelves.Create("shelf", "count=1")
		l.Settle(created)

		table := l.Table("request", "to etcd", "serializable reads")
		row := func(what string, do func()) {
			sent := l.Record(do)
			serializable := 0
			for _, r := range sent {
				if r.Serializable {
					serializable++
				}
			}
			table.Row(what, sent.Summary(), serializable)
			l.Expect(serializable == 0, what+" sends no serializable read", "%s sent a serializable read", what)
		}
		row("a GET", func() { shelves.Get("shelf") })
		row("a list in pages", func() { _, _ = shelves.TryList(metav1.ListOptions{Limit: 1}) })
		frozen := l.Wire.Freeze(kind.StoragePrefix())
		newest := l.Rival().Of(kind).Set("shelf", "count=2")
		var err error
		row("a replace with the newest token, unknown to the cache", func() {
			_, err = shelves.TryReplace(newest,
				"count=3")
		})
		frozen.Release()
		row("a delete", func() { shelves.Delete("shelf") })
		table.End()

		l.Accepted(err, "a replace with the newest token")
		for shape := range l.Session().Wire().Census() {
			l.Expect(!strings.Contains(shape, "serializable"), "kube-apiserver sent no serializable read in this run",
				"it sent: %s", shape)
		}
		l.Say("The cache of kube-apiserver was frozen before the replace, so it took the newest token for a stale one. " +
			"That was not believed before the key was read. Nor is there a serializable read in the whole run, up to here.")
	})
}

func TestOT89_AStricterSchemaRefusesOnlyWhatAWriteChanges(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT89", From: "+",
		Says: "an object that a stricter schema would refuse is served and written as ever, while a write leaves the " +
			"offending part alone",
		Why: "it breaks the first write that touches the field, months later; where the type changed, it breaks " +
			"every apply",
		Do:      "Mend stored objects before you tighten their schema.",
		FalseIf: aLibraryFillsInA.Shows(`a label, where a is at most 0, is 422 Invalid`),
		Read: source.Decl("k8s.io/apiextensions-apiserver/pkg/apiserver/validation",
			"(*ratchetingValueValidator).SubPropertyValidator"),
		Answers: "#95",
	}, func(l *lab.Lab) {
		schemas := []struct {
			title   string
			version lab.Version
		}{
			{"a is at most 0", lab.Version{Spec: fieldsOfSpec{"a": fieldsOfSpec{"type": "integer", "maximum": 0},
				"b": integer}}},
			{"c is required", lab.Version{Spec: fieldsOfSpec{"a": integer, "b": integer, "c": integer},
				Required: []string{"c"}}},
			{"a is a string", lab.Version{Spec: fieldsOfSpec{"a": fieldsOfSpec{"type": "string"}, "b": integer}}},
		}
		writes := []struct {
			title   string
			write   func(c *lab.Client, n int) error
			answers [3]string
		}{
			{"a read", func(c *lab.Client, _ int) error { _, err := c.TryGet("shelf"); return err },
				[3]string{"200", "200", "200"}},
			{"a label", func(c *lab.Client, n int) error {
				_, err := c.TrySet("shelf", fmt.Sprint("metadata.labels.n=", n))
				return err
			},
				[3]string{"200", "200", "200"}},
			{"another b", func(c *lab.Client, n int) error { _, err := c.TrySet("shelf", fmt.Sprint("b=", n+2)); return err },
				[3]string{"200", "422 Invalid", "200"}},
			{"another a", func(c *lab.Client, n int) error { _, err := c.TrySet("shelf", fmt.Sprint("a=", n+2)); return err },
				[3]string{"422 Invalid", "422 Invalid", "422 Invalid"}},
			{"an apply of b", func(c *lab.Client, n int) error {
				_, err := c.TryApply("shelf", "ann", true, fmt.Sprint("b=", n+9))
				return err
			},
				[3]string{"200", "422 Invalid", "500"}},
		}

		kind := l.Define(lab.Version{Name: "v1", Storage: true, Spec: fieldsOfSpec{"a": integer, "b": integer}})
		shelves := l.Of(kind)
		shelves.Create("shelf", "a=1", "b=1")
		answers := make([][]any, len(writes))
		for n, schema := range schemas {
			schema.version.Name, schema.version.Storage = "v1", true
			l.Redefine(kind, schema.version)
			for i, w := range writes {
				answer := lab.AnswerLine(w.write(shelves, n))
				answers[i] = append(answers[i], answer)
				l.Equal(w.title+", where "+schema.title+",", answer, w.answers[n])
			}
		}
		table := l.Table("Shelf {a: 1, b: 1}", schemas[0].title, schemas[1].title, schemas[2].title)
		for i, w := range writes {
			table.Row(append([]any{w.title}, answers[i]...)...)
		}
		table.End()
		l.Say("What is refused is refused for the part that changes: with c required, that is the spec as a whole. Before " +
			"Kubernetes 1.30 every write of such an object was refused, the removal of its finalizer included. The 500 is the " +
			"apply's own: it cannot build the object that it is to merge with.")
	})
}

// aLibraryFillsInA adds an a to every merge patch.
var aLibraryFillsInA = world.New("a client's library sends an a of its own with every merge patch", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "merge patch" },
		Note: "with an a",
		Request: func(_ *http.Request, body []byte) []byte {
			var patch lab.Object
			if json.Unmarshal(body, &patch.Object) != nil {
				return body
			}
			_ = unstructured.SetNestedField(patch.Object, int64(7), "spec", "a")
			body, _ = json.Marshal(patch.Object)
			return body
		},
	})
})

// storedVersion is the version in which an object of a custom resource is stored.
func storedVersion(l *lab.Lab, o *lab.Object) string {
	stored, _, err := lab.DecodeStored(l.KV(o).Value)
	require.NoError(l, err, "decoding what is stored")
	return stored.GroupVersionKind().Version
}

// storedVersions are those that a definition says have been stored.
func storedVersions(l *lab.Lab, k lab.Kind) string {
	def := l.Of(lab.CustomResourceDefinition).Peek(k.Definition())
	versions, _, err := unstructured.NestedStringSlice(def.Object, "status", "storedVersions")
	require.NoError(l, err, "reading status.storedVersions of "+k.Definition())
	return strings.Join(versions, " ")
}
