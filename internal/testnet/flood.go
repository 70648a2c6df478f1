package testnet

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Strangers is a network without a single host, by which Flood says what it sends was sent.
const Strangers = "198.18.0.0/15"

// Flood sends, from the present namespace, the first packets of so many TCP connections over IPv4 from
// each of some strangers, beginning with the one of that number. Nobody goes on with them.
func Flood(to netip.AddrPort, first, strangers, each int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	at := unix.SockaddrInet4{Addr: to.Addr().As4()}
	for n := first; n < first+strangers; n++ {
		from := netip.AddrFrom4([4]byte{198, 18 + byte(n>>16&1), byte(n >> 8), byte(n)})
		for i := range each {
			if err := unix.Sendto(fd, syn(netip.AddrPortFrom(from, uint16(1024+i)), to), 0, &at); err != nil {
				return err
			}
		}
	}
	return nil
}

// syn is the first packet of a connection.
func syn(from, to netip.AddrPort) []byte {
	const header, length = 20, 40
	b := make([]byte, length)
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_TCP
	source, destination := from.Addr().As4(), to.Addr().As4()
	copy(b[12:], source[:])
	copy(b[16:], destination[:])
	tcp := b[header:]
	binary.BigEndian.PutUint16(tcp, from.Port())
	binary.BigEndian.PutUint16(tcp[2:], to.Port())
	tcp[12], tcp[13] = 5<<4, 0x02
	sum := uint32(unix.IPPROTO_TCP + len(tcp))
	for i := 12; i < length; i += 2 { // the addresses, and all of TCP
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum>>16+sum))
	return b
}
