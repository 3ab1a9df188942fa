package wire

import (
	"cmp"
	"context"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// progressOfAll is the watch id with which etcd answers a progress request: it speaks for every watch
// of the stream.
const progressOfAll = -1

func (w *Wire) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	from := w.origin(ss.Context())
	if from == "" {
		return handler(srv, ss)
	}
	switch info.FullMethod {
	case pb.Watch_Watch_FullMethodName:
		s := &watchStream{ServerStream: ss, wire: w, from: from, byID: make(map[int64]*watch)}
		defer s.end()
		return handler(srv, s)
	case pb.KV_RangeStream_FullMethodName:
		s := &rangeStream{ServerStream: ss, wire: w, from: from}
		err := handler(srv, s)
		s.end(err)
		return err
	}
	return handler(srv, ss)
}

// watch is one of the watches that share a stream.
type watch struct {
	key   string
	tap   *Tap // of the key, when the watch was created; that of what belongs to nobody when it had none
	queue []*pb.WatchResponse
}

// watchStream stands between one kube-apiserver's watch stream and etcd.
type watchStream struct {
	grpc.ServerStream
	wire *Wire
	from string

	mu      sync.Mutex // also keeps SendMsg to one caller at a time
	pending []string   // keys of the watches that etcd has not yet acknowledged
	byID    map[int64]*watch
}

func (s *watchStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	q, ok := m.(*pb.WatchRequest)
	if !ok {
		return nil
	}
	if q.GetProgressRequest() != nil {
		s.askedForProgress()
	}
	if create := q.GetCreateRequest(); create != nil {
		r := &Request{
			Method: Watch, From: s.from, Key: string(create.Key), End: string(create.RangeEnd), Revision: create.StartRevision,
		}
		s.wire.count(r)
		if t := s.wire.tapOf(r.Key); t != nil {
			t.tape.request(r)
		}
		if s.wire.Live != nil {
			s.wire.Live(*r)
		}
		s.mu.Lock()
		s.pending = append(s.pending, r.Key)
		s.mu.Unlock()
	}
	return nil
}

// askedForProgress tells the frozen watches of the stream that something waits for their caches.
func (s *watchStream) askedForProgress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, wt := range s.byID {
		if f := s.frozen(wt); f != nil {
			f.once.Do(func() { close(f.asked) })
		}
	}
}

