package bfd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/sockfilter"
)

// Ports of RFC 5881 section 4 and RFC 5883 section 5.
const (
	portSingleHop = 3784
	portMultihop  = 4784

	firstSource, lastSource = 49152, 65535 // Linux would choose from 32768 on
)

const (
	receiveBuffer = 8 << 20 // bytes, used only by a thread that is late; a packet takes 768
	classControl  = 0xc0    // CS6: before everything else in a queue
)

// port is one of the four receiving sockets that serve all sessions.
type port struct{ v6, multihop bool }

var ports = [4]port{{}, {multihop: true}, {v6: true}, {v6: true, multihop: true}}

func (p port) number() int {
	if p.multihop {
		return portMultihop
	}
	return portSingleHop
}

func (p port) String() string {
	family := "IPv4"
	if p.v6 {
		family = "IPv6"
	}
	return fmt.Sprintf("UDP port %d, %s", p.number(), family)
}

type option struct{ level, name, value int }

// open opens a UDP socket of the family with options.
func open(v6 bool, opts ...option) (int, error) {
	family := unix.AF_INET
	if v6 {
		family = unix.AF_INET6
		opts = append(opts, option{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1})
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			_ = unix.Close(fd)
			return -1, fmt.Errorf("socket option %d of level %d: %w", o.name, o.level, err)
		}
	}
	return fd, nil
}

func bindAny(fd int, v6 bool, number int) error {
	if v6 {
		return unix.Bind(fd, &unix.SockaddrInet6{Port: number})
	}
	return unix.Bind(fd, &unix.SockaddrInet4{Port: number})
}

// listen opens a receiving socket. It tells of each packet the TTL, where it
// came in and to which address, and when it arrived.
func listen(p port, more ...option) (int, error) {
	opts := append(more, option{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1})
	if p.v6 {
		opts = append(opts, option{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1}, option{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1})
	} else {
		opts = append(opts, option{unix.IPPROTO_IP, unix.IP_PKTINFO, 1}, option{unix.IPPROTO_IP, unix.IP_RECVTTL, 1})
	}
	fd, err := open(p.v6, opts...)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", p, err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
	if err := bindAny(fd, p.v6, p.number()); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("%s: %w", p, err)
	}
	return fd, nil
}

// dropCount is how many packets a socket had to drop for want of room.
func dropCount(fd int) (uint32, error) {
	var info [16]uint32 // SO_MEMINFO; the kernel fills in what it knows
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	const drops = 8 // SK_MEMINFO_DROPS
	if errno != 0 {
		return 0, errno
	}
	return info[drops], nil
}

// source opens the sending socket of a session, with a source port of its own
// for its whole life, RFC 5881 section 4. It is bound to no address, so that it
// survives when the local address goes and comes. It receives nothing.
func source(v6 bool) (int, error) {
	opts := []option{
		{unix.IPPROTO_IP, unix.IP_TTL, 255},
		{unix.IPPROTO_IP, unix.IP_TOS, classControl},
	}
	if v6 {
		opts = []option{
			{unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 255},
			{unix.IPPROTO_IPV6, unix.IPV6_TCLASS, classControl},
		}
	}
	fd, err := open(v6, opts...)
	if err != nil {
		return -1, err
	}
	err = sockfilter.Attach(fd, unix.SO_ATTACH_FILTER, bpf.RetConstant{Val: 0}) // it hears nothing
	const n = lastSource - firstSource + 1
	for i, first := 0, rand.IntN(n); i < n && err == nil; i++ {
		err = bindAny(fd, v6, firstSource+(first+i)%n)
		if err == nil {
			return fd, nil
		}
		if errors.Is(err, unix.EADDRINUSE) {
			err = nil
		}
	}
	_ = unix.Close(fd)
	if err == nil {
		err = unix.EADDRINUSE
	}
	return -1, fmt.Errorf("source port from %d to %d: %w", firstSource, lastSource, err)
}

// outbound is a prepared sendmsg to one peer, and the socket for it. It never
// moves or grows, so that sending allocates nothing.
type outbound struct {
	fd      int // -1 until there is one
	index   int // of the interface that it was prepared for; 0: any
	name    unix.RawSockaddrInet6
	control [6]uint64 // words, for the alignment; enough for one of IPV6_PKTINFO
	payload [packetMax]byte
	iov     unix.Iovec
	hdr     unix.Msghdr
}

// address prepares o for a peer: from local, if valid, and out of the interface
// with the index, if not 0.
func (o *outbound) address(peer, local netip.Addr, number, index int) {
	o.index = index
	o.hdr = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&o.name)), Iov: &o.iov}
	o.hdr.SetIovlen(1)
	o.iov.Base = &o.payload[0]
	o.name = unix.RawSockaddrInet6{}
	clear(o.control[:])
	be := [2]byte{byte(number >> 8), byte(number)}
	cmsg := (*unix.Cmsghdr)(unsafe.Pointer(&o.control[0]))
	data := unsafe.Add(unsafe.Pointer(&o.control[0]), unix.CmsgLen(0))
	var size int
	if peer.Is4() {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(&o.name))
		sa.Family, sa.Addr = unix.AF_INET, peer.As4()
		sa.Port = *(*uint16)(unsafe.Pointer(&be[0]))
		o.hdr.Namelen = unix.SizeofSockaddrInet4
		info := (*unix.Inet4Pktinfo)(data)
		info.Ifindex = int32(index)
		if local.IsValid() {
			info.Spec_dst = local.As4()
		}
		cmsg.Level, cmsg.Type, size = unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo
	} else {
		sa := &o.name
		sa.Family, sa.Addr = unix.AF_INET6, peer.As16()
		sa.Port = *(*uint16)(unsafe.Pointer(&be[0]))
		o.hdr.Namelen = unix.SizeofSockaddrInet6
		info := (*unix.Inet6Pktinfo)(data)
		info.Ifindex = uint32(index)
		if local.IsValid() {
			info.Addr = local.As16()
		}
		cmsg.Level, cmsg.Type, size = unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo
	}
	cmsg.SetLen(unix.CmsgLen(size))
	if local.IsValid() || index != 0 {
		o.hdr.Control = (*byte)(unsafe.Pointer(&o.control[0]))
		o.hdr.SetControllen(unix.CmsgSpace(size))
	}
}

// send sends p. It takes some microseconds and never waits, so the thread need
// not be lent to other goroutines meanwhile: getting it back may take long.
func (o *outbound) send(p *Packet, key []byte) error {
	o.iov.SetLen(len(p.Append(o.payload[:0], key)))
	_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(o.fd), uintptr(unsafe.Pointer(&o.hdr)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if errno != 0 {
		return errno
	}
	return nil
}

func (o *outbound) close() { shut(&o.fd) }

// shut closes a descriptor, if there is one.
func shut(fd *int) {
	if *fd >= 0 {
		_ = unix.Close(*fd)
		*fd = -1
	}
}
