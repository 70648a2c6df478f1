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
	"lbd.dev/lbd/internal/ring"
)

// translate sends what comes for a VIP to the address of the host itself, as kube-proxy
// sends it to an endpoint.
func (l *lab) translate(vip netip.Addr, hosts ...string) {
	l.Helper()
	for _, h := range hosts {
		l.script(h, fmt.Sprintf(`table %[1]s proxy
			delete table %[1]s proxy
			table %[1]s proxy { chain in {
				type nat hook prerouting priority dstnat
				%[1]s daddr %[2]s tcp dport %[3]d dnat to %[4]s
			}; }`, familyOf(vip), vip, port, nodeAddr(h, vip)))
	}
}

// trackedRing is ring for a VIP whose connections are translated.
func (l *lab) trackedRing(vip netip.Addr, hosts ...string) (out []*harness) {
	l.Helper()
	for i, h := range hosts {
		d := l.driver(h, discard())
		r := ringAt(hosts, i, vip)
		r.Tracked = true
		d.relay(r)
		out = append(out, d)
	}
	return out
}

// What nobody has is reset once. A connection that a node translates is found by the
// others, and new ones go to the node where they come in.
func TestTrackedRing(t *testing.T) {
	l := newLabOf(t, nodes[:3])
	hosts := nodes[:3]
	for _, vip := range []netip.Addr{vip4, vip6} {
		l.translate(vip, hosts...)
		l.trackedRing(vip, hosts...)
		const strays = 20
		l.countAll(vip, hosts)
		resets := l.resets(vip)
		l.stray(vip, strays)
		l.eventually("resets", func() bool { return resets() >= strays })
		if got := l.arrived(vip, hosts); got != strays*(1+len(hosts)) || resets() != strays {
			t.Errorf("%s: %d packets of %d strays arrived, %d were reset", vip, got, strays, resets())
		}
		l.count(hostB, vip)
		l.servedBy(l.mustDial(vip), hostA)
		if got := l.counted(hostB, vip); got != 0 {
			t.Errorf("%s: %d packets of a new connection were relayed", vip, got)
		}
		conns := make(map[string]net.Conn)
		for _, in := range hosts {
			l.steer(vip, in)
			conns[in] = l.mustDial(vip)
			for h, c := range conns {
				l.servedBy(c, h)
			}
		}
	}
}

// What a server says to a client elsewhere goes round the ring if nobody here knows the connection,
// and the server is one that sees its clients: by its address and its ports.
func TestRepliersRing(t *testing.T) {
	l := newLabOf(t, nodes[:2])
	hosts := nodes[:2]
	for vip, elsewhere := range map[netip.Addr]netip.Addr{vip4: netip.MustParseAddr("10.0.0.150"), vip6: netip.MustParseAddr("fd00::150")} {
		for i, h := range hosts {
			r := ringAt(hosts, i, vip)
			r.Tracked = true
			r.Repliers = &model.Repliers{Addrs: []netip.Addr{nodeAddr(hostC, vip)}, Ports: []uint16{20000, 20001}}
			l.driver(h, discard()).relay(r)
			l.count(h, elsewhere)
		}
		l.steer(elsewhere, hosts[0])
		l.segments(elsewhere, 3, ack)
		l.eventually("what a server says is back", func() bool { return l.counted(hosts[0], elsewhere) >= 5 })
		l.segments(elsewhere, 3, syn)
		l.eventually("what opens a connection", func() bool { return l.counted(hosts[0], elsewhere) >= 8 })
		if first, second := l.counted(hosts[0], elsewhere), l.counted(hosts[1], elsewhere); first != 8 || second != 2 {
			t.Errorf("%s: %d and %d packets have arrived, want 8 and 2", elsewhere, first, second)
		}
	}
}

