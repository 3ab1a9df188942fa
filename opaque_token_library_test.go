// Chapter 4, continued: what a library does to your object.
package modrev

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT32_AWriteDecodesTheAnswerIntoYourObject(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT32", From: "+",
		Says: "Update decodes the answer into the object that you pass: a status that you set before is gone, and " +
			"Status().Update then writes nothing",
		Why: "the answer is what is stored, and the object's own door stores no status; both calls succeed, so the " +
			"report is lost in silence",
		Do:      "Set the status after Update has returned, or update a deep copy.",
		FalseIf: answersEchoTheStatus.Shows(`status.phase on your copy after Update is Done`),
		AlsoFalseIf: []world.World{
			world.StoredInAnotherEncoding.Shows(`resourceVersion after Status\(\).Update is a new one`),
			metadataRidesAlong.Shows(`metadata.labels.room=hall is stored`),
		},
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/client", "(*unstructuredClient).Update"),
		Answers: "#47 #48 #49",
	}, func(l *lab.Lab) {
		kind := l.CustomResource("status")
		shelves, api := l.Of(kind), l.Controller(kind)
		table := l.Table("call", "your copy before", "your copy after", "stored then", "answer")
		mine := shelves.New("shelf", "size=1", "status.phase=New")
		step := func(call string, do func() error) error {
			before := lab.Fields(mine, "size", "status.phase")
			err := do()
			answer, after := l.Answered(), lab.Fields(mine, "size", "status.phase")
			table.Row(call, before, after, lab.Fields(shelves.Peek("shelf"), "size", "status.phase"), answer)
			return err
		}

		err := step("Create", func() error { return api.Create(l.Context(), mine) })
		l.Accepted(err, "the create")
		l.Equal("status.phase on your copy after Create", lab.Field(mine, "status.phase"), "")

		*mine = *lab.With(mine, "size=2", "status.phase=Done")
		l.Accepted(step("Update", func() error { return api.Update(l.Context(), mine) }), "the update")
		l.Equal("status.phase on your copy after Update", lab.Field(mine, "status.phase"), "")
		before := mine.GetResourceVersion()
		l.Accepted(step("Status().Update", func() error { return api.Status().Update(l.Context(), mine) }),
			"the status update")
		l.Equal("the resourceVersion after Status().Update", sameOrNew(mine.GetResourceVersion(), before), "the same")
		l.Stored(mine, "size=2", "-status.phase")

		read := mine.DeepCopy()
		*mine = *lab.With(mine, "size=3", "status.phase=Done")
		l.Accepted(step("Patch(MergeFrom)", func() error {
			return api.Patch(l.Context(), mine, client.MergeFrom(read))
		}), "the patch")
		l.Equal("status.phase on your copy after Patch", lab.Field(mine, "status.phase"), "")

		*mine = *lab.With(mine, "size=4", "status.phase=Done")
		l.Accepted(step("Update of a deep copy", func() error {
			sent := mine.DeepCopy()
			err := api.Update(l.Context(), sent)
			mine.SetResourceVersion(sent.GetResourceVersion())
			return err
		}), "the update of a deep copy")
		mine.SetLabels(map[string]string{"room": "hall"})
		l.Accepted(step("… then Status().Update", func() error { return api.Status().Update(l.Context(), mine) }),
			"the status update after it")
		l.Stored(mine, "size=4", "status.phase=Done", "-metadata.labels.room")
		l.Equal("the labels on your copy after Status().Update", len(mine.GetLabels()), 0)

		l.Rival().Of(kind).Set("shelf", "color=blue")
		*mine = *lab.With(mine, "size=5", "status.phase=Open")
		err = step("Update, refused", func() error { return api.Update(l.Context(), mine) })
		table.End()
		l.Refused(err, "an update with a stale token", lab.Stale(mine))
		l.Equal("status.phase on your copy after a refusal", lab.Field(mine, "status.phase"), "Open")
		l.Say("Only a refusal leaves your copy as it was. A label that you set before the last Status().Update is gone " +
			"from your " +
			"copy, too: a custom resource's /status takes no metadata (OT100). client-go's typed clients return the answer as " +
			"another object.")
	})
}

