// Package nd reads and writes the neighbour discovery messages that layer 2
// needs: advertisements and solicitations over Ethernet (RFC 4861).
package nd

import (
	"encoding/binary"
	"net/netip"

	"lbd.dev/lbd/internal/model"
)

// EtherType is that of IPv6.
const EtherType = 0x86dd

// Offsets from the start of the Ethernet header, for packet filters; there are
// no IPv6 extension headers in front of neighbour discovery.
const (
	OffsetNextHeader = 14 + 6
	OffsetHopLimit   = 14 + 7
	OffsetType       = 14 + 40
	OffsetTarget     = OffsetType + 8
)

// HopLimit is what every neighbour discovery message must carry, so that nobody
// off the link can send one (RFC 4861 sections 7.1.1 and 7.1.2).
const HopLimit = 255

// ProtocolICMPv6 is the next header value of ICMPv6.
const ProtocolICMPv6 = 58

// Type is the ICMPv6 type of a message.
type Type uint8

// The messages that matter here (RFC 4861 sections 4.3 and 4.4).
const (
	Solicitation  Type = 135
	Advertisement Type = 136
)

// Options (RFC 4861 section 4.6.1; RFC 3971 section 5.3.2).
const (
	optionSource = 1
	optionTarget = 2
	optionNonce  = 14
)

const (
	ethernetLen = 14
	ipv6Len     = 40
	messageLen  = 24 // fixed part of both messages
	minLen      = ethernetLen + ipv6Len + messageLen

	flagRouter    = 0x80
	flagSolicited = 0x40
	flagOverride  = 0x20
)

// Nonce marks the solicitations of a probe, so that they can be told from those
// of a client that only wants to reach the address.
type Nonce [6]byte

// Message is a valid neighbour solicitation or advertisement.
type Message struct {
	Type   Type
	Source netip.Addr // :: in a solicitation for duplicate address detection; never multicast
	Target netip.Addr
	// MAC is that of the link-layer address option, or of the Ethernet header
	// where there is none.
	MAC model.MAC
	// HasNonce: the message carries a nonce option.
	HasNonce bool
}

// Probe tells whether the sender wants to use the target itself: duplicate
// address detection (RFC 4862 section 5.4) or a probe of this package.
func (m Message) Probe() bool {
	return m.Type == Solicitation && (m.Source.IsUnspecified() || m.HasNonce)
}

// Parse reads an Ethernet frame. It is false for anything but a neighbour
// solicitation or advertisement that passes the checks of RFC 4861 sections
// 7.1.1 and 7.1.2.
func Parse(frame []byte) (Message, bool) {
	if len(frame) < minLen || binary.BigEndian.Uint16(frame[12:]) != EtherType {
		return Message{}, false
	}
	ip := frame[ethernetLen:]
	if ip[0]>>4 != 6 || ip[6] != ProtocolICMPv6 || ip[7] != HopLimit {
		return Message{}, false
	}
	n := int(binary.BigEndian.Uint16(ip[4:]))
	if n < messageLen || len(ip) < ipv6Len+n {
		return Message{}, false
	}
	icmp := ip[ipv6Len : ipv6Len+n]
	if icmp[1] != 0 || checksum(ip[8:40], icmp) != 0 {
		return Message{}, false
	}
	m := Message{
		Type:   Type(icmp[0]),
		Source: netip.AddrFrom16([16]byte(ip[8:24])),
		Target: netip.AddrFrom16([16]byte(icmp[8:24])),
		MAC:    model.MAC(frame[6:12]),
	}
	if m.Target.IsMulticast() || m.Source.IsMulticast() || !m.options(icmp[messageLen:]) {
		return Message{}, false
	}
	dst := netip.AddrFrom16([16]byte(ip[24:40]))
	switch m.Type {
	case Solicitation:
		return m, !m.Source.IsUnspecified() || dst == SolicitedNode(m.Target)
	case Advertisement:
		return m, !dst.IsMulticast() || icmp[4]&flagSolicited == 0
	}
	return Message{}, false
}

