package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/internal/model"
)

// audience is who is told of VIPs of one family with the same adverts, and how. It
// is found once for all of them.
type audience struct {
	adverts  []model.BGPAdvert
	four     bool
	peers    []string // all that are to have a path
	delay    time.Duration
	keep     bool    // all of them keep the path over a restart
	routes   []route // that to the address alone first
	conflict string  // in words
}

// route is what is advertised of an address by adverts of the same length.
type route struct {
	length      int      // 0: the address alone
	peers       []string // that are to have it
	to, leaving []model.BGPAudience
}

// audiences are those of a path, with GRACEFUL_SHUTDOWN or without.
func (r *route) audiences(shutdown bool) []model.BGPAudience {
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

// audienceOf finds the audience of a VIP.
func (f *facts) audienceOf(vip *model.VIP) *audience {
	four := vip.Addr.Is4()
	k := asked{&vip.BGP[0], len(vip.BGP), four}
	if a := f.audiences[k]; a != nil {
		return a
	}
	for _, a := range f.recent {
		if a != nil && a.four == four && slices.EqualFunc(a.adverts, vip.BGP, sameAdvert) {
			return a // another list, which says the same
		}
	}
	a := f.newAudience(vip.BGP, vip.Addr)
	if f.audiences == nil {
		f.audiences = make(map[asked]*audience)
	}
	f.audiences[k] = a
	copy(f.recent[1:], f.recent[:])
	f.recent[0] = a
	return a
}

func sameAdvert(a, b model.BGPAdvert) bool {
	return a.Length == b.Length && slices.Equal(a.Peers, b.Peers) && a.PathAttributes.Equal(&b.PathAttributes)
}

// newAudience finds who is told of addresses like this one.
func (f *facts) newAudience(adverts []model.BGPAdvert, like addr) *audience {
	a := &audience{adverts: adverts, four: like.Is4(), keep: true}
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
		for i := range f.peers {
			p := &f.peers[i]
			for j := range adverts {
				if b := &adverts[j]; lengthOf(b, like) == n && wants(b, p, a.four) {
					u.add(p.Name, &b.PathAttributes, false)
				}
			}
		}
		if len(u.names) > 0 {
			r := route{length: n, peers: u.names, to: u.audiences()}
			r.leaving = slices.Clone(r.to)
			for i := range r.leaving {
				r.leaving[i].Shutdown = true
			}
			a.routes = append(a.routes, r)
		}
	}
	a.conflict = u.words("its adverts differ")
	for i := range f.peers {
		p := &f.peers[i]
		if slices.ContainsFunc(a.routes, func(r route) bool { return slices.Contains(r.peers, p.Name) }) {
			a.peers = append(a.peers, p.Name)
			a.delay = max(a.delay, p.ShutdownDelay)
			a.keep = a.keep && p.GracefulRestart
		}
	}
	return a
}

// lengthOf is the length of the prefix of several addresses that an advert asks for,
// 0 if of one.
func lengthOf(b *model.BGPAdvert, like addr) int {
	if b.Length < 0 || b.Length >= like.BitLen() {
		return 0
	}
	return b.Length
}

// union unites what several adverts say of one prefix, for each peer.
type union struct {
	names     []string // of peers, sorted
	attrs     []model.PathAttributes
	shutdown  []bool
	conflicts []string
}

// begin forgets all but the conflicts.
func (u *union) begin() { u.names, u.attrs, u.shutdown = nil, nil, nil }

// add adds what one advert says to one peer. Routers are asked to leave only if all
// say so.
func (u *union) add(peer string, a *model.PathAttributes, shutdown bool) {
	i, known := slices.BinarySearch(u.names, peer)
	if !known {
		u.names = slices.Insert(u.names, i, peer)
		u.attrs = slices.Insert(u.attrs, i, *a)
		u.shutdown = slices.Insert(u.shutdown, i, shutdown)
		return
	}
	u.shutdown[i] = u.shutdown[i] && shutdown
	if sum := &u.attrs[i]; !sum.Equal(a) {
		u.unite(peer, sum, a)
	}
}

// unite adds the communities up. What a path has only one of should be the same;
// if not, one that is set goes before none, the higher LOCAL_PREF before the lower,
// and the lower MED and number of prepends before the higher: what routers prefer,
// in whatever order adverts come.
func (u *union) unite(peer string, sum, a *model.PathAttributes) {
	clash := func(field string, used any) {
		words := fmt.Sprintf("for peer %s in %s (%v is used)", peer, field, used)
		if !slices.Contains(u.conflicts, words) {
			u.conflicts = append(u.conflicts, words)
		}
	}
	if sum.LocalPref != a.LocalPref {
		sum.LocalPref = max(sum.LocalPref, a.LocalPref)
		clash("localPref", sum.LocalPref)
	}
	if sum.MED != a.MED || sum.MEDSet != a.MEDSet {
		if !sum.MEDSet || a.MEDSet && a.MED < sum.MED {
			sum.MED = a.MED
		}
		sum.MEDSet = true
		clash("med", sum.MED)
	}
	if sum.Prepend != a.Prepend {
		sum.Prepend = min(sum.Prepend, a.Prepend)
		clash("asPathPrepend", sum.Prepend)
	}
	sum.Communities = merge(sum.Communities, a.Communities, cmp.Compare)
	sum.LargeCommunities = merge(sum.LargeCommunities, a.LargeCommunities, func(x, y [3]uint32) int { return slices.Compare(x[:], y[:]) })
}

// merge returns a sorted list of what is in either sorted list.
func merge[T comparable](a, b []T, compare func(x, y T) int) []T {
	if len(b) == 0 || slices.Equal(a, b) {
		return a
	}
	all := slices.Concat(a, b)
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}

// audiences groups the peers that are told the same.
func (u *union) audiences() []model.BGPAudience {
	var out []model.BGPAudience
	for i, name := range u.names {
		at := slices.IndexFunc(out, func(x model.BGPAudience) bool {
			return x.Shutdown == u.shutdown[i] && x.PathAttributes.Equal(&u.attrs[i])
		})
		if at < 0 {
			at = len(out)
			out = append(out, model.BGPAudience{PathAttributes: u.attrs[i], Shutdown: u.shutdown[i]})
		}
		out[at].Peers = append(out[at].Peers, name)
	}
	return out
}

// mostConflicts is how many conflicts people are told of.
const mostConflicts = 3

// words tells of the conflicts; empty without one.
func (u *union) words(who string) string {
	if len(u.conflicts) == 0 {
		return ""
	}
	out := who + " " + strings.Join(u.conflicts[:min(len(u.conflicts), mostConflicts)], ", ")
	if n := len(u.conflicts) - mostConflicts; n > 0 {
		out += fmt.Sprintf(" and %d more", n)
	}
	return out
}
