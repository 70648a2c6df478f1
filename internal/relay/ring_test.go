package relay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// ringAt is the ring of these hosts as the one at place i knows it. It acts for longer
// than any test is slow.
func ringAt(hosts []string, i int, vip netip.Addr) model.Relay {
	next := hosts[(i+1)%len(hosts)]
	r := &model.Ring{
		Nodes: len(hosts), Next: nodeAddr(next, vip), Lifetime: 10 * time.Minute,
		Ends: []netip.Addr{nodeAddr(hosts[i], vip), nodeAddr(next, vip)},
	}
	for _, n := range nodes {
		if n != hosts[i] {
			r.Peers = append(r.Peers, macs[n])
			r.Origins = append(r.Origins, model.Origin{MAC: macs[n], Addr: nodeAddr(n, vip)})
		}
	}
	return model.Relay{Addr: vip, Interface: "eth0", Ring: r}
}

// ring makes a ring of hosts.
func (l *lab) ring(vip netip.Addr, hosts ...string) []*harness {
	l.Helper()
	var out []*harness
	for i, h := range hosts {
		d := l.driver(h, discard())
		d.relay(ringAt(hosts, i, vip))
		out = append(out, d)
	}
	return out
}

// eachRing runs a test with rings of two to six hosts, for both VIPs.
func eachRing(t *testing.T, f func(*lab, netip.Addr, []string)) {
	t.Parallel()
	for n := 2; n <= len(nodes); n++ {
		for _, vip := range []netip.Addr{vip4, vip6} {
			t.Run(fmt.Sprintf("%d nodes, %s", n, familyOf(vip)), func(t *testing.T) {
				f(newLabOf(t, nodes[:n]), vip, nodes[:n])
			})
		}
	}
}

// arrived adds up what has arrived at the hosts, once no more comes.
func (l *lab) arrived(vip netip.Addr, hosts []string) (sum int) {
	l.Helper()
	before := -1
	l.eventually("quiet", func() bool {
		sum = 0
		for _, h := range hosts {
			sum += l.counted(h, vip)
		}
		same := sum == before
		before = sum
		time.Sleep(50 * time.Millisecond)
		return same
	})
	return sum
}

func (l *lab) countAll(vip netip.Addr, hosts []string) {
	l.Helper()
	for _, h := range hosts {
		l.count(h, vip)
	}
}

// resets counts the resets that a VIP sends to the client.
func (l *lab) resets(vip netip.Addr) func() int {
	f := familyOf(vip)
	return l.tally(hostC, f, "resets", fmt.Sprintf("%s saddr %s tcp flags & rst == rst", f, vip))
}

// A connection is served by the node that has it, wherever its packets come in.
func TestRingFindsTheConnection(t *testing.T) {
	eachRing(t, func(l *lab, vip netip.Addr, hosts []string) {
		l.ring(vip, hosts...)
		conns := make(map[string]net.Conn)
		for _, h := range hosts {
			l.steer(vip, h)
			conns[h] = l.mustDial(vip)
			l.servedBy(conns[h], h)
		}
		for _, in := range hosts {
			l.steer(vip, in)
			for _, h := range hosts {
				l.servedBy(conns[h], h)
			}
		}
	})
}

// What nobody has goes round once and is reset once, by the node where it came in.
func TestStrayGoesRoundOnce(t *testing.T) {
	eachRing(t, func(l *lab, vip netip.Addr, hosts []string) {
		const strays = 20
		l.ring(vip, hosts...)
		first := hosts[len(hosts)/2]
		l.steer(vip, first)
		l.countAll(vip, hosts)
		resets := l.resets(vip)
		l.stray(vip, strays)
		l.eventually("resets", func() bool { return resets() >= strays })
		if got := l.arrived(vip, hosts); got != strays*(1+len(hosts)) {
			l.Errorf("%d packets arrived, want %d relays of each of %d", got, len(hosts), strays)
		}
		if got := l.counted(first, vip); got != 2*strays {
			l.Errorf("%d packets at the first node, want %d", got, 2*strays)
		}
		if got := resets(); got != strays {
			l.Errorf("%d resets of %d strays", got, strays)
		}
	})
}

