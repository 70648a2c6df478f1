package config

import (
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/agree"
	"lbd.dev/lbd/internal/resolve"
)

// slowHoldTime is the longest hold time that passes without BFD and without a
// warning: clients wait that long for a node that died.
const slowHoldTime = 30 * time.Second

// stopDelay is how much of a shutdown delay a daemon that is told to stop waits:
// that of package decide.
const stopDelay = 2 * time.Second

// warnings returns sentences about what is valid but unwise.
func warnings(objects []*object, names *named) []*Error {
	var all []*Error
	announced := coverageOf(objects)
	pair := slices.ContainsFunc(objects, func(o *object) bool { return o.node != nil && isPair(o.node) })
	for _, o := range objects {
		warn := func(path, text string) {
			all = append(all, o.about(o.placeOf(path), v1alpha1.FieldError{Path: path, Rule: text}))
		}
		switch b := o.body.(type) {
		case *v1alpha1.NodeConfiguration:
			warnNode(b, warn)
		case *v1alpha1.VirtualIP:
			warnVIP(b, names, warn)
			if a := b.Spec.Advertise; a == nil || a.BGP == nil {
				warnQuorum(b.Spec.Partition, pair, warn)
			}
		case *v1alpha1.LoadBalancer:
			warnBalancer(&b.Spec, names, warn)
			warnQuorum(b.Spec.Partition, pair, warn)
		case *v1alpha1.BGPPeer:
			warnPeer(o, warn)
		case *v1alpha1.BGPListener:
			warnListener(&b.Spec, warn)
		case *v1alpha1.IPAddressPool:
			warnPool(b, announced, warn)
		case *v1alpha1.L2Advertisement:
			warnSelectors(b.Spec.IPAddressPoolSelectors, names, warn)
		case *v1alpha1.BGPAdvertisement:
			warnAdvertisement(&b.Spec, names, warn)
		}
	}
	return all
}

func warnNode(n *v1alpha1.NodeConfiguration, warn func(path, text string)) {
	if n.Gossip.Insecure {
		warn("gossip.insecure", "anybody on the network can take over every VIP; `lbd keygen` prints a key")
	}
	if n.HTTP.Pprof && !onLoopback(*n.HTTP.Address) {
		warn("http.pprof", "other hosts can profile and slow down this daemon")
	}
	if m := n.Machines; m != nil && m.HookTimeout.Duration != v1alpha1.DefaultHookTimeout {
		warn("machines.hookTimeout", "has no effect: spec.drain.timeout of a MachineLoadBalancer and --hook-timeout of its controller bound a hold")
	}
}

// isPair tells whether the group has two nodes, as far as its files say: this one is among the
// peers, or there is one peer.
func isPair(n *v1alpha1.NodeConfiguration) bool {
	g := &n.Gossip
	return n.Kubernetes == nil && (len(g.Peers) == 1 && g.Peers[0] != g.BindAddress || len(g.Peers) == 2 && (g.BindAddress == "" || slices.Contains(g.Peers, g.BindAddress)))
}

// warnQuorum warns about a majority of two.
func warnQuorum(p v1alpha1.PartitionPolicy, pair bool, warn func(path, text string)) {
	if p == v1alpha1.PartitionQuorum && pair {
		warn("spec.partition", "of two nodes only both are a majority: when one dies, the other one gives the address up. Add a third peer, which need not be able to have it")
	}
}

// onLoopback tells whether only this host reaches a listener at address.
func onLoopback(address string) bool {
	ap, err := netip.ParseAddrPort(address)
	return err == nil && ap.Addr().IsLoopback()
}

func warnPeer(o *object, warn func(path, text string)) {
	s := &o.peer.Spec
	if s.Password != "" && worldReadable(o.mode) {
		warn("spec.password", fmt.Sprintf("every user of this host can read it (mode %04o); chmod 600, or use passwordFile", o.mode.Perm()))
	}
	if delay := *s.GracefulShutdownDelay; delay.Duration > stopDelay {
		warn("spec.gracefulShutdownDelay", fmt.Sprintf("a daemon that stops waits %v of it; `lbd drain` first waits for all of it", stopDelay))
	}
	if s.BFDProfile != "" {
		if s.EnableGracefulRestart {
			warn("spec.enableGracefulRestart", "most routers drop routes on BFD loss whatever graceful restart says; see docs/configuration.md")
		}
		return
	}
	switch hold := s.HoldTime.Duration; {
	case hold == 0:
		warn("spec.holdTime", "a node that dies is never noticed by the session; set bfdProfile")
	case hold > slowHoldTime:
		warn("spec.holdTime", fmt.Sprintf("a node that dies is noticed only after %v; set bfdProfile", *s.HoldTime))
	}
}

