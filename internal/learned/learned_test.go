package learned

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lbd.dev/lbd/internal/model"
)

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	vip   = netip.MustParsePrefix("203.0.113.1/32")
	vip6  = netip.MustParsePrefix("2001:db8:1::1/128")
)

// box is a machine with two interfaces, and a listener for masters on the first.
func box() *Input {
	prefixes := func(all ...string) (out []netip.Prefix) {
		for _, p := range all {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	return &Input{
		Now: start.Add(time.Hour), Started: start,
		Links: map[string]model.Link{
			"lo":   {Name: "lo", Up: true, Prefixes: prefixes("127.0.0.1/8", "::1/128")},
			"eth0": {Name: "eth0", Up: true, Prefixes: prefixes("10.0.0.10/24", "fd00::10/64", "fe80::1/64")},
			"eth1": {Name: "eth1", Up: true, Prefixes: prefixes("203.0.113.250/24", "10.0.0.130/25")},
			"eth2": {Name: "eth2", Prefixes: prefixes("10.7.0.1/24")},
		},
		Listeners: []model.BGPListener{{
			Name: "masters", PeerPrefixes: prefixes("10.0.0.0/24", "fd00::/64"), Accept: []netip.Prefix{vip, vip6}, MaxPrefixes: 4,
			Spread: model.Spread{Resilient: true, Buckets: 1024, Idle: time.Minute},
		}},
	}
}

// path is one that the master with this number advertises, of itself.
func path(prefix netip.Prefix, master int) model.LearnedPath {
	p := model.LearnedPath{Listener: "masters", PeerASN: 64512, Prefix: prefix, Peer: netip.AddrFrom4([4]byte{10, 0, 0, byte(master)})}
	p.NextHop = p.Peer
	if prefix.Addr().Is6() {
		p.NextHop = netip.MustParseAddr(fmt.Sprintf("fd00::%d", master))
	}
	return p
}

// gateways are the next hops of a prefix, in words.
func gateways(o *Output, prefix netip.Prefix) string {
	var all []string
	for _, r := range o.State.Routes {
		if r.Prefix == prefix {
			for _, h := range r.NextHops {
				all = append(all, h.Gateway.String()+"%"+h.Interface)
			}
		}
	}
	return strings.Join(all, " ")
}

func TestMastersComeAndGo(t *testing.T) {
	in := box()
	o := Step(in)
	if len(o.State.Routes) != 2 || gateways(&o, vip)+gateways(&o, vip6) != "" || o.State.Hearing || !o.Wake.IsZero() {
		t.Errorf("without a master: %+v", o)
	}
	in.Paths = []model.LearnedPath{path(vip, 13), path(vip6, 13), path(vip, 200), path(vip, 11), path(vip, 11)}
	in.Memory = o.Memory
	in.Now = in.Now.Add(time.Second)
	o = Step(in)
	if got := gateways(&o, vip); got != "10.0.0.11%eth0 10.0.0.13%eth0 10.0.0.200%eth1" { // of two subnets the longer prefix
		t.Error(got)
	}
	if got := gateways(&o, vip6); got != "fd00::13%eth0" || len(o.Paths)+len(o.Prefixes)+o.Untold != 0 {
		t.Errorf("%s, %+v %+v", got, o.Paths, o.Prefixes)
	}
	since := o.Memory.Routes[0].Since
	if !since.Equal(in.Now) || o.State.Routes[0].Spread != in.Listeners[0].Spread {
		t.Errorf("%+v", o.Memory)
	}
	in.Memory, in.Now = o.Memory, in.Now.Add(time.Second)
	in.Paths = in.Paths[:3]
	o = Step(in)
	if got := gateways(&o, vip); got != "10.0.0.13%eth0 10.0.0.200%eth1" || !o.Memory.Routes[0].Since.Equal(in.Now) || !o.Memory.Routes[1].Since.Equal(since) {
		t.Errorf("%s, %+v", got, o.Memory)
	}
}

// TestHearing: after the start masters get time to connect, and the end of it is waited for.
func TestHearing(t *testing.T) {
	in := box()
	for after, want := range map[time.Duration]bool{0: true, HearingTime - 1: true, HearingTime: false} {
		in.Now = start.Add(after)
		if o := Step(in); o.State.Hearing != want || o.Wake.IsZero() == want || want && !o.Wake.Equal(start.Add(HearingTime)) {
			t.Errorf("after %s: %+v", after, o)
		}
	}
	in.Now, in.Listeners = start, nil
	if o := Step(in); o.State.Hearing || !o.Wake.IsZero() {
		t.Errorf("without a listener: %+v", o)
	}
}

func TestRefusedPaths(t *testing.T) {
	for want, change := range map[string]func(*model.LearnedPath){
		"it is none of acceptPrefixes":               func(p *model.LearnedPath) { p.Prefix = netip.MustParsePrefix("203.0.113.2/32") },
		"it is none of acceptPrefixes ":              func(p *model.LearnedPath) { p.Prefix = netip.MustParsePrefix("203.0.113.0/31") },
		"it is none of acceptPrefixes  ":             func(p *model.LearnedPath) { p.Prefix = netip.MustParsePrefix("0.0.0.0/0") },
		"its BGPListener is configured no more":      func(p *model.LearnedPath) { p.Listener = "others" },
		"10.0.0.12 is another machine":               func(p *model.LearnedPath) { p.NextHop = netip.MustParseAddr("10.0.0.12") },
		"10.0.0.10 is an address of this machine":    func(p *model.LearnedPath) { p.NextHop = netip.MustParseAddr("10.0.0.10"); p.Peer = p.NextHop },
		"10.1.0.1 is in no subnet of this machine":   func(p *model.LearnedPath) { p.NextHop = netip.MustParseAddr("10.1.0.1"); p.Peer = p.NextHop },
		"10.7.0.2 is by interface eth2, which is do": func(p *model.LearnedPath) { p.NextHop = netip.MustParseAddr("10.7.0.2"); p.Peer = p.NextHop },
		"fd01::11 is in none of peerPrefixes":        func(p *model.LearnedPath) { p.Prefix, p.NextHop = vip6, netip.MustParseAddr("fd01::11") },
		"10.0.0.11 is not of its family":             func(p *model.LearnedPath) { p.Prefix = vip6 },
		"0.0.0.0 is no address of a machine":         func(p *model.LearnedPath) { p.NextHop = netip.IPv4Unspecified() },
		"fe80::2%eth0 is no address of a machine":    func(p *model.LearnedPath) { p.NextHop = netip.MustParseAddr("fe80::2%eth0") },
		"AS 64511 of the master is no private one":   func(p *model.LearnedPath) { p.PeerASN = 64511 },
		"invalid IP is no address of a machine":      func(p *model.LearnedPath) { p.NextHop = netip.Addr{} },
	} {
		in := box()
		bad := path(vip, 11)
		change(&bad)
		in.Paths = []model.LearnedPath{bad, path(vip, 14)}
		o := Step(in)
		if len(o.Paths) != 1 || !strings.Contains(o.Paths[0].Why, strings.TrimSpace(want)) || o.Paths[0].LearnedPath != bad {
			t.Errorf("%s: %+v", want, o.Paths)
		}
		if got := gateways(&o, vip); got != "10.0.0.14%eth0" {
			t.Errorf("%s: the rest is %s", want, got)
		}
	}
}

// TestListenersAreApart: what one listener accepts another one does not.
func TestListenersAreApart(t *testing.T) {
	in := box()
	in.Listeners = append(in.Listeners, model.BGPListener{Name: "others", MaxPrefixes: 4, Accept: []netip.Prefix{netip.MustParsePrefix("203.0.113.7/32")}})
	bad := path(vip, 12)
	bad.Listener = "others"
	in.Paths = []model.LearnedPath{path(vip, 11), bad}
	o := Step(in)
	if gateways(&o, vip) != "10.0.0.11%eth0" || len(o.Paths) != 1 || len(o.State.Routes) != 3 {
		t.Errorf("%s, %+v", gateways(&o, vip), o.Paths)
	}
}

// TestTheFirstOfTwoInterfaces: of two in the same subnet always the same one is taken.
func TestTheFirstOfTwoInterfaces(t *testing.T) {
	in := box()
	for _, name := range []string{"a4", "a2", "a3"} {
		in.Links[name] = model.Link{Name: name, Up: true, Prefixes: in.Links["eth0"].Prefixes[:1]}
	}
	in.Paths = []model.LearnedPath{path(vip, 11)}
	for range 50 {
		if o := Step(in); gateways(&o, vip) != "10.0.0.11%a2" {
			t.Fatal(gateways(&o, vip))
		}
	}
}

// TestPrivate: an AS number counts if it is for private use, or the one of the listener, which the
// session has seen to.
func TestPrivate(t *testing.T) {
	for asn, want := range map[uint32]bool{
		0: false, 64511: false, 64512: true, 65534: true, 65535: false, 4199999999: false, 4200000000: true, 4294967294: true, 4294967295: false,
	} {
		if Private(asn) != want {
			t.Errorf("%d: %v", asn, !want)
		}
	}
	in := box()
	in.Listeners[0].PeerASN = 3
	bad := path(vip, 11)
	bad.PeerASN = 3
	in.Paths = []model.LearnedPath{bad}
	if o := Step(in); gateways(&o, vip) != "10.0.0.11%eth0" {
		t.Errorf("%+v", o.Paths)
	}
}

// TestRefusedPrefixes: what would take something from this machine counts for nothing, whatever
// was validated elsewhere, and the rest works.
func TestRefusedPrefixes(t *testing.T) {
	for prefix, want := range map[string]string{
		"0.0.0.0/0":          "it is the default route",
		"::/0":               "it is the default route",
		"10.0.0.0/24":        "it holds 10.0.0.0/24, the subnet of interface eth0",
		"10.0.0.0/16":        "it holds 10.0.0.0/24, the subnet of interface eth0",
		"10.0.0.128/25":      "it holds 10.0.0.128/25, the subnet of interface eth1",
		"10.0.0.10/32":       "it holds 10.0.0.10, an address of this machine on interface eth0",
		"10.0.0.8/29":        "it holds 10.0.0.10, an address of this machine on interface eth0",
		"fd00::/64":          "it holds fd00::/64, the subnet of interface eth0",
		"10.7.0.0/24":        "it holds 10.7.0.0/24, the subnet of interface eth2", // also of one that is down
		"127.0.0.1/32":       "no route can lead there",
		"224.0.0.0/4":        "no route can lead there",
		"fe80::/64":          "no route can lead there",
		"203.0.113.0/31":     "it overlaps with 203.0.113.1/32 of BGPListener masters",
		"203.0.113.1/32":     "it overlaps with 203.0.113.1/32 of BGPListener masters",
		"172.16.0.0/12":      "it holds 172.16.5.0/24, in which BGPListener masters has its masters",
		"172.16.5.0/24":      "it holds 172.16.5.0/24, in which BGPListener masters has its masters",
		"203.0.113.2/24":     "it is no prefix",
		"::ffff:1.2.3.0/120": "it is no prefix",
	} {
		in := box()
		bad := netip.MustParsePrefix(strings.Replace(prefix, "::ffff:1.2.3.0/120", "::/1", 1))
		if strings.HasPrefix(prefix, "::ffff") {
			bad = netip.PrefixFrom(netip.MustParseAddr("::ffff:1.2.3.0"), 120)
		}
		l := &in.Listeners[0]
		l.PeerPrefixes = append(l.PeerPrefixes, netip.MustParsePrefix("172.16.5.1/24"))
		in.Listeners = append(in.Listeners, model.BGPListener{Name: "more", MaxPrefixes: 1, Accept: []netip.Prefix{bad}})
		slices.Reverse(in.Listeners)
		in.Paths = []model.LearnedPath{path(vip, 11), path(vip6, 11)}
		o := Step(in)
		if len(o.Prefixes) != 1 || !strings.HasPrefix(o.Prefixes[0].Why, want) || o.Prefixes[0].Prefix != bad || o.Prefixes[0].Listener != "more" {
			t.Errorf("%s: %+v", prefix, o.Prefixes)
		}
		if got := gateways(&o, vip) + gateways(&o, vip6); got != "10.0.0.11%eth0fd00::11%eth0" || len(o.State.Routes) != 2 {
			t.Errorf("%s: the rest is %s", prefix, got)
		}
	}
	in := box() // a VIP in the subnet of the clients is what a box is for
	in.Listeners[0].Accept = []netip.Prefix{netip.MustParsePrefix("203.0.113.9/32"), netip.MustParsePrefix("10.9.0.0/24")}
	if o := Step(in); len(o.Prefixes) != 0 || len(o.State.Routes) != 2 {
		t.Errorf("%+v", o.Prefixes)
	}
}

// TestBounds: a master that advertises too much is refused as a whole, in that family, and of too
// many next hops those in use stay.
func TestBounds(t *testing.T) {
	in := box()
	in.Paths = []model.LearnedPath{path(vip, 11), path(vip6, 11), path(vip, 12)}
	for n := range 200 {
		in.Paths = append(in.Paths, path(netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(n)}), 32), 11))
	}
	o := Step(in)
	if gateways(&o, vip) != "10.0.0.12%eth0" || gateways(&o, vip6) != "fd00::11%eth0" {
		t.Error(gateways(&o, vip), gateways(&o, vip6))
	}
	if len(o.Paths) != MaxRefused || o.Untold != 101 || !strings.Contains(o.Paths[0].Why, "201 prefixes, and maxPrefixes is 4") {
		t.Errorf("%d refused, %d untold, %s", len(o.Paths), o.Untold, o.Paths[0].Why)
	}

	in = box()
	in.Listeners[0].Spread.Buckets = 3
	in.Paths = []model.LearnedPath{path(vip, 15), path(vip, 14), path(vip, 13)}
	in.Memory = Step(in).Memory
	in.Paths = append(in.Paths, path(vip, 11), path(vip, 12))
	o = Step(in)
	if got := gateways(&o, vip); got != "10.0.0.13%eth0 10.0.0.14%eth0 10.0.0.15%eth0" {
		t.Error(got)
	}
	in.Memory, in.Paths = o.Memory, in.Paths[1:]
	o = Step(in)
	if got := gateways(&o, vip); got != "10.0.0.11%eth0 10.0.0.13%eth0 10.0.0.14%eth0" {
		t.Error(got)
	}
}

