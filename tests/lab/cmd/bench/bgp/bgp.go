// Package bgp breaks nodes that announce by BGP behind a router with FRR, and measures what
// the router's kernel and a client see. Runs in which the machine was busy are dropped and
// repeated.
package bgp

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/bench"
)

type options struct {
	runs     int
	parallel int
	maxLoad  float64
	paths    int
	faults   []string // empty: all
}

// Command is the bench of BGP.
func Command() bench.Command {
	o := &options{}
	return bench.Command{
		Name: "bgp", About: "faults of nodes that announce by BGP", Part: "bgp",
		Flags: func(fs *flag.FlagSet) {
			fs.IntVar(&o.runs, "runs", 10, "runs of each fault")
			fs.IntVar(&o.parallel, "parallel", 1, "systems that are measured at once, each with a router of its own")
			bench.MaxLoad(fs, &o.maxLoad)
			fs.IntVar(&o.paths, "paths", 10000, "paths of the bulk test; 0 leaves it out")
			bench.List(fs, &o.faults, "faults", "faults")
		},
		Measure: func(ctx context.Context) (string, error) { return measureAll(ctx, o) },
	}
}

func measureAll(ctx context.Context, o *options) (string, error) {
	if err := errors.Join(lab.Usable(), interop.Missing()); err != nil {
		return "", err
	}
	bin, err := lab.Build(ctx, true)
	if err != nil {
		return "", err
	}
	defer bin.Close()
	r := newResults([]*interop.LBD{{}, {NoBFD: true}, {NoBFD: true, GracefulRestart: true}})
	var all sync.WaitGroup
	turn := make(chan struct{}, max(1, o.parallel))
	for _, s := range r.systems {
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			if ctx.Err() != nil {
				return
			}
			if err := r.system(ctx, bin, s, o); err != nil {
				fmt.Fprintf(os.Stderr, "bgp: %s: %v\n", s.Name(), err)
				r.add(func() { r.errors = append(r.errors, fmt.Sprintf("%s: %v", s.Name(), err)) })
			}
		})
	}
	all.Wait()
	// What was measured before somebody interrupted is still worth a report.
	if o.paths > 0 && ctx.Err() == nil {
		if r.bulk, err = interop.MeasureBulk(ctx, bin, o.paths); err != nil {
			r.errors = append(r.errors, fmt.Sprintf("bulk: %v", err))
		}
	}
	return report(o, r), nil
}

// results are all runs that count, and how many did not.
type results struct {
	mu      sync.Mutex // for what is below systems
	systems []*interop.LBD
	runs    map[string][]*interop.Outcome // by system and fault
	busy    map[string]int
	starts  map[string][]interop.Startup // by system
	adds    map[string][]time.Duration
	idle    map[string][]bench.Idle
	bulk    *interop.Bulk
	errors  []string
}

func newResults(systems []*interop.LBD) *results {
	return &results{systems: systems, runs: map[string][]*interop.Outcome{}, busy: map[string]int{}, starts: map[string][]interop.Startup{}, adds: map[string][]time.Duration{}, idle: map[string][]bench.Idle{}}
}

func (r *results) add(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// system measures everything on one fabric.
func (r *results) system(ctx context.Context, bin *lab.Bin, s *interop.LBD, o *options) (err error) {
	n, err := interop.NewToR(ctx, bin, 3)
	if err != nil {
		return err
	}
	f, err := interop.StartFabric(ctx, n, s, interop.Options{GracefulRestart: s.GracefulRestart})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Calm(ctx); err != nil {
		return err
	}
	idle, err := bench.IdleFigures(ctx, f.Nodes)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s idle: %+v\n", s.Name(), idle)
	r.add(func() { r.idle[s.Name()] = idle })
	clear := interop.Fault{Name: "clear", Leaves: true, Limit: 5 * time.Second, Hold: 1500 * time.Millisecond, Inject: f.ClearSessions}
	for _, x := range append(interop.Faults(), clear) {
		if !bench.In(o.faults, x.Name) {
			continue
		}
		x.Conns = 60
		if err := r.fault(ctx, f, x, o); err != nil {
			return err
		}
	}
	return r.figures(ctx, f, s, o)
}

// fault repeats a fault, each time on another node, until there are enough runs.
func (r *results) fault(ctx context.Context, f *interop.Fabric, x interop.Fault, o *options) error {
	key := f.Speaker.Name() + " " + x.Name
	for good, try := 0, 0; good < o.runs && try < 3*o.runs+3; try++ {
		out, err := f.Run(ctx, x, f.Nodes[try%len(f.Nodes)])
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s of %s: gone %v, back %v, %d failed, hole %v, load %.0f %%\n", key, out.Node, out.Gone, out.Back, out.First.Failed+out.Second.Failed, out.Hole, 100*out.Load)
		if out.Load > o.maxLoad {
			r.add(func() { r.busy[key]++ })
			continue
		}
		good++
		r.add(func() { r.runs[key] = append(r.runs[key], out) })
	}
	return nil
}

// figures measures starts and added VIPs.
func (r *results) figures(ctx context.Context, f *interop.Fabric, s *interop.LBD, o *options) error {
	name := s.Name()
	for i := range o.runs {
		m := f.Nodes[i%len(f.Nodes)]
		var st interop.Startup
		if !s.GracefulRestart { // else the route stays all along
			var err error
			if st, err = f.Restart(ctx, s, m); err != nil {
				return err
			}
			r.add(func() { r.starts[name] = append(r.starts[name], st) })
		}
		took, err := f.AddVIP(ctx, s, m, netip.AddrFrom4([4]byte{10, 99, 9, byte(i)}))
		if err != nil {
			return err
		}
		r.add(func() { r.adds[name] = append(r.adds[name], took) })
		fmt.Fprintf(os.Stderr, "%s start of %s: session %v, route %v; VIP added %v\n", name, m.Name, st.Session, st.Route, took)
	}
	return nil
}
