package machines

import (
	"cmp"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
)

// memory is what an API may not say yet: objects that were moved to another
// management cluster, or restored, have no status at first, and are the same.
type memory struct {
	machines map[subject]*machines.Machine
	given    map[model.Key]given
}

// subject is a Machine, or what stands for one.
type subject struct {
	target string
	model.Key
}

// given is the addresses, and the UID of the balancer that had them and which it named
// then: its Cluster may have another one.
type given struct {
	uid          string
	addrs, named []netip.Addr
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
		y.Node, y.Addresses, y.Internal = was.Node, was.Addresses, was.Internal
		y.ProviderID = cmp.Or(x.ProviderID, was.ProviderID)
		y.FailureDomain = cmp.Or(x.FailureDomain, was.FailureDomain)
		all[i] = &y
	}
	return all
}

// addrs are the addresses of a balancer. One that has none yet, since it is new in this
// API, keeps those that it had, if it names no others now; one that lost them has none.
func (m *memory) addrs(b *machines.Balancer) []netip.Addr {
	if m.given == nil {
		m.given = map[model.Key]given{}
	}
	if addrs := b.Addrs(); len(addrs) > 0 {
		m.given[b.Key] = given{b.UID, addrs, b.Named()}
		return addrs
	}
	was, ok := m.given[b.Key]
	named := b.Named()
	if !ok || len(named) > 0 && !slices.Equal(named, was.named) || b.UID == was.uid && b.Status.ObservedGeneration != 0 {
		delete(m.given, b.Key)
		return nil
	}
	return was.addrs
}
