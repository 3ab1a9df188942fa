// Chapter 2, continued: refusals that look like a conflict, and conflicts that look like something else.
package modrev

import (
	"fmt"
	"net/http"
	"slices"
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
		Says: "409 has several faces: reason and causes tell some apart; a stale token, a wrong uid and a failed delete " +
			"precondition, only the message",
		Why: "each face needs another next step (OT21); a client that knows only \"409\" repeats what can never succeed, " +
			"or gives up what would",
		Do:      "Look at reason and causes; then read the object, and not the message.",
		FalseIf: world.UIDsBelongToNames.Shows(`the delete of what is gone, by uid was accepted`),
		AlsoFalseIf: []world.World{
			world.AGatewayHidesTheReason.Shows(
				`the create of a name in use was refused: 409 AlreadyExists, .*the server reported a conflict`),
			world.OlderTokensCount.Shows(`the replace with a stale token was accepted`),
			world.FinalizersAreDropped.Shows(`the create of a name whose object is still being deleted was accepted`),
			world.RefusalsLoseTheirCauses.Shows(`the cause of the refusal of the apply to another's field is empty`),
			world.ClientDropsThePreconditions.Shows(`the delete of a stale version was accepted`),
			world.DeletesLose("uid").Shows(`the delete of what is gone, by uid was accepted`),
			world.ClientDropsTheUID.Shows(
				`the replace of what is gone, with uid was refused: .* has been modified`),
			world.EtcdIgnoresTheCompareOf("shelf").Shows(`the delete of a version that is overtaken was accepted`),
			world.EtcdIgnoresTheCompareOf("quota").Shows(`the create under a quota others write was accepted`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/api/errors", "IsConflict"),
		Answers: "#70",
	}, func(l *lab.Lab) {
		table := l.Table("request refused", "409, reason", "details", "cause", "words in the message")
		show := func(request string, err error) {
			face := conflictFaces[request]
			refusal := l.Refused(err, "the "+request,
				lab.Refusal{Code: http.StatusConflict, Reason: face.reason, Says: face.says})
			l.Equal("what the refusal of the "+request+" is about", refusal.Details(), face.details)
			l.Equal("the cause of the refusal of the "+request, refusal.Cause(), face.cause)
			table.Row(request, refusal.Reason, refusal.Details(), strings.TrimSuffix(refusal.Cause(), " .data.color"), face.says)
		}

		shelf := l.Create("shelf", "color=red")
		_, err := l.TryCreate("shelf")
		show("create of a name in use", err)
		createHeld(l.Client, "going", "color=red")
		l.Delete("going")
		_, err = l.TryCreate("going")
		show("create of a name whose object is still being deleted", err)
		l.Rival().Set("shelf", "color=blue")
		_, err = l.TryReplace(shelf, "color=green")
		show("replace with a stale token", err)
		_, err = l.As("applier").TryApply("shelf", "applier", false, "color=green")
		show("apply to another's field", err)
		err = l.TryDelete("shelf", lab.Token(shelf))
		show("delete of a stale version", err)
		now := l.Get("shelf")
		_, err = overtaken(l, now,
			func() error { return l.TryDelete("shelf", lab.Token(now)) },
			func() { l.Rival().Set("shelf", "color=white") })
		show("delete of a version that is overtaken", err)
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

		table.End()
		l.Say("Where only the words differ, read the object: its deletionTimestamp tells the first two apart, and its " +
			"uid whether it is still the one that you knew. A quota's conflict names another kind than was written (CF8d). " +
			"A delete's names ConfigMap, but configmaps when it was overtaken: details.kind does not tell it from a write.")
	})
}

// conflictFaces are the refusals of the requests in CF8. Refusals with the same reason, kind and cause are alike to a
// program: only the words of the message tell them apart.
var conflictFaces = map[string]struct {
	reason         metav1.StatusReason
	details, cause string
	says           string // words in the message
}{
	"create of a name in use": {metav1.StatusReasonAlreadyExists, "configmaps shelf", "", "already exists"},
	"create of a name whose object is still being deleted": {
		metav1.StatusReasonAlreadyExists, "configmaps going", "", "object is being deleted"},
	"replace with a stale token": {metav1.StatusReasonConflict, "configmaps shelf", "", "has been modified"},
	"apply to another's field": {
		metav1.StatusReasonConflict, "(none)", "FieldManagerConflict .data.color", "Apply failed with 1 conflict"},
	"delete of a stale version": {metav1.StatusReasonConflict, "ConfigMap shelf", "", "might have been modified"},
	"delete of a version that is overtaken": {
		metav1.StatusReasonConflict, "configmaps shelf", "", "ResourceVersion in precondition"},
	"delete of what is gone, by uid": {
		metav1.StatusReasonConflict, "ConfigMap shelf", "", "deleted and then recreated"},
	"replace of what is gone, with uid": {metav1.StatusReasonConflict, "configmaps shelf", "", "UID in precondition"},
	"apply to what is gone, with uid":   {metav1.StatusReasonConflict, "configmaps shelf", "", "uid mismatch"},
	"create under a quota others write": {metav1.StatusReasonConflict, "resourcequotas quota", "", "has been modified"},
}

