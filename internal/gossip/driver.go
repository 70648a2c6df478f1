package gossip

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

const (
	// askEvery bounds how often the others are asked whether they are there.
	askEvery = 30 * time.Millisecond
	// askSome is how many of them are asked at least; one answer is enough.
	askSome = 8
)

type driver struct {
	g     *Gossip
	asked time.Time // when the others were last asked
}

func (*driver) Name() model.SinkName { return model.SinkGossip }

// Apply tells what changed since the last call. It reports no VIPs: what was
// told is what was asked for.
func (d *driver) Apply(ctx context.Context, want *model.Desired) (model.Applied, error) {
	g := d.g
	if g.over() {
		return model.Applied{}, nil
	}
	if want.Group.Leave {
		return model.Applied{}, g.Leave(ctx)
	}
	if !want.Group.Unready {
		if part, changed := g.own.Update(&want.Group); changed {
			g.tell(part, heartbeatTargets(&want.Group))
			wake.Up(g.wake) // Run repeats it
		}
	}
	now := time.Now()
	if want.Group.Ask && now.Sub(d.asked) >= askEvery {
		d.asked = now
		g.askAll(want.Group.Witnesses, now)
	}
	g.await(want.Group.Owners, want.Group.First, now)
	g.planner.Plan(want)
	var report model.Applied
	if n := len(want.Group.VIPs); n > record.MaxEntries {
		report.Err = fmt.Sprintf("%d VIPs are more than the %d that gossip tells of", n, record.MaxEntries)
	}
	return report, nil
}

// Extend lets heartbeats go on for longer.
func (d *driver) Extend(until time.Time) bool { return d.g.planner.Extend(until) }

// Changed is nil: nothing that was told becomes untold.
func (*driver) Changed() <-chan struct{} { return nil }

// Close closes the sockets without a goodbye.
func (d *driver) Close(context.Context) error { return d.g.close() }

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

// askAll asks others whether they are there: those that are named, and in a large group any
// to make up the number.
func (g *Gossip) askAll(named []model.NodeName, now time.Time) {
	msg := record.Ask{Name: string(g.name), Here: true}.Encode(g.own.Format())
	g.mu.Lock()
	all := g.small(now) // in the random order of a map
	g.mu.Unlock()
	for _, to := range asked(all, named) {
		g.sendLater(to, msg)
	}
}

// asked are those of all that are asked: the named ones, and others up to askSome.
func asked(all []*memberlist.Node, named []model.NodeName) []*memberlist.Node {
	first := 0
	for i, to := range all {
		if slices.Contains(named, model.NodeName(to.Name)) {
			all[first], all[i] = to, all[first]
			first++
		}
	}
	return all[:min(len(all), max(first, askSome))]
}

// await expects heartbeats of those owners that are alive.
func (g *Gossip) await(owners, first []model.NodeName, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	alive := make([]model.NodeName, 0, len(owners))
	for _, name := range owners {
		if n := g.table.Node(name); n != nil && n.Alive() {
			alive = append(alive, name)
		}
	}
	if g.watches.Await(alive, first, now) {
		wake.Up(g.wake)
	}
}
