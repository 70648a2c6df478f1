package page

import (
	"fmt"
	"html"
	"strconv"
	"strings"
)

// markup is a document as it is written. It is plain Go because the engine of html/template calls methods by
// their names: a program that has it keeps every method of every type, which is a sixth of the binary.
type markup struct{ strings.Builder }

// put writes markup with text in the place of each %s: as content, or within a quoted attribute.
func (m *markup) put(format string, texts ...string) {
	escaped := make([]any, len(texts))
	for i, text := range texts {
		escaped[i] = html.EscapeString(text)
	}
	fmt.Fprintf(m, format, escaped...)
}

// prose writes text, and as code what is between backticks.
func (m *markup) prose(text string) {
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			m.put("<code>%s</code>", part)
		} else {
			m.put("%s", part)
		}
	}
}

// class writes the attribute, unless there is none.
func (m *markup) class(name string) {
	if name != "" {
		m.put(` class="%s"`, name)
	}
}

// code writes the class of a cell in letters of one width.
func (m *markup) code(c cell) {
	if c.Code {
		m.class("code")
	}
}

func (m *markup) cell(c cell) {
	if c.Mark != "" {
		m.put(`<span class="mark %s" aria-hidden="true">%s</span>&nbsp;`, string(c.Mark), glyphs[c.Mark])
	}
	switch {
	case c.Link != "":
		m.put(`<a href="%s">%s</a>`, c.Link, c.Text)
	case c.Exact != "" && c.Clock != "":
		m.put(`<time datetime="%s" title="%s">%s</time> `, c.Exact, c.Full, c.Clock)
		m.put(`<time datetime="%s" title="%s" data-ago class="small">%s</time>`, c.Exact, c.Full, c.Text)
	case c.Exact != "":
		m.put(`<time datetime="%s" title="%s" data-ago>%s</time>`, c.Exact, c.Full, c.Text)
	case c.Text != "":
		m.prose(c.Text)
	default:
		m.put(`<span class="none">–</span>`)
	}
	if c.Small != "" {
		m.put(` <span class="small">%s</span>`, c.Small)
	}
}

// table says the roles again because styles for small screens take them away.
func (m *markup) table(t table) {
	m.put("\n"+`<table role="table"><caption>%s</caption>`+"\n"+`<thead role="rowgroup"><tr role="row">`, t.Caption)
	for _, name := range t.Head {
		m.put(`<th scope="col" role="columnheader">%s</th>`, name)
	}
	m.put("</tr></thead>\n" + `<tbody role="rowgroup">`)
	for _, r := range t.Rows {
		m.put("\n" + `<tr role="row"`)
		m.class(string(r.Mark))
		m.put(">")
		for i, c := range r.Cells {
			if i == 0 {
				m.put(`<th scope="row" role="rowheader"`)
				m.code(c)
				m.put(">")
				m.cell(c)
				m.put("</th>")
				continue
			}
			m.put(`<td role="cell" data-label="%s"`, t.Head[i])
			m.code(c)
			m.put("><div>")
			m.cell(c)
			m.put("</div></td>")
		}
		m.put("</tr>")
	}
	m.put("\n</tbody></table>\n")
	if t.Rest != "" {
		m.put(`<p class="rest">%s <a href="%s">Show all</a></p>`+"\n", t.Rest, t.RestURL)
	}
}

// tableOr writes a table, or a sentence in place of one without rows.
func (m *markup) tableOr(t table, empty string) {
	if len(t.Rows) > 0 {
		m.table(t)
	} else {
		m.put(`<p class="none">%s</p>`+"\n", empty)
	}
}

func (m *markup) section(t table) {
	if len(t.Rows) == 0 && t.Empty == "" {
		return
	}
	m.put(`<section id="%s" aria-labelledby="%s-title">`+"\n"+`<h2 id="%s-title">%s</h2>`+"\n", t.ID, t.ID, t.ID, t.Title)
	m.tableOr(t, t.Empty)
	m.put("</section>\n")
}

