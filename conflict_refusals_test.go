// Chapter 2, continued: refusals that look like a conflict, and conflicts that look like something else.
package modrev

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
		FalseIf: world.AGatewayHidesTheReason.Shows(
			`the create of a name in use was refused: 409 AlreadyExists, .*the server reported a conflict`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the replace with a stale token was accepted`),
			world.FinalizersAreDropped.Shows(`the create of a name being set free was accepted`),
			world.RefusalsLoseTheirCauses.Shows(`the cause of the refusal of the apply to another's field is empty`),
			world.ClientDropsThePreconditions.Shows(`the delete of a stale version was accepted`),
			world.DeletesLose("uid").Shows(`the delete of what is gone, by uid was accepted`),
			world.ClientDropsTheUID.Shows(
				`the replace of what is gone, with uid was refused: .* has been modified`),
			world.EtcdIgnoresTheCompareOf("quota").Shows(`the create under a quota others write was accepted`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/api/errors", "IsConflict"),
		Answers: "#70",
	}, func(l *lab.Lab) {
		says := l.Table("request refused", "409, reason", "details", "cause")
		todo := l.Table("request refused", "its words in the message", "the next step of a client")
		show := func(request string, err error) {
			face := conflictFaces[request]
			refusal := l.Refused(err, "the "+request,
				lab.Refusal{Code: http.StatusConflict, Reason: face.reason, Says: face.says})
			l.Equal("what the refusal of the "+request+" is about", refusal.Details(), face.details)
			l.Equal("the cause of the refusal of the "+request, refusal.Cause(), face.cause)
			says.Row(request, refusal.Reason, refusal.Details(), strings.TrimSuffix(refusal.Cause(), " .data.color"))
			todo.Row(request, strconv.Quote(face.says), face.next)
		}

		shelf := l.Create("shelf", "color=red")
		_, err := l.TryCreate("shelf")
		show("create of a name in use", err)
		createHeld(l.Client, "going", "color=red")
		l.Delete("going")
		_, err = l.TryCreate("going")
		show("create of a name being set free", err)
		l.Rival().Set("shelf", "color=blue")
		_, err = l.TryReplace(shelf, "color=green")
		show("replace with a stale token", err)
		_, err = l.As("applier").TryApply("shelf", "applier", false, "color=green")
		show("apply to another's field", err)
		err = l.TryDelete("shelf", lab.Token(shelf))
		show("delete of a stale version", err)
		l.Recreate("shelf")
		err = l.TryDelete("shelf", lab.UID(shelf))
		show("delete of what is gone, by uid", err)
		_, err = l.TryReplace(shelf, "color=green")
		show("replace of what is gone, with uid", err)
		l.Delete("shelf")
		err = applyShelf(l.As("applier"), shelfBody(fmt.Sprintf(`,"uid":%q`, shelf.GetUID()), "size"))
		show("apply to what is gone, with uid", err)
		stop := l.Busy(l.LimitConfigMaps(50, 3))
		_, err = l.TryCreate("shelf")
		stop()
		show("create under a quota others write", err)

		says.End()
		todo.End()
		l.Say("Where only the words differ, read the object rather than the words: its deletionTimestamp tells the first " +
			"two apart, and its uid tells whether it is still the one that you knew. A quota's conflict names another kind " +
			"than was written (CF8d); a delete's names ConfigMap where the others say configmaps, unless it was overtaken " +
			"(CF9b).")
	})
}

