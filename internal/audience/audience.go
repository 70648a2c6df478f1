// Package audience finds which BGP peers hear of which VIPs, by which paths and with which
// attributes. It is pure.
package audience

import (
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// Audience is who is told of VIPs of one family with the same adverts, and how. It
// is found once for all of them, and never changed.
type Audience struct {
	// Peers are all that are to have a path, by name.
	Peers []string
	// Delay is for how long they are asked to leave before a path is withdrawn.
	Delay time.Duration
	// Keep: all of them keep the path over a restart.
	Keep bool
	// Routes are the paths; that to the address alone comes first.
	Routes []Route
	// Conflict is in words where the adverts differ; empty if they do not.
	Conflict string

	adverts []model.BGPAdvert
	four    bool
}

// Nobody is the audience of a VIP of which no peer is told. It is never changed.
var Nobody = &Audience{}

// Route is what is advertised of an address by adverts of the same length.
type Route struct {
	// Length is that of a prefix of several addresses; 0: the address alone.
	Length int
	// Peers are those that are to have it.
	Peers []string

	to, leaving []model.BGPAudience
}

// To are those who are told of the path, with GRACEFUL_SHUTDOWN (RFC 8326) or without.
func (r *Route) To(shutdown bool) []model.BGPAudience {
	if shutdown {
		return r.leaving
	}
	return r.to
}

// asked is what an audience depends on: a list of adverts, by where it is in memory,
// and a family.
type asked struct {
	first *model.BGPAdvert
	n     int
	four  bool
}

// recent is how many audiences a new list of adverts is compared with.
const recent = 16

// All are the audiences of the VIPs of one decision.
type All struct {
	peers      []model.BGPPeer
	found      map[asked]*Audience
	recent     [recent]*Audience
	last       *Audience // that was asked for
	aggregates map[netip.Prefix][]contribution
}

// New begins with the peers of this node, see Peers.
func New(peers []model.BGPPeer) All { return All{peers: peers} }

// Begin fills in what all sessions share, and begins with the peers of this node. ready: all that
// is advertised is known, or is waited for no more.
func Begin(v *model.View, d *model.Desired, ready bool) All {
	peers := Peers(v)
	if len(peers)+len(v.Listeners) > 0 && !d.Memory.RouterID.IsValid() {
		d.Memory.RouterID = RouterID(v, peers)
	}
	d.BGP = model.BGPState{RouterID: d.Memory.RouterID, Listen: v.BGP.Listen, ListenPort: v.BGP.ListenPort, Peers: peers, Listeners: v.Listeners, Ready: ready}
	return New(peers)
}

// Advertise adds the paths by which an audience is told of one address. Those to prefixes of
// several addresses come with End.
func (all *All) Advertise(vip netip.Addr, to *Audience, shutdown bool, add func(model.BGPPath)) {
	for i := range to.Routes {
		r := &to.Routes[i]
		if p := model.PrefixOf(vip, r.Length); r.Length == 0 {
			add(model.BGPPath{Prefix: p, To: r.To(shutdown)})
		} else {
			all.contribute(p, r, shutdown)
		}
	}
}

// Of is the audience of a VIP that has adverts. Mostly it is that of the VIP before.
func (all *All) Of(vip *model.VIP) *Audience {
	if a := all.last; a == nil || a.four != vip.Addr.Is4() || len(a.adverts) != len(vip.BGP) || &a.adverts[0] != &vip.BGP[0] {
		all.last = all.find(vip)
	}
	return all.last
}

// find finds it among all of the decision.
func (all *All) find(vip *model.VIP) *Audience {
	four := vip.Addr.Is4()
	k := asked{&vip.BGP[0], len(vip.BGP), four}
	if a := all.found[k]; a != nil {
		return a
	}
	for _, a := range all.recent {
		if a != nil && a.four == four && slices.EqualFunc(a.adverts, vip.BGP, sameAdvert) {
			return a // another list, which says the same
		}
	}
	a := all.newAudience(vip.BGP, vip.Addr)
	if all.found == nil {
		all.found = make(map[asked]*Audience)
	}
	all.found[k] = a
	copy(all.recent[1:], all.recent[:])
	all.recent[0] = a
	return a
}

func sameAdvert(a, b model.BGPAdvert) bool {
	return a.Length == b.Length && slices.Equal(a.Peers, b.Peers) && a.PathAttributes.Equal(&b.PathAttributes)
}

// newAudience finds who is told of addresses like this one.
func (all *All) newAudience(adverts []model.BGPAdvert, like netip.Addr) *Audience {
	a := &Audience{adverts: adverts, four: like.Is4(), Keep: true}
	var lengths []int
	for i := range adverts {
		if n := lengthOf(&adverts[i], like); !slices.Contains(lengths, n) {
			lengths = append(lengths, n)
		}
	}
	slices.Sort(lengths)
	var u union
	for _, n := range lengths {
		u.begin()
		for i := range all.peers {
			p := &all.peers[i]
			for j := range adverts {
				if b := &adverts[j]; lengthOf(b, like) == n && wants(b, p, a.four) {
					u.add(p.Name, &b.PathAttributes, false)
				}
			}
		}
		if len(u.names) > 0 {
			r := Route{Length: n, Peers: u.names, to: u.audiences()}
			r.leaving = slices.Clone(r.to)
			for i := range r.leaving {
				r.leaving[i].Shutdown = true
			}
			a.Routes = append(a.Routes, r)
		}
	}
	a.Conflict = u.words("its adverts differ")
	for i := range all.peers {
		p := &all.peers[i]
		if slices.ContainsFunc(a.Routes, func(r Route) bool { return slices.Contains(r.Peers, p.Name) }) {
			a.Peers = append(a.Peers, p.Name)
			a.Delay = max(a.Delay, p.ShutdownDelay)
			a.Keep = a.Keep && p.GracefulRestart
		}
	}
	return a
}

// lengthOf is the length of the prefix of several addresses that an advert asks for,
// 0 if of one.
func lengthOf(b *model.BGPAdvert, like netip.Addr) int {
	if b.Length < 0 || b.Length >= like.BitLen() {
		return 0
	}
	return b.Length
}
