package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

const (
	// probeEvery is the time between two connections of the client to each of four addresses.
	probeEvery = 10 * time.Millisecond
	// openLines are how many connections stay open while a node is drained.
	openLines = 20
	// failoverWithin is the worst case of the promise about a node that dies. servedWithin is generous: kubectl
	// takes its time, too.
	failoverWithin = 600 * time.Millisecond
	servedWithin   = 5 * time.Second
	// watched is how long after a change clients are watched.
	watched = 3 * time.Second
	// settles is how long clients may need until all is calm, on a busy machine.
	settles = 15 * time.Second
)

// story is what is played, and what came of it.
type story struct {
	l          *controlplane.TenantLab
	shop, bank *controlplane.Tenant
	eyes       *lab.Eyes
	rows       []row
	broken     []string
}

func (s *story) play(ctx context.Context) error {
	for i, chapter := range []struct {
		title string
		play  func(context.Context) error
	}{
		{"Two clusters join the hub, by the commands of docs/tenants.md; here those of shop.", s.join},
		{"A client outside, in none of the clusters, connects.", s.reach},
		{"bank tries to get at what is of shop.", s.isolation},
		{"A node of shop is drained. The client opens 100 connections a second to each address.", s.drain},
		{"A node of the hub loses its cable.", s.failover},
	} {
		fmt.Printf("\n%d. %s\n", i+1, chapter.title)
		if err := chapter.play(ctx); err != nil {
			return fmt.Errorf("chapter %d: %w", i+1, err)
		}
	}
	return s.eyes.Close()
}

// join has both clusters join.
func (s *story) join(ctx context.Context) error {
	for _, t := range s.l.Tenants {
		err := s.l.Join(ctx, t, func(command string) {
			if t == s.shop {
				fmt.Println("   $ " + command)
			}
		})
		if err != nil {
			return err
		}
	}
	for _, t := range s.l.Tenants {
		fmt.Printf("   %s: its Service web has %s and %s\n", t.Name, t.VIPs[0], t.VIPs[1])
		s.hold(t.Answered <= servedWithin, "from `kubectl apply` of the Service of "+t.Name+" to its answer", fmt.Sprintf("<= %.0f s", servedWithin.Seconds()), fmt.Sprintf("%.1f s", t.Answered.Seconds()))
	}
	return nil
}

// reach asks all addresses by TCP and UDP.
func (s *story) reach(ctx context.Context) error {
	for _, t := range s.l.Tenants {
		if err := s.l.Serve(ctx, t, t.PodNames()...); err != nil {
			return err
		}
		for _, vip := range t.VIPs {
			fmt.Printf("   %-12s answered by %s, TCP and UDP\n", vip, strings.Join(t.PodNames(), " and "))
		}
	}
	fmt.Printf("   %s of shop and %s of bank have the same address, %s: the hub needs to see neither.\n", s.shop.Pods[0].Name, s.bank.Pods[0].Name, s.shop.Pods[0].IP4)
	s.hold(true, "addresses that reach the Pods of their tenant, TCP and UDP", "4 of 4", "4 of 4") // or it had failed
	return nil
}

// isolation has bank ask for an address of shop, claim a node of shop, and read what shop has in the hub.
func (s *story) isolation(ctx context.Context) error {
	words, err := s.l.Steal(ctx, s.bank, s.shop)
	if err != nil {
		return err
	}
	fmt.Printf("   A Service of bank asks for %s, which shop has. `kubectl describe service` in bank says:\n      %s\n", s.shop.VIPs[0], wrap(words, 88))
	victim := s.shop.Nodes[0]
	if words, err = s.l.Claim(ctx, s.bank, victim); err != nil {
		return err
	}
	fmt.Printf("   A Node of bank says that its address is %s, which %s of shop has. The agent of bank logs:\n      %s\n", victim.IP4, victim.Name, wrap(words, 88))
	out, err := s.l.AsAgent(ctx, s.bank, "-n", "lbd-shop-main", "get", "tenantservices")
	if err == nil {
		return fmt.Errorf("the agent of bank reads what shop has: %q", out)
	}
	if !strings.Contains(err.Error(), "Forbidden") {
		return err
	}
	fmt.Println("   With the token of bank the namespace of shop in the hub is Forbidden.")
	for _, t := range s.l.Tenants {
		if err := s.l.Serve(ctx, t, t.PodNames()...); err != nil {
			return err
		}
	}
	fmt.Println("   Both addresses of each are answered by the Pods of their own tenant, as before.\n   $ lbd tenant list --context hub")
	if out, err = s.l.Shell(ctx, "lbd tenant list --context hub"); err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		fmt.Print("   " + line)
	}
	s.hold(true, "attempts of bank that were refused, with no effect", "3 of 3", "3 of 3") // or it had failed
	return nil
}

