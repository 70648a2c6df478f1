package audience

import (
	"net/netip"
	"slices"
	"testing"
	"time"

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

// TestLengthOfAnAddress: an advert of the length of an address is one of the address alone.
func TestLengthOfAnAddress(t *testing.T) {
	all := New([]model.BGPPeer{{Name: "r", IPv4: true, IPv6: true}})
	for _, c := range []struct {
		addr         string
		length, want int
	}{{"10.0.0.200", 24, 24}, {"10.0.0.200", 32, 0}, {"10.0.0.200", 64, 0}, {"fd00::200", 64, 64}, {"fd00::200", 128, 0}, {"10.0.0.200", -1, 0}} {
		vip := &model.VIP{Addr: netip.MustParseAddr(c.addr), BGP: []model.BGPAdvert{{Length: c.length}}}
		if a := all.Of(vip); len(a.Routes) != 1 || a.Routes[0].Length != c.want {
			t.Errorf("%s with length %d: %+v", c.addr, c.length, a.Routes)
		}
	}
}

// TestAllLeave: routers are asked to leave a prefix of several addresses when all of these
// leave, in whatever order they are decided about.
func TestAllLeave(t *testing.T) {
	prefix := netip.MustParsePrefix("10.0.0.0/24")
	for _, leave := range [][]bool{{true, true}, {true, false}, {false, true}, {false, false}} {
		all := New([]model.BGPPeer{{Name: "r", IPv4: true}})
		for i, shutdown := range leave {
			vip := &model.VIP{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), BGP: []model.BGPAdvert{{Length: 24, PathAttributes: model.PathAttributes{Communities: []uint32{uint32(i)}}}}}
			all.contribute(prefix, &all.Of(vip).Routes[0], shutdown)
		}
		paths, conflicts := all.Aggregates()
		if len(paths) != 1 || len(paths[0].To) != 1 || paths[0].To[0].Shutdown != (leave[0] && leave[1]) || len(paths[0].To[0].Communities) != 2 || conflicts != nil {
			t.Errorf("leaving %v: %+v, %v", leave, paths, conflicts)
		}
	}
}

// TestRestartTime: a router keeps no path for longer than the address is there.
func TestRestartTime(t *testing.T) {
	for name, c := range map[string]struct {
		vip  model.VIP
		want time.Duration
	}{
		"bound for BGP alone":  {model.VIP{}, RestartTime},
		"on the LAN, too":      {model.VIP{L2: true}, RestartTimeL2},
		"bound on no node":     {model.VIP{L2: true, Unbound: true}, RestartTime},
		"its owner tells them": {model.VIP{L2: true, Unbound: true, Kind: model.KindLoadBalancer}, RestartTimeL2},
	} {
		c.vip.Addr, c.vip.BGP = netip.MustParseAddr("10.0.0.200"), []model.BGPAdvert{{}}
		v := &model.View{VIPs: []model.VIP{c.vip}, Peers: []model.BGPPeer{{Name: "r", IPv4: true, GracefulRestart: true}, {Name: "plain", IPv4: true}}}
		if p := Peers(v); p[0].RestartTime != c.want || p[1].RestartTime != 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
