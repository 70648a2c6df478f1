package v1alpha1

import (
	"slices"
	"time"
)

// BGPPeer is one router that nodes have a BGP session with. Field names are
// those of metallb.io/v1beta2 where the meaning is the same.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=lbd,shortName=bgpp
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.peerAddress`,description="The address of the router"
// +kubebuilder:printcolumn:name="ASN",type=integer,JSONPath=`.spec.peerASN`,description="The AS number of the router"
// +kubebuilder:printcolumn:name="My ASN",type=integer,JSONPath=`.spec.myASN`,description="The AS number of the nodes"
// +kubebuilder:printcolumn:name="BFD",type=string,JSONPath=`.spec.bfdProfile`,description="The BFDProfile that watches the path"
// +kubebuilder:printcolumn:name="Dynamic ASN",type=string,JSONPath=`.spec.dynamicASN`,description="Which AS numbers the router may have",priority=1
// +kubebuilder:printcolumn:name="Hold",type=string,JSONPath=`.spec.holdTime`,description="After how long without a message the session ends",priority=1
// +kubebuilder:printcolumn:name="Passive",type=boolean,JSONPath=`.spec.passive`,description="Whether the router has to connect",priority=1
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the object is in use as it is written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,description="Why it is accepted, or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type BGPPeer struct {
	TypeMeta `json:",inline"`
	// Metadata names the object; VirtualIPs refer to that name.
	// +optional
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	Spec BGPPeerSpec `json:"spec"`
	// Status is what the controller found; files have none.
	Status *ObjectStatus `json:"status,omitempty"`
}

// BGPPeerSpec is what is wanted of a session.
//
// +kubebuilder:validation:XValidation:rule="!isIP(self.peerAddress) || (ip(self.peerAddress).family() == 6 && ip(self.peerAddress).isLinkLocalUnicast()) == (has(self.interface) && self.interface != \"\")",message="is required for an IPv6 link-local peerAddress, and only for such a one",fieldPath=".interface"
// +kubebuilder:validation:XValidation:rule="!(has(self.sourceAddress) && self.sourceAddress != \"\" && isIP(self.sourceAddress) && isIP(self.peerAddress)) || (ip(self.sourceAddress).family() == ip(self.peerAddress).family() && !(ip(self.sourceAddress) == ip(self.peerAddress)) && (ip(self.sourceAddress).family() == 4 || !ip(self.sourceAddress).isLinkLocalUnicast() || ip(self.peerAddress).isLinkLocalUnicast()))",message="must be another address of the family of peerAddress, and link-local only if peerAddress is",fieldPath=".sourceAddress"
// +kubebuilder:validation:XValidation:rule="!has(self.keepaliveTime) || (duration(self.holdTime) == duration('0s') ? duration(self.keepaliveTime) == duration('0s') : duration(self.keepaliveTime) >= duration('1s') && duration(self.keepaliveTime) < duration(self.holdTime) && timestamp(int(timestamp(0) + duration(self.keepaliveTime))) == timestamp(0) + duration(self.keepaliveTime))",message="must be whole seconds, at least 1s and shorter than holdTime; left out if holdTime is 0s",fieldPath=".keepaliveTime"
// +kubebuilder:validation:XValidation:rule="!has(self.connectTime) || (has(self.passive) && self.passive ? duration(self.connectTime) == duration('0s') : duration(self.connectTime) >= duration('1s') && duration(self.connectTime) <= duration('65535s') && timestamp(int(timestamp(0) + duration(self.connectTime))) == timestamp(0) + duration(self.connectTime))",message="must be whole seconds from 1s to 65535s; left out for a passive peer",fieldPath=".connectTime"
// +kubebuilder:validation:XValidation:rule="has(self.peerASN) || has(self.dynamicASN)",message="is required: from 1 to 4294967294, or dynamicASN in its place",fieldPath=".peerASN"
// +kubebuilder:validation:XValidation:rule="!(has(self.peerASN) && has(self.dynamicASN))",message="dynamicASN and peerASN exclude each other",fieldPath=".dynamicASN"
// +kubebuilder:validation:XValidation:rule="!(has(self.password) && self.password != \"\" && has(self.passwordFile) && self.passwordFile != \"\")",message="passwordFile and password exclude each other",fieldPath=".passwordFile"
// +kubebuilder:validation:XValidation:rule="!(has(self.passwordSecret) && (has(self.password) && self.password != \"\" || has(self.passwordFile) && self.passwordFile != \"\"))",message="passwordSecret excludes password and passwordFile",fieldPath=".passwordSecret"
// +kubebuilder:validation:XValidation:rule="!((has(self.password) && self.password != \"\" || has(self.passwordFile) && self.passwordFile != \"\" || has(self.passwordSecret)) && isIP(self.peerAddress) && ip(self.peerAddress).family() == 6 && ip(self.peerAddress).isLinkLocalUnicast())",message="no password is for a link-local peerAddress: TCP MD5 needs an address that names one peer"
// +kubebuilder:validation:XValidation:rule="!(has(self.ebgpMultiHop) && self.ebgpMultiHop) || !(has(self.ttlSecurity) && self.ttlSecurity) && !has(self.minimumTTL) && !(has(self.peerASN) && self.myASN == self.peerASN) && !(has(self.dynamicASN) && self.dynamicASN == \"internal\")",message="is for eBGP (peerASN is not myASN, and dynamicASN not internal), without ttlSecurity and minimumTTL; minimumTTL alone allows several hops",fieldPath=".ebgpMultiHop"
// +kubebuilder:validation:XValidation:rule="!(has(self.minimumTTL) && has(self.ttlSecurity) && self.ttlSecurity)",message="minimumTTL and ttlSecurity, which means 255, exclude each other",fieldPath=".minimumTTL"
type BGPPeerSpec struct {
	// MyASN is the AS number of the nodes in this session: 1 to 4294967294 without
	// 23456 and 65535, which are reserved (RFC 7607, RFC 6793, RFC 7300).
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:XValidation:rule="self != 23456 && self != 65535",message="is reserved (RFC 6793, RFC 7300)"
	MyASN uint32 `json:"myASN"`
	// PeerASN is the AS number of the router. The same as MyASN makes the session
	// internal (iBGP), another one external (eBGP). Either it or DynamicASN is
	// required.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:XValidation:rule="self != 23456 && self != 65535",message="is reserved (RFC 6793, RFC 7300)"
	PeerASN uint32 `json:"peerASN,omitempty"`
	// DynamicASN stands in place of PeerASN: with internal the router must have MyASN
	// too, with external it may have every other AS number.
	// +optional
	DynamicASN DynamicASN `json:"dynamicASN,omitempty"`
	// PeerAddress is the address of the router, IPv4 or IPv6, without a zone.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && !ip(self).isUnspecified() && !ip(self).isLoopback() && !(cidr('224.0.0.0/4').containsIP(self) || cidr('ff00::/8').containsIP(self)) && self != '255.255.255.255'",message="must be an IP address of one host, without zone and IPv6 form of IPv4; not unspecified, loopback, multicast or broadcast"
	PeerAddress string `json:"peerAddress"`
	// PeerPort is the TCP port of the router. Default: 179.
	// +kubebuilder:default=179
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	PeerPort int32 `json:"peerPort,omitempty"`
	// Interface is where an IPv6 link-local PeerAddress is reached; required for
	// such an address, and refused for every other.
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^(|\.*[^./: \t\n\v\f\r\x00][^/: \t\n\v\f\r\x00]*|\.{3,})$`
	Interface string `json:"interface,omitempty"`
	// SourceAddress is the local address of the session, of the family of
	// PeerAddress. Default: the choice of the kernel.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self) && !ip(self).isUnspecified() && !ip(self).isLoopback() && !(cidr('224.0.0.0/4').containsIP(self) || cidr('ff00::/8').containsIP(self)) && self != '255.255.255.255'",message="must be an IP address of one host, without zone and IPv6 form of IPv4; not unspecified, loopback, multicast or broadcast"
	SourceAddress string `json:"sourceAddress,omitempty"`
	// RouterID is the BGP identifier in dotted form, not 0.0.0.0 (RFC 6286). All
	// peers of a node must agree. Default: bgp.routerID of the NodeConfiguration.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self) && ip(self).family() == 4 && self != '0.0.0.0'",message="must be four bytes in dotted form, such as 10.0.0.11, and not 0.0.0.0"
	RouterID string `json:"routerID,omitempty"`
	// HoldTime is after how long without a message the session ends (RFC 4271
	// section 4.2): whole seconds, 3s to 65535s, or 0s for never. The lower one of
	// both sides counts. Default: 9s.
	// +kubebuilder:default="9s"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('3s') && duration(self) <= duration('65535s') && timestamp(int(timestamp(0) + duration(self))) == timestamp(0) + duration(self)",message="must be 0s, which means for ever, or whole seconds from 3s to 65535s (RFC 4271 section 4.2)"
	HoldTime *Duration `json:"holdTime,omitempty"`
	// KeepaliveTime is the time between KEEPALIVE messages: whole seconds, from 1s
	// to below HoldTime. Default: a third of HoldTime.
	KeepaliveTime *Duration `json:"keepaliveTime,omitempty"`
	// ConnectTime is the time between attempts to connect: whole seconds, 1s to
	// 65535s; not for a passive peer. Default: 1s.
	// +optional
	ConnectTime Duration `json:"connectTime,omitzero"`
	// NodeSelectors are the nodes that have the session: those that match any of
	// them. Default: all.
	// +optional
	// +listType=atomic
	NodeSelectors []LabelSelector `json:"nodeSelectors,omitempty"`
	// Password is the key of TCP MD5 (RFC 2385), at most 80 bytes; not for an IPv6
	// link-local PeerAddress, which does not name one peer.
	// +kubebuilder:validation:MaxLength=80
	// +kubebuilder:validation:Pattern=`^[^\r\n\x00]*$`
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 80",message="TCP MD5 takes at most 80 bytes"
	Password string `json:"password,omitempty"`
	// PasswordFile is the absolute path of a file with the key; a newline at its
	// end does not count. It excludes Password, and is not for an IPv6 link-local
	// PeerAddress either.
	// +kubebuilder:validation:Pattern=`^(/[^\x00]*)?$`
	PasswordFile string `json:"passwordFile,omitempty"`
	// PasswordSecret names a Secret of the type kubernetes.io/basic-auth with the key
	// in its entry password. It is for clusters only; lbd needs the right to read that
	// Secret, see docs/bgp.md. It excludes Password and PasswordFile, and is not for
	// an IPv6 link-local PeerAddress either.
	// +optional
	PasswordSecret *SecretReference `json:"passwordSecret,omitempty"`
	// BFDProfile is the name of a BFDProfile. Default: no BFD session.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*)?$`
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
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	MinimumTTL *int32 `json:"minimumTTL,omitempty"`
	// Passive waits for the router to connect instead of connecting to it.
	Passive bool `json:"passive,omitempty"`
	// GracefulShutdownDelay is how long, in a drain, paths are advertised with the
	// community GRACEFUL_SHUTDOWN (RFC 8326) before they are withdrawn: 0s to 5m.
	// Default: 500ms.
	// +kubebuilder:default="500ms"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('5m')",message="must be from 0s to 5m"
	GracefulShutdownDelay *Duration `json:"gracefulShutdownDelay,omitempty"`
	// Families are the address families of the session, whatever that of
	// PeerAddress is. Default: both.
	// +optional
	// +listType=set
	// +kubebuilder:default={ipv4, ipv6}
	Families []AddressFamily `json:"families,omitempty"`
	// MaxPrefixes is how many prefixes of each family the router may send, 1 to
	// 10000000. None is ever used; the number bounds memory. Default: 10000.
	// +kubebuilder:default=10000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	MaxPrefixes int32 `json:"maxPrefixes,omitempty"`
}

