// Package sockdiag lists the TCP sockets of this network namespace by the kernel's
// sock_diag (sock_diag(7)), and destroys those that have lost their other end. Unlike
// /proc/net/tcp it walks only the tables that are asked for: looking for servers does not
// touch that of connections, which has a slot for every few kilobytes of memory, empty or
// not. It also tells on which files unix sockets listen. By ctnetlink it lists the
// connections that netfilter tracks, and those whose destination it translates, and has it
// forget some.
package sockdiag

import (
	"errors"
	"fmt"
	"io"
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
	// Connections are those that are open, that begin and that end, without what is
	// only remembered (TIME-WAIT).
	Connections = Open | 1<<netlink.TCP_SYN_SENT | 1<<netlink.TCP_SYN_RECV |
		1<<netlink.TCP_LAST_ACK | 1<<netlink.TCP_CLOSING
)

// Socket is what the kernel tells of one.
type Socket struct {
	// Local is its own address, Remote that of its peer; IPv4 on a socket of IPv6, which
	// the kernel lists as 4-in-6, is IPv4.
	Local, Remote netip.AddrPort
	// Unanswered is how many times in a row the kernel has sent something again, or has
	// asked the peer whether it is there, without an answer.
	Unanswered int
	// Heard is how long ago it got a packet, to the millisecond; negative if that was
	// not asked for, or not told.
	Heard time.Duration

	family uint8
	id     [idLen]byte
}

const (
	// Offsets and sizes of struct inet_diag_msg (include/uapi/linux/inet_diag.h)
	// and of struct tcp_info (include/uapi/linux/tcp.h).
	diagFamily, diagRetrans, diagID, diagLen   = 0, 3, 4, 72
	infoLastDataRecv, infoLastAckRecv, infoLen = 52, 56, 60
	// idLen is the size of struct inet_diag_sockid: two ports, two addresses of 16
	// bytes, an interface and a cookie.
	idLen                     = 48
	idLocalPort, idRemotePort = 0, 2
	idLocal, idRemote         = 4, 20
	// diagInfo is the attribute with struct tcp_info (INET_DIAG_INFO).
	diagInfo = 2
	// destroy is the request SOCK_DESTROY (include/uapi/linux/sock_diag.h, Linux 4.5).
	destroy = 21
	// requestBatch is how many are destroyed by one call: their answers fit into the
	// buffer of a socket.
	requestBatch = 32
)

// request is struct inet_diag_req_v2: all sockets of a family in some states, or the
// one with the ID.
type request struct {
	family uint8
	states States
	heard  bool
	id     [idLen]byte
}

// Len is the size of the request in bytes.
func (request) Len() int { return 8 + idLen }

// Serialize returns the request as the kernel wants it.
func (r request) Serialize() []byte {
	b := make([]byte, r.Len())
	b[0], b[1] = r.family, unix.IPPROTO_TCP
	if r.heard {
		b[2] = 1 << (diagInfo - 1)
	}
	nl.NativeEndian().PutUint32(b[4:], uint32(r.states))
	copy(b[8:], r.id[:])
	return b
}

// TCP calls each for every TCP socket in one of the states; heard asks for Socket.Heard
// too. Sockets of other network namespaces, such as those of containers, are not seen. A
// list that changed while it was read is as good as any.
func TCP(states States, heard bool, each func(Socket)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		req.AddData(request{family: family, states: states, heard: heard})
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

// Destroy ends connections that TCP has listed, until the time is over, and tells how many:
// their programs get ECONNABORTED, their peers a reset. It needs CAP_NET_ADMIN, and a kernel
// with CONFIG_INET_DIAG_DESTROY, see Undestroyable. That a connection has ended meanwhile is a
// success.
func Destroy(sockets []Socket, end time.Time) (n int, err error) {
	n, err = exchange(unix.NETLINK_INET_DIAG, len(sockets), end, func(i int) *nl.NetlinkRequest {
		req := nl.NewNetlinkRequest(destroy, unix.NLM_F_ACK)
		req.AddData(request{family: sockets[i].family, states: Connections, id: sockets[i].id})
		return req
	})
	if err != nil {
		err = fmt.Errorf("destroy TCP sockets: %w", err)
	}
	return n, err
}

// exchange sends so many requests, until the time is over, and tells how many were answered.
// That something has gone meanwhile is a success.
func exchange(protocol, count int, end time.Time, ask func(i int) *nl.NetlinkRequest) (n int, err error) {
	if count == 0 {
		return 0, nil
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return 0, fmt.Errorf("open: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 4096)
	for n < count && time.Now().Before(end) {
		some := min(count-n, requestBatch)
		var requests []byte
		for i := range some {
			requests = append(requests, ask(n+i).Serialize()...)
		}
		// The kernel does it, and answers, before it returns.
		if err := unix.Sendto(fd, requests, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return n, fmt.Errorf("send: %w", err)
		}
		for range some {
			if err := answer(fd, buf); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// answer reads what became of one.
func answer(fd int, buf []byte) error {
	got, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
	if err != nil {
		return err
	}
	if got < unix.SizeofNlMsghdr+4 {
		return io.ErrUnexpectedEOF
	}
	switch errno := unix.Errno(-int32(nl.NativeEndian().Uint32(buf[unix.SizeofNlMsghdr:]))); errno {
	case 0, unix.ENOENT, unix.ESTALE:
		return nil
	default:
		return errno
	}
}

// Undestroyable is what this kernel lacks for Destroy; empty if nothing. It asks for a
// connection that cannot be there.
func Undestroyable() string {
	switch _, err := Destroy([]Socket{{family: unix.AF_INET}}, time.Now().Add(time.Minute)); {
	case errors.Is(err, unix.EOPNOTSUPP):
		return "the kernel has no CONFIG_INET_DIAG_DESTROY"
	case err != nil:
		return err.Error()
	}
	return ""
}

func parse(m []byte) (Socket, bool) {
	if len(m) < diagLen {
		return Socket{}, false
	}
	s := Socket{family: m[diagFamily], Unanswered: int(m[diagRetrans]), id: [idLen]byte(m[diagID:])}
	s.Local, s.Remote = s.end(idLocal, idLocalPort), s.end(idRemote, idRemotePort)
	s.Heard = lastHeard(m[diagLen:])
	return s, true
}

// end reads an address and a port of the ID.
func (s *Socket) end(at, port int) netip.AddrPort {
	a := netip.AddrFrom16([16]byte(s.id[at:])).Unmap()
	if s.family == unix.AF_INET {
		a = netip.AddrFrom4([4]byte(s.id[at:]))
	}
	return netip.AddrPortFrom(a, uint16(s.id[port])<<8|uint16(s.id[port+1]))
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
