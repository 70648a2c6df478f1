// Package tenants judges what the agents of other clusters write into this one, the hub: which of
// their nodes may get connections, which of their Services may have addresses, and where connections
// to those go. The controller tells what it says, and every node that forwards judges by itself: what
// the kernel does never rests on somebody else having looked. It is pure.
package tenants

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// Input is all that a judgement may look at. The objects are valid, with their defaults.
type Input struct {
	Tenants  []Tenant // in any order
	Nodes    map[model.Key]*v1alpha1.TenantNodes
	Services map[model.Key]*Service
	Hub      Hub
	// Pools are the addresses of the IPAddressPools, by name.
	Pools map[string][]v1alpha1.AddressRange
	// Announced is how they are announced; a pool without an entry is not.
	Announced map[string]Announced
	// Rests counts the addresses that Services gave up and that rest, by namespace. They count against
	// whoever is to get another one, and take nothing from anybody.
	Rests map[string]int
	// Room is how many ways from an address and a port to a node the hub has room for, after its own.
	// The older Services get it.
	Room int
}

// Tenant is a Tenant, and since when there is one of the name.
type Tenant struct {
	*v1alpha1.Tenant
	Created time.Time
}

// Service is a TenantService.
type Service struct {
	*v1alpha1.TenantService
	Created time.Time
	// Given are the addresses that its status has. They count only as far as the Tenant may have
	// them and no older Service does: whoever writes a status by himself gains nothing.
	Given []netip.Addr
	// Shared is the global name under which its status has them.
	Shared string
}

// Hub is what no tenant may reach.
type Hub struct {
	// Hosts are the InternalIPs of Nodes of the hub, the addresses of VirtualIPs and LoadBalancers, and
	// those of BGP peers.
	Hosts map[netip.Addr]string // by what they are of, in words
	// Protected are the addresses of Pods of the hub, and of pools.
	Protected []Protected
}

// Protected are addresses that no tenant may reach.
type Protected struct {
	v1alpha1.AddressRange
	What string // in words
}

// Verdict is what is said of an object: accepted, or why not.
type Verdict struct {
	Reason  Reason // ReasonAccepted, or the rule that is broken
	Message string
}

// Reason is one word for programs, as in the conditions of an object.
type Reason string

// The reasons of verdicts.
const (
	ReasonAccepted      Reason = "Accepted"
	ReasonOverlap       Reason = "Overlap"
	ReasonProtected     Reason = "ProtectedNetwork"
	ReasonNamespace     Reason = "NamespaceTaken"
	ReasonNoTenant      Reason = "NoTenant"
	ReasonRefusedNodes  Reason = "RefusedNodes"
	ReasonNodePort      Reason = "NodePortNotAllowed"
	ReasonConflict      Reason = "Conflict"
	ReasonLimit         Reason = "TenantLimit"
	ReasonPool          Reason = "PoolNotAllowed"
	ReasonSource        Reason = "SourceNotAllowed"
	ReasonSuspended     Reason = "Suspended"
	ReasonNoAddress     Reason = "AddressPending"
	ReasonFamilyMissing Reason = "NoNodeOfFamily"
	ReasonNoRoom        Reason = "NoRoom"
	ReasonNotAnnounced  Reason = "NotAnnounced"
	ReasonNotRead       Reason = "HubNotRead" // what the hub has for routes
)

// LeadsNowhere tells of an object that is accepted whether no client reaches it, at one address at least.
func (r Reason) LeadsNowhere() bool {
	return r == ReasonFamilyMissing || r == ReasonNoRoom || r == ReasonNotAnnounced
}

// Output is the judgement.
type Output struct {
	Tenants  map[string]Verdict
	Nodes    map[model.Key]Verdict
	Services map[model.Key]Verdict
	// Requests are the Services that are to have addresses, sorted by their keys.
	Requests []Request
	// Served are those that have them and lead to nodes, sorted by Name; Checks are those of the nodes.
	Served []model.LoadBalancer
	Checks map[string]v1alpha1.HealthCheck
	// Given are the addresses of statuses that count.
	Given map[model.Key][]netip.Addr
	// Clusters are those that count, by their namespaces.
	Clusters map[string]Cluster
}

