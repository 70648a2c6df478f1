package docs

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the summary of docs/benchmarks.md and its chart from the tables of the page")

// contenders are the systems that the summary compares.
var contenders = []string{"lbd", "lbd-fast", "keepalived", "keepalived-fast"}

// compared are the faults of the summary, in words.
var compared = []struct{ name, words string }{
	{"linkdown", "owner loses its link or its power"},
	{"sigkill", "daemon of the owner killed for good"},
	{"sigstop", "daemon of the owner frozen"},
	{"respawn", "daemon killed, back after 1 s"},
	{"sigterm", "daemon of the owner stopped in order"},
	{"return", "the same, started again at once"},
	{"appdeath", "service behind the address dies"},
	{"apphang", "service behind the address hangs"},
	{"partition", "daemons cannot hear each other for 6 s"},
}

// notable is the shortest time in ms for which a row of its own is worth it.
const notable = 100

// row is what one system did in one fault, in ms; nil: not measured.
type row struct {
	outage, dual, after []int // min, median, max
	kept                string
}

// measured reads the table of one fault. Its columns are named: faults that end have more.
func measured(p page, fault string) map[string]row {
	out := map[string]row{}
	_, section, _ := strings.Cut(p.text, "\n## "+fault+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var head []string
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|") || rule.MatchString(line):
		case head == nil:
			head = cells(line)
		default:
			c := cells(line)
			at := func(name string) string {
				if i := slices.Index(head, name); i >= 0 {
					return c[i]
				}
				return ""
			}
			out[c[0]] = row{spread(at("Outage")), spread(at("Dual claim")), spread(at("After its end: outage")), at("Long-lived")}
		}
	}
	return out
}

// spread reads "min / median / max", to which a remark may be added.
func spread(cell string) []int {
	var out []int
	for part := range strings.SplitSeq(cell, " / ") {
		number, _, _ := strings.Cut(part, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil
		}
		out = append(out, n)
	}
	return out
}

// line is one row of the summary; text says what of a system goes into it.
func line(first, second string, rows map[string]row, text func(row) string) string {
	out := "| " + first + " | " + second + " |"
	for _, c := range contenders {
		if r, ok := rows[c]; ok {
			out += " " + text(r) + " |"
		} else {
			out += " - |"
		}
	}
	return out + "\n"
}

func middle(s []int) string {
	if len(s) != 3 {
		return "-"
	}
	return fmt.Sprintf("%d / %d", s[1], s[2])
}

// summary is the first table of the page.
func summary(p page) string {
	out := "| fault | | " + strings.Join(contenders, " | ") + " |\n|" + strings.Repeat("---|", len(contenders)+2) + "\n"
	for _, f := range compared {
		rows := measured(p, f.name)
		some := func(s func(row) []int) bool {
			return slices.ContainsFunc(contenders, func(c string) bool { v := s(rows[c]); return len(v) == 3 && v[2] >= notable })
		}
		outage, dual, after := func(r row) []int { return r.outage }, func(r row) []int { return r.dual }, func(r row) []int { return r.after }
		out += line(f.words, "outage", rows, func(r row) string { return middle(outage(r)) })
		if some(after) {
			out += line("", "outage after it ends", rows, func(r row) string { return middle(after(r)) })
		}
		if some(dual) {
			out += line("", "two claimants", rows, func(r row) string { return middle(dual(r)) })
		}
		if strings.HasPrefix(rows["lbd"].kept, "60") {
			out += line("", "open connections kept", rows, func(r row) string { return strings.ReplaceAll(r.kept, ".0", "") })
		}
	}
	return out
}

// The chart: a group of bars for each fault, on a scale of logarithms from 10 ms to 10 s.
const (
	barHigh, groupGap, topOf   = 13, 14, 58
	barLeft, decade, chartWide = 270, 130, 760
)

var colours = []string{"#0b6e4f", "#5fb49c", "#b23a48", "#e39695"}

// chart draws the median outages of the summary as SVG.
func chart(p page) string {
	var b strings.Builder
	y := topOf
	for _, f := range compared {
		rows := measured(p, f.name)
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", barLeft-10, y+2*barHigh+4, f.words)
		for i, c := range contenders {
			s := rows[c].outage
			if len(s) != 3 {
				continue
			}
			wide, text := 1, strconv.Itoa(s[1])+" ms"
			if s[1] > 10 {
				wide = int(math.Round(decade * (math.Log10(float64(s[1])) - 1)))
			}
			if d := rows[c].dual; len(d) == 3 && d[1] >= notable {
				text += fmt.Sprintf(", but two claimants for %d ms", d[1])
			}
			fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>", barLeft, y, wide, barHigh-1, colours[i])
			fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\">%s</text>\n", barLeft+wide+4, y+barHigh-3, text)
			y += barHigh
		}
		y += groupGap
	}
	return chartHead(y) + b.String() + "</svg>\n"
}

func chartHead(high int) string {
	out := fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n", chartWide, high) +
		"<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
		"<text x=\"10\" y=\"18\" font-size=\"14\">Median outage that a client sees, in ms (logarithmic scale)</text>\n"
	for i, c := range contenders {
		out += fmt.Sprintf("<rect x=\"%d\" y=\"28\" width=\"11\" height=\"11\" fill=\"%s\"/><text x=\"%d\" y=\"38\">%s</text>\n", barLeft+i*110, colours[i], barLeft+i*110+16, c)
	}
	return out
}

const (
	benchmarksTitle = "# Benchmarks\n\n"
	benchmarksBody  = "Written by `make bench`"
	benchmarksIntro = `The outage that a client sees, with lbd and with keepalived, in the same faults on the same machine: median / maximum in ms. "fast" is
` + "`detection: fast`" + ` for lbd, and ` + "`advert_int 0.1`" + ` for keepalived. All configurations and all figures are below.

While there are two claimants, two nodes answer for the address, and a client may reach either of them. A time of about 5000 ms or more had
not ended when the measurement, or the fault, did. The check of keepalived opens a TCP connection, which a service that hangs still accepts:
its outage did not end by itself.

![Median outage of lbd and keepalived in each fault](benchmarks.svg)

`
)

// TestSummary: the first table of docs/benchmarks.md and its chart have the figures of the
// tables below them.
func TestSummary(t *testing.T) {
	p := readPage(t, "docs/benchmarks.md")
	_, rest, ok := strings.Cut(p.text, benchmarksTitle)
	i := strings.Index(rest, benchmarksBody)
	if !ok || i < 0 {
		t.Fatal("docs/benchmarks.md begins otherwise")
	}
	top := benchmarksIntro + summary(p) + "\n"
	if strings.Count(top, "\n") < 20 {
		t.Fatalf("only\n%s", top)
	}
	svg := filepath.Join(root, "docs", "benchmarks.svg")
	if *update {
		if err := os.WriteFile(filepath.Join(root, "docs", "benchmarks.md"), []byte(benchmarksTitle+top+rest[i:]), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(svg, []byte(chart(p)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if rest[:i] != top {
		t.Errorf("the summary of docs/benchmarks.md is not that of its tables; `go test ./tests/docs -run Summary -update` writes\n%s", top)
	}
	if b, err := os.ReadFile(svg); err != nil || string(b) != chart(p) {
		t.Errorf("docs/benchmarks.svg is not the chart of the tables (%v); `go test ./tests/docs -run Summary -update` draws it", err)
	}
}
