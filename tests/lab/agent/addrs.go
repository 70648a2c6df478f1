package main

import (
	"context"
	"flag"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/tests/lab/measure"
)

// watchAddrs reports every address that the kernel adds to, renews on or removes
// from an interface.
func watchAddrs(ctx context.Context, args []string, out *events) error {
	fs := flag.NewFlagSet("addrs", flag.ContinueOnError)
	ifname := fs.String("if", "lo", "interface")
	if err := fs.Parse(args); err != nil {
		return err
	}
	ifi, err := net.InterfaceByName(*ifname)
	if err != nil {
		return err
	}
	groups := uint32(unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR)
	return rtnetlink(ctx, groups, func(at measure.Time, m *syscall.NetlinkMessage) {
		if m == nil {
			out.put(measure.Addr{At: at, Missed: true})
		} else if a, ok := addrChange(m, ifi.Index); ok {
			a.At = at
			out.put(a)
		}
	})
}

// addrChange reads RTM_NEWADDR and RTM_DELADDR (rtnetlink(7)).
func addrChange(m *syscall.NetlinkMessage, index int) (measure.Addr, bool) {
	a := measure.Addr{Del: m.Header.Type == unix.RTM_DELADDR}
	if !a.Del && m.Header.Type != unix.RTM_NEWADDR || len(m.Data) < unix.SizeofIfAddrmsg {
		return a, false
	}
	// struct ifaddrmsg: family, prefix length, flags, scope, index.
	if int(m.Data[4])|int(m.Data[5])<<8|int(m.Data[6])<<16|int(m.Data[7])<<24 != index {
		return a, false
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return a, false
	}
	for _, x := range attrs {
		if x.Attr.Type == unix.IFA_ADDRESS {
			ip, ok := netip.AddrFromSlice(x.Value)
			a.Addr = ip.String()
			return a, ok
		}
	}
	return a, false
}
