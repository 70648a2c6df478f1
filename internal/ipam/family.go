package ipam

import "net/netip"

// Family is an address family.
type Family uint8

// The address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String returns "IPv4" or "IPv6", the names that Kubernetes uses.
func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// index is the place of the family in arrays.
func (f Family) index() int {
	if f == IPv4 {
		return 0
	}
	return 1
}

// FamilyOf returns the family of an address; one in 4-in-6 form counts as IPv6.
func FamilyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}
