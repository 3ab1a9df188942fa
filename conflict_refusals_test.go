// Chapter 2, continued: refusals that look like a conflict, and conflicts that look like something else.
package modrev

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
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

func TestCF8_AConflictHasSeveralFaces(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8", From: "D2 paragraph 5",
		Says: "409 has several faces: by reason, details.kind and causes a program tells a name in use, another " +
			"manager's field, a delete whose precondition fails and a quota's conflict from a stale write; the message " +
			"alone tells whether the name is being set free, and whether it is the token or the uid that is wrong",
		Why: "each face needs another next step; a client that knows only \"409\" repeats what can never succeed, or gives " +
			"up what would",
		FalseIf: world.AGatewayHidesTheReason.Shows(`the create of a name in use: .* AlreadyExists, .* the server reported a conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the replace with a stale token was accepted`),
			world.FinalizersAreDropped.Shows(`the create of a name being set free was accepted`),
			world.RefusalsLoseTheirCauses.Shows(`the apply to another's field: .* cause "":`),
			world.ClientDropsThePreconditions.Shows(`the delete of a stale version was accepted`),
			world.DeletesLose("uid").Shows(`the delete of what is gone, by uid was accepted`),
			world.ClientDropsTheUID.Shows(`the replace of what is gone, with uid: .* has been modified`),
			world.EtcdIgnoresTheCompareOf("quota").Shows(`the create under a quota others write was accepted`),
		},
		Read:    source.Func("k8s.io/apimachinery/pkg/api/errors", "IsConflict"),
		Answers: "#70",
	}, func(l *lab.Lab) {
		says := l.Table("request refused", "409, reason", "details", "cause")
		todo := l.Table("request refused", "its words in the message", "the next step of a client")
		alike := map[string][]string{} // the requests by what a program gets to see besides the message
		face := func(what string, err error, reason metav1.StatusReason, details, cause, words, next string) {
			r := l.Refusal(err, "the "+what)
			says.Row(what, r.Reason, r.Details(), strings.TrimSuffix(r.Cause(), " .data.color"))
			todo.Row(what, strconv.Quote(words), next)
			alike[string(r.Reason)+r.Kind+r.Cause()] = append(alike[string(r.Reason)+r.Kind+r.Cause()], what)
			l.Expect(r.Is(http.StatusConflict, reason, words) && r.Details() == details && r.Cause() == cause,
				fmt.Sprintf("the %s is refused with 409 %s, details %s, cause %q, and says %q", what, reason, details, cause, words),
				"the %s: %s, details %s, cause %q: %s", what, r.CodeAndReason(), r.Details(), r.Cause(), r.Message)
		}
		const exists, conflict, none = metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict, "(none)"
		apply := func(name, meta, data string) error {
			_, err := l.As("applier").TryPatch(name, types.ApplyPatchType,
				fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q%s},"data":{%s}}`, name, meta, data))
			return err
		}
		shelf := l.Create("shelf", "color=red")
		_, err := l.TryCreate("shelf")
		face("create of a name in use", err, exists, "configmaps shelf", "", "already exists", "read it: is it yours?")
		l.CreateWithFinalizer("going", "modrev.example/hold")
		l.Delete("going")
		_, err = l.TryCreate("going")
		face("create of a name being set free", err, exists, "configmaps going", "", "object is being deleted", "wait for its end, then create")
		l.Rival().Set("shelf", "color=blue")
		_, err = l.TryReplace(shelf, "color=green")
		face("replace with a stale token", err, conflict, "configmaps shelf", "", "has been modified", "read, decide again, write")
		err = apply("shelf", "", `"color":"green"`)
		face("apply to another's field", err, conflict, none, "FieldManagerConflict .data.color", "Apply failed with 1 conflict", "leave it, or agree whose")
		err = l.TryDelete("shelf", lab.Token(shelf))
		face("delete of a stale version", err, conflict, "ConfigMap shelf", "", "might have been modified", "read again: still to go?")
		l.Recreate("shelf")
		err = l.TryDelete("shelf", lab.UID(shelf))
		face("delete of what is gone, by uid", err, conflict, "ConfigMap shelf", "", "deleted and then recreated", "nothing: it is gone already")
		_, err = l.TryReplace(shelf, "color=green")
		face("replace of what is gone, with uid", err, conflict, "configmaps shelf", "", "UID in precondition", "let go: what you knew is gone")
		l.Delete("shelf")
		err = apply("shelf", fmt.Sprintf(`,"uid":%q`, shelf.GetUID()), "")
		face("apply to what is gone, with uid", err, conflict, "configmaps shelf", "", "uid mismatch", "let go: what you knew is gone")
		stop := l.Busy(l.LimitConfigMaps(50, 3))
		_, err = l.TryCreate("shelf")
		stop()
		face("create under a quota others write", err, conflict, "resourcequotas quota", "", "has been modified", "send the same create again")
		says.End()
		todo.End()
		l.Say("Where only the words differ, read the object rather than the words: its deletionTimestamp tells the first two " +
			"apart, and its uid tells whether it is still the one that you knew. A quota's conflict names another kind than was " +
			"written (CF8d); a delete's names ConfigMap where the others say configmaps, unless it was overtaken (CF9b).")

		got := slices.SortedFunc(maps.Values(alike), slices.Compare)
		want := [][]string{
			{"apply to another's field"},
			{"create of a name in use", "create of a name being set free"},
			{"create under a quota others write"},
			{"delete of a stale version", "delete of what is gone, by uid"},
			{"replace with a stale token", "replace of what is gone, with uid", "apply to what is gone, with uid"},
		}
		l.Expect(fmt.Sprintf("%q", got) == fmt.Sprintf("%q", want), "without the messages there are five kinds of conflict",
			"they fall into %q", got)
	})
}

func TestCF8b_NotEveryRefusalIsAConflict(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8b", From: "D2 paragraph 5",
		Says: "what is not a conflict says so: no right is 403, no object 404, a bad object 422, a body that cannot be " +
			"read 400, a format that is not served 415; IsConflict is false for all of them",
		Why:     "none of these is cured by reading again and trying again; a retry loop around them spins for nothing",
		FalseIf: world.EveryRefusalIsAConflict.Shows(`the replace without the right: 409 Conflict: .* is forbidden`),
		AlsoFalseIf: []world.World{
			world.ClientMendsTheKeys("replace").Shows(`the replace with a bad key was accepted`),
			world.EveryPatchIsAMergePatch.Shows(`the patch, format not served was accepted`),
			world.ServerCreatesWhatIsMissing.Shows(`the replace of what is gone was accepted`),
		},
		Read: source.Func("k8s.io/apimachinery/pkg/api/errors", "ReasonForError"),
	}, func(l *lab.Lab) {
		table := l.Table("refused", "code and reason", "recognised by", "the next step")
		neighbour := func(what string, code int, reason metav1.StatusReason, next string, do func() error) wire.Requests {
			var err error
			seen := l.Record(func() { err = do() })
			r := l.Refusal(err, "the "+what)
			table.Row(what, r.CodeAndReason(), lab.Predicates(err), next)
			l.Expect(r.Code == code && r.Reason == reason && !apierrors.IsConflict(err),
				fmt.Sprintf("the %s is refused with %d %s", what, code, reason), "the %s: %s", what, l.Describe(err))
			return seen
		}
		shelf := l.Create("shelf", "color=red")
		l.Settle(shelf)
		replace := func(c *lab.Client, o *lab.Object, fields ...string) func() error {
			return func() error { _, err := c.TryReplace(o, fields...); return err }
		}
		seen := neighbour("replace without the right", http.StatusForbidden, metav1.StatusReasonForbidden, "ask for the right",
			replace(l.AsUser("stranger"), shelf, "color=blue"))
		neighbour("replace with a bad key", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "correct the object",
			replace(l.Client, shelf, "a/b=c"))
		neighbour("replace with half a body", http.StatusBadRequest, metav1.StatusReasonBadRequest, "correct the program", func() error {
			_, err := l.TryRaw(http.MethodPut, l.Path("shelf"), "", []byte(`{"metadata":`))
			return err
		})
		neighbour("patch, format not served", http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "use another format", func() error {
			_, err := l.TryPatch("shelf", "application/shelf-patch", `{}`)
			return err
		})
		l.Delete("shelf")
		neighbour("replace of what is gone", http.StatusNotFound, metav1.StatusReasonNotFound, "should it exist?",
			replace(l.Client, shelf, "color=blue"))
		table.End()
		l.Sends(seen, "the replace without the right", "no request")
		l.Say("The one without the right never got as far as etcd: stale or not, it is 403.")
	})
}

func TestCF8c_TheChecksHaveAnOrder(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8c", From: "+",
		Says: "a request that is wrong in several ways gets one answer: rights are checked first, then the form of the " +
			"body, in a replace the uid, in an apply field ownership, then the token, and validity last (to which the uid " +
			"in a patch or an apply belongs); only a create is validated before its name is looked up",
		Why: "409 hides that the object is invalid, too, and 403 hides everything; and \"is the name taken?\" cannot be " +
			"found out with an invalid object",
		FalseIf: world.ClientDropsTheToken.Shows(`stale and invalid: 422 Invalid`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheUID.Shows(`of another uid, stale and invalid: 409 Conflict$`),
			world.EveryApplyIsForced.Shows(`an apply to another's field, stale: 409 Conflict$`),
			world.ClientDropsTheTokenOf("apply").Shows(`an apply of another uid, stale: 422 Invalid, uid`),
			world.ClientDropsTheTokenOf("merge patch").Shows(`a patch of another uid, stale: 422 Invalid, uid`),
			world.AppliesLoseTheUID.Shows(`an apply of another uid was accepted`),
			world.ClientMendsTheKeys("create").Shows(`a create, invalid, of a name that is taken: 409 AlreadyExists`),
			world.EtcdIgnoresTheCompareOfACreate.Shows(`a create of a name that is taken was accepted`),
		},
		Read:    source.Func(registryStore, "(*Store).Update"),
		Answers: "#32",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Settle(l.Rival().Set("shelf", "color=blue")) // from here on, shelf is stale
		table := l.Table("a request that is", "is answered", "to etcd")
		first := func(what, answer, cost string, do func() error) {
			var err error
			seen := l.Record(func() { err = do() })
			r := l.Refusal(err, "a request that is "+what)
			got := r.CodeAndReason()
			if c := r.Cause(); strings.HasPrefix(c, string(metav1.CauseTypeFieldManagerConflict)) {
				got += ", field manager"
			} else if strings.Contains(r.Message, "UID") || strings.Contains(c, "metadata.uid") {
				got += ", uid"
			}
			table.Row(what, got, seen.Summary())
			l.Expect(got == answer, what+": "+answer, "%s: %s", what, got)
			l.Sends(seen, "a request that is "+what, cost)
		}
		half := []byte(fmt.Sprintf(`{"metadata":{"name":"shelf","resourceVersion":%q`, shelf.GetResourceVersion()))
		put := func(c *lab.Client) func() error {
			return func() error { _, err := c.TryRaw(http.MethodPut, c.Path("shelf"), "", half); return err }
		}
		const another = "00000000-0000-0000-0000-000000000000"
		stranger := shelf.DeepCopy()
		stranger.SetUID(another)
		uid, stale := fmt.Sprintf(`,"uid":%q`, another), fmt.Sprintf(`,"resourceVersion":%q`, shelf.GetResourceVersion())
		patch := func(format types.PatchType, meta, field string) func() error {
			return func() error {
				_, err := l.As("applier").TryPatch("shelf", format, fmt.Sprintf(
					`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf"%s},"data":{%q:"green"}}`, meta, field))
				return err
			}
		}
		const merge, apply = types.MergePatchType, types.ApplyPatchType

		first("unauthorised, malformed and stale", "403 Forbidden", "no request", put(l.AsUser("stranger")))
		first("malformed and stale", "400 BadRequest", "no request", put(l.Client))
		first("of another uid, stale and invalid", "409 Conflict, uid", "1 Range", func() error { _, err := l.TryReplace(stranger, "a/b=c"); return err })
		first("stale and invalid", "409 Conflict", "1 Range", func() error { _, err := l.TryReplace(shelf, "a/b=c"); return err })
		first("invalid", "422 Invalid", "1 Range", func() error { _, err := l.TryReplace(lab.WithToken(shelf, ""), "a/b=c"); return err })
		first("an apply to another's field, stale", "409 Conflict, field manager", "1 Range", patch(apply, stale, "color"))
		first("an apply to another's field, of another uid", "409 Conflict, field manager", "1 Range", patch(apply, uid, "color"))
		first("an apply of another uid, stale", "409 Conflict", "1 Range", patch(apply, uid+stale, "size"))
		first("a patch of another uid, stale", "409 Conflict", "1 Range", patch(merge, uid+stale, "size"))
		first("an apply of another uid", "422 Invalid, uid", "1 Range", patch(apply, uid, "size"))
		first("a patch of another uid", "422 Invalid, uid", "1 Range", patch(merge, uid, "size"))
		first("a create, invalid, of a name that is taken", "422 Invalid", "no request", func() error { _, err := l.TryCreate("shelf", "a/b=c"); return err })
		first("a create of a name that is taken", "409 AlreadyExists", "1 Range, 1 Txn", func() error { _, err := l.TryCreate("shelf"); return err })
		table.End()
	})
}

