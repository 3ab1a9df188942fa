// Chapter 4, continued: a token, or a lock, certifies one object.
package modrev

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT44_ALeaseDoesNotKeepItsFormerHolderFromWriting(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT44", From: "D2 paragraph 2; +",
		Says: "a Lease protects the Lease alone: the server compares a former holder's write with the object that it " +
			"writes, and lets it in",
		Why: "a holder that was paused between its last check and its write does not know that it was deposed, and two " +
			"leaders write",
		Do:      "As a new holder write an epoch into each object; write with tokens only.",
		FalseIf: theServerAsksForTheLease.Shows(`ann's replace, after bob took the lease, was refused: 409 Conflict`),
		AlsoFalseIf: []world.World{
			world.OlderTokensCount.Shows(`ann's replace, after bob wrote the object, was accepted`),
		},
		Read:    source.Decl("k8s.io/client-go/tools/leaderelection", "LeaderElector"),
		Answers: "#83",
	}, func(l *lab.Lab) {
		ann, bob := l.As("ann"), l.As("bob")
		lease := ann.Of(lab.Lease).Create("leader", "holderIdentity=ann")
		shelf, lamp := l.Create("shelf", "color=red"), l.Create("lamp", "color=red")
		l.Create("book", "color=red")
		l.Create("table", "color=red")
		holder := lab.Field(ann.Of(lab.Lease).Get("leader"), "holderIdentity")
		l.Equal("the holder, when ann looks for the last time", holder, "ann")
		bob.Of(lab.Lease).Replace(lease, "holderIdentity=bob")
		epoch := bob.Replace(lamp, "epoch=2")

		table := l.Table("ann, who looked before bob took the lease", "answer", "stored")
		_, err := ann.TryReplace(shelf, "color=ann's")
		l.Accepted(err, "ann's replace, after bob took the lease,")
		table.Row("replaces an object that bob has not written", lab.AnswerLine(err), lab.Fields(l.Peek("shelf"), "color"))
		_, err = ann.TryReplace(lamp, "color=ann's")
		l.Refused(err, "ann's replace, after bob wrote the object,", lab.Stale(lamp))
		table.Row("replaces one into which bob wrote epoch=2", lab.AnswerLine(err),
			lab.Fields(l.Peek("lamp"), "color", "epoch"))
		_, err = ann.TrySet("lamp", "color=ann's")
		l.Accepted(err, "ann's patch without a token")
		table.Row("patches that one, without a token", lab.AnswerLine(err), lab.Fields(l.Peek("lamp"), "color", "epoch"))
		err = ann.TryDelete("book")
		l.Accepted(err, "ann's delete by name")
		table.Row("deletes by name", lab.AnswerLine(err), "it is gone")
		_, err = ann.TryCreate("new", "color=ann's")
		l.Accepted(err, "ann's create")
		table.Row("creates", l.Answered(), lab.Fields(l.Peek("new"), "color"))
		_, err = ann.Of(lab.Lease).TryReplace(lease)
		l.Refused(err, "ann's renewal of the lease", lab.Stale(lease))
		table.Row("renews the lease", lab.AnswerLine(err), "holderIdentity=bob")
		table.End()
		l.Say("The lease is bob's in every row. What keeps ann out is bob's write of the same object, and her token. " +
			"client-go's leader election says of itself that it does no fencing.")
		l.Stored(shelf, "color=ann's")
		l.Stored(epoch, "color=ann's", "epoch=2")
	})
}

var theServerAsksForTheLease = world.New("the server refuses a replace by a client that no longer holds the lease",
	func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool {
				return c.Who == "ann" && c.Verb == http.MethodPut && strings.HasPrefix(c.Path, "configmaps/")
			},
			Note: "not the holder",
			Request: func(_ *http.Request, body []byte) []byte {
				o := new(lab.Object)
				if o.UnmarshalJSON(body) != nil || lab.Field(l.Of(lab.Lease).Peek("leader"), "holderIdentity") == "ann" {
					return body
				}
				o.SetResourceVersion("1") // a token that is refused
				refused, err := o.MarshalJSON()
				if err != nil {
					return body
				}
				return refused
			},
		})
	})

