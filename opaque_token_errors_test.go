// Chapter 4, continued: telling errors apart.
package modrev

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"modrev/helpers/answer"
	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT20_ALiveReadAfterAConflictShowsWhatChangedAndWhoSetIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT20", From: "D2 paragraph 5",
		Says: "after a token conflict, a live read shows what has changed and, in managedFields, who set what is there; a " +
			"removed field has no owner",
		Why:     "the next decision depends on what the other did; a conflict that is only counted and repeated wastes that",
		Do:      "After a token conflict, read live and look at what changed before you decide.",
		FalseIf: world.RivalSignsAsTheWriter.Shows(`the owner of color is writer`),
		AlsoFalseIf: []world.World{
			world.AProxyKeepsAnswers.Shows(`what changed is none`),
			world.OlderTokensCount.Shows(`the writer's replace was accepted`),
			world.NullsAreDropped.Shows(`what changed is color, shape$`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/util/managedfields", "NewDefaultFieldManager"),
		Answers: "#77",
	}, func(l *lab.Lab) {
		l.Create("shelf", "color=red", "size=9", "shape=round", "room=12")
		mine := l.Get("shelf")
		l.Rival().Patch("shelf", types.MergePatchType, `{"data":{"color":"blue","size":null}}`)
		l.Set("shelf", "shape=square") // the writer's own other process

		_, err := l.TryReplace(mine, "room=13")
		l.Refused(err, "the writer's replace", lab.Stale(mine))
		now := l.Get("shelf")

		table := l.Table("field", "as the writer read it", "as it is now", "managed by")
		var changed []string
		for _, field := range []string{"color", "size", "shape", "room"} {
			was, is := lab.Fields(mine, field), lab.Fields(now, field)
			table.Row(field, was, is, l.OwnersOf(now, field))
			if was != is {
				changed = append(changed, field)
			}
		}
		table.Row("resourceVersion", mine.GetResourceVersion(), now.GetResourceVersion(), "")
		table.End()
		l.Equal("what changed", changed, []string{"color", "size", "shape"})
		l.Equal("the owner of color", l.OwnersOf(now, "color"), "rival by Update")
		l.Equal("the owner of size", l.OwnersOf(now, "size"), "nobody")
		l.Equal("the owner of shape", l.OwnersOf(now, "shape"), "writer by Update")

		again := l.Replace(now, "room=13")
		l.Say("Somebody made progress, and it may have been you: another process wrote shape under the same name. The "+
			"writer's change is about room, so it decides the same again, on what is there now: 200, %s.",
			lab.Fields(again, "color", "size", "shape", "room"))
		l.Stored(again, "color=blue", "-size", "shape=square", "room=13")
		_, err = l.TryApply("shelf", "ann", false, "color=green")
		require.True(l, lab.HasCause(err, metav1.CauseTypeFieldManagerConflict), "applying the rival's field")
		l.Say("A 409 with the cause FieldManagerConflict is another thing. It shows no progress: the token is still %s.",
			l.Get("shelf").GetResourceVersion())
		l.Equal("the token after a FieldManagerConflict", l.Get("shelf").GetResourceVersion(), again.GetResourceVersion())
	})
}

