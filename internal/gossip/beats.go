package gossip

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/model"
)

// finals is how often the end of a stream of heartbeats is told.
const finals = 3

// sender sends heartbeats. Its goroutine shares no lock with anything that may
// take long: it reads one pointer, patches two numbers into messages that were
// encoded beforehand, and writes to the socket.
type sender struct {
	name     model.NodeName
	interval time.Duration
	real     bool // time is not simulated
	send     func(to *memberlist.Node, msg []byte) error
	log      *slog.Logger

	plan    atomic.Pointer[beatPlan]
	wake    chan struct{}
	join    chan struct{}         // see inStep
	last    chan *memberlist.Node // nodes that ask and are no targets
	at      atomic.Int64          // when it last sent, on the clock of started
	started time.Time

	failed atomic.Uint64
	mu     sync.Mutex // guards sent; taken when a plan is made and for Stats
	sent   map[model.NodeName]*atomic.Uint64
}

// beatPlan is what to send until the next plan. It is never changed.
type beatPlan struct {
	inc        uint64
	validUntil time.Time
	leaseEnd   time.Time
	targets    []beatTarget // sorted by name
}

type beatTarget struct {
	name   model.NodeName
	to     *memberlist.Node // nil while the address is not known
	bodies [][]byte         // messages up to the claims, taken in turn
	sent   *atomic.Uint64
}

func newSender(name model.NodeName, interval time.Duration, log *slog.Logger, send func(*memberlist.Node, []byte) error) *sender {
	return &sender{
		name: name, interval: interval, send: send, log: log,
		wake: make(chan struct{}, 1), join: make(chan struct{}, 1), started: time.Now(), last: make(chan *memberlist.Node, 16),
		sent: map[model.NodeName]*atomic.Uint64{},
	}
}

// set replaces the plan.
func (s *sender) set(p *beatPlan) {
	s.plan.Store(p)
	signal(s.wake)
}

// inStep is called when a heartbeat of another node has come. If half an interval
// has passed since this node sent its own, they are sent now and every interval
// from now on. So nodes that send to each other fall into step, and each of them
// wakes up half as often: what a wake costs is most of what an idle daemon costs.
// Heartbeats come early by this and never late; where a round trip takes more than
// half an interval, up to twice as many are sent.
func (s *sender) inStep() {
	if s.halfway() {
		signal(s.join)
	}
}

func (s *sender) halfway() bool {
	return time.Since(s.started)-time.Duration(s.at.Load()) >= s.interval/2
}

// counter is that of messages sent to the node.
func (s *sender) counter(name model.NodeName) *atomic.Uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.sent[name]
	if c == nil {
		c = new(atomic.Uint64)
		s.sent[name] = c
	}
	return c
}

// forget drops the counters of nodes that are not known any more.
func (s *sender) forget(known func(model.NodeName) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.sent {
		if !known(name) {
			delete(s.sent, name)
		}
	}
}

// ending is a stream that was dropped.
type ending struct {
	to   *memberlist.Node
	left int
}

// run sends until ctx ends.
func (s *sender) run(ctx context.Context) {
	pulse := newPulse(s.interval, s.real, s.log)
	defer pulse.close()
	pulse.start()
	st := sending{s: s, ends: map[model.NodeName]ending{}}
	for {
		idle := st.load()
		tick := pulse.ticks()
		if idle {
			pulse.stop()
			tick = nil
		}
		select {
		case <-ctx.Done():
			return
		case to := <-s.last:
			st.ends[model.NodeName(to.Name)] = ending{to, 1}
		case <-s.wake:
		case <-s.join:
			if !idle && s.halfway() {
				st.step()
				pulse.start()
			}
			continue
		case <-tick:
			st.step()
			continue
		}
		if idle {
			pulse.start()
			if !st.load() {
				st.step() // the first one at once
			}
		}
	}
}

// sending is the state of run.
type sending struct {
	s       *sender
	current *beatPlan
	ends    map[model.NodeName]ending
	seq     uint64
	buf     []byte
	stopped bool // see speaks
}

// load takes the newest plan; it reports whether there is nothing to send.
func (st *sending) load() (idle bool) {
	if p := st.s.plan.Load(); p != st.current {
		st.s.ended(st.current, p, st.ends)
		st.current = p
	}
	return (st.current == nil || len(st.current.targets) == 0) && len(st.ends) == 0
}

func (st *sending) step() {
	st.seq++
	st.s.at.Store(int64(time.Since(st.s.started)))
	st.s.endings(st.current, st.ends, st.seq)
	if st.speaks() {
		st.buf = st.s.beat(st.current, st.seq, st.buf)
	}
}

// ended notes the targets of the old plan that the new one does not have.
func (s *sender) ended(old, p *beatPlan, ends map[model.NodeName]ending) {
	if old != nil {
		for _, t := range old.targets {
			if t.to != nil {
				ends[t.name] = ending{t.to, finals}
			}
		}
	}
	for _, t := range p.targets {
		delete(ends, t.name)
	}
}

// speaks tells whether there is somebody to send to, and a decision that is young
// enough to speak for. Without the latter the receivers take over, which is what
// they are for.
func (st *sending) speaks() bool {
	p := st.current
	if p == nil || len(p.targets) == 0 {
		st.stopped = false // there is nothing that could resume
		return false
	}
	stopped := !time.Now().Before(p.validUntil)
	if stopped != st.stopped {
		if st.stopped = stopped; stopped {
			st.s.log.Info("heartbeats stopped: no decision has been made for too long")
		} else {
			st.s.log.Info("heartbeats resumed")
		}
	}
	return !stopped
}

