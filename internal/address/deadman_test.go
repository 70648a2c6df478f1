package address

import (
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

func TestExpiresWithoutDecision(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	const lifetime = 6 * time.Second
	o := observe(t, both...)
	begin := time.Now()
	d := start(t, lifetime)
	w := want(on("a0", 1)...)
	w.ValidUntil = begin.Add(lifetime/3 - 100*time.Millisecond) // before the first renewal
	apply(t, d, w)
	renewals := d.Stats().Renewals // if that took long
	fired(t, d)
	eventually(t, "gone", func() bool { return len(find(t, v4))+len(find(t, v6)) == 0 })
	t.Logf("gone after %s", time.Since(begin))
	if took := time.Since(begin); took < lifetime-margin {
		t.Errorf("gone after %s", took)
	}
	// The same epoch is never bound again, a new one is.
	for range 3 {
		vips := apply(t, d, want(on("a0", 1)...))
		for _, addr := range both {
			if v := vips[addr]; v.Bound || !v.Expired || v.Err != "" {
				t.Errorf("%s: %+v", addr, v)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, addr := range both {
		if l := o.of(addr); len(l) == 0 || l[len(l)-1].there {
			t.Errorf("%s came back: %v", addr, l)
		}
	}
	if s := d.Stats(); s.Expirations != 2 || s.Renewals != renewals {
		t.Errorf("stats %+v", s)
	}
	if vips := apply(t, d, want(on("a0", 2)...)); !vips[v4].Bound || vips[v4].Expired || !vips[v6].Bound {
		t.Errorf("a new epoch: %+v", vips)
	}
	apply(t, d, want())
	if vips := apply(t, d, want(on("a0", 1)...)); !vips[v4].Bound {
		t.Errorf("after it was not wanted: %+v", vips)
	}
}

func TestRenewsWithoutApply(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	const lifetime = 5 * time.Second // a busy machine may leave out two beats
	begin := time.Now()
	d := start(t, lifetime)
	apply(t, d, want(on("a0", 1)...))
	o := observe(t, both...)
	eventually(t, "four beats", func() bool { return d.Stats().Renewals >= 8 })
	for _, addr := range both {
		if l := o.of(addr); len(l) != 1 || !l[0].there {
			t.Errorf("%s was away: %v", addr, l)
		}
	}
	s, took := d.Stats(), time.Since(begin)
	if most := 2 * uint64(took/(lifetime/3)); s.Renewals > most || s.Readds != 0 {
		t.Errorf("stats %+v after %s", s, took)
	}
}

// TestExtend: the addresses stay as long as the decision is extended, and each
// renewal is told. What has ended is not extended.
func TestExtend(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	const lifetime = 4 * time.Second
	d := start(t, lifetime)
	w := want(on("a0", 1)...)
	begin := time.Now()
	const holds = 3 * time.Second
	w.ValidUntil = begin.Add(holds)
	apply(t, d, w)
	renewed := 0
	for ; time.Since(begin) < 2*lifetime; time.Sleep(50 * time.Millisecond) {
		d.Extend(time.Now().Add(holds)) // not while it renews
		select {
		case <-d.Changed():
			renewed++
		default:
		}
		if len(find(t, v4)) != 1 || len(find(t, v6)) != 1 {
			t.Fatal("gone while the decision holds")
		}
	}
	if took := time.Since(begin); renewed < 2 || renewed > int(took/(lifetime/3)) {
		t.Errorf("%d renewals were told in %s of a lifetime of %s", renewed, took, lifetime)
	}
	time.Sleep(holds + 100*time.Millisecond)
	if d.Extend(time.Now().Add(holds)) {
		t.Error("extended after the decision had ended")
	}
	eventually(t, "gone", func() bool { return len(find(t, v4))+len(find(t, v6)) == 0 })
}

func TestStaleDecisionBindsNothing(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, 2*time.Second)
	w := want(on("a0", 1)...)
	w.ValidUntil = time.Now().Add(-time.Millisecond)
	applied, err := settle(t, d, w)
	if v := applied.VIPs[v4]; err == nil || v.Bound || v.Expired || v.Err != errStale.Error() || len(find(t, v4)) != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	// Frozen between the look at the clock and the call: unbound again at once.
	w = want(on("a0", 1)...)
	w.ValidUntil = time.Now().Add(100 * time.Millisecond)
	d.kernel.(*linux).before = late(Create, 300*time.Millisecond)
	applied, err = settle(t, d, w)
	if v := applied.VIPs[v4]; err == nil || v.Bound || len(find(t, v4))+len(find(t, v6)) != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	// It is no expiry: the next decision binds it under the same epoch.
	if vips := apply(t, d, want(on("a0", 1)...)); !vips[v4].Bound || !vips[v6].Bound {
		t.Errorf("%v", vips)
	}
}

// TestTooLateAfterTheQuestion: what a fresh binding rests on does not hold for
// long. Once the address is there it is renewed, however old the question is.
func TestTooLateAfterTheQuestion(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, 6*time.Second)
	bind := func(epoch uint64, before time.Duration) *model.Desired {
		b := on("a0", epoch)
		for i := range b {
			b[i].AddBefore = time.Now().Add(before)
		}
		return want(b...)
	}
	vips := apply(t, d, bind(1, -time.Millisecond))
	if v := vips[v4]; v.Bound || !v.TooLate || len(find(t, v4))+len(find(t, v6)) != 0 {
		t.Errorf("bound although it is too late: %+v", v)
	}
	if v := apply(t, d, bind(1, time.Second))[v4]; v.Bound || !v.TooLate {
		t.Errorf("the same epoch was tried again: %+v", v)
	}
	// Frozen between the look at the clock and the call: unbound again at once.
	d.kernel.(*linux).before = late(Create, 300*time.Millisecond)
	if v := apply(t, d, bind(2, 100*time.Millisecond))[v4]; v.Bound || !v.TooLate || len(find(t, v4))+len(find(t, v6)) != 0 {
		t.Errorf("%+v", v)
	}
	w := bind(3, 4*time.Second)
	if v := apply(t, d, w)[v4]; !v.Bound || v.TooLate {
		t.Errorf("%+v", v)
	}
	time.Sleep(time.Until(w.Bind[0].AddBefore) + time.Millisecond)
	if v := apply(t, d, w)[v4]; !v.Bound || v.TooLate {
		t.Errorf("what is bound does not depend on the question any more: %+v", v)
	}
}
