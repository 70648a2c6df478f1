package interop_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/previous"
)

// older is a fabric whose nodes have the previous version, and the path of its program.
func older(t *testing.T, s *interop.LBD, o interop.Options) (*interop.Fabric, string) {
	t.Helper()
	need(t)
	old, err := previous.For(t).LBD(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fabric(t, s, o, func(ctx context.Context, b *lab.Bin, nodes int) (*interop.Net, error) {
		n, err := interop.NewToR(ctx, b, nodes)
		if err != nil {
			return nil, err
		}
		for _, m := range n.Nodes {
			m.LBD = old
		}
		return n, nil
	}), old
}

// replace gives a node another program, as docs/operations.md says.
func replace(ctx context.Context, f *interop.Fabric, m *lab.Node, program string, drain bool) error {
	m.LBD = program
	if drain {
		if err := f.Speaker.Drain(ctx, f.Net, m); err != nil {
			return err
		}
	}
	if err := m.Terminate(30 * time.Second); err != nil {
		return err
	}
	if err := f.Speaker.Start(ctx, f.Net, m); err != nil {
		return err
	}
	return f.Spread(ctx, 30*time.Second)
}

// replaced gives nodes another program, one after the other, with connections open: none is
// lost, no new one fails. Before it is repeated the nodes get their program of before back.
func replaced(t *testing.T, f *interop.Fabric, program string, drain bool, nodes ...*lab.Node) {
	t.Helper()
	const conns = 60
	x := interop.Fault{
		Name: "replaced", Hold: 2 * time.Second, Conns: conns,
		Inject: func(ctx context.Context, f *interop.Fabric, _ *lab.Node) error {
			for _, m := range nodes {
				if err := replace(ctx, f, m, program, drain); err != nil {
					return err
				}
			}
			return nil
		},
	}
	before := make([]string, len(nodes))
	for i, m := range nodes {
		before[i] = m.LBD
	}
	patient(t, func() []string {
		for i, m := range nodes {
			if m.LBD == before[i] {
				continue
			}
			if err := replace(t.Context(), f, m, before[i], false); err != nil {
				t.Fatal(err)
			}
		}
		o := run(t, f, x, 0)
		var broken []string
		if o.First.Failed > 0 || o.First.Attempts < 400 {
			broken = append(broken, fmt.Sprintf("%d of %d attempts failed %v", o.First.Failed, o.First.Attempts, o.First.Errors))
		}
		if open := o.Own.Open + o.Others.Open; open != conns || o.Own.Survived()+o.Others.Survived() != open {
			broken = append(broken, fmt.Sprintf("long-lived connections: own %+v, others %+v, want %d alive", o.Own, o.Others, conns))
		}
		return broken
	})
}

// TestUpgrade replaces the previous version by this one and goes back. In between the group
// has both, and each of them dies, drains and loses its server.
func TestUpgrade(t *testing.T) { // P2, P8, P13 with mixed versions
	t.Parallel()
	f, old := older(t, &interop.LBD{}, interop.Options{})
	replaced(t, f, bin.LBD, false, f.Nodes[0])
	for i, x := range []interop.Fault{interop.LinkDown(), interop.ServiceDeath(), interop.Drain()} {
		x.Conns = 30
		held(t, f, x, i%2) // the first is the new one, the second an old one
		held(t, f, x, (i+1)%2)
	}
	replaced(t, f, bin.LBD, true, f.Nodes[1:]...)
	replaced(t, f, old, false, f.Nodes...)
}

// TestUpgradeGraceful: the record of what routers have heard is read by the other version,
// so that no route changes when a daemon is killed and started as the other one.
func TestUpgradeGraceful(t *testing.T) {
	t.Parallel()
	f, old := older(t, &interop.LBD{GracefulRestart: true, NoBFD: true}, interop.Options{GracefulRestart: true})
	for _, program := range []string{bin.LBD, old} {
		x := interop.Respawn()
		respawn := x.Inject
		x.Inject = func(ctx context.Context, f *interop.Fabric, m *lab.Node) error {
			m.LBD = program
			return respawn(ctx, f, m)
		}
		held(t, f, x, 0, func() error { return restarted(t.Context(), f, f.Nodes[0]) })
	}
}
