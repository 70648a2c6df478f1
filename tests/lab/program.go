package lab

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Program runs a program of the lab to its end, which Ctrl-C brings about in order, and
// exits with 1 if it failed.
func Program(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
