package gossip

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/gossip/beat"
	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

// justGone is for how long a node that memberlist believes dead is still told.
const justGone = time.Minute

// outgoing is a message of Run, which must not wait for a socket.
type outgoing struct {
	to  *memberlist.Node
	msg []byte
}

// cast is a message to be gossiped. One about a single thing replaces an older
// one about the same.
type cast struct {
	name string
	msg  []byte
}

func (c *cast) Name() string                          { return c.name }
func (c *cast) Message() []byte                       { return c.msg }
func (c *cast) Finished()                             {}
func (c *cast) Invalidates(memberlist.Broadcast) bool { return false }

// batch is a message about several things; it replaces nothing.
type batch struct{ msg []byte }

func (b *batch) Message() []byte                       { return b.msg }
func (b *batch) Finished()                             {}
func (b *batch) Invalidates(memberlist.Broadcast) bool { return false }
func (b *batch) UniqueBroadcast()                      {}

// tell spreads a part of the own record: to the nodes that it concerns at once,
// to all others by gossip. also names nodes that it concerns besides.
func (g *Gossip) tell(part record.Record, also []model.NodeName) {
	slices.SortStableFunc(part.Entries, func(a, b record.Entry) int { return rank(a) - rank(b) })
	msgs := record.Chunks(g.own.Format(), part)
	for _, to := range g.concerned(part, also) {
		g.sendRecord(to, part, msgs, g.sendNow)
	}
	g.broadcast(part, msgs)
}

// rank puts what others wait for first: claims.
func rank(e record.Entry) int {
	if e.Epoch != 0 {
		return 0
	}
	return 1
}

// concerned are all members of a small group, those included that memberlist
// has just given up: it may be wrong about a node whose link loses packets. In a large one: those that
// claim one of the VIPs, are to take it, have a Machine that drains, or are named in
// also.
func (g *Gossip) concerned(part record.Record, also []model.NodeName) []*memberlist.Node {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.members.Load() <= direct+1 {
		return g.small(time.Now())
	}
	names := map[model.NodeName]bool{}
	for _, name := range also {
		names[name] = true
	}
	for i := range part.Entries {
		for _, c := range g.table.Claims(part.Entries[i].Addr) {
			names[c.Owner] = true
		}
		names[model.NodeName(part.Entries[i].To)] = true
	}
	if part.Machines != nil {
		for _, d := range part.Machines.Drains {
			names[model.NodeName(d.Node)] = true
		}
	}
	var out []*memberlist.Node
	for name := range names {
		if to := g.addrOf(name); to != nil {
			out = append(out, to)
		}
	}
	return out
}

// small are the nodes of a small group that are told everything. The lock is
// held.
func (g *Gossip) small(now time.Time) []*memberlist.Node {
	var out []*memberlist.Node
	for n := range g.table.Nodes() {
		if !n.Alive() && (n.Left() || now.Sub(n.GoneSince) > justGone) {
			continue
		}
		if to := beat.Endpoint(n.Name, n.Addr); to != nil {
			out = append(out, to)
		}
	}
	return out
}

// sendRecord sends a record, given with its record.Chunks, by datagrams if it is small.
func (g *Gossip) sendRecord(to *memberlist.Node, r record.Record, msgs [][]byte, send func(*memberlist.Node, []byte)) {
	if len(msgs) <= manyParts {
		for _, m := range msgs {
			send(to, m)
		}
		return
	}
	select {
	case g.streams <- struct{}{}:
	default:
		g.count.streams.Add(1)
		return // the next full exchange brings it
	}
	started := g.spawn(func() {
		defer func() { <-g.streams }()
		if err := g.list.SendReliable(to, r.Encode(g.own.Format())); err != nil {
			g.count.unsent.Add(1)
		}
	})
	if !started {
		<-g.streams
	}
}

// spawn runs f unless the end has begun; the end waits for it.
func (g *Gossip) spawn(f func()) bool {
	g.spawnMu.Lock()
	defer g.spawnMu.Unlock()
	if g.ctx.Err() != nil {
		return false
	}
	g.wg.Go(f)
	return true
}

func (g *Gossip) sendNow(to *memberlist.Node, msg []byte) {
	if err := g.list.SendBestEffort(to, msg); err != nil {
		g.count.unsent.Add(1)
	}
}