func TestCF8b_NotEveryRefusalIsAConflict(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8b", From: "D2 paragraph 5",
		Says: "what is not a conflict says so: 400, 403, 404, 415 and 422 have a reason each, and IsConflict is false " +
			"for all of them",
		Why: "a retry loop around them spins for nothing; of these, reading again cures only the 422 of a JSON Patch " +
			"whose test failed",
		Do:      "Retry on IsConflict only; take every other refusal by its reason (OT21).",
		FalseIf: world.ServerCreatesWhatIsMissing.Shows(`the replace of what is gone was accepted`),
		AlsoFalseIf: []world.World{
			world.EveryRefusalIsAConflict.Shows(`without the right was refused: 409 Conflict .* is forbidden`),
			world.ClientMendsTheKeys("replace").Shows(`the replace with a bad key was accepted`),
			world.EveryPatchIsAMergePatch.Shows(`the patch, format not served was accepted`),
			world.ATestBecomesAPrecondition.Shows(`the JSON Patch with a failed test was refused: 409 Conflict`),
		},
		Read: source.Decl("k8s.io/apimachinery/pkg/api/errors", "ReasonForError"),
	}, func(l *lab.Lab) {
		stranger := l.AsUser("stranger")
		shelf := l.Create("shelf", "color=red")
		l.Settle(l.Rival().Set("shelf", "color=blue"))
		table := l.Table("refused", "code and reason", "recognized by")
		refused := func(request string, err error, code int, reason metav1.StatusReason, by string) {
			r := l.Refused(err, "the "+request, lab.Refusal{Code: code, Reason: reason})
			table.Row(request, r.CodeAndReason(), predicates(err))
			l.Equal("what recognizes the "+request, predicates(err), by)
		}

		var err error
		seen := l.Record(func() { _, err = stranger.TryReplace(shelf, "color=blue") })
		refused("replace without the right", err, http.StatusForbidden, metav1.StatusReasonForbidden, "IsForbidden")
		_, err = l.TryReplace(l.Peek("shelf"), "a/b=c")
		refused("replace with a bad key", err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "IsInvalid")
		err = putShelf(l.Client, `{"metadata":`)
		refused("replace with half a body", err, http.StatusBadRequest, metav1.StatusReasonBadRequest, "IsBadRequest")
		_, err = l.TryPatch("shelf", "application/shelf-patch", `{}`)
		refused("patch, format not served", err,
			http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "IsUnsupportedMediaType")
		_, err = l.TryPatch("shelf", types.JSONPatchType,
			fmt.Sprintf(`[{"op":"test","path":"/metadata/resourceVersion","value":%q}]`, shelf.GetResourceVersion()))
		refused("JSON Patch with a failed test", err,
			http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "IsInvalid")
		l.Delete("shelf")
		_, err = l.TryReplace(shelf, "color=blue")
		refused("replace of what is gone", err, http.StatusNotFound, metav1.StatusReasonNotFound, "IsNotFound")

		table.End()
		l.Sends(seen, "the replace without the right", "no request")
		l.Say("The one without the right never got as far as etcd: stale or not, it is 403.")
	})
}

