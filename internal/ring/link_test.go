package ring

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// TestRingKnowsTheNodesOnItsLinkOnly: the rules of a ring do not grow with the group, and
// know every node whose frames may come in.
func TestRingKnowsTheNodesOnItsLinkOnly(t *testing.T) {
	l := model.Link{Name: "eth0", Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.9/24"), netip.MustParsePrefix("fd00::9/64")}}
	v := model.View{Self: "n00000", Links: map[string]model.Link{"eth0": l}}
	v.Gossip.Members = make(map[model.NodeName]model.Member)
	here := map[model.NodeName][]string{"n00003": {"10.1.0.3", "fd00::3", "172.16.0.3"}, "n00004": {"fd00::4"}}
	for i := range 500 {
		n := model.NodeName(fmt.Sprintf("n%05d", i+1))
		m := model.Member{Name: n}
		for j := range 16 {
			m.MACs = append(m.MACs, model.MAC{2, 0, 0, byte(i >> 8), byte(i), byte(j)})
		}
		m.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 77, byte(i >> 8), byte(i)})}
		if told := here[n]; told != nil {
			m.Addrs = nil
			for _, a := range told {
				m.Addrs = append(m.Addrs, netip.MustParseAddr(a))
			}
		}
		v.Gossip.Members[n] = m
	}
	v.Links["eth1"] = model.Link{Name: "eth1", Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.8/24")}}
	all := New(&v, 1, 0)
	for is4, want := range map[bool][]string{true: {"eth1"}, false: nil} {
		p := parts{names: []model.NodeName{"n00000", "n00003"}, Terms: Terms{Interface: "eth0", Is4: is4}}
		if _, ring := all.build(&p); ring == nil || !slices.Equal(ring.Beside, want) {
			t.Errorf("IPv4 %v: the ring %+v, want one beside %q", is4, ring, want)
		}
	}
	for _, is4 := range []bool{true, false} {
		c := all.crowd(&l, is4)
		origins := map[bool]int{true: 2 * 16, false: 2 * 16}[is4] // two of IPv4 of the one, one each of IPv6
		if len(c.peers) != 2*16 || len(c.origins) != origins {
			t.Errorf("IPv4 %v: %d hardware addresses and %d sources, want %d and %d", is4, len(c.peers), len(c.origins), 2*16, origins)
		}
		for _, o := range c.origins {
			if o.Addr.Is4() != is4 {
				t.Errorf("IPv4 %v: %s", is4, o.Addr)
			}
		}
	}
}

// TestCrowd: a node is on the link by any of its addresses, that of gossip too, or if it has told
// none; each frame is known once, in order.
func TestCrowd(t *testing.T) {
	v := world(6)
	far := netip.MustParseAddr("10.9.0.2")
	change(v, 2, func(m *model.Member) { m.Addrs = []netip.Addr{far} })                // on another link
	change(v, 3, func(m *model.Member) { m.Addr, m.Addrs = at(3), []netip.Addr{far} }) // by gossip
	change(v, 4, func(m *model.Member) { m.Addrs = []netip.Addr{six, far, at(4), far} })
	change(v, 5, func(m *model.Member) { m.Addrs = nil })
	change(v, 6, func(m *model.Member) { m.MACs = []model.MAC{{2, 9}, {2, 4}, {2, 9}} })
	peers := []model.MAC{{2, 3}, {2, 4}, {2, 5}, {2, 9}}
	origins := []model.Origin{{MAC: peers[0], Addr: far}, {MAC: peers[1], Addr: at(4)}, {MAC: peers[1], Addr: at(6)}, {MAC: peers[1], Addr: far}, {MAC: peers[3], Addr: at(6)}}
	for range 8 { // the order of the map must not matter
		all := New(v, 1, 0)
		link := v.Links["eth0"]
		c := all.crowd(&link, true)
		if !slices.Equal(c.peers, peers) || !slices.Equal(c.origins, origins) {
			t.Fatalf("%v %v, want %v %v", c.peers, c.origins, peers, origins)
		}
		if again := all.crowd(&link, true); &again.peers[0] != &c.peers[0] {
			t.Fatal("found twice")
		}
		if c := all.crowd(&link, false); !slices.Equal(c.peers, peers) || !slices.Equal(c.origins, []model.Origin{{MAC: peers[1], Addr: six}}) {
			t.Fatalf("IPv6: %v %v", c.peers, c.origins)
		}
	}
}

// TestLinkOfARing: the ring is on the link with most of the nodes that answer, the first by name
// of equals, and on none that is down or from which the way back to clients is another one.
func TestLinkOfARing(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*model.View, *Request)
		want   string
		nodes  int
	}{
		{"as many on both", func(*model.View, *Request) {}, "eth0", 3},
		{"more on one", func(v *model.View, _ *Request) {
			change(v, 2, func(m *model.Member) { m.Addrs = m.Addrs[1:] })
		}, "eth1", 3},
		{"that of the address", func(v *model.View, r *Request) {
			r.Interface = "eth0"
			change(v, 2, func(m *model.Member) { m.Addrs = m.Addrs[1:] })
		}, "eth0", 2},
		{"one is down", func(v *model.View, _ *Request) {
			l := v.Links["eth0"]
			l.Up = false
			v.Links["eth0"] = l
		}, "eth1", 3},
		{"clients leave by another one", func(v *model.View, _ *Request) {
			l := v.Links["eth0"]
			l.Strict = true
			v.Links["eth0"] = l
			v.Links["eth9"] = model.Link{Name: "eth9", Up: true, Gateway: true}
		}, "eth1", 3},
		{"lo has the same subnet", func(v *model.View, _ *Request) {
			l := v.Links["eth0"]
			l.Name = model.LoopbackInterface
			v.Links["a"], v.Links[model.LoopbackInterface] = model.Link{Name: "a"}, l
			delete(v.Links, "eth0")
		}, "eth1", 3},
	} {
		v, r := world(3), plain()
		r.Interface = ""
		other := netip.MustParsePrefix("10.0.1.1/24")
		v.Links["eth1"] = model.Link{Name: "eth1", Up: true, Prefixes: []netip.Prefix{other}}
		for i := 2; i <= 3; i++ {
			change(v, i, func(m *model.Member) { m.Addrs = append(m.Addrs, netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})) })
		}
		c.change(v, r)
		for range 8 { // the order of the map must not matter
			all := New(v, 1, 0)
			on, ring := all.Of(r)
			if on != c.want || ring.Nodes != c.nodes {
				t.Fatalf("%s: on %q, %+v", c.what, on, ring)
			}
			next := v.Gossip.Members[name(2)].Addrs
			if c.what == "that of the address" {
				next = v.Gossip.Members[name(3)].Addrs
			}
			want := append(slices.Clone(next), v.Links[on].Prefixes[0].Addr())
			slices.SortFunc(want, netip.Addr.Compare)
			if !slices.Equal(ring.Ends, want) {
				t.Errorf("%s: ends %v, want %v", c.what, ring.Ends, want)
			}
		}
	}
}