func (g *Gossip) sendLater(to *memberlist.Node, msg []byte) {
	if to != nil {
		g.outbox.push(outgoing{to, msg})
	}
}

// deliver sends what Run wants sent.
func (g *Gossip) deliver() {
	for {
		m, ok := g.outbox.pop()
		if ok {
			g.sendNow(m.to, m.msg)
			continue
		}
		select {
		case <-g.post:
		case <-g.ctx.Done():
			return
		}
	}
}

// drain gives what is queued a moment to get out.
func (g *Gossip) drain(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if g.outbox.length() == 0 {
			return
		}
	}
}

// broadcast queues a record, given with its record.Chunks, for gossip.
func (g *Gossip) broadcast(r record.Record, msgs [][]byte) {
	for i, m := range msgs {
		if i >= 64 {
			g.count.casts.Add(uint64(len(msgs) - i)) // full exchanges bring the rest
			break
		}
		var b memberlist.Broadcast = &batch{m}
		if len(msgs) == 1 && len(r.Entries) == 0 && r.Head == nil && r.Machines != nil {
			b = &cast{r.Name + "/machines", m}
		} else if len(msgs) == 1 && len(r.Entries) == 0 {
			b = &cast{r.Name, m}
		} else if len(msgs) == 1 && r.Head == nil && len(r.Entries) == 1 {
			b = &cast{r.Name + "/" + r.Entries[0].Addr.String(), m}
		}
		g.casts.QueueBroadcast(b)
	}
	if g.members.Load() <= direct+1 {
		// All have been told at once. What would wait longer than until the next full
		// exchange mends no loss, and is read by everybody four times over.
		g.casts.Prune(fewQueued)
	} else if over := g.casts.NumQueued() - maxQueued; over > 0 {
		g.casts.Prune(maxQueued)
		g.count.casts.Add(uint64(over))
	}
}

// addrOf is the last known address of a node, nil if there is none. The lock is
// held.
func (g *Gossip) addrOf(name model.NodeName) *memberlist.Node {
	n := g.table.Node(name)
	if n == nil {
		return nil
	}
	return beat.Endpoint(name, n.Addr)
}

// addresses are the last known ones of the targets, whether memberlist believes
// them alive or not.
func (g *Gossip) addresses(targets []model.HeartbeatTarget) []netip.AddrPort {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]netip.AddrPort, len(targets))
	for i, t := range targets {
		if n := g.table.Node(t.Node); n != nil {
			out[i] = n.Addr
		}
	}
	return out
}

// addrPort joins a host's address and port without a zone and unmapped.
func addrPort(a netip.Addr, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(a.Unmap().WithZone(""), port)
}

// queue is a bounded mailbox between a callback that must not block and a
// goroutine that reads. When it is full the oldest message goes: it is the one
// most likely to be outdated.
type queue[T any] struct {
	mu       sync.Mutex
	items    []T
	max      int
	bytes    int
	maxBytes int
	size     func(T) int
	dropped  uint64
	wake     chan<- struct{}
}

func newQueue[T any](limit, maxBytes int, size func(T) int, wake chan<- struct{}) *queue[T] {
	return &queue[T]{max: limit, maxBytes: maxBytes, size: size, wake: wake}
}

func (q *queue[T]) push(x T) {
	q.mu.Lock()
	q.items = append(q.items, x)
	q.bytes += q.size(x)
	for len(q.items) > q.max || q.bytes > q.maxBytes && len(q.items) > 1 {
		q.shift()
		q.dropped++
	}
	q.mu.Unlock()
	wake.Up(q.wake)
}

func (q *queue[T]) pop() (T, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		var none T
		return none, false
	}
	return q.shift(), true
}

// shift takes the oldest. The array moves on with append, so what it holds is
// released after at most one more length.
func (q *queue[T]) shift() T {
	var none T
	x := q.items[0]
	q.items[0] = none
	q.items = q.items[1:]
	q.bytes -= q.size(x)
	return x
}

func (q *queue[T]) stats() (length int, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items), q.dropped
}

func (q *queue[T]) length() int {
	n, _ := q.stats()
	return n
}
