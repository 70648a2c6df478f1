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
}

func newRings() *rings {
	return &rings{last: map[netip.Addr]model.Ring{}, at: map[netip.Addr]time.Time{}}
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
