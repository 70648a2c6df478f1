package wire

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// twoNICs is a node with two interfaces in one subnet, and so many others.
func twoNICs(others int) *model.View {
	link := func(name string, own string) model.Link {
		return model.Link{Name: name, Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix(own)}}
	}
	v := &model.View{Self: "m1", Links: map[string]model.Link{"eth0": link("eth0", "10.0.0.11/24"), "eth1": link("eth1", "10.0.0.111/24")}}
	v.Now = time.Unix(1000, 0)
	v.Gossip.Members = map[model.NodeName]model.Member{}
	for i := range others {
		n := model.NodeName(fmt.Sprintf("m%d", i+2))
		v.Gossip.Members[n] = model.Member{Name: n, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 12)})}}
	}
	return v
}

// look decides for the wires only, each of which a VIP is about to come to.
func look(v *model.View, urgent bool, lans ...string) (model.Desired, map[string]Output) {
	d := model.Desired{Gen: v.Memory.Gen + 1, Memory: v.Memory}
	d.Memory.Gen = d.Gen
	n := NewNetworks(v, d.Gen)
	for _, lan := range lans {
		n.On(lan)
	}
	out := map[string]Output{}
	for _, lan := range lans {
		if urgent {
			n.Urge(lan)
		}
		out[lan] = *n.On(lan)
	}
	n.Settle(&d, func(a netip.Addr) bool {
		return slices.ContainsFunc(v.VIPs, func(vip model.VIP) bool { return vip.Addr == a }) || slices.ContainsFunc(d.L2, func(q model.L2Advert) bool { return q.Addr == a })
	})
	return d, out
}

// TestTwoNICsInOneSubnet: no two interfaces wait for answers of one host, of whom layer 2
// asks once; and the one that has nobody to ask holds up nothing.
func TestTwoNICsInOneSubnet(t *testing.T) {
	for others := range 8 {
		v := twoNICs(others)
		for i := range 40 {
			d, out := look(v, i == 0 || i > 20, "eth0", "eth1")
			for lan, o := range out {
				for _, a := range o.Memory.Asked {
					if !slices.ContainsFunc(d.L2, func(q model.L2Advert) bool { return q.Addr == a && q.Interface == lan && q.Series == o.Memory.Series }) {
						t.Fatalf("%d others: %s waits for %s, for whom nobody asks: %+v", others, lan, a, d.L2)
					}
				}
				if o.Pending && len(o.Memory.Asked) == 0 {
					t.Fatalf("%d others: %s waits for nobody", others, lan)
				}
			}
			v.Memory = d.Memory
			v.Now = v.Now.Add(700 * time.Millisecond)
			is := model.Applied{VIPs: map[netip.Addr]model.AppliedVIP{}}
			for _, q := range d.L2 {
				is.VIPs[q.Addr] = model.AppliedVIP{Probe: model.ProbeResult{Series: q.Series, Done: true, Answered: true, At: v.Now}}
			}
			v.Applied = map[model.SinkName]model.Applied{model.SinkLayer2: is}
		}
		_, out := look(v, false, "eth0", "eth1")
		if lit := out["eth1"].State == Lit; lit != (others > 1) {
			t.Errorf("%d others: %+v", others, out["eth1"])
		}
	}
}

// TestAddressOfANodeThatIsAVIP: layer 2 has another business with it, so it is not waited for.
func TestAddressOfANodeThatIsAVIP(t *testing.T) {
	v := twoNICs(1)
	v.VIPs = []model.VIP{{Addr: netip.MustParseAddr("10.0.0.12"), L2: true}}
	if _, out := look(v, true, "eth0"); out["eth0"].Pending || len(out["eth0"].Memory.Asked) > 0 {
		t.Errorf("%+v", out["eth0"])
	}
	v.VIPs = nil
	v.Memory.VIPs = map[netip.Addr]model.VIPMemory{netip.MustParseAddr("10.0.0.12"): {}}
	if _, out := look(v, true, "eth0"); len(out["eth0"].Memory.Asked) > 0 {
		t.Errorf("one that is being let go: %+v", out["eth0"])
	}
	v.Memory.VIPs = nil
	d, _ := look(v, true, "eth0")
	if len(d.L2) != 1 || d.L2[0].From != netip.MustParseAddr("10.0.0.11") {
		t.Errorf("asked by nobody: %+v", d.L2)
	}
}

// TestNodeThatARingAsksFor: layer 2 asks for an address on one interface at a time.
func TestNodeThatARingAsksFor(t *testing.T) {
	for lan, asked := range map[string]int{"eth0": 1, "eth1": 0} {
		v := twoNICs(1)
		v.Memory.Rings = map[netip.Addr]model.RingProbe{netip.MustParseAddr("10.0.0.12"): {Interface: lan}}
		if _, out := look(v, true, "eth0"); len(out["eth0"].Memory.Asked) != asked {
			t.Errorf("a ring asks on %s: %+v", lan, out["eth0"])
		}
	}
}

// TestWitnessesAreAsked: of many nodes those are asked who is there that hear somebody on
// the network.
func TestWitnessesAreAsked(t *testing.T) {
	v := twoNICs(40)
	m := v.Gossip.Members["m30"]
	m.Hears = []netip.Addr{netip.MustParseAddr("10.0.0.200")}
	v.Gossip.Members["m30"] = m
	v.Memory.Wires = map[string]model.WireMemory{"eth0": {Phase: model.WireSilent, At: v.Now, Silent: v.Now.Add(-time.Second), All: true}}
	d, _ := look(v, false, "eth0")
	if !d.Group.Ask || !slices.Equal(d.Group.Witnesses, []model.NodeName{"m30"}) {
		t.Errorf("ask %t, witnesses %v", d.Group.Ask, d.Group.Witnesses)
	}
	if in := NewNetworks(v, d.Gen).network("eth0").in; !slices.Equal(in.Known, m.Hears) {
		t.Errorf("known %s", in.Known)
	}
}