func TestOT21_RefusalsNeedDifferentNextSteps(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21", From: "D2 paragraph 5",
		Says: "status, reason, causes and details of a refusal lead to the next step; some faces of 409 and 422 need a " +
			"live read first",
		Why: "to treat every error as a conflict repeats what can never succeed, and to treat every 409 alike retries what " +
			"no retry can settle, or reads again what was never stored",
		Do:      "Choose by status, reason, causes and details; by the message only where nothing else tells.",
		FalseIf: world.AGatewayHidesTheReason.Shows(`the step after a replace after a delete is see what is served`),
		AlsoFalseIf: []world.World{
			world.RefusalsLoseTheirCauses.Shows(`the step after apply to another's field is read it live`),
			world.EtcdIgnoresTheCompare.Shows(`create under a busy quota was accepted`),
			world.SomebodyIsFasterAt(1, http.MethodPatch, "still").Shows(
				`the step after JSON patch, wrong test, read live, is decide again`),
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
		l.Say("Each of these answers says that this request stored nothing. An earlier attempt of it may have done so, one " +
			"of client-go's own included (OT21c, OT22, OT23). The 504 is known by its cause ResourceVersionTooLarge: it " +
			"refuses a read. A 504 without it is no answer about a write (OT21b). A 500 is not among them: a token that " +
			"cannot be parsed is one (OT43), and so is an answer of etcd that was lost.")
		l.Say("The test of a JSON patch is a precondition of your own: if the object has not moved, the patch is wrong. " +
			"RetryOnConflict does not repeat a 422 (CF7). The resourceVersion in the body of a patch is a check that answers " +
			"409 (CF7b). A replace after a delete is 201 where updates create (CF6b). What is being deleted can still be " +
			"written; only a new finalizer is refused, with 422 (CF8e). Of a number that a restored store has not reached, " +
			"the wait may never end: drop it, and list.")

		steps := l.Table("next step", "because")
		for step := answer.GoOn; step <= answer.Stop; step++ {
			steps.Row(step, step.Because())
		}
		steps.End()
		l.Say("The last two, read back and stop, are for a write without an answer: see OT21b. See OT21f for 403, and OT24 " +
			"for what is served.")
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
	see(err, advice{"a body that is no JSON", "400 BadRequest", answer.FixTheRequest})
	err = readWithBearerToken(l, "not-issued")
	see(err, advice{"a bearer token that nobody issued", "401 Unauthorized", answer.ProveWhoYouAre})
	_, err = l.AsUser("stranger").TryReplace(shelf, "color=green")
	see(err, advice{"a user without a role", "403 Forbidden", answer.SeeWhoForbidsIt})
	_, err = l.TryReplace(gone, "color=green")
	see(err, advice{"a replace after a delete", "404 NotFound", answer.LetGo})
	nowhere := strings.ReplaceAll(l.Path(""), l.Namespace, "nowhere")
	_, err = l.TryRaw(http.MethodPost, nowhere, "", []byte(`{"metadata":{"name":"shelf"}}`))
	see(err, advice{"a create in a missing namespace", "404 NotFound, namespaces", answer.FixTheRequest})
	_, err = shelves.Watch("1").TryNext()
	see(err, advice{"a watch from revision 1", "410 Expired", answer.ListAgain})
	_, err = shelves.TryPatch("custom", types.StrategicMergePatchType, `{"spec":{"color":"green"}}`)
	see(err, advice{"a patch format that the kind lacks", "415 UnsupportedMediaType", answer.FixTheRequest})
	_, err = shelves.TryReplace(lab.WithToken(custom, ""), "color=green")
	see(err, advice{"no token where the kind wants one", "422 Invalid", answer.FixTheRequest})
	_, err = l.TryCreate("shelf", "a b=green")
	see(err, advice{"a taken name with invalid data", "422 Invalid", answer.FixTheRequest})
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
	still := l.Create("still", "color=red")
	_, err = l.TryPatch("still", types.JSONPatchType, `[{"op":"test","path":"/data/color","value":"blue"}]`)
	read(err, reading{"JSON patch, wrong test", "422 Invalid", still, answer.FixTheRequest})
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

func TestOT21f_AForbiddenRequestDoesNotSayWhoForbidsIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21f", From: "D2 paragraph 5; +",
		Says: "a 403 comes from a missing role, a quota or a policy alike, and only its message says which; a terminating " +
			"namespace names a cause",
		Why: "a controller that takes every 403 for a missing role asks for rights that it has, and retries in a namespace " +
			"that takes nothing new",
		Do:      "On 403 look for the cause NamespaceTerminating; otherwise show the message to a person.",
		FalseIf: world.RefusalsLoseTheirCauses.Shows(`a create in a namespace that ends is see who forbids it`),
		AlsoFalseIf: []world.World{
			world.DeletesAreDryRuns.Shows(`a create in a namespace that ends was accepted`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle", "(*Lifecycle).Admit"),
		Answers: "#40 #71",
	}, func(l *lab.Lab) {
		for name, level := range map[string]string{"strict": "restricted", "ending": "privileged"} {
			o := l.Of(lab.Namespace).New(l.Namespace + "-" + name)
			o.SetLabels(map[string]string{"pod-security.kubernetes.io/enforce": level})
			l.Of(lab.Namespace).CreateObject(o)
		}
		shelf := l.Create("shelf", "color=red")
		table := l.Table("request", "details.kind", "causes", "next step", "in the message")
		see := func(err error, request string, next answer.Step, says string) {
			want := advice{request, "403 Forbidden", next}
			want.expect(l, err)
			refusal := l.Refused(err, request, lab.Refusal{Code: 403, Reason: metav1.StatusReasonForbidden, Says: says})
			table.Row(request, refusal.Kind, refusal.Cause(), next, "… "+says+" …")
		}

		_, err := l.AsUser("stranger").TryReplace(shelf, "color=green")
		see(err, "a replace without a role", answer.SeeWhoForbidsIt, `User "stranger" cannot update`)
		see(readWithBearerToken(l, ""), "a read without credentials", answer.SeeWhoForbidsIt, `User "system:anonymous"`)
		l.LimitConfigMaps(9, 9)
		_, err = l.TryCreate("counted", "color=green")
		see(err, "a create over the quota", answer.SeeWhoForbidsIt, "exceeded quota: quota")
		err = sendBeside(l, "strict", http.MethodPost, l.Of(lab.Pod).New("pod"))
		pod := advice{"a Pod that a policy forbids", "403 Forbidden", answer.SeeWhoForbidsIt}
		pod.expect(l, err)
		table.Row(pod.request, "pods", l.Refusal(err, pod.request).Cause(), pod.next, "… violates PodSecurity …")
		l.Refused(err, pod.request, lab.Refusal{Code: 403, Reason: metav1.StatusReasonForbidden,
			Says: "violates PodSecurity"})

		require.NoError(l, sendBeside(l, "ending", http.MethodPost, l.New("shelf")), "creating a ConfigMap beside")
		l.Of(lab.Namespace).Delete(l.Namespace + "-ending")
		err = sendBeside(l, "ending", http.MethodPut, l.New("shelf", "color=green"))
		l.Accepted(err, "a replace in a namespace that is being deleted")
		err = sendBeside(l, "ending", http.MethodPost, l.New("another"))
		see(err, "a create in a namespace that ends", answer.LeaveTheNamespace, "because it is being terminated")
		table.End()
		l.Say("A replace in the namespace that is being deleted is 200: its objects can still be written, so that " +
			"finalizers can be taken off.")
	})
}

// sendBeside sends an object to a namespace beside the lesson's own.
func sendBeside(l *lab.Lab, name, verb string, o *lab.Object) error {
	beside := l.Namespace + "-" + name
	o.SetNamespace(beside)
	body, err := o.MarshalJSON()
	require.NoError(l, err, "encoding "+o.GetName())
	c := l.Of(lab.ConfigMap)
	if o.GetKind() == lab.Pod.Kind {
		c = l.Of(lab.Pod)
	}
	path := c.Path("")
	if verb == http.MethodPut {
		path = c.Path(o.GetName())
	}
	_, err = l.TryRaw(verb, strings.Replace(path, l.Namespace, beside, 1), "", body)
	return err
}

func TestOT21d_ANumberThatExpiredAtOneServerMayStillBeKnownAtAnother(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21d", From: "D2 paragraph 5; +",
		Says: "410 says that the number is older than what this apiserver's cache remembers; another may know it, and a " +
			"fresh list leads on",
		Why: "a client that repeats its watch from that number at one server never sees anything; and what was deleted " +
			"meanwhile it learns from the list only",
		Do:      "On 410 list again, compare with what you knew, and watch from the list's number.",
		FalseIf: theSecondServerKnowsTheKindFromTheBeginning.Shows(`a watch at the second apiserver was accepted`),
		AlsoFalseIf: []world.World{
			world.KeysOutliveTheirDeletion.Shows(`what the list lacks is none`),
			world.ListsReportAnItemsNumber.Shows(`a watch from the list's number was refused: 410 Expired`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*watchCache).getAllEventsSinceLocked"),
		Answers: "#59 #60",
	}, func(l *lab.Lab) {
		defer l.KeepHistory()()
		kind := l.CustomResource()
		first, second := l.Of(kind), l.AtSecondAPIServer("second").Of(kind)
		begin := first.Create("a", "color=red").GetResourceVersion()
		first.Create("b", "color=red")
		known := []string{"a", "b"} // by the client, when it last listened
		first.Delete("b")
		l.Until("the second apiserver serves the kind", func() (bool, error) {
			_, err := second.TryList(metav1.ListOptions{ResourceVersion: "0"})
			return err == nil, ignoreNotServed(err)
		})

		table := l.Table("request", "at", "answer")
		for range 2 {
			_, err := second.Watch(begin).TryNext()
			table.Row("watch from "+begin, "the second apiserver", l.Answered()+", then an ERROR event: "+lab.AnswerLine(err))
			l.Refused(err, "a watch at the second apiserver", lab.Refusal{Code: 410, Reason: metav1.StatusReasonExpired})
			l.Equal("the HTTP status of a watch that is too old", l.Answered(), "200")
		}
		event, err := first.Watch(begin).TryNext()
		l.Accepted(err, "a watch from the same number at the first apiserver")
		table.Row("watch from "+begin, "the first apiserver", "200, "+event.Type+" "+event.Name)
		then, err := second.TryList(metav1.ListOptions{
			ResourceVersion: begin, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		})
		l.Accepted(err, "an Exact list at that number, which etcd answers,")
		table.Row("list, Exact at "+begin, "the second apiserver", fmt.Sprintf("200, %d item", len(then.Items)))
		list := second.List()
		table.Row("list", "the second apiserver",
			fmt.Sprintf("200, %d item, resourceVersion %s", len(list.Items), list.GetResourceVersion()))
		missing := slices.DeleteFunc(known, func(name string) bool {
			return slices.ContainsFunc(list.Items, func(o lab.Object) bool { return o.GetName() == name })
		})
		last := first.Create("c", "color=red")
		event, err = second.Watch(list.GetResourceVersion()).TryNext()
		l.Accepted(err, "a watch from the list's number")
		table.Row("watch from "+list.GetResourceVersion(), "the second apiserver", "200, "+event.Type+" "+event.Name)
		table.End()
		l.Say("An apiserver remembers the events since its cache began, and of those only the newest. The second began " +
			"when it was first asked for the kind. The client knew of a and b, and the list lacks b: b was deleted, and no " +
			"event will say so. Watch from the list's own number: that of its newest item may be older (RV6).")
		l.Say("A watch without a number leads on as well: it begins with what is there. A 410 in the middle of a list in " +
			"pages brings a token to go on with, at another revision than the pages before (RV11).")
		l.Equal("what the list lacks", missing, []string{"b"})
		l.Equal("the first event after the list", event.ResourceVersion, last.GetResourceVersion())
	})
}

