package model

// Reason says in one word why a VIP is, or is not, on this node. Each has a row
// in docs/reasons.md; a test compares the two.
type Reason uint8

// The reasons. The order is not part of any format; only the names are.
const (
	// ReasonOwner: this node owns the VIP and announces it.
	ReasonOwner Reason = iota
	// ReasonStandby: another node owns the VIP, this one could.
	ReasonStandby
	// ReasonLostElection: a higher claim made this node give the VIP up.
	ReasonLostElection
	// ReasonTakingOver: this node has claimed the VIP and is binding it.
	ReasonTakingOver
	// ReasonProbing: the VIP has no owner; this node asks the wire for it.
	ReasonProbing
	// ReasonWaitingTurn: the VIP has no owner; a better ranked node goes first.
	ReasonWaitingTurn
	// ReasonWaitingForRelease: the owner is silent in gossip, but its kernel
	// still answers for the VIP.
	ReasonWaitingForRelease
	// ReasonConflict: a host that is not a member answers for the VIP.
	ReasonConflict
	// ReasonHandingOver: this node owns the VIP and a successor is taking it.
	ReasonHandingOver
	// ReasonNoSuccessor: this node should give the VIP up but nobody can take it.
	ReasonNoSuccessor
	// ReasonReleasing: silent, kept bound until connections ended.
	ReasonReleasing
	// ReasonNotSettled: the node has just started or regained its link and does
	// not know the group yet.
	ReasonNotSettled
	// ReasonUnhealthy: the health check fails.
	ReasonUnhealthy
	// ReasonHealthPending: the health check has not passed since the start.
	ReasonHealthPending
	// ReasonDraining: the node is draining.
	ReasonDraining
	// ReasonNoSubnet: no interface has a subnet that holds the address.
	ReasonNoSubnet
	// ReasonNoInterface: none of the named interfaces exists.
	ReasonNoInterface
	// ReasonLinkDown: the interface is down or has no carrier.
	ReasonLinkDown
	// ReasonNotSelected: the node selector does not match this node.
	ReasonNotSelected
	// ReasonNoQuorum: fewer than a majority of the configured peers are seen.
	ReasonNoQuorum
	// ReasonLocalAddress: the VIP is a node address of an interface here.
	ReasonLocalAddress
	// ReasonFamilyDisabled: IPv6 is disabled on the interface.
	ReasonFamilyDisabled
	// ReasonLeaseExpired: the kernel removed the address because this daemon did
	// not run; it is not the owner any more.
	ReasonLeaseExpired
	// ReasonDriverError: the address could not be bound or announced.
	ReasonDriverError
	// ReasonNotAnnounced: the object asks for no announcer this node has.
	ReasonNotAnnounced
	// ReasonAdvertised: this node advertises the VIP to at least one BGP peer.
	ReasonAdvertised
	// ReasonBinding: the address is being bound, before it is advertised.
	ReasonBinding
	// ReasonNoSession: bound and ready, but no session with a peer is established.
	ReasonNoSession
	// ReasonNoPeer: no BGP peer that the VIP names is configured for this node.
	ReasonNoPeer
	// ReasonShuttingDown: draining; advertised with GRACEFUL_SHUTDOWN.
	ReasonShuttingDown
	// ReasonWithdrawn: withdrawn; bound for packets that are under way.
	ReasonWithdrawn
	// ReasonNoEndpoint: no endpoint of the Service is ready for what arrives here.
	ReasonNoEndpoint
	// ReasonNodeExcluded: Kubernetes says that the node is to get no traffic of
	// Services.
	ReasonNodeExcluded
	// ReasonMachineDraining: the Machine of the node is going away, or was marked.
	ReasonMachineDraining
	reasonCount // keep last
)

var reasonNames = [reasonCount]string{
	"Owner", "Standby", "LostElection", "TakingOver", "Probing", "WaitingTurn",
	"WaitingForRelease", "Conflict", "HandingOver", "NoSuccessor", "Releasing",
	"NotSettled", "Unhealthy", "HealthPending", "Draining", "NoSubnet",
	"NoInterface", "LinkDown", "NotSelected", "NoQuorum", "LocalAddress",
	"FamilyDisabled", "LeaseExpired", "DriverError", "NotAnnounced",
	"Advertised", "Binding", "NoSession", "NoPeer", "ShuttingDown", "Withdrawn", "NoEndpoint", "NodeExcluded",
	"MachineDraining",
}

// String returns the name that status, metrics and gossip use.
func (r Reason) String() string {
	if r < reasonCount {
		return reasonNames[r]
	}
	return "Unknown"
}

// Look tells whether a person should look if the reason lasts; docs/reasons.md
// says of each the same.
func (r Reason) Look() bool {
	switch r {
	case ReasonWaitingForRelease, ReasonConflict, ReasonNoSuccessor, ReasonUnhealthy, ReasonNoSubnet, ReasonNoInterface,
		ReasonLinkDown, ReasonNoQuorum, ReasonLocalAddress, ReasonFamilyDisabled, ReasonLeaseExpired, ReasonDriverError,
		ReasonNotAnnounced, ReasonNoSession, ReasonNoPeer:
		return true
	}
	return false
}

// ParseReason is the inverse of String; a name of a newer version is false.
func ParseReason(s string) (Reason, bool) {
	for i, n := range reasonNames {
		if n == s {
			return Reason(i), true
		}
	}
	return 0, false
}

// Reasons lists every reason, for documentation tests and metrics.
func Reasons() []Reason {
	all := make([]Reason, reasonCount)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}
