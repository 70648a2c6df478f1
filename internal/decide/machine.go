package decide

import (
	"cmp"
	"slices"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
)

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
