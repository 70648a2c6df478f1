package controller

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/ipam"
	kmachines "lbd.dev/lbd/internal/k8s/machines"
	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
)

// newSteward returns the part that serves MachineLoadBalancers.
func (c *Controller) newSteward() *kmachines.Steward {
	spec := &v1alpha1.MachinesSpec{HookTimeout: v1alpha1.Duration{Duration: c.o.HookTimeout}}
	spec.Default()
	return kmachines.NewSteward(kmachines.StewardOptions{
		Logger: c.o.Logger, Client: c.o.Client, Manager: Manager, Host: c.o.Identity, Rules: machines.RulesOf(spec),
		Changed: func() { c.changes.mark(&c.changes.standIns) }, Balancers: c.seeBalancers, Pooled: c.pooled, Leads: c.elector.Valid,
	})
}

// seeBalancers notes the addresses that balancers have no more.
func (c *Controller) seeBalancers(keys []model.Key) {
	c.freed.seeAs(v1alpha1.KindMachineLoadBalancer, keys, c.machines.Addrs, time.Now())
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
	s := allocator.Service{
		Key: standInKey(v1alpha1.KindMachineLoadBalancer, x.Key), UID: x.UID, Version: x.Version, Created: x.Created,
		Families: c.families(x.Request), Ports: []ipam.Port{{Protocol: string(x.Spec.Port.Protocol), Number: uint16(x.Spec.Port.Port)}},
	}
	c.ask(&s, x.Request.Fixed)
	if len(x.Request.Fixed) == 0 && x.Request.Pool != "" {
		s.Annotations[allocator.AddressPool] = x.Request.Pool
	}
	pools := strings.Split(x.Status.AddressPool, ",")
	for i, addr := range x.Given {
		has(&s, addr, pools[min(i, len(pools)-1)])
	}
	return s
}

// poolNames are the pools of addresses in the status of a balancer: one name if all are of
// one pool.
func poolNames(addrs []netip.Addr, w allocator.Write) string {
	from := poolsIn(w)
	var pools []string
	for _, addr := range addrs {
		pools = append(pools, from[addr])
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

// machineBalancers are the MachineLoadBalancers that need addresses of pools.
type machineBalancers struct{ c *Controller }

func (machineBalancers) kind() string { return v1alpha1.KindMachineLoadBalancer }

func (b machineBalancers) claims() []allocator.Service { return b.asServices(b.c.machines.Claims()) }

func (b machineBalancers) read(ctx context.Context) ([]allocator.Service, error) {
	claims, err := b.c.machines.Read(ctx)
	return b.asServices(claims), err
}

func (b machineBalancers) asServices(claims []kmachines.Claim) []allocator.Service {
	var all []allocator.Service
	for _, x := range claims {
		all = append(all, b.c.asService(x))
	}
	return all
}

func (b machineBalancers) assign(ctx context.Context, k model.Key, w allocator.Write) (allocator.Service, error) {
	addrs := addrsIn(w)
	x, err := b.c.machines.Assign(ctx, k, w.UID, w.Version, addrs, poolNames(addrs, w))
	if err != nil {
		return allocator.Service{}, err
	}
	return b.c.asService(x), nil
}

func (b machineBalancers) words(e allocator.Event) string { return e.Message }

func (b machineBalancers) problem(k model.Key, text string) { b.c.machines.SetProblem(k, text) }

// MachineWrites counts what was written to objects of Cluster API and to balancers,
// by what it was; nil without them.
func (c *Controller) MachineWrites() map[string]uint64 {
	if c.machines == nil {
		return nil
	}
	return c.machines.Writes()
}
