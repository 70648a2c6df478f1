package measure

import (
	"fmt"
	"time"
)

// Line is one line of a long response, or its end.
type Line struct {
	At Time `json:"t"`
	// Node is who sent it, Number its place in the response, from 1.
	Node   string `json:"n,omitempty"`
	Number int    `json:"i,omitempty"`
	// Err is why the response ended; it never does so by itself.
	Err string `json:"x,omitempty"`
}

// Stream is what became of one long response.
type Stream struct {
	Lines int
	Node  string // that sent them
	// Gap is the longest time from one line to the next, or to the end of watching.
	Gap    time.Duration
	Broken string // why it is not one whole response; "" if it is
}

// StreamOf sums up the lines that were read before to.
func StreamOf(lines []Line, to Time) Stream {
	var s Stream
	var last Time
	for _, l := range lines {
		if l.At >= to {
			break
		}
		switch {
		case s.Broken != "":
			return s
		case l.Err != "":
			s.Broken = fmt.Sprintf("it ended after %d lines: %s", s.Lines, l.Err)
			continue
		case l.Number != s.Lines+1:
			s.Broken = fmt.Sprintf("line %d came after line %d", l.Number, s.Lines)
			continue
		case s.Node != "" && l.Node != s.Node:
			s.Broken = fmt.Sprintf("line %d came from %s, those before from %s", l.Number, l.Node, s.Node)
			continue
		}
		if s.Lines > 0 {
			s.Gap = max(s.Gap, l.At.Sub(last))
		}
		s.Lines, s.Node, last = l.Number, l.Node, l.At
	}
	if s.Lines > 0 && s.Broken == "" {
		s.Gap = max(s.Gap, to.Sub(last))
	}
	return s
}

// Silence is the longest time without a line in [from, to), of the response that was
// there at first and of all that followed.
func Silence(lines []Line, from, to Time) (longest time.Duration) {
	last := from
	for _, l := range lines {
		if l.Err == "" && l.At >= from && l.At < to {
			longest, last = max(longest, l.At.Sub(last)), l.At
		}
	}
	return max(longest, to.Sub(last))
}
