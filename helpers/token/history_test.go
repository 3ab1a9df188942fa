package token

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

const enough = 30 * time.Second

// story makes a history from requests and answers with their times, each written as
// "client from-to: request -> answer".
type story struct {
	history []porcupine.Operation
}

func (s *story) add(client int, from, to int64, req Request, a Answer) {
	s.history = append(s.history, porcupine.Operation{
		ClientId: client, Call: from * 1e6, Return: to * 1e6, Input: req, Output: Outcome{Answer: a},
	})
}

func (s *story) lost(client int, from int64, req Request) {
	s.history = append(s.history, porcupine.Operation{
		ClientId: client, Call: from * 1e6, Return: 1e9, Input: req, Output: Outcome{Lost: true},
	})
}

func red() Content   { return Content{"color": "red"} }
func blue() Content  { return Content{"color": "blue"} }
func green() Content { return Content{"color": "green"} }

func created(token, uid string, c Content) Answer {
	return Answer{Code: 201, Token: token, UID: uid, Content: c}
}

func ok(token, uid string, c Content) Answer {
	return Answer{Code: 200, Token: token, UID: uid, Content: c}
}

var conflict = Answer{Code: 409, Reason: "Conflict"}

func create(c Content) Request { return Request{Verb: Create, Name: "shelf", Set: c} }

func replace(c Content, token string) Request {
	return Request{Verb: Replace, Name: "shelf", Set: c, Token: token}
}

func get() Request { return Request{Verb: Get, Name: "shelf"} }

func TestAnOrderExplainsAnswersThatCrossed(t *testing.T) {
	var s story
	s.add(0, 0, 1, create(red()), created("A", "U", red()))
	s.add(0, 2, 9, replace(blue(), "A"), ok("B", "U", blue()))
	s.add(1, 2, 9, replace(green(), "A"), conflict)
	s.add(2, 3, 8, get(), ok("A", "U", red()))
	s.add(2, 10, 11, get(), ok("B", "U", blue()))
	f := Check(ConfigMap, s.history, enough)
	require.Equal(t, porcupine.Ok, f.Result)
	require.Equal(t, "5 requests, and some order of them explains every answer", f.Explain())
}

func TestALostUpdateIsRejected(t *testing.T) {
	var s story
	s.add(0, 0, 1, create(red()), created("A", "U", red()))
	s.add(0, 2, 9, replace(blue(), "A"), ok("B", "U", blue()))
	s.add(1, 2, 8, replace(green(), "A"), ok("C", "U", green()))
	s.add(0, 0, 1, Request{Verb: Create, Name: "note"}, created("N", "V", nil))
	f := Check(ConfigMap, s.history, enough)
	require.Equal(t, porcupine.Illegal, f.Result)
	require.Equal(t, `no order of the 3 requests for shelf explains every answer. The longest that explains some ends with
  0.000 to 1.000 ms  client0: create shelf color=red -> 201, A, color=red
  2.000 to 8.000 ms  client1: replace shelf color=green @A -> 200, C, color=green
and leaves {token C, uid U, color=green}. None of these can be next:
  2.000 to 9.000 ms  client0: replace shelf color=blue @A -> 200, B, color=blue`, f.Explain())

	picture := filepath.Join(t.TempDir(), "history.html")
	require.NoError(t, f.Visualize(picture))
	html, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Contains(t, string(html), "replace shelf color=green @A")
	require.ErrorContains(t, f.Visualize(filepath.Join(picture, "below a file")), "drawing the history")
}

