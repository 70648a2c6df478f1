package v1alpha1

// BFDProfile is how BFD (RFC 5880) watches the path to a BGP peer.
type BFDProfile struct {
	TypeMeta `json:",inline"`
	// Metadata names the object; BGPPeers refer to that name.
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	Spec BFDProfileSpec `json:"spec"`
}

// BFDProfileSpec is what is wanted of a BFD session.
type BFDProfileSpec struct {
	// ReceiveInterval is the required minimum interval between packets of the
	// peer, in milliseconds: 10 to 60000. Default: 300.
	ReceiveInterval int32 `json:"receiveInterval,omitempty"`
	// TransmitInterval is the desired minimum interval between own packets, in
	// milliseconds: 10 to 60000. Default: 300.
	TransmitInterval int32 `json:"transmitInterval,omitempty"`
	// DetectMultiplier is how many packets in a row may be missing until the peer
	// calls the session down: 2 to 255. Default: 3.
	DetectMultiplier int32 `json:"detectMultiplier,omitempty"`
	// PassiveMode waits for the first packet of the peer.
	PassiveMode bool `json:"passiveMode,omitempty"`
	// MinimumTTL is the least TTL of packets of a peer that is several hops away
	// (RFC 5883): 1 to 254. Default: 254.
	MinimumTTL int32 `json:"minimumTtl,omitempty"`
	// Strict keeps the BGP session down until the BFD session is up.
	Strict bool `json:"strict,omitempty"`
	// AuthType is how packets are authenticated (RFC 5880 section 6.7). Default:
	// not at all.
	AuthType BFDAuthType `json:"authType,omitempty"`
	// AuthKeyID names the key to the peer: 0 to 255. Default: 0.
	AuthKeyID int32 `json:"authKeyID,omitempty"`
	// AuthKeyFile is the absolute path of a file with the key, 1 to 20 bytes; a
	// newline at its end does not count. Required with AuthType.
	AuthKeyFile string `json:"authKeyFile,omitempty"`
}

// BFDAuthType is a type of authentication of BFD packets.
type BFDAuthType string

// The types of authentication.
const (
	BFDKeyedSHA1      BFDAuthType = "keyed-sha1"
	BFDMeticulousSHA1 BFDAuthType = "meticulous-keyed-sha1"
)

// The defaults of a BFDProfile.
const (
	DefaultBFDInterval   = 300 // ms
	DefaultBFDMultiplier = 3
	DefaultBFDMinimumTTL = 254
)

// Default fills in what is unset.
func (p *BFDProfile) Default() {
	s := &p.Spec
	setDefault(&s.ReceiveInterval, DefaultBFDInterval)
	setDefault(&s.TransmitInterval, DefaultBFDInterval)
	setDefault(&s.DetectMultiplier, DefaultBFDMultiplier)
	setDefault(&s.MinimumTTL, DefaultBFDMinimumTTL)
}
