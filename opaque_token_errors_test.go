// Chapter 4, continued: telling errors apart.
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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"modrev/helpers/answer"
	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/world"
)

func TestOT20_AConflictShowsWhoseProgressItWas(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT20", From: "D2 paragraph 5",
		Says: "a conflict is evidence that somebody made progress: read again, and the object shows what changed and, in " +
			"managedFields, who changed it",
		Why:     "the next decision depends on what the other did; a conflict that is only counted and repeated wastes that",
		FalseIf: world.RivalSignsAsTheWriter.Shows(`the owner of color is writer`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the writer's replace was accepted`),
			world.AProxyKeepsAnswers.Shows(`what changed is none`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/util/managedfields", "NewDefaultFieldManager"),
		Answers: "#77",
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red", "size=9")
		mine := l.Get("shelf")
		l.Rival().Set("shelf", "color=blue")

		_, err := l.TryReplace(mine, "size=10")
		l.Refused(err, "the writer's replace", lab.Stale(mine))
		now := l.Get("shelf")

		table := l.Table("field", "as the writer read it", "as it is now", "managed by")
		var changed []string
		for _, field := range []string{"color", "size"} {
			was, is := lab.Field(mine, field), lab.Field(now, field)
			table.Row(field, was, is, l.OwnersOf(now, field))
			if was != is {
				changed = append(changed, field)
			}
		}
		table.Row("resourceVersion", mine.GetResourceVersion(), now.GetResourceVersion(), "")
		table.End()
		l.Equal("what changed", changed, []string{"color"})
		l.Equal("the owner of color", l.OwnersOf(now, "color"), "rival by Update")

		again := l.Replace(now, "size=10")
		l.Say("The writer's change is about size, so it decides the same again, on what is there now: 200, color=%s, "+
			"size=%s.", lab.Field(again, "color"), lab.Field(again, "size"))
		l.Stored(again, "color=blue", "size=10")
	})
}

func TestOT21_RefusalsNeedDifferentNextSteps(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21", From: "D2 paragraph 5",
		Says: "a conflict is one refusal among many, and 409 and 422 have many faces; status, reason, causes and details " +
			"lead to the next step, and where that is a live reading, what it shows leads to the one after",
		Why: "to treat every error as a conflict repeats what can never succeed, and to treat every 409 alike retries what " +
			"no retry can settle, or reads again what was never stored",
		FalseIf: world.AGatewayHidesTheReason.Shows(`the step after a create in a missing namespace is let go`),
		AlsoFalseIf: []world.World{
			world.RefusalsLoseTheirCauses.Shows(`the step after apply to another's field is read it live`),
			world.ClientDropsThePreconditions.Shows(`delete, stale token was accepted`),
			world.EtcdIgnoresTheCompare.Shows(`create under a busy quota was accepted`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/api/errors", "ReasonForError"),
		Answers: "#22 #31 #32 #61 #70",
	}, func(l *lab.Lab) {
		shelf, moved := l.Create("shelf", "color=red"), l.Create("moved", "color=red")
		l.Rival().Set("moved", "color=blue")
		gone := l.Create("gone", "color=red")
		l.Delete("gone")

		refusalsOfManyKinds(l, shelf, gone)
		facesOfConflict(l, moved, gone)
		l.Say("Whoever is given one of these answers knows that this request stored nothing; an earlier attempt of it may " +
			"have done so, one of client-go's own included (OT21c, OT22, OT23). It holds for this 504 because of its cause " +
			"ResourceVersionTooLarge: it refuses a read, and a read stores nothing; a 504 without that cause is no answer " +
			"about a write (OT21b). A 500 is not among them: it may be a token that cannot be parsed, and then nothing was " +
			"stored (OT43), or etcd's answer that got lost, and then nobody knows (OT21b); no reason and no cause tells " +
			"which. A 404 from /status may mean that there is no such subresource (OT13). In words, the messages tell the " +
			"faces of 409 apart (CF8); a program reads the object instead.")
		l.Say("The test of a JSON patch is a precondition of the client's own (if the reading shows nothing new, it is the " +
			"patch that is wrong). RetryOnConflict does not repeat a 422 (CF7); the resourceVersion in the body of a patch is " +
			"a check that answers 409 (CF7b). A replace after a delete is 201 where updates create (OT26). What is being " +
			"deleted can still be written, only a new finalizer is refused, 422 (CF8e). And for a number of another cluster, " +
			"or of a time before a backup was restored, the wait may never end: drop it, and list.")

		steps := l.Table("next step", "because")
		for step := answer.GoOn; step <= answer.Stop; step++ {
			steps.Row(step, step.Because())
		}
		steps.End()
		l.Say("The last two, read back and stop, are for a write without an answer: see OT21b.")
		l.Stored(shelf, "color=red")
		l.Stored(moved, "color=blue")
	})
}