// ignoreNotServed is err, unless it says that a kind is not served yet.
func ignoreNotServed(err error) error {
	if lab.IsNotFound(err) || apierrors.IsTooManyRequests(err) {
		return nil
	}
	return err
}

var theSecondServerKnowsTheKindFromTheBeginning = world.New(
	"the second apiserver has served the kind for as long as the first", func(l *lab.Lab) {
		var once sync.Once
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Verb == http.MethodPost && c.Who == "writer" },
			Do: func(int) {
				once.Do(func() {
					early := l.AtSecondAPIServer("early")
					path := strings.Replace(early.Path(""), "/api/v1", "/apis/"+l.Namespace+".modrev.example/v1", 1)
					path = strings.Replace(path, "configmaps", "shelves", 1)
					l.Until("the second apiserver serves the kind", func() (bool, error) {
						_, err := early.TryRaw(http.MethodGet, path, "resourceVersion=0", nil)
						return err == nil, ignoreNotServed(err)
					})
				})
			},
		})
	})

func TestOT21g_AWatchFromTheFutureIsSilentAndMissesWhatComesFirst(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21g", From: "D2 paragraph 5; +",
		Says: "a watch from a number that the store has not reached is not refused, and silently leaves out all events up " +
			"to that number",
		Why: "a number of another cluster, or of a store before it was restored, makes a watch deaf for as long as the " +
			"store takes to get there",
		Do:      "Throw away numbers of another cluster or of a restored store, and list.",
		FalseIf: world.AProxyStripsTheRevision.Shows(`what the watch from the future saw is .*d`),
		Read:    source.Decl("k8s.io/apiserver/pkg/storage/cacher", "(*Cacher).Watch"),
		Answers: "#60",
	}, func(l *lab.Lab) {
		const ahead = 300 // further than other writers to this etcd come while d is created
		shelves := l.Of(l.CustomResource())
		shelves.Create("c", "color=red")
		future := l.Revision() + ahead
		watch := shelves.Watch(strconv.FormatInt(future, 10))
		missed := shelves.Create("d", "color=red")
		for reached := int64(0); reached < future; {
			put, err := l.Etcd().Put(l.Context(), "/not-kubernetes/"+l.Namespace, "x")
			require.NoError(l, err, "writing a key of our own into etcd")
			reached = put.Header.Revision
		}
		var seen []string
		for _, event := range watch.Until(shelves.Create("e", "color=red").GetResourceVersion()) {
			seen = append(seen, event.Name)
		}
		l.Say("Begun at revision %d: a watch from %d. Then d is created, at %s, and e, once the store has got there. The "+
			"watch delivers: %s.", future-ahead, future, missed.GetResourceVersion(), strings.Join(seen, ", "))
		l.Expect(number(missed) < future, "d is created before the store gets to the future",
			"it is at %s", missed.GetResourceVersion())
		l.Equal("what the watch from the future saw", seen, []string{"e"})
	})
}

