package bfd

import (
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	batch      = 32
	payloadMax = 256 // the length field has 8 bits
	controlMax = 256
	jump       = 10 * time.Millisecond // of the wall clock, from which on it is one
)

// mmsghdr is struct mmsghdr of the kernel.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// inbound receives packets in batches without allocating.
type inbound struct {
	msgs    [batch]mmsghdr
	iovs    [batch]unix.Iovec
	names   [batch]unix.RawSockaddrInet6
	control [batch][controlMax / 8]uint64 // words, for the alignment
	payload [batch][payloadMax]byte
}

// datagram is a received packet and where it came from.
type datagram struct {
	payload  []byte
	from, to netip.Addr // without zone
	index    int        // of the interface
	ttl      uint8      // or hop limit
	at       unix.Timespec
}

// receive reads up to batch packets; 0: none is waiting.
func (b *inbound) receive(fd int) (int, error) {
	for i := range b.msgs {
		b.iovs[i].Base = &b.payload[i][0]
		b.iovs[i].SetLen(payloadMax)
		h := &b.msgs[i].hdr
		*h = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&b.names[i])), Namelen: unix.SizeofSockaddrInet6, Iov: &b.iovs[i], Control: (*byte)(unsafe.Pointer(&b.control[i]))}
		h.SetIovlen(1)
		h.SetControllen(controlMax)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[0])), batch, unix.MSG_DONTWAIT, 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EAGAIN, unix.EINTR:
		return 0, nil
	}
	return 0, errno
}

// get is the i-th packet of the last batch. It is valid until the next receive.
func (b *inbound) get(i int) datagram {
	d := datagram{payload: b.payload[i][:min(b.msgs[i].n, payloadMax)]}
	name := unsafe.Pointer(&b.names[i])
	switch b.names[i].Family {
	case unix.AF_INET:
		d.from = netip.AddrFrom4((*unix.RawSockaddrInet4)(name).Addr)
	case unix.AF_INET6:
		d.from = netip.AddrFrom16(b.names[i].Addr)
	}
	d.ancillary(unsafe.Slice((*byte)(unsafe.Pointer(&b.control[i])), b.msgs[i].hdr.Controllen))
	return d
}

// ancillary reads what the kernel tells beside the payload.
func (d *datagram) ancillary(b []byte) {
	head := unix.CmsgLen(0)
	for len(b) >= head {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		if int(h.Len) < head || int(h.Len) > len(b) {
			return
		}
		data := b[head:h.Len]
		switch {
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SO_TIMESTAMPNS && len(data) >= int(unsafe.Sizeof(d.at)):
			d.at = *(*unix.Timespec)(unsafe.Pointer(&data[0]))
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TTL && len(data) >= 4,
			h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_HOPLIMIT && len(data) >= 4:
			d.ttl = uint8(*(*int32)(unsafe.Pointer(&data[0])))
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			info := (*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0]))
			d.to, d.index = netip.AddrFrom4(info.Addr), int(info.Ifindex)
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0]))
			d.to, d.index = netip.AddrFrom16(info.Addr), int(info.Ifindex)
		}
		b = b[min(unix.CmsgSpace(int(h.Len)-head), len(b)):]
	}
}

// arrived is when the packet reached the socket, on the clock of now, whatever
// the wall clock does: not before the socket was last seen empty. By much before that
// can only be a clock that has jumped, and that is not the fault of the peer.
func (d *datagram) arrived(now, empty time.Time) time.Time {
	age := now.Sub(time.Unix(d.at.Unix()))
	switch {
	case age <= 0, age > now.Sub(empty)+jump:
		return now
	case age > now.Sub(empty):
		return empty
	}
	return now.Add(-age)
}

// before tells whether the packet reached its socket earlier than o did.
func (d *datagram) before(o *datagram) bool {
	return d.at.Sec < o.at.Sec || d.at.Sec == o.at.Sec && d.at.Nsec < o.at.Nsec
}
