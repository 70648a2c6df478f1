package relay

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/fieldtest"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

// What is not wanted goes also after ValidUntil: only to relay needs a decision.
func TestFrozenStillEnds(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	b.relay(toward(vip4, hostA))
	l.In(hostB, func() {
		if got, err := b.d.Apply(l.Context(), &model.Desired{ValidUntil: time.Now().Add(-time.Second)}); err != nil || got.Err != "" {
			t.Errorf("%+v, %v", got, err)
		}
	})
	if got := l.tables(hostB); got != "" {
		t.Errorf("tables: %q", got)
	}
}

// Without the right to relay a daemon that wants nothing has nothing to report,
// and does not ask again; one that does says why, of each family.
func TestReportOfRefusal(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	b.powerless = true
	if got := b.apply(); got.Err != "" {
		t.Errorf("reports %q although nothing is wanted", got.Err)
	}
	for f := range b.d.tables {
		if s := b.d.tables[f].state; s != absent {
			t.Errorf("%s: state %d: the kernel would be asked again", b.d.tables[f].family, s)
		}
	}
	got := b.apply(toward(vip4, hostA), toward(vip6, hostA))
	if !strings.Contains(got.Err, "relay: ip: ") || !strings.Contains(got.Err, "relay: ip6: ") {
		t.Errorf("reports %q", got.Err)
	}
	if got := b.apply(); got.Err != "" {
		t.Errorf("reports %q although nothing is wanted any more", got.Err)
	}
}

// A kernel that does not answer in time while nothing is wanted breaks no promise:
// no warning, and the next try is not before the pause is over.
func TestSlowKernelIsNoWarning(t *testing.T) {
	l := newLab(t)
	log := &counter{}
	b := l.driver(hostB, log.logger())
	b.d.session = nft.New(-time.Second) // over before it begins
	if got := b.apply(); got.Err == "" {
		t.Error("does not report that leftovers may be there")
	}
	if log.warnings != 0 || log.others != 0 {
		t.Errorf("%d warnings, %d other lines; want none", log.warnings, log.others)
	}
	b.d.session = nft.New(answerTimeout)
	if got := b.apply(toward(vip4, hostA)); got.VIPs[vip4].Relaying || got.VIPs[vip4].Err == "" {
		t.Errorf("asked again at once: %+v", got.VIPs[vip4])
	}
}

// flowTo is a flow with a ring of its own.
func flowTo(host string) flow {
	r := toward(vip4, host)
	return flow{iface: "eth0", index: 2, ring: r.Ring, addrs: []netip.Addr{vip4}}
}

// TestSameRules: flows share their rules if nothing but their VIPs differs.
func TestSameRules(t *testing.T) {
	fieldtest.Same(t, func(a, b *flow) bool { return a.sameRules(*b) }, "addrs", "renewed")
}

