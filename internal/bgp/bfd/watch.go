package bfd

import (
	"container/heap"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// watch is a session as the thread sees it.
type watch struct {
	key    Key
	minTTL uint8
	m      *machine
	out    outbound

	in, sent uint64
	drops    Drops
	refused  Reason // why the machine discarded the last packet; accepted: it did not
	trouble  error  // of the last attempt to send; nil: it worked
	state    State  // as last reported

	deadline time.Time // in the queue, if slot >= 0
	slot     int
	second   bool // the end of the Detection Time waits for a second look
	heard    bool // it is among those that loop.answer goes through
}

// port is the socket that its packets come in by.
func (w *watch) port() port { return port{w.key.Peer.Is6(), w.key.Multihop} }

// prepare fills in where packets go.
func (w *watch) prepare(index int) {
	w.out.address(w.key.Peer, w.key.Local, w.port().number(), index)
}

// expects tells whether a packet may be of this session, but for its
// discriminator: RFC 5881 section 3 and 5, RFC 5883 section 4. index is that of
// the interface of the session, 0 for any.
func (w *watch) expects(d *datagram, multihop bool, index int) Reason {
	switch {
	case w.key.Multihop != multihop, w.key.Peer != d.from, w.key.Local.IsValid() && w.key.Local != d.to:
		return DropAddress
	case w.key.Interface != "" && index != d.index:
		return DropInterface
	case d.ttl < w.minTTL:
		return DropTTL
	}
	return accepted
}

// queue orders sessions by deadline.
type queue []*watch

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].deadline.Before(q[j].deadline) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].slot, q[j].slot = i, j
}

func (q *queue) Push(x any) {
	w := x.(*watch)
	w.slot = len(*q)
	*q = append(*q, w)
}

func (q *queue) Pop() any {
	old := *q
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	w.slot = -1
	return w
}

// set gives w a deadline; the zero time takes it out of the queue.
func (q *queue) set(w *watch, t time.Time) {
	w.deadline = t
	switch {
	case t.IsZero() && w.slot >= 0:
		heap.Remove(q, w.slot)
	case t.IsZero():
	case w.slot >= 0:
		heap.Fix(q, w.slot)
	default:
		heap.Push(q, w)
	}
}

// table finds the session of a packet.
type table struct {
	byDiscr map[uint32]*watch
	byPeer  map[netip.Addr][]*watch
}

func (t *table) add(w *watch) {
	t.byDiscr[w.m.localDiscr] = w
	t.byPeer[w.key.Peer] = append(t.byPeer[w.key.Peer], w)
}

func (t *table) remove(w *watch) {
	delete(t.byDiscr, w.m.localDiscr)
	t.byPeer[w.key.Peer] = slices.DeleteFunc(slices.Clone(t.byPeer[w.key.Peer]), func(o *watch) bool { return o == w })
	if len(t.byPeer[w.key.Peer]) == 0 {
		delete(t.byPeer, w.key.Peer)
	}
}

// find is RFC 5880 section 6.3: by Your Discriminator, else by where the packet
// came from; the session that names most wins. With a reason to drop the
// packet, the session is the one to count it for, if there is one.
func (t *table) find(p *Packet, d *datagram, multihop bool, index func(*watch) int) (*watch, Reason) {
	if p.YourDiscr != 0 {
		w := t.byDiscr[p.YourDiscr]
		if w == nil {
			return nil, DropNoSession
		}
		return w, w.expects(d, multihop, index(w))
	}
	var best, near *watch
	why := DropNoSession
	for _, w := range t.byPeer[d.from] {
		if w.key.Multihop != multihop {
			continue
		}
		switch r := w.expects(d, multihop, index(w)); {
		case r == accepted && (best == nil || w.key.names() > best.key.names()):
			best = w
		case r != accepted && (near == nil || r == DropTTL):
			near, why = w, r
		}
	}
	if best != nil {
		return best, accepted
	}
	return near, why
}

// names counts what a session names beside its peer.
func (k *Key) names() (n int) {
	if k.Local.IsValid() {
		n++
	}
	if k.Interface != "" {
		n++
	}
	return n
}

// interfaces remembers the index of interfaces. One that was made anew has
// another index, which is noticed when something does not fit.
type interfaces map[string]*known

type known struct {
	index int
	asked time.Time
}

// index of the interface; 0 if there is none. again asks the kernel once more,
// but once in a second at most.
func (n interfaces) index(name string, fd int, now time.Time, again bool) int {
	if name == "" {
		return 0
	}
	k := n[name]
	if k == nil {
		k = &known{}
		n[name] = k
	}
	if k.asked.IsZero() || again && now.Sub(k.asked) >= time.Second {
		k.asked, k.index = now, 0
		if ifr, err := unix.NewIfreq(name); err == nil && unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr) == nil {
			k.index = int(ifr.Uint32())
		}
	}
	return k.index
}