func warnListener(s *v1alpha1.BGPListenerSpec, warn func(path, text string)) {
	if s.PasswordFile == "" {
		warn("spec.passwordFile", "there is none: every machine in peerPrefixes can draw connections to itself")
	}
	if s.BFDProfile == "" && s.HoldTime.Duration > slowHoldTime {
		warn("spec.holdTime", fmt.Sprintf("a master that dies is noticed only after %v; set bfdProfile", s.HoldTime))
	}
	for i, text := range s.AcceptPrefixes {
		six := strings.Contains(text, ":")
		if !slices.ContainsFunc(s.PeerPrefixes, func(p string) bool { return strings.Contains(p, ":") == six }) {
			warn(fmt.Sprintf("spec.acceptPrefixes[%d]", i), "no prefix of peerPrefixes is of its family, so no next hop of that family is accepted")
		}
	}
}

// worldReadable tells whether every user of the host may use a file.
func worldReadable(mode fs.FileMode) bool { return mode.Perm()&0o007 != 0 }

func warnVIP(v *v1alpha1.VirtualIP, names *named, warn func(path, text string)) {
	if v.Spec.HealthCheck == nil {
		warn("spec.healthCheck", resolve.NoHealthCheck)
	}
	if h := v.Spec.HealthCheck; h != nil && h.HTTPS != nil && h.HTTPS.InsecureSkipVerify {
		warn("spec.healthCheck.https.insecureSkipVerify", "any server that listens on the port passes the check")
	}
	a := v.Spec.Advertise
	if a == nil || a.BGP == nil {
		return
	}
	if a.L2 == nil && v.Spec.Preempt {
		warn("spec.preempt", "is only for l2; by BGP every node that may own the address advertises it")
	}
	if v.Spec.Partition == v1alpha1.PartitionQuorum {
		warn("spec.partition", "quorum is about layer 2 only; every healthy node advertises by BGP")
	}
	if peers := warnBGP(a.BGP, names, warn); len(peers) > 0 {
		warnFamilies(v, peers, warn)
		warnNamedPeers(v, names, warn)
	}
}

func warnBalancer(s *v1alpha1.LoadBalancerSpec, names *named, warn func(path, text string)) {
	if s.HealthCheck == nil {
		warn("spec.healthCheck", resolve.NoBackendCheck)
	} else if c := s.HealthCheck.HTTPS; c != nil && c.InsecureSkipVerify {
		warn("spec.healthCheck.https.insecureSkipVerify", "any server that listens on the port passes the check")
	}
	if s.BackendNodes == nil && !slices.ContainsFunc(s.Backends, func(b v1alpha1.Backend) bool { return *b.Weight > 0 }) {
		warn("spec.backends", "all have the weight 0: no connection is served, and no node has the addresses")
	}
	if a := s.Advertise; a != nil && a.BGP != nil {
		warnBGP(a.BGP, names, warn)
	}
}

// warnBGP warns about the way in which addresses are advertised, and returns the
// peers that are told.
func warnBGP(a *v1alpha1.BGPAdvertise, names *named, warn func(path, text string)) []*v1alpha1.BGPPeerSpec {
	peers := peersOf(a, names)
	if len(peers) == 0 {
		warn("spec.advertise.bgp", "there is no BGPPeer to advertise to")
	} else {
		warnPath(a, peers, warn)
	}
	for _, c := range resolve.Communities(a, names.communities) {
		switch {
		case c.IsLarge:
		case c.Standard == v1alpha1.CommunityNoAdvertise:
			warn("spec.advertise.bgp.communities", "NO_ADVERTISE: the peer tells no other router about the address")
		case c.Standard == v1alpha1.CommunityBlackhole:
			warn("spec.advertise.bgp.communities", "BLACKHOLE: routers drop all packets to the address")
		}
	}
	return peers
}

// peersOf returns the peers that are told about a VirtualIP.
func peersOf(a *v1alpha1.BGPAdvertise, names *named) []*v1alpha1.BGPPeerSpec {
	var peers []*v1alpha1.BGPPeerSpec
	for name, o := range names.peers {
		if len(a.Peers) == 0 || slices.Contains(a.Peers, name) {
			peers = append(peers, &o.peer.Spec)
		}
	}
	return peers
}

// warnPath warns about attributes that no peer is told.
func warnPath(a *v1alpha1.BGPAdvertise, peers []*v1alpha1.BGPPeerSpec, warn func(path, text string)) {
	internal := (*v1alpha1.BGPPeerSpec).IsInternal
	external := func(p *v1alpha1.BGPPeerSpec) bool { return !internal(p) }
	if a.LocalPref != nil && !slices.ContainsFunc(peers, internal) {
		warn("spec.advertise.bgp.localPref", "is told to iBGP peers only, and all peers are eBGP")
	}
	if a.ASPathPrepend > 0 && !slices.ContainsFunc(peers, external) {
		warn("spec.advertise.bgp.asPathPrepend", "is told to eBGP peers only, and all peers are iBGP")
	}
}

