package bundle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/control"
	"lbd.dev/lbd/internal/model"
)

// mostExplained is how many VIPs are explained, those to look at first.
const mostExplained = 50

// Daemon are the parts that the daemon is asked for, bounded by limit together.
func Daemon(c *control.Client, limit time.Duration) Part {
	return Part{
		Names: []string{"status.json", "status.txt", "bgp.txt", "events.json", "events.txt", "metrics.txt", "explain.txt"},
		Limit: limit,
		Collect: func(ctx context.Context, to *Sink) error {
			s, err := c.Status(ctx)
			if err != nil {
				return fmt.Errorf("the daemon does not tell its status: %w", err)
			}
			return errors.Join(
				writeStatus(to, s),
				writeEvents(ctx, c, to),
				writeMetrics(ctx, c, to),
				writeExplanations(ctx, c, to, s),
			)
		},
	}
}

func writeStatus(to *Sink, s v1alpha1.NodeStatus) error {
	return errors.Join(
		asJSON(to.Writer("status.json"), s),
		control.RenderStatus(to.Writer("status.txt"), s, true),
		control.RenderBGP(to.Writer("bgp.txt"), s),
	)
}

func writeEvents(ctx context.Context, c *control.Client, to *Sink) error {
	e, err := c.Events(ctx, control.EventQuery{})
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	var table control.EventTable
	return errors.Join(asJSON(to.Writer("events.json"), e), table.Write(to.Writer("events.txt"), e))
}

func writeMetrics(ctx context.Context, c *control.Client, to *Sink) error {
	text, err := c.Metrics(ctx)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	to.Add("metrics.txt", text)
	return nil
}

// writeExplanations asks about the VIPs one after another: an answer about each costs the daemon
// some work.
func writeExplanations(ctx context.Context, c *control.Client, to *Sink, s v1alpha1.NodeStatus) error {
	out := to.Writer("explain.txt")
	names := toExplain(s.VIPs)
	for i, name := range names {
		if i == mostExplained {
			fmt.Fprintf(out, "\n%d more VIPs are not explained here; those to look at came first\n", len(names)-i)
			break
		}
		if i > 0 {
			fmt.Fprintln(out)
		}
		list, err := c.Explain(ctx, name, "")
		if err == nil {
			err = control.RenderExplain(out, list)
		}
		if err != nil {
			fmt.Fprintf(out, "%q: %v\n", name, err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("only %d of %d VIPs are explained: %w", i, len(names), ctx.Err())
		}
	}
	if len(names) == 0 {
		fmt.Fprintln(out, "this node knows no VIP")
	}
	return nil
}

// toExplain are the addresses of VIPs, those first that nobody owns or that a person should look
// at.
func toExplain(vips []v1alpha1.VIPStatus) []string {
	sorted := slices.Clone(vips)
	calm := func(v v1alpha1.VIPStatus) int {
		reason, known := model.ParseReason(v.Reason)
		if v.Owner == "" && v.Mode != "bgp" || v.Duplicate != "" || !known || reason.Look() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(sorted, func(a, b v1alpha1.VIPStatus) int { return cmp.Compare(calm(a), calm(b)) })
	var names []string
	seen := make(map[string]bool)
	for _, v := range sorted {
		if !seen[v.Address] {
			seen[v.Address] = true
			names = append(names, v.Address)
		}
	}
	return names
}

func asJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
