package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Format is the version of the form of a record. A program refuses to read a record of another form.
const Format = 1

// Run is what one run of the book found.
type Run struct {
	Format   int       `json:"format"`
	Date     time.Time `json:"date"`
	Versions Versions  `json:"versions"`
	Topology Topology  `json:"topology"`
	Shuffle  string    `json:"shuffle,omitempty"` // of go test: "off", "on" or a seed
	Seed     string    `json:"seed,omitempty"`    // of what lessons draw by chance, "0" for another one each time
	Book     Book      `json:"book"`
	Lessons  []Lesson  `json:"lessons"` // those that the run has read, in reading order
	// Shapes counts what kube-apiserver asked etcd in the whole run, by the shape of the request.
	Shapes map[string]int64 `json:"shapes,omitempty"`
	// MultiKeyTxns are transactions of kube-apiserver that would have written more than one key.
	MultiKeyTxns []string `json:"multiKeyTxns,omitempty"`
}

// Versions are what the run was made with. One that is not known is "".
type Versions struct {
	KubeAPIServer     string `json:"kubeAPIServer,omitempty"`
	Etcd              string `json:"etcd,omitempty"`
	ClientGo          string `json:"clientGo,omitempty"`
	ControllerRuntime string `json:"controllerRuntime,omitempty"`
	Go                string `json:"go,omitempty"`
}

// Topology is the shape of the control plane.
type Topology struct {
	EtcdMembers int `json:"etcdMembers"`
	APIServers  int `json:"apiServers"` // that the lessons share; some start further ones
}

// Lesson is one claim and what came of it.
type Lesson struct {
	ID      string   `json:"id"`
	Test    string   `json:"test"`
	File    string   `json:"file"` // of the test, without a folder
	Line    int      `json:"line"`
	Says    string   `json:"says"` // the claim, one sentence without a full stop
	Why     string   `json:"why"`
	Do      string   `json:"do,omitempty"`      // the rule that follows
	From    string   `json:"from"`              // the documents, and the parts of them, that the claim comes from
	Erratum string   `json:"erratum,omitempty"` // how the document differs from what is true
	Answers []string `json:"answers,omitempty"` // misconceptions, by their numbers: "#3"
	Read    Upstream `json:"read"`

	Verdict Verdict   `json:"verdict,omitempty"` // "" when the lesson was only asked what it claims
	Problem string    `json:"problem,omitempty"` // why it is Unproved or Unread
	Bent    string    `json:"bent,omitempty"`    // the world that was taken for reality, with -bend
	Reality Telling   `json:"reality"`
	Worlds  []Telling `json:"worlds,omitempty"` // each a world in which the claim is false
	Seconds float64   `json:"seconds,omitempty"`
}

// Verdict is what came of a lesson.
type Verdict string

// The verdicts.
const (
	Holds    Verdict = "holds"    // the claim holds, and fails in each world in which it is false
	Broken   Verdict = "broken"   // the claim does not hold
	Stuck    Verdict = "stuck"    // a step on the way to the claim could not be done
	Unproved Verdict = "unproved" // the claim did not fail where it is false
	Skipped  Verdict = "skipped"  // something that the lesson needs cannot be had
	Unread   Verdict = "unread"   // there was no control plane, or no time
)

// Upstream is a declaration of the upstream source. Where it stands is "" and 0 when it was not looked up.
type Upstream struct {
	Package string `json:"package"`
	Func    string `json:"func"`
	Module  string `json:"module,omitempty"`
	Version string `json:"version,omitempty"`
	File    string `json:"file,omitempty"` // below the root of the module
	Line    int    `json:"line,omitempty"`
}

// String names the declaration and, if it was found, the file in which it stands; not the line, which moves with
// every release.
func (u Upstream) String() string {
	if u.File == "" {
		return u.Package + " " + u.Func
	}
	return fmt.Sprintf("%s %s %s %s", u.Module, u.Version, u.File, u.Func)
}

// Telling is one run of a lesson's steps, in reality or in one world.
type Telling struct {
	World   string              `json:"world,omitempty"` // completes "in a world where …"; "" is reality
	Page    []Block             `json:"page,omitempty"`
	Facts   map[string][]string `json:"facts,omitempty"` // what a reader is asked to write down
	Tape    Tape                `json:"tape"`
	Failure *Failure            `json:"failure,omitempty"`
	Skipped string              `json:"skipped,omitempty"` // why
	Kept    []Kept              `json:"kept,omitempty"`
	Seconds float64             `json:"seconds,omitempty"`
}

