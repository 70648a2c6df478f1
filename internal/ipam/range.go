package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Range is a run of addresses of one family, both ends included.
type Range struct{ First, Last netip.Addr }

// Family returns the family of the range.
func (r Range) Family() Family { return FamilyOf(r.First) }

// String returns "first-last".
func (r Range) String() string { return r.First.String() + "-" + r.Last.String() }

// reserved are addresses that no host may have as its own, or not beyond one
// link, and that therefore cannot be given to a Service.
var reserved = []struct {
	prefix netip.Prefix
	words  string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network, RFC 1122 section 3.2.1.3"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback, RFC 1122 section 3.2.1.3"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast, RFC 5771"},
	{netip.MustParsePrefix("255.255.255.255/32"), "limited broadcast, RFC 919"},
	{netip.MustParsePrefix("::/127"), "unspecified and loopback, RFC 4291 section 2.5"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "IPv4 in IPv6 form, RFC 4291 section 2.5.5.2"},
	{netip.MustParsePrefix("fe80::/10"), "link-local, RFC 4291 section 2.5.6"},
	{netip.MustParsePrefix("ff00::/8"), "multicast, RFC 4291 section 2.7"},
}

// ParseRange reads an entry of IPAddressPool.spec.addresses: a CIDR such as
// 192.0.2.0/24, or the first and the last address joined by a hyphen, such as
// 192.0.2.10-192.0.2.20. The error completes a sentence that begins with the
// entry.
func ParseRange(text string) (Range, error) {
	r, err := parseEnds(text)
	if err != nil {
		return Range{}, err
	}
	for _, x := range reserved {
		first, last := x.prefix.Addr(), lastOf(x.prefix)
		if first.Is4() == r.First.Is4() && !last.Less(r.First) && !r.Last.Less(first) {
			return Range{}, fmt.Errorf("contains addresses of %s (%s), which no Service can have", x.prefix, x.words)
		}
	}
	return r, nil
}

func parseEnds(text string) (Range, error) {
	if first, last, found := strings.Cut(text, "-"); found {
		a, err := parseEnd(first)
		if err != nil {
			return Range{}, err
		}
		b, err := parseEnd(last)
		switch {
		case err != nil:
			return Range{}, err
		case a.Is4() != b.Is4():
			return Range{}, errors.New("has ends of different address families")
		case b.Less(a):
			return Range{}, errors.New("ends before it begins")
		}
		return Range{a, b}, nil
	}
	text = strings.TrimSpace(text)
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
			return Range{}, fmt.Errorf("is one address; write %s", netip.PrefixFrom(addr, addr.BitLen()))
		}
		return Range{}, errors.New("is neither a CIDR nor a range first-last")
	}
	addr := prefix.Addr()
	switch {
	case addr.Is4In6():
		return Range{}, errors.New("is an IPv4 prefix in IPv6 form")
	case prefix.Masked() != prefix:
		return Range{}, fmt.Errorf("has bits set beyond its prefix length; write %s for all of them or %s for one",
			prefix.Masked(), netip.PrefixFrom(addr, addr.BitLen()))
	}
	return Range{addr, lastOf(prefix)}, nil
}

func parseEnd(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(strings.TrimSpace(text))
	switch {
	case err != nil:
		return addr, errors.New("has an end that is not an IP address")
	case addr.Zone() != "":
		return addr, errors.New("has an end with a zone")
	case addr.Is4In6():
		return addr, errors.New("has an IPv4 end in IPv6 form")
	}
	return addr, nil
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}
