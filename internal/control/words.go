package control

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// What the tables say, for whoever shows the same in another form. Foreign text in it has no
// control characters and is on one line.

// Problems are what a user should look at, the first of them first.
func Problems(s v1alpha1.NodeStatus) []string {
	list := problems(s)
	for i := range list {
		list[i] = Line(list[i])
	}
	return list
}

// Condense is the state of a node in a few words.
func Condense(s v1alpha1.NodeStatus) string { return Line(condense(s)) }

// Line is foreign text as one line without control characters.
func Line(text string) string { return clean(oneLine(text)) }

// Why is a sentence, without a full stop, for why a VIP is, or is not, on the node self.
func Why(vip v1alpha1.VIPStatus, self string) string { return Line(whyHere(vip, self)) }

// Reasons are sentences about a VIP: why it is, or is not, on the node that answers, and then
// what a person should look at.
func Reasons(e v1alpha1.Explanation) []string {
	out := []string{Line(sentence(e.Reason, e.Node, e.Owner, e.Detail))}
	if e.Duplicate != "" {
		out = append(out, Line(duplicateProblem(e.Owner, e.Duplicate)))
	}
	if e.Ring != "" {
		out = append(out, Line(ringProblem(e.Ring)))
	}
	if e.Tenant != nil {
		out = append(out, Line(TenantText(e.Tenant)))
	}
	return out
}

// TenantText says whose an address is and where it leads, and what keeps it from that; a sentence without
// a full stop.
func TenantText(o *v1alpha1.TenantOwner) string {
	if len(o.Members) > 0 {
		return globalText(o)
	}
	var ports []string
	for _, p := range o.Ports[:min(len(o.Ports), maxNamed)] {
		ports = append(ports, fmt.Sprintf("%d/%s to NodePort %d", p.Port, p.Protocol, p.TargetPort))
	}
	if more := len(o.Ports) - maxNamed; more > 0 {
		ports = append(ports, fmt.Sprintf("%d more", more))
	}
	of := "a namespace that no Tenant has"
	if o.Tenant != "" {
		of = fmt.Sprintf("the cluster %s of the Tenant %s", o.Cluster, o.Tenant)
	}
	text := fmt.Sprintf("the TenantService %s in the namespace %s, of %s; it leads %s", o.Service, o.Namespace, of, strings.Join(ports, ", "))
	if o.GlobalName != "" {
		text += fmt.Sprintf("; it has the global name %s/global/%s", o.Tenant, o.GlobalName)
	}
	return text + judged(o.Reason, o.Message)
}

// globalText is TenantText of an address that several share.
func globalText(o *v1alpha1.TenantOwner) string {
	var all []string
	for _, m := range o.Members[:min(len(o.Members), maxNamed)] {
		all = append(all, fmt.Sprintf("%s of the cluster %s, with the weight %d%s", m.Service, m.Cluster, m.Weight, judged(m.Reason, m.Message)))
	}
	if more := len(o.Members) - maxNamed; more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("TenantServices of the Tenant %s with the global name %s: %s", o.Tenant, o.GlobalName, strings.Join(all, "; "))
}

// judged is what is wrong with a TenantService.
func judged(reason, message string) string {
	if reason == accepted {
		return ""
	}
	text := "; this node judges " + reason
	if message != "" {
		text += ": " + message
	}
	return text
}

// OfTenant leaves of the VIPs, checks and load balancers of a status those of a tenant. It is an error if the
// node knows none.
func OfTenant(s v1alpha1.NodeStatus, tenant string) (v1alpha1.NodeStatus, error) {
	namespaces := map[string]bool{} // of the clusters of the tenant; the checks of its nodes have them in their names
	s.VIPs = slices.DeleteFunc(slices.Clone(s.VIPs), func(v v1alpha1.VIPStatus) bool {
		_, _, global := model.GlobalOf(v.Name) // which has the name of the Tenant in place of a namespace
		if k, is := model.TenantKey(v.Name); is && !global && v.Tenant == tenant {
			namespaces[k.Namespace] = true
		}
		return v.Tenant != tenant
	})
	foreign := func(name string) bool {
		if of, _, global := model.GlobalOf(name); global {
			return of != tenant
		}
		k, is := model.TenantKey(name)
		return !is || !namespaces[k.Namespace]
	}
	s.LoadBalancers = slices.DeleteFunc(slices.Clone(s.LoadBalancers), func(b v1alpha1.BalancerStatus) bool { return foreign(b.Name) })
	asked := map[string]bool{} // the nodes behind a global name, which names no namespace
	for _, b := range s.LoadBalancers {
		for _, x := range b.Backends {
			if at, err := netip.ParseAddrPort(x.Backend); err == nil {
				asked[at.Addr().String()] = true
			}
		}
	}
	s.Health = slices.DeleteFunc(slices.Clone(s.Health), func(h v1alpha1.HealthStatus) bool {
		return foreign(h.Name) && !(model.OfTenant(h.Name) && asked[h.Name[strings.LastIndexByte(h.Name, '/')+1:]])
	})
	if len(s.VIPs) == 0 {
		return s, fmt.Errorf("node %s knows no address of a tenant %q", s.Node, tenant)
	}
	return s, nil
}

