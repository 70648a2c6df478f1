package sockdiag

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	protocolTCP        = unix.IPPROTO_TCP
	header4, header6   = 20, 40
	headerTCP          = 20
	synAck             = 0x12
	challengeHopLimit  = 64
	challengeWindow    = 1024
	tcpFlags, tcpCheck = 13, 16
)

// Challenge sends, in the name of a server of this host, a segment that the client can only
// answer by saying where it stands (SYN and ACK, to which an open connection answers with
// a challenge ACK, RFC 5961 section 4.2). Whoever has the connection then gets one ACK too
// many. If nobody has it the kernel answers that ACK with a reset, which the client
// believes since it has the right number. It needs CAP_NET_RAW.
func Challenge(server, client netip.AddrPort) error {
	family, packet := unix.AF_INET6, make([]byte, header6+headerTCP)
	var to unix.Sockaddr = &unix.SockaddrInet6{Addr: client.Addr().As16()}
	if client.Addr().Is4() {
		family, packet = unix.AF_INET, packet[:header4+headerTCP]
		to = &unix.SockaddrInet4{Addr: client.Addr().As4()}
	}
	writeIP(packet, server.Addr(), client.Addr())
	writeTCP(packet[len(packet)-headerTCP:], server, client)
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("challenge %s: open: %w", client, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, packet, unix.MSG_DONTWAIT, to); err != nil {
		return fmt.Errorf("challenge %s: send: %w", client, err)
	}
	return nil
}

// writeIP writes the header; the kernel adds the checksum of IPv4.
func writeIP(b []byte, from, to netip.Addr) {
	if from.Is4() {
		b[0] = 4<<4 | header4/4
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		b[8], b[9] = challengeHopLimit, protocolTCP
		copy(b[12:], from.AsSlice())
		copy(b[16:], to.AsSlice())
		return
	}
	b[0] = 6 << 4
	binary.BigEndian.PutUint16(b[4:], headerTCP)
	b[6], b[7] = protocolTCP, challengeHopLimit
	copy(b[8:], from.AsSlice())
	copy(b[24:], to.AsSlice())
}

// writeTCP writes a segment with the sequence numbers 0, which hardly any connection
// expects, and which is right for none.
func writeTCP(b []byte, from, to netip.AddrPort) {
	binary.BigEndian.PutUint16(b[0:], from.Port())
	binary.BigEndian.PutUint16(b[2:], to.Port())
	b[12], b[tcpFlags] = headerTCP/4<<4, synAck
	binary.BigEndian.PutUint16(b[14:], challengeWindow)
	binary.BigEndian.PutUint16(b[tcpCheck:], checksum(from.Addr().AsSlice(), to.Addr().AsSlice(), b))
}

// checksum is that of a TCP segment with the pseudo header (RFC 9293 section 3.1); both
// families add up the same.
func checksum(from, to, segment []byte) uint16 {
	sum := uint32(protocolTCP) + uint32(len(segment))
	for _, part := range [][]byte{from, to, segment} {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
