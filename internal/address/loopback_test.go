package address

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

const lo = model.LoopbackInterface

// onBoth wants both test addresses on the LAN and on lo, in the order that
// decisions have.
func onBoth(iface string, epoch uint64, loLifetime time.Duration) []model.Binding {
	var bind []model.Binding
	for _, addr := range both {
		bind = append(bind, model.Binding{Addr: addr, Interface: iface, Epoch: epoch},
			model.Binding{Addr: addr, Interface: lo, Epoch: epoch, Lifetime: loLifetime})
	}
	return bind
}

// onLo wants both test addresses on lo.
func onLo(epoch uint64, lifetime time.Duration) []model.Binding {
	bind := on(lo, epoch)
	for i := range bind {
		bind[i].Lifetime = lifetime
	}
	return bind
}

// applyAll applies, fails the test on an error, and returns the whole report.
func applyAll(t *testing.T, d *Driver, w *model.Desired) model.Applied {
	t.Helper()
	applied, err := settle(t, d, w)
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

// has tells in which slots the kernel has an address.
func has(t *testing.T, addr netip.Addr) (lan, loopback bool) {
	t.Helper()
	for _, e := range find(t, addr) {
		if slotAt(addr, e.Index).loopback {
			loopback = true
		} else {
			lan = true
		}
	}
	return lan, loopback
}

// expect checks where both test addresses are, in the kernel and in the report.
func expect(t *testing.T, applied model.Applied, lan, loopback bool) {
	t.Helper()
	for _, addr := range both {
		if l, b := has(t, addr); l != lan || b != loopback {
			t.Errorf("%s: in the kernel on the LAN %t, on lo %t; want %t, %t", addr, l, b, lan, loopback)
		}
		if v, ok := applied.VIPs[addr]; v.Bound != lan || ok && v.Interface == lo {
			t.Errorf("%s: reported on the LAN %+v, want bound %t", addr, v, lan)
		}
		if v, ok := applied.Loopback[addr]; v.Bound != loopback || ok && v.Bound && v.Interface != lo {
			t.Errorf("%s: reported on lo %+v, want bound %t", addr, v, loopback)
		}
	}
}

// stayed checks that a slot was occupied all the time.
func stayed(t *testing.T, o *observer, loopback bool) {
	t.Helper()
	for _, addr := range both {
		if l := o.at(slot{addr, loopback}); len(l) != 1 || !l[0].there {
			t.Errorf("%s, on lo %t: was away: %v", addr, loopback, l)
		}
	}
}

func TestBindsOnLoopbackExactly(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, idle)
	before := time.Now()
	applied := applyAll(t, d, want(onBoth("a0", 1, 2*idle)...))
	after := time.Now()
	expect(t, applied, true, true)
	lan, err := net.InterfaceByName("a0")
	if err != nil {
		t.Fatal(err)
	}
	if i, err := net.InterfaceByName(lo); err != nil || i.Index != loopbackIndex {
		t.Fatalf("lo: %+v, %v", i, err)
	}
	for _, addr := range both {
		flags := uint32(unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED)
		if addr.Is6() {
			flags |= unix.IFA_F_NODAD
		}
		// The scope on lo is as asked for; only 127.0.0.0/8 is given that of a host.
		wanted := map[int]time.Duration{lan.Index: idle, loopbackIndex: 2 * idle}
		for _, e := range find(t, addr) {
			w := Entry{
				Prefix: netip.PrefixFrom(addr, addr.BitLen()), Index: e.Index, Protocol: model.AddressProtocol,
				flags: flags, scope: unix.RT_SCOPE_UNIVERSE, Valid: e.Valid,
			}
			if e != w || !validSince(e, wanted[e.Index], before) {
				t.Errorf("%s: got %+v, want %+v for %s", addr, e, w, wanted[e.Index])
			}
			if addr.Is6() {
				mustBeLocal(t, addr, e.Index, after.Sub(before))
			}
			delete(wanted, e.Index)
		}
		if len(wanted) != 0 {
			t.Errorf("%s: missing on %v", addr, wanted)
		}
		for lifetime, v := range map[time.Duration]model.AppliedVIP{idle: applied.VIPs[addr], 2 * idle: applied.Loopback[addr]} {
			if v.Expires.Before(before.Add(lifetime)) || v.Expires.After(after.Add(lifetime)) {
				t.Errorf("%s: on %s for %s, want %s", addr, v.Interface, v.Expires.Sub(before), lifetime)
			}
		}
	}
	// Not wanted any more: gone at once, synced or not.
	expect(t, applyAll(t, d, want()), false, false)
}

