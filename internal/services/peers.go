package services

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/resolve"
)

// readPeers resolves the BGPPeers. One that a node with these labels cannot have is
// left out with a problem, and the others stay.
func (c *config) readPeers(labels map[string]string) {
	profiles := make(map[string]*v1alpha1.BFDProfile)
	for _, p := range c.objects.Profiles {
		profiles[p.Metadata.Name] = p
	}
	var router string
	byAddr := make(map[netip.Addr]string)
	for _, o := range c.objects.Peers {
		name, s := o.Metadata.Name, &o.Spec
		here := selects(s.NodeSelectors, labels)
		profile := profiles[s.BFDProfile]
		if text := c.lacking(s, profile, here); text != "" {
			c.bad(v1alpha1.KindBGPPeer, name, "%s: there is no session", text)
			continue
		}
		p := resolve.Peer(o, profile, c.objects.Secrets)
		if here {
			if other, again := byAddr[p.Address]; again {
				c.bad(v1alpha1.KindBGPPeer, name, "spec.peerAddress %q is also that of BGPPeer %q on this node: there is no second session", s.PeerAddress, other)
				continue
			}
			if s.RouterID != "" && router != "" && s.RouterID != router {
				c.bad(v1alpha1.KindBGPPeer, name, "spec.routerID %s is not the one of the other peers of this node, %s: there is no session", s.RouterID, router)
				continue
			}
			byAddr[p.Address] = name
			if s.RouterID != "" {
				router = s.RouterID
			}
		}
		c.peers = append(c.peers, p)
	}
}

// lacking says what a peer names and is not there; empty: nothing.
func (c *config) lacking(s *v1alpha1.BGPPeerSpec, profile *v1alpha1.BFDProfile, here bool) string {
	if s.BFDProfile != "" && profile == nil {
		return "spec.bfdProfile names \"" + s.BFDProfile + "\", and there is no valid BFDProfile of that name"
	}
	if !here { // the files need only be where the session is
		return ""
	}
	if _, ok := c.objects.Secrets[s.PasswordFile]; s.PasswordFile != "" && !ok {
		return "spec.passwordFile " + s.PasswordFile + " cannot be read on this node"
	}
	if profile != nil && profile.Spec.AuthKeyFile != "" {
		if _, ok := c.objects.Secrets[profile.Spec.AuthKeyFile]; !ok {
			return "spec.authKeyFile " + profile.Spec.AuthKeyFile + " of BFDProfile \"" + s.BFDProfile + "\" cannot be read on this node"
		}
	}
	return ""
}

// selects tells whether a node with these labels matches the selectors of a peer.
func selects(list []v1alpha1.LabelSelector, labels map[string]string) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(s v1alpha1.LabelSelector) bool {
		return v1alpha1.Selector{MatchLabels: s.MatchLabels}.Matches(labels)
	})
}

// readVirtual resolves the VirtualIPs. An address that is taken is left out.
func (c *config) readVirtual(communities map[string]v1alpha1.CommunityValue) {
	const kind = v1alpha1.KindVirtualIP
	owner := make(map[netip.Addr]string)
	for _, o := range c.objects.VirtualIPs {
		name := o.Metadata.Name
		noBGP := o.Spec.Advertise != nil && o.Spec.Advertise.BGP != nil && !c.resolvable(kind, name, o.Spec.Advertise.BGP, communities)
		for _, v := range resolve.VIPs(o, communities) {
			if noBGP {
				v.BGP = nil
			}
			if other, again := owner[v.Addr]; again {
				c.bad(kind, name, "the address %s is also one of VirtualIP %q, which has it", v.Addr, other)
				continue
			}
			owner[v.Addr] = name
			if p := c.pools.find(v.Addr); p >= 0 {
				c.bad(kind, name, "the address %s is in IPAddressPool %q: no Service is announced with it", v.Addr, c.objects.Pools[p].Metadata.Name)
			}
			c.virtual = append(c.virtual, v)
		}
		if o.Spec.HealthCheck != nil {
			c.checks[name] = *o.Spec.HealthCheck
		} else {
			c.warnings = append(c.warnings, Problem{kind, name, "spec.healthCheck: " + resolve.NoHealthCheck})
		}
	}
	slices.SortFunc(c.virtual, byAddress)
	slices.SortFunc(c.warnings, Problem.Compare)
}

func byAddress(a, b model.VIP) int { return a.Addr.Compare(b.Addr) }
