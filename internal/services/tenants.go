package services

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/agree"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// readTenants adds what the Services of tenants lead to. What is judged here is what the kernel of
// this node does, whatever the controller has written.
func (c *config) readTenants() {
	if len(c.objects.Tenants)+len(c.objects.TenantNodes)+len(c.objects.TenantServices) == 0 {
		return
	}
	c.selectsBackends = true // a new Node may have an address that a tenant says it has
	c.judged = JudgeTenants(&c.objects, c.cluster.nodes, maxForwardings-c.forwardings)
	out := &c.judged
	for key, v := range out.Services {
		if v.Reason == tenants.ReasonNoRoom || v.Reason == tenants.ReasonNotAnnounced {
			c.bad(v1alpha1.KindTenantService, key.String(), "%s", v.Message)
		}
	}
	c.tenants = make(map[netip.Addr]*model.LoadBalancer)
	for i := range out.Served {
		s := &out.Served[i]
		for _, a := range s.VIPs {
			c.tenants[a] = s
		}
		c.balancers = append(c.balancers, *s)
	}
	maps.Copy(c.checks, out.Checks)
	slices.SortFunc(c.balancers, func(a, b model.LoadBalancer) int { return cmp.Compare(a.Name, b.Name) })
}

// Tenants is what is said of the objects of tenants, as of the last Build.
func (b *Builder) Tenants() tenants.Output { return b.config.judged }

// JudgeTenants judges the objects of tenants in a cluster with these objects and Nodes, the hub, which
// has room for so many ways from an address and a port to a node.
func JudgeTenants(o *Objects, nodes map[string]*Node, room int) tenants.Output {
	in := &tenants.Input{
		Room:    room,
		Tenants: o.Tenants, Nodes: o.TenantNodes, Services: o.TenantServices, Rests: o.TenantRests,
		Hub: tenants.Hub{Hosts: make(map[netip.Addr]string)}, Pools: make(map[string][]v1alpha1.AddressRange), Announced: make(map[string]tenants.Announced),
	}
	for _, p := range o.Pools {
		in.Announced[p.Metadata.Name] = o.announced(p)
		for _, text := range p.Spec.Addresses {
			if r, err := v1alpha1.ParseAddressRange(text); err == nil {
				in.Pools[p.Metadata.Name] = append(in.Pools[p.Metadata.Name], r)
				in.Hub.Protected = append(in.Hub.Protected, tenants.Protected{AddressRange: r, What: "the IPAddressPool " + p.Metadata.Name})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		for _, a := range nodes[name].Addresses {
			in.Hub.Hosts[a] = "the Node " + name + " of the hub"
		}
		for _, p := range nodes[name].PodCIDRs {
			in.Hub.Protected = append(in.Hub.Protected, tenants.Protected{AddressRange: v1alpha1.RangeOf(p), What: "the Pods of the Node " + name + " of the hub"})
		}
	}
	hosts := func(what string, texts ...string) {
		for _, text := range texts {
			if a, err := netip.ParseAddr(text); err == nil {
				in.Hub.Hosts[a] = what
			}
		}
	}
	for _, p := range o.Peers {
		hosts("the BGPPeer "+p.Metadata.Name, p.Spec.PeerAddress)
	}
	for _, v := range o.VirtualIPs {
		hosts("the VirtualIP "+v.Metadata.Name, v.Spec.Addresses...)
	}
	for _, b := range o.LoadBalancers {
		hosts("the LoadBalancer "+b.Metadata.Name, b.Spec.Addresses...)
	}
	return tenants.Judge(in)
}

// announced is how a pool is announced for Services without labels, as those of tenants are.
func (o *Objects) announced(p *v1alpha1.IPAddressPool) tenants.Announced {
	return tenants.Announced{
		L2: slices.ContainsFunc(o.L2Advertisements, func(a *v1alpha1.L2Advertisement) bool {
			return agree.Covers(a.Spec.IPAddressPools, a.Spec.IPAddressPoolSelectors, p) && anyMatches(a.Spec.ServiceSelectors, nil)
		}),
		BGP: slices.ContainsFunc(o.BGPAdvertisements, func(a *v1alpha1.BGPAdvertisement) bool {
			return agree.Covers(a.Spec.IPAddressPools, a.Spec.IPAddressPoolSelectors, p) && anyMatches(a.Spec.ServiceSelectors, nil)
		}),
	}
}

// addTenants adds the addresses of Services of tenants to those that there are.
func (c *config) addTenants(addrs []netip.Addr) []netip.Addr {
	there := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		there[a] = true
	}
	for a := range c.tenants {
		if !there[a] {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// tenantVIP makes the VIP of an address of a Service of a tenant. It is announced by ARP and ND, as
// the L2Advertisements of its pool say: the node that forwards a connection has to hear its answers.
// Routers are told of the same node.
func (b *Builder) tenantVIP(a netip.Addr) (model.VIP, bool) {
	s := b.config.tenants[a]
	pool, _ := b.config.pools.Find(a)
	if s == nil || pool < 0 || len(b.byAddr[a]) > 0 { // of a Service of the hub and one of a tenant the first counts
		return model.VIP{}, false
	}
	p := b.planOf(pool, a, nil)
	v := model.VIP{Addr: a, Name: s.Name, Kind: model.KindTenantService, Unbound: true, L2: p.l2, Interfaces: p.interfaces, Preference: p.preference}
	if p.l2 && !s.ClientSource { // else nobody owns it, or answers would not come back by a router
		p.owned = b.known(p.ofOwner())
		v.BGP = p.owned
	}
	switch {
	case !p.l2Here:
		v.Barred, v.BarredDetail = model.ReasonNotSelected, "no L2Advertisement for the address selects this node"
	case b.bar != "":
		v.Barred, v.BarredDetail = model.ReasonNodeExcluded, b.bar
	}
	return v, true
}

// toNobody has a node count as one without a session: no peer has this name.
var toNobody = []model.BGPAdvert{{Peers: []string{""}}}

// ofOwner is how the one node that owns an address advertises it. Each address is advertised by itself,
// beside the prefixes that are asked for: others in them may be on other nodes. A node that no
// BGPAdvertisement selects comes after those that routers hear of, as one without a session does.
func (p *plan) ofOwner() []model.BGPAdvert {
	switch {
	case p.owned != nil || len(p.bgp) == 0:
		return p.owned
	case !p.bgpHere:
		return toNobody
	}
	all := p.bgp
	for _, x := range p.bgp {
		alone := func(y model.BGPAdvert) bool { return y.Length == 0 && tells(y.Peers, x.Peers) }
		if x.Length > 0 && !slices.ContainsFunc(all, alone) {
			x.Length = 0
			all = append(all[:len(all):len(all)], x)
		}
	}
	return all
}

// tells tells whether all of some peers are in a list, of which an empty one means all.
func tells(list, some []string) bool {
	return len(list) == 0 || len(some) > 0 && !slices.ContainsFunc(some, func(n string) bool { return !slices.Contains(list, n) })
}
