package address

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestEachSlotExpiresByItsLifetime: nobody decides any more.
func TestEachSlotExpiresByItsLifetime(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	const lifetime, loLifetime = 4 * time.Second, 8 * time.Second
	o := observe(t, both...)
	begin := time.Now()
	d := start(t, lifetime)
	w := want(onBoth("a0", 1, loLifetime)...)
	w.ValidUntil = begin.Add(lifetime/3 - 100*time.Millisecond) // before the first renewal
	expect(t, applyAll(t, d, w), true, true)
	renewals := d.Stats().Renewals // if that took long
	eventually(t, "gone from the LAN", func() bool { a, _ := has(t, v4); b, _ := has(t, v6); return !a && !b })
	// The same epoch is not bound again on the LAN, and lo is not renewed by that.
	w = want(onBoth("a0", 1, loLifetime)...)
	w.ValidUntil = time.Now().Add(-time.Millisecond)
	applied := applyAll(t, d, w)
	expect(t, applied, false, true)
	if !applied.VIPs[v4].Expired || applied.Loopback[v4].Expired {
		t.Errorf("on the LAN %+v, on lo %+v", applied.VIPs[v4], applied.Loopback[v4])
	}
	eventually(t, "gone from lo", func() bool { _, a := has(t, v4); _, b := has(t, v6); return !a && !b })
	time.Sleep(20 * time.Millisecond)
	applied = applyAll(t, d, want(onBoth("a0", 1, loLifetime)...))
	expect(t, applied, false, false)
	for _, addr := range both {
		if !applied.VIPs[addr].Expired || !applied.Loopback[addr].Expired {
			t.Errorf("%s: on the LAN %+v, on lo %+v", addr, applied.VIPs[addr], applied.Loopback[addr])
		}
		for _, at := range []slot{{addr, false}, {addr, true}} {
			least := lifetime
			if at.loopback {
				least = loLifetime
			}
			l := o.at(at)
			if len(l) < 2 || l[len(l)-1].there {
				t.Errorf("%v: %v", at, l)
				continue
			}
			// The driver lets go of what is within the margin if it looks just then.
			if lived := l[len(l)-1].at.Sub(begin); lived < least-margin {
				t.Errorf("%v: gone after %s", at, lived)
			} else {
				t.Logf("%v: gone after %s", at, lived)
			}
		}
	}
	if s := d.Stats(); s.Expirations != 4 || s.Renewals != renewals {
		t.Errorf("stats %+v", s)
	}
	// A new epoch on lo alone.
	b := onBoth("a0", 1, loLifetime)
	b[1].Epoch, b[3].Epoch = 2, 2
	expect(t, applyAll(t, d, want(b...)), false, true)
}

