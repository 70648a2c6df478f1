package controller

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/ipam"
	"lbd.dev/lbd/internal/k8s/lease"
	kmachines "lbd.dev/lbd/internal/k8s/machines"
	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
)

// To the allocator a MachineLoadBalancer that needs an address of a pool is a Service
// with a name that no Service can have, so that no address is given out twice.
const balancerPrefix = "machineloadbalancer/"

// balancerOf returns the balancer that a key of the allocator stands for; false: it
// is a Service.
func balancerOf(k model.Key) (model.Key, bool) {
	name, ok := strings.CutPrefix(k.Name, balancerPrefix)
	return model.Key{Namespace: k.Namespace, Name: name}, ok
}

// newSteward returns the part that serves MachineLoadBalancers.
func (c *Controller) newSteward() *kmachines.Steward {
	spec := &v1alpha1.MachinesSpec{HookTimeout: v1alpha1.Duration{Duration: c.o.HookTimeout}}
	spec.Default()
	return kmachines.NewSteward(kmachines.StewardOptions{
		Logger: c.o.Logger, Client: c.o.Client, Manager: Manager, Host: c.o.Identity, Rules: machines.RulesOf(spec),
		Changed: func() { c.changes.mark(&c.changes.machines) }, Balancers: c.seeBalancers, Pooled: c.pooled, Leads: c.elector.Valid,
	})
}

// seeBalancers notes the addresses that balancers have no more.
func (c *Controller) seeBalancers(keys []model.Key) {
	named := make([]model.Key, len(keys))
	for i, k := range keys {
		named[i] = model.Key{Namespace: k.Namespace, Name: balancerPrefix + k.Name}
	}
	c.freed.see(named, func(k model.Key) []netip.Addr {
		name := strings.TrimPrefix(k.Name, balancerPrefix)
		return c.machines.Addrs(model.Key{Namespace: k.Namespace, Name: name})
	}, time.Now())
}

// pooled tells whether a pool has an address.
func (c *Controller) pooled(addr netip.Addr) bool {
	for _, o := range c.objects.Pools.All() {
		for _, text := range o.Value.Spec.Addresses {
			if r, err := v1alpha1.ParseAddressRange(text); err == nil && len(o.Errors) == 0 && r.Contains(addr) {
				return true
			}
		}
	}
	return false
}

// asService is a balancer as the allocator sees it.
func (c *Controller) asService(x kmachines.Claim) allocator.Service {
	protocol := string(x.Spec.Port.Protocol)
	s := allocator.Service{
		Key: model.Key{Namespace: x.Namespace, Name: balancerPrefix + x.Name}, UID: x.UID, Version: x.Version, Created: x.Created, Type: "LoadBalancer",
		Families: c.families(x.Request), Ports: []ipam.Port{{Protocol: protocol, Number: uint16(x.Spec.Port.Port)}},
		Annotations: map[string]string{},
	}
	if c.o.Allocator.Class != "" {
		s.Class = &c.o.Allocator.Class
	}
	if len(s.Families) > 1 {
		s.Policy = "RequireDualStack"
	}
	switch {
	case len(x.Request.Fixed) > 0:
		var texts []string
		for _, addr := range x.Request.Fixed {
			texts = append(texts, addr.String())
		}
		s.Annotations[allocator.LoadBalancerIPs] = strings.Join(texts, ",")
	case x.Request.Pool != "":
		s.Annotations[allocator.AddressPool] = x.Request.Pool
	}
	s.Ingress, s.Annotations[allocator.AllocatedFrom] = given(x)
	return s
}

// given is what the status of a balancer says that it has from pools, as that of a Service does.
func given(x kmachines.Claim) (ingress []allocator.Ingress, mark string) {
	pools := strings.Split(x.Status.AddressPool, ",")
	var from []string
	for i, addr := range x.Given {
		ingress = append(ingress, allocator.Ingress{IP: addr.String()})
		if pool := pools[min(i, len(pools)-1)]; pool != "" {
			from = append(from, addr.String()+"="+pool)
		}
	}
	return ingress, strings.Join(from, ",")
}

