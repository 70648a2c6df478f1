package ring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/bench"
	"lbd.dev/lbd/tests/lab/measure"
)

// keptRow is what became of connections in the runs of one fault of one system.
type keptRow struct {
	by, fault, system string
	runs              int
	busy              []int // percent
	// Own are the connections of the node that the fault hits, others the rest. By
	// layer 2 all are those of the owner, unless the VIP is balanced.
	own, others measure.Conns
	leastKept   int // in one run, of all
	failed      int // new connections
	attempts    int
	errors      map[string]int
}

func (r *results) row(by, fault, system string) *keptRow {
	k := &keptRow{by: by, fault: fault, system: system, leastKept: longLived, errors: map[string]int{}}
	r.kept = append(r.kept, k)
	return k
}

func (k *keptRow) add(own, others measure.Conns, failed, attempts int, errs map[string]int, load float64) {
	k.runs++
	k.busy = append(k.busy, int(100*load))
	sum(&k.own, own)
	sum(&k.others, others)
	k.leastKept = min(k.leastKept, own.Survived()+others.Survived())
	k.failed += failed
	k.attempts += attempts
	for e, n := range errs {
		k.errors[e] += n
	}
	fmt.Fprintf(os.Stderr, "%s %s %s: own %+v, others %+v, %d of %d new failed %v, load %.0f %%\n", k.by, k.system, k.fault, own, others, failed, attempts, errs, 100*load)
}

func sum(c *measure.Conns, more measure.Conns) {
	c.Open += more.Open
	c.Lost += more.Lost
	c.Stalled += more.Stalled
	c.Hanging += more.Hanging
}

// layer2 does the faults in which connections count, to lbd with and without ring and
// to keepalived.
func layer2(ctx context.Context, bin *lab.Bin, r *results) error {
	var errs []error
	for _, s := range []lab.System{&lab.LBD{NoIPv6: true}, &lab.LBD{NoIPv6: true, Balanced: true}, &lab.LBD{NoIPv6: true, Reset: true}, &lab.Keepalived{Advert: "1"}} {
		if bench.In(r.options.systems, s.Name()) {
			errs = append(errs, layer2System(ctx, bin, s, r))
		}
	}
	return errors.Join(errs...)
}

func layer2System(ctx context.Context, bin *lab.Bin, s lab.System, r *results) (err error) {
	c, err := lab.NewCluster(ctx, bin, s, 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, sc := range []lab.Scenario{lab.Drain(), lab.Terminate(), lab.Return(), lab.Rolling(), lab.Respawn(), lab.ServiceDeath(), lab.LinkDown()} {
		if !bench.In(r.options.faults, sc.Name) {
			continue
		}
		sc.Conns = longLived
		k := r.row("layer 2", sc.Name, s.Name())
		for k.runs < r.options.runs {
			served := 0
			f := sc
			f.Inject = func(ctx context.Context, c *lab.Cluster, owner *lab.Node) (err error) {
				if served, err = c.Serving(ctx, owner, lab.VIP4()); err != nil {
					return err
				}
				return sc.Inject(ctx, c, owner)
			}
			o, err := c.Run(ctx, f, lab.VIP4())
			if errors.Is(err, lab.ErrUnsupported) {
				break
			}
			if err != nil {
				return err
			}
			failed, attempts := o.First.Reach.Failed+o.Second.Reach.Failed, o.First.Reach.Attempts+o.Second.Reach.Attempts
			own, others := divide(o.Conns, served)
			k.add(own, others, failed, attempts, o.First.Reach.Errors, o.Load)
		}
	}
	return nil
}

// divide tells the connections of a node, of which there were so many, from the others.
// Which ones were lost is not known: those of the node, unless there are more.
func divide(all measure.Conns, own int) (of, others measure.Conns) {
	of.Open = min(own, all.Open)
	others.Open = all.Open - of.Open
	of.Lost = min(all.Open-all.Survived(), of.Open)
	others.Lost = all.Open - all.Survived() - of.Lost
	return of, others
}

// bgp does the same behind a router.
func bgp(ctx context.Context, bin *lab.Bin, r *results) error {
	var errs []error
	for _, s := range []*interop.LBD{{}, {LBD: lab.LBD{Reset: true}}} {
		if bench.In(r.options.systems, s.Name()) {
			errs = append(errs, bgpSystem(ctx, bin, s, r))
		}
	}
	return errors.Join(errs...)
}

func bgpSystem(ctx context.Context, bin *lab.Bin, s *interop.LBD, r *results) (err error) {
	n, err := interop.NewToR(ctx, bin, 3)
	if err != nil {
		return err
	}
	f, err := interop.StartFabric(ctx, n, s, interop.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, x := range []interop.Fault{interop.Drain(), interop.Terminate(), rolling(), interop.ServiceDeath(), interop.LinkDown()} {
		if !bench.In(r.options.faults, x.Name) {
			continue
		}
		x.Conns = longLived
		k := r.row("BGP", x.Name, s.Name())
		for k.runs < r.options.runs {
			o, err := f.Run(ctx, x, f.Nodes[k.runs%len(f.Nodes)])
			if err != nil {
				return err
			}
			errs := o.First.Errors
			for e, n := range o.Second.Errors {
				errs[e] += n
			}
			if moved := o.First.Moved + o.Second.Moved; moved > 0 {
				errs["reset while routers changed"] += moved
			}
			k.add(o.Own, o.Others, o.First.Failed+o.Second.Failed, o.First.Attempts+o.Second.Attempts, errs, o.Load)
		}
	}
	return nil
}

// rolling restarts the daemon of every node in order, as an upgrade does.
func rolling() interop.Fault {
	return interop.Fault{
		Name: "rolling", Hold: time.Second,
		Inject: func(ctx context.Context, f *interop.Fabric, first *lab.Node) error {
			for _, m := range append([]*lab.Node{first}, f.Others(first)...) {
				if err := m.Terminate(20 * time.Second); err != nil {
					return err
				}
				if err := f.Speaker.Start(ctx, f.Net, m); err != nil {
					return err
				}
				if err := f.Spread(ctx, 30*time.Second); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
