package v1alpha1

import (
	"encoding/json"
	"time"
)

// NodeStatusKind is the kind of the object that `lbd status -o json` prints.
const NodeStatusKind = "NodeStatus"

// NodeStatus is what one daemon sees: the group, every VIP with the reason why
// it is where it is, and whatever is wrong. It is read from the control socket,
// or from the cluster, where one object for each node has the name of the node;
// users do not write it. Field names are stable; new fields may appear at any
// level, so readers must ignore what they do not know.
//
// The object in a cluster is written on change only. It has Metadata and Summary,
// no Time and no counters of what runs all the time, and at most
// MaxNodeStatusVIPs VIPs, those first that this node announces and those next
// that nobody does.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=lbd,shortName=lbdnode;lbdnodes
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Announced",type=integer,JSONPath=`.summary.announced`,description="How many addresses the node answers for or advertises"
// +kubebuilder:printcolumn:name="VIPs",type=integer,JSONPath=`.summary.vips`,description="How many addresses the node knows"
// +kubebuilder:printcolumn:name="Members",type=string,JSONPath=`.summary.members`,description="How many other nodes are alive, of how many"
// +kubebuilder:printcolumn:name="BGP",type=string,JSONPath=`.summary.bgp`,description="How many BGP sessions are established, of how many"
// +kubebuilder:printcolumn:name="BFD",type=string,JSONPath=`.summary.bfd`,description="How many BFD sessions are up, of how many"
// +kubebuilder:printcolumn:name="Draining",type=boolean,JSONPath=`.draining`,description="Whether the node hands everything over"
// +kubebuilder:printcolumn:name="Settled",type=boolean,JSONPath=`.settled`,description="Whether the node may own addresses",priority=1
// +kubebuilder:printcolumn:name="Problem",type=string,JSONPath=`.summary.problem`,description="The first of what is wrong"
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.version`,description="The version of the daemon"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type NodeStatus struct {
	// APIVersion is filled in when the object is encoded.
	APIVersion string `json:"apiVersion"`
	// Kind is filled in when the object is encoded.
	Kind string `json:"kind"`
	// Metadata names the object in a cluster: by the name of the node.
	// +optional
	Metadata *ObjectMeta `json:"metadata,omitempty"`
	// Summary counts what the lists have, in a cluster.
	Summary *NodeSummary `json:"summary,omitempty"`
	// Node is the name of the node that answers.
	Node string `json:"node"`
	// Version of the daemon, such as "v0.1.0".
	Version string `json:"version"`
	// Time is when this status was taken, by the clock of the node.
	// +optional
	Time time.Time `json:"time,omitzero"`
	// Draining: an operator, a signal, a label or the Machine of the node asked it to
	// hand everything over.
	Draining bool `json:"draining"`
	// Settled: the node knows the group well enough to own VIPs.
	Settled bool `json:"settled"`
	// Members are the other nodes of the group, sorted by name.
	// +listType=atomic
	Members []MemberStatus `json:"members"`
	// VIPs are all VIPs of the configuration, sorted by address; in a cluster at
	// most 500.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	VIPs []VIPStatus `json:"vips"`
	// BGP lists the sessions of this node; absent without any.
	// +listType=atomic
	BGP []BGPStatus `json:"bgp,omitempty"`
	// Listeners are the BGPListeners of this node; absent without any.
	// +listType=atomic
	Listeners []ListenerStatus `json:"listeners,omitempty"`
	// LoadBalancers tell what this node forwards to other machines, sorted by name; absent
	// without any. In a cluster they have at most 500 backends together, those first that get no
	// new connections, and as many addresses and ports.
	// +listType=atomic
	LoadBalancers []BalancerStatus `json:"loadBalancers,omitempty"`
	// Config tells which configuration is in force.
	Config ConfigStatus `json:"config"`
	// Kubernetes tells of the cluster that is served; absent without one.
	Kubernetes *KubernetesStatus `json:"kubernetes,omitempty"`
	// Machines tells of the management cluster of the machines; absent where neither
	// this node reads one nor its Machine drains.
	Machines *MachinesStatus `json:"machines,omitempty"`
	// ServiceConnections tells what becomes of open connections to Services when their
	// addresses move; absent where that is not known, there are none, or they are not to be kept.
	ServiceConnections *ServiceConnectionsStatus `json:"serviceConnections,omitempty"`
	// Gossip tells what is wrong between the nodes, if anything.
	Gossip GossipStatus `json:"gossip"`
	// Health are the health checks that run on this node, sorted by name. In a cluster those of
	// backends are left out, of which LoadBalancers tell.
	// +listType=atomic
	Health []HealthStatus `json:"health"`
	// Drivers are the parts that act on the kernel and the network, sorted by
	// name.
	// +listType=atomic
	Drivers []DriverStatus `json:"drivers"`
}

// MaxNodeStatusVIPs bounds the VIPs of a NodeStatus in a cluster, so that it stays
// far below what etcd takes however many Services there are.
const MaxNodeStatusVIPs = 500

// MaxNodeStatusBackends bounds the backends of all LoadBalancers of a NodeStatus in a cluster.
const MaxNodeStatusBackends = 500

// NodeSummary is a NodeStatus in a few numbers, for tables. It counts what the
// lists leave out too.
type NodeSummary struct {
	// VIPs counts the addresses that this node knows.
	VIPs int32 `json:"vips"`
	// Announced counts those that this node answers for or advertises.
	Announced int32 `json:"announced"`
	// Members is how many other nodes of the group are alive, of how many: "2/2".
	Members string `json:"members"`
	// BGP is how many BGP sessions are established, of how many; absent without any.
	BGP string `json:"bgp,omitempty"`
	// BFD is how many BFD sessions are up, of how many; absent without any.
	BFD string `json:"bfd,omitempty"`
	// Problem is the first of what is wrong, in words; absent if nothing is.
	Problem string `json:"problem,omitempty"`
}

// MarshalJSON fills in apiVersion and kind and writes lists that must be there
// as [] and never as null.
func (s NodeStatus) MarshalJSON() ([]byte, error) {
	type plain NodeStatus // without this method
	s.APIVersion, s.Kind = APIVersion, NodeStatusKind
	s.Members = notNil(s.Members)
	s.VIPs = notNil(s.VIPs)
	s.Health = notNil(s.Health)
	s.Drivers = notNil(s.Drivers)
	s.Config.Warnings = notNil(s.Config.Warnings)
	return json.Marshal(plain(s))
}

// MemberStatus is one other node of the group.
type MemberStatus struct {
	Name string `json:"name"`
	// Address is its gossip address, without the port.
	Address string `json:"address"`
	// State is "alive", "dead" or "left".
	State string `json:"state"`
	// Draining: it is handing everything over, or has.
	Draining bool `json:"draining"`
	// Settled: it knows the group well enough to own VIPs.
	Settled bool `json:"settled"`
	// Late is how long its heartbeats have been overdue, as a Go duration such as
	// "180ms"; empty while they arrive and while none are expected.
	Late string `json:"late,omitempty"`
	// Weight is its share in the election; 100 is usual.
	Weight int `json:"weight,omitempty"`
	// Version of its daemon.
	Version string `json:"version,omitempty"`
}

// VIPStatus says where one address is and why.
type VIPStatus struct {
	// Name is that of the object that the address comes from.
	Name string `json:"name"`
	// Kind is that of the same object.
	Kind string `json:"kind"`
	// Address is the VIP without a prefix length.
	Address string `json:"address"`
	// Mode is how it is announced: "l2" or "bgp".
	Mode string `json:"mode"`
	// Interface is where it is, or would be, announced on this node.
	Interface string `json:"interface,omitempty"`
	// Owner is the node that owns it; empty if nobody is known to.
	Owner string `json:"owner"`
	// Reason is one word for why the VIP is, or is not, on this node; the words
	// are those of docs/reasons.md.
	Reason string `json:"reason"`
	// Detail is free text to the reason: the failing check, the foreign host.
	Detail string `json:"detail,omitempty"`
	// Standing is the reason that the group is told: "Owner" and "Standby" mean
	// that this node may own the VIP.
	Standing string `json:"standing,omitempty"`
	// Healthy: the health check passes, or there is none.
	Healthy bool `json:"healthy"`
	// Bound: the address is in the kernel of this node.
	Bound bool `json:"bound"`
	// Announced: this node answers for the address.
	Announced bool `json:"announced"`
	// Epoch numbers the changes of owner; the highest claim wins.
	Epoch uint64 `json:"epoch"`
	// Since is when owner or reason last changed.
	// +optional
	Since time.Time `json:"since,omitzero"`
	// Successors are the nodes that would take it, best first; only the owner
	// knows.
	// +listType=atomic
	Successors []string `json:"successors,omitempty"`
	// Peers are the BGP peers that have the path, sorted; absent for layer 2.
	// +listType=atomic
	Peers []string `json:"peers,omitempty"`
	// Duplicate is the hardware address of a host that answers for the address beside its
	// owner, followed by the name of the node in brackets if it is one of the group; empty
	// if none does.
	Duplicate string `json:"duplicate,omitempty"`
	// Ring is why open connections may be reset when the VIP moves although they
	// ought not to be; empty if nothing is known to be in the way.
	Ring string `json:"ring,omitempty"`
	// Tenant is the name of the Tenant whose address it is; empty if it is of none.
	Tenant string `json:"tenant,omitempty"`
}

// BGPStatus is one BGP session.
type BGPStatus struct {
	// Peer is the name of the BGPPeer.
	Peer string `json:"peer"`
	// Address is that of the peer.
	Address string `json:"address"`
	// LocalASN is the configured AS number of this node.
	// +kubebuilder:validation:Format=int64
	LocalASN uint32 `json:"localASN,omitempty"`
	// PeerASN is the configured AS number of the peer; with dynamicASN external the one
	// that it has, absent unless established.
	// +kubebuilder:validation:Format=int64
	PeerASN uint32 `json:"peerASN,omitempty"`
	// State is the state of the session by RFC 4271 section 8.2.2.
	State string `json:"state"`
	// Since is when the session was last established or lost.
	// +optional
	Since time.Time `json:"since,omitzero"`
	// HoldTime is the negotiated one, as a Go duration; the configured one unless
	// established.
	HoldTime string `json:"holdTime,omitempty"`
	// Families are the negotiated ones, "ipv4" and "ipv6".
	// +listType=atomic
	Families []string `json:"families,omitempty"`
	// BFD is the state of the BFD session by RFC 5880 section 6.2; empty without.
	BFD string `json:"bfd,omitempty"`
	// BFDTransmit is the negotiated interval between own packets, as a Go duration;
	// the configured one until there is any.
	BFDTransmit string `json:"bfdTransmit,omitempty"`
	// BFDReceive is the same for packets of the peer.
	BFDReceive string `json:"bfdReceive,omitempty"`
	// BFDDetect is the detection time, as a Go duration; empty until there is any.
	BFDDetect string `json:"bfdDetect,omitempty"`
	// Advertised are the prefixes that the peer is being told.
	// +listType=atomic
	Advertised []string `json:"advertised,omitempty"`
	// Paths are the same with their attributes.
	// +listType=atomic
	Paths []BGPPathStatus `json:"paths,omitempty"`
	// Received counts the prefixes that the peer has sent and that are ignored.
	// +kubebuilder:validation:Format=int64
	Received uint32 `json:"received,omitempty"`
	// Flaps counts how often the session was lost since it was configured.
	Flaps uint64 `json:"flaps,omitempty"`
	// Error is why the session is not, or was last not, established, in words.
	Error string `json:"error,omitempty"`
	// LastErrorAt is when Error occurred.
	// +optional
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
}

// BGPPathStatus is one prefix as a BGP peer is told of it.
type BGPPathStatus struct {
	Prefix string `json:"prefix"`
	// LocalPref is LOCAL_PREF; absent towards eBGP peers.
	// +kubebuilder:validation:Format=int64
	LocalPref *uint32 `json:"localPref,omitempty"`
	// MED is MULTI_EXIT_DISC; absent if it is not set.
	// +kubebuilder:validation:Format=int64
	MED *uint32 `json:"med,omitempty"`
	// Prepend is how many more times than needed the own ASN is in AS_PATH.
	Prepend int `json:"asPathPrepend,omitempty"`
	// Communities are standard ones ("65000:1") and large ones ("large:1:2:3").
	// +listType=atomic
	Communities []string `json:"communities,omitempty"`
	// GracefulShutdown: the peer is asked to prefer other paths (RFC 8326), since
	// the node is draining.
	GracefulShutdown bool `json:"gracefulShutdown,omitempty"`
}

// ConfigStatus tells which configuration is in force and whether a newer one
// was refused.
type ConfigStatus struct {
	// Path is the file or directory that --config named.
	Path string `json:"path"`
	// Generation counts the configurations that were accepted, from 1.
	Generation uint64 `json:"generation"`
	// LoadedAt is when the one in force was accepted.
	// +optional
	LoadedAt time.Time `json:"loadedAt,omitzero"`
	// Error is why the newest change was refused, a line for each fault; empty if
	// the newest is in force.
	Error string `json:"error"`
	// Warnings do not keep a configuration from being used.
	// +listType=atomic
	Warnings []string `json:"warnings"`
}

// KubernetesStatus tells how a node stands with the API server of its cluster.
type KubernetesStatus struct {
	// Connected: objects of the cluster are being watched. While they are not, what
	// was read last stays in force.
	Connected bool `json:"connected"`
	// Synced: all objects have been read since the daemon started.
	Synced bool `json:"synced"`
	// Since is when Connected last changed.
	// +optional
	Since time.Time `json:"since,omitzero"`
	// LastError is why the node is not, or was last not, connected.
	LastError string `json:"lastError,omitempty"`
	// Problems are what objects of the cluster ask for and do not get on this node,
	// each with the kind and the name of the object; at most MaxKubernetesProblems.
	// +optional
	// +listType=atomic
	Problems []string `json:"problems,omitempty"`
	// ProblemCount counts all of them.
	ProblemCount int `json:"problemCount,omitempty"`
	// Warnings are about objects of the cluster that are used as they are written, such
	// as a VirtualIP without a health check; at most MaxKubernetesProblems.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}

// ServiceConnectionsStatus tells what becomes of open connections to Services.
type ServiceConnectionsStatus struct {
	// Kept: this node takes part in keeping them.
	Kept bool `json:"kept"`
	// Reason is why they, or some of them, may be reset; empty if nothing is known to be in the
	// way.
	Reason string `json:"reason,omitempty"`
}

// MachinesStatus tells how a node stands with the management cluster of Cluster API.
type MachinesStatus struct {
	// Manager: the node reads the API of a management cluster and knows its Machines.
	Manager bool `json:"manager"`
	// Writer: of the nodes of the group that do, this one writes there.
	Writer bool `json:"writer"`
	// Drain is why this node drains with its Machine: the Machine, the signal and the
	// node that told of it.
	Drain string `json:"drain,omitempty"`
	// Drained: nothing is announced, bound or waited for here any more.
	Drained bool `json:"drained,omitempty"`
	// LastError is why the API is not, or was last not, read.
	LastError string `json:"lastError,omitempty"`
}

// MaxKubernetesProblems bounds each list in a status.
const MaxKubernetesProblems = 50

// GossipStatus counts what the gossip layer had to drop.
type GossipStatus struct {
	// KeyMismatches counts packets that no key of the keyring opens.
	KeyMismatches uint64 `json:"keyMismatches"`
	// LastMismatchFrom is the address the last such packet came from.
	LastMismatchFrom string `json:"lastMismatchFrom,omitempty"`
	// LastMismatchAt is when it came.
	// +optional
	LastMismatchAt time.Time `json:"lastMismatchAt,omitzero"`
	// Absent are the configured peers that are not members now: not running, not
	// reached, or with another key.
	// +listType=atomic
	Absent []string `json:"absent,omitempty"`
	// NameConflicts counts how often a host was heard that uses the name of another
	// node, not always this one.
	NameConflicts uint64 `json:"nameConflicts,omitempty"`
	// LastConflictName is the name that a host was refused last.
	LastConflictName string `json:"lastConflictName,omitempty"`
	// LastConflictFrom is the gossip address of that host.
	LastConflictFrom string `json:"lastConflictFrom,omitempty"`
	// LastConflictAt is when that was.
	// +optional
	LastConflictAt time.Time `json:"lastConflictAt,omitzero"`
	// Error is the last fault of the gossip layer in words; empty if none.
	Error string `json:"error,omitempty"`
}

// HealthStatus is one health check on this node.
type HealthStatus struct {
	// Name is the name of the object that the check belongs to.
	Name string `json:"name"`
	// State is "unknown" (no result yet), "up" or "down".
	State string `json:"state"`
	// Since is when State last changed.
	// +optional
	Since time.Time `json:"since,omitzero"`
	// Detail is the last failure in words while the check does not pass.
	Detail string `json:"detail,omitempty"`
	// LastDuration is how long the newest run took, as a Go duration.
	LastDuration string `json:"lastDuration,omitempty"`
	// Successes counts the runs that passed since the daemon started.
	Successes uint64 `json:"successes,omitempty"`
	// Failures counts those that did not.
	Failures uint64 `json:"failures,omitempty"`
}

// DriverStatus is one part that acts on the kernel or the network.
type DriverStatus struct {
	Name string `json:"name"`
	// Error is its last error in words; empty while all is well.
	Error string `json:"error"`
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