func (s *watchStream) SendMsg(m any) error {
	resp, ok := m.(*pb.WatchResponse)
	if !ok {
		return s.ServerStream.SendMsg(m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case resp.Created:
		s.created(resp)
		return s.ServerStream.SendMsg(resp)
	case resp.WatchId == progressOfAll:
		return s.progress(resp)
	}
	wt := s.byID[resp.WatchId]
	if wt == nil {
		return s.ServerStream.SendMsg(resp)
	}
	if resp.Canceled {
		delete(s.byID, resp.WatchId)
		return s.ServerStream.SendMsg(resp)
	}
	if f := s.frozen(wt); f != nil {
		wt.queue = append(wt.queue, resp)
		f.note(resp)
		return nil
	}
	// A release may still be on its way here: what was kept back goes first.
	if err := s.flush(wt); err != nil {
		return err
	}
	return s.deliver(resp)
}

func (s *watchStream) flush(wt *watch) error {
	queue := wt.queue
	wt.queue = nil
	for _, resp := range queue {
		if err := s.deliver(resp); err != nil {
			return err
		}
	}
	return nil
}

func (s *watchStream) created(resp *pb.WatchResponse) {
	if len(s.pending) == 0 {
		return
	}
	key := s.pending[0]
	s.pending = s.pending[1:]
	if resp.Canceled {
		return
	}
	wt := &watch{key: key, tap: cmp.Or(s.wire.tapOf(key), s.wire.commonOf(s.from))}
	s.byID[resp.WatchId] = wt
	wt.tap.follow(key, s)
}

// frozen returns what freezes a watch now, or nil.
func (s *watchStream) frozen(wt *watch) *Frozen {
	wt.tap.mu.Lock()
	defer wt.tap.mu.Unlock()
	return wt.tap.frozen[wt.key]
}

// progress passes on the answer to a progress request. To a frozen watch it would be a lie: its cache
// would think that it had seen everything up to that revision. So each of the others is told by itself.
func (s *watchStream) progress(resp *pb.WatchResponse) error {
	var told []int64
	for id, wt := range s.byID {
		if s.frozen(wt) != nil { // asked once: it may be released at any moment, and is told the next time
			continue
		}
		if err := s.flush(wt); err != nil { // a release may still be on its way here
			return err
		}
		told = append(told, id)
	}
	if len(told) == len(s.byID) {
		return s.ServerStream.SendMsg(resp)
	}
	for _, id := range told {
		if err := s.ServerStream.SendMsg(&pb.WatchResponse{Header: resp.Header, WatchId: id}); err != nil {
			return err
		}
	}
	return nil
}

// deliver records the events of a response, lets the rules drop or alter some, and sends what is left.
func (s *watchStream) deliver(resp *pb.WatchResponse) error {
	var events []*mvccpb.Event
	changed := false
	for _, ev := range resp.Events {
		now := s.event(ev)
		changed = changed || now != ev
		if now != nil {
			events = append(events, now)
		}
	}
	switch {
	case !changed:
		return s.ServerStream.SendMsg(resp)
	case len(events) == 0:
		return nil
	}
	resp = proto.Clone(resp).(*pb.WatchResponse)
	resp.Events = events
	return s.ServerStream.SendMsg(resp)
}

// event records one event and returns what is to be sent in its place: itself, an altered copy, or nil.
func (s *watchStream) event(ev *mvccpb.Event) *mvccpb.Event {
	key := string(ev.Kv.Key)
	t := s.wire.tapOf(key)
	if t == nil {
		return ev
	}
	r := &Request{Method: Event, From: s.from, Key: key, Revision: ev.Kv.ModRevision, Answered: true, Found: []KeyValue{{
		Key: key, CreateRevision: ev.Kv.CreateRevision, ModRevision: ev.Kv.ModRevision, Version: ev.Kv.Version,
		Deleted: ev.Type == mvccpb.Event_DELETE,
	}}}
	for _, rule := range t.take(r) {
		r.Note = rule.Note
		if rule.Drop || rule.Request != nil {
			s.wire.tamper(key)
		}
		if rule.Drop {
			ev = nil
			break
		}
		if rule.Request != nil {
			ev = proto.Clone(ev).(*mvccpb.Event)
			rule.Request(ev)
		}
	}
	t.tape.request(r)
	return ev
}

// thaw sends what was kept back for the watches of one key.
func (s *watchStream) thaw(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, wt := range s.byID {
		if wt.key != key {
			continue
		}
		if s.flush(wt) != nil {
			return // the stream has ended; there is nobody left to tell
		}
	}
}

func (s *watchStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, wt := range s.byID {
		wt.tap.unfollow(wt.key, s)
	}
	clear(s.byID)
}

// Frozen is a watch of kube-apiserver's that etcd answers no more until it is released: the cache which
// that watch feeds stays as it was.
type Frozen struct {
	tap *Tap
	key string

	mu   sync.Mutex
	kept []int64
	news chan struct{}

	once  sync.Once
	asked chan struct{} // closed when kube-apiserver has asked for progress
}

// Freeze stops the events of the watches that kube-apiserver keeps on a key (for a resource, the prefix
// that ends in a slash, such as /registry/shelves.example/shelves/). It freezes only watches that were
// created while this Tap was open: a lesson freezes the cache of a resource of its own.
func (t *Tap) Freeze(key string) *Frozen {
	f := &Frozen{tap: t, key: key, news: make(chan struct{}, 1), asked: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return f // nobody would thaw it
	}
	if t.frozen == nil {
		t.frozen = make(map[string]*Frozen)
	}
	t.frozen[key] = f
	return f
}

func (f *Frozen) note(resp *pb.WatchResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ev := range resp.Events {
		f.kept = append(f.kept, ev.Kv.ModRevision)
	}
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// Kept returns the mod revisions of the events that are being kept back.
func (f *Frozen) Kept() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.kept)
}