// TestRelaying: only what is in force is called relayed.
func TestRelaying(t *testing.T) {
	now, gone := time.Now(), absent
	there := func(age time.Duration) table {
		g := flowTo(hostA)
		g.renewed = now.Add(-age)
		return table{state: there, flows: []flow{g}}
	}
	absent, unsure := there(0), there(0)
	absent.state, unsure.state = gone, unknown
	for name, c := range map[string]struct {
		tab  table
		want flow
		addr netip.Addr
		is   bool
	}{
		"as asked for":  {there(time.Second), flowTo(hostA), vip4, true},
		"another VIP":   {there(0), flowTo(hostA), vip6, false},
		"another node":  {there(0), flowTo(hostB), vip4, false},
		"not refreshed": {there(defaultLifetime), flowTo(hostA), vip4, false},
		"not there":     {absent, flowTo(hostA), vip4, false},
		"perhaps there": {unsure, flowTo(hostA), vip4, false},
	} {
		if got := c.tab.relaying(&c.want, defaultLifetime, now)[c.addr]; got != c.is {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// VIPs that go to one node share their rules. One that joins or leaves is changed at
// once, and what stays the same is not written again before a third of its lifetime.
func TestVIPsJoinAndLeave(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	other := netip.MustParseAddr("10.0.0.101")
	has := func(want ...netip.Addr) {
		t.Helper()
		rules := l.nft(hostB, "list ruleset")
		for _, a := range []netip.Addr{vip4, other} {
			wanted := false
			for _, w := range want {
				wanted = wanted || a == w
			}
			if strings.Contains(rules, a.String()+" ") != wanted {
				t.Errorf("%s is there: %v\n%s", a, !wanted, rules)
			}
		}
		if n := strings.Count(rules, "dup to"); n != 1 {
			t.Errorf("%d rules that relay\n%s", n, rules)
		}
	}
	b.relay(toward(vip4, hostA))
	has(vip4)
	first := b.d.tables[v4].flows[0].renewed
	b.relay(toward(vip4, hostA))
	if !b.d.tables[v4].flows[0].renewed.Equal(first) {
		t.Error("written again although nothing has changed")
	}
	b.relay(toward(vip4, hostA), toward(other, hostA))
	has(vip4, other)
	b.relay(toward(other, hostA))
	has(other)
}

// What the kernel has after a failure is not known; what it was known not to have is
// not looked for.
func TestAfterAFailure(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	broken := func() { b.d.session = nft.New(-time.Second) }
	whole := func() {
		b.d.session = nft.New(answerTimeout)
		for f := range b.d.tables {
			b.d.tables[f].retry = time.Time{}
		}
	}
	state := func(want state) {
		t.Helper()
		if got := b.d.tables[v4].state; got != want {
			t.Errorf("state %d, want %d", got, want)
		}
	}
	b.relay(toward(vip4, hostA))
	elsewhere := toward(vip4, hostA)
	elsewhere.Ring.Next = nodeAddr(hostC, vip4)
	broken()
	if got := b.apply(elsewhere); got.VIPs[vip4].Relaying || got.VIPs[vip4].Err == "" {
		t.Errorf("%+v", got.VIPs[vip4])
	}
	state(unknown)
	whole()
	b.relay(elsewhere)
	broken()
	if got := b.apply(); got.Err == "" {
		t.Error("does not report that the table is still there")
	}
	state(unknown)
	whole()
	b.apply()
	state(absent)
	broken()
	if got := b.apply(); got.Err != "" {
		t.Errorf("looks for what is not there: %s", got.Err)
	}
	whole()

	// A driver that was never asked for anything leaves the table of another.
	b.relay(toward(vip4, hostA))
	idle := l.driver(hostB, discard())
	l.In(hostB, func() {
		if err := idle.d.Close(l.Context()); err != nil {
			t.Error(err)
		}
	})
	if got := l.tables(hostB); got == "" {
		t.Error("closed what it never opened")
	}
}

// A transparent socket, as of a proxy, has its packets placed like any other.
func TestTransparentSocketIsPlaced(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	transparent := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1) }), err)
	}}
	var ln net.Listener
	var err error
	l.In(hostB, func() { ln, err = transparent.Listen(l.Context(), "tcp4", "0.0.0.0:7000") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	b.relay(toward(vip4, hostA))
	l.steer(vip4, hostB)
	l.count(hostA, vip4)
	var out net.Conn
	l.In(hostC, func() { out, err = net.DialTimeout("tcp", netip.AddrPortFrom(vip4, 7000).String(), 30*time.Second) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	in, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	_ = in.SetDeadline(time.Now().Add(30 * time.Second))
	got := make([]byte, 4)
	if _, err := out.Write([]byte("who\n")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(in, got); err != nil || l.counted(hostA, vip4) != 0 {
		t.Errorf("read %q, %v; %d packets were relayed", got, err, l.counted(hostA, vip4))
	}
}

// Of UDP nothing is relayed: what nobody here wants is nobody's connection.
func TestOtherProtocolsAreNotRelayed(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		b := l.driver(hostB, discard())
		b.relay(toward(vip, hostA))
		l.steer(vip, hostB)
		l.count(hostA, vip)
		l.count(hostB, vip)
		l.In(hostC, func() {
			c, err := net.Dial("udp", netip.AddrPortFrom(vip, 9999).String())
			if err != nil {
				l.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := c.Write(make([]byte, 64)); err != nil {
				l.Error(err)
			}
		})
		l.eventually("datagram", func() bool { return l.counted(hostB, vip) == 1 })
		time.Sleep(50 * time.Millisecond)
		if n := l.counted(hostA, vip); n != 0 {
			l.Errorf("%d datagrams were relayed", n)
		}
	})
}

// A refresh notices that the rules are gone, which costs connections where they are
// spread: there it comes as often as that of a usual ring, however long the rules last.
func TestRefreshEvery(t *testing.T) {
	spread := []model.Backend{{Node: "a"}, {Node: "b"}}
	for _, c := range []struct {
		lifetime time.Duration
		spread   []model.Backend
		want     time.Duration
	}{
		{0, nil, time.Second}, {9 * time.Second, nil, 3 * time.Second}, {30 * time.Second, nil, 10 * time.Second},
		{0, spread, time.Second}, {9 * time.Second, spread, time.Second}, {time.Second, spread, time.Second / 3},
	} {
		g := flow{ring: &model.Ring{Lifetime: c.lifetime, Spread: c.spread}}
		if got := g.refreshEvery(3 * time.Second); got != c.want {
			t.Errorf("lifetime %v, spread %v: every %v, want %v", c.lifetime, c.spread, got, c.want)
		}
	}
}
