package sockdiag

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What a message of ctnetlink has (include/uapi/linux/netfilter/nfnetlink_conntrack.h).
const (
	ctGet = 1<<8 | 1 // NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET

	ctOriginal, ctStatus, ctProtoInfo = 1, 3, 4
	ctAddresses, ctProto              = 1, 2 // of a tuple
	ctTo4, ctTo6                      = 2, 4 // of the addresses
	ctProtoNumber                     = 1
	ctTCP, ctTCPState                 = 1, 1 // of ctProtoInfo, and in that

	// translated is the bit of a status that tells a destination that was changed
	// (IPS_DST_NAT).
	translated = 1 << 5
	// The states of a TCP connection in which data may still come
	// (include/uapi/linux/netfilter/nf_conntrack_tcp.h).
	ctSYNSent, ctLastACK = 1, 6

	nfgenmsg = 4 // its size
)

// Translated calls each with the destination, as the client has it, of every TCP connection
// of this network namespace that connection tracking knows, that is not at its end, and
// whose destination it translates. It reads the whole table of both families: about
// half a microsecond of CPU time for each entry.
func Translated(each func(netip.Addr)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := nl.NewNetlinkRequest(ctGet, unix.NLM_F_DUMP)
		req.AddData(&nl.Nfgenmsg{NfgenFamily: family})
		err := req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
			if a, ok := destination(m); ok {
				each(a)
			}
			return true
		})
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("list tracked connections: %w", err)
		}
	}
	return nil
}

// destination is that of a message about a TCP connection as Translated wants it.
func destination(m []byte) (to netip.Addr, ok bool) {
	if len(m) < nfgenmsg {
		return to, false
	}
	m = m[nfgenmsg:]
	status, tuple := attribute(m, ctStatus), attribute(m, ctOriginal)
	state := attribute(attribute(attribute(m, ctProtoInfo), ctTCP), ctTCPState)
	proto := attribute(attribute(tuple, ctProto), ctProtoNumber)
	if len(status) < 4 || status[3]&translated == 0 || len(proto) < 1 || proto[0] != unix.IPPROTO_TCP ||
		len(state) < 1 || state[0] < ctSYNSent || state[0] > ctLastACK {
		return to, false
	}
	addresses := attribute(tuple, ctAddresses)
	if to, ok = netip.AddrFromSlice(attribute(addresses, ctTo4)); !ok {
		to, ok = netip.AddrFromSlice(attribute(addresses, ctTo6))
	}
	return to, ok
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
