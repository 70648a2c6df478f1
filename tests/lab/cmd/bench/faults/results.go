package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/bench"
)

// entry is one line of the raw results: a run, a run that failed to happen, or
// the idle figures of a system.
type entry struct {
	lab.Outcome
	Failed string       `json:",omitempty"`
	Idle   []bench.Idle `json:",omitempty"`
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

// idle measures what the daemons use when nothing happens.
func (b *session) idle(ctx context.Context) error {
	c, err := b.get(ctx)
	if err != nil {
		return err
	}
	return c.Unwatched(func() error {
		e := entry{Outcome: lab.Outcome{System: c.System.Name()}}
		if e.Idle, err = bench.IdleFigures(ctx, c.Nodes); err != nil {
			return err
		}
		floor, err := c.Floor(ctx, bench.IdleFor/2)
		if err != nil {
			return err
		}
		e.Idle = append(e.Idle, bench.Idle{Node: "(two bare datagrams each 50 ms)", CPU: floor})
		b.results.add(e)
		return nil
	})
}
