// Chapter 4, continued: answers that get lost.
package modrev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"modrev/helpers/answer"
	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT21b_AWriteWithoutAnAnswerMayBeStoredOrNot(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21b", From: "D2 paragraph 5",
		Says: "when the answer does not come, or is a 500 or a 504, nobody can say whether the write was stored: the same " +
			"words are heard when it was and when it was not; only a connection that never came about is a no",
		Why: "a lost answer is not a refusal; the one next step that is right in both cases is to read back and compare, when what " +
			"was sent can no longer come",
		FalseIf: world.UnansweredWritesAreUndone.Shows(
			`etcd does it, reports a timeout: 500, stored: no`),
		AlsoFalseIf: []world.World{world.ClientDropsTheToken.Shows(`the first attempt, after the same sent again, was accepted`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/server/filters", "WithTimeoutForNonLongRunningRequests"),
		Answers:     "#6 #8 #61 #68",
	}, func(l *lab.Lab) {
		put := func(ctx context.Context, c *lab.Client, o *lab.Object, query string) error {
			body, err := json.Marshal(lab.With(o, "color=green").Object)
			if err != nil {
				return err
			}
			_, err = c.TryRawWithin(ctx, http.MethodPut, c.Path(o.GetName()), query, body)
			return err
		}
		create := func(name string) (*lab.Object, wire.Match) {
			o := l.Create(name, "color=red")
			return o, wire.TxnOn(l.Key(o))
		}
		table := l.Table("what happens", "what the client gets", "stored", "known", "next step")
		row := func(what string, err error, o *lab.Object, want string, known answer.Stored, next answer.Step) {
			stored := map[bool]string{true: "yes", false: "no"}[lab.Field(l.Get(o.GetName()), "color") == "green"]
			step, knows := answer.Next(err, l.Kind().Resource, l.Kind().Kind)
			gets := lab.RootCause(err)
			if strings.HasPrefix(what, "its deadline") { // which of the two is up to a race within kube-apiserver
				gets = "504, or the stream breaks"
			}
			table.Row(what, gets, stored, knows, step)
			l.Expect(err != nil && stored == want, what+": no answer, stored: "+want, "%s: %s, stored: %s", what, lab.RootCause(err), stored)
			l.Expect(step == next && knows == known, what+": "+next.String(), "%s: %s, %s", what, lab.RootCause(err), step)
		}

		// The deadlines run while the others are tried.
		lateBefore, txn := create("late-before")
		before := l.PastDeadline(l.Wire.HoldNoting(txn, "held past the deadline"), func(q string) error { return put(l.Context(), l.As("late"), lateBefore, q) })
		lateAfter, txn := create("late-after")
		after := l.PastDeadline(l.Wire.HoldAnswer(txn), func(q string) error { return put(l.Context(), l.As("late"), lateAfter, q) })

		o, _ := create("unplugged-before")
		row("nobody listens there", put(l.Context(), l.As("unplugged").Unplugged(), o, ""), o, "no", answer.No, answer.WaitAndRepeat)

		o, txn = create("etcd-before")
		l.Wire.Add(&wire.Rule{When: txn, Err: rpctypes.ErrGRPCTimeout})
		no := put(l.Context(), l.Client, o, "")
		row("etcd refuses, reports a timeout", no, o, "no", answer.Unknown, answer.ReadBack)
		o, txn = create("etcd-after")
		l.Wire.Add(&wire.Rule{When: txn, Lost: rpctypes.ErrGRPCTimeout})
		yes := put(l.Context(), l.Client, o, "")
		row("etcd does it, reports a timeout", yes, o, "yes", answer.Unknown, answer.ReadBack)
		l.Expect(lab.AnswerLine(no) == lab.AnswerLine(yes), "both get the same answer", "they get %s and %s", lab.AnswerLine(no), lab.AnswerLine(yes))

		cut, cable := l.As("cut").OnCable()
		o, txn = create("cut-before")
		err := l.Interrupted(l.Wire.HoldNoting(txn, "held until the connection was cut"), func() error { return put(l.Context(), cut, o, "") }, cable.Cut)
		row("the connection breaks before", err, o, "no", answer.Unknown, answer.ReadBack)
		o, txn = create("cut-after")
		err = l.Interrupted(l.Wire.HoldAnswer(txn), func() error { return put(l.Context(), cut, o, "") }, cable.Cut)
		row("the connection breaks after", err, o, "yes", answer.Unknown, answer.ReadBack)

		ctx, cancel := context.WithCancel(l.Context())
		o, txn = create("cancelled-before")
		err = l.Interrupted(l.Wire.HoldNoting(txn, "held until its caller had given up"), func() error { return put(ctx, l.Client, o, "") }, cancel)
		row("the caller cancels it before", err, o, "no", answer.Unknown, answer.Stop)
		ctx, cancel = context.WithCancel(l.Context())
		o, txn = create("cancelled-after")
		err = l.Interrupted(l.Wire.HoldAnswer(txn), func() error { return put(ctx, l.Client, o, "") }, cancel)
		row("the caller cancels it after", err, o, "yes", answer.Unknown, answer.Stop)

		row("its deadline ends before", before.Wait(), lateBefore, "no", answer.Unknown, answer.ReadBack)
		row("its deadline ends after", after.Wait(), lateAfter, "yes", answer.Unknown, answer.ReadBack)
		table.End()

		table = l.Table("while the first attempt is on its way, the client", "reads", "then the first is answered")
		for _, again := range []bool{false, true} {
			o := l.Create(fmt.Sprintf("under-way-%t", again), "color=red")
			what, read := "reads back", ""
			var second error
			first := l.Race(l.Key(o), func() error { return put(l.Context(), l.As("first"), o, "") }, func() {
				if again {
					second = put(l.Context(), l.Client, o, "")
					what = "sends the same again: " + lab.AnswerLine(second) + "; and reads back"
				}
				read = "color=" + lab.Field(l.Get(o.GetName()), "color")
			})
			table.Row(what, read, lab.AnswerLine(first))
			if again {
				l.Accepted(second, "the same sent again")
				l.Refused(first, "the first attempt, after the same sent again,", lab.Stale(o))
			} else {
				l.Accepted(first, "the first attempt, arriving after the reading")
				l.Expect(read == "color=red", "the reading came too early", "it read %s", read)
			}
			l.Stored(o, "color=green")
		}
		table.End()
		l.Say("So a reading is final once the token that was sent is used up: the same sent again is answered 200, or 409 because " +
			"the object has moved (OT22), and after either the first attempt fits no more. What was sent without a token may " +
			"still come.")
		l.Say("At a deadline kube-apiserver answers 504; when that catches it in the middle of another answer, it breaks off " +
			"the stream instead. The 504 with the cause ResourceVersionTooLarge (OT21) is another: it answers a read, of which " +
			"it is known that nothing was stored. A 500 is given for a token that cannot be parsed, too, and then nothing was " +
			"stored (OT43); as only the message differs, the next step is the same: read back. To stop is the next step of one " +
			"who gave up himself; if he wants to know, he reads back as well.")
	})
}

