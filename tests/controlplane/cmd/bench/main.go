// Bench measures lbd with many Services in front of a real API server: how long it
// takes to give and announce their addresses, what that costs, and how fast it acts
// on one change among them. It writes its part of the report in Markdown.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/document"
)

// part is the name of the report in the file.
const part = "services"

type options struct {
	sizes     []int
	created   int // Services created one by one
	moves     int // of an endpoint
	cuts      int // of a node
	steady    time.Duration
	proxyUpTo int
	out       string
	profiles  string
}

func main() {
	o := &options{}
	sizes := flag.String("services", "100,1000,5000", "numbers of Services, separated by commas")
	flag.IntVar(&o.created, "created", 50, "Services created one by one")
	flag.IntVar(&o.moves, "moves", 20, "times that an endpoint moves")
	flag.IntVar(&o.cuts, "cuts", 3, "times that a node is cut off")
	flag.DurationVar(&o.steady, "steady", time.Minute, "how long requests are counted while nothing happens; processor time for a third of it")
	flag.IntVar(&o.proxyUpTo, "proxy", 100, "up to how many Services kube-proxy runs")
	flag.StringVar(&o.out, "out", "", "file whose part is replaced (default: standard output)")
	flag.StringVar(&o.profiles, "profiles", "", "folder for profiles of the first node's daemon (default: none)")
	flag.Parse()
	for _, f := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(f)
		if err != nil || n < 1 || n > maxServices {
			fmt.Fprintf(os.Stderr, "bench: -services %s: want numbers from 1 to %d\n", *sizes, maxServices)
			os.Exit(2)
		}
		o.sizes = append(o.sizes, n)
	}
	lab.Program("bench", func(ctx context.Context) error { return bench(ctx, o) })
}

func bench(ctx context.Context, o *options) error {
	if err := lab.Usable(); err != nil {
		return err
	}
	programs, err := controlplane.Build(ctx)
	if err != nil {
		return err
	}
	bin, err := lab.Build(ctx, true)
	if err != nil {
		return err
	}
	defer bin.Close()
	var all []*figures
	for _, n := range o.sizes {
		f, err := size(ctx, bin, programs, n, o)
		if f != nil {
			all = append(all, f)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: %d Services: %v\n", n, err)
			f.errors = append(f.errors, err.Error())
		}
		if ctx.Err() != nil {
			break // what was measured before is still worth a report
		}
	}
	return document.Write(o.out, part, report(programs, all))
}

// size measures everything with one number of Services. The figures are those that
// were taken before an error.
func size(ctx context.Context, bin *lab.Bin, programs *controlplane.Programs, n int, o *options) (f *figures, err error) {
	f = &figures{services: n, proxy: n <= o.proxyUpTo}
	c, err := newCluster(ctx, bin, programs, f.proxy)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for _, step := range []func(context.Context, *figures, *options) error{
		c.measureController, c.measureStart, c.measureSteady, c.measureCreated, c.measureCreatedUsual, c.measureMoves, c.measureCuts,
	} {
		if err := step(ctx, f, o); err != nil {
			return f, err
		}
	}
	return f, nil
}