// A ring with dead nodes loses what they would have passed on, and no packet goes
// on for ever. The others serve their connections again when the ring is theirs.
func TestDeadNodes(t *testing.T) {
	l := newLabOf(t, nodes[:4])
	hosts := nodes[:4]
	drivers := l.ring(vip4, hosts...)
	conns := make([]net.Conn, len(hosts))
	for subset := 1; subset < 1<<len(hosts)-1; subset++ {
		dead := func(i int) bool { return subset&(1<<i) != 0 }
		var alive []string
		for i, h := range hosts {
			drivers[i].relay(ringAt(hosts, i, vip4))
			l.steer(vip4, h)
			conns[i] = l.mustDial(vip4)
			l.servedBy(conns[i], h)
			if !dead(i) {
				alive = append(alive, h)
			}
		}
		for i, h := range hosts {
			if dead(i) {
				l.IP(hostS, "link set p"+h+" down")
			}
		}
		const strays = 5
		l.steer(vip4, alive[0])
		l.countAll(vip4, hosts)
		l.stray(vip4, strays)
		if got := l.arrived(vip4, hosts); got < strays || got > strays*(1+len(hosts)) {
			t.Errorf("dead %04b: %d packets of %d strays", subset, got, strays)
		}
		if len(alive) > 1 {
			for i, h := range alive {
				drivers[slices.Index(hosts, h)].relay(ringAt(alive, i, vip4))
			}
			for _, h := range alive {
				l.servedBy(conns[slices.Index(hosts, h)], h)
			}
		}
		for _, h := range hosts {
			l.IP(hostS, "link set p"+h+" up")
			l.neighbours(h)
		}
		for _, c := range conns {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}
}

// Nodes that believe in rings of all sizes, orders and generations at once: every
// packet ends, after as many relays as the largest of them has nodes.
func TestStaleRings(t *testing.T) {
	l := newLabOf(t, nodes)
	r := rand.New(rand.NewPCG(7, 9))
	drivers := make([]*harness, len(nodes))
	for i, h := range nodes {
		drivers[i] = l.driver(h, discard())
	}
	for round := range 30 {
		vip := []netip.Addr{vip4, vip6}[round%2]
		largest := 0
		for i, h := range nodes {
			hosts := slices.Clone(nodes)
			r.Shuffle(len(hosts), func(a, b int) { hosts[a], hosts[b] = hosts[b], hosts[a] })
			if at := slices.Index(hosts, h); at > 1 {
				hosts[at], hosts[1] = hosts[1], hosts[at]
			}
			hosts = hosts[:2+r.IntN(len(hosts)-1)]
			want := ringAt(hosts, slices.Index(hosts, h), vip)
			want.Ring.Nodes += r.IntN(3)
			largest = max(largest, want.Ring.Nodes)
			drivers[i].relay(want)
		}
		const strays = 10
		l.steer(vip, nodes[r.IntN(len(nodes))])
		l.countAll(vip, nodes)
		resets := l.resets(vip)
		l.stray(vip, strays)
		l.eventually("resets", func() bool { return resets() >= strays })
		got := l.arrived(vip, nodes)
		if got > strays*(1+largest) || resets() != strays {
			t.Errorf("round %d: %d packets of %d strays in rings of up to %d; %d resets", round, got, strays, largest, resets())
		}
	}
}

// Where nobody believes anybody, the TTL ends it.
func TestTTLBoundsTheTour(t *testing.T) {
	l := newLabOf(t, nodes[:3])
	hosts := nodes[:3]
	for _, vip := range []netip.Addr{vip4, vip6} {
		for i, h := range hosts {
			r := ringAt(hosts, i, vip)
			r.Ring.Peers, r.Ring.Origins = []model.MAC{macs["g"]}, nil
			l.driver(h, discard()).relay(r)
		}
		l.steer(vip, hostA)
		l.countAll(vip, hosts)
		resets := l.resets(vip)
		l.stray(vip, 1)
		l.eventually("reset", func() bool { return resets() == 1 })
		if got := l.arrived(vip, hosts); got < 10 || got > 64 {
			t.Errorf("%s: %d relays by a TTL of 64", vip, got)
		}
	}
}

// A switch that clears the DSCP costs the second relay, not more.
func TestClearedDSCP(t *testing.T) {
	l := newLabOf(t, nodes[:4])
	hosts := nodes[:4]
	for _, vip := range []netip.Addr{vip4, vip6} {
		l.ring(vip, hosts...)
		f := familyOf(vip)
		for _, h := range hosts {
			l.script(h, fmt.Sprintf(`table netdev clear%[1]s {
				chain out { type filter hook egress device eth0 priority 0; %[1]s daddr %[2]s %[1]s dscp set 0; }
			}`, f, vip))
		}
		l.steer(vip, hostB)
		l.countAll(vip, hosts)
		resets := l.resets(vip)
		l.stray(vip, 10)
		l.eventually("resets", func() bool { return resets() == 10 })
		if got := l.arrived(vip, hosts); got != 20 {
			t.Errorf("%s: %d packets of 10 strays, want one relay of each", vip, got)
		}
	}
}

// A SYN that finds no listener goes on to a node that has one; if none has, the
// client is refused as ever.
func TestServerIsDead(t *testing.T) {
	eachFamilyOf(t, nodes[:3], func(l *lab, vip netip.Addr) {
		hosts := nodes[:3]
		l.ring(vip, hosts...)
		l.steer(vip, hostA)
		l.stop(hostA)
		for range 20 {
			l.servedBy(l.mustDial(vip), hostB)
		}
		l.stop(hostB)
		kept := l.mustDial(vip)
		l.servedBy(kept, hosts[2])
		l.stop(hosts[2])
		if _, err := l.dial(vip); !errors.Is(err, unix.ECONNREFUSED) {
			l.Errorf("all servers are dead: %v, want a refusal", err)
		}
		l.servedBy(kept, hosts[2])
	})
}

// A connection that a node of the group has opened itself is found like any other.
func TestConnectionsOfNodes(t *testing.T) {
	l := newLabOf(t, nodes[:3])
	own := nodes[2]
	for _, vip := range []netip.Addr{vip4, vip6} {
		l.IP(own, fmt.Sprintf("addr del %s/%d dev eth0", vip, vip.BitLen()))
		l.ring(vip, hostA, hostB)
		dial := func() (c net.Conn) {
			var err error
			l.neigh(own, vip, hostA)
			l.In(own, func() { c, err = net.DialTimeout("tcp", netip.AddrPortFrom(vip, port).String(), 5*time.Second) })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			l.servedBy(c, hostA)
			l.neigh(own, vip, hostB)
			return c
		}
		l.servedBy(dial(), hostA)
		// The next node of the ring may be its own source: it would take no such packet.
		c := dial()
		l.driver(hostB, discard()).relay(ringAt([]string{hostB, own}, 0, vip))
		l.count(own, vip)
		l.reset(c)
		if n := l.counted(own, vip); n != 0 {
			l.Errorf("%s: %d packets were relayed to the host that sent them", vip, n)
		}
	}
}

// A packet that is not relayed keeps its DSCP. One that is has the default at its
// end, and its ECN all the way.
func TestDSCP(t *testing.T) {
	l := newLabOf(t, nodes[:3])
	hosts := nodes[:3]
	const voice, capable = 0x2e, 1 // EF and ECT(1)
	for _, vip := range []netip.Addr{vip4, vip6} {
		f := familyOf(vip)
		l.ring(vip, hosts...)
		l.steer(vip, hostA)
		c := l.mustDial(vip)
		l.servedBy(c, hostA)
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			if vip.Is4() {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, voice<<2)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TCLASS, voice<<2)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		l.script(hostC, fmt.Sprintf(`table %[1]s capable { chain out { type filter hook output priority 0; %[1]s daddr %[2]s %[1]s ecn set %[3]d; }; }`, f, vip, capable))
		// Whatever else arrives in the stack is counted as wrong.
		check := func(when string, dscp int) {
			t.Helper()
			l.script(hostA, fmt.Sprintf(`table %[1]s seen
				delete table %[1]s seen
				table %[1]s seen { chain in {
					type filter hook input priority 0
					%[1]s daddr %[2]s %[1]s dscp %[3]d %[1]s ecn %[4]d accept
					%[1]s daddr %[2]s counter
				}; }`, f, vip, dscp, capable))
			l.servedBy(c, hostA)
			if text := l.nft(hostA, fmt.Sprintf("list table %s seen", f)); !strings.Contains(text, "counter packets 0 ") {
				t.Errorf("%s: %s", when, text)
			}
		}
		check("at once", voice)
		l.steer(vip, hostB)
		check("after two relays", 0)
	}
}