// conflictFaces are the refusals of the requests in CF8, and the next step of a client. Refusals with the same reason,
// kind and cause are alike to a program: only the words of the message tell them apart.
var conflictFaces = map[string]struct {
	reason         metav1.StatusReason
	details, cause string
	says           string // words in the message
	next           string
}{
	"create of a name in use": {metav1.StatusReasonAlreadyExists, "configmaps shelf", "",
		"already exists", "read it: is it yours?"},
	"create of a name being set free": {metav1.StatusReasonAlreadyExists, "configmaps going", "",
		"object is being deleted", "wait for its end, then create"},
	"replace with a stale token": {metav1.StatusReasonConflict, "configmaps shelf", "",
		"has been modified", "read, decide again, write"},
	"apply to another's field": {metav1.StatusReasonConflict, "(none)", "FieldManagerConflict .data.color",
		"Apply failed with 1 conflict", "leave it, or agree whose"},
	"delete of a stale version": {metav1.StatusReasonConflict, "ConfigMap shelf", "",
		"might have been modified", "read again: still to go?"},
	"delete of what is gone, by uid": {metav1.StatusReasonConflict, "ConfigMap shelf", "",
		"deleted and then recreated", "nothing: it is gone already"},
	"replace of what is gone, with uid": {metav1.StatusReasonConflict, "configmaps shelf", "",
		"UID in precondition", "let go: what you knew is gone"},
	"apply to what is gone, with uid": {metav1.StatusReasonConflict, "configmaps shelf", "",
		"uid mismatch", "let go: what you knew is gone"},
	"create under a quota others write": {metav1.StatusReasonConflict, "resourcequotas quota", "",
		"has been modified", "send the same create again"},
}