// refusalsOfManyKinds is one refusal of each status.
func refusalsOfManyKinds(l *lab.Lab, shelf, gone *lab.Object) {
	shelves := l.Of(l.CustomResource())
	custom := shelves.Create("custom", "color=red")
	table := l.Table("request", "answer", "next step")
	see := func(err error, want advice) {
		want.expect(l, err)
		table.Row(want.request, want.answer, want.next)
	}

	_, err := l.TryRaw(http.MethodPut, l.Path("shelf"), "", []byte("{"))
	see(err, advice{"a body that is no JSON", "400 BadRequest", answer.MendTheRequest})
	err = readWithBearerToken(l, "not-issued")
	see(err, advice{"a bearer token that nobody issued", "401 Unauthorized", answer.ProveWhoYouAre})
	_, err = l.AsUser("stranger").TryReplace(shelf, "color=green")
	see(err, advice{"a user without a role", "403 Forbidden", answer.GetTheRight})
	_, err = l.TryReplace(gone, "color=green")
	see(err, advice{"a replace after a delete", "404 NotFound", answer.LetGo})
	nowhere := strings.ReplaceAll(l.Path(""), l.Namespace, "nowhere")
	_, err = l.TryRaw(http.MethodPost, nowhere, "", []byte(`{"metadata":{"name":"shelf"}}`))
	see(err, advice{"a create in a missing namespace", "404 NotFound, namespaces", answer.MendTheRequest})
	_, err = shelves.Watch("1").TryNext()
	see(err, advice{"a watch from revision 1", "410 Expired", answer.ListAgain})
	_, err = shelves.TryPatch("custom", types.StrategicMergePatchType, `{"spec":{"color":"green"}}`)
	see(err, advice{"a patch format that the kind lacks", "415 UnsupportedMediaType", answer.MendTheRequest})
	_, err = shelves.TryReplace(lab.WithToken(custom, ""), "color=green")
	see(err, advice{"no token where the kind wants one", "422 Invalid", answer.MendTheRequest})
	_, err = l.TryCreate("shelf", "a b=green")
	see(err, advice{"a taken name with invalid data", "422 Invalid", answer.MendTheRequest})
	err = l.ForbiddenEviction().MaxRetries(0).Do(l.Context()).Error()
	see(err, advice{"an eviction that a budget forbids", "429 TooManyRequests", answer.WaitAndRepeat})
	err = l.FirstReadFromTheFuture().Err
	see(err, advice{"a read from the future", "504 Timeout, ResourceVersionTooLarge", answer.WaitAndRepeat})
	table.End()
}

