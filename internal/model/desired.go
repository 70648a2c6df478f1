package model

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Desired is the whole wanted state of this node. Each driver takes the part
// that it serves, again and again, and makes it true.
type Desired struct {
	Gen uint64
	// ValidUntil bounds what drivers may do of themselves (renew a lifetime,
	// refresh or defend an announcement): after it they wait for the next
	// decision. So a daemon that was frozen never speaks for what it has lost.
	ValidUntil time.Time
	// Synced is true once every source has delivered; drivers prune leftovers
	// of an earlier process only then.
	Synced bool

	Bind []Binding // for address, sorted by Addr, that on lo last
	// Elsewhere are, for address and for the VIPs that are kept for connections (Binding.Linger),
	// the addresses of other nodes whose own connections to the VIP are cut: of those that
	// have it too, since what they send to it stays there, and of all once this one may not own it.
	Elsewhere map[netip.Addr][]netip.Addr
	// Spared are, for address, those that are unbound although their connections may go on,
	// since they are taken anew. Those of others that lingered are reset.
	Spared []netip.Addr

	L2    []L2Advert // for layer2, sorted by Addr
	BGP   BGPState   // for bgp
	Relay []Relay    // for relay, sorted by Addr
	// Forward is for the driver that forwards connections to other machines.
	Forward ForwardState
	Routes  RouteState // for the driver of routes
	Refused Refusals   // for people: what leads to no route
	Rings   bool       // for relay: whether a VIP is bound depends on whether rings would work
	// Hearing, for relay: a node that is there, or is awaited, has not said yet which
	// connections it has. Rings may lack it; what an earlier process left does not.
	Hearing bool
	// Track: the relay driver is to look for the connections that the host translates, see
	// RingHost.Tracked.
	Track bool
	// Services is what becomes of open connections to Services.
	Services Services
	Group    GroupState // for gossip
	// Machines is for the driver of a management cluster.
	Machines MachinesState

	// Rules is the version of the election rules that the group runs.
	Rules int

	// Lapses is the Applied.Lapses of the layer 2 driver that the decision knows of.
	Lapses uint64

	Status []VIPStatus // one for each VIP, sorted by Addr
	Memory Memory
	Wake   time.Time // decide again no later than this; zero: on facts only
}

// Binding asks for one address in the kernel.
type Binding struct {
	Addr      netip.Addr
	Interface string
	// Epoch is that of the claim; a binding whose lifetime ended is not renewed
	// under the same epoch.
	Epoch uint64
	// AddBefore bounds a fresh add: it rests on a silence of the wire, or on the
	// consent of the owner, that does not hold for long. Once the address is there
	// it is renewed as long as it is wanted. Zero: no bound (an address that is
	// kept from an earlier process).
	AddBefore time.Time
	// Linger: only kept for connections that have not ended; count them.
	Linger bool
	// Lifetime in the kernel, whole seconds; 0: that of the driver.
	Lifetime time.Duration
}

// Compare orders bindings by address; of two of one address that on lo comes last.
func (b *Binding) Compare(o *Binding) int {
	lo := func(b *Binding) int {
		if b.Interface == LoopbackInterface {
			return 1
		}
		return 0
	}
	return cmp.Or(b.Addr.Compare(o.Addr), lo(b)-lo(o))
}

// L2Mode is what the layer 2 driver does for a VIP.
type L2Mode uint8

const (
	// L2Probe asks the wire whether anybody holds the VIP.
	L2Probe L2Mode = iota + 1
	// L2Announce answers for the VIP and announces it.
	L2Announce
	// L2Silent keeps the host from answering for the VIP or using it in its own
	// ARP and ND although it is bound.
	L2Silent
)

