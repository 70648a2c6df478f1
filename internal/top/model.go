// Package top is the live view of `lbd top`: what the daemon tells, again every second, on a
// terminal. What is shown and what a key does is decided without one, by Update and View.
package top

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/control"
)

// page is what the screen shows.
type page int

const (
	pageList page = iota
	pageExplain
	pageHelp
)

// Model is all that the screen depends on. The zero value has heard nothing yet.
type Model struct {
	Width, Height int

	page   page
	now    time.Time
	heard  time.Time // when the daemon last answered
	began  time.Time // when the first question was asked
	fault  string    // why it does not answer; empty while it does
	status v1alpha1.NodeStatus
	events []v1alpha1.Event // the newest last
	// backends are the explanations of LoadBalancers.
	backends []v1alpha1.Explanation

	selected string // the key of the row with the cursor
	at       int    // and where it is among the rows, for when it goes away
	filter   string
	typing   bool   // keys go to the filter
	notice   string // the answer to a key, until the next one

	vip         string // that is explained
	explanation []string
	scroll      int
}

// Messages that Update takes.
type (
	// Key is a key by its name ("up", "enter", "esc"), or what it types.
	Key string
	// Resize is the size of the terminal.
	Resize struct{ Width, Height int }
	// Tick is the time, about once a second.
	Tick time.Time
	// Told is what the daemon says, or why it does not.
	Told struct {
		Status   v1alpha1.NodeStatus
		Events   []v1alpha1.Event
		Backends []v1alpha1.Explanation
		Err      error
		At       time.Time
	}
	// Explained is the explanation that was asked for.
	Explained struct {
		VIP  string
		List []v1alpha1.Explanation
		Err  error
	}
)

// Wish is what Update wants to be done.
type Wish struct {
	Quit    bool
	Explain string // the VIP to ask about; empty: none
}

// Update returns the model after a message. It does nothing else.
func Update(m Model, message any) (Model, Wish) {
	switch msg := message.(type) {
	case Resize:
		m.Width, m.Height = msg.Width, msg.Height
		if msg.Width == 0 || msg.Height == 0 { // a terminal that does not know
			m.Width, m.Height = 80, 24
		}
	case Tick:
		m.now = time.Time(msg)
		if m.began.IsZero() {
			m.began = m.now
		}
	case Told:
		return m.told(msg)
	case Explained:
		if msg.VIP == m.vip && m.page == pageExplain {
			m.explained(msg)
		}
	case Key:
		m.notice = ""
		if m.typing {
			return m.typed(msg), Wish{Quit: msg == "ctrl+c"}
		}
		return m.pressed(msg)
	}
	return m, Wish{}
}

func (m Model) told(msg Told) (Model, Wish) {
	if m.now = msg.At; m.began.IsZero() {
		m.began = m.now
	}
	if msg.Err != nil {
		m.fault = control.Line(msg.Err.Error())
		return m, Wish{}
	}
	m.fault, m.heard = "", msg.At
	m.status, m.events, m.backends = msg.Status, msg.Events, msg.Backends
	m.follow()
	if m.page == pageExplain {
		return m, Wish{Explain: m.vip}
	}
	return m, Wish{}
}

func (m *Model) explained(msg Explained) {
	if msg.Err != nil {
		m.explanation = []string{control.Line(msg.Err.Error())}
		return
	}
	m.explanation = control.ExplainLines(msg.List)
}

// typed is a key while the filter is written.
func (m Model) typed(k Key) Model {
	switch k {
	case "enter":
		m.typing = false
	case "esc", "ctrl+c":
		m.typing, m.filter = false, ""
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-size]
	default:
		if utf8.RuneCountInString(string(k)) == 1 {
			m.filter += string(k)
		}
	}
	m.follow()
	return m
}

