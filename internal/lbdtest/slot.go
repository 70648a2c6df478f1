package lbdtest

import (
	"net/netip"

	"lbd.dev/lbd/internal/model"
)

// slot is where a kernel has an address: on an interface of a wire, of which it is
// one at a time here, or on lo. It may be in both.
type slot struct {
	addr     netip.Addr
	loopback bool
}

func slotOn(iface string, a netip.Addr) slot {
	return slot{a, iface == model.LoopbackInterface}
}
