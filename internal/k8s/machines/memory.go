package machines

import (
	"cmp"
	"net/netip"

	"lbd.dev/lbd/internal/machines"
)

// memory is what an API may not say yet: objects that were moved to another
// management cluster, or restored, have no status at first, and are the same.
type memory struct {
	machines map[subject]*machines.Machine
	addrs    map[machines.Key]given
}

// subject is a Machine, or what stands for one.
type subject struct {
	target string
	machines.Key
}

// given is an address and the UID of the balancer that had it.
type given struct {
	uid  string
	addr netip.Addr
}

// spare is how many that are gone are remembered besides twice those that are not.
const spare = 1000

// recall returns the Machines with what was known of those that have no status. all
// is changed.
func (m *memory) recall(all []*machines.Machine) []*machines.Machine {
	if m.machines == nil || len(m.machines) > 2*len(all)+spare {
		old := m.machines
		m.machines = make(map[subject]*machines.Machine, len(all))
		for _, x := range all {
			if was := old[subject{x.Target, x.Key}]; was != nil {
				m.machines[subject{x.Target, x.Key}] = was
			}
		}
	}
	for i, x := range all {
		k := subject{x.Target, x.Key}
		if x.Node != "" || len(x.Addresses) > 0 {
			m.machines[k] = x
			continue
		}
		was := m.machines[k]
		if was == nil || cmp.Or(x.ProviderID, was.ProviderID) != cmp.Or(was.ProviderID, x.ProviderID) {
			continue // another host
		}
		y := *x
		y.Node, y.Addresses = was.Node, was.Addresses
		y.ProviderID = cmp.Or(x.ProviderID, was.ProviderID)
		y.FailureDomain = cmp.Or(x.FailureDomain, was.FailureDomain)
		all[i] = &y
	}
	return all
}

// addr is the address of a balancer. One that has none yet, since it is new in this
// API, keeps the one that it had; one that lost it has none.
func (m *memory) addr(b *machines.Balancer) netip.Addr {
	if m.addrs == nil {
		m.addrs = map[machines.Key]given{}
	}
	if a := b.Addr(); a.IsValid() {
		m.addrs[b.Key] = given{b.UID, a}
		return a
	}
	was, ok := m.addrs[b.Key]
	want, err := netip.ParseAddr(b.Spec.Address)
	if !ok || err == nil && want != was.addr || b.UID == was.uid && b.Status.ObservedGeneration != 0 {
		delete(m.addrs, b.Key)
		return netip.Addr{}
	}
	return was.addr
}