// facesOfConflict is what 409 and 422 can be about. moved is as it was before a rival wrote it.
func facesOfConflict(l *lab.Lab, moved, gone *lab.Object) {
	old := l.Create("again", "color=red")
	l.Settle(l.Recreate("again", "color=white"))
	createHeld(l.Client, "leaving", "color=red")
	l.Delete("leaving")
	_, err := l.Rival().TryApply("owned", "rival", false, "color=red")
	require.NoError(l, err, "the rival's apply")
	uidOf := func(o *lab.Object) string { return "metadata.uid=" + string(o.GetUID()) }

	table := l.Table("409 or 422 for", "reason; cause or details.kind", "next step", "so then")
	see := func(err error, want advice) {
		want.expect(l, err)
		table.Row(want.request, strings.TrimPrefix(want.answer, "409 "), want.next, "")
	}
	read := func(err error, want reading) {
		advice{want.request, want.answer, answer.ReadIt}.expect(l, err)
		want.look(l)
		table.Row(want.request, strings.TrimPrefix(want.answer, "409 "), answer.ReadIt, want.then)
	}

	_, err = l.TryCreate("shelf", "color=green")
	read(err, reading{"create of a name in use", "409 AlreadyExists", l.New("shelf"), answer.SeeWhoseItIs})
	_, err = l.TryCreate("leaving", "color=green")
	read(err, reading{"the same, being set free", "409 AlreadyExists", l.New("leaving"), answer.WaitForItsEnd})
	_, err = l.TryApply("owned", "writer", false, "color=green")
	see(err, advice{"apply to another's field", "409 Conflict, FieldManagerConflict", answer.SettleTheOwner})
	_, err = l.TryReplace(moved, "color=green")
	read(err, reading{"replace, stale token", "409 Conflict, configmaps", moved, answer.DecideAgain})
	_, err = l.TryPatch("moved", types.JSONPatchType, fmt.Sprintf(
		`[{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"add","path":"/data/color","value":"green"}]`,
		moved.GetResourceVersion()))
	read(err, reading{"JSON patch, its test fails", "422 Invalid", moved, answer.DecideAgain})
	err = l.TryDelete("moved", lab.Token(moved))
	read(err, reading{"delete, stale token", "409 Conflict, ConfigMap", moved, answer.DecideAgain})
	_, err = l.TryReplace(lab.WithToken(old, ""), "color=green")
	read(err, reading{"replace, the uid of before", "409 Conflict, configmaps", old, answer.LetGo})
	err = l.TryDelete("again", lab.UID(old))
	read(err, reading{"delete, the uid of before", "409 Conflict, ConfigMap", old, answer.LetGo})
	_, err = l.TrySet("again", "size=9", uidOf(old))
	read(err, reading{"patch, the uid of before", "422 Invalid", old, answer.LetGo})
	_, err = l.TryApply("again", "writer", false, "size=9", uidOf(old))
	read(err, reading{"apply, the uid of before", "422 Invalid", old, answer.LetGo})
	_, err = l.TryApply("gone", "writer", false, "color=green", uidOf(gone))
	read(err, reading{"apply, uid of what is gone", "409 Conflict, configmaps", gone, answer.LetGo})
	stop := l.Busy(l.LimitConfigMaps(50, 9))
	_, err = l.TryCreate("counted", "color=green")
	stop()
	see(err, advice{"create under a busy quota", "409 Conflict, resourcequotas", answer.SendItAgain})
	table.End()
}

// advice is where the refusal of a request leads.
type advice struct {
	request, answer string
	next            answer.Step
}

// expect expects that a request was refused with that answer, which leads to that step, and that nothing was stored.
func (a advice) expect(l *lab.Lab, err error) {
	refusal := l.Refusal(err, a.request)
	next, stored := answer.Next(err, l.Kind().Resource, l.Kind().Kind)
	l.Equal("the step after "+a.request, next, a.next)
	l.Equal("the answer to "+a.request, leading(err, refusal), a.answer)
	l.Equal("what is stored by "+a.request, stored, answer.No)
}

// leading is what leads to the next step: status and reason, and a cause or what the refusal is about.
func leading(err error, refusal lab.Refusal) string {
	line := refusal.CodeAndReason()
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return line + ", " + string(metav1.CauseTypeFieldManagerConflict)
	case apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return line + ", " + string(metav1.CauseTypeResourceVersionTooLarge)
	case refusal.Reason == metav1.StatusReasonConflict && refusal.Kind != "", refusal.Kind == "namespaces":
		return line + ", " + refusal.Kind
	}
	return line
}

