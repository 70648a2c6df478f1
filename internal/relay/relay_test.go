package relay

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// eachFamily runs a test for both VIPs.
func eachFamily(t *testing.T, f func(*lab, netip.Addr)) { eachFamilyOf(t, nodes[:2], f) }

// eachFamilyOf runs it with these hosts.
func eachFamilyOf(t *testing.T, hosts []string, f func(*lab, netip.Addr)) {
	t.Parallel()
	for _, vip := range []netip.Addr{vip4, vip6} {
		t.Run(vip.String(), func(t *testing.T) { f(newLabOf(t, hosts), vip) })
	}
}

func TestWithoutRelayConnectionIsReset(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		c := l.mustDial(vip)
		l.servedBy(c, hostA)
		l.steer(vip, hostB)
		l.reset(c)
	})
}

func TestConnectionGoesOnAndNewOneIsOurs(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		b := l.driver(hostB, discard())
		old := l.mustDial(vip)
		l.servedBy(old, hostA)
		b.relay(toward(vip, hostA))
		l.steer(vip, hostB)
		for range 3 {
			l.servedBy(old, hostA)
			l.servedBy(l.mustDial(vip), hostB)
		}
		time.Sleep(100 * time.Millisecond) // the last ACKs of the old connection
		l.count(hostA, vip)
		fresh := l.mustDial(vip)
		l.servedBy(fresh, hostB)
		_ = fresh.Close()
		time.Sleep(50 * time.Millisecond) // FIN and TIME-WAIT are placed, too
		if n := l.counted(hostA, vip); n != 0 {
			l.Errorf("%d packets of a connection of this host were relayed", n)
		}
	})
}

// The end of a connection by the client reaches the node that has it.
func TestResetIsRelayed(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		b := l.driver(hostB, discard())
		c := l.mustDial(vip)
		l.servedBy(c, hostA)
		b.relay(toward(vip, hostA))
		l.steer(vip, hostB)
		l.count(hostA, vip)
		if err := c.(*net.TCPConn).SetLinger(0); err != nil {
			l.Fatal(err)
		}
		_ = c.Close()
		l.eventually("reset", func() bool { return l.counted(hostA, vip) == 1 })
	})
}

// The SYN goes to the old owner and all else to the new one.
func TestSplitHandshake(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		l.script(hostC, fmt.Sprintf(`table netdev split {
			chain out {
				type filter hook egress device eth0 priority 0
				tcp flags & (syn|ack) == syn ether daddr set %s
			}
		}`, macs[hostA]))
		l.steer(vip, hostB)
		c, err := l.dial(vip)
		if err == nil {
			l.reset(c) // the handshake is really split
		}
		b := l.driver(hostB, discard())
		for i := range 50 {
			b.relay(toward(vip, hostA))
			c, err := l.dial(vip)
			if err != nil {
				l.Fatalf("connection %d: %v", i, err)
			}
			l.servedBy(c, hostA)
			_ = c.Close()
		}
	})
}

// A stray packet goes round two nodes that relay to each other, back to the first.
func TestNoLoop(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		const strays = 20
		a, b := l.driver(hostA, discard()), l.driver(hostB, discard())
		a.relay(toward(vip, hostB))
		b.relay(toward(vip, hostA))
		for _, first := range []string{hostA, hostB} {
			l.steer(vip, first)
			l.count(hostA, vip)
			l.count(hostB, vip)
			l.stray(vip, strays)
			want := map[string]int{hostA: strays, hostB: strays}
			want[first] += strays
			l.eventually("tours", func() bool {
				return l.counted(hostA, vip) >= want[hostA] && l.counted(hostB, vip) >= want[hostB]
			})
			time.Sleep(100 * time.Millisecond)
			if x, y := l.counted(hostA, vip), l.counted(hostB, vip); x != want[hostA] || y != want[hostB] {
				l.Errorf("%d strays to %s: %d at A, %d at B", strays, first, x, y)
			}
		}
	})
}

func TestMembersPacketIsNotRelayed(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		b := l.driver(hostB, discard())
		c := l.mustDial(vip)
		l.servedBy(c, hostA)
		r := toward(vip, hostA)
		r.Ring.Peers = append(r.Ring.Peers, macs[hostC])
		b.relay(r)
		l.steer(vip, hostB)
		l.reset(c)
	})
}

