package v1alpha1

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The bounds of the objects of tenants.
const (
	maxTenantClusters  = 16
	maxTenantPools     = 16
	maxNodeCIDRs       = 64
	maxTenantServices  = 5000
	maxTenantPorts     = 20_000
	maxTenantSecrets   = 1000
	maxTenantNodes     = 2000
	maxTenantNodesEach = 100 // in one object
	maxNodeAddresses   = 4
	maxServicePorts    = 100
	maxLocalNodes      = 1000
	maxLocalEndpoints  = 100
	maxTenantSources   = 200
	maxTenantWeight    = 100
)

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

// Contains tells whether a port is in the range.
func (r PortRange) Contains(port int32) bool { return int32(r.First) <= port && port <= int32(r.Last) }

// hostPorts are ports of programs that a node has for itself: kube-apiserver, etcd, kubelet,
// kube-proxy, kube-scheduler and kube-controller-manager. No NodePort may be one of them.
var hostPorts = []int32{2379, 2380, 2381, 6443, 10248, 10249, 10250, 10256, 10257, 10259}

// ParsePortRange reads a range such as 30000-32767, or tells which rule it breaks.
func ParsePortRange(text string) (r PortRange, rule string) {
	first, last, _ := strings.Cut(text, "-")
	from, err1 := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	r = PortRange{uint16(from), uint16(to)}
	switch {
	case err1 != nil || err2 != nil:
		return r, "is not a range of ports, such as " + DefaultNodePorts
	case from < 1024 || to < from:
		return r, "must be from 1024 to 65535, the lower port first"
	}
	for _, p := range hostPorts {
		if r.Contains(p) {
			return r, fmt.Sprintf("contains %d, which a node has for itself", p)
		}
	}
	return r, ""
}

// Validate returns every rule that the defaulted object breaks, in the order of its fields.
func (t *Tenant) Validate() []FieldError {
	var k checker
	k.typeMeta(t.TypeMeta, KindTenant)
	k.objectMeta(t.Metadata)
	s := &t.Spec
	k.want(len(s.Clusters) > 0, "spec.clusters", nil, "must have at least one cluster")
	k.atMost("spec.clusters", len(s.Clusters), maxTenantClusters)
	k.tenantClusters("spec.clusters", s.Clusters)
	k.want(len(s.Pools) > 0, "spec.pools", nil, "must name at least one IPAddressPool")
	k.atMost("spec.pools", len(s.Pools), maxTenantPools)
	k.names("spec.pools", s.Pools)
	between(&k, "spec.limits.services", s.Limits.Services, 1, maxTenantServices)
	between(&k, "spec.limits.addresses", s.Limits.Addresses, 1, maxTenantServices)
	between(&k, "spec.limits.ports", s.Limits.Ports, 1, maxTenantPorts)
	between(&k, "spec.limits.nodes", s.Limits.Nodes, 1, maxTenantNodes)
	between(&k, "spec.limits.routes", s.Limits.Routes, 1, maxTenantServices)
	between(&k, "spec.limits.tlsSecrets", s.Limits.TLSSecrets, 0, maxTenantSecrets)
	for i, source := range s.Sources {
		at := fmt.Sprintf("spec.sources[%d]", i)
		oneOf(&k, at, source, SourceVIP, SourceClient)
		k.want(!slices.Contains(s.Sources[:i], source), at, string(source), "is listed twice")
	}
	k.tenantIngress(s)
	return k.errs
}

// tenantClusters checks the clusters, of which no two may share a name, a namespace or nodes.
func (k *checker) tenantClusters(path string, clusters []TenantCluster) {
	names, namespaces := make(map[string]bool), make(map[string]bool)
	type owned struct {
		prefix netip.Prefix
		at     string
	}
	var all []owned
	for i, c := range clusters {
		at := fmt.Sprintf("%s[%d]", path, i)
		k.want(isDNSLabel(c.Name), at+".name", c.Name, ruleDNSLabel)
		k.want(c.Name == "" || !names[c.Name], at+".name", c.Name, "is listed twice")
		k.want(isDNSLabel(c.Namespace), at+".namespace", c.Namespace, ruleDNSLabel)
		k.want(c.Namespace == "" || !namespaces[c.Namespace], at+".namespace", c.Namespace, "is that of another cluster: each has one of its own, or one agent could write for the other")
		names[c.Name], namespaces[c.Namespace] = true, true
		k.atMost(at+".nodeCIDRs", len(c.NodeCIDRs), maxNodeCIDRs)
		good, others := k.prefixes(at+".nodeCIDRs", c.NodeCIDRs), len(all)
		for n := range c.NodeCIDRs {
			p, is := good[n]
			if !is {
				continue
			}
			here := fmt.Sprintf("%s.nodeCIDRs[%d]", at, n)
			for _, o := range all[:others] {
				if o.prefix.Overlaps(p) {
					k.bad(here, p.String(), "overlaps %s, %s, of another cluster", o.prefix, o.at)
				}
			}
			all = append(all, owned{p, here})
		}
		if _, rule := ParsePortRange(c.NodePorts); rule != "" {
			k.bad(at+".nodePorts", c.NodePorts, "%s", rule)
		}
	}
}

