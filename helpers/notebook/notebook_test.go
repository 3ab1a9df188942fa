package notebook

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"modrev/helpers/record"
)

const shelfKey = "/registry/configmaps/cf3-1/shelf"

// script makes the steps of a tape.
type script struct {
	tape record.Tape
}

func (s *script) add(kind record.Kind, n int) {
	s.tape.Steps = append(s.tape.Steps, record.Step{Kind: kind, N: n})
}

func (s *script) call(c record.Call) (n int) {
	s.tape.Calls = append(s.tape.Calls, c)
	n = len(s.tape.Calls) - 1
	s.add(record.Sent, n)
	return n
}

func (s *script) answer(n, code int) {
	s.tape.Calls[n].Done, s.tape.Calls[n].Code = true, code
	s.add(record.Answered, n)
}

func (s *script) ask(r record.Request) (n int) {
	s.tape.Requests = append(s.tape.Requests, r)
	n = len(s.tape.Requests) - 1
	s.add(record.Asked, n)
	return n
}

func (s *script) reply(n int, ok bool) {
	r := &s.tape.Requests[n]
	r.Answered, r.Succeeded, r.StoreRevision = true, ok, 621
	if !ok {
		r.Found = []record.KeyValue{{Key: r.Key, ModRevision: 621}}
	}
	s.add(record.Replied, n)
}

func update(key string, revision int64) record.Request {
	return record.Request{
		Method: record.Txn, From: "apiserver", Key: key,
		Compare: []record.Compare{{Key: key, Field: "mod_revision", Operator: "==", Value: revision}},
		Then:    []record.Op{{Kind: "Put", Key: key}}, Else: []record.Op{{Kind: "Get", Key: key}},
	}
}

func put(who, name, token string) record.Call {
	return record.Call{Who: who, Verb: http.MethodPut, Path: "configmaps/" + name, HasToken: true, Token: token}
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
	theirs.Note = record.Rivals
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
	races := Races(s.tape)
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
	races := Races(s.tape)
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
	other := s.call(record.Call{Who: "bystander", Verb: http.MethodPost, Path: "configmaps"})
	create := update("/registry/configmaps/cf3-1/elsewhere", 0)
	s.reply(s.ask(create), true)
	s.answer(other, 201)
	s.answer(mine, 504)
	require.Empty(t, Races(s.tape))
	require.Empty(t, Races(record.Tape{}))
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
	races := Races(s.tape)
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
	rival := s.call(record.Call{Who: "rival", Verb: http.MethodPost, Path: "configmaps"})
	second := s.ask(update(shelfKey, 0))
	s.reply(second, true)
	s.answer(rival, 201)
	s.reply(first, false)
	s.answer(mine, 409)
	require.Contains(t, Races(s.tape)[0].Diagram, "rival->>apiserver: POST configmaps\n")
}

func TestWhatIsReadAfterTheFailedCompareIsDrawnAndWhatTheCacheLeftToReadBeforeIsNot(t *testing.T) {
	read := record.Request{Method: record.Range, From: "apiserver", Key: shelfKey}
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
	require.NotContains(t, Races(s.tape)[0].Diagram, "Range")
	s.reply(s.ask(read), false)
	s.answer(mine, 409)
	require.Equal(t, 1, strings.Count(Races(s.tape)[0].Diagram, "Range configmaps/shelf"))
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
	s.tape.Calls[odd].Err = `no "answer"`
	s.answer(odd, 0)
	s.reply(first, false)
	s.answer(mine, 409)
	diagram := Races(s.tape)[0].Diagram
	wellFormed(t, diagram)
	require.Contains(t, diagram, "participant client1 as end\n")
	require.Contains(t, diagram, "participant second as the second kube-apiserver\n")
	require.Contains(t, diagram, "resourceVersion 1#59; 2#35;3\n")
	require.Contains(t, diagram, "Note right of etcd: a b #lt;c#gt;\n")
}

func book() record.Run {
	run := record.Run{Book: record.Book{
		{Title: "conflict", Parts: []record.Part{{Lessons: "CF10 CF2"}}},
		{Title: "later", Parts: []record.Part{{Lessons: "GU1"}}},
	}}
	var s script
	s.race("shelf")
	add := func(l record.Lesson) {
		l.Why, l.Verdict = "so", record.Holds
		run.Add(l)
	}
	add(record.Lesson{
		ID: "GU1", Says: "etcd`s key* <is> [a] | b", From: "+", Read: record.Upstream{Package: "pkg", Func: "(*store).X"},
	})
	add(record.Lesson{ID: "ZZ1", Says: "it stands nowhere", From: "D2"})
	add(record.Lesson{
		ID: "CF2", Says: "an old one is refused", From: "D1 Expect 2, +", Erratum: "the document says less",
		Reality: record.Telling{Page: []record.Block{{Quote: []string{"a  b", "```", "c"}}}, Tape: s.tape},
	})
	add(record.Lesson{
		ID: "CF10", Says: "it comes first", From: "D1 Claim; +",
		Reality: record.Telling{Facts: map[string][]string{
			record.PairedNumbers: {"k8s=1  etcd=1", "k8s=2  etcd=2"},
			record.TheRefusal:    {`Operation cannot be fulfilled on configmaps "rv"`},
		}},
	})
	return run
}

func TestTheNotebookIsMarkdownInTheOrderOfTheBook(t *testing.T) {
	var b strings.Builder
	require.NoError(t, Write(&b, book(), "tapes"))
	text := b.String()
	markdown(t, text)
	at := -1
	for _, part := range []string{
		"# Notebook\n",
		"### The paired numbers\n\n```\nk8s=1  etcd=1\nk8s=2  etcd=2\n```\n",
		"### The exact 409 sentence\n\n> Operation cannot be fulfilled on configmaps \"rv\"\n",
		"### File and function of the compare\n\n(The lesson that shows it was not part of this run.)\n",
		"## Chapter 1 · conflict\n\n### CF10\n\nIt comes first.\n",
		"From D1 Claim, and beyond the documents. [The whole tape](tapes/CF10.txt).\n",
		"### CF2\n\nAn old one is refused.\n\n*Why it matters:* so. *Read:* ` `. From D1 Expect 2, and beyond the " +
			"documents. [The whole tape](tapes/CF2.txt).\n",
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
	require.NoError(t, Save(path, book()))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), "(nb-tapes/CF2.txt)")
	tape, err := os.ReadFile(filepath.Join(dir, "run 1", "nb-tapes", "CF2.txt"))
	require.NoError(t, err)
	require.Equal(t, "CF2 an old one is refused\n\nwriter: PUT configmaps/shelf, resourceVersion 619\n", string(tape)[:77])

	err = Save(filepath.Join(path, "nb.md"), book())
	require.ErrorContains(t, err, "keeping the notebook: ")
}
