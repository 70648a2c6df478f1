package decide

import (
	"net/netip"
	"testing"

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
		if got := routerID(&c.v, c.peers); got.String() != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
