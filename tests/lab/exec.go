package lab

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// cmdLimit bounds each helper command.
const cmdLimit = 30 * time.Second

// run runs a helper command and returns its output. An error carries what the
// command said.
func run(ctx context.Context, stdin string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, cmdLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err,
			strings.TrimSpace(errs.String()+" "+firstLines(out.String(), 3)))
	}
	return out.String(), nil
}

func firstLines(s string, n int) string {
	lines := strings.SplitN(s, "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "; ")
}

// Wait polls until check succeeds, ctx ends or limit is over; the error is then
// the last one of check.
func Wait(ctx context.Context, limit, every time.Duration, what string, check func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %v: %w", what, limit, err)
		}
		Pause(ctx, every)
	}
}

// Pause sleeps, but not longer than ctx lives.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
