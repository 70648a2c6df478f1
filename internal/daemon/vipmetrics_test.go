package daemon

import (
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"lbd.dev/lbd/internal/model"
)

// scraped is a daemon that only looks at decisions.
func scraped(t *testing.T) (*Daemon, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	d, err := New(Options{Logger: slog.New(slog.DiscardHandler), Metrics: reg, Node: "m1"})
	if err != nil {
		t.Fatal(err)
	}
	return d, reg
}

func (d *Daemon) see(list ...model.VIPStatus) {
	want := model.Desired{Status: list}
	d.observe(&want)
	d.last = want
}

func bgpStatusOf(n int, r model.Reason) model.VIPStatus {
	return model.VIPStatus{VIP: model.VIP{Addr: netip.AddrFrom4([4]byte{10, 99, byte(n >> 8), byte(n)}), Name: "cp"}, BGP: true, Reason: r}
}

// TestTransitions: one series for each VIP that is configured, and one for each
// reason that there was.
func TestTransitions(t *testing.T) {
	d, reg := scraped(t)
	const b, n, a = model.ReasonBinding, model.ReasonNoSession, model.ReasonAdvertised
	d.see(bgpStatusOf(1, b), bgpStatusOf(2, b))
	d.see(bgpStatusOf(1, n), bgpStatusOf(2, b))
	d.see(bgpStatusOf(1, a), bgpStatusOf(2, a))
	d.see(bgpStatusOf(1, a), bgpStatusOf(2, a))
	d.see(bgpStatusOf(2, a), bgpStatusOf(3, b)) // 1 is gone
	check := func(want string) {
		t.Helper()
		err := testutil.GatherAndCompare(reg, strings.NewReader(want), "lbd_vip_transitions_total", "lbd_transitions_total", "lbd_vip_conflicts_total")
		if err != nil {
			t.Error(err)
		}
	}
	const help = `
# HELP lbd_transitions_total Changes of owner or reason of all VIPs as this node sees them, by the new reason; from the first one on.
# TYPE lbd_transitions_total counter
lbd_transitions_total{mode="bgp",reason="Advertised"} 2
lbd_transitions_total{mode="bgp",reason="Binding"} 3
lbd_transitions_total{mode="bgp",reason="NoSession"} 1
# HELP lbd_vip_transitions_total Changes of owner or reason of a VIP as this node sees it.
# TYPE lbd_vip_transitions_total counter
`
	check(help + `lbd_vip_transitions_total{address="10.99.0.2",mode="bgp",vip="cp"} 2
lbd_vip_transitions_total{address="10.99.0.3",mode="bgp",vip="cp"} 1
`)
	d.see(bgpStatusOf(3, b)) // the last of the list may go too
	d.see()
	if n := len(d.metrics.moved.vips); n != 0 {
		t.Errorf("%d VIPs are remembered that are not configured", n)
	}
}

// TestConflictsFromTheFirst: a counter of what hardly ever happens is not there for
// thousands of VIPs.
func TestConflictsFromTheFirst(t *testing.T) {
	d, reg := scraped(t)
	s := bgpStatusOf(1, model.ReasonOwner)
	s.BGP = false
	d.see(s)
	if n, err := testutil.GatherAndCount(reg, "lbd_vip_conflicts_total"); n != 0 || err != nil {
		t.Errorf("%d series, %v", n, err)
	}
	d.view.Applied[model.SinkLayer2] = model.Applied{VIPs: map[netip.Addr]model.AppliedVIP{s.VIP.Addr: {Conflicts: 7}}}
	d.see(s)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP lbd_vip_conflicts_total Frames in which a foreign host used the VIP while it was announced here; from the first one on.
# TYPE lbd_vip_conflicts_total counter
lbd_vip_conflicts_total{address="10.99.0.1",vip="cp"} 7
`), "lbd_vip_conflicts_total"); err != nil {
		t.Error(err)
	}
}

// TestDuplicateWhileMarked: an alert on another host that answers fires from the mark on, is
// silent again without it, and is not doubled by BGP, which announces the same address.
func TestDuplicateWhileMarked(t *testing.T) {
	d, reg := scraped(t)
	both := []model.VIPStatus{bgpStatusOf(1, model.ReasonOwner), bgpStatusOf(1, model.ReasonAdvertised), bgpStatusOf(2, model.ReasonOwner)}
	both[0].BGP, both[2].BGP = false, false
	both[0].Duplicate, both[1].Duplicate = "02:00:00:00:00:42", "02:00:00:00:00:42"
	d.see(both...)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP lbd_vip_duplicate 1 while another host answers for the VIP beside its owner; absent otherwise.
# TYPE lbd_vip_duplicate gauge
lbd_vip_duplicate{address="10.99.0.1",vip="cp"} 1
`), "lbd_vip_duplicate"); err != nil {
		t.Error(err)
	}
	d.see(both[2])
	if n, err := testutil.GatherAndCount(reg, "lbd_vip_duplicate"); n != 0 || err != nil {
		t.Errorf("%d series without a mark, %v", n, err)
	}
}

// TestVIPsCostLittle bounds what the loop keeps of each VIP for logs and metrics,
// its status aside, and how many series it has.
func TestVIPsCostLittle(t *testing.T) {
	const vips = 10000
	d, reg := scraped(t)
	made := make([][]model.VIPStatus, 0, 3)
	for _, r := range []model.Reason{model.ReasonBinding, model.ReasonNoSession, model.ReasonAdvertised} {
		list := make([]model.VIPStatus, vips)
		for i := range list {
			list[i] = bgpStatusOf(i, r)
		}
		made = append(made, list)
	}
	before := live()
	for _, list := range made {
		d.see(list...)
	}
	if per := (live() - before) / vips; per > 200 {
		t.Errorf("%d bytes are kept for each VIP", per)
	}
	runtime.KeepAlive(made)
	n, err := testutil.GatherAndCount(reg)
	if err != nil {
		t.Fatal(err)
	}
	if most := 5*vips + 50; n > most {
		t.Errorf("%d series, want %d at most", n, most)
	}
}

// live is how much memory is in use.
func live() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
