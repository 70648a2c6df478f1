package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/control"
	"lbd.dev/lbd/internal/wake"
)

func newEvents() *cobra.Command {
	var f socketFlags
	var output string
	var since time.Duration
	var watch bool
	cmd := &cobra.Command{
		Use:   "events [VIP]",
		Short: "Show what has changed on this node, and why: owners, health, members, drains, sessions, configuration",
		Long: `Show what has changed on this node, and why, the newest last. Of a VIP, named by
object or address, only its own events. The daemon remembers the last 500 since it
started.`,
		Example: "  lbd events control-plane --since 10m\n  lbd events -w",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{errors.New("it wants the name or the address of one VIP, or none")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if since < 0 || since == 0 && cmd.Flags().Changed("since") {
				return usageError{errors.New("--since must be above 0")}
			}
			t := timeline{client: f.client(), out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), format: output, watch: watch, query: control.EventQuery{Since: since}}
			if len(args) > 0 {
				t.query.VIP = args[0]
			}
			return t.run(cmd.Context())
		},
		ValidArgsFunction: f.completeVIP,
	}
	f.add(cmd)
	addOutput(cmd, &output, "table")
	cmd.Flags().DurationVar(&since, "since", 0, "only events that are not older, such as 10m")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on with new events until interrupted")
	return cmd
}

// timeline shows events, as a table for people or as documents for programs.
type timeline struct {
	client    *control.Client
	out, errs io.Writer
	format    string
	watch     bool
	query     control.EventQuery
	table     control.EventTable
	started   time.Time // of the daemon whose events were shown last
}

// run shows events once, or what there is and then what comes.
func (t *timeline) run(ctx context.Context) error {
	if err := t.show(ctx); err != nil || !t.watch {
		return err
	}
	gone := false // nobody answers, and that was said
	for {
		if !wake.Sleep(ctx, time.Second) {
			return nil
		}
		err := t.show(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && t.format != "table":
			return err
		case err != nil && !gone:
			fmt.Fprintf(t.errs, "%s: lbd events: %s; asking again\n", levelWarning, visible(err.Error()))
		}
		gone = err != nil
	}
}

// show shows what has not been shown yet. Another process of the daemon counts anew.
func (t *timeline) show(ctx context.Context) error {
	e, err := t.client.Events(ctx, t.query)
	if err == nil && t.query.After > 0 && !e.Started.Equal(t.started) {
		t.query.After = 0
		e, err = t.client.Events(ctx, t.query)
	}
	if err != nil {
		return err
	}
	more := !t.started.IsZero()
	// What comes is new enough.
	t.query.After, t.query.Since, t.started = e.Newest, 0, e.Started
	if more && len(e.Events) == 0 {
		return nil
	}
	return t.write(e)
}

func (t *timeline) write(e v1alpha1.NodeEvents) error {
	if t.format == "table" {
		return t.table.Write(t.out, e)
	}
	if t.format == "yaml" && t.watch {
		fmt.Fprintln(t.out, "---")
	}
	return encode(t.out, t.format, e)
}
