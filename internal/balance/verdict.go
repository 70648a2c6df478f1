package balance

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// FollowFor is how long the verdict of an owner counts that is not there any more. What clients
// and servers say meanwhile goes where it went: the pings of HTTP/2 and the keepalives of most
// programs come within that. After a planned move the old owner relays, but often its machine is
// about to be restarted, and then those connections are found by the hash alone, as after a crash.
const FollowFor = 30 * time.Second

// follow is the verdict that the table of a family keeps to: that of the owner of the VIP, or for
// a while that of the last one before this node.
func (s *step) follow(family int, number uint32) model.FollowedVerdict {
	f := &s.out.Memory.Followed[family]
	switch {
	case s.Told[family].Verdict.Servers != 0:
		*f = s.Told[family]
	case f.Verdict.Servers == 0:
	case f.Until.IsZero():
		f.Until = s.Now.Add(FollowFor)
	case !s.Now.Before(f.Until):
		*f = model.FollowedVerdict{}
	}
	if f.Verdict.Servers != number {
		return model.FollowedVerdict{}
	}
	if !f.Until.IsZero() {
		s.by(f.Until)
	}
	return *f
}

// fitness is what this node knows itself of a server.
type fitness uint8

const (
	dead    fitness = iota // fails its check
	pending                // is new, and has to pass first
	usable                 // passes, or nothing is known of any server yet
	trusted                // the last run of its check passed, too
)

// fitness is that of a server with this health. After a start all are usable, until the first
// results are there: without a table connections would be refused.
func (s *step) fitness(h *model.HealthState) fitness {
	passes := h.State.Passes() || h.State == model.HealthUnknown && !s.out.Memory.Ready
	switch {
	case passes && h.Failing == "":
		return trusted
	case passes:
		return usable
	case h.State == model.HealthUnknown:
		return pending
	}
	return dead
}

// candidates are the servers of a family with a share of new connections, sorted.
type candidates struct {
	servers []model.Server
	fit     []fitness
}

func (c *candidates) add(x model.Server, fit fitness) {
	x.Check = "" // the table does not depend on its name
	c.servers, c.fit = append(c.servers, x), append(c.fit, fit)
}

// least is how fit a server has to be for this node itself. If the last checks of all failed, it
// may be this node that cannot reach them.
func (c *candidates) least() fitness {
	if slices.Contains(c.fit, trusted) {
		return trusted
	}
	if slices.Contains(c.fit, usable) {
		return usable
	}
	return pending
}

// picked are the servers that get new connections.
type picked struct {
	servers []model.Server
	in      []bool // of candidates
	least   fitness
	by      model.FollowedVerdict // that was kept to; none: no server is in it
}

// pick chooses them. Those of a verdict that are dead for this node get none here: so a verdict
// that is late or wrong costs no more than their own connections.
func (c *candidates) pick(by model.FollowedVerdict, least fitness) picked {
	p := picked{in: make([]bool, len(c.servers)), least: least, by: by}
	follows := by.Verdict.Servers != 0
	if follows && by.Until.IsZero() {
		p.least = pending
	}
	for i := range c.servers {
		if p.in[i] = c.fit[i] >= max(p.least, pending) && !(follows && out(by.Verdict.Out, i)); p.in[i] {
			p.servers = append(p.servers, c.servers[i])
		}
	}
	switch {
	case len(p.servers) == 0 && follows:
		return c.pick(model.FollowedVerdict{}, least)
	case !follows && least < usable:
		return picked{in: make([]bool, len(c.servers)), least: least}
	}
	return p
}

// table is a table for those that are picked.
func (c *candidates) table(number uint32, p *picked) model.BalanceFill {
	f := model.BalanceFill{Share: c.servers, Servers: p.servers, Slots: fill(c.servers, p.in), Verdict: verdict(number, p.in)}
	place := make([]uint16, len(p.in)) // of a candidate, among those that are picked
	n := uint16(0)
	for i, in := range p.in {
		if place[i] = n; in {
			n++
		}
	}
	for slot, i := range f.Slots {
		f.Slots[slot] = place[i]
	}
	return f
}

// verdict tells which of the candidates are not in.
func verdict(number uint32, in []bool) model.Verdict {
	if len(in) > model.MaxVerdict {
		return model.Verdict{}
	}
	var bits []byte
	for i, in := range in {
		if in {
			continue
		}
		for len(bits) <= i/8 {
			bits = append(bits, 0)
		}
		bits[i/8] |= 1 << (i % 8)
	}
	return model.Verdict{Servers: number, Out: string(bits)}
}

// out tells whether a verdict takes a server out.
func out(bits string, i int) bool { return i/8 < len(bits) && bits[i/8]&(1<<(i%8)) != 0 }

// hash is a number for a list of servers, never 0.
func hash(servers []model.Server) uint32 {
	h := fnv.New64a()
	for i := range servers {
		a := servers[i].Addr.As16()
		h.Write(a[:])
		h.Write(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, servers[i].Port), uint16(servers[i].Weight)))
	}
	return max(uint32(h.Sum64()>>32), 1)
}

// Verdicts are what this node, as the owner of VIPs that are forwarded, says of their servers.
func Verdicts(memory map[string]model.BalanceMemory) map[netip.Addr]model.Verdict {
	if len(memory) == 0 {
		return nil
	}
	all := make(map[netip.Addr]model.Verdict, len(memory))
	for _, m := range memory {
		for _, a := range m.Removed {
			all[a] = m.Fills[Family(a)].Verdict
		}
	}
	for _, m := range memory { // after those who had an address before
		if m.Wanted == nil {
			continue
		}
		for _, a := range m.Wanted.VIPs {
			all[a] = m.Fills[Family(a)].Verdict
		}
	}
	return all
}

// told is what the owner of VIPs of each family says, if it is another node. With several owners
// that of the first VIP counts, for all nodes alike.
func told(v *model.View, lb *model.LoadBalancer) (by [2]model.FollowedVerdict) {
	var known [2]bool
	for _, a := range lb.VIPs {
		family := Family(a)
		if known[family] {
			continue
		}
		if v.Memory.VIPs[a].Phase.Holds() {
			known[family] = true
			continue
		}
		if c, is := claimOf(v, a); is {
			by[family], known[family] = model.FollowedVerdict{Verdict: c.Verdict, By: c.Owner}, true
		}
	}
	return by
}
