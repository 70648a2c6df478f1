package gossip

import (
	"bytes"
	"errors"
	"hash/maphash"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/gossip/record"
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
	records  []record.Record
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
	kind, _, err := record.Open(msg)
	if err != nil {
		d.g.count.refuse(err)
		return
	}
	p := packet{msg: bytes.Clone(msg), at: time.Now()}
	switch {
	case kind == record.TypeBeat:
		d.g.beatbox.push(p)
	case kind == record.TypeState && len(msg) > 2*record.MaxPacket:
		d.large(p)
	default:
		d.g.inbox.push(p)
	}
}

// large reads a record that came over a stream, on the goroutine of that stream.
func (d *delegate) large(p packet) {
	_, body, err := record.Open(p.msg)
	var r record.Record
	if err == nil {
		r, err = record.DecodeRecord(body)
	}
	if err != nil {
		d.g.count.refuse(err)
		return
	}
	d.g.fulls.push(fullState{records: []record.Record{r}, at: p.at})
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
	kind, body, err := record.Open(buf)
	if err == nil && kind != record.TypeFull {
		err = record.ErrType
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
	records, bad, err := record.DecodeFull(body)
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
// this time has its chance the next. The lock is held for one node at a time.
func (g *Gossip) localState() []byte {
	now := time.Now()
	g.mu.Lock()
	var names []model.NodeName
	for n := range g.table.Nodes() {
		names = append(names, n.Name)
	}
	g.mu.Unlock()
	if len(names) <= direct {
		slices.Sort(names) // they fit, and are known again by those who had them before
	}
	records := [][]byte{g.own.Bare()}
	for _, name := range names {
		g.mu.Lock()
		records = append(records, g.table.Bare(name, now))
		g.mu.Unlock()
	}
	return record.EncodeFull(records, record.MaxMessage-1<<20)
}

const (
	// repeatsFrom is from how many bytes on a full exchange is looked up: that of a few
	// VIPs is read faster than it is worth.
	repeatsFrom = 32 << 10
	// repeatsFor is how long a full exchange is not read again. It is read once more
	// then, should an answer to it have been lost. Two live owners of a VIP do not wait
	// for that: each tells the other with every heartbeat.
	repeatsFor = 2 * time.Minute
	// mostRepeats bounds how many are known.
	mostRepeats = 64
)

// state changes with all that is told and known.
func (g *Gossip) state() record.State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return record.StateOf(g.own, g.table)
}

// repeats knows the full exchanges of late. With thousands of VIPs each is a megabyte,
// and reading it, several times in ten seconds, most of what an idle daemon costs.
type repeats struct {
	mu   sync.Mutex
	seed maphash.Seed
	seen map[uint64]repeat // by sum
}

// repeat is a full exchange: what it was news to, and until when it need not be read
// again; the zero value for one that is too small to be looked up.
type repeat struct {
	sum   uint64
	state record.State
	until time.Time
}

// known tells whether the same was merged a while ago, and nothing has changed since: to
// read it again would change nothing either. If not, merged takes what is returned.
func (r *repeats) known(body []byte, s record.State, now time.Time) (repeat, bool) {
	if len(body) < repeatsFrom {
		return repeat{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seed, r.seen = maphash.MakeSeed(), map[uint64]repeat{}
	}
	this := repeat{maphash.Bytes(r.seed, body), s, now.Add(repeatsFor)}
	was, ok := r.seen[this.sum]
	return this, ok && was.state == s && now.Before(was.until)
}

// merged notes what need not be read again. What was dropped on its way there is read
// when it comes once more.
func (r *repeats) merged(this repeat) {
	if this == (repeat{}) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) >= mostRepeats {
		clear(r.seen)
	}
	r.seen[this.sum] = this
}