// Cluster is a cluster of a Tenant that counts, with the nodes that do.
type Cluster struct {
	Tenant    *v1alpha1.Tenant
	NodePorts v1alpha1.PortRange
	Nodes     []Node // by the names of their objects, and as these list them
}

// Node is a node that may get connections.
type Node struct {
	Name  string
	Addrs []netip.Addr // the first of each family
	State v1alpha1.TenantNodeState
}

// Request is what a Service may have of the pools.
type Request struct {
	Key      model.Key
	Families []v1alpha1.AddressFamily
	Fixed    []netip.Addr
	Pools    []string // the first that has an address
	Ports    []v1alpha1.TenantPort
	// Share is the name of those that are to have the same addresses; empty: no others are.
	Share string
}

// cluster is one cluster of a Tenant that counts.
type cluster struct {
	tenant    *v1alpha1.Tenant
	spec      *v1alpha1.TenantCluster
	prefixes  []netip.Prefix
	nodePorts v1alpha1.PortRange
	nodes     []node
	names     map[string]bool // of nodes
	// servers are the nodes for all Services without the policy Local, by whether they have addresses
	// of IPv4 and of IPv6; nil: not made yet.
	servers [2][2][]model.Server
}

// node is a node that may get connections.
type node struct {
	name   string
	addrs  []netip.Addr // the first of each family
	weight int
	state  v1alpha1.TenantNodeState
}

// Judge judges all objects. Of two that exclude each other the older one counts, and of two of one
// age that with the lower name: so a new object never takes anything from one that is in use.
func Judge(in *Input) Output {
	out := Output{
		Tenants: make(map[string]Verdict), Nodes: make(map[model.Key]Verdict), Services: make(map[model.Key]Verdict),
		Given: make(map[model.Key][]netip.Addr), Checks: make(map[string]v1alpha1.HealthCheck),
	}
	clusters := out.judgeTenants(in)
	out.judgeNodes(in, clusters)
	out.judgeServices(in, clusters)
	out.Clusters = make(map[string]Cluster, len(clusters))
	for namespace, c := range clusters {
		all := make([]Node, len(c.nodes))
		for i, n := range c.nodes {
			all[i] = Node{n.name, n.addrs, n.state}
		}
		out.Clusters[namespace] = Cluster{c.tenant, c.nodePorts, all}
	}
	return out
}

// judgeTenants returns the clusters that count, by their namespaces.
func (out *Output) judgeTenants(in *Input) map[string]*cluster {
	tenants := slices.SortedFunc(slices.Values(in.Tenants), func(a, b Tenant) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	all := make(map[string]*cluster)
	for _, t := range tenants {
		verdict := Verdict{ReasonAccepted, ""}
		var made []*cluster
		for i := range t.Spec.Clusters {
			c := newCluster(t.Tenant, &t.Spec.Clusters[i])
			if why, bad := c.excluded(&in.Hub, all); bad {
				verdict = why
				break
			}
			made = append(made, c)
		}
		out.Tenants[t.Metadata.Name] = verdict
		if verdict.Reason != ReasonAccepted {
			continue // not in part: who looks at it finds one reason, and nothing that half works
		}
		for _, c := range made {
			all[c.spec.Namespace] = c
		}
	}
	return all
}

func newCluster(t *v1alpha1.Tenant, spec *v1alpha1.TenantCluster) *cluster {
	c := &cluster{tenant: t, spec: spec, names: make(map[string]bool)}
	for _, text := range spec.NodeCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil { // it is valid
			c.prefixes = append(c.prefixes, p)
		}
	}
	c.nodePorts, _ = v1alpha1.ParsePortRange(spec.NodePorts)
	return c
}

