package gossip

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
)

// counters count what was not done or not believed.
type counters struct {
	newer, invalid, old, stale atomic.Uint64
	unsent, streams, casts     atomic.Uint64
}

// refuse counts a message that could not be read.
func (c *counters) refuse(err error) {
	if errors.Is(err, record.ErrNewer) || errors.Is(err, record.ErrType) {
		c.newer.Add(1)
	} else {
		c.invalid.Add(1)
	}
}

// Stats is a snapshot for metrics and status. All counts are since the start.
type Stats struct {
	Members map[model.MemberState]int // others only
	Peers   []PeerStats               // sorted by name
	// Absent are the configured peers that are not members now.
	Absent []string
	// Joins and JoinErrors count the attempts to reach peers that are not members.
	Joins, JoinErrors uint64
	// Dropped counts messages by cause, see the Dropped constants.
	Dropped map[string]uint64
	// Stale counts messages of earlier lives of nodes; Stalls the times that this
	// process did not run for longer than heartbeats allow.
	Stale, Stalls uint64
	// KeyMismatches and LabelMismatches count messages that could not be
	// decrypted or belong to another group, NameConflicts nodes with the name of
	// another one.
	KeyMismatches, LabelMismatches, NameConflicts Mismatch
	// Fault says why this node cannot send, to some or to all; empty if it can.
	Fault string
}

// The keys of Stats.Dropped.
const (
	DroppedNewer     = "newer"     // a type or version that this program does not know
	DroppedInvalid   = "invalid"   // breaks the format
	DroppedOld       = "old"       // a heartbeat that a later one overtook
	DroppedQueue     = "queue"     // too many at a time
	DroppedUnsent    = "unsent"    // the socket refused it
	DroppedBroadcast = "broadcast" // too much to gossip; full exchanges bring it
	DroppedRoom      = "room"      // nodes or entries beyond the bounds
)

// PeerStats is what is counted for one other node.
type PeerStats struct {
	Name  model.NodeName
	State model.MemberState
	// Sent, Received and Missed count heartbeats, Late how often they were overdue.
	Sent, Received, Missed, Late uint64
	// Suspicions and Unasked are those of beat.Counts.
	Suspicions, Unasked uint64
	LastHeartbeat       time.Time // zero if none ever came
}

// Stats returns the present counts.
func (g *Gossip) Stats() Stats {
	s := Stats{
		Members: map[model.MemberState]int{}, Stale: g.count.stale.Load(),
		Fault: g.fault(time.Now()), Absent: g.join.absent(), Joins: g.join.tries.Load(), JoinErrors: g.join.failures.Load(),
	}
	g.mu.Lock()
	for n := range g.table.Nodes() {
		s.Members[n.State()]++
		c := g.watches.Counts(n.Name)
		s.Peers = append(s.Peers, PeerStats{
			Name: n.Name, State: n.State(), Sent: g.sender.Sent(n.Name), Received: c.Received, Missed: c.Missed,
			Late: c.Late, Suspicions: c.Suspicions, Unasked: c.Unasked, LastHeartbeat: c.Last,
		})
	}
	s.Stalls = g.watches.Stalls()
	refused := g.table.Refused()
	g.mu.Unlock()
	slices.SortFunc(s.Peers, func(a, b PeerStats) int { return cmp.Compare(a.Name, b.Name) })

	var full uint64
	s.KeyMismatches, s.LabelMismatches, full = g.writer.counts()
	g.hooks.mu.Lock()
	s.NameConflicts = g.hooks.conflicts
	g.hooks.mu.Unlock()
	s.Dropped = map[string]uint64{
		DroppedNewer: g.count.newer.Load(), DroppedInvalid: g.count.invalid.Load(), DroppedOld: g.count.old.Load(),
		DroppedQueue: full + g.overflown(), DroppedUnsent: g.unsent(),
		DroppedBroadcast: g.count.casts.Load() + g.count.streams.Load(), DroppedRoom: refused,
	}
	return s
}

// unsent counts the messages that a socket refused; what goes over the own sockets is
// counted there, that of memberlist too.
func (g *Gossip) unsent() uint64 {
	if g.sockets != nil {
		return g.sockets.faults.count.Load()
	}
	return g.count.unsent.Load() + g.sender.Failed()
}

// overflown counts the messages for which a queue had no room.
func (g *Gossip) overflown() (sum uint64) {
	for _, of := range []func() (int, uint64){g.beatbox.stats, g.inbox.stats, g.fulls.stats, g.outbox.stats} {
		_, dropped := of()
		sum += dropped
	}
	return sum
}
