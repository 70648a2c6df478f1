package relay

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// sharing is the ring of these hosts as one of them knows it that is silent.
func sharing(hosts []string, host string, vip netip.Addr) model.Relay {
	r := ringAt(hosts, slices.Index(hosts, host), vip)
	r.Ring.Shared = true
	return r
}

// owning is the ring of these hosts as their owner knows it, which spreads new
// connections over some of them.
func owning(hosts []string, owner string, vip netip.Addr, over ...string) model.Relay {
	r := sharing(hosts, owner, vip)
	for _, h := range over {
		b := model.Backend{Node: model.NodeName(h)}
		if h != owner {
			b.Addr = nodeAddr(h, vip)
		}
		r.Ring.Spread = append(r.Ring.Spread, b)
	}
	return r
}

// balanced makes a ring of hosts with an owner, over all of which it spreads.
func (l *lab) balanced(vip netip.Addr, hosts []string, owner string) map[string]*harness {
	l.Helper()
	drivers := make(map[string]*harness)
	for _, h := range hosts {
		drivers[h] = l.driver(h, discard())
		drivers[h].relay(sharing(hosts, h, vip))
	}
	drivers[owner].relay(owning(hosts, owner, vip, hosts...))
	l.steer(vip, owner)
	return drivers
}

// both runs a test for both VIPs with three hosts.
func both(t *testing.T, f func(*lab, netip.Addr, []string)) {
	eachFamilyOf(t, nodes[:3], func(l *lab, vip netip.Addr) { f(l, vip, nodes[:3]) })
}

func backends(names ...string) (out []model.Backend) {
	for _, n := range names {
		out = append(out, model.Backend{Node: model.NodeName(n)})
	}
	return out
}

func shares(backends []model.Backend) map[model.NodeName]int {
	n := make(map[model.NodeName]int)
	for _, of := range spreadTable(backends) {
		n[backends[of].Node]++
	}
	return n
}

// Equal nodes get equal shares, heavier ones more, and a node that goes moves only the
// slots that it had.
func TestSlots(t *testing.T) {
	all := backends("m1", "m2", "m3", "m4", "m5")
	for n := 1; n <= len(all); n++ {
		for node, got := range shares(all[:n]) {
			if even := slots / n; got < even*4/5 || got > even*6/5 {
				t.Errorf("%s has %d of %d slots, of %d nodes", node, got, slots, n)
			}
		}
	}
	heavy := backends("m1", "m2")
	heavy[0].Weight = 3 * model.DefaultWeight
	if got := shares(heavy)["m1"]; got < slots*7/10 || got > slots*8/10 {
		t.Errorf("a node with three times the weight has %d of %d slots", got, slots)
	}
	with, less := backends("m1", "m2", "m3"), backends("m1", "m3")
	before, after := spreadTable(with), spreadTable(less)
	for slot := range before {
		if was, is := with[before[slot]].Node, less[after[slot]].Node; was != "m2" && was != is {
			t.Fatalf("slot %d moved from %s to %s when m2 went", slot, was, is)
		}
	}
}

// countSYN begins to count the opening segments that arrive at a host for a VIP.
func (l *lab) countSYN(host string, vip netip.Addr) func() int {
	f := familyOf(vip)
	return l.tally(host, f, "opened", fmt.Sprintf("iifname eth0 %s daddr %s tcp flags & (syn|ack) == syn", f, vip))
}

// Of thousands of connections each node gets its share, and none goes to two.
func TestEachNodeGetsItsShare(t *testing.T) {
	both(t, func(l *lab, vip netip.Addr, hosts []string) {
		const opened = 3000
		l.balanced(vip, hosts, hostA)
		counts := make(map[string]func() int)
		for _, h := range hosts {
			counts[h] = l.countSYN(h, vip)
		}
		l.segments(vip, opened, syn)
		l.eventually("all have come", func() bool { return counts[hostA]() == opened })
		others := 0
		for _, h := range hosts[1:] {
			n := counts[h]()
			others += n
			if n < opened/4 || n > opened*5/12 {
				t.Errorf("%d of %d for %s", n, opened, h)
			}
		}
		t.Logf("of %d others have %d: %d and %d", opened, others, counts[hosts[1]](), counts[hosts[2]]())
		if own := opened - others; own < opened/4 || own > opened*5/12 {
			t.Errorf("%d of %d for the owner", own, opened)
		}
		// The program can list what the driver has made.
		if text := l.nft(hostA, fmt.Sprintf("list table %s %s", familyOf(vip), TableName)); !strings.Contains(text, "jhash") || !strings.Contains(text, "mod 1024 seed 0x1bd vmap { 0 : goto ") {
			t.Errorf("no hash in %s", text)
		}
	})
}

