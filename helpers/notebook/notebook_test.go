package notebook

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"modrev/helpers/record"
	"modrev/helpers/wire"
)

const shelfKey = "/registry/configmaps/cf3-1/shelf"

// script makes the steps of a tape.
type script struct {
	steps []wire.Step
}

func (s *script) call(c wire.Call) *wire.Call {
	s.steps = append(s.steps, wire.Step{Call: &c})
	return &c
}

func (s *script) answer(c *wire.Call, code int) {
	c.Done, c.Code = true, code
	s.steps = append(s.steps, wire.Step{Answer: c})
}

func (s *script) ask(r wire.Request) *wire.Request {
	s.steps = append(s.steps, wire.Step{Ask: &r})
	return &r
}

func (s *script) reply(r *wire.Request, ok bool) {
	r.Answered, r.Succeeded, r.StoreRevision = true, ok, 621
	if !ok {
		r.Found = []wire.KeyValue{{Key: r.Key, ModRevision: 621}}
	}
	s.steps = append(s.steps, wire.Step{Reply: r})
}

func update(key string, revision int64) wire.Request {
	return wire.Request{
		Method: wire.Txn, From: "apiserver", Key: key, Compare: []wire.Compare{{Key: key, Field: "mod_revision", Operator: "==", Value: revision}},
		Then: []wire.Op{{Kind: "Put", Key: key}}, Else: []wire.Op{{Kind: "Get", Key: key}},
	}
}

func put(who, name, token string) wire.Call {
	return wire.Call{Who: who, Verb: http.MethodPut, Path: "configmaps/" + name, HasToken: true, Token: token}
}

// race writes a race into the script: the write of who is held, the rival's overtakes it.
func (s *script) race(name string) {
	key := strings.Replace(shelfKey, "shelf", name, 1)
	mine := s.call(put("writer", name, "619"))
	held := update(key, 619)
	held.Raced, held.Note = true, "held until the rival had written"
	first := s.ask(held)
	other := s.call(put("bystander", "elsewhere", "7"))
	rival := s.call(put("rival", name, "619"))
	theirs := update(key, 619)
	theirs.Note = Rivals
	second := s.ask(theirs)
	s.reply(second, true)
	s.answer(rival, 200)
	s.answer(other, 200)
	s.reply(first, false)
	s.answer(mine, 409)
}

func TestARaceIsDrawnFromTheRequestThatWasOvertakenToItsAnswer(t *testing.T) {
	var s script
	s.answer(s.call(put("writer", "shelf", "1")), 200) // before it
	s.race("shelf")
	races := Races(s.steps)
	require.Len(t, races, 1)
	require.Equal(t, "PUT configmaps/shelf, resourceVersion 619", races[0].Of)
	require.Zero(t, races[0].Alike)
	require.Equal(t, `sequenceDiagram
    participant writer
    participant rival
    participant apiserver as kube-apiserver
    participant etcd
    writer->>apiserver: PUT configmaps/shelf, resourceVersion 619
    apiserver->>etcd: Txn if mod_revision(configmaps/shelf) == 619<br/>then Put else Get
    Note right of etcd: held until the rival had written
    rival->>apiserver: PUT configmaps/shelf, resourceVersion 619
    apiserver->>etcd: Txn if mod_revision(configmaps/shelf) == 619<br/>then Put else Get
    etcd-->>apiserver: succeeded, revision 621
    apiserver-->>rival: 200 OK
    etcd-->>apiserver: failed,<br/>the else branch returned mod_revision 621
    apiserver-->>writer: 409 Conflict
`, races[0].Diagram)
}

func TestRacesOfOneShapeAreDrawnOnce(t *testing.T) {
	var s script
	for _, name := range []string{"a", "b", "c"} {
		s.race(name)
	}
	races := Races(s.steps)
	require.Len(t, races, 1)
	require.Equal(t, 2, races[0].Alike)
	require.Equal(t, "PUT configmaps/a, resourceVersion 619", races[0].Of)
}

func TestWhatNobodyOvertookIsNoRace(t *testing.T) {
	var s script
	s.answer(s.call(put("writer", "shelf", "1")), 200)
	mine := s.call(put("writer", "shelf", "619"))
	held := update(shelfKey, 619)
	held.Raced, held.Note = true, "held past the deadline"
	s.ask(held)
	other := s.call(wire.Call{Who: "bystander", Verb: http.MethodPost, Path: "configmaps"})
	create := update("/registry/configmaps/cf3-1/elsewhere", 0)
	s.reply(s.ask(create), true)
	s.answer(other, 201)
	s.answer(mine, 504)
	require.Empty(t, Races(s.steps))
	require.Empty(t, Races(nil))
}

func TestARivalBehindTheApiserversBackIsARaceToo(t *testing.T) {
	var s script
	mine := s.call(put("writer", "shelf", "619"))
	for range 300 {
		r := update(shelfKey, 619)
		r.Raced, r.Note = true, "overtaken"
		s.reply(s.ask(r), false)
	}
	s.answer(mine, 409)
	races := Races(s.steps)
	require.Len(t, races, 1)
	require.Contains(t, races[0].Diagram, "    Note over etcd: … 592 steps like these …\n")
	require.Less(t, strings.Count(races[0].Diagram, "\n"), longest)
}

func TestADeleteAndACreateOfARivalBelongToTheRace(t *testing.T) {
	var s script
	mine := s.call(put("writer", "shelf", "619"))
	held := update(shelfKey, 619)
	held.Raced = true
	first := s.ask(held)
	rival := s.call(wire.Call{Who: "rival", Verb: http.MethodPost, Path: "configmaps"})
	second := s.ask(update(shelfKey, 0))
	s.reply(second, true)
	s.answer(rival, 201)
	s.reply(first, false)
	s.answer(mine, 409)
	require.Contains(t, Races(s.steps)[0].Diagram, "rival->>apiserver: POST configmaps\n")
}

