package decide

import (
	"net/netip"
	"strings"
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

// TestServicesAreToldTogether: what is in the way of the ring of one Service by its interface is said
// of all Services, quietly or not.
func TestServicesAreToldTogether(t *testing.T) {
	for _, mode := range []string{"auto", "keep"} {
		s := newStage(t)
		s.run("vip unbound", "services "+mode, "host proxy=nftables", "decide")
		if is := s.d.Services; !is.Kept || !is.Works || is.Why() != "" {
			t.Errorf("%s: nothing is in the way: %+v", mode, is)
		}
		s.run("link eth1 up 10.0.1.11/24", "way eth0 strict", "way eth1 gateway", "decide")
		if is := s.d.Services; !is.Kept || is.Works || !strings.HasPrefix(is.Why(), "rp_filter is 1 on eth0") {
			t.Errorf("%s: the way back: %+v", mode, is)
		}
	}
}
