package control

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"lbd.dev/lbd/api/v1alpha1"
)

// EventQuery chooses events.
type EventQuery struct {
	// VIP is the name or an address of one; "" is all of them, and what is about none.
	VIP string
	// Since is how old an event may be; 0 is any age.
	Since time.Duration
	// After is the Seq of the newest event that is known already.
	After uint64
}

// values are the query as the server reads it.
func (q EventQuery) values() url.Values {
	v := url.Values{}
	if q.VIP != "" {
		v.Set("vip", q.VIP)
	}
	if q.Since > 0 {
		v.Set("since", q.Since.String())
	}
	if q.After > 0 {
		v.Set("after", strconv.FormatUint(q.After, 10))
	}
	return v
}

// readEventQuery is the inverse of values. Its errors are ErrQuestion.
func readEventQuery(v url.Values) (q EventQuery, err error) {
	q.VIP = v.Get("vip")
	if text := v.Get("since"); text != "" {
		if q.Since, err = time.ParseDuration(text); err != nil || q.Since <= 0 {
			return q, fmt.Errorf("%w: since %q is no duration above 0", ErrQuestion, text)
		}
	}
	if text := v.Get("after"); text != "" {
		if q.After, err = strconv.ParseUint(text, 10, 64); err != nil {
			return q, fmt.Errorf("%w: after %q is no number of an event", ErrQuestion, text)
		}
	}
	return q, nil
}

// Events returns what has changed on the node, as far as its daemon remembers. A VIP that is
// neither configured nor remembered wraps ErrNotFound.
func (c *Client) Events(ctx context.Context, q EventQuery) (v1alpha1.NodeEvents, error) {
	var found v1alpha1.NodeEvents
	path := pathEvents
	if v := q.values(); len(v) > 0 {
		path += "?" + v.Encode()
	}
	err := c.do(ctx, http.MethodGet, path, nil, &found)
	return found, err
}

// EventTable writes events as text for people. What it writes later has columns at least as
// wide as before, so that a table can grow while somebody looks.
type EventTable struct {
	widths []int
	begun  bool // the node was written
	titled bool // the titles were
}

// Write writes the events of one answer, before the first of them the node and the titles.
func (t *EventTable) Write(w io.Writer, e v1alpha1.NodeEvents) error {
	var out bytes.Buffer
	if !t.begun {
		fmt.Fprintf(&out, "Node %s, lbd %s: %s\n", clean(e.Node), clean(e.Version), memory(e))
		t.begun = true
	}
	if len(e.Events) > 0 {
		var rows table
		if !t.titled {
			out.WriteString("\n")
			rows.add("TIME", "KIND", "ABOUT", "ADDRESS", "WHAT")
			t.titled = true
		}
		for i := range e.Events {
			x := &e.Events[i]
			rows.add("", string(x.Kind), about(x), x.Address, what(x))
			rows.rows[len(rows.rows)-1][0] = x.Clock() // whole, although it is long
		}
		t.pad(rows.rows)
		if err := rows.write(&out, ""); err != nil {
			return err
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

// pad makes all columns but the last as wide as the widest cell so far.
func (t *EventTable) pad(rows [][]string) {
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		for i := range row[:len(row)-1] {
			row[i] += strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(row[i]))
		}
	}
}

// memory says how far back the events go.
func memory(e v1alpha1.NodeEvents) string {
	text := "started " + e.Started.UTC().Format(time.RFC3339)
	if e.Forgotten > 0 {
		text += fmt.Sprintf(", %d older events are forgotten", e.Forgotten)
	}
	if len(e.Events) == 0 {
		text += "; no event"
	}
	return text
}

// about is what an event is about: a VIP, a session, or a node.
func about(e *v1alpha1.Event) string {
	if e.More > 0 {
		return fmt.Sprintf("%d more VIPs", e.More)
	}
	return cmp.Or(e.VIP, e.Peer, e.Node)
}

// what says in words what has changed and why.
func what(e *v1alpha1.Event) string {
	why, what := joined(e, e.Reason, gapText(e), e.Detail), change(e)
	if what != "" && why != "" {
		what += ": "
	}
	return what + why
}

// change says in words what has changed.
func change(e *v1alpha1.Event) string {
	switch {
	case e.From != "" && e.To != "":
		return e.From + " -> " + e.To
	case e.From != "":
		return "no longer " + e.From
	}
	return e.To
}

// joined are those of the texts that say more than the change does.
func joined(e *v1alpha1.Event, texts ...string) string {
	var more []string
	for _, text := range texts {
		if text != "" && !strings.EqualFold(text, e.To) { // draining, because of Draining
			more = append(more, oneLine(text))
		}
	}
	return strings.Join(more, ", ")
}

// gapText says what the gap of an event is.
func gapText(e *v1alpha1.Event) string {
	switch {
	case e.Gap == "":
		return ""
	case e.Kind == v1alpha1.EventOwner:
		return "no owner for " + e.Gap
	case e.Kind == v1alpha1.EventAnnounced:
		return "missed for " + e.Gap
	case e.Kind == v1alpha1.EventStall:
		return "did not run for " + e.Gap
	}
	return "after " + e.Gap
}
