package control

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

const (
	// maxWidth is how wide the output for people is, in columns. Only a row whose
	// other columns leave nothing for the last one is wider.
	maxWidth = 120
	// minLast is the least width of the last column.
	minLast = 30
	// maxCell is the greatest width of the other columns, addresses aside: those
	// are never cut.
	maxCell = 20
	gap     = 2
)

// table is rows of text with a header. The last column is wrapped, the others
// are cut.
type table struct {
	rows [][]string
	// kinds are, of each row, as what it is counted if there is no room for it, and whether
	// it is shown before others.
	kinds []kind
}

type kind struct {
	name string
	look bool
}

func (t *table) add(cells ...string) {
	for i, cell := range cells {
		cell = clean(cell)
		cell = cmp.Or(cell, "-")
		if i < len(cells)-1 {
			cell = cut(cell)
		}
		cells[i] = cell
	}
	t.rows = append(t.rows, cells)
	t.kinds = append(t.kinds, kind{})
}

// addKind adds a row that shorten counts as name, unless a person should look at it.
func (t *table) addKind(name string, look bool, cells ...string) {
	t.add(cells...)
	t.kinds[len(t.kinds)-1] = kind{clean(name), look}
}

// shorten leaves, of a table with more rows than most, those to look at, and returns what
// the others are in words; most of them are alike.
func (t *table) shorten(most int) string {
	if len(t.rows)-1 <= most {
		return ""
	}
	title := "Not shown: "
	kept, counts, left := t.rows[:1:1], map[string]int{}, 0
	for i, k := range t.kinds[1:] {
		if k.look && len(kept) <= most {
			kept = append(kept, t.rows[i+1])
			continue
		}
		counts[k.name]++
		left++
	}
	if t.rows = kept; len(kept) == 1 {
		t.rows, title = nil, ""
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	var words []string
	for _, n := range names[:min(len(names), maxNamed)] {
		words = append(words, fmt.Sprintf("%d %s", counts[n], n))
		left -= counts[n]
	}
	if left > 0 {
		words = append(words, fmt.Sprintf("%d others", left))
	}
	return title + strings.Join(words, ", ") + "; `lbd status --all` shows them."
}

// Table is a table for people, of a command that asks no daemon. The first row is the header.
type Table struct{ t table }

// Add adds a row. Foreign text in it is made harmless, the last cell is wrapped, and the others are
// never cut: who reads a name is to use it.
func (t *Table) Add(cells ...string) {
	for i, cell := range cells {
		if cells[i] = clean(cell); cell == "" {
			cells[i] = "-"
		}
	}
	t.t.rows = append(t.t.rows, cells)
}

// Write writes the table with each line indented.
func (t *Table) Write(w io.Writer, indent string) error { return t.t.write(w, indent) }

// cut shortens a name in the middle: names that a machine made differ at the
// end.
func cut(cell string) string {
	runes := []rune(cell)
	if len(runes) <= maxCell {
		return cell
	}
	if _, err := netip.ParseAddr(cell); err == nil {
		return cell
	}
	if _, err := netip.ParseAddrPort(cell); err == nil {
		return cell
	}
	return string(runes[:maxCell/2-1]) + ".." + string(runes[len(runes)-maxCell/2+1:])
}

func (t *table) write(w io.Writer, indent string) error {
	out := tabwriter.NewWriter(w, 0, 0, gap, ' ', 0)
	room := t.lastWidth(len(indent))
	for _, row := range t.rows {
		last := len(row) - 1
		for i, part := range wrap(row[last], room) {
			line := append([]string(nil), row[:last]...)
			if i > 0 {
				clear(line)
			}
			line = append(line, part)
			if _, err := io.WriteString(out, strings.TrimRight(indent+strings.Join(line, "\t"), "\t ")+"\n"); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// lastWidth is the room for the last column beside the widest of the others.
func (t *table) lastWidth(indent int) int {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row[:len(row)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	room := maxWidth - indent
	for _, width := range widths {
		room -= width + gap
	}
	return max(room, minLast)
}

// wrap breaks text into lines of at most width columns at spaces. A longer word
// has a line for itself.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// clean keeps foreign text from moving the cursor of a terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}
