package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/tests/lab"
)

// StartBalancers starts the routers and the speakers in a net, whose VIPs lead to machines beside the
// nodes. It waits until every VIP is reached. The caller closes the Fabric, and with it the net.
func StartBalancers(ctx context.Context, n *Net, s *LBD, machines int) (*Fabric, error) {
	s.Forwarded = true
	f := newFabric(n, s)
	err := f.startBalancers(ctx, machines, Options{IBGP: s.IBGP})
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, f.Logs(15))
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Fabric) startBalancers(ctx context.Context, machines int, o Options) error {
	if err := errors.Join(f.startRouters(ctx, o), f.AddBackends(ctx, machines)); err != nil {
		return err
	}
	gw := f.Edge()
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

// led is the node to which all routers lead a VIP, and no other; an error if there is none.
func (f *Fabric) led(ctx context.Context, vip netip.Addr) (*lab.Node, error) {
	var all []string
	for _, h := range f.ToRs {
		hops, err := f.Hops(ctx, h, vip)
		if err != nil {
			return nil, err
		}
		all = append(all, fmt.Sprint(hops))
	}
	for _, m := range f.Nodes {
		want := fmt.Sprint([]string{Gateway(&m.Host, vip)})
		if !slices.ContainsFunc(all, func(hops string) bool { return hops != want }) {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%s goes to %v", vip, all)
}

// Balancer waits until the routers lead a VIP to one node alone, which is not this one, and is that
// node.
func (f *Fabric) Balancer(ctx context.Context, vip netip.Addr, not *lab.Node) (owner *lab.Node, err error) {
	err = Eventually(ctx, 30*time.Second, "one balancer", func() error {
		m, err := f.led(ctx, vip)
		if err == nil && m == not {
			err = fmt.Errorf("%s still goes to %s", vip, m.Name)
		}
		owner = m
		return err
	})
	return owner, err
}

// Ready waits until a VIP has an owner, the other nodes could take it, and the routers watch all of
// them. It is that owner.
func (f *Fabric) Ready(ctx context.Context, s *LBD, vip netip.Addr) (owner *lab.Node, err error) {
	err = Eventually(ctx, 30*time.Second, "the balancers are ready", func() error {
		if owner, err = f.led(ctx, vip); err != nil {
			return err
		}
		for _, m := range f.Nodes {
			want := "Standby"
			if m == owner {
				want = "Owner"
			}
			x, err := f.OnLAN(ctx, s, m, vip)
			if err != nil {
				return err
			}
			if x.Reason != want || x.Standing != want {
				return fmt.Errorf("%s, which goes to %s: %s is %s, %s (%s)", vip, owner.Name, m.Name, x.Standing, x.Reason, x.Detail)
			}
		}
		return f.watched(ctx)
	})
	return owner, err
}

// OnLAN is what a node says of a VIP at layer 2.
func (f *Fabric) OnLAN(ctx context.Context, s *LBD, m *lab.Node, vip netip.Addr) (x v1alpha1.VIPStatus, err error) {
	is, err := s.Status(ctx, f.Net, m)
	if err != nil {
		return x, err
	}
	i := slices.IndexFunc(is.VIPs, func(x v1alpha1.VIPStatus) bool { return x.Address == vip.String() && x.Mode == "l2" })
	if i < 0 {
		return x, fmt.Errorf("%s does not know %s", m.Name, vip)
	}
	return is.VIPs[i], nil
}

// Shut has routers end their sessions with the node, and begin none; without any, all of them do.
func Shut(tors ...int) Fault {
	set := func(no string) func(context.Context, *Fabric, *lab.Node) error {
		return func(ctx context.Context, f *Fabric, m *lab.Node) (err error) {
			for i, r := range f.ToRFRR {
				if len(tors) == 0 || slices.Contains(tors, i) {
					err = errors.Join(err, r.Configure(ctx, "router bgp",
						fmt.Sprintf("%sneighbor %s shutdown", no, m.IP4), fmt.Sprintf("%sneighbor %s shutdown", no, m.IP6)))
				}
			}
			return err
		}
	}
	return Fault{Name: fmt.Sprint("shut", tors), Inject: set(""), Undo: set("no ")}
}

// Block has a firewall on the node drop BGP and BFD.
func Block() Fault {
	const rules = "add table inet labblock; add chain inet labblock in { type filter hook input priority -300; }; add chain inet labblock out { type filter hook output priority -300; }; " +
		"add rule inet labblock in tcp dport 179 drop; add rule inet labblock in tcp sport 179 drop; add rule inet labblock in udp dport 3784 drop; " +
		"add rule inet labblock out tcp dport 179 drop; add rule inet labblock out tcp sport 179 drop; add rule inet labblock out udp dport 3784 drop"
	nft := func(what string) func(context.Context, *Fabric, *lab.Node) error {
		return func(ctx context.Context, f *Fabric, m *lab.Node) error {
			_, err := f.Exec(ctx, &m.Host, "nft", what)
			return err
		}
	}
	return Fault{Name: "blocked", Inject: nft(rules), Undo: nft("delete table inet labblock")}
}
