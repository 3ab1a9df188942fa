// Chapter 2, continued: deletes and finalizers.
package modrev

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
		Says: "a delete of an object with a finalizer only marks it: the answer is 200, and the name stays taken until " +
			"its last finalizer goes",
		Why: "200 for a delete does not mean gone; and the \"Forbidden\" with which a new finalizer is refused, " +
			"422, is about a field",
		Do:      "Wait until the object is gone before you create its successor.",
		FalseIf: deletesIgnoreFinalizers.Shows(`a create under the name was accepted`),
		AlsoFalseIf: []world.World{
			world.FinalizersAreDropped.Shows(`a create under the name was accepted`),
			world.DeletesAreDryRuns.Shows(`one more finalizer was accepted`),
			world.EtcdKeepsTheOldValue.Shows(`color=red is stored`),
			world.EtcdDeletesNothingOf("shelf").Shows(`its key is still in etcd`),
		},
		Read:    source.Decl(registryStore, "markAsDeleting"),
		Answers: "#39 #40 #41",
	}, func(l *lab.Lab) {
		shelf := createHeld(l.Client, "shelf", "color=red")
		table := l.Table("step", "answer", "version in etcd after it")
		note := func(step string) {
			version := "(gone)"
			if kv, there := l.TryKVAt(l.Key(shelf)); there {
				version = strconv.FormatInt(kv.Version, 10)
			}
			table.Row(step, l.Answered(), version)
		}

		err := l.TryDelete("shelf")
		note("delete")
		l.Accepted(err, "the delete")
		_, taken := l.TryCreate("shelf", "color=green")
		note("create another under the name")
		l.Refused(taken, "a create under the name",
			lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists})
		_, err = l.TrySet("shelf", "color=blue")
		note("patch color")
		l.Accepted(err, "a patch")
		l.Stored(shelf, "color=blue")
		_, added := l.TryPatch("shelf", types.MergePatchType,
			`{"metadata":{"finalizers":["modrev.example/hold","modrev.example/more"]}}`)
		note("add a finalizer")
		l.Refused(added, "one more finalizer",
			lab.Refusal{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Says: "Forbidden"})
		_, err = l.TryPatch("shelf", types.MergePatchType, `{"metadata":{"finalizers":[]}}`)
		note("take the finalizer away")
		l.Accepted(err, "taking the finalizer away")
		l.Expect(!l.Exists(shelf), "without its last finalizer the object is gone", "its key is still in etcd")
		_, err = l.TryCreate("shelf", "color=green")
		note("create another under the name")
		l.Accepted(err, "a create after the end")
		table.End()
		l.Say("The create: %s", l.Describe(taken))
		l.Say("The finalizer: %s", l.Describe(added))
	})
}

// deletesIgnoreFinalizers makes the first update of the shelf, by which a delete marks it, delete its key.
var deletesIgnoreFinalizers = world.New("a delete looks at no finalizer", func(l *lab.Lab) {
	update := func(r *wire.Request) bool { return strings.HasSuffix(r.Key, "/shelf") && wire.UpdateOf(r.Key)(r) }
	rule := wire.AlterTxn(update, "made a delete", func(txn *pb.TxnRequest) {
		txn.Success = []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: txn.Compare[0].Key}}}}
	})
	rule.Times = 1
	l.Wire.Add(rule)
})

// createHeld creates an object with one finalizer. A delete then only marks it, until somebody takes the finalizer
// away; there is no controller here that would.
func createHeld(c *lab.Client, name string, fields ...string) *lab.Object {
	o := c.New(name, fields...)
	o.SetFinalizers([]string{"modrev.example/hold"})
	return c.CreateObject(o)
}

// createMarked creates such an object and deletes it.
func createMarked(l *lab.Lab, name string) *lab.Object {
	createHeld(l.Client, name, "color=red")
	l.Delete(name)
	return l.Get(name)
}

