package membership

import (
	"cmp"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// teller is a node, this one included, that may say which Machines drain.
type teller struct {
	name    model.NodeName
	manager bool
	partial bool
	// whole has this node drain, and some has it lose some addresses only; nil: it lists
	// no such drain of this node.
	whole, some *model.MachineDrain
}

// hear takes a drain of this node; the first of its kind counts.
func (t *teller) hear(d *model.MachineDrain) {
	kind := &t.whole
	if len(d.Only) > 0 {
		kind = &t.some
	}
	if *kind == nil {
		*kind = d
	}
}

// drains decides whether this node drains with its Machine, and which addresses it is
// to lose if it does not.
func (s *step) drains() {
	all, m := tellers(s.v), &s.m
	m.Machine = counts(all, m.Machine, func(t *teller) *model.MachineDrain { return t.whole })
	m.Disabled = counts(all, m.Disabled, func(t *teller) *model.MachineDrain { return t.some })
}

// counts returns what counts of what is told. Who reads the management API may say that
// this node drains, and who reads it now may say that it is over. That nobody reads it
// any more says nothing.
func counts(all []teller, was model.MachineMemory, of func(*teller) *model.MachineDrain) model.MachineMemory {
	managed, partial := false, false
	var stale model.MachineMemory
	for i := range all {
		t := &all[i]
		managed, partial = managed || t.manager, partial || t.manager && t.partial
		switch d := of(t); {
		case d == nil:
		case t.manager:
			return model.MachineMemory{Drain: d, By: t.name}
		case stale.Drain == nil:
			stale = model.MachineMemory{Drain: d, By: t.name}
		}
	}
	switch {
	case managed && !partial:
		return model.MachineMemory{}
	case !managed && was.Drain == nil:
		return stale
	}
	return was
}

// tellers are this node, then the others that are alive, by name: the order of the
// map must not matter.
func tellers(v *model.View) []teller {
	own := teller{name: v.Self, manager: v.Machines.Manager}
	for i := range v.Machines.Drains {
		if d := &v.Machines.Drains[i]; d.Node == v.Self || here(v, d.Addrs) && !isMember(v, d.Node) {
			own.hear(d)
		}
	}
	var out []teller
	for n, x := range v.Gossip.Members {
		if x.State != model.MemberAlive || !x.Manager && len(x.Drains) == 0 {
			continue
		}
		t := teller{name: n, manager: x.Manager, partial: x.Partial}
		for i := range x.Drains {
			if x.Drains[i].Node == v.Self {
				t.hear(&x.Drains[i])
			}
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b teller) int { return cmp.Compare(a.name, b.name) })
	return append([]teller{own}, out...)
}

// isMember tells whether another node has the name, so that addresses say nothing.
func isMember(v *model.View, n model.NodeName) bool {
	_, ok := v.Gossip.Members[n]
	return ok
}

// here tells whether one of the addresses is one of this node.
func here(v *model.View, addrs []netip.Addr) bool {
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool {
		_, ok := place.OwnAddress(v.Links, a)
		return ok && !a.IsLoopback()
	})
}

// Drains are the drains of Machines of which the group is told: those of its nodes, under the name
// that the group has for the node. What is not yet draining comes first, and what may
// not even listen last, for gossip may have no room for all.
func Drains(v *model.View) []model.MachineDrain {
	if len(v.Machines.Drains) == 0 {
		return nil
	}
	var out [3][]model.MachineDrain
	for i := range v.Machines.Drains {
		d := v.Machines.Drains[i] // a copy
		n, rank, ok := nodeOf(v, &d)
		if !ok {
			continue
		}
		if d.Node, d.Addrs = n, nil; len(d.Only) > 0 {
			rank = max(rank, 1) // a host that goes matters more
		}
		out[rank] = append(out[rank], d)
	}
	return slices.Concat(out[:]...)
}

// nodeOf finds the node of a Machine: by the name of its Node, else by address. One
// that is dead counts too: it may only be out of sight. rank is the order in which it
// is to be told: 0 to 2.
func nodeOf(v *model.View, d *model.MachineDrain) (name model.NodeName, rank int, ok bool) {
	if d.Node == v.Self {
		return v.Self, 1, true // it knows
	}
	if m, has := v.Gossip.Members[d.Node]; has && !foreign(&m, d.Addrs) {
		return d.Node, urgency(&m), m.State != model.MemberLeft
	}
	if here(v, d.Addrs) {
		return v.Self, 1, true
	}
	for n, m := range v.Gossip.Members {
		if m.State != model.MemberLeft && shared(&m, d.Addrs) && (!ok || n < name) {
			name, rank, ok = n, urgency(&m), true
		}
	}
	return name, rank, ok
}

// urgency orders nodes by what it helps to tell them that they drain.
func urgency(m *model.Member) int {
	switch {
	case m.State != model.MemberAlive:
		return 2
	case m.Draining:
		return 1
	}
	return 0
}

// shared tells whether one of the addresses is one of the member.
func shared(m *model.Member, addrs []netip.Addr) bool {
	return slices.Contains(addrs, m.Addr) || slices.ContainsFunc(m.Addrs, func(a netip.Addr) bool { return slices.Contains(addrs, a) })
}

// foreign tells whether a member is not the node that has these addresses, whatever
// its name: two clusters may have nodes of one name.
func foreign(m *model.Member, addrs []netip.Addr) bool {
	return len(addrs) > 0 && len(m.Addrs) > 0 && !shared(m, addrs)
}
