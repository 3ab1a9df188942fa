// Package notebook is what the documents ask the reader to write down, written down by the run: the paired
// numbers, the exact sentence of a refusal, the place of the compare, and for each claim the requests that
// showed it. It is Markdown that renders on a code host, with a sequence diagram for each forced race.
//
// Two runs of the book make notebooks that differ in their numbers only, uids and the names that the server makes
// up included. The tapes, which are kept beside the notebook, tell of every request, and in some of them the order
// of what was under way at once is left to chance.
package notebook

import (
	"slices"
	"sync"

	"modrev/helpers/record"
	"modrev/helpers/wire"
)

// Page is what one lesson leaves in the notebook.
type Page struct {
	Test string // the name of the test
	ID   string // of the claim
	Says string // the claim
	From string // the document it comes from
	Read string // the upstream function
	Why  string

	Erratum string      // how the document differs
	Lines   []string    // what the lesson printed
	Steps   []wire.Step // what was sent
	Tape    []string    // the same as text
}

// Notebook collects the pages of a run. The zero value is empty and ready; it is safe for concurrent use.
type Notebook struct {
	// Book says in which order pages stand. It is set before the first page is added.
	Book record.Book

	mu    sync.Mutex
	pages map[string]Page
	facts map[string][]string
}

// Add puts a page into the notebook, in place of an earlier one of the same claim.
func (n *Notebook) Add(p Page) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pages == nil {
		n.pages = make(map[string]Page)
	}
	n.pages[p.ID] = p
}

// The headings under which the first document asks the reader to write something down.
const (
	PairedNumbers = "The paired numbers"
	TheRefusal    = "The exact 409 sentence"
	TheCompare    = "File and function of the compare"
	TheSentence   = "The sentence, completed"
)

// WriteDown writes the lines that a document asks for under their heading, in place of earlier ones.
func (n *Notebook) WriteDown(heading string, lines ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.facts == nil {
		n.facts = make(map[string][]string)
	}
	n.facts[heading] = slices.Clone(lines)
}

// Fact is what was written down under a heading, and whether anything was.
func (n *Notebook) Fact(heading string) ([]string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines, ok := n.facts[heading]
	return lines, ok
}

// Page is the page of a claim, and whether there is one.
func (n *Notebook) Page(id string) (Page, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.pages[id]
	return p, ok
}

// Empty says whether nothing was written down.
func (n *Notebook) Empty() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.pages) == 0
}
