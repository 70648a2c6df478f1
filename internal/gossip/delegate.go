package gossip

import (
	"bytes"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

// delegate is what memberlist calls. Some of the calls come with memberlist's
// own lock held, so none of them blocks or calls memberlist: they copy what
// they are given into a mailbox and wake the goroutine of Run.
type delegate struct {
	g *Gossip

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

// fullState is what one stream brought; exchange says that it was a push/pull.
type fullState struct {
	records  []record.Record
	at       time.Time
	exchange bool
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
	if !record.ValidName(peer.Name) && peer.Name != d.g.visitor {
		return errVisitor
	}
	return nil
}

var errVisitor = errors.New("the name is not one of a node")

// NodeMeta is empty: everything is in the records.
func (d *delegate) NodeMeta(int) []byte { return nil }

// NotifyMsg takes one message.
func (d *delegate) NotifyMsg(msg []byte) {
	m, err := record.Open(msg)
	if err != nil {
		d.g.count.refuse(err)
		return
	}
	p := packet{msg: bytes.Clone(msg), at: time.Now()}
	switch {
	case m.Type == record.TypeBeat:
		d.g.beatbox.push(p)
	case m.Type == record.TypeState && len(msg) > 2*record.MaxPacket:
		d.large(m, p.at)
	default:
		d.g.inbox.push(p)
	}
}

// large reads a record that came over a stream, on the goroutine of that stream.
func (d *delegate) large(m record.Message, at time.Time) {
	r, err := m.Record()
	if err != nil {
		d.g.count.refuse(err)
		return
	}
	d.g.fulls.push(fullState{records: []record.Record{r}, at: at})
}

// GetBroadcasts hands out what is to be gossiped.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.g.casts.GetBroadcasts(overhead, limit)
}

// LocalState is the record of this node and those of all others. Of a node that joins nobody
// knows yet what it reads.
func (d *delegate) LocalState(join bool) []byte {
	if join {
		return d.g.localState(record.FormatJSON)
	}
	return d.g.localState(d.g.own.Format())
}

// MergeRemoteState reads the records here, outside the goroutine of Run, which
// must not be kept from the heartbeats.
func (d *delegate) MergeRemoteState(buf []byte, _ bool) {
	now := time.Now()
	m, err := record.Open(buf)
	if err == nil && m.Type != record.TypeFull {
		err = record.ErrType
	}
	var records []record.Record
	bad := 0
	if err == nil {
		records, bad, err = m.Full(d.g.knows)
	}
	if err != nil {
		d.g.count.refuse(err)
		return
	}
	d.g.count.invalid.Add(uint64(bad))
	d.g.fulls.push(fullState{records: records, at: now, exchange: true})
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
	if !ok || !record.ValidName(n.Name) || model.NodeName(n.Name) == d.g.name {
		return
	}
	d.mu.Lock()
	if present && d.conflicts.Name == n.Name && d.conflicts.Peer == peerAddr(addr) {
		d.conflicts.At = time.Time{} // it was the node itself, which has got another address
	}
	if len(d.events) < 2*record.MaxNodes {
		d.events[model.NodeName(n.Name)] = event{addr, present}
	}
	d.mu.Unlock()
	wake.Up(d.g.wake)
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
// this time has its chance the next. The lock is held for one node at a time.
func (g *Gossip) localState(f record.Format) []byte {
	now := time.Now()
	g.mu.Lock()
	var names []model.NodeName
	for n := range g.table.Nodes() {
		names = append(names, n.Name)
	}
	g.mu.Unlock()
	return record.EncodeFull(f, func(yield func(record.Record) bool) {
		on := yield(g.own.Full())
		for i := 0; on && i < len(names); i++ {
			g.mu.Lock()
			r, ok := g.table.All(names[i], now)
			g.mu.Unlock()
			on = !ok || yield(r)
		}
	}, record.MaxMessage-1<<20)
}

// knows tells whether all that a node said up to a version is known.
func (g *Gossip) knows(name string, inc, seq uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.table.Knows(name, inc, seq)
}
