package ring

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/fieldtest"
	"lbd.dev/lbd/internal/model"
)

var (
	now  = time.Unix(10_000, 0)
	four = netip.MustParseAddr("10.0.0.200")
	six  = netip.MustParseAddr("fd00::200")
)

// name and at are the name and the address of the i-th node.
func name(i int) model.NodeName { return model.NodeName(fmt.Sprintf("m%02d", i)) }
func at(i int) netip.Addr       { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}) }

// world is the first of so many nodes on one link, all of which have connections to a VIP.
func world(nodes int) *model.View {
	v := &model.View{Now: now, Self: name(1), Links: map[string]model.Link{}, Applied: map[model.SinkName]model.Applied{}}
	v.Links["eth0"] = model.Link{Name: "eth0", Up: true, Prefixes: []netip.Prefix{netip.PrefixFrom(at(1), 24)}}
	v.Gossip.Members = map[model.NodeName]model.Member{}
	v.Gossip.Holders = map[netip.Addr][]model.NodeName{}
	for i := 2; i <= nodes; i++ {
		v.Gossip.Members[name(i)] = model.Member{Name: name(i), Addrs: []netip.Addr{at(i)}, MACs: []model.MAC{{2, byte(i)}}}
		v.Gossip.Holders[four] = append(v.Gossip.Holders[four], name(i))
	}
	return v
}

// change changes what is known of the i-th node.
func change(v *model.View, i int, f func(*model.Member)) {
	m := v.Gossip.Members[name(i)]
	f(&m)
	v.Gossip.Members[name(i)] = m
}

// plain asks for the ring of a VIP that this node owns on the LAN.
func plain() *Request {
	return &Request{VIP: &model.VIP{Addr: four, L2: true}, Terms: Terms{Interface: "eth0", Is4: true}}
}

// balanced is plain; the new connections are to be spread.
func balanced() *Request {
	r := plain()
	r.VIP.Balanced, r.Shared, r.Spreads, r.Standing = true, true, true, model.ReasonStandby
	return r
}

// TestSameParts: a ring serves the next VIP too if that has the same parts, so each field counts.
func TestSameParts(t *testing.T) {
	fieldtest.Same(t, (*parts).same)
}

// TestManyVIPsShareOneRing: thousands of VIPs of the same nodes cost one ring, and that of the
// decision before if it is the same.
func TestManyVIPsShareOneRing(t *testing.T) {
	v := world(3)
	was := New(v, 1, election.RulesVersion)
	_, before := was.Of(balanced())
	all := New(v, 2, election.RulesVersion)
	v.Gossip.Eligible = map[netip.Addr][]model.NodeName{four: {name(2)}}
	r := plain()
	r.Was = before
	if _, ring := all.Of(r); ring == before || ring == nil {
		t.Errorf("one that is not shared is %+v", ring)
	}
	r = balanced()
	r.VIP.Balanced = false
	r.Spreads, r.Was = false, before
	if _, ring := all.Of(r); ring != before {
		t.Errorf("%+v is not taken over, but %+v made", before, ring)
	}
	_, ring := all.Of(balanced())
	if ring == before || len(ring.Spread) != 2 {
		t.Errorf("spread %+v", ring)
	}
	r = balanced()
	if n := testing.AllocsPerRun(100, func() { _, _ = all.Of(r) }); n > 0 {
		t.Errorf("%v allocations for the next VIP", n)
	}
}

// TestLifetimes: how long rules act without a refresh.
func TestLifetimes(t *testing.T) {
	for want, terms := range map[time.Duration]Terms{
		RulesLast: {}, SharedLifetime: {Shared: true}, time.Minute: {Kept: time.Minute}, time.Hour: {Kept: time.Hour, Shared: true},
	} {
		if got := terms.lifetime(); got != want {
			t.Errorf("%+v: %v, want %v", terms, got, want)
		}
	}
}

