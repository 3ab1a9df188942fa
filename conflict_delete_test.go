// Chapter 2, continued: deletes and finalizers.
package modrev

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestCF8e_ADeleteOfAnObjectWithAFinalizerIsAnUpdate(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8e", From: "+",
		Says: "a delete of an object with a finalizer is an update that is answered with 200: the name stays taken, a " +
			"create is 409 AlreadyExists, the object can still be written, and only new finalizers are refused, with 422",
		Why: "200 for a delete does not mean gone; and \"Forbidden\" in the text of that 422 is about a field and has " +
			"nothing to do with rights",
		FalseIf: world.FinalizersAreDropped.Shows(`a create under the name was accepted`),
		AlsoFalseIf: []world.World{
			world.DeletesAreDryRuns.Shows(`one more finalizer was accepted`),
			world.EtcdKeepsTheOldValue.Shows(`color=red is stored`),
			world.EtcdDeletesNothingOf("shelf").Shows(`its key is still in etcd`),
		},
		Read:    source.Func(registryStore, "markAsDeleting"),
		Answers: "#39 #40 #41",
	}, func(l *lab.Lab) {
		const hold = "modrev.example/hold"
		shelf := l.CreateWithFinalizer("shelf", hold, "color=red")
		table := l.Table("step", "answer", "version in etcd after it")
		step := func(what string, do func() error) error {
			err := do()
			version := "(gone)"
			if kv, there := l.TryKVAt(l.Key(shelf)); there {
				version = strconv.FormatInt(kv.Version, 10)
			}
			table.Row(what, l.Answered(), version)
			return err
		}
		finalizers := func(list string) func() error {
			return func() error {
				_, err := l.TryPatch("shelf", types.MergePatchType, `{"metadata":{"finalizers":[`+list+`]}}`)
				return err
			}
		}
		l.Accepted(step("delete", func() error { return l.TryDelete("shelf") }), "the delete")
		create := func() error { _, err := l.TryCreate("shelf", "color=green"); return err }
		taken := step("create another under the name", create)
		l.Refused(taken, "a create under the name", lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists})
		l.Accepted(step("patch color", func() error { _, err := l.TrySet("shelf", "color=blue"); return err }), "a patch")
		l.Stored(shelf, "color=blue")
		added := step("add a finalizer", finalizers(strconv.Quote(hold)+`,"modrev.example/more"`))
		l.Refused(added, "one more finalizer", lab.Refusal{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
		l.Expect(!apierrors.IsForbidden(added), "IsForbidden is false for it", "it is true")
		l.Accepted(step("take the finalizer away", finalizers("")), "taking the finalizer away")
		_, there := l.TryKVAt(l.Key(shelf))
		l.Expect(!there, "without its last finalizer the object is gone", "its key is still in etcd")
		l.Accepted(step("create another under the name", create), "a create after the end")
		table.End()
		l.Say("The create: %s", l.Describe(taken))
		l.Say("The finalizer: %s", l.Describe(added))
	})
}

func TestCF9_ADeleteCanSayWhatItMeans(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF9", From: "D2 paragraph 1, 5",
		Says: "a delete can carry preconditions: by uid it means this incarnation, by resourceVersion the version that was " +
			"decided on; without them it deletes whatever stands there now",
		Why: "a delete by name that is repeated, or late, hits the object that has taken the name since; and a uid alone " +
			"does not see that somebody has changed the object to keep it",
		FalseIf: world.ClientDropsThePreconditions.Shows(`the delete by the uid of the one before was accepted`),
		AlsoFalseIf: []world.World{
			world.DeletesCarryTheUID.Shows(`the delete without preconditions was refused: 409`),
			world.DeletesLose("resourceVersion").Shows(`the delete of the version that was read was accepted`),
			world.DeletesCarryTheVersion.Shows(`the delete by uid was refused: 409`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/registry/rest", "BeforeDelete"),
		Answers: "#13 #14",
	}, func(l *lab.Lab) {
		table := l.Table("delete of", "precondition", "answer", "object after it")
		try := func(name, what, precondition string, o metav1.DeleteOptions) error {
			err := l.TryDelete(name, o)
			after := "gone"
			if _, there := l.TryKVAt(lab.ConfigMap.KeyOf(l.Namespace, name)); there {
				after = "stands"
			}
			table.Row(what, precondition, lab.AnswerLine(err), after)
			return err
		}
		before := l.Create("again", "color=red")
		now := l.Rival().Recreate("again", "color=blue")
		err := try("again", "a name that was taken anew", "uid of the one before", lab.UID(before))
		l.Expect(l.Refusal(err, "the delete by the uid of the one before").Is(http.StatusConflict, metav1.StatusReasonConflict,
			fmt.Sprintf("the UID in the precondition (%s) does not match the UID in record (%s). "+
				"The object might have been deleted and then recreated", before.GetUID(), now.GetUID())),
			"the refusal names both uids", "it is: %s", l.Describe(err))
		l.Accepted(try("again", "the same", "none", metav1.DeleteOptions{}), "the delete without preconditions")

		read := l.Create("veto", "color=red")
		kept := l.Rival().Set("veto", "keep=true")
		stale := try("veto", "an object that was changed to keep it", "version that was read", lab.Token(read))
		l.Expect(l.Refusal(stale, "the delete of the version that was read").Is(http.StatusConflict, metav1.StatusReasonConflict,
			fmt.Sprintf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
				"The object might have been modified", read.GetResourceVersion(), kept.GetResourceVersion())),
			"the refusal names both versions", "it is: %s", l.Describe(stale))
		l.Stored(read, "keep=true")
		l.Accepted(try("veto", "the same", "uid of what was read", lab.UID(read)), "the delete by uid")
		table.End()
		l.Say("By uid: %s", l.Describe(err))
		l.Say("By version: %s", l.Describe(stale))
	})
}

