package controlplane_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// newMachines makes a lab of Machines that ends with the test.
func newMachines(t *testing.T, o controlplane.MachineOptions) *controlplane.MachineLab {
	t.Helper()
	need(t)
	m, err := controlplane.NewMachineLab(t.Context(), bin, programs, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(m.Logs(40))
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// must ends the test at the first error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// unserved fails the test if a client was not served since the moment.
func unserved(t *testing.T, m *controlplane.MachineLab, since measure.Time) {
	t.Helper()
	time.Sleep(time.Second) // what has begun ends
	attempts, failed, causes := m.Unserved(since)
	t.Logf("%d of %d new connections failed %v", failed, attempts, causes)
	if failed > 0 || attempts == 0 {
		t.Errorf("%d of %d new connections failed: %v", failed, attempts, causes)
	}
}

// sign is one way to say that a Machine is about to go, and to take it back.
type sign struct {
	name     string
	on, undo func(ctx context.Context, m *controlplane.MachineLab, machine string) error
}

func signs() []sign {
	labelled := func(key, value string) sign {
		return sign{"label " + key,
			func(ctx context.Context, m *controlplane.MachineLab, machine string) error {
				return m.Machines.Label(ctx, machine, key, &value)
			},
			func(ctx context.Context, m *controlplane.MachineLab, machine string) error {
				return m.Machines.Label(ctx, machine, key, nil)
			}}
	}
	annotated := func(key, value string) sign {
		return sign{"annotation " + key,
			func(ctx context.Context, m *controlplane.MachineLab, machine string) error {
				return m.Machines.Annotate(ctx, machine, key, &value)
			},
			func(ctx context.Context, m *controlplane.MachineLab, machine string) error {
				return m.Machines.Annotate(ctx, machine, key, nil)
			}}
	}
	return []sign{
		labelled("controlplane.cluster.x-k8s.io/selected-for-upgrade", "true"),
		labelled("lbd.dev/drain", ""),
		annotated("lbd.dev/drain", "yes"),
		{"deleted",
			func(ctx context.Context, m *controlplane.MachineLab, machine string) error {
				return m.Machines.Delete(ctx, machine)
			},
			func(ctx context.Context, m *controlplane.MachineLab, machine string) error { // the same host is made anew
				n := m.Nodes[slices.IndexFunc(m.Nodes, func(n *lab.Node) bool { return controlplane.MachineOf(n) == machine })]
				return errors.Join(m.Machines.Finish(ctx, machine), m.Machines.Create(ctx, controlplane.OfNode(n, false)))
			}},
	}
}

// TestMachineSignals: whatever says that a Machine is about to go moves the VIP away
// from its host, whether that has credentials of the management cluster or not, without
// a client that is not served; and the host is back when nothing says so any more.
func TestMachineSignals(t *testing.T) {
	m := newMachines(t, controlplane.MachineOptions{Nodes: 3, Managers: 1})
	vip := lab.VIP4()
	for _, s := range signs() {
		t.Run(s.name, func(t *testing.T) {
			must(t, m.Stable(t.Context()))
			owner, err := m.Owner(vip)
			must(t, err)
			from := measure.Now()
			must(t, s.on(t.Context(), m, controlplane.MachineOf(owner)))
			took, err := m.Moved(t.Context(), owner, vip, from)
			must(t, err, m.Draining(t.Context(), owner, true))
			t.Logf("%s was the owner; it last claimed the VIP %v after the signal", owner.Name, took)
			must(t, s.undo(t.Context(), m, controlplane.MachineOf(owner)), m.Draining(t.Context(), owner, false))
			unserved(t, m, from)
		})
	}
	t.Run("without credentials", func(t *testing.T) {
		must(t, m.Stable(t.Context()))
		key, on := "lbd.dev/drain", "true"
		for _, n := range m.Nodes[:2] { // it goes to the third
			must(t, m.Machines.Label(t.Context(), controlplane.MachineOf(n), key, &on))
		}
		must(t, m.Serves(t.Context(), m.Nodes[2], vip), m.Machines.Label(t.Context(), controlplane.MachineOf(m.Nodes[1]), key, nil),
			m.Draining(t.Context(), m.Nodes[1], false))
		from := measure.Now()
		must(t, m.Machines.Label(t.Context(), controlplane.MachineOf(m.Nodes[2]), key, &on), m.Serves(t.Context(), m.Nodes[1], vip))
		unserved(t, m, from)
		// "false" means that it is not meant.
		off := "false"
		must(t, m.Machines.Label(t.Context(), controlplane.MachineOf(m.Nodes[2]), key, &off), m.Draining(t.Context(), m.Nodes[2], false))
	})
}

// TestMachineRollout plays a rollout with surge by KubeadmControlPlane: for each Machine
// another host joins, then the Machine is deleted, held by the hook of lbd, and its API
// server dies in the moment in which the hook is gone; then the host dies.
func TestMachineRollout(t *testing.T) {
	m := newMachines(t, controlplane.MachineOptions{Nodes: 4, Started: 3, Managers: 4, Hook: true, Section: "drainOnRemediation: true"})
	must(t, m.Balance(t.Context(), 0))
	from := measure.Now()
	for i := range 3 {
		must(t, m.Replace(t.Context(), m.Nodes[i], m.Nodes[(i+3)%4]))
	}
	unserved(t, m, from)
	must(t, m.Stable(t.Context()))
	t.Run("remediation", func(t *testing.T) { remediate(t, m, m.Nodes[2]) })
}

// remediate plays a remediation: a MachineHealthCheck is against a Machine, whose host
// drains since that is asked for; it is content again, and the host is back; the second
// time the Machine is deleted, and when it is gone another host takes its place.
func remediate(t *testing.T, m *controlplane.MachineLab, spare *lab.Node) {
	ctx, vip := t.Context(), lab.VIP4()
	from := measure.Now()
	sick, err := m.Owner(vip)
	must(t, err, m.Machines.Unhealthy(ctx, controlplane.MachineOf(sick)))
	_, err = m.Moved(ctx, sick, vip, from)
	must(t, err, m.Draining(ctx, sick, true), m.Machines.Healthy(ctx, controlplane.MachineOf(sick)), m.Draining(ctx, sick, false), m.Stable(ctx))
	if sick, err = m.Owner(vip); err != nil {
		t.Fatal(err)
	}
	must(t, m.Machines.Unhealthy(ctx, controlplane.MachineOf(sick)), m.Draining(ctx, sick, true), m.Retire(ctx, sick))
	must(t, m.Join(ctx, spare))
	unserved(t, m, from)
}

// TestMachineHookBound: nobody can take the VIP, so the host never gets rid of it. The
// deletion goes on all the same when its bound is over, not before, and an event says so.
func TestMachineHookBound(t *testing.T) {
	const bound = 8 * time.Second
	m := newMachines(t, controlplane.MachineOptions{Nodes: 2, Managers: 2, Hook: true})
	must(t, m.Balance(t.Context(), bound))
	owner, err := m.Owner(lab.VIP4())
	must(t, err)
	for _, n := range m.Others(owner) {
		must(t, n.Service.Kill())
	}
	for _, n := range m.Others(owner) {
		must(t, m.Unfit(t.Context(), n, lab.VIP4()))
	}
	from := time.Now()
	must(t, m.Machines.Delete(t.Context(), controlplane.MachineOf(owner)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, m.Machines.Released(ctx, controlplane.MachineOf(owner)))
	// The timestamp of a deletion has whole seconds.
	if took := time.Since(from); took < bound-2*time.Second {
		t.Errorf("released after %v although the host still serves", took)
	}
	must(t, m.Serves(t.Context(), owner, lab.VIP4()))
	events, err := m.CP.Kubectl(t.Context(), "get", "events", "-o", "jsonpath={range .items[*]}{.reason} {.involvedObject.name}{\"\\n\"}{end}")
	must(t, err)
	if want := "LoadBalancerDrainTimeout " + controlplane.MachineOf(owner); !strings.Contains(events, want+"\n") {
		t.Errorf("no event %q among:\n%s", want, events)
	}
}

// TestMachineAPILost: without the management API nothing that is announced changes, and
// who drains goes on; when it is back, what was meanwhile changed counts.
func TestMachineAPILost(t *testing.T) {
	m := newMachines(t, controlplane.MachineOptions{Nodes: 3, Managers: 2, Late: true})
	vip := lab.VIP4()
	key, on := "lbd.dev/drain", "true"
	owner, err := m.Owner(vip)
	must(t, err)
	must(t, m.Machines.Label(t.Context(), controlplane.MachineOf(owner), key, &on))
	time.Sleep(3 * time.Second)
	must(t, m.Serves(t.Context(), owner, vip)) // nobody has credentials
	from := measure.Now()
	must(t, m.WriteKubeconfig())
	_, err = m.Moved(t.Context(), owner, vip, from)
	must(t, err)
	now, err := m.Owner(vip)
	must(t, err)
	must(t, m.CP.APIServers[0].Kill())
	time.Sleep(5 * time.Second) // the loss has been noticed after 1 s
	must(t, m.Draining(t.Context(), owner, true), m.Serves(t.Context(), now, vip))
	must(t, m.CP.APIServers[0].Start(t.Context()), m.Machines.Label(t.Context(), controlplane.MachineOf(owner), key, nil),
		m.Draining(t.Context(), owner, false))
	unserved(t, m, from)
}

// TestMachineSameNames: another cluster of the same name, in another namespace, has
// Machines whose Nodes are called like those of this one. They are deleted, and nothing
// happens here.
func TestMachineSameNames(t *testing.T) {
	m := newMachines(t, controlplane.MachineOptions{Nodes: 2, Managers: 2})
	twin, err := m.CP.NewMachineCluster(t.Context(), "twin", m.Machines.Name)
	must(t, err)
	owner, err := m.Owner(lab.VIP4())
	must(t, err)
	for _, n := range m.Nodes {
		x := controlplane.OfNode(n, false)
		x.Host = nil // its addresses are not those of this cluster
		must(t, twin.Create(t.Context(), x), twin.Delete(t.Context(), x.Name))
	}
	// Something that must happen: it is known then that the others have been seen.
	key, on := "lbd.dev/drain", "true"
	other := m.Others(owner)[0]
	must(t, m.Machines.Label(t.Context(), controlplane.MachineOf(other), key, &on), m.Draining(t.Context(), other, true))
	time.Sleep(2 * time.Second)
	must(t, m.Draining(t.Context(), owner, false), m.Serves(t.Context(), owner, lab.VIP4()))
}