func TestCF9_ADeleteCanSayWhatItMeans(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF9", From: "D2 paragraph 1, 5",
		Says: "a delete can carry preconditions: by uid it means this incarnation, by resourceVersion the version that " +
			"was decided on",
		Why: "a late delete by name hits the object that has taken the name; a uid alone does not see a change " +
			"that should keep it",
		Do:      "Delete with the uid, and with the resourceVersion if the content decides.",
		FalseIf: world.UIDsBelongToNames.Shows(`the delete by the uid of the one before was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsThePreconditions.Shows(`the delete by the uid of the one before was accepted`),
			world.DeletesCarryTheUID.Shows(`the delete without preconditions was refused: 409`),
			world.DeletesLose("resourceVersion").Shows(`the delete of the version that was read was accepted`),
			world.DeletesCarryTheVersion.Shows(`the delete by uid was refused: 409`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/rest", "BeforeDelete"),
		Answers: "#13 #14",
	}, func(l *lab.Lab) {
		table := l.Table("delete of", "precondition", "answer", "object after it")
		before := l.Create("again", "color=red")
		now := l.Rival().Recreate("again", "color=blue")
		byUID := l.TryDelete("again", lab.UID(before))
		table.Row("a name that was taken anew", "uid of the one before", lab.AnswerLine(byUID), fate(l, now))
		l.Refused(byUID, "the delete by the uid of the one before", lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
			Says: fmt.Sprintf("the UID in the precondition (%s) does not match the UID in record (%s). "+
				"The object might have been deleted and then recreated", before.GetUID(), now.GetUID()),
		})
		err := l.TryDelete("again")
		table.Row("the same", "none", lab.AnswerLine(err), fate(l, now))
		l.Accepted(err, "the delete without preconditions")

		read := l.Create("veto", "color=red")
		kept := l.Rival().Set("veto", "keep=true")
		byVersion := l.TryDelete("veto", lab.Token(read))
		table.Row("an object that was changed to keep it", "version that was read", lab.AnswerLine(byVersion), fate(l, kept))
		l.Refused(byVersion, "the delete of the version that was read", lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
			Says: fmt.Sprintf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
				"The object might have been modified", read.GetResourceVersion(), kept.GetResourceVersion()),
		})
		l.Stored(read, "keep=true")
		err = l.TryDelete("veto", lab.UID(read))
		table.Row("the same", "uid of what was read", lab.AnswerLine(err), fate(l, kept))
		l.Accepted(err, "the delete by uid")
		table.End()
		l.Say("By uid: %s", l.Describe(byUID))
		l.Say("By version: %s", l.Describe(byVersion))
	})
}

// fate says whether there is still an object under the name of one.
func fate(l *lab.Lab, o *lab.Object) string {
	if l.Exists(o) {
		return "stands"
	}
	return "gone"
}

func TestCF9b_ADeleteIsComparedAndRetriedLikeAnUpdate(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF9b", From: "D1 Expect 3; D2 paragraph 5",
		Says: "a delete is a transaction with the same compare: overtaken, it is tried again on whatever stands there " +
			"then, unless its preconditions forbid that",
		Why: "a delete that was right when the apiserver looked can hit what nobody decided on; only a " +
			"precondition is checked anew",
		Do:      "Set a precondition where the version or the incarnation matters.",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the overtaken delete of this version was accepted`),
		AlsoFalseIf: []world.World{
			world.DeletesLose("uid").Shows(`the overtaken delete of this uid was accepted`),
			world.EtcdIgnoresTheCompareOf("c").Shows(`the number of its transactions is 1`),
			world.DeletesCarryTheUID.Shows(`the overtaken delete of this name was refused: 409`),
			world.DeletesCarryTheVersion.Shows(`the overtaken delete of this uid was refused: 409`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).conditionalDelete"),
	}, func(l *lab.Lab) {
		patched := meanwhile{"a patch", 1, func(name string) { l.Rival().Set(name, "color=blue") }}
		replaced := meanwhile{"delete and create", 2, func(name string) { l.Rival().Recreate(name, "color=blue") }}
		anyOfTheName := func(*lab.Object) metav1.DeleteOptions { return metav1.DeleteOptions{} }

		table := l.Table("a delete of", "is overtaken by", "transactions", "answer", "object after it")
		shown := map[string]wire.Requests{}
		for _, c := range []struct {
			name, of     string
			precondition func(*lab.Object) metav1.DeleteOptions
			by           meanwhile
			transactions int
			refused      string // over what
		}{
			{"a", "this version", lab.Token, patched, 1, "ResourceVersion in precondition"},
			{"b", "this uid", lab.UID, replaced, 1, "UID in precondition"},
			{"c", "this uid", lab.UID, patched, 2, ""},
			{"d", "this name", anyOfTheName, patched, 2, ""},
			{"e", "this name", anyOfTheName, replaced, 2, ""},
		} {
			read := l.Create(c.name, "color=red")
			seen, err := overtaken(l, read,
				func() error { return l.TryDelete(c.name, c.precondition(read)) },
				func() { c.by.do(c.name) })
			own := seen.Count(wire.Txn) - c.by.transactions
			table.Row(c.of, c.by.what, own, lab.AnswerLine(err), fate(l, read))
			shown[c.name] = seen.Only(wire.Txn)

			if c.refused != "" {
				l.Refused(err, "the overtaken delete of "+c.of, lab.Refusal{
					Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Kind: "configmaps", Name: c.name,
					Says: "Precondition failed: " + c.refused,
				}) // one that was not overtaken says ConfigMap, see CF8
			} else {
				l.Accepted(err, "the overtaken delete of "+c.of)
			}
			l.Equal("the number of its transactions", own, c.transactions)
		}
		table.End()
		l.Show("the delete by uid, overtaken by delete and create", shown["b"])
	})
}

