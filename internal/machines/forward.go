package machines

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// A balancer whose Machines listen on another port than clients connect to is forwarded: the
// node that has the address sends connections on to the Machines, as with a LoadBalancer. So
// there are two roles. Servers are the members; they need no lbd. Nodes that may have the
// address are those which are members themselves, since they are in front of the same service
// already, and those whose configuration says so (machines.balancer). Whoever else reads the
// object does nothing: two groups that both take an address would have to find out on the wire.

// maxServers is how many Machines a balancer forwards to, as a LoadBalancer has backends.
const maxServers = 1000

// Forwarded tells whether clients connect to another port than the members listen on, so that
// connections have to be forwarded. The port of a Cluster counts more than that of the
// balancer. Who gives one port only moves the address, whatever the Cluster says.
func (b *Balancer) Forwarded() bool {
	p := b.Spec.Port
	return p.MachinePort != p.Port && p.MachinePort != b.clientPort()
}

// clientPort is where clients connect.
func (b *Balancer) clientPort() int32 {
	if e := b.Status.Endpoint; e != nil {
		return e.Port
	}
	return b.Spec.Port.Port
}

// Refusal is why a balancer that would have to forward cannot, as the rule that is broken; ""
// if it can, or needs not. Its own addresses are avoid, too.
func (b *Balancer) Refusal(members []*Machine, avoid []netip.Addr) string {
	if !b.Forwarded() {
		return ""
	}
	if broken := b.Spec.Advertise.OfForwarded(); len(broken) > 0 {
		return fmt.Sprintf("%s, so connections are forwarded: %v; or have the Machines listen on the same port", b.ports(), &broken[0])
	}
	if host := checkHost(b.Spec.HealthCheck); host != v1alpha1.DefaultCheckHost {
		return fmt.Sprintf("%s, so each Machine is asked at its own address: leave the host %q of spec.healthCheck out", b.ports(), host)
	}
	for _, vip := range b.Addrs() {
		var own *Machine
		served := false // by another Machine, so that one which reports the address withdraws nothing
		for _, m := range members {
			_, other := m.serverAt(vip, avoid, b.Addrs())
			if served = served || other; !other && slices.Contains(m.Addresses, vip) {
				own = m
			}
		}
		if own != nil && !served {
			return fmt.Sprintf("%s is the own address of Machine %s, to which connections would be forwarded: the balancer needs another address", vip, own.Key)
		}
	}
	return ""
}

// ports says that the two differ.
func (b *Balancer) ports() string {
	return fmt.Sprintf("clients connect to port %d and the Machines listen on %d", b.clientPort(), b.Spec.Port.MachinePort)
}

// checkHost is who is asked by a check.
func checkHost(h *v1alpha1.HealthCheck) string {
	switch {
	case h == nil:
	case h.HTTPS != nil:
		return h.HTTPS.Host
	case h.HTTP != nil:
		return h.HTTP.Host
	case h.TCP != nil:
		return h.TCP.Host
	}
	return v1alpha1.DefaultCheckHost
}

// serverAt is the address at which a Machine gets the connections to a VIP: its first InternalIP
// of that family, else its first address. A Machine may list the VIPs that it has, which are
// avoided. Those of other balancers than its own are avoided only if it has another address:
// somebody else's object takes no Machine out of service.
func (m *Machine) serverAt(vip netip.Addr, avoid, own []netip.Addr) (netip.Addr, bool) {
	for _, others := range [][]netip.Addr{avoid, nil} {
		for _, list := range [][]netip.Addr{m.Internal, m.Addresses} {
			for _, a := range list {
				if a.Is4() == vip.Is4() && a.IsGlobalUnicast() && !slices.Contains(others, a) && !slices.Contains(own, a) {
					return a, true
				}
			}
		}
	}
	return netip.Addr{}, false
}

// CheckName is that of the check of the members, or of one of them by its address.
func (b *Balancer) CheckName(server ...netip.Addr) string {
	name := model.KindMachineLoadBalancer + "/" + b.String()
	for _, a := range server {
		name += "/" + a.String()
	}
	return name
}