func sameOrNew(now, before string) string {
	if now == before {
		return "the same"
	}
	return "a new one"
}

// answersEchoTheStatus has the answers to writes of an object carry the status that was sent.
var answersEchoTheStatus = world.New("the server answers with the status that was sent", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPut && !strings.HasSuffix(c.Path, "/status") },
		Note: "answered with the status that was sent",
		Answer: func(resp *http.Response, body []byte) []byte {
			var sent, answer map[string]any
			sentBody, err := resp.Request.GetBody()
			if err != nil || resp.StatusCode != http.StatusOK {
				return body
			}
			if json.NewDecoder(sentBody).Decode(&sent) != nil || json.Unmarshal(body, &answer) != nil {
				return body
			}
			answer["status"] = sent["status"]
			echo, _ := json.Marshal(answer) // it was JSON before
			return echo
		},
	})
})

func TestOT32b_WhatATypedClientReadDoesNotSayItsKind(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT32b", From: "+",
		Says: "an object that a typed client read live or created does not say its kind, so an owner reference " +
			"built from it is refused",
		Why: "the decoder empties apiVersion and kind of what it decodes into a Go type, even where you had set " +
			"them",
		Do:      "Take the kind from the scheme, as SetControllerReference does.",
		FalseIf: kindsAreFilledIn.Shows(`the child with a reference from TypeMeta was accepted`),
		AlsoFalseIf: []world.World{
			referencesAreLost.Shows(`the kind in the reference from the scheme is nothing`),
		},
		Read: source.Decl("sigs.k8s.io/controller-runtime/pkg/controller/controllerutil", "SetControllerReference"),
	}, func(l *lab.Lab) {
		api := l.Controller()
		table := l.Table("after", "apiVersion and kind on your object")
		mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: "shelf"}}
		mine.APIVersion, mine.Kind = "v1", "ConfigMap"
		kind := func() string { return cmp.Or(strings.TrimSpace(mine.APIVersion+" "+mine.Kind), "nothing") }
		table.Row("you set them", kind())
		require.NoError(l, api.Create(l.Context(), mine), "creating the shelf")
		table.Row("client.Create", kind())
		l.Equal("the kind on your object after a create", kind(), "nothing")
		mine = readConfigMap(l, api, "shelf")
		table.Row("client.Get", kind())
		l.Equal("the kind on your object after a get", kind(), "nothing")
		typed, err := l.Typed().CoreV1().ConfigMaps(l.Namespace).Get(l.Context(), "shelf", metav1.GetOptions{})
		require.NoError(l, err, "reading the shelf with client-go")
		mine = typed
		table.Row("client-go's typed Get", kind())
		table.End()
		l.Equal("the kind on your object after client-go's get", kind(), "nothing")

		child := func(name string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: name}}
		}
		byHand := child("by-hand")
		byHand.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: mine.APIVersion, Kind: mine.Kind, Name: mine.Name, UID: mine.UID},
		}
		refusal := l.Refused(api.Create(l.Context(), byHand), "the child with a reference from TypeMeta", lab.Refusal{
			Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Says: "metadata.ownerReferences[0].kind: Required value: must not be empty",
		})
		byScheme := child("by-scheme")
		require.NoError(l, controllerutil.SetControllerReference(mine, byScheme, scheme.Scheme), "setting the reference")
		l.Accepted(api.Create(l.Context(), byScheme), "the child with a reference from the scheme")
		owners, stored := l.Peek("by-scheme").GetOwnerReferences(), "nothing"
		if len(owners) == 1 {
			stored = owners[0].Kind
		}
		l.Equal("the kind in the reference from the scheme", stored, "ConfigMap")
		l.Say("A child with an owner reference of mine.APIVersion and mine.Kind is refused: %s", refusal.Message)
	})
}

// kindsAreFilledIn completes the owner references of what is created.
var kindsAreFilledIn = world.New("a proxy fills in the kind of an owner reference", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPost }, Note: "the kind was filled in",
		Request: func(_ *http.Request, body []byte) []byte {
			return bytes.Replace(body, []byte(`"apiVersion":"","kind":""`), []byte(`"apiVersion":"v1","kind":"ConfigMap"`), 1)
		},
	})
})

