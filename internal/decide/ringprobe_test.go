package decide

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestRingLeftByFamily: of a node whose daemon has ended, one family is silent on the
// wire. It is out of the rings of that family for good, and in those of the other one.
func TestRingLeftByFamily(t *testing.T) {
	for _, silent := range []bool{true, false} { // of IPv4; if not, of IPv6
		s := twoFamilies(t)
		s.decide()
		how := map[bool]string{true: "silent", false: "answers"}
		const m2v4, m2v6 = "10.0.0.12", "fd00::12"
		s.v.Now = s.v.Now.Add(165 * time.Millisecond)
		s.wire(netip.MustParseAddr(m2v4), how[silent])
		s.wire(netip.MustParseAddr(m2v6), how[!silent])
		for range 4 {
			s.decide()
			s.wantRings(map[bool]int{true: 2, false: 3}[silent], map[bool]int{true: 3, false: 2}[silent])
			s.v.Now = s.v.Now.Add(time.Second)
			if back := map[bool]string{true: m2v6, false: m2v4}[silent]; s.asked(back) {
				s.wire(netip.MustParseAddr(back), "answers")
			}
		}
		if gone := map[bool]string{true: m2v4, false: m2v6}[silent]; s.asked(gone) {
			t.Errorf("%s is still asked for", gone)
		}
		s.command("member", []string{"m2", "alive"})
		s.decide()
		s.wantRings(3, 3)
	}
}

// twoFamilies is a node with a VIP of each family by BGP, both with m2 and m3, of which
// m2 has just left.
func twoFamilies(t *testing.T) *stage {
	s := newStage(t)
	s.command("vip", []string{"bgp", "nol2"})
	s.command("peer", []string{"tor1"})
	s.command("link", []string{"eth0", "up", "10.0.0.11/24", "fd00::11/64"})
	s.command("holders", []string{"m2", "m3"})
	other := s.v.VIPs[0]
	other.Addr = netip.MustParseAddr("fd00::200")
	s.v.VIPs = append(s.v.VIPs, other)
	s.v.Gossip.Holders[other.Addr] = s.v.Gossip.Holders[scriptVIP]
	for n, last := range map[model.NodeName]byte{"m2": 0x12, "m3": 0x13} {
		m := s.v.Gossip.Members[n]
		m.Addrs = append(m.Addrs, netip.AddrFrom16([16]byte{0: 0xfd, 15: last}))
		s.v.Gossip.Members[n] = m
	}
	bound := model.AppliedVIP{Bound: true, Interface: model.LoopbackInterface, Connections: -1, Sockets: -1}
	s.v.Applied[model.SinkAddress] = model.Applied{Loopback: map[netip.Addr]model.AppliedVIP{scriptVIP: bound, other.Addr: bound}}
	s.decide()
	s.wantRings(3, 3)
	s.command("member", []string{"m2", "left"})
	return s
}

// asked tells whether layer 2 is to ask for an address.
func (s *stage) asked(a string) bool {
	for _, l := range s.d.L2 {
		if l.Addr == netip.MustParseAddr(a) && l.Mode == model.L2Probe {
			return true
		}
	}
	return false
}

// wantRings checks of how many nodes the rings of the two families are.
func (s *stage) wantRings(v4, v6 int) {
	s.t.Helper()
	var got [2]int
	for _, r := range s.d.Relay {
		got[one(!r.Addr.Is4())] = r.Ring.Nodes
	}
	if got != [2]int{v4, v6} {
		s.t.Fatalf("rings of %v nodes, want %v", got, [2]int{v4, v6})
	}
}