func TestCF8d_AConflictMayBeAboutAnotherObjectThanYours(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8d", From: "D2 paragraph 5; +",
		Says: "a create can be refused with a conflict over another object, the quota that it is counted in: details.kind " +
			"says resourcequotas; a quota that is used up is not a conflict but 403",
		Why: "nothing of the object was created, so the same create may be sent again; a client that takes every conflict " +
			"for its own object's reads again what was never there",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the create under a quota that others write was accepted`),
		AlsoFalseIf: []world.World{
			world.RefusalsBecome(http.StatusForbidden, http.StatusConflict, metav1.StatusReasonConflict).Shows(`a quota that is used up was refused: 409`),
			world.RefusalsAreAbout("configmaps").Shows(`was refused: 409 Conflict about configmaps quota`),
			world.ALibraryReadsFirst("create").Shows(`others are \[Range configmaps/`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/admission/plugin/resourcequota", "(*quotaEvaluator).checkQuotas"),
		Answers: "#31",
	}, func(l *lab.Lab) {
		l.LimitConfigMaps(3, 3)
		_, usedUp := l.TryCreate("shelf")
		quota := l.LimitConfigMaps(50, 3)
		stop := l.Busy(quota)
		var err error
		seen := l.Record(func() { _, err = l.TryCreate("shelf") })
		stop()

		table := l.Table("create of configmaps/shelf", "answer", "details", "recognised by")
		for _, c := range []struct {
			under string
			err   error
		}{{"a quota that is used up", usedUp}, {"a quota that others write", err}} {
			r := l.Refusal(c.err, "the create under "+c.under)
			table.Row("under "+c.under, r.CodeAndReason(), r.Details(), lab.Predicates(c.err))
		}
		table.End()
		// How many there are, and what is read between them, depends on how far kube-apiserver's cache has come.
		txns := seen.Only(wire.Txn)
		l.Show("a create under a quota that somebody else writes each time: the first of its transactions", txns[:min(1, len(txns))])
		l.Say("%s", l.Describe(err))

		l.Refused(usedUp, "the create under a quota that is used up", lab.Refusal{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden})
		l.Refused(err, "the create under a quota that others write", lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Kind: "resourcequotas", Name: "quota",
		})
		others := slices.DeleteFunc(seen, func(r wire.Request) bool { return r.Key == quota })
		l.Expect(len(others) == 0, "every request is about the quota, and none about the object", "others are %v", others)
	})
}

func TestCF8f_ANameOfOnesOwnAndAGeneratedOneCanClash(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8f", From: "+",
		Says: "a create that carries a name and a generateName uses the name, and when it is taken, it is 409 " +
			"AlreadyExists; the text about a unique name does not make it a timeout",
		Why:     "older servers said ServerTimeout here, and clients that trust it send the same create for ever",
		FalseIf: world.ClientDropsTheName.Shows(`the create with a name that is taken was accepted`),
		AlsoFalseIf: []world.World{
			world.RefusalsBecome(http.StatusConflict, http.StatusInternalServerError, metav1.StatusReasonServerTimeout).Shows(`it was refused: 500 ServerTimeout`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/registry/rest", "CheckGeneratedNameError"),
		Answers: "#72",
	}, func(l *lab.Lab) {
		l.Create("shelf")
		both := l.New("shelf")
		both.SetGenerateName("shelf-")
		_, err := l.TryCreateObject(both)
		r := l.Refusal(err, "the create with a name that is taken")
		l.Expect(r.Is(http.StatusConflict, metav1.StatusReasonAlreadyExists, "was not able to generate a unique name"),
			"the create is refused: 409 AlreadyExists", "it was refused: %s", l.Describe(err))
		generated := l.New("")
		generated.SetGenerateName("shelf-")
		first, err := l.TryCreateObject(generated)
		l.Step(err, "creating under a generated name")
		second, err := l.TryCreateObject(generated)
		l.Step(err, "creating under a generated name")

		table := l.Table("create with", "answer", "name")
		table.Row("name and generateName, the name taken", r.CodeAndReason(), "")
		table.Row("generateName alone", "201", first.GetName())
		table.Row("generateName alone, again", "201", second.GetName())
		table.End()
		l.Say("%s: %s", r.CodeAndReason(), r.Message)
		l.Expect(first.GetName() != second.GetName(), "a generated name is new each time",
			"both are %s", first.GetName())
	})
}

func TestCF8g_AnotherUIDIsAConflictThatLooksLikeAStorageError(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8g", From: "D2 paragraph 1, 5",
		Says: "a replace that carries the uid of an earlier incarnation is refused with 409 and the words StorageError: " +
			"invalid object, Code: 4; without the uid the old token is refused as stale; without either it is let in",
		Why: "the text looks like a damaged store and is an ordinary conflict: the object that you knew was deleted, and " +
			"another one stands under its name",
		FalseIf: world.ClientDropsTheUID.Shows(`the object has been modified`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the replace with the old token was accepted`),
			world.LibraryRemembersTheToken.Shows(`the replace with neither was refused: 409`),
		},
		Read:    source.Func("k8s.io/apiserver/pkg/storage", "(*Preconditions).Check"),
		Answers: "#11",
	}, func(l *lab.Lab) {
		old := l.Create("shelf", "color=red")
		stranger := l.Rival().Recreate("shelf", "color=blue")
		l.Settle(stranger)
		table := l.Table("a replace made from the object that is gone", "answer", "to etcd")
		try := func(what string, o *lab.Object) error {
			var err error
			seen := l.Record(func() { _, err = l.TryReplace(o, "color=green") })
			table.Row(what, lab.AnswerLine(err), seen.Summary())
			return err
		}
		err := try("with uid and token", old)
		l.Expect(l.Refusal(err, "the replace with the old uid").Is(http.StatusConflict, metav1.StatusReasonConflict, fmt.Sprintf(
			"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: "+
				"Precondition failed: UID in precondition: %s, UID in object meta: %s", l.Key(old), old.GetUID(), stranger.GetUID())),
			"the refusal speaks of a StorageError and names both uids", "the refusal says: %s", l.Describe(err))
		l.Refused(try("with the token alone", lab.WithoutUID(old)), "the replace with the old token", lab.Stale(old))
		l.Stored(stranger, "color=blue")
		l.Accepted(try("with neither", lab.WithoutUID(lab.WithToken(old, ""))), "the replace with neither")
		table.End()
		l.Say("With the uid: %s", l.Describe(err))
		l.Stored(stranger, "color=green")
	})
}
