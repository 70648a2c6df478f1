package v1alpha1

import "time"

// BGPListener makes a machine outside every cluster a router to machines that have addresses of
// their own, the masters: it takes BGP sessions from them without knowing them beforehand, and
// learns which of them have which address. It is read from files only.
type BGPListener struct {
	TypeMeta `json:",inline"`
	// Metadata names the object.
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	Spec BGPListenerSpec `json:"spec"`
}

// BGPListenerSpec is what is wanted of a BGPListener.
type BGPListenerSpec struct {
	// ASN is the AS number of this machine in these sessions: 1 to 4294967294 without
	// 23456 and 65535, which are reserved.
	ASN uint32 `json:"asn"`
	// PeerPrefixes are where masters are, 1 to 64. From elsewhere no session is taken.
	PeerPrefixes []string `json:"peerPrefixes"`
	// PeerASN is the AS number of the masters. Default: any one for private use (RFC 6996).
	PeerASN uint32 `json:"peerASN,omitempty"`
	// HoldTime is after how long without a message a session ends (RFC 4271 section 4.2): whole
	// seconds, 3s to 65535s. The lower one of both sides counts. Default: 9s.
	HoldTime Duration `json:"holdTime,omitzero"`
	// PasswordFile is the absolute path of a file with the key of TCP MD5 (RFC 2385), which
	// all masters share; a newline at its end does not count. Default: no authentication.
	PasswordFile string `json:"passwordFile,omitempty"`
	// BFDProfile is the name of a BFDProfile. Default: no BFD sessions.
	BFDProfile string `json:"bfdProfile,omitempty"`
	// AcceptPrefixes are what masters may advertise, each with exactly its length, 1 to 64. No
	// two overlap. With Upstream l2 each is one address.
	AcceptPrefixes []string `json:"acceptPrefixes"`
	// MaxPrefixes is how many prefixes of each family a master may advertise, accepted or
	// not: at least as many as AcceptPrefixes has of a family, at most 10000. Default: 100.
	MaxPrefixes int32 `json:"maxPrefixes,omitempty"`
	// NextHops is how connections are spread over the masters.
	NextHops NextHopsSpec `json:"nextHops,omitzero"`
	// HashSeed is the seed of the hash that places connections: 1 to 4294967295, the same on all
	// machines that share AcceptPrefixes. A machine has one. Default: 445.
	HashSeed uint32 `json:"hashSeed,omitempty"`
	// Upstream is how the network of the clients finds this machine. Default: l2.
	Upstream Upstream `json:"upstream,omitempty"`
}

// NextHopsSpec is how connections are spread over next hops.
type NextHopsSpec struct {
	// Mode is resilient or multipath. Default: resilient.
	Mode NextHopMode `json:"mode,omitempty"`
	// Buckets is the size of the table that places connections, for resilient: 16 to 65535.
	// Default: 1024.
	Buckets int32 `json:"buckets,omitempty"`
	// IdleTimer is how long a bucket must have been without packets before it may move to
	// a master that has too few, for resilient: 1s to 24h. Default: 2m.
	IdleTimer *Duration `json:"idleTimer,omitempty"`
	// UnbalancedTimer is for how long a master may have too few buckets before some in
	// use move to it, too, for resilient: 1s to 24h, or 0s for ever. Default: 0s.
	UnbalancedTimer *Duration `json:"unbalancedTimer,omitempty"`
}

// NextHopMode is how the kernel places connections.
type NextHopMode string

// The modes of next hops.
const (
	// NextHopsResilient places by a table, of which a change moves only what has to move.
	NextHopsResilient NextHopMode = "resilient"
	// NextHopsMultipath places by ranges of the hash, which all change with a next hop.
	NextHopsMultipath NextHopMode = "multipath"
)

// Upstream is how the network of the clients finds a machine.
type Upstream string

// The upstreams of a BGPListener.
const (
	// UpstreamL2 has one machine of the group answer ARP and ND for the addresses.
	UpstreamL2 Upstream = "l2"
	// UpstreamBGP has each machine advertise the prefixes to its BGPPeers.
	UpstreamBGP Upstream = "bgp"
)

// The defaults of a BGPListener.
const (
	DefaultListenerMaxPrefixes = 100
	DefaultBuckets             = 1024
	DefaultIdleTimer           = 2 * time.Minute
	DefaultHashSeed            = 445
)

// Default fills in what is unset.
func (l *BGPListener) Default() {
	s := &l.Spec
	setDefault(&s.HoldTime, Duration{DefaultHoldTime})
	setDefault(&s.MaxPrefixes, DefaultListenerMaxPrefixes)
	setDefault(&s.NextHops.Mode, NextHopsResilient)
	setDefault(&s.HashSeed, DefaultHashSeed)
	setDefault(&s.Upstream, UpstreamL2)
	if n := &s.NextHops; n.Mode == NextHopsResilient {
		setDefault(&n.Buckets, DefaultBuckets)
		setDefault(&n.IdleTimer, &Duration{DefaultIdleTimer})
		setDefault(&n.UnbalancedTimer, &Duration{})
	}
}
