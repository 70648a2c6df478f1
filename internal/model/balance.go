package model

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// SinkForward is the driver that forwards connections to other machines.
const SinkForward SinkName = "forward"

// KindLoadBalancer is the kind of VIPs whose connections are forwarded to other machines.
const KindLoadBalancer = "LoadBalancer"

// KindTenantService is the kind of VIPs whose connections are forwarded to nodes of other clusters.
const KindTenantService = "TenantService"

// tenantPrefix and two slashes are in the names of LoadBalancers of tenants alone: the name of a
// LoadBalancer has no slash, and that of a MachineLoadBalancer one.
const tenantPrefix = "tenant/"

// TenantName is the name that the VIPs and the LoadBalancer of a TenantService have.
func TenantName(k Key) string { return tenantPrefix + k.String() }

// globalPart is in the names that TenantServices of one Tenant share. No TenantService has a slash in its name.
const globalPart = "global/"

// GlobalName is the name that the VIPs and the LoadBalancer have of all TenantServices of a Tenant with
// one global name.
func GlobalName(tenant, name string) string {
	return TenantName(Key{Namespace: tenant, Name: globalPart + name})
}

// GlobalOf is the Tenant and the global name of VIPs and a LoadBalancer with this name; false: it is that
// of one TenantService, or of none.
func GlobalOf(name string) (tenant, global string, is bool) {
	key, _ := TenantKey(name)
	global, is = strings.CutPrefix(key.Name, globalPart)
	return key.Namespace, global, is
}

// TenantKey is the TenantService whose VIPs and LoadBalancer have this name; false: there is none.
func TenantKey(name string) (Key, bool) {
	key, is := strings.CutPrefix(name, tenantPrefix)
	if !is || !strings.Contains(key, "/") {
		return Key{}, false
	}
	return ParseKey(key), true
}

// OfTenant tells whether a LoadBalancer with this name is that of a TenantService.
func OfTenant(name string) bool {
	_, is := TenantKey(name)
	return is
}

// Protocol is that of the transport layer, by its number in the IP header.
type Protocol uint8

// The protocols that can be forwarded.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// String returns "TCP" or "UDP".
func (p Protocol) String() string {
	if p == UDP {
		return "UDP"
	}
	return "TCP"
}

// LoadBalancer is an object whose VIPs lead to servers on other machines. It is never
// changed once it is in a View.
type LoadBalancer struct {
	Name    string
	VIPs    []netip.Addr // sorted
	Ports   []ForwardPort
	Servers []Server // sorted by Addr, then Port
	// ClientAffinity has all connections of one client address go to one server.
	ClientAffinity bool
	// KeepFailed leaves the connections of a server that fails its check alone. They are
	// reset otherwise.
	KeepFailed bool
	// AtOnce has servers that are not wanted any more get no new connections from then on, although
	// none of those in their place has been checked yet: it may be that they must get none.
	AtOnce bool
	// ClientSource: servers see the address of the client; else they see the VIP.
	ClientSource bool
	// Sources, sorted: those of VIPs that servers see as clients, in place of the one that a client
	// connected to; empty: that one.
	Sources []netip.Addr
	// DrainTimeout is how long the connections of a server go on after it was taken out of
	// service.
	DrainTimeout time.Duration
	// AllowedSources limits the clients; empty: all.
	AllowedSources []netip.Prefix
}

// ForwardPort is a port of all VIPs of a LoadBalancer.
type ForwardPort struct {
	Protocol Protocol
	Port     uint16
	// TargetPort is the port of the servers that do not name their own; 0: all do.
	TargetPort uint16
}

// Server is one machine that serves the connections of a LoadBalancer.
type Server struct {
	Addr netip.Addr
	Port uint16 // 0: the TargetPort of the port
	// Ports, two bytes each, are where it serves each of the Ports of the LoadBalancer; Port is the first
	// of them then. Empty: it serves all at one. A text, since servers are compared.
	Ports string
	// Weight is its share of new connections beside the others. With 0 it gets none, and those that
	// it has go on.
	Weight int
	// Leaving, with the weight 0: it gets new connections while no other server can serve.
	Leaving bool
	// Check names its entry of View.Health; "": it counts as healthy.
	Check string
}

// ForwardState is the wanted state of the forward driver.
type ForwardState struct {
	// Services, sorted by Addr, Protocol and Port.
	Services []ForwardService
	// Cut are servers whose connections, by these VIPs, are to end: they failed, or their
	// drain timeout is over. Of one that may have failed those end that it has not answered:
	// what the client sends next goes to another server. Sorted.
	Cut []CutServer
	// Replies are what servers say that see the addresses of clients, sorted by Server and
	// Protocol. A node that knows nothing of the connection needs them.
	Replies []ForwardReply
}

// ForwardReply is what a server says from one of its ports.
type ForwardReply struct {
	Server   netip.AddrPort
	Protocol Protocol
	// VIP is what the client knows the server by. It is invalid if there are several, of which
	// only a node that knows the connection can tell.
	VIP netip.AddrPort
}