// DynamicASN is which AS numbers a router may have.
//
// +kubebuilder:validation:Enum=internal;external
type DynamicASN string

// The choices of DynamicASN.
const (
	// DynamicInternal is the AS number of the nodes.
	DynamicInternal DynamicASN = "internal"
	// DynamicExternal is every other one.
	DynamicExternal DynamicASN = "external"
)

// SecretReference names a Secret in the namespace of lbd.
type SecretReference struct {
	// Name is that of the Secret.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Name string `json:"name"`
	// Namespace may only be that of lbd, which is the default.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$`
	Namespace string `json:"namespace,omitempty"`
}

// AddressFamily is IPv4 or IPv6, unicast.
//
// +kubebuilder:validation:Enum=ipv4;ipv6
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
	setDefault(&s.HoldTime, &Duration{DefaultHoldTime})
	setDefault(&s.KeepaliveTime, &Duration{(s.HoldTime.Duration / 3).Truncate(time.Second)})
	if !s.Passive {
		setDefault(&s.ConnectTime, Duration{DefaultConnectTime})
	}
	setDefault(&s.GracefulShutdownDelay, &Duration{DefaultGracefulShutdownDelay})
	if len(s.Families) == 0 {
		s.Families = []AddressFamily{FamilyIPv4, FamilyIPv6}
	}
	setDefault(&s.MaxPrefixes, DefaultMaxPrefixes)
}

// IsInternal tells whether the session is iBGP.
func (s *BGPPeerSpec) IsInternal() bool {
	return s.DynamicASN == DynamicInternal || s.DynamicASN == "" && s.MyASN == s.PeerASN
}

// Has tells whether the session carries a family.
func (s *BGPPeerSpec) Has(f AddressFamily) bool { return slices.Contains(s.Families, f) }