// A server that hangs still has its listener: the kernel would take every connection for
// it. While its check fails they begin at another node. A handshake that is under way
// and what is open stay where they are. If all hang they stay here, too.
func TestServerHangs(t *testing.T) {
	eachFamilyOf(t, nodes[:3], func(l *lab, vip netip.Addr) {
		hosts := nodes[:3]
		drivers := l.ring(vip, hosts...)
		unwell := func(i int, is bool) {
			r := ringAt(hosts, i, vip)
			r.Ring.Unwell = is
			drivers[i].relay(r)
		}
		l.steer(vip, hostA)
		open := l.mustDial(vip)
		l.servedBy(open, hostA)
		begun := l.halfOpen(vip, hostA)

		unwell(0, true)
		for range 20 {
			l.servedBy(l.mustDial(vip), hostB)
		}
		l.servedBy(open, hostA)
		l.servedBy(begun(), hostA)
		unwell(1, true)
		kept := l.mustDial(vip)
		l.servedBy(kept, hosts[2])
		unwell(2, true)
		l.servedBy(l.mustDial(vip), hostA) // comes back to where it came in
		unwell(0, false)
		l.servedBy(l.mustDial(vip), hostA)
		l.servedBy(kept, hosts[2])
	})
}

// halfOpen begins a connection to a host whose answer does not arrive. What it returns
// waits until the client has sent its SYN again, lets the answers pass, and waits for
// the connection.
func (l *lab) halfOpen(vip netip.Addr, host string) func() net.Conn {
	l.Helper()
	f := familyOf(vip)
	l.script(hostC, fmt.Sprintf(`table %[1]s deaf {
		chain in { type filter hook prerouting priority -400; ether saddr %[3]s %[1]s saddr %[2]s tcp flags & (syn|ack) == syn|ack counter drop; }
		chain out { type filter hook output priority 0; %[1]s daddr %[2]s tcp flags & (syn|ack) == syn counter; }
	}`, f, vip, macs[host]))
	type result struct {
		net.Conn
		error
	}
	done := make(chan result, 1)
	go l.In(hostC, func() {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(vip, port).String(), 60*time.Second)
		done <- result{c, err}
	})
	l.eventually("the answer of "+host, func() bool {
		return !strings.Contains(l.nft(hostC, "list chain "+f.String()+" deaf in"), "counter packets 0 ")
	})
	return func() net.Conn {
		syns := func() string { return l.nft(hostC, "list chain "+f.String()+" deaf out") }
		before := syns()
		l.eventually("another SYN", func() bool { return syns() != before || len(done) > 0 })
		l.nft(hostC, "delete table "+f.String()+" deaf")
		r := <-done
		if r.error != nil {
			l.Fatal(r.error)
		}
		l.Cleanup(func() { _ = r.Conn.Close() })
		return r.Conn
	}
}
