package place

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// An address is served where a subnet holds it, or where the object says, and nowhere else: an
// interface that has lost its subnet serves it no longer.
func TestInterfacesThatServeAnAddress(t *testing.T) {
	with := func(name string, prefixes ...string) *model.Link {
		l := &model.Link{Name: name, Up: true, IPv6: true}
		for _, p := range prefixes {
			l.Prefixes = append(l.Prefixes, netip.MustParsePrefix(p))
		}
		return l
	}
	plain := model.VIP{Addr: netip.MustParseAddr("10.0.0.200"), L2: true}
	named := plain
	named.Interfaces = []string{"eth1"}
	for _, c := range []struct {
		name string
		vip  model.VIP
		link *model.Link
		want bool
	}{
		{"its subnet", plain, with("eth0", "10.0.0.11/24"), true},
		{"another subnet", plain, with("eth0", "10.0.1.11/24"), false},
		{"no subnet any more", plain, with("eth0"), false},
		{"named, without the subnet", named, with("eth1"), true},
		{"not named, with the subnet", named, with("eth0", "10.0.0.11/24"), false},
	} {
		if got := BelongsOn(&c.vip, c.link); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestBeside: which interfaces answer for the addresses of another one.
func TestBeside(t *testing.T) {
	prefixes := func(all ...string) (out []netip.Prefix) {
		for _, p := range all {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	links := func() map[string]model.Link {
		return map[string]model.Link{
			"lo":   {Name: "lo", Up: true, Prefixes: prefixes("127.0.0.1/8")},
			"eth0": {Name: "eth0", Up: true, Prefixes: prefixes("10.0.0.1/24", "fe80::1/64", "169.254.0.1/16")},
			"eth1": {Name: "eth1", Up: true, Prefixes: prefixes("10.0.1.1/24", "fe80::2/64", "169.254.0.2/16", "10.0.0.9/32")},
			"eth2": {Name: "eth2", Up: true},
		}
	}
	for _, c := range []struct {
		name   string
		change func(map[string]model.Link)
		want   []string
	}{
		{"two LANs", func(map[string]model.Link) {}, nil},
		{"two cards on one", func(l map[string]model.Link) { x := l["eth1"]; x.Prefixes = prefixes("10.0.0.2/25"); l["eth1"] = x }, []string{"eth1"}},
		{"the other one is down", func(l map[string]model.Link) { l["eth1"] = model.Link{Name: "eth1", Prefixes: prefixes("10.0.0.2/24")} }, nil},
		{"a macvlan", func(l map[string]model.Link) { x := l["eth0"]; x.Parent = "eth2"; l["eth0"] = x }, []string{"eth2"}},
		{"the parent", func(l map[string]model.Link) { x := l["eth1"]; x.Parent = "eth0"; l["eth1"] = x }, []string{"eth1"}},
		{"two macvlans", func(l map[string]model.Link) {
			for _, n := range []string{"eth0", "eth1"} {
				x := l[n]
				x.Parent = "eth2"
				l[n] = x
			}
		}, []string{"eth1", "eth2"}},
	} {
		for ignore, answers := range []bool{true, false, false, true, 8: false} {
			l := links()
			c.change(l)
			for n, x := range l {
				x.ARPIgnore = ignore
				l[n] = x
			}
			want := c.want
			if !answers && (ignore == 1 || ignore == 2 || ignore == 8) {
				want = nil
			}
			if got := Beside(l, "eth0"); !slices.Equal(got, want) {
				t.Errorf("%s, arp_ignore %d: %q, want %q", c.name, ignore, got, want)
			}
		}
	}
}

// TestOwnAddresses: a host with one address on two interfaces, or with several on one.
func TestOwnAddresses(t *testing.T) {
	prefixes := func(all ...string) (out []netip.Prefix) {
		for _, p := range all {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	one, two := prefixes("10.0.0.9/24"), prefixes("10.0.0.9/24", "10.0.0.3/24", "10.0.0.7/32", "fd00::3/64", "fd00::2/64", "fe80::1/64")
	for range 8 { // the order of the map must not matter
		all := LinksOf(map[string]model.Link{"eth1": {Name: "eth1", Prefixes: one}, "eth0": {Name: "eth0", Prefixes: two}})
		if len(all.own) != 6 || all.Own(one[0].Addr()) != "eth0" {
			t.Errorf("%v", all.own)
		}
		links := map[string]model.Link{"eth1": {Name: "eth1", Prefixes: one}, "eth0": {Name: "eth0", Prefixes: two}}
		if name, ok := OwnAddress(links, one[0].Addr()); name != "eth0" || !ok {
			t.Errorf("%s is of %q", one[0].Addr(), name)
		}
	}
	four, six := Addresses(&model.Link{Prefixes: two})
	if fmt.Sprint(four, six) != "[10.0.0.3 10.0.0.9] [fd00::2 fd00::3]" {
		t.Errorf("in subnets: %v and %v", four, six)
	}
}

// TestWhatCarriesALinkMatters: the ports of a bond and the parent of a macvlan count where the bond or
// the macvlan does, by its subnet or since a VIP names it; other interfaces without a subnet do not.
func TestWhatCarriesALinkMatters(t *testing.T) {
	lan := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}
	vips := []model.VIP{{Interfaces: []string{"named", "bond1"}}}
	links := map[string]model.Link{}
	for _, l := range []model.Link{
		{Name: "vlan", Prefixes: lan, Parent: "eth0"}, {Name: "eth0"},
		{Name: "named", Parent: "eth1"}, {Name: "eth1"},
		{Name: "bare", Parent: "eth2"}, {Name: "eth2"},
		{Name: "bond0", Prefixes: lan}, {Name: "port0", Bond: "bond0"},
		{Name: "bond1"}, {Name: "port1", Bond: "bond1"},
		{Name: "bond2"}, {Name: "port2", Bond: "bond2"},
	} {
		links[l.Name] = l
	}
	want := []string{"bond0", "bond1", "eth0", "eth1", "named", "port0", "port1", "vlan"}
	if got := slices.Sorted(maps.Keys(Mattering(vips, links))); !slices.Equal(got, want) {
		t.Errorf("%q matter, want %q", got, want)
	}
}
