package wire

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"modrev/helpers/record"
)

func TestARequestIsPrintedAsAPersonReadsIt(t *testing.T) {
	const k = "/registry/configmaps/cf1-1/shelf"
	at := func(q any, change func(*Request)) Request {
		r := describe(q)
		change(r)
		return *r
	}
	succeeded := func(r *Request) { r.Answered, r.Succeeded, r.StoreRevision = true, true, 217 }
	failed := func(found ...KeyValue) func(*Request) {
		return func(r *Request) { r.Answered, r.Found = true, found }
	}
	prefix := &pb.RangeRequest{Key: []byte("/registry/configmaps/"), RangeEnd: []byte("/registry/configmaps0"), Limit: 1,
		Revision: 9}
	count := &pb.RangeRequest{Key: []byte("/registry/configmaps/"), RangeEnd: []byte("/registry/configmaps0"),
		CountOnly: true}
	remove := &pb.TxnRequest{
		Compare: []*pb.Compare{ifModRevision(k, 216)}, Success: []*pb.RequestOp{deleteOp(k)},
		Failure: []*pb.RequestOp{getOp(k)},
	}
	odd := &pb.TxnRequest{
		Compare: []*pb.Compare{
			{Key: []byte(k), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER,
				TargetUnion: &pb.Compare_Version{Version: 1}},
			{Key: []byte(k), Target: pb.Compare_CREATE, Result: pb.Compare_LESS,
				TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 2}},
			{Key: []byte(k), Target: pb.Compare_LEASE, Result: pb.Compare_NOT_EQUAL, TargetUnion: &pb.Compare_Lease{Lease: 3}},
			{Key: []byte(k), Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte("v")}},
		},
		Success: []*pb.RequestOp{putOp(k), {Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{}}}},
	}
	for _, c := range []struct {
		request Request
		printed string
		shape   string
	}{
		{
			at(create(k), succeeded),
			"Txn if mod_revision(configmaps/cf1-1/shelf) == 0 then Put → succeeded, revision 217",
			"Txn if mod_revision(key) == 0 then Put",
		},
		{
			at(create(k), failed()),
			"Txn if mod_revision(configmaps/cf1-1/shelf) == 0 then Put → failed",
			"Txn if mod_revision(key) == 0 then Put",
		},
		{
			at(update(k, 216), failed(KeyValue{ModRevision: 219})),
			"Txn if mod_revision(configmaps/cf1-1/shelf) == 216 then Put else Get → failed, the else branch returned " +
				"mod_revision 219",
			"Txn if mod_revision(key) == M then Put else Get",
		},
		{
			at(update(k, 216), failed()),
			"Txn if mod_revision(configmaps/cf1-1/shelf) == 216 then Put else Get → failed, the else branch found nothing",
			"Txn if mod_revision(key) == M then Put else Get",
		},
		{
			at(update(k, 216), func(*Request) {}),
			"Txn if mod_revision(configmaps/cf1-1/shelf) == 216 then Put else Get → (no answer yet)",
			"Txn if mod_revision(key) == M then Put else Get",
		},
		{
			at(update(k, 216), func(r *Request) { answered(r, nil, status.Error(codes.Unavailable, "etcdserver: no leader")) }),
			"Txn if mod_revision(configmaps/cf1-1/shelf) == 216 then Put else Get → refused: etcdserver: no leader",
			"Txn if mod_revision(key) == M then Put else Get",
		},
		{
			at(remove, succeeded),
			"Txn if mod_revision(configmaps/cf1-1/shelf) == 216 then Delete else Get → succeeded, revision 217",
			"Txn if mod_revision(key) == M then Delete else Get",
		},
		{
			at(&pb.TxnRequest{Success: []*pb.RequestOp{putOp(k)}}, succeeded),
			"Txn without a compare, on configmaps/cf1-1/shelf then Put → succeeded, revision 217",
			"Txn then Put",
		},
		{
			at(odd, succeeded),
			"Txn if version(configmaps/cf1-1/shelf) > 1 and create_revision(configmaps/cf1-1/shelf) < 2 and " +
				"lease(configmaps/cf1-1/shelf) != 3 and value(configmaps/cf1-1/shelf) == 0 then Put and Txn → succeeded, " +
				"revision 217",
			"Txn if version(key) > M and create_revision(key) < M and lease(key) != M and value(key) == 0 then Put and Txn",
		},
		{
			at(get(k), failed(KeyValue{ModRevision: 216})),
			"Range configmaps/cf1-1/shelf → mod_revision 216", "Range of a key",
		},
		{
			at(get(k), func(r *Request) { r.Answered, r.StoreRevision, r.Revision = true, 220, 8 }),
			"Range configmaps/cf1-1/shelf at revision 8 → nothing, store revision 220", "Range of a key",
		},
		{
			at(prefix, func(r *Request) {
				r.Answered, r.StoreRevision, r.Found, r.FoundInAll = true, 220, []KeyValue{{ModRevision: 216}}, 5
			}),
			"Range configmaps/* limit 1 at revision 9 → 1 of 5 keys, store revision 220", "Range of a prefix, limit 1",
		},
		{
			at(count, func(r *Request) { r.Answered, r.FoundInAll = true, 5 }),
			"Range configmaps/* count only → 5 keys", "Range of a prefix, count only",
		},
		{
			*rangeOf(RangeStream, &pb.RangeRequest{Key: []byte("/registry/configmaps/"), RangeEnd: []byte("x")}),
			"RangeStream configmaps/* → (no answer yet)", "RangeStream of a prefix",
		},
		{
			*describe(&pb.RangeRequest{Key: []byte(k), Serializable: true}),
			"Range configmaps/cf1-1/shelf → (no answer yet)", "Range of a key, serializable",
		},
		{
			at(&pb.PutRequest{Key: []byte(k)}, succeeded),
			"Put configmaps/cf1-1/shelf → revision 217", "Put",
		},
		{
			at(&pb.DeleteRangeRequest{Key: []byte(k)}, succeeded),
			"DeleteRange configmaps/cf1-1/shelf → revision 217", "DeleteRange",
		},
		{
			at(&pb.CompactionRequest{Revision: 200}, succeeded),
			"Compact up to revision 200 → revision 217", "Compact",
		},
		{
			Request{Method: Watch, Key: "/registry/configmaps/", Revision: 217},
			"Watch configmaps/ from revision 217", "Watch",
		},
		{
			Request{Method: Event, Key: k, Revision: 218, Found: []KeyValue{{}}, Note: "swallowed"},
			"event PUT configmaps/cf1-1/shelf at mod_revision 218  [swallowed]", "Event",
		},
		{
			Request{Method: Event, Key: k, Revision: 219, Found: []KeyValue{{Deleted: true}}},
			"event DELETE configmaps/cf1-1/shelf at mod_revision 219", "Event",
		},
	} {
		assert.Equal(t, c.printed, c.request.String())
		assert.Equal(t, c.shape, c.request.Shape())
	}
}

