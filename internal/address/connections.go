package address

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// lingerPoll is how often connections are counted when a binding begins to linger.
	// A count lists every TCP socket of the host, and a binding may linger for days.
	lingerPoll = 250 * time.Millisecond
	// lingerShare is how much of the time that it has lingered may pass until the next
	// count, lingerRest at most.
	lingerShare = 40
	lingerRest  = 5 * time.Second
	// lively is how recently a connection must have got a packet to count: one
	// that gets none has moved to another node, or has ended without saying so.
	lively = time.Second

	// Offsets and sizes of struct inet_diag_msg (include/uapi/linux/inet_diag.h)
	// and of struct tcp_info (include/uapi/linux/tcp.h).
	diagFamily, diagSource, diagLen            = 0, 8, 72
	infoLastDataRecv, infoLastAckRecv, infoLen = 52, 56, 60
	// diagInfo is the attribute with struct tcp_info (INET_DIAG_INFO).
	diagInfo = 2
	// openStates are those in which data may still arrive or leave.
	openStates = 1<<netlink.TCP_ESTABLISHED | 1<<netlink.TCP_CLOSE_WAIT |
		1<<netlink.TCP_FIN_WAIT1 | 1<<netlink.TCP_FIN_WAIT2
)

// diagRequest is struct inet_diag_req_v2 without a socket: all sockets of a
// family in openStates, with their struct tcp_info.
type diagRequest struct{ family uint8 }

// Len is the size of the request in bytes.
func (diagRequest) Len() int { return 56 }

// Serialize returns the request as the kernel wants it.
func (r diagRequest) Serialize() []byte {
	b := make([]byte, r.Len())
	b[0], b[1], b[2] = r.family, unix.IPPROTO_TCP, 1<<(diagInfo-1)
	nl.NativeEndian().PutUint32(b[4:], openStates)
	return b
}

// tally is how many connections to an address are open, and how many of them are
// lively.
type tally struct{ open, lively int }

// unknown stands for what could not be counted, or was not.
var unknown = tally{-1, -1}

// countConnections adds up, for each address in counts, the open TCP connections
// to it, and those that got a packet within the last second. IPv4 connections of dual stack
// listeners, which the kernel lists as 4-in-6, count as IPv4. Only sockets of
// this network namespace are seen: connections that are forwarded to a container
// are not.
func countConnections(counts map[netip.Addr]tally) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		req.AddData(diagRequest{family})
		err := req.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(m []byte) bool {
			local, ok := connectionTo(m)
			if !ok {
				return true
			}
			if t, asked := counts[local]; asked {
				t.open++
				if isLively(m) {
					t.lively++
				}
				counts[local] = t
			}
			return true
		})
		// A dump that changed meanwhile is as good an estimate as any.
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("connections: count: %w", err)
		}
	}
	return nil
}

// connectionTo returns the local address of a connection.
func connectionTo(m []byte) (local netip.Addr, ok bool) {
	if len(m) < diagLen {
		return local, false
	}
	if m[diagFamily] == unix.AF_INET {
		return netip.AddrFrom4([4]byte(m[diagSource:])), true
	}
	return netip.AddrFrom16([16]byte(m[diagSource:])).Unmap(), true
}

// isLively tells whether a connection got a packet lately.
func isLively(m []byte) bool {
	attrs, err := nl.ParseRouteAttr(m[diagLen:])
	if err != nil {
		return false
	}
	for _, a := range attrs {
		if a.Attr.Type != diagInfo || len(a.Value) < infoLen {
			continue
		}
		order := nl.NativeEndian()
		ago := min(order.Uint32(a.Value[infoLastDataRecv:]), order.Uint32(a.Value[infoLastAckRecv:]))
		return time.Duration(ago)*time.Millisecond < lively
	}
	return false
}

// recount counts for the holds that linger and were not counted yet, and starts
// the polling; d.mu is held.
func (d *Driver) recount() {
	if counts := d.lingering(true); len(counts) > 0 {
		signal(d.linger)
		d.note(counts, countConnections(counts))
	}
}

// pollAfter is how long to wait for the next count of what has lingered for so long.
func pollAfter(lingered time.Duration) time.Duration {
	return min(max(lingerPoll, lingered/lingerShare), lingerRest)
}

// poll counts for every hold that lingers and tells when to do so again; zero if there
// is none.
func (d *Driver) poll() (again time.Duration) {
	d.mu.Lock()
	counts := d.lingering(false)
	for _, h := range d.list { // the newest one says how soon
		if h.want.Linger {
			if next := pollAfter(time.Since(h.lingers)); again == 0 || next < again {
				again = next
			}
		}
	}
	d.mu.Unlock()
	if len(counts) == 0 {
		return 0
	}
	err := countConnections(counts)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.note(counts, err) {
		d.fire()
	}
	return again
}

// lingering returns a zero for every address whose connections are to be counted,
// or only for those that some hold has no count of.
func (d *Driver) lingering(uncounted bool) map[netip.Addr]tally {
	counts := make(map[netip.Addr]tally)
	for _, h := range d.list {
		if h.want.Linger && (!uncounted || h.connections == unknown) {
			counts[h.want.Addr] = tally{}
		}
	}
	return counts
}

// note takes over counts and tells whether any changed. What could not be
// counted is unknown: -1. A connection is one to the address, whichever interface
// its packets come in by, so that both holds of an address get the same.
func (d *Driver) note(counts map[netip.Addr]tally, err error) (changed bool) {
	if err != nil {
		d.stats.errors.Add(1)
		d.log.Debug("cannot count connections", "err", err)
	}
	for _, h := range d.list {
		n, counted := counts[h.want.Addr]
		if !counted || !h.want.Linger {
			continue
		}
		if err != nil {
			n = unknown
		}
		changed = changed || h.connections != n
		h.connections = n
	}
	return changed
}
