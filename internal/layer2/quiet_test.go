package layer2

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"lbd.dev/lbd/internal/model"
)

func quietVIP(a netip.Addr, series uint64) model.L2Advert {
	w := probeVIP(a, series)
	w.Quiet = true
	return w
}

// A VIP that is bound on lo for BGP must not be answered for on the LAN, neither
// while another node owns it there nor while this one asks the wire for it.
func TestLANQuietProbe(t *testing.T) {
	l := newLab(t)
	h := l.driver(Options{})
	for i, vip := range []netip.Addr{vip4, vip6} {
		onLo := netip.PrefixFrom(vip, vip.BitLen()).String() + " dev lo"
		l.IP(hostA, "addr add "+onLo)
		l.Cleanup(func() { l.IP(hostA, "addr del "+onLo) }) // the host outlives the test
		if vip.Is4() {
			l.mustBeHeld(vip, true, "bound on lo, not silent")
		}
		if got := h.apply(silentVIP(vip)); !got[vip].Silent {
			t.Fatalf("%s: not silent: %+v", vip, got[vip])
		}
		l.mustBeHeld(vip, false, "silent")
		series := uint64(i + 1)
		got := h.apply(quietVIP(vip, series))
		l.mustBeHeld(vip, false, "asking quietly")
		for !got[vip].Probe.Done || got[vip].Probe.Series != series {
			<-h.d.Changed()
			got = h.apply(quietVIP(vip, series))
		}
		if r := got[vip]; !r.Silent || r.Probe.Answered {
			t.Errorf("%s: after the series: %+v, want silent and not answered", vip, r)
		}
		l.mustBeHeld(vip, false, "after the series")
		l.bind(hostA, vip)
		if got := h.apply(announceVIP(vip)); got[vip].Silent || !got[vip].Announcing {
			t.Errorf("%s: announced: %+v", vip, got[vip])
		}
		l.mustBeHeld(vip, true, "announced")
	}
	h.close()
}

// A host that cannot be silent does not ask: it might take its own answer for
// silence, or answer for what another node owns.
func TestQuietProbeNeedsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.s[0].failed = errors.New("no nf_tables")
		got, err := h.try(quietVIP(vip4, 1))
		if err == nil {
			t.Error("no error")
		}
		if r := got.VIPs[vip4]; r.Silent || !strings.HasPrefix(r.Err, "cannot silence: ") {
			t.Errorf("report %+v, want not silent and an error", r)
		}
		h.s[0].failed = nil
		if got := h.apply(quietVIP(vip4, 1)); !got[vip4].Silent {
			t.Errorf("report %+v, want silent", got[vip4])
		}
		if w := h.k.whats(); len(w) < 2 || w[0] != "silence" {
			t.Errorf("%v, want silence before the first question", w)
		}
	})
}
