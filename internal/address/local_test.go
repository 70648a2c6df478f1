package address

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestBoundMeansLocal: once Apply says that an IPv6 VIP is bound, packets to it are
// delivered here, also while the machine is busy.
func TestBoundMeansLocal(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, idle)
	index, err := d.kernel.LinkIndex("a0")
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	defer stop.Store(true)
	for range 8 {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	for epoch := range uint64(50) {
		w := want(model.Binding{Addr: v6, Interface: "a0", Epoch: epoch + 1})
		begin := time.Now()
		eventually(t, "the VIP is bound", func() bool {
			applied, err := d.Apply(t.Context(), w) // fails while the kernel has no time for it
			bound := applied.VIPs[v6].Bound
			if bound != (err == nil) {
				t.Fatalf("bound %v with error %v", bound, err)
			}
			return bound
		})
		if took := time.Since(begin); took < localLate && !(*linux)(nil).Local(v6, index) {
			t.Fatalf("bound after %s but not local at the %dth time", took, epoch+1)
		}
		apply(t, d, want())
	}
}

// undelivering is a kernel that takes addresses and does not deliver to them until it is told to.
type undelivering struct {
	Kernel
	delivers atomic.Bool
}

func (k *undelivering) Local(addr netip.Addr, index int) bool {
	return k.delivers.Load() && k.Kernel.Local(addr, index)
}

// TestNotBoundUntilDelivered: a VIP to which the kernel does not deliver yet, as on a host whose
// workers wait for each other, is not called bound: nobody would be served. It stays there and is
// renewed, whatever its epoch, and is bound as soon as the kernel delivers.
func TestNotBoundUntilDelivered(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d, k := startUndelivering(t)
	waits := func(what string, w *model.Desired) {
		t.Helper()
		applied, err := d.Apply(t.Context(), w)
		if v := applied.VIPs[v6]; err == nil || v.Bound || v.Err != errUndelivered.Error() || !v.Expires.IsZero() {
			t.Fatalf("%s: %+v, %v", what, v, err)
		}
		if !applied.VIPs[v4].Bound {
			t.Fatalf("%s: the other VIP has to wait for it", what)
		}
		if len(find(t, v6)) != 1 {
			t.Fatalf("%s: the address is not there", what)
		}
		if d.Extend(time.Now().Add(time.Minute)) {
			t.Errorf("%s: nobody looks again", what)
		}
	}
	waits("at first", want(on("a0", 1)...))
	waits("again", want(on("a0", 1)...))
	waits("under another epoch", want(on("a0", 2)...))
	waits("beside one that is bound now", want(append(on("a0", 2), model.Binding{Addr: netip.MustParseAddr("10.0.0.201"), Interface: "a0", Epoch: 1})...))
	k.delivers.Store(true)
	if v := apply(t, d, want(on("a0", 2)...))[v6]; !v.Bound || v.Expires.IsZero() {
		t.Errorf("when the kernel delivers: %+v", v)
	}
	// What served before is not taken for gone.
	k.delivers.Store(false)
	removeByHand(t, "a0", v6)
	if applied, err := d.Apply(t.Context(), want(on("a0", 2)...)); err != nil || !applied.VIPs[v6].Bound {
		t.Errorf("put back: %+v, %v", applied.VIPs[v6], err)
	}
}

// TestDeliveryIsNotWaitedForLong: where the kernel takes longer than the election has patience, the
// VIP is called bound, as nobody else may be faster.
func TestDeliveryIsNotWaitedForLong(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d, _ := startUndelivering(t)
	begin := time.Now()
	eventually(t, "it is called bound", func() bool {
		applied, _ := d.Apply(t.Context(), want(on("a0", 1)...))
		return applied.VIPs[v6].Bound
	})
	if took := time.Since(begin); took < localLate {
		t.Errorf("bound after %s", took)
	}
	if !d.Extend(time.Now().Add(time.Minute)) {
		t.Error("it is still looked at")
	}
}

func startUndelivering(t *testing.T) (*Driver, *undelivering) {
	t.Helper()
	inner, err := openKernel()
	if err != nil {
		t.Fatal(err)
	}
	k := &undelivering{Kernel: inner}
	d, err := NewOn(k, Options{Lifetime: idle})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(t.Context()) })
	return d, k
}

// TestLocalByOneSlot: the route of the other slot is not enough to be called local,
// as it may go the next moment.
func TestLocalByOneSlot(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, idle)
	index, err := d.kernel.LinkIndex("a0")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ lan, loopback bool }{{true, false}, {true, true}, {false, true}, {false, false}} {
		var bind []model.Binding
		if c.lan {
			bind = append(bind, model.Binding{Addr: v6, Interface: "a0", Epoch: 1})
		}
		if c.loopback {
			bind = append(bind, model.Binding{Addr: v6, Interface: lo, Epoch: 1})
		}
		begin := time.Now()
		apply(t, d, want(bind...))
		took := time.Since(begin)
		for at, wanted := range map[int]bool{index: c.lan, loopbackIndex: c.loopback} {
			if wanted {
				mustBeLocal(t, v6, at, took)
			} else if (*linux)(nil).Local(v6, at) {
				t.Errorf("%+v: local on interface %d", c, at)
			}
		}
	}
}

// mustBeLocal: an address that an Apply bound is local once the Apply is over. But what
// else runs can keep the kernel from it for longer than the driver waits.
func mustBeLocal(t *testing.T, addr netip.Addr, index int, took time.Duration) {
	t.Helper()
	if took < localLate && !(*linux)(nil).Local(addr, index) {
		t.Errorf("%s: bound on interface %d after %s, but not local", addr, index, took)
	}
	eventually(t, addr.String()+" is local", func() bool { return (*linux)(nil).Local(addr, index) })
}