// ForwardService is one port of one VIP.
type ForwardService struct {
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
	// Slots says which server gets a new connection. nil: no server can serve, and the
	// connection is refused.
	Slots *SlotTable
	// Servers are all that may have connections by this port, also those that get no new
	// ones; sorted. What they say to the VIP without being asked is no business of the
	// host's own stack.
	Servers []netip.AddrPort
	// ClientAffinity and AllowedSources are those of the LoadBalancer.
	ClientAffinity bool
	AllowedSources []netip.Prefix
	// Interface is where the clients of the VIP come in: servers see the VIP as their source, or
	// the client.
	Interface string
	// ClientSource is that of the LoadBalancer. Near are the subnets of this node with servers,
	// sorted: a server would answer clients there directly, so it sees the VIP all the same.
	ClientSource bool
	Near         []netip.Prefix
	// Sources are what servers see as clients, by a hash of the connection; empty: the VIP.
	Sources []netip.Addr
	// Claimed: a node of the group has the VIP. Until then connections of this host itself, and of
	// its containers, are none of lbd's business: the address may be that of another machine.
	Claimed bool
	// OfTenant: it is that of another cluster, and comes last where room is short.
	OfTenant bool
}

// SlotTable maps the hash of a connection to a server. It is never changed; services with
// the same one share it.
type SlotTable struct {
	// Slots has a power of two of entries.
	Slots []netip.AddrPort
}

// CutServer is a server whose connections by one VIP are to end.
type CutServer struct {
	VIP    netip.Addr
	Server netip.AddrPort
	// Protocol of the port.
	Protocol Protocol
	// Unanswered: only those end to which the server has not said a word.
	Unanswered bool
}

// Same compares two tables.
func (t *SlotTable) Same(o *SlotTable) bool {
	return t == o || t != nil && o != nil && slices.Equal(t.Slots, o.Slots)
}

// Same compares two services.
func (s *ForwardService) Same(o *ForwardService) bool {
	return s.Addr == o.Addr && s.Protocol == o.Protocol && s.Port == o.Port && s.Slots.Same(o.Slots) && slices.Equal(s.Servers, o.Servers) &&
		s.ClientAffinity == o.ClientAffinity && slices.Equal(s.AllowedSources, o.AllowedSources) && s.Interface == o.Interface && s.Claimed == o.Claimed &&
		s.OfTenant == o.OfTenant && s.ClientSource == o.ClientSource && slices.Equal(s.Near, o.Near) && slices.Equal(s.Sources, o.Sources)
}

// BalanceMemory is what one decision about a LoadBalancer hands to the next.
type BalanceMemory struct {
	// Wanted is what is configured, or was. Removed are VIPs that are configured no more, and are
	// forwarded until this node has handed them over.
	Wanted  *LoadBalancer
	Removed []netip.Addr
	// Ready: each server had a result of its check since the start.
	Ready bool
	// Servers is what became of each server, sorted as LoadBalancer.Servers. One that is
	// configured no more is forgotten in the end.
	Servers []ServerMemory
	// Fills are the tables in force, of each family.
	Fills [2]BalanceFill
	// Followed are the verdicts of owners that the tables keep to.
	Followed [2]FollowedVerdict
}

// MaxVerdict is how many servers a verdict can be about.
const MaxVerdict = 1024

// Verdict is which of the servers of a family get no new connections. The owner of the VIP tells
// it to all nodes, so that their tables are one: who takes the VIP over sends the connections that
// it does not know where they were.
type Verdict struct {
	// Servers is a hash of the list that Out is about; 0: there is no verdict. To a node that
	// has another list it means nothing.
	Servers uint32
	// Out has a bit for each server of the list, from the lowest of the first byte. Those that are
	// missing at the end are zero.
	Out string
}

// FollowedVerdict is the last verdict of another node.
type FollowedVerdict struct {
	Verdict Verdict
	By      NodeName
	// Until is when it ends to count, because that node owns the VIP no more; zero: it does.
	Until time.Time
}

// BalanceFill is how the slots of a family are spread, and the tables made of that. It is
// never changed.
type BalanceFill struct {
	Share   []Server // that have a share of new connections by configuration
	Servers []Server // of Share, those that get new connections
	Slots   []uint16 // numbers of Servers
	Verdict Verdict  // which of Share are not in Servers
	// Tables are the same for each TargetPort, and of its own for each port without one. Only what tells
	// them apart is in a key.
	Tables map[ForwardPort]*SlotTable
}

// Same compares two memories.
func (m *BalanceMemory) Same(o *BalanceMemory) bool {
	return m.Wanted == o.Wanted && slices.Equal(m.Removed, o.Removed) && m.Ready == o.Ready && slices.Equal(m.Servers, o.Servers) &&
		m.Followed[0].same(&o.Followed[0]) && m.Followed[1].same(&o.Followed[1]) && m.Fills[0].Same(&o.Fills[0]) && m.Fills[1].Same(&o.Fills[1])
}

func (f *FollowedVerdict) same(o *FollowedVerdict) bool {
	return f.Verdict == o.Verdict && f.By == o.By && f.Until.Equal(o.Until)
}

// Same compares two fills. Slots and verdict follow from the servers.
func (f *BalanceFill) Same(o *BalanceFill) bool {
	return slices.Equal(f.Share, o.Share) && slices.Equal(f.Servers, o.Servers) && len(f.Tables) == len(o.Tables)
}

// Same compares two wanted states.
func (f *ForwardState) Same(o *ForwardState) bool {
	return slices.Equal(f.Cut, o.Cut) && slices.Equal(f.Replies, o.Replies) && slices.EqualFunc(f.Services, o.Services, func(a, b ForwardService) bool { return a.Same(&b) })
}
