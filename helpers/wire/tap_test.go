package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

func TestATapIsGivenTheKeysOfItsOwnerAndNoOthers(t *testing.T) {
	for segment, owner := range map[string]string{
		"rv1-1":                        "rv1-1",
		"rv1-1-x":                      "rv1-1",
		"rv1-1.modrev.example":         "rv1-1",
		"rv1-12":                       "rv1-12",
		"rv1-12-x":                     "rv1-12",
		"gu4b-7":                       "gu4b-7",
		"rv1-1x":                       "",
		"rv1-":                         "",
		"rv1":                          "",
		"-1":                           "",
		"shelves.rv1-1.modrev.example": "",
		"kube-system":                  "",
	} {
		assert.Equal(t, owner, ownerOf(segment), segment)
	}

	s := newStore()
	one, twelve := s.wire.Tap("rv1-1"), s.wire.Tap("rv1-12")
	for _, k := range []string{
		key("rv1-1", "a"), key("rv1-1-x", "b"), "/registry/rv1-1.modrev.example/shelves/rv1-1/c", "/registry/nodes/rv1-1-d",
		key("rv1-12", "e"), key("rv1-12-x", "f"), key("rv1-1x", "g"), key("rv1-2", "h"), key("default", "i"),
	} {
		s.txn(t, create(k))
	}
	assert.Equal(t, []string{
		key("rv1-1", "a"), key("rv1-1-x", "b"), "/registry/rv1-1.modrev.example/shelves/rv1-1/c", "/registry/nodes/rv1-1-d",
	}, keysOf(one.Tape().Since(0)))
	assert.Equal(t, []string{key("rv1-12", "e"), key("rv1-12-x", "f")}, keysOf(twelve.Tape().Since(0)))

	one.Close()
	one.Close()
	s.txn(t, create(key("rv1-1", "late")))
	assert.Len(t, one.Tape().Since(0), 4, "a tap that is closed is given nothing more")
}

func keysOf(rs Requests) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Key)
	}
	return out
}

func TestRequestsThatNobodyWantsRecordedPassAsTheyAre(t *testing.T) {
	s := newStore()
	tap := s.wire.Tap("rv1-1")
	s.wire.Origin = func(context.Context) string { return "" }
	s.txn(t, create(key("rv1-1", "a")))
	assert.Empty(t, tap.Tape().Since(0))
	assert.Empty(t, s.wire.Census())

	s.wire.Origin = nil
	_, err := s.ask(t.Context(), &pb.LeaseGrantRequest{})
	require.NoError(t, err)
	assert.Empty(t, s.wire.Census(), "the leases of etcd are none of the book's business")
}

func TestARequestIsHeldUntilItIsReleasedAndLaterOnesPass(t *testing.T) {
	s := newStore()
	tap := s.wire.Tap("cf1-1")
	k := key("cf1-1", "shelf")
	made := s.txn(t, create(k)).Header.Revision

	held := tap.Hold(UpdateOf(k))
	slow := make(chan *pb.TxnResponse)
	go func() { slow <- s.txn(t, update(k, made)) }()
	require.NoError(t, held.Arrived(t.Context()))
	assert.Len(t, s.seen(), 1, "the held request has not reached the store")

	fast := s.txn(t, update(k, made))
	assert.True(t, fast.Succeeded)
	held.Release()
	held.Release()
	assert.False(t, (<-slow).Succeeded, "what was held comes second")

	lines := tap.Tape().Lines(0)
	assert.Equal(t, []string{
		"    Txn if mod_revision(configmaps/cf1-1/shelf) == 0 then Put → succeeded, revision 2",
		"    Txn if mod_revision(configmaps/cf1-1/shelf) == 2 then Put else Get → failed, the else branch returned " +
			"mod_revision 3" +
			"  [held until the rival had written]",
		"    Txn if mod_revision(configmaps/cf1-1/shelf) == 2 then Put else Get → succeeded, revision 3",
	}, lines, "a request stands on the tape where it arrived")
	assert.True(t, tap.Tape().Since(0)[1].Raced)
}

func TestAHeldRequestWhoseSenderGivesUpIsNotExecuted(t *testing.T) {
	s := newStore()
	tap := s.wire.Tap("cf1-1")
	k := key("cf1-1", "shelf")
	held := tap.Hold(TxnOn(k))
	ran := 0
	tap.Add(&Rule{When: TxnOn(k), Do: func(int) { ran++ }})

	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { _, err := s.ask(ctx, create(k)); gone <- err }()
	require.NoError(t, held.Arrived(t.Context()))
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	assert.Empty(t, s.seen())
	assert.Contains(t, tap.Tape().String(), "refused: context canceled")

	s.txn(t, create(k))
	assert.Equal(t, 1, ran, "a rule behind the one that held is not asleep for ever")
}

