// Chapter 4, continued: status speaks of a decision.
package modrev

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestOT39_ObservedGenerationIsThatOfTheWorkAndNotOfTheLastReading(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT39", From: "D2 paragraph 4; +",
		Says: "a report that takes observedGeneration from a fresh reading claims a spec that nobody has worked on, " +
			"and is accepted",
		Why: "the number says which decision the result belongs to: read again for the token, but keep the generation " +
			"that the work began with",
		Do:      "Remember the generation with the work, and report that one.",
		FalseIf: aLibraryFillsInTheGeneration.Shows(`observedGeneration after a report of the remembered one is 2`),
		AlsoFalseIf: []world.World{
			world.OlderTokensCount.Shows(`the report with the token of the work was accepted`),
			reportsNeverGoBack.Shows(`observedGeneration after a late report is 2`),
		},
		Read: source.Decl("k8s.io/apiextensions-apiserver/pkg/registry/customresource",
			"customResourceStrategy.PrepareForUpdate"),
		Answers: "#2 #90",
	}, func(l *lab.Lab) {
		kind := l.CustomResource("status")
		controller, user := l.As("controller").Of(kind), l.As("user").Of(kind)
		table := l.Table("controller", "answer", "size", "generation", "result", "observedGeneration", "looks done")
		report := func(what string, read *lab.Object, size string, generation int64) error {
			fields := []string{"status.result=" + size, fmt.Sprintf("status.observedGeneration=%d", generation)}
			_, err := controller.Sub("status").TryReplace(read, fields...)
			now := l.Of(kind).Peek("shelf")
			table.Row(what, lab.AnswerLine(err), lab.Field(now, "size"), now.GetGeneration(), lab.Field(now, "status.result"),
				lab.Field(now, "status.observedGeneration"), observed(now))
			return err
		}
		user.Create("shelf", "size=1")

		began := controller.Get("shelf") // and works, on size 1
		user.Set("shelf", "size=2")
		l.Refused(report("reports what it did for size 1", began, "1", began.GetGeneration()),
			"the report with the token of the work", lab.Stale(began))
		fresh := controller.Get("shelf")
		l.Accepted(report("reads again, reports the generation that it read", fresh, "1", fresh.GetGeneration()),
			"the report of a fresh generation")
		now := l.Of(kind).Peek("shelf")
		l.Equal("the result for size 1 under the generation of size 2",
			lab.Field(now, "status.result")+" of "+lab.Field(now, "size"), "1 of 2")
		l.Equal("whether it looks done", observed(now), true)

		fresh = controller.Get("shelf")
		l.Accepted(report("reads again, reports the generation that it remembers", fresh, "1", began.GetGeneration()),
			"the report of the remembered generation")
		l.Equal("observedGeneration after a report of the remembered one", observedGeneration(l.Of(kind).Peek("shelf")), 1)

		l.Accepted(report("has worked on size 2, and reports it", controller.Get("shelf"), "2", 2), "the report of size 2")
		l.Accepted(report("a slow worker reports size 1, with a fresh token", controller.Get("shelf"), "1", 1),
			"a late report")
		table.End()
		l.Equal("observedGeneration after a late report", observedGeneration(l.Of(kind).Peek("shelf")), 1)
		l.Say("The server compares tokens, and not generations: a fresh token lets you set the number back. If you are " +
			"slow, look first, and leave a greater number alone.")
	})
}

// observedGeneration is status.observedGeneration of an object.
func observedGeneration(o *lab.Object) int64 {
	n, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	return n
}

// observed says whether the status of an object is about its present spec.
func observed(o *lab.Object) bool { return observedGeneration(o) == o.GetGeneration() }

var observedOne = regexp.MustCompile(`"observedGeneration":1`)

// aLibraryFillsInTheGeneration has status writes say the generation of the copy that they send.
var aLibraryFillsInTheGeneration = world.New("a library fills in the generation that it read last", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return strings.HasSuffix(c.Path, "/status") }, Note: "the number was filled in",
		Request: func(_ *http.Request, body []byte) []byte {
			var o lab.Object
			if o.UnmarshalJSON(body) != nil {
				return body
			}
			return observedOne.ReplaceAll(body, fmt.Appendf(nil, `"observedGeneration":%d`, o.GetGeneration()))
		},
	})
})

