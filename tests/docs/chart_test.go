package docs

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestChart: the chart is XML, has a bar for each figure, as long as the figure says, and its labels.
func TestChart(t *testing.T) {
	groups := []group{
		{"a < b & c", []bar{{0, 100, ""}, {4, 10000, ""}}},
		{"nothing", nil},
		{"third", []bar{{1, 0, ", but <two>"}, {2, 1000, ""}}},
	}
	bars, texts := parsed(t, chart("title", []string{"first", "second"}, groups))
	if want := []int{decade, 3 * decade, 1, 2 * decade}; !slices.Equal(bars, want) {
		t.Errorf("bars of %v, want %v", bars, want)
	}
	for _, want := range []string{"title", "first", "second", "a < b & c", "third", "100 ms", "10000 ms", "0 ms, but <two>", "1000 ms"} {
		if !slices.Contains(texts, want) {
			t.Errorf("no label %q in %q", want, texts)
		}
	}
}

// TestDrawing: the page has a bar for each median of its tables, and names each system and fault.
func TestDrawing(t *testing.T) {
	p := readPage(t, "docs/benchmarks.md")
	bars, texts := parsed(t, drawing(p))
	want := 0
	for _, f := range compared {
		for _, r := range measured(p, f.name) {
			if r.runs == "" || r.busy == "" {
				t.Errorf("%s: %+v", f.name, r)
			}
		}
		for _, c := range contenders {
			if len(measured(p, f.name)[c].outage) == 3 {
				want++
			}
		}
		if !slices.Contains(texts, f.words) {
			t.Errorf("no label %q", f.words)
		}
	}
	if len(bars) != want || want < 40 {
		t.Errorf("%d bars, want %d", len(bars), want)
	}
	for _, c := range contenders {
		if !slices.Contains(texts, c) {
			t.Errorf("no label %q", c)
		}
	}
}

// parsed reads a chart: how long its bars are, without those of the legend, and all its texts. What would be
// beyond its edge, or has no colour in both modes, is an error.
func parsed(t *testing.T, svg string) (bars []int, texts []string) {
	t.Helper()
	_, dark, _ := strings.Cut(svg, "prefers-color-scheme: dark")
	in := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return bars, texts
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := token.(xml.StartElement)
		if !ok || e.Name.Local != "rect" && e.Name.Local != "text" {
			continue
		}
		at := map[string]string{}
		for _, a := range e.Attr {
			at[a.Name.Local] = a.Value
		}
		x, _ := strconv.Atoi(at["x"])
		y, _ := strconv.Atoi(at["y"])
		if e.Name.Local == "text" {
			var text string
			if err := in.DecodeElement(&text, &e); err != nil {
				t.Fatal(err)
			}
			if texts = append(texts, text); x+6*len(text) > chartWide && at["text-anchor"] == "" {
				t.Errorf("%q at %d is beyond the edge", text, x)
			}
			continue
		}
		class := "." + at["class"] + "{"
		if strings.Count(svg, class) != 2 || strings.Count(dark, class) != 1 {
			t.Errorf("no colours for %q", at["class"])
		}
		if wide, err := strconv.Atoi(at["width"]); err == nil && y >= topOf {
			bars = append(bars, wide)
		}
	}
}
