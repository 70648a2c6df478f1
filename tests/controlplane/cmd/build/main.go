// Build builds the programs of a control plane, and MetalLB, into the cache, or finds them
// there, and prints where they are.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	start := time.Now()
	p, err := controlplane.Build(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	how := "from the cache"
	if p.Built {
		how = "built in " + time.Since(start).Round(time.Second).String()
	}
	fmt.Printf("Kubernetes %s, etcd %s: %s (%s)\n", p.Kubernetes, p.EtcdVersion, p.Dir, how)
	// Here, since a compiler beside the tests would disturb what they measure.
	metallb, _, err := controlplane.BuildMetalLB(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("MetalLB: %s\n", metallb)
}
