package interop_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
)

// TestStandIn shows with bare gobgpd that the lab can tell good from bad: a path
// that is withdrawn in order costs no attempt, a link that goes without BFD costs
// many, and a VIP that vanishes while it is advertised is a hole.
func TestStandIn(t *testing.T) {
	t.Parallel()
	f := fabric(t, interop.StandIn{}, interop.Options{}, interop.NewToR)
	patient(t, func() (broken []string) {
		drain := run(t, f, interop.Drain(), 0)
		if drain.Gone < 0 || drain.Gone > time.Second || drain.Back < 0 || drain.First.Failed+drain.Second.Failed > 0 || drain.Hole > 0 {
			broken = append(broken, fmt.Sprintf("drain: %+v", drain))
		}
		return broken
	})
	patient(t, func() (broken []string) {
		if down := run(t, f, interop.LinkDown(), 1); down.First.Failed < 50 || down.Gone < time.Second {
			broken = append(broken, fmt.Sprintf("no BFD, yet the loss of a link was harmless: %+v", down))
		}
		return broken
	})
	vanish := interop.Fault{
		Name: "vanish", Hold: 2 * time.Second,
		Inject: func(ctx context.Context, f *interop.Fabric, m *lab.Node) error {
			return f.IP(ctx, &m.Host, "addr del "+interop.Prefix(interop.VIP4())+" dev lo")
		},
		Undo: func(ctx context.Context, f *interop.Fabric, m *lab.Node) error {
			return f.Speaker.Undrain(ctx, f.Net, m)
		},
	}
	patient(t, func() (broken []string) {
		if o := run(t, f, vanish, 2); o.Hole < time.Second || o.Hole > 4*time.Second || o.First.Failed < 50 || o.Gone >= 0 {
			broken = append(broken, fmt.Sprintf("a VIP that vanished from lo was not noticed: %+v", o))
		}
		return broken
	})
}

// run does a fault to a node and logs what came of it.
func run(t *testing.T, f *interop.Fabric, x interop.Fault, node int) *interop.Outcome {
	t.Helper()
	o, err := f.Run(t.Context(), x, f.Nodes[node])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s %s of %s: gone %v, back %v, hole %v, %d changes; %+v; then %+v; own %+v, others %+v; load %.0f %%",
		o.System, o.Fault, o.Node, o.Gone, o.Back, o.Hole, len(o.Changes), o.First, o.Second, o.Own, o.Others, 100*o.Load)
	return o
}
