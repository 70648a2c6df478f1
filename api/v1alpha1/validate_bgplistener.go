package v1alpha1

import (
	"fmt"
	"net/netip"
	"time"
)

// The bounds of a BGPListener.
const (
	maxPeerPrefixes        = 64
	maxAcceptPrefixes      = 64
	maxListenerMaxPrefixes = 10_000
	minBuckets             = 16
	maxBuckets             = 65535 // 16 bits in the kernel
	minBucketTimer         = time.Second
	maxBucketTimer         = 24 * time.Hour
)

// Validate returns every rule that the defaulted object breaks, in the order of its fields.
func (l *BGPListener) Validate() []FieldError {
	var k checker
	k.typeMeta(l.TypeMeta, KindBGPListener)
	k.objectMeta(l.Metadata)
	s := &l.Spec
	k.asn("spec.asn", s.ASN)
	k.atMost("spec.peerPrefixes", len(s.PeerPrefixes), maxPeerPrefixes)
	peers := k.prefixes("spec.peerPrefixes", s.PeerPrefixes)
	if s.PeerASN != 0 {
		k.asn("spec.peerASN", s.PeerASN)
	}
	if hold := s.HoldTime; hold.Duration < minHoldTime || hold.Duration > maxHoldTime || !wholeSeconds(hold) {
		k.bad("spec.holdTime", hold, "must be whole seconds from 3s to 65535s (RFC 4271 section 4.2)")
	}
	if s.PasswordFile != "" {
		k.want(isAbsPath(s.PasswordFile), "spec.passwordFile", s.PasswordFile, ruleAbsPath)
	}
	if s.BFDProfile != "" {
		k.want(isSubdomain(s.BFDProfile), "spec.bfdProfile", s.BFDProfile, ruleSubdomain)
	}
	k.atMost("spec.acceptPrefixes", len(s.AcceptPrefixes), maxAcceptPrefixes)
	accept := k.prefixes("spec.acceptPrefixes", s.AcceptPrefixes)
	k.accepted(s, accept, peers)
	k.maxPrefixes(s.MaxPrefixes, accept)
	k.nextHops("spec.nextHops", &s.NextHops)
	k.want(s.HashSeed != 0, "spec.hashSeed", s.HashSeed, "has each machine draw a seed of its own, so that no two place a connection alike; give any other number, the same on all machines")
	oneOf(&k, "spec.upstream", s.Upstream, UpstreamL2, UpstreamBGP)
	return k.errs
}

// prefixes checks a list of prefixes, of which no two overlap. It returns the good ones by index.
func (k *checker) prefixes(path string, texts []string) map[int]netip.Prefix {
	if len(texts) == 0 {
		k.bad(path, nil, "must have at least one prefix")
	}
	good := make(map[int]netip.Prefix, len(texts))
	for i, text := range texts {
		p, broken := exactPrefix(text)
		for n := 0; n < i && broken == ""; n++ {
			if other, is := good[n]; is && other == p {
				broken = "is listed twice"
			} else if is && other.Overlaps(p) {
				broken = fmt.Sprintf("overlaps %s, %s[%d]", other, path, n)
			}
		}
		if broken != "" {
			k.bad(fmt.Sprintf("%s[%d]", path, i), text, "%s", broken)
			continue
		}
		good[i] = p
	}
	return good
}

// exactPrefix parses a prefix with its length, or tells which rule it breaks.
func exactPrefix(text string) (p netip.Prefix, rule string) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		addr, err := netip.ParseAddr(text)
		switch {
		case err != nil || addr.Zone() != "":
			return p, "is not a prefix, such as 10.0.0.0/24"
		case addr.Is4In6():
			return p, "is an IPv4 address in IPv6 form; write " + netip.PrefixFrom(addr.Unmap(), 32).String()
		}
		return p, "has no prefix length; write " + netip.PrefixFrom(addr, addr.BitLen()).String()
	}
	switch {
	case p.Addr().Is4In6():
		return p, "is an IPv4 prefix in IPv6 form"
	case p.Masked() != p:
		return p, "has bits behind its length; write " + p.Masked().String()
	case p.Bits() == 0:
		return p, "is the default route"
	}
	for _, no := range hostless {
		if no.Overlaps(p) {
			return p, fmt.Sprintf("has addresses of %s, which no host has, or which count on one link only", no)
		}
	}
	return p, ""
}

// hostless are the addresses of no host, of loopback, multicast and broadcast, and those of one
// link (RFC 6890).
var hostless = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::/127"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// accepted checks accepted prefixes beside the rest of the object.
func (k *checker) accepted(s *BGPListenerSpec, accept, peers map[int]netip.Prefix) {
	for i := range s.AcceptPrefixes {
		p, is := accept[i]
		if !is {
			continue
		}
		at := fmt.Sprintf("spec.acceptPrefixes[%d]", i)
		if s.Upstream == UpstreamL2 && !p.IsSingleIP() {
			k.bad(at, p.String(), "holds several addresses; with upstream l2 list each as a prefix of its own with the length %d, or use upstream: bgp", p.Addr().BitLen())
		}
		for n := range s.PeerPrefixes {
			if peer, is := peers[n]; is && p.Bits() <= peer.Bits() && p.Overlaps(peer) {
				k.bad(at, p.String(), "holds %s, spec.peerPrefixes[%d], where the masters themselves are", peer, n)
				break
			}
		}
	}
}

// maxPrefixes checks how many prefixes a master may advertise: it must be able to have all.
func (k *checker) maxPrefixes(most int32, accept map[int]netip.Prefix) {
	const path = "spec.maxPrefixes"
	if most < 1 || most > maxListenerMaxPrefixes {
		k.bad(path, most, "must be from 1 to %d", maxListenerMaxPrefixes)
		return
	}
	var four, six int32
	for _, p := range accept {
		if p.Addr().Is4() {
			four++
		} else {
			six++
		}
	}
	if n := max(four, six); n > most {
		k.bad(path, most, "is less than the %d acceptPrefixes of one family: the session of a master that advertises them all would end", n)
	}
}

// nextHops checks how connections are spread.
func (k *checker) nextHops(path string, n *NextHopsSpec) {
	oneOf(k, path+".mode", n.Mode, NextHopsResilient, NextHopsMultipath)
	switch n.Mode {
	case NextHopsMultipath:
		const rule = "is for the mode resilient; multipath has no table of buckets"
		k.want(n.Buckets == 0, path+".buckets", n.Buckets, rule)
		if n.IdleTimer != nil {
			k.bad(path+".idleTimer", *n.IdleTimer, rule)
		}
		if n.UnbalancedTimer != nil {
			k.bad(path+".unbalancedTimer", *n.UnbalancedTimer, rule)
		}
	case NextHopsResilient:
		between(k, path+".buckets", n.Buckets, minBuckets, maxBuckets)
		k.duration(path+".idleTimer", *n.IdleTimer, minBucketTimer, maxBucketTimer)
		if u := *n.UnbalancedTimer; u.Duration != 0 && (u.Duration < minBucketTimer || u.Duration > maxBucketTimer) {
			k.bad(path+".unbalancedTimer", u, "must be from 1s to 24h, or 0s: buckets in use never move")
		}
	}
}
