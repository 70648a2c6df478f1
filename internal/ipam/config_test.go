package ipam

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

func TestPoolErrors(t *testing.T) {
	old := func(p Pool) Pool { p.Created = t0.Add(-time.Hour); return p }
	young := func(p Pool) Pool { p.Created = t0; return p }
	node := []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("::ffff:192.0.2.4"), netip.MustParseAddr("2001:db8::5%eth0")}
	for name, c := range map[string]struct {
		pools []Pool
		want  []string // errors
		left  string   // pools in use
	}{
		"good":           {[]Pool{auto("a", "192.0.1.0/24"), auto("b", "192.0.0.0/24", "2001:db8:1::/64")}, nil, "a b"},
		"no name":        {[]Pool{auto("", "192.0.2.0/24")}, []string{`IPAddressPool "": has no name`}, ""},
		"same name":      {[]Pool{auto("a", "192.0.0.0/24"), auto("a", "192.0.1.0/24")}, []string{`IPAddressPool "a": has the name of another pool`}, "a"},
		"empty":          {[]Pool{auto("a")}, []string{`IPAddressPool "a": spec.addresses must have at least one range`}, ""},
		"malformed":      {[]Pool{auto("a", "192.0.0.0/24", "x", "1.2.3.4"), auto("b", "192.0.0.0/24")}, []string{`IPAddressPool "a": spec.addresses[1]: "x" is neither a CIDR nor a range first-last`, `IPAddressPool "a": spec.addresses[2]: "1.2.3.4" is one address; write 1.2.3.4/32`}, "b"},
		"overlap, name":  {[]Pool{auto("b", "192.0.0.0/24"), auto("a", "192.0.0.255-192.0.1.3")}, []string{`IPAddressPool "b": spec.addresses[0]: "192.0.0.0/24" overlaps pool "a", which is older or sorts first`}, "a"},
		"overlap, age":   {[]Pool{young(auto("a", "192.0.0.9/32")), old(auto("b", "192.0.0.0/24"))}, []string{`IPAddressPool "a": spec.addresses[0]: "192.0.0.9/32" overlaps pool "b", which is older or sorts first`}, "b"},
		"overlap, two":   {[]Pool{auto("a", "192.0.0.9/32"), auto("b", "192.0.0.11/32"), auto("c", "192.0.0.0/24")}, []string{`IPAddressPool "c": spec.addresses[0]: "192.0.0.0/24" overlaps pool "b", which is older or sorts first`, `IPAddressPool "c": spec.addresses[0]: "192.0.0.0/24" overlaps pool "a", which is older or sorts first`}, "a b"},
		"refused is out": {[]Pool{auto("a", "192.0.0.0/25"), auto("b", "192.0.0.0/24"), auto("c", "192.0.0.200/32")}, []string{`IPAddressPool "b": spec.addresses[0]: "192.0.0.0/24" overlaps pool "a", which is older or sorts first`}, "a c"},
		"overlaps self":  {[]Pool{auto("a", "2001:db8:1::/64", "2001:db8:1::5-2001:db8:1::6")}, []string{`IPAddressPool "a": spec.addresses: lists 2001:db8:1::5 more than once`}, ""},
		"nodes":          {[]Pool{auto("b", "192.0.2.0/24"), auto("a", "2001:db8::/64")}, []string{`IPAddressPool "a": spec.addresses: contain the addresses of nodes 2001:db8::5, which are not given out`, `IPAddressPool "b": spec.addresses: contain the addresses of nodes 192.0.2.4, 192.0.2.5, which are not given out`}, "a b"},
		"avoided only":   {[]Pool{{Name: "a", Addresses: []string{"192.0.0.0/32"}, AvoidBuggyIPs: true, AutoAssign: true}}, nil, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, order := range [][]Pool{c.pools, backward(c.pools)} {
				if name == "same name" {
					order = c.pools
				}
				a, errs := New(Config{Pools: order, NodeAddresses: node})
				var got, left []string
				for _, err := range errs {
					got = append(got, err.Error())
					if _, used := a.pools[err.Pool]; err.Refused == used && name != "same name" {
						t.Errorf("%v: refused %v, used %v", err, err.Refused, used)
					}
				}
				for _, u := range a.Usage() {
					left = append(left, u.Pool)
				}
				if !slices.Equal(got, c.want) || strings.Join(left, " ") != c.left {
					t.Errorf("errors %q, pools %q\nwant   %q, pools %q", got, left, c.want, c.left)
				}
			}
		})
	}
	a, errs := New(Config{Pools: []Pool{auto("a", "192.0.0.0/25"), auto("b", "192.0.0.0/24")}})
	if len(errs) != 1 || errs[0].Other != "a" || errs[0].Rule != PoolOverlap {
		t.Errorf("%+v", errs)
	}
	want(t, a, t0, service("x", from("b")), `UnknownPool: pool "b" breaks a rule and is not used`)
}

