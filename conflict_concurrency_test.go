// Chapter 2, continued: many writers, and several apiservers.
package modrev

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
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

func TestCF10_TwoApiserversCannotOverwriteEachOtherUnseen(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF10", From: "D1 Rests on",
		Says: "two apiservers over one etcd keep the same number: a token that is stale through the one is refused by " +
			"the other, raced or not",
		Why: "the apiservers need not talk to each other; they agree because each write is compared where all of them " +
			"write",
		Do:      "Send the token to whichever apiserver answers; never pin a client to one for safety.",
		FalseIf: world.EtcdIgnoresTheCompare.Shows(`the overtaken replace at the first was accepted`),
		AlsoFalseIf: []world.World{
			theSecondCountsForItself.Shows(`a replace with the token of the first was refused: 409`),
			world.OlderTokensCount.Shows(`at the first apiserver, a replace with the old token was accepted`),
			world.EtcdIgnoresTheCompareOf("lamp").Shows(`the overtaken replace at the second was accepted`),
		},
		Read: source.Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"),
	}, func(l *lab.Lab) {
		other := l.AtSecondAPIServer("other")
		table := l.Table("step", "at apiserver", "answer", "resourceVersion")
		shelf := l.Create("shelf", "color=red")
		table.Row("create", "first", "201", shelf.GetResourceVersion())
		there := other.Get("shelf")
		table.Row("read", "second", "200", there.GetResourceVersion())
		l.Equal("the number that the second reports", there.GetResourceVersion(), shelf.GetResourceVersion())
		moved, err := other.TryReplace(shelf, "color=blue")
		l.Accepted(err, "at the second apiserver, a replace with the token of the first")
		table.Row("replace with that token", "second", "200", moved.GetResourceVersion())
		l.Settle(moved)
		_, stale := l.TryReplace(shelf, "color=green")
		table.Row("replace with the old token", "first", lab.AnswerLine(stale), "")
		l.Refused(stale, "at the first apiserver, a replace with the old token", lab.Stale(shelf))
		_, stale = other.TryReplace(shelf, "color=green")
		table.Row("replace with the old token", "second", lab.AnswerLine(stale), "")
		l.Refused(stale, "at the second apiserver, a replace with the old token", lab.Stale(shelf))

		seen, late := overtaken(l, moved,
			func() error { return errorOf(l.TryReplace(moved, "color=green")) },
			func() { other.Set("shelf", "color=black") })
		table.Row("replace with the new one, overtaken at the second", "first", lab.AnswerLine(late), "")
		l.Refused(late, "the overtaken replace at the first", lab.Stale(shelf))
		l.Stored(shelf, "color=black")
		lamp := other.Create("lamp", "color=red")
		_, late = overtaken(l, lamp,
			func() error { return errorOf(other.TryReplace(lamp, "color=green")) },
			func() { l.Set("lamp", "color=black") })
		table.Row("replace of another object, overtaken at the first", "second", lab.AnswerLine(late), "")
		l.Refused(late, "the overtaken replace at the second", lab.Stale(lamp))
		l.Stored(lamp, "color=black")

		blind, err := other.TryReplace(lab.WithToken(shelf, ""), "size=9")
		l.Accepted(err, "a replace without a token")
		table.Row("replace without a token", "second", lab.AnswerLine(err), blind.GetResourceVersion())
		table.End()
		l.Show("the replace at the first, and the patch at the second that overtook it", seen.Only(wire.Txn))
		l.Say("A replace without a token overwrites here as it does with one apiserver (CF6): the black is gone.")
		l.Stored(shelf, "color=red", "size=9")
	})
}

// theSecondCountsForItself has the second apiserver take for current what it would have counted itself.
var theSecondCountsForItself = world.New("the second apiserver counts its own writes", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Who == "other" && c.HasToken }, Note: "compared with a count of its own",
		Request: func(_ *http.Request, body []byte) []byte {
			return ownToken.ReplaceAll(body, []byte(`"resourceVersion":"1"`))
		},
	})
})

func TestCF11_NoInterleavingOfConcurrentClientsBreaksIt(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF11", From: "D2 paragraph 2",
		Says: "however concurrent clients read live, replace, patch, delete and create objects without finalizers, some " +
			"order of their requests explains every answer",
		Why: "so you may reason as if requests came one after the other; without the compare, no order explains " +
			"what the clients were told",
		Do:      "Reason about one order of requests, except for last finalizers and reads with a resourceVersion.",
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
		l.Say("Left out are reads with a resourceVersion, which may show an older version (OT16d). Left out, too, is the " +
			"removal of a last finalizer, which takes the writes of others with it (CF12).")
		l.Keep("history.html", "porcupine's picture of the history, for a browser", found.Visualize)
		l.Expect(found.Result == porcupine.Ok, "some order of the requests explains every answer", "%s", found.Explain())
	})
}

