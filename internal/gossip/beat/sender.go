// Package beat is the heartbeats of a group: who sends them to whom, who misses them, and
// the packets that carry them past memberlist.
package beat

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

// finals is how often the end of a stream of heartbeats is told.
const finals = 3

// Sender sends heartbeats. Its goroutine shares no lock with anything that may
// take long: it reads one pointer, encodes what it has, seals it, and writes to the socket.
type Sender struct {
	name     model.NodeName
	interval time.Duration
	real     bool // time is not simulated
	seal     *Sealer
	send     func(to *memberlist.Node, packet []byte) error
	log      *slog.Logger

	plan    atomic.Pointer[plan]
	wake    chan struct{}
	join    chan struct{}         // see InStep
	last    chan *memberlist.Node // nodes that ask and are no targets
	at      atomic.Int64          // when it last sent, on the clock of started
	started time.Time

	failed atomic.Uint64
	mu     sync.Mutex // guards sent; taken when a plan is made and for statistics
	sent   map[model.NodeName]*atomic.Uint64
}

// NewSender returns a Sender without a plan. real says that time is not simulated; send
// writes a packet and must not keep it.
func NewSender(name model.NodeName, interval time.Duration, real bool, log *slog.Logger, seal *Sealer, send func(*memberlist.Node, []byte) error) *Sender {
	return &Sender{
		name: name, interval: interval, real: real, seal: seal, send: send, log: log,
		wake: make(chan struct{}, 1), join: make(chan struct{}, 1), started: time.Now(), last: make(chan *memberlist.Node, 16),
		sent: map[model.NodeName]*atomic.Uint64{},
	}
}

// set replaces the plan.
func (s *Sender) set(p *plan) {
	s.plan.Store(p)
	wake.Up(s.wake)
}

// InStep is called when a heartbeat of another node has come. If half an interval
// has passed since this node sent its own, they are sent now and every interval
// from now on. So nodes that send to each other fall into step, and each of them
// wakes up half as often: what a wake costs is most of what an idle daemon costs.
// Heartbeats come early by this and never late; where a round trip takes more than
// half an interval, up to twice as many are sent.
func (s *Sender) InStep() {
	if s.halfway() {
		wake.Up(s.join)
	}
}

func (s *Sender) halfway() bool {
	return time.Since(s.started)-time.Duration(s.at.Load()) >= s.interval/2
}

// Asked answers a node that misses heartbeats from this one: either the next
// of them does, or it is told that there are none. Without a decision that is young
// enough this node says neither, for it does not know.
func (s *Sender) Asked(to *memberlist.Node, now time.Time) {
	if p := s.plan.Load(); p != nil {
		if !now.Before(p.validUntil) {
			return
		}
		for i := range p.targets {
			if string(p.targets[i].name) == to.Name {
				return
			}
		}
	}
	select {
	case s.last <- to:
	default:
	}
}

// Failed counts the packets that could not be sent.
func (s *Sender) Failed() uint64 { return s.failed.Load() }

// Sent counts the packets that were sent to a node.
func (s *Sender) Sent(name model.NodeName) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.sent[name]; c != nil {
		return c.Load()
	}
	return 0
}

// counter is that of packets sent to the node.
func (s *Sender) counter(name model.NodeName) *atomic.Uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.sent[name]
	if c == nil {
		c = new(atomic.Uint64)
		s.sent[name] = c
	}
	return c
}

// Forget drops the counters of nodes that are not known any more.
func (s *Sender) Forget(known func(model.NodeName) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.sent, func(name model.NodeName, _ *atomic.Uint64) bool { return !known(name) })
}

// ending is a stream that was dropped.
type ending struct {
	to   *memberlist.Node
	left int
}

// Run sends until ctx ends.
func (s *Sender) Run(ctx context.Context) {
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

// sending is the state of Run.
type sending struct {
	s       *Sender
	current *plan
	ends    map[model.NodeName]ending
	seq     uint64
	msg     []byte // the last message
	packet  []byte // and its packet
	stopped bool   // see speaks
}

// load takes the newest plan; it reports whether there is nothing to send.
func (st *sending) load() (idle bool) {
	if p := st.s.plan.Load(); p != st.current {
		st.take(p)
	}
	return (st.current == nil || len(st.current.targets) == 0) && len(st.ends) == 0
}

// take goes on by a plan, and notes the targets that it does not have any more.
func (st *sending) take(p *plan) {
	if st.current != nil {
		for _, t := range st.current.targets {
			if t.to != nil {
				st.ends[t.name] = ending{t.to, finals}
			}
		}
	}
	for _, t := range p.targets {
		delete(st.ends, t.name)
	}
	st.current = p
}

func (st *sending) step() {
	st.seq++
	st.s.at.Store(int64(time.Since(st.s.started)))
	st.endings()
	if st.speaks() {
		st.beat()
	}
}

// write seals and sends a message.
func (st *sending) write(to *memberlist.Node, msg []byte) bool {
	st.packet = st.s.seal.Seal(st.packet, msg)
	if st.s.send(to, st.packet) != nil {
		st.s.failed.Add(1)
		return false
	}
	return true
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

func (st *sending) beat() {
	lease := int64(0)
	if left := time.Until(st.current.leaseEnd); left > 0 {
		lease = int64((left + time.Millisecond - 1) / time.Millisecond) // rather late than early
	}
	for i := range st.current.targets {
		t := &st.current.targets[i]
		if t.to == nil {
			continue
		}
		b := t.beats[st.seq%uint64(len(t.beats))]
		b.Seq, b.Lease = st.seq, min(lease, record.MaxLease)
		st.msg = b.Append(st.current.format, st.msg[:0])
		if st.write(t.to, st.msg) {
			t.sent.Add(1)
		}
	}
}

func (st *sending) endings() {
	for name, e := range st.ends {
		last := record.Beat{Name: string(st.s.name), Inc: 1, Interval: st.s.interval.Milliseconds(), Final: true, Seq: st.seq}
		format := record.FormatJSON
		if st.current != nil {
			last.Inc, format = st.current.inc, st.current.format
		}
		st.write(e.to, last.Append(format, nil))
		if e.left--; e.left <= 0 {
			delete(st.ends, name)
		} else {
			st.ends[name] = e
		}
	}
}
