package decide

import (
	"net/netip"
	"slices"
	"testing"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// Others relay to the addresses on links that an address is served on, and to no other: a way
// over a link that is down, or to the network of the pods, leads nowhere.
func TestAddressesThatAreTold(t *testing.T) {
	link := func(name, prefix string, up bool) model.Link {
		return model.Link{Name: name, Up: up, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)}}
	}
	for _, c := range []struct {
		name string
		vip  model.VIP
		want []string
	}{
		{"by layer 2", model.VIP{Addr: scriptVIP, L2: true}, []string{"10.0.0.11"}},
		{"by BGP", model.VIP{Addr: netip.MustParseAddr("198.51.100.1"), BGP: []model.BGPAdvert{{}}}, []string{"10.0.1.11"}},
	} {
		v := &model.View{Self: "m1", VIPs: []model.VIP{c.vip}, Links: map[string]model.Link{}, Peers: []model.BGPPeer{{Address: netip.MustParseAddr("10.0.1.1")}}}
		for _, l := range []model.Link{
			link("eth0", "10.0.0.11/24", true), link("eth1", "10.0.1.11/24", true), link("cni0", "10.244.0.1/24", true),
			link("eth2", "10.0.0.12/24", false), link("eth3", "10.0.1.12/24", false), link(model.LoopbackInterface, "10.0.0.200/24", true),
		} {
			v.Links[l.Name] = l
		}
		var got []string
		for _, a := range place.LANAddresses(v) {
			got = append(got, a.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestEachLinkIsTold: a link with many addresses leaves room for one of each family of the
// others, or nobody could ask for this node there.
func TestEachLinkIsTold(t *testing.T) {
	link := func(name string, prefixes ...string) model.Link {
		l := model.Link{Name: name, Up: true}
		for _, p := range prefixes {
			l.Prefixes = append(l.Prefixes, netip.MustParsePrefix(p))
		}
		return l
	}
	v := &model.View{Self: "m1", Links: map[string]model.Link{
		"eth0": link("eth0", "10.0.0.14/24", "10.0.0.11/24", "10.0.0.12/24", "10.0.0.13/24"),
		"eth1": link("eth1", "10.0.1.11/24", "2001:db8::11/64"),
	}}
	v.VIPs = []model.VIP{{Addr: scriptVIP, L2: true, Interfaces: []string{"eth0", "eth1"}}}
	var got []string
	for _, a := range place.LANAddresses(v) {
		got = append(got, a.String())
	}
	if want := []string{"10.0.0.11", "10.0.0.12", "10.0.1.11", "2001:db8::11"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Status says where the address of BGP is: on lo while it is bound there, and nowhere else.
func TestInterfaceOfBGPInStatus(t *testing.T) {
	for _, c := range []struct {
		name   string
		vip    []string
		health string
		want   string
	}{
		{"advertised", []string{"bgp", "nol2"}, "up", model.LoopbackInterface},
		{"its check fails", []string{"bgp", "nol2"}, "down", ""},
		{"bound on no node", []string{"bgp", "nol2", "unbound"}, "up", ""},
	} {
		s := newStage(t)
		s.command("vip", c.vip)
		s.command("peer", []string{"tor"})
		s.command("health", []string{c.health})
		s.command("apply", nil)
		found := false
		for _, x := range s.d.Status {
			if found = found || x.BGP; x.BGP && x.Interface != c.want {
				t.Errorf("%s: it is on %q, want %q", c.name, x.Interface, c.want)
			}
		}
		if !found {
			t.Errorf("%s: there is no status of BGP", c.name)
		}
	}
}

// TestNoIPv6OnLo: routers hear of no address that this node could not have.
func TestNoIPv6OnLo(t *testing.T) {
	for _, has := range []bool{true, false} {
		s := newStage(t)
		s.command("vip", []string{"bgp", "nol2"})
		s.command("peer", []string{"tor"})
		s.v.VIPs[0].Addr = netip.MustParseAddr("fd00::200")
		s.v.Links[model.LoopbackInterface] = model.Link{Name: model.LoopbackInterface, Index: 1, Up: true, IPv6: has}
		d := Decide(&s.v)
		want := model.ReasonFamilyDisabled
		if has {
			want = model.ReasonBinding
		}
		if (len(d.Bind) > 0) != has || len(d.Status) != 1 || d.Status[0].Reason != want {
			t.Errorf("IPv6 on lo %v: %+v, bound %+v", has, d.Status, d.Bind)
		}
	}
}
