package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// startDaemon brings the daemon of a node back if it does not run.
func startDaemon(ctx context.Context, c *Cluster, n *Node) error {
	if n.Daemon.Alive() {
		return nil
	}
	return c.System.Start(ctx, c.Lab, n)
}

// LinkDown is a crash of the owner as the LAN sees it: its link goes.
func LinkDown() Scenario {
	return Scenario{
		Name: "linkdown", Moves: true, Hold: 1500 * time.Millisecond, Limit: 20 * time.Second,
		Inject: func(ctx context.Context, c *Cluster, n *Node) error { return c.LinkDown(ctx, &n.Host) },
		Repair: func(ctx context.Context, c *Cluster, n *Node) error { return c.LinkUp(ctx, &n.Host) },
	}
}

// WireCut is the same without loss of carrier, and its end.
func WireCut() Scenario {
	return Scenario{
		Name: "wirecut", Moves: true, Hold: 3 * time.Second, Limit: 20 * time.Second, After: 5 * time.Second,
		Inject: func(ctx context.Context, c *Cluster, n *Node) error { return c.WireCut(ctx, &n.Host) },
		Undo:   func(ctx context.Context, c *Cluster, n *Node) error { return c.WireHeal(ctx, &n.Host) },
	}
}

// Rejoin is LinkDown and, once the VIP is served again, LinkUp.
func Rejoin() Scenario {
	s := LinkDown()
	s.Name, s.Hold, s.Undo, s.Repair, s.After = "rejoin", 3*time.Second, s.Repair, nil, 6*time.Second
	return s
}

// Kill kills the daemon; nothing restarts it. The node lives.
func Kill() Scenario {
	return Scenario{
		Name: "sigkill", Moves: true, Hold: 5 * time.Second, Limit: 12 * time.Second,
		Inject: func(_ context.Context, _ *Cluster, n *Node) error { return n.Kill() },
		Repair: startDaemon,
	}
}

// Freeze stops the daemon; in the second phase it runs again.
func Freeze() Scenario {
	return Scenario{
		Name: "sigstop", Moves: true, Hold: 5 * time.Second, Limit: 12 * time.Second, After: 3 * time.Second,
		Inject: func(_ context.Context, _ *Cluster, n *Node) error { return n.Freeze() },
		Undo:   func(_ context.Context, _ *Cluster, n *Node) error { return n.Thaw() },
		Repair: startDaemon,
	}
}

// Terminate stops the daemon in order.
func Terminate() Scenario {
	return Scenario{
		Name: "sigterm", Moves: true, Hold: 2 * time.Second, Limit: 12 * time.Second,
		Inject: func(_ context.Context, _ *Cluster, n *Node) error { return n.Daemon.Signal(syscall.SIGTERM) },
		Repair: func(ctx context.Context, c *Cluster, n *Node) error {
			if err := n.Daemon.Wait(15 * time.Second); errors.Is(err, ErrTimeout) {
				return errors.Join(fmt.Errorf("sigterm: %w", err), n.Daemon.Kill())
			}
			return startDaemon(ctx, c, n)
		},
	}
}

// Return is Terminate, and the daemon is started again as soon as it has ended.
func Return() Scenario {
	s := Terminate()
	s.Name, s.Hold, s.After, s.Undo, s.Repair = "return", time.Second, 5*time.Second, s.Repair, nil
	return s
}

// Drain moves everything off the owner.
func Drain() Scenario {
	return Scenario{
		Name: "drain", Moves: true, Hold: 2 * time.Second, Limit: 12 * time.Second,
		Inject: func(ctx context.Context, c *Cluster, n *Node) error { return c.System.Drain(ctx, c.Lab, n) },
		Repair: func(ctx context.Context, c *Cluster, n *Node) error { return c.System.Undrain(ctx, c.Lab, n) },
	}
}

// Respawn kills the daemon and starts it again after a second.
func Respawn() Scenario {
	return Scenario{
		Name: "respawn", Hold: time.Second, Limit: time.Second, After: 5 * time.Second,
		Inject: func(_ context.Context, _ *Cluster, n *Node) error { return n.Kill() },
		Undo:   startDaemon,
	}
}

