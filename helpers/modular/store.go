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
	m, a int64

	mu       sync.Mutex
	counters map[string]*Counter
}

// NewStore returns an empty store of objects of one kind whose tokens are labels modulo m, a apart. A bad m or a
// is an error as it is for [Reset].
func NewStore(kind token.Kind, m, a int64) (*Store, error) {
	if _, err := Reset(m, a); err != nil {
		return nil, err
	}
	s := &Store{Model: token.Model{Kind: kind}, m: m, a: a}
	s.Mint = s.label
	return s, nil
}

// Future returns m, which is no label. (A label that was not given out yet would be one only until it is.)
func (s *Store) Future() string { return strconv.FormatInt(s.m, 10) }

func (s *Store) label(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counters[name]
	if c == nil {
		c = &Counter{m: s.m, a: s.a % s.m}
		if s.counters == nil {
			s.counters = map[string]*Counter{}
		}
		s.counters[name] = c
	} else {
		c.Step()
	}
	return strconv.FormatInt(c.Label(), 10)
}
