package address

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

const (
	// ifaProto is the attribute for the origin of an address (IFA_PROTO,
	// include/uapi/linux/if_addr.h, Linux 5.18).
	ifaProto = 11
	// batchSize is how many requests go to the kernel in one message; the answers
	// to all of them fit the receive buffer even if each is an error.
	batchSize = 64
	// answerTimeout bounds the wait for an answer. The kernel works while the
	// request is being sent, so that answers are there at once or never.
	answerTimeout = 2 * time.Second
	// dumpTries bounds how often a dump that a change has interrupted is repeated.
	dumpTries = 5
	// forever is the valid lifetime of an address that does not expire.
	forever = 0xffffffff
)

// flags of every address that lbd binds: no duplicate address detection (the
// election has asked the wire already, and DAD would take 1 to 2 s) and no
// route for the prefix.
const addFlags = unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE

// renewFlags make the kernel refuse to create the address. RTM_NEWADDR has no
// "only if it exists": it creates what is missing, whatever NLM_F_CREATE says.
// But creation with IFA_F_MCAUTOJOIN has to join a multicast group of that
// address, which fails with EINVAL for a unicast address before anything is
// changed (inet_rtm_newaddr in net/ipv4/devinet.c, inet6_addr_add in
// net/ipv6/addrconf.c, Linux 4.1), while an existing address only gets its new
// lifetime. So a renewal that comes too late cannot bring a VIP back. The group
// address is looked at before the interface, so that lo, which has no multicast,
// makes no difference.
const renewFlags = addFlags | unix.IFA_F_MCAUTOJOIN

// entry is one address as the kernel has it.
type entry struct {
	prefix   netip.Prefix
	index    int // of the interface
	protocol uint8
	metric   uint32
	flags    uint32
	scope    uint8
	valid    uint32 // remaining seconds, rounded up; forever
	prefer   uint32
}

// own tells whether lbd bound the address. lbd binds single addresses only.
func (e entry) own() bool {
	return e.prefix.IsSingleIP() && model.AddressMarked(e.protocol, e.metric)
}

// kernel talks rtnetlink. It is not safe for concurrent use.
type kernel struct {
	sock   *nl.SocketHandle
	knows  bool // the kernel reports IFA_PROTO
	pid    uint32
	names  map[int]string // of interfaces, since the last dump
	had    int            // addresses at the last dump
	before func([]*op)    // test hook: runs just before a batch is sent
}

// openKernel opens a socket in the network namespace of the process.
func openKernel() (*kernel, error) {
	sock, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: open: %w", err)
	}
	timeout := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	err = errors.Join(sock.SetReceiveTimeout(&timeout), sock.SetSendTimeout(&timeout))
	pid, perr := sock.GetPid()
	if err = errors.Join(err, perr); err != nil {
		sock.Close()
		return nil, fmt.Errorf("rtnetlink: open: %w", err)
	}
	return &kernel{sock: &nl.SocketHandle{Socket: sock}, pid: pid}, nil
}

func (k *kernel) close() { k.sock.Close() }

