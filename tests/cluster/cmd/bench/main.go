// Bench does the same to real control planes that lbd and keepalived with HAProxy keep
// reachable, and writes what clients saw into its part of a Markdown file: etcd and API
// servers that stop, hang and lose power, upgrades by kubeadm, planned moves.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"lbd.dev/lbd/tests/cluster"
	"lbd.dev/lbd/tests/lab/bench"
)

func main() {
	cluster.Main()
	o := &options{}
	bench.Main(bench.Command{
		Name: "cluster", About: "real control planes in faults and upgrades", Part: "cluster",
		Flags: func(fs *flag.FlagSet) {
			bench.List(fs, &o.systems, "systems", "lbd and keepalived")
			bench.List(fs, &o.faults, "faults", "names of faults")
		},
		Measure: func(ctx context.Context) (string, error) { return measureAll(ctx, o) },
	})
}

// options are empty for all.
type options struct{ systems, faults []string }

func measureAll(ctx context.Context, o *options) (string, error) {
	parts, err := cluster.Build(ctx, "keepalived", "haproxy")
	if err != nil {
		return "", err
	}
	r := &results{kubernetes: parts.Programs.Kubernetes}
	for _, s := range []system{lbd{}, keepalived{}} {
		if !bench.In(o.systems, s.name()) || ctx.Err() != nil {
			continue
		}
		r.systems = append(r.systems, s)
		if err := r.run(ctx, parts, s, o.faults); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", s.name(), err)
			r.errors = append(r.errors, fmt.Sprintf("%s: %v", s.name(), err))
		}
	}
	// What was measured before somebody interrupted is still worth a report.
	return r.report(), nil
}
