package page

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/control"
	"lbd.dev/lbd/internal/model"
)

// code is an address or a name.
func code(text string) cell { return cell{Text: control.Line(text), Code: true} }

// words are foreign text.
func words(text string) cell { return cell{Text: control.Line(text)} }

// marked is a word with its mark.
func marked(m mark, text, small string) cell {
	return cell{Mark: m, Text: control.Line(text), Small: control.Line(small)}
}

// shorten leaves of a table those rows that a person should look at, and then the first, at
// most so many, and counts the others.
func (t *table) shorten(most int) {
	more := len(t.Rows) - most
	slices.SortStableFunc(t.Rows, func(a, b row) int { return rank(b.Mark) - rank(a.Mark) })
	if more <= 0 {
		return
	}
	looks := 0
	for _, r := range t.Rows[most:] {
		if r.Mark != good {
			looks++
		}
	}
	t.Rows = t.Rows[:most]
	t.Rest, t.RestURL = fmt.Sprintf("%d more are not shown, and all is well with them.", more), "/?all"
	if looks > 0 {
		t.Rest = fmt.Sprintf("%d more are not shown, of which %d are to look at.", more, looks)
	}
}

// rank is higher for what a person should look at first.
func rank(m mark) int { return slices.Index([]mark{good, look, bad}, m) }

func vips(s *Snapshot, most int) table {
	t := table{
		ID: "vips", Title: "VIPs", Caption: "Where each address is and why, as " + s.node() + " sees it. Those to look at come first.",
		Head: []string{"Address", "Owner", "This node", "Health", "Since", "Why"}, Empty: "The configuration has no VIP.",
	}
	for i := range s.Status.VIPs {
		v := &s.Status.VIPs[i]
		m := markOf(s, v)
		owner := marked(m, ownerOf(v), "")
		why := cell{Text: control.Why(*v, s.Status.Node), Small: control.Line(v.Reason)}
		passes := marked(good, "passes", "")
		if !v.Healthy {
			passes = marked(bad, "fails", "")
		}
		address := code(v.Address)
		address.Link, address.Small = pathOf(v.Address), control.Line(v.Name)
		t.Rows = append(t.Rows, row{m, []cell{address, owner, words(control.Here(*v)), passes, s.when(v.Since), why}})
	}
	t.shorten(most)
	return t
}

// markOf says whether a VIP is where it belongs.
func markOf(s *Snapshot, v *v1alpha1.VIPStatus) mark {
	switch {
	case control.Calm(*v):
		return good
	case v.Owner == "" && v.Mode != modeBGP && s.Status.Settled:
		return bad
	}
	return look
}

// modeBGP is VIPStatus.Mode of what BGP announces.
const modeBGP = "bgp"

func ownerOf(v *v1alpha1.VIPStatus) string {
	if control.Spread(*v) {
		return "every healthy node"
	}
	return cmp.Or(v.Owner, "nobody")
}

func nodes(s *Snapshot, most int) table {
	t := table{
		ID: "nodes", Title: "Nodes", Caption: "Who is in the group. VIPs are those that a node owns.",
		Head: []string{"Node", "State", "VIPs", "Address", "Version", "Note"},
	}
	owned := map[string]int{}
	for i := range s.Status.VIPs {
		owned[s.Status.VIPs[i].Owner]++
	}
	self := &s.Status
	add := func(m mark, name, under, state, address, version string, notes []string) {
		node := code(name)
		node.Small = under
		t.Rows = append(t.Rows, row{m, []cell{node, marked(m, state, ""), {Text: strconv.Itoa(owned[name])}, code(address), words(version), words(strings.Join(notes, ", "))}})
	}
	notes, m := memberNotes(self.Draining, self.Settled, "")
	add(m, self.Node, "this node", "alive", "", self.Version, notes)
	for _, x := range self.Members {
		notes, m := memberNotes(x.Draining, x.Settled, x.Late)
		switch x.State {
		case "dead":
			notes, m = nil, bad
		case "left":
			notes, m = nil, look
		}
		add(m, x.Name, "", x.State, x.Address, x.Version, notes)
	}
	t.shorten(most)
	return t
}

// memberNotes are what is to be said of a node that is alive.
func memberNotes(draining, settled bool, late string) (notes []string, m mark) {
	m = good
	if draining {
		notes = append(notes, "draining")
	}
	if !settled {
		notes = append(notes, "not settled yet")
	}
	if late != "" {
		notes = append(notes, "heartbeats overdue for "+late)
	}
	if len(notes) > 0 {
		m = look
	}
	return notes, m
}

