package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What a message of ctnetlink has (include/uapi/linux/netfilter/nfnetlink_conntrack.h).
const (
	ctGet    = 1<<8 | 1 // NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET
	ctDelete = 1<<8 | 2 // IPCTNL_MSG_CT_DELETE

	ctOriginal, ctReply, ctStatus, ctProtoInfo = 1, 2, 3, 4
	ctID, ctZone                               = 12, 18
	ctAddresses, ctProto                       = 1, 2       // of a tuple
	ctFrom4, ctTo4, ctFrom6, ctTo6             = 1, 2, 3, 4 // of the addresses
	ctProtoNumber, ctFromPort, ctToPort        = 1, 2, 3
	ctTCP, ctTCPState                          = 1, 1 // of ctProtoInfo, and in that

	// translated is the bit of a status that tells a destination that was changed
	// (IPS_DST_NAT).
	translated = 1 << 5
	// translatedSource is the same of a source (IPS_SRC_NAT).
	translatedSource = 1 << 4
	// answered is the bit of a status that tells a packet of the other direction
	// (IPS_SEEN_REPLY), and assured that of a handshake that the client has finished, after
	// which the kernel gives the entry up for no other one (IPS_ASSURED).
	answered = 1 << 1
	assured  = 1 << 2
	// The states of a TCP connection in which data may still come
	// (include/uapi/linux/netfilter/nf_conntrack_tcp.h).
	ctSYNSent, ctLastACK = 1, 6

	nfgenmsg = 4 // its size
)

// Flow is a TCP connection that connection tracking knows.
type Flow struct {
	// From and To are as the client has them.
	From, To netip.AddrPort
	// Seen is the client as the server has it, once its source was translated.
	Seen netip.AddrPort
	// Translated: To is translated, so that the server is somebody else.
	Translated bool
}

// Tracked calls each for every TCP connection of this network namespace that connection
// tracking knows, that is not at its end, and whose destination, as the client has it, is
// one of those asked for. It reads the whole table of both families: about half a
// microsecond of CPU time for each entry.
func Tracked(asked func(netip.Addr) bool, each func(Flow)) error {
	return tracked(func(m []byte) {
		original := attribute(m, ctOriginal)
		if to, ok := address(original, ctTo4, ctTo6); !ok || !asked(to) || !open(m) {
			return
		}
		reply := attribute(m, ctReply)
		f := Flow{Translated: isTranslated(m)}
		f.From, f.To, f.Seen = source(original), destination(original), destination(reply)
		each(f)
	})
}

// Translated calls each with the destination, as the client has it, of every TCP connection
// that is not at its end, and whose destination is translated; and with the source, as the
// other end has it, of every one whose source is: the other end says what it has to say there. It
// costs what Tracked does.
func Translated(each func(netip.Addr)) error {
	return tracked(func(m []byte) {
		to, from := isTranslated(m), hasStatus(m, translatedSource)
		if !to && !from || !open(m) {
			return
		}
		if a, ok := address(attribute(m, ctOriginal), ctTo4, ctTo6); ok && to {
			each(a)
		}
		if a, ok := address(attribute(m, ctReply), ctTo4, ctTo6); ok && from {
			each(a)
		}
	})
}

// Forwarded calls each for every connection of any protocol whose destination is translated. Those
// of TCP that are at their end are among them. It costs what Tracked does.
func Forwarded(each func(Entry)) error {
	return tracked(func(m []byte) {
		if isTranslated(m) {
			each(entry(m))
		}
	})
}

// Entry is what connection tracking knows of a connection of any protocol, at its end or not.
type Entry struct {
	Protocol uint8
	// From and To are as the client has them, Server is who answers: To, unless that is
	// translated.
	From, To, Server netip.AddrPort
	// Seen is From as Server has it, once that was translated.
	Seen netip.AddrPort
	// Translated: To is translated. Answered: Server has answered. Assured: then From has spoken again.
	Translated, Answered, Assured bool
	// Ended: a connection of TCP at its end, in which no more data comes.
	Ended bool
}