// twoVIPs opens a connection to each of two VIPs, both at host A.
func (l *lab) twoVIPs() (other netip.Addr, c, d net.Conn) {
	l.Helper()
	other = netip.MustParseAddr("10.0.0.101")
	for _, h := range []string{hostA, hostB} {
		l.IP(h, "addr add 10.0.0.101/32 dev eth0")
	}
	l.steer(other, hostA)
	return other, l.mustDial(vip4), l.mustDial(other)
}

func TestOnlyTheWantedVIPIsRelayed(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	other, c, d := l.twoVIPs()
	l.servedBy(c, hostA)
	l.servedBy(d, hostA)
	b.relay(toward(vip4, hostA))
	l.steer(vip4, hostB)
	l.steer(other, hostB)
	l.servedBy(c, hostA)
	l.reset(d)
}

// Two VIPs of one family go to different nodes.
func TestTwoFlows(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	other, c, d := l.twoVIPs()
	elsewhere := toward(other, hostA)
	elsewhere.Ring.Next = nodeAddr(hostC, other) // who has no such connection
	b.relay(toward(vip4, hostA), elsewhere)
	l.steer(vip4, hostB)
	l.steer(other, hostB)
	l.count(hostA, other)
	l.servedBy(c, hostA)
	_, _ = d.Write([]byte("who\n"))
	time.Sleep(100 * time.Millisecond)
	if n := l.counted(hostA, other); n != 0 {
		t.Errorf("%d packets went to the node of the other VIP", n)
	}
	b.relay(toward(vip4, hostA), toward(other, hostA))
	l.servedBy(d, hostA) // by a retransmission
	l.servedBy(c, hostA)
}

// brief is a driver whose rules end as soon as those of a daemon.
func (l *lab) brief(host string) *harness {
	h := l.driver(host, discard())
	h.d.lifetime = defaultLifetime
	return h
}

func TestRelayEndsWithoutApply(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		b := l.brief(hostB)
		var c net.Conn
		l.eventually("a relay for longer than the lifetime", func() bool {
			c = l.reachedBy(vip, b)
			return c != nil
		})
		acts := func() bool { return strings.Contains(l.nft(hostB, "list ruleset"), "elements = { "+vip.String()) }
		l.eventually("the end of the lifetime", func() bool { return !acts() })
		frozen := &model.Desired{ValidUntil: time.Now().Add(-time.Second), Relay: []model.Relay{toward(vip, hostA)}}
		// The kernel counts in ticks, and may be some of them ahead of the driver.
		l.eventually("a report after ValidUntil", func() (ended bool) {
			l.In(hostB, func() {
				got, _ := b.d.Apply(l.Context(), frozen)
				ended = !got.VIPs[vip].Relaying
			})
			return ended
		})
		if acts() {
			l.Error("refreshed after ValidUntil")
		}
		l.reset(c)
	})
}

// reachedBy opens a connection to host A and reaches it through host B for longer than
// the lifetime; nil if this machine stood still, so that rules may have ended early.
func (l *lab) reachedBy(vip netip.Addr, b *harness) net.Conn {
	l.Helper()
	l.steer(vip, hostA)
	c := l.mustDial(vip)
	l.servedBy(c, hostA)
	b.relay(toward(vip, hostA))
	l.steer(vip, hostB)
	for range 12 {
		b.relay(toward(vip, hostA))
		applied := time.Now()
		got, err := ask(c)
		time.Sleep(300 * time.Millisecond)
		if time.Since(applied) > time.Second {
			_ = c.Close()
			return nil
		}
		if err != nil || got != hostA {
			l.Fatalf("served by %q, %v; want %s", got, err, hostA)
		}
	}
	return c
}

