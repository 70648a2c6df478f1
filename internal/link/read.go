package link

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/rtnetlink"
)

const (
	// extSkipStats leaves the counters out of a dump (RTEXT_FILTER_SKIP_STATS,
	// include/uapi/linux/rtnetlink.h); they are most of its bytes.
	extSkipStats = 1 << 3
	// operUnknown and operUp are the operational states of RFC 2863 in which an
	// interface passes frames; drivers that do not keep the state, veth and lo
	// among them, stay in the first.
	operUnknown = 0
	operUp      = 6
	// ifaProto is the attribute for the origin of an address (IFA_PROTO,
	// include/uapi/linux/if_addr.h, Linux 5.18).
	ifaProto = 11
)

// readLinks reads all interfaces of the network namespace of the process with
// their addresses, in kernel order.
func readLinks() ([]model.Link, error) {
	var links []model.Link
	at := make(map[int]int) // interface index -> position in links
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	mask := nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(extSkipStats))
	sock, err := rtnetlink.Open()
	if err != nil {
		return nil, err
	}
	defer sock.Close()
	msgs, err := sock.Messages(unix.RTM_GETLINK, unix.NLM_F_DUMP, unix.RTM_NEWLINK, info, mask)
	if err != nil {
		return nil, fmt.Errorf("interfaces: read: %w", err)
	}
	gateways, all, ignore := gateways(), setting("all", "rp_filter"), setting("all", "arp_ignore")
	var below []relation
	for _, m := range msgs {
		if l, r, ok := parseLink(m); ok {
			l.IPv6, l.Strict, l.Gateway = ipv6Enabled(l.Name), max(all, setting(l.Name, "rp_filter")) == 1, gateways[l.Name]
			l.ARPIgnore = max(ignore, setting(l.Name, "arp_ignore"))
			at[l.Index] = len(links)
			links, below = append(links, l), append(below, r)
		}
	}
	for i, r := range below {
		if n, ok := at[r.bond]; ok {
			links[i].Bond = links[n].Name
		}
		if n, ok := at[r.parent]; ok {
			links[i].Parent = links[n].Name
		}
	}

	msgs, err = sock.Messages(unix.RTM_GETADDR, unix.NLM_F_DUMP, unix.RTM_NEWADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err != nil {
		return nil, fmt.Errorf("addresses: read: %w", err)
	}
	for _, m := range msgs {
		index, prefix, marked, ok := parseAddress(m)
		if i, known := at[index]; ok && known && !marked {
			links[i].Prefixes = append(links[i].Prefixes, prefix)
		}
	}
	return links, nil
}

// relation is what an interface says of others, by their index: the bond of which it is a
// port, and below which it is a macvlan or ipvlan. 0: none here.
type relation struct{ bond, parent int }

// parseLink reads one RTM_NEWLINK message.
func parseLink(m []byte) (l model.Link, r relation, ok bool) {
	if len(m) < unix.SizeofIfInfomsg {
		return l, r, false
	}
	info := nl.DeserializeIfInfomsg(m)
	attrs, err := nl.ParseRouteAttr(m[unix.SizeofIfInfomsg:])
	if err != nil {
		return l, r, false
	}
	l.Index = int(info.Index)
	oper := byte(operUnknown)
	var master, below int
	var kind, port string
	elsewhere := false // what is below is in another network namespace
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFLA_IFNAME:
			l.Name = strings.TrimRight(string(a.Value), "\x00")
		case unix.IFLA_ADDRESS:
			if len(a.Value) == len(l.MAC) {
				l.MAC = model.MAC(a.Value)
			}
		case unix.IFLA_MTU:
			if len(a.Value) == 4 {
				l.MTU = int(nl.NativeEndian().Uint32(a.Value))
			}
		case unix.IFLA_OPERSTATE:
			if len(a.Value) == 1 {
				oper = a.Value[0]
			}
		case unix.IFLA_MASTER:
			master = index(a.Value)
		case unix.IFLA_LINK:
			below = index(a.Value)
		case unix.IFLA_LINK_NETNSID:
			elsewhere = true
		case unix.IFLA_LINKINFO:
			kind, port = parseKind(a.Value)
		}
	}
	if port == "bond" {
		r.bond = master
	}
	if !elsewhere && slices.Contains([]string{"macvlan", "macvtap", "ipvlan"}, kind) {
		r.parent = below
	}
	const carrier = unix.IFF_UP | unix.IFF_LOWER_UP
	l.Up = info.Flags&carrier == carrier && (oper == operUp || oper == operUnknown)
	return l, r, l.Name != ""
}

func index(value []byte) int {
	if len(value) != 4 {
		return 0
	}
	return int(nl.NativeEndian().Uint32(value))
}

// parseKind reads which driver an interface has, and that of which it is a port.
func parseKind(info []byte) (kind, port string) {
	attrs, _ := nl.ParseRouteAttr(info)
	for _, a := range attrs {
		switch text := strings.TrimRight(string(a.Value), "\x00"); a.Attr.Type {
		case unix.IFLA_INFO_KIND:
			kind = text
		case unix.IFLA_INFO_SLAVE_KIND:
			port = text
		}
	}
	return kind, port
}

// parseAddress reads one RTM_NEWADDR message.
func parseAddress(m []byte) (index int, prefix netip.Prefix, marked, ok bool) {
	if len(m) < unix.SizeofIfAddrmsg {
		return 0, prefix, false, false
	}
	msg := nl.DeserializeIfAddrmsg(m)
	attrs, err := nl.ParseRouteAttr(m[unix.SizeofIfAddrmsg:])
	if err != nil {
		return 0, prefix, false, false
	}
	var local, remote netip.Addr
	var protocol uint8
	var metric uint32
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(a.Value)
		case unix.IFA_ADDRESS:
			remote, _ = netip.AddrFromSlice(a.Value)
		case ifaProto:
			if len(a.Value) == 1 {
				protocol = a.Value[0]
			}
		case unix.IFA_RT_PRIORITY:
			if len(a.Value) == 4 {
				metric = nl.NativeEndian().Uint32(a.Value)
			}
		}
	}
	bits := int(msg.Prefixlen)
	switch {
	case !local.IsValid(): // IPv6 without a peer has IFA_ADDRESS only
		local = remote
	case remote.IsValid() && remote != local: // a peer: the subnet is the peer's
		bits = local.BitLen()
	}
	prefix = netip.PrefixFrom(local, bits)
	return int(msg.Index), prefix, model.AddressMarked(protocol, metric), prefix.IsValid()
}

// ipv6Enabled tells whether the interface may have IPv6 addresses. The file is
// missing where the kernel has no IPv6.
func ipv6Enabled(name string) bool {
	b, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6"))
	return err == nil && strings.TrimSpace(string(b)) == "0"
}
