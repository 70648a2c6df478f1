// Package machines knows what the objects of Cluster API mean for a load balancer:
// which Machine a node is, which Machines are about to go, who is a member of a
// MachineLoadBalancer, what its status says, and when a deletion may go on. All of
// it are plain values; it knows no client and no clock.
package machines

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// The labels and annotations of Cluster API that count here.
const (
	// ClusterLabel is on every Machine and has the name of its Cluster.
	ClusterLabel = "cluster.x-k8s.io/cluster-name"
	// ControlPlaneLabel is on the Machines of a control plane. KubeadmControlPlane
	// gives it the value "", others may give another: only that it exists counts.
	ControlPlaneLabel = "cluster.x-k8s.io/control-plane"
	// HookPrefix begins the annotations that hold a Machine before its Node is
	// drained, and HookKey is the one that lbd removes.
	HookPrefix = "pre-drain.delete.hook.machine.cluster.x-k8s.io/"
	HookKey    = HookPrefix + "lbd"
	// MovedAnnotation is on what clusterctl deletes here since it has moved it to
	// another management cluster: the machine behind it stays.
	MovedAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"
	// NameAnnotation and StatusAnnotation are what annotateMembers writes.
	NameAnnotation   = "loadbalancer.cluster.x-k8s.io/name"
	StatusAnnotation = "loadbalancer.cluster.x-k8s.io/status"
)

// Machine is what counts of a Machine, or of an object that stands for one.
type Machine struct {
	model.Key
	// Target is "group/version/resource" of an object that stands for a Machine, ""
	// for a Machine.
	Target string
	UID    string
	Labels map[string]string
	// Annotations need only have those that Relevant tells.
	Annotations map[string]string
	Created     time.Time
	// Node is the name of its Node, "" before there is one.
	Node       string
	ProviderID string
	Addresses  []netip.Addr // without those that are no IP addresses
	// Internal are those of Addresses that are told to be of the type InternalIP.
	Internal []netip.Addr
	// FailureDomain is where it really is.
	FailureDomain string
	// Deleted is its deletionTimestamp; zero if it has none.
	Deleted time.Time
	// Unhealthy is what a MachineHealthCheck says against it, "" if nothing.
	Unhealthy string
}

// Cluster is what counts of a Cluster.
type Cluster struct {
	model.Key
	UID, Version string
	// Endpoint is spec.controlPlaneEndpoint; nil while it is not valid.
	Endpoint *v1alpha1.MachineEndpoint
	Deleting bool
}

// Balancer is a MachineLoadBalancer.
type Balancer struct {
	model.Key
	UID, Version string
	Generation   int64
	Created      time.Time
	Spec         v1alpha1.MachineLoadBalancerSpec // defaulted
	// Errors are the rules that it breaks; it is then not in use.
	Errors []v1alpha1.FieldError
	// Status is what it has now.
	Status v1alpha1.MachineLoadBalancerStatus
	// Moved: it has MovedAnnotation.
	Moved bool
}

// Rules are when a node drains with its Machine.
type Rules struct {
	// ClusterName limits what is looked at to one cluster; empty: all.
	ClusterName string
	// Labels are keys of labels or annotations.
	Labels                  []string
	OnDeletion, Remediation bool
	// Balancer: this node forwards for balancers of which it is no member, too.
	Balancer bool
	// HookTimeout bounds how long a deletion is held.
	HookTimeout time.Duration
}

// RulesOf are the rules of a defaulted configuration.
func RulesOf(s *v1alpha1.MachinesSpec) Rules {
	return Rules{ClusterName: s.ClusterName, Labels: s.DrainLabels, OnDeletion: s.DrainOnDeletion == nil || *s.DrainOnDeletion,
		Remediation: s.DrainOnRemediation, Balancer: s.Balancer, HookTimeout: s.HookTimeout.Duration}
}

// Relevant tells whether an annotation of a Machine counts; the others need not be
// kept.
func (r *Rules) Relevant(key string) bool {
	if key == HookKey || key == MovedAnnotation || key == NameAnnotation || key == StatusAnnotation || key == v1alpha1.DisabledLabel ||
		strings.HasPrefix(key, v1alpha1.DisabledPrefix) {
		return true
	}
	return slices.Contains(r.Labels, key)
}