// dump reads every address of the namespace in kernel order.
func (k *kernel) dump() ([]entry, error) {
	k.names = nil
	entries := make([]entry, 0, k.had+k.had/8+8)
	begin := func() { entries = entries[:0] }
	err := k.each(unix.RTM_GETADDR, unix.NLM_F_DUMP, unix.RTM_NEWADDR, begin, func(m []byte) {
		if e, knows, ok := parseEntry(m); ok {
			k.knows = k.knows || knows
			entries = append(entries, e)
		}
	}, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err != nil {
		return nil, fmt.Errorf("addresses: read: %w", err)
	}
	k.had = len(entries)
	return entries, nil
}

// link asks for one interface. That is no dump, which might begin again.
func (k *kernel) link(parts ...nl.NetlinkRequestData) (msgs [][]byte, err error) {
	err = k.each(unix.RTM_GETLINK, 0, unix.RTM_NEWLINK, func() {}, func(m []byte) { msgs = append(msgs, m) }, parts...)
	return msgs, err
}

// each sends one request and hands on each answer. If they changed meanwhile, all
// begins again.
func (k *kernel) each(request, flags int, answer uint16, begin func(), take func(m []byte), parts ...nl.NetlinkRequestData) (err error) {
	for range dumpTries {
		begin()
		req := nl.NewNetlinkRequest(request, flags)
		req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: k.sock}
		for _, p := range parts {
			req.AddData(p)
		}
		err = req.ExecuteIter(unix.NETLINK_ROUTE, answer, func(m []byte) bool { take(m); return true })
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return err
}

// parseEntry reads one RTM_NEWADDR or RTM_DELADDR message. It tells whether the
// kernel reported an origin, which old ones do not.
func parseEntry(m []byte) (e entry, knows, ok bool) {
	if len(m) < unix.SizeofIfAddrmsg {
		return e, false, false
	}
	msg := nl.DeserializeIfAddrmsg(m)
	e.index, e.scope, e.flags, e.valid = int(msg.Index), msg.Scope, uint32(msg.Flags), forever
	var local netip.Addr
	rest := m[unix.SizeofIfAddrmsg:]
	for len(rest) >= unix.SizeofRtAttr {
		var kind uint16
		var value []byte
		if kind, value, rest, ok = nextAttribute(rest); !ok {
			return entry{}, false, false
		}
		switch {
		case kind == unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(value)
		case kind == unix.IFA_ADDRESS && !local.IsValid():
			local, _ = netip.AddrFromSlice(value) // IFA_LOCAL, if present, wins
		case kind == unix.IFA_FLAGS && len(value) == 4:
			e.flags = nl.NativeEndian().Uint32(value)
		case kind == unix.IFA_RT_PRIORITY && len(value) == 4:
			e.metric = nl.NativeEndian().Uint32(value)
		case kind == unix.IFA_CACHEINFO && len(value) >= unix.SizeofIfaCacheinfo:
			info := nl.DeserializeIfaCacheInfo(value)
			e.valid, e.prefer = info.Valid, info.Prefered
		case kind == ifaProto && len(value) == 1:
			e.protocol, knows = value[0], true
		}
	}
	e.prefix = netip.PrefixFrom(local, int(msg.Prefixlen))
	return e, knows, e.prefix.IsValid()
}

// nextAttribute splits the first attribute off, without any memory of its own: a
// look at ten thousand addresses takes sixty thousand of them.
func nextAttribute(b []byte) (kind uint16, value, rest []byte, ok bool) {
	order := nl.NativeEndian()
	size := int(order.Uint16(b))
	if size < unix.SizeofRtAttr || size > len(b) {
		return 0, nil, nil, false
	}
	next := min((size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1), len(b))
	return order.Uint16(b[2:]), b[unix.SizeofRtAttr:size], b[next:], true
}

// linkIndex finds an interface by name. The error is unix.ENODEV if there is none.
func (k *kernel) linkIndex(name string) (int, error) {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	attr := nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name))
	msgs, err := k.link(msg, attr)
	if err != nil {
		return 0, err
	}
	if len(msgs) == 0 || len(msgs[0]) < unix.SizeofIfInfomsg {
		return 0, unix.ENODEV
	}
	return int(nl.DeserializeIfInfomsg(msgs[0]).Index), nil
}

// linkName finds the name of an interface, "#7" if it is gone. Names are
// remembered until the next dump.
func (k *kernel) linkName(index int) string {
	if name, ok := k.names[index]; ok {
		return name
	}
	name := fmt.Sprintf("#%d", index)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	msgs, err := k.link(msg)
	if err == nil && len(msgs) > 0 && len(msgs[0]) >= unix.SizeofIfInfomsg {
		attrs, _ := nl.ParseRouteAttr(msgs[0][unix.SizeofIfInfomsg:])
		for _, a := range attrs {
			if a.Attr.Type == unix.IFLA_IFNAME {
				name = strings.TrimRight(string(a.Value), "\x00")
			}
		}
	}
	if k.names == nil {
		k.names = make(map[int]string)
	}
	k.names[index] = name
	return name
}

// verb is what one request of a batch does.
type verb uint8

const (
	create verb = iota // fails with EEXIST if the interface has the address
	renew              // fails with EINVAL if it has not
	remove             // fails with EADDRNOTAVAIL if it has not
)

// op is one request and, after kernel.do, its result. Before and after enclose
// the moment at which the kernel carried it out.
type op struct {
	verb          verb
	addr          netip.Addr
	index         int
	lifetime      time.Duration // whole seconds; not for remove
	err           error
	before, after time.Time
	seq           uint32
}

