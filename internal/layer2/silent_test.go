package layer2

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

// held asks from the client whether anybody holds the VIP.
func (l *lab) held(vip netip.Addr) (by model.MAC, answered bool) {
	l.Helper()
	l.In(hostC, func() {
		d := newDriver(discard(), &linux{})
		defer func() { _ = d.Close(l.Context()) }()
		for i := range d.silence.of {
			d.silence.of[i] = &fakeSilence{}
		}
		want := &model.Desired{L2: []model.L2Advert{probeVIP(vip, 1)}}
		for {
			a, err := d.Apply(l.Context(), want)
			if err != nil {
				l.Errorf("probe from the client: %v", err)
				return
			}
			if r := a.VIPs[vip].Probe; r.Done {
				by, answered = r.By, r.Answered
				return
			}
			<-d.Changed()
		}
	})
	return by, answered
}

func (l *lab) mustBeHeld(vip netip.Addr, want bool, when string) {
	l.Helper()
	if by, held := l.held(vip); held != want {
		l.Errorf("%s: %s: answered %v (by %s), want %v", vip, when, held, by, want)
	}
}

func (l *lab) rules() string {
	l.Helper()
	return l.Exec("nft", "list", "ruleset")
}

func TestLANSilence(t *testing.T) {
	l := newLab(t)
	client := map[netip.Addr]netip.Addr{vip4: netip.MustParseAddr("10.0.0.9"), vip6: netip.MustParseAddr("fd00::9")}
	h := l.driver(Options{})
	for _, vip := range []netip.Addr{vip4, vip6} {
		l.bind(hostA, vip)
		l.mustBeHeld(vip, true, "bound")
	}
	start := time.Now()
	got := h.apply(silentVIP(vip4), silentVIP(vip6))
	t.Logf("Apply took %v", time.Since(start))
	if !got[vip4].Silent || !got[vip6].Silent {
		t.Fatalf("report %+v", got)
	}
	for vip, c := range client {
		l.mustBeHeld(vip, false, "silent")
		l.stays(vip, c, macB)
	}
	for vip, c := range client { // a question does not even reach the kernel
		l.IP(hostA, "neigh flush dev eth0")
		l.IP(hostC, "neigh flush dev eth0")
		l.touch(hostC, vip, netip.Addr{})
		time.Sleep(20 * ms)
		if got := l.neigh(hostA, c); got != "" {
			t.Errorf("%s: the host has learned %s of who asked", vip, got)
		}
	}
	// The other addresses of the host are as they were.
	l.mustBeHeld(netip.MustParseAddr("10.0.0.1"), true, "node address")
	l.mustBeHeld(netip.MustParseAddr("fd00::1"), true, "node address")

	h.apply(announceVIP(vip4), announceVIP(vip6))
	for vip := range client {
		l.mustBeHeld(vip, true, "announced again")
	}
	h.close()
	if rules := l.rules(); strings.Contains(rules, "table") {
		t.Errorf("rules are left:\n%s", rules)
	}
}

// stays checks that what this host sends from the VIP arrives, although its
// neighbour has to be resolved, and that the client keeps the VIP at its new
// owner.
func (l *lab) stays(vip, client netip.Addr, owner model.MAC) {
	l.Helper()
	c := l.sniff(hostC, etherType(vip))
	var sink *net.UDPConn
	l.In(hostC, func() {
		var err error
		sink, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(client, 9)))
		if err != nil {
			l.Fatal(err)
		}
	})
	defer func() { _ = sink.Close() }()
	l.IP(hostC, fmt.Sprintf("neigh replace %s lladdr %s dev eth0 nud reachable", vip, owner))
	for range 3 {
		l.IP(hostA, "neigh flush dev eth0")
		l.touch(hostA, client, vip)
		_ = sink.SetReadDeadline(time.Now().Add(2 * time.Second))
		_, from, err := sink.ReadFromUDPAddrPort(make([]byte, 8))
		if err != nil || from.Addr() != vip {
			l.Errorf("%s: nothing arrived from the VIP: %v %v", vip, from, err)
		}
	}
	if got := l.neigh(hostC, vip); got != owner.String() {
		l.Errorf("%s: the client went to %s", vip, got)
	}
	var asks []captured
	l.eventually(fmt.Sprintf("three questions about %s from %s", client, vip), func() bool {
		asks = c.that(func(frame []byte) bool {
			_, sha, tpa := asker(frame)
			return sha == macA && tpa == client
		})
		return len(asks) >= 3
	})
	want := netip.MustParseAddr("10.0.0.1")
	if vip.Is6() {
		want = netip.MustParseAddr("fe80::ff:fe00:a")
	}
	for _, x := range asks {
		if spa, _, _ := asker(x.frame); spa != want {
			l.Errorf("%s: asked for %s as %s, want as %s", vip, client, spa, want)
		}
	}
}

// asker reads who asks for whom. That nd.Parse takes the frame means that the
// rewritten one has a right checksum.
func asker(frame []byte) (spa netip.Addr, sha model.MAC, tpa netip.Addr) {
	if p, ok := arp.Parse(frame); ok && p.Op == arp.OpRequest {
		return p.SPA, p.SHA, p.TPA
	}
	if m, ok := nd.Parse(frame); ok && m.Type == nd.Solicitation {
		return m.Source, m.MAC, m.Target
	}
	return spa, sha, tpa
}