// referencesAreLost takes complete owner references out of what is created.
var referencesAreLost = world.New("a proxy takes complete owner references out of creates", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPost }, Note: "without its owner",
		Request: func(_ *http.Request, body []byte) []byte {
			var o lab.Object
			if o.UnmarshalJSON(body) != nil || len(o.GetOwnerReferences()) == 0 || o.GetOwnerReferences()[0].Kind == "" {
				return body
			}
			o.SetOwnerReferences(nil)
			orphan, _ := o.MarshalJSON() // it was JSON before
			return orphan
		},
	})
})

func TestOT34_ApplyDecodesTheAnswerIntoYourConfiguration(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT34", From: "+",
		Says: "controller-runtime's Apply writes the answer into your configuration: applied again, it carries a token and " +
			"claims the fields of others",
		Why: "the second Apply of one variable is refused after a rival's write, and makes you a co-owner of all " +
			"that was there",
		Do:      "Build a new apply configuration for every Apply.",
		FalseIf: appliesAreAnsweredEmpty.Shows(`what the second Apply of it owns is color`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheTokenOf("apply").Shows(`the overtaken Apply of it was accepted`),
		},
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/client", "(*typedClient).Apply"),
		Answers: "#36",
	}, func(l *lab.Lab) {
		api := l.As("ann").Controller()
		table := l.Table("ann applies", "sends the token", "answer", "to etcd", "she owns")
		apply := func(what string, shelf *applycore.ConfigMapApplyConfiguration) error {
			token := "none"
			if shelf.ObjectMetaApplyConfiguration != nil && shelf.ResourceVersion != nil {
				token = *shelf.ResourceVersion
			}
			var err error
			sent := l.Record(func() { err = api.Apply(l.Context(), shelf, client.FieldOwner("ann")) })
			table.Row(what, token, lab.AnswerLine(err), sent.Summary(), ownedBy(l, "ann"))
			return err
		}
		configuration := func() *applycore.ConfigMapApplyConfiguration {
			return applycore.ConfigMap("shelf", l.Namespace).WithData(map[string]string{"color": "red"})
		}
		shelf := l.Rival().Create("shelf", "size=3")

		mine := configuration()
		l.Accepted(apply("a new configuration, color=red", mine), "the first Apply")
		l.Equal("what the first Apply owns", ownedBy(l, "ann"), "color")
		l.Accepted(apply("the same variable again", mine), "the second Apply of it")
		l.Equal("what the second Apply of it owns", ownedBy(l, "ann"), "color, size")
		l.Rival().Set("shelf", "place=hall")
		l.Refused(apply("the same, after a rival's patch", mine), "the overtaken Apply of it", lab.Stale(shelf))
		l.Accepted(apply("a new configuration, color=red", configuration()), "an Apply of a new configuration")
		l.Equal("what an Apply of a new configuration owns", ownedBy(l, "ann"), "color")

		loose := &lab.Object{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
			"name": "loose", "namespace": l.Namespace}, "data": map[string]any{"color": "red"}}}
		unstructuredApply := func() error {
			return api.Apply(l.Context(), client.ApplyConfigurationFromUnstructured(loose), client.FieldOwner("ann"))
		}
		l.Accepted(unstructuredApply(), "the first Apply of an unstructured object")
		err := unstructuredApply()
		table.End()
		l.Refused(err, "the second Apply of it", lab.Refusal{Code: http.StatusBadRequest,
			Reason: metav1.StatusReasonBadRequest, Says: "metadata.managedFields must be nil"})
		l.Say("An unstructured object brings its managedFields along, and is refused the second time: %s", l.Describe(err))
	})
}

// ownedBy is the data of the shelf that a manager owns by Apply.
func ownedBy(l *lab.Lab, manager string) string {
	for _, owner := range l.Owners(l.Peek("shelf")) {
		if fields, ok := strings.CutPrefix(owner, manager+" by Apply: "); ok {
			return fields
		}
	}
	return "nothing"
}

