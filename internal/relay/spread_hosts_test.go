package relay

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

// opens opens a connection to the VIP from an address of a host.
func (l *lab) opens(host string, from, vip netip.Addr) (c net.Conn) {
	l.Helper()
	var err error
	l.In(host, func() {
		d := net.Dialer{Timeout: 5 * time.Second}
		if from.IsValid() {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 30000))
		}
		c, err = d.DialContext(l.Context(), "tcp", netip.AddrPortFrom(vip, port).String())
	})
	if err != nil {
		l.Fatalf("from %s: %v", host, err)
	}
	l.Cleanup(func() { _ = c.Close() })
	return c
}

// What a node opens that does not have the VIP is spread like any other; but nothing is
// sent back to the host that opened it, which would take no such packet.
func TestSpreadOfNodes(t *testing.T) {
	both(t, func(l *lab, vip netip.Addr, hosts []string) {
		own := hosts[2]
		l.IP(own, fmt.Sprintf("addr del %s/%d dev eth0", vip, vip.BitLen()))
		l.neigh(own, vip, hostA)
		a, b := l.driver(hostA, discard()), l.driver(hostB, discard())
		a.relay(owning(hosts[:2], hostA, vip, hostB))
		b.relay(sharing(hosts[:2], hostB, vip))
		for range 3 {
			l.servedBy(l.opens(own, netip.Addr{}, vip), hostB)
		}
		a.relay(owning([]string{hostA, own}, hostA, vip, own))
		for range 3 {
			l.servedBy(l.opens(own, netip.Addr{}, vip), hostA)
		}
	})
}

// Clients are told apart by their addresses, too: many come from one port.
func TestSpreadByAddress(t *testing.T) {
	both(t, func(l *lab, vip netip.Addr, hosts []string) {
		l.balanced(vip, hosts, hostA)
		from := nodeAddr(hosts[0], vip)
		for range 50 { // beyond those of the lab
			from = from.Next()
		}
		who := make(map[string]int)
		for range 10 { // their slots are the same in every run
			from = from.Next()
			add := fmt.Sprintf("addr add %s/%d dev eth0", from, vip.BitLen())
			if vip.Is6() {
				add += " nodad"
			}
			l.IP(hostC, add)
			for _, h := range hosts {
				l.neigh(h, from, hostC)
			}
			host, err := ask(l.opens(hostC, from, vip))
			if err != nil {
				t.Fatal(err)
			}
			who[host]++
		}
		if len(who) != len(hosts) {
			t.Errorf("10 clients with one port: %v", who)
		}
	})
}

// A packet of an open connection goes to its node at once, not round the ring.
func TestSpreadGoesStraight(t *testing.T) {
	both(t, func(l *lab, vip netip.Addr, hosts []string) {
		between, last := hosts[1], hosts[2]
		l.balanced(vip, hosts, hostA)[hostA].relay(owning(hosts, hostA, vip, last))
		l.countAll(vip, hosts)
		c := l.mustDial(vip)
		for range 5 {
			l.servedBy(c, last)
		}
		if n := l.counted(between, vip); n != 0 || l.counted(last, vip) == 0 {
			t.Errorf("%d packets passed %s", n, between)
		}
	})
}

// What the next router would drop is not sent on to another node.
func TestSpreadLastTTL(t *testing.T) {
	both(t, func(l *lab, vip netip.Addr, hosts []string) {
		field := "ip ttl"
		if vip.Is6() {
			field = "ip6 hoplimit"
		}
		l.script(hostC, fmt.Sprintf(`table %[1]s short {
			chain out { type filter hook output priority 0; %[1]s daddr %[2]s %[3]s set 1; }
		}`, familyOf(vip), vip, field))
		l.balanced(vip, hosts, hostA)[hostA].relay(owning(hosts, hostA, vip, hostB))
		for range 3 {
			l.servedBy(l.mustDial(vip), hostA)
		}
	})
}
