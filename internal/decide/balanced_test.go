package decide

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/ring"
)

// run gives a stage the lines of a script.
func (s *stage) run(lines ...string) {
	for _, l := range lines {
		w := strings.Fields(l)
		s.command(w[0], w[1:])
	}
}

// spreading is a node that owns a balanced VIP on the second of its interfaces.
func spreading(t *testing.T) *stage {
	s := newStage(t)
	s.run("link eth1 up 10.0.0.111/24", "vip balanced interface=eth1", "apply", "layer2 quiet silent", "decide", "apply", "holders m2 m3", "apply")
	return s
}

// Rules that nobody refreshes any more act for longer than the address is there: an owner
// whose daemon has ended resets nothing that other nodes have.
func TestRulesOutlastTheAddress(t *testing.T) {
	s := newStage(t)
	s.run("apply", "layer2 quiet silent", "decide", "apply", "holders m2", "apply")
	if len(s.d.Relay) != 1 {
		t.Fatalf("%+v", s.d.Relay)
	}
	// Both are refreshed at a third; the rules may have been due at that moment.
	if left := s.d.Relay[0].Ring.Lifetime * 2 / 3; left < ring.LeftHolds {
		t.Errorf("%v are left at least, the address may last for %v", left, ring.LeftHolds)
	}
}

// The ring of a balanced VIP is where layer 2 has it, acts for as long as silence lasts,
// and knows of each node where it is and what it can bear.
func TestRingOfBalanced(t *testing.T) {
	s := spreading(t)
	s.v.Weight = 300
	m2 := s.v.Gossip.Members["m2"]
	m2.Weight = 50
	s.v.Gossip.Members["m2"] = m2
	s.decide()
	want := []model.Backend{{Node: "m1", Weight: 300}, {Node: "m2", Weight: 50, Addr: netip.MustParseAddr("10.0.0.12")}, {Node: "m3", Addr: netip.MustParseAddr("10.0.0.13")}}
	if len(s.d.Relay) != 1 || !slices.Equal(s.d.Relay[0].Ring.Spread, want) {
		t.Fatalf("%+v", s.d.Relay)
	}
	look := func(what string) {
		t.Helper()
		if len(s.d.Relay) != 1 || s.d.Relay[0].Interface != "eth1" || s.d.Relay[0].Ring.Lifetime != 9*time.Second || !s.d.Relay[0].Ring.Shared {
			t.Errorf("%s: %+v", what, s.d.Relay)
		}
	}
	look("owner")
	s.run("claim m2 9", "apply", "now 1s", "apply", "now 1s", "apply")
	if s.v.Memory.VIPs[scriptVIP].Phase != model.PhaseIdle {
		t.Fatalf("%v", s.v.Memory.VIPs[scriptVIP].Phase)
	}
	look("silent")
	// Beside BGP, whose rings may be on any interface, too.
	s.run("vip bgp", "peer tor1", "apply")
	look("with BGP")
	s.run("vip balanced=off", "apply")
	if len(s.d.Relay) != 1 || s.d.Relay[0].Interface != "eth0" || s.d.Relay[0].Ring.Lifetime != ring.RulesLast || s.d.Relay[0].Ring.Shared {
		t.Errorf("by BGP and not balanced: %+v", s.d.Relay)
	}
}

// Two VIPs of the same nodes have a ring each if not the same nodes take new connections.
// Drivers look for what stands in a ring's way if that matters to any of them.
func TestRingsOfTwoBalanced(t *testing.T) {
	s := spreading(t)
	first, second := scriptVIP, scriptVIP.Next()
	again := s.v.VIPs[0]
	again.Addr = second
	s.v.VIPs = []model.VIP{s.v.VIPs[0], again}
	s.v.Memory.VIPs, s.v.Memory.BGP = maps.Clone(s.v.Memory.VIPs), maps.Clone(s.v.Memory.BGP)
	s.v.Memory.VIPs[second], s.v.Memory.BGP[second] = s.v.Memory.VIPs[first], s.v.Memory.BGP[first]
	for _, sink := range []model.SinkName{model.SinkAddress, model.SinkLayer2} {
		s.v.Applied[sink].VIPs[second] = s.v.Applied[sink].VIPs[first]
	}
	s.v.Gossip.Holders[second] = s.v.Gossip.Holders[first]
	for _, eligible := range [][]model.NodeName{{"m2", "m3"}, {"m3"}, nil} {
		s.v.Gossip.Eligible[second] = eligible
		d := Decide(&s.v)
		if len(d.Relay) != 2 {
			t.Fatalf("%+v", d.Relay)
		}
		for i, n := range []int{2, len(eligible)} {
			if n > 0 {
				n++ // this node
			}
			if got := d.Relay[i].Ring.Spread; len(got) != n {
				t.Errorf("%s over %v, of %d that are well", d.Relay[i].Addr, got, n)
			}
		}
		if names := d.Relay[0].Ring.Spread; names[1].Node != "m2" {
			t.Errorf("the first is spread over %v", names)
		}
	}
	s.v.Gossip.Eligible[first], s.v.Gossip.Eligible[second] = []model.NodeName{"m2"}, []model.NodeName{"m3"}
	if d := Decide(&s.v); d.Relay[0].Ring.Spread[1].Node != "m2" || d.Relay[1].Ring.Spread[1].Node != "m3" {
		t.Errorf("over as many, but others: %v, %v", d.Relay[0].Ring.Spread, d.Relay[1].Ring.Spread)
	}
	for _, balanced := range [][2]bool{{true, false}, {false, true}, {false, false}} {
		s.v.VIPs[0].Balanced, s.v.VIPs[1].Balanced = balanced[0], balanced[1]
		if d := Decide(&s.v); d.Rings != (balanced[0] || balanced[1]) {
			t.Errorf("balanced %v: looks %v", balanced, d.Rings)
		}
	}
}

// People, and `lbd drain`, are told that the address is bound as long as it is on lo,
// whoever owns it.
func TestBalancedIsBound(t *testing.T) {
	s := spreading(t)
	look := func(what string, want bool) {
		t.Helper()
		if len(s.d.Status) != 1 || s.d.Status[0].Bound != want || s.d.Status[0].Announced {
			t.Errorf("%s: %+v, want bound %v", what, s.d.Status, want)
		}
	}
	s.run("conns 3", "claim m2 9", "apply", "now 1s", "apply", "now 1s", "apply")
	look("silent", true)
	s.run("draining on", "apply", "now 2s", "apply", "now 2s", "apply")
	look("drained, with connections", true)
	s.run("conns 0", "apply", "apply", "apply")
	look("drained", false)
	s.run("draining off", "vip balanced=off", "apply", "apply")
	look("not balanced", false)
}