// L2Advert asks layer 2 for one VIP on one interface, or, with L2Probe, for any address
// that another host may have.
type L2Advert struct {
	Addr      netip.Addr
	Interface string
	Mode      L2Mode
	// From, with L2Probe of IPv4, is the address of this node that asks. Not valid: the
	// question names no sender, as it must be for a VIP, whose neighbours it is not to disturb.
	From netip.Addr
	// Series numbers the probe series; a higher number starts a new one.
	Series uint64
	// Lasts is how long the series goes on asking at least; zero: as short as may be.
	Lasts time.Duration
	// Unbound: the VIP is one that is bound on no node. There may be thousands of them,
	// so their probe series begin after those of what is bound, which may be the way to
	// the API server.
	Unbound bool
	// Yield: a successor has been told, so another host that uses the VIP is
	// expected; it is counted but the VIP is not defended.
	Yield bool
	// Burst numbers the announcement bursts; a higher number starts the schedule
	// (0, 50, 200, 500 ms, 1, 2, 4 s) again.
	Burst uint64
	// Quiet, with L2Probe: the address is bound here for BGP and must be silent
	// while the wire is asked for it.
	Quiet bool
	// Respond, with L2Announce: nothing is bound, so the driver itself answers ARP
	// requests and neighbour solicitations for the VIP. It does so only while the
	// decision is valid and knows of all its lapses, see Applied.Lapses.
	Respond bool
	// StartBefore, with Respond, is what Binding.AddBefore is for an address that is
	// bound: later the driver does not begin to answer but reports TooLate. Zero: no
	// bound.
	StartBefore time.Time
}

// GroupState is what this node tells the others.
type GroupState struct {
	Draining bool
	Settled  bool
	Weight   int
	// Manager, Drains and Drained are those of Member.
	Manager bool
	Drains  []MachineDrain
	Drained bool
	// MACs are those of Member; Untold is how many more there was no room for.
	MACs   []MAC
	Untold int
	// Addrs are the addresses of this node on its links, sorted: others relay to
	// them what belongs to connections of this node.
	Addrs []netip.Addr
	// Hears are those of Member, sorted.
	Hears []netip.Addr
	VIPs  []GroupVIP // sorted by Addr
	// Heartbeats are the nodes that get heartbeats, each with the VIPs for which
	// it is one of the first two successors. One without any is before this node in a
	// ring.
	Heartbeats []HeartbeatTarget // sorted by Node
	// Owners are the nodes from which heartbeats must come: this node is one of the first
	// two successors of a VIP of theirs. One that is alive and sends none has a daemon that
	// decides nothing.
	Owners []NodeName // sorted
	// First are those of them whose first successor this node is, for a VIP that their
	// kernel answers for. It asks the wire as soon as one heartbeat is missed.
	First []NodeName // sorted
	// Ask the other nodes whether they are there: this node may be about to take a
	// VIP, and a node that hears nobody takes it in another way.
	Ask bool
	// Witnesses are the nodes that are asked before any others: what they say of the network
	// of a VIP matters.
	Witnesses []NodeName // sorted
	// LeaseEnd is the latest end of the kernel lifetime of any owned VIP; zero
	// without one.
	LeaseEnd time.Time
	// Leave: say goodbye; nothing is owned any more.
	Leave bool
	// Unready: not enough is known to say anything. What the others know of an earlier
	// process of this node stands meanwhile.
	Unready bool
}

// Heartbeat is the target for heartbeats to a node, which is added if it is not there.
func (g *GroupState) Heartbeat(to NodeName) *HeartbeatTarget {
	i, found := slices.BinarySearchFunc(g.Heartbeats, to, func(t HeartbeatTarget, n NodeName) int { return cmp.Compare(t.Node, n) })
	if !found {
		g.Heartbeats = slices.Insert(g.Heartbeats, i, HeartbeatTarget{Node: to})
	}
	return &g.Heartbeats[i]
}

// HeartbeatFor has a node get heartbeats about a VIP.
func (g *GroupState) HeartbeatFor(to NodeName, vip netip.Addr) {
	t := g.Heartbeat(to)
	t.VIPs = append(t.VIPs, vip)
}

