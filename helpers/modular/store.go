package modular

import (
	"strconv"
	"sync"

	"modrev/helpers/token"
)

// Store is a [token.Store] that would be right but for its tokens, which are labels of a [Counter]: each name has
// one that stands at 0 when the name is first used and takes a step at each further write. So a token comes again
// after [Period] writes, and a writer who slept meanwhile is let in (the ABA problem).
type Store struct {
	token.Model
	// Counter makes the counter of a further name.
	Counter func() Labels
	m       int64

	mu       sync.Mutex
	counters map[string]Labels
}

// Labels is what counts the writes of a name: a [Counter], or what a false world puts in its place.
type Labels interface {
	Label() int64
	Step() int64
}

// NewStore returns an empty store of objects of one kind whose tokens are labels modulo m, a apart. A bad m or a
// is an error as it is for [Reset].
func NewStore(kind token.Kind, m, a int64) (*Store, error) {
	counter, err := Reset(m, a)
	if err != nil {
		return nil, err
	}
	s := &Store{Model: token.Model{Kind: kind}, m: m, counters: make(map[string]Labels)}
	s.Counter = func() Labels { return new(*counter) }
	s.Mint = s.label
	return s, nil
}

// Future returns m, which is no label. (A label that was not given out yet would be one only until it is.)
func (s *Store) Future() string { return strconv.FormatInt(s.m, 10) }

func (s *Store) label(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.counters[name]
	if ok {
		c.Step()
	} else {
		c = s.Counter()
		s.counters[name] = c
	}
	return strconv.FormatInt(c.Label(), 10)
}