func TestCF8c_TheChecksHaveAnOrder(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8c", From: "+",
		Says: "an update that is wrong in several ways gets one answer: rights come first, then the body's form, the " +
			"token, and validity",
		Why: "409 hides that the object is invalid, too, and 403 hides everything; and \"is the name taken?\" cannot be " +
			"found out with an invalid object",
		Do:      "Expect another refusal behind the one that you have fixed.",
		FalseIf: world.ReadsShowTheVersionBefore.Shows(`^stale and invalid: the answer is 422 Invalid`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`^stale and invalid: the answer is 422 Invalid`),
			world.ClientDropsTheUID.Shows(`of another uid, stale and invalid: the answer is 409 Conflict$`),
			world.EveryApplyIsForced.Shows(`an apply to another's field, stale: the answer is 409 Conflict$`),
			world.ClientDropsTheTokenOf("apply").Shows(`an apply of another uid, stale: the answer is 422 Invalid, uid`),
			world.ClientDropsTheTokenOf("merge patch").Shows(`a patch of another uid, stale: the answer is 422 Invalid, uid`),
			world.AppliesLoseTheUID.Shows(`an apply of another uid was accepted`),
			world.ClientMendsTheKeys("create").Shows(
				`a create, invalid, of a name that is taken: the answer is 409 AlreadyExists`),
			world.EtcdIgnoresTheCompareOfACreate.Shows(`a create of a name that is taken was accepted`),
			everybodyMayCreate.Shows(`valid and without the right to create: the answer is 2`),
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
			{"without the right, malformed and stale", stranger, putShelf, half, "403 Forbidden", "no request"},
			{"malformed and stale", writer, putShelf, half, "400 BadRequest", "no request"},
			{"of another uid, stale and invalid",
				writer, putShelf, shelfBody(another+stale, "a/b"), "409 Conflict, uid", "1 Range"},
			{"stale and invalid", writer, putShelf, shelfBody(stale, "a/b"), "409 Conflict", "1 Range"},
			{"invalid", writer, putShelf, shelfBody("", "a/b"), "422 Invalid", "1 Range"},
			{"an apply with a field that the kind lacks, stale",
				applier, applyShelf, strings.Replace(shelfBody(stale, "size"), `"data"`, `"size":1,"data"`, 1),
				"500", "1 Range"},
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
		checksOfACreate(l, table)
		table.End()
		l.Say("A replace looks at the uid before the token; a patch and an apply take it for validity. An apply looks at " +
			"its schema and at the owners of its fields before the token. A create is validated before its name is looked " +
			"up, and the right to create by a replace is asked last.")
	})
}

// checksOfACreate are further rows of CF8c: when a create looks at rights and at the quota.
func checksOfACreate(l *lab.Lab, table *lab.Table) {
	leases := userWhoMay(l, "editor", "update", "patch").Of(lab.Lease)
	invalid := leases.New("lock", "leaseDurationSeconds=0")
	_, err := leases.TryReplace(invalid)
	table.Row("a replace that would create an invalid Lease, without the right", lab.AnswerLine(err), "")
	l.Equal("invalid and without the right to create: the answer", lab.AnswerLine(err), "422 Invalid")
	_, err = leases.TryReplace(leases.New("lock"))
	table.Row("the same, valid", lab.AnswerLine(err), "")
	l.Equal("valid and without the right to create: the answer", lab.AnswerLine(err), "403 Forbidden")
	l.LimitConfigMaps(1, 1)
	_, err = l.TryCreate("shelf")
	table.Row("a create of a name that is taken, the quota used up", lab.AnswerLine(err), "")
	l.Equal("a taken name, the quota used up: the answer", lab.AnswerLine(err), "403 Forbidden")
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
		Says: "a create can be refused with a conflict over another object, the quota that it is counted in: " +
			"details.kind says resourcequotas",
		Why: "nothing was created, so the same create may be sent again; reading your own object again finds what " +
			"was never there",
		Do:      "Send the same create again when the conflict is about a quota.",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the create under a quota that others write was accepted`),
		AlsoFalseIf: []world.World{
			world.RefusalsBecome(http.StatusForbidden, http.StatusConflict, metav1.StatusReasonConflict).
				Shows(`a quota that is used up was refused: 409`),
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

		table := l.Table("create of configmaps/shelf", "answer", "details", "recognized by")
		table.Row("under a quota that is used up", full.CodeAndReason(), full.Details(), predicates(usedUp))
		table.Row("under a quota that others write", conflict.CodeAndReason(), conflict.Details(), predicates(raced))
		table.End()
		// How many there are, and what is read between them, depends on how far kube-apiserver's cache has come.
		txns := seen.Only(wire.Txn)
		l.Show("a create under a quota that somebody else writes each time: the first of its transactions",
			txns[:min(1, len(txns))])
		l.Say("%s", l.Describe(raced))
		l.Say("A quota that is used up is no conflict but 403.")
	})
}

// predicates names the functions of k8s.io/apimachinery/pkg/api/errors that recognize an error.
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

func TestCF8f_ANameOfYourOwnAndAGeneratedOneCanClash(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8f", From: "+",
		Says: "a create that carries a name and a generateName uses the name: if that is taken, the answer is 409 " +
			"AlreadyExists",
		Why:     "older servers said ServerTimeout here, and a client that trusts it sends the same create for ever",
		Do:      "Send a name or a generateName, not both.",
		FalseIf: world.EtcdIgnoresTheCompareOfACreate.Shows(`the create with a name that is taken was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheName.Shows(`the create with a name that is taken was accepted`),
			world.RefusalsBecome(http.StatusConflict, http.StatusInternalServerError, metav1.StatusReasonServerTimeout).
				Shows(`the create with a name that is taken was refused: 500 ServerTimeout`),
			world.ClientNamesWhatItCreates.Shows(`the second create with generateName alone was refused: 409 AlreadyExists`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/rest", "CheckGeneratedNameError"),
		Answers: "#72",
	}, func(l *lab.Lab) {
		l.Create("shelf")
		generated := l.New("")
		generated.SetGenerateName("shelf-")
		first, err := l.TryCreateObject(generated)
		l.Accepted(err, "the create with generateName alone")
		second, err := l.TryCreateObject(generated)
		l.Accepted(err, "the second create with generateName alone")
		both := l.New("shelf")
		both.SetGenerateName("shelf-")
		_, err = l.TryCreateObject(both)
		taken := l.Refused(err, "the create with a name that is taken", lab.Refusal{
			Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists,
			Says: "was not able to generate a unique name",
		})

		table := l.Table("create with", "answer", "name")
		table.Row("name and generateName, the name taken", taken.CodeAndReason(), "")
		table.Row("generateName alone", "201", first.GetName())
		table.Row("generateName alone, again", "201", second.GetName())
		table.End()
		l.Say("%s: %s", taken.CodeAndReason(), taken.Message)
	})
}