// GroupVIP is the standing of this node for one VIP and its claim, if any.
type GroupVIP struct {
	Addr     netip.Addr
	Standing Reason
	Claim    Claim  // Epoch 0: none
	Seen     uint64 // highest epoch known
	// Name is that of the VIP's object, cut to MaxTold; "" if it is of a Service, which all
	// nodes know from the same cluster.
	Name string
	// Holds: the address is bound here, announced or silent, and the connections to
	// it that this node has are to be found by a ring.
	Holds bool
}

// HeartbeatTarget is one receiver of heartbeats.
type HeartbeatTarget struct {
	Node NodeName
	VIPs []netip.Addr
}

// VIPStatus is the answer to "where is this VIP and why", for people.
type VIPStatus struct {
	VIP VIP
	// BGP: this is the status of the VIP as advertised by BGP, not by layer 2.
	BGP    bool
	Owner  NodeName // "" if nobody is known to own it
	Reason Reason   // of this node
	Detail string   // more words: the failing check, the foreign host
	// Standing is what the group is told: whether this node may own the VIP.
	Standing  Reason
	Epoch     uint64
	Interface string
	Healthy   bool
	Bound     bool
	Announced bool
	Since     time.Time // of the last change of Owner or Reason
	// Successors are the nodes that would take it, best first, at most two; known
	// only to the owner.
	Successors []NodeName
	// Peers are the BGP peers that have a path to it that is meant for it.
	Peers []string
	// Duplicate is the hardware address of a host that answers for the VIP beside the
	// owner, and whose it is if that is known; empty if none does.
	Duplicate string
	// Ring is why connections that are open may be reset when the VIP moves although
	// they ought not to be; empty if nothing is known to be in the way.
	Ring string
	// Resets is the same where nobody has asked for it: see ServicesAuto.
	Resets string
}

// Same compares two statuses.
func (s *VIPStatus) Same(o *VIPStatus) bool {
	return s.BGP == o.BGP && s.Owner == o.Owner && s.Reason == o.Reason && s.Standing == o.Standing && s.Epoch == o.Epoch &&
		s.Healthy == o.Healthy && s.Bound == o.Bound && s.Announced == o.Announced && s.Since.Equal(o.Since) &&
		s.Interface == o.Interface && s.Detail == o.Detail && s.Ring == o.Ring && s.Resets == o.Resets && s.Duplicate == o.Duplicate && s.VIP.Same(&o.VIP) &&
		slices.Equal(s.Successors, o.Successors) && slices.Equal(s.Peers, o.Peers)
}

// Membership is what a node remembers of its place in the group.
type Membership struct {
	// Settled: the node has met its group, or has waited for it for long enough.
	Settled bool
	// SettleBase is the moment from which settling counts: start or link up.
	SettleBase time.Time
	// Heard: all nodes have said which connections they have, or were waited for.
	Heard bool
	// Awaited is when the node last waited for its cluster to say who its peers are.
	Awaited time.Time
	// Machine is why this node drains with its Machine, if it does.
	Machine MachineMemory
	// Disabled is why it is to lose some addresses only, if it is.
	Disabled MachineMemory
}

// Counts are how many VIPs wait for this node to take them; the election counts.
type Counts struct {
	// Waiting and Probing are those in these phases.
	Waiting, Probing int
	// Fresh is how many that nobody ever owned this node was about to take when they were
	// most, since there were any.
	Fresh int
	// Suspected are those for which this decision has the wire asked since a heartbeat of the
	// owner was missed, and those that were answered for.
	Suspected int
}

// Advertised is what routers are told that is not of one VIP alone.
type Advertised struct {
	// RouterID is the BGP identifier once it was chosen.
	RouterID netip.Addr
	// Aggregates are the wanted paths to prefixes of several addresses, and Conflicts
	// is in words where VIPs in one of them are advertised in ways that differ.
	Aggregates []BGPPath
	Conflicts  map[netip.Prefix]string
	// Losses is, by peer, when sessions were lost; nil: none was. It is never changed.
	Losses map[string]SessionLosses
}

