package v1alpha1

import (
	"slices"
	"time"
)

// BGPPeer is one router that nodes have a BGP session with. Field names are
// those of metallb.io/v1beta2 where the meaning is the same.
type BGPPeer struct {
	TypeMeta `json:",inline"`
	// Metadata names the object; VirtualIPs refer to that name.
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	Spec BGPPeerSpec `json:"spec"`
}

// BGPPeerSpec is what is wanted of a session.
type BGPPeerSpec struct {
	// MyASN is the AS number of the nodes in this session: 1 to 4294967294 without
	// 23456 and 65535, which are reserved (RFC 7607, RFC 6793, RFC 7300).
	MyASN uint32 `json:"myASN"`
	// PeerASN is the AS number of the router. The same as MyASN makes the session
	// internal (iBGP), another one external (eBGP).
	PeerASN uint32 `json:"peerASN"`
	// PeerAddress is the address of the router, IPv4 or IPv6, without a zone.
	PeerAddress string `json:"peerAddress"`
	// PeerPort is the TCP port of the router. Default: 179.
	PeerPort int32 `json:"peerPort,omitempty"`
	// Interface is where an IPv6 link-local PeerAddress is reached; required for
	// such an address, and refused for every other.
	Interface string `json:"interface,omitempty"`
	// SourceAddress is the local address of the session, of the family of
	// PeerAddress. Default: the choice of the kernel.
	SourceAddress string `json:"sourceAddress,omitempty"`
	// RouterID is the BGP identifier in dotted form, not 0.0.0.0 (RFC 6286). All
	// peers of a node must agree. Default: bgp.routerID of the NodeConfiguration.
	RouterID string `json:"routerID,omitempty"`
	// HoldTime is after how long without a message the session ends (RFC 4271
	// section 4.2): whole seconds, 3s to 65535s, or 0s for never. The lower one of
	// both sides counts. Default: 9s.
	HoldTime *Duration `json:"holdTime,omitempty"`
	// KeepaliveTime is the time between KEEPALIVE messages: whole seconds, from 1s
	// to below HoldTime. Default: a third of HoldTime.
	KeepaliveTime *Duration `json:"keepaliveTime,omitempty"`
	// ConnectTime is the time between attempts to connect: whole seconds, 1s to
	// 65535s; not for a passive peer. Default: 1s.
	ConnectTime Duration `json:"connectTime,omitzero"`
	// NodeSelectors are the nodes that have the session: those that match any of
	// them. Default: all.
	NodeSelectors []LabelSelector `json:"nodeSelectors,omitempty"`
	// Password is the key of TCP MD5 (RFC 2385), at most 80 bytes; not for an IPv6
	// link-local PeerAddress, which does not name one peer.
	Password string `json:"password,omitempty"`
	// PasswordFile is the absolute path of a file with the key; a newline at its
	// end does not count. It excludes Password, and is not for an IPv6 link-local
	// PeerAddress either.
	PasswordFile string `json:"passwordFile,omitempty"`
	// BFDProfile is the name of a BFDProfile. Default: no BFD session.
	BFDProfile string `json:"bfdProfile,omitempty"`
	// EnableGracefulRestart has the router keep its routes while the daemon
	// restarts (RFC 4724).
	EnableGracefulRestart bool `json:"enableGracefulRestart,omitempty"`
	// EBGPMultiHop allows an eBGP peer that is not on a connected subnet.
	EBGPMultiHop bool `json:"ebgpMultiHop,omitempty"`
	// TTLSecurity takes only packets that no router has forwarded: their TTL is 255
	// (GTSM, RFC 5082). The router must send with TTL 255 too.
	TTLSecurity bool `json:"ttlSecurity,omitempty"`
	// MinimumTTL takes only packets with at least this TTL (GTSM), 1 to 255; 254
	// allows one router in between. It excludes TTLSecurity.
	MinimumTTL *int32 `json:"minimumTTL,omitempty"`
	// Passive waits for the router to connect instead of connecting to it.
	Passive bool `json:"passive,omitempty"`
	// GracefulShutdownDelay is how long, in a drain, paths are advertised with the
	// community GRACEFUL_SHUTDOWN (RFC 8326) before they are withdrawn: 0s to 5m.
	// Default: 500ms.
	GracefulShutdownDelay *Duration `json:"gracefulShutdownDelay,omitempty"`
	// Families are the address families of the session, whatever that of
	// PeerAddress is. Default: both.
	Families []AddressFamily `json:"families,omitempty"`
	// MaxPrefixes is how many prefixes of each family the router may send, 1 to
	// 10000000. None is ever used; the number bounds memory. Default: 10000.
	MaxPrefixes int32 `json:"maxPrefixes,omitempty"`
}

// AddressFamily is IPv4 or IPv6, unicast.
type AddressFamily string

// The address families.
const (
	FamilyIPv4 AddressFamily = "ipv4"
	FamilyIPv6 AddressFamily = "ipv6"
)

// The defaults of a BGPPeer.
const (
	DefaultBGPPort     = 179
	DefaultHoldTime    = 9 * time.Second
	DefaultConnectTime = time.Second
	// DefaultGracefulShutdownDelay is long for routers that follow the community,
	// which takes some ten milliseconds each, and short enough for a drain of a
	// second.
	DefaultGracefulShutdownDelay = 500 * time.Millisecond
	DefaultMaxPrefixes           = 10000
)

// Default fills in what is unset.
func (p *BGPPeer) Default() {
	s := &p.Spec
	setDefault(&s.PeerPort, DefaultBGPPort)
	if s.HoldTime == nil {
		s.HoldTime = &Duration{DefaultHoldTime}
	}
	if s.KeepaliveTime == nil {
		s.KeepaliveTime = &Duration{(s.HoldTime.Duration / 3).Truncate(time.Second)}
	}
	if !s.Passive {
		setDefault(&s.ConnectTime, Duration{DefaultConnectTime})
	}
	if s.GracefulShutdownDelay == nil {
		s.GracefulShutdownDelay = &Duration{DefaultGracefulShutdownDelay}
	}
	if len(s.Families) == 0 {
		s.Families = []AddressFamily{FamilyIPv4, FamilyIPv6}
	}
	setDefault(&s.MaxPrefixes, DefaultMaxPrefixes)
}

// Has tells whether the session carries a family.
func (s *BGPPeerSpec) Has(f AddressFamily) bool { return slices.Contains(s.Families, f) }
