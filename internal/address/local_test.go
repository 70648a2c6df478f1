package address

import (
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
	d := start(t, 2*time.Second)
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
	d := start(t, 2*time.Second)
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
		apply(t, d, want(bind...))
		if a, b := local(v6, index), local(v6, loopbackIndex); a != c.lan || b != c.loopback {
			t.Errorf("%+v: local on the LAN %t, on lo %t", c, a, b)
		}
	}
}