// Node is what a node knows of itself.
type Node struct {
	Name       model.NodeName
	ProviderID string
	Addrs      []netip.Addr
}

// hasAddr tells whether an address of the Machine is one of these.
func (m *Machine) hasAddr(addrs []netip.Addr) bool {
	return slices.ContainsFunc(m.Addresses, func(a netip.Addr) bool { return slices.Contains(addrs, a) })
}

// Cluster is what tells two clusters apart: a name is unique in a namespace only.
func (m *Machine) Cluster() model.Key {
	return model.Key{Namespace: m.Namespace, Name: m.Labels[ClusterLabel]}
}

// Moved tells whether clusterctl deletes it here since it has moved it.
func (m *Machine) Moved() bool {
	_, moved := m.Annotations[MovedAnnotation]
	return moved
}

// within tells whether the Machine is of the cluster that the rules are limited to.
func (r *Rules) within(m *Machine) bool {
	return r.ClusterName == "" || m.Labels[ClusterLabel] == r.ClusterName
}

// strange tells whether the Machine has addresses and none of them is one of these.
// Nodes of two clusters may have one name, so the name alone does not make it the
// node that has these.
func (m *Machine) strange(addrs []netip.Addr) bool {
	return len(m.Addresses) > 0 && len(addrs) > 0 && !m.hasAddr(addrs)
}

// Self returns the Machine that a node is: the one whose Node has its name, else
// the one with its provider ID, else the one with one of its addresses. nil: none,
// or more than one. target is Machine.Target of those that are looked at.
func Self(all []*Machine, n Node, rules *Rules, target string) *Machine {
	var byName, byID, byAddr []*Machine
	for _, m := range all {
		if m.Target != target || target == "" && !rules.within(m) {
			continue
		}
		id := n.ProviderID != "" && m.ProviderID == n.ProviderID
		if id {
			byID = append(byID, m)
		}
		if m.hasAddr(n.Addrs) {
			byAddr = append(byAddr, m)
		}
		if m.Node != "" && m.Node == string(n.Name) && (id || !m.strange(n.Addrs)) {
			byName = append(byName, m)
		}
	}
	for _, found := range [][]*Machine{byName, byID, byAddr} {
		if len(found) == 1 {
			return found[0]
		}
	}
	return nil
}

// MaxPeers bounds the Machines that are gossip peers. A control plane has nine at most, and twice as
// many while they are replaced; whoever writes Machines is not to make hosts call at thousands of
// addresses.
const MaxPeers = 64

// Peers returns one address of each Machine of the control plane of a cluster, of the family of
// like: those that a node of it talks to. No cluster: the one that the rules are limited to.
// avoid are addresses that Machines share, which they may list as theirs. Of more than MaxPeers the
// oldest count, so that Machines which somebody adds take the place of none; surplus is how many
// are left out.
func (r *Rules) Peers(all []*Machine, cluster model.Key, like netip.Addr, avoid []netip.Addr) (peers []netip.Addr, surplus int) {
	created := make(map[netip.Addr]time.Time)
	for _, m := range all {
		if _, ok := m.Labels[ControlPlaneLabel]; !ok || m.Target != "" || !r.within(m) {
			continue
		}
		if cluster != (model.Key{}) && m.Cluster() != cluster || cluster == (model.Key{}) && r.ClusterName == "" {
			continue
		}
		a, ok := m.serverAt(like, avoid, avoid)
		if was, twice := created[a]; ok && (!twice || m.Created.Before(was)) {
			created[a] = m.Created
		}
	}
	peers = slices.SortedFunc(maps.Keys(created), func(a, b netip.Addr) int { return cmp.Or(created[a].Compare(created[b]), a.Compare(b)) })
	if surplus = len(peers) - MaxPeers; surplus > 0 {
		peers = peers[:MaxPeers]
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	return peers, max(surplus, 0)
}

// Member returns the node of the group that a Machine is, by name, then by address;
// nil: none is heard that it could be.
func (m *Machine) Member(group []model.MachineMember) *model.MachineMember {
	for i := range group {
		if g := &group[i]; m.Node != "" && string(g.Node) == m.Node && !m.strange(g.Addrs) {
			return g
		}
	}
	for i := range group {
		if m.hasAddr(group[i].Addrs) {
			return &group[i]
		}
	}
	return nil
}