func TestWhoWaitsForARequestThatNeverComesIsToldWhatItWaitedFor(t *testing.T) {
	tap := (&Wire{}).Tap("cf1-1")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the lesson did not get on"))
	err := tap.Hold(AnyTxn).Arrived(ctx)
	assert.EqualError(t, err, "waiting for the request that is to be held to reach etcd: the lesson did not get on")
}

func TestClosingATapLetsEverythingGo(t *testing.T) {
	s := newStore()
	tap := s.wire.Tap("cf1-1")
	a, b := key("cf1-1", "a"), key("cf1-1", "b")
	held, answer := tap.Hold(TxnOn(a)), tap.HoldAnswer(TxnOn(b))
	var done sync.WaitGroup
	for _, k := range []string{a, b} {
		done.Go(func() { s.txn(t, create(k)) })
	}
	require.NoError(t, held.Arrived(t.Context()))
	require.NoError(t, answer.Arrived(t.Context()))
	assert.Len(t, s.seen(), 1, "the one is executed and its answer held, the other is not executed")
	tap.Close()
	done.Wait()
	assert.Len(t, s.seen(), 2)
}

func TestAnAnswerIsHeldAfterTheRequestWasExecuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		tap := s.wire.Tap("ot22-1")
		k := key("ot22-1", "shelf")
		held := tap.HoldAnswer(TxnOn(k))
		answered := make(chan struct{})
		go func() { defer close(answered); s.txn(t, create(k)) }()
		require.NoError(t, held.Arrived(t.Context()))
		assert.Len(t, s.seen(), 1)
		synctest.Wait() // an answer that is not held has been given
		select {
		case <-answered:
			t.Error("the answer was not held")
		default:
		}
		held.Release()
		<-answered
	})
}

func TestARuleAppliesAsOftenAsItSaysAndCounts(t *testing.T) {
	s := newStore()
	tap := s.wire.Tap("cf5-1")
	k := key("cf5-1", "shelf")
	var ns []int
	remove := tap.Add(&Rule{When: TxnOn(k), Times: 3, Do: func(n int) { ns = append(ns, n) }})
	for range 5 {
		s.txn(t, create(k))
	}
	assert.Equal(t, []int{1, 2, 3}, ns)
	remove()
	remove()

	ns = nil
	remove = tap.Add(&Rule{Do: func(n int) { ns = append(ns, n) }})
	s.txn(t, create(k))
	remove()
	s.txn(t, create(k))
	assert.Equal(t, []int{1}, ns, "a rule that was removed does nothing")
}

// A rival that writes whenever the writer is about to: its own transactions must not bring on another rival.
func TestWhatARuleCausesPassesTheRuleBy(t *testing.T) {
	s := newStore()
	tap := s.wire.Tap("cf5-1")
	k := key("cf5-1", "shelf")
	at := s.txn(t, create(k)).Header.Revision
	const rivals = 30
	tap.Add(&Rule{When: UpdateOf(k), Times: rivals, Note: "a rival was first", Do: func(int) {
		assert.True(t, s.txn(t, update(k, at)).Succeeded, "the rival comes first")
	}})

	tries := 0
	for won := false; !won; {
		tries++
		resp := s.txn(t, update(k, at))
		if won = resp.Succeeded; !won {
			at = resp.Responses[0].GetResponseRange().Kvs[0].ModRevision
		}
	}
	assert.Equal(t, rivals+1, tries)
	assert.Equal(t, fmt.Sprintf("%d Txn", 1+2*rivals+1), tap.Tape().Since(0).Summary())
}

func TestAnAlteredRequestIsWhatEtcdGetsAndWhatTheTapeTells(t *testing.T) {
	s := newStore()
	tap := s.wire.Tap("gu8-1")
	k := key("gu8-1", "shelf")
	s.txn(t, create(k))
	tap.Add(AlterTxn(UpdateOf(k), "the compare was taken out", func(q *pb.TxnRequest) { q.Compare = nil }))

	sent := update(k, 999)
	assert.True(t, s.txn(t, sent).Succeeded)
	assert.Len(t, sent.Compare, 1, "what was sent is not touched: it is a copy that is altered")
	assert.Empty(t, s.seen()[1].(*pb.TxnRequest).Compare)
	told := tap.Tape().Since(0)[1]
	assert.Equal(t, k, told.Key, "without a compare the request still belongs to its key")
	assert.Equal(t, "Txn without a compare, on configmaps/gu8-1/shelf then Put else Get → succeeded, revision 3"+
		"  [the compare was taken out]", told.String())

	s.txn(t, create(key("gu8-2", "shelf")))
	assert.Equal(t, map[string]int64{
		"Txn if mod_revision(key) == 0 then Put":          2,
		"Txn if mod_revision(key) == M then Put else Get": 1,
	}, s.wire.Census(), "the census counts what kube-apiserver sent, not what was made of it")
}