// TestNobodyElse: there is no ring of one node, and none is asked for without another one.
func TestNobodyElse(t *testing.T) {
	v := world(1)
	all := New(v, 1, election.RulesVersion)
	if on, ring := all.Of(plain()); ring != nil || on != "" {
		t.Errorf("alone: %q, %+v", on, ring)
	}
	v = world(2)
	change(v, 2, func(m *model.Member) { m.Addrs = []netip.Addr{netip.MustParseAddr("10.9.0.2")} })
	if _, ring := all.Of(plain()); ring != nil {
		t.Errorf("the other one is on no link: %+v", ring)
	}
	// The former owner is in the ring before the group says so.
	v = world(2)
	v.Gossip.Holders = nil
	all = New(v, 1, election.RulesVersion)
	r := plain()
	r.From = name(2)
	if on, ring := all.Of(r); ring == nil || on != "eth0" || ring.Nodes != 2 || ring.Next != at(2) {
		t.Errorf("taken over: %q, %+v", on, ring)
	}
}

// TestWhatRingsNeed: layer 2 is asked for late nodes in the order of their addresses, not for
// one that is left out for good, and heartbeats come from those before this one.
func TestWhatRingsNeed(t *testing.T) {
	v := world(5)
	late := now.Add(-100 * time.Millisecond)
	for _, i := range []int{4, 3, 2} {
		change(v, i, func(m *model.Member) { m.Late = late })
	}
	change(v, 2, func(m *model.Member) { m.State, m.Gone = model.MemberLeft, now.Add(-time.Second) })
	probe := func(i int, since time.Time) model.RingProbe {
		return model.RingProbe{Node: name(i), Interface: "eth0", Late: since, Series: 5, Asked: now.Add(-300 * time.Millisecond)}
	}
	v.Memory.Rings = map[netip.Addr]model.RingProbe{at(2): probe(2, now.Add(-time.Second)), at(3): probe(3, late)}
	v.Applied[model.SinkLayer2] = model.Applied{VIPs: map[netip.Addr]model.AppliedVIP{
		at(2): {Probe: model.ProbeResult{Series: 5, Done: true}}, at(3): {Probe: model.ProbeResult{Series: 5, Done: true, Answered: true}},
	}}
	all := New(v, 9, election.RulesVersion)
	if _, ring := all.Of(plain()); ring.Nodes != 4 || ring.Next != at(3) {
		t.Errorf("%+v", ring)
	}
	o := all.Output()
	want := []model.L2Advert{
		{Addr: at(3), Interface: "eth0", Mode: model.L2Probe, Series: 5, Lasts: Probe},
		{Addr: at(4), Interface: "eth0", Mode: model.L2Probe, Series: 9, Lasts: Probe},
	}
	if len(o.Questions) != 2 || o.Questions[0] != want[0] || o.Questions[1] != want[1] {
		t.Errorf("asks %+v, want %+v", o.Questions, want)
	}
	if p := o.Probes[at(2)]; !p.Gone || !p.Silent || len(o.Probes) != 3 || !o.Probes[at(3)].Answers {
		t.Errorf("remembers %+v", o.Probes)
	}
	if len(o.Left) != 1 || !o.Left[name(2)].Equal(now.Add(-time.Second)) {
		t.Errorf("left %v", o.Left)
	}
	if !slices.Equal(o.Heartbeats, []model.NodeName{name(5), name(4)}) {
		t.Errorf("heartbeats of %v", o.Heartbeats)
	}
	if want := now.Add(700 * time.Millisecond); !o.Wake.Equal(want) {
		t.Errorf("wakes %v, want %v", o.Wake, want)
	}
	// In the next decision it stays out without being asked for.
	v.Memory.Rings, v.Memory.Left = o.Probes, o.Left
	all = New(v, 10, election.RulesVersion)
	_, ring := all.Of(plain())
	if o = all.Output(); ring.Nodes != 4 || len(o.Questions) != 2 || !o.Probes[at(2)].Gone {
		t.Errorf("%+v, asks %+v, remembers %+v", ring, o.Questions, o.Probes)
	}
}
