package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// StartBalancers starts the router and the speakers in a net, whose VIPs lead to machines beside the
// nodes. It waits until every VIP is reached. The caller closes the Fabric, and with it the net.
func StartBalancers(ctx context.Context, n *Net, s *LBD, machines int) (*Fabric, error) {
	s.Forwarded = true
	f := newFabric(n, s)
	err := f.startBalancers(ctx, machines)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, f.Logs(15))
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Fabric) startBalancers(ctx context.Context, machines int) error {
	if err := errors.Join(f.startRouters(ctx, Options{}), f.AddBackends(ctx, machines)); err != nil {
		return err
	}
	gw := f.ToRs[0]
	// A machine that learned of a shorter way to a VIP would go on to send to a balancer that died.
	err := f.Sysctl(gw, map[string]string{"ipv4/conf/all/send_redirects": "0", "ipv4/conf/eth0/send_redirects": "0"})
	for _, b := range f.Backends {
		err = errors.Join(err, defaultRoute(ctx, f.Net, &b.Host, gw.IP4.String(), gw.IP6.String()))
	}
	for _, m := range f.Nodes {
		err = errors.Join(err, f.Speaker.Start(ctx, f.Net, m))
	}
	if err != nil {
		return err
	}
	for _, v := range f.Speaker.VIPs() {
		if _, err := f.Balancer(ctx, v, nil); err != nil {
			return err
		}
	}
	f.Eyes, err = f.OpenProbes(f.Speaker.VIPs())
	return err
}

// Balancer waits until the router leads a VIP to one node alone, which is not this one, and is that
// node.
func (f *Fabric) Balancer(ctx context.Context, vip netip.Addr, not *lab.Node) (owner *lab.Node, err error) {
	err = Eventually(ctx, 30*time.Second, "one balancer", func() error {
		hops, err := f.Hops(ctx, f.ToRs[0], vip)
		if err != nil {
			return err
		}
		for _, m := range f.Nodes {
			if m != not && slices.Equal(hops, []string{Gateway(&m.Host, vip)}) {
				owner = m
				return nil
			}
		}
		return fmt.Errorf("%s goes to %v", vip, hops)
	})
	return owner, err
}

// Ready waits until a VIP has an owner, the other nodes could take it, and the router watches all of
// them. It is that owner.
func (f *Fabric) Ready(ctx context.Context, s *LBD, vip netip.Addr) (owner *lab.Node, err error) {
	err = Eventually(ctx, 30*time.Second, "the balancers are ready", func() error {
		hops, err := f.Hops(ctx, f.ToRs[0], vip)
		if err != nil {
			return err
		}
		for _, m := range f.Nodes {
			want := "Standby"
			if slices.Equal(hops, []string{Gateway(&m.Host, vip)}) {
				want, owner = "Owner", m
			}
			is, err := s.Status(ctx, f.Net, m)
			if err != nil {
				return err
			}
			for _, x := range is.VIPs {
				if x.Address == vip.String() && x.Mode == "l2" && x.Reason != want {
					return fmt.Errorf("%s, which goes to %v: %s is %s (%s)", vip, hops, m.Name, x.Reason, x.Detail)
				}
			}
		}
		if len(hops) != 1 {
			return fmt.Errorf("%s goes to %v", vip, hops)
		}
		return f.watched(ctx)
	})
	return owner, err
}
