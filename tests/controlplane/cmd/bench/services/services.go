// Package services measures lbd with many Services in front of a real API server: how long
// it takes to give and announce their addresses, what that costs, and how fast it acts on
// one change among them.
package services

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
	"lbd.dev/lbd/tests/lab/bench"
)

type options struct {
	sizes     []int
	created   int // Services created one by one
	moves     int // of an endpoint
	cuts      int // of a node
	steady    time.Duration
	proxyUpTo int
	profiles  string
}

// Command is the bench of Services.
func Command() bench.Command {
	o := &options{sizes: []int{100, 1000, 5000}}
	return bench.Command{
		Name: "services", About: "thousands of Services", Part: "services",
		Flags: func(fs *flag.FlagSet) {
			fs.Func("services", "numbers of Services, separated by commas (default: 100,1000,5000)", o.setSizes)
			fs.IntVar(&o.created, "created", 50, "Services created one by one")
			fs.IntVar(&o.moves, "moves", 20, "times that an endpoint moves")
			fs.IntVar(&o.cuts, "cuts", 3, "times that a node is cut off")
			fs.DurationVar(&o.steady, "steady", time.Minute, "how long requests are counted while nothing happens; processor time for a third of it")
			fs.IntVar(&o.proxyUpTo, "proxy", 100, "up to how many Services kube-proxy runs")
			fs.StringVar(&o.profiles, "profiles", "", "folder for profiles of the first node's daemon (default: none)")
		},
		Measure: func(ctx context.Context) (string, error) { return measureAll(ctx, o) },
	}
}

func (o *options) setSizes(text string) error {
	o.sizes = nil
	for _, f := range strings.Split(text, ",") {
		n, err := strconv.Atoi(f)
		if err != nil || n < 1 || n > maxServices {
			return fmt.Errorf("want numbers from 1 to %d", maxServices)
		}
		o.sizes = append(o.sizes, n)
	}
	return nil
}

func measureAll(ctx context.Context, o *options) (string, error) {
	if err := lab.Usable(); err != nil {
		return "", err
	}
	programs, err := controlplane.Build(ctx)
	if err != nil {
		return "", err
	}
	bin, err := lab.Build(ctx, true)
	if err != nil {
		return "", err
	}
	defer bin.Close()
	var all []*figures
	for _, n := range o.sizes {
		f, err := size(ctx, bin, programs, n, o)
		if f != nil {
			all = append(all, f)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "services: %d Services: %v\n", n, err)
			f.errors = append(f.errors, err.Error())
		}
		if ctx.Err() != nil {
			break // what was measured before is still worth a report
		}
	}
	return report(programs, all), nil
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