// appliesAreAnsweredEmpty has an apply answered with an object without content.
var appliesAreAnsweredEmpty = world.New("the answer to an apply says nothing that could be decoded", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "apply" }, Note: "answered with an empty object",
		Answer: func(resp *http.Response, body []byte) []byte {
			if resp.StatusCode >= http.StatusBadRequest {
				return body
			}
			return []byte("{}")
		},
	})
})

func TestOT35_CreateOrPatchTakesNoTokenAndWritesTwice(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT35", From: "+",
		Says: "CreateOrPatch sends patches without a token: what a rival writes meanwhile to the same field is " +
			"overwritten, and nobody gets a conflict",
		Why: "its function decides on a reading that nothing protects; and spec and status go in two patches, of which one " +
			"may fail alone",
		Do:      "Use CreateOrUpdate or apply where the new value depends on the old one.",
		FalseIf: world.EveryPatchCarriesAToken.Shows(`the raced CreateOrPatch was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			phasesAreMended.Shows(`the patch of a status that the schema refuses was accepted`),
		},
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/controller/controllerutil", "CreateOrPatch"),
		Answers: "#17",
	}, func(l *lab.Lab) {
		phases := map[string]any{"phase": map[string]any{"type": "string", "enum": []any{"Open", "Full"}}}
		kind := l.Define(lab.Version{Name: "v1", Storage: true, Status: phases, Subresources: []string{"status"}})
		api := l.Controller(kind)
		table := l.Table("1 book, and one more", "answer", "to etcd", "stored then")
		addOne := func(name, phase string) error {
			shelf := l.Of(kind).New(name)
			_, err := controllerutil.CreateOrPatch(l.Context(), api, shelf, func() error {
				n, _, err := unstructured.NestedInt64(shelf.Object, "spec", "books")
				*shelf = *lab.With(shelf, fmt.Sprintf("books=%d", n+1), "status.phase="+phase)
				return err
			})
			return err
		}
		row := func(what, name string, do func() error) (err error) {
			sent := l.Record(func() { err = do() })
			table.Row(what, lab.AnswerLine(err), sent.Summary(), lab.Fields(l.Of(kind).Peek(name), "books", "status.phase"))
			return err
		}

		shelf := l.Of(kind).Create("shelf", "books=1")
		err := row("CreateOrPatch", "shelf", func() error { return addOne("shelf", "Open") })
		l.Accepted(err, "a CreateOrPatch")
		l.Stored(shelf, "books=2", "status.phase=Open")

		raced := l.Of(kind).Create("raced", "books=1")
		err = row("CreateOrPatch, a rival sets 5 in between", "raced", func() error {
			return l.Race(l.Key(raced), func() error { return addOne("raced", "Open") }, func() {
				l.Rival().Of(kind).Set("raced", "books=5")
			})
		})
		l.Accepted(err, "the raced CreateOrPatch")
		l.Stored(raced, "books=2", "status.phase=Open")

		half := l.Of(kind).Create("half", "books=1")
		err = row("CreateOrPatch, phase=Half is refused", "half", func() error { return addOne("half", "Half") })
		table.End()
		l.Refused(err, "the patch of a status that the schema refuses", lab.Refusal{Code: http.StatusUnprocessableEntity,
			Reason: metav1.StatusReasonInvalid, Says: "Unsupported value"})
		l.Stored(half, "books=2", "-status.phase")
		l.Say("In the second row the rival was answered 200, and its 5 is gone. In the third an error is returned, " +
			"although half of the change is stored: run again, the function adds one more. Compare OT28.")
	})
}

func TestOT36_AReadingIntoYourObjectDiscardsYourChange(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT36", From: "+",
		Says: "reading again into the object that holds your change discards the change: the next attempt writes nothing " +
			"and reports success",
		Why: "a retried closure has to make the change itself: what was prepared outside goes out under the old " +
			"token, or not at all",
		Do:      "Read and change inside the closure, on a fresh variable.",
		FalseIf: readingsKeepTheChange.Shows(`color=green is stored`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`attempts of a change that was made outside is 1`),
			world.StoredInAnotherEncoding.Shows(`transactions of the second attempt is 1`),
		},
		Read:    source.Decl("sigs.k8s.io/controller-runtime/pkg/client", "(*typedClient).Get"),
		Answers: "#23 #48",
	}, func(l *lab.Lab) {
		api := l.Controller()
		table := l.Table("the change is made", "attempts", "answer", "stored")
		shelf := l.Create("shelf", "color=red")

		mine := readConfigMap(l, api, "shelf")
		mine.Data["color"] = "green"
		l.Rival().Set("shelf", "size=3")
		attempts := 0
		var sent wire.Requests
		err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
			if attempts++; attempts > 1 { // the conflict says that the object was modified, so read it again
				require.NoError(l, api.Get(l.Context(), client.ObjectKeyFromObject(mine), mine), "reading again")
			}
			sent = l.Record(func() { err = api.Update(l.Context(), mine) })
			return err
		})
		table.Row("outside, and the object is read again", attempts, lab.AnswerLine(err),
			lab.Fields(l.Peek("shelf"), "color", "size"))
		l.Equal("the number of attempts of a change that was made outside", attempts, 2)
		l.Accepted(err, "the second attempt")
		l.Stored(shelf, "color=red", "size=3")
		l.Equal("the number of transactions of the second attempt", sent.Count(wire.Txn), 0)

		attempts = 0
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			attempts++
			fresh := readConfigMap(l, api, "shelf")
			if attempts == 1 {
				l.Rival().Set("shelf", "size=4")
			}
			fresh.Data["color"] = "green"
			return api.Update(l.Context(), fresh)
		})
		table.Row("inside, on a fresh variable", attempts, lab.AnswerLine(err),
			lab.Fields(l.Peek("shelf"), "color", "size"))
		table.End()
		l.Accepted(err, "the change that is made inside")
		l.Stored(shelf, "color=green", "size=4")

		used := readConfigMap(l, api, "shelf")
		l.Rival().Set("shelf", "place=hall")
		l.Rival().Patch("shelf", types.MergePatchType, `{"data":{"size":null}}`)
		used.Data["draft"] = "mine"
		require.NoError(l, api.Get(l.Context(), client.ObjectKeyFromObject(used), used), "reading into a used object")
		l.Equal("what a reading leaves in a used object", used.Data, map[string]string{"color": "green", "place": "hall"})
		l.Say("A reading replaces all that your variable held: its token, its fields and your changes.")
	})
}

// readingsKeepTheChange has the second reading of a client carry the color that it meant to write.
var readingsKeepTheChange = world.New("a reading keeps what you have changed on your object", func(l *lab.Lab) {
	n := 0
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool {
			if c.Who == "writer" && c.Verb == http.MethodGet {
				n++
			}
			return c.Who == "writer" && c.Verb == http.MethodGet && n == 2
		},
		Note: "with the change kept",
		Answer: func(_ *http.Response, body []byte) []byte {
			return bytes.Replace(body, []byte(`"color":"red"`), []byte(`"color":"green"`), 1)
		},
	})
})

func TestOT36b_AnObjectFromACacheIsNotYours(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT36b", From: "+",
		Says: "client-go's listers hand out the cache's own objects: change one in place, and the cache shows a state that " +
			"was never stored",
		Why: "every other reader of the cache decides on your change, and your own diff against the cache finds nothing " +
			"to write",
		Do:      "Deep-copy what you read from a cache before you change it.",
		FalseIf: cachesHandOutCopies.Shows(`color in the cache after a change in place is red`),
		AlsoFalseIf: []world.World{
			world.EtcdKeepsTheOldValue.Shows(`color in the cache after another's write is red`),
		},
		Read: source.Decl("k8s.io/client-go/tools/cache", "(*genericNamespaceLister).Get"),
	}, func(l *lab.Lab) {
		table := l.Table("step", "in the cache", "token in the cache", "stored")
		created := l.Create("shelf", "color=red")
		cache := l.As("controller").Informer()
		row := func(step string) {
			held := cache.Get("shelf")
			table.Row(step, lab.Fields(held, "color", "size"), held.GetResourceVersion(),
				lab.Fields(l.Peek("shelf"), "color", "size"))
		}
		row("the cache has the object")

		mine := cache.Shared("shelf")
		require.NoError(l, unstructured.SetNestedField(mine.Object, "green", "data", "color"), "changing it in place")
		row("you set color=green on what the lister gave you")
		l.Equal("the color in the cache after a change in place", lab.Field(cache.Get("shelf"), "color"), "green")
		l.Stored(created, "color=red")
		patch, err := client.MergeFrom(cache.Get("shelf")).Data(mine)
		require.NoError(l, err, "computing the patch")
		l.Equal("the patch from the cache to what you want", string(patch), "{}")

		cache.WaitFor(l.Rival().Set("shelf", "size=3", "color=blue").GetResourceVersion())
		row("a rival sets color=blue, size=3")
		table.End()
		l.Equal("the color in the cache after another's write", lab.Field(cache.Get("shelf"), "color"), "blue")
		l.Say("In the second row the patch between the cache and what you want is %s: nothing would be written. The next "+
			"event puts another object into the cache, and your change is gone without a trace.", patch)
	})
}

