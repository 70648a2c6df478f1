// Package sockdiag lists the TCP sockets of this network namespace by the kernel's
// sock_diag (sock_diag(7)). Unlike /proc/net/tcp it walks only the tables that are asked
// for: looking for servers does not touch that of connections, which has a slot for
// every few kilobytes of memory, empty or not. By ctnetlink it lists where connections go
// that netfilter translates.
package sockdiag

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// States are sets of states of a TCP socket, one bit each.
type States uint32

const (
	// Listening are servers.
	Listening States = 1 << netlink.TCP_LISTEN
	// Open are connections in which data may still arrive or leave.
	Open States = 1<<netlink.TCP_ESTABLISHED | 1<<netlink.TCP_CLOSE_WAIT |
		1<<netlink.TCP_FIN_WAIT1 | 1<<netlink.TCP_FIN_WAIT2
)

// Socket is what the kernel tells of one.
type Socket struct {
	// Local is its own address; IPv4 on a socket of IPv6, which the kernel lists as
	// 4-in-6, is IPv4.
	Local netip.AddrPort
	// Heard is how long ago it got a packet, to the millisecond; negative if that was
	// not asked for, or not told.
	Heard time.Duration
}

const (
	// Offsets and sizes of struct inet_diag_msg (include/uapi/linux/inet_diag.h)
	// and of struct tcp_info (include/uapi/linux/tcp.h).
	diagFamily, diagPort, diagSource, diagLen  = 0, 4, 8, 72
	infoLastDataRecv, infoLastAckRecv, infoLen = 52, 56, 60
	// diagInfo is the attribute with struct tcp_info (INET_DIAG_INFO).
	diagInfo = 2
)

// request is struct inet_diag_req_v2 without a socket: all sockets of a family in some
// states.
type request struct {
	family uint8
	states States
	heard  bool
}

// Len is the size of the request in bytes.
func (request) Len() int { return 56 }

// Serialize returns the request as the kernel wants it.
func (r request) Serialize() []byte {
	b := make([]byte, r.Len())
	b[0], b[1] = r.family, unix.IPPROTO_TCP
	if r.heard {
		b[2] = 1 << (diagInfo - 1)
	}
	nl.NativeEndian().PutUint32(b[4:], uint32(r.states))
	return b
}

// TCP calls each for every TCP socket in one of the states; heard asks for Socket.Heard
// too. Sockets of other network namespaces, such as those of containers, are not seen. A
// list that changed while it was read is as good as any.
func TCP(states States, heard bool, each func(Socket)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		req.AddData(request{family, states, heard})
		err := req.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(m []byte) bool {
			if s, ok := parse(m); ok {
				each(s)
			}
			return true
		})
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("list the TCP sockets: %w", err)
		}
	}
	return nil
}

func parse(m []byte) (Socket, bool) {
	if len(m) < diagLen {
		return Socket{}, false
	}
	a := netip.AddrFrom16([16]byte(m[diagSource:])).Unmap()
	if m[diagFamily] == unix.AF_INET {
		a = netip.AddrFrom4([4]byte(m[diagSource:]))
	}
	port := uint16(m[diagPort])<<8 | uint16(m[diagPort+1])
	return Socket{Local: netip.AddrPortFrom(a, port), Heard: lastHeard(m[diagLen:])}, true
}

// lastHeard is Socket.Heard by the attributes of a message.
func lastHeard(b []byte) time.Duration {
	attrs, err := nl.ParseRouteAttr(b)
	if err != nil {
		return -1
	}
	for _, a := range attrs {
		if a.Attr.Type != diagInfo || len(a.Value) < infoLen {
			continue
		}
		order := nl.NativeEndian()
		ago := min(order.Uint32(a.Value[infoLastDataRecv:]), order.Uint32(a.Value[infoLastAckRecv:]))
		return time.Duration(ago) * time.Millisecond
	}
	return -1
}