// Forwarding is a forwarded balancer as a LoadBalancer, without VIPs, and the checks of the
// members by their names. avoid are the VIPs of all balancers. Members that are about to go,
// or that a user took out, get no new connections.
func (b *Balancer) Forwarding(members []*Machine, rules *Rules, avoid []netip.Addr) (model.LoadBalancer, map[string]v1alpha1.HealthCheck) {
	lb := model.LoadBalancer{Name: b.String(), DrainTimeout: b.drainTimeout()}
	port := model.ForwardPort{Protocol: model.TCP, Port: uint16(b.clientPort()), TargetPort: uint16(b.Spec.Port.MachinePort)}
	if b.Spec.Port.Protocol == v1alpha1.MachineUDP {
		port.Protocol = model.UDP
	}
	lb.Ports = []model.ForwardPort{port}
	checks, h := map[string]v1alpha1.HealthCheck{}, b.Check()
	for _, vip := range b.families() {
		servers := map[netip.Addr]model.Server{}
		for _, m := range members {
			a, ok := m.serverAt(vip, avoid, b.Addrs())
			if !ok {
				continue
			}
			x := model.Server{Addr: a, Weight: v1alpha1.DefaultBackendWeight}
			_, _, leaving := rules.Drain(m)
			if _, disabled := b.Disabled(m); leaving || disabled {
				x.Weight, x.Leaving = 0, leaving && !disabled
			}
			if was, twice := servers[a]; twice && was.Weight >= x.Weight {
				continue // one Machine has taken the place of another
			}
			if h != nil {
				x.Check = b.CheckName(a)
			}
			if servers[a] = x; len(servers) == maxServers {
				break
			}
		}
		for a, x := range servers {
			lb.Servers = append(lb.Servers, x)
			if h != nil {
				checks[x.Check] = h.Of(a)
			}
		}
	}
	slices.SortFunc(lb.Servers, func(x, y model.Server) int { return x.Addr.Compare(y.Addr) })
	return lb, checks
}

// families is one address of each family that the balancer has, IPv4 first.
func (b *Balancer) families() []netip.Addr {
	addrs := b.Addrs()
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.CompactFunc(addrs, func(x, y netip.Addr) bool { return x.Is4() == y.Is4() })
}

// drainTimeout is how long connections to a member go on that is about to go: half as long as its
// deletion may be held, so that it has ended by then.
func (b *Balancer) drainTimeout() time.Duration {
	if d := b.Spec.Drain.Timeout.Duration; d > 0 {
		return min(d/2, v1alpha1.DefaultBackendDrainTimeout)
	}
	return v1alpha1.DefaultBackendDrainTimeout
}

// Holds tells whether this node may have the address of a forwarded balancer: it is a member, or
// its configuration says so. self is the object of this node of the kind of the members, nil
// without.
func (r *Rules) Holds(b *Balancer, self *Machine) bool {
	if self != nil && b.Has(self) {
		return true
	}
	return r.Balancer && (r.ClusterName == "" || r.ClusterName == b.Spec.ClusterName)
}

// Follows tells whether the group of this node has to do with a forwarded balancer, so that the
// node may have to report about it: it may have the address itself, or is a Machine of
// the cluster of a member.
func (r *Rules) Follows(b *Balancer, members []*Machine, self *Machine) bool {
	return r.Holds(b, self) || self != nil && slices.ContainsFunc(members, func(m *Machine) bool {
		return m.Target == self.Target && m.Cluster() == self.Cluster()
	})
}