// reading is where a refusal leads whose advice is to read the object live.
type reading struct {
	request, answer string
	known           *lab.Object // what the client had in mind; without a uid, if it was to be created
	then            answer.Step
}

// look reads the object live, and expects that this leads to the step after it.
func (r reading) look(l *lab.Lab) {
	var known, now metav1.Object
	if r.known.GetUID() != "" {
		known = r.known
	}
	found, err := l.TryGet(r.known.GetName())
	if !lab.IsNotFound(err) {
		require.NoError(l, err, "reading "+r.known.GetName())
		now = found
	}
	l.Equal("the step after "+r.request+", read live,", answer.Found(known, now), r.then)
}

// readWithBearerToken reads as a client that names itself by a bearer token, and by nothing else.
func readWithBearerToken(l *lab.Lab, token string) error {
	cfg := rest.AnonymousClientConfig(l.Config())
	cfg.BearerToken = token
	cfg.Wrap(l.Wire.Transport("nobody"))
	api, err := dynamic.NewForConfig(cfg)
	require.NoError(l, err, "making a client with a bearer token")
	_, err = api.Resource(lab.ConfigMap.GVR()).Namespace(l.Namespace).Get(l.Context(), "shelf", metav1.GetOptions{})
	return err
}

func TestOT21d_ATokenThatExpiredIsGoneForGood(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21d", From: "D2 paragraph 5; +",
		Says: "410 is not a bad moment: the same resourceVersion is refused each time, and a fresh list, compared with " +
			"what one knew, leads on; a number from the future is not refused by a watch, which leaves out all events up to it",
		Why: "a client that watches from a number of yesterday again and again never sees anything; and what was deleted " +
			"meanwhile it learns from the list only",
		FalseIf: world.AProxyStripsTheRevision.Shows(`a watch from revision 1 was accepted`),
		AlsoFalseIf: []world.World{
			world.KeysOutliveTheirDeletion.Shows(`what the list lacks is none`),
			world.ListsReportAnItemsNumber.Shows(`the number of events after the list is 3`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).getAllEventsSinceLocked"),
		Answers: "#60",
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource())
		shelves.Create("a", "color=red")
		shelves.Create("b", "color=red")
		known := []string{"a", "b"} // by the client, when it last listened
		shelves.Delete("b")

		table := l.Table("request", "answer")
		for i := 1; i <= 3; i++ {
			_, err := shelves.Watch("1").TryNext()
			table.Row(fmt.Sprintf("watch from 1, attempt %d", i), lab.AnswerLine(err))
			l.Refused(err, "a watch from revision 1", lab.Refusal{Code: 410, Reason: metav1.StatusReasonExpired})
		}
		list := shelves.List()
		table.Row("list", fmt.Sprintf("200, %d item, resourceVersion %s", len(list.Items), list.GetResourceVersion()))
		missing := slices.DeleteFunc(known, func(name string) bool {
			return slices.ContainsFunc(list.Items, func(o lab.Object) bool { return o.GetName() == name })
		})
		last := shelves.Create("c", "color=red")
		seen := shelves.Watch(list.GetResourceVersion()).Until(last.GetResourceVersion())
		table.Row("watch from "+list.GetResourceVersion(), seen[0].Type+" "+seen[0].Name)

		watchFromTheFuture(l, shelves, table)
		table.End()
		l.Say("The client knew of a and b. The list does not have b: so b was deleted, and no event will ever say so. The " +
			"watch from the future, as with a number of another cluster, is silent until the store gets there, and has missed " +
			"d. Watch from the list's own number; the largest of its items may be older, and the watch then repeats what the " +
			"list has taken in (RV6). A 410 in the middle of a list in pages brings a token to go on with, at another " +
			"revision than the pages before (RV11).")
		l.Equal("what the list lacks", missing, []string{"b"})
		l.Equal("the number of events after the list", len(seen), 1)
	})
}