// reportsNeverGoBack has a status write keep the result and the number that its sender has read, if that is greater.
var reportsNeverGoBack = world.New("the server keeps a greater observedGeneration", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return strings.HasSuffix(c.Path, "/status") }, Note: "the greater number was kept",
		Request: func(q *http.Request, body []byte) []byte {
			kind, name := servedAt(strings.TrimSuffix(q.URL.Path, "/status"))
			now := l.Of(kind).Peek(name)
			if lab.Field(now, "status.result") != "2" {
				return body
			}
			return bytes.Replace(observedOne.ReplaceAll(body, []byte(`"observedGeneration":2`)),
				[]byte(`"result":1`), []byte(`"result":2`), 1)
		},
	})
})

func TestOT39b_ReadyRightAfterYourWriteIsAboutTheSpecBefore(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT39b", From: "D2 paragraph 4; +",
		Says: "a change of a custom resource's spec resets no status: Ready=True right after your write is about " +
			"the condition's observedGeneration",
		Why: "wait for the condition alone and your script goes on at once; the condition has to speak of the " +
			"generation of your write",
		Do:      "Wait for the condition and for its observedGeneration.",
		FalseIf: aSpecWriteResetsStatus.Shows(`Ready right after the write is no condition`),
		AlsoFalseIf: []world.World{
			everyConditionIsRestamped.Shows(`whether Ready is about the present spec after another's report is true`),
		},
		Read: source.Decl("k8s.io/apiextensions-apiserver/pkg/registry/customresource",
			"customResourceStrategy.PrepareForUpdate"),
		Answers: "#91",
	}, func(l *lab.Lab) {
		kind := l.CustomResource("status")
		shelves, user := l.Of(kind), l.As("user").Of(kind)
		table := l.Table("step", "generation", "status says", "Ready says", "about",
			"waiting for Ready ends", "… and compares")
		row := func(step string) {
			now := shelves.Peek("shelf")
			ready, about := readyOf(now)
			table.Row(step, now.GetGeneration(), observedGeneration(now), ready, about, ready == "True",
				ready == "True" && about == now.GetGeneration())
		}
		report := func(status, condition int64) {
			body := fmt.Sprintf(`{"status":{"observedGeneration":%d,"conditions":[`+
				`{"type":"Ready","status":"True","observedGeneration":%d}]}}`, status, condition)
			l.As("controller").Of(kind).Sub("status").Patch("shelf", types.MergePatchType, body)
		}
		shelves.Create("shelf", "size=1")
		report(1, 1)
		row("the controller is done with size 1")

		written := user.Set("shelf", "size=2")
		row("the user writes size 2")
		now := shelves.Peek("shelf")
		ready, about := readyOf(now)
		l.Equal("Ready right after the write", ready, "True")
		l.Equal("the generation that it is about", about, 1)
		l.Equal("the generation of the write", written.GetGeneration(), 2)

		report(2, 1)
		row("another controller reports, and Ready stays")
		now = shelves.Peek("shelf")
		_, about = readyOf(now)
		l.Equal("whether status is about the present spec after another's report", observed(now), true)
		l.Equal("whether Ready is about the present spec after another's report", about == now.GetGeneration(), false)

		report(2, 2)
		row("the controller is done with size 2")
		table.End()
		_, about = readyOf(shelves.Peek("shelf"))
		l.Equal("the generation that Ready is about in the end", about, written.GetGeneration())
		l.Say("Take the generation from the answer to your write. A condition has an observedGeneration of its own, " +
			"because several controllers may share a status. Where a controller keeps neither number, you cannot tell.")
	})
}

// readyOf is the condition Ready of an object, and the generation that it is about.
func readyOf(o *lab.Object) (status string, about int64) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		c, _ := c.(map[string]any)
		if c["type"] == "Ready" {
			status, _ = c["status"].(string)
			about, _ = c["observedGeneration"].(int64)
			return status, about
		}
	}
	return "no condition", 0
}