func TestAnswersThatNoOrderExplains(t *testing.T) {
	for name, tell := range map[string]func(*story){
		"a read of what was overwritten before it began": func(s *story) {
			s.add(0, 2, 3, replace(blue(), "A"), ok("B", "U", blue()))
			s.add(1, 4, 5, get(), ok("A", "U", red()))
		},
		"a read of content that never was": func(s *story) { s.add(1, 2, 3, get(), ok("A", "U", blue())) },
		"a token that comes again": func(s *story) {
			s.add(0, 2, 3, replace(blue(), "A"), ok("B", "U", blue()))
			s.add(0, 4, 5, replace(red(), "B"), ok("A", "U", red()))
		},
		"a token that stays":             func(s *story) { s.add(0, 2, 3, replace(blue(), "A"), ok("A", "U", blue())) },
		"a no-op with a new token":       func(s *story) { s.add(0, 2, 3, replace(red(), "A"), ok("B", "U", red())) },
		"a refusal of the current token": func(s *story) { s.add(0, 2, 3, replace(blue(), "A"), conflict) },
		"a second create":                func(s *story) { s.add(1, 2, 3, create(blue()), created("B", "V", blue())) },
		"a name that is taken by nobody": func(s *story) {
			s.add(0, 2, 3, Request{Verb: Delete, Name: "shelf"}, Answer{Code: 200})
			s.add(0, 4, 5, create(blue()), Answer{Code: 409, Reason: "AlreadyExists"})
		},
		"an incarnation with the uid of the one before": func(s *story) {
			s.add(0, 2, 3, Request{Verb: Delete, Name: "shelf"}, Answer{Code: 200})
			s.add(0, 4, 5, create(blue()), created("B", "U", blue()))
		},
		"an object that is gone": func(s *story) { s.add(0, 2, 3, get(), Answer{Code: 404, Reason: "NotFound"}) },
		"a delete of another incarnation": func(s *story) {
			s.add(0, 2, 3, Request{Verb: Delete, Name: "shelf", UID: "V"}, Answer{Code: 200})
		},
		"a delete in spite of its token": func(s *story) {
			s.add(0, 2, 3, Request{Verb: Delete, Name: "shelf", Token: "X"}, Answer{Code: 200})
		},
		"a patch that loses the rest": func(s *story) {
			s.add(0, 2, 3, Request{Verb: Patch, Name: "shelf", Set: Content{"size": "1"}}, ok("B", "U", Content{"size": "1"}))
		},
		"a write that was undone": func(s *story) {
			s.add(0, 2, 3, Request{Verb: Patch, Name: "shelf", Set: blue()}, ok("B", "U", blue()))
			s.add(1, 2, 3, Request{Verb: Patch, Name: "shelf", Set: Content{"size": "1"}},
				ok("C", "U", Content{"color": "red", "size": "1"}))
			s.add(1, 4, 5, get(), ok("C", "U", Content{"color": "red", "size": "1"}))
		},
	} {
		var s story
		s.add(0, 0, 1, create(red()), created("A", "U", red()))
		tell(&s)
		f := Check(ConfigMap, s.history, enough)
		require.Equal(t, porcupine.Illegal, f.Result, name)
		require.Contains(t, f.Explain(), "None of these can be next", name)
	}
}

