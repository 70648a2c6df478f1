package control

import (
	"strings"

	"lbd.dev/lbd/internal/model"
)

// reasonText returns one sentence for a reason, without a capital and a full
// stop. {node} is the node it is about, {owner} the owner of the VIP.
func reasonText(reason model.Reason) string {
	switch reason {
	case model.ReasonOwner:
		return "{node} owns the VIP and announces it"
	case model.ReasonStandby:
		return "{owner} owns the VIP; {node} is ready to take it over"
	case model.ReasonLostElection:
		return "{node} gave the VIP up because {owner} has a higher claim to it"
	case model.ReasonTakingOver:
		return "{node} has claimed the VIP and is binding its address now"
	case model.ReasonProbing:
		return "nobody owns the VIP; {node} is asking the network whether the address is really free"
	case model.ReasonWaitingTurn:
		return "nobody owns the VIP; a node that ranks higher may take it first, {node} waits for its turn"
	case model.ReasonWaitingForRelease:
		return "the old owner is silent, but the address still answers on the network; {node} takes it once it is released"
	case model.ReasonConflict:
		return "a host that does not belong to this group uses the address; find and remove it"
	case model.ReasonHandingOver:
		return "{node} still owns the VIP while its successor is getting ready"
	case model.ReasonNoSuccessor:
		return "{node} should give the VIP up but keeps it, since no other node can take it"
	case model.ReasonReleasing:
		return "{node} has handed the VIP over and only keeps it for connections that are still open"
	case model.ReasonNotSettled:
		return "{node} has just started or its link has just come up; it first learns who owns what"
	case model.ReasonUnhealthy:
		return "the health check of the service fails on {node}"
	case model.ReasonHealthPending:
		return "the health check has not passed on {node} since the daemon started"
	case model.ReasonDraining:
		return "{node} is draining, so it takes no VIP"
	case model.ReasonNoSubnet:
		return "no interface of {node} has an address in the subnet of the VIP"
	case model.ReasonNoInterface:
		return "{node} has none of the interfaces that the VIP names"
	case model.ReasonLinkDown:
		return "the interface for the VIP is down or has no carrier on {node}"
	case model.ReasonNotSelected:
		return "the node selector of the VIP does not match the labels of {node}"
	case model.ReasonNoQuorum:
		return "{node} does not see a majority of the configured peers, and the VIP has `partition: quorum`"
	case model.ReasonLocalAddress:
		return "the address is already configured on an interface of {node}, outside lbd; a VIP must be free"
	case model.ReasonFamilyDisabled:
		return "IPv6 is disabled on the interface for the VIP on {node}"
	case model.ReasonLeaseExpired:
		return "the daemon did not run for a while, so the kernel of {node} removed the address and another node may have it"
	case model.ReasonDriverError:
		return "{node} could not bind or announce the address"
	case model.ReasonNotAnnounced:
		return "the VIP asks for no way of announcing that {node} has"
	case model.ReasonAdvertised:
		return "{node} advertises the VIP by BGP"
	case model.ReasonBinding:
		return "{node} is binding the address of the VIP, then it advertises it by BGP"
	case model.ReasonNoSession:
		return "{node} is ready to advertise the VIP, but no BGP session with a peer is established; `lbd status bgp` says why"
	case model.ReasonNoPeer:
		return "no BGP peer that the VIP names is configured for {node}"
	case model.ReasonShuttingDown:
		return "{node} is draining and asks its BGP peers to prefer other nodes (GRACEFUL_SHUTDOWN) before it withdraws the VIP"
	case model.ReasonWithdrawn:
		return "{node} has withdrawn the VIP from its BGP peers and only keeps it for packets that are under way"
	}
	return ""
}

// sentence says why a VIP is, or is not, on a node; reason is a name of
// model.Reason, perhaps of a newer version. Detail is added if there is any.
func sentence(reason, node, owner, detail string) string {
	text := ""
	if known, ok := model.ParseReason(reason); ok {
		text = reasonText(known)
	}
	switch {
	case reason == model.ReasonDraining.String() && detail == "": // else the daemon is stopping
		text += "; `lbd undrain` ends that"
	case reason == model.ReasonStandby.String() && owner == "":
		text = "nobody owns the VIP; {node} is ready to take it"
	}
	if text == "" {
		text = "{node} says " + reason + ", which this command does not know"
	}
	if owner == "" {
		owner = "another node"
	}
	text = strings.NewReplacer("{node}", node, "{owner}", owner).Replace(text)
	if detail != "" {
		text += ": " + detail
	}
	return text
}
