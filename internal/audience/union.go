package audience

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/shortlist"
)

// contribution is one VIP in a prefix of several, or many that are advertised alike.
type contribution struct {
	route    *Route
	shutdown bool
}

// contribute has a prefix of several addresses advertised because of one of them.
func (all *All) contribute(p netip.Prefix, r *Route, shutdown bool) {
	if all.aggregates == nil {
		all.aggregates = make(map[netip.Prefix][]contribution)
	}
	if c := (contribution{r, shutdown}); !slices.Contains(all.aggregates[p], c) {
		all.aggregates[p] = append(all.aggregates[p], c)
	}
}

// End adds the paths to prefixes of several addresses, once all are known.
func (all *All) End(v *model.View, d *model.Desired, add func(model.BGPPath)) {
	d.Memory.Aggregates, d.Memory.Conflicts = all.Aggregates()
	for _, path := range d.Memory.Aggregates {
		add(path)
	}
	if len(d.Memory.Aggregates) > 0 && !maps.Equal(d.Memory.Conflicts, v.Memory.Conflicts) {
		d.WakeBy(v.Now) // the next decision tells of them
	}
}

// Aggregates are the paths to prefixes of several addresses, in order, and in words where
// adverts of one of them differ; nil if they do not.
func (all *All) Aggregates() (paths []model.BGPPath, conflicts map[netip.Prefix]string) {
	if len(all.aggregates) == 0 {
		return nil, nil // without an allocation, in each decision
	}
	for _, p := range slices.SortedFunc(maps.Keys(all.aggregates), model.ComparePaths) {
		to, words := unite(p, all.aggregates[p])
		paths = append(paths, model.BGPPath{Prefix: p, To: to})
		if words != "" {
			if conflicts == nil {
				conflicts = make(map[netip.Prefix]string)
			}
			conflicts[p] = words
		}
	}
	return paths, conflicts
}

// unite finds who gets a prefix, and how, from all that contribute to it.
func unite(p netip.Prefix, all []contribution) (to []model.BGPAudience, conflict string) {
	alike := !slices.ContainsFunc(all, func(c contribution) bool { return c.route != all[0].route })
	if alike {
		return all[0].route.To(!slices.ContainsFunc(all, func(c contribution) bool { return !c.shutdown })), ""
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
	return who + " " + shortlist.Join(u.conflicts, mostConflicts)
}