func TestTableGoes(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		want := toward(vip, hostA)
		b := l.driver(hostB, discard())
		b.relay(want)
		if got := l.tables(hostB); !strings.Contains(got, TableName) || strings.Contains(got, "\n") {
			l.Fatalf("tables: %q", got)
		}
		gone := func(when string) {
			l.Helper()
			if got := l.tables(hostB); got != "" {
				l.Errorf("%s: tables: %q", when, got)
			}
		}
		b.apply()
		gone("nothing wanted")
		b.relay(want)
		next := l.driver(hostB, discard())
		l.In(hostB, func() {
			if err := b.d.Close(l.Context()); err != nil {
				l.Error(err)
			}
			if _, err := next.d.Apply(l.Context(), &model.Desired{Synced: true}); err != nil {
				l.Error(err)
			}
		})
		if rules := l.nft(hostB, "list ruleset"); !strings.Contains(rules, vip.String()) {
			l.Errorf("between two processes, the second does not know its group yet:\n%s", rules)
		}
		next.apply()
		gone("first apply of another process")
		l.driver(hostB, discard()).relay(want)
		for _, there := range []string{strings.TrimSpace(l.tables(hostB)), ""} {
			l.In(hostB, func() {
				removed, err := Cleanup(l.Context())
				if got := strings.Join(removed, "\n"); err != nil || got != there {
					l.Errorf("removed %q, want %q: %v", got, there, err)
				}
			})
			gone("cleaned up")
		}
	})
}

// A second daemon replaces the rules of the first, and a table that somebody
// removed is made again by the next refresh.
func TestTableIsMadeAgain(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		c := l.mustDial(vip)
		l.servedBy(c, hostA)
		elsewhere := toward(vip, hostA)
		elsewhere.Ring.Next = nodeAddr(hostC, vip) // who has no such connection
		l.driver(hostB, discard()).relay(elsewhere)
		l.steer(vip, hostB)
		b := l.brief(hostB)
		b.relay(toward(vip, hostA))
		l.servedBy(c, hostA)
		time.Sleep(100 * time.Millisecond) // the last ACK
		l.nft(hostB, "flush ruleset")
		time.Sleep(defaultLifetime / 3)
		b.relay(toward(vip, hostA))
		l.servedBy(c, hostA)
		if s := l.nft(hostB, "list ruleset"); strings.Count(s, "dup to") != 1 {
			l.Errorf("rules:\n%s", s)
		}
	})
}

func TestRefused(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	for name, change := range map[string]func(*model.Relay){
		"other family":  func(r *model.Relay) { r.Ring.Next = vip6 },
		"nobody":        func(r *model.Relay) { r.Ring.Next = netip.Addr{} },
		"no peers":      func(r *model.Relay) { r.Ring.Peers = nil },
		"no ring":       func(r *model.Relay) { r.Ring = nil },
		"alone":         func(r *model.Relay) { r.Ring.Nodes = 1 },
		"too many":      func(r *model.Relay) { r.Ring.Nodes = model.MaxRing + 1 },
		"no interface":  func(r *model.Relay) { r.Interface = "eth7" },
		"long name":     func(r *model.Relay) { r.Interface = strings.Repeat("e", 20) },
		"not Ethernet":  func(r *model.Relay) { r.Interface = "tun0" },
		"not a link":    func(r *model.Relay) { r.Interface = "" },
		"loopback only": func(r *model.Relay) { r.Interface = "lo" },
	} {
		r := toward(vip4, hostA)
		change(&r)
		got := b.apply(r, toward(vip6, hostA))
		if v := got.VIPs[vip4]; v.Relaying || v.Err == "" {
			t.Errorf("%s: %+v", name, v)
		}
		if v := got.VIPs[vip6]; !v.Relaying {
			t.Errorf("%s: another VIP is not relayed: %+v", name, v)
		}
	}
}

// A kernel that refuses is asked again after a pause only, and with one warning.
func TestKernelRefuses(t *testing.T) {
	l := newLab(t)
	log := &counter{}
	b := l.driver(hostB, log.logger())
	want := []model.Relay{toward(vip4, hostA), toward(vip6, hostA)}
	refused := func() {
		t.Helper()
		got := b.apply(want...)
		for _, w := range want {
			if v := got.VIPs[w.Addr]; v.Relaying || v.Err == "" {
				t.Errorf("%s: %+v", w.Addr, v)
			}
		}
	}
	b.powerless = true
	b.apply() // leftovers that nobody may remove are no failure
	refused()
	b.powerless = false
	refused() // not asked
	for f := range b.d.tables {
		b.d.tables[f].retry = b.d.tables[f].retry.Add(-retryAfter)
	}
	b.relay(want...)
	if log.warnings != 1 || log.others != 0 {
		t.Errorf("%d warnings, %d other lines; want 1 and 0", log.warnings, log.others)
	}
}

