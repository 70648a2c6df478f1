package services

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/agree"
	"lbd.dev/lbd/internal/model"
)

// cluster is what a configuration needs to know of the Nodes.
type cluster struct {
	nodes        map[string]*Node
	cordonDrains bool
}

// backendNodes returns the servers that spec.backendNodes of a LoadBalancer selects. An address that
// spec.backends lists is left to that entry, with its weight; one of vips, which a Node reports while
// it has that, is none of a server.
// The label ExcludeLabel does not count, as for a VirtualIP: who selects a node wants it.
func (c *cluster) backendNodes(lb *v1alpha1.LoadBalancer, vips map[netip.Addr]bool) []model.Server {
	selector := lb.Spec.BackendNodes
	if selector == nil {
		return nil
	}
	listed := make(map[netip.Addr]bool)
	for _, b := range lb.Spec.Backends {
		if addr, err := netip.ParseAddr(b.Address); err == nil {
			listed[addr] = true
		}
	}
	own := addressesOf(lb.Spec.Addresses)
	var stay, leave []*Node
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		n := c.nodes[name]
		if !agree.Selects([]v1alpha1.LabelSelector{*selector}, n.Labels) {
			continue
		}
		// Whether other Nodes are ready is no question here: a server that leaves still serves
		// while no other can.
		if n.leaving(true, c.cordonDrains) != "" {
			leave = append(leave, n)
		} else {
			stay = append(stay, n)
		}
	}
	var servers []model.Server
	// Of Nodes that report one address the first that stays counts: that of a machine which was
	// replaced under another name may be there for long.
	for i, n := range slices.Concat(stay, leave) {
		server := model.Server{Weight: v1alpha1.DefaultBackendWeight}
		if i >= len(stay) {
			server.Weight, server.Leaving = 0, true
		}
		for _, four := range []bool{true, false} {
			ofFamily := func(a netip.Addr) bool { return a.Is4() == four && isOfHost(a) && !listed[a] && !vips[a] }
			at := slices.IndexFunc(n.Addresses, ofFamily)
			if at >= 0 && slices.ContainsFunc(own, func(vip netip.Addr) bool { return vip.Is4() == four }) {
				server.Addr = n.Addresses[at]
				listed[server.Addr] = true // a second Node that reports it is no second server
				servers = append(servers, server)
			}
		}
	}
	return servers
}

// fitting returns the selected servers that a LoadBalancer may have beside those of spec.backends, the
// first of them, and how many ways there are then from an address and a port to a backend. Nodes that
// stay are before those that are about to go.
func fitting(lb *v1alpha1.LoadBalancer, selected []model.Server) (fit []model.Server, ways int) {
	var waysToOne [2]int // server, by family
	for _, vip := range addressesOf(lb.Spec.Addresses) {
		waysToOne[isV6(vip.Is6())] += len(lb.Spec.Ports)
	}
	ways = lb.Forwardings()
	for _, s := range selected {
		more := waysToOne[isV6(s.Addr.Is6())]
		if len(lb.Spec.Backends)+len(fit) < v1alpha1.MaxBackends && ways+more <= v1alpha1.MaxForwardings {
			fit, ways = append(fit, s), ways+more
		}
	}
	return fit, ways
}

// isOfHost tells whether an address may be that of a server: whoever writes the status of a Node may
// report any.
func isOfHost(a netip.Addr) bool { return a.IsGlobalUnicast() && a.Zone() == "" }

func (o *Objects) allVIPs() map[netip.Addr]bool {
	all := make(map[netip.Addr]bool)
	add := func(texts []string) {
		for _, a := range addressesOf(texts) {
			all[a] = true
		}
	}
	for _, v := range o.VirtualIPs {
		add(v.Spec.Addresses)
	}
	for _, lb := range o.LoadBalancers {
		add(lb.Spec.Addresses)
	}
	return all
}

// addressesOf are the addresses of a valid object.
func addressesOf(texts []string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			all = append(all, addr)
		}
	}
	return all
}

// lacksBackends says for which address a LoadBalancer has no backend although it selects Nodes;
// empty: for none.
func lacksBackends(lb *v1alpha1.LoadBalancer, selected []model.Server) string {
	if lb.Spec.BackendNodes == nil {
		return ""
	}
	var families [2]bool
	for _, s := range selected {
		families[isV6(s.Addr.Is6())] = true
	}
	for _, b := range lb.Spec.Backends {
		if addr, err := netip.ParseAddr(b.Address); err == nil {
			families[isV6(addr.Is6())] = true
		}
	}
	for _, vip := range addressesOf(lb.Spec.Addresses) {
		if !families[isV6(vip.Is6())] {
			return fmt.Sprintf("spec.backendNodes: no Node that matches has an InternalIP of the family of %s: no node announces it", vip)
		}
	}
	return ""
}
