package decide

import (
	"net/netip"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// A configured peer is seen when whoever has one of its addresses, or its name, is alive: a
// host that was installed anew may have another name.
func TestQuorumIsOfTheConfiguredPeers(t *testing.T) {
	at := func(s string) []addr { return []addr{netip.MustParseAddr(s)} }
	peers := []model.Peer{{Host: "10.0.0.12", Addrs: at("10.0.0.12")}, {Host: "10.0.0.13", Addrs: at("10.0.0.13")}, {Host: "m4"}, {Host: "m5.example", Addrs: at("10.0.0.15")}}
	alive := func(name, a string) model.Member {
		return model.Member{Name: model.NodeName(name), Addr: netip.MustParseAddr(a), State: model.MemberAlive}
	}
	dead := func(name, a string) model.Member {
		m := alive(name, a)
		m.State = model.MemberDead
		return m
	}
	for _, c := range []struct {
		name    string
		members []model.Member
		want    string
	}{
		{"hosts that were replaced do not count", []model.Member{
			dead("old2", "10.0.0.12"), dead("old3", "10.0.0.99"), dead("old4", "10.0.0.98"), alive("new2", "10.0.0.12"), alive("m4", "10.0.0.14"),
		}, ""},
		{"nor do members that nobody has configured", []model.Member{
			alive("w1", "10.0.1.1"), alive("w2", "10.0.1.2"), alive("w3", "10.0.1.3"), alive("m4", "10.0.0.14"),
		}, "2 of 5 configured nodes seen, 3 needed"},
		{"by name or by address", []model.Member{alive("x", "10.0.0.15"), alive("m4", "10.9.9.9")}, ""},
		{"dead ones", []model.Member{dead("x", "10.0.0.15"), alive("m4", "10.9.9.9")}, "2 of 5 configured nodes seen, 3 needed"},
	} {
		v := &model.View{Self: "m1"}
		v.Gossip.Configured = peers
		v.Gossip.Members = map[model.NodeName]model.Member{}
		for _, m := range c.members {
			v.Gossip.Members[m.Name] = m
		}
		if ok, detail := majority(v); ok != (c.want == "") || detail != c.want {
			t.Errorf("%s: %v %q, want %q", c.name, ok, detail, c.want)
		}
	}
}
