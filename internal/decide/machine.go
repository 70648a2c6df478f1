package decide

import (
	"cmp"
	"slices"

	"lbd.dev/lbd/internal/election"
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

// machine decides whether this node drains with its Machine, and which addresses it is
// to lose if it does not.
func machine(v *model.View, m *model.Memory) {
	all := tellers(v)
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
func here(v *model.View, addrs []addr) bool {
	return slices.ContainsFunc(addrs, func(a addr) bool {
		_, ok := place.OwnAddress(v.Links, a)
		return ok && !a.IsLoopback()
	})
}

// told are the drains of which the group is told: those of its nodes, under the name
// that the group has for the node. What is not yet draining comes first, and what may
// not even listen last, for gossip may have no room for all.
func told(v *model.View) []model.MachineDrain {
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
func shared(m *model.Member, addrs []addr) bool {
	return slices.Contains(addrs, m.Addr) || slices.ContainsFunc(m.Addrs, func(a addr) bool { return slices.Contains(addrs, a) })
}

// foreign tells whether a member is not the node that has these addresses, whatever
// its name: two clusters may have nodes of one name.
func foreign(m *model.Member, addrs []addr) bool {
	return len(addrs) > 0 && len(m.Addrs) > 0 && !shared(m, addrs)
}

// drained tells whether this node has nothing left to hand over, withdraw or wait for.
func drained(d *model.Desired) bool {
	if !d.Synced || !d.Memory.Settled {
		return false
	}
	for _, m := range d.Memory.VIPs {
		if m.Phase >= model.PhaseTaking {
			return false
		}
	}
	for _, m := range d.Memory.BGP {
		if m.Phase != model.BGPIdle {
			return false
		}
	}
	return true
}

// writers is what the nodes are ranked by that could write to the management cluster.
const writers = "machines"

// machines is what the driver of the management cluster is asked for.
func machines(v *model.View, d *model.Desired) model.MachinesState {
	var s model.MachinesState
	if _, has := v.Synced[model.SourceMachines]; !has && !v.Machines.Manager {
		return s
	}
	s.Addrs = ownAddrs(v)
	s.Writer = v.Machines.Manager && d.Memory.Settled
	own := writer{v.Self, v.Weight, d.Group.Draining}
	for n, m := range v.Gossip.Members {
		s.Writer = s.Writer && !(m.State == model.MemberAlive && m.Manager && (writer{n, m.Weight, m.Draining}).before(own))
	}
	if !s.Writer {
		return s
	}
	s.Members = []model.MachineMember{{
		Node: v.Self, Addrs: s.Addrs, Draining: d.Group.Draining, Drained: d.Group.Drained, Standing: standings(v, ownStandings(d)),
	}}
	for n, m := range v.Gossip.Members {
		if m.State != model.MemberAlive || !m.Known {
			continue
		}
		s.Members = append(s.Members, model.MachineMember{
			Node: n, Addrs: withAddr(m.Addrs, m.Addr), Draining: m.Draining, Drained: m.Drained, Standing: standings(v, m.Standing),
		})
	}
	slices.SortFunc(s.Members, func(a, b model.MachineMember) int { return cmp.Compare(a.Node, b.Node) })
	return s
}

type writer struct {
	node     model.NodeName
	weight   int
	draining bool
}

// before orders writers: a node that drains is about to go.
func (a writer) before(b writer) bool {
	if a.draining != b.draining {
		return b.draining
	}
	return election.Better(writers, election.Candidate{Node: a.node, Weight: a.weight}, election.Candidate{Node: b.node, Weight: b.weight})
}

// standings are those of the balanced addresses.
func standings(v *model.View, all map[addr]model.Reason) map[addr]model.Reason {
	out := make(map[addr]model.Reason, len(v.Machines.Balanced))
	for _, a := range v.Machines.Balanced {
		if r, ok := all[a]; ok {
			out[a] = r
		}
	}
	return out
}

func ownStandings(d *model.Desired) map[addr]model.Reason {
	out := make(map[addr]model.Reason, len(d.Group.VIPs))
	for i := range d.Group.VIPs {
		out[d.Group.VIPs[i].Addr] = d.Group.VIPs[i].Standing
	}
	return out
}

// ownAddrs are all addresses by which a Machine may be known to be this node.
func ownAddrs(v *model.View) []addr {
	var out []addr
	for _, l := range v.Links {
		for _, p := range l.Prefixes {
			if a := p.Addr(); a.IsGlobalUnicast() {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, addr.Compare)
	return slices.Compact(out)
}

// withAddr adds the gossip address to those on the links.
func withAddr(list []addr, a addr) []addr {
	i, found := slices.BinarySearchFunc(list, a, addr.Compare)
	if found || !a.IsValid() {
		return list
	}
	return slices.Insert(slices.Clone(list), i, a)
}
