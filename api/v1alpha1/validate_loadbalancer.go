package v1alpha1

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The bounds of a LoadBalancer.
const (
	maxForwardedPorts   = 1000
	maxBackendWeight    = 100
	maxBackendDrainTime = time.Hour
	maxAllowedSources   = 1000
)

// MaxBackends is how many backends a LoadBalancer has at most.
const MaxBackends = 1000

// MaxForwardings bounds LoadBalancer.Forwardings: each is an entry of the kernel's rules and some
// hundred bytes in each node.
const MaxForwardings = 200_000

// Forwardings is how many ways there are from an address and a port of a valid object to a backend.
func (l *LoadBalancer) Forwardings() int {
	var addresses, backends [2]int
	six := func(text string) int {
		if strings.Contains(text, ":") {
			return 1
		}
		return 0
	}
	for _, a := range l.Spec.Addresses {
		addresses[six(a)]++
	}
	for i := range l.Spec.Backends {
		backends[six(l.Spec.Backends[i].Address)]++
	}
	return (addresses[0]*backends[0] + addresses[1]*backends[1]) * len(l.Spec.Ports)
}

// Validate returns every rule that the defaulted object breaks, in the order of its fields.
func (l *LoadBalancer) Validate() []FieldError {
	var k checker
	k.typeMeta(l.TypeMeta, KindLoadBalancer)
	k.objectMeta(l.Metadata)
	s := &l.Spec
	k.atMost("spec.addresses", len(s.Addresses), maxVIPAddresses)
	vips := k.addresses("spec.addresses", s.Addresses)
	k.forwardedPorts("spec.ports", s.Ports)
	k.want(len(s.Backends) > 0 || s.BackendNodes != nil, "spec.backends", nil, "must have at least one backend")
	k.backends("spec.backends", s.Backends, vips, s.BackendNodes != nil)
	if n := s.BackendNodes; n != nil {
		k.labels("spec.backendNodes.matchLabels", n.MatchLabels)
	}
	k.want(l.Forwardings() <= MaxForwardings, "spec.ports", nil, "has more than 200000 ways from an address and a port to a backend")
	k.backendCheck("spec.healthCheck", s.HealthCheck)
	oneOf(&k, "spec.affinity", s.Affinity, AffinityConnection, AffinityClient)
	oneOf(&k, "spec.onFailure", s.OnFailure, FailureReset, FailureKeep)
	oneOf(&k, "spec.source", s.Source, SourceVIP, SourceClient)
	k.atMost("spec.sourceAddresses", len(s.SourceAddresses), maxVIPAddresses)
	k.eachOnce("spec.sourceAddresses", s.SourceAddresses, func(at, text string) {
		k.want(slices.Contains(s.Addresses, text), at, text, "is none of the addresses of this object, as they are written there")
	})
	k.want(len(s.SourceAddresses) == 0 || s.Source != SourceClient, "spec.sourceAddresses", nil, "is for the source vip: with client backends see the client")
	k.duration("spec.drainTimeout", *s.DrainTimeout, 0, maxBackendDrainTime)
	k.atMost("spec.allowedSources", len(s.AllowedSources), maxAllowedSources)
	k.eachOnce("spec.allowedSources", s.AllowedSources, func(at, text string) { k.allowedSource(at, text, vips) })
	k.advertise("spec.advertise", s.Advertise)
	k.errs = append(k.errs, s.Advertise.OfForwarded()...)
	if a := s.Advertise; a != nil {
		k.want(a.BGP == nil || s.Source != SourceClient, "spec.advertise.bgp", nil, "is for the source vip: with client the answers of the backends would not come back by a router")
	}
	if n := s.NodeSelector; n != nil {
		k.labels("spec.nodeSelector.matchLabels", n.MatchLabels)
	}
	oneOf(&k, "spec.partition", s.Partition, PartitionAvailable, PartitionQuorum)
	return k.errs
}

// OfForwarded returns the rules that addresses break, whatever the object, whose connections are
// forwarded to other machines: one node at a time has them, and advertises them.
func (a *Advertise) OfForwarded() []FieldError {
	var k checker
	if a != nil {
		k.want(a.BGP == nil || a.L2 != nil, "spec.advertise.bgp", nil, "needs l2 beside it: the balancer that owns the addresses there is the one that advertises them")
		k.want(a.L2 == nil || a.L2.Mode != L2Balanced, "spec.advertise.l2.mode", string(L2Balanced), "is not for connections that are forwarded: write active-backup")
	}
	return k.errs
}

