package decide

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// withPods is a node with pods: a card, the bridge of the pods, and their veths, whose
// hardware addresses are lower.
func withPods(pods int) model.View {
	v := large(4, 1, true)
	eth0 := v.Links["eth0"]
	eth0.MAC, eth0.Prefixes = model.MAC{0xfe, 1}, []netip.Prefix{netip.MustParsePrefix("10.1.0.9/16"), netip.MustParsePrefix("fe80::1/64")}
	v.Links = map[string]model.Link{
		"lo": {Name: "lo", Index: 1, Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}}, "eth0": eth0,
		"cni0": {Name: "cni0", Index: 3, Up: true, MAC: model.MAC{0x0a, 1}, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/24")}},
	}
	for i := range pods {
		addPod(v.Links, i)
	}
	return v
}

func addPod(links map[string]model.Link, i int) {
	name := fmt.Sprintf("veth%d", i)
	links[name] = model.Link{Name: name, Index: 10 + i, Up: true, MAC: model.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)},
		Prefixes: []netip.Prefix{netip.MustParsePrefix("fe80::2/64"), netip.MustParsePrefix("10.244.9.1/32")}}
}

// TestNodeWithThirtyPodsTellsItsCard: only hardware addresses that other nodes can see.
func TestNodeWithThirtyPodsTellsItsCard(t *testing.T) {
	v := withPods(30)
	told := func(what string, untold int, want ...model.MAC) {
		t.Helper()
		if g := Decide(&v).Group; !slices.Equal(g.MACs, want) || g.Untold != untold {
			t.Errorf("%s: told %v, %d left out; want %v and %d", what, g.MACs, g.Untold, want, untold)
		}
	}
	told("one card", 0, model.MAC{0xfe, 1})

	gossip := model.Link{Name: "eth1", Index: 4, Up: true, MAC: model.MAC{0x0c, 1}, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.7.1/24")}}
	v.Links["eth1"] = gossip
	told("a card without another node", 0, model.MAC{0xfe, 1})
	v.Gossip.Members["n00001"] = model.Member{Name: "n00001", Addr: netip.MustParseAddr("192.168.7.2"), Known: true}
	told("one with", 0, model.MAC{0x0c, 1}, model.MAC{0xfe, 1})

	v.Links["eth2"] = model.Link{Name: "eth2", Index: 5, MAC: model.MAC{0x0e, 1}}
	v.VIPs[0].Interfaces = []string{"eth0", "eth2"}
	told("a card that a VIP names", 0, model.MAC{0x0c, 1}, model.MAC{0x0e, 1}, model.MAC{0xfe, 1})

	v.Links["slave"] = model.Link{Name: "slave", Index: 6, Up: true, MAC: model.MAC{0x10, 1}, Bond: "eth0"}
	told("the port of a bond", 0, model.MAC{0x0c, 1}, model.MAC{0x0e, 1}, model.MAC{0x10, 1}, model.MAC{0xfe, 1})

	for i := range 20 {
		l := gossip
		l.Name, l.Index, l.MAC = fmt.Sprintf("eth1.%d", i), 100+i, model.MAC{0x0c, 1, byte(i)}
		v.Links[l.Name] = l
	}
	g := Decide(&v).Group
	if len(g.MACs) != model.MaxMACs || g.Untold != 3+20-1-model.MaxMACs+1 || !slices.Contains(g.MACs, model.MAC{0xfe, 1}) || !slices.Contains(g.MACs, model.MAC{0x10, 1}) {
		t.Errorf("too many: told %v, %d left out", g.MACs, g.Untold)
	}
}

// TestPodsThatComeAndGoAreNoNews: and what decisions look at is.
func TestPodsThatComeAndGoAreNoNews(t *testing.T) {
	v := withPods(3)
	changed := func(what string, want bool, change func(map[string]model.Link)) {
		t.Helper()
		links := maps.Clone(v.Links)
		change(links)
		if got := !place.SameLinks(v.VIPs, v.Links, links); got != want {
			t.Errorf("%s: news %v, want %v", what, got, want)
		}
	}
	set := func(name string, change func(*model.Link)) func(map[string]model.Link) {
		return func(links map[string]model.Link) {
			l := links[name]
			l.Name = name
			change(&l)
			links[name] = l
		}
	}
	changed("nothing", false, func(map[string]model.Link) {})
	changed("a pod comes", false, func(l map[string]model.Link) { addPod(l, 7) })
	changed("a pod goes", false, func(l map[string]model.Link) { delete(l, "veth1") })
	changed("its carrier", false, set("veth1", func(l *model.Link) { l.Up = false }))
	changed("all of them go, with their address", true, func(l map[string]model.Link) {
		maps.DeleteFunc(l, func(n string, _ model.Link) bool { return n[0] == 'v' })
	})
	changed("another address", true, set("veth1", func(l *model.Link) { l.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/32")} }))
	changed("the carrier of the card", true, set("eth0", func(l *model.Link) { l.Up = false }))
	changed("a subnet", true, set("veth1", func(l *model.Link) { l.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")} }))
	changed("a route", true, set("veth1", func(l *model.Link) { l.Gateway = true }))
	changed("IPVS", true, set(model.IPVSInterface, func(*model.Link) {}))
	changed("a macvlan on a card without an address", true, set("child", func(l *model.Link) {
		l.Parent, l.Prefixes = "veth1", []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")}
	}))
	v.VIPs[0].Interfaces = []string{"veth1"}
	changed("the carrier of one that a VIP names", true, set("veth1", func(l *model.Link) { l.Up = false }))
	v.Links["slave"] = model.Link{Name: "slave", Bond: "eth0"}
	changed("the hardware address of a port of a bond", true, set("slave", func(l *model.Link) { l.MAC = model.MAC{1} }))
}
