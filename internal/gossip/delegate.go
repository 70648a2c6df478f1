package gossip

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/model"
)

// delegate is what memberlist calls. Some of the calls come with memberlist's
// own lock held, so none of them blocks or calls memberlist: they copy what
// they are given into a mailbox and wake the goroutine of Run.
type delegate struct {
	g       *Gossip
	repeats repeats

	mu        sync.Mutex
	events    map[model.NodeName]event // newest for each node
	conflicts Mismatch
}

// event is the newest that memberlist said of a node.
type event struct {
	addr    netip.AddrPort
	present bool
}

// packet is a message with the time of its arrival.
type packet struct {
	msg []byte
	at  time.Time
}

// fullState is what one stream brought; exchange says that it was a push/pull, and
// body which.
type fullState struct {
	records  []wireRecord
	at       time.Time
	exchange bool
	body     repeat
}

var (
	_ memberlist.Delegate         = (*delegate)(nil)
	_ memberlist.EventDelegate    = (*delegate)(nil)
	_ memberlist.ConflictDelegate = (*delegate)(nil)
	_ memberlist.AliveDelegate    = (*delegate)(nil)
)

// NotifyAlive refuses who cannot be a node: a Reach that only asks whether
// somebody listens has such a name.
func (d *delegate) NotifyAlive(peer *memberlist.Node) error {
	if !validName(peer.Name) && peer.Name != d.g.visitor {
		return errVisitor
	}
	return nil
}

var errVisitor = errors.New("the name is not one of a node")

// NodeMeta is empty: everything is in the records.
func (d *delegate) NodeMeta(int) []byte { return nil }

// NotifyMsg takes one message.
func (d *delegate) NotifyMsg(msg []byte) {
	kind, _, err := open(msg)
	if err != nil {
		d.g.count.refuse(err)
		return
	}
	p := packet{msg: bytes.Clone(msg), at: time.Now()}
	switch {
	case kind == typeBeat:
		d.g.beatbox.push(p)
	case kind == typeState && len(msg) > 2*maxPacket:
		d.large(p)
	default:
		d.g.inbox.push(p)
	}
}

// large reads a record that came over a stream, on the goroutine of that stream.
func (d *delegate) large(p packet) {
	r, err := decodeRecord(p.msg[2:])
	if err != nil {
		d.g.count.refuse(err)
		return
	}
	d.g.fulls.push(fullState{records: []wireRecord{r}, at: p.at})
}

// GetBroadcasts hands out what is to be gossiped.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.g.casts.GetBroadcasts(overhead, limit)
}

// LocalState is the record of this node and those of all others.
func (d *delegate) LocalState(bool) []byte { return d.g.localState() }

// MergeRemoteState reads the records here, outside the goroutine of Run, which
// must not be kept from the heartbeats.
func (d *delegate) MergeRemoteState(buf []byte, _ bool) {
	kind, body, err := open(buf)
	if err == nil && kind != typeFull {
		err = errType
	}
	if err != nil {
		d.g.count.refuse(err)
		return
	}
	now := time.Now()
	this, known := d.repeats.known(body, d.g.state(), now)
	if known {
		d.g.fulls.push(fullState{at: now, exchange: true})
		return
	}
	records, bad, err := decodeFull(body)
	if err != nil {
		d.g.count.refuse(err)
		return
	}
	d.g.count.invalid.Add(uint64(bad))
	d.g.fulls.push(fullState{records: records, at: now, exchange: true, body: this})
}

// NotifyJoin notes that a node is alive.
func (d *delegate) NotifyJoin(n *memberlist.Node) { d.note(n, true) }

// NotifyUpdate notes a change of a node that is alive.
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.note(n, true) }

// NotifyLeave notes that a node is dead or has left.
func (d *delegate) NotifyLeave(n *memberlist.Node) { d.note(n, false) }

// NotifyConflict counts a node that uses the name of another one, which may be
// any: everybody who hears of it is told.
func (d *delegate) NotifyConflict(_, other *memberlist.Node) {
	addr, _ := nodeAddr(other)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conflicts = Mismatch{Count: d.conflicts.Count + 1, Name: other.Name, Peer: peerAddr(addr), At: time.Now()}
}

// note copies the node: memberlist changes it later under a lock that this
// package cannot take.
func (d *delegate) note(n *memberlist.Node, present bool) {
	addr, ok := nodeAddr(n)
	if !ok || !validName(n.Name) || model.NodeName(n.Name) == d.g.name {
		return
	}
	d.mu.Lock()
	if present && d.conflicts.Name == n.Name && d.conflicts.Peer == peerAddr(addr) {
		d.conflicts.At = time.Time{} // it was the node itself, which has got another address
	}
	if len(d.events) < 2*maxNodes {
		d.events[model.NodeName(n.Name)] = event{addr, present}
	}
	d.mu.Unlock()
	signal(d.g.wake)
}

func (d *delegate) take() map[model.NodeName]event {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.events) == 0 {
		return nil
	}
	events := d.events
	d.events = map[model.NodeName]event{}
	return events
}

func nodeAddr(n *memberlist.Node) (netip.AddrPort, bool) {
	ip, ok := netip.AddrFromSlice(n.Addr)
	return netip.AddrPortFrom(ip.Unmap(), n.Port), ok
}

// localState frames the records of all nodes, its own first, up to the size
// that others accept. Nodes are taken in random order, so that what did not fit
// this time has its chance the next.
func (g *Gossip) localState() []byte {
	const limit = maxMessage - 1<<20
	now := time.Now()
	g.mu.Lock()
	names := make([]model.NodeName, 0, len(g.table.nodes))
	for name := range g.table.nodes {
		names = append(names, name)
	}
	g.mu.Unlock()
	if len(names) <= direct {
		slices.Sort(names) // they fit, and are known again by those who had them before
	}
	records := [][]byte{g.own.wire()}
	size := len(records[0]) + len("[]") + 2
	for _, name := range names {
		b := g.echo(name, now)
		if len(b) == 0 || size+1+len(b) > limit {
			continue
		}
		records = append(records, b)
		size += 1 + len(b)
	}
	out := append(make([]byte, 0, size), typeFull, wireVersion, '[')
	for i, b := range records {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, b...)
	}
	return append(out, ']')
}

// echo encodes the record of a node; the lock is held for one node at a time.
func (g *Gossip) echo(name model.NodeName, now time.Time) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.table.nodes[name]
	if n == nil || n.inc == 0 {
		return nil
	}
	age := time.Duration(0)
	if !n.present {
		age = now.Sub(n.goneSince)
	}
	if age > forgetAfter {
		return nil
	}
	if n.cache == nil {
		n.cache = encode(typeState, g.table.echo(n))[2:]
	}
	if age < time.Second {
		return n.cache
	}
	return append(appendAge(make([]byte, 0, len(n.cache)+16), age), n.cache[1:]...)
}