// accepted is the reason of a TenantService with which nothing is wrong.
const accepted = "Accepted"

// CandidateWhy says why a node does, or does not, have a VIP.
func CandidateWhy(e v1alpha1.Explanation, c v1alpha1.Candidate) string {
	if e.Mode == modeBGP {
		return Line(advertiserWhy(c))
	}
	return Line(candidateWhy(c, e.Owner))
}

// backendText has words for each reason of a backend. {by} is the node that says so.
var backendText = map[model.ServerWhy]string{
	model.ServerNoWeight:   "its weight is 0",
	model.ServerLeaving:    "its Machine or Node is about to go, or is not ready",
	model.ServerRemoved:    "it is configured no more",
	model.ServerIsVIP:      "it is an address of lbd, not a server",
	model.ServerDown:       "it fails the check of {by}",
	model.ServerFailing:    "it failed the last check of {by}",
	model.ServerPending:    "it has not passed the check of {by} yet",
	model.ServerOwnerSays:  "{by} says so, the owner or the last one",
	model.ServerNoneBetter: "no backend is better",
	model.ServerNoPlace:    "{by} forwards nothing to it: no address of the LoadBalancer has a place there",
}

// BackendWhy says why a backend gets no new connections, or gets them all the same; empty if it is
// well. What the check says is added if it has to do with that.
func BackendWhy(b v1alpha1.BackendStatus) string {
	text, checked := b.Reason, true // perhaps of a newer version
	for why, words := range backendText {
		if why.String() == b.Reason {
			text, checked = strings.ReplaceAll(words, "{by}", b.By), !why.Configured() && why != model.ServerIsVIP && why != model.ServerNoPlace
		}
	}
	if text != "" && checked && b.Detail != "" {
		text += ": " + b.Detail
	}
	return Line(text)
}

// Share is the part of new connections that a backend gets.
func Share(b v1alpha1.BackendStatus) string { return fmt.Sprintf("%d.%d %%", b.Share/10, b.Share%10) }

// About is what an event is about: a VIP, a session, or a node.
func About(e *v1alpha1.Event) string { return Line(about(e)) }

// Change says in words what an event changed.
func Change(e *v1alpha1.Event) string { return Line(change(e)) }

// Cause says why, as far as the node knows.
func Cause(e *v1alpha1.Event) string { return Line(joined(e, e.Reason, e.Detail)) }

// Gap says for how long something was missed: "no owner for 250ms".
func Gap(e *v1alpha1.Event) string { return Line(gapText(e)) }

