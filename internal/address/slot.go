package address

import (
	"net/netip"

	"lbd.dev/lbd/internal/model"
)

// loopbackIndex is that of lo in every network namespace (LOOPBACK_IFINDEX in
// include/net/flow.h, Linux 3.7).
const loopbackIndex = 1

// slot is one of the two places at which a VIP may be wanted at the same time: on
// an interface of the LAN, for layer 2, and on lo, for BGP. A slot knows nothing
// of the other: an address on lo is never taken for one that was owned on the LAN,
// and each comes, lives and ends by itself.
type slot struct {
	addr     netip.Addr
	loopback bool
}

func slotOf(b *model.Binding) slot {
	return slot{b.Addr, b.Interface == model.LoopbackInterface}
}

func slotAt(addr netip.Addr, index int) slot {
	return slot{addr, index == loopbackIndex}
}

// compare sorts by address, that on lo last.
func (s slot) compare(t slot) int {
	c := s.addr.Compare(t.addr)
	switch {
	case c != 0 || s.loopback == t.loopback:
		return c
	case s.loopback:
		return 1
	}
	return -1
}
