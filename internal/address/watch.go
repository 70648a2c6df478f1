package address

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// receiveBuffer is asked for so that a burst of messages does not overflow; an
	// overflow costs no more than one look at the kernel.
	receiveBuffer = 1 << 20
	// backoffMin and backoffMax bound the wait before a new subscription.
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// watch asks for a look at the kernel whenever it says that one of our addresses
// was removed, until ctx ends. A lost subscription is made anew.
func (d *Driver) watch(ctx context.Context) {
	wait := backoffMin
	for ctx.Err() == nil {
		sock, err := subscribe()
		if err == nil {
			wait = backoffMin
			stop := context.AfterFunc(ctx, sock.Close)
			signal(d.repair) // for what was missed
			err = d.listen(sock)
			if stop() {
				sock.Close()
			}
		}
		if ctx.Err() != nil {
			return
		}
		d.stats.errors.Add(1)
		d.log.Warn("lost the subscription to the addresses", "err", err, "retry", wait)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, backoffMax)
	}
}

// listen reads messages until the socket fails.
func (d *Driver) listen(sock *nl.NetlinkSocket) error {
	for {
		msgs, _, err := sock.Receive()
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case errors.Is(err, unix.ENOBUFS):
			signal(d.repair)
		case err != nil:
			return fmt.Errorf("addresses: receive: %w", err)
		}
		for _, m := range msgs {
			switch m.Header.Type {
			case unix.RTM_DELADDR:
				// That of somebody else matters if it was in the way.
				if e, _, ok := parseEntry(m.Data); ok && (e.own() || d.missing.Load()) {
					signal(d.repair)
				}
			case unix.RTM_NEWLINK:
				if d.missing.Load() {
					signal(d.repair)
				}
			}
		}
	}
}

// subscribe opens a socket for messages about interfaces and removed addresses.
func subscribe() (*nl.NetlinkSocket, error) {
	sock, err := nl.Subscribe(unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return nil, fmt.Errorf("addresses: subscribe: %w", err)
	}
	// Both only save work: the buffer may be capped, and without the filter the
	// messages about own renewals are read and ignored.
	_ = sock.SetReceiveBufferSize(receiveBuffer, true)
	_ = ignoreNewAddresses(sock.GetFd())
	return sock, nil
}

// ignoreNewAddresses lets the kernel drop RTM_NEWADDR, which it sends for every
// renewal.
func ignoreNewAddresses(fd int) error {
	const (
		nlmsgType = 4          // offset in struct nlmsghdr
		accept    = 0xffffffff // bytes to keep
		loadHalf  = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
		jumpEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret       = unix.BPF_RET | unix.BPF_K
	)
	// A filter reads numbers in network order; the kernel wrote its own.
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], unix.RTM_NEWADDR)
	program := []unix.SockFilter{
		{Code: loadHalf, K: nlmsgType},
		{Code: jumpEqual, K: uint32(binary.BigEndian.Uint16(b[:])), Jt: 1},
		{Code: ret, K: accept},
		{Code: ret, K: 0},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}
