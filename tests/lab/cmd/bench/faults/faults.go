// Package faults breaks lbd and keepalived in the same ways and measures both by the same
// means. Runs in which the machine was busy are dropped and repeated.
package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/bench"
)

type options struct {
	runs      int
	maxLoad   float64
	raw       string
	systems   []lab.System
	scenarios []lab.Scenario
}

// Command is the bench of faults.
func Command() bench.Command {
	o := &options{}
	var systems, scenarios []string
	return bench.Command{
		Name: "faults", About: "the same faults on lbd and keepalived, by layer 2",
		Flags: func(fs *flag.FlagSet) {
			fs.IntVar(&o.runs, "runs", 20, "runs of each fault for each system; 0 writes the report of what -raw holds")
			bench.MaxLoad(fs, &o.maxLoad)
			fs.StringVar(&o.raw, "raw", "", "file of JSON lines; runs that it holds are not repeated, new ones are added")
			bench.List(fs, &systems, "systems", "systems")
			bench.List(fs, &scenarios, "faults", "faults")
		},
		Measure: func(ctx context.Context) (text string, err error) {
			if o.systems, err = choose(lab.Systems(), systems, lab.System.Name); err != nil {
				return "", err
			}
			if o.scenarios, err = choose(lab.Scenarios(), scenarios, func(s lab.Scenario) string { return s.Name }); err != nil {
				return "", err
			}
			return measureAll(ctx, o)
		},
	}
}

// choose picks the named ones of all.
func choose[T any](all []T, list []string, name func(T) string) ([]T, error) {
	if len(list) == 0 {
		return all, nil
	}
	var names []string
	for _, a := range all {
		names = append(names, name(a))
	}
	var out []T
	for _, want := range list {
		i := slices.Index(names, want)
		if i < 0 {
			return nil, fmt.Errorf("%q is none of %s", want, strings.Join(names, ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}

func measureAll(ctx context.Context, o *options) (string, error) {
	if err := lab.Usable(); err != nil {
		return "", err
	}
	r, err := openResults(o.raw, o.maxLoad)
	if err != nil {
		return "", err
	}
	defer r.close()
	bin, err := lab.Build(ctx, slices.ContainsFunc(o.systems, func(s lab.System) bool { return strings.HasPrefix(s.Name(), "lbd") }))
	if err != nil {
		return "", err
	}
	defer bin.Close()
	for _, s := range o.systems {
		if err := measureSystem(ctx, bin, s, o, r); err != nil {
			// What was measured is still worth a report.
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", s.Name(), err)
		}
	}
	return report(o, r), nil
}

// longLived is how many connections are open during a fault.
const longLived = 60

// measureSystem runs every scenario on one cluster, and builds a new one when a
// run failed.
func measureSystem(ctx context.Context, bin *lab.Bin, s lab.System, o *options, r *results) error {
	b := &session{bin: bin, system: s, results: r}
	defer func() {
		if err := b.drop(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}()
	if o.runs > 0 && !r.hasIdle(s.Name()) {
		if err := b.idle(ctx); err != nil {
			return err
		}
	}
	for _, sc := range o.scenarios {
		sc.Conns = longLived
		if err := b.scenario(ctx, sc, o.runs); err != nil {
			return err
		}
	}
	return nil
}

// session is one system with its cluster, if there is one at the moment.
type session struct {
	bin     *lab.Bin
	system  lab.System
	results *results
	cluster *lab.Cluster
}

func (b *session) get(ctx context.Context) (*lab.Cluster, error) {
	if b.cluster != nil {
		return b.cluster, nil
	}
	c, err := lab.NewCluster(ctx, b.bin, b.system, 3)
	b.cluster = c
	return c, err
}

func (b *session) drop() error {
	if b.cluster == nil {
		return nil
	}
	err := b.cluster.Close()
	b.cluster = nil
	return err
}

// scenario repeats a scenario until there are enough undisturbed runs, within
// reason.
func (b *session) scenario(ctx context.Context, sc lab.Scenario, runs int) error {
	name := b.system.Name()
	for try := 0; b.results.good(name, sc.Name) < runs && try < 3*runs+3; try++ {
		o, err := b.once(ctx, sc)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, lab.ErrUnsupported) {
			return nil // nothing was done to the cluster
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s %s: %v\n", name, sc.Name, err)
			b.results.add(entry{Failed: err.Error(), Outcome: lab.Outcome{System: name, Scenario: sc.Name}})
			if err := b.drop(); err != nil {
				return err
			}
			continue
		}
		b.results.add(entry{Outcome: *o})
		fmt.Fprintf(os.Stderr, "%s %s %d/%d: outage %v, %d failed, takeover %v, dual %v, gone %v, %d of %d kept, load %.0f %%\n", name, sc.Name,
			b.results.good(name, sc.Name), runs, o.First.Reach.Outage.Round(time.Millisecond), o.First.Reach.Failed,
			o.First.Takeover.Round(time.Millisecond), o.First.Dual.Round(time.Millisecond), o.Gone.Round(time.Millisecond), o.Conns.Survived(), o.Conns.Open, 100*o.Load)
	}
	return nil
}

func (b *session) once(ctx context.Context, sc lab.Scenario) (*lab.Outcome, error) {
	c, err := b.get(ctx)
	if err != nil {
		return nil, err
	}
	return c.Run(ctx, sc, lab.VIP4())
}
