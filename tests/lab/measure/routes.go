package measure

import (
	"slices"
	"time"
)

// Route is one change of a route in the main table of a kernel, with the whole
// route after it.
type Route struct {
	At Time `json:"t"`
	// Prefix is the destination, such as "10.99.0.200/32".
	Prefix string `json:"p"`
	// Via are the gateways, sorted; none if the route was deleted or has none.
	Via []string `json:"v,omitempty"`
	Del bool     `json:"d,omitempty"`
	// Missed says that the kernel dropped messages before this one.
	Missed bool `json:"m,omitempty"`
}

// Via are the gateways of a prefix at the time, by the events before it.
func Via(events []Route, prefix string, at Time) []string {
	var via []string
	for _, e := range events {
		if e.Prefix == prefix && e.At <= at {
			via = e.Via
		}
	}
	return via
}

// ViaGone is when the gateway first was no longer one of the prefix, after from.
func ViaGone(events []Route, prefix, gateway string, from Time) (Time, bool) {
	return firstRoute(events, prefix, from, func(via []string) bool { return !slices.Contains(via, gateway) })
}

// ViaThere is when the gateway first was one of the prefix, after from.
func ViaThere(events []Route, prefix, gateway string, from Time) (Time, bool) {
	return firstRoute(events, prefix, from, func(via []string) bool { return slices.Contains(via, gateway) })
}

// ViaCount is when the prefix first had at least n gateways, after from.
func ViaCount(events []Route, prefix string, n int, from Time) (Time, bool) {
	return firstRoute(events, prefix, from, func(via []string) bool { return len(via) >= n })
}

func firstRoute(events []Route, prefix string, from Time, ok func(via []string) bool) (Time, bool) {
	for _, e := range events {
		if e.Prefix == prefix && e.At >= from && ok(e.Via) {
			return e.At, true
		}
	}
	return 0, false
}

// replaceTime is how long a route may be gone while it is replaced: zebra deletes
// and adds an IPv6 route in one go, some 0.1 ms apart.
const replaceTime = 5 * time.Millisecond

// Changes are the events of a prefix in [from, to) that changed its gateways.
func Changes(events []Route, prefix string, from, to Time) []Route {
	var out []Route
	before := Via(events, prefix, from-1)
	for i, e := range events {
		if e.Prefix != prefix || e.At < from || e.At >= to {
			continue
		}
		if e.Del {
			next, ok := firstRoute(events[i+1:], prefix, e.At, func(via []string) bool { return len(via) > 0 })
			if ok && next.Sub(e.At) < replaceTime {
				continue
			}
		}
		if !slices.Equal(e.Via, before) {
			out = append(out, e)
		}
		before = e.Via
	}
	return out
}

// Addr is one change of an address of an interface.
type Addr struct {
	At   Time   `json:"t"`
	Addr string `json:"a,omitempty"`
	Del  bool   `json:"d,omitempty"`
	// Missed says that the kernel dropped messages before this one.
	Missed bool `json:"m,omitempty"`
}

// AddrGone is when the address was first removed, after from.
func AddrGone(events []Addr, addr string, from Time) (Time, bool) {
	for _, e := range events {
		if e.Addr == addr && e.Del && e.At >= from {
			return e.At, true
		}
	}
	return 0, false
}

// Hole is for how long, in [from, to), the gateway was one of the prefix while
// its kernel did not have the address: packets that the router sent there were
// lost.
func Hole(routes []Route, prefix, gateway string, addrs []Addr, addr string, from, to Time) time.Duration {
	type change struct {
		at          Time
		sends, held *bool
	}
	var all []change
	for _, r := range routes {
		if r.Prefix == prefix {
			b := slices.Contains(r.Via, gateway)
			all = append(all, change{at: r.At, sends: &b})
		}
	}
	for _, a := range addrs {
		if a.Addr == addr {
			b := !a.Del
			all = append(all, change{at: a.At, held: &b})
		}
	}
	all = append(all, change{at: to})
	slices.SortStableFunc(all, func(x, y change) int { return int(x.at - y.at) })
	var sum time.Duration
	sends, held, last := false, false, Time(0)
	for _, c := range all {
		if begin, end := max(last, from), min(c.at, to); sends && !held && end > begin {
			sum += end.Sub(begin)
		}
		last = c.at
		if c.sends != nil {
			sends = *c.sends
		}
		if c.held != nil {
			held = *c.held
		}
	}
	return sum
}