func TestCF9b_ADeleteIsComparedAndRetriedLikeAnUpdate(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF9b", From: "D1 Expect 3; D2 paragraph 5",
		Says: "a delete is a transaction with the same compare: overtaken, it is tried again on whatever stands there " +
			"then, unless its preconditions forbid that",
		Why: "even a delete that was right when the apiserver looked can hit a version, or an object, that nobody decided " +
			"on; the precondition is checked anew after each failed compare",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the overtaken delete of one version was accepted`),
		AlsoFalseIf: []world.World{
			world.DeletesLose("uid").Shows(`the overtaken delete of one incarnation was accepted`),
			world.EtcdIgnoresTheCompareOf("e").Shows(`^it took 1$`),
			world.DeletesCarryTheUID.Shows(`the overtaken delete of this name was refused: 409`),
			world.DeletesCarryTheVersion.Shows(`the overtaken delete of this uid was refused: 409`),
		},
		Read: source.Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).conditionalDelete"),
	}, func(l *lab.Lab) {
		table := l.Table("a delete of", "is overtaken by", "transactions", "answer", "object after it")
		var shown wire.Requests
		race := func(name, what string, o func(*lab.Object) metav1.DeleteOptions, recreate bool) (int, error) {
			read := l.Create(name, "color=red")
			rival := func() { l.Rival().Set(name, "color=blue") }
			by, rivals := "a patch", 1
			if recreate {
				rival = func() { l.Rival().Recreate(name, "color=blue") }
				by, rivals = "delete and create", 2
			}
			var err error
			seen := l.Record(func() {
				err = l.Race(l.Key(read), func() error { return l.TryDelete(name, o(read)) }, rival)
			})
			after := "stands"
			if _, there := l.TryKVAt(l.Key(read)); !there {
				after = "gone"
			}
			own := seen.Count(wire.Txn) - rivals
			table.Row(what, by, own, lab.AnswerLine(err), after)
			if recreate && shown == nil {
				shown = seen.Only(wire.Txn)
			}
			return own, err
		}
		none := func(*lab.Object) metav1.DeleteOptions { return metav1.DeleteOptions{} }

		n, err := race("c", "this version", lab.Token, false)
		l.Expect(l.Refusal(err, "the overtaken delete of one version").Is(http.StatusConflict, metav1.StatusReasonConflict,
			"Precondition failed: ResourceVersion in precondition") && n == 1, "it is refused after one transaction",
			"%d transactions: %s", n, l.Describe(err))
		n, err = race("d", "this uid", lab.UID, true)
		l.Expect(l.Refusal(err, "the overtaken delete of one incarnation").Is(http.StatusConflict, metav1.StatusReasonConflict,
			"Precondition failed: UID in precondition") && n == 1, "it is refused after one transaction",
			"%d transactions: %s", n, l.Describe(err))
		// A delete that was not overtaken says ConfigMap, see CF8.
		overtaken := l.Refusal(err, "the overtaken delete of one incarnation")
		l.Equal("what the refusal is about", overtaken.Details(), "configmaps d")
		for _, c := range []struct {
			name, what string
			options    func(*lab.Object) metav1.DeleteOptions
			recreate   bool
		}{{"e", "this uid", lab.UID, false}, {"a", "this name", none, false}, {"b", "this name", none, true}} {
			n, err := race(c.name, c.what, c.options, c.recreate)
			l.Accepted(err, "the overtaken delete of "+c.what)
			l.Expect(n == 2, "it takes two transactions", "it took %d", n)
		}
		table.End()
		l.Show("the delete by uid, overtaken by delete and create", shown)
	})
}

func TestCF12_RemovingTheLastFinalizerDoesNotHonourTheToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF12", From: "+",
		Says: "warning: removing the last finalizer of an object that is being deleted is a delete, and it does not " +
			"honour the token: a replace with the current token, overtaken by another write, is answered with 200 and the " +
			"write is gone; overtaken by delete and create, a replace without a uid deletes the new object",
		Why: "the token is compared once, and then the apiserver deletes with the uid as its only precondition, as often " +
			"as it takes; a finalizer's last word is not protected as every other replace is",
		FalseIf: world.ClientsSendTheUID.Shows(`overtaken by delete and create: 409 Conflict: .*UID in precondition`),
		AlsoFalseIf: []world.World{
			world.EtcdDeletesNothingOf("shelf").Shows(`overtaken by a patch: it stands`),
			world.ServerCountsItself.Shows(`the answer shows 10\d\d`),
		},
		Read: source.Func(registryStore, "(*Store).deleteWithoutFinalizers"),
	}, func(l *lab.Lab) {
		table := l.Table("the last finalizer is removed, overtaken by", "answer", "its token", "the token sent", "object after it")
		var shown wire.Requests
		for _, by := range []string{"a patch", "delete and create"} {
			marked, seen, answer, err := l.RaceForTheLastFinalizer(by == "delete and create", lab.WithoutUID)
			l.Expect(err == nil, "overtaken by "+by+": 200", "overtaken by %s: %s", by, l.Describe(err))
			_, there := l.TryKVAt(l.Key(marked))
			table.Row(by, lab.AnswerLine(err), answer.GetResourceVersion(), marked.GetResourceVersion(), map[bool]string{true: "stands", false: "gone"}[there])
			l.Expect(!there, "what the rival wrote is gone", "overtaken by %s: it stands", by)
			l.Expect(answer.GetResourceVersion() == marked.GetResourceVersion(), "the answer shows the version that was sent",
				"the answer shows %s", answer.GetResourceVersion())
			shown = seen
		}
		table.End()
		l.Show("PUT without finalizers and without a uid, overtaken by delete and create", shown)
		l.Say("So it is on kube-apiserver %s: deleteWithoutFinalizers passes on the uid that the replace carries, and no "+
			"version. The safer way is to send the object as it was read, uid included.", l.Session().Binary().Version)
	})
}

func TestCF12b_TheUIDProtectsTheNextIncarnationFromALateFinalizer(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF12b", From: "+",
		Says: "with the uid in the replace, removing the last finalizer cannot delete the next incarnation: 409; a write " +
			"to the same incarnation is lost all the same",
		Why: "to send the object as it was read, uid included, is the safer way, and no safe one: let nothing depend on a " +
			"last write to an object that is being deleted",
		FalseIf: world.ClientDropsTheUID.Shows(`removing the last finalizer of an earlier incarnation was accepted`),
		AlsoFalseIf: []world.World{
			world.EtcdDeletesNothingOf("shelf").Shows(`^it stands$`),
		},
		Read: source.Func("k8s.io/apiserver/pkg/registry/rest", "(*defaultUpdatedObjectInfo).Preconditions"),
	}, func(l *lab.Lab) {
		asRead := func(o *lab.Object) *lab.Object { return o }
		marked, seen, _, err := l.RaceForTheLastFinalizer(true, asRead)
		l.Expect(l.Refusal(err, "removing the last finalizer of an earlier incarnation").Is(http.StatusConflict,
			metav1.StatusReasonConflict, "Precondition failed: UID in precondition: "+string(marked.GetUID())),
			"it is refused: 409 Conflict over the uid", "it is: %s", l.Describe(err))
		_, stands := l.TryKVAt(l.Key(marked))
		l.Expect(stands, "the next incarnation stands", "it is gone")
		other, _, _, patched := l.RaceForTheLastFinalizer(false, asRead)
		_, still := l.TryKVAt(l.Key(other))

		table := l.Table("the last finalizer is removed, uid sent, overtaken by", "answer", "object after it")
		table.Row("delete and create", lab.AnswerLine(err), "stands")
		table.Row("a patch", lab.AnswerLine(patched), map[bool]string{true: "stands", false: "gone"}[still])
		table.End()
		l.Show("PUT without finalizers, with the uid, overtaken by delete and create", seen)
		l.Accepted(patched, "removing the last finalizer, overtaken by a patch")
		l.Expect(!still, "overtaken by a patch, the object is gone with it", "it stands")
	})
}
