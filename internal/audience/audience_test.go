package audience

import (
	"net/netip"
	"slices"
	"testing"

	"lbd.dev/lbd/internal/fieldtest"
	"lbd.dev/lbd/internal/model"
)

func TestRouterID(t *testing.T) {
	prefix := netip.MustParsePrefix
	links := map[string]model.Link{
		"lo":      {Name: "lo", Prefixes: []netip.Prefix{prefix("127.0.0.1/8")}},
		"docker0": {Name: "docker0", Prefixes: []netip.Prefix{prefix("172.17.0.1/16")}},
		"eth0":    {Name: "eth0", Prefixes: []netip.Prefix{prefix("10.0.0.11/24"), prefix("fd00::11/64")}},
		"eth1":    {Name: "eth1", Prefixes: []netip.Prefix{prefix("10.1.0.11/24")}},
	}
	near := []model.BGPPeer{{Address: netip.MustParseAddr("10.0.0.1")}}
	far := []model.BGPPeer{{Address: netip.MustParseAddr("192.0.2.1")}}
	own := []model.BGPPeer{{Address: netip.MustParseAddr("10.0.0.1"), RouterID: netip.MustParseAddr("9.9.9.9")}}
	for name, c := range map[string]struct {
		v     model.View
		peers []model.BGPPeer
		want  string
	}{
		"beside the peer":  {model.View{Links: links}, near, "10.0.0.11"},
		"highest":          {model.View{Links: links}, far, "172.17.0.1"},
		"of the peer":      {model.View{Links: links}, own, "9.9.9.9"},
		"configured":       {model.View{Links: links, BGP: model.BGPConfig{RouterID: netip.MustParseAddr("8.8.8.8")}}, own, "8.8.8.8"},
		"no IPv4":          {model.View{Self: "m1"}, near, "148.46.111.235"},
		"no IPv4, another": {model.View{Self: "m2"}, near, "149.46.113.127"},
	} {
		if got := RouterID(&c.v, c.peers); got.String() != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestEqualAdvertsShareAnAudience: thousands of VIPs have lists of adverts of their own which
// say the same; the audience is found once.
func TestEqualAdvertsShareAnAudience(t *testing.T) {
	all := New(nil)
	vip := func(peer string) *model.VIP {
		return &model.VIP{Addr: netip.MustParseAddr("10.0.0.200"), BGP: []model.BGPAdvert{{Peers: []string{peer}}}}
	}
	a, b := all.Of(vip("a")), all.Of(vip("b"))
	if a == b || all.Of(vip("a")) != a || all.Of(vip("b")) != b {
		t.Error("an audience is found anew, or is that of another list")
	}
}

// TestPeersThatAreTold: preflight asks for the routers that would hear of an address.
func TestPeersThatAreTold(t *testing.T) {
	peers := []model.BGPPeer{
		{Name: "both", IPv4: true, IPv6: true}, {Name: "six", IPv6: true},
		{Name: "elsewhere", IPv4: true, NodeSelectors: []map[string]string{{"rack": "b"}}},
		{Name: "here", IPv4: true, NodeSelectors: []map[string]string{{"rack": "a"}}},
	}
	for _, c := range []struct {
		addr  string
		named []string
		want  []string
	}{
		{"10.0.0.200", nil, []string{"both", "here"}},
		{"fd00::200", nil, []string{"both", "six"}},
		{"10.0.0.200", []string{"here", "six", "elsewhere"}, []string{"here"}},
	} {
		vip := model.VIP{Addr: netip.MustParseAddr(c.addr), BGP: []model.BGPAdvert{{Peers: c.named}}}
		var got []string
		for _, p := range PeersOf(peers, map[string]string{"rack": "a"}, &vip) {
			got = append(got, p.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s of %v: %v, want %v", c.addr, c.named, got, c.want)
		}
	}
}

// TestSame: adverts that differ in any field have audiences of their own.
func TestSame(t *testing.T) {
	fieldtest.Same(t, func(a, b *model.BGPAdvert) bool { return sameAdvert(*a, *b) })
}
