package agree

import (
	"fmt"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
)

// stretch is a prefix of a listener, or an address, which is the prefix of it alone.
type stretch struct {
	at     Field
	prefix netip.Prefix
}

func (j *Judge) listener(i int, path string, value any) Field {
	return Field{v1alpha1.KindBGPListener, j.Listeners[i].Metadata.Name, i, path, value}
}

// listeners judges the BGPListeners: what they accept belongs to nobody else, masters belong to
// one of them, and the machine has one seed.
func (j *Judge) listeners() {
	if len(j.Listeners) == 0 {
		return
	}
	j.listenersBesideNode()
	var peers, accept []stretch
	for i, o := range j.Listeners {
		peers = j.stretches(peers, i, "spec.peerPrefixes", o.Spec.PeerPrefixes)
		accept = j.stretches(accept, i, "spec.acceptPrefixes", o.Spec.AcceptPrefixes)
		if at := j.listener(i, "spec.bfdProfile", o.Spec.BFDProfile); o.Spec.BFDProfile != "" {
			if _, ok := j.index.named[v1alpha1.KindBFDProfile][o.Spec.BFDProfile]; !ok && j.Complete && !j.broken(at) {
				j.find(UnknownProfile, at, Field{})
			}
		}
		first := j.Listeners[0].Spec.HashSeed
		if at := j.listener(i, "spec.hashSeed", o.Spec.HashSeed); o.Spec.HashSeed != first && !j.broken(at) {
			j.find(SeedTwice, at, j.listener(0, "spec.hashSeed", first))
		}
		j.upstream(i, o)
	}
	j.apart(PeersOverlap, peers)
	j.apart(AcceptOverlaps, accept)
	j.ofNobodyElse(accept, peers)
	j.eachPlace(j.peerAddress, func(_ int, at Field, p place) {
		if n := slices.IndexFunc(peers, func(s stretch) bool { return s.prefix.Contains(p.addr) }); n >= 0 {
			j.find(PeerIsMaster, at, peers[n].at)
		}
	})
}

// stretches adds those of the prefixes of a field that are not broken.
func (j *Judge) stretches(all []stretch, i int, path string, texts []string) []stretch {
	for n, text := range texts {
		at := j.listener(i, fmt.Sprintf("%s[%d]", path, n), text)
		if p, err := netip.ParsePrefix(text); err == nil && !j.broken(at) {
			all = append(all, stretch{at, p})
		}
	}
	return all
}

// listenersBesideNode refuses listeners on a machine of a cluster.
func (j *Judge) listenersBesideNode() {
	if j.Node == nil || j.Node.Kubernetes == nil {
		return
	}
	for i := range j.Listeners {
		j.find(ListenerInCluster, j.listener(i, "kind", v1alpha1.KindBGPListener), j.node("kubernetes", nil))
	}
}

// apart finds prefixes that overlap with one of another object. The object itself is judged by
// its own rules.
func (j *Judge) apart(rule Rule, all []stretch) {
	for i, s := range all {
		n := slices.IndexFunc(all[:i], func(o stretch) bool { return o.at.Index != s.at.Index && o.prefix.Overlaps(s.prefix) })
		if n >= 0 {
			j.find(rule, s.at, all[n].at)
		}
	}
}

// ofNobodyElse finds accepted prefixes that hold what this machine or another object has.
func (j *Judge) ofNobodyElse(accept, peers []stretch) {
	var others []stretch
	j.eachAddress(func(at Field, addr netip.Addr) { others = append(others, alone(at, addr)) })
	j.eachPlace(j.peerAddress, func(_ int, at Field, p place) { others = append(others, alone(at, p.addr)) })
	j.eachPlace(j.sourceAddress, func(_ int, at Field, p place) { others = append(others, alone(at, p.addr)) })
	for addr, path := range j.nodeAddresses() {
		others = append(others, alone(j.node(path, addr.String()), addr))
	}
	if j.Node != nil {
		for i, text := range j.Node.Gossip.Peers {
			host, _, _ := v1alpha1.SplitPeer(text) // empty if it is wrong
			if addr, err := netip.ParseAddr(host); err == nil {
				others = append(others, alone(j.node(fmt.Sprintf("gossip.peers[%d]", i), text), addr))
			}
		}
	}
	for _, s := range accept {
		within := func(o stretch) bool {
			return s.prefix.Bits() <= o.prefix.Bits() && s.prefix.Contains(o.prefix.Addr())
		}
		if n := slices.IndexFunc(others, within); n >= 0 {
			j.find(AcceptIsTaken, s.at, others[n].at)
			continue
		}
		// The own peerPrefixes are judged by the rules of the object.
		n := slices.IndexFunc(peers, func(o stretch) bool { return o.at.Index != s.at.Index && within(o) })
		if n >= 0 {
			j.find(AcceptIsTaken, s.at, peers[n].at)
		}
	}
}

func alone(at Field, addr netip.Addr) stretch {
	return stretch{at, netip.PrefixFrom(addr.WithZone(""), addr.BitLen())}
}

// upstream finds listeners whose prefixes no router is told of.
func (j *Judge) upstream(i int, o *v1alpha1.BGPListener) {
	at := j.listener(i, "spec.upstream", string(o.Spec.Upstream))
	if o.Spec.Upstream != v1alpha1.UpstreamBGP || !j.Complete || j.broken(at) {
		return
	}
	var told []*v1alpha1.BGPPeer
	for _, p := range j.Peers {
		if j.Node == nil || Selects(p.Spec.NodeSelectors, j.Node.NodeLabels) {
			told = append(told, p)
		}
	}
	if len(told) == 0 {
		j.find(NoUpstream, at, Field{})
		return
	}
	for n, text := range o.Spec.AcceptPrefixes {
		p, err := netip.ParsePrefix(text)
		if err == nil && !slices.ContainsFunc(told, func(x *v1alpha1.BGPPeer) bool { return x.Spec.Has(FamilyOf(p.Addr())) }) {
			j.find(FamilyUntold, j.listener(i, fmt.Sprintf("spec.acceptPrefixes[%d]", n), text), Field{Value: FamilyOf(p.Addr())})
		}
	}
}
