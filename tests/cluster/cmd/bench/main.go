// Bench does the same to real control planes that lbd and keepalived with HAProxy keep
// reachable, and writes what clients saw into its part of a Markdown file: etcd and API
// servers that stop, hang and lose power, upgrades by kubeadm, planned moves.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"lbd.dev/lbd/tests/cluster"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/document"
)

// part is the name of the report in the file.
const part = "cluster"

func main() {
	cluster.Main()
	out := flag.String("out", "", "file whose part is replaced (default: standard output)")
	systems := flag.String("systems", "lbd,keepalived", "separated by commas")
	only := flag.String("faults", "", "names of faults, separated by commas (default: all)")
	flag.Parse()
	lab.Program("bench", func(ctx context.Context) error { return bench(ctx, *out, strings.Split(*systems, ","), *only) })
}

func bench(ctx context.Context, out string, systems []string, only string) error {
	parts, err := cluster.Build(ctx, "keepalived", "haproxy")
	if err != nil {
		return err
	}
	r := &results{kubernetes: parts.Programs.Kubernetes}
	for _, s := range []system{lbd{}, keepalived{}} {
		if !slices.Contains(systems, s.name()) || ctx.Err() != nil {
			continue
		}
		r.systems = append(r.systems, s)
		if err := r.run(ctx, parts, s, only); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", s.name(), err)
			r.errors = append(r.errors, fmt.Sprintf("%s: %v", s.name(), err))
		}
	}
	// What was measured before somebody interrupted is still worth a report.
	return errors.Join(document.Write(out, part, r.report()), ctx.Err())
}