// forwardedPorts checks the ports, of which no two may be one.
func (k *checker) forwardedPorts(path string, ports []ForwardedPort) {
	k.want(len(ports) > 0, path, nil, "must have at least one port")
	k.atMost(path, len(ports), maxForwardedPorts)
	seen := make(map[ForwardedPort]bool, len(ports))
	for i, p := range ports {
		at := fmt.Sprintf("%s[%d]", path, i)
		if p.Port == 0 {
			k.bad(at+".port", nil, "is required: from 1 to 65535")
		} else {
			k.port(at+".port", p.Port)
			k.port(at+".targetPort", p.TargetPort)
		}
		oneOf(k, at+".protocol", p.Protocol, ProtocolTCP, ProtocolUDP)
		key := ForwardedPort{Port: p.Port, Protocol: p.Protocol}
		k.want(!seen[key] || p.Port == 0, at+".port", p.Port, "is listed twice with the protocol "+string(p.Protocol))
		seen[key] = true
	}
}

// backends checks the servers of an object with the addresses vips. Others may join them if
// Nodes are selected.
func (k *checker) backends(path string, backends []Backend, vips []netip.Addr, nodes bool) {
	k.atMost(path, len(backends), MaxBackends)
	seen := make(map[netip.AddrPort]bool, len(backends))
	families := make(map[bool]bool)
	for i, b := range backends {
		at := fmt.Sprintf("%s[%d]", path, i)
		addr, rule := parseVIP(b.Address)
		has4 := func(v netip.Addr) bool { return v.Is4() == addr.Is4() }
		switch key := netip.AddrPortFrom(addr, uint16(b.Port)); {
		case rule != "":
		case slices.Contains(vips, addr):
			rule = "is an address of this object; give the server's own address"
		case seen[key]:
			rule = "is listed twice"
		case len(vips) > 0 && !slices.ContainsFunc(vips, has4):
			rule = "is of another family than the addresses of this object"
		default:
			seen[key] = true
		}
		if rule != "" {
			k.bad(at+".address", b.Address, "%s", rule)
		} else {
			families[addr.Is4()] = true
		}
		if b.Port != 0 {
			k.port(at+".port", b.Port)
		}
		if b.Weight != nil {
			between(k, at+".weight", *b.Weight, 0, maxBackendWeight)
		}
	}
	for i, v := range vips {
		if len(families) > 0 && !families[v.Is4()] && !nodes {
			k.bad(fmt.Sprintf("spec.addresses[%d]", i), v.String(), "has no backend of its family")
		}
	}
}

// backendCheck checks what is asked of each backend.
func (k *checker) backendCheck(path string, h *HealthCheck) {
	if h == nil {
		return
	}
	host := func(name, host string) {
		k.want(host == "", path+"."+name+".host", host, "is not for a LoadBalancer, which asks each backend at its own address")
	}
	if h.HTTPS != nil {
		host("https", h.HTTPS.Host)
	}
	if h.HTTP != nil {
		host("http", h.HTTP.Host)
	}
	if h.TCP != nil {
		host("tcp", h.TCP.Host)
	}
	k.want(h.Exec == nil, path+".exec", nil, "is not for a LoadBalancer, which asks each backend by the network")
	of := h.Of(netip.AddrFrom4([4]byte{192, 0, 2, 1})) // any
	of.Exec = nil
	if h.Exec == nil || h.HTTPS != nil || h.HTTP != nil || h.TCP != nil {
		k.healthCheck(path, &of, nil)
	}
}

// allowedSource checks a prefix of clients of an object with the addresses vips.
func (k *checker) allowedSource(at, text string, vips []netip.Addr) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		if addr, err := netip.ParseAddr(text); err == nil {
			k.bad(at, text, "is not a prefix; write %s", netip.PrefixFrom(addr, addr.BitLen()))
			return
		}
		k.bad(at, text, "is not a prefix, such as 10.0.0.0/8")
	case p.Masked() != p:
		k.bad(at, text, "has bits behind its length; write %s", p.Masked())
	case len(vips) > 0 && !slices.ContainsFunc(vips, func(v netip.Addr) bool { return v.Is4() == p.Addr().Is4() }):
		k.bad(at, text, "is of another family than the addresses of this object")
	}
}
