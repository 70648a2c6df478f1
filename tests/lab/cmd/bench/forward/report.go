package forward

import (
	"fmt"
	"slices"
	"time"

	"lbd.dev/lbd/tests/lab/bench"
)

const preamble = `# Forwarding

Written by ` + "`make benchforward`" + ` (` + "`go run ./tests/lab/cmd/bench forward`" + `). What a ` + "`LoadBalancer`" + ` costs: a client, one node and three servers in network
namespaces on one Linux bridge, with segmentation offload. **direct** is without anything between, one machine less on the way; **lbd** has default
settings (` + "`source: vip`" + `); **HAProxy** %s runs on the same node in tcp mode with two threads. Client, node, servers and all else share the processors of the
machine.

- **Down**, **up**: one connection for %v, in Gbit/s. **Connects**: %d workers open a connection, ask for a line and reset it, for %v; **p50** and **p99** are
  from the first packet until the line is there, in ms.
- Each round measures all of them, each time in another order. Figures are medians over the rounds, with the quartiles in brackets; %% is the same of the ratio to
  direct in the same round.
- **Busy**: how much of the machine's processor time was used meanwhile, in %%. The figures themselves use all they get. No round was dropped.

`

func report(r *results) string {
	var b bench.Report
	b.Printf(preamble, r.version, streamFor, workers, connectFor)
	b.Printf("%s by `bench forward -runs %d`.\n", bench.Machine(), r.options.runs)
	for _, family := range families {
		rounds := r.rounds[family]
		if len(rounds) == 0 {
			continue
		}
		b.Printf("\n## %s, forwarded\n\nBusy: %s. %d rounds.\n\n", family, quartiles(rounds, 0, func(o *round) float64 { return 100 * o.busy }), len(rounds))
		b.Head("", "Down", "%", "Up", "%", "Connects/s", "%", "p50", "p99", "p99 more than direct")
		for _, v := range variants {
			row(&b, v, rounds)
		}
		wanted(&b, rounds)
	}
	b.NotMeasured(r.errors)
	return b.String()
}

func row(b *bench.Report, variant string, rounds []*round) {
	value := func(digits int, f func(figures) float64) string {
		return quartiles(rounds, digits, func(o *round) float64 { return f(o.figures[variant]) })
	}
	ratio := func(f func(figures) float64) string {
		if variant == direct {
			return ""
		}
		return quartiles(rounds, 0, func(o *round) float64 { return 100 * f(o.figures[variant]) / f(o.figures[direct]) })
	}
	more := ""
	if variant != direct {
		more = quartiles(rounds, 2, func(o *round) float64 { return p99(o.figures[variant]) - p99(o.figures[direct]) })
	}
	gbit := func(f func(figures) float64) func(figures) float64 {
		return func(x figures) float64 { return f(x) / 1e9 }
	}
	b.Row(variant, value(1, gbit(downOf)), ratio(downOf), value(1, gbit(upOf)), ratio(upOf), value(0, connectsOf), ratio(connectsOf),
		value(2, func(f figures) float64 { return millis(f.p50) }), value(2, p99), more)
}

// wanted says what lbd is to reach, and whether it does.
func wanted(b *bench.Report, rounds []*round) {
	ratio := func(f func(figures) float64) float64 {
		return quartile(rounds, 2, func(o *round) float64 { return 100 * f(o.figures[byLBD]) / f(o.figures[direct]) })
	}
	later := quartile(rounds, 2, func(o *round) float64 { return p99(o.figures[byLBD]) - p99(o.figures[direct]) })
	b.Printf("\nWanted of lbd, by the medians: down at least 90 %%: %s; up at least 90 %%: %s; connects at least 70 %%: %s; p99 at most 0.3 ms more: %s.\n",
		bench.Kept(ratio(downOf) >= 90), bench.Kept(ratio(upOf) >= 90), bench.Kept(ratio(connectsOf) >= 70), bench.Kept(later <= 0.3))
}

func downOf(f figures) float64     { return f.down }
func upOf(f figures) float64       { return f.up }
func connectsOf(f figures) float64 { return f.connects }
func p99(f figures) float64        { return millis(f.p99) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quartile is number 1, 2 or 3 of a figure of each round; 2 is the median.
func quartile(rounds []*round, number int, f func(*round) float64) float64 {
	v := make([]float64, len(rounds))
	for i, o := range rounds {
		v[i] = f(o)
	}
	slices.Sort(v)
	at := float64(number) * float64(len(v)-1) / 4
	low := int(at)
	high := min(low+1, len(v)-1)
	return v[low] + (at-float64(low))*(v[high]-v[low])
}

func quartiles(rounds []*round, digits int, f func(*round) float64) string {
	return fmt.Sprintf("%.*f (%.*f-%.*f)", digits, quartile(rounds, 2, f), digits, quartile(rounds, 1, f), digits, quartile(rounds, 3, f))
}
