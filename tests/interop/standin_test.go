package interop_test

import (
	"testing"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab/measure"
)

// TestStandIn shows that the lab can tell: bare gobgpd spreads connections, and a
// path that it withdraws is gone from the router's kernel while others stay.
func TestStandIn(t *testing.T) {
	f := fabric(t, interop.StandIn{}, interop.Options{}, interop.NewToR)
	time.Sleep(2 * time.Second)
	m, tor := f.Nodes[0], f.ToRs[0]
	from := measure.Now()
	if err := f.Speaker.Drain(t.Context(), f.Net, m); err != nil {
		t.Fatal(err)
	}
	for _, v := range f.Speaker.VIPs() {
		err := interop.Eventually(t.Context(), 5*time.Second, "withdrawn", func() error {
			return f.HasHops(t.Context(), tor, v, f.Others(m))
		})
		if err != nil {
			t.Error(err)
		}
		events, err := f.Events(tor)
		if err != nil {
			t.Fatal(err)
		}
		at, ok := measure.ViaGone(events, interop.Prefix(v), interop.Gateway(&m.Host, v), from)
		if !ok {
			t.Errorf("the watcher did not see %s leave %s: %+v", m.Name, v, events)
		}
		t.Logf("%s gone after %v", v, at.Sub(from))
		r := f.Eyes.Reach(v, 0, measure.Now().Add(-300*time.Millisecond))
		if r.Failed > 0 || r.Attempts < 300 {
			t.Errorf("%s: %+v", v, r)
		}
	}
}