func (s *sender) beat(p *beatPlan, seq uint64, buf []byte) []byte {
	lease := int64(0)
	if left := time.Until(p.leaseEnd); left > 0 {
		lease = int64((left + time.Millisecond - 1) / time.Millisecond) // rather late than early
	}
	for i := range p.targets {
		t := &p.targets[i]
		if t.to == nil {
			continue
		}
		buf = append(buf[:0], t.bodies[seq%uint64(len(t.bodies))]...)
		buf = append(buf, `,"q":`...)
		buf = strconv.AppendUint(buf, seq, 10)
		if lease > 0 {
			buf = append(buf, `,"r":`...)
			buf = strconv.AppendInt(buf, min(lease, maxLease), 10)
		}
		buf = append(buf, '}')
		if err := s.send(t.to, buf); err != nil {
			s.failed.Add(1)
			continue
		}
		t.sent.Add(1)
	}
	return buf
}

func (s *sender) endings(p *beatPlan, ends map[model.NodeName]ending, seq uint64) {
	for name, e := range ends {
		inc := uint64(1)
		if p != nil {
			inc = p.inc
		}
		msg := encode(typeBeat, wireBeat{
			Name: string(s.name), Inc: inc, Interval: s.interval.Milliseconds(), Final: true, Seq: seq,
		})
		if s.send(e.to, msg) != nil {
			s.failed.Add(1)
		}
		if e.left--; e.left <= 0 {
			delete(ends, name)
		} else {
			ends[name] = e
		}
	}
}

// beatBodies encodes the messages for one target up to the numbers that differ
// each time, as many as the claims need.
func beatBodies(rec wireRecord, interval time.Duration) [][]byte {
	type start struct {
		Name     string      `json:"n"`
		Inc      uint64      `json:"i"`
		Interval int64       `json:"d"`
		Entries  []wireEntry `json:"e,omitempty"`
	}
	body := func(entries []wireEntry) []byte {
		b, err := json.Marshal(start{rec.Name, rec.Inc, interval.Milliseconds(), entries})
		if err != nil {
			panic("gossip: encode heartbeat: " + err.Error()) // plain values only
		}
		return append([]byte{typeBeat, wireVersion}, b[:len(b)-1]...)
	}
	const numbers = 60 // room for seq and lease
	base := len(body(nil)) + numbers
	var out [][]byte
	size, from := base, 0
	for i := range rec.Entries {
		n := rec.Entries[i].size() + 1
		if size+n > maxPacket && i > from {
			out = append(out, body(rec.Entries[from:i]))
			size, from = base, i
		}
		size += n
	}
	return append(out, body(rec.Entries[from:]))
}

// planner makes the plans: from the last Desired and the addresses of nodes.
type planner struct {
	mu         sync.Mutex
	targets    []model.HeartbeatTarget
	validUntil time.Time
	leaseEnd   time.Time
	// What the targets of the last plan were made of.
	made  []beatTarget
	seq   uint64
	inc   uint64
	addrs []netip.AddrPort
}

// plan makes the plan for the last Desired; want is the new one, or nil if only
// an address or the incarnation changed.
func (g *Gossip) plan(want *model.Desired) {
	p := &g.planner
	p.mu.Lock()
	defer p.mu.Unlock()
	same := true
	if want != nil {
		p.validUntil, p.leaseEnd = want.ValidUntil, want.Group.LeaseEnd
		if !slices.EqualFunc(p.targets, want.Group.Heartbeats, sameTarget) {
			p.targets, same = want.Group.Heartbeats, false
		}
	}
	addrs := g.addresses(p.targets)
	inc, seq := g.own.version()
	if !same || p.made == nil || inc != p.inc || seq != p.seq || !slices.Equal(addrs, p.addrs) {
		p.made, p.inc, p.seq, p.addrs = make([]beatTarget, 0, len(p.targets)), inc, seq, addrs
		for i, t := range p.targets {
			if t.Node == g.name {
				continue
			}
			p.made = append(p.made, beatTarget{
				name: t.Node, to: endpoint(t.Node, addrs[i]), sent: g.sender.counter(t.Node),
				bodies: beatBodies(g.own.claims(t.VIPs), g.profile.beat),
			})
		}
	}
	g.sender.set(&beatPlan{inc: inc, validUntil: p.validUntil, leaseEnd: p.leaseEnd, targets: p.made})
}

// end forgets the targets: nothing is planned any more.
func (p *planner) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets, p.made = nil, nil
}

func sameTarget(a, b model.HeartbeatTarget) bool {
	return a.Node == b.Node && slices.Equal(a.VIPs, b.VIPs)
}

// addresses are the last known ones of the targets, whether memberlist believes
// them alive or not.
func (g *Gossip) addresses(targets []model.HeartbeatTarget) []netip.AddrPort {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]netip.AddrPort, len(targets))
	for i, t := range targets {
		if n := g.table.nodes[t.Node]; n != nil {
			out[i] = n.addr
		}
	}
	return out
}

// endpoint is a node as memberlist sends to it. Without protocol versions it
// adds no checksum of its own; encryption and UDP have one.
func endpoint(name model.NodeName, addr netip.AddrPort) *memberlist.Node {
	if !addr.IsValid() {
		return nil
	}
	return &memberlist.Node{Name: string(name), Addr: addr.Addr().AsSlice(), Port: addr.Port()}
}