// meanwhile is what a rival does while a request is on its way.
type meanwhile struct {
	what         string
	transactions int // that it takes
	do           func(name string)
}

func TestCF12_RemovingTheLastFinalizerDoesNotHonorATokenThatIsOvertaken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF12", From: "+",
		Says: "warning: taking away the last finalizer of what is being deleted does not honor a token that is " +
			"overtaken: the other's write is gone",
		Why: "after its own comparison the apiserver deletes with the uid as its only precondition, as often as " +
			"it takes",
		Do:      "Let nothing depend on a last write to an object that is being deleted.",
		FalseIf: theDeleteComparesTheToken.Shows(`the replace overtaken by a patch was refused`),
		AlsoFalseIf: []world.World{
			world.OlderTokensCount.Shows(`the replace that is stale on arrival was accepted`),
			world.ClientDropsTheTokenOf("merge patch").Shows(`the merge patch that is stale on arrival was accepted`),
			world.ClientsSendTheUID.Shows(
				`the replace overtaken by delete and create was refused: 409 Conflict: .*UID in precondition`),
			world.EtcdDeletesNothingOf("shelf").Shows(`overtaken by a patch, the object stands`),
		},
		Read: source.Decl(registryStore, "(*Store).deleteWithoutFinalizers"),
	}, func(l *lab.Lab) {
		table := l.Table("the last finalizer is removed by", "the token", "answer", "to etcd", "object after it")
		late := createMarked(l, "late")
		l.Settle(l.Rival().Set("late", "color=blue"))
		withoutFinalizers := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"finalizers":null}}`, late.GetResourceVersion())
		for _, c := range []struct {
			request string
			send    func() error
		}{
			{"a replace", func() error { return errorOf(l.TryReplace(late, "-metadata.finalizers", "-metadata.uid")) }},
			{"a merge patch", func() error { return errorOf(l.TryPatch("late", types.MergePatchType, withoutFinalizers)) }},
		} {
			var err error
			seen := l.Record(func() { err = c.send() })
			table.Row(c.request, "stale on arrival", lab.AnswerLine(err), seen.Summary(), fate(l, late))
			what := "the" + strings.TrimPrefix(c.request, "a") + " that is stale on arrival"
			l.Refused(err, what, lab.Stale(late))
			l.Sends(seen, what, "1 Range")
		}

		var shown wire.Requests
		for _, c := range []struct {
			name, by string
			rival    func(l *lab.Lab, marked *lab.Object)
		}{
			{"shelf", "a patch", patchMarked},
			{"lamp", "delete and create", recreateMarked},
		} {
			marked := createMarked(l, c.name)
			seen, err := overtaken(l, marked,
				func() error { return errorOf(l.TryReplace(marked, "-metadata.finalizers", "-metadata.uid")) },
				func() { c.rival(l, marked) })
			table.Row("a replace", "overtaken by "+c.by, lab.AnswerLine(err), "", fate(l, marked))
			l.Accepted(err, "the replace overtaken by "+c.by)
			l.Expect(!l.Exists(marked), "overtaken by "+c.by+", the object is gone",
				"overtaken by %s, the object stands", c.by)
			shown = seen
		}
		table.End()
		l.Show("PUT without finalizers and without a uid, overtaken by delete and create", shown)
		l.Say("So it is on kube-apiserver %s: deleteWithoutFinalizers passes on the uid that the replace carries, and no "+
			"version. Overtaken by delete and create, a replace without a uid even deletes the new object. The safer way is to "+
			"send the object as it was read, uid included (CF12b).", l.Session().Binary().Version)
	})
}

// theDeleteComparesTheToken lets no second delete of the shelf pass. The apiserver would send none if it deleted the
// version that the writer had read.
var theDeleteComparesTheToken = world.New("the last finalizer's delete is not tried again", func(l *lab.Lab) {
	deletes := 0 // of the shelf; one comes after the other
	again := func(r *wire.Request) bool {
		if r.Method == wire.Txn && strings.HasSuffix(r.Key, "/shelf") && len(r.Then) == 1 && r.Then[0].Kind == "Delete" {
			deletes++
			return deletes > 1
		}
		return false
	}
	l.Wire.Add(&wire.Rule{
		When: again, Note: "not tried again", Err: status.Error(codes.Aborted, "the version has moved on"),
	})
})

// patchMarked has a rival patch an object that is marked as deleted.
func patchMarked(l *lab.Lab, marked *lab.Object) { l.Rival().Set(marked.GetName(), "color=blue") }

// recreateMarked has a rival end an object that is marked as deleted, and create another under its name.
func recreateMarked(l *lab.Lab, marked *lab.Object) {
	l.Rival().Replace(marked, "-metadata.finalizers")
	l.Rival().Create(marked.GetName(), "color=blue")
}

func TestCF12b_TheUIDProtectsTheNextIncarnationFromALateFinalizer(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF12b", From: "+",
		Says: "with the uid in the replace, an overtaken removal of the last finalizer cannot delete the next " +
			"incarnation: it is refused with 409",
		Why: "to send the object as it was read is the safer way, and no safe one: an overtaking write is lost " +
			"all the same",
		Do:      "Take the last finalizer away by a replace that carries the uid.",
		FalseIf: world.UIDsBelongToNames.Shows(`removing the last finalizer of an earlier incarnation was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheUID.Shows(`removing the last finalizer of an earlier incarnation was accepted`),
			world.EtcdDeletesNothingOf("shelf").Shows(`^overtaken by a patch, it stands$`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/registry/rest", "(*defaultUpdatedObjectInfo).Preconditions"),
	}, func(l *lab.Lab) {
		lamp := createMarked(l, "lamp")
		seen, err := overtaken(l, lamp,
			func() error { return errorOf(l.TryReplace(lamp, "-metadata.finalizers")) },
			func() { recreateMarked(l, lamp) })
		l.Refused(err, "removing the last finalizer of an earlier incarnation", lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
			Says: "Precondition failed: UID in precondition: " + string(lamp.GetUID()),
		})
		l.Expect(l.Exists(lamp), "the next incarnation stands", "it is gone")
		shelf := createMarked(l, "shelf")
		_, patched := overtaken(l, shelf,
			func() error { return errorOf(l.TryReplace(shelf, "-metadata.finalizers")) },
			func() { patchMarked(l, shelf) })

		table := l.Table("the last finalizer is removed, uid sent, overtaken by", "answer", "object after it")
		table.Row("delete and create", lab.AnswerLine(err), fate(l, lamp))
		table.Row("a patch", lab.AnswerLine(patched), fate(l, shelf))
		table.End()
		l.Show("PUT without finalizers, with the uid, overtaken by delete and create", seen)
		l.Say("A removal that is stale when it arrives is refused, with a uid or without (CF12).")
		l.Accepted(patched, "removing the last finalizer, overtaken by a patch")
		l.Expect(!l.Exists(shelf), "overtaken by a patch, the object is gone with it", "overtaken by a patch, it stands")
	})
}
