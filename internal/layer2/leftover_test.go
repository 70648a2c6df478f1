package layer2

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"lbd.dev/lbd/internal/model"
)

// TestLeftoverSilenceIsTold: what a killed process had silenced is reported before
// anything is decided, stays silent while that is wanted, and is lifted once all is
// known and it is not.
func TestLeftoverSilenceIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.s[familyOf(vip4)].leftover = []netip.Addr{vip4}
		first, err := h.d.Apply(t.Context(), &model.Desired{})
		if err != nil || !first.VIPs[vip4].Silent {
			t.Errorf("not told: %v %v", first.VIPs, err)
		}
		silent := model.L2Advert{Addr: vip4, Interface: announceVIP(vip4).Interface, Mode: model.L2Silent}
		if got := h.apply(silent); !got[vip4].Silent {
			t.Errorf("not kept: %v", got)
		}
		if got := h.apply(); got[vip4].Silent && len(h.s[familyOf(vip4)].addrs) == 0 {
			t.Errorf("told although it is over: %v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.s[familyOf(vip4)].leftover = []netip.Addr{vip4}
		got, err := h.d.Apply(t.Context(), &model.Desired{Synced: true})
		if err != nil || got.VIPs[vip4].Silent {
			t.Errorf("lifted, but still told: %v %v", got.VIPs, err)
		}
	})
}