// TestSlotsComeAndGoAlone: packets of a client and its connections find the VIP as
// long as either slot is there, and neither slot notices the other's end.
func TestSlotsComeAndGoAlone(t *testing.T) {
	if !isolated(t) {
		return
	}
	c := behind(t, "a0", "b0")
	port := listen(t, "tcp", "[::]:0")
	d := start(t, idle)
	var conns []net.Conn
	check := func(when string) {
		t.Helper()
		for _, conn := range conns {
			if err := talks(conn); err != nil {
				t.Errorf("%s: %s: %v", when, conn.RemoteAddr(), err)
			}
		}
		for _, addr := range both { // and new ones
			conns = append(conns, c.dial(addr, port))
		}
	}
	expect(t, applyAll(t, d, want(onLo(1, 2*idle)...)), false, true)
	check("only lo")
	o := observe(t, both...)
	time.Sleep(20 * time.Millisecond)
	expect(t, applyAll(t, d, want(onBoth("a0", 1, 15*time.Second)...)), true, true)
	check("both")
	expect(t, applyAll(t, d, want(onLo(1, 2*idle)...)), false, true)
	check("the LAN ended")
	time.Sleep(20 * time.Millisecond)
	o.end()
	stayed(t, o, true)
	applyAll(t, d, want(onBoth("a0", 2, 15*time.Second)...))
	o = observe(t, both...)
	time.Sleep(20 * time.Millisecond)
	expect(t, applyAll(t, d, want(on("a0", 2)...)), true, false)
	check("lo ended")
	time.Sleep(20 * time.Millisecond)
	o.end()
	stayed(t, o, false)
	if s := d.Stats(); s.Readds != 0 || s.Expirations != 0 || s.Errors != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestPutsBackOnLoopback(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, idle)
	w := want(onBoth("a0", 1, 2*idle)...)
	applyAll(t, d, w)
	for _, iface := range []string{lo, "a0"} {
		o := observe(t, both...)
		time.Sleep(20 * time.Millisecond)
		for _, addr := range both {
			removeByHand(t, iface, addr)
			eventually(t, "put back "+addr.String(), func() bool { lan, loopback := has(t, addr); return lan && loopback })
			fired(t, d)
		}
		o.end()
		stayed(t, o, iface != lo)
	}
	applied := applyAll(t, d, w)
	expect(t, applied, true, true)
	if left := time.Until(applied.Loopback[v4].Expires); left < idle {
		t.Errorf("put back on lo for %s", left)
	}
	if s := d.Stats(); s.Readds != 4 || s.Expirations != 0 || s.Errors != 0 {
		t.Errorf("stats %+v", s)
	}
	// Down, lo loses its IPv6 addresses as every interface does.
	setUp(t, lo, false)
	time.Sleep(100 * time.Millisecond)
	setUp(t, lo, true)
	eventually(t, "back on lo", func() bool { _, loopback := has(t, v6); return loopback && (*linux)(nil).Local(v6, loopbackIndex) })
	fired(t, d)
	expect(t, applyAll(t, d, w), true, true)
}

