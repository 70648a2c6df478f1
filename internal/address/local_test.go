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
	for epoch := range uint64(50) {
		w := want(model.Binding{Addr: v6, Interface: "a0", Epoch: epoch + 1})
		if v := apply(t, d, w)[v6]; !v.Bound {
			t.Fatalf("%+v", v)
		}
		if !local(v6, index) {
			t.Fatalf("bound but not local at the %dth time", epoch+1)
		}
		apply(t, d, want())
	}
}
