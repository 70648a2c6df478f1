package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lbd.dev/lbd/tests/cluster"
)

// lasting is how long a fault lasts.
const lasting = 20 * time.Second

// stage is a cluster during a fault.
type stage struct {
	*cluster.Cluster
	system system
	owner  *cluster.Machine // when the fault began
	took   time.Duration    // what the table shows beside; zero: nothing
}

// fault is one row of the table for each system.
type fault struct {
	name string
	// what happens, in words.
	words string
	do    func(context.Context, *stage) error
}

var faults = []fault{
	{"move", "the owner is taken out of service, and back 5 s later; lbd drain, or keepalived stopped; took: the command", move},
	{"restart", "the daemon of the owner is restarted by systemctl; took: the command", restart},
	{"etcd-stops", "etcd of the owner is stopped for 20 s", podStops("etcd")},
	{"etcd-hangs", "etcd of the owner stands still for 20 s (SIGSTOP)", hangs("etcd")},
	{"apiserver-stops", "the API server of the owner is stopped for 20 s", podStops("kube-apiserver")},
	{"apiserver-hangs", "the API server of the owner stands still for 20 s (SIGSTOP)", hangs("kube-apiserver")},
	{"quorum", "etcd of both other nodes is stopped for 20 s, so that no write can succeed; moved: must not", quorum},
	{"power", "the owner loses power, and has it again after 20 s", power},
	{"upgrade", "`kubeadm upgrade apply` on the owner, then `kubeadm upgrade node` on the others", upgrade(false)},
	{"upgrade-drained", "the same; each node is taken out of service before", upgrade(true)},
}

func move(ctx context.Context, s *stage) error {
	from := time.Now()
	if err := s.system.leave(ctx, s.owner); err != nil {
		return err
	}
	s.took = time.Since(from)
	return errors.Join(sleep(ctx, 5*time.Second), s.system.join(ctx, s.owner), sleep(ctx, 5*time.Second))
}

func restart(ctx context.Context, s *stage) error {
	from := time.Now()
	err := s.system.restart(ctx, s.owner)
	s.took = time.Since(from)
	return errors.Join(err, sleep(ctx, 5*time.Second))
}

func podStops(name string) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		return errors.Join(s.owner.StopPod(ctx, name), sleep(ctx, lasting), s.owner.StartPod(ctx, name), s.WaitWhole(ctx))
	}
}

func hangs(program string) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		return errors.Join(s.owner.Signal(ctx, "STOP", program), sleep(ctx, lasting), s.owner.Signal(ctx, "CONT", program), s.WaitWhole(ctx))
	}
}

func quorum(ctx context.Context, s *stage) error {
	others := s.Others(s.owner)
	var errs []error
	for _, m := range others {
		errs = append(errs, m.StopPod(ctx, "etcd"))
	}
	errs = append(errs, sleep(ctx, lasting))
	for _, m := range others {
		errs = append(errs, m.StartPod(ctx, "etcd"))
	}
	return errors.Join(append(errs, s.WaitWhole(ctx))...)
}

func power(ctx context.Context, s *stage) error {
	return errors.Join(s.owner.PowerCut(ctx), sleep(ctx, lasting), s.owner.Start(ctx), s.WaitWhole(ctx))
}

func upgrade(drained bool) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		for i, m := range append([]*cluster.Machine{s.owner}, s.Others(s.owner)...) {
			if drained {
				if err := s.system.leave(ctx, m); err != nil {
					return err
				}
			}
			do := s.UpgradeNode
			if i == 0 {
				do = s.Upgrade
			}
			if err := do(ctx, m, cluster.Upgraded...); err != nil {
				return fmt.Errorf("upgrade of %s: %w", m.Name, err)
			}
			if drained {
				if err := s.system.join(ctx, m); err != nil {
					return err
				}
			}
			if err := sleep(ctx, 5*time.Second); err != nil {
				return err
			}
		}
		return nil
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