func health(s *Snapshot, most int) table {
	t := table{
		ID: "health", Title: "Health checks", Caption: "The checks that run on " + s.node() + ".",
		Head: []string{"Check", "State", "Since", "Took", "Detail"},
	}
	for _, h := range s.Status.Health {
		m := healthMark(h.State)
		t.Rows = append(t.Rows, row{m, []cell{code(h.Name), marked(m, h.State, ""), s.when(h.Since), words(h.LastDuration), words(h.Detail)}})
	}
	t.shorten(most)
	return t
}

func healthMark(state string) mark {
	switch state {
	case "up":
		return good
	case "down":
		return bad
	}
	return look
}

func sessions(s *Snapshot, most int) table {
	t := table{
		ID: "bgp", Title: "BGP and BFD", Caption: "The sessions of " + s.node() + " with its routers.",
		Head: []string{"Peer", "AS", "BGP", "Since", "BFD", "Advertised", "Last error"},
	}
	for i := range s.Status.BGP {
		b := &s.Status.BGP[i]
		m := good
		if b.State != "Established" {
			m = bad
		}
		peer := code(b.Peer)
		peer.Small = control.Line(b.Address)
		bfd := cell{Text: "not used"}
		if b.BFD != "" {
			bfd = marked(good, b.BFD, "")
			if b.BFDDetect != "" {
				bfd.Small = "detects in " + control.Line(b.BFDDetect)
			}
			if b.BFD != "Up" {
				bfd.Mark = bad
				m = worse(m, look)
			}
		}
		failed := s.when(b.LastErrorAt)
		failed.Small = control.Line(b.Error)
		if failed.Text == "" {
			failed = words(b.Error)
		}
		under := ""
		if b.Flaps > 0 {
			under = fmt.Sprintf("lost %d times", b.Flaps)
		}
		session := marked(good, b.State, under)
		if b.State != "Established" {
			session.Mark = bad
		}
		t.Rows = append(t.Rows, row{m, []cell{peer, {Text: strconv.FormatUint(uint64(b.PeerASN), 10)}, session, s.when(b.Since), bfd, {Text: paths(len(b.Advertised))}, failed}})
	}
	t.shorten(most)
	return t
}

// worse is the mark of the two to look at first.
func worse(a, b mark) mark {
	if rank(a) > rank(b) {
		return a
	}
	return b
}

func paths(n int) string {
	if n == 1 {
		return "1 path"
	}
	return strconv.Itoa(n) + " paths"
}

// forward is an address whose connections go to other machines.
type forward struct {
	Address, Name, Link string
	Backends            table
}

// maxForwards is how many of them are asked about for the overview.
const maxForwards = 8

// forwards are those that the snapshot has.
func forwards(s *Snapshot) (out []forward) {
	for i := range s.Forwards {
		e := &s.Forwards[i]
		t := backends(e)
		t.ID = "forward-" + strconv.Itoa(i)
		t.shorten(screen)
		t.RestURL = pathOf(e.Address)
		out = append(out, forward{control.Line(e.Address), control.Line(e.Name), pathOf(e.Address), t})
	}
	return out
}

// forwarded are the addresses of load balancers, each once, in the order of the status.
func forwarded(s *v1alpha1.NodeStatus) (out []string) {
	for i := range s.VIPs {
		v := &s.VIPs[i]
		if v.Kind == model.KindLoadBalancer && v.Mode != modeBGP {
			out = append(out, v.Address)
		}
	}
	return out
}

func backends(e *v1alpha1.Explanation) table {
	t := table{
		Caption: "Where new connections to " + control.Line(e.Address) + " go.",
		Head:    []string{"Backend", "State", "New connections", "Weight", "Health", "Why"},
	}
	for _, b := range e.Backends {
		health := marked(healthMark(b.Health), b.Health, "")
		if b.Health == "" {
			health = cell{Mark: good, Text: "not checked"}
		}
		mark := health.Mark
		if b.State == model.ServerOut.String() && mark == good {
			mark = look
		}
		t.Rows = append(t.Rows, row{mark, []cell{code(b.Backend), words(b.State), {Text: control.Share(b)}, {Text: strconv.Itoa(b.Weight)}, health, words(control.BackendWhy(b))}})
	}
	return t
}

// history is what has changed, the newest first.
type history struct {
	Changes, Older table
	Forgotten      string
}