// aSpecWriteResetsStatus empties the status after a user has written the spec.
var aSpecWriteResetsStatus = world.New("the server resets status when the spec changes", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Who == "user" && c.Verb == http.MethodPatch }, Note: "status was reset",
		Answer: func(resp *http.Response, body []byte) []byte {
			kind, name := servedAt(resp.Request.URL.Path)
			// An error here shows in what is stored.
			_, _ = l.As("server").Of(kind).Sub("status").TryPatch(name, types.MergePatchType, `{"status":null}`)
			return body
		},
	})
})

// everyConditionIsRestamped makes a report put its number into every condition.
var everyConditionIsRestamped = world.New("every condition gets the number of the report", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return strings.HasSuffix(c.Path, "/status") && c.Who == "controller" },
		Note: "every condition was stamped",
		Request: func(_ *http.Request, body []byte) []byte {
			if !bytes.Contains(body, []byte(`"observedGeneration":2,"conditions"`)) {
				return body
			}
			return observedOne.ReplaceAll(body, []byte(`"observedGeneration":2`))
		},
	})
})

func TestOT39c_GenerationsBeginAgainWithEachIncarnation(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "OT39c", From: "D2 paragraph 1; +",
		Says: "generation counts within one incarnation: a number that you remember by name makes a new object look done " +
			"before anybody has worked on it",
		Why: "generation 1 of the new object is not greater than the 3 that you noted for the old one, so a " +
			"controller skips it",
		Do:      "Remember a generation together with the uid, never by name alone.",
		FalseIf: generationsGoOn.Shows(`whether the new object looks done by name is false`),
		AlsoFalseIf: []world.World{
			world.UIDsBelongToNames.Shows(`whether the new object looks done by uid is true`),
		},
		Read: source.Decl("k8s.io/apiextensions-apiserver/pkg/registry/customresource",
			"customResourceStrategy.PrepareForCreate"),
		Answers: "#90",
	}, func(l *lab.Lab) {
		shelves := l.Of(l.CustomResource("status"))
		handledByName, handledByUID := map[string]int64{}, map[types.UID]int64{}
		table := l.Table("step", "size", "generation", "handled, by name", "handled, by uid")
		row := func(step string) (byName, byUID bool) {
			o := shelves.Peek("shelf")
			byName = o.GetGeneration() <= handledByName["shelf"]
			byUID = o.GetGeneration() <= handledByUID[o.GetUID()]
			table.Row(step, lab.Field(o, "size"), o.GetGeneration(), byName, byUID)
			return byName, byUID
		}
		shelves.Create("shelf", "size=1")
		shelves.Set("shelf", "size=2")
		shelves.Set("shelf", "size=3")
		old := shelves.Get("shelf")
		handledByName["shelf"], handledByUID[old.GetUID()] = old.GetGeneration(), old.GetGeneration()
		row("the controller has worked on size 3")

		shelves.Recreate("shelf", "size=9")
		byName, byUID := row("deleted and created again, with size 9")
		table.End()
		l.Equal("the generation that was noted down", old.GetGeneration(), 3)
		l.Equal("whether the new object looks done by name", byName, true)
		l.Equal("whether the new object looks done by uid", byUID, false)
	})
}

var firstGeneration = regexp.MustCompile(`"generation":1\b`)

// generationsGoOn has an object that is created with size 9 go on from the generation of the one before.
var generationsGoOn = world.New("the generation of a name goes on after its deletion", func(l *lab.Lab) {
	isRecreate := func(r *wire.Request) bool {
		return r.Method == wire.Txn && len(r.Compare) == 1 && r.Compare[0].Value == 0
	}
	l.Wire.Add(wire.AlterTxn(isRecreate, "generation went on", func(txn *pb.TxnRequest) {
		put := txn.Success[0].GetRequestPut()
		if put != nil && bytes.Contains(put.Value, []byte(`"size":9`)) {
			put.Value = firstGeneration.ReplaceAll(put.Value, []byte(`"generation":4`))
		}
	}))
})
