// Build builds what machines are made of into the cache, or finds it there, and
// prints where it is.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/cluster"
)

func main() {
	cluster.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	start := time.Now()
	parts, err := cluster.Build(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%v, %s\n", parts, time.Since(start).Round(time.Second))
}