func (s *Snapshot) history(events []v1alpha1.Event) (d history) {
	head := []string{"Time", "About", "What", "Change", "Cause", "Gap"}
	d.Changes = table{ID: "changes", Title: "Changes", Head: head, Empty: "Nothing has changed since the daemon started."}
	d.Changes.Caption = "What " + s.node() + " saw, the newest first, by its clock in UTC. The gap of a takeover is how long the VIP was missed."
	d.Older = table{ID: "older", Caption: "The changes before those.", Head: head}
	for i := len(events) - 1; i >= 0; i-- {
		to := &d.Changes
		if len(d.Changes.Rows) == shownChanges {
			to = &d.Older
		}
		to.Rows = append(to.Rows, row{"", changeCells(&events[i], s)})
	}
	if n := s.Events.Forgotten; n > 0 {
		d.Forgotten = fmt.Sprintf("%d changes before those are forgotten; the log has them.", n)
	}
	return d
}

func changeCells(e *v1alpha1.Event, s *Snapshot) []cell {
	at := e.Time.UTC()
	layout := "15:04:05.000"
	if now := s.Status.Time.UTC(); now.Format(time.DateOnly) != at.Format(time.DateOnly) {
		layout = "2006-01-02 15:04:05.000"
	}
	when := s.when(at)
	when.Clock = at.Format(layout)
	about := code(control.About(e))
	about.Small = control.Line(e.Address)
	if e.Mode != "" && e.Address != "" {
		about.Link = pathOf(e.Address)
	}
	return []cell{when, about, words(string(e.Kind)), words(arrows(control.Change(e))), words(control.Cause(e)), words(control.Gap(e))}
}

// arrows are drawn, not written.
func arrows(change string) string { return strings.ReplaceAll(change, " -> ", " → ") }

// explained is one address as the node explains it.
type explained struct {
	Heading    string
	Why        []string
	Facts      []fact
	Candidates table
	Backends   table
	Story      []string
}

type fact struct {
	Name string
	Is   cell
}

func explain(s *Snapshot, e *v1alpha1.Explanation, n int) explained {
	x := explained{Heading: control.Line(e.Address) + ", by layer 2", Why: control.Reasons(*e)}
	if e.Mode == modeBGP {
		x.Heading = control.Line(e.Address) + ", by BGP"
	}
	say := func(name string, is cell) {
		if is.Text != "" {
			x.Facts = append(x.Facts, fact{name, is})
		}
	}
	say("Name", code(e.Name))
	if i := slices.IndexFunc(s.Status.VIPs, func(v v1alpha1.VIPStatus) bool { return v.Address == e.Address && v.Mode == e.Mode }); i >= 0 {
		v := &s.Status.VIPs[i]
		m := markOf(s, v)
		say("Owner", marked(m, ownerOf(v), ""))
		say("On "+s.node(), words(control.Here(*v)))
		say("Reason", marked(m, v.Reason, ""))
		say("Kind", words(v.Kind))
		say("Interface", code(v.Interface))
		say("Since", s.when(v.Since))
		say("Next", words(strings.Join(v.Successors, ", then ")))
		say("Advertised to", words(strings.Join(v.Peers, ", ")))
	}
	if e.Epoch > 0 {
		say("Epoch", cell{Text: strconv.FormatUint(e.Epoch, 10)})
	}
	x.Candidates = candidates(e)
	x.Candidates.ID = "candidates-" + strconv.Itoa(n)
	x.Backends = backends(e)
	x.Backends.ID = "backends-" + strconv.Itoa(n)
	for _, line := range e.Story {
		x.Story = append(x.Story, control.Line(line))
	}
	return x
}

func candidates(e *v1alpha1.Explanation) table {
	t := table{Caption: "The nodes, the one that ranks highest first, and why each has " + control.Line(e.Address) + " or has not.",
		Head: []string{"Node", "Rank", "Alive", "May own", "Claim", "Weight", "Why"}}
	if e.Mode == modeBGP {
		t.Head[3] = "Healthy"
	}
	for _, c := range e.Candidates {
		alive, may := marked(good, control.Reached(c), ""), marked(good, "yes", "")
		if !c.Alive || c.Late != "" {
			alive.Mark = bad
		}
		if !c.Eligible {
			may = marked(look, "no", "")
		}
		claim := ""
		if c.ClaimEpoch > 0 {
			claim = "epoch " + strconv.FormatUint(c.ClaimEpoch, 10)
		}
		t.Rows = append(t.Rows, row{"", []cell{code(c.Node), {Text: strconv.Itoa(c.Rank)}, alive, may, {Text: claim}, {Text: strconv.Itoa(c.Weight)}, words(control.CandidateWhy(*e, c))}})
	}
	return t
}