// A handshake that is under way is found, too. The client answers to whom it has heard.
func TestTrackedHandshake(t *testing.T) {
	l := newLabOf(t, nodes[:3])
	hosts := nodes[:3]
	l.translate(vip4, hosts...)
	l.trackedRing(vip4, hosts...)
	// The client's answer to the answer waits until its packets go elsewhere.
	l.steer(vip4, hostA)
	l.script(hostC, fmt.Sprintf(`table ip late { chain out {
		type filter hook output priority 0
		ip daddr %s tcp flags & (syn|ack) == ack counter drop
	}; }`, vip4))
	c := l.mustDial(vip4)
	l.steer(vip4, hostB)
	l.nft(hostC, "delete table ip late")
	l.servedBy(c, hostA)
}

// A host lists what it translates while it is asked to, and nothing else.
func TestListsTracked(t *testing.T) {
	l := newLab(t)
	var c *net.TCPConn // the last
	for _, vip := range []netip.Addr{vip4, vip6} {
		l.translate(vip, hostA)
		c = l.mustDial(vip).(*net.TCPConn)
		l.servedBy(c, hostA)
	}
	h := l.driver(hostA, discard())
	look := func(track bool) (got model.Applied) {
		t.Helper()
		h.In(h.host, func() {
			var err error
			if got, err = h.d.Apply(t.Context(), &model.Desired{Track: track}); err != nil {
				t.Error(err)
			}
		})
		return got
	}
	got := look(true).Ring
	if got == nil || got.Untold != "" || !slices.Equal(got.Tracked, []netip.Addr{vip4, vip6}) {
		t.Fatalf("tracked: %+v", got)
	}
	if rest := time.Until(h.d.host.tracked); rest < trackedEvery/2 || 2*rest >= ring.ServiceHolds {
		t.Errorf("the next look is in %v", rest)
	}
	_ = c.SetLinger(0) // a reset ends the connection at once
	_ = c.Close()
	l.eventually("the end of a connection is seen", func() bool {
		h.d.host.tracked = time.Time{}
		got := look(true).Ring
		return !got.Tracks(vip6) && got.Tracks(vip4)
	})
	if got := look(false).Ring; got != nil {
		t.Errorf("not asked: %+v", got)
	}
	other := l.driver(hostB, discard())
	other.In(hostB, func() {
		got, err := other.d.Apply(t.Context(), &model.Desired{Track: true})
		if err != nil || got.Ring == nil || got.Ring.Untold != "" || len(got.Ring.Tracked) > 0 {
			t.Errorf("nothing is translated: %+v, %v", got.Ring, err)
		}
	})
}

// Whether the kernel can look for tracked connections is found out without a change, and
// without the right to change anything.
func TestAskForTracking(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	r := toward(vip4, hostA)
	r.Tracked = true
	b.relay(r)
	rules := func() string { return expires.ReplaceAllString(l.nft(hostB, "list ruleset"), "expires soon") }
	before := rules()
	l.In(hostB, func() {
		if why := Untrackable(vip4) + Untrackable(vip6) + Untold(); why != "" {
			t.Error(why)
		}
	})
	if after := rules(); !strings.Contains(before, "ct state") || before != after {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	l.In(hostB, func() {
		dropRights(t)
		for _, why := range []string{Untrackable(vip4), Untrackable(vip6), Untold()} {
			if why == "" {
				t.Error("a missing right is not told")
			}
		}
	})
}

// What a host tracks leaves the rules first, whatever it is for and however many rings there are;
// but what came by a ring goes on, to have its mark taken off.
func TestTrackedLeavesFirst(t *testing.T) {
	l := newLab(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		l.trackedRing(vip, nodes[:2]...)
		dscp, first := fmt.Sprintf("%s dscp < ", familyOf(vip)), ""
		for line := range strings.Lines(l.nft(hostA, fmt.Sprintf("list chain %s %s prerouting-tracked", familyOf(vip), TableName))) {
			if strings.Contains(line, "ct state") || strings.Contains(line, "goto") {
				first = line
				break
			}
		}
		if !strings.Contains(first, "ct state established,related,untracked") || !strings.Contains(first, "accept") || !strings.Contains(first, dscp) {
			t.Errorf("%s: the first rule is %q", vip, first)
		}
	}
}
