package loopback

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/internal/audience"
	"lbd.dev/lbd/internal/model"
)

// Routers is what is known of the routers of this node, for all VIPs of a decision.
type Routers struct {
	Peers  []model.BGPPeer
	Report model.Applied // of the BGP driver
	// Aggregates are the paths to prefixes of several addresses that were wanted by the decision
	// before, and Conflicts is in words where VIPs in one of them are advertised in ways that
	// differ.
	Aggregates []model.BGPPath
	Conflicts  map[netip.Prefix]string
	// Losses is when sessions were lost, see there.
	Losses map[string]model.SessionLosses

	lengths map[bool][]int // see lengthsLike
	lack    struct {       // of the VIP before, see missing
		peers, advertised []string
		words             string
	}
}

// established is the state of a session that is up.
const established = "Established"

// session is what is reported of the session with a peer; nothing if there is none.
func (r *Routers) session(peer string) (x model.PeerReport) {
	if i := slices.IndexFunc(r.Report.Peers, func(x model.PeerReport) bool { return x.Name == peer }); i >= 0 {
		x = r.Report.Peers[i]
	}
	return x
}

// mayKeepPath tells whether a router may still keep a path of an earlier process: one with
// graceful restart with which there is no session yet, whose End-of-RIB ends that (RFC 4724
// section 4.2).
func (r *Routers) mayKeepPath() bool {
	return slices.ContainsFunc(r.Peers, func(p model.BGPPeer) bool { return p.GracefulRestart && r.session(p.Name).State != established })
}

// pathGone tells whether the BGP driver has reported, after the phase began, that no peer has a
// path because of this VIP, and no router keeps one over the loss of a session with graceful
// restart (RFC 4724 section 4.2).
func (s *step) pathGone() bool {
	r := s.in.Routers
	if left := r.left(s.in.VIP.Addr); len(left) > 0 || s.in.OnlyBalanced() {
		return len(left) == 0
	}
	if r.Report.Gen < s.m.Gen {
		return false
	}
	for _, p := range r.Peers {
		x := r.session(p.Name)
		if until := x.Since.Add(p.RestartTime); p.GracefulRestart && x.State != established && s.in.Now.Before(until) {
			s.at(until)
			return false
		}
	}
	return true
}

// advertised are the peers that have a path to this VIP: while it is advertised those that are to
// have one, and otherwise those that still do.
func (s *step) advertised() []string {
	a, to, paths := s.in.VIP.Addr, s.in.Audience, s.in.Routers.Report.Paths
	if !s.carries() {
		return s.in.Routers.left(a)
	}
	if len(to.Routes) == 1 && to.Routes[0].Length == 0 {
		return paths[model.PrefixOf(a, 0)]
	}
	lacks := func(peer string) bool {
		return !slices.ContainsFunc(to.Routes, func(r audience.Route) bool {
			return slices.Contains(r.Peers, peer) && slices.Contains(paths[model.PrefixOf(a, r.Length)], peer)
		})
	}
	if !slices.ContainsFunc(to.Peers, lacks) {
		return to.Peers // all of them, as usual; no copy
	}
	var out []string
	for _, peer := range to.Peers {
		if !lacks(peer) {
			out = append(out, peer)
		}
	}
	return out
}

// left are the peers that have a path which holds the address and is not wanted for another VIP.
func (r *Routers) left(a netip.Addr) []string {
	out := r.Report.Paths[model.PrefixOf(a, 0)]
	for _, n := range r.lengthsLike(a) {
		p := model.PrefixOf(a, n)
		wanted, found := slices.BinarySearchFunc(r.Aggregates, p, func(x model.BGPPath, p netip.Prefix) int { return model.ComparePaths(x.Prefix, p) })
		for _, peer := range r.Report.Paths[p] {
			if found && r.Aggregates[wanted].Has(peer) {
				continue
			}
			if !slices.Contains(out, peer) {
				out = append(slices.Clip(out), peer)
			}
		}
	}
	return out
}

// lengthsLike are those of the prefixes of several addresses that peers have, for the family of
// an address.
func (r *Routers) lengthsLike(a netip.Addr) []int {
	if r.lengths == nil {
		r.lengths = map[bool][]int{}
		for p, peers := range r.Report.Paths {
			four := p.Addr().Is4()
			if !p.IsSingleIP() && len(peers) > 0 && !slices.Contains(r.lengths[four], p.Bits()) {
				r.lengths[four] = append(r.lengths[four], p.Bits())
			}
		}
		for _, l := range r.lengths {
			slices.Sort(l)
		}
	}
	return r.lengths[a.Is4()]
}

// missing names the peers that do not have a path, and why. VIPs whose lists of peers are the
// same ones share the words.
func (r *Routers) missing(peers, advertised []string) string {
	if last := &r.lack; len(peers) > 0 && identical(last.peers, peers) && identical(last.advertised, advertised) {
		return last.words
	}
	var out []string
	for _, p := range peers {
		if slices.Contains(advertised, p) {
			continue
		}
		x := r.session(p)
		state := cmp.Or(x.State, "no session yet")
		if x.LastError != "" && x.State != established {
			state += ", " + x.LastError
		}
		out = append(out, fmt.Sprintf("not to %s (%s)", p, state))
	}
	r.lack.peers, r.lack.advertised, r.lack.words = peers, advertised, strings.Join(out, "; ")
	return r.lack.words
}

// identical tells whether two lists are one, or both empty.
func identical(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// conflicts tells in words where adverts of the VIP, or of others in its prefixes, do not agree.
func (s *step) conflicts() string {
	out := s.in.Audience.Conflict
	if others := s.in.Routers.Conflicts; len(others) > 0 {
		for _, r := range s.in.Audience.Routes { // none is of an address alone
			out = both(out, others[model.PrefixOf(s.in.VIP.Addr, r.Length)])
		}
	}
	return out
}