// SessionLosses is when the session with a peer was lost.
type SessionLosses struct {
	Count        uint64 // PeerReport.Flaps, as far as decisions have looked at it
	Last, Before time.Time
}

// Memory is what one decision hands to the next.
type Memory struct {
	Gen  uint64
	VIPs map[netip.Addr]VIPMemory
	BGP  map[netip.Addr]BGPMemory
	// Balance is by the name of the LoadBalancer.
	Balance map[string]BalanceMemory
	Learned LearnedMemory
	Membership
	Counts
	Stalls int
	// Lapses is that of the last decision.
	Lapses uint64
	// Lists are those of the decision. The next one takes over what is the same
	// instead of making it anew; they decide nothing.
	Lists Lists
	// Left is since when nodes have been away whose connections are still to be found;
	// nil if there are none.
	Left map[NodeName]time.Time
	// Rings is, by their addresses, what the wire says of nodes of rings whose heartbeats
	// are overdue; nil if there are none.
	Rings map[netip.Addr]RingProbe
	// Proxy is what is remembered of kube-proxy.
	Proxy ProxyMemory
	// Wires is, by interface, what is known of the networks of VIPs; nil: nothing.
	Wires map[string]WireMemory
	Advertised
}

// Lists are the lists of a Desired with an entry for each VIP. They are never
// changed once they are made.
type Lists struct {
	Bind   []Binding
	Paths  []BGPPath
	Group  []GroupVIP
	Status []VIPStatus
	Relay  []Relay
}

// Phase is where this node stands with one VIP; see package election.
type Phase uint8

// The phases of package election.
const (
	PhaseIdle      Phase = iota // owned elsewhere, or not eligible
	PhaseWaiting                // ownerless: waiting for the turn, or to ask again
	PhaseProbing                // ownerless: a probe series runs
	PhaseTaking                 // claimed; waiting for the address to be bound
	PhaseOwner                  // bound and announced
	PhaseHandover               // owner; a successor has been told
	PhaseReleasing              // silent; bound until connections end
	PhaseUnbinding              // waiting for the address to be gone
	PhaseDoubt                  // owner that stood still, or in a dispute: asks the wire whether another one has it
)

// String returns a short name for logs.
func (p Phase) String() string {
	return [...]string{"idle", "waiting", "probing", "taking", "owner", "handover", "releasing", "unbinding", "doubt"}[p]
}

// Holds tells whether this node has the VIP of this phase, or is about to, and answers for it.
func (p Phase) Holds() bool {
	return p == PhaseTaking || p == PhaseOwner || p == PhaseHandover || p == PhaseDoubt
}

// OnLAN tells whether a VIP in this phase is bound to an interface, perhaps silently.
func (p Phase) OnLAN() bool {
	return p == PhaseOwner || p == PhaseHandover || p == PhaseDoubt || p == PhaseReleasing
}

// Serves tells whether new connections to a VIP in this phase come in here by layer 2.
func (p Phase) Serves() bool { return p == PhaseOwner || p == PhaseHandover }

// WakeBy makes the next decision come at t at the latest; the zero time asks for none.
func (d *Desired) WakeBy(t time.Time) { d.Wake = Earliest(d.Wake, t) }

// OnLAN tells whether layer 2 may have something to do for an address already: for a VIP of the
// View, or by the decision so far.
func (d *Desired) OnLAN(v *View, at netip.Addr) bool {
	_, is := FindVIP(v.VIPs, at)
	return is || slices.ContainsFunc(d.L2, func(a L2Advert) bool { return a.Addr == at })
}

// Latest is the later of two times.
func Latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Earliest is the earlier of two times, of which a zero one never comes.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