// poolNames are the pools of addresses in the status of a balancer: one name if all are of
// one pool. mark is the annotation allocator.AllocatedFrom.
func poolNames(addrs []netip.Addr, mark string) string {
	from := map[string]string{}
	for item := range strings.SplitSeq(mark, ",") {
		addr, pool, _ := strings.Cut(item, "=")
		from[addr] = pool
	}
	var pools []string
	for _, addr := range addrs {
		pools = append(pools, from[addr.String()])
	}
	if len(slices.Compact(slices.Clone(pools))) == 1 {
		pools = pools[:1]
	}
	return strings.Join(pools, ",")
}

// families are those of the addresses, else those asked for, else IPv4 unless the pool
// has none.
func (c *Controller) families(r machines.Request) (names []string) {
	for _, addr := range r.Fixed {
		names = append(names, ipam.FamilyOf(addr).String())
	}
	for _, f := range r.Families {
		if f == v1alpha1.FamilyIPv6 {
			names = append(names, ipam.IPv6.String())
		} else {
			names = append(names, ipam.IPv4.String())
		}
	}
	if len(names) > 0 {
		return names
	}
	return []string{c.family(r)}
}

// family is IPv4 unless the pool has none.
func (c *Controller) family(r machines.Request) string {
	only6 := false
	for k, o := range c.objects.Pools.All() {
		if r.Pool != "" && k.Name != r.Pool {
			continue
		}
		for _, text := range o.Value.Spec.Addresses {
			if x, err := v1alpha1.ParseAddressRange(text); err == nil {
				if x.First.Is4() {
					return ipam.IPv4.String()
				}
				only6 = true
			}
		}
	}
	if only6 {
		return ipam.IPv6.String()
	}
	return ipam.IPv4.String()
}

// readBalancers adds the balancers to the Services that were read.
func (l *leader) readBalancers(ctx context.Context, all map[model.Key]allocator.Service) error {
	if l.c.machines == nil {
		return nil
	}
	claims, err := l.c.machines.Read(ctx)
	for _, x := range claims {
		s := l.c.asService(x)
		all[s.Key] = s
		l.balancers[s.Key] = s
	}
	return err
}

// setBalancers hands to the allocator what has become of the balancers.
func (l *leader) setBalancers() {
	if l.c.machines == nil {
		return
	}
	now := map[model.Key]allocator.Service{}
	for _, x := range l.c.machines.Claims() {
		s := l.c.asService(x)
		now[s.Key] = s
		if old, ok := l.balancers[s.Key]; !ok || !reflect.DeepEqual(old, s) {
			l.set(s)
		}
	}
	for key := range l.balancers {
		if _, ok := now[key]; !ok {
			l.remove(key)
			if k, ok := balancerOf(key); ok {
				l.c.machines.SetProblem(k, "")
			}
		}
	}
	l.balancers = now
}

// lookup returns what is known of a Service, or of what stands for one.
func (l *leader) lookup(key model.Key) (allocator.Service, bool) {
	if s, ok := l.balancers[key]; ok {
		return s, true
	}
	s, ok := l.c.services.Get(key)
	return s.Service, ok
}

// writeBalancer sends the address of a balancer, as write does for a Service.
func (c *Controller) writeBalancer(ctx context.Context, k model.Key, w allocator.Write) result {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.RequestTimeout)
	defer cancel()
	var addrs []netip.Addr
	for _, in := range w.Ingress {
		if addr, err := netip.ParseAddr(in.IP); err == nil {
			addrs = append(addrs, addr)
		}
	}
	x, err := c.machines.Assign(ctx, k, w.UID, w.Version, addrs, poolNames(addrs, w.Mark))
	if err != nil {
		return result{write: w, err: err}
	}
	if len(addrs) > 0 {
		c.machines.SetProblem(k, "")
	}
	return result{write: w, service: c.asService(x), ok: true}
}

// send tells an event about a Service, or about what stands for one.
func (c *Controller) send(e allocator.Event) {
	if k, ok := balancerOf(e.Object); ok && e.Kind == "Service" {
		e.Kind, e.Object = v1alpha1.KindMachineLoadBalancer, k
		if e.Reason == allocator.EventFailed || e.Reason == allocator.EventConflict {
			c.machines.SetProblem(k, e.Message)
		}
	}
	c.events.send(e)
}

// MachineWrites counts what was written to objects of Cluster API and to balancers,
// by what it was; nil without them.
func (c *Controller) MachineWrites() map[string]uint64 {
	if c.machines == nil {
		return nil
	}
	return c.machines.Writes()
}
