package decide

import (
	"maps"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

const (
	// RingProbe is for how long a node of a ring whose heartbeats are overdue is asked on
	// the wire whether its host is there: longer than for a takeover, since a host that is
	// left out too soon has its connections reset, and no election puts that right.
	RingProbe = 150 * time.Millisecond
	// RingProbeAgain is how often it is asked while they stay overdue.
	RingProbeAgain = time.Second
	// ringWatchers is how many nodes of a ring get heartbeats from the one that comes
	// after them: if that one dies with the next, it is still noticed.
	ringWatchers = 2
)

// ringWatch is how the death of a node in a ring is noticed: the nodes before it get its
// heartbeats, and ask the wire for it when those are overdue. Of a frozen daemon the
// kernel answers, and goes on to relay and to serve; of a dead host, or one behind a cut
// cable, nothing does, and what is relayed to it is lost.
type ringWatch struct {
	beats  []model.NodeName // that get heartbeats
	probes map[addr]model.RingProbe
}

// answering are those of the nodes of a ring on a link, this one included, that are not
// known to be silent. If all the others are, and they are several, it is this node that
// is cut off; for a blip of its cable nothing is to be reset.
func (f *facts) answering(l *model.Link, r *ringOf, names []model.NodeName) []model.NodeName {
	silent := 0
	for _, n := range names {
		silent += one(n != f.v.Self && f.silent(n, l, r.is4))
	}
	if silent == 0 || silent > 1 && silent == len(names)-1 {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(n model.NodeName) bool {
		if n == f.v.Self || !f.silent(n, l, r.is4) {
			return false
		}
		f.forget(n, l, r.is4)
		return true
	})
}

// forget leaves a silent node out for good, at the address at which it was asked, if its
// daemon has ended. At one of the other family it may be there.
func (f *facts) forget(n model.NodeName, l *model.Link, is4 bool) {
	if f.v.Gossip.Members[n].State == model.MemberAlive {
		return
	}
	at, _ := near(l, f.v.Gossip.Members[n].Addrs, is4)
	p := f.watch.probes[at]
	p.Gone = true
	f.watch.probes[at] = p
}

// forgotten tells whether a node was left out for good at an address. It is asked after
// there, which knows since when the node has been away.
func (f *facts) forgotten(n model.NodeName, at addr) bool {
	p := f.v.Memory.Rings[at]
	if !p.Gone || p.Node != n || !p.Late.Equal(f.left[n]) || f.v.Gossip.Members[n].State == model.MemberAlive {
		return false
	}
	f.watch.keep(at, p)
	return true
}

func (w *ringWatch) keep(at addr, p model.RingProbe) {
	if w.probes == nil {
		w.probes = make(map[addr]model.RingProbe)
	}
	w.probes[at] = p
}

// silent tells whether the wire does not answer for a node whose heartbeats are overdue,
// or whose daemon has ended. It has it asked.
func (f *facts) silent(n model.NodeName, l *model.Link, is4 bool) bool {
	m := f.v.Gossip.Members[n]
	late := m.Late
	if m.State != model.MemberAlive {
		late = f.left[n]
	}
	if late.IsZero() {
		return false
	}
	at, _ := near(l, m.Addrs, is4)
	p, asked := f.watch.probes[at]
	if !asked {
		p = f.probe(at, n, l.Name, late)
		f.watch.keep(at, p)
	}
	return p.Interface == l.Name && p.Silent
}

// probe goes on with the question for an address of a node. The answer of before stands
// until there is a new one.
func (f *facts) probe(at addr, n model.NodeName, iface string, late time.Time) model.RingProbe {
	p := f.v.Memory.Rings[at]
	if p.Node != n || p.Interface != iface || !p.Late.Equal(late) {
		p = model.RingProbe{Node: n, Interface: iface, Late: late}
	}
	if r := f.layer2.VIPs[at].Probe; p.Series != 0 && r.Done && r.Series == p.Series {
		p.Silent, p.Answers = !r.Answered, r.Answered
	}
	if !f.v.Now.Before(p.Asked.Add(RingProbeAgain)) {
		p.Series, p.Asked = f.gen, f.v.Now // a number that no other series for it had
	}
	f.w.by(p.Asked.Add(RingProbeAgain))
	return p
}

// outlives is since when a node is away whose host has answered until the group gave its
// daemon up: its kernel goes on to relay, and to serve what BGP had it bind for as long
// as that has a lifetime. What is left of that is two thirds at least when the daemon
// dies. Zero: it is not to be reached.
func (f *facts) outlives(n model.NodeName, r *ringOf) time.Time {
	if r.lifetime != BGPLifetime {
		return time.Time{}
	}
	for _, p := range f.v.Memory.Rings {
		if p.Node == n && p.Answers {
			return p.Late.Add(-BGPLifetime / 3)
		}
	}
	return time.Time{}
}

// beat has the nodes before this one in a ring get heartbeats, also those that seem to
// be silent: it is by heartbeats that they learn that they are heard again.
func (f *facts) beat(names []model.NodeName) {
	self := slices.Index(names, f.v.Self)
	left := ringWatchers
	for i := 1; i < len(names) && left > 0; i++ {
		n := names[(self-i+len(names))%len(names)]
		if f.v.Gossip.Members[n].State != model.MemberAlive {
			continue
		}
		left--
		if !slices.Contains(f.watch.beats, n) {
			f.watch.beats = append(f.watch.beats, n)
		}
	}
}

// watchRings adds the heartbeats and the questions for all rings.
func (f *facts) watchRings(d *model.Desired) {
	for _, n := range f.watch.beats {
		receiver(&d.Group, n)
	}
	d.Memory.Rings = f.watch.probes
	for _, at := range slices.SortedFunc(maps.Keys(f.watch.probes), addr.Compare) {
		p := f.watch.probes[at]
		if p.Gone || f.isVIP(d, at) {
			continue // the driver knows an address once
		}
		d.L2 = append(d.L2, model.L2Advert{Addr: at, Interface: p.Interface, Mode: model.L2Probe, Series: p.Series, Lasts: RingProbe})
	}
}

// isVIP tells whether layer 2 may have something else to do for an address: a node that
// has a VIP for its own is not asked for.
func (f *facts) isVIP(d *model.Desired, at addr) bool {
	_, is := slices.BinarySearchFunc(f.v.VIPs, at, func(v model.VIP, a addr) int { return v.Addr.Compare(a) })
	return is || slices.ContainsFunc(d.L2, func(a model.L2Advert) bool { return a.Addr == at })
}
