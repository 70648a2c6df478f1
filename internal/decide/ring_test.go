package decide

import (
	"net/netip"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// TestRingOfService: it is on the interface of its VIP, or with BGP on the link that has most of
// the nodes, and lasts without a daemon for as long as what BGP announces: kernels translate by
// themselves.
func TestRingOfService(t *testing.T) {
	for want, vip := range map[string]string{"eth0": "vip unbound", "eth1": "vip unbound bgp"} {
		s := newStage(t)
		s.run(vip, "services keep blind", "link eth1 up 10.0.1.11/24", "peer tor1", "holders m2 m3")
		for n, last := range map[model.NodeName]byte{"m2": 12, "m3": 13} { // m3 is on eth1 only
			m := s.v.Gossip.Members[n]
			m.Addrs = []addr{netip.AddrFrom4([4]byte{10, 0, 0, last}), netip.AddrFrom4([4]byte{10, 0, 1, last})}[last-12:]
			s.v.Gossip.Members[n] = m
		}
		s.decide()
		if len(s.d.Relay) != 1 || s.d.Relay[0].Interface != want || s.d.Relay[0].Ring.Lifetime != model.LoopbackLifetime {
			t.Errorf("%s: %+v, want on %s", vip, s.d.Relay, want)
		}
	}
}

// TestRingIsTakenOver: as long as nothing changes drivers get the same ring, which they need not
// compare.
func TestRingIsTakenOver(t *testing.T) {
	s := spreading(t)
	was := s.d.Relay[0].Ring
	if s.decide(); len(s.d.Relay) != 1 || s.d.Relay[0].Ring != was {
		t.Errorf("%+v is another one than %+v", s.d.Relay[0].Ring, was)
	}
	if s.run("holders m2", "decide"); s.d.Relay[0].Ring == was {
		t.Error("it is the same without m3")
	}
}
