package interop_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
)

// graceful is a fabric without BFD, whose loss makes routers drop paths whatever
// graceful restart says.
func graceful(t *testing.T) *interop.Fabric {
	t.Helper()
	return fabric(t, &interop.LBD{GracefulRestart: true, NoBFD: true}, interop.Options{GracefulRestart: true}, interop.NewToR)
}

// TestGracefulRestart kills a daemon that starts again within the restart time:
// no route changes in the router, and no connection is lost.
func TestGracefulRestart(t *testing.T) {
	t.Parallel()
	f := graceful(t)
	later := interop.Respawn()
	later.Hold = 8 * time.Second
	later.Inject = func(ctx context.Context, f *interop.Fabric, m *lab.Node) error {
		if err := m.Kill(); err != nil {
			return err
		}
		interop.Pause(ctx, 5*time.Second)
		return f.Speaker.Start(ctx, f.Net, m)
	}
	for i, x := range []interop.Fault{interop.Respawn(), later} {
		x.Conns = 30
		o := held(t, f, x, i, func() error { return restarted(t.Context(), f, f.Nodes[i]) })
		if o.Own.Open == 0 {
			t.Errorf("%s served no connection", o.Node)
		}
	}
}

// restarted checks that the node told the router of its restart (RFC 4724 section
// 3), and does not ask it to keep paths after a NOTIFICATION (RFC 8538).
func restarted(ctx context.Context, f *interop.Fabric, m *lab.Node) error {
	want, err := interop.ParseExpectation(fmt.Sprintf(`> show bgp neighbors %[1]s json
{%[1]q: {"bgpState": "Established", "gracefulRestartInfo": {"rBit": true, "nBit": false, "remoteGrMode": "Restart", "ipv4Unicast": {"fBit": true}}}}
`, m.IP4))
	if err != nil {
		return err
	}
	return want.Check(ctx, f.ToRFRR[0].Show, nil)
}

// TestBlackHole kills and freezes daemons with graceful restart for good: the
// router never sends to a node that has lost the VIP, for longer than the bound.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	f := graceful(t)
	for i, x := range []interop.Fault{interop.Kill(), interop.Freeze()} {
		// At the worst moment: just before the lifetime of the address is renewed.
		x.Prepare = func(ctx context.Context, f *interop.Fabric, m *lab.Node) error {
			return f.BeforeRenewal(ctx, m, interop.VIP4())
		}
		// Watched until the address is gone too.
		x.Hold = 22 * time.Second
		o := run(t, f, x, i)
		if o.Gone < 0 {
			t.Errorf("%s: the router kept the next hop", x.Name)
		}
		if o.Hole > interop.HoleBound {
			t.Errorf("%s: for %v the router sent to a node without the VIP, bound %v", x.Name, o.Hole, interop.HoleBound)
		}
		at, ok, err := f.AddressGone(f.Nodes[i], interop.VIP4(), o.At)
		if err != nil || !ok {
			t.Fatalf("%s: the VIP stayed on %s: %v", x.Name, o.Node, err)
		}
		t.Logf("%s: the VIP was gone %v after the router's next hop", x.Name, at.Sub(o.At)-o.Gone)
		if o.Second.Failed > 0 || o.Back < 0 {
			t.Errorf("%s, afterwards: %+v, back %v", x.Name, o.Second, o.Back)
		}
	}
}
