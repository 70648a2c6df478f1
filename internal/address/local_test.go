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
	index, err := d.kernel.linkIndex("a0")
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
	const times = 50
	waited := 0
	for epoch := range uint64(times) {
		begin := time.Now()
		w := want(model.Binding{Addr: v6, Interface: "a0", Epoch: epoch + 1})
		if v := apply(t, d, w)[v6]; !v.Bound {
			t.Fatalf("%+v", v)
		}
		took := time.Since(begin)
		switch {
		case local(v6, index):
		case took < localTimeout:
			t.Fatalf("bound after %s but not local at the %dth time", took, epoch+1)
		default:
			waited++ // whatever else runs can keep the kernel from it for longer than the driver waits
		}
		apply(t, d, want())
	}
	t.Logf("not local within %s for %d of %d times", localTimeout, waited, times)
	if waited == times {
		t.Error("it is never local")
	}
}

// TestLocalByOneSlot: the route of the other slot is not enough to be called local,
// as it may go the next moment.
func TestLocalByOneSlot(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, idle)
	index, err := d.kernel.linkIndex("a0")
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
			} else if local(v6, at) {
				t.Errorf("%+v: local on interface %d", c, at)
			}
		}
	}
}

// mustBeLocal: an address that an Apply bound is local once the Apply is over. But what
// else runs can keep the kernel from it for longer than the driver waits.
func mustBeLocal(t *testing.T, addr netip.Addr, index int, took time.Duration) {
	t.Helper()
	if took < localTimeout && !local(addr, index) {
		t.Errorf("%s: bound on interface %d after %s, but not local", addr, index, took)
	}
	eventually(t, addr.String()+" is local", func() bool { return local(addr, index) })
}