// warnFamilies warns about addresses that only layer 2 announces.
func warnFamilies(v *v1alpha1.VirtualIP, peers []*v1alpha1.BGPPeerSpec, warn func(path, text string)) {
	for i, text := range v.Spec.Addresses {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		family := agree.FamilyOf(addr)
		if !slices.ContainsFunc(peers, func(p *v1alpha1.BGPPeerSpec) bool { return p.Has(family) }) {
			warn(fmt.Sprintf("spec.addresses[%d]", i), fmt.Sprintf("is announced by l2 only: none of its BGP peers has the family %s", family))
		}
	}
}

// warnNamedPeers warns about peers that a VirtualIP names and that are not told
// all of its addresses. Of a family that no peer has there is another sentence.
func warnNamedPeers(v *v1alpha1.VirtualIP, names *named, warn func(path, text string)) {
	for _, family := range familiesOf(v) {
		var without []int // of the named peers
		for i, name := range v.Spec.Advertise.BGP.Peers {
			if o := names.peers[name]; o != nil && !o.peer.Spec.Has(family) {
				without = append(without, i)
			}
		}
		if len(without) == len(v.Spec.Advertise.BGP.Peers) {
			continue
		}
		for _, i := range without {
			warn(fmt.Sprintf("spec.advertise.bgp.peers[%d]", i),
				fmt.Sprintf("%q is not told the %s addresses: its spec.families lacks %[2]s", v.Spec.Advertise.BGP.Peers[i], family))
		}
	}
}

// familiesOf returns the families of the addresses of a VirtualIP, in the order
// of the addresses.
func familiesOf(v *v1alpha1.VirtualIP) []v1alpha1.AddressFamily {
	var families []v1alpha1.AddressFamily
	for _, text := range v.Spec.Addresses {
		if addr, err := netip.ParseAddr(text); err == nil && !slices.Contains(families, agree.FamilyOf(addr)) {
			families = append(families, agree.FamilyOf(addr))
		}
	}
	return families
}

// coverage is what advertisements are for.
type coverage struct {
	all       bool // some are for every pool
	names     map[string]bool
	selectors []v1alpha1.Selector
}

// coverageOf collects what all advertisements are for.
func coverageOf(objects []*object) *coverage {
	c := &coverage{names: make(map[string]bool)}
	for _, o := range objects {
		switch b := o.body.(type) {
		case *v1alpha1.L2Advertisement:
			c.add(b.Spec.IPAddressPools, b.Spec.IPAddressPoolSelectors)
		case *v1alpha1.BGPAdvertisement:
			c.add(b.Spec.IPAddressPools, b.Spec.IPAddressPoolSelectors)
		}
	}
	return c
}

func (c *coverage) add(names []string, selectors []v1alpha1.Selector) {
	c.all = c.all || len(names) == 0 && len(selectors) == 0
	for _, n := range names {
		c.names[n] = true
	}
	c.selectors = append(c.selectors, selectors...)
}

// warnPool warns about a pool that is for nothing.
func warnPool(p *v1alpha1.IPAddressPool, c *coverage, warn func(path, text string)) {
	if c.all || c.names[p.Metadata.Name] || len(c.selectors) > 0 && agree.Covers(nil, c.selectors, p) {
		return
	}
	warn("metadata.name", "no L2Advertisement or BGPAdvertisement is for this pool: its addresses are given out, and nobody announces them")
}

// warnSelectors warns about selectors of pools that select none.
func warnSelectors(list []v1alpha1.Selector, names *named, warn func(path, text string)) {
	for i, s := range list {
		if !matchesAny(s, names.pools) {
			warn(fmt.Sprintf("spec.ipAddressPoolSelectors[%d]", i), "matches the labels of no IPAddressPool")
		}
	}
}

func matchesAny(s v1alpha1.Selector, pools map[string]*v1alpha1.IPAddressPool) bool {
	for _, p := range pools {
		if s.Matches(p.Metadata.Labels) {
			return true
		}
	}
	return false
}

// warnAdvertisement warns about a BGPAdvertisement as about that part of a
// VirtualIP.
func warnAdvertisement(s *v1alpha1.BGPAdvertisementSpec, names *named, warn func(path, text string)) {
	warnSelectors(s.IPAddressPoolSelectors, names, warn)
	a := &v1alpha1.BGPAdvertise{Peers: s.Peers, Communities: s.Communities}
	if s.LocalPref != 0 {
		a.LocalPref = &s.LocalPref
	}
	warnBGP(a, names, func(path, text string) {
		warn("spec"+strings.TrimPrefix(path, "spec.advertise.bgp"), text)
	})
}
