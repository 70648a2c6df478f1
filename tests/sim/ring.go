package sim

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"lbd.dev/lbd/internal/model"
)

// rings is a driver that notes which rings a node decides for, and has none. It does
// not take the place of the relay driver, for whose word a decision waits.
type rings struct {
	mu   sync.Mutex
	last map[netip.Addr]model.Ring
	at   map[netip.Addr]time.Time // when it last changed
	// least is how many nodes the smallest ring had that was not to wait for others, see
	// model.Desired.Hearing.
	least map[netip.Addr]int
}

func newRings() *rings {
	return &rings{last: map[netip.Addr]model.Ring{}, at: map[netip.Addr]time.Time{}, least: map[netip.Addr]int{}}
}

// Name is one that decisions do not know.
func (*rings) Name() model.SinkName { return "rings" }

// Changed never fires.
func (*rings) Changed() <-chan struct{} { return nil }

// Close does nothing.
func (*rings) Close(context.Context) error { return nil }

// Apply notes the rings.
func (r *rings) Apply(_ context.Context, want *model.Desired) (model.Applied, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := map[netip.Addr]model.Ring{}
	for _, x := range want.Relay {
		now[x.Addr] = *x.Ring
		if least, any := r.least[x.Addr]; !want.Hearing && (!any || x.Ring.Nodes < least) {
			r.least[x.Addr] = x.Ring.Nodes
		}
	}
	for a, was := range r.last {
		if is := now[a]; !is.Same(&was) {
			r.at[a] = time.Now()
		}
	}
	r.last = now
	return model.Applied{}, nil
}

// of is the ring of a VIP, and when it last changed.
func (r *rings) of(vip netip.Addr) (ring model.Ring, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[vip], r.at[vip]
}

// smallest is how many nodes the smallest ring of a VIP had that a node did not wait
// with; 0 if there was none.
func (r *rings) smallest(vip netip.Addr) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.least[vip]
}