// drain labels a node of shop as Kubernetes has it, with connections open.
func (s *story) drain(ctx context.Context) (err error) {
	if s.eyes, err = s.l.Open(slices.Concat(s.shop.VIPs, s.bank.VIPs)); err != nil {
		return err
	}
	if err := s.calm(ctx); err != nil {
		return err
	}
	if err := s.eyes.OpenConns(ctx, s.shop.VIPs[0], openLines); err != nil {
		return err
	}
	node, pod := s.shop.Nodes[0], s.shop.Pods[0].Name
	label := fmt.Sprintf("kubectl --context shop label node %s node.kubernetes.io/exclude-from-external-load-balancers=", node.Name)
	fmt.Println("   $ " + label)
	from := measure.Now()
	if _, err := s.l.Shell(ctx, label); err != nil {
		return err
	}
	lab.Pause(ctx, watched)
	to := measure.Now()
	last := s.lastBy(pod, from)
	if err := s.l.Serve(ctx, s.shop, s.shop.Pods[1].Name); err != nil {
		return err
	}
	conns := s.eyes.Conns(from, measure.Now())
	s.eyes.CloseConns()
	fmt.Printf("   %s got its last new connection %d ms after that; %d connections that were open live on: %d of %d\n", node.Name, last.Milliseconds(), openLines, conns.Survived(), conns.Open)
	if _, err := s.l.Shell(ctx, strings.TrimSuffix(label, "=")+"-"); err != nil {
		return err
	}
	if err := s.l.Serve(ctx, s.shop, s.shop.PodNames()...); err != nil {
		return err
	}
	for _, t := range s.l.Tenants {
		failed, of, causes := s.failures(t.VIPs, from, to)
		s.hold(failed == 0 && of > 0, "new connections of "+t.Name+" that failed in the drain", "0", fmt.Sprintf("%d of %d%s", failed, of, causes))
	}
	s.hold(conns.Open == openLines && conns.Survived() == openLines, "open connections of shop that were lost in the drain", "0", fmt.Sprintf("%d of %d", openLines-conns.Survived(), openLines))
	return nil
}

// lastBy is when a Pod last got a connection to an address of shop, after a moment.
func (s *story) lastBy(pod string, from measure.Time) (last time.Duration) {
	for _, vip := range s.shop.VIPs {
		for _, a := range s.eyes.Attempts(vip) {
			if a.Node == pod && a.Start >= from {
				last = max(last, a.Start.Sub(from))
			}
		}
	}
	return last
}

// failures sums up the attempts of the client.
func (s *story) failures(vips []netip.Addr, from, to measure.Time) (failed, of int, causes string) {
	all := map[string]int{}
	for _, vip := range vips {
		r := s.eyes.Reach(vip, from, to.Add(-300*time.Millisecond)) // what is under way would look like success
		failed, of = failed+r.Failed, of+r.Attempts
		for c, n := range r.Errors {
			all[c] += n
		}
	}
	if failed > 0 {
		causes = fmt.Sprintf(" %v", all)
	}
	return failed, of, causes
}

// calm waits until each address is claimed by one node of the hub, and every attempt succeeds.
func (s *story) calm(ctx context.Context) error {
	c := lab.Cluster{Lab: s.l.Lab, Eyes: s.eyes}
	return controlplane.Eventually(ctx, settles, "clients are served", func() error { return c.Quiet(400 * time.Millisecond) })
}

// failover cuts the node of the hub off that has the address of shop.
func (s *story) failover(ctx context.Context) error {
	if err := s.calm(ctx); err != nil {
		return err
	}
	c := lab.Cluster{Lab: s.l.Lab, Eyes: s.eyes}
	owner, err := c.Owner(s.shop.VIPs[0])
	if err != nil {
		return err
	}
	var its []netip.Addr
	for _, vip := range s.eyes.VIPs {
		if n, err := c.Owner(vip); err == nil && n == owner {
			its = append(its, vip)
		}
	}
	fmt.Printf("   %s has %s. Its cable is pulled.\n", owner.Name, words(its))
	lab.RandomMoment(ctx)
	cpu, err := measure.ReadCPU()
	if err != nil {
		return err
	}
	from := measure.Now()
	if err := s.l.LinkDown(ctx, &owner.Host); err != nil {
		return err
	}
	lab.Pause(ctx, watched)
	now, err := measure.ReadCPU()
	if err := errors.Join(err, s.calm(ctx)); err != nil {
		return err
	}
	worst, load := time.Duration(0), measure.Load(cpu, now)
	for _, vip := range its {
		r := s.eyes.Reach(vip, from.Add(-50*time.Millisecond), measure.Now())
		next, err := c.Owner(vip)
		if err != nil {
			return err
		}
		fmt.Printf("   %-12s nobody answered for %d ms, then %s did (%d of %d connections failed)\n", vip, r.Outage.Milliseconds(), next.Name, r.Failed, r.Attempts)
		worst = max(worst, r.Outage)
	}
	what := "longest outage after the loss of a node of the hub"
	s.hold(worst <= failoverWithin, what, fmt.Sprintf("<= %d ms", failoverWithin.Milliseconds()), fmt.Sprintf("%d ms", worst.Milliseconds()))
	if worst > failoverWithin && load > lab.MaxLoad {
		fmt.Printf("   (the machine was %.0f %% busy, which may be the cause)\n", 100*load)
	}
	return nil
}

func words(vips []netip.Addr) string {
	var all []string
	for _, v := range vips {
		all = append(all, v.String())
	}
	return strings.Join(all, " and ")
}
