// Package model holds the nouns of lbd: plain values that sources fill in, that
// a decision reads and that drivers obey. It has no behaviour beyond small
// lookups, and it knows no Kubernetes, memberlist, netlink or GoBGP type.
package model

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// NodeName names one daemon of the group. It is unique within a group.
type NodeName string

// Partition says what an owner does when it can no longer see the other nodes.
type Partition uint8

const (
	// PartitionAvailable keeps the VIP announced on every side of a partition.
	PartitionAvailable Partition = iota
	// PartitionQuorum lets only the side own the VIP that sees a majority of the
	// configured peers.
	PartitionQuorum
)

// VIP is one address that the group keeps reachable. An object with several
// addresses yields several VIPs with the same Name.
type VIP struct {
	Addr netip.Addr // never a 4-in-6 address, never zoned
	Name string     // name of the object it comes from; both families share it
	Kind string     // kind of that object: "VirtualIP", "Service", "BGPListener" ...
	// L2 asks for announcement by ARP or NDP.
	L2 bool
	// Interfaces limits layer 2 to these interfaces, in order of preference.
	// Empty means: the interface whose subnet holds the address.
	Interfaces []string
	// Balanced, with L2: every node that may own the VIP has it bound, silently, and
	// the owner spreads new connections over them.
	Balanced bool
	// BGP asks for advertisement by BGP on every eligible node, in each of these
	// ways; empty: not by BGP. A VIP may have both. The list is never changed; VIPs
	// that are advertised alike should share one, which decisions find at a glance.
	BGP []BGPAdvert
	// NodeSelector limits the nodes that may own the VIP; nil matches all.
	NodeSelector map[string]string
	// Preempt lets a better ranked node take the VIP back from its owner.
	Preempt bool
	// Preference goes before the hash in the ranking of nodes; nil: no node is
	// preferred. A node that is preferred takes the VIP back.
	Preference *Preference
	// Partition says what happens without a majority of peers.
	Partition Partition
	// Check names the entry of View.Health that gates the VIP; empty means that
	// the VIP has no health check.
	Check string
	// Unbound: the address is not to be bound on a node, for rules of the kernel take its
	// packets, those of another program (kube-proxy) or of lbd, see Forwarded, or they go on to
	// another machine, see Learned. Layer 2 answers for it.
	Unbound bool
	// Barred is why the source of the VIP keeps this node from announcing it, such as
	// ReasonNoEndpoint; ReasonOwner, the zero value, if it does not. BarredDetail is
	// that in words.
	Barred       Reason
	BarredDetail string
}

// FindVIP finds the VIP with an address in a list that is sorted by address.
func FindVIP(vips []VIP, a netip.Addr) (index int, found bool) {
	return slices.BinarySearchFunc(vips, a, func(v VIP, a netip.Addr) int { return v.Addr.Compare(a) })
}

// FollowsOwner tells whether routers are told of the VIP by the node alone that owns it at layer 2.
// What the servers say to a VIP that is forwarded comes back by a router, which leads it to that
// node. Several would not know that two clients have one port on one server.
func (v *VIP) FollowsOwner() bool { return v.L2 && len(v.BGP) > 0 && v.Forwarded() }

// Forwarded tells whether lbd itself sends what comes to the VIP to other machines.
func (v *VIP) Forwarded() bool {
	return v.Kind == KindLoadBalancer || v.Kind == KindTenantService || v.Kind == KindMachineLoadBalancer && v.Unbound
}

// Learned tells whether other machines have the VIP, of which this one learns by BGP.
func (v *VIP) Learned() bool { return v.Kind == KindBGPListener }

// Same compares what is configured. Adverts and preferences that are not the same
// ones count as different: they come from another configuration.
func (v *VIP) Same(o *VIP) bool {
	return v.Addr == o.Addr && v.Name == o.Name && v.Kind == o.Kind && v.L2 == o.L2 && v.Balanced == o.Balanced && SameList(v.BGP, o.BGP) &&
		v.Unbound == o.Unbound && v.Barred == o.Barred && v.BarredDetail == o.BarredDetail &&
		v.Preempt == o.Preempt && v.Preference == o.Preference && v.Partition == o.Partition && v.Check == o.Check &&
		slices.Equal(v.Interfaces, o.Interfaces) && maps.Equal(v.NodeSelector, o.NodeSelector)
}