// Without the rules the old owner steals the VIP back; this keeps the test above
// honest.
func TestLANWithoutSilenceTheVIPIsStolen(t *testing.T) {
	l := newLab(t)
	for vip, client := range map[netip.Addr]string{vip4: "10.0.0.9", vip6: "fd00::9"} {
		l.bind(hostA, vip)
		l.IP(hostC, fmt.Sprintf("neigh replace %s lladdr %s dev eth0 nud stale", vip, macB))
		l.eventually("stolen", func() bool {
			l.IP(hostA, "neigh flush dev eth0")
			l.touch(hostA, netip.MustParseAddr(client), vip)
			time.Sleep(20 * ms)
			return l.neigh(hostC, vip) == macA.String()
		})
	}
}

// An interface without an address of its own asks as nobody.
func TestLANSilenceWithoutNodeAddress(t *testing.T) {
	l := newLab(t)
	l.bind(hostA, vip4)
	l.IP(hostA, "addr del 10.0.0.1/24 dev eth0")
	l.IP(hostA, "route add 10.0.0.9/32 dev eth0 src "+vip4.String())
	h := l.driver(Options{})
	h.apply(silentVIP(vip4))
	l.IP(hostC, fmt.Sprintf("neigh replace %s lladdr %s dev eth0 nud stale", vip4, macB))
	l.eventually("resolved", func() bool {
		l.touch(hostA, netip.MustParseAddr("10.0.0.9"), vip4)
		time.Sleep(10 * ms)
		return l.neigh(hostA, netip.MustParseAddr("10.0.0.9")) == macC.String()
	})
	if got := l.neigh(hostC, vip4); got != macB.String() {
		t.Errorf("the client went to %s", got)
	}
}

func TestLANSilenceEndsByItself(t *testing.T) {
	l := newLab(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		l.bind(hostA, vip)
		h := l.driver(Options{SilenceLifetime: 1500 * ms})
		h.apply(silentVIP(vip))
		for range 3 { // renewed without Apply
			time.Sleep(600 * ms)
			l.mustBeHeld(vip, false, "renewed")
		}
		h.apply()
		l.eventually("table deleted", func() bool { return !strings.Contains(l.rules(), "table") })
		h.apply(silentVIP(vip))
		h.close() // like a daemon that was killed
		l.mustBeHeld(vip, false, "just closed")
		time.Sleep(1550 * ms)
		l.mustBeHeld(vip, true, "after its lifetime")
	}
}

func TestLANSilenceLeftovers(t *testing.T) {
	l := newLab(t)
	l.bind(hostA, vip4)
	leave := func() {
		l.Exec("nft", `table arp lbd { set silent { type ipv4_addr; elements = { 10.0.0.200, 10.0.0.99 }; }
			chain old { type filter hook input priority 0; arp daddr ip @silent drop; }; };
			table ip6 lbd { chain old { type filter hook input priority 0; }; };
			table ip lbd { }`)
	}
	leave()
	l.mustBeHeld(vip4, false, "leftover")
	h := l.driver(Options{})
	if _, err := h.d.Apply(t.Context(), &model.Desired{}); err != nil {
		t.Error(err)
	}
	l.mustBeHeld(vip4, false, "before the sources are there")
	h.apply(announceVIP(vip4))
	l.mustBeHeld(vip4, true, "announced")
	if rules := l.rules(); strings.Contains(rules, "arp lbd") || strings.Contains(rules, "ip6 lbd") || !strings.Contains(rules, "ip lbd") {
		t.Errorf("rules:\n%s", rules)
	}

	h.close()
	leave()
	h = l.driver(Options{SilenceLifetime: 900 * ms})
	h.apply(silentVIP(vip4))
	rules := l.rules()
	if strings.Contains(rules, "chain old { # arp") || strings.Contains(rules, "10.0.0.99") || !strings.Contains(rules, "timeout") {
		t.Errorf("rules:\n%s", rules)
	}
	l.mustBeHeld(vip4, false, "replaced")

	_ = exec.Command("nft", "flush", "ruleset").Run() // somebody cleans up too well
	l.eventually("repaired", func() bool { _, held := l.held(vip4); return !held })
	if got := h.apply(silentVIP(vip4))[vip4]; !got.Silent {
		t.Errorf("report %+v", got)
	}
	h.close() // or it would repair what Cleanup removes
	removed, err := Cleanup(t.Context())
	if err != nil || !slices.Contains(removed, "table arp "+silence.TableName) {
		t.Error(removed, err)
	}
	if rules := l.rules(); strings.Contains(rules, "table") {
		t.Errorf("rules after Cleanup:\n%s", rules)
	}
}

func TestLANManySilent(t *testing.T) {
	l := newLab(t)
	var l2 []model.L2Advert
	for i := range 3000 {
		l2 = append(l2, silentVIP(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})),
			silentVIP(netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)})))
	}
	h := l.driver(Options{})
	start := time.Now()
	h.apply(l2...)
	t.Logf("6000 VIPs silent after %v", time.Since(start))
	if n := strings.Count(l.rules(), "expires"); n != 6000 {
		t.Errorf("%d elements, want 6000", n)
	}
}
