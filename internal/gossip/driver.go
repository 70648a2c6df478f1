package gossip

import (
	"context"
	"fmt"
	"time"

	"lbd.dev/lbd/internal/model"
)

type driver struct{ g *Gossip }

func (driver) Name() model.SinkName { return model.SinkGossip }

// Apply tells what changed since the last call. It reports no VIPs: what was
// told is what was asked for.
func (d driver) Apply(ctx context.Context, want *model.Desired) (model.Applied, error) {
	g := d.g
	if g.over() {
		return model.Applied{}, nil
	}
	if want.Group.Leave {
		return model.Applied{}, g.Leave(ctx)
	}
	if part, changed := g.own.update(&want.Group); changed {
		g.tell(part, heartbeatTargets(&want.Group))
		signal(g.wake) // Run repeats it
	}
	if want.Group.Ask {
		g.askAll(time.Now())
	}
	g.plan(want)
	var report model.Applied
	if n := len(want.Group.VIPs); n > maxEntries {
		report.Err = fmt.Sprintf("%d VIPs are more than the %d that gossip tells of", n, maxEntries)
	}
	return report, nil
}

// Changed is nil: nothing that was told becomes untold.
func (driver) Changed() <-chan struct{} { return nil }

// Close closes the sockets without a goodbye.
func (d driver) Close(context.Context) error { return d.g.close() }

func (g *Gossip) over() bool {
	g.endMu.Lock()
	defer g.endMu.Unlock()
	return g.left || g.closed
}

func heartbeatTargets(gs *model.GroupState) []model.NodeName {
	out := make([]model.NodeName, 0, len(gs.Heartbeats))
	for _, t := range gs.Heartbeats {
		out = append(out, t.Node)
	}
	return out
}