func TestOT21c_OneCallMayBeElevenRequests(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT21c", From: "D2 paragraph 5; +",
		Says: "one call of client-go can be eleven requests: it repeats by itself what is answered with a 429 or a 5xx that " +
			"carries a Retry-After, and a GET whose connection broke; a write whose connection broke it sends once",
		Why: "an own loop around such a call multiplies its requests, and a create can be refused because of itself; " +
			"MaxRetries(0) makes it send one",
		FalseIf: world.TheServerNeverSaysWhenToRepeat.Shows(
			`an eviction, 429 .*: 1 request`),
		Read:    source.Decl("k8s.io/client-go/rest", "(*withRetry).IsNextRetry"),
		Answers: "#8 #61",
	}, func(l *lab.Lab) {
		shelf := l.Create("shelf", "color=red")
		body, err := json.Marshal(lab.With(shelf, "color=green").Object)
		l.Step(err, "encoding shelf")
		eviction := l.ForbiddenEviction()
		client, cable := l.As("client").OnCable()
		// The connection breaks once, when the request is at etcd's door.
		cutOnce := func(when wire.Match) {
			l.Wire.Add(&wire.Rule{When: when, Times: 1, Do: func(int) { cable.Cut() }})
		}

		table := l.Table("one call", "requests", "and ends with")
		count := func(what string, want int, do func() error) {
			from := l.Wire.Tape().Now()
			err := do()
			n := len(l.Wire.Tape().Calls(from))
			table.Row(what, n, lab.RootCause(err))
			l.Expect(n == want, fmt.Sprintf("%s: %d requests", what, want), "%s: %d request(s)", what, n)
		}
		count("an eviction, 429 and Retry-After: 10", 11, func() error {
			return client.TryRawByDefault(http.MethodPost, eviction.Path, "", eviction.Body)
		})
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Who == "client" }, Times: 1, Note: "a gateway took out the Retry-After",
			Answer: func(resp *http.Response, body []byte) []byte { resp.Header.Del("Retry-After"); return body },
		})
		count("the same without Retry-After", 1, func() error {
			return client.TryRawByDefault(http.MethodPost, eviction.Path, "", eviction.Body)
		})
		count("the same with MaxRetries(0)", 1, func() error { return client.TryEvict(eviction) })
		l.Wire.AddHTTP(&wire.HTTPRule{
			When: func(c *wire.Call) bool { return c.Who == "client" && c.Path == "configmaps" }, Times: 1, Note: "a gateway's answer",
			Answer: func(resp *http.Response, body []byte) []byte {
				resp.StatusCode = http.StatusServiceUnavailable
				resp.Header.Set("Retry-After", "1")
				return body
			},
		})
		another, err := json.Marshal(l.New("another", "color=red").Object)
		l.Step(err, "encoding another")
		count("a create, once 503 and Retry-After: 1", 2, func() error {
			return client.TryRawByDefault(http.MethodPost, client.Path(""), "", another)
		})
		cutOnce(wire.ReadOf(l.Key(shelf)))
		count("a GET whose connection breaks", 2, func() error {
			return client.TryRawByDefault(http.MethodGet, client.Path("shelf"), "", nil)
		})
		cutOnce(wire.TxnOn(l.Key(shelf)))
		count("a PUT whose connection breaks", 1, func() error {
			return client.TryRawByDefault(http.MethodPut, client.Path("shelf"), "", body)
		})
		table.End()
		l.Say("Retry-After is in seconds, and client-go waits that long before each repetition: the first call would have taken " +
			"10 times 10 s, had the waits not been left out here. The 503 is that of a gateway, which had passed the create on; client-go " +
			"then meets its own object, and its caller is told AlreadyExists by the only call that he made (OT23).")
	})
}

