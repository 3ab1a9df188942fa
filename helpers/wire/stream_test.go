package wire

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"modrev/helpers/record"
)

// shelvesOf is the prefix of a lesson's own resource, which its kube-apiserver watches.
func shelvesOf(owner string) string { return "/registry/" + owner + ".modrev.example/shelves/" }

// watching is a watch stream of a kube-apiserver, with the test in the place of etcd.
type watching struct {
	t    *testing.T
	pipe *pipe
	etcd grpc.ServerStream // what etcd sends and receives through
	end  func()
}

func watchThrough(t *testing.T, w *Wire) *watching {
	s := &watching{t: t, pipe: newPipe(t)}
	ready, leave, left := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		left <- w.stream(nil, s.pipe, &grpc.StreamServerInfo{FullMethod: pb.Watch_Watch_FullMethodName},
			func(_ any, ss grpc.ServerStream) error {
				s.etcd = ss
				close(ready)
				<-leave
				return nil
			})
	}()
	<-ready
	s.end = func() { close(leave); require.NoError(t, <-left) }
	return s
}

// create has kube-apiserver create a watch and etcd acknowledge it.
func (s *watching) create(id int64, key string) {
	s.t.Helper()
	s.ask(key)
	s.send(&pb.WatchResponse{WatchId: id, Created: true})
	require.True(s.t, s.next().Created)
}

func (s *watching) ask(key string) {
	s.t.Helper()
	s.pipe.in <- &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte("x"), StartRevision: 5},
	}}
	require.NoError(s.t, s.etcd.RecvMsg(&pb.WatchRequest{}))
}

func (s *watching) askProgress() {
	s.t.Helper()
	q := &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}
	s.pipe.in <- &pb.WatchRequest{RequestUnion: q}
	require.NoError(s.t, s.etcd.RecvMsg(&pb.WatchRequest{}))
}

func (s *watching) send(resp *pb.WatchResponse) {
	s.t.Helper()
	require.NoError(s.t, s.etcd.SendMsg(resp))
}

// next is what kube-apiserver gets next; it must be there already.
func (s *watching) next() *pb.WatchResponse {
	s.t.Helper()
	select {
	case m := <-s.pipe.out:
		return m.(*pb.WatchResponse)
	default:
		s.t.Fatal("nothing was sent to kube-apiserver")
		return nil
	}
}

func (s *watching) silent(why string) {
	s.t.Helper()
	assert.Empty(s.t, s.pipe.out, why)
}

func events(id int64, key string, revisions ...int64) *pb.WatchResponse {
	resp := &pb.WatchResponse{WatchId: id, Header: &pb.ResponseHeader{}}
	for _, r := range revisions {
		resp.Header.Revision = r
		resp.Events = append(resp.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key + "shelf"), ModRevision: r,
			Version: 1}})
	}
	return resp
}

func progress(id, revision int64) *pb.WatchResponse {
	return &pb.WatchResponse{WatchId: id, Header: &pb.ResponseHeader{Revision: revision}}
}

func revisionsOf(resp *pb.WatchResponse) []int64 {
	var out []int64
	for _, ev := range resp.Events {
		out = append(out, ev.Kv.ModRevision)
	}
	return out
}

