package v1alpha1

import (
	"fmt"
	"net/netip"
	"time"
)

// The bounds of a BGPPeer.
const (
	// MaxMD5Key is the length of the longest key of TCP MD5 that Linux takes, in
	// bytes (TCP_MD5SIG_MAXKEYLEN).
	MaxMD5Key = 80
	// minHoldTime is the lowest hold time that is not 0, RFC 4271 section 4.2.
	minHoldTime      = 3 * time.Second
	maxHoldTime      = 65535 * time.Second // 16 bits on the wire
	maxShutdownDelay = 5 * time.Minute
	maxMaxPrefixes   = 10_000_000
)

// AS numbers that no speaker may have.
var reservedASN = map[uint32]string{
	23456:      "is AS_TRANS, which is reserved (RFC 6793)",
	65535:      "is reserved (RFC 7300)",
	4294967295: "is reserved (RFC 7300)",
}

// Validate returns every rule that the defaulted object breaks, in the order of
// its fields.
func (p *BGPPeer) Validate() []FieldError {
	var k checker
	k.typeMeta(p.TypeMeta, KindBGPPeer)
	k.objectMeta(p.Metadata)
	s := &p.Spec
	k.asn("spec.myASN", s.MyASN)
	k.peerASN(s)
	k.peerAddresses(s)
	k.port("spec.peerPort", s.PeerPort)
	k.routerID("spec.routerID", s.RouterID)
	k.timers(s)
	for i, sel := range s.NodeSelectors {
		k.labels(fmt.Sprintf("spec.nodeSelectors[%d].matchLabels", i), sel.MatchLabels)
	}
	k.password(s)
	if s.BFDProfile != "" {
		k.want(isSubdomain(s.BFDProfile), "spec.bfdProfile", s.BFDProfile, ruleSubdomain)
	}
	k.hops(s)
	k.duration("spec.gracefulShutdownDelay", *s.GracefulShutdownDelay, 0, maxShutdownDelay)
	k.families("spec.families", s.Families)
	between(&k, "spec.maxPrefixes", s.MaxPrefixes, 1, maxMaxPrefixes)
	return k.errs
}

// asn checks an AS number.
func (k *checker) asn(path string, asn uint32) {
	if asn == 0 { // also reserved, RFC 7607
		k.bad(path, nil, "is required: from 1 to 4294967294")
		return
	}
	rule, reserved := reservedASN[asn]
	k.want(!reserved, path, asn, rule)
}

// peerASN checks which AS numbers the peer may have.
func (k *checker) peerASN(s *BGPPeerSpec) {
	switch {
	case s.DynamicASN != "":
		oneOf(k, "spec.dynamicASN", s.DynamicASN, DynamicInternal, DynamicExternal)
		if s.PeerASN != 0 {
			k.bad("spec.dynamicASN", string(s.DynamicASN), "and peerASN exclude each other")
		}
	case s.PeerASN == 0:
		k.bad("spec.peerASN", nil, "is required: from 1 to 4294967294, or dynamicASN in its place")
	default:
		k.asn("spec.peerASN", s.PeerASN)
	}
}

// routerID checks a BGP identifier, which may be unset.
func (k *checker) routerID(path, id string) {
	if id == "" {
		return
	}
	addr, err := netip.ParseAddr(id)
	k.want(err == nil && addr.Is4() && !addr.IsUnspecified(), path, id,
		"must be four bytes in dotted form, such as 10.0.0.11, and not 0.0.0.0")
}

// unicast returns the rule that addr breaks as the address of one host in a
// network, if any.
func unicast(addr netip.Addr) string {
	switch {
	case addr.Is4In6():
		return "is an IPv4 address in IPv6 form; write " + addr.Unmap().WithZone("").String()
	case addr.IsUnspecified():
		return "is the unspecified address"
	case addr.IsLoopback():
		return "is a loopback address"
	case addr.IsMulticast():
		return "is a multicast address"
	case addr == broadcast:
		return "is the broadcast address"
	}
	return ""
}