func TestOT22_AConflictMayBeYourOwnLostSuccess(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT22", From: "D2 paragraph 5",
		Says: "when a write was stored and its answer was lost, the same write sent again conflicts with its own success: 409, " +
			"although nobody else wrote; reading back and comparing shows that the work is done",
		Why:     "who takes the lost answer for a failure, or that 409 for somebody else's work, does the work twice",
		FalseIf: world.TheFirst(http.MethodPut).Shows(`the same write sent again was accepted`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`the same write sent again was accepted`),
			world.SomebodyIsAlwaysFaster("careful").Shows(`it carries ""`),
		},
		Read:    source.Decl("k8s.io/apiserver/pkg/registry/generic/registry", "(*Store).Update"),
		Answers: "#6",
	}, func(l *lab.Lab) {
		const attempt = "metadata.annotations.attempt"
		table := l.Table("add 1 to count=0", "careful", "hasty")
		lost, again := map[string]error{}, map[string]error{}
		for _, who := range []string{"careful", "hasty"} {
			l.Wire.AddHTTP(&wire.HTTPRule{Lose: true, Times: 1, When: func(c *wire.Call) bool {
				return c.Who == who && c.Verb == http.MethodPut
			}})
			o := l.As(who).New(who, "count=0")
			o, err := l.As(who).TryCreateObject(o)
			l.Step(err, "creating "+who)
			mine := lab.With(o, "count=1", attempt+"="+who+"-1")
			_, lost[who] = l.As(who).TryReplace(mine)
			_, again[who] = l.As(who).TryReplace(mine)
			l.Expect(again[who] != nil, "the same write sent again is refused", "the same write sent again was accepted")
			l.Refused(again[who], "the same write sent again", lab.Stale(o))
		}
		short := func(err error) string {
			if errors.Is(err, wire.ErrAnswerLost) {
				return "(no answer)"
			}
			return lab.AnswerLine(err)
		}
		table.Row("replace, count=1, marked as attempt 1", short(lost["careful"]), short(lost["hasty"]))
		table.Row("the same again", short(again["careful"]), short(again["hasty"]))

		careful, hasty := l.As("careful").Get("careful"), l.As("hasty").Get("hasty")
		read := func(o *lab.Object) string { return "count=" + lab.Field(o, "count") + ", " + lab.Field(o, attempt) }
		table.Row("read back", read(careful), read(hasty))
		l.Expect(lab.Field(careful, attempt) == "careful-1", "what is stored carries the mark of the lost attempt",
			"it carries %q", lab.Field(careful, attempt))
		hasty = l.As("hasty").Replace(hasty, "count=2", attempt+"=hasty-2") // adds 1 to what it read
		table.Row("decides", "it is mine, so it is done", "somebody wrote, so add 1 again")
		table.Row("stored in the end", "count="+lab.Field(careful, "count"), "count="+lab.Field(hasty, "count"))
		table.Row("writes to storage since the create", l.KV(careful).Version-1, l.KV(hasty).Version-1)
		table.End()

		l.Expect(l.KV(careful).Version == 2, "the lost write was one storage write, and the conflict none",
			"the key has been written %d times", l.KV(careful).Version)
		l.Stored(careful, "count=1")
		l.Stored(hasty, "count=2") // although it was asked to add 1 once
	})
}

