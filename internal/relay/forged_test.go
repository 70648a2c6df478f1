package relay

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// mark gives all that the client sends to the VIP a DSCP.
func (l *lab) mark(vip netip.Addr, dscp int) {
	l.Helper()
	f := familyOf(vip)
	l.script(hostC, fmt.Sprintf(`table %[1]s forged
		delete table %[1]s forged
		table %[1]s forged {
			chain out { type filter hook output priority 0; %[1]s daddr %[2]s %[1]s dscp set %[3]d; }
		}`, f, vip, dscp))
}

// A client whose packets have a DSCP that counts relays, such as CS7 (0x38), is no
// member: its tours are as long as those of others, and begin at the beginning. Were it
// believed, they would end too soon, and its own connections would be reset.
func TestClientsHopCountIsNotBelieved(t *testing.T) {
	const strays = 5
	l := newLabOf(t, nodes[:3])
	hosts := nodes[:3]
	for _, vip := range []netip.Addr{vip4, vip6} {
		l.ring(vip, hosts...)
		for _, dscp := range []int{firstHop, firstHop + 1, firstHop + 2, 0x38, lastHop} {
			l.mark(vip, dscp)
			l.steer(vip, hosts[2])
			c := l.mustDial(vip)
			l.servedBy(c, hosts[2])
			l.steer(vip, hostA)
			l.servedBy(c, hosts[2]) // after two relays
			_ = c.Close()

			l.countAll(vip, hosts)
			resets := l.resets(vip)
			l.stray(vip, strays)
			l.eventually("resets", func() bool { return resets() >= strays })
			if got := l.arrived(vip, hosts); got < strays*(1+len(hosts)) {
				t.Errorf("%s, DSCP %#x: %d packets arrived, want %d relays of each of %d", vip, dscp, got, len(hosts), strays)
			}
		}
	}
}

// A host that sends with the address of a member, which only a neighbour on the segment
// can, makes its own tours shorter and nothing else: no packet goes round for longer,
// and connections of others go on.
func TestMembersAddressForged(t *testing.T) {
	const strays = 5
	l := newLabOf(t, nodes[:3])
	hosts := nodes[:3]
	for _, vip := range []netip.Addr{vip4, vip6} {
		for i, h := range hosts {
			r := ringAt(hosts, i, vip)
			r.Ring.Peers = append(slices.Clone(r.Ring.Peers), macs[hostC])
			l.driver(h, discard()).relay(r)
		}
		for _, dscp := range []int{firstHop, firstHop + 1, firstHop + 2, lastHop} {
			l.mark(vip, dscp)
			l.steer(vip, hostA)
			l.countAll(vip, hosts)
			resets := l.resets(vip)
			l.stray(vip, strays)
			l.eventually("resets", func() bool { return resets() >= strays })
			if got, most := l.arrived(vip, hosts), strays*(1+len(hosts)); got > most || resets() != strays {
				t.Errorf("%s, DSCP %#x: %d packets arrived, at most %d may; %d resets", vip, dscp, got, most, resets())
			}
		}
	}
}

// What a client says with its DSCP stays, if its packets need no relay: only members
// have theirs taken off.
func TestClientsMarkStays(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		const cs7 = 0x38
		l.ring(vip, hostA, hostB)
		l.mark(vip, cs7)
		l.steer(vip, hostA)
		c := l.mustDial(vip)
		f := familyOf(vip)
		l.script(hostA, fmt.Sprintf(`table %[1]s seen {
			chain in { type filter hook input priority 0; %[1]s daddr %[2]s %[1]s dscp != %[3]d counter; }
		}`, f, vip, cs7))
		l.servedBy(c, hostA)
		if text := l.nft(hostA, fmt.Sprintf("list table %s seen", f)); !strings.Contains(text, "counter packets 0 ") {
			l.Errorf("the DSCP is lost: %s", text)
		}
	})
}

// A node from which the others know no hardware address, for its list was cut or it speaks
// by another card, makes tours longer: the one after it takes its frames for a client's and
// begins anew. The TTL of the packet ends that, and it is reset once. With the address a
// stray costs a relay each node.
func TestStrayInARingWithAnUnknownCard(t *testing.T) {
	const strays, ttl = 5, 64
	l := newLabOf(t, nodes[:3])
	hosts := nodes[:3]
	for _, vip := range []netip.Addr{vip4, vip6} {
		relays := func(unknown string) float64 {
			for i, h := range hosts {
				r := ringAt(hosts, i, vip)
				r.Ring.Peers = slices.DeleteFunc(r.Ring.Peers, func(m model.MAC) bool { return m == macs[unknown] })
				r.Ring.Origins = slices.DeleteFunc(r.Ring.Origins, func(o model.Origin) bool { return o.MAC == macs[unknown] })
				l.driver(h, discard()).relay(r)
			}
			l.steer(vip, hostA)
			l.countAll(vip, hosts)
			resets := l.resets(vip)
			l.stray(vip, strays)
			l.eventually("resets", func() bool { return resets() >= strays })
			got := l.arrived(vip, hosts)
			if resets() != strays {
				t.Errorf("%s: %d resets of %d strays", vip, resets(), strays)
			}
			return float64(got)/strays - 1
		}
		all, one := relays(""), relays(hosts[1])
		t.Logf("%s: %.1f relays of each stray, %.1f where a card is unknown", vip, all, one)
		if all != float64(len(hosts)) || one <= all || one > ttl {
			t.Errorf("%s: %.1f relays of each stray, want %d; %.1f where a card is unknown, want more, and at most %d", vip, all, len(hosts), one, ttl)
		}
	}
}
