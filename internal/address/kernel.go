package address

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/rtnetlink"
	"lbd.dev/lbd/internal/sockdiag"
)

const (
	// ifaProto is the attribute for the origin of an address (IFA_PROTO,
	// include/uapi/linux/if_addr.h, Linux 5.18).
	ifaProto = 11
	// batchSize is how many requests go to the kernel in one message; the answers
	// to all of them fit the receive buffer even if each is an error.
	batchSize = 64
	// Forever is the valid lifetime of an address that does not expire.
	Forever = 0xffffffff
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

// Entry is one address as the kernel has it.
type Entry struct {
	Prefix   netip.Prefix
	Index    int // of the interface
	Protocol uint8
	Metric   uint32
	flags    uint32
	scope    uint8
	Valid    uint32 // remaining seconds, rounded up; Forever
	prefer   uint32
}

// own tells whether lbd bound the address. lbd binds single addresses only.
func (e Entry) own() bool {
	return e.Prefix.IsSingleIP() && model.AddressMarked(e.Protocol, e.Metric)
}

// Kernel is the host as this driver needs it; a simulation has its own.
type Kernel interface {
	// Addresses are all that the host has, with the remaining lifetimes.
	Addresses() ([]Entry, error)
	// Change carries requests out in order and fills in their results.
	Change(ops []*Op)
	// LinkIndex finds an interface by name; the error is unix.ENODEV if there is none.
	LinkIndex(name string) (int, error)
	// LinkName finds the name of an interface, "#7" if it is gone.
	LinkName(index int) string
	// Local tells whether packets to an address are delivered to this host because the
	// interface has it.
	Local(addr netip.Addr, index int) bool
	// Close ends all calls.
	Close()
	// Mutex makes a lock for the goroutines of the driver.
	Mutex() announce.Mutex

	// Those below may be called while another call runs.

	// Watch tells of events until ctx ends or it has lost the subscription: Missed as soon
	// as it hears of all others.
	Watch(ctx context.Context, tell func(Event, Entry)) error
	// Sockets, Destroy, Tracked and Challenge are TCP, Destroy, Tracked and Challenge of
	// package sockdiag.
	Sockets(states sockdiag.States, heard bool, each func(sockdiag.Socket)) error
	Destroy(sockets []sockdiag.Socket, end time.Time) (int, error)
	Tracked(asked func(netip.Addr) bool, each func(sockdiag.Flow)) error
	Challenge(server, client netip.AddrPort) error
}

// Event is what has happened to the addresses or interfaces of the host.
type Event uint8

// The events.
const (
	Missed  Event = iota // perhaps something that was not heard
	Removed              // an address, which is told
	Linked               // an interface has changed
)

// linux is the kernel that lbd runs on, by rtnetlink.
type linux struct {
	sock   *rtnetlink.Socket
	knows  bool           // the kernel reports IFA_PROTO
	names  map[int]string // of interfaces, since the last dump
	had    int            // addresses at the last dump
	before func([]*Op)    // test hook: runs just before a batch is sent
}

// openKernel opens a socket in the network namespace of the process.
func openKernel() (*linux, error) {
	sock, err := rtnetlink.Open()
	if err != nil {
		return nil, err
	}
	return &linux{sock: sock}, nil
}

func (k *linux) Close() { k.sock.Close() }

func (*linux) Mutex() announce.Mutex { return new(sync.Mutex) }

func (*linux) Sockets(states sockdiag.States, heard bool, each func(sockdiag.Socket)) error {
	return sockdiag.TCP(states, heard, each)
}

func (*linux) Destroy(sockets []sockdiag.Socket, end time.Time) (int, error) {
	return sockdiag.Destroy(sockets, end)
}

func (*linux) Tracked(asked func(netip.Addr) bool, each func(sockdiag.Flow)) error {
	return sockdiag.Tracked(asked, each)
}

func (*linux) Challenge(server, client netip.AddrPort) error {
	return sockdiag.Challenge(server, client)
}

// Addresses reads every address of the namespace in kernel order.
func (k *linux) Addresses() ([]Entry, error) {
	k.names = nil
	entries := make([]Entry, 0, k.had+k.had/8+8)
	begin := func() { entries = entries[:0] }
	err := k.sock.Ask(unix.RTM_GETADDR, unix.NLM_F_DUMP, unix.RTM_NEWADDR, begin, func(m []byte) {
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

// parseEntry reads one RTM_NEWADDR or RTM_DELADDR message. It tells whether the
// kernel reported an origin, which old ones do not.
func parseEntry(m []byte) (e Entry, knows, ok bool) {
	if len(m) < unix.SizeofIfAddrmsg {
		return e, false, false
	}
	msg := nl.DeserializeIfAddrmsg(m)
	e.Index, e.scope, e.flags, e.Valid = int(msg.Index), msg.Scope, uint32(msg.Flags), Forever
	var local netip.Addr
	rest := m[unix.SizeofIfAddrmsg:]
	for len(rest) >= unix.SizeofRtAttr {
		var kind uint16
		var value []byte
		if kind, value, rest, ok = rtnetlink.Next(rest); !ok {
			return Entry{}, false, false
		}
		switch {
		case kind == unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(value)
		case kind == unix.IFA_ADDRESS && !local.IsValid():
			local, _ = netip.AddrFromSlice(value) // IFA_LOCAL, if present, wins
		case kind == unix.IFA_FLAGS && len(value) == 4:
			e.flags = nl.NativeEndian().Uint32(value)
		case kind == unix.IFA_RT_PRIORITY && len(value) == 4:
			e.Metric = nl.NativeEndian().Uint32(value)
		case kind == unix.IFA_CACHEINFO && len(value) >= unix.SizeofIfaCacheinfo:
			info := nl.DeserializeIfaCacheInfo(value)
			e.Valid, e.prefer = info.Valid, info.Prefered
		case kind == ifaProto && len(value) == 1:
			e.Protocol, knows = value[0], true
		}
	}
	e.Prefix = netip.PrefixFrom(local, int(msg.Prefixlen))
	return e, knows, e.Prefix.IsValid()
}

func (k *linux) LinkIndex(name string) (int, error) { return k.sock.LinkIndex(name) }

// LinkName implements Kernel. Names are remembered until the next look at the addresses.
func (k *linux) LinkName(index int) string {
	if name, ok := k.names[index]; ok {
		return name
	}
	name := k.sock.LinkName(index)
	if k.names == nil {
		k.names = make(map[int]string)
	}
	k.names[index] = name
	return name
}

// Verb is what one request of a batch does.
type Verb uint8

// The verbs.
const (
	Create Verb = iota // fails with EEXIST if the interface has the address
	Renew              // fails with EINVAL if it has not
	Remove             // fails with EADDRNOTAVAIL if it has not
)

// Op is one request and, after Kernel.Change, its result. Before and after enclose
// the moment at which the kernel carried it out.
type Op struct {
	Verb          Verb
	Addr          netip.Addr
	Index         int
	Lifetime      time.Duration // whole seconds; not for remove
	Err           error
	Before, After time.Time
	seq           uint32
}

// Change carries the requests out in order and fills in their results.
func (k *linux) Change(ops []*Op) {
	for len(ops) > 0 {
		n := min(len(ops), batchSize)
		k.batch(ops[:n])
		ops = ops[n:]
	}
}

// batch sends the requests in one message. Only the last one asks to be
// acknowledged: the kernel works in order and reports every failure, so that
// what is not reported by then has succeeded.
func (k *linux) batch(ops []*Op) {
	var msg []byte
	for i, o := range ops {
		o.seq, o.Err = atomic.AddUint32(&k.sock.Seq, 1), nil
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
		o.Before, o.After = before, after
		if err != nil && o.Err == nil {
			o.Err = err
		}
	}
}

// answers reads until the last request is acknowledged.
func (k *linux) answers(ops []*Op) error {
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
			if m.Header.Type != unix.NLMSG_ERROR || m.Header.Pid != k.sock.Port || i >= uint32(len(ops)) || len(m.Data) < 4 {
				continue // the late answer to an earlier request
			}
			if errno := int32(nl.NativeEndian().Uint32(m.Data)); errno != 0 {
				ops[i].Err = unix.Errno(-errno)
			}
			if m.Header.Seq == last {
				return nil
			}
		}
	}
}

// encode builds one request.
func (k *linux) encode(o *Op, ack bool) []byte {
	kind, flags := unix.RTM_NEWADDR, 0
	switch o.Verb {
	case Create:
		flags = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	case Renew:
		flags = unix.NLM_F_REPLACE
	case Remove:
		kind = unix.RTM_DELADDR
	}
	if ack {
		flags |= unix.NLM_F_ACK
	}
	req := nl.NewNetlinkRequest(kind, flags)
	req.Seq = o.seq
	family := unix.AF_INET6
	if o.Addr.Is4() {
		family = unix.AF_INET
	}
	msg := nl.NewIfAddrmsg(family)
	msg.Prefixlen, msg.Scope, msg.Index = uint8(o.Addr.BitLen()), unix.RT_SCOPE_UNIVERSE, uint32(o.Index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFA_LOCAL, o.Addr.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, o.Addr.AsSlice()))
	if o.Verb == Remove {
		return req.Serialize()
	}
	bits := uint32(addFlags)
	if o.Verb == Renew {
		bits = renewFlags
	}
	info := nl.IfaCacheInfo{IfaCacheinfo: unix.IfaCacheinfo{Valid: uint32(o.Lifetime / time.Second)}}
	req.AddData(nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(bits)))
	req.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, info.Serialize()))
	req.AddData(nl.NewRtAttr(ifaProto, nl.Uint8Attr(model.AddressProtocol)))
	if !k.knows {
		req.AddData(nl.NewRtAttr(unix.IFA_RT_PRIORITY, nl.Uint32Attr(model.AddressMetric)))
	}
	return req.Serialize()
}

const (
	// localTimeout bounds the wait for an IPv6 address to become local, localAgain each
	// further one. After localLate a first binding waits no more: the election does not wait
	// longer than election.DriverPatience.
	localTimeout = 250 * time.Millisecond
	localAgain   = 50 * time.Millisecond
	localLate    = time.Second
	localPoll    = 100 * time.Microsecond
)

// awaitLocal waits until packets to an address that was just bound are delivered
// here, and for the sake of this interface: the address may be on another one too,
// but not for as long. For IPv6 the kernel answers the request first and installs the local route
// and joins the solicited-node group later, from a work queue, also without
// duplicate address detection (addrconf_dad_start in net/ipv6/addrconf.c); until
// then it drops what comes in. On a busy machine that took tens of milliseconds.
func awaitLocal(k Kernel, addr netip.Addr, index int, deadline time.Time) bool {
	for addr.Is6() && !k.Local(addr, index) {
		if !time.Now().Before(deadline) {
			return false
		}
		time.Sleep(localPoll)
	}
	return true
}

// Local implements Kernel: the routing table delivers packets to the address here by the
// route that belongs to its being on the interface.
func (*linux) Local(addr netip.Addr, index int) bool {
	routes, err := netlink.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{OifIndex: index})
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}
