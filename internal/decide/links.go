package decide

import (
	"cmp"
	"slices"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// tellMACs sets the hardware addresses from which this node speaks to others of the group:
// those of the links that a VIP of layer 2 may be on, then of those with another node or a
// router, and of what is below either. There is no room for more than model.MaxMACs.
func tellMACs(v *model.View, g *model.GroupState) {
	rank := func(l *model.Link) int {
		switch {
		case l.Name == model.LoopbackInterface:
		case place.AnyBelongsOn(v.VIPs, l, true):
			return 1
		case neighbours(v, l):
			return 2
		}
		return 0
	}
	type told struct {
		rank, index int
		mac         model.MAC
	}
	var all []told
	for _, l := range place.Mattering(v.VIPs, v.Links) {
		r := rank(l)
		for _, o := range v.Links {
			if r == 0 && (o.Name == l.Bond || o.Parent == l.Name) {
				r = rank(&o)
			}
		}
		if r != 0 && l.MAC != (model.MAC{}) {
			all = append(all, told{r, l.Index, l.MAC})
		}
	}
	slices.SortFunc(all, func(a, b told) int { return cmp.Or(a.rank-b.rank, a.index-b.index) })
	g.MACs = nil
	for _, t := range all {
		if !slices.Contains(g.MACs, t.mac) {
			g.MACs = append(g.MACs, t.mac)
		}
	}
	g.Untold = max(0, len(g.MACs)-model.MaxMACs)
	g.MACs = g.MACs[:len(g.MACs)-g.Untold]
	slices.SortFunc(g.MACs, model.MAC.Compare)
}