// TestLongLifetimeIsCheap: a lifetime of 15 s is renewed every 5 s, however often
// there is a decision.
func TestLongLifetimeIsCheap(t *testing.T) {
	if !isolated(t) {
		return
	}
	const n, lifetime = 1000, 15 * time.Second
	d := start(t, 3*time.Second)
	var bind []model.Binding
	add := func() {
		i := len(bind)
		bind = append(bind, model.Binding{Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Interface: lo, Epoch: 1, Lifetime: lifetime})
	}
	for len(bind) < n-1 {
		add()
	}
	batches, renewals := 0, 0
	begin := time.Now()
	for time.Since(begin) < 11*time.Second {
		applied := applyAll(t, d, want(bind...))
		for _, b := range bind {
			v := applied.Loopback[b.Addr]
			// A third of it has passed and some more for a busy machine, no less is left.
			if left := time.Until(v.Expires); !v.Bound || left < lifetime-lifetime/3-4*time.Second {
				t.Fatalf("after %s: %s: %+v, %s left", time.Since(begin), b.Addr, v, left)
			}
		}
		d.mu.Lock()
		if d.kernel.(*linux).before == nil {
			add() // with the next Apply: no reason to renew all others
			d.kernel.(*linux).before = func(ops []*Op) {
				if ops[0].Verb == Renew {
					batches++
					renewals += len(ops)
				}
			}
		}
		d.mu.Unlock()
		time.Sleep(400 * time.Millisecond)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	took := time.Since(begin)
	t.Logf("%d renewals in %d batches within %s", renewals, batches, took)
	// The last may be about to come. On a busy machine a decision finds the beat late, and
	// renews what is due just before the beat does.
	if most := int(took / (lifetime / 3)); renewals > (most+1)*n || renewals < (most-1)*n {
		t.Errorf("%d renewals of %d VIPs within %s, want %d each", renewals, n, took, most)
	}
	if s := d.Stats(); s.Readds != 0 || s.Expirations != 0 || s.Errors != 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestWhatEndsTogether: a new address lets those with the lifetime of the driver end
// with it, and only those.
func TestWhatEndsTogether(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, idle) // no beat while this runs
	lan, long := model.Binding{Interface: "a0", Epoch: 1}, model.Binding{Interface: lo, Epoch: 1, Lifetime: 2 * idle}
	at := func(b model.Binding, addr string) model.Binding {
		b.Addr = netip.MustParseAddr(addr)
		return b
	}
	bind := []model.Binding{at(lan, "10.0.0.1"), at(long, "10.0.0.1")}
	apply(t, d, want(bind...))
	for _, c := range []struct {
		add      model.Binding
		renewals uint64
	}{
		{at(long, "10.0.0.2"), 0}, {at(lan, "10.0.0.2"), 1}, {at(long, "10.0.0.3"), 1}, {at(lan, "10.0.0.3"), 3},
	} {
		bind = append(bind, c.add)
		apply(t, d, want(bind...))
		if got := d.Stats().Renewals; got != c.renewals {
			t.Errorf("%s on %s was added: %d renewals so far, want %d", c.add.Addr, c.add.Interface, got, c.renewals)
		}
	}
}

// TestRenewsEachByItsLifetime: without an Apply, and with a lifetime that is
// shorter than that of the driver.
func TestRenewsEachByItsLifetime(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	beats := map[bool]time.Duration{false: 2 * time.Second, true: time.Second} // on lo or not
	d := start(t, 3*beats[false])
	b := onBoth("a0", 1, 3*beats[true])
	begin := time.Now()
	applyAll(t, d, want(b...))
	counts := make(map[int]int)
	d.mu.Lock()
	d.kernel.(*linux).before = func(ops []*Op) {
		for _, o := range ops {
			if o.Verb == Renew {
				counts[o.Index]++
			}
		}
	}
	d.mu.Unlock()
	o := observe(t, both...)
	time.Sleep(5500 * time.Millisecond)
	o.end()
	stayed(t, o, true)
	stayed(t, o, false)
	d.mu.Lock()
	defer d.mu.Unlock()
	took := time.Since(begin)
	for index, n := range counts {
		// Of both addresses; the last may be about to come, and a busy machine leaves some out.
		if most := int(took / beats[index == loopbackIndex]); n > 2*(most+1) || n < most {
			t.Errorf("interface %d: %d renewals in %s, want %d", index, n, took, 2*most)
		}
	}
	if len(counts) != 2 {
		t.Errorf("renewals %v", counts)
	}
}

// TestLifetimeChanges: the kernel is told with the next decision, whichever way.
func TestLifetimeChanges(t *testing.T) {
	if !isolated(t) {
		return
	}
	d := start(t, 2*time.Second)
	o := observe(t, both...)
	var begin time.Time // when this lifetime was first wanted
	was := time.Duration(-1)
	left := func(lifetime time.Duration) {
		t.Helper()
		if lifetime != was {
			begin, was = time.Now(), lifetime
		}
		applied := applyAll(t, d, want(onLo(1, lifetime)...))
		lifetime = max(lifetime.Truncate(time.Second), MinLifetime)
		for _, addr := range both {
			f := find(t, addr)
			if len(f) != 1 || !validSince(f[0], lifetime, begin) {
				t.Errorf("%s: in the kernel %+v, want %s", addr, f, lifetime)
			}
			if set := applied.Loopback[addr].Expires.Add(-lifetime); set.Before(begin) || set.After(time.Now()) {
				t.Errorf("%s: for %s from %s after the decision on", addr, lifetime, set.Sub(begin))
			}
		}
	}
	left(0)
	left(15 * time.Second)
	before := d.Stats().Renewals
	left(15 * time.Second)
	if d.Stats().Renewals != before {
		t.Error("renewed without a reason")
	}
	left(2 * time.Second)
	left(3500 * time.Millisecond) // as much of it as the kernel can count
	left(time.Millisecond)
	left(4 * time.Second)
	time.Sleep(2500 * time.Millisecond) // longer than it would have lived before
	for _, addr := range both {
		if l := o.at(slot{addr, true}); len(l) == 0 || len(l) > 2 || !l[len(l)-1].there {
			t.Errorf("%s was away: %v", addr, l)
		}
	}
	// The short one counts from the moment it is set.
	const short = 4 * time.Second
	left(8 * time.Second)
	w := want(onLo(1, short)...)
	begin = time.Now()
	w.ValidUntil = begin.Add(short/3 - 100*time.Millisecond) // before the first renewal
	applyAll(t, d, w)
	eventually(t, "gone", func() bool { return len(find(t, v4))+len(find(t, v6)) == 0 })
	if took := time.Since(begin); took < short-margin {
		t.Errorf("gone after %s", took)
	}
	fired(t, d)
	if v := applyAll(t, d, want(onLo(1, short)...)).Loopback[v4]; !v.Expired || v.Bound {
		t.Errorf("%+v", v)
	}
}