// Failure is why a telling ended early. Either the claim did not hold, and Expected and Observed tell how, or a step
// on the way there could not be done.
type Failure struct {
	Expected string `json:"expected"`
	Observed string `json:"observed"`
	Stuck    bool   `json:"stuck,omitempty"`
}

// Kept is a file that go test -artifacts keeps of a telling.
type Kept struct {
	Name string `json:"name"`
	What string `json:"what"` // it shows, in a few words
}

// Block is a piece of a page. One field is set.
type Block struct {
	Text    string   `json:"text,omitempty"`  // a paragraph
	Quote   []string `json:"quote,omitempty"` // lines as they stand
	Table   *Table   `json:"table,omitempty"`
	Excerpt *Excerpt `json:"excerpt,omitempty"`
}

// Table is a table with a head. All rows are as long as it.
type Table struct {
	Head []string `json:"head"`
	Rows [][]Cell `json:"rows"`
}

// Cell is one cell of a table.
type Cell struct {
	Text string   `json:"text"`
	Kind CellKind `json:"kind,omitempty"`
}

// CellKind is what a cell holds.
type CellKind string

// The kinds of cells.
const (
	Words  CellKind = ""       // anything that is said in words
	Number CellKind = "number" // a count, or one of etcd's numbers
	Answer CellKind = "answer" // an answer of the API: "409 Conflict"
)

// Excerpt is the requests to etcd that something caused.
type Excerpt struct {
	Of       string   `json:"of"`
	Requests Requests `json:"requests,omitempty"`
}

// Facts that the first document asks its reader to write down.
const (
	PairedNumbers = "The paired numbers"
	TheRefusal    = "The exact 409 sentence"
	TheCompare    = "File and function of the compare"
	TheSentence   = "The sentence, completed"
)

// Facts that answer the questions of the form that a reader fills in before a run.
const (
	Residues         = "residues"
	PairsEqual       = "paired numbers"
	CreateRevision   = "create_revision"
	StaleReplace     = "stale replace"
	StaleReplaceCost = "stale replace, to etcd"
	RacedReplaceCost = "raced replace, to etcd"
	RacedPatchCost   = "raced patch, to etcd"
	NoOpCost         = "no-op, to etcd"
	CompareField     = "compare"
	Counter          = "counter"
)

// Fact is what a lesson wrote down under a name in this run, and whether any did.
func (r Run) Fact(name string) ([]string, bool) {
	for _, l := range r.Lessons {
		if lines, ok := l.Reality.Facts[name]; ok && l.Bent == "" {
			return lines, true
		}
	}
	return nil, false
}

// Lesson is the lesson of a claim, and whether the run has read it.
func (r Run) Lesson(id string) (Lesson, bool) {
	i := slices.IndexFunc(r.Lessons, func(l Lesson) bool { return l.ID == id })
	if i < 0 {
		return Lesson{}, false
	}
	return r.Lessons[i], true
}

// Add puts a lesson in its place in the run, instead of an earlier reading of it.
func (r *Run) Add(l Lesson) {
	r.Lessons = slices.DeleteFunc(r.Lessons, func(other Lesson) bool { return other.ID == l.ID })
	_, _, at := r.Book.Place(l.ID)
	i := slices.IndexFunc(r.Lessons, func(other Lesson) bool {
		_, _, before := r.Book.Place(other.ID)
		return before > at
	})
	if i < 0 {
		i = len(r.Lessons)
	}
	r.Lessons = slices.Insert(r.Lessons, i, l)
}

// Parse reads a record from JSON.
func Parse(data []byte) (Run, error) {
	var form struct{ Format int }
	if err := json.Unmarshal(data, &form); err != nil {
		return Run{}, fmt.Errorf("this is no record of a run of the book; go test . -record=FILE writes one: %w", err)
	}
	if form.Format != Format {
		return Run{}, fmt.Errorf("the record has format %d, and this book reads format %d: run it again with go test . "+
			"-record=FILE",
			form.Format, Format)
	}
	var r Run
	if err := json.Unmarshal(data, &r); err != nil {
		return Run{}, fmt.Errorf("reading a record of format %d: %w", Format, err)
	}
	return r, nil
}

// JSON is the record as JSON.
func (r Run) JSON() ([]byte, error) {
	r.Format = Format
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("writing the record: %w", err)
	}
	return append(data, '\n'), nil
}