// pressed is a key that does something.
func (m Model) pressed(k Key) (Model, Wish) {
	switch k {
	case "q", "ctrl+c":
		return m, Wish{Quit: true}
	case "?":
		if m.page != pageHelp {
			m.page, m.scroll = pageHelp, 0
			return m, Wish{}
		}
		m.page = pageList
		return m, Wish{}
	}
	if m.page != pageList {
		return m.read(k), Wish{}
	}
	switch k {
	case "/":
		m.typing = true
	case "esc":
		m.filter = ""
		m.follow()
	case "enter":
		return m.enter()
	default:
		if by, moves := m.steps(k); moves {
			m.move(by)
		}
	}
	return m, Wish{}
}

func (m Model) read(k Key) Model {
	switch k {
	case "esc", "enter", "backspace", "left":
		m.page = pageList
		return m
	}
	if by, moves := m.steps(k); moves {
		m.scroll = min(max(m.scroll+by, 0), max(len(m.text())-m.bodyHeight(), 0))
	}
	return m
}

// steps is how far a key moves.
func (m *Model) steps(k Key) (int, bool) {
	const all = 1 << 20
	switch k {
	case "up", "k":
		return -1, true
	case "down", "j":
		return 1, true
	case "pgup":
		return -max(m.bodyHeight()-1, 1), true
	case "pgdown", " ":
		return max(m.bodyHeight()-1, 1), true
	case "home", "g":
		return -all, true
	case "end", "G":
		return all, true
	}
	return 0, false
}

// enter asks for the explanation of the VIP with the cursor.
func (m Model) enter() (Model, Wish) {
	rows := choosable(m.rows())
	if len(rows) == 0 || rows[m.at].vip == "" {
		m.notice = "Only VIPs and backends have an explanation"
		return m, Wish{}
	}
	m.page, m.scroll, m.vip = pageExplain, 0, rows[m.at].vip
	m.explanation = []string{"Asking the daemon ..."}
	return m, Wish{Explain: m.vip}
}

func (m *Model) move(by int) {
	rows := choosable(m.rows())
	if len(rows) == 0 {
		return
	}
	m.at = min(max(m.at+by, 0), len(rows)-1)
	m.selected = rows[m.at].key
}

// follow keeps the cursor on its row while rows come and go.
func (m *Model) follow() {
	rows := choosable(m.rows())
	if i := slices.IndexFunc(rows, func(r row) bool { return r.key == m.selected }); i >= 0 {
		m.at = i
		return
	}
	m.at = min(m.at, max(len(rows)-1, 0))
	if len(rows) > 0 {
		m.selected = rows[m.at].key
	}
}

// row is a line of the list.
type row struct {
	cells []string
	look  bool
	vip   string
	key   string // the same as long as the row is about the same; empty: the cursor passes it by
	part  int    // the section whose columns it shares
}

// rows are the lines of the list: of each section that has any, its columns and its rows, and an
// empty line between two.
func (m *Model) rows() (list []row) {
	for part, s := range append(control.Sections(m.status), control.BackendSection(m.backends)) {
		found := m.matching(s.Rows)
		if len(found) == 0 {
			continue
		}
		if len(list) > 0 {
			list = append(list, row{part: -1})
		}
		list = append(list, row{cells: s.Columns, part: part})
		seen := make(map[string]int)
		for _, r := range found {
			name := s.Columns[0] + " " + strings.Join(r.Cells[:min(len(r.Cells), 2)], " ")
			seen[name]++
			list = append(list, row{cells: r.Cells, look: r.Look, vip: r.VIP, part: part, key: name + strings.Repeat("'", seen[name]-1)})
		}
	}
	return list
}

func choosable(rows []row) []row {
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.key == "" })
}

// matching are the rows that have the filter in them, whatever the case.
func (m *Model) matching(rows []control.Row) []control.Row {
	if m.filter == "" {
		return rows
	}
	want := strings.ToLower(m.filter)
	return slices.DeleteFunc(slices.Clone(rows), func(r control.Row) bool {
		return !strings.Contains(strings.ToLower(strings.Join(r.Cells, " ")), want)
	})
}
