// Package machines measures how fast a host withdraws when its Machine is marked, what
// clients see of a rollout, and what many Machines cost.
package machines

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/bench"
	"lbd.dev/lbd/tests/lab/measure"
)

type options struct{ runs, rollouts, machines int }

// figures are what was measured.
type figures struct {
	withdrawn, announced   []time.Duration // from the label on
	unrouted               []time.Duration
	labelled               reach // clients meanwhile
	rollouts               []reach
	rss                    int64 // of the largest daemon
	busy, rolling, routing float64
	writes                 int           // of the status of one balancer
	writing                time.Duration // in which they were
	failed                 error
	machines, rolloutHosts int
}

// reach is what clients saw.
type reach struct {
	attempts, failed int
	causes           string
}

// Command is the bench of Machines.
func Command() bench.Command {
	o := &options{}
	return bench.Command{
		Name: "machines", About: "Machines of Cluster API that go away", Part: "machines",
		Flags: func(fs *flag.FlagSet) {
			fs.IntVar(&o.runs, "runs", 100, "times that a Machine is labelled")
			fs.IntVar(&o.rollouts, "rollouts", 3, "rollouts of three Machines")
			fs.IntVar(&o.machines, "machines", 500, "Machines in the management cluster at the end")
		},
		Measure: func(ctx context.Context) (string, error) { return measureAll(ctx, o) },
	}
}

func measureAll(ctx context.Context, o *options) (text string, err error) {
	programs, err := controlplane.Build(ctx)
	if err != nil {
		return "", err
	}
	bin, err := lab.Build(ctx, true)
	if err != nil {
		return "", err
	}
	defer bin.Close()
	m, err := controlplane.NewMachineLab(ctx, bin, programs, controlplane.MachineOptions{Nodes: 4, Started: 3, Managers: 2, Hook: true})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.Balance(ctx, 0); err != nil {
		return "", err
	}
	f := &figures{machines: o.machines, rolloutHosts: 3}
	f.failed = errors.Join(loaded(&f.busy, func() error { return f.label(ctx, m, o.runs) }),
		loaded(&f.rolling, func() error { return f.rollout(ctx, m, o.rollouts) }),
		loaded(&f.routing, func() error { return f.route(ctx, m, o.runs) }), f.many(ctx, m, o.machines))
	return f.report(), f.failed
}

// loaded measures how busy the machine was meanwhile.
func loaded(busy *float64, f func() error) (err error) {
	*busy, err = bench.Loaded(f)
	return err
}

// label marks the Machine of the owner again and again.
func (f *figures) label(ctx context.Context, m *controlplane.MachineLab, runs int) error {
	key, on, vip := "controlplane.cluster.x-k8s.io/selected-for-upgrade", "true", lab.VIP4()
	begin := measure.Now()
	for range runs {
		owner, err := m.Owner(vip)
		if err != nil {
			return err
		}
		lab.RandomMoment(ctx)
		from := measure.Now()
		if err := m.Machines.Label(ctx, controlplane.MachineOf(owner), key, &on); err != nil {
			return err
		}
		took, err := m.Moved(ctx, owner, vip, from)
		if err != nil {
			return err
		}
		f.withdrawn = append(f.withdrawn, took)
		if at, ok := measure.Takeover(m.Eyes.Frames(), vip.String(), owner.MAC, from); ok {
			f.announced = append(f.announced, at.Sub(from))
		}
		if err := m.Machines.Label(ctx, controlplane.MachineOf(owner), key, nil); err != nil {
			return err
		}
		r := f.seen(m, from)
		f.labelled.attempts, f.labelled.failed = f.labelled.attempts+r.attempts, f.labelled.failed+r.failed
		m.Eyes.Trim()
	}
	fmt.Fprintf(os.Stderr, "%d labels in %v\n", runs, measure.Since(begin).Round(time.Second))
	return nil
}

// seen is what clients saw since a moment.
func (f *figures) seen(m *controlplane.MachineLab, from measure.Time) reach {
	time.Sleep(600 * time.Millisecond) // what has begun has ended then
	attempts, failed, causes := m.Unserved(from)
	if failed == 0 {
		return reach{attempts: attempts}
	}
	return reach{attempts, failed, fmt.Sprintf(" %v", causes)}
}

// rollout replaces three Machines, one after the other, again and again.
func (f *figures) rollout(ctx context.Context, m *controlplane.MachineLab, rollouts int) error {
	spare := 3
	for range rollouts {
		from := measure.Now()
		for range f.rolloutHosts {
			old := (spare + 1) % len(m.Nodes)
			if err := m.Replace(ctx, m.Nodes[old], m.Nodes[spare]); err != nil {
				return err
			}
			spare = old
		}
		f.rollouts = append(f.rollouts, f.seen(m, from))
		m.Eyes.Trim()
	}
	return nil
}