// The rules of a ring that is not for a balanced VIP have nothing of spreading: no chain,
// no map, and no mark of what an owner has sent on.
func TestPlainRingHasNoSpread(t *testing.T) {
	both(t, func(l *lab, vip netip.Addr, hosts []string) {
		d := l.driver(hostB, discard())
		list := func() string { return l.nft(hostB, fmt.Sprintf("list table %s %s", familyOf(vip), TableName)) }
		words := []string{"own0", "self0", "spread0", "choose0", "jhash", "0x30"}
		d.relay(owning(hosts, hostB, vip, hosts...))
		spread := list()
		d.relay(ringAt(hosts, 1, vip))
		plain := list()
		for _, w := range words {
			if !strings.Contains(spread, w) || strings.Contains(plain, w) {
				t.Errorf("%s: in the rules that spread %v, in plain ones %v", w, strings.Contains(spread, w), strings.Contains(plain, w))
			}
		}
	})
}

// What nft lists of rules that spread can be loaded again, as by people who save all that
// their kernel has.
func TestSpreadLoadsAgain(t *testing.T) {
	both(t, func(l *lab, vip netip.Addr, hosts []string) {
		d := l.driver(hostA, discard())
		d.relay(owning(hosts, hostA, vip, hosts...))
		table := fmt.Sprintf("table %s %s", familyOf(vip), TableName)
		list := func() (all, rules string) {
			all = l.nft(hostA, "list "+table)
			_, rules, _ = strings.Cut(all, "chain prerouting") // before that there are times
			return all, rules
		}
		all, was := list()
		l.script(hostA, "delete "+table+"\n"+all)
		if _, is := list(); is != was || !strings.Contains(is, "jhash") {
			l.Errorf("loaded again:\n%s\nbefore:\n%s", is, was)
		}
	})
}

// held opens connections until every host has some, and remembers which.
func (l *lab) held(vip netip.Addr, hosts []string, n int) map[net.Conn]string {
	l.Helper()
	conns, has := make(map[net.Conn]string), make(map[string]int)
	for range n {
		c := l.mustDial(vip)
		who, err := ask(c)
		if err != nil {
			l.Fatal(err)
		}
		conns[c] = who
		has[who]++
	}
	for _, h := range hosts {
		if has[h] == 0 {
			l.Fatalf("none of %d connections is at %s: %v", n, h, has)
		}
	}
	return conns
}

func (l *lab) allServed(what string, conns map[net.Conn]string) {
	l.Helper()
	for c, host := range conns {
		if got, err := ask(c); err != nil || got != host {
			l.Fatalf("%s: served by %q, %v; want %s", what, got, err, host)
		}
	}
}

// No change of the table moves an open connection, nor does another owner; one that
// dies costs its own.
func TestNoConnectionMovesWithTheTable(t *testing.T) {
	both(t, func(l *lab, vip netip.Addr, hosts []string) {
		drivers := l.balanced(vip, hosts, hostA)
		conns := l.held(vip, hosts, 30)
		a, b, d := hosts[0], hosts[1], hosts[2]
		l.allServed("as opened", conns)
		for _, over := range [][]string{{a, b}, {d}, {b}, {a}, {b, d}, nil, hosts} {
			drivers[a].relay(owning(hosts, a, vip, over...))
			l.allServed(fmt.Sprintf("over %v", over), conns)
			for range 5 {
				if got, err := ask(l.mustDial(vip)); err != nil || len(over) > 0 && !slices.Contains(over, got) || len(over) == 0 && got != a {
					t.Fatalf("over %v a new one is served by %q, %v", over, got, err)
				}
			}
		}
		// Another owner, while the old one still believes that it is one.
		drivers[d].relay(owning(hosts, d, vip, hosts...))
		l.steer(vip, d)
		l.allServed("owner moved", conns)
		l.steer(vip, a)
		l.allServed("owner moved back", conns)

		l.IP(hostS, "link set p"+a+" down")
		alive := hosts[1:]
		drivers[b].relay(sharing(alive, b, vip))
		drivers[d].relay(owning(alive, d, vip, alive...))
		l.steer(vip, d)
		for c, host := range conns {
			if host == a {
				delete(conns, c)
			}
		}
		l.allServed("owner died", conns)
		for range 10 {
			if got, err := ask(l.mustDial(vip)); err != nil || got == a {
				t.Fatalf("after its death served by %q, %v", got, err)
			}
		}
	})
}

