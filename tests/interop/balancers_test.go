package interop_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// balancers are two nodes whose VIPs lead to three machines, with the client behind a router.
func balancers(t *testing.T, s *interop.LBD, shape func(context.Context, *lab.Bin, int) (*interop.Net, error)) *interop.Fabric {
	t.Helper()
	need(t)
	n, err := shape(t.Context(), bin, 2)
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
	f := balancers(t, s, interop.NewToR)
	for _, c := range []move{
		{fault: interop.Drain(), vip: interop.VIP4(), watched: true},
		{fault: interop.Terminate(), vip: interop.VIP6(), watched: true},
		{fault: interop.Kill(), vip: interop.VIP6(), outage: unplanned},
		{fault: interop.LinkDown(), vip: interop.VIP4(), outage: unplanned},
	} {
		patient(t, func() []string { return moved(t, f, s, &c) })
	}
}

// move is what makes an address move.
type move struct {
	fault  interop.Fault
	vip    netip.Addr
	outage time.Duration // of new connections, at most
	// watched: a connection over which only the server speaks goes on at once.
	watched bool
	// more is for how much longer what happens is looked at.
	more time.Duration
}

// unplanned is how long new connections may fail if the owner is lost.
const unplanned = 600 * time.Millisecond

// moved does a fault to the balancer that has a VIP, and undoes it once another one has it.
func moved(t *testing.T, f *interop.Fabric, s *interop.LBD, c *move) (broken []string) {
	ctx, x, vip := t.Context(), &c.fault, c.vip
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
	interop.Pause(ctx, 1500*time.Millisecond+c.more)
	silent, end := watch.Silence(from), measure.Now()
	r, err := f.Traffic(from, end)
	if err != nil {
		t.Fatal(err)
	}
	conns := measure.ConnsIn(f.Eyes.ConnEvents(), from, end)
	t.Logf("%s of %s: %s led elsewhere alone after %v; connections %+v; new ones %+v; a watch was silent for %v", x.Name, owner.Name, vip, took, conns, r, silent)
	if conns.Open != held || conns.Survived() != held {
		broken = append(broken, fmt.Sprintf("%s: %+v of the connections, want %d alive: %s", x.Name, conns, held, strings.Join(measure.Endings(f.Eyes.ConnEvents(), from), "; ")))
	}
	if r.Outage > slack*c.outage || c.outage == 0 && r.Failed+r.Moved > 0 {
		broken = append(broken, fmt.Sprintf("%s: %+v, want an outage of %v at most", x.Name, r, c.outage))
	}
	if c.watched {
		if now, err := watch.More(ctx, 5); err != nil || now.Node != server || silent > slack*(c.outage+time.Second) {
			broken = append(broken, fmt.Sprintf("%s: a watch was silent for %v, from %s and then %s, %v", x.Name, silent, server, now.Node, err))
		}
	}
	if err := x.Undo(ctx, f, owner); err != nil {
		t.Fatal(err)
	}
	return broken
}