// begin writes what is before the parts of a page, and the heading.
func (m *markup) begin(d *document) {
	m.put(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>%s · lbd</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page.css">
<script src="/page.js" defer></script>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header class="bar">
<a class="home" href="/">lbd <span>%s</span></a>
<p id="live" role="status" aria-live="polite">As of %s</p>
</header>
`, d.Title, d.Node, d.Clock)
	m.put(`<main id="main" tabindex="-1" data-id="%s" data-now="%s">
<div id="heading" class="heading">
<h1>%s</h1>
<p>%s</p>
</div>
<nav aria-label="Sections"><ul>`, d.ID, d.Taken.Exact, d.Heading, d.Under)
	for _, l := range d.Nav {
		m.put(`<li><a href="%s">%s</a></li>`, l.To, l.Text)
	}
	m.put("</ul></nav>\n")
}

// end writes the timeline and what is after it.
func (m *markup) end(d *document) {
	m.put(`<section id="changes" aria-labelledby="changes-title" class="changes">` + "\n" + `<h2 id="changes-title">Changes</h2>` + "\n")
	m.tableOr(d.Changes, d.Changes.Empty)
	if n := len(d.Older.Rows); n > 0 {
		m.put(`<details id="older"><summary>%s older changes</summary>`, strconv.Itoa(n))
		m.table(d.Older)
		m.put("</details>\n")
	}
	if d.Forgotten != "" {
		m.put(`<p class="rest">%s</p>`+"\n", d.Forgotten)
	}
	m.put(`</section>
</main>
<footer>
<p>lbd %s on %s, as of <time datetime="%s">%s</time>. This page changes nothing; <code>lbd</code> on the node does.</p>
</footer>
</body>
</html>
`, d.Version, d.Node, d.Taken.Exact, d.Taken.Full)
}

// overview writes the parts of the page about a node.
func (m *markup) overview(d *document) {
	m.put(`<section id="problems" aria-labelledby="problems-title">` + "\n" + `<h2 id="problems-title">Problems</h2>` + "\n")
	if len(d.Problems) > 0 {
		m.put(`<ul class="problems">`)
		for _, problem := range d.Problems {
			m.put(`<li><span class="mark look" aria-hidden="true">!</span> `)
			m.prose(problem)
			m.put("</li>")
		}
		m.put("</ul>\n")
	} else {
		m.put(`<p class="well"><span class="mark good" aria-hidden="true">✓</span> There is nothing to do.</p>` + "\n")
	}
	if d.Services != "" {
		m.put("<p>")
		m.prose(d.Services)
		m.put("</p>\n")
	}
	m.put("</section>\n")
	for _, t := range d.Tables {
		m.section(t)
	}
	if len(d.Forwards) == 0 {
		return
	}
	m.put(`<section id="forwards" aria-labelledby="forwards-title">` + "\n" + `<h2 id="forwards-title">Forwards</h2>` + "\n")
	for _, f := range d.Forwards {
		m.put(`<h3><a href="%s">%s</a> <span class="small">%s</span></h3>`+"\n", f.Link, f.Address, f.Name)
		m.tableOr(f.Backends, "It has no backend of this family.")
	}
	if d.MoreForwards != "" {
		m.put(`<p class="rest">%s</p>`+"\n", d.MoreForwards)
	}
	m.put("</section>\n")
}

// vip writes the parts of the page about a VIP.
func (m *markup) vip(d *document) {
	for i, e := range d.Explained {
		m.explained("vip-"+strconv.Itoa(i), e)
	}
}

func (m *markup) explained(id string, e explained) {
	m.put(`<section id="%s" aria-labelledby="%s-title">`+"\n"+`<h2 id="%s-title">%s</h2>`+"\n", id, id, id, e.Heading)
	for i, why := range e.Why {
		m.put(`<p class="why">`)
		if i > 0 {
			m.put(`<span class="mark look" aria-hidden="true">!</span> `)
		}
		m.prose(why)
		m.put(".</p>\n")
	}
	m.put("<dl>")
	for _, f := range e.Facts {
		m.put("<div><dt>%s</dt><dd", f.Name)
		m.code(f.Is)
		m.put(">")
		m.cell(f.Is)
		m.put("</dd></div>\n")
	}
	m.put("</dl>\n")
	if len(e.Story) > 0 {
		m.put(`<ul class="story">`)
		for _, line := range e.Story {
			m.put("<li>")
			m.prose(line)
			m.put("</li>")
		}
		m.put("</ul>\n")
	}
	for _, t := range []struct {
		title string
		table table
	}{{"Nodes", e.Candidates}, {"Backends", e.Backends}} {
		if len(t.table.Rows) > 0 {
			m.put("<h3>%s</h3>\n", t.title)
			m.table(t.table)
		}
	}
	m.put("</section>\n")
}
