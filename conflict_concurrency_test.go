// Chapter 2, continued: many writers, and several apiservers.
package modrev

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"modrev/helpers/lab"
	"modrev/helpers/lesson"
	"modrev/helpers/source"
	"modrev/helpers/token"
	"modrev/helpers/wire"
	"modrev/helpers/world"
)

func TestCF10_TwoApiserversCannotOverwriteEachOther(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF10", From: "D1 Rests on",
		Says: "two apiservers over one etcd keep the same number: what is read at one is a token at the other, and neither " +
			"can overwrite what the other has written",
		Why: "the apiservers need not talk to each other; they agree because each write is compared where all of them " +
			"write",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the overtaken replace was accepted`),
		AlsoFalseIf: []world.World{
			world.AnswersAreOneTooHigh.Shows(`a replace with the token of the first was refused: 409`),
			world.ClientDropsTheToken.Shows(`at the first apiserver, a replace with the old token was accepted`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
	}, func(l *lab.Lab) {
		other := l.AtSecondAPIServer("other")
		shelf := l.Create("shelf", "color=red")
		there := other.Get("shelf")
		moved, err := other.TryReplace(there, "color=blue")
		l.Accepted(err, "at the second apiserver, a replace with the token of the first")
		l.Settle(moved)
		_, stale := l.TryReplace(shelf, "color=green")
		l.Refused(stale, "at the first apiserver, a replace with the old token", lab.Stale(shelf))
		fresh := l.Get("shelf")
		seen, late := overtaken(l, fresh,
			func() error { _, err := l.TryReplace(fresh, "color=green"); return err },
			func() { other.Set("shelf", "color=black") })

		table := l.Table("step", "at apiserver", "answer", "resourceVersion")
		table.Row("create", "first", "201", shelf.GetResourceVersion())
		table.Row("read", "second", "200", there.GetResourceVersion())
		table.Row("replace with that token", "second", "200", moved.GetResourceVersion())
		table.Row("replace with the old token", "first", lab.AnswerLine(stale), "")
		table.Row("read", "first", "200", fresh.GetResourceVersion())
		table.Row("replace with that token, overtaken", "first", lab.AnswerLine(late), "")
		table.End()
		l.Show("the last replace, and the patch at the second apiserver that overtook it", seen.Only(wire.Txn))
		l.Equal("the number that the second reports", there.GetResourceVersion(), shelf.GetResourceVersion())
		l.Refused(late, "the overtaken replace", lab.Stale(shelf))
		l.Stored(shelf, "color=black")
	})
}

func TestCF11_NoInterleavingOfConcurrentClientsBreaksIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF11", From: "D2 paragraph 2",
		Says: "however concurrent clients read, replace, patch, delete and create, some order of their requests explains " +
			"every answer: each object behaves like one versioned register",
		Why: "so a client may reason as if requests came one after the other; without the compare, no order explains what " +
			"the clients were told",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`no order of the \d+ requests for a explains every answer`),
		Read:    source.Decl("go.etcd.io/etcd/client/v3/kubernetes", "Client.OptimisticPut"),
	}, func(l *lab.Lab) {
		store := l.Register(token.ConfigMap)
		var history token.Recorder

		// One race is forced: two clients replace a with the same token, and the first is held until the second is done.
		send := func(client int, q token.Request) (token.Answer, error) {
			q.Client, q.Name = fmt.Sprintf("client%d", client), "a"
			return history.Do(l.Context(), client, store, q)
		}
		created, err := send(0, token.Request{Verb: token.Create})
		require.NoError(l, err, "creating a")
		replace := func(client int) error {
			by := token.Content{"by": strconv.Itoa(client)}
			_, err := send(client, token.Request{Verb: token.Replace, Token: created.Token, Set: by})
			return err
		}
		var overtook error
		err = l.Race(store.Key("a"), func() error { return replace(0) }, func() { overtook = replace(1) })
		require.NoError(l, errors.Join(err, overtook), "racing for a")
		// The rest is left to chance.
		token.Workload{Kind: token.ConfigMap, Clients: 6, Objects: 3, Requests: 25}.Run(l.Context(), &history, store)

		whole := history.History()
		found := token.Check(token.ConfigMap, whole, 20*time.Second)
		table := l.Table("requests of 6 clients", "200, 201", "409 Conflict", "409 AlreadyExists", "404", "other")
		for _, row := range token.Tally(whole) {
			table.Row(row.Verb, row.Accepted, row.Conflict, row.AlreadyExists, row.NotFound, row.Other)
		}
		table.End()
		l.Say("%s.", found.Explain())
		l.Keep("history.html", "porcupine's picture of the history, for a browser", found.Visualize)
		l.Expect(found.Result == porcupine.Ok, "some order of the requests explains every answer", "%s", found.Explain())
	})
}

func TestCF13_AReplaceIsACompareAndSwapOnlyWithTheCallersOwnToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF13", From: "D2 paragraph 2",
		Says: "of all clients that saw the lock free and replace it with the token that they read, exactly one gets it",
		Why: "a replace is compare-and-swap, and a lock needs nothing else; a library that renews the token by itself " +
			"hands the lock to everybody, one after the other",
		FalseIf: world.ClientTransplantsTheToken.Shows(`4 of 4 clients got the lock`),
		Read:    source.Decl(registryStore, "(*Store).Update"),
		Answers: "#18",
	}, func(l *lab.Lab) {
		const clients = 4
		free := l.Of(lab.Lease).Create("lock")
		table := l.Table("client", "token read", "answer", "holder after it")
		got := 0
		for n := range clients {
			client := l.As(fmt.Sprintf("client-%d", n+1)).Of(lab.Lease)
			_, err := client.TryReplace(free, fmt.Sprintf("holderIdentity=client-%d", n+1))
			if err == nil {
				got++
			} else {
				l.Refused(err, "the replace by one that came late", lab.Stale(free))
			}
			holder := lab.Field(l.Of(lab.Lease).Peek("lock"), "holderIdentity")
			table.Row(n+1, free.GetResourceVersion(), lab.AnswerLine(err), holder)
		}
		table.End()
		l.Expect(got == 1, "one client gets the lock", "%d of %d clients got the lock", got, clients)
	})
}

func TestCF14_WritersNeedNoLockToWriteOneObject(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF14", From: "D2 paragraph 2",
		Says: "writers that read, add their entry and replace, and do it again when refused, need no lock: every entry is " +
			"there in the end, and each refusal of one is the success of another",
		Why: "so nobody is refused more often than there are other writers; a lock would only make them wait for the same " +
			"order",
		FalseIf: world.ClientDropsTheToken.Shows(`1 of 8 entries are there`),
		AlsoFalseIf: []world.World{
			world.SomebodyElseWrites("shelf", 64).Shows(`refusals: \[`),
		},
		Read:    source.Decl(registryStore, "(*Store).Update"),
		Answers: "#74",
	}, func(l *lab.Lab) {
		const writers = 8
		shelf := l.Create("shelf", "entries=")
		var allRead sync.WaitGroup
		allRead.Add(writers)
		refusals := make([]int, writers)
		_, failed := l.Each(writers, func(n int) (err error) {
			refusals[n-1], err = addEntry(l, n, &allRead)
			return err
		})
		require.NoError(l, errors.Join(failed...), "adding an entry")

		entries := strings.Fields(lab.Field(l.Peek("shelf"), "entries"))
		total, most := 0, slices.Max(refusals)
		for _, n := range refusals {
			total += n
		}
		table := l.Table("writers", "entries stored", "storage writes", "refusals in all", "most of one writer")
		table.Row(writers, len(entries), l.KV(shelf).Version-1, total, most)
		table.End()
		l.Say("The entries, in the order in which the writers got through: %s.", strings.Join(entries, " "))

		l.Expect(len(entries) == writers, "all entries are there",
			"%d of %d entries are there: %v", len(entries), writers, entries)
		l.Expect(most < writers, "nobody is refused more often than there are others", "refusals: %v", refusals)
	})
}

// addEntry adds an entry to the shelf: it reads and replaces until that is not refused, and says how often it was. It
// replaces for the first time when all writers have read the same version.
func addEntry(l *lab.Lab, n int, allRead *sync.WaitGroup) (refusals int, err error) {
	read, err := l.TryGet("shelf")
	allRead.Done()
	allRead.Wait()
	for err == nil {
		_, err = l.TryReplace(read, fmt.Sprintf("entries=%s %d", lab.Field(read, "entries"), n))
		if !apierrors.IsConflict(err) {
			break
		}
		refusals++
		read, err = l.TryGet("shelf")
	}
	return refusals, err
}
