package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// measureCreated creates Services one by one.
func (c *cluster) measureCreated(ctx context.Context, f *figures, o *options) error {
	return f.loaded("created", func() error {
		for i := range o.created {
			if err := c.createOne(ctx, f, fmt.Sprintf("one%d", i), &f.served); err != nil {
				return err
			}
		}
		f.say("created to allocated %s, announced %s, reachable %s", measure.Percentiles(f.given), measure.Percentiles(f.visible), measure.Percentiles(f.served))
		return nil
	})
}

// measureCreatedUsual does the same with kube-proxy at its default, which writes its
// rules once a second.
func (c *cluster) measureCreatedUsual(ctx context.Context, f *figures, o *options) error {
	if !f.proxy || o.created == 0 {
		return nil
	}
	if err := c.pauseProxies(ctx, 0); err != nil {
		return err
	}
	err := f.loaded("usual", func() error {
		var rest figures
		rest.proxy = true
		for i := range o.created {
			if err := c.createOne(ctx, &rest, fmt.Sprintf("usual%d", i), &f.servedUsual); err != nil {
				return err
			}
		}
		return nil
	})
	f.say("created to reachable with kube-proxy at its default %s", measure.Percentiles(f.servedUsual))
	return errors.Join(err, c.pauseProxies(ctx, proxyPause))
}

// createOne creates one Service and notes when it had an address, was announced and,
// with kube-proxy, was served.
func (c *cluster) createOne(ctx context.Context, f *figures, name string, served *[]time.Duration) error {
	pause(ctx)
	from := time.Now()
	if err := c.create(ctx, c.service(name), c.pods...); err != nil {
		return err
	}
	var a netip.Addr
	err := poll(ctx, changeLimit, 2*time.Millisecond, name+" has an address", func() (ok bool, err error) {
		var at time.Time
		a, at, ok = c.watch.address(name)
		if ok {
			f.given = append(f.given, at.Sub(from))
		}
		return ok, nil
	})
	if err != nil {
		return err
	}
	if f.proxy {
		at, err := c.reach(ctx, a)
		if err != nil {
			return err
		}
		*served = append(*served, at.Sub(from))
	}
	return poll(ctx, changeLimit, 2*time.Millisecond, name+" is announced", func() (bool, error) {
		at, ok := c.wire.firstClaim(a)
		if ok {
			f.visible = append(f.visible, at.Sub(from))
		}
		return ok, nil
	})
}

// pause is long enough for what was done last to be over.
func pause(ctx context.Context) {
	time.Sleep(100 * time.Millisecond)
	lab.RandomMoment(ctx)
}

// reach connects to an address again and again, not waiting for earlier attempts,
// until one is served, and returns when that was.
func (c *cluster) reach(ctx context.Context, a netip.Addr) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	var tries sync.WaitGroup
	defer tries.Wait()
	defer cancel()
	served := make(chan time.Time, 1)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		tries.Go(func() {
			if _, err := controlplane.Ask(ctx, c.Lab, c.Lab.Client, netip.AddrPortFrom(a, controlplane.ServicePort)); err == nil {
				select {
				case served <- time.Now():
				default:
				}
			}
		})
		select {
		case at := <-served:
			return at, nil
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%s is not reached: %w", a, ctx.Err())
		case <-tick.C:
		}
	}
}

// localService is the one whose endpoint moves.
const localService = "local"

// measureMoves moves the only endpoint of a Service with the traffic policy Local
// from node to node.
func (c *cluster) measureMoves(ctx context.Context, f *figures, o *options) error {
	return f.loaded("moves", func() error {
		s := c.service(localService)
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		if err := c.create(ctx, s, c.pods[0]); err != nil {
			return err
		}
		var a netip.Addr
		err := poll(ctx, changeLimit, 10*time.Millisecond, "the Service is announced", func() (ok bool, err error) {
			if a, _, ok = c.watch.address(s.Name); ok {
				_, ok = c.wire.firstClaim(a)
			}
			return ok, nil
		})
		if err != nil {
			return err
		}
		for i := range o.moves {
			time.Sleep(2 * time.Second) // a planned move is over, its announcements too
			lab.RandomMoment(ctx)
			to := (i + 1) % len(c.nodes)
			from := time.Now()
			if err := c.SetEndpoints(ctx, c.client, s.Name, c.pods[to]); err != nil {
				return err
			}
			mac := c.nodes[to].MAC
			err := poll(ctx, changeLimit, 2*time.Millisecond, "the owner follows", func() (bool, error) {
				at, ok := c.wire.moved(a, from, func(m string) bool { return m == mac })
				if ok {
					f.moves = append(f.moves, at.Sub(from))
				}
				return ok, nil
			})
			if err != nil {
				return err
			}
		}
		f.say("endpoint moved to owner followed %s", measure.Percentiles(f.moves))
		return nil
	})
}

// measureCuts cuts nodes off, one after the other.
func (c *cluster) measureCuts(ctx context.Context, f *figures, o *options) error {
	return f.loaded("cuts", func() error {
		for i := range o.cuts {
			if err := c.cut(ctx, f, c.nodes[i%len(c.nodes)]); err != nil {
				return err
			}
			time.Sleep(10 * time.Second)
		}
		return nil
	})
}

// localAddresses are those of Services with the traffic policy Local.
func (c *cluster) localAddresses() map[netip.Addr]bool {
	local := map[netip.Addr]bool{}
	for i := 0; ; i++ {
		a, _, ok := c.watch.address(fmt.Sprintf("s%d", i))
		if !ok {
			break
		}
		local[a] = isLocal(i)
	}
	if a, _, ok := c.watch.address(localService); ok {
		local[a] = true
	}
	return local
}

// cut cuts a node off until others announce all that it did.
func (c *cluster) cut(ctx context.Context, f *figures, n *controlplane.Node) (err error) {
	local := c.localAddresses() // which have no endpoint elsewhere
	lost := slices.DeleteFunc(c.wire.of(n.MAC), func(a netip.Addr) bool { return local[a] })
	if len(lost) == 0 {
		return fmt.Errorf("%s announces nothing", n.Name)
	}
	x := cut{vips: len(lost)}
	lab.RandomMoment(ctx)
	from := time.Now()
	if err := c.Lab.LinkDown(ctx, &n.Host); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Lab.LinkUp(ctx, &n.Host)) }()
	other := func(mac string) bool { return mac != n.MAC }
	left := slices.Clone(lost)
	err = poll(ctx, changeLimit, 2*time.Millisecond, "others announce all", func() (bool, error) {
		left = slices.DeleteFunc(left, func(a netip.Addr) bool {
			at, ok := c.wire.moved(a, from, other)
			if ok {
				x.all = max(x.all, at.Sub(from))
				if x.first == 0 || at.Sub(from) < x.first {
					x.first = at.Sub(from)
				}
			}
			return ok
		})
		return len(left) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %d of %d are left", err, len(left), len(lost))
	}
	if f.proxy {
		for _, a := range lost {
			at, err := c.reach(ctx, a)
			if err != nil {
				return err
			}
			x.reachable = max(x.reachable, at.Sub(from))
		}
	}
	f.cuts = append(f.cuts, x)
	f.say("%s was cut off: %d VIPs announced by others after %v to %v, reachable after %v", n.Name, x.vips, x.first, x.all, x.reachable)
	return nil
}