// Matches tells whether all labels of the selector are there.
func Matches(selector, labels map[string]string) bool {
	for k, want := range selector {
		if got, ok := labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}

// SameList tells whether two lists are one, or both empty.
func SameList[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// Preference orders nodes: a higher score goes first, and a node without one has 0.
// It is never changed once it is in a VIP.
type Preference struct{ Scores map[NodeName]int }

// Of returns the score of a node. A nil Preference prefers none.
func (p *Preference) Of(n NodeName) int {
	if p == nil {
		return 0
	}
	return p.Scores[n]
}

// Claim is the statement of one node that it owns a VIP. The claim with the
// highest (epoch, rank) of a live node counts.
type Claim struct {
	Owner NodeName
	Epoch uint64 // starts at 1; 0 means no claim
	// To names the successor during a planned handover: the owner consents that
	// this node takes the VIP with a higher epoch without asking the wire.
	To NodeName
	// Weak: the owner took the VIP without hearing from any other node, so it may
	// be the one that is cut off. It has not raised the epoch, and yields to a claim
	// with the same one that is not weak.
	Weak bool
	// Duplicate is the hardware address of a host that answers for the VIP beside the
	// owner; zero if the owner knows of none.
	Duplicate MAC
	// Verdict is what the owner says of the servers that it forwards the VIP to.
	Verdict Verdict
}

// HealthState is the debounced result of one health check on this node.
type HealthState struct {
	State  Health
	Since  time.Time // of the last change of State
	Detail string    // last failure in words, for people
	// Failing is why the last run failed, or one less than a second ago, while State passes;
	// "": it did not. It is told of the servers of LoadBalancers only.
	Failing string
}

// Health is how the service on this node does.
type Health uint8

const (
	// HealthUnknown is the state before the first result; it makes no node
	// eligible, but it does not take a VIP from a restarted owner either.
	HealthUnknown Health = iota
	// HealthUp is reached after rise successes; with a preferred check, of that.
	HealthUp
	// HealthDown is reached after fall failures.
	HealthDown
	// HealthDegraded: the required check passes, the preferred one fails. The node may
	// have the VIP, but one that is up is better.
	HealthDegraded
)

// Passes tells whether the service may be announced, as well or as badly as it does.
func (h Health) Passes() bool { return h == HealthUp || h == HealthDegraded }

// String returns "unknown", "up", "down" or "degraded".
func (h Health) String() string {
	switch h {
	case HealthUp:
		return "up"
	case HealthDown:
		return "down"
	case HealthDegraded:
		return "degraded"
	}
	return "unknown"
}

// Former is the VIP as it was before it changed between bound and not bound. What began in one
// way is let go in the same way, then begins anew.
func (v *VIP) Former(unbound bool) *VIP {
	was := *v
	was.Unbound = unbound
	return &was
}

// VIPMemory is the memory of one VIP.
type VIPMemory struct {
	Phase Phase
	// Gen is the generation at which the present phase first asked the drivers for
	// its part; only reports at or after it count.
	Gen uint64
	// Until is the timer of the phase.
	Until time.Time
	// Unbound is the VIP.Unbound by which the phase began.
	Unbound bool
	// Interface is where the VIP was last bound.
	Interface string
	// AddBefore goes into the Binding of the phases Taking to Handover.
	AddBefore time.Time
	// Silent: layer 2 was told to be silent, and stays so until the address is gone.
	Silent bool
	// Dispute: another member to which gossip does not lead uses the VIP on the wire. nil:
	// none does. It is never changed.
	Dispute *Dispute
	// HeldUntil is until when this node holds the connections of a Service whatever is
	// tracked: it has just served it.
	HeldUntil time.Time

	OwnClaim
	OnWire
	Takeover
	Handover
	GivenUp
	Told
}

// OwnClaim is how this node claims the VIP.
type OwnClaim struct {
	Epoch uint64 // in Taking, Owner and Handover
	// Weak: see Claim.Weak.
	Weak bool
	// Consented: the owner named this node as its successor, so the claim follows
	// the announcement instead of going before it.
	Consented bool
	// Contested: another live node claims the VIP with a lower claim. When that
	// ends, the VIP is announced again to mend what the rival taught the clients.
	Contested bool
	// Held is the highest epoch with which this node has owned the VIP: a former owner that
	// names it with a lower one has not been heard since.
	Held uint64
}

// OnWire is what was last said and heard of the VIP on the wire.
type OnWire struct {
	// Series and Burst number probe series and announcement bursts.
	Series, Burst uint64
	// Asks counts the probe series that were answered in a row; in doubt those in
	// which another node asked too, or somebody answered.
	Asks int
	// Holder is who answered the last of them.
	Holder MAC
	// Rival is the node that asked too in the last series and goes first; zero if none does.
	Rival MAC
	// Conflicts is the conflict count of layer 2, as far as an owner has looked at it.
	Conflicts uint64
}

// Takeover is whom this node takes the VIP from.
type Takeover struct {
	// From is the owner that is being succeeded, "" if there was none.
	From NodeName
	// LostAt is when the owner was first missed, for the takeover metric.
	LostAt time.Time
	// Answered is the Member.Suspect of the owner for which somebody answered on the wire.
	Answered time.Time
	// Hearing: nobody ever owned the VIP, and this node waits for what better ranked
	// ones say of it.
	Hearing bool
	// RelayUntil is until when packets of connections of From are relayed to it.
	RelayUntil time.Time
}

// Handover is to whom this node gives the VIP.
type Handover struct {
	// To is the successor in a handover; Tried are those that did not answer.
	To    NodeName
	Tried []NodeName
	// Deferred is when a handover or preemption without taker is tried again.
	Deferred time.Time
	// Outclassed is since when an owner has been degraded, and another node up; zero: not.
	Outclassed time.Time
}

// GivenUp is why this node gave the VIP up last, and what it keeps for connections.
type GivenUp struct {
	// Lost is why; it counts in Releasing and Unbinding and, for ReasonDriverError,
	// until Deferred.
	Lost Reason
	// LostDetail is the error behind ReasonDriverError in words.
	LostDetail string
	// Kept: the VIP was released longer ago than connections may linger, and stays,
	// silently, because this node is well and has some.
	Kept bool
	// Resume: the VIP was let go although it has connections here, since its owner
	// seemed to be missing, or names this node. If the owner is well they are kept on.
	// Until it is bound again, in one way or the other.
	Resume bool
}

// Told is what the last status said.
type Told struct {
	Owner  NodeName
	Reason Reason
	Since  time.Time
}

// HeldOn is the interface on which this node has a VIP or is about to, and answers for it; else "".
func (m *VIPMemory) HeldOn() string {
	if m.Phase.Holds() {
		return m.Interface
	}
	return ""
}

// BoundOn is the interface on which a VIP is bound, or is to be; else "".
func (m *VIPMemory) BoundOn() string {
	if m.Unbound || m.Phase != PhaseReleasing && !m.Phase.Holds() {
		return ""
	}
	return m.Interface
}

// Dispute is what an owner has heard of another one on its wire.
type Dispute struct {
	By          MAC // who was heard last
	Since, Last time.Time
}

// Same compares two disputes.
func (d *Dispute) Same(o *Dispute) bool {
	return d == o || d != nil && o != nil && d.By == o.By && d.Since.Equal(o.Since) && d.Last.Equal(o.Last)
}

// Same compares two memories.
func (m *VIPMemory) Same(o *VIPMemory) bool {
	return m.Phase == o.Phase && m.Gen == o.Gen && m.Until.Equal(o.Until) && m.Unbound == o.Unbound && m.Interface == o.Interface &&
		m.AddBefore.Equal(o.AddBefore) && m.Silent == o.Silent && m.Dispute.Same(o.Dispute) && m.HeldUntil.Equal(o.HeldUntil) &&
		m.OwnClaim == o.OwnClaim && m.OnWire == o.OnWire && m.GivenUp == o.GivenUp &&
		m.From == o.From && m.LostAt.Equal(o.LostAt) && m.Answered.Equal(o.Answered) && m.Hearing == o.Hearing && m.RelayUntil.Equal(o.RelayUntil) &&
		m.To == o.To && slices.Equal(m.Tried, o.Tried) && m.Deferred.Equal(o.Deferred) && m.Outclassed.Equal(o.Outclassed) &&
		m.Owner == o.Owner && m.Reason == o.Reason && m.Since.Equal(o.Since)
}

// The marks of the addresses that lbd binds. An address that carries neither
// was configured by somebody else and is never touched; an address that carries
// one and is not wanted was left behind by an earlier process.
const (
	// AddressProtocol is the origin that the kernel stores with an address
	// (IFA_PROTO, Linux 5.18). The kernel itself uses 1 to 3
	// (include/uapi/linux/if_addr.h); programs that mark their addresses take
	// their route protocol number (keepalived: 18), and 108 is none of those that
	// /etc/iproute2/rt_protos names.
	AddressProtocol uint8 = 0x6c // 'l'
	// AddressMetric marks addresses where the kernel does not know IFA_PROTO: the
	// metric of the prefix route (IFA_RT_PRIORITY, Linux 4.18), which has no other
	// effect on an address that has no prefix route.
	AddressMetric uint32 = 0x6c626400 // "lbd\0"
)

// AddressMarked tells whether an address with this origin and metric was bound
// by lbd. An attribute that the kernel does not report counts as 0.
func AddressMarked(protocol uint8, metric uint32) bool {
	return protocol == AddressProtocol || protocol == 0 && metric == AddressMetric
}
