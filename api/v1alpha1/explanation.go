package v1alpha1

import (
	"encoding/json"
	"time"
)

// Explanation is the answer to `lbd explain VIP` for one address.
type Explanation struct {
	// Name is the name of the object that the address comes from.
	Name string `json:"name"`
	// Address is the VIP.
	Address string `json:"address"`
	// Mode is how it is announced, "l2" or "bgp"; a VIP may have an explanation for
	// each.
	Mode string `json:"mode"`
	// Node is the node that answers, whose view this is.
	Node string `json:"node"`
	// Time is when it was asked, by its clock.
	Time time.Time `json:"time,omitzero"`
	// Owner is the node that owns it; empty if nobody is known to.
	Owner string `json:"owner"`
	// Reason and Detail say why the VIP is, or is not, on the node that answers.
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
	// Duplicate is that of VIPStatus.
	Duplicate string `json:"duplicate,omitempty"`
	// Ring is why open connections may be reset when the VIP moves although they
	// ought not to be; empty if nothing is known to be in the way.
	Ring string `json:"ring,omitempty"`
	// Tenant is whose the address is; absent if it is of no TenantService.
	Tenant *TenantOwner `json:"tenant,omitempty"`
	// Epoch is that of the claim that counts; 0 without one.
	Epoch uint64 `json:"epoch"`
	// Candidates are all nodes that are known, best rank first.
	Candidates []Candidate `json:"candidates"`
	// Backends are what an address of a LoadBalancer leads to.
	Backends []BackendStatus `json:"backends,omitempty"`
	// Story tells in sentences what led here and what comes next.
	Story []string `json:"story,omitempty"`
}

// MarshalJSON writes candidates as [] and never as null.
func (e Explanation) MarshalJSON() ([]byte, error) {
	type plain Explanation // without this method
	e.Candidates = notNil(e.Candidates)
	return json.Marshal(plain(e))
}

// TenantOwner is the TenantService that an address is of.
type TenantOwner struct {
	// Tenant is the name of the Tenant, and Cluster that of its cluster; empty: no Tenant has the
	// namespace.
	Tenant  string `json:"tenant"`
	Cluster string `json:"cluster"`
	// Namespace and Service are those of the TenantService in the hub; empty with Members.
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	// GlobalName is the one under which it shares addresses; empty: it has none. Members are all of the Tenant
	// that have it, if the address is asked for.
	GlobalName string         `json:"globalName,omitempty"`
	Members    []TenantMember `json:"members,omitempty"`
	// Ports lead to NodePorts.
	Ports []BalancerPort `json:"ports"`
	// Reason and Message are how the node that answers judges it: "Accepted", or why not.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// TenantMember is one of the TenantServices of a Tenant with one global name.
type TenantMember struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	// Weight is its share of new connections beside the others.
	Weight int32 `json:"weight"`
	// Reason and Message are how the node that answers judges it.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// Candidate is one node in the election of a VIP.
type Candidate struct {
	Node string `json:"node"`
	// Rank is the place in the ranking for this VIP, from 1; it is the same on
	// every node.
	Rank int `json:"rank"`
	// Eligible: the node may own the VIP.
	Eligible bool `json:"eligible"`
	// Reason is why it may not, or "Owner" or "Standby" if it may.
	Reason string `json:"reason"`
	// Alive: the node is a member that is reached; always true for the node that
	// answers.
	Alive bool `json:"alive"`
	// Late is how long its heartbeats have been overdue, as in MemberStatus.
	Late string `json:"late,omitempty"`
	// Weight is its share in the election.
	Weight int `json:"weight"`
	// ClaimEpoch is that of its claim; 0 without one.
	ClaimEpoch uint64 `json:"claimEpoch,omitempty"`
	// Note is free text: the failing check, how long it has been silent.
	Note string `json:"note,omitempty"`
}