func TestALostAnswerMayHaveBeenCarriedOutOrNot(t *testing.T) {
	begin := func() *story {
		s := &story{}
		s.add(0, 0, 1, create(red()), created("A", "U", red()))
		s.lost(1, 2, replace(blue(), "A"))
		return s
	}
	check := func(s *story) porcupine.CheckResult { return Check(ConfigMap, s.history, enough).Result }

	s := begin()
	s.add(0, 4, 5, get(), ok("B", "U", blue()))
	s.add(0, 6, 7, replace(green(), "A"), conflict)
	s.add(0, 8, 9, replace(green(), "B"), ok("C", "U", green()))
	require.Equal(t, porcupine.Ok, check(s), "carried out at once")

	s = begin()
	s.add(0, 4, 5, get(), ok("A", "U", red()))
	s.add(0, 6, 7, get(), ok("B", "U", blue()))
	require.Equal(t, porcupine.Ok, check(s), "carried out later")

	s = begin()
	s.add(0, 4, 5, replace(green(), "A"), ok("B", "U", green()))
	s.add(0, 6, 7, get(), ok("B", "U", green()))
	require.Equal(t, porcupine.Ok, check(s), "refused, or never carried out")

	s = begin()
	s.add(0, 4, 5, replace(green(), "A"), ok("B", "U", green()))
	s.add(0, 6, 7, get(), ok("C", "U", blue()))
	require.Equal(t, porcupine.Illegal, check(s), "carried out although its token was stale")

	s = begin()
	s.add(0, 4, 5, get(), ok("B", "U", blue()))
	s.add(0, 6, 7, get(), ok("C", "U", blue()))
	require.Equal(t, porcupine.Illegal, check(s), "it has one token, not two")

	s = begin()
	s.lost(2, 3, Request{Verb: Delete, Name: "shelf"})
	s.lost(3, 3, create(green()))
	s.add(0, 4, 5, get(), Answer{Code: 404, Reason: "NotFound"})
	s.add(0, 6, 7, Request{Verb: Delete, Name: "shelf", UID: "V"}, Answer{Code: 200})
	s.add(0, 8, 9, get(), Answer{Code: 404, Reason: "NotFound"})
	require.Equal(t, porcupine.Ok, check(s), "an incarnation whose uid was seen elsewhere")

	s = begin()
	s.lost(2, 3, get())
	require.Equal(t, porcupine.Ok, check(s), "a lost read says nothing")
}

func TestARefusalOutsideTheModelDoesNothing(t *testing.T) {
	var s story
	s.add(0, 0, 1, create(red()), created("A", "U", red()))
	s.add(1, 2, 3, replace(blue(), ""), Answer{Code: 403, Reason: "Forbidden"})
	s.add(0, 4, 5, get(), ok("A", "U", red()))
	require.Equal(t, porcupine.Ok, Check(ConfigMap, s.history, enough).Result)
}

// slow puts time between the arrival of a request and its execution, and between that and its answer, so that
// requests overlap.
type slow struct{ Store }

func (s slow) Do(ctx context.Context, req Request) (Answer, error) {
	pause(ctx)
	defer pause(ctx)
	return s.Store.Do(ctx, req)
}

func pause(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Microsecond)
	defer cancel()
	<-ctx.Done()
}

func TestHistoriesOfTheModelAreExplained(t *testing.T) {
	for _, kind := range Kinds() {
		var r Recorder
		Workload{Kind: kind, Clients: 4, Objects: 2, Requests: 150}.Run(t.Context(), &r, slow{&Model{Kind: kind}})
		history := r.History()
		require.Len(t, history, 600)
		f := Check(kind, history, enough)
		require.Equal(t, porcupine.Ok, f.Result, f.Explain())
		overlaps := 0
		for i, op := range history[1:] {
			if op.Call < history[i].Return {
				overlaps++
			}
		}
		require.Positive(t, overlaps, "nothing happened at once")

		// The work is worth checking: most of what can happen does.
		seen := map[string]int{}
		for _, op := range history {
			seen[fmt.Sprint(op.Input.(Request).Verb, " ", op.Output.(Outcome).Answer.status())]++
		}
		for _, want := range []string{
			"create 201", "create 409 AlreadyExists", "get 200", "get 404 NotFound", "replace 200",
			"replace 409 Conflict", "patch 200", "patch 404 NotFound", "patch 409 Conflict", "delete 200",
			"delete 404 NotFound", "delete 409 Conflict",
		} {
			require.Positive(t, seen[want], "%s never happened: %v", want, seen)
		}
	}
}

// dropping loses every fifth answer, half of them before the request is carried out.
type dropping struct {
	Store
	mu sync.Mutex
	n  int
}

