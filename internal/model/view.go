package model

import (
	"net/netip"
	"time"
)

// SourceName names a source of facts.
type SourceName string

// SinkName names a driver.
type SinkName string

// The sources and drivers that decisions know by name.
const (
	SourceConfig SourceName = "config"
	SourceKube   SourceName = "kubernetes"
	SourceGossip SourceName = "gossip"
	SourceHealth SourceName = "health"
	SourceLink   SourceName = "link"
	// SourceMachines is the management cluster of the machines of the group.
	SourceMachines SourceName = "machines"

	SinkAddress SinkName = "address"
	SinkLayer2  SinkName = "layer2"
	SinkGossip  SinkName = "gossip"
	// SinkMachines writes to the management cluster.
	SinkMachines SinkName = "machines"
	// SinkNotify runs programs.
	SinkNotify SinkName = "notify"
)

// View is everything that a decision may look at, the time included. The daemon
// owns it; sources change it only inside the function that they publish.
type View struct {
	Now     time.Time
	Started time.Time // of this process
	Self    NodeName
	Labels  map[string]string // of this node; see SetLabels
	labels  map[SourceName]map[string]string
	Weight  int
	// Draining is asked for by an operator or a signal; Stopping says that the
	// process ends once everything is handed over.
	Draining, Stopping bool
	DrainTimeout       time.Duration
	// Stalls counts the times that the daemon found itself not having run for
	// longer than StallLimit; what it knew of the kernel is then not trusted
	// until a driver has looked again.
	Stalls int
	// Resumed is when the daemon last found itself not having run for longer than
	// ResumeLimit: what waited in its sockets meanwhile may be as old.
	Resumed time.Time

	// NoRelay: this node takes no part in rings, see NodeConfiguration.
	NoRelay bool
	// ServiceConnections: whether it takes part in rings for the VIPs of Services, too.
	ServiceConnections ServiceConnections

	// Unable says why this process can bind and announce nothing, such as a missing
	// capability; empty if it can.
	Unable string

	Synced map[SourceName]bool // delivered a first full state
	VIPs   []VIP               // sorted by Addr, no duplicates; see SetObjects
	BGP    BGPConfig
	Peers  []BGPPeer // all that are configured, sorted by Name; see SetObjects
	// LoadBalancers are sorted by Name. Each has VIPs in VIPs that are Forwarded.
	LoadBalancers []LoadBalancer
	// Listeners are sorted by Name. What they accept has VIPs in VIPs that are Learned.
	Listeners []BGPListener
	objects   map[SourceName]Objects
	Links     map[string]Link
	Health    map[string]HealthState // by VIP.Check
	Gossip    Gossip
	// Machines are what this process itself knows of a management cluster.
	Machines Machines
	Applied  map[SinkName]Applied // last report of each driver

	// Memory is the part of the last Desired that the next decision needs.
	Memory Memory
}

// StallLimit is how long the daemon may fail to run before it distrusts what it
// knew. It is below the shortest remaining lifetime of a VIP that is renewed in
// time, see address.Lifetime.
const StallLimit = time.Second

// ResumeLimit is how long the daemon may fail to run before it distrusts what it hears
// first. It is longer than its loop rests, and than the word of an owner that names a
// successor holds, see election.HandoverTimeout.
const ResumeLimit = 700 * time.Millisecond

// Gossip is what the group has told this node.
type Gossip struct {
	// Peers is the number of configured peers besides this node.
	Peers int
	// Configured are those peers, or, where they come from a cluster, its Nodes: a quorum
	// is a majority of them and this node, whoever else is a member.
	Configured []Peer
	// Exchanged is when a full state was last exchanged with any member; zero if
	// never.
	Exchanged time.Time
	Members   map[NodeName]Member // all but this node
	// Claims are the claims of other nodes by VIP, of dead ones too; most VIPs
	// have one.
	Claims map[netip.Addr][]Claim
	// Eligible lists for each VIP the other nodes whose Standing is eligible,
	// sorted by name, alive or not.
	Eligible map[netip.Addr][]NodeName
	// Holders lists for each VIP the other nodes whose GroupVIP.Holds is set, sorted
	// by name, alive or not.
	Holders map[netip.Addr][]NodeName
	// Seen is the highest epoch that was ever heard of for a VIP, dead nodes and
	// this node before its restart included.
	Seen map[netip.Addr]uint64
}

