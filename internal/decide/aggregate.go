package decide

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// contribution is one VIP in a prefix of several, or many that are advertised alike.
type contribution struct {
	route    *route
	shutdown bool
}

// contribute has a prefix of several addresses advertised because of one of them.
func (f *facts) contribute(p netip.Prefix, r *route, shutdown bool) {
	if f.aggregates == nil {
		f.aggregates = make(map[netip.Prefix][]contribution)
	}
	if c := (contribution{r, shutdown}); !slices.Contains(f.aggregates[p], c) {
		f.aggregates[p] = append(f.aggregates[p], c)
	}
}

// aggregate adds the paths to prefixes of several addresses.
func (f *facts) aggregate(d *model.Desired) {
	d.Memory.Aggregates, d.Memory.Conflicts = nil, nil
	if len(f.aggregates) == 0 {
		return
	}
	for _, p := range slices.SortedFunc(maps.Keys(f.aggregates), model.ComparePaths) {
		to, words := unite(p, f.aggregates[p])
		path := model.BGPPath{Prefix: p, To: to}
		f.lists.path(path)
		d.Memory.Aggregates = append(d.Memory.Aggregates, path)
		if words != "" {
			if d.Memory.Conflicts == nil {
				d.Memory.Conflicts = make(map[netip.Prefix]string)
			}
			d.Memory.Conflicts[p] = words
		}
	}
	if !maps.Equal(d.Memory.Conflicts, f.v.Memory.Conflicts) {
		f.w.by(f.v.Now) // the next decision tells of them
	}
}

// unite finds who gets a prefix, and how, from all that contribute to it.
func unite(p netip.Prefix, all []contribution) (to []model.BGPAudience, conflict string) {
	alike := !slices.ContainsFunc(all, func(c contribution) bool { return c.route != all[0].route })
	if alike {
		return all[0].route.audiences(!slices.ContainsFunc(all, func(c contribution) bool { return !c.shutdown })), ""
	}
	var u union
	for _, c := range all {
		for i := range c.route.to {
			for _, peer := range c.route.to[i].Peers {
				u.add(peer, &c.route.to[i].PathAttributes, c.shutdown)
			}
		}
	}
	return u.audiences(), u.words("adverts of " + p.String() + " differ")
}

// carries tells whether paths are to be advertised because of this VIP.
func (s *bgpVIP) carries() bool {
	return s.m.Phase == model.BGPAdvertised || s.m.Phase == model.BGPShutdown
}

// advertised are the peers that have a path to this VIP: while it is advertised those
// that are to have one, and otherwise those that still do.
func (s *bgpVIP) advertised() []string {
	if !s.carries() {
		return s.left()
	}
	if len(s.routes) == 1 && s.routes[0].length == 0 {
		return s.turn.bgp.Paths[model.PrefixOf(s.vip.Addr, 0)]
	}
	has := func(peer string) bool {
		return slices.ContainsFunc(s.routes, func(r route) bool {
			return slices.Contains(r.peers, peer) && slices.Contains(s.turn.bgp.Paths[model.PrefixOf(s.vip.Addr, r.length)], peer)
		})
	}
	lacks := slices.IndexFunc(s.peers, func(peer string) bool { return !has(peer) })
	if lacks < 0 {
		return s.peers // all of them, as usual; no copy
	}
	var out []string
	for i, peer := range s.peers {
		if i < lacks || i > lacks && has(peer) {
			out = append(out, peer)
		}
	}
	return out
}

// left are the peers that have a path which holds the address and is not wanted for
// another VIP.
func (s *bgpVIP) left() []string {
	out := s.turn.bgp.Paths[model.PrefixOf(s.vip.Addr, 0)]
	for _, n := range s.turn.lengths(s.vip.Addr) {
		p := model.PrefixOf(s.vip.Addr, n)
		wanted, found := slices.BinarySearchFunc(s.turn.v.Memory.Aggregates, p, func(x model.BGPPath, p netip.Prefix) int { return model.ComparePaths(x.Prefix, p) })
		for _, peer := range s.turn.bgp.Paths[p] {
			if found && s.turn.v.Memory.Aggregates[wanted].Has(peer) {
				continue
			}
			if !slices.Contains(out, peer) {
				out = append(slices.Clip(out), peer)
			}
		}
	}
	return out
}

// lengths are those of the prefixes of several addresses that peers have, for the
// family of an address.
func (f *facts) lengths(like addr) []int {
	if f.reported == nil {
		f.reported = map[bool][]int{}
		for p, peers := range f.bgp.Paths {
			four := p.Addr().Is4()
			if !p.IsSingleIP() && len(peers) > 0 && !slices.Contains(f.reported[four], p.Bits()) {
				f.reported[four] = append(f.reported[four], p.Bits())
			}
		}
		for _, l := range f.reported {
			slices.Sort(l)
		}
	}
	return f.reported[like.Is4()]
}

// conflicts tells in words where adverts of the VIP, or of others in its prefixes,
// do not agree.
func (s *bgpVIP) conflicts() string {
	out := s.conflict
	if len(s.turn.v.Memory.Conflicts) == 0 {
		return out
	}
	for i := range s.routes {
		if n := s.routes[i].length; n != 0 {
			out = both(out, s.turn.v.Memory.Conflicts[model.PrefixOf(s.vip.Addr, n)])
		}
	}
	return out
}
