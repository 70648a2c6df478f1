package relay

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// What a router says of a packet that is too big for its next link: ICMP 3.4 (RFC 1191)
// and ICMPv6 type 2 (RFC 8201). It says so to the address, and so to the owner. The node
// that has the connection would send the same packet again and again.
var (
	fragmentationNeeded = []byte{3, 4}
	packetTooBig        = []byte{2}
)

func (f family) tooBig() []expr.Any {
	protocol, says := byte(unix.IPPROTO_ICMP), fragmentationNeeded
	if f == v6 {
		protocol, says = unix.IPPROTO_ICMPV6, packetTooBig
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg}, equals([]byte{protocol}),
		load(expr.PayloadBaseTransportHeader, 0, uint32(len(says))), equals(says),
	}
}

// placeTooBig finds out whether this host has the connection of the packet that was too
// big, whose head is in the message: the kernel looks for its socket, or tracks it.
func (b *builder) placeTooBig(place, keep, stray *nftables.Chain, tracked bool) {
	if tracked {
		b.knows(place, keep)
		b.rule(place, jump(stray))
		return
	}
	b.sockets(place, keep, stray, nil)
}