// options reads the options of a message; it is false if one is malformed or
// not allowed.
func (m *Message) options(b []byte) bool {
	want := byte(optionSource)
	if m.Type == Advertisement {
		want = optionTarget
	}
	for len(b) > 0 {
		if len(b) < 8 || b[1] == 0 || len(b) < int(b[1])*8 {
			return false
		}
		switch b[0] {
		case want:
			if m.Source.IsUnspecified() { // RFC 4861 section 7.1.1
				return false
			}
			m.MAC = model.MAC(b[2:8])
		case optionNonce:
			m.HasNonce = true
		}
		b = b[int(b[1])*8:]
	}
	return true
}

// Announce is an unsolicited advertisement for addr to all nodes (RFC 4861
// section 7.2.6) with Override set, so that also reachable entries change. It is
// sent from the address itself, which needs no link-local address. router must
// be what the kernel's own advertisements say.
func Announce(mac model.MAC, addr netip.Addr, router bool) []byte {
	return advertise(groupMAC(allNodes()), mac, addr, allNodes(), flagOverride, router)
}

// Reply answers a solicitation for addr (RFC 4861 section 7.2.4): to its source with
// Solicited and Override set, or to all nodes without Solicited if that is ::. It
// comes from the address itself, as that of a kernel does.
func Reply(mac model.MAC, addr netip.Addr, router bool, to Message) []byte {
	if to.Source.IsUnspecified() {
		return Announce(mac, addr, router)
	}
	return advertise(to.MAC, mac, addr, to.Source, flagOverride|flagSolicited, router)
}

func advertise(to, mac model.MAC, addr, dst netip.Addr, flags byte, router bool) []byte {
	if router {
		flags |= flagRouter
	}
	b := header(to, mac, addr, dst, messageLen+8)
	b = append(b, byte(Advertisement), 0, 0, 0, flags, 0, 0, 0)
	b = append(b, addr.AsSlice()...)
	b = append(b, optionTarget, 1)
	b = append(b, mac[:]...)
	return seal(b)
}

// Probe is a solicitation for addr to its solicited-node group from source, an
// address of the interface (RFC 4861 section 7.2.2), marked with a nonce.
func Probe(mac model.MAC, source, addr netip.Addr, nonce Nonce) []byte {
	group := SolicitedNode(addr)
	b := header(groupMAC(group), mac, source, group, messageLen+16)
	b = append(b, byte(Solicitation), 0, 0, 0, 0, 0, 0, 0)
	b = append(b, addr.AsSlice()...)
	b = append(b, optionSource, 1)
	b = append(b, mac[:]...)
	b = append(b, optionNonce, 1)
	b = append(b, nonce[:]...)
	return seal(b)
}

// SolicitedNode is the solicited-node multicast group of addr (RFC 4291 section
// 2.7.1).
func SolicitedNode(addr netip.Addr) netip.Addr {
	a := addr.As16()
	return netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]})
}

func allNodes() netip.Addr { return netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 15: 1}) }

// groupMAC is the hardware address of a multicast group (RFC 2464 section 7).
func groupMAC(group netip.Addr) model.MAC {
	a := group.As16()
	return model.MAC{0x33, 0x33, a[12], a[13], a[14], a[15]}
}

// header starts a frame with length bytes of ICMPv6.
func header(to, mac model.MAC, src, dst netip.Addr, length int) []byte {
	b := make([]byte, 0, ethernetLen+ipv6Len+length)
	b = append(b, to[:]...)
	b = append(b, mac[:]...)
	b = binary.BigEndian.AppendUint16(b, EtherType)
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = append(b, ProtocolICMPv6, HopLimit)
	b = append(b, src.AsSlice()...)
	return append(b, dst.AsSlice()...)
}

// seal fills in the checksum.
func seal(b []byte) []byte {
	icmp := b[ethernetLen+ipv6Len:]
	binary.BigEndian.PutUint16(icmp[2:], checksum(b[ethernetLen+8:ethernetLen+40], icmp))
	return b
}

// checksum is that of RFC 4443 section 2.3 over both addresses and the message;
// over a message that carries a valid one it is zero.
func checksum(addrs, icmp []byte) uint16 {
	sum := uint32(len(icmp)) + ProtocolICMPv6
	for _, b := range [...][]byte{addrs, icmp} {
		for len(b) > 1 {
			sum += uint32(binary.BigEndian.Uint16(b))
			b = b[2:]
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
