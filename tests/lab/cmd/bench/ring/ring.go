// Package ring measures what the ring does for open connections and what it costs:
// connections kept in every fault, by layer 2 and by BGP, with and without ring and
// beside keepalived; round trips, throughput and processor time through relays; and
// how soon the rules follow the death of a node.
package ring

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/bench"
)

// longLived is how many connections are open during a fault.
const longLived = 60

// The parts of the bench, in order.
const (
	partLayer2 = "layer2"
	partBGP    = "bgp"
	partCost   = "cost"
	partDeath  = "death"
)

type options struct {
	runs   int
	strays int
	// Empty: all.
	parts, faults, systems []string
}

// Command is the bench of connections.
func Command() bench.Command {
	o := &options{parts: []string{partLayer2, partBGP, partCost, partDeath}}
	return bench.Command{
		Name: "ring", About: "what open connections survive and what that costs", Part: "connections",
		Flags: func(fs *flag.FlagSet) {
			fs.IntVar(&o.runs, "runs", 6, "runs of each fault and rounds of each figure; a multiple of 3 hits every node")
			fs.IntVar(&o.strays, "strays", 300_000, "packets that are sent to find the processor time of a relay")
			bench.List(fs, &o.parts, "parts", "what is measured of "+strings.Join(o.parts, ", "))
			bench.List(fs, &o.faults, "faults", "faults")
			bench.List(fs, &o.systems, "systems", "lbd, lbd-balanced, lbd-reset and keepalived")
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
	r := &results{options: o}
	for _, p := range []struct {
		name string
		run  func(context.Context, *lab.Bin, *results) error
	}{{partLayer2, layer2}, {partBGP, bgp}, {partCost, costs}, {partDeath, deaths}, {partDeath, deathsBGP}} {
		if !bench.In(o.parts, p.name) || ctx.Err() != nil {
			continue
		}
		if err := p.run(ctx, bin, r); err != nil {
			fmt.Fprintf(os.Stderr, "ring: %s: %v\n", p.name, err)
			r.errors = append(r.errors, fmt.Sprintf("%s: %v", p.name, err))
		}
	}
	// What was measured before somebody interrupted is still worth a report.
	return report(r), nil
}

// results are all figures.
type results struct {
	options *options
	kept    []*keptRow
	cost    []*round
	speeds  []*speeds
	load    *relayLoad
	deaths  []*death
	errors  []string
}