// Forget deletes the entries of this network namespace that are asked for, and tells how
// many, until the time is over. The next packet of such a connection counts as the first. It
// reads the whole table, as Tracked does, and needs CAP_NET_ADMIN. That an entry has ended
// meanwhile is a success.
func Forget(asked func(Entry) bool, end time.Time) (n int, err error) {
	var requests []*nl.NetlinkRequest
	err = tracked(func(m []byte) {
		if e := entry(m); asked(e) {
			requests = append(requests, forget(e.To.Addr(), m))
		}
	})
	if err != nil {
		return 0, err
	}
	n, err = exchange(unix.NETLINK_NETFILTER, len(requests), end, func(i int) *nl.NetlinkRequest { return requests[i] })
	if err != nil {
		err = fmt.Errorf("forget tracked connections: %w", err)
	}
	return n, err
}

func entry(m []byte) Entry {
	original, reply := attribute(m, ctOriginal), attribute(m, ctReply)
	e := Entry{From: source(original), To: destination(original), Server: source(reply), Seen: destination(reply), Translated: isTranslated(m), Answered: hasStatus(m, answered), Assured: hasStatus(m, assured)}
	if number := attribute(attribute(original, ctProto), ctProtoNumber); len(number) > 0 {
		e.Protocol = number[0]
		e.Ended = e.Protocol == unix.IPPROTO_TCP && !open(m)
	}
	return e
}

// forget asks for the end of an entry. The number of the entry makes sure that it is the
// same one.
func forget(of netip.Addr, m []byte) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(ctDelete, unix.NLM_F_ACK)
	family := uint8(unix.AF_INET6)
	if of.Is4() {
		family = unix.AF_INET
	}
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family})
	req.AddData(nl.NewRtAttr(ctOriginal|unix.NLA_F_NESTED, slices.Clone(attribute(m, ctOriginal))))
	for _, kind := range []uint16{ctID, ctZone} {
		if value := attribute(m, kind); value != nil {
			req.AddData(nl.NewRtAttr(int(kind), slices.Clone(value)))
		}
	}
	return req
}

// source and destination are the ends of a tuple of either family.
func source(tuple []byte) netip.AddrPort      { return end(tuple, ctFrom4, ctFrom6, ctFromPort) }
func destination(tuple []byte) netip.AddrPort { return end(tuple, ctTo4, ctTo6, ctToPort) }

// tracked calls each with the attributes of every entry of connection tracking: of both families at once,
// since the kernel goes through the entries of all network namespaces for each list, which takes longer
// than to read those of one.
func tracked(each func([]byte)) error {
	req := nl.NewNetlinkRequest(ctGet, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC})
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		if len(m) >= nfgenmsg {
			each(m[nfgenmsg:])
		}
		return true
	})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("list tracked connections: %w", err)
	}
	return nil
}

func isTranslated(m []byte) bool { return hasStatus(m, translated) }

// hasStatus tells whether a bit is set in the lowest byte of the status of an entry.
func hasStatus(m []byte, bit byte) bool {
	status := attribute(m, ctStatus)
	return len(status) >= 4 && status[3]&bit != 0
}

// open tells whether an entry is a TCP connection in which data may still come.
func open(m []byte) bool {
	proto := attribute(attribute(attribute(m, ctOriginal), ctProto), ctProtoNumber)
	state := attribute(attribute(attribute(m, ctProtoInfo), ctTCP), ctTCPState)
	return len(proto) >= 1 && proto[0] == unix.IPPROTO_TCP && len(state) >= 1 && state[0] >= ctSYNSent && state[0] <= ctLastACK
}

// end is one end of a tuple, by the attributes of its address and its port.
func end(tuple []byte, is4, is6, port uint16) netip.AddrPort {
	a, _ := address(tuple, is4, is6)
	number := attribute(attribute(tuple, ctProto), port)
	if len(number) < 2 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(number))
}

// address is one of the addresses of a tuple.
func address(tuple []byte, is4, is6 uint16) (a netip.Addr, ok bool) {
	addresses := attribute(tuple, ctAddresses)
	if a, ok = netip.AddrFromSlice(attribute(addresses, is4)); !ok {
		a, ok = netip.AddrFromSlice(attribute(addresses, is6))
	}
	return a, ok
}

// attribute returns the value of an attribute in a list; nil if it has none. It allocates
// nothing: there may be hundreds of thousands of lists.
func attribute(b []byte, kind uint16) []byte {
	order := nl.NativeEndian()
	for len(b) >= unix.SizeofNlAttr {
		size, t := int(order.Uint16(b)), order.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)
		if size < unix.SizeofNlAttr || size > len(b) {
			return nil
		}
		if t == kind {
			return b[unix.SizeofNlAttr:size]
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil
}
