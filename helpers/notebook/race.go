package notebook

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"modrev/helpers/record"
)

// Race is a request whose transaction was made to wait at etcd's door until somebody else had overtaken it.
type Race struct {
	Of      string // the request of the client
	Diagram string // in Mermaid's language: who sent what to whom, and when
	Alike   int    // how many further races of the lesson differ from this one in names and numbers only
}

// Races finds the races that a lesson has forced, and draws them.
func Races(tape record.Tape) []Race {
	steps := stepsOf(tape)
	var out []Race
	shapes := map[string]int{}
	for _, l := range legs(steps) {
		diagram := l.draw()
		shape := l.shape(diagram)
		if i, ok := shapes[shape]; ok {
			out[i].Alike++
			continue
		}
		shapes[shape] = len(out)
		out = append(out, Race{Of: l.call.Title(), Diagram: diagram})
	}
	return out
}

// step is one step of a tape, with what it is about.
type step struct {
	Call   *record.Call    // a client sent it
	Ask    *record.Request // kube-apiserver asked etcd
	Reply  *record.Request // etcd answered
	Answer *record.Call    // kube-apiserver answered
	Remark string
}

func stepsOf(tape record.Tape) []step {
	out := make([]step, len(tape.Steps))
	for i, s := range tape.Steps {
		switch s.Kind {
		case record.Sent:
			out[i].Call = &tape.Calls[s.N]
		case record.Answered:
			out[i].Answer = &tape.Calls[s.N]
		case record.Asked:
			out[i].Ask = &tape.Requests[s.N]
		case record.Replied:
			out[i].Reply = &tape.Requests[s.N]
		default:
			out[i].Remark = s.Text
		}
	}
	return out
}

// leg is what belongs to a race: from the request of the client whose transaction had to wait to its answer, as
// far as it is about that transaction's key.
type leg struct {
	call  *record.Call
	key   string
	steps []step
}

// legs finds the races of a lesson.
func legs(steps []step) []leg {
	var out []leg
	var open []*record.Call
	for _, s := range steps {
		switch {
		case s.Call != nil:
			open = append(open, s.Call)
		case s.Answer != nil:
			open = slices.DeleteFunc(open, func(c *record.Call) bool { return c == s.Answer })
		case s.Ask != nil && s.Ask.Raced:
			c := sender(open, s.Ask)
			if c == nil || slices.ContainsFunc(out, func(l leg) bool { return l.call == c }) {
				continue
			}
			// Where a deadline cuts a race off is left to chance.
			if c.Err != "" && !c.Done || c.Code == http.StatusGatewayTimeout {
				continue
			}
			if l := (leg{call: c, key: s.Ask.Key, steps: window(steps, c, s.Ask.Key)}); l.overtaken() {
				out = append(out, l)
			}
		}
	}
	return out
}

// overtaken says whether somebody else came meanwhile: another call, or one whom only the failed compare tells of.
// A transaction can be held for other reasons, such as to see what becomes of it when its client hangs up.
func (l leg) overtaken() bool {
	return slices.ContainsFunc(l.steps, func(s step) bool {
		return s.Call != nil && s.Call != l.call ||
			s.Ask != nil && s.Ask.Raced && s.Ask.Method == record.Txn && s.Ask.Answered && s.Ask.Err == "" && !s.Ask.Succeeded
	})
}

// sender is the call under way that is the likeliest to have caused a request: the first that names its object, or
// creates one. Whoever waits at etcd's door was there before the rival came.
func sender(open []*record.Call, r *record.Request) *record.Call {
	for _, of := range []func(*record.Call, string) bool{names, creates} {
		for _, c := range open {
			if of(c, r.Key) {
				return c
			}
		}
	}
	return nil
}

// names says whether a call names the object that is stored under a key.
func names(c *record.Call, key string) bool {
	path := strings.Split(c.Path, "/")
	return len(path) > 1 && path[1] == key[strings.LastIndexByte(key, '/')+1:]
}

// creates says whether a call may create the object that is stored under a key. It does not name what it creates.
func creates(c *record.Call, key string) bool {
	return c.Verb == http.MethodPost && !strings.Contains(c.Path, "/") && strings.Contains(key, "/"+c.Path+"/")
}

// window are the steps from a call to its answer that are about a key. What is read before the held transaction
// is answered is left out: whether the apiserver reads at all before its first transaction depends on how far its
// cache has come. What it reads afterwards, or does not, is what a race is about.
func window(steps []step, c *record.Call, key string) []step {
	at := func(c *record.Call) (from, to int) {
		from = slices.IndexFunc(steps, func(s step) bool { return s.Call == c })
		to = slices.IndexFunc(steps, func(s step) bool { return s.Answer == c })
		if to < 0 {
			to = len(steps) - 1
		}
		return from, to
	}
	belongs := func(other *record.Call) bool {
		if other == c || names(other, key) || !creates(other, key) {
			return other == c || names(other, key)
		}
		from, to := at(other)
		return slices.ContainsFunc(steps[from:to+1], func(s step) bool {
			return s.Ask != nil && s.Ask.Key == key && len(s.Ask.Compare) == 1 && s.Ask.Compare[0].Value == 0
		})
	}
	decided := false
	sent := map[*record.Call]bool{}
	asked := map[*record.Request]bool{}
	var out []step
	from, to := at(c)
	for _, s := range steps[from : to+1] {
		switch {
		case s.Call != nil && belongs(s.Call):
			sent[s.Call] = true
		case s.Answer != nil && sent[s.Answer]:
		case s.Ask != nil && s.Ask.Key == key && (decided || s.Ask.Method == record.Txn):
			asked[s.Ask] = true
		case s.Reply != nil && asked[s.Reply]:
			decided = decided || s.Reply.Raced
		case s.Remark != "":
		default:
			continue
		}
		out = append(out, s)
	}
	return out
}

