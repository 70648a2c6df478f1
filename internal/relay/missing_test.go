package relay

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestMissingOnceMayStillBeThere: an address to which the host has no connection any more is listed
// once more, and then not; one that is found again is listed once.
func TestMissingOnceMayStillBeThere(t *testing.T) {
	l := newLab(t)
	l.translate(vip4, hostA)
	l.servedBy(l.mustDial(vip4), hostA)
	h := l.driver(hostA, discard())
	h.d.host.found = []netip.Addr{vip4, vip6} // the second is gone since
	for i, want := range [][]netip.Addr{{vip4, vip6}, {vip4}, {vip4}} {
		h.d.host.tracked = time.Time{}
		h.In(hostA, func() {
			got, err := h.d.Apply(t.Context(), &model.Desired{Track: true})
			if err != nil || got.Ring == nil || !slices.Equal(got.Ring.Tracked, want) {
				t.Errorf("look %d: %+v, %v, want %v", i+1, got.Ring, err, want)
			}
		})
	}
}
