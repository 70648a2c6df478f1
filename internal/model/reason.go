package model

// Reason says in one word why a VIP is, or is not, on this node. Each has a row
// in docs/reasons.md; a test compares the two.
type Reason uint8

// The reasons. The order is not part of any format; only the names are.
const (
	ReasonOwner             Reason = iota // this node owns the VIP and announces it
	ReasonStandby                         // another node owns the VIP, this one could
	ReasonLostElection                    // a higher claim made this node give the VIP up
	ReasonTakingOver                      // this node has claimed the VIP and is binding it
	ReasonProbing                         // the VIP has no owner, or this node is and may have lost it; it asks the wire
	ReasonWaitingTurn                     // the VIP has no owner; a better ranked node goes first
	ReasonWaitingForRelease               // the owner is silent in gossip, but its kernel still answers for the VIP
	ReasonConflict                        // a host that is not a member answers for the VIP
	ReasonHandingOver                     // this node owns the VIP and a successor is taking it
	ReasonNoSuccessor                     // this node should give the VIP up but nobody can take it
	ReasonReleasing                       // silent, kept bound until connections ended
	ReasonNotSettled                      // the node has just started or regained its link and does not know the group yet
	ReasonUnhealthy                       // the health check fails
	ReasonHealthPending                   // the health check has not passed since the start
	ReasonDraining                        // the node is draining
	ReasonNoSubnet                        // no interface has a subnet that holds the address
	ReasonNoInterface                     // none of the named interfaces exists
	ReasonLinkDown                        // the interface is down or has no carrier
	ReasonNotSelected                     // the node selector does not match this node
	ReasonNoQuorum                        // fewer than a majority of the configured peers are seen
	ReasonLocalAddress                    // the VIP is a node address of an interface here
	ReasonFamilyDisabled                  // IPv6 is disabled on the interface
	ReasonLeaseExpired                    // the kernel removed the address because this daemon did not run
	ReasonDriverError                     // the address could not be bound or announced
	ReasonNotAnnounced                    // the object asks for no announcer this node has
	ReasonAdvertised                      // this node advertises the VIP to at least one BGP peer
	ReasonBinding                         // the address is being bound, before it is advertised
	ReasonNoSession                       // bound and ready, but no session with a peer is established
	ReasonNoPeer                          // no BGP peer that the VIP names is configured for this node
	ReasonShuttingDown                    // draining; advertised with GRACEFUL_SHUTDOWN
	ReasonWithdrawn                       // withdrawn; bound for packets that are under way
	ReasonNoEndpoint                      // no endpoint of the Service is ready for what arrives here
	ReasonNodeExcluded                    // Kubernetes says that the node is to get no traffic of Services
	ReasonMachineDraining                 // the Machine of the node is going away, or was marked
	ReasonARPDisabled                     // the kernel answers no ARP on the interface
	ReasonDegraded                        // it passes the required check, not the preferred one; a node that passes both goes first
	ReasonMachineDisabled                 // the Machine of the node was taken out of the MachineLoadBalancer that the VIP is of
	ReasonRemoved                         // the configuration here has the VIP no more; that of another node may, so it is handed over
	ReasonWireDark                        // nobody answers on the network of the VIP, while others hear each other there
	ReasonNotForwarding                   // the kernel here does not forward what comes to the VIP
	ReasonNoNextHop                       // no machine that has the VIP tells this one of it by BGP
	reasonCount                           // keep last
)

// Whether a person should look.
const calm, look = false, true

var reasons = [reasonCount]struct {
	name  string
	class Class
	look  bool
}{
	ReasonOwner:             {"Owner", ClassMayServe, calm},
	ReasonStandby:           {"Standby", ClassMayServe, calm},
	ReasonLostElection:      {"LostElection", ClassProgress, calm},
	ReasonTakingOver:        {"TakingOver", ClassProgress, calm},
	ReasonProbing:           {"Probing", ClassProgress, calm},
	ReasonWaitingTurn:       {"WaitingTurn", ClassProgress, calm},
	ReasonWaitingForRelease: {"WaitingForRelease", ClassProgress, look},
	ReasonConflict:          {"Conflict", ClassProgress, look},
	ReasonHandingOver:       {"HandingOver", ClassProgress, calm},
	ReasonNoSuccessor:       {"NoSuccessor", ClassProgress, look},
	ReasonReleasing:         {"Releasing", ClassProgress, calm},
	ReasonNotSettled:        {"NotSettled", ClassWaiting, calm},
	ReasonUnhealthy:         {"Unhealthy", ClassDead, look},
	ReasonHealthPending:     {"HealthPending", ClassWaiting, calm},
	ReasonDraining:          {"Draining", ClassDrain, calm},
	ReasonNoSubnet:          {"NoSubnet", ClassImpossible, look},
	ReasonNoInterface:       {"NoInterface", ClassImpossible, look},
	ReasonLinkDown:          {"LinkDown", ClassImpossible, look},
	ReasonNotSelected:       {"NotSelected", ClassLeave, calm},
	ReasonNoQuorum:          {"NoQuorum", ClassImpossible, look},
	ReasonLocalAddress:      {"LocalAddress", ClassImpossible, look},
	ReasonFamilyDisabled:    {"FamilyDisabled", ClassImpossible, look},
	ReasonLeaseExpired:      {"LeaseExpired", ClassProgress, look},
	ReasonDriverError:       {"DriverError", ClassBlocked, look},
	ReasonNotAnnounced:      {"NotAnnounced", ClassImpossible, look},
	ReasonAdvertised:        {"Advertised", ClassProgress, calm},
	ReasonBinding:           {"Binding", ClassProgress, calm},
	ReasonNoSession:         {"NoSession", ClassProgress, look},
	ReasonNoPeer:            {"NoPeer", ClassBlocked, look},
	ReasonShuttingDown:      {"ShuttingDown", ClassProgress, calm},
	ReasonWithdrawn:         {"Withdrawn", ClassProgress, calm},
	ReasonNoEndpoint:        {"NoEndpoint", ClassDead, calm},
	ReasonNodeExcluded:      {"NodeExcluded", ClassDrain, calm},
	ReasonMachineDraining:   {"MachineDraining", ClassDrain, calm},
	ReasonARPDisabled:       {"ARPDisabled", ClassLeave, look},
	ReasonDegraded:          {"Degraded", ClassDegraded, look},
	ReasonMachineDisabled:   {"MachineDisabled", ClassDrain, calm},
	ReasonRemoved:           {"Removed", ClassRemoved, calm},
	ReasonWireDark:          {"WireDark", ClassLeave, look},
	ReasonNotForwarding:     {"NotForwarding", ClassLeave, look},
	ReasonNoNextHop:         {"NoNextHop", ClassDead, look},
}

// String returns the name that status, metrics and gossip use.
func (r Reason) String() string {
	if r < reasonCount {
		return reasons[r].name
	}
	return "Unknown"
}

// Look tells whether a person should look if the reason lasts; docs/reasons.md
// says of each the same.
func (r Reason) Look() bool { return r < reasonCount && reasons[r].look }

// ParseReason is the inverse of String; a name of a newer version is false.
func ParseReason(s string) (Reason, bool) {
	for i := range reasons {
		if reasons[i].name == s {
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
