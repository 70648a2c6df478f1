package top

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"lbd.dev/lbd/internal/control"
)

// Style says what a line is. A mark at its begin says the same.
type Style int

// The styles of lines.
const (
	Plain  Style = iota
	Title        // names of columns
	Look         // a person should; the line begins with !
	Chosen       // the cursor is on it; the line begins with >
)

// Line is one of the screen, not wider than it.
type Line struct {
	Text  string
	Style Style
}

const (
	// leastWidth and leastHeight are below what can be read.
	leastWidth, leastHeight = 20, 6
	// slow is after how long without an answer it is said that there is none.
	slow = 3 * time.Second
)

const footer = "q quit  ? help  j k move  Enter explain  / filter"

var help = []string{
	"up down, j k      move; PageUp and PageDown, g and G by more",
	"Enter             explain the VIP: its candidates, and why each owns it or not",
	"/                 show only what has the text in it; Esc shows all again",
	"Esc               go back",
	"?                 this page",
	"q                 quit",
	"",
	"Lines with ! are worth a look, > is the cursor. This is what this node sees,",
	"asked anew every second by its control socket. Times of events are in UTC.",
}

// View is the screen: Height lines.
func View(m Model) []Line {
	if m.Width < leastWidth || m.Height < leastHeight {
		return fit([]Line{{Text: "the terminal is too small"}}, m.Width, m.Height)
	}
	lines := m.head()
	room := m.bodyHeight()
	switch m.page {
	case pageList:
		lines = append(lines, fit(m.list(room), m.Width, room)...)
		lines = append(lines, m.tail()...)
	default:
		text := m.text()
		for _, t := range text[min(m.scroll, len(text)):] {
			lines = append(lines, Line{Text: t})
		}
		lines = fit(lines, m.Width, len(m.head())+room)
	}
	return fit(append(lines, m.foot()), m.Width, m.Height)
}

// head is the state of the node, and the first of what is wrong.
func (m *Model) head() []Line {
	first, second := "lbd top: asking the daemon", Line{}
	if !m.heard.IsZero() {
		first = "lbd top: " + control.Headline(m.status)
	}
	silent := m.now.Sub(m.began)
	if !m.heard.IsZero() {
		silent = m.now.Sub(m.heard)
	}
	problems := control.Problems(m.status)
	switch {
	case m.fault != "" || silent >= slow:
		old := ""
		if !m.heard.IsZero() {
			old = fmt.Sprintf(" for %s, all below is as old", silent.Round(time.Second))
		}
		second = Line{"! no answer" + old + "; asking again: " + m.fault, Look}
	case !m.heard.IsZero() && len(problems) > 1:
		second = Line{fmt.Sprintf("! (1 of %d) %s", len(problems), problems[0]), Look}
	case !m.heard.IsZero() && len(problems) == 1:
		second = Line{"! " + problems[0], Look}
	case !m.heard.IsZero():
		second.Text = control.ServicesLine(m.status.ServiceConnections)
	}
	return []Line{{first, Title}, second}
}

// foot tells the keys, or shows the filter.
func (m *Model) foot() Line {
	switch {
	case m.typing:
		return Line{Text: "filter: " + m.filter + "_  (Enter keeps it, Esc shows all)"}
	case m.notice != "":
		return Line{Text: m.notice}
	case m.page != pageList:
		return Line{Text: "Esc back  j k move  q quit"}
	case m.filter != "":
		return Line{Text: "filter: " + m.filter + "  (Esc shows all)  " + footer}
	}
	return Line{Text: footer}
}

// eventLines is how many lines the events have, with their title.
func (m *Model) eventLines() int {
	if m.page != pageList || m.Height < 12 || len(m.events) == 0 {
		return 0
	}
	return min(max(m.Height/4, 4), len(m.events)+1, 12)
}

// bodyHeight is what is left between head and foot.
func (m *Model) bodyHeight() int { return max(m.Height-3-m.eventLines(), 1) }

