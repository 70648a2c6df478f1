package lab

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// Replace gives a node another lbd, as docs/operations.md says: the program, a drain if it
// is asked for, a restart, and then it waits until the node is settled.
func (s *LBD) Replace(ctx context.Context, l *Lab, n *Node, lbd string, drain bool) error {
	n.LBD = lbd // from here on commands of this program speak with the daemon of the other
	if drain {
		if err := s.Drain(ctx, l, n); err != nil {
			return err
		}
	}
	if err := n.Daemon.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := n.Daemon.Wait(30 * time.Second); err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	if err := s.Start(ctx, l, n); err != nil {
		return err
	}
	return Wait(ctx, 30*time.Second, 100*time.Millisecond, n.Name+" settled", func() error {
		st, err := s.Status(ctx, l, n)
		if err == nil && !st.Settled {
			err = fmt.Errorf("settled %v, draining %v", st.Settled, st.Draining)
		}
		return err
	})
}

// ReplaceAll gives all nodes another lbd, one after the other, the owner first.
func (s *LBD) ReplaceAll(lbd string, drain bool) Scenario {
	return Scenario{
		Name: "rolling", Moves: true, Hold: 2 * time.Second, Limit: 2 * time.Minute,
		Inject: func(ctx context.Context, c *Cluster, owner *Node) error {
			for _, n := range append([]*Node{owner}, c.Others(owner)...) {
				if err := s.Replace(ctx, c.Lab, n, lbd, drain); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