func TestAFrozenWatchIsSentNothingAndThenEverythingInOrder(t *testing.T) {
	w := &Wire{}
	tap := w.Tap("gu5-1")
	mine, other := shelvesOf("gu5-1"), shelvesOf("gu5-2")
	s := watchThrough(t, w)
	// Two creates may be on their way before the first is acknowledged; etcd acknowledges in order.
	s.ask(mine)
	s.ask(other)
	s.send(&pb.WatchResponse{WatchId: 0, Created: true})
	s.send(&pb.WatchResponse{WatchId: 1, Created: true})
	s.next()
	s.next()
	assert.Equal(t, 1, tap.Watched(mine))
	assert.Equal(t, "1 Watch", tap.Tape().Since(0).Summary())

	s.send(events(0, mine, 6))
	assert.Equal(t, []int64{6}, revisionsOf(s.next()))

	frozen := tap.Freeze(mine)
	s.send(events(0, mine, 7, 8))
	s.send(progress(0, 8))
	s.silent("neither events nor progress reach a frozen watch")
	s.send(events(1, other, 9))
	assert.Equal(t, []int64{9}, revisionsOf(s.next()), "the other watches of the stream go on")
	require.NoError(t, frozen.Holds(t.Context(), 8))
	assert.Equal(t, []int64{7, 8}, frozen.Kept())
	assert.Len(t, tap.Tape().Events(0), 1, "an event is told when it is delivered")

	s.send(progress(progressOfAll, 9))
	told := s.next()
	assert.EqualValues(t, 1, told.WatchId, "progress of all would be a lie to the frozen one: each of the others is told")
	assert.EqualValues(t, 9, told.Header.Revision)
	s.silent("the frozen one is not told")

	frozen.Release()
	frozen.Release()
	assert.Equal(t, []int64{7, 8}, revisionsOf(s.next()))
	assert.EqualValues(t, 8, s.next().Header.Revision)
	s.send(progress(progressOfAll, 9))
	assert.EqualValues(t, progressOfAll, s.next().WatchId)
	s.send(events(0, mine, 10))
	assert.Equal(t, []int64{10}, revisionsOf(s.next()))
	assert.Len(t, tap.Tape().Events(0), 4)
	s.end()
	assert.Zero(t, tap.Watched(mine), "a stream that has ended is forgotten")
	frozen.Release()
}

// Release takes the frost away first and then sends what was kept back. What etcd sends between the two must
// not overtake it.
func TestNothingOvertakesWhatWasKeptBack(t *testing.T) {
	for name, overtaking := range map[string]*pb.WatchResponse{
		"an event":        events(0, shelvesOf("gu5-1"), 8),
		"its progress":    progress(0, 8),
		"progress of all": progress(progressOfAll, 8),
	} {
		w := &Wire{}
		tap := w.Tap("gu5-1")
		mine := shelvesOf("gu5-1")
		s := watchThrough(t, w)
		s.create(0, mine)
		tap.Freeze(mine)
		s.send(events(0, mine, 7))
		tap.mu.Lock()
		delete(tap.frozen, mine) // as Release does, before it thaws
		tap.mu.Unlock()
		s.send(overtaking)
		assert.Equal(t, []int64{7}, revisionsOf(s.next()), name)
		assert.EqualValues(t, 8, s.next().Header.Revision, name)
		s.end()
	}
}

// A release may also come while the progress of all is being passed on: after the one watch was found frozen, and
// before the next is told. Which of them comes first is up to a map, so there are many rounds.
func TestAWatchThatIsReleasedMeanwhileIsNotToldOfAProgressThatItHasNotMade(t *testing.T) {
	for range 50 {
		w := &Wire{}
		one, two := w.Tap("gu5-1"), w.Tap("gu5-2")
		s := watchThrough(t, w)
		for id, tap := range []*Tap{one, two} {
			s.create(int64(id), shelvesOf(tap.owner))
			tap.Freeze(shelvesOf(tap.owner))
			s.send(events(int64(id), shelvesOf(tap.owner), 7))
		}
		releases := func(tap *Tap) {
			tap.mu.Lock()
			defer tap.mu.Unlock()
			clear(tap.frozen) // as Release does, before it thaws
		}
		releases(one)
		s.pipe.sent = func(m proto.Message) { releases(two) }
		s.send(progress(progressOfAll, 8))
		seen := map[int64]bool{}
		for len(s.pipe.out) > 0 {
			switch resp := s.next(); {
			case len(resp.Events) > 0:
				seen[resp.WatchId] = true
			case resp.WatchId == progressOfAll:
				require.Len(t, seen, 2, "told to all, before all had their events")
			default:
				require.True(t, seen[resp.WatchId], "told before its events")
			}
		}
		s.end()
	}
}