// forwardedMember is the state of a member to which connections are forwarded.
func (b *Balancer) forwardedMember(x *v1alpha1.MachineMemberStatus, m *Machine, was *v1alpha1.MachineMemberStatus, report *Report, at *moment) {
	reason, _, leaving := at.rules.Drain(m)
	_, disabled := b.Disabled(m)
	switch {
	case leaving:
		x.State, x.Reason = v1alpha1.MemberDraining, reason
		if was == nil || was.State != v1alpha1.MemberDraining && was.State != v1alpha1.MemberDrained {
			return
		}
		// Nobody counts its connections: they have had the time that they are given. While
		// no other can serve it still gets new ones.
		if was.State == v1alpha1.MemberDrained || report != nil && at.others && at.now.After(was.Since.Add(b.drainTimeout()+time.Second)) && b.leftAlone(m, report) {
			x.State, x.Reason = v1alpha1.MemberDrained, MemberServesNothing
		}
	case disabled:
		x.State, x.Reason = v1alpha1.MemberDisabled, DrainDisabled
	case report == nil:
		x.State, x.Reason = v1alpha1.MemberPending, MemberNotReported
	default:
		x.State, x.Reason = b.serves(m, report)
	}
}

// leftAlone tells whether the node that a Machine may be as well has nothing any more.
func (b *Balancer) leftAlone(m *Machine, report *Report) bool {
	node := m.Member(report.Members)
	return node == nil || node.Drained
}

// serves says how a Machine does as the server of each family of the balancer. The one counts
// that it is worse with.
func (b *Balancer) serves(m *Machine, report *Report) (v1alpha1.MemberState, string) {
	if slices.ContainsFunc(b.Addrs(), func(a netip.Addr) bool { return slices.Contains(report.Taken, a) }) {
		return v1alpha1.MemberUnhealthy, MemberAddressTaken
	}
	families := b.families()
	if len(families) == 0 || len(m.Addresses) == 0 {
		return v1alpha1.MemberPending, MemberNoServer
	}
	for _, vip := range families {
		a, ok := m.serverAt(vip, report.Avoid, b.Addrs())
		if !ok {
			return v1alpha1.MemberUnhealthy, MemberNoServer
		}
		if b.Check() == nil {
			continue
		}
		switch h, asked := report.Health[b.CheckName(a)]; {
		case !asked:
			return v1alpha1.MemberPending, MemberNotReported
		case h == model.HealthUnknown:
			return v1alpha1.MemberPending, model.ReasonHealthPending.String()
		case !h.Passes():
			return v1alpha1.MemberUnhealthy, model.ReasonUnhealthy.String()
		}
	}
	if report.announced(b.Addrs()[0]) {
		return v1alpha1.MemberActive, MemberServing
	}
	return v1alpha1.MemberActive, MemberStandby
}

// announced tells whether a node of the group answers for an address. One without a session with a
// router that is to hear of the address may be the one that has it.
func (r *Report) announced(addr netip.Addr) bool {
	return r.owned(addr) || slices.ContainsFunc(r.Members, func(n model.MachineMember) bool { return n.Standing[addr] == model.ReasonDegraded })
}

// owned tells whether a node of the group is known to have an address.
func (r *Report) owned(addr netip.Addr) bool {
	return slices.ContainsFunc(r.Members, func(n model.MachineMember) bool { return n.Standing[addr] == model.ReasonOwner })
}

// Speaks tells whether this group is the one to report about a forwarded balancer: it has the
// address, or the one that reported last is of this group, or nobody has. Another group that
// could have the address too is not contradicted for ever.
func (r *Report) Speaks(b *Balancer) bool {
	by := b.Status.ReportedBy
	return by == "" || slices.ContainsFunc(b.Addrs(), r.owned) ||
		slices.ContainsFunc(r.Members, func(n model.MachineMember) bool { return string(n.Node) == by })
}

// Due is when the state of a draining member of a forwarded balancer changes by itself; zero: it
// does not.
func (b *Balancer) Due() (next time.Time) {
	if !b.Forwarded() {
		return time.Time{}
	}
	for i := range b.Status.Members {
		if x := &b.Status.Members[i]; x.State == v1alpha1.MemberDraining {
			if end := x.Since.Add(b.drainTimeout() + time.Second); next.IsZero() || end.Before(next) {
				next = end
			}
		}
	}
	return next
}
