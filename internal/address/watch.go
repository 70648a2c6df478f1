package address

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/rtnetlink"
	"lbd.dev/lbd/internal/sockfilter"
	"lbd.dev/lbd/internal/wake"
)

const (
	// backoffMin and backoffMax bound the wait before a new subscription.
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// watch asks for a look at the kernel whenever it says that one of our addresses
// was removed, until ctx ends. A lost subscription is made anew.
func (d *Driver) watch(ctx context.Context) {
	wait := backoffMin
	for ctx.Err() == nil {
		err := d.kernel.Watch(ctx, func(what Event, e Entry) {
			switch {
			case what == Missed:
				wait = backoffMin
				wake.Up(d.tasks.repair)
			case d.missing.Load(), what == Removed && e.own(): // what is not ours may have been in the way
				wake.Up(d.tasks.repair)
			}
		})
		if ctx.Err() != nil {
			return
		}
		d.stats.errors.Add(1)
		d.log.Warn("lost the subscription to the addresses", "err", err, "retry", wait)
		wake.Sleep(ctx, wait)
		wait = min(2*wait, backoffMax)
	}
}

func (*linux) Watch(ctx context.Context, tell func(Event, Entry)) error {
	sock, err := subscribe()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, sock.Close)
	tell(Missed, Entry{}) // what was before
	err = receive(sock, tell)
	if stop() {
		sock.Close()
	}
	return err
}

// receive reads messages until the socket fails.
func receive(sock *nl.NetlinkSocket, tell func(Event, Entry)) error {
	for {
		msgs, lost, err := rtnetlink.Receive(sock)
		if err != nil {
			return fmt.Errorf("addresses: %w", err)
		}
		if lost {
			tell(Missed, Entry{})
		}
		for _, m := range msgs {
			switch m.Header.Type {
			case unix.RTM_DELADDR:
				if e, _, ok := parseEntry(m.Data); ok {
					tell(Removed, e)
				}
			case unix.RTM_NEWLINK:
				tell(Linked, Entry{})
			}
		}
	}
}

// subscribe opens a socket for messages about interfaces and removed addresses.
func subscribe() (*nl.NetlinkSocket, error) {
	sock, err := rtnetlink.Subscribe(unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	// It only saves work: without it the messages about own renewals are read and ignored.
	_ = sockfilter.Attach(sock.GetFd(), unix.SO_ATTACH_FILTER, ignoreNewAddresses...)
	return sock, nil
}

// ignoreNewAddresses lets the kernel drop RTM_NEWADDR, which it sends for every renewal.
var ignoreNewAddresses = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 4, Size: 2}, // the type in struct nlmsghdr
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: sockfilter.Native16(unix.RTM_NEWADDR), SkipTrue: 1},
	bpf.RetConstant{Val: 0xffffffff}, // all of it
	bpf.RetConstant{},
}