// The ACK of a SYN cookie is checked by the node that made it. Here any node could: the
// namespaces share the secret of their kernel.
func TestSpreadCookies(t *testing.T) {
	both(t, func(l *lab, vip netip.Addr, hosts []string) {
		for _, h := range hosts {
			l.ExecOn(h, "sysctl", "-qw net.ipv4.tcp_syncookies=2")
		}
		drivers := l.balanced(vip, hosts, hostA)
		for _, h := range hosts {
			drivers[hostA].relay(owning(hosts, hostA, vip, h))
			for range 5 {
				l.servedBy(l.mustDial(vip), h)
			}
		}
	})
}

// What nobody has ends, is reset once, and is relayed no more often than once to the
// node of its slot and once round, also where all believe that they are the owner.
func TestSpreadStraysEnd(t *testing.T) {
	both(t, func(l *lab, vip netip.Addr, hosts []string) {
		const strays = 30
		drivers := l.balanced(vip, hosts, hostA)
		for _, all := range []bool{false, true} {
			if all {
				for _, h := range hosts {
					drivers[h].relay(owning(hosts, h, vip, hosts...))
				}
			}
			l.countAll(vip, hosts)
			resets := l.resets(vip)
			l.stray(vip, strays)
			l.eventually("resets", func() bool { return resets() >= strays })
			if got := l.arrived(vip, hosts); got < strays*(1+len(hosts)) || got > strays*(2+len(hosts)) {
				t.Errorf("%d packets arrived of %d strays, all own: %v", got, strays, all)
			}
			if got := resets(); got != strays {
				t.Errorf("%d resets of %d strays, all own: %v", got, strays, all)
			}
		}
		// The relay to the node of the slot is not counted: the tour is a whole one.
		drivers[hostA].relay(owning(hosts, hostA, vip, hosts[2]))
		for _, h := range hosts[1:] {
			drivers[h].relay(sharing(hosts, h, vip))
		}
		l.countAll(vip, hosts)
		resets := l.resets(vip)
		l.stray(vip, strays)
		l.eventually("resets", func() bool { return resets() >= strays })
		if got := l.arrived(vip, hosts); got != strays*(2+len(hosts)) {
			t.Errorf("%d packets arrived of %d strays that were sent to another node first", got, strays)
		}
	})
}

// A node of the table without a server costs no connection.
func TestSpreadServerDown(t *testing.T) {
	l := newLabOf(t, nodes[:3])
	l.balanced(vip4, nodes[:3], hostA)
	for i, h := range []string{hostB, hostA} {
		l.stop(h)
		for range 20 {
			got, err := ask(l.mustDial(vip4))
			if err != nil || got == hostB || i > 0 && got == hostA {
				t.Fatalf("without servers up to %s served by %q, %v", h, got, err)
			}
		}
	}
}

// A server of the owner that is bound to the VIP is served as ever.
func TestNoSpreadToBoundListener(t *testing.T) {
	l := newLabOf(t, nodes[:3])
	l.balanced(vip4, nodes[:3], hostA)
	l.stop(hostA)
	l.serveAt(hostA, netip.AddrPortFrom(vip4, port).String())
	for range 20 {
		l.servedBy(l.mustDial(vip4), hostA)
	}
}

