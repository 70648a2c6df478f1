package main

import (
	"context"
	"encoding/binary"
	"flag"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/tests/lab/measure"
)

// Attributes of a route that package syscall does not know.
const rtaVia = 18

// routes reports every change of a route in the main table.
func routes(ctx context.Context, args []string, out *events) error {
	fs := flag.NewFlagSet("routes", flag.ContinueOnError)
	if err := fs.Parse(args); err != nil {
		return err
	}
	groups := uint32(1<<(unix.RTNLGRP_IPV4_ROUTE-1) | 1<<(unix.RTNLGRP_IPV6_ROUTE-1))
	return rtnetlink(ctx, groups, func(at measure.Time, m *syscall.NetlinkMessage) {
		if m == nil {
			out.put(measure.Route{At: at, Missed: true})
		} else if r, ok := routeChange(m); ok {
			r.At = at
			out.put(r)
		}
	})
}

// routeChange reads RTM_NEWROUTE and RTM_DELROUTE (rtnetlink(7)) of the main
// table.
func routeChange(m *syscall.NetlinkMessage) (measure.Route, bool) {
	r := measure.Route{Del: m.Header.Type == unix.RTM_DELROUTE}
	if !r.Del && m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg || m.Data[4] != unix.RT_TABLE_MAIN {
		return r, false
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return r, false
	}
	family, bits := m.Data[0], int(m.Data[1])
	dst := netip.IPv4Unspecified()
	if family == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_GATEWAY, rtaVia:
			r.Via = appendGateway(r.Via, a.Attr.Type, a.Value)
		case unix.RTA_MULTIPATH:
			r.Via = multipath(a.Value)
		}
	}
	slices.Sort(r.Via)
	r.Prefix = netip.PrefixFrom(dst, bits).String()
	if r.Del {
		r.Via = nil
	}
	return r, true
}

// multipath reads a list of struct rtnexthop, each with attributes of its own.
func multipath(b []byte) []string {
	var via []string
	for len(b) >= unix.SizeofRtNexthop {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtNexthop || n > len(b) {
			return via
		}
		for a := b[unix.SizeofRtNexthop:n]; len(a) >= unix.SizeofRtAttr; {
			size := int(binary.NativeEndian.Uint16(a))
			if size < unix.SizeofRtAttr || size > len(a) {
				break
			}
			via = appendGateway(via, binary.NativeEndian.Uint16(a[2:]), a[unix.SizeofRtAttr:size])
			a = a[min((size+3)&^3, len(a)):]
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return via
}

func appendGateway(via []string, typ uint16, value []byte) []string {
	switch {
	case typ == rtaVia && len(value) > 2: // struct rtvia: a family, then the address
		value = value[2:]
	case typ != unix.RTA_GATEWAY:
		return via
	}
	if ip := net.IP(value); len(ip) == net.IPv4len || len(ip) == net.IPv6len {
		return append(via, ip.String())
	}
	return via
}