func TestOT23_AlreadyExistsMayBeYourself(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT23", From: "D2 paragraph 5",
		Says: "when the answer to a create is lost, the same create again is refused with AlreadyExists, in the same words as " +
			"when a stranger took the name; only what is stored there tells them apart",
		Why: "AlreadyExists after a retry is neither a success nor a failure; it is a reason to look, and there must be " +
			"something to look for, such as a mark of the attempt",
		FalseIf:     world.TheFirst(http.MethodPost).Shows(`the create sent again was accepted`),
		AlsoFalseIf: []world.World{world.AnnotationsAreDropped.Shows(`the marks are "" and ""`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/storage/errors", "InterpretCreateError"),
		Answers:     "#7",
	}, func(l *lab.Lab) {
		const attempt = "metadata.annotations.attempt"
		l.Wire.AddHTTP(&wire.HTTPRule{Lose: true, Times: 1, When: func(c *wire.Call) bool {
			return c.Who == "writer" && c.Verb == http.MethodPost
		}})
		_, lost := l.TryCreate("mine", "color=red", attempt+"=writer-1")
		_, mine := l.TryCreate("mine", "color=red", attempt+"=writer-1")
		l.Expect(mine != nil, "the create sent again is refused", "the create sent again was accepted")
		l.Rival().Create("theirs", "color=red", attempt+"=rival-7")
		_, theirs := l.TryCreate("theirs", "color=red", attempt+"=writer-2")

		table := l.Table("", "configmaps/mine", "configmaps/theirs")
		table.Row("the writer's create", map[bool]string{true: "(no answer)"}[errors.Is(lost, wire.ErrAnswerLost)], "")
		table.Row("the same again", lab.AnswerLine(mine), lab.AnswerLine(theirs))
		a, b := lab.Field(l.Get("mine"), attempt), lab.Field(l.Get("theirs"), attempt)
		table.Row("attempt that made it", a, b)
		table.Row("so it is", "mine: go on", "a stranger's: another name, or give up")
		table.End()
		l.Say("%s", l.Describe(mine))
		l.Say("%s", l.Describe(theirs))

		l.Refused(mine, "the create sent again", lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists})
		l.Refused(theirs, "the create of a name that is taken", lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists})
		l.Expect(strings.ReplaceAll(mine.Error(), "mine", "N") == strings.ReplaceAll(theirs.Error(), "theirs", "N"),
			"the words are the same but for the name", "they are %q and %q", mine, theirs)
		l.Expect(a == "writer-1" && b == "rival-7", "the mark tells whose each is", "the marks are %q and %q", a, b)
	})
}

