package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the summary of docs/benchmarks.md and its chart from the tables of the page")

// contenders are the systems that the summary compares.
var contenders = []string{"lbd", "lbd-fast", "keepalived", "keepalived-fast", elsewhere}

// elsewhere was measured in a run of its own. The section of the page with this name has all its
// faults in one table.
const elsewhere = "kube-vip"

// compared are the faults of the summary, in words, and the least outage that the intervals of lbd at its
// defaults leave; empty: they leave no figure.
var compared = []struct{ name, words, limit string }{
	{"linkdown", "owner loses its link or its power", "60 / 85 / 110"},
	{"sigkill", "daemon of the owner killed for good", "45"},
	{"sigstop", "daemon of the owner frozen", "45"},
	{"respawn", "daemon killed, back after 1 s", "0"},
	{"sigterm", "daemon of the owner stopped in order", "0"},
	{"return", "the same, started again at once", "0"},
	{"appdeath", "service behind the address dies", ""},
	{"apphang", "service behind the address hangs", ""},
	{"partition", "daemons cannot hear each other for 6 s", "0"},
}

// notable is the shortest time in ms for which a row of its own is worth it.
const notable = 100

// row is what one system did in one fault, in ms; nil: not measured.
type row struct {
	outage, dual, after []int // min, median, max
	kept, runs, busy    string
}

// measured reads the table of one fault, and what was measured elsewhere.
func measured(p page, fault string) map[string]row {
	out := map[string]row{}
	for _, r := range table(p, fault) {
		out[r["System"]] = newRow(r)
	}
	for _, r := range table(p, elsewhere) {
		if r["Fault"] == fault {
			out[r["System"]] = newRow(r)
		}
	}
	return out
}

func newRow(c map[string]string) row {
	runs, _, _ := strings.Cut(c["Runs"]+c["Runs (dropped)"], " ")
	busy := c["Busy"]
	if b := spread(busy); len(b) == 3 {
		busy = strconv.Itoa(b[1])
	}
	return row{spread(c["Outage"]), spread(c["Dual claim"]), spread(c["After its end: outage"]), c["Long-lived"], runs, busy}
}

// table reads the table of a section. Its columns are named: faults that end have more.
func table(p page, section string) (rows []map[string]string) {
	_, text, _ := strings.Cut(p.text, "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var head []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|") || rule.MatchString(line):
		case head == nil:
			head = cells(line)
		default:
			r := map[string]string{}
			for i, c := range cells(line) {
				r[head[i]] = c
			}
			rows = append(rows, r)
		}
	}
	return rows
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
func line(first, second, limit string, rows map[string]row, text func(row) string) string {
	out := "| " + first + " | " + second + " |"
	for _, c := range contenders {
		if r, ok := rows[c]; ok {
			out += " " + text(r) + " |"
		} else {
			out += " - |"
		}
	}
	return out + " " + limit + " |\n"
}

func figures(s []int) string {
	if len(s) != 3 {
		return "-"
	}
	return fmt.Sprintf("%d / %d / %d", s[0], s[1], s[2])
}

// summary is the first table of the page.
func summary(p page) string {
	out := "| fault | | " + strings.Join(contenders, " | ") + " | limit |\n|" + strings.Repeat("---|", len(contenders)+3) + "\n"
	for _, f := range compared {
		rows := measured(p, f.name)
		some := func(s func(row) []int) bool {
			return slices.ContainsFunc(contenders, func(c string) bool { v := s(rows[c]); return len(v) == 3 && v[2] >= notable })
		}
		dual, after := func(r row) []int { return r.dual }, func(r row) []int { return r.after }
		out += line(f.words, "outage", f.limit, rows, func(r row) string { return figures(r.outage) })
		if some(after) {
			out += line("", "outage after it ends", "0", rows, func(r row) string { return figures(after(r)) })
		}
		if some(dual) {
			out += line("", "two claimants", "0", rows, func(r row) string { return figures(dual(r)) })
		}
		if strings.HasPrefix(rows["lbd"].kept, "60") {
			out += line("", "open connections kept", "all", rows, func(r row) string { return strings.ReplaceAll(r.kept, ".0", "") })
		}
		out += line("", "runs, busy", "", rows, func(r row) string { return r.runs + ", " + r.busy + " %" })
	}
	return out
}

const (
	benchmarksTitle = "# Benchmarks\n\n"
	benchmarksBody  = "Written by `make benchfaults`"
	benchmarksIntro = `The outage that a client sees, with lbd, keepalived and kube-vip, in the same faults: min / median / max in ms. "fast" is
` + "`detection: fast`" + ` for lbd, and ` + "`advert_int 0.1`" + ` for keepalived. Each fault ends with the number of runs, and how busy the machine was (median). All
configurations and all figures are below. ` + "`make benchhead`" + ` writes this table and the chart from the tables below, without measuring anything.
` + "`make bench`" + ` measures all that has a command, one after the other, and then does the same.

**kube-vip was measured in another run** than lbd and keepalived, on a machine of the same kind. Its daemons cannot hear each other when they do not
reach the API server, for 21 s in place of 6 s: [how](#kube-vip).

**Limit** is what the intervals of lbd leave at its defaults, if processors, kernels and the network took no time. An owner that dies is missed after the
rest of an interval, 25 ms in the mean; then one heartbeat more is missed while three questions go unanswered, 60 ms. With ` + "`fast`" + ` it is
49 / 59 / 69. An address that its kernel drops is taken after three questions, 45 ms.

While there are two claimants, two nodes answer for the address, and a client may reach either of them. Two claimants for about 5000 ms or more
were still there when the measurement, or the fault, ended. The check of keepalived opens a TCP connection, which a service that hangs still
accepts: its outage did not end by itself.

![Median outage of lbd, keepalived and kube-vip in each fault](benchmarks.svg)

`
)

// drawn are the median outages of the summary.
func drawn(p page) (groups []group) {
	for _, f := range compared {
		g := group{name: f.words}
		rows := measured(p, f.name)
		for i, c := range contenders {
			s := rows[c].outage
			if len(s) != 3 {
				continue
			}
			v := bar{class: i, ms: s[1]}
			if d := rows[c].dual; len(d) == 3 && d[1] >= notable {
				v.note = fmt.Sprintf(", but two claimants for %d ms", d[1])
			}
			g.bars = append(g.bars, v)
		}
		groups = append(groups, g)
	}
	return groups
}

func drawing(p page) string {
	return chart("Median outage that a client sees, in ms (logarithmic scale)", contenders, drawn(p))
}

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
		if err := os.WriteFile(svg, []byte(drawing(p)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if rest[:i] != top {
		t.Errorf("the summary of docs/benchmarks.md is not that of its tables; `make benchhead` writes\n%s", top)
	}
	if b, err := os.ReadFile(svg); err != nil || string(b) != drawing(p) {
		t.Errorf("docs/benchmarks.svg is not the chart of the tables (%v); `make benchhead` draws it", err)
	}
}