// TestProperties with paths of masters that advertise anything, in any order.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := box()
		prefixes := []netip.Prefix{vip, vip6, netip.MustParsePrefix("203.0.113.2/32"), netip.MustParsePrefix("10.0.0.0/24")}
		hops := []string{"10.0.0.11", "10.0.0.12", "10.0.0.10", "10.0.0.140", "fd00::11", "fd00::10", "10.9.9.9", "10.7.0.9"}
		pick := rapid.Custom(func(t *rapid.T) model.LearnedPath {
			p := path(rapid.SampledFrom(prefixes).Draw(t, "prefix"), rapid.IntRange(10, 15).Draw(t, "master"))
			if rapid.Bool().Draw(t, "other") {
				p.NextHop = netip.MustParseAddr(rapid.SampledFrom(hops).Draw(t, "hop"))
			}
			return p
		})
		in.Paths = rapid.SliceOfN(pick, 0, 30).Draw(t, "paths")
		if rapid.Bool().Draw(t, "known") {
			in.Listeners[0].MaxPrefixes = 1
		}
		o := Step(in)
		check(t, in, &o)

		shuffled := *in
		shuffled.Paths = rapid.Permutation(in.Paths).Draw(t, "order")
		if other := Step(&shuffled); !other.State.Same(&o.State) || !slices.Equal(other.Paths, o.Paths) {
			t.Fatalf("the order counts:\n%+v\n%+v", o, other)
		}
		again := *in
		again.Memory, again.Now = o.Memory, in.Now.Add(time.Hour)
		if next := Step(&again); !next.State.Same(&o.State) || !next.Memory.Same(&o.Memory) || !slices.Equal(next.Paths, o.Paths) {
			t.Fatalf("not at rest:\n%+v\n%+v", o, next)
		}
	})
}