func BenchmarkInstall(bm *testing.B) {
	l := newLab(bm)
	b := l.driver(hostB, discard())
	b.apply()
	l.In(hostB, func() {
		want := &model.Desired{Relay: []model.Relay{toward(vip4, hostA), toward(vip6, hostA)}}
		for bm.Loop() {
			bm.StopTimer()
			_, _ = b.d.Apply(bm.Context(), &model.Desired{})
			bm.StartTimer()
			if got, _ := b.d.Apply(bm.Context(), want); got.Err != "" {
				bm.Error(got.Err)
			}
		}
	})
}

func BenchmarkRefresh(bm *testing.B) {
	l := newLab(bm)
	b := l.driver(hostB, discard())
	l.In(hostB, func() {
		want := &model.Desired{Relay: []model.Relay{toward(vip4, hostA), toward(vip6, hostA)}}
		for bm.Loop() {
			for f := range b.d.tables {
				for i := range b.d.tables[f].flows {
					b.d.tables[f].flows[i].renewed = time.Time{}
				}
			}
			if got, _ := b.d.Apply(bm.Context(), want); got.Err != "" {
				bm.Error(got.Err)
			}
		}
	})
}

func BenchmarkRemove(bm *testing.B) {
	l := newLab(bm)
	b := l.driver(hostB, discard())
	l.In(hostB, func() {
		want := &model.Desired{Relay: []model.Relay{toward(vip4, hostA), toward(vip6, hostA)}}
		for bm.Loop() {
			bm.StopTimer()
			_, _ = b.d.Apply(bm.Context(), want)
			bm.StartTimer()
			_, _ = b.d.Apply(bm.Context(), &model.Desired{})
		}
	})
}

// TestSecondInterfaceOnTheLAN: the kernel answers for the VIP on both, so clients may come
// in by the one that the ring is not on, the parent of a macvlan or another card.
func TestSecondInterfaceOnTheLAN(t *testing.T) {
	l := newLab(t)
	const child = "mv0"
	l.IP(hostB, "link add link eth0 name "+child+" address 02:00:00:00:00:77 type macvlan mode bridge")
	l.IP(hostB, "link set "+child+" up")
	l.IP(hostB, "addr add 10.0.0.77/24 dev "+child)
	l.IP(hostB, fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", nodeAddr(hostA, vip4), macs[hostA], child))
	for _, beside := range [][]string{nil, {"eth0"}} {
		l.steer(vip4, hostA)
		c := l.mustDial(vip4)
		l.servedBy(c, hostA)
		r := toward(vip4, hostA)
		r.Interface, r.Ring.Beside = child, beside
		l.driver(hostB, discard()).relay(r)
		l.steer(vip4, hostB) // to the parent
		if beside == nil {
			l.reset(c)
		} else {
			l.servedBy(c, hostA)
		}
	}
	// An owner of a balanced VIP sends on what it is not to serve.
	r := owning(nodes[:2], hostB, vip4, hostA)
	r.Interface, r.Ring.Beside = child, []string{"eth0"}
	l.driver(hostB, discard()).relay(r)
	for range 3 {
		l.servedBy(l.mustDial(vip4), hostA)
	}
	// In IPv6 no interface answers for an address of another.
	l.IP(hostA, fmt.Sprintf("addr del %s/128 dev eth0", vip6))
	l.IP(hostB, fmt.Sprintf("addr del %s/128 dev eth0", vip6))
	l.IP(hostB, fmt.Sprintf("addr add %s/128 dev %s nodad", vip6, child))
	for range 5 {
		l.IP(hostC, fmt.Sprintf("neigh del %s dev eth0", vip6))
		l.servedBy(l.mustDial(vip6), hostB)
		if got := l.IP(hostC, "neigh show "+vip6.String()); !strings.Contains(got, "02:00:00:00:00:77") {
			t.Errorf("who has %s: %s", vip6, got)
		}
	}
}