// TestLeftoversAreToldApart: what an earlier process left on lo must not look like
// a VIP that was owned on the LAN, nor the other way round.
func TestLeftoversAreToldApart(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	old := start(t, idle)
	applyAll(t, old, want(model.Binding{Addr: v4, Interface: "a0", Epoch: 1}, model.Binding{Addr: v6, Interface: lo, Lifetime: 2 * idle}))
	if err := old.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := start(t, idle)
	for range 2 {
		applied := applyAll(t, d, want())
		if len(applied.VIPs) != 1 || len(applied.Loopback) != 1 {
			t.Fatalf("report %+v", applied)
		}
		v := applied.VIPs[v4]
		if left := time.Until(v.Expires); !v.Bound || v.Interface != "a0" || left < idle/2 || left > idle {
			t.Errorf("on the LAN %+v, %s left", v, left)
		}
		v = applied.Loopback[v6]
		if left := time.Until(v.Expires); !v.Bound || v.Interface != lo || v.Connections != -1 || left < idle*3/2 || left > 2*idle {
			t.Errorf("on lo %+v, %s left", v, left)
		}
	}
	// A binding in the other slot leaves the leftover alone.
	applied := applyAll(t, d, want(model.Binding{Addr: v4, Interface: lo, Epoch: 1}, model.Binding{Addr: v6, Interface: "a0", Epoch: 1}))
	expect(t, applied, true, true)
	// Once everything is known it goes, and only it.
	w := want(model.Binding{Addr: v4, Interface: lo, Epoch: 1}, model.Binding{Addr: v6, Interface: "a0", Epoch: 1})
	w.Synced = true
	applied = applyAll(t, d, w)
	if len(applied.VIPs) != 1 || !applied.VIPs[v6].Bound || len(applied.Loopback) != 1 || !applied.Loopback[v4].Bound {
		t.Errorf("report %+v", applied)
	}
	if s := d.Stats(); s.Expirations != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestAdoptsOnLoopbackAtRestart(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	old := start(t, 6*time.Second)
	applyAll(t, old, want(onBoth("a0", 7, 8*time.Second)...))
	if err := old.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := observe(t, both...)
	time.Sleep(2 * time.Second)
	d := start(t, 6*time.Second)
	applyAll(t, d, want())
	before := time.Now()
	applied := applyAll(t, d, want(onBoth("a0", 7, 15*time.Second)...))
	expect(t, applied, true, true)
	for _, addr := range both {
		if from := applied.Loopback[addr].Expires.Add(-15 * time.Second); from.Before(before) || from.After(time.Now()) {
			t.Errorf("%s: adopted on lo for 15 s from %s after the decision on", addr, from.Sub(before))
		}
	}
	time.Sleep(7 * time.Second) // what the old one set would have ended
	expect(t, applyAll(t, d, want(onBoth("a0", 7, 15*time.Second)...)), true, true)
	o.end()
	stayed(t, o, true)
	stayed(t, o, false)
	if s := d.Stats(); s.Readds != 0 || s.Expirations != 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestEndOfLeftoverIsNotThatOfTheOther: a leftover on the LAN that ends before it
// is adopted says nothing of lo.
func TestEndOfLeftoverIsNotThatOfTheOther(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	old := start(t, 4*time.Second)
	applyAll(t, old, want(on("a0", 7)...))
	if err := old.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := start(t, 2*time.Second)
	expect(t, applyAll(t, d, want()), true, false)
	eventually(t, "gone", func() bool { return len(find(t, v4))+len(find(t, v6)) == 0 })
	applied := applyAll(t, d, want(onBoth("a0", 7, 0)...))
	expect(t, applied, false, true)
	for _, addr := range both {
		if v := applied.VIPs[addr]; !v.Expired {
			t.Errorf("%s on the LAN: %+v", addr, v)
		}
		if v := applied.Loopback[addr]; v.Expired {
			t.Errorf("%s on lo: %+v", addr, v)
		}
	}
}

// TestLatchesAreOfOneSlot: too late on lo, in time on the LAN.
func TestLatchesAreOfOneSlot(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, idle)
	b := onBoth("a0", 1, 0)
	for i := range b {
		if b[i].Interface == lo {
			b[i].AddBefore = time.Now().Add(-time.Millisecond)
		}
	}
	applied := applyAll(t, d, want(b...))
	expect(t, applied, true, false)
	if v := applied.Loopback[v4]; !v.TooLate || applied.VIPs[v4].TooLate {
		t.Errorf("on lo %+v, on the LAN %+v", v, applied.VIPs[v4])
	}
}

func TestErrorsOnLoopback(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, idle)
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	remove := foreign(t, lo, "10.0.0.200/32")
	applied, err := settle(t, d, want(onBoth("a0", 1, 0)...))
	if v := applied.Loopback[v6]; err == nil || v.Bound || v.Err != `IPv6 is disabled on "lo": set sysctl net.ipv6.conf.lo.disable_ipv6=0` {
		t.Errorf("%+v, %v", v, err)
	}
	if v := applied.VIPs[v6]; !v.Bound || v.Err != "" {
		t.Errorf("the LAN suffers: %+v", v)
	}
	for _, v := range []model.AppliedVIP{applied.VIPs[v4], applied.Loopback[v4]} {
		if v.Bound || v.Err != "is already configured on lo by somebody else" {
			t.Errorf("%+v", v)
		}
	}
	remove()
	eventually(t, "bound", func() bool { lan, loopback := has(t, v4); return lan && loopback })
}

