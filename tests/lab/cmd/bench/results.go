package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// entry is one line of the raw results: a run, a run that failed to happen, or
// the idle figures of a system.
type entry struct {
	lab.Outcome
	Failed string `json:",omitempty"`
	Idle   []idle `json:",omitempty"`
}

// idle is what the daemon of one node uses when nothing happens.
type idle struct {
	Node      string
	Processes int
	RSS       int64
	CPU       float64 // share of a core
	Load      float64 // of the machine meanwhile
}

// results keeps all entries and writes new ones to the raw file, if any.
type results struct {
	entries []entry
	file    *os.File
	maxLoad float64 // of a run that counts
}

func openResults(path string, maxLoad float64) (*results, error) {
	r := &results{maxLoad: maxLoad}
	if path == "" {
		return r, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("raw: %w", err)
	}
	r.file = f
	dec := json.NewDecoder(f)
	for {
		var e entry
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("raw: %q: %w", path, err), f.Close())
		}
		r.entries = append(r.entries, e)
	}
}

func (r *results) add(e entry) {
	r.entries = append(r.entries, e)
	if r.file == nil {
		return
	}
	if err := json.NewEncoder(r.file).Encode(e); err != nil {
		fmt.Fprintln(os.Stderr, "bench: raw:", err)
	}
}

func (r *results) close() {
	if r.file != nil {
		_ = r.file.Close() // each line was written and checked before
	}
}

// runs returns the undisturbed runs, and how many were dropped because the
// machine was busy or failed to happen.
func (r *results) runs(system, scenario string) (good []*lab.Outcome, busy, failed int) {
	for i := range r.entries {
		e := &r.entries[i]
		switch {
		case e.System != system || e.Scenario != scenario || e.Idle != nil:
		case e.Failed != "":
			failed++
		case e.Load > r.maxLoad:
			busy++
		default:
			good = append(good, &e.Outcome)
		}
	}
	return good, busy, failed
}

func (r *results) good(system, scenario string) int {
	g, _, _ := r.runs(system, scenario)
	return len(g)
}

func (r *results) hasIdle(system string) bool {
	for _, e := range r.entries {
		if e.System == system && e.Idle != nil {
			return true
		}
	}
	return false
}

// idleFor is how long the idle figures are taken.
const idleFor = 10 * time.Second

// idle measures what the daemons use when nothing happens.
func (b *session) idle(ctx context.Context) error {
	c, err := b.get(ctx)
	if err != nil {
		return err
	}
	return c.Unwatched(func() error {
		e, err := idleFigures(ctx, c)
		if err == nil {
			b.results.add(e)
		}
		return err
	})
}

func idleFigures(ctx context.Context, c *lab.Cluster) (entry, error) {
	e := entry{Outcome: lab.Outcome{System: c.System.Name()}}
	before, load, err := usages(c)
	if err != nil {
		return e, err
	}
	select {
	case <-ctx.Done():
		return e, ctx.Err()
	case <-time.After(idleFor):
	}
	after, now, err := usages(c)
	if err != nil {
		return e, err
	}
	for i, n := range c.Nodes {
		e.Idle = append(e.Idle, idle{
			Node: n.Name, Processes: after[i].Processes, RSS: after[i].RSS,
			CPU: float64(after[i].CPU-before[i].CPU) / float64(idleFor), Load: measure.Load(load, now),
		})
	}
	floor, err := c.Floor(ctx, idleFor/2)
	if err != nil {
		return e, err
	}
	e.Idle = append(e.Idle, idle{Node: "(two bare datagrams each 50 ms)", CPU: floor})
	return e, nil
}

// usages reads what the daemon of each node, and the machine, have used so far.
func usages(c *lab.Cluster) ([]measure.Usage, measure.CPU, error) {
	out := make([]measure.Usage, len(c.Nodes))
	for i, n := range c.Nodes {
		var err error
		if out[i], err = measure.GroupUsage(n.Daemon.PID()); err != nil {
			return nil, measure.CPU{}, err
		}
	}
	cpu, err := measure.ReadCPU()
	return out, cpu, err
}