// Validate returns every rule that the defaulted object breaks, in the order of its fields.
func (t *TenantNodes) Validate() []FieldError {
	var k checker
	k.typeMeta(t.TypeMeta, KindTenantNodes)
	k.objectMeta(t.Metadata)
	k.atMost("spec.nodes", len(t.Spec.Nodes), maxTenantNodesEach)
	seen := make(map[string]bool, len(t.Spec.Nodes))
	for i, n := range t.Spec.Nodes {
		at := fmt.Sprintf("spec.nodes[%d]", i)
		k.want(isSubdomain(n.Name), at+".name", n.Name, ruleSubdomain)
		k.want(!seen[n.Name], at+".name", n.Name, "is listed twice")
		seen[n.Name] = true
		k.want(len(n.Addresses) > 0, at+".addresses", nil, "must have at least one address")
		k.atMost(at+".addresses", len(n.Addresses), maxNodeAddresses)
		for j, text := range n.Addresses {
			if _, rule := parseVIP(text); rule != "" {
				k.bad(fmt.Sprintf("%s.addresses[%d]", at, j), text, "%s", rule)
			}
		}
		oneOf(&k, at+".state", n.State, TenantNodeServing, TenantNodeDraining, TenantNodeOut)
		between(&k, at+".weight", *n.Weight, 0, maxBackendWeight)
	}
	return k.errs
}

// Validate returns every rule that the defaulted object breaks, in the order of its fields.
func (t *TenantService) Validate() []FieldError {
	var k checker
	k.typeMeta(t.TypeMeta, KindTenantService)
	k.objectMeta(t.Metadata)
	s := &t.Spec
	k.want(len(s.Ports) > 0, "spec.ports", nil, "must have at least one port")
	k.atMost("spec.ports", len(s.Ports), maxServicePorts)
	seen := make(map[TenantPort]bool, len(s.Ports))
	for i, p := range s.Ports {
		at := fmt.Sprintf("spec.ports[%d]", i)
		k.port(at+".port", p.Port)
		k.port(at+".nodePort", p.NodePort)
		oneOf(&k, at+".protocol", p.Protocol, ProtocolTCP, ProtocolUDP)
		key := TenantPort{Port: p.Port, Protocol: p.Protocol}
		k.want(!seen[key], at+".port", p.Port, "is listed twice with the protocol "+string(p.Protocol))
		seen[key] = true
	}
	k.families("spec.families", s.Families)
	k.tenantAddresses("spec.addresses", s.Addresses)
	if s.Pool != "" {
		k.want(isSubdomain(s.Pool), "spec.pool", s.Pool, ruleSubdomain)
	}
	if l := s.Local; l != nil {
		k.port("spec.local.healthCheckNodePort", l.HealthCheckNodePort)
		k.atMost("spec.local.nodes", len(l.Nodes), maxLocalNodes)
		local := make(map[string]bool, len(l.Nodes))
		for i, n := range l.Nodes {
			at := fmt.Sprintf("spec.local.nodes[%d]", i)
			k.want(isSubdomain(n.Name), at+".name", n.Name, ruleSubdomain)
			k.want(!local[n.Name], at+".name", n.Name, "is listed twice")
			local[n.Name] = true
			between(&k, at+".endpoints", n.Endpoints, 1, maxLocalEndpoints)
		}
	}
	oneOf(&k, "spec.affinity", s.Affinity, AffinityConnection, AffinityClient)
	oneOf(&k, "spec.source", s.Source, SourceVIP, SourceClient)
	k.atMost("spec.allowedSources", len(s.AllowedSources), maxTenantSources)
	k.eachOnce("spec.allowedSources", s.AllowedSources, func(at, text string) { k.allowedSource(at, text, nil) })
	k.want(s.GlobalName == "" || isDNSLabel(s.GlobalName), "spec.globalName", s.GlobalName, ruleDNSLabel)
	if s.Weight != nil {
		between(&k, "spec.weight", *s.Weight, 0, maxTenantWeight)
		k.want(s.GlobalName != "", "spec.weight", *s.Weight, "needs the globalName: it is the share beside others with that")
	}
	return k.errs
}

// tenantAddresses checks the addresses that are asked for, at most one of each family.
func (k *checker) tenantAddresses(path string, texts []string) {
	var has [2]bool
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		addr, rule := parseVIP(text)
		if rule != "" {
			k.bad(at, text, "%s", rule)
			continue
		}
		family := &has[0]
		if addr.Is6() {
			family = &has[1]
		}
		k.want(!*family, at, text, "is the second of its family")
		*family = true
	}
}
