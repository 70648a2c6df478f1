package services

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/agree"
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
		here := agree.Selects(s.NodeSelectors, labels)
		profile := profiles[s.BFDProfile]
		if text := c.lacking(s, profile, here); text != "" {
			c.bad(v1alpha1.KindBGPPeer, name, "%s: there is no session", text)
			continue
		}
		p := resolve.Peer(o, profile, c.objects.Secrets)
		if s.PasswordSecret != nil {
			p.Password, p.Lacks = c.password(name, s.PasswordSecret, here)
		}
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

// password returns the key that a Secret has for a peer, or why there is none: a session
// without its password is no session.
func (c *config) password(peer string, ref *v1alpha1.SecretReference, here bool) (key, lacks string) {
	if own := c.objects.Namespace; ref.Namespace != "" && ref.Namespace != own {
		lacks = fmt.Sprintf("spec.passwordSecret.namespace %q is not that of lbd, %q", ref.Namespace, own)
		c.bad(v1alpha1.KindBGPPeer, peer, "%s: there is no session", lacks)
		return "", lacks
	}
	if !here {
		return "", "its Secret is read only on nodes that spec.nodeSelectors match"
	}
	p, ok := c.objects.Passwords[ref.Name]
	if !ok {
		p.Lacks = "is not read yet"
	}
	if p.Lacks != "" {
		lacks = fmt.Sprintf("spec.passwordSecret: Secret %q in namespace %q %s", ref.Name, c.objects.Namespace, p.Lacks)
		c.bad(v1alpha1.KindBGPPeer, peer, "%s: there is no session", lacks)
	}
	return p.Key, lacks
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

// readVirtual resolves the VirtualIPs and LoadBalancers. An address that is taken is left out.
func (c *config) readVirtual(communities map[string]v1alpha1.CommunityValue) {
	const kind = v1alpha1.KindVirtualIP
	taken := make(map[netip.Addr]bool)
	for _, o := range c.objects.VirtualIPs {
		name := o.Metadata.Name
		for _, v := range resolve.VIPs(o, communities) {
			if c.mute[[2]string{kind, name}] {
				v.BGP = nil
			}
			if taken[v.Addr] {
				continue
			}
			taken[v.Addr] = true
			c.virtual = append(c.virtual, v)
		}
		if o.Spec.HealthCheck != nil {
			c.checks[name] = *o.Spec.HealthCheck
		} else {
			c.warnings = append(c.warnings, Problem{kind, name, "spec.healthCheck: " + resolve.NoHealthCheck})
		}
	}
	c.readBalancers(taken, communities)
	slices.SortFunc(c.virtual, byAddress)
	slices.SortFunc(c.warnings, Problem.Compare)
}

// maxForwardings bounds what all LoadBalancers of a cluster ask of each node, which serves others as
// well. Objects that ask for more are left out, the last by name first. What is left is for tenants.
const maxForwardings = 2 * v1alpha1.MaxForwardings

// readBalancers resolves the LoadBalancers. An address that is taken is left out.
func (c *config) readBalancers(taken map[netip.Addr]bool, communities map[string]v1alpha1.CommunityValue) {
	announced := c.objects.allVIPs()
	for _, o := range c.objects.LoadBalancers {
		name := o.Metadata.Name
		selected := c.cluster.backendNodes(o, announced)
		nodes, ways := fitting(o, selected)
		if left := len(selected) - len(nodes); left > 0 {
			c.bad(v1alpha1.KindLoadBalancer, name, "spec.backendNodes: %d backends are left out, since there may be %d with those of spec.backends, and %d ways from an address and a port to a backend",
				left, v1alpha1.MaxBackends, v1alpha1.MaxForwardings)
		}
		c.selectsBackends = c.selectsBackends || o.Spec.BackendNodes != nil
		if text := lacksBackends(o, nodes); text != "" {
			c.bad(v1alpha1.KindLoadBalancer, name, "%s", text)
		}
		if c.forwardings+ways > maxForwardings {
			c.bad(v1alpha1.KindLoadBalancer, name, "with the LoadBalancers before it, by name, there are more than %d ways from an address and a port to a backend: nothing is forwarded", maxForwardings)
			continue
		}
		c.forwardings += ways
		lb, vips, checks := resolve.LoadBalancer(o, nodes, communities)
		lb.VIPs = slices.DeleteFunc(lb.VIPs, func(a netip.Addr) bool { return taken[a] })
		for _, v := range vips {
			if !taken[v.Addr] {
				taken[v.Addr] = true
				if c.mute[[2]string{v1alpha1.KindLoadBalancer, name}] {
					v.BGP = nil
				}
				c.virtual = append(c.virtual, v)
			}
		}
		if len(lb.VIPs) > 0 {
			c.balancers = append(c.balancers, lb)
			maps.Copy(c.checks, checks)
		}
		if o.Spec.HealthCheck == nil {
			c.warnings = append(c.warnings, Problem{v1alpha1.KindLoadBalancer, name, "spec.healthCheck: " + resolve.NoBackendCheck})
		}
	}
}

func byAddress(a, b model.VIP) int { return a.Addr.Compare(b.Addr) }
