package interop_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab/measure"
)

// balancers are two nodes whose VIPs lead to three machines, with the client behind a router.
func balancers(t *testing.T, s *interop.LBD) *interop.Fabric {
	t.Helper()
	need(t)
	n, err := interop.NewToR(t.Context(), bin, 2)
	if err != nil {
		t.Fatal(err)
	}
	f, err := interop.StartBalancers(t.Context(), n, s, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		keepLogs(t, n, f.Logs)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// TestBalancersMove: a router leads the VIPs of a LoadBalancer to the balancer that owns them. What
// happens to that one loses no open connection, and a planned move no new one either.
func TestBalancersMove(t *testing.T) { // P8, P18
	t.Parallel()
	s := &interop.LBD{}
	f := balancers(t, s)
	for _, c := range []struct {
		fault   interop.Fault
		vip     netip.Addr
		planned bool
	}{
		{interop.Drain(), interop.VIP4(), true},
		{interop.Terminate(), interop.VIP6(), true},
		{interop.Kill(), interop.VIP6(), false},
		{interop.LinkDown(), interop.VIP4(), false},
	} {
		patient(t, func() []string { return moved(t, f, s, c.fault, c.vip, c.planned) })
	}
}

// moved does a fault to the balancer that has a VIP, and undoes it once another one has it.
func moved(t *testing.T, f *interop.Fabric, s *interop.LBD, x interop.Fault, vip netip.Addr, planned bool) (broken []string) {
	ctx := t.Context()
	owner, err := f.Ready(ctx, s, vip)
	if err != nil {
		t.Fatal(err)
	}
	const held = 60
	if err := f.Eyes.OpenConns(ctx, vip, held); err != nil {
		t.Fatal(err)
	}
	defer f.Eyes.CloseConns()
	watch, err := f.Eyes.OpenStream(ctx, vip)
	if err != nil {
		t.Fatal(err)
	}
	server, from := watch.Read().Node, measure.Now()
	if err := x.Inject(ctx, f, owner); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Balancer(ctx, vip, owner); err != nil {
		t.Fatal(err)
	}
	took := measure.Since(from)
	interop.Pause(ctx, 1500*time.Millisecond)
	silent, end := watch.Silence(from), measure.Now()
	r, err := f.Traffic(from, end)
	if err != nil {
		t.Fatal(err)
	}
	conns := measure.ConnsIn(f.Eyes.ConnEvents(), from, end)
	t.Logf("%s of %s: %s led elsewhere alone after %v; connections %+v; new ones %+v; a watch was silent for %v", x.Name, owner.Name, vip, took, conns, r, silent)
	if conns.Open != held || conns.Survived() != held {
		broken = append(broken, fmt.Sprintf("%s: %+v of the connections, want %d alive", x.Name, conns, held))
	}
	switch {
	case planned && (r.Failed > 0 || r.Moved > 0):
		broken = append(broken, fmt.Sprintf("%s: %+v, want none that failed", x.Name, r))
	case r.Outage > slack*600*time.Millisecond:
		broken = append(broken, fmt.Sprintf("%s: %+v", x.Name, r))
	}
	if planned {
		if now, err := watch.More(ctx, 5); err != nil || now.Node != server || silent > slack*time.Second {
			broken = append(broken, fmt.Sprintf("%s: a watch was silent for %v, from %s and then %s, %v", x.Name, silent, server, now.Node, err))
		}
	}
	if err := x.Undo(ctx, f, owner); err != nil {
		t.Fatal(err)
	}
	return broken
}
