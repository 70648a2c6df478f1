package v1alpha1

// BFDProfile is how BFD (RFC 5880) watches the path to a BGP peer.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=lbd,shortName=bfdp
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Transmit",type=integer,JSONPath=`.spec.transmitInterval`,description="Milliseconds between own packets"
// +kubebuilder:printcolumn:name="Receive",type=integer,JSONPath=`.spec.receiveInterval`,description="Least milliseconds between packets of the peer"
// +kubebuilder:printcolumn:name="Multiplier",type=integer,JSONPath=`.spec.detectMultiplier`,description="How many packets may be missing"
// +kubebuilder:printcolumn:name="Passive",type=boolean,JSONPath=`.spec.passiveMode`,description="Whether the peer has to begin",priority=1
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the object is in use as it is written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,description="Why it is accepted, or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type BFDProfile struct {
	TypeMeta `json:",inline"`
	// Metadata names the object; BGPPeers refer to that name.
	// +optional
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	// +optional
	// +kubebuilder:default={}
	Spec BFDProfileSpec `json:"spec"`
	// Status is what the controller found; files have none.
	Status *ObjectStatus `json:"status,omitempty"`
}

// BFDProfileSpec is what is wanted of a BFD session.
//
// +kubebuilder:validation:XValidation:rule="has(self.authType) == (has(self.authKeyFile) && self.authKeyFile != \"\")",message="authType and authKeyFile need each other",fieldPath=".authKeyFile"
// +kubebuilder:validation:XValidation:rule="!has(self.authKeyID) || self.authKeyID == 0 || has(self.authType)",message="needs authType: keyed-sha1 or meticulous-keyed-sha1",fieldPath=".authKeyID"
type BFDProfileSpec struct {
	// ReceiveInterval is the required minimum interval between packets of the
	// peer, in milliseconds: 50 to 60000. Default: 300.
	// +kubebuilder:default=300
	// +kubebuilder:validation:XValidation:rule="self >= 50",message="must be from 50 to 60000: shorter intervals, which earlier versions took, end sessions on a node that is busy"
	// +kubebuilder:validation:Maximum=60000
	ReceiveInterval int32 `json:"receiveInterval,omitempty"`
	// TransmitInterval is the desired minimum interval between own packets, in
	// milliseconds: 50 to 60000. Default: 300.
	// +kubebuilder:default=300
	// +kubebuilder:validation:XValidation:rule="self >= 50",message="must be from 50 to 60000: shorter intervals, which earlier versions took, end sessions on a node that is busy"
	// +kubebuilder:validation:Maximum=60000
	TransmitInterval int32 `json:"transmitInterval,omitempty"`
	// DetectMultiplier is how many packets in a row may be missing until the peer
	// calls the session down: 2 to 255. Default: 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=255
	DetectMultiplier int32 `json:"detectMultiplier,omitempty"`
	// PassiveMode waits for the first packet of the peer.
	PassiveMode bool `json:"passiveMode,omitempty"`
	// MinimumTTL is the least TTL of packets of a peer that is several hops away
	// (RFC 5883): 1 to 254. Default: 254.
	// +kubebuilder:default=254
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=254
	MinimumTTL int32 `json:"minimumTtl,omitempty"`
	// Strict keeps the BGP session down until the BFD session is up.
	Strict bool `json:"strict,omitempty"`
	// AuthType is how packets are authenticated (RFC 5880 section 6.7). Default:
	// not at all.
	AuthType BFDAuthType `json:"authType,omitempty"`
	// AuthKeyID names the key to the peer: 0 to 255. Default: 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	AuthKeyID int32 `json:"authKeyID,omitempty"`
	// AuthKeyFile is the absolute path of a file with the key, 1 to 20 bytes; a
	// newline at its end does not count. Required with AuthType.
	// +kubebuilder:validation:Pattern=`^(/[^\x00]*)?$`
	AuthKeyFile string `json:"authKeyFile,omitempty"`
}

// BFDAuthType is a type of authentication of BFD packets.
//
// +kubebuilder:validation:Enum=keyed-sha1;meticulous-keyed-sha1
type BFDAuthType string

// The types of authentication.
const (
	BFDKeyedSHA1      BFDAuthType = "keyed-sha1"
	BFDMeticulousSHA1 BFDAuthType = "meticulous-keyed-sha1"
)

// The defaults of a BFDProfile, and the shortest interval that it takes.
const (
	MinBFDInterval       = 50  // ms
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
