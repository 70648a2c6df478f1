package model

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// LoopbackInterface is where addresses are bound that are advertised by BGP.
const LoopbackInterface = "lo"

// LoopbackLifetime is the kernel lifetime of an address that only BGP announces. No election
// waits for its end, so it may outlast a restart of the daemon. It is renewed at a third, so at
// least 20 s are left when the daemon dies or freezes: the default hold time, after which routers
// notice that it is frozen, and audience.RestartTime, for which they may keep the path after that.
const LoopbackLifetime = 30 * time.Second

// IPVSInterface is where kube-proxy has the addresses of Services in the mode that is not by
// netfilter alone.
const IPVSInterface = "kube-ipvs0"

// CiliumInterface is one that Cilium makes, which may stand in for kube-proxy.
const CiliumInterface = "cilium_host"

// SinkBGP is the BGP driver.
const SinkBGP SinkName = "bgp"

// BGPAdvert is one way in which a VIP is advertised by BGP.
type BGPAdvert struct {
	// Peers are names of BGPPeers, sorted; empty means all that this node has.
	Peers []string
	// Length is that of the prefix that is advertised, which holds the address and
	// perhaps others; 0 is the address alone.
	Length int
	PathAttributes
}

// Prefix is what is advertised for an address.
func (a *BGPAdvert) Prefix(addr netip.Addr) netip.Prefix { return PrefixOf(addr, a.Length) }

// PrefixOf is the prefix with this length that holds an address, which has no zone;
// the address alone if the length is 0, or none of its family.
func PrefixOf(addr netip.Addr, length int) netip.Prefix {
	if length <= 0 || length > addr.BitLen() {
		length = addr.BitLen()
	}
	return netip.PrefixFrom(addr, length).Masked()
}

// ComparePaths orders prefixes: first single addresses, then those that hold
// several, each by address; the longer one of two with the same address first.
func ComparePaths(a, b netip.Prefix) int {
	switch {
	case a.IsSingleIP() && !b.IsSingleIP():
		return -1
	case b.IsSingleIP() && !a.IsSingleIP():
		return 1
	}
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(b.Bits(), a.Bits()))
}

// PathAttributes are the attributes of a path that an operator chooses.
type PathAttributes struct {
	Communities      []uint32    // RFC 1997, sorted
	LargeCommunities [][3]uint32 // RFC 8092, sorted
	LocalPref        uint32      // told to iBGP peers; 0: not set, which means 100
	MED              uint32      // MULTI_EXIT_DISC, if MEDSet
	MEDSet           bool
	// Prepend is how many more times than needed the own ASN is put in front of
	// AS_PATH towards eBGP peers.
	Prepend int
}

// BGPConfig is what all sessions of a node share.
type BGPConfig struct {
	// RouterID is the configured BGP identifier; invalid: see Desired.BGP.RouterID.
	RouterID netip.Addr
	// Listen are the addresses on which peers may connect; empty: none, unless a
	// peer is passive, which then listens on every address.
	Listen []netip.Addr
	// ListenPort is the TCP port of Listen.
	ListenPort uint16
}