func TestOT45_WhatYouReadElsewhereIsInNoCompare(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT45", From: "D2 paragraph 2; +",
		Says: "a write is compared with its own object alone: what you read of others to decide it may have changed by then",
		Why:  "two clients that each checked the whole can each be let in, and together break the rule that both have kept",
		Do:   "Keep what a rule is about in one object, or in one name.",
		FalseIf: world.New("a create compares everything of its kind in the namespace", comparesAllCreates).
			Shows(`the create of b, with a host that it saw free, was refused: 409 AlreadyExists`),
		AlsoFalseIf: []world.World{
			world.EtcdIgnoresTheCompareOfACreate.Shows(`the claim of the host by b was accepted`),
			world.OlderTokensCount.Shows(`b's entry in the same object was accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
		Answers: "#84",
	}, func(l *lab.Lab) {
		a, b := l.As("a"), l.As("b")
		rules := l.Table("rule", "both look", "a", "b", "after it")

		free := []int{len(a.List().Items), len(b.List().Items)}
		l.Equal("the number of hosts that each finds taken", free, []int{0, 0})
		_, first := a.TryCreate("a", "host=h")
		_, second := b.TryCreate("b", "host=h")
		l.Accepted(first, "the create of a")
		l.Accepted(second, "the create of b, with a host that it saw free,")
		rules.Row("a host has one holder", "host h is free", "create a: 201", "create b: 201", "two holders")

		x, y := l.Create("x", "duty=on"), l.Create("y", "duty=on")
		_, first = a.TryReplace(x, "duty=off")
		_, second = b.TryReplace(y, "duty=off")
		l.Accepted(first, "a's leave, since y is on duty,")
		l.Accepted(second, "b's leave, since x is on duty,")
		rules.Row("somebody is on duty", "x and y are", "x=off: "+lab.AnswerLine(first), "y=off: "+lab.AnswerLine(second),
			"nobody")

		config, shelf := l.Create("config", "color=red"), l.Create("shelf")
		l.Rival().Set("config", "color=blue")
		_, first = a.TryReplace(shelf, "color="+lab.Field(config, "color"))
		l.Accepted(first, "a shelf in the color of a config that has changed")
		rules.Row("the shelf has config's color", "config is red", "shelf=red: "+lab.AnswerLine(first), "", "config is blue")
		rules.End()

		cures := l.Table("instead", "a", "b")
		_, first = a.TryCreate("host-h2", "by=a")
		_, second = b.TryCreate("host-h2", "by=b")
		l.Accepted(first, "the claim of the host by a")
		l.Refused(second, "the claim of the host by b", lab.Refusal{Code: 409, Reason: metav1.StatusReasonAlreadyExists})
		cures.Row("an object that is named after the host", "201", lab.AnswerLine(second))
		roster := l.Create("roster", "x=on", "y=on")
		_, first = a.TryReplace(roster, "x=off")
		_, second = b.TryReplace(roster, "y=off")
		l.Accepted(first, "a's entry in one object")
		l.Refused(second, "b's entry in the same object", lab.Stale(roster))
		cures.Row("all that the rule is about in one object", lab.AnswerLine(first), lab.AnswerLine(second))
		cures.End()
		l.Say("What is computed from another object cannot be kept so. Write down what it was computed from, such as the " +
			"config's uid and resourceVersion, and compute again when that has moved. A webhook that lists first is the first " +
			"row once more.")
		l.Stored(x, "duty=off")
		l.Stored(y, "duty=off")
	})
}

// comparesAllCreates has a create compare that nothing was created in the lesson's namespace since the lesson began.
func comparesAllCreates(l *lab.Lab) {
	create := func(r *wire.Request) bool {
		return r.Method == wire.Txn && len(r.Compare) == 1 && r.Compare[0].Value == 0 && strings.HasSuffix(r.Key, "/b")
	}
	prefix := lab.ConfigMap.KeyOf(l.Namespace, "")
	l.Wire.Add(wire.AlterTxn(create, "the list was added to the compare", func(txn *pb.TxnRequest) {
		txn.Compare = append(txn.Compare, &pb.Compare{
			Target: pb.Compare_MOD, Result: pb.Compare_LESS, TargetUnion: &pb.Compare_ModRevision{ModRevision: 1},
			Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)),
		})
	}))
}

func TestOT46_ADeleteOfACollectionIsManyDeletes(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT46", From: "+",
		Says: "a delete of a collection is many deletes, one by one and by name; a refusal in the middle leaves it half " +
			"done",
		Why: "a 409 does not mean that nothing was deleted; and an object that left the selector after the listing goes, " +
			"too",
		Do:      "After a refused bulk request, list what is left; delete by uid what matters.",
		FalseIf: aCollectionIsDeletedAsOne.Shows(`what is left after the refused delete is a, b, c`),
		AlsoFalseIf: []world.World{
			world.EtcdIgnoresTheCompareOf("b").Shows(`the number of transactions that delete b is 1`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).DeleteCollection"),
		Answers: "#108",
	}, func(l *lab.Lab) {
		shelves := func(run string) (all []*lab.Object) {
			for _, name := range []string{"a", "b", "c"} {
				all = append(all, l.Create(name, "metadata.labels.run="+run))
			}
			return all
		}
		left := func(run string) (names []string) {
			list, err := l.TryList(metav1.ListOptions{LabelSelector: "run=" + run})
			require.NoError(l, err, "listing what is left")
			for _, o := range list.Items {
				names = append(names, o.GetName())
			}
			return names
		}
		deleteAll := func(run, body string) error {
			_, err := l.TryRaw(http.MethodDelete, l.Path(""), "labelSelector=run%3D"+run, []byte(body))
			return err
		}
		table := l.Table("DELETE configmaps?labelSelector=…", "answer", "left")

		first := shelves("1")
		err := deleteAll("1", fmt.Sprintf(`{"preconditions":{"uid":%q}}`, first[0].GetUID()))
		l.Refused(err, "a delete of a, b and c with the uid of a", lab.Refusal{
			Code: 409, Reason: metav1.StatusReasonConflict, Name: "b"})
		l.Equal("what is left after the refused delete", left("1"), []string{"b", "c"})
		table.Row("with the uid of a as the precondition", lab.AnswerLine(err)+" about b", "b, c")
		require.NoError(l, deleteAll("1", "{}"), "deleting the rest")

		b := shelves("2")[1]
		l.Settle(b)
		sent := l.Record(func() {
			err = l.Race(l.Key(b), func() error { return deleteAll("2", "{}") },
				func() { l.Rival().Set("b", "metadata.labels.run=elsewhere") })
		})
		l.Accepted(err, "the delete that b was overtaken in")
		tries := 0
		for _, r := range sent {
			if r.Method == wire.Txn && r.Key == l.Key(b) && len(r.Then) == 1 && r.Then[0].Kind == "Delete" {
				tries++
			}
		}
		l.Equal("the number of transactions that delete b", tries, 2)
		l.Expect(!l.Exists(b), "b is deleted by its name", "b is there")
		table.Row("b leaves the selector before it is deleted", lab.AnswerLine(err), "none")

		l.Create("a", "metadata.labels.run=3")
		createHeld(l.Client, "held", "color=red")
		l.Set("held", "metadata.labels.run=3")
		err = deleteAll("3", "{}")
		l.Accepted(err, "the delete of what has a finalizer")
		l.Equal("what is left of what has a finalizer", left("3"), []string{"held"})
		table.Row("one has a finalizer", lab.AnswerLine(err), "held, until its finalizer goes")
		table.End()
		l.Say("So are a manifest of several objects, and every tool that deletes or applies many: each object for itself.")
	})
}

var aCollectionIsDeletedAsOne = world.New("a collection is deleted as a whole or not at all", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodDelete && c.Query.Get("labelSelector") != "" },
		Note: "tried first, and refused as a whole",
		Request: func(_ *http.Request, body []byte) []byte {
			return []byte(strings.Replace(string(body), `{"preconditions"`, `{"dryRun":["All"],"preconditions"`, 1))
		},
	})
})

func TestOT47_AnOwnerReferenceIsCheckedForItsFormAlone(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT47", From: "+",
		Says: "the server checks the form of an owner reference, and not whether there is such an owner",
		Why: "the garbage collector decides later, by uid: a child of an owner that never was, or is in another namespace, " +
			"is collected; one of a wrong kind may stay for ever",
		Do:      "Set owner references from an owner that you have just read, in the same namespace.",
		FalseIf: theServerLooksForTheOwner.Shows(`a create with an owner that never was was refused: 422 Invalid`),
		Read:    source.Decl("k8s.io/apimachinery/pkg/api/validation", "ValidateOwnerReferences"),
		Answers: "#113",
	}, func(l *lab.Lab) {
		owner := l.Create("owner", "color=red")
		gone := l.Create("gone", "color=red")
		l.Delete("gone")
		reference := func(change func(r *metav1.OwnerReference)) []metav1.OwnerReference {
			r := *metav1.NewControllerRef(owner, owner.GroupVersionKind())
			change(&r)
			return []metav1.OwnerReference{r}
		}
		two := append(reference(func(*metav1.OwnerReference) {}),
			reference(func(r *metav1.OwnerReference) { r.Name, r.UID = "gone", gone.GetUID() })...)
		table := l.Table("create with", "answer", "causes")
		for i, row := range []struct {
			owner      string
			references []metav1.OwnerReference
			answer     string
		}{
			{"an owner that is there", reference(func(*metav1.OwnerReference) {}), "201"},
			{"an owner that never was", reference(func(r *metav1.OwnerReference) { r.UID = "never-was" }), "201"},
			{"an owner that was deleted", reference(func(r *metav1.OwnerReference) { r.Name, r.UID = "gone", gone.GetUID() }),
				"201"},
			{"a kind that is not served", reference(func(r *metav1.OwnerReference) { r.Kind = "NoSuchKind" }), "201"},
			{"another name for its uid", reference(func(r *metav1.OwnerReference) { r.Name = "other" }), "201"},
			{"no uid", reference(func(r *metav1.OwnerReference) { r.UID = "" }), "422 Invalid"},
			{"no name", reference(func(r *metav1.OwnerReference) { r.Name = "" }), "422 Invalid"},
			{"two controllers", two, "422 Invalid"},
		} {
			o := l.New(fmt.Sprintf("child-%d", i))
			o.SetOwnerReferences(row.references)
			_, err := l.TryCreateObject(o)
			if row.answer == "201" {
				l.Accepted(err, "a create with "+row.owner)
			}
			l.Equal("the answer to a create with "+row.owner, l.Answered(), row.answer)
			causes := ""
			if err != nil {
				causes = l.Refusal(err, row.owner).Cause()
			}
			table.Row(row.owner, l.Answered(), causes)
		}
		table.End()
		l.Say("A reference has no namespace: the owner is looked for in the child's own, or among the kinds without one. " +
			"There is no garbage collector here, so nothing is collected; where one runs, the second child lives for moments.")
	})
}

var theServerLooksForTheOwner = world.New("the server refuses an owner that it does not find", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPost }, Note: "its owner was looked for",
		Request: func(_ *http.Request, body []byte) []byte {
			o := new(lab.Object)
			if o.UnmarshalJSON(body) != nil || len(o.GetOwnerReferences()) == 0 {
				return body
			}
			references := o.GetOwnerReferences()
			if found, err := l.As("server").TryGet(references[0].Name); err == nil && found.GetUID() == references[0].UID {
				return body
			}
			references[0].UID = "" // which is refused
			o.SetOwnerReferences(references)
			refused, err := o.MarshalJSON()
			if err != nil {
				return body
			}
			return refused
		},
	})
})

func TestOT48_TwoReadsAreNotOneState(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT48", From: "D2 paragraph 4; +",
		Says: "a list shows one state of one resource; two lists one after another can show a state that never existed",
		Why: "a move from one resource to another shows as a thing that is there twice or nowhere, and a controller acts " +
			"on it",
		Do:      "Decide on what one list shows, and check it again in the write.",
		FalseIf: listsShareARevision.Shows(`where the book is by two lists, ConfigMaps first, is shelf$`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GetList"),
	}, func(l *lab.Lab) {
		defer l.KeepHistory()()
		secrets := l.Of(lab.Secret)
		with := func(list *lab.List) (names []string) {
			for _, o := range list.Items {
				if o.GetLabels()["has"] == "book" {
					names = append(names, o.GetName())
				}
			}
			return names
		}
		table := l.Table("the book moves, between two lists", "the list of ConfigMaps", "then that of Secrets",
			"so the book is")
		has := func(c *lab.Client, name, what string) {
			c.Patch(name, types.MergePatchType, `{"metadata":{"labels":{"has":`+what+`}}}`)
		}
		l.Create("shelf", "metadata.labels.has=book")
		secrets.Create("safe", "metadata.labels.has=nothing")
		first := with(l.List())
		has(secrets, "safe", `"book"`)
		has(l.Client, "shelf", `null`)
		second := with(secrets.List())
		table.Row("from a ConfigMap to a Secret", strings.Join(first, ""), strings.Join(second, ""), "in two places")
		l.Equal("where the book is by two lists, ConfigMaps first,", append(first, second...), []string{"shelf", "safe"})

		first = with(l.List())
		has(l.Client, "shelf", `"book"`)
		has(secrets, "safe", `null`)
		second = with(secrets.List())
		table.Row("back again", "none", "none", "nowhere")
		l.Equal("where the book is by two lists after it moved back", append(first, second...), []string(nil))
		table.End()
		l.Say("At every moment the book was in one place, or for a moment in both. A list of one resource is not torn so: " +
			"it is of one revision, all its pages too (RV11).")
	})
}

var listsShareARevision = world.New("all lists of a client show the state that the first one showed", func(l *lab.Lab) {
	revision := ""
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool {
			return c.Verb == http.MethodGet && (c.Path == "configmaps" || c.Path == "secrets")
		},
		Note: "of one revision",
		Request: func(q *http.Request, body []byte) []byte {
			if revision == "" {
				revision = fmt.Sprint(l.Revision())
			}
			query := url.Values{"resourceVersion": {revision}, "resourceVersionMatch": {"Exact"}}
			q.URL.RawQuery = query.Encode()
			return body
		},
	})
})