// Peer is a node that is to be a member.
type Peer struct {
	// Host is as it was written: an address, or a name that may be that of a node.
	Host string
	// Addrs are the addresses that it may have; none before its name was looked up.
	Addrs []netip.Addr
}

// Applied is the report of a driver: what is true now, not what was asked for.
type Applied struct {
	// Gen is the Desired.Gen that the driver finished with.
	Gen uint64
	// At is when the driver looked.
	At   time.Time
	VIPs map[netip.Addr]AppliedVIP // by VIP; a missing one is not there
	// Loopback is what VIPs is, but of bindings on the loopback interface: a VIP
	// that is announced by layer 2 and by BGP has two.
	Loopback map[netip.Addr]AppliedVIP
	Peers    []PeerReport // of the BGP driver, sorted by Name
	// Paths are, for the BGP driver, the names of the peers that have each path,
	// sorted; it is never changed. What nobody has may be missing.
	Paths map[netip.Prefix][]string
	// Learned are, for the BGP driver, the paths that masters advertise, in the order of
	// LearnedPath.Compare, and Masters those that are connected, sorted by address.
	Learned []LearnedPath
	Masters []MasterReport
	// Routes are, for the driver of routes, those that are there or wanted; it is never changed.
	Routes map[netip.Prefix]AppliedRoute
	// Lapses counts, for the layer 2 driver, how often it found that it had not run
	// for so long that another node may have taken what it answered for itself, see
	// L2Advert.Respond. It answers for none of that again until a decision that knows
	// of it asks for it.
	Lapses uint64
	// Ring is, for the relay driver, what it knows of its host; nil: nothing yet.
	Ring *RingHost
	Err  string // last error in words; empty if none
}

// AppliedVIP is the truth about one VIP at one driver. Each driver fills in its
// own part.
type AppliedVIP struct {
	// Of the address driver.
	Bound bool // in the kernel with lbd's mark
	// Interface is where it is bound or announced.
	Interface string
	// Expires is when the kernel removes it unless it is renewed.
	Expires time.Time
	// Expired: the lifetime ended under the binding with this epoch; the driver
	// does not bind it again until the epoch changes.
	Expired bool
	// TooLate: the address was not added since Binding.AddBefore had passed; of the
	// layer 2 driver that it does not answer since L2Advert.StartBefore had.
	TooLate bool
	// Connections is how many established connections to the VIP still get
	// packets here; it is only counted while Binding.Linger is set, else -1.
	Connections int
	// Sockets is how many connections to the VIP are open here, whether they get
	// packets or not; -1 as Connections. Neither counts what can get none any more:
	// connections of this host with itself, of a node of Desired.Elsewhere, and to a peer
	// that has not answered for long.
	Sockets int
	// Own is how many sockets with the VIP belong to open connections of this host with
	// itself; -1 as Connections.
	Own int

	// Of the layer 2 driver.
	Announcing bool // answers and announces
	Silent     bool // neither answers nor uses the VIP in its own ARP and ND
	// Probe is the result of the newest probe series.
	Probe ProbeResult
	// Conflicts counts frames in which a foreign host used the VIP while it was
	// announced here; Foreign is the last such host.
	Conflicts uint64
	Foreign   MAC
	// Duplicate is the hardware address of another host that answers for the VIP although
	// it is announced here; zero if none does.
	Duplicate MAC

	// Of the relay driver.
	Relaying bool

	// Of the forward driver: all ports of the VIP are forwarded as wanted.
	Forwarding bool

	Err string // in words; empty if none
}

// ProbeResult is what the wire said in one series of probes for a VIP.
type ProbeResult struct {
	Series uint64 // the series asked for; 0 if none has ended
	Done   bool
	// Answered: somebody holds the address; By is its hardware address.
	Answered bool
	By       MAC
	// Rivals are other hosts that were probing for the same address at the same time, the
	// first ones that were heard; the rest is zero.
	Rivals [MaxRivals]MAC
	At     time.Time
}

// MaxRivals is how many hosts that probe at once are told apart: anybody may send such
// frames, so there is a bound, and candidates take turns, so they are few.
const MaxRivals = 4

// Meet notes another host that probes for the same address.
func (p *ProbeResult) Meet(mac MAC) {
	for i, r := range p.Rivals {
		switch r {
		case mac:
			return
		case MAC{}:
			p.Rivals[i] = mac
			return
		}
	}
}
