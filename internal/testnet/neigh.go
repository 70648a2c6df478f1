package testnet

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Neigh tells a host for good which hardware addresses these addresses have on one of its interfaces.
// Labs do so often, and to start a program for it takes a hundred times as long.
func (n *Net) Neigh(host, dev string, of map[netip.Addr]string) {
	n.t.Helper()
	var err error
	n.In(host, func() {
		for addr, mac := range of {
			if err = neigh(dev, addr, mac); err != nil {
				err = fmt.Errorf("%s has %s on %s: %w", addr, mac, dev, err)
				return
			}
		}
	})
	if err != nil {
		n.t.Fatalf("on %s: %v", host, err)
	}
}

// neigh makes an entry of the present namespace, in place of one that there may be.
func neigh(dev string, addr netip.Addr, mac string) error {
	i, err := net.InterfaceByName(dev)
	if err != nil {
		return err
	}
	hardware, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	family := byte(unix.AF_INET6)
	if addr.Is4() {
		family = unix.AF_INET
	}
	message := []byte{family, 0, 0, 0} // struct ndmsg
	message = binary.NativeEndian.AppendUint32(message, uint32(i.Index))
	message = binary.NativeEndian.AppendUint16(message, unix.NUD_PERMANENT)
	message = append(message, 0, unix.RTN_UNICAST)
	message = attribute(message, unix.NDA_DST, addr.AsSlice())
	message = attribute(message, unix.NDA_LLADDR, hardware)
	return ask(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, message)
}

// attribute appends an attribute of rtnetlink.
func attribute(to []byte, kind uint16, value []byte) []byte {
	to = binary.NativeEndian.AppendUint16(to, uint16(unix.SizeofRtAttr+len(value)))
	to = binary.NativeEndian.AppendUint16(to, kind)
	to = append(to, value...)
	return append(to, make([]byte, -len(to)&3)...)
}

// ask makes a request of rtnetlink and waits for the answer.
func ask(request, flags uint16, message []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	header := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(message)))
	header = binary.NativeEndian.AppendUint16(header, request)
	header = binary.NativeEndian.AppendUint16(header, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	header = append(header, make([]byte, 8)...) // sequence and port
	if err := unix.Sendto(fd, slices.Concat(header, message), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	got, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if got < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("an answer of %d bytes", got)
	}
	if errno := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); errno != 0 {
		return unix.Errno(-errno)
	}
	return nil
}
