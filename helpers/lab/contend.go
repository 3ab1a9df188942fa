package lab

import (
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"modrev/helpers/wire"
)

// Contention is a number of writers who all want to add one to the same counter, each by reading it and
// replacing it with the token of that reading.
//
// Its time is counted in rounds and not in seconds, so that every run is the same: in a round, all writers
// who are not sitting out read first, and then all of them write, one after the other. So each round
// accepts one write and refuses all others. The requests are real.
type Contention struct {
	// Writers is how many there are.
	Writers int
	// Tries is how often a writer is refused before he gives up.
	Tries int
	// SitOut says how many rounds a writer lets pass who was refused for the n-th time, counted from 1;
	// nil means none.
	SitOut func(n int) int
}

// Tally is what a Contention came to.
type Tally struct {
	Rounds  int   // until the last writer was done
	Refused int   // writes that reached the server and were refused with 409 Conflict, counted on the wire
	GaveUp  int   // writers who were refused too often
	Counter int64 // what the counter says in the end
}

// Contend lets the writers contend for a counter, a ConfigMap of the given name that is created for it.
func (l *Lab) Contend(name string, c Contention) Tally {
	l.Create(name, "n=0")
	type writer struct {
		*Client
		read    *Object
		due     int // the round in which he reads again
		refused int
		done    bool
	}
	writers := make([]*writer, c.Writers)
	for i := range writers {
		writers[i] = &writer{Client: l.As("writer-" + strconv.Itoa(i+1))}
	}
	from := l.Wire.Tape().Now()
	var tally Tally
	for waiting := c.Writers; waiting > 0; tally.Rounds++ {
		var here []*writer
		for _, w := range writers {
			if !w.done && w.due <= tally.Rounds {
				w.read = w.Get(name)
				here = append(here, w)
			}
		}
		for _, w := range here {
			n, err := strconv.Atoi(Field(w.read, "n"))
			l.Step(err, "reading the number in "+name)
			_, err = w.TryReplace(w.read, fmt.Sprintf("n=%d", n+1))
			if !apierrors.IsConflict(err) {
				l.Step(err, w.step("replace", name))
				w.done = true
				waiting--
				continue
			}
			w.refused++
			if w.refused == c.Tries {
				w.done = true
				waiting--
				tally.GaveUp++
				continue
			}
			w.due = tally.Rounds + 1
			if c.SitOut != nil {
				w.due += c.SitOut(w.refused)
			}
		}
	}
	tally.Refused = wire.Answered(l.Wire.Tape().Calls(from), http.StatusConflict)
	n, err := strconv.ParseInt(Field(l.Get(name), "n"), 10, 64)
	l.Step(err, "reading the number in "+name)
	tally.Counter = n
	return tally
}