func TestCleanupOnLoopback(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, idle)
	applyAll(t, d, want(onBoth("a0", 1, 2*idle)...))
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := List()
	if err != nil || len(list) != 4 {
		t.Fatalf("%v, %v", list, err)
	}
	left := map[string]time.Duration{lo: 2 * idle, "a0": idle}
	for _, h := range list {
		if most := left[h.Interface]; h.Remaining > most || h.Remaining < most-patience {
			t.Errorf("%+v", h)
		}
	}
	removed, err := Cleanup(t.Context(), d.log)
	if err != nil || len(removed) != 4 || len(find(t, v4))+len(find(t, v6)) != 0 {
		t.Errorf("%v, %v, still there %v", removed, err, dump(t))
	}
	if len(find(t, netip.MustParseAddr("127.0.0.1"))) != 1 {
		t.Error("127.0.0.1 is gone")
	}
}

// TestCountsConnectionsOfBothSlots: a connection is one to the VIP, whichever slot
// asks.
func TestCountsConnectionsOfBothSlots(t *testing.T) {
	if !isolated(t) {
		return
	}
	c := behind(t, "a0", "b0")
	port := listen(t, "tcp", "[::]:0")
	d := start(t, idle)
	applyAll(t, d, want(onBoth("a0", 1, 0)...))
	stop := make(chan struct{})
	defer close(stop)
	conns := []net.Conn{c.dial(v4, port), c.dial(v4, port), c.dial(v6, port)}
	for _, conn := range conns {
		go chat(conn, stop)
	}
	counts := func(lan, loopback bool) (of [4]int) {
		t.Helper()
		b := onBoth("a0", 1, 0)
		for i := range b {
			b[i].Linger = b[i].Interface == lo && loopback || b[i].Interface != lo && lan
		}
		applied := applyAll(t, d, want(b...))
		return [4]int{applied.VIPs[v4].Connections, applied.VIPs[v6].Connections, applied.Loopback[v4].Connections, applied.Loopback[v6].Connections}
	}
	// On a busy machine one may be silent for a second although it talks.
	eventually(t, "lo lingers", func() bool { return counts(false, true) == [4]int{-1, -1, 2, 1} })
	eventually(t, "both linger", func() bool { return counts(true, true) == [4]int{2, 1, 2, 1} })
	for _, conn := range conns[:2] {
		_ = conn.Close()
	}
	begin := time.Now()
	for got := counts(true, true); got != [4]int{0, 1, 0, 1}; got = counts(true, true) {
		fired(t, d)
	}
	t.Logf("the end of the connections was seen after %s", time.Since(begin))
	eventually(t, "the LAN lingers", func() bool { return counts(true, false) == [4]int{0, 1, -1, -1} })
}