// excluded tells why a cluster cannot count beside those that do.
func (c *cluster) excluded(hub *Hub, others map[string]*cluster) (Verdict, bool) {
	if o, taken := others[c.spec.Namespace]; taken {
		return Verdict{ReasonNamespace, fmt.Sprintf("the namespace %s is that of the older Tenant %s", c.spec.Namespace, o.tenant.Metadata.Name)}, true
	}
	for _, p := range c.prefixes {
		for _, namespace := range slices.Sorted(maps.Keys(others)) {
			o := others[namespace]
			for _, q := range o.prefixes {
				if q.Overlaps(p) {
					return Verdict{ReasonOverlap, fmt.Sprintf("%s of the cluster %s overlaps %s of the older Tenant %s", p, c.spec.Name, q, o.tenant.Metadata.Name)}, true
				}
			}
		}
		for _, x := range hub.Protected {
			if x.Overlaps(v1alpha1.RangeOf(p)) {
				return Verdict{ReasonProtected, fmt.Sprintf("%s of the cluster %s overlaps %s", p, c.spec.Name, x.What)}, true
			}
		}
	}
	return Verdict{}, false
}

// judgeNodes gives the clusters their nodes.
func (out *Output) judgeNodes(in *Input, clusters map[string]*cluster) {
	counts := make(map[*v1alpha1.Tenant]int)
	taken := make(map[netip.Addr]string)
	for _, key := range slices.SortedFunc(maps.Keys(in.Nodes), model.Key.Compare) {
		c := clusters[key.Namespace]
		if c == nil {
			out.Nodes[key] = noTenant(key.Namespace)
			continue
		}
		var refused []string
		for i := range in.Nodes[key].Spec.Nodes {
			n, why := c.judgeNode(&in.Nodes[key].Spec.Nodes[i], &in.Hub, taken)
			if most := int(c.tenant.Spec.Limits.Nodes); why == "" && counts[c.tenant] == most {
				why = fmt.Sprintf("the Tenant may have %d nodes", most)
			}
			if why != "" {
				refused = append(refused, n.name+": "+why)
				continue
			}
			counts[c.tenant]++
			for _, a := range n.addrs {
				taken[a] = n.name
			}
			c.nodes, c.names[n.name] = append(c.nodes, n), true
		}
		out.Nodes[key] = Verdict{ReasonAccepted, ""}
		if len(refused) > 0 {
			out.Nodes[key] = Verdict{ReasonRefusedNodes, listed(refused)}
		}
	}
}

// judgeNode tells why a node gets no connections: one bad address, and none of its counts.
func (c *cluster) judgeNode(n *v1alpha1.TenantNode, hub *Hub, taken map[netip.Addr]string) (node, string) {
	out := node{name: n.Name, weight: v1alpha1.DefaultBackendWeight, state: n.State}
	if n.Weight != nil {
		out.weight = int(*n.Weight)
	}
	if c.names[n.Name] {
		return out, "is listed in another object, too"
	}
	var has [2]bool
	for _, text := range n.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return out, text + " is no address"
		}
		if why := c.forbidden(a, hub, taken); why != "" {
			return out, why
		}
		if family := &has[btoi(a.Is6())]; !*family {
			*family = true
			out.addrs = append(out.addrs, a)
		}
	}
	return out, ""
}

// forbidden tells why no connection may go to an address. One that is in nodeCIDRs is in nothing that
// Hub.Protected has, else the Tenant would not count.
func (c *cluster) forbidden(a netip.Addr, hub *Hub, taken map[netip.Addr]string) string {
	if !slices.ContainsFunc(c.prefixes, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return fmt.Sprintf("%s is in none of the nodeCIDRs of the cluster", a)
	}
	if what, is := hub.Hosts[a]; is {
		return fmt.Sprintf("%s is an address of %s", a, what)
	}
	if other, is := taken[a]; is {
		return fmt.Sprintf("%s is an address of %s, too", a, other)
	}
	return ""
}

func noTenant(namespace string) Verdict {
	return Verdict{ReasonNoTenant, "no Tenant that is accepted has the namespace " + namespace}
}

// mostListed bounds what is said of the nodes of one object.
const mostListed = 5

// listed joins the first few of many.
func listed(all []string) string {
	text := ""
	for i, s := range all {
		if i == mostListed {
			return fmt.Sprintf("%s; and %d more", text, len(all)-mostListed)
		}
		if i > 0 {
			text += "; "
		}
		text += s
	}
	return text
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