func TestOT23b_ALostCreateWithAGeneratedNameMakesTwoObjects(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT23b", From: "D2 paragraph 5",
		Says: "when the answer to a create with generateName is lost and it is sent again, there are two objects, and no error " +
			"says so; with a name of the client's own there is one",
		Why: "nothing collides when the server makes the name, so nothing warns; the first object is an orphan of which " +
			"nobody knows",
		FalseIf:     world.ClientNamesWhatItCreates.Shows(`the create sent again was refused: 409 AlreadyExists`),
		AlsoFalseIf: []world.World{world.TheFirst(http.MethodPost).Shows(`1 are: \[shelf-\w+\]`)},
		Read:        source.Decl("k8s.io/apiserver/pkg/registry/rest", "BeforeCreate"),
		Answers:     "#8 #68",
	}, func(l *lab.Lab) {
		l.Wire.AddHTTP(&wire.HTTPRule{Lose: true, Times: 1, When: func(c *wire.Call) bool { return c.Verb == http.MethodPost }})
		o := l.New("", "color=red")
		o.SetGenerateName("shelf-")
		var second *lab.Object
		var first, err error
		sent := l.Record(func() {
			_, first = l.TryCreateObject(o)
			second, err = l.TryCreateObject(o)
		})
		l.Expect(errors.Is(first, wire.ErrAnswerLost), "the first answer is lost", "it is: %v", first)
		l.Accepted(err, "the create sent again")

		table := l.Table("create generateName: shelf-", "answer")
		table.Row("first", "(no answer)")
		table.Row("again", "201, "+second.GetName())
		table.End()
		l.Show("POST configmaps, twice", sent)
		list := l.List().Items
		names := make([]string, len(list))
		for i, o := range list {
			names[i] = o.GetName()
		}
		l.Say("Stored: %s. The client knows of %s.", strings.Join(names, ", "), second.GetName())
		l.Expect(len(list) == 2, "two objects are stored", "%d are: %v", len(list), names)
	})
}

func TestOT23c_AlreadyExistsIsSettledByTheUIDOfTheOwner(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT23c", From: "D2 paragraph 1, 5",
		Says: "whether a child that already exists is one's own says the uid in its controller's owner reference, not its name " +
			"and not the owner's name",
		Why:         "to fail for ever on one's own child is as wrong as to adopt the child of a past owner of the same name",
		FalseIf:     world.UIDsBelongToNames.Shows(`the child of the past owner looks like ours`),
		AlsoFalseIf: []world.World{world.EtcdIgnoresTheCompareOfACreate.Shows(`the create of child was accepted`)},
		Read:        source.Decl("k8s.io/apimachinery/pkg/apis/meta/v1", "IsControlledBy"),
		Answers:     "#69",
	}, func(l *lab.Lab) {
		childOf := func(owner *lab.Object, name string) *lab.Object {
			o := l.New(name, "color=red")
			o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
			return o
		}
		l.Create("owner", "a=1")
		past := l.Get("owner")
		_, err := l.TryCreateObject(childOf(past, "left-over"))
		l.Step(err, "creating a child of the past owner")
		l.Recreate("owner", "a=1")
		owner := l.Get("owner")
		_, err = l.TryCreateObject(childOf(owner, "child"))
		l.Step(err, "creating a child")

		table := l.Table("create again", "answer", "owner by name", "owner by uid", "so")
		ours := map[string]bool{}
		for _, name := range []string{"child", "left-over"} {
			_, err := l.TryCreateObject(childOf(owner, name))
			l.Refused(err, "the create of "+name, lab.Refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists})
			there := l.Get(name)
			ours[name] = metav1.IsControlledBy(there, owner)
			table.Row(name, lab.AnswerLine(err), there.GetOwnerReferences()[0].Name,
				map[bool]string{true: "the one that is", false: "one that was"}[ours[name]],
				map[bool]string{true: "adopt it", false: "not ours: fail"}[ours[name]])
		}
		table.End()
		l.Expect(ours["child"], "the child is ours", "the child looks like a stranger's")
		l.Expect(!ours["left-over"], "the child of the past owner is not ours", "the child of the past owner looks like ours")
	})
}