// Holds waits until an event with at least the given mod revision is being kept back: from then on it
// is certain that the cache lags behind that revision.
func (f *Frozen) Holds(ctx context.Context, revision int64) error {
	for {
		if kept := f.Kept(); len(kept) > 0 && kept[len(kept)-1] >= revision {
			return nil
		}
		select {
		case <-f.news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Asked waits until kube-apiserver asks etcd how far the frozen watch has come. It does so for a read that
// waits for the cache which the watch feeds, and only then (ConditionalProgressRequester in
// k8s.io/apiserver/pkg/storage/cacher/progress).
func (f *Frozen) Asked(ctx context.Context) error {
	select {
	case <-f.asked:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Release sends the events that were kept back, in order, and lets the later ones pass.
// It may be called more than once.
func (f *Frozen) Release() {
	f.tap.mu.Lock()
	if f.tap.frozen[f.key] == f {
		delete(f.tap.frozen, f.key)
	}
	_, still := f.tap.frozen[f.key] // by a later Freeze
	streams := slices.Clone(f.tap.watches[f.key])
	f.tap.mu.Unlock()
	if still {
		return
	}
	for _, s := range streams {
		s.thaw(f.key)
	}
}

func (t *Tap) follow(key string, s *watchStream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watches == nil {
		t.watches = make(map[string][]*watchStream)
	}
	t.watches[key] = append(t.watches[key], s)
}

func (t *Tap) unfollow(key string, s *watchStream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watches[key] = slices.DeleteFunc(t.watches[key], func(o *watchStream) bool { return o == s })
}

// rangeStream records the one request and the answers of a RangeStream call.
type rangeStream struct {
	grpc.ServerStream
	wire     *Wire
	from     string
	tap      *Tap
	asked    *Request
	executed bool
	rules    []*Rule
	gone     *Held // held the request until kube-apiserver gave up waiting
}

func (s *rangeStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	q, ok := m.(*pb.RangeRequest)
	if !ok {
		return nil
	}
	s.asked = rangeOf(RangeStream, q)
	s.asked.From = s.from
	s.wire.count(s.asked)
	if s.tap = s.wire.tapOf(s.asked.Key); s.tap == nil {
		return nil
	}
	s.rules = s.tap.take(s.asked)
	note(s.asked, s.rules)
	s.tap.tape.request(s.asked)
	var err error
	s.gone, err = s.tap.enter(s.Context(), s.rules, func(rule *Rule) {
		rule.Request(q)
		s.tap.tape.redescribe(s.asked, rangeOf(RangeStream, q))
	})
	return err
}

func (s *rangeStream) SendMsg(m any) error {
	resp, ok := m.(*pb.RangeStreamResponse)
	if !ok || s.asked == nil {
		return s.ServerStream.SendMsg(m)
	}
	for _, rule := range s.rules {
		if rule.Answer != nil {
			resp = proto.Clone(resp).(*pb.RangeStreamResponse)
			rule.Answer(resp)
		}
	}
	if s.tap == nil {
		s.answered(resp)
	} else {
		if !s.executed {
			s.executed = true
			s.tap.tape.executed(s.asked, m.(*pb.RangeStreamResponse).GetRangeResponse())
		}
		s.tap.tape.update(func() { s.answered(resp) })
	}
	return s.ServerStream.SendMsg(resp)
}

// answered adds a part of the answer to the record.
func (s *rangeStream) answered(resp *pb.RangeStreamResponse) {
	part := resp.GetRangeResponse()
	if rev := part.GetHeader().GetRevision(); rev > 0 {
		s.asked.StoreRevision = rev
	}
	found(s.asked, part)
}

// end records how the call ended.
func (s *rangeStream) end(err error) {
	switch {
	case s.asked == nil:
	case s.tap == nil:
		s.wire.live(s.asked, nil, err)
	default:
		s.tap.finish(s.asked, nil, err)
		s.gone.drop()
	}
}
