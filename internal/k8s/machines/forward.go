package machines

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
)

// forward adds a balancer whose connections are forwarded to its members. own is the object of
// this node of the kind of the members. found: the objects that it is about are there.
func (p *publisher) forward(f *facts, x machines.Balanced, all []*machines.Machine, own *machines.Machine) (found bool) {
	b, rules := x.Balancer, &p.s.rules
	members := b.Members(all)
	found = len(members) > 0 && rules.Holds(b, own)
	if !rules.Follows(b, members, own) || b.Status.Endpoint == nil && b.Status.ObservedGeneration != 0 || b.Refusal(members, f.machines.Balanced) != "" {
		return found
	}
	if p.forsaken(b, members, all) {
		p.keep(f, b)
		return found
	}
	lb, checks := b.Forwarding(members, rules, f.machines.Balanced)
	n := len(x.Addrs) * len(lb.Servers)
	if f.forwardings+n > p.s.mostForwardings {
		p.tooMany(b)
		return found
	}
	f.forwardings += n
	maps.Copy(f.checks, checks)
	f.machines.Checks = slices.AppendSeq(f.machines.Checks, maps.Keys(checks))
	if !rules.Holds(b, own) {
		return found
	}
	lb.VIPs = slices.SortedFunc(slices.Values(x.Addrs), netip.Addr.Compare)
	f.balancers = append(f.balancers, lb)
	for _, addr := range x.Addrs {
		f.vips = append(f.vips, vip(b, addr))
	}
	if p.clusters == nil {
		p.clusters = map[string]model.Key{}
	}
	if len(members) > 0 {
		p.clusters[b.String()] = members[0].Cluster()
	}
	return found
}

// maxForwardings bounds how many ways from an address to a Machine all balancers together may ask of
// a host: each is a check, and a part of each decision.
const maxForwardings = 20_000

// tooMany logs once that a balancer is not served since there are too many Machines.
func (p *publisher) tooMany(b *machines.Balancer) {
	if p.refused == nil {
		p.refused = map[string]bool{}
	}
	if !p.refused[b.String()] && len(p.refused) < 100 {
		p.refused[b.String()] = true
		p.s.o.Logger.Warn("a balancer is not forwarded here: all balancers together have too many Machines", "balancer", b.String(), "most", p.s.mostForwardings)
	}
}

// forsaken tells whether all Machines of a balancer are gone at once that were in service: they
// are being moved, or the API has lost them. Those that are really deleted drain first.
func (p *publisher) forsaken(b *machines.Balancer, members, all []*machines.Machine) bool {
	i := slices.IndexFunc(p.told.balancers, func(lb model.LoadBalancer) bool { return lb.Name == b.String() })
	if len(members) > 0 || i < 0 || !slices.ContainsFunc(p.told.balancers[i].Servers, func(x model.Server) bool { return x.Weight > 0 }) {
		return false
	}
	return !slices.ContainsFunc(all, func(m *machines.Machine) bool { return m.Target == b.Target() && m.Cluster() == p.clusters[b.String()] })
}

// moving has the Set forget that a cluster was moved away whose Machines are back.
func (p *publisher) moving(set *Set, all []*machines.Machine) {
	for _, k := range p.clusters {
		if slices.ContainsFunc(all, func(m *machines.Machine) bool { return m.Cluster() == k }) {
			set.Moved(k, false)
		}
	}
}

// moved tells whether an address that is forwarded here is gone since its cluster was moved to
// another management cluster. It stays until this node reads that one.
func (p *publisher) moved(v *model.VIP, set *Set) bool {
	k, ok := p.clusters[v.Name]
	return ok && v.Forwarded() && set.Moved(k, true)
}

// takeForwarded adds what was forwarded for an address as it was told, with the checks.
func (f *facts) takeForwarded(v model.VIP, told *facts) {
	if i := slices.IndexFunc(f.balancers, func(lb model.LoadBalancer) bool { return lb.Name == v.Name }); i >= 0 {
		lb := &f.balancers[i]
		if !slices.Contains(lb.VIPs, v.Addr) {
			lb.VIPs = slices.SortedFunc(slices.Values(append(slices.Clone(lb.VIPs), v.Addr)), netip.Addr.Compare)
		}
		return
	}
	i := slices.IndexFunc(told.balancers, func(lb model.LoadBalancer) bool { return lb.Name == v.Name })
	if i < 0 {
		return
	}
	lb := told.balancers[i]
	lb.VIPs = []netip.Addr{v.Addr}
	f.balancers = append(f.balancers, lb)
	for _, x := range lb.Servers {
		if h, ok := told.checks[x.Check]; ok {
			f.checks[x.Check] = h
			f.machines.Checks = append(f.machines.Checks, x.Check)
		}
	}
}

// concerns tells whether this node has something to report about a balancer.
func (r *reporter) concerns(b *machines.Balancer, members, all []*machines.Machine, report *machines.Report, addrs []netip.Addr) bool {
	if !b.Forwarded() {
		return report.Concerns(members)
	}
	self := machines.Self(all, r.s.me(addrs), &r.s.rules, b.Target())
	return r.s.rules.Follows(b, members, self) && report.Speaks(b)
}

// vipsOf are the addresses of all balancers that are in use.
func vipsOf(all []*machines.Balancer) (out []netip.Addr) {
	for _, b := range all {
		if b.Usable() {
			out = append(out, b.Addrs()...)
		}
	}
	return out
}
