package layer2

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

// TestErrorsAreCounted: each frame, socket and rule that fails counts once, where it fails, and
// only what stands in the way of a VIP is an error of Apply.
func TestErrorsAreCounted(t *testing.T) {
	fault := errors.New("no")
	refuse := func(h *harness) { h.k.sending(func([]byte) error { return fault }) }
	elsewhere := announceVIP(vip4)
	elsewhere.Interface = "eth9"
	for name, c := range map[string]struct {
		before func(*harness) // the Apply
		want   model.L2Advert
		after  func(*harness)
		fails  bool
		errors uint64
	}{
		"nothing":                           {want: announceVIP(vip4)},
		"no group, of what is answered for": {before: func(h *harness) { h.k.closed = fault }, want: respondVIP(vip6), fails: true, errors: 1},
		"no group, of what is probed":       {before: func(h *harness) { h.k.closed = fault }, want: probeVIP(vip6, 1)},
		"no group, of what is bound":        {before: func(h *harness) { h.k.closed = fault }, want: announceVIP(vip6)},
		"no interface":                      {want: elsewhere, fails: true, errors: 1},
		"no silence":                        {before: func(h *harness) { h.s[silence.ARP].failed = fault }, want: silentVIP(vip4), fails: true, errors: 1},
		"no preparation":                    {before: func(h *harness) { h.s[silence.ARP].unable = fault }, want: yieldingVIP(vip4), errors: 1},
		"no announcement":                   {before: refuse, want: announceVIP(vip4), fails: true, errors: 1},
		"no further announcement":           {want: announceVIP(vip4), after: func(h *harness) { refuse(h); time.Sleep(time.Minute) }, errors: 1},
		"a socket that fails":               {want: announceVIP(vip4), after: func(h *harness) { h.k.ports[portKey{"eth0", silence.ARP}].ev.Broken(fault) }, errors: 1},
		"silence that is not renewed":       {want: silentVIP(vip4), after: func(h *harness) { h.d.silenceLost(fault) }, errors: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				if c.before != nil {
					c.before(h)
				}
				got, err := h.try(c.want)
				if (err != nil) != c.fails || (got.Err != "") != c.fails {
					t.Errorf("%v, report %+v", err, got)
				}
				if c.after != nil {
					for h.changed() {
					}
					c.after(h)
					if !h.changed() {
						t.Error("nobody is told")
					}
				}
				if s := h.d.Stats(); s.Errors != c.errors {
					t.Errorf("%d errors, want %d", s.Errors, c.errors)
				}
				h.s[silence.ARP].failed = nil // for Close
			})
		})
	}
}