func TestCF13_AReplaceIsACompareAndSwapOnlyWithTheCallersOwnToken(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF13", From: "D2 paragraph 2",
		Says: "of all clients that saw the lock free and replace it with the token that they read, at most one gets it",
		Why: "a replace is compare-and-swap; a library that renews the token by itself hands the lock to everybody, one " +
			"after the other",
		Do:      "Take a lock with the token that you read, an expiry and a fence.",
		FalseIf: world.ClientTransplantsTheToken.Shows(`one after the other: of 4 clients that got the lock is 4`),
		AlsoFalseIf: []world.World{
			world.EtcdIgnoresTheCompareOf("raced").Shows(`two at once: of 2 clients that got the lock is 2`),
			theLabelIsLost.Shows(`after a label patch: of 4 clients that got the lock is 1`),
		},
		Read:    source.Decl(registryStore, "(*Store).Update"),
		Answers: "#18",
	}, func(l *lab.Lab) {
		leases := l.Of(lab.Lease)
		table := l.Table("clients that saw it free", "got the lock", "refused", "holder after it")
		note := func(how string, lock *lab.Object, want int, answers ...error) {
			got := 0
			for _, err := range answers {
				if err == nil {
					got++
					continue
				}
				l.Refused(err, how+": the replace by one that came late", lab.Stale(lock))
			}
			holder := cmp.Or(lab.Field(leases.Peek(lock.GetName()), "holderIdentity"), "(nobody)")
			table.Row(fmt.Sprintf("%d, %s", len(answers), how), got, len(answers)-got, holder)
			l.Equal(fmt.Sprintf("%s: of %d clients that got the lock", how, len(answers)), got, want)
		}

		free := leases.Create("lock")
		note("one after the other", free, 1, take(l, free, 1), take(l, free, 2), take(l, free, 3), take(l, free, 4))

		free = leases.Create("raced")
		var faster error
		seen, slower := overtaken(l, free,
			func() error { return take(l, free, 1) },
			func() { faster = take(l, free, 2) })
		note("two at once", free, 1, slower, faster)

		free = leases.Create("labeled")
		l.Rival().Of(lab.Lease).Set("labeled", "metadata.labels.team=blue")
		note("after a label patch", free, 0, take(l, free, 1), take(l, free, 2), take(l, free, 3), take(l, free, 4))
		table.End()
		l.Show("two at once", seen)
		l.Say("Nobody may get it, although it stays free: a token is about the object, and not about who holds the lock. " +
			"Read again. And that is not all of a lock: its holder may die (an expiry), or sleep until another has it (a " +
			"fence, OT27b).")
	})
}

// take has the n-th client put its name into a lock that it saw free.
func take(l *lab.Lab, free *lab.Object, n int) error {
	client := fmt.Sprintf("client-%d", n)
	return errorOf(l.As(client).Of(lab.Lease).TryReplace(free, "holderIdentity="+client))
}

// theLabelIsLost has the label patch change nothing.
var theLabelIsLost = world.New("a label moves no token", func(l *lab.Lab) {
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Format == "merge patch" }, Note: "a dry run",
		Request: func(q *http.Request, body []byte) []byte {
			q.URL.RawQuery += "&dryRun=All"
			return body
		},
	})
})

func TestCF14_WritersNeedNoLockToWriteOneObject(t *testing.T) {
	lesson.Prove(t, lesson.Claim{
		ID: "CF14", From: "D2 paragraph 2",
		Says: "writers that read, add an entry, replace, and start again when refused need no lock: every entry is there " +
			"in the end",
		Why: "each refusal is the success of another writer, so nobody is refused more often than there are " +
			"others; a lock saves nothing",
		Do:      "Re-read, add your entry again and replace, until you are not refused.",
		FalseIf: theServerTakesWhatItIsSent.Shows(`1 of 8 entries are there`),
		AlsoFalseIf: []world.World{
			world.ClientDropsTheToken.Shows(`1 of 8 entries are there`),
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

// theServerTakesWhatItIsSent has replaces pass one at a time, each with the current token in the place of its own.
var theServerTakesWhatItIsSent = world.New("a token is good whatever it is", func(l *lab.Lab) {
	var turn sync.Mutex
	l.Wire.AddHTTP(&wire.HTTPRule{
		When: func(c *wire.Call) bool { return c.Verb == http.MethodPut }, Note: "its token was taken for the current one",
		Request: func(_ *http.Request, body []byte) []byte {
			turn.Lock()
			now, _ := l.TryKVAt("/registry/configmaps/" + l.Namespace + "/shelf")
			return ownToken.ReplaceAll(body, fmt.Appendf(nil, `"resourceVersion":"%d"`, now.ModRevision))
		},
		Answer: func(_ *http.Response, body []byte) []byte { turn.Unlock(); return body },
	})
})

// ownToken is the resourceVersion in the body of a request.
var ownToken = regexp.MustCompile(`"resourceVersion":"\d+"`)
