// Chapter 4, continued: telling errors apart.
package modrev

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
		FalseIf: world.RivalSignsAsTheWriter.Shows(`color belongs to writer`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the writer's replace was accepted`),
			world.AProxyKeepsAnswers.Shows(`\[\] changed`),
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
		l.Say("The writer's change is about size, so it decides the same again, on what is there now: 200, color=%s, size=%s.",
			lab.Field(again, "color"), lab.Field(again, "size"))
		l.Stored(again, "color=blue", "size=10")
	})
}

func TestOT21_RefusalsNeedDifferentNextSteps(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21", From: "D2 paragraph 5",
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
		Read:    source.Decl("k8s.io/apimachinery/pkg/api/errors", "ReasonForError"),
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
			got := lab.AnswerLine(err)
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

		l.Say("Whoever is given one of these answers knows that this request stored nothing; an earlier attempt of it may have done so, " +
			"one of client-go's own included (OT21c, OT22, OT23). It holds for this 504 because of its cause " +
			"ResourceVersionTooLarge: it refuses a read, and a read stores nothing; a 504 without that cause is no answer about " +
			"a write (OT21b). A 500 is not among them: it may be a token that cannot be parsed, and then nothing was stored " +
			"(OT43), or etcd's answer that got lost, and then nobody knows (OT21b); no reason and no cause tells which. A 404 from /status may mean that there is no such subresource (OT13). " +
			"In words, the messages tell the faces of 409 apart (CF8); a program reads the object instead.")

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
		l.Say("The last two, read back and stop, are for a write without an answer: see OT21b.")
		l.Stored(shelf, "color=red")
		l.Stored(moved, "color=blue")
	})
}

func TestOT21d_ATokenThatExpiredIsGoneForGood(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21d", From: "D2 paragraph 5; +",
		Says: "410 is not a bad moment: the same resourceVersion is refused each time, and a fresh list, compared with what " +
			"one knew, leads on; a number from the future is not refused by a watch, which leaves out all events up to it",
		Why: "a client that watches from a number of yesterday again and again never sees anything; and what was deleted " +
			"meanwhile it learns from the list only",
		FalseIf: world.AProxyStripsTheRevision.Shows(`attempt 1 delivered an event`),
		AlsoFalseIf: []world.World{
			world.KeysOutliveTheirDeletion.Shows(`it lacks map\[\]`),
			world.ListsReportAnItemsNumber.Shows(`it delivered 3 events`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).getAllEventsSinceLocked"),
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
			table.Row(fmt.Sprintf("watch from 1, attempt %d", i), lab.AnswerLine(err))
			l.Expect(err != nil, "a watch from revision 1 is refused", "attempt %d delivered an event: %s %s", i, ev.Type, ev.Name)
			l.Refused(err, "a watch from revision 1", lab.Refusal{Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
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

func TestOT24_NotFoundOrAnotherIncarnation(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT24", From: "D2 paragraph 5",
		Says: "where updates do not create (OT26), a replace of what was deleted is 404; once the name is taken again, a replace with the uid is 409 and names both " +
			"uids, with the old token alone the ordinary 409, and with neither 200, onto a stranger",
		Why: "404 means that what belonged to the uid may be cleaned up; the uid in the next write is what keeps that " +
			"cleaning, and every retry, away from the new object",
		FalseIf:     world.ClientDropsTheUID.Shows(`a replace with the uid alone was accepted`),
		AlsoFalseIf: []world.World{world.ClientDropsTheToken.Shows(`a replace with the old token alone was accepted`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/storage", "(*Preconditions).Check"),
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
			table.Row(s.what, lab.AnswerLine(gone[i]), lab.AnswerLine(err), map[bool]string{
				true: "names both uids", false: map[bool]string{true: "an ordinary conflict", false: "none"}[err != nil],
			}[strings.Contains(words[s.what], string(stranger.GetUID()))])
			l.Refused(gone[i], "a replace of what is gone", lab.Refusal{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
			what := "a replace with " + s.what
			switch s.what {
			case "neither":
				l.Accepted(err, what)
			case "the old token alone":
				l.Refused(err, what, lab.Stale(old))
			default:
				l.Refused(err, what, lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict})
				want := fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", old.GetUID(), stranger.GetUID())
				l.Expect(strings.HasSuffix(words[s.what], want), "the refusal ends with: "+want, "it says: %s", words[s.what])
			}
		}
		table.End()
		l.Say("%s", words["the uid alone"])
		l.Say("The stranger's color=white is overwritten by the last of them.")
		l.Stored(stranger, "color=green")
		l.Expect(l.Get("shelf").GetUID() == stranger.GetUID(), "what was written is the stranger's object", "it is another")
	})
}
