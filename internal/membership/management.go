package membership

import (
	"cmp"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
)

// writers is what the nodes are ranked by that could write to the management cluster.
const writers = "machines"

// Management is what the driver of the management cluster is asked for, given what this node
// tells its group.
func Management(v *model.View, told *model.GroupState) model.MachinesState {
	var s model.MachinesState
	if _, has := v.Synced[model.SourceMachines]; !has && !v.Machines.Manager {
		return s
	}
	s.Addrs = ownAddrs(v)
	s.Writer = told.Manager
	own := writer{v.Self, v.Weight, told.Draining}
	for n, m := range v.Gossip.Members {
		s.Writer = s.Writer && !(m.State == model.MemberAlive && m.Manager && (writer{n, m.Weight, m.Draining}).before(own))
	}
	if !s.Writer {
		return s
	}
	s.Members = []model.MachineMember{{
		Node: v.Self, Addrs: s.Addrs, Draining: told.Draining, Drained: told.Drained, Standing: standings(v, v.Self, ownStandings(told), ownClaims(v, told)),
	}}
	for n, m := range v.Gossip.Members {
		if m.State != model.MemberAlive || !m.Known {
			continue
		}
		s.Members = append(s.Members, model.MachineMember{
			Node: n, Addrs: withAddr(m.Addrs, m.Addr), Draining: m.Draining, Drained: m.Drained, Standing: standings(v, n, m.Standing, v.Gossip.Claims),
		})
	}
	slices.SortFunc(s.Members, func(a, b model.MachineMember) int { return cmp.Compare(a.Node, b.Node) })
	s.Health = make(map[string]model.Health, len(v.Machines.Checks))
	for _, name := range v.Machines.Checks {
		s.Health[name] = v.Health[name].State
	}
	for _, a := range v.Machines.Forwarded {
		if i, is := model.FindVIP(v.VIPs, a); is && !(v.VIPs[i].Kind == model.KindMachineLoadBalancer && v.VIPs[i].Forwarded()) {
			s.Taken = append(s.Taken, a)
		}
	}
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

// standings are those of the balanced addresses. A node without a session is Degraded, whether it has the
// address or not; where connections are forwarded, and one node has it, its claim tells.
func standings(v *model.View, node model.NodeName, all map[netip.Addr]model.Reason, claims map[netip.Addr][]model.Claim) map[netip.Addr]model.Reason {
	out := make(map[netip.Addr]model.Reason, len(v.Machines.Balanced))
	for _, a := range v.Machines.Balanced {
		r, ok := all[a]
		if !ok {
			continue
		}
		if r == model.ReasonDegraded && slices.Contains(v.Machines.Forwarded, a) &&
			slices.ContainsFunc(claims[a], func(c model.Claim) bool { return c.Owner == node && c.Epoch != 0 }) {
			r = model.ReasonOwner
		}
		out[a] = r
	}
	return out
}

func ownStandings(told *model.GroupState) map[netip.Addr]model.Reason {
	out := make(map[netip.Addr]model.Reason, len(told.VIPs))
	for i := range told.VIPs {
		out[told.VIPs[i].Addr] = told.VIPs[i].Standing
	}
	return out
}

// ownClaims are those of this node for what is forwarded.
func ownClaims(v *model.View, told *model.GroupState) map[netip.Addr][]model.Claim {
	out := make(map[netip.Addr][]model.Claim, len(v.Machines.Forwarded))
	for i := range told.VIPs {
		if vip := &told.VIPs[i]; vip.Claim.Epoch != 0 && slices.Contains(v.Machines.Forwarded, vip.Addr) {
			out[vip.Addr] = []model.Claim{{Owner: v.Self, Epoch: vip.Claim.Epoch}}
		}
	}
	return out
}

// ownAddrs are all addresses by which a Machine may be known to be this node.
func ownAddrs(v *model.View) []netip.Addr {
	var out []netip.Addr
	for _, l := range v.Links {
		for _, p := range l.Prefixes {
			if a := p.Addr(); a.IsGlobalUnicast() {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// withAddr adds the gossip address to those on the links.
func withAddr(list []netip.Addr, a netip.Addr) []netip.Addr {
	i, found := slices.BinarySearchFunc(list, a, netip.Addr.Compare)
	if found || !a.IsValid() {
		return list
	}
	return slices.Insert(slices.Clone(list), i, a)
}