// reasonText has one sentence for each reason, without a capital and a full stop.
// {node} is the node it is about, {owner} the owner of the VIP.
var reasonText = map[model.Reason]string{
	model.ReasonOwner:             "{node} owns the VIP and announces it",
	model.ReasonStandby:           "{owner} owns the VIP; {node} is ready to take it over",
	model.ReasonLostElection:      "{node} gave the VIP up because {owner} has a higher claim to it",
	model.ReasonTakingOver:        "{node} has claimed the VIP and is binding its address now",
	model.ReasonProbing:           "nobody owns the VIP; {node} is asking the network whether the address is really free",
	model.ReasonWaitingTurn:       "nobody owns the VIP; a node that ranks higher may take it first, {node} waits for its turn",
	model.ReasonWaitingForRelease: "the old owner is silent, but the address still answers on the network; {node} takes it once it is released",
	model.ReasonConflict:          "a host uses the address although it does not own the VIP; find it and remove the address there",
	model.ReasonHandingOver:       "{node} still owns the VIP while its successor is getting ready",
	model.ReasonNoSuccessor:       "{node} should give the VIP up but keeps it, since no other node can take it",
	model.ReasonReleasing:         "{node} has handed the VIP over and only keeps it for connections that are still open",
	model.ReasonNotSettled:        "{node} has just started or its link has just come up; it first learns who owns what",
	model.ReasonUnhealthy:         "the health check of the service fails on {node}",
	model.ReasonHealthPending:     "the health check has not passed on {node} since the daemon started",
	model.ReasonDraining:          "{node} is draining, so it takes no VIP",
	model.ReasonNoSubnet:          "no interface of {node} has an address in the subnet of the VIP",
	model.ReasonNoInterface:       "{node} has none of the interfaces that the VIP names",
	model.ReasonLinkDown:          "the interface for the VIP is down or has no carrier on {node}",
	model.ReasonNotSelected:       "the node selector of the VIP does not match the labels of {node}",
	model.ReasonNoQuorum:          "{node} does not see a majority of the configured peers, and the VIP has `partition: quorum`",
	model.ReasonLocalAddress:      "the address is already configured on an interface of {node}, outside lbd; a VIP must be free",
	model.ReasonFamilyDisabled:    "IPv6 is disabled on the interface for the VIP on {node}",
	model.ReasonLeaseExpired:      "the daemon did not run for a while, so the kernel of {node} removed the address and another node may have it",
	model.ReasonDriverError:       "{node} could not bind or announce the address",
	model.ReasonNotAnnounced:      "the VIP asks for no way of announcing that {node} has",
	model.ReasonAdvertised:        "{node} advertises the VIP by BGP",
	model.ReasonBinding:           "{node} is binding the address of the VIP, then it advertises it by BGP",
	model.ReasonNoSession:         "{node} is ready to advertise the VIP, but no BGP session with a peer is established; `lbd status bgp` says why",
	model.ReasonNoPeer:            "no BGP peer that the VIP names is configured for {node}",
	model.ReasonShuttingDown:      "{node} asks its BGP peers to prefer other nodes (GRACEFUL_SHUTDOWN) before it withdraws the VIP",
	model.ReasonWithdrawn:         "{node} has withdrawn the VIP from its BGP peers and only keeps it for packets that are under way",
	model.ReasonNoEndpoint:        "no endpoint of the Service is ready for what arrives on {node}",
	model.ReasonNodeExcluded:      "Kubernetes says that {node} is to get no traffic of Services",
	model.ReasonARPDisabled:       "the kernel answers no ARP on the interface for the VIP on {node}, so no client would find it",
	model.ReasonWireDark:          "nobody answers {node} on the network of the VIP, while other nodes hear each other there",
	model.ReasonNoNextHop:         "no machine that has the VIP tells {node} of it by BGP",
	model.ReasonNotForwarding:     "the kernel of {node} does not forward what comes to the VIP",
	model.ReasonDegraded:          "{node} passes the required health check, not the preferred one, or no router listens to it, so it leaves the VIP to a node that is better",
	model.ReasonRemoved:           "the configuration of {node} has the VIP no more",
	model.ReasonMachineDraining:   "the Machine of {node} is going away or was marked, so {node} is draining",
	model.ReasonMachineDisabled:   "the Machine of {node} was taken out of the MachineLoadBalancer",
}

// whyHere is the sentence about a VIP in the status of a node.
func whyHere(vip v1alpha1.VIPStatus, self string) string {
	if vip.Owner == self {
		return sentence(vip.Reason, "this node", "this node", vip.Detail)
	}
	return sentence(vip.Reason, "this node", vip.Owner, vip.Detail)
}

// sentence says why a VIP is, or is not, on a node; reason is a name of
// model.Reason, perhaps of a newer version. Detail is added if there is any.
func sentence(reason, node, owner, detail string) string {
	text := ""
	if known, ok := model.ParseReason(reason); ok {
		text = reasonText[known]
	}
	switch {
	case reason == model.ReasonDraining.String() && detail == "": // else the daemon is stopping
		text += "; `lbd undrain` ends that"
	case reason == model.ReasonStandby.String() && owner == "":
		text = "nobody owns the VIP; {node} is ready to take it"
	case reason == model.ReasonProbing.String() && owner == node:
		text = "{node} owns the VIP and is asking the network whether another node has it now"
	}
	text = cmp.Or(text, "{node} says "+reason+", which this command does not know")
	owner = cmp.Or(owner, "another node")
	text = strings.NewReplacer("{node}", node, "{owner}", owner).Replace(text)
	if detail != "" {
		text += ": " + detail
	}
	return text
}

// ServicesLine says what becomes of open connections to Services; empty where they are not reset.
func ServicesLine(c *v1alpha1.ServiceConnectionsStatus) string {
	if c == nil || c.Reason == "" {
		return ""
	}
	some := ""
	if c.Kept {
		some = ", or some of them"
	}
	return "Services: a move of an address resets open connections" + some + ": " + oneLine(c.Reason)
}
