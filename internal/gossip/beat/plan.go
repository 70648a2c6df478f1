package beat

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
)

// plan is what to send until the next plan. It is never changed.
type plan struct {
	inc        uint64
	format     record.Format
	validUntil time.Time
	leaseEnd   time.Time
	targets    []target // sorted by name
}

type target struct {
	name  model.NodeName
	to    *memberlist.Node // nil while the address is not known
	beats []record.Beat    // taken in turn; without their numbers
	sent  *atomic.Uint64
}

// Planner makes the plans of a Sender: from the last Desired, the own record and the
// addresses of nodes. It is safe for concurrent use.
type Planner struct {
	self   model.NodeName
	own    *record.Own
	sender *Sender
	// addresses are the last known ones of the targets.
	addresses func([]model.HeartbeatTarget) []netip.AddrPort

	mu      sync.Mutex // taken before that of the own record and what addresses takes
	targets []model.HeartbeatTarget
	made    *plan // nil at first
	// What the targets of made were made of.
	seq   uint64
	addrs []netip.AddrPort
}

// NewPlanner returns a Planner without a plan. It calls addresses with its lock held.
func NewPlanner(self model.NodeName, own *record.Own, s *Sender, addresses func([]model.HeartbeatTarget) []netip.AddrPort) *Planner {
	return &Planner{self: self, own: own, sender: s, addresses: addresses}
}

// Plan makes the plan for a Desired; want is nil if only an address or the incarnation has
// changed.
func (p *Planner) Plan(want *model.Desired) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := plan{}
	if p.made != nil {
		next = *p.made
	}
	same := p.made != nil
	if want != nil {
		next.validUntil, next.leaseEnd = want.ValidUntil, want.Group.LeaseEnd
		if !slices.EqualFunc(p.targets, want.Group.Heartbeats, sameTarget) {
			p.targets, same = want.Group.Heartbeats, false
		}
	}
	addrs := p.addresses(p.targets)
	inc, seq := p.own.Version()
	format := p.own.Format()
	if !same || inc != next.inc || format != next.format || seq != p.seq || !slices.Equal(addrs, p.addrs) {
		next.inc, next.format, p.seq, p.addrs = inc, format, seq, addrs
		next.targets = p.make(addrs, format)
	}
	p.made = &next
	p.sender.set(p.made)
}

func (p *Planner) make(addrs []netip.AddrPort, f record.Format) []target {
	out := make([]target, 0, len(p.targets))
	for i, t := range p.targets {
		if t.Node == p.self {
			continue
		}
		out = append(out, target{
			name: t.Node, to: Endpoint(t.Node, addrs[i]), sent: p.sender.counter(t.Node),
			beats: record.Beats(f, p.own.Claims(t.VIPs), p.sender.interval),
		})
	}
	return out
}

// Extend lets heartbeats go on for longer. It waits for nothing, and reports whether it did.
func (p *Planner) Extend(until time.Time) bool {
	if !p.mu.TryLock() {
		return false
	}
	defer p.mu.Unlock()
	if p.made == nil || !time.Now().Before(p.made.validUntil) {
		return false
	}
	next := *p.made
	next.validUntil = until
	p.made = &next
	// The sender looks at it before each heartbeat; it need not be woken.
	p.sender.plan.Store(p.made)
	return true
}

// End plans that nothing more is sent.
func (p *Planner) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := plan{}
	if p.made != nil {
		next = *p.made
	}
	next.inc, _ = p.own.Version()
	next.format = p.own.Format()
	next.targets, p.targets = nil, nil
	p.made = &next
	p.sender.set(p.made)
}

func sameTarget(a, b model.HeartbeatTarget) bool {
	return a.Node == b.Node && slices.Equal(a.VIPs, b.VIPs)
}

// Endpoint is a node as memberlist sends to it, nil if the address is not known. Without
// protocol versions memberlist adds no checksum of its own; encryption and UDP have one.
func Endpoint(name model.NodeName, addr netip.AddrPort) *memberlist.Node {
	if !addr.IsValid() {
		return nil
	}
	return &memberlist.Node{Name: string(name), Addr: addr.Addr().AsSlice(), Port: addr.Port()}
}
