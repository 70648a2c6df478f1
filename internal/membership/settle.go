package membership

import (
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

const (
	// SettleSome is how long a node waits for more peers once it has exchanged
	// state with some of them.
	SettleSome = 500 * time.Millisecond
	// SettleAlone is how long it waits for any peer before it acts alone.
	SettleAlone = 3 * time.Second
)

// settle decides whether the node knows its group. It starts anew when the last
// working link comes back: a node whose cable was out must hear who owns what
// before it takes anything, or there are two owners until it has.
func (s *step) settle() {
	v, m := s.v, &s.m
	base := v.Started
	if up := linkBase(v); up.After(base) {
		base = up
	}
	if !base.Equal(m.SettleBase) {
		m.SettleBase = base
		m.Settled = false
	}
	if m.Settled || !v.Synced[model.SourceGossip] || !v.Synced[model.SourceLink] {
		return
	}
	if v.Gossip.Peers == 0 && len(v.Gossip.Members) == 0 {
		m.Settled = !s.strange()
		return
	}
	if m.Awaited.After(base) {
		base = m.Awaited // the peers have just become known
	}
	alive := 0
	for _, p := range v.Gossip.Members {
		if p.State == model.MemberAlive && p.Known {
			alive++
		}
	}
	exchanged := v.Gossip.Exchanged.After(m.SettleBase)
	due := base.Add(SettleAlone)
	if alive > 0 && exchanged {
		if alive >= v.Gossip.Peers {
			m.Settled = true
			return
		}
		due = v.Gossip.Exchanged.Add(SettleSome)
		if late := base.Add(SettleAlone); late.Before(due) {
			due = late // somebody exchanges state all the time
		}
	}
	if !v.Now.Before(due) {
		m.Settled = true
		return
	}
	s.by(due)
}

// HearAll is for how long after its start a node waits, before it makes rings anew, for
// those nodes to say which connections they have that it does not know yet: for as long
// as an address lasts, after which they have none.
const HearAll = 3 * time.Second

// hearing tells whether rings may still lack nodes that have connections. If all daemons
// ended at the same moment none of them knows who of the others has any; the rules of the
// earlier process lead to all of them. What was once heard of all is told by each node
// that changes it.
func (s *step) hearing() bool {
	v, m := s.v, &s.m
	if m.Heard {
		return false
	}
	until := v.Started.Add(HearAll)
	if peers := m.Awaited.Add(HearAll); peers.After(until) {
		until = peers // they have just become known
	}
	// Its own VIPs have to be known as well: a ring of one of them replaces the rules of all.
	told, all := 0, m.Settled && v.Synced[model.SourceGossip] && v.Synced[model.SourceHealth] && !s.missing(model.SourceKube)
	for _, p := range v.Gossip.Members {
		if p.State == model.MemberAlive {
			if all = all && p.Told; p.Told {
				told++
			}
		}
	}
	if m.Heard = all && told >= v.Gossip.Peers || !v.Now.Before(until); !m.Heard {
		s.by(until)
	}
	return !m.Heard
}

// strange tells whether a node without peers may only not know them yet: they come
// from the cluster, and reach this node a moment after its objects.
func (s *step) strange() bool {
	v, m := s.v, &s.m
	if s.missing(model.SourceKube) {
		m.Awaited = v.Now
		return true
	}
	until := m.Awaited.Add(SettleSome)
	if m.Awaited.IsZero() || !v.Now.Before(until) {
		return false
	}
	s.by(until)
	return true
}

// linkBase is when the last of the working links that VIPs belong on came up: what
// was said on it before, this node has not heard.
func linkBase(v *model.View) time.Time {
	var base time.Time
	for _, l := range v.Links {
		if !l.Up || !l.Since.After(base) {
			continue
		}
		if place.AnyBelongsOn(v.VIPs, &l, false) {
			base = l.Since
		}
	}
	return base
}

// SettledBy is when this node will know its group at the latest; zero: it does.
func (o *Output) SettledBy(v *model.View) time.Time {
	if o.Memory.Settled {
		return time.Time{}
	}
	return v.Started.Add(SettleAlone)
}