// TestNodes: an address of a node is not given out, also when it is asked for, and
// a Service that has it keeps it and is reported.
func TestNodes(t *testing.T) {
	c := Config{Pools: []Pool{auto("p", "192.0.2.1-192.0.2.4")}, NodeAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	a, _ := New(c)
	want(t, a, t0, service("a"), "192.0.2.2")
	want(t, a, t0, service("b", ask("192.0.2.1")), "NodeAddress: 192.0.2.1 is the address of a node")
	if u := a.Usage()[0].IPv4; u != (Count{4, 1, 0, 2}) {
		t.Errorf("usage %+v", u)
	}
	c.NodeAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.2")}
	a.Update(c)
	want(t, a, t0, service("a"), "192.0.2.2")
	if s := a.Strays(); len(s) != 1 || s[0].Owner.String() != "default/a" || s[0].Err.Rule != NodeAddress {
		t.Errorf("strays %+v", s)
	}
	want(t, a, t0, service("b"), "192.0.2.1")
	a.Free(model.ParseKey("default/a"), t0) // back to the node, not to the pool
	want(t, a, t0, service("c", count(3)), "Exhausted:")
	want(t, a, t0, service("c", count(2)), "192.0.2.3 192.0.2.4")
}

// TestEdit: pools change under Services that run.
func TestEdit(t *testing.T) {
	c := Config{Pools: []Pool{auto("p", "192.0.2.0/29"), auto("q", "198.51.100.0/30")}, Quarantine: time.Minute}
	a, _ := New(c)
	want(t, a, t0, service("a"), "192.0.2.0")
	want(t, a, t0, service("b"), "192.0.2.1")
	want(t, a, t0, service("c"), "192.0.2.2")
	a.Free(model.ParseKey("default/c"), at(10))

	strays := func(want ...string) {
		t.Helper()
		var got []string
		for _, s := range a.Strays() {
			got = append(got, s.Owner.String()+" "+s.Addr.String()+" "+s.Err.Rule.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("strays %q, want %q", got, want)
		}
	}
	c.Pools[0].Addresses = []string{"192.0.2.1-192.0.2.3"} // shrunk
	a.Update(c)
	strays("default/a 192.0.2.0 NotInPool")
	want(t, a, at(11), service("a"), "192.0.2.0")
	want(t, a, at(11), service("a", ask("192.0.2.0")), "192.0.2.0")
	want(t, a, at(11), service("a", from("p")), "192.0.2.0")
	want(t, a, at(11), service("d", ask("192.0.2.0")), "NotInPool:")
	if u := a.Usage()[0].IPv4; u != (Count{3, 1, 1, 1}) {
		t.Errorf("usage %+v", u)
	}

	want(t, a, at(11), service("a", func(r *Request) { r.LeaveStrays = true }), "192.0.2.3") // .2 is in quarantine
	strays()

	c.Pools[0].AvoidBuggyIPs, c.Pools[0].Addresses = true, []string{"192.0.2.0/24"}
	c.Pools = append(c.Pools[:1:1], auto("r", "203.0.113.0/24")) // q is gone
	a.Update(c)
	strays()
	want(t, a, at(12), service("d"), "192.0.2.4") // the quarantine of .2 holds; .0 is avoided
	want(t, a, at(70), service("e"), "192.0.2.2")

	a.Update(Config{Quarantine: time.Minute}) // no pools at all
	strays("default/a 192.0.2.3 NotInPool", "default/b 192.0.2.1 NotInPool", "default/d 192.0.2.4 NotInPool", "default/e 192.0.2.2 NotInPool")
	want(t, a, at(71), service("b", dual(PreferDualStack, IPv4, IPv6)), "192.0.2.1")
	want(t, a, at(71), service("f"), "NoPool:")
	a.Free(model.ParseKey("default/a"), at(80))
	a.Update(c) // back, with what was freed meanwhile still in quarantine
	strays()
	want(t, a, at(81), service("f", ask("192.0.2.4")), "InUse:")
	want(t, a, at(81), service("f"), "192.0.2.5")
	want(t, a, at(140), service("g"), "192.0.2.3")

	// A pool of both families: the second is added and the first stays.
	want(t, a, at(141), service("h", dual(PreferDualStack, IPv6, IPv4), from("r")), "203.0.113.0")
	c.Pools[1].Addresses = append(c.Pools[1].Addresses, "2001:db8::/64")
	a.Update(c)
	want(t, a, at(141), service("h", dual(PreferDualStack, IPv6, IPv4), from("r")), "2001:db8:: 203.0.113.0")
	want(t, a, at(141), service("h", dual(RequireDualStack, IPv6, IPv4)), "2001:db8:: 203.0.113.0")
}

// TestShareAfterEdit: what is shared is found again after pools changed.
func TestShareAfterEdit(t *testing.T) {
	c := Config{Pools: []Pool{auto("p", "192.0.2.0/29")}}
	a, _ := New(c)
	want(t, a, t0, service("a", share("k", 80), ask("192.0.2.5")), "192.0.2.5")
	c.Pools[0].Addresses = []string{"192.0.2.4-192.0.2.7", "192.0.2.0-192.0.2.1"}
	a.Update(c)
	want(t, a, t0, service("b", share("k", 81)), "192.0.2.5")
	c.Pools[0].Addresses = []string{"192.0.2.0-192.0.2.1"}
	a.Update(c)
	want(t, a, t0, service("c", share("k", 82)), "192.0.2.0") // nobody new joins an address outside
	c.Pools[0].Addresses, c.NodeAddresses = []string{"192.0.2.0/29"}, []netip.Addr{netip.MustParseAddr("192.0.2.5")}
	a.Update(c)
	want(t, a, t0, service("e", share("k", 82, 83)), "192.0.2.1") // nor that of a node
	a.Free(model.ParseKey("default/a"), t0)
	a.Free(model.ParseKey("default/b"), t0)
	a.Update(Config{Pools: []Pool{auto("p", "192.0.2.0/29")}})
	want(t, a, t0, service("d", share("k", 80)), "192.0.2.0")
}

func backward(pools []Pool) []Pool {
	pools = slices.Clone(pools)
	slices.Reverse(pools)
	return pools
}
