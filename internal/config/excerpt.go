package config

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"lbd.dev/lbd/api/v1alpha1"
)

// hidden is a value that no excerpt shows: a secret, or one that could be a secret under
// a name that lbd does not know.
type hidden struct {
	value *yaml.Node
	flow  bool // of a collection in brackets, so that something may follow it in its last line
}

// flows tells whether a collection is written in brackets.
func flows(n *yaml.Node) bool { return n.Style&yaml.FlowStyle != 0 }

// hide keeps a value of a collection out of excerpts.
func (d *decoder) hide(in, value *yaml.Node) { d.hidden = append(d.hidden, hidden{value, flows(in)}) }

// excerpts shows lines of a file as far as they hold no secret.
type excerpts struct {
	lines []string
	from  map[int]int // by line: the column from which on nothing is shown
}

// brokenSecret finds what may be a secret in a file that could not be read to its end.
var brokenSecret = regexp.MustCompile(`(?i)(pass\w*|secret|token|key)["']?[ \t]*:`)

// apiVersions finds what the documents of a file say that they are.
var apiVersions = regexp.MustCompile(`apiVersion["']?[ \t]*:[ \t]*["']?([^\s"',}]*)`)

// onlyOurs tells whether all objects of a file are those of lbd, as far as it can be seen
// without reading YAML.
func onlyOurs(text string) bool {
	found := apiVersions.FindAllStringSubmatch(text, -1)
	return len(found) > 0 && !slices.ContainsFunc(found, func(m []string) bool { return !strings.HasPrefix(m[1], v1alpha1.Group+"/") })
}

// otherBreaks are line breaks that YAML knows and nobody else does.
const otherBreaks = "\r\u0085\u2028\u2029"

// newExcerpts returns the excerpts of a file, all of whose objects are given. end is the error
// that ended the reading, if any. It is nil if nothing may be shown.
func newExcerpts(data []byte, objects []*object, end *Error) *excerpts {
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	if !utf8.ValidString(text) || strings.ContainsAny(text, otherBreaks) {
		return nil
	}
	if end != nil && (brokenSecret.MatchString(text) || !onlyOurs(text)) {
		return nil
	}
	x := &excerpts{lines: strings.Split(text, "\n"), from: make(map[int]int)}
	for _, o := range objects {
		for _, h := range o.hidden {
			if !x.hide(h.value, h.value.Line, h.flow) {
				return nil
			}
		}
	}
	return x
}

// hide hides a value that begins in the line first. It returns false if it is not known where
// the value ends.
func (x *excerpts) hide(n *yaml.Node, first int, flow bool) bool {
	column := n.Column
	if n.Line > first {
		column = 1
	}
	if old, known := x.from[n.Line]; !known || column < old {
		x.from[n.Line] = column
	}
	if flow && n.Kind == yaml.ScalarNode && !strings.Contains(x.line(n.Line), n.Value) {
		return false
	}
	for _, c := range n.Content {
		if !x.hide(c, first, flow) {
			return false
		}
	}
	return true
}

func (x *excerpts) line(number int) string {
	if number < 1 || number > len(x.lines) {
		return ""
	}
	return x.lines[number-1]
}

// of returns what may be shown of a line if that includes the column, else "".
func (x *excerpts) of(line, column int) string {
	if x == nil {
		return ""
	}
	text := []rune(x.line(line))
	from, cut := x.from[line]
	switch {
	case !cut || from > len(text):
		return string(text)
	case column > from || column == 0 || strings.TrimSpace(string(text[:from-1])) == "":
		return ""
	}
	return string(text[:from-1]) + "…"
}