// watchFromTheFuture watches from a number that the store has yet to reach.
func watchFromTheFuture(l *lab.Lab, shelves *lab.Client, table *lab.Table) {
	const ahead = 300 // further than other writers to this etcd come while d is created
	future := l.Revision() + ahead
	watch := shelves.Watch(strconv.FormatInt(future, 10))
	missed := shelves.Create("d", "color=red")
	for reached := int64(0); reached < future; {
		put, err := l.Etcd().Put(l.Context(), "/not-kubernetes/"+l.Namespace, "x")
		require.NoError(l, err, "writing a key of our own into etcd")
		reached = put.Header.Revision
	}
	seen := watch.Until(shelves.Create("e", "color=red").GetResourceVersion())
	table.Row(fmt.Sprintf("watch from %d, %d ahead", future, ahead),
		fmt.Sprintf("%s %s at %s; not d, created at %s before it",
			seen[0].Type, seen[0].Name, seen[0].ResourceVersion, missed.GetResourceVersion()))
	l.Expect(number(missed) < future, "d is created before the store gets to the future",
		"it is at %s", missed.GetResourceVersion())
	l.Equal("the number of events from the future on", len(seen), 1)
}

func TestOT24_NotFoundOrAnotherIncarnation(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT24", From: "D2 paragraph 5",
		Says: "where updates do not create (OT26), a replace of what was deleted is 404; once the name is taken again, a " +
			"replace with the uid is 409 and names both uids, with the old token alone the ordinary 409, and with neither " +
			"200, onto a stranger",
		Why: "404 means that what belonged to the uid may be cleaned up; the uid in the next write is what keeps that " +
			"cleaning, and every retry, away from the new object",
		FalseIf:     world.ClientDropsTheUID.Shows(`a replace with the uid alone was accepted`),
		AlsoFalseIf: []world.World{world.ClientDropsTheToken.Shows(`a replace with the old token alone was accepted`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/storage", "(*Preconditions).Check"),
		Answers:     "#11",
	}, func(l *lab.Lab) {
		old := l.Create("shelf", "color=red")
		uid, token := lab.WithToken(old, ""), lab.WithoutUID(old)
		neither := lab.WithoutUID(uid)
		l.Delete("shelf")
		for _, o := range []*lab.Object{uid, old, token, neither} {
			_, err := l.TryReplace(o, "color=green")
			l.Refused(err, "a replace of what is gone", lab.Refusal{Code: 404, Reason: metav1.StatusReasonNotFound})
		}

		stranger := l.Rival().Create("shelf", "color=white")
		another := lab.Refusal{Code: 409, Reason: metav1.StatusReasonConflict, Says: fmt.Sprintf(
			"Precondition failed: UID in precondition: %s, UID in object meta: %s", old.GetUID(), stranger.GetUID())}
		_, byUID := l.TryReplace(uid, "color=green")
		l.Refused(byUID, "a replace with the uid alone", another)
		_, byBoth := l.TryReplace(old, "color=green")
		l.Refused(byBoth, "a replace with the uid and the old token", another)
		_, byToken := l.TryReplace(token, "color=green")
		l.Refused(byToken, "a replace with the old token alone", lab.Stale(old))
		written, err := l.TryReplace(neither, "color=green")
		l.Accepted(err, "a replace with neither")

		table := l.Table("a replace with", "while it is gone", "after a rival took the name", "the refusal then")
		table.Row("the uid alone", "404 NotFound", lab.AnswerLine(byUID), "names both uids")
		table.Row("the uid and the old token", "404 NotFound", lab.AnswerLine(byBoth), "names both uids")
		table.Row("the old token alone", "404 NotFound", lab.AnswerLine(byToken), "an ordinary conflict")
		table.Row("neither", "404 NotFound", lab.AnswerLine(err), "none")
		table.End()
		l.Say("%s", l.Describe(byUID))
		l.Say("The stranger's color=white is overwritten by the last of them.")
		l.Stored(stranger, "color=green")
		l.Equal("the uid of what was written", written.GetUID(), stranger.GetUID())
	})
}
