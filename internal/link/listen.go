package link

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/rtnetlink"
	"lbd.dev/lbd/internal/sockfilter"
)

// listener waits for messages about interfaces and addresses.
type listener interface {
	// wait calls notify, which must not block, for every message until the
	// listener fails or is closed; it returns why.
	wait(notify func()) error
	Close()
}

// subscription is a listener on a netlink socket.
type subscription struct{ sock *nl.NetlinkSocket }

func subscribe() (*subscription, error) {
	sock, err := rtnetlink.Subscribe(unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	// It only saves work: without it a renewal is read and found to change nothing.
	_ = attachFilter(sock.GetFd())
	return &subscription{sock: sock}, nil
}

func (s *subscription) wait(notify func()) error {
	for {
		// If messages were lost, the next reading finds what they said.
		if _, _, err := rtnetlink.Receive(s.sock); err != nil {
			return fmt.Errorf("interfaces: %w", err)
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
		accept    = 0xffffffff                                 // bytes to keep
	)
	return sockfilter.Attach(fd, unix.SO_ATTACH_FILTER,
		bpf.LoadAbsolute{Off: nlmsgType, Size: 2},
		bpf.JumpIf{Val: sockfilter.Native16(unix.RTM_NEWADDR), SkipTrue: 1},
		bpf.JumpIf{Val: sockfilter.Native16(unix.RTM_DELADDR), SkipFalse: 7},
		bpf.LoadConstant{Dst: bpf.RegX, Val: ifaProto},
		bpf.LoadConstant{Dst: bpf.RegA, Val: addrAttrs},
		bpf.LoadExtension{Num: bpf.ExtNetlinkAttr}, // A = offset of the attribute of type X from A on, or 0
		bpf.JumpIf{Val: 0, SkipTrue: 3},
		bpf.TAX{},
		bpf.LoadIndirect{Off: unix.SizeofRtAttr, Size: 1}, // its value
		bpf.JumpIf{Val: uint32(model.AddressProtocol), SkipTrue: 1},
		bpf.RetConstant{Val: accept},
		bpf.RetConstant{Val: 0},
	)
}
