package docs

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// bar is one bar of a chart. Of its group it has the colour number class.
type bar struct {
	class int
	ms    int
	note  string // beside the figure
}

// group is the bars of one fault.
type group struct {
	name string
	bars []bar
}

// A group of bars for each fault, on a scale of logarithms from 10 ms to 100 s.
const (
	barHigh, groupGap, topOf   = 13, 14, 58
	barLeft, decade, chartWide = 270, 115, 760
)

// colours of the bars on a light ground and on a dark one.
var colours = []struct{ light, dark string }{
	{"#0b6e4f", "#2fbf8f"}, {"#5fb49c", "#a5e3cf"}, {"#b23a48", "#f0727f"}, {"#e39695", "#f6c4c3"}, {"#5b5fc7", "#9da0f5"},
}

// chart draws times as SVG, with a ground of its own: a page that shows it as a picture may be light or dark.
func chart(title string, legend []string, groups []group) string {
	var b strings.Builder
	y := topOf
	for _, g := range groups {
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", barLeft-10, y+2*barHigh+4, escaped(g.name))
		for _, v := range g.bars {
			wide := 1
			if v.ms > 10 {
				wide = int(math.Round(decade * (math.Log10(float64(v.ms)) - 1)))
			}
			fmt.Fprintf(&b, "<rect class=\"c%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>", v.class, barLeft, y, wide, barHigh-1)
			fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\">%d ms%s</text>\n", barLeft+wide+4, y+barHigh-3, v.ms, escaped(v.note))
			y += barHigh
		}
		y += groupGap
	}
	return chartHead(title, legend, y) + b.String() + "</svg>\n"
}

func chartHead(title string, legend []string, high int) string {
	light, dark := ".ground{fill:#fff} text{fill:#1f2328}", ".ground{fill:#0d1117} text{fill:#e6edf3}"
	for i, c := range colours {
		light += fmt.Sprintf(" .c%d{fill:%s}", i, c.light)
		dark += fmt.Sprintf(" .c%d{fill:%s}", i, c.dark)
	}
	out := fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n", chartWide, high) +
		"<style>" + light + " @media (prefers-color-scheme: dark) {" + dark + "}</style>\n" +
		"<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n" +
		"<text x=\"10\" y=\"18\" font-size=\"14\">" + escaped(title) + "</text>\n"
	for i, name := range legend {
		x := 150 + i*120
		out += fmt.Sprintf("<rect class=\"c%d\" x=\"%d\" y=\"28\" width=\"11\" height=\"11\"/><text x=\"%d\" y=\"38\">%s</text>\n", i, x, x+16, escaped(name))
	}
	return out
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}