// A diagram of more steps than longest is cut in the middle: as many as ends are left at its begin and at its end.
const longest, ends = 24, 5

// draw makes a sequence diagram.
func (l leg) draw() string {
	clients, servers := []string{l.call.Who}, []string{}
	for _, s := range l.steps {
		switch {
		case s.Call != nil && !slices.Contains(clients, s.Call.Who):
			clients = append(clients, s.Call.Who)
		case s.Ask != nil && !slices.Contains(servers, s.Ask.From):
			servers = append(servers, s.Ask.From)
		}
	}
	known := participants{}
	var b strings.Builder
	b.WriteString("sequenceDiagram\n")
	for _, c := range clients {
		fmt.Fprintf(&b, "    participant %s\n", titled(known.of("client", c), c))
	}
	for _, s := range servers {
		title := "kube-apiserver"
		if s != "apiserver" {
			title = "the " + s + " kube-apiserver"
		}
		fmt.Fprintf(&b, "    participant %s\n", titled(known.of("server", s), title))
	}
	b.WriteString("    participant etcd\n")

	cut := len(l.steps) - 2*ends
	for i, s := range l.steps {
		if len(l.steps) > longest && i >= ends && i < ends+cut {
			if i == ends {
				fmt.Fprintf(&b, "    Note over etcd: … %d steps like these …\n", cut)
			}
			continue
		}
		switch {
		case s.Call != nil:
			fmt.Fprintf(&b, "    %s->>%s: %s\n", known.of("client", s.Call.Who), known.of("server", l.serverOf(s.Call)),
				text(s.Call.Title()))
		case s.Ask != nil:
			fmt.Fprintf(&b, "    %s->>etcd: %s\n", known.of("server", s.Ask.From), l.ask(s.Ask))
			if s.Ask.Note != "" && s.Ask.Note != record.Rivals { // the rival is in the picture
				fmt.Fprintf(&b, "    Note right of etcd: %s\n", text(s.Ask.Note))
			}
		case s.Reply != nil:
			fmt.Fprintf(&b, "    etcd-->>%s: %s\n", known.of("server", s.Reply.From),
				folded(text(s.Reply.Outcome()), "the else branch"))
		case s.Answer != nil:
			fmt.Fprintf(&b, "    %s-->>%s: %s\n", known.of("server", l.serverOf(s.Answer)), known.of("client", s.Answer.Who),
				text(s.Answer.Outcome()))
		default:
			fmt.Fprintf(&b, "    Note over etcd: %s\n", text(strings.TrimSpace(s.Remark)))
		}
	}
	return b.String()
}

// serverOf is the kube-apiserver that a call went to: the one that asked etcd first after it was sent, as far as
// one can tell.
func (l leg) serverOf(c *record.Call) string {
	sent, last := false, ""
	for _, s := range l.steps {
		switch {
		case s.Call == c:
			sent = true
		case sent && s.Ask != nil:
			return s.Ask.From
		case s.Ask != nil:
			last = s.Ask.From
		}
	}
	return last
}

// ask is a request to etcd in two lines, with a key that says no more than it must.
func (l leg) ask(r *record.Request) string {
	question := r.Question()
	if parts := strings.Split(record.ShortKey(r.Key), "/"); len(parts) > 2 {
		question = strings.ReplaceAll(question, record.ShortKey(r.Key), parts[len(parts)-3]+"/"+parts[len(parts)-1])
	}
	return folded(text(question), "then ")
}

// folded breaks a text before a word.
func folded(s, before string) string {
	return strings.Replace(s, " "+before, "<br/>"+before, 1)
}

var digits = regexp.MustCompile(`\d+`)

// shape is a diagram without what tells one race from another of its kind.
func (l leg) shape(diagram string) string {
	name := l.key[strings.LastIndexByte(l.key, '/')+1:]
	return digits.ReplaceAllString(strings.ReplaceAll(diagram, "/"+name, "/NAME"), "0")
}

// participants are the names by which Mermaid knows who is in a diagram: their own where it takes those.
type participants map[string]string

var simple = regexp.MustCompile(`^[a-z]+$`)

func (p participants) of(role, name string) string {
	id, ok := p[role+" "+name]
	if !ok {
		id = name
		if !simple.MatchString(name) || slices.Contains(reserved, name) || p[name] != "" {
			id = fmt.Sprintf("%s%d", role, len(p)+1)
		}
		p[role+" "+name], p[id] = id, id
	}
	return id
}

// titled is a participant and what stands in its box.
func titled(id, title string) string {
	if id == title {
		return id
	}
	return id + " as " + text(title)
}

// reserved are words that mean something to Mermaid where a participant may stand, and etcd, who is always there.
var reserved = []string{
	"activate", "actor", "alt", "and", "as", "autonumber", "box", "break", "create", "critical", "deactivate", "destroy",
	"else", "end",
	"etcd", "link", "links", "loop", "note", "opt", "option", "over", "par", "participant", "rect", "title",
}

// text makes a text that Mermaid does not take for more than text.
func text(s string) string {
	return strings.NewReplacer("#", "#35;", ";", "#59;", "<", "#lt;", ">", "#gt;", "\n", " ").Replace(s)
}
