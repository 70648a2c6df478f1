package main

import (
	"cmp"
	"context"
	"flag"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/tests/lab/measure"
)

// rules reports every table of nftables that is made or deleted.
func rules(ctx context.Context, args []string, out *events) error {
	fs := flag.NewFlagSet("rules", flag.ContinueOnError)
	if err := fs.Parse(args); err != nil {
		return err
	}
	return netlinkEvents(ctx, unix.NETLINK_NETFILTER, 1<<(unix.NFNLGRP_NFTABLES-1), func(at measure.Time, m *syscall.NetlinkMessage) {
		if m == nil {
			out.put(measure.Rules{At: at, Missed: true})
		} else if r, ok := tableChange(m); ok {
			r.At = at
			out.put(r)
		}
	})
}

// tableChange reads NFT_MSG_NEWTABLE and NFT_MSG_DELTABLE: a header of four bytes, of which
// the first is the family, then attributes, of which the name is the one that has to be there.
func tableChange(m *syscall.NetlinkMessage) (r measure.Rules, ok bool) {
	const header, attr = 4, 4
	switch m.Header.Type {
	case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELTABLE:
		r.Del = true
	case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE:
	default:
		return r, false
	}
	if len(m.Data) < header {
		return r, false
	}
	families := map[byte]string{unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_ARP: "arp"}
	r.Family = cmp.Or(families[m.Data[0]], strconv.Itoa(int(m.Data[0])))
	for b := m.Data[header:]; len(b) >= attr; {
		n := int(uint16(b[0]) | uint16(b[1])<<8)
		if n < attr || n > len(b) {
			break
		}
		if b[2] == unix.NFTA_TABLE_NAME {
			r.Table = strings.TrimRight(string(b[attr:n]), "\x00")
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return r, r.Table != ""
}
