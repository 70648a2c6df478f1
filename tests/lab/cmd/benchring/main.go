// Benchring measures what the ring does for open connections and what it costs:
// connections kept in every fault, by layer 2 and by BGP, with and without ring and
// beside keepalived; round trips, throughput and processor time through relays; and
// how soon the rules follow the death of a node. It writes its part of the report in
// Markdown.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/document"
)

// part is the name of the report in the file.
const part = "connections"

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
	parts  []string
	out    string
	// Empty: all.
	faults, systems []string
}

func (o *options) has(name string) bool { return slices.Contains(o.parts, name) }

// in tells whether a list names something; an empty one names all.
func in(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }

func main() {
	o := &options{}
	flag.IntVar(&o.runs, "runs", 6, "runs of each fault and rounds of each figure; a multiple of 3 hits every node")
	flag.IntVar(&o.strays, "strays", 300_000, "packets that are sent to find the processor time of a relay")
	flag.StringVar(&o.out, "out", "", "file whose part is replaced (default: standard output)")
	parts := flag.String("parts", strings.Join([]string{partLayer2, partBGP, partCost, partDeath}, ","), "what is measured, separated by commas")
	faults := flag.String("faults", "", "faults, separated by commas (default: all)")
	systems := flag.String("systems", "", "lbd, lbd-balanced, lbd-reset and keepalived, separated by commas (default: all)")
	flag.Parse()
	o.parts = strings.Split(*parts, ",")
	if *faults != "" {
		o.faults = strings.Split(*faults, ",")
	}
	if *systems != "" {
		o.systems = strings.Split(*systems, ",")
	}
	lab.Program("benchring", func(ctx context.Context) error { return bench(ctx, o) })
}

func bench(ctx context.Context, o *options) error {
	if err := errors.Join(lab.Usable(), interop.Missing()); err != nil {
		return err
	}
	bin, err := lab.Build(ctx, true)
	if err != nil {
		return err
	}
	defer bin.Close()
	r := &results{options: o}
	for _, p := range []struct {
		name string
		run  func(context.Context, *lab.Bin, *results) error
	}{{partLayer2, layer2}, {partBGP, bgp}, {partCost, costs}, {partDeath, deaths}, {partDeath, deathsBGP}} {
		if !o.has(p.name) || ctx.Err() != nil {
			continue
		}
		if err := p.run(ctx, bin, r); err != nil {
			fmt.Fprintf(os.Stderr, "benchring: %s: %v\n", p.name, err)
			r.errors = append(r.errors, fmt.Sprintf("%s: %v", p.name, err))
		}
	}
	// What was measured before somebody interrupted is still worth a report.
	return errors.Join(document.Write(o.out, part, report(r)), ctx.Err())
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