// cachesHandOutCopies has the lister of an informer give copies.
var cachesHandOutCopies = world.New("an informer's lister hands out copies", func(l *lab.Lab) {
	lab.CopyHook.Bend(l, true)
})

func TestOT28_CreateOrUpdateReportsTheRaceItLost(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT28", From: "D2 paragraph 2, 3; +",
		Says: "controllerutil.CreateOrUpdate replaces with the token of its own reading, so it returns the conflict of a " +
			"race that it loses",
		Why: "it writes nothing if nothing has changed, and it does not retry: its function must be one that can " +
			"run again",
		Do:      "Return the conflict of CreateOrUpdate, and let the next reconcile decide again.",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the raced CreateOrUpdate was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the raced CreateOrUpdate was accepted`),
			world.SomebodyIsFasterAt(2, http.MethodPut, "shelf").Shows(`the next was refused: 409 Conflict`),
		},
		Read: source.Decl("sigs.k8s.io/controller-runtime/pkg/controller/controllerutil", "CreateOrUpdate"),
	}, func(l *lab.Lab) {
		api := l.Controller()
		table := l.Table("CreateOrUpdate", "result", "answer", "to etcd", "stored")
		var result controllerutil.OperationResult
		paint := func(color string) (err error) {
			shelf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: "shelf"}}
			result, err = controllerutil.CreateOrUpdate(l.Context(), api, shelf, func() error {
				if shelf.Data == nil {
					shelf.Data = map[string]string{}
				}
				shelf.Data["color"] = color // and leaves what others have put there
				return nil
			})
			return err
		}
		var sent wire.Requests
		row := func(when string, do func() error) (err error) {
			sent = l.Record(func() { err = do() })
			table.Row(when, result, lab.AnswerLine(err), sent.Summary(), lab.Fields(l.Peek("shelf"), "color", "size"))
			return err
		}
		l.Accepted(row("color=red", func() error { return paint("red") }), "the first")
		l.Accepted(row("color=red once more", func() error { return paint("red") }), "the second")
		l.Equal("the result of the second", result, controllerutil.OperationResultNone)
		l.Equal("the number of transactions of the second", sent.Count(wire.Txn), 0)

		shelf := l.Peek("shelf")
		raced := row("color=blue, raced", func() error {
			return l.Race(l.Key(shelf), func() error { return paint("blue") }, func() { l.Rival().Set("shelf", "size=3") })
		})
		l.Refused(raced, "the raced CreateOrUpdate", lab.Stale(shelf))
		l.Stored(shelf, "color=red", "size=3")
		l.Accepted(row("color=blue, the next reconcile", func() error { return paint("blue") }), "the next")
		table.End()
		l.Say("In the raced row one transaction is the rival's, and the other is the one that failed (CF3).")
		l.Stored(shelf, "color=blue", "size=3")
	})
}