func TestARequestWroteIfItChangedTheStore(t *testing.T) {
	put, get := []Op{{Kind: "Put"}}, []Op{{Kind: "Get"}}
	for name, c := range map[string]struct {
		request Request
		wrote   bool
	}{
		"an accepted transaction": {Request{Method: Txn, Then: put, Else: get, Answered: true, Succeeded: true},
			true},
		"an accepted delete": {Request{Method: Txn, Then: []Op{{Kind: "Delete"}}, Answered: true,
			Succeeded: true}, true},
		"a put":                                {Request{Method: Put, Answered: true}, true},
		"a range that is deleted":              {Request{Method: DeleteRange, Answered: true}, true},
		"a failed compare":                     {Request{Method: Txn, Then: put, Else: get, Answered: true}, false},
		"a transaction that only reads":        {Request{Method: Txn, Then: get, Answered: true, Succeeded: true}, false},
		"a transaction without an answer":      {Request{Method: Txn, Then: put, Succeeded: true}, false},
		"a transaction that etcd has refused":  {Request{Method: Txn, Then: put, Answered: true, Err: "no space"}, false},
		"a read":                               {Request{Method: Range, Answered: true}, false},
		"a watch":                              {Request{Method: Watch}, false},
		"a compaction, which forgets versions": {Request{Method: Compact, Answered: true}, false},
	} {
		assert.Equal(t, c.wrote, c.request.Wrote(), name)
	}
}

func TestRequestsAreSummedUpByMethod(t *testing.T) {
	assert.Equal(t, "no request", Requests{}.Summary())
	rs := Requests{{Method: Txn}, {Method: Range, Key: "a"}, {Method: Txn}, {Method: Watch}, {Method: RangeStream},
		{Method: Compact}}
	assert.Equal(t, "1 Range, 1 RangeStream, 2 Txn, 1 Compact, 1 Watch", rs.Summary())
	assert.Equal(t, 2, rs.Count(Txn))
	assert.Equal(t, []string{"", "a", ""}, keysOf(rs.Only(Range, Txn)))
}

