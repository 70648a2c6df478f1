package ipam

import (
	"net/netip"

	"lbd.dev/lbd/api/v1alpha1"
)

// Range is a run of addresses of one family, both ends included.
type Range struct{ First, Last netip.Addr }

// Family returns the family of the range.
func (r Range) Family() Family { return FamilyOf(r.First) }

// String returns "first-last".
func (r Range) String() string { return r.First.String() + "-" + r.Last.String() }

// ParseRange reads an entry of IPAddressPool.spec.addresses as
// v1alpha1.ParseAddressRange does. The error completes a sentence that begins with
// the entry.
func ParseRange(text string) (Range, error) {
	r, err := v1alpha1.ParseAddressRange(text)
	return Range(r), err
}