func TestWhatIsReadAfterTheFailedCompareIsDrawnAndWhatTheCacheLeftToReadBeforeIsNot(t *testing.T) {
	read := wire.Request{Method: wire.Range, From: "apiserver", Key: shelfKey}
	var s script
	mine := s.call(put("writer", "shelf", "619"))
	s.reply(s.ask(read), false)
	held := update(shelfKey, 619)
	held.Raced = true
	first := s.ask(held)
	rival := s.call(put("rival", "shelf", "619"))
	s.reply(s.ask(read), false)
	s.reply(s.ask(update(shelfKey, 619)), true)
	s.answer(rival, 200)
	s.reply(first, false)
	require.NotContains(t, Races(s.steps)[0].Diagram, "Range")
	s.reply(s.ask(read), false)
	s.answer(mine, 409)
	require.Equal(t, 1, strings.Count(Races(s.steps)[0].Diagram, "Range configmaps/shelf"))
}

func TestMermaidTakesNoNameOrTextForMoreThanThat(t *testing.T) {
	var s script
	mine := s.call(put("end", "shelf", "1; 2#3"))
	held := update(shelfKey, 619)
	held.Raced, held.Note, held.From = true, "a\nb <c>", "second"
	first := s.ask(held)
	rival := s.call(put("etcd", "shelf", "1"))
	s.answer(rival, 200)
	odd := s.call(put("writer-1: x", "shelf", "1"))
	odd.Err = errors.New(`no "answer"`)
	s.answer(odd, 0)
	s.reply(first, false)
	s.answer(mine, 409)
	diagram := Races(s.steps)[0].Diagram
	wellFormed(t, diagram)
	require.Contains(t, diagram, "participant client1 as end\n")
	require.Contains(t, diagram, "participant second as the second kube-apiserver\n")
	require.Contains(t, diagram, "resourceVersion 1#59; 2#35;3\n")
	require.Contains(t, diagram, "Note right of etcd: a b #lt;c#gt;\n")
}

func book() *Notebook {
	n := &Notebook{Book: record.Book{
		{Title: "conflict", Parts: []record.Part{{Lessons: "CF10 CF2"}}}, {Title: "later", Parts: []record.Part{{Lessons: "GU1"}}},
	}}
	var s script
	s.race("shelf")
	n.Add(Page{ID: "GU1", Says: "etcd`s key* <is> [a] | b", From: "+", Read: "pkg (*store).X", Why: "so"})
	n.Add(Page{ID: "ZZ1", Says: "it stands nowhere", From: "D2", Read: "x", Why: "so"})
	n.Add(Page{
		ID: "CF2", Says: "an old one is refused", From: "D1 Expect 2, +", Read: "x", Why: "so",
		Erratum: "the document says less", Lines: []string{"a  b", "```", "c"}, Steps: s.steps, Tape: []string{"writer: PUT", "    Txn"},
	})
	n.Add(Page{ID: "CF10", Says: "it comes first", From: "D1 Claim; +", Read: "x", Why: "so"})
	n.WriteDown(PairedNumbers, "k8s=1  etcd=1", "k8s=2  etcd=2")
	n.WriteDown(TheRefusal, `Operation cannot be fulfilled on configmaps "rv"`)
	return n
}

func TestTheNotebookIsMarkdownInTheOrderOfTheBook(t *testing.T) {
	var b strings.Builder
	require.NoError(t, book().Write(&b, "tapes"))
	text := b.String()
	markdown(t, text)
	at := -1
	for _, part := range []string{
		"# Notebook\n",
		"### The paired numbers\n\n```\nk8s=1  etcd=1\nk8s=2  etcd=2\n```\n",
		"### The exact 409 sentence\n\n> Operation cannot be fulfilled on configmaps \"rv\"\n",
		"### File and function of the compare\n\n(The lesson that shows it was not part of this run.)\n",
		"## Chapter 1 · conflict\n\n### CF10\n\nIt comes first.\n",
		"From D1 Claim and beyond. [The whole tape](tapes/CF10.txt).\n",
		"### CF2\n\nAn old one is refused.\n\n*Why it matters:* so. *Read:* `x`. From D1 Expect 2 and beyond. [The whole tape](tapes/CF2.txt).\n",
		"**Erratum:** the document says less\n",
		"````\na  b\n```\nc\n````\n",
		"A race: `PUT configmaps/shelf, resourceVersion 619`:\n\n```mermaid\nsequenceDiagram\n",
		"## Chapter 2 · later\n\n### GU1\n\nEtcd\\`s key\\* &lt;is> \\[a] \\| b.\n",
		"*Read:* `pkg (*store).X`. Beyond the documents.",
		"## Elsewhere\n\n### ZZ1\n",
	} {
		next := strings.Index(text, part)
		require.Greater(t, next, at, "%q is missing or too early in\n%s", part, text)
		at = next
	}
}

func TestANotebookIsSavedWithItsTapesBesideIt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run 1", "nb.md")
	require.NoError(t, book().Save(path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), "(nb-tapes/CF2.txt)")
	tape, err := os.ReadFile(filepath.Join(dir, "run 1", "nb-tapes", "CF2.txt"))
	require.NoError(t, err)
	require.Equal(t, "CF2 an old one is refused\n\nwriter: PUT\n    Txn\n", string(tape))

	err = book().Save(filepath.Join(path, "nb.md"))
	require.ErrorContains(t, err, "keeping the notebook: ")
}