func TestAWatchStaysFrozenUntilTheLastFreezeIsReleased(t *testing.T) {
	w := &Wire{}
	tap := w.Tap("gu5-1")
	mine := shelvesOf("gu5-1")
	s := watchThrough(t, w)
	s.create(0, mine)
	first := tap.Freeze(mine)
	second := tap.Freeze(mine)
	s.send(events(0, mine, 7))
	first.Release()
	s.silent("the second freeze is in force")
	assert.Equal(t, []int64{7}, second.Kept())
	second.Release()
	assert.Equal(t, []int64{7}, revisionsOf(s.next()))
	s.end()
}

func TestAFrozenWatchKnowsWhenSomethingWaitsForIt(t *testing.T) {
	w := &Wire{}
	tap := w.Tap("gu5-1")
	mine := shelvesOf("gu5-1")
	s := watchThrough(t, w)
	s.create(0, mine)
	s.askProgress() // before the frost: of no interest
	frozen := tap.Freeze(mine)
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(assert.AnError)
	require.ErrorIs(t, frozen.Asked(gone), assert.AnError)
	s.askProgress()
	s.askProgress()
	require.NoError(t, frozen.Asked(t.Context()))
	s.end()
}

func TestClosingATapThawsItsWatches(t *testing.T) {
	w := &Wire{}
	tap := w.Tap("gu5-1")
	mine := shelvesOf("gu5-1")
	s := watchThrough(t, w)
	s.create(0, mine)
	tap.Freeze(mine)
	s.send(events(0, mine, 7))
	tap.Close()
	assert.Equal(t, []int64{7}, revisionsOf(s.next()))
	tap.Freeze(mine)
	s.send(events(0, mine, 8))
	assert.Equal(t, []int64{8}, revisionsOf(s.next()), "there would be nobody to thaw it")
	s.end()
}

func TestACancelledWatchIsForgotten(t *testing.T) {
	w := &Wire{}
	tap := w.Tap("gu5-1")
	mine := shelvesOf("gu5-1")
	s := watchThrough(t, w)
	s.create(0, mine)
	frozen := tap.Freeze(mine)
	s.send(events(0, mine, 7))
	s.send(&pb.WatchResponse{WatchId: 0, Canceled: true})
	assert.True(t, s.next().Canceled)
	frozen.Release()
	s.silent("what was kept back for a watch that is gone is not sent")

	s.ask(mine)
	s.send(&pb.WatchResponse{WatchId: -1, Created: true, Canceled: true})
	assert.True(t, s.next().Canceled, "a watch that etcd did not create is none")
	s.send(events(99, mine, 8))
	assert.Equal(t, []int64{8}, revisionsOf(s.next()), "what belongs to no watch that we know passes as it is")
	s.end()
}

func TestRulesDropAndAlterSingleEvents(t *testing.T) {
	w := &Wire{}
	tap := w.Tap("rv7-1")
	mine := shelvesOf("rv7-1")
	s := watchThrough(t, w)
	s.create(0, mine)
	// What makes a request wait, refuses it or is about its answer has no meaning for an event. Such rules are not
	// used up by one, either.
	tap.Hold(nil)
	tap.HoldAnswer(nil)
	never := func(proto.Message) { t.Error("an event has no answer") }
	for _, rule := range []*Rule{{Do: func(int) { t.Error("an event does not wait") }}, {Err: io.EOF}, {Lost: io.EOF},
		{Answer: never}} {
		rule.Times, rule.Note = 1, "not for an event"
		tap.Add(rule)
	}
	others := slices.Clone(tap.rules)
	at := func(revision int64) Match {
		return func(r *Request) bool { return r.Method == Event && r.Revision == revision }
	}
	tap.Add(&Rule{When: at(7), Drop: true, Note: "swallowed"})
	tap.Add(&Rule{When: at(8), Note: "moved", Request: func(m proto.Message) { m.(*mvccpb.Event).Kv.ModRevision = 88 }})
	tap.Add(&Rule{When: at(11), Drop: true, Note: "swallowed"})

	s.send(events(0, mine, 5))
	assert.Equal(t, []int64{5}, revisionsOf(s.next()))
	assert.False(t, w.Tampered(mine+"shelf"), "that event was passed on as it is")
	sent := events(0, mine, 6, 7, 8, 9)
	s.send(sent)
	assert.Equal(t, []int64{6, 88, 9}, revisionsOf(s.next()))
	assert.Equal(t, []int64{6, 7, 8, 9}, revisionsOf(sent), "what etcd sent is not touched")
	assert.True(t, w.Tampered(mine+"shelf"))
	s.send(events(0, mine, 7))
	s.silent("a response of which nothing is left is not sent")
	s.send(events(0, mine, 10, 11))
	assert.Equal(t, []int64{10}, revisionsOf(s.next()))

	var notes []string
	for _, ev := range tap.Tape().Events(0) {
		notes = append(notes, ev.Note)
	}
	assert.Equal(t, []string{"", "", "swallowed", "moved", "", "swallowed", "", "swallowed"}, notes)
	assert.Empty(t, tap.Tape().Lines(tap.Tape().Now()-1), "events are not printed among the requests")
	for _, rule := range others {
		assert.Zero(t, rule.used, rule.Note)
	}
	s.end()
}

