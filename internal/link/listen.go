package link

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// listener waits for messages about interfaces and addresses.
type listener interface {
	// wait calls notify, which must not block, for every message until the
	// listener fails or is closed; it returns why.
	wait(notify func()) error
	Close()
}

// receiveBuffer is asked for so that a burst (a node that starts a hundred
// containers) does not overflow; an overflow costs no more than one reading.
const receiveBuffer = 1 << 20

// subscription is a listener on a netlink socket.
type subscription struct{ sock *nl.NetlinkSocket }

func subscribe() (*subscription, error) {
	sock, err := nl.Subscribe(unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return nil, fmt.Errorf("interfaces: subscribe: %w", err)
	}
	// Both only save work: the buffer may be capped, and without the filter a
	// renewal is read and found to change nothing.
	_ = sock.SetReceiveBufferSize(receiveBuffer, true)
	_ = attachFilter(sock.GetFd())
	return &subscription{sock: sock}, nil
}

func (s *subscription) wait(notify func()) error {
	for {
		_, _, err := s.sock.Receive()
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENOBUFS):
			// Messages were lost; the next reading finds what they said.
		case err != nil:
			return fmt.Errorf("interfaces: receive: %w", err)
		}
		notify()
	}
}

func (s *subscription) Close() { s.sock.Close() }

// attachFilter lets the kernel drop the messages about addresses with lbd's own
// mark: each VIP is renewed every second or so, and none of that is news.
func attachFilter(fd int) error {
	const (
		nlmsgType = 4                                          // offset in struct nlmsghdr
		addrAttrs = unix.SizeofNlMsghdr + unix.SizeofIfAddrmsg // offset of the first attribute
		findAttr  = 0xfffff000 /* SKF_AD_OFF */ + 12           // SKF_AD_NLATTR, include/uapi/linux/filter.h
		accept    = 0xffffffff                                 // bytes to keep
		value     = unix.SizeofRtAttr                          // offset of the value in an attribute
		loadImm   = unix.BPF_LD | unix.BPF_IMM                 // A = k
		loadHalf  = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS    // A = 16 bits at k
		loadWord  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS    // A = 32 bits at k
		loadByteX = unix.BPF_LD | unix.BPF_B | unix.BPF_IND    // A = byte at X+k
		loadX     = unix.BPF_LDX | unix.BPF_IMM                // X = k
		jumpEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K   // skip jt or jf instructions
		copyToX   = unix.BPF_MISC | unix.BPF_TAX               // X = A
		ret       = unix.BPF_RET | unix.BPF_K                  // return k
	)
	program := []unix.SockFilter{
		{Code: loadHalf, K: nlmsgType},
		{Code: jumpEqual, K: wire(unix.RTM_NEWADDR), Jt: 1},
		{Code: jumpEqual, K: wire(unix.RTM_DELADDR), Jf: 7},
		{Code: loadX, K: ifaProto},
		{Code: loadImm, K: addrAttrs},
		{Code: loadWord, K: findAttr}, // A = offset of the attribute of type X from A on, or 0
		{Code: jumpEqual, K: 0, Jt: 3},
		{Code: copyToX},
		{Code: loadByteX, K: value},
		{Code: jumpEqual, K: uint32(model.AddressProtocol), Jt: 1},
		{Code: ret, K: accept},
		{Code: ret, K: 0},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// wire is how a filter, which reads numbers in network order, sees a 16-bit
// number that the kernel wrote in its own order.
func wire(v uint16) uint32 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], v)
	return uint32(binary.BigEndian.Uint16(b[:]))
}
