package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab/measure"
)

// idleFor is how long daemons are watched that have nothing to do.
const idleFor = 10 * time.Second

// idle is what the daemons of the nodes use meanwhile, a figure of each node.
type idle struct {
	cpu  []float64 // % of a core
	rss  []float64 // MiB
	busy int       // of the machine, %
}

// idleFigures measures what the daemons use when nothing happens.
func (r *results) idleFigures(ctx context.Context, f *interop.Fabric, name string) error {
	if err := f.Calm(ctx); err != nil {
		return err
	}
	before, load, err := usages(f)
	if err != nil {
		return err
	}
	interop.Pause(ctx, idleFor)
	after, now, err := usages(f)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	i := &idle{busy: int(100 * measure.Load(load, now))}
	for k := range after {
		i.cpu = append(i.cpu, 100*float64(after[k].CPU-before[k].CPU)/float64(idleFor))
		i.rss = append(i.rss, float64(after[k].RSS)/(1<<20))
	}
	fmt.Fprintf(os.Stderr, "%s idle: %.2f %% of a core, %.1f MiB, machine %d %% busy\n", name, i.cpu, i.rss, i.busy)
	r.add(func() { r.idle[name] = i })
	return nil
}

// usages is what the daemon of each node, and the machine, have used so far.
func usages(f *interop.Fabric) (out []measure.Usage, load measure.CPU, err error) {
	for _, n := range f.Nodes {
		u, err := measure.GroupUsage(n.Daemon.PID())
		if err != nil {
			return nil, load, err
		}
		out = append(out, u)
	}
	load, err = measure.ReadCPU()
	return out, load, err
}

// idleRows are those of the table of other figures.
func idleRows(b *strings.Builder, i *idle, name string) {
	row := func(what string, x []float64, limit float64, unit string) {
		slices.Sort(x)
		fmt.Fprintf(b, "| %s | %s | %d | %.2f / %.2f / %.2f %s | <= %g %s | %s |\n", what, name, len(x), x[0], x[len(x)/2], x[len(x)-1], unit, limit, unit, kept(x[len(x)-1] <= limit))
	}
	row(fmt.Sprintf("processor time of a daemon that is idle, of a core (machine %d %% busy)", i.busy), i.cpu, 1, "%")
	row("its memory", i.rss, 40, "MiB")
}
