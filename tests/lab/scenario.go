package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// MaxLoad is the busy share of the machine, steal included, above which a run
// says more about the machine than about the system.
const MaxLoad = 0.45

// Scenario is one fault that happens to the owner of a VIP, and what follows.
type Scenario struct {
	Name string
	// Inject does it. The moment before it is the moment of the fault.
	Inject func(ctx context.Context, c *Cluster, owner *Node) error
	// Moves says that another node is expected to take the VIP.
	Moves bool
	// Hold is how long watching goes on after the VIP is served again (or, if it
	// does not move, from the fault); Limit bounds the wait for that.
	Hold, Limit time.Duration
	// Undo ends the fault; what follows is the second phase, watched for After.
	Undo  func(ctx context.Context, c *Cluster, owner *Node) error
	After time.Duration
	// Repair brings back what the scenario ended. It may be nil.
	Repair func(ctx context.Context, c *Cluster, owner *Node) error
	// Conns opens long-lived connections before the fault.
	Conns int
	// Mixed: some of them only listen, some are of UDP, see Eyes.OpenMixed.
	Mixed bool
	// End runs while they are open, at the end.
	End func(ctx context.Context, c *Cluster, o *Outcome) error
}

// Phase is what was seen of one VIP in one stretch of time.
type Phase struct {
	Reach measure.Reach
	// Moved tells that the VIP was claimed by another node at the end; Takeover is
	// when one first claimed it, after the fault.
	Moved    bool
	Takeover time.Duration
	Dual     time.Duration
	// Claimants at the end.
	Claimants []string
}

// Outcome is one run of a scenario.
type Outcome struct {
	System, Scenario string
	VIP              netip.Addr
	Owner            string
	Fault, Undone    measure.Time // Undone is zero without second phase
	First, Second    Phase
	// Gone is when the kernel of the old owner had lost the VIP, after the fault;
	// negative if it had not by the end of the first phase.
	Gone  time.Duration
	Conns measure.Conns
	Load  float64 // of the machine, from the fault to the end
	// Stood is how long at worst the machine let nobody run meanwhile.
	Stood time.Duration
}

// Busy tells that the machine disturbed the run.
func (o *Outcome) Busy() bool { return o.Load > MaxLoad }

// Run waits until the cluster is stable, does the fault to the owner of the VIP
// at a random moment, watches, undoes and repairs it.
func (c *Cluster) Run(ctx context.Context, s Scenario, vip netip.Addr) (*Outcome, error) {
	if err := c.Stable(ctx); err != nil {
		return nil, err
	}
	var owner *Node
	err := Wait(ctx, 5*time.Second, 20*time.Millisecond, "one owner", func() (err error) { // the observer, too, may have stood still
		owner, err = c.Owner(vip)
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.Conns > 0 {
		open := c.Eyes.OpenConns
		if s.Mixed {
			open = c.Eyes.OpenMixed
		}
		if err := open(ctx, vip, s.Conns); err != nil {
			return nil, err
		}
		defer c.Eyes.CloseConns()
	}
	RandomMoment(ctx)
	stood := measure.Standstill()
	o, err := c.observe(ctx, s, vip, owner)
	still := stood()
	if s.End != nil && err == nil {
		err = s.End(ctx, c, o)
	}
	if s.Repair != nil {
		err = errors.Join(err, s.Repair(ctx, c, owner))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.System.Name(), s.Name, err)
	}
	o.Stood = still
	c.Eyes.Trim()
	return o, ctx.Err()
}

func (c *Cluster) observe(ctx context.Context, s Scenario, vip netip.Addr, owner *Node) (*Outcome, error) {
	cpu, err := measure.ReadCPU()
	if err != nil {
		return nil, err
	}
	o := &Outcome{System: c.System.Name(), Scenario: s.Name, VIP: vip, Owner: owner.Name, Gone: -1, Fault: measure.Now()}
	gone := c.watchGone(ctx, owner, vip)
	if err := s.Inject(ctx, c, owner); err != nil {
		gone()
		return nil, err
	}
	c.watch(ctx, s, vip, owner, o.Fault)
	end := measure.Now()
	if at := gone(); at != 0 {
		o.Gone = at.Sub(o.Fault)
	}
	o.First = c.phase(vip, owner, o.Fault, end)
	if s.Undo != nil {
		before := c.Eyes.Claimants(vip, 10*measure.AskEvery)
		o.Undone = measure.Now()
		if err := s.Undo(ctx, c, owner); err != nil {
			return nil, err
		}
		Pause(ctx, s.After)
		end = measure.Now()
		o.Second = c.phase(vip, owner, o.Undone, end)
		o.Second.Moved = len(before) != 1 || len(o.Second.Claimants) != 1 || before[0] != o.Second.Claimants[0]
	}
	o.Conns = c.Eyes.Conns(o.Fault, end)
	now, err := measure.ReadCPU()
	o.Load = measure.Load(cpu, now)
	return o, err
}

// watch returns when the scenario has run its course.
func (c *Cluster) watch(ctx context.Context, s Scenario, vip netip.Addr, owner *Node, fault measure.Time) {
	settled := func() bool {
		if s.Moves {
			if _, ok := measure.Takeover(c.Eyes.Frames(), vip.String(), owner.MAC, fault); !ok {
				return false
			}
		}
		// The last 300 ms may hold attempts that have not ended.
		return !c.Eyes.Reach(vip, fault.Add(-probeSlack), measure.Now()).Never
	}
	limit := fault.Add(s.Limit)
	for ctx.Err() == nil && measure.Now() < limit && !settled() {
		Pause(ctx, 50*time.Millisecond)
	}
	if s.Moves {
		Pause(ctx, s.Hold)
		return
	}
	Pause(ctx, fault.Add(s.Hold).Sub(measure.Now()))
}

// probeSlack covers the last success before a fault.
const probeSlack = 100 * time.Millisecond

func (c *Cluster) phase(vip netip.Addr, owner *Node, from, to measure.Time) Phase {
	frames := c.Eyes.Frames()
	p := Phase{
		Reach:     c.Eyes.Reach(vip, from.Add(-probeSlack), to),
		Dual:      measure.Dual(frames, vip.String(), from, to),
		Claimants: c.Eyes.Claimants(vip, 10*measure.AskEvery),
	}
	if at, ok := measure.Takeover(frames, vip.String(), owner.MAC, from); ok {
		p.Takeover = at.Sub(from)
	}
	p.Moved = len(p.Claimants) > 0 && p.Claimants[0] != owner.Name
	return p
}

// watchGone notes when the kernel of the node loses the VIP. The returned
// function ends the watch and gives the moment, zero if it did not happen.
func (c *Cluster) watchGone(ctx context.Context, n *Node, vip netip.Addr) func() measure.Time {
	ctx, cancel := context.WithCancel(ctx)
	result := make(chan measure.Time, 1)
	go func() {
		at, err := n.Gone(ctx, vip, time.Hour)
		if err != nil {
			at = 0
		}
		result <- at
	}()
	return func() measure.Time {
		cancel()
		return <-result
	}
}
