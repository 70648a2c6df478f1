package relay

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkTracked is the processor time of a packet of an open connection that is
// translated, from the client's socket to the server's, one at a time: without a ring, with
// one for its address, and with one for another. The batches of the three take turns, so
// that a busy machine is the same for all; -benchtime=100x has 100 of each.
func BenchmarkTracked(bm *testing.B) {
	const batch = 10_000
	l := newLabOf(bm, nodes[:3])
	l.translate(vip4, hostA)
	// The segments are out of the window, which the server answers twice a second.
	l.ExecOn(hostA, "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_be_liberal=1")
	c := l.mustDial(vip4)
	l.servedBy(c, hostA)
	from := c.LocalAddr().(*net.TCPAddr).AddrPort().Port()
	a := l.driver(hostA, discard())
	ring, other := ringAt(nodes[:3], 0, vip4), ringAt(nodes[:3], 0, vip4.Next())
	ring.Tracked, other.Tracked = true, true
	took := make(map[string][]float64) // ns
	for bm.Loop() {
		for _, arm := range []string{"without", "with", "another"} {
			switch arm {
			case "without":
				a.apply()
			case "with":
				a.relay(ring)
			default:
				a.relay(other)
			}
			took[arm] = append(took[arm], float64(l.send(vip4, from, batch))/batch)
		}
	}
	l.servedBy(c, hostA)
	bm.ReportMetric(0, "ns/op")
	for arm, all := range took {
		slices.Sort(all)
		bm.ReportMetric(all[len(all)/2], arm+"-ns/packet")
	}
}

// send sends as many ACKs from a port of the client, and returns the processor time of that
// in nanoseconds. What the kernels of the hosts do with them is part of it: it is done
// before the call returns.
func (l *lab) send(vip netip.Addr, from uint16, n int) (took int64) {
	l.Helper()
	l.sending(vip, func(send func([]byte) bool) {
		segment := l.ackFrom(vip, from)
		var begin, end unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &begin)
		for range n {
			if !send(segment) {
				return
			}
		}
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &end)
		took = end.Nano() - begin.Nano()
	})
	return took
}
