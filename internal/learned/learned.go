// Package learned decides where packets for VIPs go on a machine that learns by BGP which
// masters have them. It is pure.
//
// All machines that hear the same paths make the same routes: next hops are sorted, and nothing
// depends on the order in which paths came, but where there are more than MaxNextHops.
package learned

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

const (
	// HearingTime is how long after the start of the process masters may take to connect.
	// Meanwhile what an earlier process knew of them holds. It is several attempts of theirs.
	HearingTime = 10 * time.Second
	// MaxNextHops is how many next hops a prefix has at most.
	MaxNextHops = 256
	// MaxRefused is how many refused paths are told one by one.
	MaxRefused = 100
)

// Input is all that the step may look at.
type Input struct {
	Now, Started time.Time // Started is when the process did
	Listeners    []model.BGPListener
	Paths        []model.LearnedPath // in any order
	Links        map[string]model.Link
	Memory       model.LearnedMemory
}

// Output is what follows.
type Output struct {
	// State has a route for each accepted prefix, also for one that nobody advertises:
	// it is unreachable, and an upstream must not be told of it.
	State model.RouteState
	// Refusals are what leads to no route.
	model.Refusals
	Memory model.LearnedMemory
	Wake   time.Time
}

// Step decides. Applied to its own output with unchanged facts it changes nothing.
func Step(in *Input) Output {
	s := step{Input: in, accept: make(map[netip.Prefix]*model.BGPListener), hops: make(map[netip.Prefix][]model.NextHop)}
	s.accepted()
	if end := in.Started.Add(HearingTime); len(s.accept) > 0 && in.Now.Before(end) {
		s.out.State.Hearing, s.out.Wake = true, end
	}
	s.paths()
	for _, prefix := range s.order {
		s.route(prefix)
	}
	return s.out
}

type step struct {
	*Input
	accept map[netip.Prefix]*model.BGPListener // whose a prefix is
	order  []netip.Prefix                      // of accept
	hops   map[netip.Prefix][]model.NextHop    // what is learned for one
	out    Output
}

// accepted finds out which prefixes may be advertised. One that would take what belongs to this
// machine is refused, and of two that overlap the second one.
func (s *step) accepted() {
	listeners := slices.Clone(s.Listeners)
	slices.SortFunc(listeners, func(a, b model.BGPListener) int { return compareNames(a.Name, b.Name) })
	for i := range listeners {
		l := &listeners[i]
		for _, prefix := range l.Accept {
			why := s.unfit(prefix)
			if why == "" {
				why = s.overlaps(prefix)
			}
			if why != "" {
				s.out.Prefixes = append(s.out.Prefixes, model.RefusedPrefix{Listener: l.Name, Prefix: prefix, Why: why})
				continue
			}
			s.accept[prefix] = l
			s.order = append(s.order, prefix)
		}
	}
	slices.SortFunc(s.order, model.ComparePaths)
}

func compareNames(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// unfit is why a prefix cannot be accepted on this machine; "" if it can.
func (s *step) unfit(prefix netip.Prefix) string {
	switch a := prefix.Addr(); {
	case !prefix.IsValid() || prefix != prefix.Masked() || a.Is4In6():
		return "it is no prefix"
	case prefix.Bits() == 0:
		return "it is the default route"
	case a.IsMulticast() || a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast():
		return "no route can lead there"
	}
	if name, own, is := s.own(prefix); is {
		if own.Masked().Bits() < own.Addr().BitLen() && prefix.Bits() <= own.Bits() {
			return fmt.Sprintf("it holds %s, the subnet of interface %s of this machine", own.Masked(), name)
		}
		return fmt.Sprintf("it holds %s, an address of this machine on interface %s", own.Addr(), name)
	}
	for i := range s.Listeners {
		for _, peers := range s.Listeners[i].PeerPrefixes {
			if peers = peers.Masked(); peers.IsValid() && prefix.Bits() <= peers.Bits() && prefix.Contains(peers.Addr()) {
				return fmt.Sprintf("it holds %s, in which BGPListener %s has its masters", peers, s.Listeners[i].Name)
			}
		}
	}
	return ""
}

// own is the first address of this machine that is in a prefix, or whose subnet is.
func (s *step) own(prefix netip.Prefix) (name string, own netip.Prefix, is bool) {
	for n, l := range s.Links {
		for _, p := range l.Prefixes {
			subnet := p.Masked()
			within := prefix.Contains(p.Addr()) || subnet.IsValid() && prefix.Bits() <= subnet.Bits() && prefix.Contains(subnet.Addr())
			if within && (!is || n < name || n == name && p.Addr().Less(own.Addr())) {
				name, own, is = n, p, true
			}
		}
	}
	return name, own, is
}

// overlaps is with what a prefix overlaps that is accepted already; "" if with nothing.
func (s *step) overlaps(prefix netip.Prefix) string {
	first := netip.Prefix{}
	for other := range s.accept {
		if prefix.Overlaps(other) && (!first.IsValid() || model.ComparePaths(other, first) < 0) {
			first = other
		}
	}
	if !first.IsValid() {
		return ""
	}
	return fmt.Sprintf("it overlaps with %s of BGPListener %s", first, s.accept[first].Name)
}

// route makes the route of one accepted prefix.
func (s *step) route(prefix netip.Prefix) {
	at, known := slices.BinarySearchFunc(s.Memory.Routes, prefix, func(r model.LearnedRoute, p netip.Prefix) int { return model.ComparePaths(r.Prefix, p) })
	var was model.LearnedRoute
	if known {
		was = s.Memory.Routes[at]
	}
	spread := s.accept[prefix].Spread
	most := MaxNextHops
	if spread.Resilient && spread.Buckets > 0 {
		most = min(most, int(spread.Buckets))
	}
	hops := few(s.hops[prefix], was.NextHops, most)
	if known && slices.Equal(hops, was.NextHops) {
		hops = was.NextHops // the same list
	} else {
		was.Since = s.Now
	}
	s.out.State.Routes = append(s.out.State.Routes, model.Route{Prefix: prefix, NextHops: hops, Spread: spread})
	s.out.Memory.Routes = append(s.out.Memory.Routes, model.LearnedRoute{Prefix: prefix, NextHops: hops, Since: was.Since})
}

// few sorts next hops, each once, and leaves no more than so many: those in use come first.
func few(hops, used []model.NextHop, most int) []model.NextHop {
	slices.SortFunc(hops, model.NextHop.Compare)
	hops = slices.Compact(hops)
	if len(hops) <= most {
		return hops
	}
	stay := slices.DeleteFunc(slices.Clone(hops), func(h model.NextHop) bool { return !slices.Contains(used, h) })
	stay = stay[:min(len(stay), most)]
	for _, h := range hops {
		if len(stay) == most {
			break
		}
		if !slices.Contains(used, h) {
			stay = append(stay, h)
		}
	}
	slices.SortFunc(stay, model.NextHop.Compare)
	return stay
}
