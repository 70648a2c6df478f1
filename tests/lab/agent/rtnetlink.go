package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/tests/lab/measure"
)

// rtnetlink is netlinkEvents of links, addresses and routes.
func rtnetlink(ctx context.Context, groups uint32, f func(measure.Time, *syscall.NetlinkMessage)) error {
	return netlinkEvents(ctx, unix.NETLINK_ROUTE, groups, f)
}

// netlinkEvents calls f with every message of the groups of a netlink protocol, and
// with nil where the kernel dropped some, until the context ends.
func netlinkEvents(ctx context.Context, protocol int, groups uint32, f func(measure.Time, *syscall.NetlinkMessage)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer unix.Close(fd)
	// Reads return now and then, to see the end of the context.
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}),
	)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	b := make([]byte, 1<<20)
	for ctx.Err() == nil {
		n, _, err := unix.Recvfrom(fd, b, 0)
		at := measure.Now()
		if errors.Is(err, unix.ENOBUFS) {
			f(at, nil)
			continue
		}
		if err != nil {
			continue // nothing came in time
		}
		msgs, err := syscall.ParseNetlinkMessage(b[:n])
		if err != nil {
			return fmt.Errorf("netlink: parse: %w", err)
		}
		for i := range msgs {
			f(at, &msgs[i])
		}
	}
	return nil
}
