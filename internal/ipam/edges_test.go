package ipam

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// nodes are addresses of nodes.
func nodes(list ...string) (out []netip.Addr) {
	for _, x := range list {
		out = append(out, netip.MustParseAddr(x))
	}
	return out
}

// TestChoice holds the finer rules of the choice: rank over all pools with an
// Allocation, the pool where a Service is at home, whole families.
func TestChoice(t *testing.T) {
	prefer, require := dual(PreferDualStack, IPv4, IPv6), dual(RequireDualStack, IPv4, IPv6)
	gold := labels(map[string]string{"tier": "gold"})
	byLabel := func(priority int, p Pool) Pool {
		p.Allocation = &v1alpha1.ServiceAllocation{Priority: int32(priority), ServiceSelectors: []v1alpha1.Selector{{MatchLabels: map[string]string{"tier": "gold"}}}}
		return p
	}
	twice := pinnedTo("ns", 1, auto("p", "192.0.2.1/32"))
	twice.Allocation.Namespaces = []string{"ns", "ns"}
	hidden := auto("hidden", "192.0.2.1/32", "2001:db8::1/128")
	hidden.AutoAssign = false
	for name, c := range map[string]struct {
		pools []Pool
		steps []step
	}{
		"priority before the kind of Allocation": {[]Pool{pinnedTo("ns", 20, auto("a", "192.0.2.1/32")), byLabel(10, auto("b", "192.0.2.2/32"))}, []step{
			{service("ns/a", gold), "192.0.2.2"}, {service("ns/b", gold), "192.0.2.1"},
		}},
		"a namespace that is listed twice": {[]Pool{twice}, []step{
			{service("ns/a"), "192.0.2.1"}, {service("ns/b"), `Exhausted: no free IPv4 address in pool "p"`},
		}},
		"more where the Service is at home": {[]Pool{auto("a", "192.0.2.0/29", "2001:db8:a::/64"), auto("b", "198.51.100.0/29", "2001:db8:b::/64")}, []step{
			{service("x", from("b")), "198.51.100.0"}, {service("x", count(2)), "198.51.100.0 198.51.100.1"},
			{service("x", count(2), prefer), "198.51.100.0 198.51.100.1 2001:db8:b:: 2001:db8:b::1"},
		}},
		"not at home where nothing is assigned unasked": {[]Pool{auto("a", "192.0.2.8/31", "2001:db8:a::/64"), hidden}, []step{
			{service("x", from("hidden")), "192.0.2.1"}, {service("x", require), "192.0.2.1 2001:db8:a::"},
		}},
		"a family whole or not at all": {[]Pool{auto("p", "192.0.2.0/30", "2001:db8::/128")}, []step{
			{service("x", count(2), prefer), "192.0.2.0 192.0.2.1"}, {service("y", prefer), "192.0.2.2 2001:db8::"},
		}},
		"what is held stays, though its family is not whole": {[]Pool{auto("p", "192.0.2.0/30", "2001:db8::/128")}, []step{
			{service("x", prefer), "192.0.2.0 2001:db8::"}, {service("x", count(2), prefer), "192.0.2.0 192.0.2.1 2001:db8::"},
		}},
		"several of a family from one group": {[]Pool{
			pinnedTo("ns", 1, auto("own", "2001:db8:1::/128")), auto("a", "192.0.2.0/30"), auto("b", "2001:db8:2::/128"), auto("c", "2001:db8:3::/128"),
		}, []step{
			{service("ns/x", count(2)), "192.0.2.0 192.0.2.1"}, {service("ns/x", count(2), prefer), "192.0.2.0 192.0.2.1 2001:db8:2:: 2001:db8:3::"},
			{service("ns/y", count(2), dual(SingleStack, IPv6)), "Exhausted:"},
		}},
		"shared, but not with itself": {[]Pool{auto("p", "192.0.2.0/30")}, []step{
			{service("x", share("k", 80)), "192.0.2.0"}, {service("y", share("k", 81), ask("192.0.2.1")), "192.0.2.1"},
			{service("x", share("k", 80), count(2)), "192.0.2.0 192.0.2.1"},
		}},
		"the same port again": {[]Pool{auto("p", "192.0.2.0/30")}, []step{
			{service("x", share("k", 80)), "192.0.2.0"}, {service("y", share("k", 81)), "192.0.2.0"},
			{service("x", share("k", 80)), "192.0.2.0"}, {service("y", share("k", 81, 82), ask("192.0.2.0")), "192.0.2.0"},
		}},
		"ranges beyond 64 bits, in any order": {[]Pool{auto("p", "2001:db8:2::1/128", "2001:db8:1::5/128", "2001:db8:3::/128")}, []step{
			{service("a", dual(SingleStack, IPv6)), "2001:db8:2::1"}, {service("b", dual(SingleStack, IPv6)), "2001:db8:1::5"},
			{service("c", dual(SingleStack, IPv6)), "2001:db8:3::"}, {service("d", dual(SingleStack, IPv6), ask("2001:db8:2::")), "NotInPool:"},
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

// TestLeaveStrays: a Service that may leaves what its pools would not give out now,
// also where a pool has it.
func TestLeaveStrays(t *testing.T) {
	leave := func(r *Request) { r.LeaveStrays = true }
	a := mustNew(t, auto("p", "192.0.2.0/29"))
	want(t, a, t0, service("x"), "192.0.2.0")
	want(t, a, t0, service("y"), "192.0.2.1")
	avoiding := auto("p", "192.0.2.0/29")
	avoiding.AvoidBuggyIPs = true
	a.Update(Config{Pools: []Pool{avoiding}, NodeAddresses: nodes("192.0.2.1")})
	want(t, a, t0, service("x"), "192.0.2.0")
	want(t, a, t0, service("x", leave), "192.0.2.2")
	want(t, a, t0, service("y", leave), "192.0.2.3")
}

// TestCreated: the age of a Service is kept, and follows one that was made again.
func TestCreated(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.0/29"))
	for _, made := range []time.Time{at(5), at(9)} {
		got, err := a.Allocate(service("x", func(r *Request) { r.Created = made }), at(10))
		if now, _ := a.Get(model.ParseKey("default/x")); err != nil || !got.Created.Equal(made) || !now.Created.Equal(made) {
			t.Errorf("made at %v, says %v, then %v, %v", made, got.Created, now.Created, err)
		}
	}
}

// TestAskedAreCopies: the addresses of a request belong to the caller.
func TestAskedAreCopies(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.0/29"))
	r := service("x", ask("192.0.2.1"))
	want(t, a, t0, r, "192.0.2.1")
	r.Addresses[0] = netip.MustParseAddr("192.0.2.2")
	if got, _ := a.Get(model.ParseKey("default/x")); words(got, nil) != "192.0.2.1" {
		t.Errorf("holds %s", words(got, nil))
	}
	a.Free(model.ParseKey("default/x"), t0)
	want(t, a, t0, service("y", ask("192.0.2.2")), "192.0.2.2")
}

// TestQuarantineCounts: an error counts what rests in all pools that were looked at,
// whatever the last one has.
func TestQuarantineCounts(t *testing.T) {
	a := mustNew(t, auto("a", "192.0.2.1/32"), auto("b", "192.0.2.2/32"), auto("c", "192.0.2.3/32"))
	want(t, a, t0, service("x", count(3)), "192.0.2.1 192.0.2.2 192.0.2.3")
	want(t, a, t0, service("x", from("c")), "192.0.2.3")
	want(t, a, t0, service("y"), `Exhausted: no free IPv4 address in pools "a", "b", "c"; 2 in quarantine`)
}

// TestNodeRests: an address in quarantine that becomes that of a node is not given
// out when the quarantine ends.
func TestNodeRests(t *testing.T) {
	c := Config{Pools: []Pool{auto("p", "192.0.2.0/31")}, Quarantine: time.Minute}
	a, _ := New(c)
	want(t, a, at(0), service("x", count(2)), "192.0.2.0 192.0.2.1")
	a.Free(model.ParseKey("default/x"), at(0))
	c.NodeAddresses = nodes("192.0.2.0")
	a.Update(c)
	want(t, a, at(60), service("y"), "192.0.2.1")
	if u := a.Usage()[0].IPv4; u != (Count{2, 1, 0, 0}) {
		t.Errorf("usage %+v", u)
	}
}

// TestRestoreOutside: an address that rests while its pool is gone, and turns out to
// be in use, is counted once when the pool is back.
func TestRestoreOutside(t *testing.T) {
	c := Config{Pools: []Pool{auto("p", "192.0.2.0/31")}, Quarantine: time.Minute}
	a, _ := New(c)
	want(t, a, at(0), service("x", count(2)), "192.0.2.0 192.0.2.1")
	a.Free(model.ParseKey("default/x"), at(0))
	a.Update(Config{Quarantine: time.Minute})
	a.Restore([]Assignment{held("default/y", 0, Sharing{}, "192.0.2.0")})
	a.Update(c)
	if u := a.Usage()[0].IPv4; u != (Count{2, 1, 1, 0}) {
		t.Errorf("usage %+v", u)
	}
}

// TestNothingIsLeft: who has come and gone leaves no trace.
func TestNothingIsLeft(t *testing.T) {
	a, _ := New(Config{Pools: []Pool{auto("p", "192.0.2.0/30", "2001:db8::/64")}})
	want(t, a, t0, service("x", share("k", 80), dual(RequireDualStack, IPv4, IPv6)), "192.0.2.0 2001:db8::")
	want(t, a, t0, service("y", share("k", 81, 82)), "192.0.2.0")
	want(t, a, t0, service("z", share("k", 80), ask("192.0.2.1")), "192.0.2.1")
	if n := a.shared[sharedIn{"k", a.pools["p"], IPv4}].ports[Port{"TCP", 80}]; n != 2 {
		t.Errorf("port 80 is counted on %d addresses", n)
	}
	a.Free(model.ParseKey("default/y"), t0)
	a.Free(model.ParseKey("default/z"), t0)
	for key, s := range a.shared {
		if len(s.ports) != 1 {
			t.Errorf("%v: ports %v", key, s.ports)
		}
	}
	a.Free(model.ParseKey("default/x"), t0)
	if n := len(a.owners) + len(a.holds) + len(a.shared) + len(a.until) + len(a.queue); n != 0 {
		t.Errorf("%d entries are left", n)
	}
	if chunks := a.pools["p"].spaces[0].free.chunks; len(chunks) != 1 || len(chunks[0]) != 1 {
		t.Errorf("free: %v", chunks)
	}
}

// TestPoolErrorsOnce: a pool that overlaps another one twice is told once, and what
// is wrong with one pool is told in the order of the rules.
func TestPoolErrorsOnce(t *testing.T) {
	_, errs := New(Config{Pools: []Pool{auto("a", "192.0.2.1/32", "192.0.2.3/32"), auto("b", "192.0.2.0/24", "192.0.2.3/32", "x")}})
	var rules []PoolRule
	for _, err := range errs {
		rules = append(rules, err.Rule)
	}
	if !slices.Equal(rules, []PoolRule{PoolRange, PoolOverlap}) {
		t.Errorf("errors %v", errs)
	}
}

// TestSome: up to five are named.
func TestSome(t *testing.T) {
	for names, want := range map[string]string{
		"abcde": "a, b, c, d, e", "abcdef": "a, b, c, d, e and 1 more", "": "", "a": "a",
	} {
		var list []string
		for _, r := range names {
			list = append(list, string(r))
		}
		if got := some(list); got != want {
			t.Errorf("%q: %q, want %q", names, got, want)
		}
	}
}

// TestRuleNames: every rule has a name of its own, and what is no rule has none.
func TestRuleNames(t *testing.T) {
	seen := map[string]bool{}
	for r := BadRequest; r <= DuplicateOwner; r++ {
		if name := r.String(); name == "" || name == "Unknown" || seen[name] {
			t.Errorf("rule %d is called %q", r, name)
		}
		seen[r.String()] = true
	}
	if got := (DuplicateOwner + 1).String(); got != "Unknown" {
		t.Errorf("no rule is called %q", got)
	}
}

// TestBounds: what is just allowed, and what is just not.
func TestBounds(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.0/24"))
	var all []string
	for x := netip.MustParseAddr("192.0.2.100"); len(all) <= MaxCount; x = x.Next() {
		all = append(all, x.String())
	}
	want(t, a, t0, service("x", ask(all...)), "BadRequest: a Service has at most 64 addresses of a family")
	if got, err := a.Allocate(service("x", ask(all[:MaxCount]...)), t0); err != nil || len(got.Addresses) != MaxCount {
		t.Errorf("%d addresses, %v", len(got.Addresses), err)
	}
	if got, err := a.Allocate(service("y", count(MaxCount)), t0); err != nil || len(got.Addresses) != MaxCount {
		t.Errorf("%d addresses, %v", len(got.Addresses), err)
	}
	want(t, a, t0, service("z", ask("fe80::1%eth0")), "BadRequest: fe80::1%eth0 is a 4-in-6 address or has a zone")
}

// TestRestoredForm: what is restored has the form of what was allocated, belongs to
// the allocator, and is held once.
func TestRestoredForm(t *testing.T) {
	ports := []Port{{"UDP", 80}, {"TCP", 81}, {"TCP", 80}, {"UDP", 80}, {"TCP", 80}}
	form := []Port{{"TCP", 80}, {"TCP", 81}, {"UDP", 80}}
	a := mustNew(t, auto("p", "192.0.2.0/30"))
	if got, err := a.Allocate(service("x", func(r *Request) { r.Sharing = Sharing{Key: "k", Ports: ports} }), t0); err != nil || !slices.Equal(got.Sharing.Ports, form) {
		t.Errorf("ports %v, %v", got.Sharing.Ports, err)
	}
	x := held("default/y", 7, Sharing{Key: "k", Ports: slices.Clone(ports)}, "192.0.2.1", "192.0.2.1")
	a.Restore([]Assignment{x})
	for i := range x.Sharing.Ports {
		x.Sharing.Ports[i].Number = 82
	}
	got, _ := a.Get(model.ParseKey("default/y"))
	if words(got, nil) != "192.0.2.1" || !got.Created.Equal(at(7)) || !slices.Equal(got.Sharing.Ports, form) {
		t.Errorf("restored %+v", got)
	}
	if by := a.Holders(netip.MustParseAddr("192.0.2.1")); !slices.Equal(by, []model.Key{model.ParseKey("default/y")}) {
		t.Errorf("held by %v", by)
	}
	want(t, a, t0, service("z", share("k", 80)), "192.0.2.0")
	a.Free(model.ParseKey("default/y"), t0)
	want(t, a, t0, service("v", share("k", 80), ask("192.0.2.1")), "192.0.2.1")
}

// TestRestoreTwice: of a Service that is listed twice the same one counts in
// whatever order the list is.
func TestRestoreTwice(t *testing.T) {
	list := []Assignment{held("default/x", 1, Sharing{}, "192.0.2.2"), held("default/x", 1, Sharing{}, "192.0.2.1")}
	for range 2 {
		a := mustNew(t, auto("p", "192.0.2.0/30"))
		c := a.Restore(list)
		if got, _ := a.Get(model.ParseKey("default/x")); len(c) != 1 || words(got, nil) != "192.0.2.1" {
			t.Errorf("restored %+v, conflicts %v", got, c)
		}
		slices.Reverse(list)
	}
}

// TestQueueIsShort: an address that was asked for out of quarantine does not stay in
// the queue of those that rest.
func TestQueueIsShort(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.0/30"))
	for i := range 100 {
		want(t, a, at(0), service("x", ask("192.0.2.1")), "192.0.2.1")
		a.Free(model.ParseKey("default/x"), at(0))
		if len(a.queue) > 2 {
			t.Fatalf("%d entries after %d rounds", len(a.queue), i+1)
		}
	}
	want(t, a, at(0), service("x", ask("192.0.2.1")), "192.0.2.1")
	if len(a.until)+len(a.queue) != 0 {
		t.Errorf("%d rest, %d in the queue", len(a.until), len(a.queue))
	}
}

// TestChunksJoin: chunks that became small are joined, the last one too.
func TestChunksJoin(t *testing.T) {
	const n = chunkMax + 44
	var s set
	for i := range uint64(n) {
		s.add(small(2 * i))
	}
	if len(s.chunks) != 2 {
		t.Fatalf("%d chunks", len(s.chunks))
	}
	first := uint64(len(s.chunks[0]))
	for i := range first - 20 {
		s.remove(small(2 * i))
	}
	for i := uint64(n) - 1; i >= first+20; i-- {
		s.remove(small(2 * i))
	}
	if len(s.chunks) != 1 || s.size != small(40) {
		t.Errorf("%d chunks for %v intervals", len(s.chunks), s.size)
	}
}

// TestPoolOf: no pool gives out an address that it avoids.
func TestPoolOf(t *testing.T) {
	p := auto("p", "192.0.2.0/30")
	p.AvoidBuggyIPs = true
	a := mustNew(t, p)
	for addr, want := range map[string]string{"192.0.2.0": "", "192.0.2.1": "p", "192.0.2.4": "", "2001:db8::": ""} {
		if got := a.PoolOf(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s is of pool %q, want %q", addr, got, want)
		}
	}
}