// route marks the Machines of hosts that a router sends to, one after the other.
func (f *figures) route(ctx context.Context, m *controlplane.MachineLab, runs int) error {
	key, on := "lbd.dev/drain", "true"
	router, err := m.StartRouter(ctx)
	if err != nil {
		return err
	}
	var live []*lab.Node
	for _, n := range m.Nodes {
		if n.Daemon.Alive() {
			live = append(live, n)
		}
	}
	for i := range runs {
		n := live[i%len(live)]
		lab.RandomMoment(ctx)
		from := measure.Now()
		if err := m.Machines.Label(ctx, controlplane.MachineOf(n), key, &on); err != nil {
			return err
		}
		at, err := router.Gone(ctx, n, from)
		if err != nil {
			return err
		}
		f.unrouted = append(f.unrouted, at.Sub(from))
		if err := errors.Join(m.Machines.Label(ctx, controlplane.MachineOf(n), key, nil), router.Wait(ctx, n)); err != nil {
			return err
		}
	}
	return nil
}

// allMachines is a balancer of every Machine that there is.
const allMachines = `apiVersion: lbd.dev/v1alpha1
kind: MachineLoadBalancer
metadata: {name: all, namespace: default}
spec:
  namespaces: [default, others]
  machineSelector:
    matchExpressions: [{key: cluster.x-k8s.io/cluster-name, operator: Exists}]
  address: 10.77.0.212
`

// many fills the management cluster with Machines of another cluster, which are members
// of a balancer, and marks all of them.
func (f *figures) many(ctx context.Context, m *controlplane.MachineLab, machines int) error {
	others, err := m.CP.NewMachineCluster(ctx, "others", "others")
	if err != nil {
		return err
	}
	if err := m.CP.Apply(ctx, allMachines); err != nil {
		return err
	}
	before, err := m.CP.StatusWrites(ctx, "machineloadbalancers")
	if err != nil {
		return err
	}
	began := time.Now()
	for i := range machines {
		name := fmt.Sprintf("m%d", i)
		if err := others.Create(ctx, controlplane.Machine{Name: name, Node: name, Worker: i%5 > 0}); err != nil {
			return err
		}
	}
	key, on := "lbd.dev/drain", "true"
	for i := range machines {
		if err := others.Label(ctx, fmt.Sprintf("m%d", i), key, &on); err != nil {
			return err
		}
	}
	time.Sleep(5 * time.Second)
	f.writing = time.Since(began)
	after, err := m.CP.StatusWrites(ctx, "machineloadbalancers")
	if err != nil {
		return err
	}
	f.writes = after - before
	for _, n := range m.Nodes {
		if !n.Daemon.Alive() {
			continue
		}
		rss, err := measure.RSS(n.Daemon.PID())
		if err != nil {
			return err
		}
		f.rss = max(f.rss, rss)
	}
	return nil
}

func (f *figures) report() string {
	var b bench.Report
	b.Printf("\n# Machines\n\n")
	b.Printf("Written by `make benchmachines` on %d cores, %s. A real etcd and kube-apiserver with the definitions of Cluster API,\n", runtime.NumCPU(), runtime.Version())
	b.Printf("four hosts with `lbd run`, three of which are Machines and two of which read the management cluster. A client opens 200 new\n")
	b.Printf("connections a second to each of two addresses, or as many as a busy machine lets it; those that were made while an address moved\n")
	b.Printf("are counted. What controllers of Cluster API do is played by a script without their pauses. The router is FRR,\n")
	b.Printf("deaf to GRACEFUL_SHUTDOWN: it sends to a host until the path is withdrawn, so the 500 ms of `gracefulShutdownDelay` count.\n\n")
	b.Head("figure", "wanted", "measured")
	row := func(what, want, got string) { b.Row(what, want, got) }
	row(fmt.Sprintf("label set until the host last claims the address (ARP), %d times, p50 / p99, ms (machine busy)", len(f.withdrawn)), "- / 1000",
		fmt.Sprintf("%s (%.0f %%)", measure.Percentiles(f.withdrawn), 100*f.busy))
	row("label set until another host first claims it, p50 / p99, ms", "", measure.Percentiles(f.announced))
	row("connections that failed meanwhile", "0", fmt.Sprintf("%d of %d", f.labelled.failed, f.labelled.attempts))
	for i, r := range f.rollouts {
		row(fmt.Sprintf("rollout %d of %d Machines held by the hook, the API server of each killed when it is released: connections that failed (machine busy)", i+1, f.rolloutHosts), "0",
			fmt.Sprintf("%d of %d%s (%.0f %%)", r.failed, r.attempts, r.causes, 100*f.rolling))
	}
	row(fmt.Sprintf("label set until a router has lost the path (BGP), %d times, p50 / p99, ms (machine busy)", len(f.unrouted)), "- / 1000",
		fmt.Sprintf("%s (%.0f %%)", measure.Percentiles(f.unrouted), 100*f.routing))
	row(fmt.Sprintf("writes of the status of a balancer with %d members while they are made and marked, by its daemons and its controller", f.machines+f.rolloutHosts),
		"at most 2 a second of each", fmt.Sprintf("%d in %.0f s", f.writes, f.writing.Seconds()))
	row(fmt.Sprintf("memory of the largest daemon with %d Machines, MiB", f.machines+f.rolloutHosts), "80", fmt.Sprint(f.rss>>20))
	if f.failed != nil {
		b.Printf("\nNot complete: %s\n", strings.ReplaceAll(f.failed.Error(), "\n", "; "))
	}
	return b.String()
}
