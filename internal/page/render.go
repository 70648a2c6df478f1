package page

import (
	"embed"
	"fmt"
	"net/url"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/control"
)

//go:embed assets
var assets embed.FS

// screen is how many rows of a table are shown before the rest is counted.
const screen = 20

// shownChanges is how many changes are in sight; older ones are folded away.
const shownChanges = 20

// Snapshot is what is shown, all of it of about one moment.
type Snapshot struct {
	Status v1alpha1.NodeStatus
	Events v1alpha1.NodeEvents
	// Forwards are explanations of the first addresses that lead to other machines.
	Forwards []v1alpha1.Explanation
	// ID is another one whenever anything but the time has changed.
	ID string
}

// document is what a page shows.
type document struct {
	Title, Heading, Under string
	Node, Version, ID     string
	Taken                 cell
	Clock                 string // when the page was made, for the line that changes
	Problems              []string
	Services              string // what becomes of their open connections, if they are reset
	Nav                   []link
	Tables                []table // VIPs first, then what carries them
	Forwards              []forward
	MoreForwards          string
	Explained             []explained
	history
}

type link struct{ To, Text string }

// table is one that a person can read without seeing it: rows have names, and so has it.
type table struct {
	ID, Title, Caption string
	Head               []string
	Rows               []row
	Rest, RestURL      string // about those that are not shown
	Empty              string // instead of a table without rows; "": not even the title
}

type row struct {
	Mark  mark
	Cells []cell
}

// cell is text, with a mark before it and smaller text under it, and perhaps a link or a time.
type cell struct {
	Mark        mark
	Text, Small string
	Link        string
	Exact, Full string // of a time: as machines and as people write it
	Clock       string // shown before how long ago it was
	Code        bool   // an address or a name, in letters of one width
}

// mark says at a glance what words beside it say, too.
type mark string

const (
	good mark = "good"
	look mark = "look"
	bad  mark = "bad"
)

var glyphs = map[mark]string{good: "✓", look: "!", bad: "✗"}

// Overview is the page about the node as a document; with all, nothing is left out.
func Overview(s *Snapshot, all bool) []byte {
	most := screen
	if all {
		most = max(len(s.Status.VIPs), len(s.Status.Health), len(s.Status.Members)+1, len(s.Status.BGP), screen)
	}
	d := s.document()
	d.Heading, d.Under = s.Status.Node, control.Condense(s.Status)
	d.Problems = control.Problems(s.Status)
	d.Services = control.ServicesLine(s.Status.ServiceConnections)
	d.Title = s.Status.Node
	if n := len(d.Problems); n > 0 {
		d.Title = fmt.Sprintf("(%d) %s", n, d.Title)
	}
	d.Tables = []table{vips(s, most), nodes(s, most), health(s, most), sessions(s, most)}
	d.Forwards = forwards(s)
	if more := len(forwarded(&s.Status)) - len(d.Forwards); more > 0 && len(d.Forwards) > 0 {
		d.MoreForwards = fmt.Sprintf("%d more addresses lead to other machines; the page of each has its backends.", more)
	}
	d.Nav = []link{{"#problems", "Problems"}}
	for _, t := range d.Tables {
		if len(t.Rows) > 0 || t.Empty != "" {
			d.Nav = append(d.Nav, link{"#" + t.ID, t.Title})
		}
	}
	if len(d.Forwards) > 0 {
		d.Nav = append(d.Nav, link{"#forwards", "Forwards"})
	}
	d.Nav = append(d.Nav, link{"#changes", "Changes"})
	d.history = s.history(s.Events.Events)
	if more := len(d.Problems) - most; more > 0 {
		d.Problems = append(d.Problems[:most:most], fmt.Sprintf("and %d more such lines; `lbd status --all` shows them", more))
	}
	return d.write((*markup).overview)
}

// VIP is the page about what has this name or address, as explained by the node; list may be
// empty if it is only remembered.
func VIP(s *Snapshot, vip string, list []v1alpha1.Explanation) []byte {
	d := s.document()
	d.Heading, d.Title = vip, vip+" on "+s.Status.Node
	names := map[string]bool{vip: true}
	for i := range list {
		e := &list[i]
		names[e.Name], names[e.Address] = true, true
		d.Explained = append(d.Explained, explain(s, e, i))
		if i == 0 && len(list) == 1 {
			d.Heading, d.Under = e.Address, e.Name
		}
	}
	if len(list) == 0 {
		d.Under = "no VIP of the configuration any more"
	}
	var events []v1alpha1.Event
	for _, e := range s.Events.Events {
		if of := e.Mode != "" && (names[e.VIP] && e.VIP != "" || names[e.Address]); of || e.More > 0 {
			events = append(events, e)
		}
	}
	d.history = s.history(events)
	d.Nav = []link{{"/", "All of " + d.Node}, {"#changes", "Changes"}}
	return d.write((*markup).vip)
}

// document has what all pages have in common.
func (s *Snapshot) document() *document {
	return &document{
		Node: s.node(), Version: control.Line(s.Status.Version), ID: s.ID, Taken: s.when(s.Status.Time),
		Clock: s.Status.Time.UTC().Format(time.TimeOnly + " UTC"),
	}
}

// node is the name of the node that answers.
func (s *Snapshot) node() string { return control.Line(s.Status.Node) }

// write writes the document, with parts between its heading and its timeline.
func (d *document) write(parts func(*markup, *document)) []byte {
	d.Heading, d.Under, d.Title = control.Line(d.Heading), control.Line(d.Under), control.Line(d.Title)
	var m markup
	m.begin(d)
	parts(&m, d)
	m.end(d)
	return []byte(m.String())
}

// when is a moment, as long ago as it was when the status was taken.
func (s *Snapshot) when(at time.Time) cell {
	if at.IsZero() {
		return cell{}
	}
	at = at.UTC()
	return cell{Text: control.Age(s.Status, at) + " ago", Exact: at.Format(time.RFC3339Nano), Full: at.Format("2006-01-02 15:04:05.000 UTC")}
}

// pathOf is where the page about a VIP is.
func pathOf(vip string) string { return (&url.URL{Path: "/vip/" + vip}).EscapedPath() }