// BGPPeer is one router that this node may have a session with. Names of other
// objects (profiles, communities, password files) are resolved in it.
type BGPPeer struct {
	Name     string
	LocalASN uint32
	// PeerASN is what the peer must have; 0: every number but LocalASN.
	PeerASN uint32
	// Address of the peer; a link-local one has its interface as the zone.
	Address netip.Addr
	Port    uint16
	// Source is the local address of the session; invalid: the kernel's choice.
	Source netip.Addr
	// RouterID is the BGP identifier that the peer's object asks for; all peers
	// of a node agree.
	RouterID netip.Addr
	// NodeSelectors are alternatives, each a set of labels that all must match;
	// none matches every node.
	NodeSelectors []map[string]string

	HoldTime, KeepaliveTime, ConnectTime time.Duration

	Password string // TCP MD5 (RFC 2385); empty: none
	// Multihop allows an eBGP peer that is not on a connected subnet.
	Multihop bool
	// MinTTL is the least TTL of packets from the peer (GTSM, RFC 5082); 0: not
	// checked.
	MinTTL uint8
	// Passive waits for the peer to connect.
	Passive bool
	// GracefulRestart keeps paths at the peer while this daemon restarts.
	GracefulRestart bool
	// RestartTime is what GracefulRestart asks for: how long the peer keeps paths
	// without a session, whole seconds. It is filled in by the decision, and never
	// longer than what is left of an address when the daemon dies.
	RestartTime time.Duration
	// ShutdownDelay is how long a path is advertised with GRACEFUL_SHUTDOWN
	// (RFC 8326) before it is withdrawn in a drain.
	ShutdownDelay time.Duration
	// IPv4 and IPv6 are the address families of the session.
	IPv4, IPv6 bool
	// MaxPrefixes bounds what the peer may send of each family; all of it is
	// ignored, this only bounds memory.
	MaxPrefixes uint32

	BFD *BFDProfile // nil: none

	// Lacks is why there can be no session now, in words; empty: nothing is missing.
	Lacks string
}

// External tells whether the session is eBGP.
func (p *BGPPeer) External() bool { return p.LocalASN != p.PeerASN }

// BFDProfile is a resolved BFDProfile object (RFC 5880).
type BFDProfile struct {
	Name              string
	Transmit, Receive time.Duration // desired and required minimum intervals
	Multiplier        uint8         // detection multiplier
	Passive           bool          // wait for the peer to begin
	MinTTL            uint8         // multihop only (RFC 5883); 0: 254
	// Strict keeps the BGP session down until BFD is up.
	Strict bool
	// AuthType is "", "keyed-sha1" or "meticulous-keyed-sha1"; AuthKeyID and
	// AuthKey belong to it.
	AuthType  string
	AuthKeyID uint8
	AuthKey   string
}

// BGPState is what the BGP driver is to make true.
type BGPState struct {
	// RouterID is the BGP identifier; it does not change while the process lives.
	RouterID   netip.Addr
	Listen     []netip.Addr
	ListenPort uint16
	Peers      []BGPPeer // those of this node, sorted by Name
	// Listeners take sessions of masters that nobody names, sorted by Name.
	Listeners []BGPListener
	Paths     []BGPPath // in the order of ComparePaths
	// Ready: Paths holds all that an earlier process advertised and that is still
	// wanted. Sessions begin only then, so that a graceful restart misses nothing.
	Ready bool
	// Leave: the process ends. Sessions with graceful restart end without a word,
	// the others are closed with a NOTIFICATION.
	Leave bool
}

// BGPPath is one prefix to advertise.
type BGPPath struct {
	Prefix netip.Prefix
	// To is who gets it; never empty, and each peer is in one of them only. It is
	// never changed, and often shared by many paths.
	To []BGPAudience
}

// Has tells whether the path is for a peer.
func (p *BGPPath) Has(peer string) bool { return p.For(peer) != nil }

// For is how the path is for a peer, nil if it is not.
func (p *BGPPath) For(peer string) *BGPAudience {
	for i := range p.To {
		if slices.Contains(p.To[i].Peers, peer) {
			return &p.To[i]
		}
	}
	return nil
}

// BGPAudience are the peers that get a path with the same attributes.
type BGPAudience struct {
	Peers []string // names, sorted; never empty
	PathAttributes
	// Shutdown: advertise with GRACEFUL_SHUTDOWN (65535:0) and to iBGP peers with
	// LOCAL_PREF 0, so that routers leave while packets are still served.
	Shutdown bool
}

// Equal tells whether two paths have the same attributes.
func (a *PathAttributes) Equal(b *PathAttributes) bool {
	return a.LocalPref == b.LocalPref && a.MED == b.MED && a.MEDSet == b.MEDSet && a.Prepend == b.Prepend &&
		slices.Equal(a.Communities, b.Communities) && slices.Equal(a.LargeCommunities, b.LargeCommunities)
}

