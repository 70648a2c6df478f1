package ipam

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

type step struct {
	r    Request
	want string
}

// TestMetalLB holds what users of MetalLB know: pools, priority, selectors,
// families, requests. All happens at one moment.
func TestMetalLB(t *testing.T) {
	both := []string{"192.0.2.1-192.0.2.2", "2001:db8::1-2001:db8::2"}
	single := dual(SingleStack, IPv6)
	prefer46, prefer64 := dual(PreferDualStack, IPv4, IPv6), dual(PreferDualStack, IPv6, IPv4)
	require := dual(RequireDualStack, IPv4, IPv6)
	manual := Pool{Name: "manual", Addresses: []string{"203.0.113.0/31"}}
	gold := Pool{Name: "gold", Addresses: []string{"203.0.113.1/32"}, AutoAssign: true,
		Allocation: &v1alpha1.ServiceAllocation{ServiceSelectors: []v1alpha1.Selector{{MatchLabels: map[string]string{"tier": "gold"}}}}}
	teams := Pool{Name: "teams", Addresses: []string{"203.0.113.4/31"}, AutoAssign: true,
		Allocation: &v1alpha1.ServiceAllocation{Priority: 5, Namespaces: []string{"listed"},
			NamespaceSelectors: []v1alpha1.Selector{{MatchExpressions: []v1alpha1.SelectorRequirement{{Key: "team", Operator: v1alpha1.SelectorIn, Values: []string{"a", "b"}}}}}}}
	team := func(name string) func(*Request) {
		return func(r *Request) { r.NamespaceLabels = map[string]string{"team": name} }
	}
	for name, c := range map[string]struct {
		pools []Pool
		steps []step
	}{
		"first free, in the order of ranges": {[]Pool{auto("p", "192.0.2.9/32", "192.0.2.1-192.0.2.2")}, []step{
			{service("a"), "192.0.2.9"}, {service("b"), "192.0.2.1"}, {service("a"), "192.0.2.9"},
			{service("c"), "192.0.2.2"}, {service("d"), `Exhausted: no free IPv4 address in pool "p"`},
		}},
		"pools by name": {[]Pool{auto("b", "192.0.2.1/32"), auto("a", "192.0.2.2/32")}, []step{
			{service("a"), "192.0.2.2"}, {service("b"), "192.0.2.1"}, {service("c"), `Exhausted: no free IPv4 address in pools "a", "b"`},
		}},
		"autoAssign false": {[]Pool{manual}, []step{
			{service("a"), "NoPool: no pool assigns addresses to this Service: none has autoAssign and a serviceAllocation that fits it"},
			{service("a", from("manual")), "203.0.113.0"}, {service("b", ask("203.0.113.1")), "203.0.113.1"},
		}},
		"avoidBuggyIPs": {[]Pool{{Name: "p", Addresses: []string{"192.0.2.255-192.0.3.1"}, AvoidBuggyIPs: true, AutoAssign: true}}, []step{
			{service("a"), "192.0.3.1"}, {service("b"), "Exhausted:"},
			{service("b", ask("192.0.3.0")), `Avoided: 192.0.3.0 ends in .0 or .255, which pool "p" avoids (avoidBuggyIPs)`},
		}},
		"buggy addresses are given out otherwise": {[]Pool{auto("p", "192.0.2.255-192.0.3.0")}, []step{
			{service("a"), "192.0.2.255"}, {service("b"), "192.0.3.0"},
		}},
		"priority: 1 first, 0 last, then the default pool": {[]Pool{
			pinnedTo("ns", 20, auto("low", "192.0.2.20/32")), pinnedTo("ns", 0, auto("a-none", "192.0.2.30/32")),
			pinnedTo("ns", 10, auto("high", "192.0.2.10/32")), auto("a-default", "192.0.2.40/32"),
		}, []step{
			{service("ns/a"), "192.0.2.10"}, {service("ns/b"), "192.0.2.20"}, {service("ns/c"), "192.0.2.30"},
			{service("ns/d"), "192.0.2.40"}, {service("other/a"), "Exhausted:"},
		}},
		"a pinned pool is closed to others": {[]Pool{pinnedTo("ns", 1, auto("p", "192.0.2.1/32"))}, []step{
			{service("a"), "NoPool:"}, {service("a", from("p")), `NotSelected: pool "p" is for other Services: serviceAllocation names neither the namespace nor the labels of this one`},
			{service("a", ask("192.0.2.1")), "NotSelected:"}, {service("ns/a", ask("192.0.2.1")), "192.0.2.1"},
		}},
		"service selector": {[]Pool{gold, auto("p", "192.0.2.1/32")}, []step{
			{service("a"), "192.0.2.1"}, {service("b"), "Exhausted:"}, {service("b", labels(map[string]string{"tier": "gold"})), "203.0.113.1"},
		}},
		"namespaces and namespace selectors are alternatives": {[]Pool{teams}, []step{
			{service("listed/a", team("x")), "203.0.113.4"}, {service("other/b", team("b")), "203.0.113.5"}, {service("other/c", team("c")), "NoPool:"},
		}},
		"namespace and service selector both count": {[]Pool{{Name: "p", AutoAssign: true, Addresses: []string{"192.0.2.1/32"},
			Allocation: &v1alpha1.ServiceAllocation{Namespaces: []string{"ns"}, ServiceSelectors: gold.Allocation.ServiceSelectors}}}, []step{
			{service("ns/a"), "NoPool:"}, {service("other/a", labels(map[string]string{"tier": "gold"})), "NoPool:"},
			{service("ns/a", labels(map[string]string{"tier": "gold"})), "192.0.2.1"},
		}},
		"explicit address": {[]Pool{auto("p", "192.0.2.0/24"), manual}, []step{
			{service("a", ask("192.0.2.7")), "192.0.2.7"}, {service("a", ask("192.0.2.8")), "192.0.2.8"},
			{service("b", ask("192.0.2.8")), "InUse: 192.0.2.8 is in use by default/a; to share it, each Service needs the same sharing key"},
			{service("b", ask("198.51.100.1")), "NotInPool: 198.51.100.1 is in no pool"},
			{service("b", ask("2001:db8::1")), "FamilyMismatch: 2001:db8::1 is an IPv6 address, but the Service has only IPv4"},
			{service("b", ask("192.0.2.9"), from("manual")), `WrongPool: 192.0.2.9 is in pool "p", but pool "manual" is asked for`},
			{service("b", ask("192.0.2.9", "192.0.2.9")), "BadRequest: 192.0.2.9 is asked for twice"},
			{service("b", ask("192.0.2.9"), from("p")), "192.0.2.9"},
		}},
		"named pool": {[]Pool{auto("p", "192.0.2.0/31"), auto("q", "192.0.2.8/31")}, []step{
			{service("a", from("q")), "192.0.2.8"}, {service("a", from("nil")), `UnknownPool: pool "nil" does not exist`},
			{service("a"), "192.0.2.8"}, {service("a", from("p")), "192.0.2.0"},
		}},
		"single stack": {[]Pool{auto("p", both...)}, []step{
			{service("a"), "192.0.2.1"}, {service("b", single), "2001:db8::1"},
		}},
		"dual stack from one pool": {[]Pool{auto("a", "203.0.113.1/32"), auto("p", both...)}, []step{
			{service("a", require), "192.0.2.1 2001:db8::1"}, {service("b", prefer64), "2001:db8::2 192.0.2.2"},
			{service("c", require), "Exhausted:"}, {service("c", prefer46), "203.0.113.1"},
		}},
		"dual stack from a pool of each family": {[]Pool{auto("v4", "192.0.2.1/32"), auto("v6", "2001:db8::/64")}, []step{
			{service("a", require), "192.0.2.1 2001:db8::"}, {service("b", require), `Exhausted: no free IPv4 address in pools "v4", "v6"`},
			{service("b", prefer46), "2001:db8::1"},
		}},
		"dual stack from named pools": {[]Pool{auto("v4", "192.0.2.1/32"), auto("v6", "2001:db8::/64"), auto("w6", "2001:db8:1::/64")}, []step{
			{service("a", require, from("w6", "v4")), "192.0.2.1 2001:db8:1::"}, {service("b", require, from("v6")), `FamilyMissing: no IPv4 range in pool "v6"`},
		}},
		"the pinned pool keeps its family": {[]Pool{pinnedTo("ns", 1, auto("v4", "203.0.113.1/32")), auto("p", both...)}, []step{
			{service("ns/a", require), "203.0.113.1 2001:db8::1"}, {service("ns/b", require), "192.0.2.1 2001:db8::2"},
		}},
		"dual stack by address": {[]Pool{auto("p", both...)}, []step{
			{service("a", require, ask("192.0.2.2")), "FamilyMissing: RequireDualStack needs an IPv6 address beside those that are asked for"},
			{service("a", require, ask("2001:db8::2", "192.0.2.2")), "2001:db8::2 192.0.2.2"}, {service("b", prefer46, ask("192.0.2.1")), "192.0.2.1"},
		}},
		"a closed pool": {[]Pool{{Name: "p", Addresses: []string{"192.0.2.1/32"}, AutoAssign: true, Closed: "it rains"}, auto("q", "192.0.2.2/32")}, []step{
			{service("a"), "192.0.2.2"}, {service("b"), `PoolClosed: pool "p" gives out nothing for now: it rains`},
			{service("b", from("p")), "PoolClosed:"}, {service("b", ask("192.0.2.1")), "PoolClosed:"}, {service("b", from("q")), "Exhausted:"},
			{service("b", ask("192.0.2.1"), func(r *Request) { r.Shown = true }), "192.0.2.1"}, {service("b"), "192.0.2.1"},
		}},
		"several of a family": {[]Pool{auto("a", "192.0.2.1/32"), auto("b", "192.0.2.4/30")}, []step{
			{service("a", count(3)), "192.0.2.4 192.0.2.5 192.0.2.6"}, {service("b", count(2)), "192.0.2.1 192.0.2.7"},
			{service("c", count(2)), `Exhausted: fewer than 2 free IPv4 addresses in pools "a", "b"`},
			{service("a", count(1)), "192.0.2.4"}, {service("a", count(2)), "Exhausted:"},
		}},
		"prefer becomes require and back": {[]Pool{auto("v4", "192.0.2.1/32")}, []step{
			{service("a", prefer46), "192.0.2.1"}, {service("a", require), "FamilyMissing:"}, {service("a", prefer46), "192.0.2.1"},
		}},
		"a single stack Service leaves the second family": {[]Pool{auto("p", both...)}, []step{
			{service("a", require), "192.0.2.1 2001:db8::1"}, {service("a"), "192.0.2.1"}, {service("b", single), "2001:db8::2"},
		}},
		"requests that mean nothing": {[]Pool{auto("p", both...)}, []step{
			{Request{Families: []Family{IPv4}}, "BadRequest:"}, {Request{Owner: model.Key{Name: "a"}}, "BadRequest:"},
			{service("a", dual(RequireDualStack, IPv4)), "BadRequest: RequireDualStack needs both families, but the Service has only IPv4"},
			{service("a", dual(3, IPv4, IPv6)), "BadRequest:"}, {service("a", dual(SingleStack, 5)), "BadRequest:"}, {service("a", count(-1)), "BadRequest:"},
			{service("a", count(65)), "BadRequest: a Service has at most 64 addresses of a family"}, {service("a", dual(PreferDualStack, IPv4, IPv4)), "BadRequest:"},
			{service("a", func(r *Request) { r.Addresses = []netip.Addr{{}} }), "BadRequest:"}, {service("a", ask("::ffff:192.0.2.1")), "BadRequest:"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := mustNew(t, c.pools...)
			for _, s := range c.steps {
				want(t, a, t0, s.r, s.want)
			}
		})
	}
}

// TestSharing holds the rules of sharing, each way a Service may come second.
func TestSharing(t *testing.T) {
	one := []Pool{auto("p", "192.0.2.1/32")}
	two := []Pool{auto("p", "192.0.2.1-192.0.2.2")}
	udp := func(r *Request) { r.Sharing.Ports = []Port{{"UDP", 80}} }
	for name, c := range map[string]struct {
		pools []Pool
		steps []step
	}{
		"key and other ports":  {two, []step{{service("a", share("k", 80)), "192.0.2.1"}, {service("b", share("k", 443)), "192.0.2.1"}, {service("c", share("k"), udp), "192.0.2.1"}}},
		"same port":            {two, []step{{service("a", share("k", 80)), "192.0.2.1"}, {service("b", share("k", 80)), "192.0.2.2"}, {service("c", share("k", 80)), "Exhausted:"}}},
		"same port, asked":     {two, []step{{service("a", share("k", 80)), "192.0.2.1"}, {service("b", share("k", 443, 80), ask("192.0.2.1")), "PortInUse: port TCP/80 of 192.0.2.1 is in use by default/a"}}},
		"no key first":         {one, []step{{service("a", share("", 80)), "192.0.2.1"}, {service("b", share("k", 81), ask("192.0.2.1")), "InUse:"}}},
		"no key second":        {one, []step{{service("a", share("k", 80)), "192.0.2.1"}, {service("b", share("", 81), ask("192.0.2.1")), "InUse:"}}},
		"other key":            {one, []step{{service("a", share("k", 80)), "192.0.2.1"}, {service("b", share("l", 81), ask("192.0.2.1")), `SharingKey: 192.0.2.1 is shared by default/a under the key "k", which is not "l"`}}},
		"both local, same":     {one, []step{{service("a", share("k", 80), local("x")), "192.0.2.1"}, {service("b", share("k", 81), local("x")), "192.0.2.1"}}},
		"both local, other":    {one, []step{{service("a", share("k", 80), local("x")), "192.0.2.1"}, {service("b", share("k", 81), local("y"), ask("192.0.2.1")), "SharingBackend: 192.0.2.1 is shared by default/a: sharing needs externalTrafficPolicy Cluster on each Service, or Local and the same selector on each"}}},
		"local and cluster":    {one, []step{{service("a", share("k", 80)), "192.0.2.1"}, {service("b", share("k", 81), local("x"), ask("192.0.2.1")), "SharingBackend:"}}},
		"cluster, any pods":    {one, []step{{service("a", share("k", 80), local("x"), func(r *Request) { r.Sharing.Local = false }), "192.0.2.1"}, {service("b", share("k", 81)), "192.0.2.1"}}},
		"alone, key changes":   {one, []step{{service("a", share("k", 80)), "192.0.2.1"}, {service("a", share("l", 80)), "192.0.2.1"}, {service("b", share("k", 81)), "Exhausted:"}, {service("b", share("l", 81)), "192.0.2.1"}}},
		"together, key stays":  {two, []step{{service("a", share("k", 80)), "192.0.2.1"}, {service("b", share("k", 81)), "192.0.2.1"}, {service("a", share("l", 80)), "SharingKey:"}, {service("a", share("k", 82)), "192.0.2.1"}, {service("c", share("k", 80)), "192.0.2.1"}}},
		"together, local":      {two, []step{{service("a", share("k", 80)), "192.0.2.1"}, {service("b", share("k", 81)), "192.0.2.1"}, {service("b", share("k", 81), local("x")), "SharingBackend:"}}},
		"several, each once":   {two, []step{{service("a", share("k", 80), count(2)), "192.0.2.1 192.0.2.2"}, {service("b", share("k", 81), count(2)), "192.0.2.1 192.0.2.2"}, {service("c", share("k", 82), count(3)), "Exhausted:"}}},
		"third with second":    {two, []step{{service("a", share("k", 80)), "192.0.2.1"}, {service("b", share("k", 80)), "192.0.2.2"}, {service("a", share("k", 80, 81)), "192.0.2.1"}, {service("c", share("k", 81)), "192.0.2.2"}}},
		"not on another's key": {two, []step{{service("a", share("k", 80)), "192.0.2.1"}, {service("b", share("l", 81)), "192.0.2.2"}, {service("c", share("l", 82)), "192.0.2.2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := mustNew(t, c.pools...)
			for _, s := range c.steps {
				want(t, a, t0, s.r, s.want)
			}
		})
	}
}

// TestSharedPortIsFree: a port that its Service gave up may be had by another, and
// a refused change leaves the old ports in force.
func TestSharedPortIsFree(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.1/32"))
	want(t, a, t0, service("a", share("k", 80)), "192.0.2.1")
	want(t, a, t0, service("b", share("k", 81)), "192.0.2.1")
	got, err := a.Allocate(service("b", share("k", 80)), t0)
	if err == nil || words(got, nil) != "192.0.2.1" || got.Sharing.Ports[0].Number != 81 {
		t.Errorf("a refused change of ports: %v, %v", got, err)
	}
	if now, ok := a.Get(model.ParseKey("default/b")); !ok || words(now, nil) != "192.0.2.1" || now.Addresses[0].Pool != "p" {
		t.Errorf("b holds %v", now)
	}
	want(t, a, t0, service("c", share("k", 81)), "Exhausted:")
	a.Free(model.ParseKey("default/b"), t0)
	if now, ok := a.Get(model.ParseKey("default/b")); ok {
		t.Errorf("b holds %v after Free", now)
	}
	want(t, a, t0, service("c", share("k", 81)), "192.0.2.1")
}

func TestQuarantine(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.1/32"))
	want(t, a, at(0), service("a", share("k", 80)), "192.0.2.1")
	want(t, a, at(0), service("b", share("k", 81)), "192.0.2.1")
	a.Free(model.ParseKey("default/a"), at(1))
	want(t, a, at(1), service("a", share("k", 80)), "192.0.2.1") // still in use by b: no quarantine
	a.Free(model.ParseKey("default/a"), at(2))
	a.Free(model.ParseKey("default/b"), at(3))
	_, err := a.Allocate(service("c"), at(62))
	if e, ok := err.(*Error); !ok || e.Rule != Exhausted || !e.Retry.Equal(at(63)) || e.Error() != `no free IPv4 address in pool "p"; 1 in quarantine` {
		t.Errorf("in quarantine: %#v", err)
	}
	if u := a.Usage()[0].IPv4; u != (Count{1, 0, 1, 0}) {
		t.Errorf("usage %+v", u)
	}
	if next := a.Expire(at(10)); !next.Equal(at(63)) {
		t.Errorf("next end %v", next)
	}
	want(t, a, at(63), service("c"), "192.0.2.1")

	// Who asks for the address itself gets it, and it rests again later.
	a.Free(model.ParseKey("default/c"), at(70))
	want(t, a, at(71), service("d", ask("192.0.2.1")), "192.0.2.1")
	a.Free(model.ParseKey("default/d"), at(80))
	want(t, a, at(131), service("e"), "Exhausted:") // the end of the first quarantine counts no more
	want(t, a, at(140), service("e"), "192.0.2.1")
	a.Free(model.ParseKey("default/e"), at(140))
	a.Free(model.ParseKey("default/e"), at(141)) // again: nothing
	if next := a.Expire(at(200)); !next.IsZero() {
		t.Errorf("next end %v after the last", next)
	}
	if u := a.Usage()[0].IPv4; u != (Count{1, 0, 0, 1}) {
		t.Errorf("usage at the end %+v", u)
	}

	a, _ = New(Config{Pools: []Pool{auto("p", "192.0.2.1/32")}})
	want(t, a, at(0), service("a"), "192.0.2.1")
	a.Free(model.ParseKey("default/a"), at(0))
	want(t, a, at(0), service("b"), "192.0.2.1")
}

// TestRest: a rest that was told of is like one that began here; it takes nothing from
// who has the address, and shortens no other.
func TestRest(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.0/30"))
	want(t, a, at(0), service("a"), "192.0.2.0")
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	a.Rest(netip.MustParseAddr("192.0.2.0"), at(50))
	a.Rest(one, at(50))
	a.Rest(one, at(40))
	a.Rest(two, at(10))
	a.Rest(two, at(20))
	a.Rest(netip.MustParseAddr("203.0.113.1"), at(20))
	if u := a.Usage()[0].IPv4; u.Assigned != 1 || u.Quarantined != 2 || u.Available != 1 {
		t.Errorf("%+v", u)
	}
	if got := a.Resting(); len(got) != 3 || !got[one].Equal(at(50)) || !got[two].Equal(at(20)) {
		t.Errorf("resting: %v", got)
	}
	want(t, a, at(19), service("b"), "192.0.2.3")
	want(t, a, at(19), service("c"), "Exhausted:")
	want(t, a, at(20), service("c"), "192.0.2.2")
	want(t, a, at(49), service("d"), "Exhausted:")
	want(t, a, at(50), service("d"), "192.0.2.1")
	if got := a.Resting(); len(got) != 0 {
		t.Errorf("still resting: %v", got)
	}
}

// TestGaveUp: an address that rests is of who gave it up last, until it rests no more.
func TestGaveUp(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.0/30"))
	want(t, a, at(0), service("a"), "192.0.2.0")
	want(t, a, at(0), service("b"), "192.0.2.1")
	a.Rest(netip.MustParseAddr("192.0.2.3"), at(90))
	gaveUp := func(want string) {
		t.Helper()
		if got := fmt.Sprint(a.GaveUp()); got != "map["+want+"]" {
			t.Errorf("%s, want %s", got, want)
		}
	}
	gaveUp("")
	want(t, a, at(1), service("a", ask("192.0.2.2")), "192.0.2.2")
	gaveUp("default/a:1")
	a.Free(model.ParseKey("default/a"), at(2))
	a.Free(model.ParseKey("default/b"), at(3))
	gaveUp("default/a:2 default/b:1")
	want(t, a, at(4), service("b", ask("192.0.2.0")), "192.0.2.0") // it need not have rested
	gaveUp("default/a:1 default/b:1")
	a.Free(model.ParseKey("default/b"), at(5))
	a.Rest(netip.MustParseAddr("192.0.2.0"), at(80))
	gaveUp("default/a:1 default/b:2")
	a.Expire(at(79))
	gaveUp("default/b:1")
	a.Expire(at(90))
	gaveUp("")
}

// TestRested: who must not have an address that was just given up gets it once it has rested.
func TestRested(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.1/32"))
	want(t, a, t0, service("a"), "192.0.2.1")
	a.Free(model.ParseKey("default/a"), at(1))
	rested := func(r *Request) { r.Rested = true }
	want(t, a, at(2), service("b", ask("192.0.2.1"), rested), "InUse: 192.0.2.1 rests since it was given up")
	want(t, a, at(62), service("b", ask("192.0.2.1"), rested), "192.0.2.1")
	want(t, a, at(63), service("b", ask("192.0.2.1"), rested), "192.0.2.1") // its own
}

// TestQuarantineAgain: an address that was asked for out of quarantine and freed
// again rests its whole time, also while others rest.
func TestQuarantineAgain(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.1-192.0.2.2"))
	want(t, a, at(0), service("a", count(2)), "192.0.2.1 192.0.2.2")
	a.Free(model.ParseKey("default/a"), at(0))
	want(t, a, at(10), service("b", ask("192.0.2.1")), "192.0.2.1")
	a.Free(model.ParseKey("default/b"), at(20))
	want(t, a, at(79), service("c"), "192.0.2.2")
	want(t, a, at(79), service("d"), "Exhausted:")
	want(t, a, at(80), service("d"), "192.0.2.1")
}

// TestSharedRests: an address that nobody shares any more is like any other.
func TestSharedRests(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.1-192.0.2.2"))
	want(t, a, t0, service("a", share("k", 80)), "192.0.2.1")
	a.Free(model.ParseKey("default/a"), t0)
	want(t, a, t0, service("b", share("k", 81)), "192.0.2.2")
}

// TestLarge: a /64 and a /8 cost no more than what is used, and count right.
func TestLarge(t *testing.T) {
	a := mustNew(t, auto("p", "2001:db8::/64", "10.0.0.0/8"), auto("q", "2001:db9::/48"))
	a.quarantine = time.Minute
	want(t, a, t0, service("a", dual(RequireDualStack, IPv6, IPv4)), "2001:db8:: 10.0.0.0")
	want(t, a, t0, service("b", dual(SingleStack, IPv6), ask("2001:db8::ffff:ffff:ffff:ffff")), "2001:db8::ffff:ffff:ffff:ffff")
	u := a.Usage()
	if u[0].IPv6 != (Count{1<<64 - 1, 2, 0, 1<<64 - 2}) || u[0].IPv4 != (Count{1 << 24, 1, 0, 1<<24 - 1}) || u[1].IPv6.Available != 1<<64-1 {
		t.Errorf("usage %+v", u)
	}
}

// TestValuesAreCopies: what the caller does with its values later changes nothing.
func TestValuesAreCopies(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.1/32"))
	r := service("a", share("k", 80), local("x"))
	got, _ := a.Allocate(r, t0)
	for _, s := range []*Sharing{&r.Sharing, &got.Sharing} {
		s.Ports[0].Number, s.Selector["app"] = 1, "y"
	}
	want(t, a, t0, service("b", share("k", 80), local("x")), "Exhausted:")
	want(t, a, t0, service("b", share("k", 81), local("x")), "192.0.2.1")
}

// TestManyInTheWay: an error names a few and counts the others.
func TestManyInTheWay(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.1/32"))
	for i := range uint16(8) {
		want(t, a, t0, service(string(rune('a'+i)), share("k", i)), "192.0.2.1")
	}
	want(t, a, t0, service("z", ask("192.0.2.1")),
		"InUse: 192.0.2.1 is in use by default/a, default/b, default/c, default/d, default/e and 3 more; to share it, each Service needs the same sharing key")
}
