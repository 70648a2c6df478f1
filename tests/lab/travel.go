package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// MoveOff drains the owner of a VIP and returns the node that has taken it. The
// connections that are open on the drained node are not waited for.
func (s *LBD) MoveOff(ctx context.Context, c *Cluster, vip netip.Addr, owner *Node) (*Node, error) {
	// It is the wire that tells; a busy machine may take longer than the command waits.
	slow := s.DrainFor(ctx, c.Lab, owner, time.Second)
	var n *Node
	err := Wait(ctx, 30*time.Second, 20*time.Millisecond, "another owner of "+vip.String(), func() (err error) {
		if n, err = c.Owner(vip); err == nil && n == owner {
			return fmt.Errorf("it is still %s", n.Name)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, slow)
	}
	return n, nil
}

// MoveTo moves a VIP to the node: all others are drained until it has it.
func (s *LBD) MoveTo(ctx context.Context, c *Cluster, vip netip.Addr, to *Node) error {
	owner, err := c.Owner(vip)
	if err != nil || owner == to {
		return err
	}
	var drained []*Node
	for _, n := range c.Others(to) {
		if n != owner {
			if err := s.DrainFor(ctx, c.Lab, n, time.Second); err != nil { // it owns nothing: this waits for connections at the most
				return errors.Join(err, s.UndrainAll(ctx, c, []*Node{n}))
			}
			drained = append(drained, n)
		}
	}
	_, err = s.MoveOff(ctx, c, vip, owner)
	return errors.Join(err, s.UndrainAll(ctx, c, append(drained, owner)))
}

// UndrainAll lets the nodes own addresses again.
func (s *LBD) UndrainAll(ctx context.Context, c *Cluster, nodes []*Node) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, s.Undrain(ctx, c.Lab, n))
	}
	return errors.Join(errs...)
}
