package decide

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

const (
	// maxAddrs bounds how many addresses the group is told; one of each link and family goes
	// before a second one.
	maxAddrs = 4
	// LeftHolds is how long a node that has said goodbye stays in the ring of a VIP that
	// it has left bound: the lifetime of the address. A daemon that is back before finds
	// its connections.
	LeftHolds = 3 * time.Second
	// LeftHoldsBGP is the same for a VIP that only BGP announces.
	LeftHoldsBGP = BGPLifetime
	// RulesLast is how long the kernel relays for a VIP of layer 2 after the last refresh,
	// which comes at a third of it: what is left when the daemon dies is never less than
	// the lifetime of the address. Rules that ended first would have the connections of
	// other nodes reset here for as long as the address is still there.
	RulesLast = 5 * time.Second
)

// lanAddrs are the addresses of this node on the links that a VIP of layer 2 may be
// on, and for VIPs of BGP on those with another node or a router.
func lanAddrs(v *model.View) []addr {
	var out, more []addr
	bgp := slices.ContainsFunc(v.VIPs, func(vip model.VIP) bool { return len(vip.BGP) > 0 })
	for _, l := range v.Links {
		if !l.Up || l.Name == model.LoopbackInterface || !place.AnyBelongsOn(v.VIPs, &l, true) && !(bgp && neighbours(v, &l)) {
			continue
		}
		four, six := place.Addresses(&l)
		for _, all := range [][]addr{four, six} {
			first := min(len(all), 1)
			out, more = append(out, all[:first]...), append(more, all[first:]...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	slices.SortFunc(more, netip.Addr.Compare)
	out = append(out, more...)
	out = out[:min(len(out), maxAddrs)]
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// neighbours tells whether another node, or a BGP peer, is on the link.
func neighbours(v *model.View, l *model.Link) bool {
	for _, m := range v.Gossip.Members {
		if place.Reaches(l, m.Addr) {
			return true
		}
	}
	return slices.ContainsFunc(v.Peers, func(p model.BGPPeer) bool { return place.Reaches(l, p.Address) })
}

// placed is where a VIP of layer 2 is bound on this node, or is to be, else "".
func (f *facts) placed(m *model.VIPMemory) string {
	if m.Unbound || m.Phase != model.PhaseReleasing && present(m) == "" {
		return ""
	}
	return m.Interface
}

// RelayWait is how long a new owner waits at most with its announcement until its kernel
// relays to the former one, which still has the address meanwhile; and a node with that
// to routers. The rules take some milliseconds, as the address does, each family; on a
// machine without time many. A planned move has that time: see election.HandoverTimeout.
const RelayWait = 150 * time.Millisecond

// relayWaits tells whether the driver has yet to answer to the ring of a planned move.
func (f *facts) relayWaits(m *model.VIPMemory) bool {
	relay, works := f.v.Applied[model.SinkRelay]
	end := m.RelayUntil.Add(RelayWait - election.RelayFor)
	if m.Phase != model.PhaseTaking || m.RelayUntil.IsZero() || !works || relay.Gen >= m.Gen || !f.v.Now.Before(end) {
		return false
	}
	f.w.by(end)
	return true
}

// holds tells whether the connections to a VIP that this node has are to be found by
// a ring.
func (t *turn) holds(in *election.Input, m *model.VIPMemory) bool {
	if in.VIP.Unbound {
		return t.holdsService(in.VIP, in.Interface, m)
	}
	bgp := t.holdsBGP(in.VIP)
	if bgp || !in.Keep {
		return bgp
	}
	if m.Resume {
		return true // the address is away for a moment, the connections are not
	}
	switch m.Phase {
	case model.PhaseOwner, model.PhaseHandover, model.PhaseDoubt, model.PhaseReleasing:
		return in.Address.Bound
	}
	return false
}

// holdsBGP is holds for what is bound for BGP, or is Balanced, by the decision before.
func (t *turn) holdsBGP(vip *model.VIP) bool {
	return t.viaLo(vip) && t.keeps(vip, t.ringOn(vip)) && t.phaseBGP(vip) >= model.BGPAdvertised && t.boundBGP(vip)
}

// phaseBGP is how far BGP was with a VIP. What an earlier process of this node left
// bound was advertised: a node that is back is in the ring from its first decision on.
func (f *facts) phaseBGP(vip *model.VIP) model.BGPPhase {
	m, known := f.v.Memory.BGP[vip.Addr]
	if !known && f.boundBGP(vip) {
		return model.BGPAdvertised
	}
	return m.Phase
}

func (f *facts) boundBGP(vip *model.VIP) bool {
	return f.address.Loopback[vip.Addr].Bound || f.address.VIPs[vip.Addr].Bound
}

// ringOf is a ring and what it was made of.
type ringOf struct {
	made     bool
	names    []model.NodeName
	over     []model.NodeName // that get new connections from this one
	iface    string           // that it has to be on; "": any
	is4      bool
	lifetime time.Duration
	unwell   bool // the server of this node fails its check
	shared   bool // see facts.shared

	on   string // where it is
	ring *model.Ring
}

// asks tells whether a ring was made for the same.
func (r *ringOf) asks(o *ringOf) bool {
	return r.made && slices.Equal(r.names, o.names) && slices.Equal(r.over, o.over) && r.iface == o.iface && r.is4 == o.is4 && r.lifetime == o.lifetime && r.unwell == o.unwell && r.shared == o.shared
}

// relay asks for the ring of a VIP that this node has, or is about to have: packets
// that no socket here can place are sent on to the other nodes that have it, silently
// or not.
func (t *turn) relay(vip *model.VIP) {
	if vip.Unbound {
		t.relayService(vip)
		return
	}
	iface := t.boundOn
	if iface == "" {
		iface = t.ringOn(vip)
	}
	onLo := t.viaLo(vip) && (t.toRouters || t.phaseBGP(vip) >= model.BGPBinding) || t.mayShare(vip) && !t.shares(vip)
	if t.boundOn == "" && !onLo || !t.wantsRing(vip, iface) {
		return
	}
	others := t.holders(vip)
	if len(others) == 0 && t.takenFrom == "" {
		return
	}
	want := ringOf{
		made: true, names: t.lit(vip, t.members(others)), iface: iface, is4: vip.Addr.Is4(),
		unwell: vip.Check != "" && t.v.Health[vip.Check].State == model.HealthDown,
		shared: t.shared(vip),
	}
	want.over = t.takers(vip, want.names)
	switch {
	case !vip.L2:
		want.lifetime = BGPLifetime
	case want.shared:
		want.lifetime = SharedLifetime
	default:
		want.lifetime = RulesLast
	}
	t.ask(vip, want)
}

// ask makes a ring, unless that of the VIP before serves, and asks for it.
func (f *facts) ask(vip *model.VIP, want ringOf) {
	last := &f.rings.last
	if !last.asks(&want) {
		want.names, want.over = slices.Clone(want.names), slices.Clone(want.over)
		f.makeRing(&want)
		if o := f.lists.relay.next(); o != nil && o.Ring.Same(want.ring) {
			want.ring = o.Ring
		}
		*last = want
	}
	if last.ring != nil {
		put(&f.lists.relay, model.Relay{Addr: vip.Addr, Interface: last.on, Ring: last.ring, Tracked: vip.Unbound})
	}
}

// holders are the other nodes that say that they have connections to a VIP. Not an
// owner that is silent and has been succeeded without its consent: the wire said that
// its host has the address no more. Whoever waits for it is reset at once, as by any
// host that lost its connections, instead of when the group has given the node up.
func (t *turn) holders(vip *model.VIP) []model.NodeName {
	all := t.v.Gossip.Holders[vip.Addr]
	if len(vip.BGP) > 0 {
		return all // it may have connections without being the owner
	}
	// So may a node that has a Balanced VIP silently, which makes no claim to it: it
	// stays while its host answers, see answering. An owner that fell silent had the
	// address on the LAN only.
	for _, c := range t.v.Gossip.Claims[vip.Addr] {
		if c.Epoch >= t.epoch || c.To != "" || t.v.Gossip.Members[c.Owner].Late.IsZero() {
			continue
		}
		if i, has := slices.BinarySearch(all, c.Owner); has {
			all = slices.Delete(slices.Clone(all), i, i+1)
		}
	}
	return all
}

// members are the nodes that share a ring with this one, this one included, in order.
// More than a ring can have are divided by their order, which is the same for all.
func (t *turn) members(others []model.NodeName) []model.NodeName {
	self := t.v.Self
	at, _ := slices.BinarySearch(others, self)
	all := len(others) + 1
	rings := (all + model.MaxRing - 1) / model.MaxRing
	size := (all + rings - 1) / rings
	first := at / size * size
	t.names = t.names[:0]
	for i := first; i < min(first+size, all); i++ {
		switch {
		case i < at:
			t.names = append(t.names, others[i])
		case i == at:
			t.names = append(t.names, self)
		default:
			t.names = append(t.names, others[i-1])
		}
	}
	if i, has := slices.BinarySearch(t.names, t.takenFrom); t.takenFrom != "" && !has && len(t.names) < model.MaxRing {
		t.names = slices.Insert(t.names, i, t.takenFrom)
	}
	return t.names
}

// lit leaves out those nodes of a ring whose network is dark: their heartbeats may come by
// another one, and what is relayed to them is lost. By BGP a ring may be on any link.
func (f *facts) lit(vip *model.VIP, names []model.NodeName) []model.NodeName {
	if len(vip.BGP) > 0 {
		return names
	}
	return slices.DeleteFunc(names, func(n model.NodeName) bool {
		return n != f.v.Self && f.v.Gossip.Members[n].Standing[vip.Addr] == model.ReasonWireDark
	})
}

// makeRing finds the link on which most of the nodes are, and what its ring is. There
// is none if nobody is.
func (f *facts) makeRing(r *ringOf) {
	var names, all []model.NodeName
	for name, l := range f.v.Links {
		if !l.Up || name == model.LoopbackInterface || r.iface != "" && r.iface != name || r.is4 && oneWay(f.v.Links, &l) {
			continue
		}
		there := f.reached(&l, r)
		on := f.answering(&l, r, there)
		if len(on) > len(names) || len(on) == len(names) && strings.Compare(name, r.on) < 0 {
			names, all, r.on = on, there, name
		}
	}
	f.beat(all)
	if len(names) < 2 {
		return
	}
	link := f.v.Links[r.on]
	next := f.v.Gossip.Members[names[(slices.Index(names, f.v.Self)+1)%len(names)]]
	on := f.crowd(&link, r.is4)
	r.ring = &model.Ring{
		Nodes: len(names), Peers: on.peers, Origins: on.origins, Ends: ends(&link, next.Addrs), Lifetime: r.lifetime, Unwell: r.unwell,
		Shared: r.shared, Spread: f.backends(r, &link, names),
	}
	if r.is4 {
		r.ring.Beside = place.Beside(f.v.Links, r.on)
	}
	r.ring.Next, _ = near(&link, next.Addrs, r.is4)
}

// reached are those of the nodes that are there and on the link, this one included.
func (f *facts) reached(l *model.Link, r *ringOf) (names []model.NodeName) {
	for _, n := range r.names {
		if n == f.v.Self {
			names = append(names, n)
			continue
		}
		if at, ok := near(l, f.v.Gossip.Members[n].Addrs, r.is4); ok && f.there(n, r) && !f.forgotten(n, at) {
			names = append(names, n)
		}
	}
	return names
}

// there tells whether a node that has a VIP is to be reached: it is alive, or has left
// the address bound when its daemon ended, in order or by itself. One that comes back
// counts as dead for a moment.
func (f *facts) there(n model.NodeName, r *ringOf) bool {
	m := f.v.Gossip.Members[n]
	since, known := f.v.Memory.Left[n]
	switch {
	case m.State == model.MemberAlive:
		return true
	case m.State == model.MemberDead && !known:
		if since = f.outlives(n, r); since.IsZero() {
			return false
		}
	case !known && m.Gone.IsZero():
		since = f.v.Now
	case !known:
		since = m.Gone
	}
	until := since.Add(LeftHolds)
	if r.lifetime == BGPLifetime {
		until = since.Add(LeftHoldsBGP)
	}
	if f.left == nil {
		f.left = make(map[model.NodeName]time.Time)
	}
	f.left[n] = since
	if !f.v.Now.Before(until) {
		return false
	}
	f.w.by(until)
	return true
}

// near is the first of the addresses of a node, of the family of the VIP, that is in a
// subnet of the link and not an address of this node.
func near(l *model.Link, addrs []addr, is4 bool) (addr, bool) {
	i := slices.IndexFunc(addrs, func(a addr) bool { return a.Is4() == is4 && place.Reaches(l, a) })
	if i < 0 {
		return addr{}, false
	}
	return addrs[i], true
}

// ends are the addresses of this node on the link and those of the next one.
func ends(l *model.Link, next []addr) []addr {
	out := slices.Clone(next)
	for _, p := range l.Prefixes {
		out = append(out, p.Addr())
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// crowd is what the rings on a link know of all other nodes on it, whether or not they are
// in the ring: their hardware addresses, and the sources of their own connections.
type crowd struct {
	peers   []model.MAC
	origins []model.Origin
}

// crowdOn is where a crowd is.
type crowdOn struct {
	iface string
	is4   bool
}

// crowd finds who is on a link, once for all rings there. The frames of a node that is on
// other links only do not come in here but by a router, with its hardware address.
func (f *facts) crowd(l *model.Link, is4 bool) crowd {
	at := crowdOn{l.Name, is4}
	c, known := f.crowds[at]
	if known {
		return c
	}
	for _, m := range f.v.Gossip.Members {
		if !f.beside(l, &m) {
			continue
		}
		c.peers = append(c.peers, m.MACs...)
		for _, mac := range m.MACs {
			for _, a := range m.Addrs {
				if a.Is4() == is4 {
					c.origins = append(c.origins, model.Origin{MAC: mac, Addr: a})
				}
			}
		}
	}
	slices.SortFunc(c.peers, model.MAC.Compare)
	c.peers = slices.Compact(c.peers)
	slices.SortFunc(c.origins, model.Origin.Compare)
	c.origins = slices.Compact(c.origins)
	if f.crowds == nil {
		f.crowds = make(map[crowdOn]crowd)
	}
	f.crowds[at] = c
	return c
}

// beside tells whether a node is on the link, by any of its addresses. One that has not
// told any may be.
func (f *facts) beside(l *model.Link, m *model.Member) bool {
	return len(m.Addrs) == 0 || place.Reaches(l, m.Addr) || slices.ContainsFunc(m.Addrs, func(a addr) bool { return place.Reaches(l, a) })
}