func (d *dropping) Do(ctx context.Context, req Request) (Answer, error) {
	d.mu.Lock()
	d.n++
	n := d.n
	d.mu.Unlock()
	lost := errors.New("connection lost")
	switch n % 10 {
	case 0:
		return Answer{}, lost
	case 5:
		_, _ = d.Store.Do(ctx, req)
		return Answer{Code: 504, Reason: "Timeout"}, nil
	}
	return d.Store.Do(ctx, req)
}

func TestHistoriesWithLostAnswersAreExplained(t *testing.T) {
	for _, kind := range Kinds() {
		var r Recorder
		Workload{Kind: kind, Clients: 3, Objects: 2, Requests: 60}.Run(t.Context(), &r,
			&dropping{Store: slow{&Model{Kind: kind}}})
		f := Check(kind, r.History(), enough)
		require.Equal(t, porcupine.Ok, f.Result, f.Explain())
	}
}

func withoutTheCheck() Store {
	unchecked := slices.IndexFunc(Mutants(), func(m Mutant) bool {
		return m.Says == "a stale token is no reason to refuse a replace"
	})
	return Mutants()[unchecked].Store(ConfigMap)
}

func TestTheWorkloadEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var r Recorder
	Workload{Clients: 2, Objects: 1, Requests: 1000}.Run(ctx, &r, &Model{})
	require.Empty(t, r.History())
}

func TestAWorkloadOnAStoreWithoutTheCheckIsRejected(t *testing.T) {
	var r Recorder
	Workload{Clients: 4, Objects: 2, Requests: 100}.Run(t.Context(), &r, slow{withoutTheCheck()})
	f := Check(ConfigMap, r.History(), enough)
	require.Equal(t, porcupine.Illegal, f.Result)
	t.Log(f.Explain())
}

func TestAHistoryOfAStoreWithoutTheCheckIsRejected(t *testing.T) {
	store := withoutTheCheck()
	var r Recorder
	ctx := t.Context()
	a, err := r.Do(ctx, 0, store, create(red()))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for client := range 2 {
		wg.Go(func() {
			req := replace(Content{"client": fmt.Sprint(client)}, a.Token)
			_, err := r.Do(ctx, client, store, req)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f := Check(ConfigMap, r.History(), enough)
	require.Equal(t, porcupine.Illegal, f.Result)
	require.Contains(t, f.Explain(), "no order of the 3 requests for shelf")
}

// A trace is a history without anything at once; what it shows of a mutant, the check of its history shows too.
func TestTheCheckOfAHistorySeesWhatATraceSees(t *testing.T) {
	for _, m := range Mutants() {
		if strings.HasPrefix(m.Says, "each object counts") {
			continue // each object is looked at by itself
		}
		for _, kind := range m.Kinds {
			found := false
			for seed := 1; seed < 200 && !found; seed++ {
				trace := Generator(kind, 3, 60).Example(seed)
				var r Recorder
				_, _ = Replay(t.Context(), recorded{m.Store(kind), &r}, trace)
				f := Check(kind, r.History(), enough)
				require.NotEqual(t, porcupine.Unknown, f.Result)
				found = f.Result == porcupine.Illegal
			}
			require.True(t, found, "%s, %s", m.Says, kind)
		}
	}
}

type recorded struct {
	Store
	r *Recorder
}

func (r recorded) Do(ctx context.Context, req Request) (Answer, error) {
	return r.r.Do(ctx, 0, r.Store, req)
}

func TestARequestThatIsNotEndedIsLost(t *testing.T) {
	var r Recorder
	require.Empty(t, r.History())
	r.Begin(0, create(red()))
	r.Begin(1, get())(Answer{Code: 404, Reason: "NotFound"}, nil)
	r.Begin(2, get())(ok("A", "U", red()), nil)
	history := r.History()
	require.Equal(t, Outcome{Lost: true}, history[0].Output)
	require.Greater(t, history[0].Return, history[2].Return)
	require.Equal(t, porcupine.Ok, Check(Lease, history, enough).Result)
}
