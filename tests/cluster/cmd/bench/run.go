package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"lbd.dev/lbd/tests/cluster"
	"lbd.dev/lbd/tests/lab/bench"
	"lbd.dev/lbd/tests/lab/measure"
)

const (
	// writeEvery is how often the client writes.
	writeEvery = 200 * time.Millisecond
	// before and after are how long the client writes around a fault.
	before, after = 2 * time.Second, 5 * time.Second
)

// row is what clients saw of one fault.
type row struct {
	fault  *fault
	system string
	writes measure.Reach
	gap    time.Duration // longest time without a successful write
	// outside and nodes are the longest times without an event of a watch: from outside
	// the cluster, and the worst of those on its nodes.
	outside, nodes time.Duration
	moves          []string // the owners, in order
	took           time.Duration
	err            error
}

type results struct {
	kubernetes string
	systems    []system
	rows       []*row
	errors     []string
}

func (r *results) run(ctx context.Context, parts *cluster.Parts, s system, faultNames []string) (err error) {
	c, err := cluster.New(ctx, parts, 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	c.Port = s.port()
	for _, step := range []func() error{
		func() error { return c.Start(ctx) },
		func() error { return s.install(ctx, c) },
		func() error { return c.Init(ctx, c.Machines[0]) },
		func() error { return c.Join(ctx, c.Machines[1:]...) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	for i := range faults {
		f := &faults[i]
		if !bench.In(faultNames, f.name) || ctx.Err() != nil {
			continue
		}
		if err := c.WaitWhole(ctx); err != nil {
			return err
		}
		x, err := one(ctx, c, s, f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s %s: %d of %d writes failed, %v without a write, watch %v and %v, %v, took %v %v\n", s.name(), f.name,
			x.writes.Failed, x.writes.Attempts, round(x.gap), round(x.outside), round(x.nodes), x.moves, round(x.took), x.err)
		r.rows = append(r.rows, x)
	}
	return ctx.Err()
}

// one makes one fault.
func one(ctx context.Context, c *cluster.Cluster, s system, f *fault) (*row, error) {
	owner, err := waitOwner(ctx, s, c)
	if err != nil {
		return nil, err
	}
	w, err := c.Write(ctx, writeEvery)
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	outside, err := c.Watch(ctx, config)
	if err != nil {
		return nil, err
	}
	defer outside.Stop()
	var nodes []*cluster.Watcher
	for _, m := range c.Others(owner) { // one of them is the next owner
		config, err := c.ConfigOn(m)
		if err != nil {
			return nil, err
		}
		n, err := c.Watch(ctx, config)
		if err != nil {
			return nil, err
		}
		defer n.Stop()
		nodes = append(nodes, n)
	}
	owners := follow(ctx, c)
	if err := sleep(ctx, before); err != nil {
		return nil, err
	}
	from := measure.Now()
	st := &stage{Cluster: c, system: s, owner: owner}
	x := &row{fault: f, system: s.name(), err: f.do(ctx, st), took: st.took}
	if err := sleep(ctx, after); err != nil {
		return nil, err
	}
	to := measure.Now()
	x.moves = owners()
	x.writes, x.gap = w.Reach(from.Add(-time.Second), to), w.LongestGap(from.Add(-time.Second), to)
	x.outside = outside.LongestSilence(from, to)
	for _, n := range nodes {
		x.nodes = max(x.nodes, n.LongestSilence(from, to))
	}
	return x, nil
}

// follow notes to whom the VIP leads the client until the returned function is called,
// which tells the machines in order.
func follow(ctx context.Context, c *cluster.Cluster) func() []string {
	ctx, stop := context.WithCancel(ctx)
	var owners []string
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			if name := c.Neighbor(ctx, cluster.VIP()); name != "" && (len(owners) == 0 || owners[len(owners)-1] != name) {
				owners = append(owners, name)
			}
			_ = sleep(ctx, 100*time.Millisecond)
		}
	})
	return func() []string {
		stop()
		done.Wait()
		return owners
	}
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
