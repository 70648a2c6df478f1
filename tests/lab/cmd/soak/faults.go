package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab"
)

type action func(ctx context.Context, c *lab.Cluster, n *lab.Node, vip netip.Addr) error

// fault is something that happens to one node, and its end.
type fault struct {
	name     string
	hold     time.Duration // it lasts a quarter of this up to five quarters
	do, undo action
	ends     bool // it ends the daemon
	single   bool // never two claimants, by promise
	planned  bool // not one attempt fails, by promise
}

func pickFaults(only string) ([]fault, error) {
	all := faults()
	if only == "" {
		return all, nil
	}
	names := []string{"none"}
	for _, f := range append(all, none()) {
		if f.name == only {
			return []fault{f}, nil
		}
		names = append(names, f.name)
	}
	return nil, fmt.Errorf("fault %q is none of %s", only, strings.Join(names, ", "))
}

func faults() []fault {
	return append(networkFaults(), daemonFaults()...)
}

// none is no fault: each address has one claimant, the same all the time. It is never drawn among the others.
func none() fault {
	owner := map[netip.Addr]string{}
	return fault{
		name: "none", hold: 48 * time.Second, single: true,
		do: func(_ context.Context, c *lab.Cluster, _ *lab.Node, _ netip.Addr) error {
			for _, v := range c.Eyes.VIPs {
				n, err := c.Owner(v)
				if err != nil {
					return err
				}
				if before := owner[v]; before != "" && before != n.Name {
					err = fmt.Errorf("%s has moved from %s to %s", v, before, n.Name)
				}
				if owner[v] = n.Name; err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func networkFaults() []fault {
	return []fault{
		{
			name: "link down", hold: 4 * time.Second, single: true,
			do: func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return c.LinkDown(ctx, &n.Host)
			},
			undo: func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return c.LinkUp(ctx, &n.Host)
			},
		},
		{
			name: "link flaps", hold: 200 * time.Millisecond, single: true,
			do: func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return c.LinkDown(ctx, &n.Host)
			},
			undo: func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return c.LinkUp(ctx, &n.Host)
			},
		},
		{
			name: "wire cut", hold: 4 * time.Second,
			do: func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return c.WireCut(ctx, &n.Host)
			},
			undo: func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return c.WireHeal(ctx, &n.Host)
			},
		},
		{
			name: "LAN split", hold: 8 * time.Second,
			do: func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return c.Split(ctx, &n.Host)
			},
			undo: func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return c.Join(ctx, &n.Host)
			},
		},
		{
			name: "gossip blocked", hold: 8 * time.Second, single: true,
			do: func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return c.Block(ctx, &n.Host, c.System.Election()...)
			},
			undo: func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return c.Unblock(ctx, &n.Host)
			},
		},
		{
			name: "address removed", hold: time.Second, single: true,
			do: func(ctx context.Context, c *lab.Cluster, n *lab.Node, vip netip.Addr) error {
				if held, err := n.Holds(vip); err != nil || !held {
					return err
				}
				return c.RemoveAddr(ctx, &n.Host, netip.PrefixFrom(vip, vip.BitLen()).String())
			},
		},
	}
}

func daemonFaults() []fault {
	start := func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
		return c.System.Start(ctx, c.Lab, n)
	}
	kill := func(_ context.Context, _ *lab.Cluster, n *lab.Node, _ netip.Addr) error { return n.Kill() }
	return []fault{
		{name: "SIGKILL", hold: 6 * time.Second, do: kill, undo: start, ends: true, single: true},
		{name: "SIGKILL, restart", hold: time.Second, do: kill, undo: start, ends: true, single: true},
		{
			name: "SIGTERM", hold: 3 * time.Second, undo: start, ends: true, planned: true,
			do: func(_ context.Context, _ *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return n.Terminate(40 * time.Second)
			},
		},
		{
			name: "SIGSTOP", hold: 6 * time.Second, single: true,
			do:   func(_ context.Context, _ *lab.Cluster, n *lab.Node, _ netip.Addr) error { return n.Freeze() },
			undo: func(_ context.Context, _ *lab.Cluster, n *lab.Node, _ netip.Addr) error { return n.Thaw() },
		},
		{
			name: "drain", hold: 3 * time.Second, planned: true,
			do: func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return c.System.Drain(ctx, c.Lab, n)
			},
			undo: func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return c.System.Undrain(ctx, c.Lab, n)
			},
		},
		{
			name: "service dies", hold: 4 * time.Second,
			do: func(_ context.Context, _ *lab.Cluster, n *lab.Node, _ netip.Addr) error { return n.Service.Kill() },
			undo: func(ctx context.Context, c *lab.Cluster, n *lab.Node, _ netip.Addr) error {
				return c.StartService(ctx, n)
			},
		},
		{
			name: "service hangs", hold: 4 * time.Second,
			do:   func(_ context.Context, _ *lab.Cluster, n *lab.Node, _ netip.Addr) error { return n.FreezeService() },
			undo: func(_ context.Context, _ *lab.Cluster, n *lab.Node, _ netip.Addr) error { return n.ThawService() },
		},
	}
}