// unicastAt parses the address of a peer or of this node.
func (k *checker) unicastAt(path, text string) (addr netip.Addr, ok bool) {
	addr, err := netip.ParseAddr(text)
	rule := unicast(addr)
	switch {
	case err != nil:
		rule = "is not an IP address"
	case rule == "" && addr.Zone() != "":
		rule = "has a zone; write " + addr.WithZone("").String() + " and name the interface in spec.interface"
	}
	k.want(rule == "", path, text, rule)
	return addr, rule == ""
}

// peerAddresses checks where the peer is and how it is reached.
func (k *checker) peerAddresses(s *BGPPeerSpec) {
	var peer netip.Addr
	good := false
	switch {
	case s.PeerAddress != "":
		peer, good = k.unicastAt("spec.peerAddress", s.PeerAddress)
	case s.Interface != "":
		k.bad("spec.peerAddress", nil, "is required: a session by the interface alone (unnumbered) is not supported "+
			"by this version; give the link-local address of the peer")
	default:
		k.bad("spec.peerAddress", nil, ruleRequired)
	}
	if s.Interface != "" {
		k.interfaceName("spec.interface", s.Interface)
	}
	linkLocal := isLinkLocal6(peer)
	switch {
	case !good:
	case linkLocal && s.Interface == "":
		k.bad("spec.interface", nil, "is required for a link-local peerAddress")
	case !linkLocal && s.Interface != "":
		k.bad("spec.interface", s.Interface, "is only for a link-local peerAddress; remove it, or choose sourceAddress")
	}
	k.sourceAddress(s, peer, good)
}

// sourceAddress checks the local address of a session with peer, if that is
// good.
func (k *checker) sourceAddress(s *BGPPeerSpec, peer netip.Addr, good bool) {
	const path = "spec.sourceAddress"
	if s.SourceAddress == "" {
		return
	}
	addr, ok := k.unicastAt(path, s.SourceAddress)
	if !ok || !good {
		return
	}
	switch {
	case addr.Is4() != peer.Is4():
		k.bad(path, s.SourceAddress, "is of another family than peerAddress")
	case addr == peer:
		k.bad(path, s.SourceAddress, "is also peerAddress; a node has no session with itself")
	case isLinkLocal6(addr) && !peer.IsLinkLocalUnicast():
		k.bad(path, s.SourceAddress, "is link-local, which does not reach peerAddress")
	}
}

// isLinkLocal6 tells whether addr counts on one link only and needs the name of
// an interface.
func isLinkLocal6(addr netip.Addr) bool { return addr.Is6() && addr.IsLinkLocalUnicast() }

// wholeSeconds tells whether a duration is one.
func wholeSeconds(d Duration) bool { return d.Duration%time.Second == 0 }

// timers checks the timers of a session.
func (k *checker) timers(s *BGPPeerSpec) {
	hold, keepalive := *s.HoldTime, *s.KeepaliveTime
	switch {
	case hold.Duration != 0 && hold.Duration < minHoldTime, hold.Duration > maxHoldTime, !wholeSeconds(hold):
		k.bad("spec.holdTime", hold, "must be 0s, which means for ever, or whole seconds from 3s to 65535s (RFC 4271 section 4.2)")
	case hold.Duration == 0:
		if keepalive.Duration != 0 {
			k.bad("spec.keepaliveTime", keepalive, "must be left out: holdTime 0s means that no KEEPALIVE is sent")
		}
	case keepalive.Duration < time.Second || !wholeSeconds(keepalive):
		k.bad("spec.keepaliveTime", keepalive, "must be whole seconds, at least 1s (RFC 4271 section 4.4)")
	case keepalive.Duration >= hold.Duration:
		k.bad("spec.keepaliveTime", keepalive, "must be shorter than holdTime, %v", hold)
	}
	connect := s.ConnectTime
	switch {
	case s.Passive:
		if connect.Duration != 0 {
			k.bad("spec.connectTime", connect, "is not for a passive peer, which is never connected to; remove it")
		}
	case connect.Duration < time.Second || connect.Duration > maxHoldTime || !wholeSeconds(connect):
		k.bad("spec.connectTime", connect, "must be whole seconds from 1s to 65535s")
	}
}

