package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// datagrams reads and writes a UDP socket without telling the scheduler of Go of
// its system calls. None of them waits: both have MSG_DONTWAIT. A call that the
// scheduler knows of wakes its monitor thread each time the process was idle, and
// for a daemon that does nothing but send and receive a few heartbeats this is a
// third of all that it costs (50 wakes a second less, with the default profile).
type datagrams struct {
	udp *net.UDPConn
	raw syscall.RawConn
	six bool // an AF_INET6 socket, which may carry IPv4 as well

	// What receive reads into; read is called by one goroutine.
	receive func(fd uintptr) (done bool)
	buf     []byte
	n       int
	name    unix.RawSockaddrInet6 // large enough for both families
	errno   syscall.Errno
}

func newDatagrams(udp *net.UDPConn) (*datagrams, error) {
	raw, err := udp.SyscallConn()
	if err != nil {
		return nil, err
	}
	d := &datagrams{udp: udp, raw: raw}
	cerr := raw.Control(func(fd uintptr) {
		var domain int
		domain, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
		d.six = domain == unix.AF_INET6
	})
	if err := errors.Join(cerr, err); err != nil {
		return nil, fmt.Errorf("gossip: socket: %w", err)
	}
	d.receive = d.recvfrom
	return d, nil
}

// read waits for one datagram. The error is net.ErrClosed when the socket is.
func (d *datagrams) read(buf []byte) (n int, from netip.AddrPort, err error) {
	d.buf = buf
	err = d.raw.Read(d.receive)
	d.buf = nil
	if err != nil {
		return 0, netip.AddrPort{}, err
	}
	if d.errno != 0 {
		return 0, netip.AddrPort{}, os.NewSyscallError("recvfrom", d.errno)
	}
	return d.n, d.sender(), nil
}

// recvfrom reports whether read is to return.
func (d *datagrams) recvfrom(fd uintptr) bool {
	size := uint32(unsafe.Sizeof(d.name))
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&d.buf[0])), uintptr(len(d.buf)),
			unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&d.name)), uintptr(unsafe.Pointer(&size)))
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		}
		d.n, d.errno = int(n), errno
		return true
	}
}

// sender is the address that the kernel wrote.
func (d *datagrams) sender() netip.AddrPort {
	if d.name.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&d.name))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), ntohs(&v4.Port))
	}
	return netip.AddrPortFrom(netip.AddrFrom16(d.name.Addr).Unmap(), ntohs(&d.name.Port))
}

// write sends one datagram. It waits only if the socket has no room. An error of the kernel
// is a *net.OpError as it is, not wrapped: memberlist takes no other one for a sign that the
// node it asked cannot be reached, and would never call that dead.
func (d *datagrams) write(b []byte, to netip.AddrPort) error {
	if len(b) == 0 || to.Addr().Zone() != "" || to.Addr().Is6() && !d.six {
		_, err := d.udp.WriteToUDPAddrPort(b, to)
		return err
	}
	var name unix.RawSockaddrInet6
	size := d.address(&name, to)
	var errno syscall.Errno
	err := d.raw.Write(func(fd uintptr) bool {
		for {
			_, _, errno = unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
				unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&name)), size)
			if errno != unix.EINTR {
				return true
			}
		}
	})
	switch {
	case err != nil:
		return err
	case errno == unix.EAGAIN:
		_, err = d.udp.WriteToUDPAddrPort(b, to)
		return err
	case errno != 0:
		return &net.OpError{Op: "write", Net: "udp", Source: d.udp.LocalAddr(), Addr: net.UDPAddrFromAddrPort(to), Err: os.NewSyscallError("sendto", errno)}
	}
	return nil
}

// address writes to into name, as the socket's family wants it, and returns its
// size.
func (d *datagrams) address(name *unix.RawSockaddrInet6, to netip.AddrPort) uintptr {
	if d.six {
		name.Family, name.Addr = unix.AF_INET6, to.Addr().As16()
		htons(&name.Port, to.Port())
		return unix.SizeofSockaddrInet6
	}
	v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
	v4.Family, v4.Addr = unix.AF_INET, to.Addr().Unmap().As4()
	htons(&v4.Port, to.Port())
	return unix.SizeofSockaddrInet4
}

// ntohs reads a port of a socket address, which is in network order.
func ntohs(port *uint16) uint16 {
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(port))[:])
}

func htons(port *uint16, to uint16) {
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(port))[:], to)
}
