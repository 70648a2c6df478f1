// E2e runs Kubernetes' own end-to-end tests of load balancers on a cluster whose load
// balancer is lbd, and prints how each went as a table in Markdown, for
// docs/conformance.md. It fails if one fails that should pass.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/tests/cluster"
	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
)

// spec is a test of Kubernetes, by the end of its name.
type spec struct {
	name string
	// few: it is one of those that run in CI: together they see creation, changes,
	// deletion, TCP and UDP, both traffic policies and affinity.
	few bool
	// not is why lbd is not to pass it.
	not string
}

var specs = []spec{
	{name: "should be able to change the type and ports of a TCP service [Slow]", few: true},
	{name: "should be able to change the type and ports of a UDP service [Slow]", few: true},
	{name: "should only allow access from service loadbalancer source ranges [Slow]"},
	{name: "should have session affinity work for LoadBalancer service with Local traffic policy [Slow] [LinuxOnly]"},
	{name: "should be able to switch session affinity for LoadBalancer service with Local traffic policy [Slow] [LinuxOnly]",
		not: "by layer 2 one node takes all requests, and has one of the three Pods: see docs/conformance.md"},
	{name: "should have session affinity work for LoadBalancer service with Cluster traffic policy [Slow] [LinuxOnly]"},
	{name: "should be able to switch session affinity for LoadBalancer service with Cluster traffic policy [Slow] [LinuxOnly]"},
	{name: "should handle load balancer cleanup finalizer for service [Slow]",
		not: "lbd sets no finalizer: see docs/conformance.md"},
	{name: "should be able to create LoadBalancer Service without NodePort and change it [Slow]", few: true},
	{name: "should be able to preserve UDP traffic when server pod cycles for a LoadBalancer service on different nodes"},
	{name: "should be able to preserve UDP traffic when server pod cycles for a LoadBalancer service on the same nodes"},
	{name: "should not have connectivity disruption during rolling update with externalTrafficPolicy=Cluster [Slow]"},
	{name: "should not have connectivity disruption during rolling update with externalTrafficPolicy=Local [Slow]"},
	{name: "should work for type=LoadBalancer", few: true},
	{name: "should only target nodes with endpoints", few: true},
	{name: "should target all nodes with endpoints"},
	{name: "should work from pods"},
}

func main() {
	cluster.Main()
	which := flag.String("specs", "all", "all that lbd is to pass, few of them, or an expression for names")
	flag.Parse()
	lab.Program("e2e", func(ctx context.Context) error { return run(ctx, focus(*which)) })
}

// focus are expressions for the names of the specs.
func focus(which string) []string {
	if which != "all" && which != "few" {
		return []string{which}
	}
	var all []string
	for _, s := range specs {
		if s.not == "" && (which == "all" || s.few) {
			all = append(all, `\[Feature:LoadBalancer\].* `+cluster.Exactly(s.name))
		}
	}
	return all
}

func run(ctx context.Context, focus []string) (err error) {
	tests, err := controlplane.BuildConformance(ctx)
	if err != nil {
		return err
	}
	parts, err := cluster.Build(ctx)
	if err != nil {
		return err
	}
	c, err := cluster.New(ctx, parts, 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, step := range []func() error{
		func() error { return c.Start(ctx) },
		func() error { return c.InstallUnit(ctx, c.Machines...) },
		func() error { return c.Init(ctx, c.Machines[0]) },
		func() error { return c.Join(ctx, c.Machines[1:]...) },
		func() error { return c.WaitWhole(ctx) },
		func() error { return c.ServeServices(ctx, c.Machines...) },
		func() error { return c.ServeClassless(ctx, c.Machines...) },
		func() error { return c.PrepareConformance(ctx, tests) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stderr, "e2e: the cluster stands, the specs begin")
	results, err := c.Conformance(ctx, tests, focus...)
	if err != nil {
		return err
	}
	report(results)
	failed := slices.DeleteFunc(results, func(s cluster.Spec) bool { return s.State == "passed" })
	if len(failed) == 0 {
		return nil
	}
	if keep := os.Getenv("LBD_CLUSTER_LOGS"); keep != "" {
		err = c.KeepLogs(ctx, keep)
	}
	return errors.Join(fmt.Errorf("%d specs have not passed", len(failed)), err)
}

func report(results []cluster.Spec) {
	slices.SortFunc(results, func(a, b cluster.Spec) int { return cmp.Compare(a.Name, b.Name) })
	fmt.Print("| Spec | Result | Took |\n|---|---|---|\n")
	for _, s := range results {
		fmt.Printf("| %s | %s | %v |\n", strings.ReplaceAll(s.Name, "|", `\|`), s.State, s.Took.Round(time.Second))
	}
	for _, s := range results {
		if s.Failure != "" {
			fmt.Printf("\n%s: %s\n", s.Name, s.Failure[:min(len(s.Failure), 1500)])
		}
	}
}