// Backends that packets could not be sent to are refused, and with them the ring.
func TestInsaneSpread(t *testing.T) {
	l := newLab(t)
	h := l.driver(hostA, discard())
	hosts := nodes[:2]
	for what, r := range map[string]model.Relay{
		"family": owning(hosts, hostA, vip4, hostA, hostB),
		"many":   owning(hosts, hostA, vip4, hostA, hostB, "d"),
	} {
		if what == "family" {
			r.Ring.Spread[1].Addr = nodeAddr(hostB, vip6)
		}
		if got := h.apply(r).VIPs[vip4]; got.Relaying || got.Err == "" {
			t.Errorf("%s: %+v", what, got)
		}
	}
	// Why there is no ring at all is more than why it does not spread.
	r := owning(hosts, hostA, vip4, hosts...)
	r.Ring.Peers = nil
	h.d.tables[v4].even = ability{"no hash", time.Now()}
	if got := h.apply(r).VIPs[vip4]; !strings.Contains(got.Err, "no hardware address") {
		t.Errorf("without a ring: %+v", got)
	}
}

// A kernel that cannot spread has rings that do not: the owner takes all that is new,
// and what others have is found. It is asked again now and then.
func TestKernelWithoutHash(t *testing.T) {
	both(t, func(l *lab, vip netip.Addr, hosts []string) {
		drivers := l.balanced(vip, hosts, hostA)
		conns := l.held(vip, hosts, 30)
		owner := drivers[hostA]
		table := &owner.d.tables[familyOf(vip)]
		table.even = ability{"no hash", time.Now()}
		want := owning(hosts, hostA, vip, hosts...)
		plain := toward(vip.Next(), hostB)
		got := owner.apply(want, plain).VIPs
		if !got[vip].Relaying || !strings.Contains(got[vip].Err, "no hash") || !got[plain.Addr].Relaying || got[plain.Addr].Err != "" {
			t.Errorf("%+v", got)
		}
		if len(want.Ring.Spread) != len(hosts) {
			t.Error("what the decision asks for was changed")
		}
		l.allServed("not spread", conns)
		for range 5 {
			l.servedBy(l.mustDial(vip), hostA)
		}
		table.even.asked = table.even.asked.Add(-retryAfter)
		if got := owner.apply(want); !got.VIPs[vip].Relaying || got.VIPs[vip].Err != "" {
			t.Errorf("asked again: %+v", got.VIPs[vip])
		}
		table.even.asked = table.even.asked.Add(-retryAfter)
		if was := table.even.asked; !owner.apply(want).VIPs[vip].Relaying || table.even.asked != was {
			t.Error("asked again although it spreads")
		}
		l.allServed("spread again", conns)
		l.held(vip, hosts, 30)
	})
}

// Whether the kernel can spread is found out without a change, and without the right to
// change anything.
func TestAskForHash(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	b.relay(toward(vip4, hostA))
	// Lifetimes run down meanwhile.
	rules := func() string { return expires.ReplaceAllString(l.nft(hostB, "list ruleset"), "expires soon") }
	before := rules()
	l.In(hostB, func() {
		for f := range families {
			if g := sample(f, true); !spreads(g.ring) || familyOf(g.ring.Spread[1].Addr) != f {
				t.Errorf("%s: it is asked for %+v", f, g.ring)
			}
			if !b.d.spreadable(f, time.Now()) {
				t.Errorf("%s: %s", f, b.d.tables[f].even.why)
			}
		}
		for _, vip := range []netip.Addr{vip4, vip6} {
			if why := Unspreadable(vip); why != "" {
				t.Errorf("%s: %s", vip, why)
			}
		}
	})
	if after := rules(); strings.Contains(after, "hash") || before != after {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	refused := l.driver(hostB, discard())
	refused.powerless = true
	if got := refused.apply(owning(nodes[:2], hostB, vip4, nodes[:2]...)); got.VIPs[vip4].Err == "" || refused.d.tables[v4].even.why == "" {
		t.Errorf("without the right to relay: %+v", got.VIPs[vip4])
	}
	l.In(hostB, func() {
		dropRights(t)
		if Unspreadable(vip4) == "" || Unspreadable(vip6) == "" {
			t.Error("Unspreadable knows nothing of a missing right")
		}
	})
}