func TestOT24_NotFoundDoesNotProveThatTheObjectIsGone(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT24", From: "D2 paragraph 5",
		Says: "only a live 404 that names the object says that it is gone; a version or subresource that is not served is " +
			"404 too",
		Why: "404 lets you clean up what belonged to the uid; cleaned up for a 404 about something else, the object loses " +
			"what it still needs",
		Do:      "Clean up only on a live GET's 404 whose details name the object.",
		FalseIf: theServerSpeaksOfWhatItDoesNotServe.Shows(`a write of /status of a ConfigMap is read it live`),
		AlsoFalseIf: []world.World{
			world.KeysOutliveTheirDeletion.Shows(`a replace after its deletion was accepted`),
			world.ZeroAsksForTheNewest.Shows(`a read with "0" from a cache that lags was accepted`),
		},
		Read:    source.Decl("k8s.io/apimachinery/pkg/api/errors", "NewGenericServerResponse"),
		Answers: "#11",
	}, func(l *lab.Lab) {
		kind := l.CustomResource()
		shelves := l.Of(kind)
		shelf, gone := shelves.Create("shelf", "color=red"), shelves.Create("gone", "color=red")
		shelves.Delete("gone")
		table := l.Table("request", "answer", "cause", "in etcd", "next step")
		of := func(resource string, err error, request string, o *lab.Object, stored string, next answer.Step) {
			refusal := l.Refused(err, request, lab.Refusal{Code: 404, Reason: metav1.StatusReasonNotFound})
			step, _ := answer.Next(err, resource, o.GetKind())
			is := map[bool]string{true: "there", false: "gone"}[l.Exists(o)]
			table.Row(request, refusal.CodeAndReason()+" about "+refusal.Details(), refusal.Cause(), is, step)
			l.Equal("the object in etcd, after "+request+",", is, stored)
			l.Equal("the step after "+request, step, next)
		}

		see := func(err error, request string, o *lab.Object, stored string, next answer.Step) {
			of(kind.Resource, err, request, o, stored, next)
		}

		_, err := shelves.TryReplace(gone)
		see(err, "a replace after its deletion", gone, "gone", answer.LetGo)
		book := l.Create("book", "color=red")
		_, err = l.Sub("status").TryReplace(book)
		of("configmaps/status", err, "a write of /status of a ConfigMap", book, "there", answer.SeeWhatIsServed)
		_, err = shelves.Sub("status").TryReplace(shelf)
		of("shelves/status", err, "a write of /status of a Shelf", shelf, "there", answer.ReadIt)
		l.Settle(shelf)
		l.Wire.Freeze(kind.StoragePrefix())
		unseen := shelves.Create("unseen", "color=red")
		_, err = shelves.TryGetAt("unseen", "0")
		see(err, `a read with "0" from a cache that lags`, unseen, "there", answer.LetGo)
		stopServing(l, kind)
		_, err = shelves.TryReplace(shelf)
		see(err, "a replace through a version that is not served", shelf, "there", answer.SeeWhatIsServed)
		table.End()
		l.Say("IsNotFound is true for all of them. Where nothing is served, the refusal names no object, or it is a page: " +
			"then a typed client makes up details that name the object of the request. The /status that a custom resource " +
			"lacks is refused in the words of the first row: read the object itself. The read with \"0\" is the trap: it is " +
			"not live, and letting go would be wrong. A replace is checked in etcd before it is refused (GU5b).")
	})
}

// stopServing has kube-apiserver serve a custom resource no longer: its definition stays, and its objects do.
func stopServing(l *lab.Lab, kind lab.Kind) {
	_, err := l.Of(lab.CustomResourceDefinition).TryPatch(kind.Definition(), types.JSONPatchType,
		`[{"op":"replace","path":"/spec/versions/0/served","value":false}]`)
	require.NoError(l, err, "taking a version out of service")
	l.Until("the version is served no longer", func() (bool, error) {
		_, err := l.As("onlooker").Of(kind).TryList(metav1.ListOptions{})
		return err != nil, ignoreNotServed(err)
	})
}

var theServerSpeaksOfWhatItDoesNotServe = world.New(
	"the server says of whatever it does not serve that the object is not found", func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{
			Note: "said to be about the object",
			Answer: func(resp *http.Response, body []byte) []byte {
				if resp.StatusCode != http.StatusNotFound || strings.Contains(string(body), `"kind":"shelves"`) {
					return body
				}
				resp.Header.Set("Content-Type", "application/json")
				status := apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "book").Status()
				status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
				said, err := json.Marshal(status)
				if err != nil {
					return body
				}
				return said
			},
		})
	})