func TestCF8b_NotEveryRefusalIsAConflict(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8b", From: "D2 paragraph 5",
		Says: "what is not a conflict says so: no right is 403, no object 404, a bad object 422, a body that cannot be " +
			"read 400, a format that is not served 415; IsConflict is false for all of them",
		Why:     "none of these is cured by reading again and trying again; a retry loop around them spins for nothing",
		FalseIf: world.EveryRefusalIsAConflict.Shows(`without the right was refused: 409 Conflict .* is forbidden`),
		AlsoFalseIf: []world.World{
			world.ClientMendsTheKeys("replace").Shows(`the replace with a bad key was accepted`),
			world.EveryPatchIsAMergePatch.Shows(`the patch, format not served was accepted`),
			world.ServerCreatesWhatIsMissing.Shows(`the replace of what is gone was accepted`),
		},
		Read: source.Decl("k8s.io/apimachinery/pkg/api/errors", "ReasonForError"),
	}, func(l *lab.Lab) {
		stranger := l.AsUser("stranger")
		shelf := l.Create("shelf", "color=red")
		l.Settle(shelf)
		table := l.Table("refused", "code and reason", "recognised by", "the next step")

		var err error
		seen := l.Record(func() { _, err = stranger.TryReplace(shelf, "color=blue") })
		r := l.Refused(err, "the replace without the right",
			lab.Refusal{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden})
		table.Row("replace without the right", r.CodeAndReason(), predicates(err), "ask for the right")
		_, err = l.TryReplace(shelf, "a/b=c")
		r = l.Refused(err, "the replace with a bad key",
			lab.Refusal{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
		table.Row("replace with a bad key", r.CodeAndReason(), predicates(err), "correct the object")
		err = putShelf(l.Client, `{"metadata":`)
		r = l.Refused(err, "the replace with half a body",
			lab.Refusal{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest})
		table.Row("replace with half a body", r.CodeAndReason(), predicates(err), "correct the program")
		_, err = l.TryPatch("shelf", "application/shelf-patch", `{}`)
		r = l.Refused(err, "the patch, format not served",
			lab.Refusal{Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType})
		table.Row("patch, format not served", r.CodeAndReason(), predicates(err), "use another format")
		l.Delete("shelf")
		_, err = l.TryReplace(shelf, "color=blue")
		r = l.Refused(err, "the replace of what is gone",
			lab.Refusal{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
		table.Row("replace of what is gone", r.CodeAndReason(), predicates(err), "should it exist?")

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
		FalseIf: world.ClientDropsTheToken.Shows(`^stale and invalid: the answer is 422 Invalid`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheUID.Shows(`of another uid, stale and invalid: the answer is 409 Conflict$`),
			world.EveryApplyIsForced.Shows(`an apply to another's field, stale: the answer is 409 Conflict$`),
			world.ClientDropsTheTokenOf("apply").Shows(`an apply of another uid, stale: the answer is 422 Invalid, uid`),
			world.ClientDropsTheTokenOf("merge patch").Shows(`a patch of another uid, stale: the answer is 422 Invalid, uid`),
			world.AppliesLoseTheUID.Shows(`an apply of another uid was accepted`),
			world.ClientMendsTheKeys("create").Shows(
				`a create, invalid, of a name that is taken: the answer is 409 AlreadyExists`),
			world.EtcdIgnoresTheCompareOfACreate.Shows(`a create of a name that is taken was accepted`),
		},
		Read:    source.Decl(registryStore, "(*Store).Update"),
		Answers: "#32",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		l.Settle(l.Rival().Set("shelf", "color=blue")) // from here on, shelf is stale
		stale := fmt.Sprintf(`,"resourceVersion":%q`, shelf.GetResourceVersion())
		const another = `,"uid":"00000000-0000-0000-0000-000000000000"`
		half := `{"metadata":{"name":"shelf"` + stale
		writer, stranger, applier := l.Client, l.AsUser("stranger"), l.As("applier")

		table := l.Table("a request that is", "is answered", "to etcd")
		for _, c := range []struct {
			is           string
			by           *lab.Client
			send         func(by *lab.Client, body string) error
			body         string
			answer, cost string
		}{
			{"unauthorised, malformed and stale", stranger, putShelf, half, "403 Forbidden", "no request"},
			{"malformed and stale", writer, putShelf, half, "400 BadRequest", "no request"},
			{"of another uid, stale and invalid",
				writer, putShelf, shelfBody(another+stale, "a/b"), "409 Conflict, uid", "1 Range"},
			{"stale and invalid", writer, putShelf, shelfBody(stale, "a/b"), "409 Conflict", "1 Range"},
			{"invalid", writer, putShelf, shelfBody("", "a/b"), "422 Invalid", "1 Range"},
			{"an apply to another's field, stale",
				applier, applyShelf, shelfBody(stale, "color"), "409 Conflict, field manager", "1 Range"},
			{"an apply to another's field, of another uid",
				applier, applyShelf, shelfBody(another, "color"), "409 Conflict, field manager", "1 Range"},
			{"an apply of another uid, stale",
				applier, applyShelf, shelfBody(another+stale, "size"), "409 Conflict", "1 Range"},
			{"a patch of another uid, stale",
				applier, mergeShelf, shelfBody(another+stale, "size"), "409 Conflict", "1 Range"},
			{"an apply of another uid", applier, applyShelf, shelfBody(another, "size"), "422 Invalid, uid", "1 Range"},
			{"a patch of another uid", applier, mergeShelf, shelfBody(another, "size"), "422 Invalid, uid", "1 Range"},
			{"a create, invalid, of a name that is taken",
				writer, postShelf, shelfBody("", "a/b"), "422 Invalid", "no request"},
			{"a create of a name that is taken",
				writer, postShelf, shelfBody("", "color"), "409 AlreadyExists", "1 Range, 1 Txn"},
		} {
			var err error
			seen := l.Record(func() { err = c.send(c.by, c.body) })
			answer := answerOfACheck(l.Refusal(err, "a request that is "+c.is))
			table.Row(c.is, answer, seen.Summary())
			l.Equal(c.is+": the answer", answer, c.answer)
			l.Sends(seen, "a request that is "+c.is, c.cost)
		}
		table.End()
	})
}

// shelfBody is the body of a request about a shelf: what metadata says besides the name, and one key of data.
func shelfBody(meta, key string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shelf"%s},"data":{%q:"green"}}`,
		meta, key)
}

func postShelf(by *lab.Client, body string) error {
	_, err := by.TryRaw(http.MethodPost, by.Path(""), "", []byte(body))
	return err
}

func putShelf(by *lab.Client, body string) error {
	_, err := by.TryRaw(http.MethodPut, by.Path("shelf"), "", []byte(body))
	return err
}

func mergeShelf(by *lab.Client, body string) error {
	_, err := by.TryPatch("shelf", types.MergePatchType, body)
	return err
}

func applyShelf(by *lab.Client, body string) error {
	_, err := by.TryPatch("shelf", types.ApplyPatchType, body)
	return err
}

// answerOfACheck is the answer by one of the apiserver's checks. Those of field ownership and of the uid share code and
// reason with others.
func answerOfACheck(r lab.Refusal) string {
	switch cause := r.Cause(); {
	case strings.HasPrefix(cause, string(metav1.CauseTypeFieldManagerConflict)):
		return r.CodeAndReason() + ", field manager"
	case strings.Contains(r.Message, "UID"), strings.Contains(cause, "metadata.uid"):
		return r.CodeAndReason() + ", uid"
	}
	return r.CodeAndReason()
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
			world.RefusalsBecome(http.StatusForbidden, http.StatusConflict, metav1.StatusReasonConflict).
				Shows(`a quota that is used up was refused: 409`),
			world.RefusalsAreAbout("configmaps").Shows(`was refused: 409 Conflict about configmaps quota`),
			world.ALibraryReadsFirst("create").Shows(`others are \[Range configmaps/`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/admission/plugin/resourcequota", "(*quotaEvaluator).checkQuotas"),
		Answers: "#31",
	}, func(l *lab.Lab) {
		quota := l.LimitConfigMaps(3, 3)
		_, usedUp := l.TryCreate("shelf")
		l.LimitConfigMaps(50, 3)
		stop := l.Busy(quota)
		var raced error
		seen := l.Record(func() { _, raced = l.TryCreate("shelf") })
		stop()

		full := l.Refused(usedUp, "the create under a quota that is used up",
			lab.Refusal{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden})
		conflict := l.Refused(raced, "the create under a quota that others write", lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Kind: "resourcequotas", Name: "quota",
		})
		others := slices.DeleteFunc(slices.Clone(seen), func(r wire.Request) bool { return r.Key == quota })
		l.Expect(len(others) == 0, "every request is about the quota, and none about the object", "others are %v", others)

		table := l.Table("create of configmaps/shelf", "answer", "details", "recognised by")
		table.Row("under a quota that is used up", full.CodeAndReason(), full.Details(), predicates(usedUp))
		table.Row("under a quota that others write", conflict.CodeAndReason(), conflict.Details(), predicates(raced))
		table.End()
		// How many there are, and what is read between them, depends on how far kube-apiserver's cache has come.
		txns := seen.Only(wire.Txn)
		l.Show("a create under a quota that somebody else writes each time: the first of its transactions",
			txns[:min(1, len(txns))])
		l.Say("%s", l.Describe(raced))
	})
}

