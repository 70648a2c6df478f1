package main

import (
	"encoding/binary"
	"net"
	"net/netip"

	"lbd.dev/lbd/tests/lab/measure"
)

// Ethernet, ARP (RFC 826) and neighbour discovery (RFC 4861) numbers.
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd

	arpRequest = 1
	arpReply   = 2

	protoICMPv6 = 58
	typeNS      = 135
	typeNA      = 136
	flagSol     = 0x40
	flagOvr     = 0x20
)

// broadcast is the Ethernet address of everybody.
func broadcast() net.HardwareAddr { return net.HardwareAddr{255, 255, 255, 255, 255, 255} }

// arpFrame is an ARP frame with an empty target hardware address.
func arpFrame(op uint16, src, dst net.HardwareAddr, spa, tpa netip.Addr) []byte {
	b := make([]byte, 0, 60)
	b = append(b, dst...)
	b = append(b, src...)
	b = binary.BigEndian.AppendUint16(b, etherARP)
	b = append(b, 0, 1, 8, 0, 6, 4)
	b = binary.BigEndian.AppendUint16(b, op)
	b = append(b, src...)
	b = append(b, spa.AsSlice()...)
	b = append(b, make([]byte, 6)...)
	b = append(b, tpa.AsSlice()...)
	return b[:60]
}

// solicitation is a neighbour solicitation for target to its solicited-node
// group (RFC 4861 4.3), advertisement an unsolicited advertisement to all nodes
// (4.4) with the override flag.
func solicitation(src net.HardwareAddr, from, target netip.Addr) []byte {
	t := target.As16()
	group := netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 12: 0xff, 13: t[13], 14: t[14], 15: t[15]})
	return ndFrame(typeNS, 0, 1, src, from, group, target)
}

func advertisement(src net.HardwareAddr, target netip.Addr) []byte {
	all := netip.AddrFrom16([16]byte{0xff, 2, 15: 1})
	return ndFrame(typeNA, flagOvr, 2, src, target, all, target)
}

// ndFrame goes to a multicast group, with one link-layer address option.
func ndFrame(typ, flags, option byte, src net.HardwareAddr, from, to, target netip.Addr) []byte {
	dst := to.As16()
	b := []byte{0x33, 0x33, dst[12], dst[13], dst[14], dst[15]}
	b = append(b, src...)
	b = binary.BigEndian.AppendUint16(b, etherIPv6)
	b = append(b, 0x60, 0, 0, 0, 0, 32, protoICMPv6, 255)
	b = append(b, from.AsSlice()...)
	b = append(b, dst[:]...)
	icmp := append([]byte{typ, 0, 0, 0, flags, 0, 0, 0}, target.AsSlice()...)
	icmp = append(icmp, option, 1)
	icmp = append(icmp, src...)
	binary.BigEndian.PutUint16(icmp[2:], checksum(from, to, icmp))
	return append(b, icmp...)
}

// checksum is that of ICMPv6 (RFC 4443 2.3) with the pseudo header of RFC 8200.
func checksum(from, to netip.Addr, icmp []byte) uint16 {
	b := append(from.AsSlice(), to.AsSlice()...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(icmp)))
	b = append(b, 0, 0, 0, protoICMPv6)
	b = append(b, icmp...)
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// claim tells which address the frame claims, for whom and how.
func claim(b []byte) (addr netip.Addr, mac net.HardwareAddr, kind measure.FrameKind, ok bool) {
	if len(b) < 14 {
		return addr, nil, "", false
	}
	switch binary.BigEndian.Uint16(b[12:]) {
	case etherARP:
		return arpClaim(b[14:])
	case etherIPv6:
		return naClaim(b[6:12], b[14:])
	}
	return addr, nil, "", false
}

func arpClaim(p []byte) (addr netip.Addr, mac net.HardwareAddr, kind measure.FrameKind, ok bool) {
	if len(p) < 28 || binary.BigEndian.Uint16(p[2:]) != etherIPv4 {
		return addr, nil, "", false
	}
	op := binary.BigEndian.Uint16(p[6:])
	spa, tpa := netip.AddrFrom4([4]byte(p[14:18])), netip.AddrFrom4([4]byte(p[24:28]))
	kind = measure.Announce
	if op == arpReply && spa != tpa {
		kind = measure.Answer
	}
	return spa, net.HardwareAddr(p[8:14]), kind, !spa.IsUnspecified()
}

func naClaim(src, p []byte) (addr netip.Addr, mac net.HardwareAddr, kind measure.FrameKind, ok bool) {
	if len(p) < 64 || p[6] != protoICMPv6 || p[7] != 255 || p[40] != typeNA {
		return addr, nil, "", false
	}
	kind = measure.Announce
	if p[44]&flagSol != 0 {
		kind = measure.Answer
	}
	mac = src
	if len(p) >= 72 && p[64] == 2 && p[65] == 1 { // target link-layer address
		mac = p[66:72]
	}
	return netip.AddrFrom16([16]byte(p[48:64])), mac, kind, true
}
