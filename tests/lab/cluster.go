package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// stableFor is how long exactly one node must have claimed a VIP, and served
// every attempt, for a cluster to be called stable.
const stableFor = 400 * time.Millisecond

// Cluster is a lab with services, one system on every node, and the instruments.
type Cluster struct {
	*Lab
	System System
	Eyes   *Eyes
}

// NewCluster builds a lab, starts the service and the daemon on each node and
// waits until the VIPs are served. Close it by Lab.Close or Cluster.Close.
func NewCluster(ctx context.Context, bin *Bin, s System, nodes int) (*Cluster, error) {
	c, err := NewIdle(ctx, bin, s, nodes)
	if err != nil {
		return nil, err
	}
	for _, n := range c.Nodes {
		if err := s.Start(ctx, c.Lab, n); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if err := c.Stable(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, c.Logs(15))
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// NewIdle is NewCluster without daemons.
func NewIdle(ctx context.Context, bin *Bin, s System, nodes int) (*Cluster, error) {
	l, err := New(ctx, bin, nodes)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Lab: l, System: s}
	for _, n := range l.Nodes {
		if err := l.StartService(ctx, n); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	if c.Eyes, err = l.Open(s.VIPs()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return c, nil
}

// Close stops the instruments and removes the lab.
func (c *Cluster) Close() error {
	return errors.Join(c.Eyes.Close(), c.Lab.Close())
}

// Unwatched runs f while nobody asks for the VIPs or connects to them: the 50
// questions a second of the observer would count as work of the daemons.
func (c *Cluster) Unwatched(f func() error) error {
	if err := c.Eyes.Close(); err != nil {
		return err
	}
	err := f()
	eyes, openErr := c.Open(c.System.VIPs())
	if openErr == nil {
		c.Eyes = eyes
	}
	return errors.Join(err, openErr)
}

// Owner is the node that claims the VIP on the wire.
func (c *Cluster) Owner(vip netip.Addr) (*Node, error) {
	names := c.Eyes.Claimants(vip, 5*measure.AskEvery)
	if len(names) != 1 {
		return nil, fmt.Errorf("owner of %s: claimed by %d hosts %v, want one", vip, len(names), names)
	}
	n := c.Node(names[0])
	if n == nil {
		return nil, fmt.Errorf("owner of %s: %s is not a node", vip, names[0])
	}
	return n, nil
}

// Others are the nodes besides n.
func (c *Cluster) Others(n *Node) []*Node {
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(x *Node) bool { return x == n })
}

// Stable waits until every live daemon is ready, every VIP has exactly one
// claimant, and the client reaches it.
func (c *Cluster) Stable(ctx context.Context) error {
	return Wait(ctx, 40*time.Second, 100*time.Millisecond, "stable cluster of "+c.System.Name(), func() error {
		for _, n := range c.Nodes {
			if !n.Daemon.Alive() {
				continue
			}
			if err := c.System.Ready(ctx, c.Lab, n); err != nil {
				return err
			}
		}
		return c.Quiet(stableFor)
	})
}

// Quiet tells whether, during the last d, every VIP had one claimant, the same
// all along, and every attempt succeeded.
func (c *Cluster) Quiet(d time.Duration) error {
	now := measure.Now()
	for _, v := range c.Eyes.VIPs {
		if names := c.Eyes.Claimants(v, d); len(names) != 1 {
			return fmt.Errorf("%s is claimed by %v", v, names)
		}
		// Attempts that are still under way would look like success.
		r := c.Eyes.Reach(v, now.Add(-d-300*time.Millisecond), now.Add(-300*time.Millisecond))
		if r.Failed > 0 || r.Attempts < int(d/c.Bin.ProbeEvery/2) {
			return fmt.Errorf("%s: %d of %d attempts failed", v, r.Failed, r.Attempts)
		}
	}
	return nil
}

// Kill kills the daemon of a node and leaves the rest to the others.
func (n *Node) Kill() error { return n.Daemon.Kill() }

// Freeze stops the daemon without ending it.
func (n *Node) Freeze() error { return n.Daemon.Signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (n *Node) Thaw() error { return n.Daemon.Signal(syscall.SIGCONT) }

// Terminate asks the daemon to hand over and end, and waits for it.
func (n *Node) Terminate(limit time.Duration) error {
	if err := n.Daemon.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := n.Daemon.Wait(limit)
	if errors.Is(err, ErrTimeout) {
		return errors.Join(err, n.Daemon.Kill())
	}
	return nil
}

// Holds tells whether the kernel of the node has the address.
func (n *Node) Holds(addr netip.Addr) (bool, error) {
	all, err := kernelAddrs(n.NS, nodeIf)
	return slices.Contains(all, addr), err
}

// Gone waits until the kernel of the node has lost the address, and tells when.
func (n *Node) Gone(ctx context.Context, addr netip.Addr, limit time.Duration) (measure.Time, error) {
	var at measure.Time
	err := Wait(ctx, limit, 5*time.Millisecond, n.Name+" without "+addr.String(), func() error {
		held, err := n.Holds(addr)
		if err != nil {
			return err
		}
		if held {
			return errors.New("it is still there")
		}
		at = measure.Now()
		return nil
	})
	return at, err
}
