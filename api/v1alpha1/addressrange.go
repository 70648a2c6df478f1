package v1alpha1

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// AddressRange is a run of addresses of one family, both ends included.
type AddressRange struct{ First, Last netip.Addr }

// RangeOf are the addresses of a prefix.
func RangeOf(p netip.Prefix) AddressRange { return AddressRange{p.Masked().Addr(), lastOf(p)} }

// Overlaps tells whether both ranges have an address in common.
func (r AddressRange) Overlaps(o AddressRange) bool {
	return r.First.Is4() == o.First.Is4() && !r.Last.Less(o.First) && !o.Last.Less(r.First)
}

// Contains tells whether the range has the address.
func (r AddressRange) Contains(addr netip.Addr) bool { return r.Overlaps(AddressRange{addr, addr}) }

// HoldsPrefix tells whether a whole prefix of this length, in bits, lies in the
// range.
func (r AddressRange) HoldsPrefix(length int) bool {
	block, err := r.First.Prefix(length)
	if err != nil {
		return false
	}
	if block.Addr() != r.First { // it began before the range
		next := lastOf(block).Next()
		if !next.IsValid() {
			return false
		}
		block = netip.PrefixFrom(next, length)
	}
	return !r.Last.Less(lastOf(block))
}

// notForServices are addresses that no host may have as its own, or not beyond
// one link.
var notForServices = []struct {
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

// ParseAddressRange reads an entry of IPAddressPoolSpec.Addresses: a CIDR such as
// 192.0.2.0/24, or the first and the last address joined by a hyphen, such as
// 192.0.2.10-192.0.2.20. The error completes a sentence that begins with text.
func ParseAddressRange(text string) (AddressRange, error) {
	parse := parseCIDR
	if strings.Contains(text, "-") {
		parse = parseEnds
	}
	r, err := parse(text)
	if err != nil {
		return AddressRange{}, err
	}
	for _, x := range notForServices {
		if r.Overlaps(RangeOf(x.prefix)) {
			return AddressRange{}, fmt.Errorf("contains addresses of %s (%s), which no Service can have", x.prefix, x.words)
		}
	}
	return r, nil
}

func parseCIDR(text string) (AddressRange, error) {
	text = strings.TrimSpace(text)
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
			return AddressRange{}, fmt.Errorf("is one address; write %s", netip.PrefixFrom(addr, addr.BitLen()))
		}
		return AddressRange{}, errors.New("is neither a CIDR nor a range first-last")
	}
	addr := prefix.Addr()
	switch {
	case addr.Is4In6():
		return AddressRange{}, errors.New("is an IPv4 prefix in IPv6 form")
	case prefix.Masked() != prefix:
		return AddressRange{}, fmt.Errorf("has bits set beyond its prefix length; write %s for all of them or %s for one",
			prefix.Masked(), netip.PrefixFrom(addr, addr.BitLen()))
	}
	return AddressRange{addr, lastOf(prefix)}, nil
}

func parseEnds(text string) (AddressRange, error) {
	first, last, _ := strings.Cut(text, "-")
	a, err := parseEnd(first)
	if err != nil {
		return AddressRange{}, err
	}
	b, err := parseEnd(last)
	switch {
	case err != nil:
		return AddressRange{}, err
	case a.Is4() != b.Is4():
		return AddressRange{}, errors.New("has ends of different address families")
	case b.Less(a):
		return AddressRange{}, errors.New("ends before it begins")
	}
	return AddressRange{a, b}, nil
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
