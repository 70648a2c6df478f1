// Build builds the programs of a control plane, and MetalLB, into the cache, or finds them
// there, and prints where they are; with -traefik Traefik too.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/controlplane"
)

func main() {
	traefik := flag.Bool("traefik", false, "Traefik too, which takes half an hour")
	flag.Parse()
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
	if !*traefik {
		return
	}
	start = time.Now()
	program, built, err := controlplane.BuildTraefik(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	how = "from the cache"
	if built {
		how = "built in " + time.Since(start).Round(time.Second).String()
	}
	fmt.Printf("Traefik: %s (%s)\n", program, how)
}
