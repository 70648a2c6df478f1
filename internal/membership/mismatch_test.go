package membership

import (
	"net/netip"
	"slices"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// TestConfigurationsOfNodesDiffer: the same address under two names, and one name with two
// addresses. Each would look well on each node by itself.
func TestConfigurationsOfNodesDiffer(t *testing.T) {
	a, b, c, d := netip.MustParseAddr("10.0.0.200"), netip.MustParseAddr("10.0.0.201"), netip.MustParseAddr("fd00::200"), netip.MustParseAddr("10.0.0.202")
	v := model.View{
		VIPs: []model.VIP{{Addr: a, Name: "cp"}, {Addr: d, Name: "web/svc", Unbound: true}, {Addr: c, Name: "cp"}},
		Gossip: model.Gossip{Members: map[model.NodeName]model.Member{
			"m2": {Names: map[netip.Addr]string{a: "cp", c: "cp"}},
			"m3": {Names: map[netip.Addr]string{a: "api", c: "cp"}},
			"m4": {Names: map[netip.Addr]string{b: "cp"}},
			"m5": {Names: map[netip.Addr]string{b: "other", d: "named"}},
			"m6": {}, // of the version before
			"m7": {Names: map[netip.Addr]string{a: "old"}, State: model.MemberDead},
		}},
	}
	want := []string{
		`"cp" has the address 10.0.0.201 on m4 and not here: give it the same addresses on all nodes`,
		`10.0.0.200 is "cp" here and "api" on m3: give it one name on all nodes, by which they rank`,
	}
	if got := Mismatches(&v); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, n := range []model.NodeName{"m8", "m9", "ma"} {
		v.Gossip.Members[n] = v.Gossip.Members["m3"]
	}
	if got := Mismatches(&v); got[1] != `10.0.0.200 is "cp" here and "api" on m3, m8, m9 and 1 more: give it one name on all nodes, by which they rank` {
		t.Errorf("of four nodes: %q", got[1])
	}
	for n := range v.Gossip.Members {
		if n != "m2" {
			delete(v.Gossip.Members, n)
		}
	}
	if got := Mismatches(&v); got != nil {
		t.Errorf("all is alike: %q", got)
	}
}
