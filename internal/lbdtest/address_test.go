package lbdtest

import (
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/address"
	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

var (
	vip4 = netip.MustParseAddr("10.0.0.200")
	vip6 = netip.MustParseAddr("fd00::200")
)

// onBoth wants both VIPs on the wire and, for 15 s, on lo.
func onBoth(valid time.Duration) *model.Desired {
	want := &model.Desired{ValidUntil: time.Now().Add(valid)}
	for _, a := range []netip.Addr{vip4, vip6} {
		want.Bind = append(want.Bind, model.Binding{Addr: a, Interface: "eth0", Epoch: 1},
			model.Binding{Addr: a, Interface: model.LoopbackInterface, Epoch: 1, Lifetime: 15 * time.Second})
	}
	return want
}

// driver is that of a new process.
func driver(t *testing.T, h *Host) *address.Driver {
	t.Helper()
	d, err := NewAddress(NewProcess(), h, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// inMemory plays f with a machine and the driver of a process on it.
func inMemory(t *testing.T, f func(h *Host, d *address.Driver, apply func(*model.Desired) model.Applied)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := NewNet(1)
		h := n.Host("m1")
		h.Attach("eth0", "lan")
		d := driver(t, h)
		f(h, d, func(want *model.Desired) model.Applied {
			t.Helper()
			applied, err := d.Apply(t.Context(), want)
			if err != nil {
				t.Fatal(err)
			}
			return applied
		})
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
		h.Power(false) // ends the lifetimes
	})
}

// check compares how many addresses there are on the wire and on lo, in the kernel
// and in the report.
func check(t *testing.T, when string, h *Host, applied model.Applied, wire, loopback int) {
	t.Helper()
	if a, b := h.Addresses(), h.Loopback(); len(a) != wire || len(b) != loopback {
		t.Errorf("%s: on the wire %v, on lo %v; want %d, %d", when, a, b, wire, loopback)
	}
	count := func(vips map[netip.Addr]model.AppliedVIP, iface string) (n int) {
		for a, v := range vips {
			if v.Bound {
				n++
			}
			if v.Bound && v.Interface != iface {
				t.Errorf("%s: %s is reported on %q", when, a, v.Interface)
			}
		}
		return n
	}
	if a, b := count(applied.VIPs, "eth0"), count(applied.Loopback, model.LoopbackInterface); a != wire || b != loopback {
		t.Errorf("%s: reported on the wire %v, on lo %v", when, applied.VIPs, applied.Loopback)
	}
}

func TestSlotsInMemory(t *testing.T) {
	inMemory(t, func(h *Host, d *address.Driver, apply func(*model.Desired) model.Applied) {
		applied := apply(onBoth(time.Hour))
		check(t, "both", h, applied, 2, 2)
		if left := time.Until(applied.Loopback[vip4].Expires); left < 14*time.Second || left > 15*time.Second {
			t.Errorf("on lo for %s", left)
		}
		if left := time.Until(applied.VIPs[vip4].Expires); left > address.Lifetime {
			t.Errorf("on the wire for %s", left)
		}
		time.Sleep(time.Minute) // both are renewed without an Apply
		applied = apply(onBoth(time.Hour))
		check(t, "a minute later", h, applied, 2, 2)
		if applied.VIPs[vip4].Expired || applied.Loopback[vip4].Expired {
			t.Errorf("expired: %+v", applied)
		}
		if left := time.Until(applied.Loopback[vip4].Expires); left < 9*time.Second {
			t.Errorf("on lo for %s only", left)
		}
		if !h.RemoveLoopback(vip4) || !h.Remove(vip6) {
			t.Error("not there to be removed")
		}
		time.Sleep(50 * time.Millisecond)
		check(t, "put back", h, apply(onBoth(time.Hour)), 2, 2)
		// Nobody decides: each ends by its own lifetime.
		apply(onBoth(time.Millisecond))
		time.Sleep(4 * time.Second)
		check(t, "the short one is over", h, apply(onBoth(-1)), 0, 2)
		time.Sleep(12 * time.Second)
		applied = apply(onBoth(time.Hour))
		check(t, "the long one is over", h, applied, 0, 0)
		if !applied.VIPs[vip6].Expired || !applied.Loopback[vip6].Expired {
			t.Errorf("not expired: %+v", applied)
		}
	})
}

func TestLeftoversInMemory(t *testing.T) {
	inMemory(t, func(h *Host, d *address.Driver, apply func(*model.Desired) model.Applied) {
		apply(&model.Desired{ValidUntil: time.Now().Add(time.Hour), Bind: []model.Binding{
			{Addr: vip4, Interface: "eth0", Epoch: 1},
			{Addr: vip6, Interface: model.LoopbackInterface, Epoch: 1, Lifetime: 15 * time.Second},
		}})
		next := driver(t, h)
		defer func() { _ = next.Close(t.Context()) }()
		applied, err := next.Apply(t.Context(), &model.Desired{})
		if err != nil {
			t.Fatal(err)
		}
		check(t, "left over", h, applied, 1, 1)
		if !applied.VIPs[vip4].Bound || !applied.Loopback[vip6].Bound {
			t.Errorf("report %+v", applied)
		}
		_ = d.Close(t.Context())
		if applied, err = next.Apply(t.Context(), &model.Desired{Synced: true}); err != nil {
			t.Fatal(err)
		}
		check(t, "pruned", h, applied, 0, 0)
	})
}

// TestLifetimeChangesInMemory: shorter or longer, with the next decision.
func TestLifetimeChangesInMemory(t *testing.T) {
	inMemory(t, func(h *Host, d *address.Driver, apply func(*model.Desired) model.Applied) {
		for _, lifetime := range []time.Duration{0, 15 * time.Second, 2 * time.Second, 4 * time.Second} {
			applied := apply(&model.Desired{ValidUntil: time.Now().Add(time.Hour), Bind: []model.Binding{
				{Addr: vip4, Interface: model.LoopbackInterface, Epoch: 1, Lifetime: lifetime},
			}})
			if lifetime == 0 {
				lifetime = address.Lifetime
			}
			if left := time.Until(applied.Loopback[vip4].Expires); left > lifetime || left < lifetime-10*time.Millisecond {
				t.Errorf("%s left, want %s", left, lifetime)
			}
		}
	})
}

// TestLoopbackOnTheWire: Linux answers ARP for an address on lo on every interface,
// but not ND, and takes packets to either.
func TestLoopbackOnTheWire(t *testing.T) {
	inMemory(t, func(h *Host, d *address.Driver, apply func(*model.Desired) model.Applied) {
		apply(&model.Desired{ValidUntil: time.Now().Add(time.Hour), Bind: []model.Binding{
			{Addr: vip4, Interface: model.LoopbackInterface, Epoch: 1},
			{Addr: vip6, Interface: model.LoopbackInterface, Epoch: 1},
		}})
		for a, answers := range map[netip.Addr]int{vip4: 1, vip6: 0} {
			if got := h.net.Holders(a); len(got) != answers {
				t.Errorf("%s: answered by %v, want %d", a, got, answers)
			}
			c := h.net.Client("c"+a.String(), "lan")
			h.net.mu.Lock()
			c.neigh[a] = h.port("eth0").mac
			if !h.net.served(c, a) {
				t.Errorf("%s: packets are not taken", a)
			}
			h.net.mu.Unlock()
		}
		r := &rules{kernel{NewProcess(), h}, silence.ARP, time.Second}
		if err := r.Install(silence.Want{Addrs: []netip.Addr{vip4}}); err != nil {
			t.Fatal(err)
		}
		if got := h.net.Holders(vip4); len(got) != 0 {
			t.Errorf("silent, but answered by %v", got)
		}
		time.Sleep(2 * time.Second)
	})
}