// predicates names the functions of k8s.io/apimachinery/pkg/api/errors that recognise an error.
func predicates(err error) string {
	var names []string
	for _, p := range []struct {
		name  string
		holds func(error) bool
	}{
		{"IsAlreadyExists", apierrors.IsAlreadyExists},
		{"IsConflict", apierrors.IsConflict},
		{"IsForbidden", apierrors.IsForbidden},
		{"IsNotFound", apierrors.IsNotFound},
		{"IsInvalid", apierrors.IsInvalid},
		{"IsBadRequest", apierrors.IsBadRequest},
		{"IsUnsupportedMediaType", apierrors.IsUnsupportedMediaType},
		{"IsMethodNotSupported", apierrors.IsMethodNotSupported},
		{"IsServerTimeout", apierrors.IsServerTimeout},
		{"IsTimeout", apierrors.IsTimeout},
		{"IsResourceExpired", apierrors.IsResourceExpired},
		{"IsInternalError", apierrors.IsInternalError},
		{"IsUnauthorized", apierrors.IsUnauthorized},
		{"IsTooManyRequests", apierrors.IsTooManyRequests},
	} {
		if p.holds(err) {
			names = append(names, p.name)
		}
	}
	return strings.Join(names, ", ")
}

func TestCF8f_ANameOfOnesOwnAndAGeneratedOneCanClash(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8f", From: "+",
		Says: "a create that carries a name and a generateName uses the name, and when it is taken, it is 409 " +
			"AlreadyExists; the text about a unique name does not make it a timeout",
		Why:     "older servers said ServerTimeout here, and clients that trust it send the same create for ever",
		FalseIf: world.ClientDropsTheName.Shows(`the create with a name that is taken was accepted`),
		AlsoFalseIf: []world.World{
			world.RefusalsBecome(http.StatusConflict, http.StatusInternalServerError, metav1.StatusReasonServerTimeout).
				Shows(`the create with a name that is taken was refused: 500 ServerTimeout`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/rest", "CheckGeneratedNameError"),
		Answers: "#72",
	}, func(l *lab.Lab) {
		l.Create("shelf")
		both := l.New("shelf")
		both.SetGenerateName("shelf-")
		_, err := l.TryCreateObject(both)
		taken := l.Refused(err, "the create with a name that is taken", lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists,
			Says: "was not able to generate a unique name",
		})
		generated := l.New("")
		generated.SetGenerateName("shelf-")
		first, err := l.TryCreateObject(generated)
		require.NoError(l, err, "creating under a generated name")
		second, err := l.TryCreateObject(generated)
		require.NoError(l, err, "creating under a generated name")

		table := l.Table("create with", "answer", "name")
		table.Row("name and generateName, the name taken", taken.CodeAndReason(), "")
		table.Row("generateName alone", "201", first.GetName())
		table.Row("generateName alone, again", "201", second.GetName())
		table.End()
		l.Say("%s: %s", taken.CodeAndReason(), taken.Message)
		l.Expect(first.GetName() != second.GetName(), "a generated name is new each time", "both are %s", first.GetName())
	})
}