// Equal tells whether both ask for the same.
func (p *BGPPath) Equal(o *BGPPath) bool {
	if p.Prefix != o.Prefix || len(p.To) != len(o.To) {
		return false
	}
	if len(p.To) == 0 || &p.To[0] == &o.To[0] {
		return true
	}
	for i := range p.To {
		x, y := &p.To[i], &o.To[i]
		if x.Shutdown != y.Shutdown || !slices.Equal(x.Peers, y.Peers) || !x.PathAttributes.Equal(&y.PathAttributes) {
			return false
		}
	}
	return true
}

// PeerReport is the truth about one session, for people and metrics.
type PeerReport struct {
	Name    string
	Address netip.Addr
	// PeerASN is the configured one; if that is 0, the one that the peer has, and 0
	// unless Established.
	PeerASN uint32
	// State is that of RFC 4271 section 8.2.2: Idle, Connect, Active, OpenSent,
	// OpenConfirm, Established.
	State string
	Since time.Time // of the last change between Established and not
	// HoldTime is the negotiated one; the configured one unless Established.
	HoldTime time.Duration
	Families []string // negotiated, "ipv4" and "ipv6"
	Paths    int      // advertised to it
	Received uint32   // prefixes that it sent and that are ignored
	Flaps    uint64   // times that it left Established
	// LastError is why it is not, or was last not, established, in words.
	LastError string
	LastAt    time.Time // of LastError
	// BFD is Up, Init, Down or AdminDown; empty without a session.
	BFD string
	// BFDTransmit and BFDReceive are the negotiated intervals, the configured ones
	// unless BFD is Up; BFDDetect is the detection time, zero unless it is.
	BFDTransmit, BFDReceive, BFDDetect time.Duration
	// Counters since the session was configured.
	UpdatesOut, UpdatesIn, KeepalivesOut, KeepalivesIn, NotificationsOut, NotificationsIn uint64
}

// BGPPhase is where this node stands with a VIP that is on lo, for BGP or since it is Balanced;
// see package loopback.
type BGPPhase uint8

// The phases of a VIP on lo.
const (
	BGPIdle        BGPPhase = iota // not advertised, not bound
	BGPBinding                     // wanted; waiting for the address
	BGPAdvertised                  // bound and advertised
	BGPShutdown                    // draining: advertised with GRACEFUL_SHUTDOWN
	BGPWithdrawing                 // waiting until no peer has the path
	BGPKept                        // bound for peers that may keep the path of an earlier process
	BGPLingering                   // withdrawn; bound for packets under way
	BGPUnbinding                   // silent until the address is gone
)

// String returns a short name for logs. What is bound and not advertised has one.
func (p BGPPhase) String() string {
	return [...]string{"idle", "binding", "advertised", "shutdown", "withdrawing", "lingering", "lingering", "lingering"}[p]
}

// BGPMemory is the memory of one VIP on lo.
type BGPMemory struct {
	Phase BGPPhase
	// Gen is the generation at which the phase began; only reports at or after it
	// count.
	Gen   uint64
	Epoch uint64    // of the binding
	Until time.Time // timer of the phase
	// DrainEnd is when an address that lingers is unbound at the latest.
	DrainEnd time.Time
	// Lost is why the path was withdrawn.
	Lost Reason
	// Unbound is the VIP.Unbound by which the phase began.
	Unbound bool
	// Balanced: the address is, or was, bound here since the VIP is Balanced.
	Balanced bool
	// Outclassed is since when this node, which advertises the VIP, has been degraded, and
	// another one that does up; zero: not.
	Outclassed time.Time
	// HeldUntil is until when this node holds the connections of a Service whatever is
	// known of them.
	HeldUntil time.Time
	// Reason and Since are those of the last status.
	Reason Reason
	Since  time.Time
}

// KeepsConnections tells whether the address is to stay on lo for connections to a VIP that is, or
// was, Balanced.
func (m *BGPMemory) KeepsConnections() bool {
	return m.Balanced && m.Phase >= BGPAdvertised && m.Phase != BGPUnbinding
}
