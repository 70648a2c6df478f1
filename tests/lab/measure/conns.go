package measure

import (
	"fmt"
	"time"
)

// ConnKind is what happened to a long-lived connection.
type ConnKind string

// The kinds.
const (
	ConnOpen   ConnKind = "open"
	ConnLost   ConnKind = "lost"   // reset or closed
	ConnStall  ConnKind = "stall"  // no echo for a second
	ConnResume ConnKind = "resume" // an echo after a stall
)

// ConnEvent is one event of one long-lived connection.
type ConnEvent struct {
	At   Time     `json:"t"`
	Conn int      `json:"c"`
	Kind ConnKind `json:"k"`
	Node string   `json:"n,omitempty"`
	Err  string   `json:"x,omitempty"`
}

// Conns is what became of the long-lived connections.
type Conns struct {
	Open    int // were open at the beginning
	Lost    int
	Stalled int // over a second without echo, and went on by themselves
	Hanging int // silent at the end
}

// Survived is how many are alive at the end.
func (c Conns) Survived() int { return c.Open - c.Lost - c.Hanging }

// ConnsIn sums up the events before to, counting what happened at or after from
// to the connections that were open at from.
func ConnsIn(events []ConnEvent, from, to Time) Conns {
	type state struct{ open, hangs, lost, stalled bool }
	conns := map[int]*state{}
	for _, e := range events {
		s := conns[e.Conn]
		if s == nil {
			s = &state{}
			conns[e.Conn] = s
		}
		if e.At >= to {
			continue
		}
		switch e.Kind {
		case ConnOpen:
			s.open = s.open || e.At < from
		case ConnLost:
			s.lost, s.hangs = true, false
			s.open = s.open && e.At >= from
		case ConnStall:
			s.hangs = true
		case ConnResume:
			s.hangs = false
			s.stalled = s.stalled || e.At >= from
		}
	}
	var c Conns
	for _, s := range conns {
		switch {
		case !s.open:
			continue
		case s.lost:
			c.Lost++
		case s.hangs:
			c.Hanging++
		case s.stalled:
			c.Stalled++
		}
		c.Open++
	}
	return c
}

// Endings says of each connection that was lost or stalled after from: when, counted from
// there, with which error, and which node had accepted the connection.
func Endings(events []ConnEvent, from Time) []string {
	nodes := map[int]string{}
	var endings []string
	for _, e := range events {
		switch {
		case e.Kind == ConnOpen:
			nodes[e.Conn] = e.Node
		case e.At >= from && (e.Kind == ConnLost || e.Kind == ConnStall):
			endings = append(endings, fmt.Sprintf("connection %d to %s: %s after %v %s",
				e.Conn, nodes[e.Conn], e.Kind, time.Duration(e.At-from).Round(time.Millisecond), e.Err))
		}
	}
	return endings
}