func TestCF8g_AnotherUIDIsAConflictThatLooksLikeAStorageError(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8g", From: "D2 paragraph 1, 5",
		Says: "a replace that carries the uid of an earlier incarnation is refused with 409 and the words StorageError: " +
			"invalid object, Code: 4; without the uid the old token is refused as stale; without either it is let in",
		Why: "the text looks like a damaged store and is an ordinary conflict: the object that you knew was deleted, and " +
			"another one stands under its name",
		FalseIf: world.ClientDropsTheUID.Shows(`the replace with the old uid was refused: .*the object has been modified`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the replace with the old token was accepted`),
			world.LibraryRemembersTheToken.Shows(`the replace with neither was refused: 409`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage", "(*Preconditions).Check"),
		Answers: "#11",
	}, func(l *lab.Lab) {
		old := l.Create("shelf", "color=red")
		stranger := l.Rival().Recreate("shelf", "color=blue")
		l.Settle(stranger)
		table := l.Table("a replace made from the object that is gone", "answer", "to etcd")
		replace := func(with string, o *lab.Object) error {
			var err error
			seen := l.Record(func() { _, err = l.TryReplace(o, "color=green") })
			table.Row(with, lab.AnswerLine(err), seen.Summary())
			return err
		}

		both := replace("with uid and token", old)
		l.Refused(both, "the replace with the old uid", lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
			Says: fmt.Sprintf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: "+
				"Precondition failed: UID in precondition: %s, UID in object meta: %s",
				l.Key(old), old.GetUID(), stranger.GetUID()),
		})
		err := replace("with the token alone", lab.WithoutUID(old))
		l.Refused(err, "the replace with the old token", lab.Stale(old))
		l.Stored(stranger, "color=blue")
		err = replace("with neither", lab.WithoutUID(lab.WithToken(old, "")))
		l.Accepted(err, "the replace with neither")
		table.End()
		l.Say("With the uid: %s", l.Describe(both))
		l.Stored(stranger, "color=green")
	})
}