// list is the part of the rows around the cursor that there is room for.
func (m *Model) list(room int) []Line {
	rows := m.rows()
	if len(rows) == 0 && !m.heard.IsZero() {
		text := "The daemon knows no VIP, member, check or session."
		if m.filter != "" {
			text = "Nothing has this text in it."
		}
		return []Line{{Text: text}}
	}
	lines := m.table(rows)
	at := 0
	for i, l := range lines {
		if l.Style == Chosen {
			at = i
		}
	}
	from := min(max(at-room/2, 0), max(len(lines)-room, 0))
	return lines[from:min(from+room, len(lines))]
}

// tail are the newest events, the last at the bottom.
func (m *Model) tail() []Line {
	room := m.eventLines()
	if room == 0 {
		return nil
	}
	s := control.EventSection(m.events)
	rows := []row{{cells: s.Columns}}
	found := m.matching(s.Rows)
	for _, r := range found[max(len(found)-room+1, 0):] {
		rows = append(rows, row{cells: r.Cells, key: "event"})
	}
	return fit(m.layout(rows, func(row) bool { return false }), m.Width, room)
}

// table lays the rows out, and marks those to look at and the one with the cursor.
func (m *Model) table(rows []row) []Line {
	return m.layout(rows, func(r row) bool { return r.key != "" && r.key == m.selected })
}

// layout makes lines of rows; those of one section share the widths of columns.
func (m *Model) layout(rows []row, chosen func(row) bool) []Line {
	widths := make(map[int][]int)
	for _, r := range rows {
		widths[r.part] = widen(widths[r.part], r.cells)
	}
	for part := range widths {
		shrink(widths[part], m.Width-2)
	}
	lines := make([]Line, len(rows))
	for i, r := range rows {
		mark, style := "  ", Plain
		switch {
		case r.cells == nil:
			mark = ""
		case chosen(r) && r.look:
			mark, style = ">!", Chosen
		case chosen(r):
			mark, style = "> ", Chosen
		case r.look:
			mark, style = "! ", Look
		case r.key == "":
			style = Title
		}
		lines[i] = Line{mark + columns(r.cells, widths[r.part]), style}
	}
	return lines
}

// widen makes columns as wide as the cells.
func widen(widths []int, cells []string) []int {
	for i, c := range cells {
		if i == len(widths) {
			widths = append(widths, 0)
		}
		widths[i] = max(widths[i], utf8.RuneCountInString(c))
	}
	return widths
}

// gap is between two columns.
const gap = 2

// shrink makes the widest columns narrower until they fit; the last one first.
func shrink(widths []int, room int) {
	const least, leastLast = 4, 12
	last := len(widths) - 1
	for {
		total := gap * last
		widest := 0
		for i, w := range widths {
			total += w
			if i < last && w > widths[widest] {
				widest = i
			}
		}
		switch {
		case last < 0 || total <= room:
			return
		case widths[last] > leastLast:
			widths[last] = max(widths[last]-(total-room), leastLast)
		case last > 0 && widths[widest] > least:
			widths[widest]--
		default:
			return
		}
	}
}

// columns puts cells side by side, each cut to its column.
func columns(cells []string, widths []int) string {
	var b strings.Builder
	for i, c := range cells {
		c = cut(c, widths[i])
		b.WriteString(c)
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+gap))
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// cut shortens a text to a width, with an ellipsis for what is missing.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width < 1 {
		return ""
	}
	return string([]rune(text)[:width-1]) + "…"
}

func (m *Model) text() (lines []string) {
	source := help
	if m.page == pageExplain {
		source = m.explanation
	}
	for _, line := range source {
		lines = append(lines, broken(line, m.Width)...)
	}
	return lines
}

// broken breaks a line at the edge of the screen, with the rest indented.
func broken(line string, width int) (lines []string) {
	const indent = "    "
	rest := []rune(line)
	for len(rest) > width && width > 2*len(indent) {
		at := width
		for i := width; i > width/2; i-- {
			if rest[i] == ' ' {
				at = i
				break
			}
		}
		lines = append(lines, strings.TrimRight(string(rest[:at]), " "))
		rest = append([]rune(indent), []rune(strings.TrimLeft(string(rest[at:]), " "))...)
	}
	return append(lines, string(rest))
}

// fit makes exactly height lines of at most width.
func fit(lines []Line, width, height int) []Line {
	out := make([]Line, max(height, 0))
	copy(out, lines)
	for i := range out {
		out[i].Text = cut(out[i].Text, width)
	}
	return out
}