func TestARefusedRequestNeverReachesEtcd(t *testing.T) {
	s := newStore()
	tap := s.wire.Tap("cf1-1")
	no := errors.New("not today")
	tap.Add(&Rule{When: AnyTxn, Times: 1, Err: no})
	_, err := s.ask(t.Context(), create(key("cf1-1", "shelf")))
	require.ErrorIs(t, err, no)
	assert.Empty(t, s.seen())
	assert.Equal(t, "    Txn if mod_revision(configmaps/cf1-1/shelf) == 0 then Put → refused: not today",
		tap.Tape().String())
}

func TestAnAlteredAnswerIsWhatTheAPIServerGetsAndWhatTheTapeTells(t *testing.T) {
	s := newStore()
	tap := s.wire.Tap("rv1-1")
	k := key("rv1-1", "shelf")
	tap.Add(&Rule{When: AnyTxn, Note: "raised", Answer: func(m proto.Message) { m.(*pb.TxnResponse).Header.Revision++ }})
	tap.Add(&Rule{When: ReadOf(k), Answer: func(m proto.Message) { m.(*pb.RangeResponse).Kvs[0].ModRevision = 7 }})
	assert.EqualValues(t, 3, s.txn(t, create(k)).Header.Revision)
	resp, err := s.ask(t.Context(), get(k))
	require.NoError(t, err)
	assert.EqualValues(t, 7, resp.(*pb.RangeResponse).Kvs[0].ModRevision)
	assert.EqualValues(t, 2, s.keys[k].ModRevision, "what etcd holds is not touched")
	assert.Equal(t, []string{
		"    Txn if mod_revision(configmaps/rv1-1/shelf) == 0 then Put → succeeded, revision 3  [raised]",
		"    Range configmaps/rv1-1/shelf → mod_revision 7",
	}, tap.Tape().Lines(0))
}

func TestTheNotesOfAllRulesAreTold(t *testing.T) {
	s := newStore()
	tap := s.wire.Tap("rv1-1")
	tap.Add(&Rule{Note: "one"})
	tap.Add(&Rule{})
	tap.Add(&Rule{Note: "two"})
	s.txn(t, create(key("rv1-1", "shelf")))
	assert.Contains(t, tap.Tape().String(), "[one; two]")
}

func TestLiveIsToldOfEveryRequestOnceItIsAnswered(t *testing.T) {
	s := newStore()
	var mu sync.Mutex
	var told []string
	s.wire.Live = func(r Request) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, r.String())
	}
	s.wire.Tap("rv1-1")
	s.txn(t, create(key("rv1-1", "mine")))
	s.txn(t, create(key("default", "nobodys")))
	assert.Equal(t, []string{
		"Txn if mod_revision(configmaps/rv1-1/mine) == 0 then Put → succeeded, revision 2",
		"Txn if mod_revision(configmaps/default/nobodys) == 0 then Put → succeeded, revision 3",
	}, told)
}

func TestATransactionThatWritesMoreThanOneKeyIsRemembered(t *testing.T) {
	s := newStore()
	one := create(key("default", "a"))
	s.txn(t, one)
	assert.Empty(t, s.wire.MultiKeyTxns())
	for range 20 {
		two := create(key("default", "b"))
		two.Success = append(two.Success, putOp(key("default", "c")))
		s.txn(t, two)
	}
	assert.Len(t, s.wire.MultiKeyTxns(), 10, "ten are enough to know")
	assert.Contains(t, s.wire.MultiKeyTxns()[0], "then Put and Put")
}

func TestTapsOfManyLessonsAtOnceDoNotDisturbEachOther(t *testing.T) {
	s := newStore()
	var lessons sync.WaitGroup
	for i := range 16 {
		lessons.Go(func() {
			owner := fmt.Sprintf("rv1-%d", i+1)
			tap := s.wire.Tap(owner)
			defer tap.Close()
			k := key(owner, "shelf")
			tap.Add(&Rule{When: UpdateOf(k), Times: 5, Do: func(int) {
				resp := s.txn(t, update(k, 0))
				s.txn(t, update(k, resp.Responses[0].GetResponseRange().Kvs[0].ModRevision))
			}})
			held := tap.Hold(ReadOf(k))
			var reader sync.WaitGroup
			reader.Go(func() { _, _ = s.ask(t.Context(), get(k)) })
			assert.NoError(t, held.Arrived(t.Context()))
			at := s.txn(t, create(k)).Header.Revision
			for range 5 {
				if resp := s.txn(t, update(k, at)); !resp.Succeeded {
					at = resp.Responses[0].GetResponseRange().Kvs[0].ModRevision
				}
			}
			held.Release()
			reader.Wait()
			assert.Equal(t, "1 Range, 16 Txn", tap.Tape().Since(0).Summary())
			_ = tap.Tape().Lines(0)
		})
	}
	lessons.Wait()
}