// do carries the requests out in order and fills in their results.
func (k *kernel) do(ops []*op) {
	for len(ops) > 0 {
		n := min(len(ops), batchSize)
		k.batch(ops[:n])
		ops = ops[n:]
	}
}

// batch sends the requests in one message. Only the last one asks to be
// acknowledged: the kernel works in order and reports every failure, so that
// what is not reported by then has succeeded.
func (k *kernel) batch(ops []*op) {
	var msg []byte
	for i, o := range ops {
		o.seq, o.err = atomic.AddUint32(&k.sock.Seq, 1), nil
		msg = append(msg, k.encode(o, i == len(ops)-1)...)
	}
	before := time.Now()
	if k.before != nil {
		k.before(ops)
	}
	err := unix.Sendto(k.sock.Socket.GetFd(), msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		err = k.answers(ops)
	}
	after := time.Now()
	for _, o := range ops {
		o.before, o.after = before, after
		if err != nil && o.err == nil {
			o.err = err
		}
	}
}

// answers reads until the last request is acknowledged.
func (k *kernel) answers(ops []*op) error {
	first, last := ops[0].seq, ops[len(ops)-1].seq
	for {
		msgs, _, err := k.sock.Socket.Receive()
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("rtnetlink: receive: %w", err)
		}
		for _, m := range msgs {
			i := m.Header.Seq - first // wraps like the numbers do
			if m.Header.Type != unix.NLMSG_ERROR || m.Header.Pid != k.pid || i >= uint32(len(ops)) || len(m.Data) < 4 {
				continue // the late answer to an earlier request
			}
			if errno := int32(nl.NativeEndian().Uint32(m.Data)); errno != 0 {
				ops[i].err = unix.Errno(-errno)
			}
			if m.Header.Seq == last {
				return nil
			}
		}
	}
}

// encode builds one request.
func (k *kernel) encode(o *op, ack bool) []byte {
	kind, flags := unix.RTM_NEWADDR, 0
	switch o.verb {
	case create:
		flags = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	case renew:
		flags = unix.NLM_F_REPLACE
	case remove:
		kind = unix.RTM_DELADDR
	}
	if ack {
		flags |= unix.NLM_F_ACK
	}
	req := nl.NewNetlinkRequest(kind, flags)
	req.Seq = o.seq
	family := unix.AF_INET6
	if o.addr.Is4() {
		family = unix.AF_INET
	}
	msg := nl.NewIfAddrmsg(family)
	msg.Prefixlen, msg.Scope, msg.Index = uint8(o.addr.BitLen()), unix.RT_SCOPE_UNIVERSE, uint32(o.index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFA_LOCAL, o.addr.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, o.addr.AsSlice()))
	if o.verb == remove {
		return req.Serialize()
	}
	bits := uint32(addFlags)
	if o.verb == renew {
		bits = renewFlags
	}
	info := nl.IfaCacheInfo{IfaCacheinfo: unix.IfaCacheinfo{Valid: uint32(o.lifetime / time.Second)}}
	req.AddData(nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(bits)))
	req.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, info.Serialize()))
	req.AddData(nl.NewRtAttr(ifaProto, nl.Uint8Attr(model.AddressProtocol)))
	if !k.knows {
		req.AddData(nl.NewRtAttr(unix.IFA_RT_PRIORITY, nl.Uint32Attr(model.AddressMetric)))
	}
	return req.Serialize()
}

const (
	// localTimeout bounds the wait for an IPv6 address to become local.
	localTimeout = 250 * time.Millisecond
	localPoll    = 100 * time.Microsecond
)

// awaitLocal waits until packets to an address that was just bound are delivered
// here, and for the sake of this interface: the address may be on another one too,
// but not for as long. For IPv6 the kernel answers the request first and installs the local route
// and joins the solicited-node group later, from a work queue, also without
// duplicate address detection (addrconf_dad_start in net/ipv6/addrconf.c); until
// then it drops what comes in. On a busy machine that took tens of milliseconds.
func awaitLocal(addr netip.Addr, index int, deadline time.Time) bool {
	for addr.Is6() && !local(addr, index) {
		if !time.Now().Before(deadline) {
			return false
		}
		time.Sleep(localPoll)
	}
	return true
}

// local tells whether the routing table delivers packets to the address here by
// the route that belongs to its being on the interface.
func local(addr netip.Addr, index int) bool {
	routes, err := netlink.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{OifIndex: index})
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}
