package measure

import (
	"slices"
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

// Changes counts the events of a prefix in [from, to) that changed its gateways.
func Changes(events []Route, prefix string, from, to Time) int {
	n := 0
	before := Via(events, prefix, from-1)
	for _, e := range events {
		if e.Prefix != prefix || e.At < from || e.At >= to {
			continue
		}
		if !slices.Equal(e.Via, before) {
			n++
		}
		before = e.Via
	}
	return n
}
