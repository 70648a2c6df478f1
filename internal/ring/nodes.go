package ring

import (
	"cmp"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

const (
	// LeftHolds is how long a node that has said goodbye stays in the ring of a VIP that it has
	// left bound: the lifetime of the address. A daemon that is back before finds its
	// connections. Of a VIP that only BGP announces it is Terms.Kept.
	LeftHolds = 3 * time.Second
	// BackHolds is for how long a node that was late or away gets no new connections: what it
	// said before, that it has the address, may not be true any more, and its new words take a
	// moment.
	BackHolds = time.Second
)

// holders are the other nodes that say that they have connections to a VIP. Not an owner that is
// silent and has been succeeded without its consent: the wire said that its host has the address
// no more. Whoever waits for it is reset at once, as by any host that lost its connections,
// instead of when the group has given the node up.
func (all *All) holders(r *Request) []model.NodeName {
	nodes := all.v.Gossip.Holders[r.VIP.Addr]
	if len(r.VIP.BGP) > 0 || r.VIP.Unbound {
		// By BGP a node may have connections without being the owner, and for the VIP of a
		// Service a kernel translates without its daemon. A host that is gone is left out, see
		// answering.
		return nodes
	}
	// A node that has a Balanced VIP silently makes no claim to it, and stays while its host
	// answers, see answering. An owner that fell silent had the address on the LAN only.
	for _, c := range all.v.Gossip.Claims[r.VIP.Addr] {
		if c.Epoch >= r.Epoch || c.To != "" || all.v.Gossip.Members[c.Owner].Late.IsZero() {
			continue
		}
		if i, has := slices.BinarySearch(nodes, c.Owner); has {
			nodes = slices.Delete(slices.Clone(nodes), i, i+1)
		}
	}
	return nodes
}

// members are the nodes that share a ring with this one, this one and those of a planned move
// included, in order. More than a ring can have are divided by their order, which is the same for
// all.
func (all *All) members(others []model.NodeName, moves ...model.NodeName) []model.NodeName {
	at, _ := slices.BinarySearch(others, all.v.Self)
	all.names = slices.Insert(append(all.names[:0], others...), at, all.v.Self)
	count := len(all.names)
	rings := (count + model.MaxRing - 1) / model.MaxRing
	size := (count + rings - 1) / rings
	first := at / size * size
	names := all.names[first:min(first+size, count)]
	for _, n := range moves {
		if i, has := slices.BinarySearch(names, n); n != "" && !has && len(names) < model.MaxRing {
			names = slices.Insert(names, i, n)
		}
	}
	return names
}

// lit leaves out those nodes of a ring whose network is dark: their heartbeats may come by
// another one, and what is relayed to them is lost. By BGP a ring may be on any link.
func (all *All) lit(vip *model.VIP, names []model.NodeName) []model.NodeName {
	if len(vip.BGP) > 0 && !vip.FollowsOwner() {
		return names
	}
	return slices.DeleteFunc(names, func(n model.NodeName) bool {
		return n != all.v.Self && all.v.Gossip.Members[n].Standing[vip.Addr] == model.ReasonWireDark
	})
}

// reached are those of the nodes that are there and on the link, this one included.
func (all *All) reached(l *model.Link, p *parts) (names []model.NodeName) {
	for _, n := range p.names {
		if n == all.v.Self {
			names = append(names, n)
			continue
		}
		if at, ok := near(l, all.v.Gossip.Members[n].Addrs, p.Is4); ok && all.there(n, p.Kept) && !all.forgotten(n, at) {
			names = append(names, n)
		}
	}
	return names
}

// there tells whether a node that has a VIP is to be reached: it is alive, or has left the
// address bound when its daemon ended, in order or by itself. One that comes back counts as dead
// for a moment.
func (all *All) there(n model.NodeName, kept time.Duration) bool {
	m := all.v.Gossip.Members[n]
	since, known := all.v.Memory.Left[n]
	switch {
	case m.State == model.MemberAlive:
		return true
	case m.State == model.MemberDead && !known:
		if since = all.outlives(n, kept); since.IsZero() {
			return false
		}
	case !known && m.Gone.IsZero():
		since = all.v.Now
	case !known:
		since = m.Gone
	}
	if all.out.Left == nil {
		all.out.Left = make(map[model.NodeName]time.Time)
	}
	all.out.Left[n] = since
	until := since.Add(cmp.Or(kept, LeftHolds))
	if !all.v.Now.Before(until) {
		return false
	}
	all.by(until)
	return true
}

// spread are those nodes of a ring that get new connections, in order; nil if this node is not
// the owner, which spreads them, or takes them all itself.
func (all *All) spread(r *Request, names []model.NodeName) []model.NodeName {
	if !r.Spreads {
		return nil
	}
	takers := all.takers[:0]
	for _, n := range names {
		if n == all.v.Self && r.Standing.Eligible() || all.takes(r.VIP, n) {
			takers = append(takers, n)
		}
	}
	up := func(n model.NodeName) bool {
		stand := r.Standing
		if n != all.v.Self {
			stand = all.v.Gossip.Members[n].Standing[r.VIP.Addr]
		}
		return !all.leveled || stand != model.ReasonDegraded
	}
	if slices.ContainsFunc(takers, up) { // better than those that are degraded
		takers = slices.DeleteFunc(takers, func(n model.NodeName) bool { return !up(n) })
	}
	all.takers = takers
	return takers
}

// takes tells whether another node of the ring is well. It sends heartbeats to the owner, so that
// its death is noticed as soon as that of an owner is.
func (all *All) takes(vip *model.VIP, n model.NodeName) bool {
	m := all.v.Gossip.Members[n]
	_, eligible := slices.BinarySearch(all.v.Gossip.Eligible[vip.Addr], n)
	if !eligible || m.State != model.MemberAlive || !m.Late.IsZero() || m.Draining {
		return false
	}
	if since := m.Back.Add(BackHolds); all.v.Now.Before(since) {
		all.by(since)
		return false
	}
	return true
}

// backends are the takers that are on the link of the ring; nil if that is nobody but this node.
func (all *All) backends(p *parts, l *model.Link, reached []model.NodeName) (out []model.Backend) {
	for _, n := range reached {
		if !slices.Contains(p.takers, n) {
			continue
		}
		b := model.Backend{Node: n, Weight: all.v.Weight}
		if m := all.v.Gossip.Members[n]; n != all.v.Self {
			b.Weight = m.Weight
			b.Addr, _ = near(l, m.Addrs, p.Is4)
		}
		out = append(out, b)
	}
	if !slices.ContainsFunc(out, func(b model.Backend) bool { return b.Node != all.v.Self }) {
		return nil
	}
	return out
}