// rangeStreamThrough asks for a RangeStream through the wire, with an etcd that answers in two parts.
func rangeStreamThrough(ctx context.Context, t *testing.T, w *Wire, key string) (parts []int64, asked *pb.RangeRequest,
	err error) {
	p := newPipe(t)
	p.ctx = ctx
	p.in <- &pb.RangeRequest{Key: []byte(key), RangeEnd: []byte("x"), Revision: 5}
	close(p.in)
	err = w.stream(nil, p, &grpc.StreamServerInfo{FullMethod: pb.KV_RangeStream_FullMethodName},
		func(_ any, ss grpc.ServerStream) error {
			asked = &pb.RangeRequest{}
			if err := ss.RecvMsg(asked); err != nil {
				return err
			}
			for range 2 {
				part := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 9}, Kvs: []*mvccpb.KeyValue{newKeyValue()}, Count: 1}
				if err := ss.SendMsg(&pb.RangeStreamResponse{RangeResponse: part}); err != nil {
					return err
				}
			}
			return nil
		})
	close(p.out)
	for m := range p.out {
		parts = append(parts, m.(*pb.RangeStreamResponse).RangeResponse.Kvs[0].ModRevision)
	}
	return parts, asked, err
}

func TestARangeStreamIsRecordedAndAlteredLikeARange(t *testing.T) {
	w := &Wire{}
	var live []string
	w.Live = func(r Request) { live = append(live, r.String()) }
	tap := w.Tap("rv11-1")
	mine := shelvesOf("rv11-1")
	const printed = "RangeStream rv11-1.modrev.example/shelves/* at revision 5 → 2 of 2 keys, store revision 9"

	parts, _, err := rangeStreamThrough(t.Context(), t, w, mine)
	require.NoError(t, err)
	assert.Equal(t, []int64{1, 1}, parts)
	assert.Equal(t, "    "+printed, tap.Tape().String())
	assert.Equal(t, []string{printed}, live)
	assert.Equal(t, map[string]int64{"RangeStream of a prefix": 1}, w.Census())

	ran := 0
	remove := tap.Add(&Rule{
		Note: "bent", Do: func(int) { ran++ },
		Request: func(m proto.Message) { m.(*pb.RangeRequest).Revision = 0 },
		Answer: func(m proto.Message) {
			m.(*pb.RangeStreamResponse).RangeResponse.Kvs[0].ModRevision = 7
		},
	})
	for range 2 {
		parts, asked, err := rangeStreamThrough(t.Context(), t, w, mine)
		require.NoError(t, err)
		assert.Equal(t, []int64{7, 7}, parts)
		assert.Zero(t, asked.Revision)
	}
	assert.Equal(t, 2, ran)
	assert.Equal(t, "    RangeStream rv11-1.modrev.example/shelves/* → 2 of 2 keys, store revision 9  [bent]",
		tap.Tape().Lines(0)[1])
	remove()

	no := errors.New("compacted")
	remove = tap.Add(&Rule{Err: no})
	_, _, err = rangeStreamThrough(t.Context(), t, w, mine)
	require.ErrorIs(t, err, no)
	assert.Contains(t, tap.Tape().Lines(0)[3], "refused: compacted")
	remove()

	tap.HoldAnswer(nil) // this and the next wait for a request whose answer comes in one piece
	tap.Add(&Rule{Note: "lost", Times: 1, Lost: no})
	others := slices.Clone(tap.rules)
	held := tap.Hold(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, err := rangeStreamThrough(t.Context(), t, w, mine)
		assert.NoError(t, err)
	}()
	require.NoError(t, held.Arrived(t.Context()))
	held.Release()
	<-done
	for _, rule := range others {
		assert.Zero(t, rule.used, rule.Note)
	}
	assert.Contains(t, tap.Tape().Lines(0)[4], "store revision 9  [held until the rival had written]")

	_, _, err = rangeStreamThrough(t.Context(), t, w, "/registry/shelves/")
	require.NoError(t, err)
	assert.Len(t, tap.Tape().Since(0), 5, "what nobody owns is on no tape")

	var kinds []record.Kind
	for _, step := range tap.Tape().Record().Steps {
		kinds = append(kinds, step.Kind)
	}
	for i := 0; i < len(kinds); i += 2 {
		assert.Equal(t, []record.Kind{record.Asked, record.Replied}, kinds[i:i+2], "each is answered")
	}
}

