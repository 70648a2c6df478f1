package ring

import (
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

const (
	// Probe is for how long a node of a ring whose heartbeats are overdue is asked on the wire
	// whether its host is there: longer than for a takeover, since a host that is left out too
	// soon has its connections reset, and no election puts that right.
	Probe = 150 * time.Millisecond
	// ProbeAgain is how often it is asked while they stay overdue.
	ProbeAgain = time.Second
	// watchers is how many nodes of a ring get heartbeats from the one that comes after them: if
	// that one dies with the next, it is still noticed.
	watchers = 2
)

// The death of a node in a ring is noticed by those before it, which get its heartbeats, and ask
// the wire for it when those are overdue. Of a frozen daemon the kernel answers, and goes on to
// relay and to serve; of a dead host, or one behind a cut cable, nothing does, and what is
// relayed to it is lost.

// answering are those of the nodes of a ring on a link, this one included, that are not known to
// be silent. If all the others are, and they are several, it is this node that is cut off; for a
// blip of its cable nothing is to be reset.
func (all *All) answering(l *model.Link, is4 bool, names []model.NodeName) []model.NodeName {
	silent := 0
	for _, n := range names {
		if n != all.v.Self && all.silent(n, l, is4) {
			silent++
		}
	}
	if silent == 0 || silent > 1 && silent == len(names)-1 {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(n model.NodeName) bool {
		if n == all.v.Self || !all.silent(n, l, is4) {
			return false
		}
		all.forget(n, l, is4)
		return true
	})
}

// forget leaves a silent node out for good, at the address at which it was asked, if its daemon
// has ended. At one of the other family it may be there.
func (all *All) forget(n model.NodeName, l *model.Link, is4 bool) {
	if all.v.Gossip.Members[n].State == model.MemberAlive {
		return
	}
	at, _ := near(l, all.v.Gossip.Members[n].Addrs, is4)
	p := all.out.Probes[at]
	p.Gone = true
	all.out.Probes[at] = p
}

// forgotten tells whether a node was left out for good at an address. It is asked after there,
// which knows since when the node has been away.
func (all *All) forgotten(n model.NodeName, at netip.Addr) bool {
	p := all.v.Memory.Rings[at]
	if !p.Gone || p.Node != n || !p.Late.Equal(all.out.Left[n]) || all.v.Gossip.Members[n].State == model.MemberAlive {
		return false
	}
	all.keep(at, p)
	return true
}

func (all *All) keep(at netip.Addr, p model.RingProbe) {
	if all.out.Probes == nil {
		all.out.Probes = make(map[netip.Addr]model.RingProbe)
	}
	all.out.Probes[at] = p
}

// silent tells whether the wire does not answer for a node whose heartbeats are overdue, or whose
// daemon has ended. It has it asked.
func (all *All) silent(n model.NodeName, l *model.Link, is4 bool) bool {
	m := all.v.Gossip.Members[n]
	late := m.Late
	if m.State != model.MemberAlive {
		late = all.out.Left[n]
	}
	if late.IsZero() {
		return false
	}
	at, _ := near(l, m.Addrs, is4)
	p, asked := all.out.Probes[at]
	if !asked {
		p = all.probe(at, n, l.Name, late)
		all.keep(at, p)
	}
	return p.Interface == l.Name && p.Silent
}

// probe goes on with the question for an address of a node. The answer of before stands until
// there is a new one.
func (all *All) probe(at netip.Addr, n model.NodeName, iface string, late time.Time) model.RingProbe {
	p := all.v.Memory.Rings[at]
	if p.Node != n || p.Interface != iface || !p.Late.Equal(late) {
		p = model.RingProbe{Node: n, Interface: iface, Late: late}
	}
	if r := all.v.Applied[model.SinkLayer2].VIPs[at].Probe; p.Series != 0 && r.Done && r.Series == p.Series {
		p.Silent, p.Answers = !r.Answered, r.Answered
	}
	if !all.v.Now.Before(p.Asked.Add(ProbeAgain)) {
		p.Series, p.Asked = all.gen, all.v.Now // a number that no other series for it had
	}
	all.by(p.Asked.Add(ProbeAgain))
	return p
}

// outlives is since when a node is away whose host has answered until the group gave its daemon
// up: its kernel goes on to relay, and to serve what BGP had it bind for as long as that has a
// lifetime. What is left of that is two thirds at least when the daemon dies. Zero: it is not to
// be reached.
func (all *All) outlives(n model.NodeName, kept time.Duration) time.Time {
	if kept == 0 {
		return time.Time{}
	}
	for _, p := range all.v.Memory.Rings {
		if p.Node == n && p.Answers {
			return p.Late.Add(-kept / 3)
		}
	}
	return time.Time{}
}

// beat has the nodes before this one in a ring get heartbeats, also those that seem to be silent:
// it is by heartbeats that they learn that they are heard again.
func (all *All) beat(names []model.NodeName) {
	self := slices.Index(names, all.v.Self)
	left := watchers
	for i := 1; i < len(names) && left > 0; i++ {
		n := names[(self-i+len(names))%len(names)]
		if all.v.Gossip.Members[n].State != model.MemberAlive {
			continue
		}
		left--
		if !slices.Contains(all.out.Heartbeats, n) {
			all.out.Heartbeats = append(all.out.Heartbeats, n)
		}
	}
}
