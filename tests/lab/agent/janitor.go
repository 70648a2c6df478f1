package main

import (
	"context"
	"flag"
	"os"

	"lbd.dev/lbd/tests/lab"
)

// janitor waits until its standard input ends, which is when the lab that
// started it is gone, and removes what is left of it. Signals to the lab's
// terminal do not concern it.
func janitor(_ context.Context, args []string, _ *events) error {
	fs := flag.NewFlagSet("janitor", flag.ContinueOnError)
	prefix := fs.String("prefix", "", "prefix of the lab's namespaces")
	if err := fs.Parse(args); err != nil {
		return err
	}
	discard(os.Stdin)
	return lab.Remove(context.Background(), *prefix)
}
