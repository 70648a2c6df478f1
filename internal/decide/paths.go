package decide

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/audience"
	"lbd.dev/lbd/internal/model"
)

// aggregate adds the paths to prefixes of several addresses.
func (f *facts) aggregate(d *model.Desired) {
	d.Memory.Aggregates, d.Memory.Conflicts = f.audiences.Aggregates()
	for _, path := range d.Memory.Aggregates {
		f.lists.path(path)
	}
	if len(d.Memory.Aggregates) > 0 && !maps.Equal(d.Memory.Conflicts, f.v.Memory.Conflicts) {
		f.w.by(f.v.Now) // the next decision tells of them
	}
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
	if len(s.to.Routes) == 1 && s.to.Routes[0].Length == 0 {
		return s.turn.bgp.Paths[model.PrefixOf(s.vip.Addr, 0)]
	}
	has := func(peer string) bool {
		return slices.ContainsFunc(s.to.Routes, func(r audience.Route) bool {
			return slices.Contains(r.Peers, peer) && slices.Contains(s.turn.bgp.Paths[model.PrefixOf(s.vip.Addr, r.Length)], peer)
		})
	}
	lacks := slices.IndexFunc(s.to.Peers, func(peer string) bool { return !has(peer) })
	if lacks < 0 {
		return s.to.Peers // all of them, as usual; no copy
	}
	var out []string
	for i, peer := range s.to.Peers {
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
	out := s.to.Conflict
	if len(s.turn.v.Memory.Conflicts) == 0 {
		return out
	}
	for i := range s.to.Routes {
		if n := s.to.Routes[i].Length; n != 0 {
			out = both(out, s.turn.v.Memory.Conflicts[model.PrefixOf(s.vip.Addr, n)])
		}
	}
	return out
}

// speaker fills in what all sessions share.
func (f *facts) speaker(d *model.Desired) {
	f.peers = audience.Peers(f.v)
	f.audiences = audience.New(f.peers)
	if len(f.peers) > 0 && !d.Memory.RouterID.IsValid() {
		d.Memory.RouterID = audience.RouterID(f.v, f.peers)
	}
	d.BGP = model.BGPState{
		RouterID: d.Memory.RouterID, Listen: f.v.BGP.Listen, ListenPort: f.v.BGP.ListenPort,
		Peers: f.peers, Ready: !awaited(f.v, f.w),
	}
}
