package route

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/rtnetlink"
)

// What include/uapi/linux/nexthop.h has and the library has not.
const (
	resilientGroup = 12 // NHA_RES_GROUP, nested
	resBuckets     = 1  // NHA_RES_GROUP_BUCKETS
	resIdle        = 2  // NHA_RES_GROUP_IDLE_TIMER, in hundredths of a second
	resUnbalanced  = 3  // NHA_RES_GROUP_UNBALANCED_TIMER
	typeResilient  = 1  // NEXTHOP_GRP_TYPE_RES
	hopHeader      = 8  // bytes of struct nhmsg
	memberSize     = 8  // bytes of struct nexthop_grp
	routeHop       = 30 // RTA_NH_ID
)

// hop is a next hop as the kernel has it, or a group of them.
type hop struct {
	id       uint32
	protocol uint8
	// Of a next hop.
	gateway netip.Addr
	index   int // of the interface
	// Of a group.
	group            []member
	resilient        bool
	buckets          uint16
	idle, unbalanced uint32 // in hundredths of a second
}

// member is a next hop of a group.
type member struct {
	id     uint32
	weight uint16
}

func (h *hop) own() bool { return h.protocol == model.RouteProtocol }

// entry is one of our routes as the kernel has it.
type entry struct {
	prefix      netip.Prefix
	protocol    uint8
	metric      uint32
	unreachable bool
	hop         uint32 // the object that it leads to; 0: none
}

// kernel is a socket in the network namespace in which it was opened.
type kernel struct{ *rtnetlink.Socket }

func openKernel() (*kernel, error) {
	sock, err := rtnetlink.Open()
	if err != nil {
		return nil, err
	}
	// It only helps: dumps of nothing but what is asked for (Linux 4.20). A dump of more is sorted
	// out below. The words of the kernel for an error are not asked for: the library takes those at
	// the end of a dump, as of a table that does not exist, for others, and reads beyond the message.
	_ = unix.SetsockoptInt(sock.Socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	return &kernel{sock}, nil
}

// change sends one request that is acknowledged.
func (k *kernel) change(request, flags int, parts ...nl.NetlinkRequestData) error {
	return k.Ask(request, flags|unix.NLM_F_ACK, 0, func() {}, func([]byte) {}, parts...)
}

// hopMessage is struct nhmsg.
type hopMessage struct {
	family, protocol uint8
}

func (m *hopMessage) Len() int          { return hopHeader }
func (m *hopMessage) Serialize() []byte { return []byte{m.family, 0, m.protocol, 0, 0, 0, 0, 0} }

// hops reads all next hops and groups, those of others too.
func (k *kernel) hops() (map[uint32]*hop, error) {
	var all map[uint32]*hop
	err := k.Ask(unix.RTM_GETNEXTHOP, unix.NLM_F_DUMP, unix.RTM_NEWNEXTHOP,
		func() { all = make(map[uint32]*hop) },
		func(m []byte) {
			if h := parseHop(m); h != nil {
				all[h.id] = h
			}
		}, &hopMessage{})
	if err != nil {
		return nil, fmt.Errorf("next hops: read: %w", err)
	}
	return all, nil
}

// parseHop reads one message about a next hop or group; nil if it is none.
func parseHop(m []byte) *hop {
	if len(m) < hopHeader {
		return nil
	}
	h := &hop{protocol: m[2]}
	order := nl.NativeEndian()
	for kind, v := range rtnetlink.Attributes(m[hopHeader:]) {
		switch kind {
		case unix.NHA_ID:
			h.id = number32(v)
		case unix.NHA_OIF:
			h.index = int(number32(v))
		case unix.NHA_GATEWAY:
			h.gateway, _ = netip.AddrFromSlice(v)
		case unix.NHA_GROUP_TYPE:
			h.resilient = len(v) >= 2 && order.Uint16(v) == typeResilient
		case unix.NHA_GROUP:
			for ; len(v) >= memberSize; v = v[memberSize:] {
				h.group = append(h.group, member{id: order.Uint32(v), weight: uint16(v[4]) + 1})
			}
		case resilientGroup:
			h.parseTable(v)
		}
	}
	if h.id == 0 {
		return nil
	}
	return h
}

func (h *hop) parseTable(nested []byte) {
	for kind, v := range rtnetlink.Attributes(nested) {
		switch kind {
		case resBuckets:
			if len(v) >= 2 {
				h.buckets = nl.NativeEndian().Uint16(v)
			}
		case resIdle:
			h.idle = number32(v)
		case resUnbalanced:
			h.unbalanced = number32(v)
		}
	}
}

func number32(v []byte) uint32 {
	if len(v) < 4 {
		return 0
	}
	return nl.NativeEndian().Uint32(v)
}

// put makes a next hop or group, or with replace changes the one with its number.
func (k *kernel) put(h *hop, replace bool) error {
	flags := unix.NLM_F_CREATE | unix.NLM_F_EXCL
	if replace {
		flags = unix.NLM_F_REPLACE
	}
	m := &hopMessage{protocol: h.protocol}
	parts := []nl.NetlinkRequestData{m, nl.NewRtAttr(unix.NHA_ID, nl.Uint32Attr(h.id))}
	if h.group == nil {
		m.family = familyOf(h.gateway)
		parts = append(parts, nl.NewRtAttr(unix.NHA_OIF, nl.Uint32Attr(uint32(h.index))), nl.NewRtAttr(unix.NHA_GATEWAY, h.gateway.AsSlice()))
	} else {
		var members []byte
		for _, x := range h.group {
			members = append(members, nl.Uint32Attr(x.id)...)
			members = append(members, byte(x.weight-1), 0, 0, 0)
		}
		parts = append(parts, nl.NewRtAttr(unix.NHA_GROUP, members))
	}
	if h.resilient {
		table := nl.NewRtAttr(resilientGroup|unix.NLA_F_NESTED, nil)
		table.AddRtAttr(resBuckets, nl.Uint16Attr(h.buckets))
		table.AddRtAttr(resIdle, nl.Uint32Attr(h.idle))
		table.AddRtAttr(resUnbalanced, nl.Uint32Attr(h.unbalanced))
		parts = append(parts, nl.NewRtAttr(unix.NHA_GROUP_TYPE, nl.Uint16Attr(typeResilient)), table)
	}
	return k.change(unix.RTM_NEWNEXTHOP, flags, parts...)
}

// remove deletes a next hop or group. One that is not there is no error.
func (k *kernel) remove(id uint32) error {
	err := k.change(unix.RTM_DELNEXTHOP, 0, &hopMessage{}, nl.NewRtAttr(unix.NHA_ID, nl.Uint32Attr(id)))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func familyOf(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// routes reads the routes that carry our mark, in the main table.
func (k *kernel) routes() (all []entry, err error) {
	var errs [2]error
	for i, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		had := len(all)
		filter := &nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Table: unix.RT_TABLE_MAIN, Protocol: model.RouteProtocol}}
		errs[i] = k.Ask(unix.RTM_GETROUTE, unix.NLM_F_DUMP, unix.RTM_NEWROUTE,
			func() { all = all[:had] },
			func(m []byte) {
				if e, ok := parseRoute(m); ok && e.protocol == model.RouteProtocol {
					all = append(all, e)
				}
			}, filter)
		if errors.Is(errs[i], unix.ENOENT) || errors.Is(errs[i], unix.EAFNOSUPPORT) {
			errs[i] = nil // the table is empty, or the kernel has no such family
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("routes: read: %w", err)
	}
	return all, nil
}

// foreign are the next hops and groups by an interface to which routes of others lead, in whatever
// table. A router may have a million routes: the kernel passes over those by other interfaces.
func (k *kernel) foreign(index int) (map[uint32]bool, error) {
	used := make(map[uint32]bool)
	var errs [2]error
	for i, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		filter := &nl.RtMsg{RtMsg: unix.RtMsg{Family: family}}
		errs[i] = k.Ask(unix.RTM_GETROUTE, unix.NLM_F_DUMP, unix.RTM_NEWROUTE, func() {}, func(m []byte) {
			if e, ok := parseRoute(m); ok && e.protocol == model.RouteProtocol || len(m) < unix.SizeofRtMsg {
				return
			}
			for kind, v := range rtnetlink.Attributes(m[unix.SizeofRtMsg:]) {
				if kind == routeHop {
					used[number32(v)] = true
				}
			}
		}, filter, nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(index))))
		if errors.Is(errs[i], unix.ENOENT) || errors.Is(errs[i], unix.EAFNOSUPPORT) || errors.Is(errs[i], unix.ENODEV) {
			errs[i] = nil // there is nothing, or the interface is gone with all that led by it
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("routes of others: read: %w", err)
	}
	return used, nil
}