// check holds an output to what is always true.
func check(t *rapid.T, in *Input, o *Output) {
	if !slices.IsSortedFunc(o.State.Routes, func(a, b model.Route) int { return model.ComparePaths(a.Prefix, b.Prefix) }) || len(o.State.Routes) != 2 {
		t.Fatalf("routes %+v", o.State.Routes)
	}
	used := 0
	for _, r := range o.State.Routes {
		if !slices.IsSortedFunc(r.NextHops, model.NextHop.Compare) || len(slices.Compact(slices.Clone(r.NextHops))) != len(r.NextHops) {
			t.Fatalf("next hops %+v", r.NextHops)
		}
		for _, h := range r.NextHops {
			used++
			if !slices.ContainsFunc(in.Paths, func(p model.LearnedPath) bool { return p.Prefix == r.Prefix && p.NextHop == h.Gateway }) {
				t.Fatalf("nobody advertises %s by %s", r.Prefix, h.Gateway)
			}
			if l := in.Links[h.Interface]; !l.Up || slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Addr() == h.Gateway }) {
				t.Fatalf("next hop %+v by %+v", h, l)
			}
		}
	}
	refused := make(map[model.LearnedPath]bool)
	for _, p := range o.Paths {
		refused[p.LearnedPath] = true
		if p.Why == "" {
			t.Fatalf("%+v", p)
		}
	}
	for _, p := range in.Paths {
		i := slices.IndexFunc(o.State.Routes, func(r model.Route) bool { return r.Prefix == p.Prefix })
		is := !refused[p] && i >= 0 && slices.ContainsFunc(o.State.Routes[i].NextHops, func(h model.NextHop) bool { return h.Gateway == p.NextHop })
		if is == refused[p] {
			t.Fatalf("%+v is neither used nor refused, or both", p)
		}
	}
}
