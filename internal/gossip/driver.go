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
	if !want.Group.Unready {
		if part, changed := g.own.update(&want.Group); changed {
			g.tell(part, heartbeatTargets(&want.Group))
			signal(g.wake) // Run repeats it
		}
	}
	if want.Group.Ask {
		g.askAll(want.Group.Witnesses, time.Now())
	}
	g.await(want.Group.Owners, time.Now())
	g.plan(want)
	var report model.Applied
	if n := len(want.Group.VIPs); n > maxEntries {
		report.Err = fmt.Sprintf("%d VIPs are more than the %d that gossip tells of", n, maxEntries)
	}
	return report, nil
}

// Extend lets heartbeats go on for longer.
func (d driver) Extend(until time.Time) bool {
	p := &d.g.planner
	if !p.mu.TryLock() {
		return false
	}
	defer p.mu.Unlock()
	if p.made == nil || !time.Now().Before(p.validUntil) {
		return false
	}
	p.validUntil = until
	// The sender looks at it before each heartbeat; it need not be woken.
	d.g.sender.plan.Store(&beatPlan{inc: p.inc, validUntil: p.validUntil, leaseEnd: p.leaseEnd, targets: p.made})
	return true
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