func TestCF8g_AnotherUIDIsAConflictThatLooksLikeAStorageError(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF8g", From: "D2 paragraph 1, 5",
		Says: "a replace that carries the uid of an earlier incarnation is refused with 409 and the words StorageError: " +
			"invalid object, Code: 4",
		Why: "the text looks like a damaged store and is a conflict: the object that you knew is gone, and " +
			"another bears its name",
		Do:      "Let go of the object when a refusal names two uids.",
		FalseIf: world.UIDsBelongToNames.Shows(`the replace with the old uid was refused: .*the object has been modified`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheUID.Shows(`the replace with the old uid was refused: .*the object has been modified`),
			world.OlderTokensCount.Shows(`the replace with the old token was accepted`),
			world.LibraryRemembersTheToken.Shows(`the replace with neither was refused: 409`),
			world.ServerCreatesWhatIsMissing.Shows(`while the name is free, the replace with uid and token was accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage", "(*Preconditions).Check"),
		Answers: "#11",
	}, func(l *lab.Lab) {
		old := l.Create("shelf", "color=red")
		l.Delete("shelf")
		both, uid, token := old, lab.WithToken(old, ""), lab.WithoutUID(old)
		neither := lab.WithoutUID(uid)
		for _, c := range []struct {
			with string
			o    *lab.Object
		}{{"uid and token", both}, {"the uid alone", uid}, {"the token alone", token}, {"neither", neither}} {
			_, err := l.TryReplace(c.o, "color=green")
			l.Refused(err, "while the name is free, the replace with "+c.with,
				lab.Refusal{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
		}

		stranger := l.Rival().Create("shelf", "color=blue")
		l.Settle(stranger)
		table := l.Table("a replace made from what is gone, with", "while the name is free", "onto its namesake", "to etcd")
		replace := func(with string, o *lab.Object) error {
			var err error
			seen := l.Record(func() { _, err = l.TryReplace(o, "color=green") })
			table.Row(with, "404 NotFound", lab.AnswerLine(err), seen.Summary())
			return err
		}
		another := lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
			Says: fmt.Sprintf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: "+
				"Precondition failed: UID in precondition: %s, UID in object meta: %s",
				l.Key(old), old.GetUID(), stranger.GetUID())}
		refused := replace("uid and token", both)
		l.Refused(refused, "the replace with the old uid", another)
		l.Refused(replace("the uid alone", uid), "the replace with the old uid alone", another)
		l.Refused(replace("the token alone", token), "the replace with the old token", lab.Stale(old))
		l.Stored(stranger, "color=blue")
		err := replace("neither", neither)
		l.Accepted(err, "the replace with neither")
		table.End()
		l.Say("With the uid: %s", l.Describe(refused))
		l.Stored(stranger, "color=green")
		l.Equal("the uid of what it was written to", l.Peek("shelf").GetUID(), stranger.GetUID())
	})
}
