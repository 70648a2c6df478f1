package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

const (
	// maxEvents is how many events are remembered.
	maxEvents = 500
	// maxAlike is how many VIPs that change in the same way within foldTime have an event
	// each. The others share one: thousands that move together must not drive out all else.
	maxAlike = 20
	foldTime = time.Second
	// maxText bounds each text of an event, in bytes.
	maxText = 400
)

// timeline remembers the newest events in memory that is bounded.
type timeline struct {
	ring  []v1alpha1.Event // the event n is at (n-1) % maxEvents
	seq   uint64           // of the newest
	alike map[likeness]*likes
}

func newTimeline() timeline {
	return timeline{ring: make([]v1alpha1.Event, 0, maxEvents), alike: map[likeness]*likes{}}
}

// likeness is what VIPs have in common that change in the same way.
type likeness struct {
	kind             v1alpha1.EventKind
	mode             string
	from, to, reason string
}

// likes counts them from since on; more stands for those that are not listed.
type likes struct {
	since time.Time
	count int
	more  v1alpha1.Event
}

func (t *timeline) add(e v1alpha1.Event) {
	for _, text := range []*string{&e.VIP, &e.Node, &e.Peer, &e.From, &e.To, &e.Reason, &e.Detail} {
		*text = shorten(*text)
	}
	t.seq++
	e.Seq, e.Time = t.seq, e.Time.UTC().Truncate(time.Millisecond)
	if len(t.ring) < maxEvents {
		t.ring = append(t.ring, e)
		return
	}
	t.ring[(t.seq-1)%maxEvents] = e
}

// addVIP appends an event of a VIP, or only counts it if many have changed in the same way.
func (t *timeline) addVIP(e v1alpha1.Event, now time.Time) {
	k := likeness{e.Kind, e.Mode, e.From, e.To, e.Reason}
	l := t.alike[k]
	if l == nil {
		l = &likes{since: now}
		t.alike[k] = l
	}
	if l.count++; l.count <= maxAlike {
		t.add(e)
		return
	}
	if l.more.More == 0 {
		l.more = e
		l.more.VIP, l.more.Address, l.more.Detail, l.more.Gap = "", "", "", ""
	}
	l.more.More++
}

// fold appends an event for those that were only counted, once no more are awaited.
func (t *timeline) fold(now time.Time) {
	for k, l := range t.alike {
		if now.Sub(l.since) < foldTime {
			continue
		}
		if l.more.More > 0 {
			t.add(l.more)
		}
		delete(t.alike, k)
	}
}

// list returns the events in the order of their times for which want is true.
func (t *timeline) list(want func(*v1alpha1.Event) bool) []v1alpha1.Event {
	var out []v1alpha1.Event
	for i := range t.ring {
		// From the oldest on, so that events of one time keep their order.
		if e := &t.ring[(t.seq+uint64(i))%uint64(len(t.ring))]; want(e) {
			out = append(out, *e)
		}
	}
	slices.SortStableFunc(out, func(a, b v1alpha1.Event) int { return a.Time.Compare(b.Time) })
	return out
}

func shorten(s string) string {
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.Clone(s[:end]) + "..." // a copy, so that the rest is not kept in memory
}

// Events returns what has changed, as far as it is remembered: of the VIPs with this name or
// address, "" for all; within since, 0 for any time; with a Seq above after. A VIP of which
// there is neither an event nor a configuration is ErrUnknownVIP. No decision is made for it.
func (d *Daemon) Events(ctx context.Context, vip string, since time.Duration, after uint64) (v1alpha1.NodeEvents, error) {
	if a, err := netip.ParseAddr(vip); err == nil {
		vip = a.Unmap().String()
	}
	now := time.Now()
	out := v1alpha1.NodeEvents{Node: string(d.opts.Node), Version: d.opts.Version, Time: now, Started: d.started}
	var known []string
	met := vip == ""
	err := d.look(ctx, func() {
		out.Newest, out.Forgotten = d.events.seq, d.events.seq-uint64(len(d.events.ring))
		out.Events = d.events.list(func(e *v1alpha1.Event) bool {
			name := e.VIP == vip || vip != "" && e.VIP == model.TenantName(model.ParseKey(vip))
			of := e.Mode != "" && (name || e.Address == vip) || e.Kind == v1alpha1.EventBackend && name
			met = met || of
			return (vip == "" || of || e.More > 0) && e.Seq > after && (since == 0 || now.Sub(e.Time) <= since)
		})
		for i := range d.last.Status {
			v := &d.last.Status[i].VIP
			met = met || named(v, vip)
		}
		if !met {
			known = vipNames(d.last.Status)
		}
	})
	if err == nil && !met {
		err = fmt.Errorf("%w %q, and no event of one; the VIPs are %q", ErrUnknownVIP, vip, known)
	}
	return out, err
}
