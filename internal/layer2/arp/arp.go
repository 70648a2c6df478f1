// Package arp reads and writes the ARP frames that layer 2 needs: announcements,
// probes and replies for IPv4 over Ethernet (RFC 826, RFC 5227).
package arp

import (
	"encoding/binary"
	"net/netip"

	"lbd.dev/lbd/internal/model"
)

// EtherType is that of ARP (RFC 826).
const EtherType = 0x0806

// Offsets from the start of the Ethernet header, for packet filters.
const (
	OffsetSPA = 28
	OffsetTPA = 38
)

// FrameLen is the length of an ARP frame for IPv4 with its Ethernet header,
// without padding.
const FrameLen = 42

// Op is the operation of an ARP packet (RFC 826).
type Op uint16

// The operations that matter here.
const (
	OpRequest Op = 1
	OpReply   Op = 2
)

// fixedHeader is hardware type Ethernet, protocol type IPv4, and their address
// lengths.
const fixedHeader = 0x0001_0800_06_04

// Packet is an ARP packet for IPv4 over Ethernet.
type Packet struct {
	Op  Op
	SHA model.MAC  // sender hardware address
	SPA netip.Addr // sender protocol address; 0.0.0.0 in a probe
	THA model.MAC
	TPA netip.Addr
}

// Probe tells whether the packet asks for TPA without claiming any address
// (RFC 5227 section 1.1).
func (p Packet) Probe() bool { return p.Op == OpRequest && p.SPA.IsUnspecified() }

// Question tells whether the packet asks who has TPA, so that whoever does answers
// it (RFC 826). An announcement asks nobody.
func (p Packet) Question() bool { return p.Op == OpRequest && p.SPA != p.TPA }

// Parse reads an Ethernet frame. It is false for anything that is not ARP for
// IPv4 over Ethernet; bytes behind the packet are padding.
func Parse(frame []byte) (Packet, bool) {
	if len(frame) < FrameLen || binary.BigEndian.Uint16(frame[12:]) != EtherType {
		return Packet{}, false
	}
	header := binary.BigEndian.Uint64(frame[14:])
	return Packet{
		Op:  Op(header),
		SHA: model.MAC(frame[22:OffsetSPA]),
		SPA: netip.AddrFrom4([4]byte(frame[OffsetSPA:])),
		THA: model.MAC(frame[OffsetSPA+4 : OffsetTPA]),
		TPA: netip.AddrFrom4([4]byte(frame[OffsetTPA:])),
	}, header>>16 == fixedHeader
}

// Announcement is a broadcast request with SPA = TPA = addr and an empty THA
// (RFC 5227 section 2.3). Linux neighbours obey it even within their locktime,
// which they do not with a broadcast reply. addr must be IPv4.
func Announcement(mac model.MAC, addr netip.Addr) []byte {
	return Request(mac, addr, addr)
}

// Probe is a broadcast request for addr with SPA = 0.0.0.0 (RFC 5227 section
// 2.1.1): it asks without touching any neighbour table. addr must be IPv4.
func Probe(mac model.MAC, addr netip.Addr) []byte {
	return Request(mac, netip.IPv4Unspecified(), addr)
}

// Request is a broadcast request for addr by a host that has the address from, which its
// neighbours may learn. Both must be IPv4.
func Request(mac model.MAC, from, addr netip.Addr) []byte {
	return marshal(model.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, Packet{Op: OpRequest, SHA: mac, SPA: from, TPA: addr})
}

// Reply answers a request: addr is at mac. It goes to the host that has asked, with
// what that said of itself (RFC 826). addr must be IPv4.
func Reply(mac model.MAC, addr netip.Addr, to Packet) []byte {
	return marshal(to.SHA, Packet{OpReply, mac, addr, to.SHA, to.SPA})
}

// marshal makes the frame of a packet.
func marshal(to model.MAC, p Packet) []byte {
	b := make([]byte, 0, FrameLen)
	b = append(b, to[:]...)
	b = append(b, p.SHA[:]...)
	b = binary.BigEndian.AppendUint16(b, EtherType)
	b = binary.BigEndian.AppendUint64(b, fixedHeader<<16|uint64(p.Op))
	b = append(b, p.SHA[:]...)
	b = append(b, p.SPA.AsSlice()...)
	b = append(b, p.THA[:]...)
	return append(b, p.TPA.AsSlice()...)
}