// parseRoute reads one message about a route of the main table; false if it is none.
func parseRoute(m []byte) (e entry, ok bool) {
	if len(m) < unix.SizeofRtMsg {
		return e, false
	}
	msg := nl.DeserializeRtMsg(m)
	if msg.Table != unix.RT_TABLE_MAIN || msg.Flags&unix.RTM_F_CLONED != 0 {
		return e, false
	}
	to := netip.IPv6Unspecified()
	if msg.Family == unix.AF_INET {
		to = netip.IPv4Unspecified()
	}
	e.protocol, e.unreachable = msg.Protocol, msg.Type == unix.RTN_UNREACHABLE
	for kind, v := range rtnetlink.Attributes(m[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_DST:
			to, _ = netip.AddrFromSlice(v)
		case unix.RTA_PRIORITY:
			e.metric = number32(v)
		case routeHop:
			e.hop = number32(v)
		}
	}
	e.prefix = netip.PrefixFrom(to, int(msg.Dst_len))
	return e, e.prefix.IsValid()
}

// route makes, changes (NLM_F_REPLACE) or deletes a route. What is not there is deleted.
func (k *kernel) route(request, flags int, e entry) error {
	msg := &nl.RtMsg{RtMsg: unix.RtMsg{
		Family: familyOf(e.prefix.Addr()), Dst_len: uint8(e.prefix.Bits()), Table: unix.RT_TABLE_MAIN,
		Protocol: model.RouteProtocol, Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST,
	}}
	if e.unreachable {
		msg.Type = unix.RTN_UNREACHABLE
	}
	parts := []nl.NetlinkRequestData{msg,
		nl.NewRtAttr(unix.RTA_DST, e.prefix.Addr().AsSlice()),
		nl.NewRtAttr(unix.RTA_PRIORITY, nl.Uint32Attr(e.metric))}
	if e.hop != 0 && request == unix.RTM_NEWROUTE {
		parts = append(parts, nl.NewRtAttr(routeHop, nl.Uint32Attr(e.hop)))
	}
	err := k.change(request, flags, parts...)
	if request == unix.RTM_DELROUTE && (errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT)) {
		return nil
	}
	return err
}
