package interop_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
)

// TestSlowRouter: a router that has got the withdrawal but is busy goes on sending
// for over a second. The address is still there.
func TestSlowRouter(t *testing.T) {
	t.Parallel()
	const busy = 1800 * time.Millisecond
	f := fabric(t, &interop.LBD{}, interop.Options{}, interop.NewToR)
	zebra := f.ToRFRR[0].Zebra
	x := interop.ServiceDeath()
	x.Inject = func(ctx context.Context, _ *interop.Fabric, m *lab.Node) error {
		if err := zebra.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		err := m.Service.Kill()
		interop.Pause(ctx, busy)
		if e := zebra.Signal(syscall.SIGCONT); err == nil {
			err = e
		}
		return err
	}
	x.Hold = 3 * time.Second // until the address is gone too
	o := run(t, f, x, 0)
	if o.Gone < busy {
		t.Errorf("next hop gone after %v: the router was not busy for %v", o.Gone, busy)
	}
	if o.Hole > interop.HoleBound {
		t.Errorf("for %v the router sent to a node without the VIP", o.Hole)
	}
	if _, ok, err := f.AddressGone(f.Nodes[0], interop.VIP4(), o.At); err != nil || !ok {
		t.Errorf("the VIP stayed on %s: %v", o.Node, err)
	}
}