func TestATapeKeepsTheNewestAndSaysWhatItDropped(t *testing.T) {
	var tape Tape
	before := tape.Now()
	const told = 3 * tapeLength
	var late Mark
	for i := range told {
		if i == told-2 {
			late = tape.Now()
		}
		tape.Remark("%d", i)
	}
	lines := tape.Lines(before)
	assert.LessOrEqual(t, len(lines), tapeLength+1)
	assert.Equal(t, fmt.Sprintf("(%d earlier entries are no longer kept)", told-len(lines)+1), lines[0])
	assert.Equal(t, fmt.Sprint(told-1), lines[len(lines)-1])
	assert.Equal(t, []string{fmt.Sprint(told - 2), fmt.Sprint(told - 1)}, tape.Lines(late), "a mark stays good")
	assert.Empty(t, tape.Lines(tape.Now()))
	assert.Empty(t, tape.Lines(tape.Now()+1000))

	tape.Forget()
	assert.Empty(t, tape.Lines(0))
}

func TestATapeIsNotWrittenWhileAnybodyPausesIt(t *testing.T) {
	var tape Tape
	outer := tape.Pause()
	inner := tape.Pause()
	inner()
	inner()
	tape.Remark("in the outer pause")
	outer()
	tape.Remark("after it")
	assert.Equal(t, []string{"after it"}, tape.Lines(0))
}

func TestTheStepsTellARequestWhereItArrivedAndItsAnswerWhereItWasGiven(t *testing.T) {
	var tape Tape
	slow, fast := describe(update(key("cf1-1", "a"), 5)), describe(update(key("cf1-1", "a"), 5))
	tape.call(&Call{Who: "writer", Verb: "PUT"})
	tape.request(slow)
	tape.request(fast)
	tape.request(&Request{Method: Event, Found: []KeyValue{{}}})
	tape.answered(fast, &pb.TxnResponse{Succeeded: true, Header: &pb.ResponseHeader{Revision: 6}}, nil)
	tape.answered(slow, nil, errors.New("no leader"))
	tape.Remark("the end")

	var kinds []string
	told := tape.Record()
	for _, s := range told.Steps {
		switch s.Kind {
		case record.Sent:
			kinds = append(kinds, "call "+told.Calls[s.N].Who)
		case record.Asked:
			kinds = append(kinds, "ask")
		case record.Replied:
			kinds = append(kinds, "reply "+told.Requests[s.N].Outcome())
		default:
			kinds = append(kinds, s.Text)
		}
	}
	assert.Equal(t, []string{
		"call writer", "ask", "ask", "reply succeeded, revision 6", "reply refused: no leader", "the end",
	}, kinds)
	assert.Len(t, tape.Events(0), 1)
	assert.Len(t, tape.Since(0), 2)
	assert.Len(t, tape.Calls(0), 1)
}

func TestNoMoreThanAFewOfTheKeysThatWereFoundAreKept(t *testing.T) {
	r := describe(get("/registry/configmaps/"))
	many := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 9}, Count: 100}
	for range 100 {
		many.Kvs = append(many.Kvs, newKeyValue())
	}
	answered(r, many, nil)
	assert.Len(t, r.Found, keptKeyValues)
	assert.EqualValues(t, 100, r.FoundInAll)
}

func TestTheTapeTellsInWhichOrderEtcdExecutedTheRequests(t *testing.T) {
	var tape Tape
	held, rival, read := describe(update(key("cf1-1", "a"), 5)), describe(update(key("cf1-1", "a"), 5)),
		describe(get(key("cf1-1", "a")))
	at := func(revision int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: revision} }
	for _, r := range []*Request{held, rival, read} {
		tape.request(r)
	}
	// The read saw what the rival wrote, and was answered first.
	tape.executed(read, &pb.RangeResponse{Header: at(6)})
	tape.executed(rival, &pb.TxnResponse{Succeeded: true, Header: at(6)})
	tape.executed(held, &pb.TxnResponse{Header: at(6)})
	tape.executed(describe(get(key("cf1-1", "b"))), &pb.RangeResponse{Header: at(5)})

	told := tape.Record()
	assert.Equal(t, []int{4, 2, 3}, []int{told.Requests[0].Executed, told.Requests[1].Executed, told.Requests[2].Executed})
	assert.Equal(t, []Method{Txn, Range, Txn}, []Method{told.Executed()[0].Method, told.Executed()[1].Method,
		told.Executed()[2].Method})
}