func TestAHeldRangeStreamWhoseSenderGivesUpIsDropped(t *testing.T) {
	w := &Wire{}
	tap := w.Tap("rv11-1")
	held := tap.Hold(nil)
	ran := 0
	tap.Add(&Rule{Do: func(int) { ran++ }})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		parts, _, err := rangeStreamThrough(ctx, t, w, shelvesOf("rv11-1"))
		assert.Empty(t, parts, "etcd has not executed it")
		gone <- err
	}()
	require.NoError(t, held.Arrived(t.Context()))
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	select {
	case <-held.dropped:
	default:
		t.Error("whoever waits until the request is given up is not told")
	}
	assert.Contains(t, tap.Tape().String(), "refused: context canceled")

	_, _, err := rangeStreamThrough(t.Context(), t, w, shelvesOf("rv11-1"))
	require.NoError(t, err)
	assert.Equal(t, 1, ran, "a rule behind the one that held is not asleep for ever")
}

func TestStreamsThatNobodyWantsRecordedPassAsTheyAre(t *testing.T) {
	w := &Wire{Origin: func(context.Context) string { return "" }}
	p := newPipe(t)
	var through grpc.ServerStream
	pass := func(_ any, ss grpc.ServerStream) error { through = ss; return io.EOF }
	err := w.stream(nil, p, &grpc.StreamServerInfo{FullMethod: pb.Watch_Watch_FullMethodName}, pass)
	require.ErrorIs(t, err, io.EOF)
	assert.Same(t, p, through)

	w.Origin = nil
	err = w.stream(nil, p, &grpc.StreamServerInfo{FullMethod: pb.Lease_LeaseKeepAlive_FullMethodName}, pass)
	require.ErrorIs(t, err, io.EOF)
	assert.Same(t, p, through)
	err = w.stream(nil, p, &grpc.StreamServerInfo{FullMethod: pb.KV_RangeStream_FullMethodName}, pass)
	require.ErrorIs(t, err, io.EOF, "a stream that ends before it was asked for anything")
}

func TestAWatchOfNobodysKeyIsFrozenForOneKubeApiserver(t *testing.T) {
	w := &Wire{}
	s := watchThrough(t, w)
	const definitions = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
	s.create(0, definitions)

	other := w.FreezeCommon("second", definitions)
	s.send(events(0, definitions, 6))
	assert.Equal(t, []int64{6}, revisionsOf(s.next()), "that of another kube-apiserver goes on")
	other.Release()

	frozen := w.FreezeCommon("apiserver", definitions)
	s.send(events(0, definitions, 7))
	s.silent("the events of a frozen watch are kept back")
	assert.Equal(t, []int64{7}, frozen.Kept())
	frozen.Release()
	assert.Equal(t, []int64{7}, revisionsOf(s.next()))
	s.send(events(0, definitions, 8))
	assert.Equal(t, []int64{8}, revisionsOf(s.next()))
	s.end()
}
