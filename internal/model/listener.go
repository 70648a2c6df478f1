package model

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// KindBGPListener is the kind of VIPs that masters have, which this machine learns of by BGP.
const KindBGPListener = "BGPListener"

// BGPListener takes BGP sessions of masters that it does not know beforehand, and learns from
// them where VIPs are. Names of other objects are resolved in it.
type BGPListener struct {
	Name     string
	LocalASN uint32
	// PeerPrefixes are where masters are.
	PeerPrefixes []netip.Prefix
	// PeerASN is that of the masters; 0: any private one (RFC 6996).
	PeerASN  uint32
	HoldTime time.Duration
	Password string // TCP MD5 (RFC 2385); empty: none
	// Accept are the prefixes that masters may advertise, each with exactly its length. For
	// each there is a VIP in the View that is Learned, with the first address of the prefix:
	// by it this machine tells the side of the clients.
	Accept []netip.Prefix
	// MaxPrefixes is how many prefixes of each family a master may advertise, accepted or not.
	MaxPrefixes int
	BFD         *BFDProfile // nil: none
	Spread      Spread
	// HashSeed is that of the kernel by which connections are spread; 0: any.
	HashSeed uint32
}

// LearnedPath is one path that a master advertises.
type LearnedPath struct {
	Listener string
	Peer     netip.Addr // of the session
	PeerASN  uint32     // that the master says it has
	Prefix   netip.Prefix
	NextHop  netip.Addr
}

// Compare orders paths by their prefix, then by who advertises them.
func (p *LearnedPath) Compare(o *LearnedPath) int {
	return cmp.Or(ComparePaths(p.Prefix, o.Prefix), p.Peer.Compare(o.Peer), cmp.Compare(p.Listener, o.Listener), p.NextHop.Compare(o.NextHop), cmp.Compare(p.PeerASN, o.PeerASN))
}

// MasterReport is the truth about one master that is connected or kept out, for people and metrics.
type MasterReport struct {
	Listener string
	Address  netip.Addr
	ASN      uint32 // 0 before it has said so
	State    string // as PeerReport.State
	HoldTime time.Duration
	Received uint32 // prefixes that it advertises, refused ones too
	// BFD is Up, Init, Down or AdminDown; empty without a session. BFDDetect is the
	// detection time, zero unless it is Up.
	BFD       string
	BFDDetect time.Duration
	Error     string // why no session is taken, in words; empty unless it is kept out
}

// RefusedPath is a path that leads to no route, and why.
type RefusedPath struct {
	LearnedPath
	Why string
}

// RefusedPrefix is a prefix of BGPListener.Accept that counts for nothing, and why.
type RefusedPrefix struct {
	Listener string
	Prefix   netip.Prefix
	Why      string
}

// Refusals are what masters advertise, or listeners accept, and what counts for nothing.
type Refusals struct {
	Paths []RefusedPath // in order
	// Untold is how many more paths there are.
	Untold   int
	Prefixes []RefusedPrefix
}

// LearnedMemory is what the policy of learned paths remembers.
type LearnedMemory struct {
	// Routes are those of the last decision, in the order of ComparePaths.
	Routes []LearnedRoute
}

// LearnedRoute is one prefix.
type LearnedRoute struct {
	Prefix   netip.Prefix
	NextHops []NextHop
	Since    time.Time // of the last change of NextHops
}

// Same compares two memories.
func (m *LearnedMemory) Same(o *LearnedMemory) bool {
	return slices.EqualFunc(m.Routes, o.Routes, func(a, b LearnedRoute) bool {
		return a.Prefix == b.Prefix && a.Since.Equal(b.Since) && slices.Equal(a.NextHops, b.NextHops)
	})
}
