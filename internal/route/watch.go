package route

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/rtnetlink"
	"lbd.dev/lbd/internal/sockfilter"
	"lbd.dev/lbd/internal/wake"
)

const (
	// backoffMin and backoffMax bound the wait before a new subscription.
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
	// coalesce is the shortest time between two alarms: somebody who changes things
	// without end is answered a hundred times a second at most.
	coalesce = 10 * time.Millisecond
)

// watch listens for changes by others until Close. The first subscription is there when it
// returns, in the network namespace of the caller.
func (d *Driver) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	sock, err := subscribe()
	d.watcher.Go(func() {
		wait := backoffMin
		for {
			if err == nil {
				wait = backoffMin
				err = d.listen(ctx, sock)
			}
			if ctx.Err() != nil {
				return
			}
			d.log.Warn("lost the subscription to the routes", "err", err, "retry", wait)
			if !wake.Sleep(ctx, wait) {
				return
			}
			wait = min(2*wait, backoffMax)
			if sock, err = subscribe(); err == nil {
				d.alarm() // what was missed meanwhile
			}
		}
	})
}

// alarm asks for a look at the kernel.
func (d *Driver) alarm() {
	d.foreign.Store(true)
	wake.Up(d.changed)
}

// listen reads messages until the socket fails or ctx ends.
func (d *Driver) listen(ctx context.Context, sock *nl.NetlinkSocket) error {
	stop := context.AfterFunc(ctx, sock.Close)
	defer func() {
		if stop() {
			sock.Close()
		}
	}()
	port, running := d.kernel.Port, make(map[int32]bool)
	for {
		msgs, news, err := rtnetlink.Receive(sock)
		if err != nil {
			return fmt.Errorf("routes: %w", err)
		}
		for i := range msgs {
			news = concerns(&msgs[i], port, running) || news
		}
		if news {
			d.alarm()
			time.Sleep(coalesce)
		}
	}
}

// concerns tells whether a message is about a change by others of what is ours, or of an
// interface that came, went or changed its carrier. Running is what is known of those that are there.
func concerns(m *syscall.NetlinkMessage, port uint32, running map[int32]bool) bool {
	switch m.Header.Type {
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		h := parseHop(m.Data)
		return h != nil && m.Header.Pid != port && (h.own() || h.id>>16 == firstID>>16)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		e, ok := parseRoute(m.Data)
		ours := e.protocol == model.RouteProtocol || e.metric == model.RouteMetric || e.metric == model.UnreachableMetric
		return ok && ours && m.Header.Pid != port
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg {
			return false
		}
		info := nl.DeserializeIfInfomsg(m.Data)
		const carrier = unix.IFF_UP | unix.IFF_LOWER_UP
		was, known := running[info.Index]
		if m.Header.Type == unix.RTM_DELLINK {
			delete(running, info.Index) // a number is not given again soon, if ever
			return !known || was
		}
		up := info.Flags&carrier == carrier
		running[info.Index] = up
		return !known || was != up
	}
	return false
}

// subscribe opens a socket for messages about next hops, routes and interfaces.
func subscribe() (*nl.NetlinkSocket, error) {
	sock, err := rtnetlink.Subscribe(unix.RTNLGRP_LINK, unix.RTNLGRP_NEXTHOP, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	if err := sockfilter.Attach(sock.GetFd(), unix.SO_ATTACH_FILTER, relevant...); err != nil {
		sock.Close()
		return nil, fmt.Errorf("routes: filter: %w", err)
	}
	return sock, nil
}

// relevant lets the kernel drop what a router says all day: routes of others, unless they
// replace one, and each bucket that moves.
var relevant = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 4, Size: 2}, // the type in struct nlmsghdr
	bpf.JumpIf{Val: sockfilter.Native16(unix.RTM_NEWNEXTHOPBUCKET), SkipTrue: 8},
	bpf.JumpIf{Val: sockfilter.Native16(unix.RTM_DELROUTE), SkipTrue: 4},
	bpf.JumpIf{Val: sockfilter.Native16(unix.RTM_NEWROUTE), SkipFalse: 5},
	bpf.LoadAbsolute{Off: 6, Size: 2}, // the flags
	bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: sockfilter.Native16(unix.NLM_F_REPLACE)},
	bpf.JumpIf{Val: 0, SkipFalse: 2},
	bpf.LoadAbsolute{Off: unix.SizeofNlMsghdr + 5, Size: 1}, // the protocol in struct rtmsg
	bpf.JumpIf{Val: uint32(model.RouteProtocol), SkipFalse: 1},
	bpf.RetConstant{Val: 0xffffffff}, // all of it
	bpf.RetConstant{},
}
