package bgp

import (
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/model"
)

// Speaker is a BGP speaker (RFC 4271) that advertises paths and takes none.
// It keeps a session with each of its peers by itself: after a failure it begins
// again, soon, and more slowly the more often a peer refuses. Its methods are
// safe for concurrent use.
type Speaker interface {
	// Start opens the listening sockets; nothing else works before it. After an
	// error it may be called again.
	Start(Global) error
	// AddPeer begins a session. The name must be new. An error means that a
	// session of this kind can never be; what may pass is in Session.LastError.
	AddPeer(Peer) error
	// RemovePeer ends a session with Cease (RFC 4486): Administrative Shutdown with
	// words for the other side (RFC 9003), or Peer De-configured without words.
	RemovePeer(name, words string)
	// Reset ends a session and begins it again at once. The reason becomes
	// Session.LastError.
	Reset(name, reason string)
	// SetRestartTime changes for how long the peer is asked to keep the paths, RFC
	// 4724 section 3. A session goes on; the next one tells it.
	SetRestartTime(name string, d time.Duration)
	// Hold ends a session, which Release begins again. Both may be called again.
	Hold(name, reason string)
	Release(name string)
	// SetPath adds a path or replaces the one to the same prefix; peers that have
	// the old one get the new one, or its withdrawal, in one step. The peers may be
	// added later, and the attributes may differ from peer to peer.
	SetPath(model.BGPPath) error
	// DeletePath withdraws a path from all peers; one that is not there is no
	// error.
	DeletePath(netip.Prefix) error
	// Sessions returns the truth about every peer, by name.
	Sessions() map[string]Session
	// Close ends every session but those with graceful restart, which end without a
	// word when the process does (RFC 4724 section 4.1).
	Close(words string)
}

// Listener takes sessions of masters that nobody names beforehand, and learns paths from them. It
// passes none of them on. Its methods are safe for concurrent use.
type Listener interface {
	// SetListeners makes the listeners those given. Sessions of one that is gone, or has
	// other settings of its sessions, end. The speaker must have started, with addresses to
	// listen on. After an error it may be called again.
	SetListeners([]model.BGPListener) error
	// Learned are the paths that masters with a session advertise, in no order, whatever
	// their prefixes are.
	Learned() []model.LearnedPath
	// Masters are those that are connected or kept out, sorted by address.
	Masters() []Master
	// EndMaster ends the session of a master, whose paths are forgotten. It may come back.
	EndMaster(addr netip.Addr, reason string)
}

// Master is one that is connected to a listener, or is kept out.
type Master struct {
	Listener string
	Address  netip.Addr
	ASN      uint32 // 0 before it has said so
	State    State
	Local    netip.Addr    // of this end; invalid unless Established
	HoldTime time.Duration // the negotiated one; zero unless Established, and for never
	Received uint32        // prefixes that it has sent
	Error    string        // why no session is taken; empty unless it is kept out
}

// Global is what all sessions share; it does not change.
type Global struct {
	RouterID   netip.Addr   // BGP identifier, four bytes
	ASN        uint32       // of any peer; sessions have their own
	Listen     []netip.Addr // empty: nobody may connect
	ListenPort uint16
}

// Peer is one router.
type Peer struct {
	model.BGPPeer
	// Held: do not begin before Release; it is why.
	Held string
	// Restarting: an earlier process advertised to this router a moment ago, and
	// its addresses are still bound. The first session says so (Restart State and
	// Forwarding State, RFC 4724 section 4.1).
	Restarting bool
}

// Session is the truth about one peer.
type Session struct {
	// State is that of RFC 4271 section 8.2.2.
	State State
	Since time.Time // of the last change between Established and not
	// Local is the address of this end; invalid unless Established.
	Local netip.Addr
	// PeerASN is the AS number of the peer; 0 unless Established.
	PeerASN uint32
	// HoldTime is the negotiated one; zero unless Established, and for never.
	HoldTime time.Duration
	// IPv4 and IPv6 tell what is advertised: the family is negotiated, and there is
	// a next hop that the router takes. NoIPv4 and NoIPv6 tell why not, in words;
	// empty unless the family was asked for and the session is Established.
	IPv4, IPv6     bool
	NoIPv4, NoIPv6 string
	// Received is the number of prefixes that the router sent and that are ignored.
	Received uint32
	Flaps    uint64 // times that it left Established
	// LastError is why it is not, or was last not, Established, in words.
	LastError string
	LastAt    time.Time // of LastError
	// Counters since AddPeer.
	UpdatesOut, UpdatesIn, KeepalivesOut, KeepalivesIn, NotificationsOut, NotificationsIn uint64
}

// State is the state of a session.
type State uint8

// The states of RFC 4271 section 8.2.2. A speaker need not use all.
const (
	Idle State = iota
	Connect
	Active
	OpenSent
	OpenConfirm
	Established
)

// String returns the name that RFC 4271 uses.
func (s State) String() string {
	return [...]string{"Idle", "Connect", "Active", "OpenSent", "OpenConfirm", "Established"}[s]
}
