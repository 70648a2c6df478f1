// Package ring decides which nodes are the ring of a VIP, on which interface, who of them gets
// its new connections, and whether this node can be in one. It is pure.
package ring

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

const (
	// RulesLast is how long the kernel relays for a VIP of layer 2 after the last refresh, which
	// comes at a third of it: what is left when the daemon dies is never less than the lifetime
	// of the address. Rules that ended first would have the connections of other nodes reset here
	// for as long as the address is still there.
	RulesLast = 5 * time.Second
	// SharedLifetime is how long the kernel relays for a Balanced VIP after the last refresh. It
	// is as long as silence lasts: while an owner whose daemon was killed still has the address,
	// the connections of the other nodes depend on it.
	SharedLifetime = 9 * time.Second
)

// All are the rings of the VIPs of one decision. Thousands of VIPs have one ring, so what was
// found out for one serves the next.
type All struct {
	v       *model.View
	gen     uint64
	leveled bool            // the group tells what is degraded from what is up
	seen    *model.RingHost // nil: nothing is known
	address model.Applied   // what is bound, as last reported

	services Serving

	last          made
	names, takers []model.NodeName // of the ring that is asked for now
	crowds        map[crowdOn]crowd
	way           way
	apart         apart

	others    []model.NodeName // of Elsewhere
	elsewhere elsewhere

	out Output // without Questions
}

// New begins with the rings of the decision of this generation, by these rules of the group.
func New(v *model.View, gen uint64, rules int) All {
	return All{
		v: v, gen: gen, leveled: rules >= election.RulesDegraded, seen: v.Applied[model.SinkRelay].Ring, address: v.Applied[model.SinkAddress],
		services: Services(v),
	}
}

// Services is what is decided for the VIPs of Services together, once Obstacle was asked for each.
func (all *All) Services() Serving {
	s := all.services
	s.Known = s.Known && s.some
	return s
}

// Quiet tells whether it is no problem that connections to a VIP may be reset: nobody has asked to
// keep them.
func (all *All) Quiet(vip *model.VIP) bool {
	return ofService(vip) && all.v.ServiceConnections == model.ServicesAuto
}

func (all *All) by(t time.Time) { all.out.Wake = model.Earliest(all.out.Wake, t) }

// Output is what rings need besides themselves.
type Output struct {
	// Left and Probes are for the memory of the next decision.
	Left   map[model.NodeName]time.Time
	Probes map[netip.Addr]model.RingProbe
	// Heartbeats are the nodes that are to get heartbeats.
	Heartbeats []model.NodeName
	// Questions are for layer 2, in the order of their addresses.
	Questions []model.L2Advert
	// Wake is when something changes by itself; zero: never.
	Wake time.Time
}

// Output is what all rings that were asked for need.
func (all *All) Output() Output {
	o := all.out
	for _, at := range slices.SortedFunc(maps.Keys(o.Probes), netip.Addr.Compare) {
		if p := o.Probes[at]; !p.Gone {
			o.Questions = append(o.Questions, model.L2Advert{Addr: at, Interface: p.Interface, Mode: model.L2Probe, Series: p.Series, Lasts: Probe})
		}
	}
	return o
}

// Terms are what a ring depends on besides its nodes.
type Terms struct {
	// Interface is the one on which the ring has to be; "": any.
	Interface string
	Is4       bool // the family
	// Kept is for how long a node goes on to serve the VIP without its daemon, where no election
	// waits for the end of that; zero: layer 2 has the VIP.
	Kept time.Duration
	// Unwell: the server of this node fails its check.
	Unwell bool
	// Shared: the address is bound here since the VIP is Balanced, was, or is about to be.
	Shared bool
}

// Request is a VIP whose ring is asked for, and what decides who is in it besides the View.
type Request struct {
	VIP *model.VIP
	Terms
	// Epoch is the highest epoch that was heard of or given.
	Epoch uint64
	// From is who had the VIP before, and To who was named to have it, while the group may not have
	// said so yet.
	From, To model.NodeName
	// Spreads: this node owns the VIP and spreads its new connections. Standing says whether it
	// takes some itself.
	Spreads  bool
	Standing model.Reason
	// Was is the ring of the decision before that is taken over if it is the same; nil: none.
	Was *model.Ring
}

// made is a ring and what it was made of; the ring is nil if nobody else can be reached.
type made struct {
	parts
	on   string
	ring *model.Ring
}

// parts are what a ring is made of.
type parts struct {
	names  []model.NodeName
	takers []model.NodeName // that get new connections from this node
	Terms
}

// same tells whether a ring of the one serves the other.
func (p *parts) same(o *parts) bool {
	return slices.Equal(p.names, o.names) && slices.Equal(p.takers, o.takers) && p.Terms == o.Terms
}

// lifetime is how long the kernel relays after the last refresh.
func (t *Terms) lifetime() time.Duration {
	switch {
	case t.Kept != 0:
		return t.Kept
	case t.Shared:
		return SharedLifetime
	}
	return RulesLast
}

// Of makes the ring of a VIP, unless that of the VIP before serves, and says on which interface
// it is: packets that no socket here can place are sent on to the other nodes that have the VIP,
// silently or not. The ring is nil if there is nobody.
func (all *All) Of(r *Request) (string, *model.Ring) {
	others := all.holders(r)
	if len(others) == 0 && r.From == "" && r.To == "" {
		return "", nil
	}
	want := parts{names: all.lit(r.VIP, all.members(others, r.From, r.To)), Terms: r.Terms}
	want.takers = all.spread(r, want.names)
	if !all.last.same(&want) {
		want.names, want.takers = slices.Clone(want.names), slices.Clone(want.takers)
		on, ring := all.build(&want)
		if r.Was.Same(ring) {
			ring = r.Was
		}
		all.last = made{want, on, ring}
	}
	return all.last.on, all.last.ring
}

// build finds the link on which most of the nodes are, and what its ring is. There is none if
// nobody is.
func (all *All) build(p *parts) (on string, ring *model.Ring) {
	var links []string
	for name, l := range all.v.Links {
		if l.Up && name != model.LoopbackInterface && (p.Interface == "" || p.Interface == name) && !(p.Is4 && oneWay(all.v.Links, &l)) {
			links = append(links, name)
		}
	}
	slices.Sort(links) // a node on several is asked for on the first
	var names, there []model.NodeName
	for _, name := range links {
		l := all.v.Links[name]
		reached := all.reached(&l, p)
		answer := all.answering(&l, p.Is4, reached)
		if len(answer) > len(names) {
			names, there, on = answer, reached, name
		}
	}
	all.beat(there)
	if len(names) < 2 {
		return on, nil
	}
	link := all.v.Links[on]
	next := all.v.Gossip.Members[names[(slices.Index(names, all.v.Self)+1)%len(names)]]
	crowd := all.crowd(&link, p.Is4)
	ring = &model.Ring{
		Nodes: len(names), Peers: crowd.peers, Origins: crowd.origins, Ends: ends(&link, next.Addrs), Lifetime: p.lifetime(), Unwell: p.Unwell,
		Shared: p.Shared, Spread: all.backends(p, &link, names),
	}
	if p.Is4 {
		ring.Beside = place.Beside(all.v.Links, on)
	}
	ring.Next, _ = near(&link, next.Addrs, p.Is4)
	return on, ring
}
