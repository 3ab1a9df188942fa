package token

import (
	"net/http"
	"slices"

	"github.com/anishathalye/porcupine"
)

// Count is how many requests of one verb a history has, by their answer.
type Count struct {
	Verb                                        Verb
	Accepted, Conflict, AlreadyExists, NotFound int
	Other                                       int // any other answer, or none
}

// Tally counts the requests of a history by verb and answer.
func Tally(history []porcupine.Operation) []Count {
	counts := []Count{{Verb: Get}, {Verb: Create}, {Verb: Replace}, {Verb: Patch}, {Verb: Delete}}
	for _, op := range history {
		verb := op.Input.(Request).Verb
		c := &counts[slices.IndexFunc(counts, func(c Count) bool { return c.Verb == verb })]
		out := op.Output.(Outcome)
		switch {
		case out.Lost:
			c.Other++
		case out.Answer.Code < http.StatusMultipleChoices:
			c.Accepted++
		case out.Answer.Reason == "Conflict":
			c.Conflict++
		case out.Answer.Reason == "AlreadyExists":
			c.AlreadyExists++
		case out.Answer.Code == http.StatusNotFound:
			c.NotFound++
		default:
			c.Other++
		}
	}
	return counts
}
