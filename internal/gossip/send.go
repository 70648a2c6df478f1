package gossip

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/model"
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
func (g *Gossip) tell(part wireRecord, also []model.NodeName) {
	slices.SortStableFunc(part.Entries, func(a, b wireEntry) int { return rank(a) - rank(b) })
	msgs := chunks(part)
	for _, to := range g.concerned(part, also) {
		g.sendRecord(to, part, msgs, g.sendNow)
	}
	g.broadcast(part, msgs)
}

// rank puts what others wait for first: claims.
func rank(e wireEntry) int {
	if e.Epoch != 0 {
		return 0
	}
	return 1
}

// concerned are all members of a small group, those included that memberlist
// has just given up: it may be wrong about a node whose link loses packets. In a large one: those that
// claim one of the VIPs, are to take it, have a Machine that drains, or are named in
// also.
func (g *Gossip) concerned(part wireRecord, also []model.NodeName) []*memberlist.Node {
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
		for _, c := range g.table.claims[part.Entries[i].Addr] {
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
	for name, n := range g.table.nodes {
		if !n.alive() && (n.head.Left || now.Sub(n.goneSince) > justGone) {
			continue
		}
		if to := endpoint(name, n.addr); to != nil {
			out = append(out, to)
		}
	}
	return out
}

// sendRecord sends a record, given with its chunks, by datagrams if it is small.
func (g *Gossip) sendRecord(to *memberlist.Node, r wireRecord, msgs [][]byte, send func(*memberlist.Node, []byte)) {
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
		if err := g.list.SendReliable(to, encode(typeState, r)); err != nil {
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
		if n, _ := g.outbox.stats(); n == 0 {
			return
		}
	}
}

// broadcast queues a record, given with its chunks, for gossip.
func (g *Gossip) broadcast(r wireRecord, msgs [][]byte) {
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
	n := g.table.nodes[name]
	if n == nil {
		return nil
	}
	return endpoint(name, n.addr)
}

// appendAge begins a JSON object with the age of a record.
func appendAge(b []byte, age time.Duration) []byte {
	b = append(b, `{"g":`...)
	b = strconv.AppendInt(b, int64(age/time.Second), 10)
	return append(b, ',')
}

// sortedNames is for stable output.
func sortedNames[V any](m map[model.NodeName]V) []model.NodeName {
	names := make([]model.NodeName, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// addrPort joins a host's address and port without a zone and unmapped.
func addrPort(a netip.Addr, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(a.Unmap().WithZone(""), port)
}