// password checks the key of TCP MD5. No error shows it.
func (k *checker) password(s *BGPPeerSpec) {
	const ruleOnePeer = "is not for a link-local peerAddress: TCP MD5 needs an address that names one peer"
	peer, err := netip.ParseAddr(s.PeerAddress)
	linkLocal := err == nil && isLinkLocal6(peer)
	if s.Password != "" {
		if rule := MD5KeyRule(s.Password); rule != "" {
			k.bad("spec.password", nil, "%s", rule)
		}
		if linkLocal {
			k.bad("spec.password", nil, ruleOnePeer)
		}
	}
	if s.PasswordFile != "" {
		k.want(isAbsPath(s.PasswordFile), "spec.passwordFile", s.PasswordFile, ruleAbsPath)
		k.want(!linkLocal, "spec.passwordFile", s.PasswordFile, ruleOnePeer)
		if s.Password != "" {
			k.bad("spec.passwordFile", s.PasswordFile, "and password exclude each other")
		}
	}
	if ref := s.PasswordSecret; ref != nil {
		k.secretReference("spec.passwordSecret", ref)
		k.want(!linkLocal, "spec.passwordSecret", ref.Name, ruleOnePeer)
		if s.Password != "" || s.PasswordFile != "" {
			k.bad("spec.passwordSecret", ref.Name, "excludes password and passwordFile")
		}
	}
}

// secretReference checks the name of a Secret. Only who knows the namespace of lbd
// can tell whether a namespace is that.
func (k *checker) secretReference(path string, ref *SecretReference) {
	if ref.Name == "" {
		k.bad(path+".name", nil, ruleRequired)
	} else {
		k.want(isSubdomain(ref.Name), path+".name", ref.Name, ruleSubdomain)
	}
	k.want(ref.Namespace == "" || isDNSLabel(ref.Namespace), path+".namespace", ref.Namespace, ruleDNSLabel)
}

// MD5KeyRule returns the rule that a key of TCP MD5 breaks, or "". It completes
// a sentence that begins with the name of the field or the file.
func MD5KeyRule(key string) string {
	return keyRule(key, MaxMD5Key, "has %d bytes; TCP MD5 takes at most %d")
}

// hops checks how far away the peer may be.
func (k *checker) hops(s *BGPPeerSpec) {
	if s.EBGPMultiHop {
		switch {
		case s.TTLSecurity:
			k.bad("spec.ebgpMultiHop", true, "and ttlSecurity exclude each other; minimumTTL is for a peer several hops away")
		case s.MinimumTTL != nil:
			k.bad("spec.ebgpMultiHop", true, "and minimumTTL exclude each other; minimumTTL alone allows several hops")
		case s.DynamicASN == DynamicInternal:
			k.bad("spec.ebgpMultiHop", true, "is for eBGP; an iBGP peer (dynamicASN is internal) may always be several hops away")
		case s.IsInternal() && s.MyASN != 0:
			k.bad("spec.ebgpMultiHop", true, "is for eBGP; an iBGP peer (peerASN is myASN) may always be several hops away")
		}
	}
	if s.MinimumTTL == nil {
		return
	}
	between(k, "spec.minimumTTL", *s.MinimumTTL, 1, 255)
	if s.TTLSecurity {
		k.bad("spec.minimumTTL", *s.MinimumTTL, "and ttlSecurity, which means 255, exclude each other")
	}
}

// families checks a list of address families.
func (k *checker) families(path string, families []AddressFamily) {
	seen := make(map[AddressFamily]bool, len(families))
	for i, f := range families {
		at := fmt.Sprintf("%s[%d]", path, i)
		oneOf(k, at, f, FamilyIPv4, FamilyIPv6)
		k.want(!seen[f], at, string(f), "is listed twice")
		seen[f] = true
	}
}
