// Package rtnetlink asks the kernel about links, addresses and routes, and reads what it says.
package rtnetlink

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// answerTimeout bounds the wait for an answer. The kernel works while the request is
	// being sent, so that answers are there at once or never.
	answerTimeout = 2 * time.Second
	// dumpTries bounds how often a dump that a change has interrupted is repeated.
	dumpTries = 5
	// attributeType is the type of an attribute without its flags (NLA_TYPE_MASK).
	attributeType = 0x3fff
)

// Socket is a socket in the network namespace in which it was opened. It is not safe for
// concurrent use.
type Socket struct {
	nl.SocketHandle
	// Port is how the kernel names the socket when it tells others of changes.
	Port uint32
}

func Open() (*Socket, error) {
	sock, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: open: %w", err)
	}
	timeout := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	err = errors.Join(sock.SetReceiveTimeout(&timeout), sock.SetSendTimeout(&timeout))
	port, perr := sock.GetPid()
	if err = errors.Join(err, perr); err != nil {
		sock.Close()
		return nil, fmt.Errorf("rtnetlink: open: %w", err)
	}
	return &Socket{nl.SocketHandle{Socket: sock}, port}, nil
}

// Ask sends one request and hands each answer of a type on. If they changed meanwhile, all
// begins again, and begin is called again.
func (s *Socket) Ask(request, flags int, answer uint16, begin func(), take func(m []byte), parts ...nl.NetlinkRequestData) (err error) {
	for range dumpTries {
		begin()
		req := nl.NewNetlinkRequest(request, flags)
		req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: &s.SocketHandle}
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

// Messages sends one request and returns all answers of a type.
func (s *Socket) Messages(request, flags int, answer uint16, parts ...nl.NetlinkRequestData) (msgs [][]byte, err error) {
	err = s.Ask(request, flags, answer, func() { msgs = nil }, func(m []byte) { msgs = append(msgs, m) }, parts...)
	return msgs, err
}

// link asks for one interface. That is no dump, which might begin again.
func (s *Socket) link(parts ...nl.NetlinkRequestData) (msg []byte, err error) {
	err = s.Ask(unix.RTM_GETLINK, 0, unix.RTM_NEWLINK, func() {}, func(m []byte) { msg = m }, parts...)
	if err == nil && len(msg) < unix.SizeofIfInfomsg {
		err = unix.ENODEV
	}
	return msg, err
}

// LinkIndex finds an interface by name; the error is unix.ENODEV if there is none.
func (s *Socket) LinkIndex(name string) (int, error) {
	m, err := s.link(nl.NewIfInfomsg(unix.AF_UNSPEC), nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	if err != nil {
		return 0, err
	}
	return int(nl.DeserializeIfInfomsg(m).Index), nil
}

// LinkName finds the name of an interface, "#7" if it is gone.
func (s *Socket) LinkName(index int) string {
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(index)
	if m, err := s.link(info); err == nil {
		for kind, v := range Attributes(m[unix.SizeofIfInfomsg:]) {
			if kind == unix.IFLA_IFNAME {
				return strings.TrimRight(string(v), "\x00")
			}
		}
	}
	return fmt.Sprintf("#%d", index)
}

// receiveBuffer is asked for so that a burst of changes (a node that starts a hundred containers)
// does not overflow; an overflow costs no more than one look at the kernel.
const receiveBuffer = 1 << 20

// Subscribe opens a socket for messages of these groups.
func Subscribe(groups ...uint) (*nl.NetlinkSocket, error) {
	sock, err := nl.Subscribe(unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	_ = sock.SetReceiveBufferSize(receiveBuffer, true) // it may be capped
	return sock, nil
}

// Receive waits for messages of a subscription. It tells whether some were lost, since the buffer was full.
func Receive(sock *nl.NetlinkSocket) (msgs []syscall.NetlinkMessage, lost bool, err error) {
	for {
		msgs, _, err = sock.Receive()
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENOBUFS):
			return nil, true, nil
		case err != nil:
			return nil, false, fmt.Errorf("receive: %w", err)
		}
		return msgs, false, nil
	}
}

// Next splits the first attribute off; ok is false if there is no whole one. It takes no memory
// of its own: a look at ten thousand addresses takes sixty thousand of them.
func Next(b []byte) (kind uint16, value, rest []byte, ok bool) {
	if len(b) < unix.SizeofRtAttr {
		return 0, nil, nil, false
	}
	order := nl.NativeEndian()
	size := int(order.Uint16(b))
	if size < unix.SizeofRtAttr || size > len(b) {
		return 0, nil, nil, false
	}
	next := min((size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1), len(b))
	return order.Uint16(b[2:]) & attributeType, b[unix.SizeofRtAttr:size], b[next:], true
}

// Attributes are those of a message, up to the first one that is cut off. The library's own
// reader reads beyond the end of such a message.
func Attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for {
			kind, value, rest, ok := Next(b)
			if !ok || !yield(kind, value) {
				return
			}
			b = rest
		}
	}
}
