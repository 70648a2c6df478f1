package model

import (
	"testing"

	"lbd.dev/lbd/internal/fieldtest"
)

// TestSame: what is compared by hand is compared in each field, a new one too. Whoever
// compares takes over what is the same, so a field that does not count keeps its old value.
func TestSame(t *testing.T) {
	fieldtest.Same(t, (*WireMemory).Same, "Asked") // changes with Series
	fieldtest.Same(t, (*Dispute).Same)
	fieldtest.Same(t, (*VIPMemory).Same)
	fieldtest.Same(t, (*VIPStatus).Same, "VIP.BGP: a copy", "VIP.Preference: a copy")
	fieldtest.Same(t, (*VIP).Same, "BGP: a copy", "Preference: a copy")
	fieldtest.Same(t, (*PathAttributes).Equal)
	fieldtest.Same(t, (*BGPPath).Equal)
	fieldtest.Same(t, (*Link).Equal)
	fieldtest.Same(t, (*RingHost).Same)
	fieldtest.Same(t, (*Ring).Same)
	fieldtest.Same(t, (*RouteState).Same)
	fieldtest.Same(t, (*LearnedMemory).Same)
	fieldtest.Same(t, (*MachineDrain).Equal)
	fieldtest.Same(t, (*MachinesState).Equal)
	fieldtest.Same(t, func(a, b *[]MachineDrain) bool { return SameDrains(*a, *b) })
}

// TestNothingKnownOfAHost is another thing than to know that there is nothing.
func TestNothingKnownOfAHost(t *testing.T) {
	var none *RingHost
	if none.Same(&RingHost{}) || (&RingHost{}).Same(none) || !none.Same(nil) {
		t.Error("a host of which nothing is known is like one that can do all")
	}
}