// Restart has the daemon begin anew in its place, by its command. Took is how long the
// command needed; it returns when the daemon takes part again.
func Restart(s *LBD) (sc Scenario, took *time.Duration) {
	took = new(time.Duration)
	return Scenario{
		Name: "restart", Hold: 3 * time.Second, Limit: 3 * time.Second,
		Inject: func(ctx context.Context, c *Cluster, n *Node) error {
			from := measure.Now()
			out, err := c.Exec(ctx, &n.Host, c.Bin.LBD, "restart", "--socket", s.Socket(n))
			*took = measure.Now().Sub(from)
			if err == nil && !strings.HasPrefix(out, "restarted: lbd ") {
				err = fmt.Errorf("lbd restart says %q", out)
			}
			return err
		},
	}, took
}

// ServiceDeath kills the service behind the VIP on the owner: its ports refuse.
func ServiceDeath() Scenario {
	return Scenario{
		Name: "appdeath", Moves: true, Hold: 1500 * time.Millisecond, Limit: 12 * time.Second,
		Inject: func(_ context.Context, _ *Cluster, n *Node) error { return n.Service.Kill() },
		Repair: func(ctx context.Context, c *Cluster, n *Node) error { return c.StartService(ctx, n) },
	}
}

// ServiceHang freezes the service: its ports accept and nothing comes.
func ServiceHang() Scenario {
	return Scenario{
		Name: "apphang", Moves: true, Hold: 1500 * time.Millisecond, Limit: 8 * time.Second,
		Inject: func(_ context.Context, _ *Cluster, n *Node) error { return n.FreezeService() },
		Repair: func(_ context.Context, _ *Cluster, n *Node) error { return n.ThawService() },
	}
}

// Partition blocks what the daemons say to each other at the owner; ARP, ND and
// clients pass.
func Partition() Scenario {
	return Scenario{
		Name: "partition", Hold: 6 * time.Second, Limit: 6 * time.Second, After: 5 * time.Second,
		Inject: func(ctx context.Context, c *Cluster, n *Node) error {
			return c.Block(ctx, &n.Host, c.System.Election()...)
		},
		Undo: func(ctx context.Context, c *Cluster, n *Node) error { return c.Unblock(ctx, &n.Host) },
	}
}

// Rolling restarts the daemon of every node in order, one after the other, as an
// upgrade does. The owner is the first.
func Rolling() Scenario {
	return Scenario{
		Name: "rolling", Moves: true, Hold: time.Second, Limit: 60 * time.Second, After: 5 * time.Second,
		Inject: func(ctx context.Context, c *Cluster, owner *Node) error {
			for _, n := range append([]*Node{owner}, c.Others(owner)...) {
				if err := n.Daemon.Signal(syscall.SIGTERM); err != nil {
					return err
				}
				if err := n.Daemon.Wait(20 * time.Second); err != nil {
					return fmt.Errorf("%s: %w", n.Name, err)
				}
				if err := startDaemon(ctx, c, n); err != nil {
					return err
				}
				Pause(ctx, 3*time.Second) // it has to know its group before the next one stops
			}
			return nil
		},
		Repair: startDaemon,
	}
}

// KillAll kills the daemons of all nodes at the same moment and starts them again at once.
// None of them knows then who of the others had what. Back is how long that took: their
// addresses last for 2 s at least.
func KillAll() (s Scenario, back *time.Duration) {
	back = new(time.Duration)
	return Scenario{
		Name: "killall", Hold: 6 * time.Second, Limit: 30 * time.Second,
		Inject: func(ctx context.Context, c *Cluster, _ *Node) error {
			from := measure.Now()
			var errs []error
			for _, n := range c.Nodes {
				errs = append(errs, n.Daemon.Signal(syscall.SIGKILL))
			}
			for _, n := range c.Nodes {
				errs = append(errs, n.Daemon.Kill(), startDaemon(ctx, c, n))
			}
			*back = measure.Now().Sub(from)
			return errors.Join(errs...)
		},
		Repair: startDaemon,
	}, back
}

// Scenarios are all of them, in the order of the report.
func Scenarios() []Scenario {
	return []Scenario{
		LinkDown(), Kill(), Freeze(), Terminate(), Drain(), Respawn(), ServiceDeath(), ServiceHang(), Rejoin(), WireCut(), Partition(),
		Return(), Rolling(),
	}
}
